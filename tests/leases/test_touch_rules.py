"""Has a person had a draft in hand? What session and recovery share, by tables: accounts, acts, edits, approvals."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from klaud import names
from klaud.github import model as github
from klaud.leases import rules_touch
from tests.support.memory_cases import AT, BOT, draft, listing

if TYPE_CHECKING:
    from collections.abc import Sequence

ALICE = github.Account(id=101, login="alice")
HELPER = github.Account(id=90002, login="helper")
APP = github.Account(id=5, login="other-app", type="Bot")
WHO = rules_touch.Who(bot=BOT.id, ignored=(HELPER.id, 7), approvals=("may-run", "may-spend"))
HANDOFF = names.HANDOFF_LABEL


def event(kind: str, actor: github.Account | None = ALICE, hour: int = 0, text: str = "") -> github.Event:
    return github.Event(kind=kind, actor=actor, at=AT + datetime.timedelta(hours=hour), detail=text)


def pull(*events: github.Event, complete: bool = True, **fields: Any) -> github.PullDetail:
    found = draft()
    return msgspec.structs.replace(
        found, pull=msgspec.structs.replace(found.pull, **fields), timeline=listing(*events, complete=complete)
    )


PERSONS = [
    (ALICE, True),
    (None, True),
    (github.Account(id=777, login="klaud-bot[bot]"), True),
    (github.Account(id=778, login="org", type="Organization"), True),
    (BOT, False),
    (github.Account(id=BOT.id, login="renamed"), False),
    (HELPER, False),
    (github.Account(id=7, login="second"), False),
    (APP, False),
]


@pytest.mark.parametrize(("account", "person"), PERSONS)
def test_who_is_a_person(account: github.Account | None, person: bool) -> None:
    """By exact id and by GitHub's own type; a deleted account is one."""
    assert WHO.person(account) is person


# -- given back


@pytest.mark.parametrize(
    ("events", "hour"),
    [
        ((), None),
        ((event("unlabeled", ALICE, 1, HANDOFF),), 1),
        ((event("unlabeled", ALICE, 1, HANDOFF), event("unlabeled", ALICE, 2, HANDOFF)), 2),
        ((event("unlabeled", ALICE, 2, HANDOFF), event("unlabeled", ALICE, 1, HANDOFF)), 2),
        ((event("labeled", ALICE, 1, HANDOFF),), None),
        ((event("unlabeled", ALICE, 1, "other"),), None),
        ((event("unlabeled", None, 1, HANDOFF),), None),
        ((event("unlabeled", BOT, 1, HANDOFF),), None),
        ((event("unlabeled", APP, 1, HANDOFF),), None),
        ((event("unlabeled", ALICE, 1, HANDOFF), event("unlabeled", BOT, 2, HANDOFF)), 1),
    ],
)
def test_a_draft_is_given_back_by_a_person_who_takes_the_label_off(
    events: Sequence[github.Event], hour: int | None
) -> None:
    """The last time counts; a deleted account, klaud and bots give nothing back."""
    expected = None if hour is None else AT + datetime.timedelta(hours=hour)
    assert rules_touch.given_back_at(events, WHO) == expected


# -- acts


def acts(*events: github.Event) -> list[str]:
    return [e.kind for e in rules_touch.acts(pull(*events), WHO)]


@pytest.mark.parametrize(("account", "person"), PERSONS)
def test_only_persons_act(account: github.Account | None, person: bool) -> None:
    """Whatever klaud and bots do is no touch; an unknown kind by a person is one."""
    for kind in ("commented", "odd-new-kind"):
        assert acts(event(kind, account)) == ([kind] if person else [])


@pytest.mark.parametrize("kind", sorted(rules_touch.PASSIVE))
def test_what_a_person_causes_without_acting_is_no_act(kind: str) -> None:
    """And hides nothing that comes after it."""
    assert acts(event(kind), event("commented")) == ["commented"]


def test_the_passive_kinds_are_these() -> None:
    """Every other kind counts."""
    named = "mentioned subscribed unsubscribed cross-referenced referenced connected disconnected committed"
    assert set(named.split()) == rules_touch.PASSIVE


