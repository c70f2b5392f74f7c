"""Has a person had the draft in hand, and who approved?"""

from __future__ import annotations

from typing import Any

import pytest

from klaud.github import model as hub
from klaud.leases import rules_touch as touches
from klaud.session import rules_touch
from tests.support.session_records import ALICE, BOT, HELPER, OID, at, final, pull

WHO = rules_touch.Who(bot=90001, ignored=(77,))


def detail(events: Any = (), commits: Any = (OID,), **fields: Any) -> hub.PullDetail:
    made = [hub.Commit(oid=oid, author=BOT, committer=BOT) for oid in commits]
    complete = fields.pop("complete", True)
    commits_complete = fields.pop("commits_complete", True)
    return hub.PullDetail(
        pull=pull(**fields),
        commits=hub.Listing(tuple(made), commits_complete),
        timeline=hub.Listing(tuple(events), complete),
    )


def event(kind: str, actor: hub.Account | None, seconds: float = 1, text: str = "") -> hub.Event:
    return hub.Event(kind=kind, actor=actor, at=at(seconds), detail=text)


@pytest.mark.parametrize(
    ("seen", "runs", "theirs"),
    [
        (detail(), (), False),
        (detail([event("labeled", BOT), event("commented", HELPER), event("mentioned", ALICE)]), (), False),
        (detail([event("commented", ALICE)]), (), True),
        (detail([event("reviewed", None)]), (), True),
        (detail([event("labeled", hub.Account(id=77, login="ci"))]), (), False),
        (detail(commits=(OID, "b" * 40)), (), True),
        (detail(complete=False), (), True),
        (detail(commits_complete=False), (), True),
        (detail(body_edited_at=at(1), editor=ALICE), (), True),
        (detail(body_edited_at=at(1), editor=BOT), (), False),
        (detail(), (final(triggering_actor=ALICE),), True),
        (detail(), (final(triggering_actor=BOT),), False),
        (detail([event("commented", ALICE, 1), event("unlabeled", ALICE, 2, "klaud-handoff")]), (), False),
        (detail([event("commented", ALICE, 3), event("unlabeled", ALICE, 2, "klaud-handoff")]), (), True),
        (detail([event("commented", ALICE, 1), event("unlabeled", BOT, 2, "klaud-handoff")]), (), True),
        (detail([event("unlabeled", ALICE, 2, "klaud-handoff")], (OID, "b" * 40)), (), True),
    ],
)
def test_a_persons_touch(seen: hub.PullDetail, runs: tuple[hub.Run, ...], *, theirs: bool) -> None:
    assert bool(rules_touch.touched(seen, frozenset({OID}), runs, WHO)) is theirs


def test_an_answer_by_label_is_no_touch_and_any_other_label_is() -> None:
    """The approval label answers klaud; a rule without that exception (the broken twin) takes it for a take-over."""
    asking = rules_touch.Who(bot=90001, approvals=("ok",))
    answered = detail([event("labeled", ALICE, 1, "ok"), event("unlabeled", ALICE, 2, "ok")])
    assert rules_touch.touched(answered, frozenset({OID}), (), asking) == ""
    assert rules_touch.touched(answered, frozenset({OID}), (), WHO), "the twin"
    other = detail([event("labeled", ALICE, 1, "okay")])
    assert rules_touch.touched(other, frozenset({OID}), (), asking)


def test_who_approved_is_read_from_the_newest_event_of_the_label() -> None:
    def approved(*events: hub.Event, labels: tuple[str, ...] = ("ok",), complete: bool = True) -> bool:
        found = touches.approver(detail(events, labels=labels, complete=complete), "ok", WHO)
        assert found in {None, ALICE}
        return found is not None

    assert approved(event("labeled", ALICE, 1, "ok"))
    assert not approved(event("labeled", ALICE, 1, "ok"), labels=())
    assert not approved(event("labeled", ALICE, 1, "ok"), complete=False)
    assert not approved(), "set, and nobody knows by whom"
    assert not approved(event("labeled", ALICE, 1, "ok"), event("unlabeled", ALICE, 2, "ok"))
    assert not approved(event("labeled", ALICE, 1, "ok"), event("labeled", BOT, 2, "ok"))
    assert not approved(event("labeled", HELPER, 1, "ok"))
    assert not approved(event("labeled", None, 1, "ok")), "a deleted account cannot vouch"
    assert touches.approver(detail(labels=("",)), "", WHO) is None
