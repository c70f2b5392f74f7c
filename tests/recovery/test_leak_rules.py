"""What has no owner after a sweep, by tables: who owns what, how old it is, and when it is too much."""

from __future__ import annotations

import datetime
from typing import Any

import msgspec
import pytest

from klaud.leases import codec
from klaud.leases import model as leases
from klaud.recovery import decide_leaks, model
from tests.support.memory_cases import AT, CANDIDATE, POLICY, case, claim, draft, held, holder, ledger

KINDS = ("claims", "leases", "branches", "drafts")
LIMITS = model.Policy(leak_claims=1, leak_leases=2, leak_branches=3, leak_drafts=4)
LIVE = {"1b", "4", "5", "9", "12", "13"}
"""Rows of a session that is alive, waited for, or could not be read: all that it has is its own."""
GIVEN = {"2", "3", "6", "8", "11", "16"}
"""Rows after which branch and draft are a person's, merged, or ready; a claim that is left has no owner."""


def hours(count: float) -> datetime.datetime:
    return AT + datetime.timedelta(hours=count)


def after(row: Any = "14", *actions: model.Action, one: Any = None, **left: int) -> decide_leaks.After:
    """Return a session after the sweep, with these many things of each kind left (one of each by default)."""
    verdict = model.Verdict(case=one or case(), row=row, state="s", actions=actions)
    return decide_leaks.After(verdict=verdict, **(left or dict.fromkeys(KINDS, 1)))


def leave(code: Any) -> model.Leave:
    return model.Leave(why="w", code=code)


def leaked(*found: decide_leaks.After) -> dict[str, int]:
    """Return how many of each kind have no owner, without those that all have one."""
    counted = decide_leaks.count(found, POLICY, AT)
    assert tuple(counted) == KINDS
    return {kind: leak.count for kind, leak in counted.items() if leak.count}


EACH = dict.fromkeys(KINDS, 1)
LOST_CLAIM = {"claims": 1, "leases": 1}


@pytest.mark.parametrize("row", [*model.ROWS, "lease", "unmatched"])
def test_each_row_says_who_owns_what_is_left(row: str) -> None:
    """Alone: claims by one list, branch and draft by a longer one, a lease by none."""
    expected = {"leases": 1} if row in LIVE else LOST_CLAIM if row in GIVEN else EACH
    assert leaked(after(row)) == expected


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("touched", LOST_CLAIM),
        ("handed-off", LOST_CLAIM),
        ("ready", LOST_CLAIM),
        ("in-hand", {"claims": 1, "branches": 1, "drafts": 1}),
        ("error", {"claims": 1, "branches": 1, "drafts": 1}),
        ("drain", EACH),
        ("budget", EACH),
        ("unknown-head", EACH),
        ("settled", EACH),
    ],
)
def test_what_was_left_on_purpose_has_an_owner(code: str, expected: dict[str, int]) -> None:
    """A person's, or a pass's that lives; what was put off or is not understood has none. Among other actions, too."""
    release = model.ReleaseClaim(why="w", ref="r", oid="o")
    assert leaked(after("15", leave(code))) == expected
    assert leaked(after("15", release, leave(code))) == expected


@pytest.mark.parametrize(
    ("is_open", "is_draft", "owned"), [(True, False, True), (True, True, False), (False, False, False)]
)
def test_an_open_ready_pull_request_owns_its_branch(is_open: bool, is_draft: bool, owned: bool) -> None:
    """People may be looking at it; also where it is one of several. The claim is not its."""
    found = draft(is_open=is_open)
    ready = msgspec.structs.replace(found, pull=msgspec.structs.replace(found.pull, draft=is_draft))
    for pulls in ((ready,), (draft(is_open=False), ready)):
        assert leaked(after(one=case(pulls=pulls))) == (LOST_CLAIM if owned else EACH)


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_counted_by_itself(kind: str) -> None:
    """With its own limit, and summed over sessions; one that is owned changes nothing."""
    found = [after(**{kind: 2}), after(**{kind: 3}), after("5", leave("in-hand"), **{kind: 4})]
    counted = decide_leaks.count(found, LIMITS, AT)
    limits = dict(zip(KINDS, (1, 2, 3, 4), strict=True))
    for other in KINDS:
        assert counted[other] == model.Leak(count=5 if other == kind else 0, limit=limits[other])


def aged(*at: float, **left: int) -> decide_leaks.After:
    """Return a session whose draft was opened so many hours after the start."""
    pulls = []
    for number, hour in enumerate(at):
        found = draft(is_open=False, number=number)
        pulls.append(msgspec.structs.replace(found, pull=msgspec.structs.replace(found.pull, created_at=hours(hour))))
    return after(one=case(pulls=tuple(pulls)), **left)