@pytest.mark.parametrize(
    ("one", "counts"),
    [
        (event("labeled", text="may-run"), False),
        (event("unlabeled", text="may-spend"), False),
        (event("labeled", text="other"), True),
        (event("unlabeled", text="other"), True),
        (event("commented", text="may-run"), True),
    ],
)
def test_an_approval_label_answers_klaud(one: github.Event, counts: bool) -> None:
    """Setting or removing it is no touch; what comes after it is judged by itself."""
    assert acts(one, event("renamed")) == [*([one.kind] if counts else []), "renamed"]


def test_what_came_before_the_draft_was_given_back_is_forgotten() -> None:
    """The moment itself too; what comes after counts, in order."""
    back = event("unlabeled", ALICE, 2, HANDOFF)
    events = (event("commented", hour=1), event("reviewed", hour=2), back, event("renamed", hour=3))
    assert acts(*events) == ["renamed"]
    assert acts(event("commented", hour=1), event("reviewed", hour=2)) == ["commented", "reviewed"]


# -- edits


@pytest.mark.parametrize(
    ("edited", "editor", "since", "found"),
    [
        (None, ALICE, None, False),
        (1, ALICE, None, True),
        (1, None, None, True),
        (1, BOT, None, False),
        (1, APP, None, False),
        (1, ALICE, 0, True),
        (1, ALICE, 1, False),
        (1, ALICE, 2, False),
        (None, ALICE, 0, False),
    ],
)
def test_a_person_edited_title_or_body(
    edited: int | None, editor: github.Account | None, since: int | None, found: bool
) -> None:
    """After it was given back, not at that moment; klaud's and bots' edits are none."""
    at = [None if hour is None else AT + datetime.timedelta(hours=hour) for hour in (edited, since)]
    seen = pull(body_edited_at=at[0], editor=editor).pull
    assert rules_touch.edited(seen, at[1], WHO) == (at[0] if found else None)


# -- approvals


SET, UNSET = event("labeled", ALICE, 1, "may-run"), event("unlabeled", ALICE, 2, "may-run")


def approved(
    *events: github.Event, label: str = "may-run", labels: tuple[str, ...] = ("x", "may-run"), **more: Any
) -> bool:
    by = rules_touch.approver(pull(*events, labels=labels, **more), label, WHO)
    assert by in {None, ALICE}
    return by is not None


def test_an_approval_is_a_label_that_a_person_set() -> None:
    """One that is there now, by a timeline that is whole."""
    assert approved(SET) is True
    assert approved(SET, complete=False) is False
    assert approved(SET, labels=("x",)) is False
    assert approved(SET, labels=()) is False
    assert approved(SET, label="") is False
    assert approved(event("labeled", ALICE, 1, ""), label="", labels=("",)) is False
    assert approved() is False
    assert approved(event("labeled", ALICE, 1, "other")) is False
    assert approved(event("commented", ALICE, 1, "may-run")) is False


@pytest.mark.parametrize(
    "actor", [None, BOT, APP, HELPER], ids=["a deleted account", "klaud", "another bot", "an ignored account"]
)
def test_who_cannot_approve(actor: github.Account | None) -> None:
    """Nobody who cannot be asked, and no machine; also after a person did."""
    theirs = event("labeled", actor, 3, "may-run")
    assert approved(theirs) is False
    assert approved(SET, theirs) is False
    assert approved(theirs, event("labeled", ALICE, 4, "may-run")) is True


@pytest.mark.parametrize(
    ("events", "is_approved"),
    [
        ((SET, UNSET), False),
        ((UNSET, SET), False),
        ((SET, UNSET, event("labeled", ALICE, 3, "may-run")), True),
        ((event("labeled", ALICE, 3, "may-run"), UNSET), True),
        ((SET, event("unlabeled", ALICE, 1, "may-run")), False),
        ((event("unlabeled", ALICE, 1, "may-run"), SET), True),
        ((SET, event("unlabeled", ALICE, 2, "other")), True),
        ((SET, event("commented", ALICE, 2, "may-run")), True),
    ],
)
def test_the_last_word_on_the_label_counts(events: tuple[github.Event, ...], is_approved: bool) -> None:
    """By time, and by place in the list where times are equal."""
    assert approved(*events) is is_approved
