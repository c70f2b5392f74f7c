"""What the decision table asks about one case, by tables: which pull request stands for it, whose hand is on it, its age."""

from __future__ import annotations

import datetime
from typing import Any

import msgspec
import pytest

from klaud.github import model as github
from klaud.leases import model as leases
from klaud.recovery import decide_cases, decide_facts, model
from tests.support.memory_cases import (
    AT,
    BOT,
    CANDIDATE,
    FINAL,
    GOING,
    HEAD,
    KEY,
    OTHER,
    POLICY,
    SETTING,
    case,
    claim,
    draft,
    held,
    holder,
    ledger,
    listing,
    run,
    sight,
)  # fmt: skip
from tests.support.memory_scenes import Scene

ALICE = github.Account(id=101, login="alice")
LEASE = held(leases.Lease(at=AT, wave="50.1", candidate=CANDIDATE, holder=holder(40)))
OLD = leases.Forerunner("refs/heads/klaud/claim-x", "f" * 40, "claim", 50, CANDIDATE)


def facts(one: model.Case | None = None, seen: model.Sight | None = None) -> decide_facts.Facts:
    """Return the facts of one case in one sight."""
    seen = seen or sight()
    return decide_facts.facts(one or case(), seen, decide_cases.Index.of_sight(seen, SETTING), POLICY)


def pull(number: int, *, author: github.Account | None = BOT, is_open: bool = True, **fields: Any) -> github.PullDetail:
    """Return a pull request without commits of anybody's."""
    found = draft(is_open=is_open, number=number)
    return msgspec.structs.replace(found, pull=msgspec.structs.replace(found.pull, author=author, **fields))


def commented(number: int, *, is_open: bool = True) -> github.PullDetail:
    """Return a pull request on which a person has commented."""
    event = github.Event(kind="commented", actor=ALICE, at=AT)
    return msgspec.structs.replace(draft(is_open=is_open, number=number), timeline=listing(event))


def naming(*numbers: int) -> leases.Ledger:
    """Return a ledger that names these pull requests and knows their head."""
    opened = [leases.Effected(at=AT, seq=0, effect="open-draft", result="done", number=n) for n in numbers]
    return ledger(leases.Intent(at=AT, seq=0, effect="push-work", oids=(HEAD,)), *opened)


# -- of a bare case


def test_nothing_is_known_of_a_bare_case() -> None:
    """No pull request, no lease, no outcome: gone, since nothing names a holder."""
    found = facts()
    assert isinstance(found.gone, model.Gone)
    assert found.proof == (found.gone.proof,)
    assert (found.lease, found.pull, found.detail, found.touch, found.outcome) == (None,) * 5
    assert (found.open_ours, found.pending, found.finals, found.counted) == (0, (), (), {})
    assert (found.number, found.newest_final) == (None, None)
    assert found.setting is SETTING


def test_what_is_alive_has_no_proof_of_an_end() -> None:
    """Nor has what could not be read."""
    for seen in (sight(run(60, **GOING)), sight()):
        found = facts(case(ledger=ledger()), seen)
        assert (found.gone, found.proof) == (None, ())


def test_a_ledger_says_outcome_and_what_is_left() -> None:
    """The newest outcome's."""
    end = leases.Outcome(at=AT, outcome="failed", pending=("close-draft",))
    found = facts(case(ledger=ledger(end)))
    assert (found.outcome, found.pending) == (end, ("close-draft",))


def test_a_lease_is_judged_by_its_pass() -> None:
    """Over, alive, unread; a record of another kind is no lease."""
    assert isinstance(facts(case(lease=LEASE), sight(run(40))).lease, model.Gone)
    assert isinstance(facts(case(lease=LEASE), sight(run(40, **GOING))).lease, model.Alive)
    assert isinstance(facts(case(lease=LEASE)).lease, model.Unknown)
    assert facts(case(lease=held(leases.Observed(at=AT)))).lease is None


def test_the_newest_final_run_is_the_last_at_the_head() -> None:
    """Of the pull request that stands for the session; without one there is none."""
    runs = [run(i, path=FINAL, head_sha=HEAD) for i in (9, 7, 8)]
    found = facts(case(pulls=(draft(),)), sight(*runs))
    assert [r.id for r in found.finals] == [7, 8, 9]
    assert found.newest_final == runs[0]
    assert facts(case(), sight(*runs)).finals == ()
    assert facts(case(pulls=(draft(head=OTHER),)), sight(*runs)).finals == ()


# -- which pull request stands for the session