@pytest.mark.parametrize(
    ("found", "age"),
    [
        ((aged(1, claims=1),), 9.0),
        ((aged(1, claims=1), aged(2, claims=1)), 9.0),
        ((aged(2, claims=1), aged(1, claims=1)), 9.0),
        ((aged(1.04, claims=1),), 9.0),
        ((aged(1.06, claims=1),), 8.9),
        ((aged(-990, claims=1),), 1000.0),
        ((aged(1, leases=1), aged(2, claims=1)), 8.0),
        ((aged(claims=1),), None),
        ((aged(claims=1), aged(2, claims=1)), 8.0),
        ((aged(2, claims=1), aged(claims=1)), 8.0),
        ((aged(1, claims=0, leases=1),), None),
        ((), None),
    ],
)
def test_the_age_of_the_oldest(found: tuple[decide_leaks.After, ...], age: float | None) -> None:
    """In hours, to a tenth; of what leaks only; None where nothing says when it began."""
    assert decide_leaks.count(found, POLICY, hours(10))["claims"].oldest_hours == age


def dated(hour: float) -> leases.Held:
    found = claim(holder(60))
    return msgspec.structs.replace(found, record=msgspec.structs.replace(found.record, at=hours(hour)))


LEASED = held(leases.Lease(at=hours(3), wave="50.1", candidate=CANDIDATE, holder=holder(40)))
OPENED = msgspec.structs.replace(draft(), pull=msgspec.structs.replace(draft().pull, created_at=hours(2)))
LATE = leases.TurnStarted(at=hours(-1), index=0)


@pytest.mark.parametrize(
    ("one", "since"),
    [
        (case(), None),
        (case(ledger=leases.Ledger("l", "o" * 40, ())), None),
        (case(ledger=ledger()), hours(0)),
        (case(ledger=ledger(LATE)), hours(0)),
        (case(claim=dated(1)), hours(1)),
        (case(pulls=(OPENED,)), hours(2)),
        (case(lease=LEASED), hours(3)),
        (case(lease=LEASED, pulls=(OPENED,)), hours(2)),
        (case(lease=LEASED, pulls=(OPENED,), claim=dated(1)), hours(1)),
        (case(lease=LEASED, pulls=(OPENED,), claim=dated(1), ledger=ledger()), hours(0)),
    ],
)
def test_a_session_began_when_its_first_object_did(one: model.Case, since: datetime.datetime | None) -> None:
    """Pull request, ledger (its first record), claim, lease: the earliest."""
    assert decide_leaks.since(one) == since


def test_above_the_limit_not_at_it() -> None:
    """The kinds by name, in order."""
    leaks = {"b": model.Leak(count=2, limit=1), "c": model.Leak(count=1, limit=1), "a": model.Leak(count=1, limit=0)}
    assert decide_leaks.over(leaks) == ("a", "b")


@pytest.mark.parametrize(
    ("was", "above", "recent", "now"),
    [
        (None, False, False, 0),
        (None, True, False, 1),
        (None, True, True, 1),
        (0, True, False, 1),
        (1, True, False, 2),
        (1, True, True, 1),
        (2, True, True, 2),
        (0, True, True, 1),
        (3, False, False, 0),
        (3, False, True, 0),
    ],
)
def test_sweeps_above_the_limits_in_a_row(was: int | None, above: bool, recent: bool, now: int) -> None:
    """A burst counts once; one below forgets them all. What the next sweep must know besides is kept in order."""
    before = None if was is None else leases.Observed(at=AT, leaks_over=was)
    counts = (leases.Count(session="s", row="9", sweeps=1),)
    plan = model.Plan(verdicts=(), zombies=(5, 3), counts=counts)
    found = decide_leaks.remembered(before, plan, [4, 5], above=above, recent=recent)
    assert found == ((3, 4, 5), counts, now)


def test_what_is_remembered_fits_into_a_record_and_what_waits_longest_stays() -> None:
    widest = 9_999_999_999_999_999_999
    sessions = [f"{widest}.99-{'f' * 16}-{number:016x}" for number in range(decide_leaks.MAX_COUNTS + 1)]
    counts = tuple(leases.Count(session=one, row="15b", sweeps=2 + index % 2) for index, one in enumerate(sessions))
    zombies = tuple(range(widest - decide_leaks.MAX_ZOMBIES, widest + 1))
    plan = model.Plan(verdicts=(), zombies=zombies, counts=counts)
    dead, kept, _ = decide_leaks.remembered(None, plan, (), above=False, recent=False)
    assert dead == zombies[1:]
    assert kept == counts[:-1], "the last of those seen twice is forgotten"
    record = leases.Observed(at=AT, zombies=dead, counts=kept, leaks_over=99)
    ref = "refs/klaud/observed"
    assert len(codec.encode(record, repository="acme/bench", ref=ref, previous="0" * 40, key=b"k" * 32)) < codec.LIMIT
