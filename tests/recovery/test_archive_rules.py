"""Which archived ledgers are past their time, by tables: whose copies are dated, in which order, and when one goes."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING

import pytest

from klaud import names
from klaud.leases import model as leases
from klaud.recovery import decide_cases, model, rules_archives
from tests.support.memory_cases import AT, CANDIDATE, KEY, POLICY, SETTING, listing, run, sight

if TYPE_CHECKING:
    from klaud.github import model as github

NAMES = names.RefNames()
OID = "a" * 40
LOCAL = "local-" + "f" * 16
KEPT = datetime.timedelta(days=2 * POLICY.retention_days)
SECOND = datetime.timedelta(seconds=1)
MARKED = f"klaud candidate {CANDIDATE} [klaud {KEY}]"


def copy(wave: str = "50.1", candidate: str = CANDIDATE) -> rules_archives.Archived:
    ref = NAMES.archive("session", f"{wave}-{candidate}", OID)
    return rules_archives.Archived(ref=ref, oid=OID, wave=wave, candidate=candidate)


@pytest.mark.parametrize(
    ("ref", "oid", "dated"),
    [
        (copy().ref, OID, True),
        (copy().ref, "b" * 40, False),
        (NAMES.archive("branch", f"50.1-{CANDIDATE}", OID), OID, False),
        (NAMES.archive("session", f"auto-{CANDIDATE}", OID), OID, False),
        (f"refs/klaud/sessions/50.1-{CANDIDATE}", OID, False),
        ("refs/klaud/archive/odd", OID, False),
    ],
)
def test_only_exact_copies_of_ledgers_are_dated(ref: str, oid: str, dated: bool) -> None:
    """By kind, by name, and standing at the oid that the name says; another beside it is dated all the same."""
    other = copy("60.1")
    assert rules_archives.window({ref: oid, other.ref: OID}, NAMES) == ((copy(), other) if dated else (other,))


def test_the_oldest_runs_come_first_and_laptops_last() -> None:
    """By number, not by name; no more than a window of them."""
    waves = [LOCAL, "900.1", "70.2", "8.1"]
    refs = {copy(wave).ref: OID for wave in waves}
    assert [one.wave for one in rules_archives.window(refs, NAMES)] == ["8.1", "70.2", "900.1", LOCAL]
    many = {copy(f"{number}.1").ref: OID for number in range(rules_archives.WINDOW + 1, 0, -1)}
    found = rules_archives.window(many, NAMES)
    assert [one.wave for one in found] == [f"{number}.1" for number in range(1, rules_archives.WINDOW + 1)]


def judged(
    age: datetime.timedelta, *runs: github.Run, wave: str = "50.1", ours: datetime.timedelta | None = None,
    rows: github.Listing[github.Run] | model.Unread | None = None, clock: bool = True,
) -> bool:  # fmt: skip
    """Tell whether a copy goes, that long after its last record by GitHub's clock (and by ours, but for ``ours``)."""
    own = run(999, created_at=AT + age, updated_at=AT + age) if clock else None
    seen = sight(*runs, own=own, now=AT + (age if ours is None else ours), listing=rows or listing(*runs))
    last = leases.TurnStarted(at=AT, index=0)
    return rules_archives.is_past(copy(wave), last, seen, decide_cases.Index.of_sight(seen, SETTING), POLICY)


def test_a_copy_is_kept_for_two_retentions() -> None:
    """By both clocks, above and not at it, a laptop's too."""
    assert judged(KEPT + SECOND) is True
    assert judged(KEPT + SECOND, wave=LOCAL) is True
    assert judged(KEPT) is False
    assert judged(KEPT + SECOND, ours=KEPT) is False
    assert judged(KEPT, ours=KEPT + SECOND) is False


def test_nothing_goes_where_githubs_side_is_not_known() -> None:
    """No time of GitHub's, a listing that failed, one that is cut."""
    assert judged(KEPT * 2, clock=False) is False
    assert judged(KEPT * 2, rows=model.Unread("runs", "502")) is False
    assert judged(KEPT * 2, rows=listing(complete=False)) is False


@pytest.mark.parametrize(
    ("run_id", "title", "after", "goes"),
    [
        (60, MARKED, SECOND, True),
        (60, MARKED, 2 * SECOND, False),
        (60, MARKED, 3 * SECOND, False),
        (60, "", 3 * SECOND, True),
        (50, "", SECOND, True),
        (50, "", 2 * SECOND, False),
        (51, "", 3 * SECOND, True),
    ],
)
def test_a_run_of_its_session_that_changed_since_keeps_it(
    run_id: int, title: str, after: datetime.timedelta, goes: bool
) -> None:
    """Its own by the marker, or its planner's; at the limit, too."""
    changed = run(run_id, display_title=title, updated_at=AT + after)
    assert judged(KEPT + 2 * SECOND, changed) is goes


def test_what_goes_is_said_with_its_proof() -> None:
    """Compare-and-delete, without another copy."""
    found = rules_archives.verdict(copy(), leases.TurnStarted(at=AT, index=0), POLICY)
    why = "an archived ledger whose last record is older than 60 days"
    assert (found.case.key, found.row, found.state) == (f"archive/{KEY}", "20", why)
    assert (found.case.wave, found.case.candidate) == ("50.1", CANDIDATE)
    proof = (f"its last record is of {AT.isoformat()}",)
    assert found.actions == (model.DeleteRef(why=why, evidence=proof, ref=copy().ref, oid=OID),)