@pytest.mark.parametrize(
    ("pulls", "number", "ours"),
    [
        ((), None, 0),
        ((pull(1),), 1, 1),
        ((pull(1), pull(2)), 2, 2),
        ((pull(2), pull(1)), 2, 2),
        ((pull(1), pull(2, is_open=False)), 1, 1),
        ((pull(1, is_open=False), pull(2, is_open=False)), 2, 0),
        ((pull(1), pull(2, author=ALICE)), 1, 1),
        ((pull(2, author=ALICE), pull(1)), 1, 1),
        ((pull(1, author=ALICE), pull(2, is_open=False)), 1, 0),
        ((pull(1, is_open=False), pull(2, author=ALICE, is_open=False)), 2, 0),
        ((pull(1, author=None),), 1, 0),
    ],
)
def test_which_pull_request_stands_for_the_session(
    pulls: tuple[github.PullDetail, ...], number: int | None, ours: int
) -> None:
    """The open one of ours, else an open one, else the newest; how many of ours are open is counted apart."""
    found = facts(case(pulls=pulls))
    assert (found.number, found.open_ours) == (number, ours)
    assert (found.detail.pull if found.detail else None) == found.pull


# -- whose hand is on it


@pytest.mark.parametrize(
    ("one", "who"),
    [
        (case(pulls=(pull(1),)), None),
        (case(pulls=(commented(1),)), "alice"),
        (case(pulls=(pull(1), commented(2, is_open=False)), ledger=naming(1, 2)), "alice"),
        (case(pulls=(pull(1), commented(2, is_open=False)), ledger=naming(1)), None),
        (case(pulls=(pull(1), commented(2, is_open=False))), None),
        (case(pulls=(pull(1), pull(2, is_open=False), commented(3, is_open=False)), ledger=naming(1, 2, 3)), "alice"),
        (case(), None),
    ],
)
def test_a_touch_on_any_pull_request_that_is_the_sessions(one: model.Case, who: str | None) -> None:
    """On the one that stands for it, else on another that its ledger names; never on a stranger's."""
    found = facts(one).touch
    assert (found.who if found else None) == who


def test_the_first_sign_counts() -> None:
    """On the session's own pull request before any other's."""
    named = msgspec.structs.replace(
        draft(is_open=False, number=2),
        timeline=listing(github.Event(kind="commented", actor=github.Account(id=102, login="bob"), at=AT)),
    )
    found = facts(case(pulls=(commented(1), named), ledger=naming(1, 2))).touch
    assert found == model.Touch(what="commented", who="alice", at=AT)


def test_a_re_run_on_the_head_is_a_touch() -> None:
    """Runs are looked at, too."""
    found = facts(case(pulls=(pull(1),)), sight(run(7, head_sha=HEAD, triggering_actor=ALICE)))
    assert found.touch == model.Touch(what="re-ran run 7", who="alice", at=AT)


@pytest.mark.parametrize(
    ("pulls", "what"),
    [
        ((pull(1), pull(2, author=ALICE)), "alice opened pull request 2 on the branch"),
        ((pull(1), pull(2, author=None)), "a deleted account opened pull request 2 on the branch"),
        ((pull(1), pull(3, author=ALICE), pull(2, author=None)), "alice opened pull request 3 on the branch"),
        ((pull(1), pull(2, author=ALICE, is_open=False)), ""),
        ((pull(1), pull(2)), ""),
        ((commented(1), pull(2, author=ALICE)), "alice commented"),
        ((pull(2, author=ALICE),), "alice opened the pull request"),
    ],
)
def test_somebody_elses_open_pull_request_on_the_branch_is_a_touch(
    pulls: tuple[github.PullDetail, ...], what: str
) -> None:
    """Beside klaud's own; a sign on klaud's own says more, and a closed one says nothing."""
    found = facts(case(pulls=pulls)).touch
    assert (f"{found.who} {found.what}" if found else "") == what


# -- what is left of it


@pytest.mark.parametrize(
    ("one", "has_claim", "nothing_left"),
    [
        (case(), False, True),
        (case(ledger=ledger(), lease=LEASE), False, True),
        (case(claim=claim(holder(60))), True, False),
        (case(forerunner=(OLD,)), True, False),
        (case(branch=HEAD), False, False),
        (case(pulls=(pull(1),)), False, False),
        (case(pulls=(pull(1, is_open=False), pull(2))), False, False),
        (case(pulls=(pull(1, is_open=False),)), False, True),
    ],
)
def test_what_is_left_of_a_session(one: model.Case, has_claim: bool, nothing_left: bool) -> None:
    """A claim, the forerunner's too, a branch, an open pull request; ledger and lease are not counted."""
    found = facts(one)
    assert (found.has_claim, found.nothing_left) == (has_claim, nothing_left)


DAYS = datetime.timedelta(days=POLICY.retention_days)
SECOND = datetime.timedelta(seconds=1)


def aged(ours: datetime.timedelta, githubs: datetime.timedelta | None, **fields: Any) -> decide_facts.Facts:
    """Return a session with a ledger, that long after its last record by our clock and by GitHub's."""
    own = None if githubs is None else run(99, created_at=AT + githubs, updated_at=AT + githubs, **GOING)
    return facts(
        fields.pop("one", case(ledger=ledger())), sight(own=own, now=AT + ours, **{"listing": listing(), **fields})
    )


@pytest.mark.parametrize(
    ("ours", "githubs", "old"),
    [
        (DAYS + SECOND, DAYS + SECOND, True),
        (DAYS, DAYS + SECOND, False),
        (DAYS + SECOND, DAYS, False),
        (DAYS, DAYS, False),
        (DAYS * 2, DAYS * 3, True),
        (-DAYS * 2, DAYS * 3, False),
        (DAYS * 2, None, False),
    ],
)
def test_the_retention_is_over_when_both_clocks_say_so(
    ours: datetime.timedelta, githubs: datetime.timedelta | None, old: bool
) -> None:
    """Above it, not at it; where GitHub showed no time at all, nothing is old."""
    assert aged(ours, githubs).is_old is old


@pytest.mark.parametrize(
    ("ours", "githubs", "past"),
    [
        (DAYS * 2 + SECOND, DAYS * 2 + SECOND, True),
        (DAYS * 2, DAYS * 2 + SECOND, False),
        (DAYS * 2 + SECOND, DAYS * 2, False),
    ],
)
def test_a_copy_would_not_be_kept_after_two_retentions(
    ours: datetime.timedelta, githubs: datetime.timedelta, past: bool
) -> None:
    """By both clocks again."""
    found = aged(ours, githubs)
    assert (found.is_past_keeping, found.is_old) == (past, True)


def test_nothing_is_old_without_a_dated_record() -> None:
    """No ledger, or an empty one."""
    assert not aged(DAYS * 2, DAYS * 2, one=case()).is_old
    assert not aged(DAYS * 2, DAYS * 2, one=case(ledger=leases.Ledger("l", "o" * 40, ()))).is_old


def test_the_last_record_is_what_ages() -> None:
    """Not the first."""
    late = leases.Outcome(at=AT + DAYS, outcome="failed")
    assert not aged(DAYS * 2, DAYS * 2, one=case(ledger=ledger(late))).is_old
    assert aged(DAYS * 2 + SECOND, DAYS * 2 + SECOND, one=case(ledger=ledger(late))).is_old


def test_a_run_that_changed_since_keeps_a_ledger() -> None:
    """And so does a listing that is not whole."""
    late = run(60, updated_at=AT + DAYS)
    assert not aged(DAYS * 2, DAYS * 2, listing=listing(late)).is_old
    assert not aged(DAYS * 2, DAYS * 2, listing=listing(complete=False)).is_old


# -- what earlier sweeps counted


def counted(*counts: leases.Count, ago: float = 1e6) -> model.Sight:
    """Return a sight with a memory of that many seconds ago (negative: of a clock that is ahead)."""
    memory = held(leases.Observed(at=AT - datetime.timedelta(seconds=ago), counts=counts))
    return sight(snapshot=msgspec.structs.replace(Scene(outside=True).snapshot(), observed=memory))


def seen(row: str, sweeps: int, session: str = KEY) -> leases.Count:
    return leases.Count(session=session, row=row, sweeps=sweeps)


def test_sweeps_are_counted_by_session_and_row() -> None:
    """As the memory has them; without a memory, or with one that cannot be read, nothing was counted."""
    memory = counted(seen("9", 3), seen("12", 1), seen("9", 7, "other"))
    assert decide_facts.counts_of(memory) == {KEY: {"9": 3, "12": 1}, "other": {"9": 7}}
    assert decide_facts.counts_of(sight()) == {}
    bad = msgspec.structs.replace(Scene(outside=True).snapshot(), observed=leases.Quarantined("r", "o", "bad"))
    assert decide_facts.counts_of(sight(snapshot=bad)) == {}
    assert decide_facts.is_recent(sight(snapshot=bad), POLICY) is False
    assert decide_facts.is_recent(sight(), POLICY) is False


@pytest.mark.parametrize(
    ("ago", "recent"),
    [
        (0, True),
        (POLICY.count_seconds - 1, True),
        (POLICY.count_seconds, False),
        (-POLICY.count_seconds + 1, True),
        (-POLICY.count_seconds, False),
    ],
)
def test_a_burst_of_sweeps_counts_as_one(ago: float, recent: bool) -> None:
    """By the distance to the memory, whichever clock is ahead; the one that is being counted again is taken off."""
    memory = counted(seen("9", 3), seen("12", 0), ago=ago)
    assert decide_facts.is_recent(memory, POLICY) is recent
    assert facts(seen=memory).counted == {"9": 2 if recent else 3, "12": 0}
    assert facts(case(key="other"), memory).counted == {}
