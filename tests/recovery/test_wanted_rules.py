"""What a sweep must read before the rules can decide, by tables: heads, runs, jobs, pull requests, evidence; each once."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from klaud import names
from klaud.leases import model as leases
from klaud.recovery import decide_plan, model
from tests.support.memory_cases import (
    AT,
    CANDIDATE,
    GOING,
    HEAD,
    POLICY,
    claim,
    draft,
    holder,
    ledger,
    listing,
    run,
)  # fmt: skip
from tests.support.memory_plans import (
    BAD,
    BRANCH,
    BRANCH_REF,
    CLAIM_REF,
    FINAL_RUN,
    LEASE_REF,
    MISSING,
    NOTHING,
    OUTCOME,
    PARKED,
    SESSION_REF,
    UNREAD,
    drafted,
    forerunner,
    lease,
    many,
    naming,
    rows,
    snapshot,
    think,
)  # fmt: skip

if TYPE_CHECKING:
    from klaud.github import model as github

# -- which heads are asked for


@pytest.mark.parametrize(
    ("refs", "asked"),
    [
        ({}, False),
        ({"branches": {BRANCH_REF: HEAD}}, True),
        ({"branches": {BRANCH_REF + "-more": HEAD}}, False),
        ({"claims": {CLAIM_REF: claim(holder(60))}}, True),
        ({"claims": {CLAIM_REF: BAD}}, False),
        ({"claims": {CLAIM_REF: lease()}}, False),
        ({"ledgers": {SESSION_REF: msgspec.structs.replace(ledger(), ref=SESSION_REF)}}, True),
        ({"ledgers": {SESSION_REF: msgspec.structs.replace(ledger(OUTCOME), ref=SESSION_REF)}}, False),
        ({"ledgers": {SESSION_REF: BAD}}, False),
        ({"forerunner": (forerunner(),)}, True),
        ({"forerunner": (msgspec.structs.replace(forerunner(name="x"), candidate=CANDIDATE),)}, True),
        ({"forerunner": (forerunner("lease"),)}, False),
        ({"forerunner": (leases.Quarantined(f"refs/heads/klaud/claim-{CANDIDATE}", "f", "bad"),)}, False),
        ({"forerunner": (forerunner(name="odd"),)}, False),
    ],
)  # fmt: skip
def test_whose_pull_requests_are_read(refs: dict[str, Any], asked: bool) -> None:
    """Of branches that exist and of sessions that are not settled; nothing that is not exactly a candidate's."""
    assert decide_plan.heads_wanted(snapshot(**refs)) == ((BRANCH,) if asked else ())


def test_heads_are_asked_for_once_and_in_order() -> None:
    """However many refs name a candidate."""
    second = CANDIDATE[:-1] + "c"
    refs = snapshot(branches={f"refs/heads/{names.branch(second)}": HEAD}, claims={CLAIM_REF: claim(holder(60))},
                    forerunner=(forerunner(),))  # fmt: skip
    assert decide_plan.heads_wanted(refs) == (BRANCH, names.branch(second))


# -- what is still to be read

CLAIMED = {"claims": {CLAIM_REF: claim(holder(60))}}
WRITTEN = {"ledgers": {SESSION_REF: ledger()}}


def test_an_empty_repository_needs_nothing() -> None:
    """The loop ends at once."""
    assert think().wanted() == NOTHING
    assert not think().wanted()


@pytest.mark.parametrize(
    ("refs", "expected"),
    [
        (CLAIMED, {60}),
        (WRITTEN, {60}),
        ({"claims": {CLAIM_REF: claim(holder(50))}}, {50}),
        ({"ledgers": {SESSION_REF: ledger(PARKED)}}, {9, 60}),
        ({"forerunner": (forerunner(),)}, {50}),
        ({"ledgers": {SESSION_REF: ledger(by=0)}}, set()),
        ({"ledgers": {SESSION_REF: ledger(by=1)}}, {1}),
        ({"leases": {LEASE_REF: lease(1)}}, {1}),
        ({"leases": {LEASE_REF: lease()}}, {40}),
        ({"leases": {LEASE_REF: lease(0)}}, set()),
        ({"leases": {LEASE_REF: claim(holder(60))}}, set()),
        ({"leases": {LEASE_REF: BAD}}, set()),
        ({"forerunner": (forerunner("lease"),)}, {50}),
        ({"forerunner": (leases.Quarantined("refs/heads/klaud/recovery-x", "f" * 40, "bad"),)}, set()),
        ({**CLAIMED, "ledgers": {SESSION_REF: BAD}}, set()),
        ({"forerunner": (forerunner(),), "ledgers": {SESSION_REF: BAD}}, set()),
    ],
)
def test_runs_that_must_be_read(refs: dict[str, Any], expected: set[int]) -> None:
    """The holder's, the planner's, what it is parked on, the forerunner's, a lease's; none of what is quarantined.

    A holder outside of Actions has no run. What was read once, however it answered, is not asked for again.
    """
    assert think(refs=refs).wanted() == model.Wanted(runs=frozenset(expected))
    for answer in (MISSING, UNREAD):
        assert think(refs=refs, runs=dict.fromkeys(expected, answer)).wanted() == NOTHING


def test_a_quarantined_session_hides_no_other() -> None:
    """The next one is looked at."""
    other = {f"refs/klaud/sessions/70.1-{'e' * 16}-{'0' * 16}": BAD}
    first = {f"refs/klaud/sessions/1.1-{CANDIDATE}": BAD}
    assert think(refs={"ledgers": {**first, **other}, **CLAIMED}).wanted().runs == {60}


def test_a_holder_outside_of_actions_is_alive() -> None:
    """Nobody can prove it gone, and nothing is read for it."""
    thinking = think(refs={"ledgers": {SESSION_REF: ledger(by=0)}})
    (verdict,) = thinking.verdicts
    assert (verdict.row, verdict.blocks) == ("4", True)
    (action,) = verdict.actions
    assert isinstance(action, model.Leave)
    assert (action.code, "outside of Actions" in action.why) == ("alive", True)


@pytest.mark.parametrize(
    ("refs", "seen", "jobs"),
    [
        ({"leases": {LEASE_REF: lease()}}, run(40, **GOING), {40}),
        ({"leases": {LEASE_REF: lease(job="")}}, run(40, **GOING), set()),
        ({"leases": {LEASE_REF: lease()}}, run(40), set()),
        ({"leases": {LEASE_REF: lease(0)}}, run(40, **GOING), set()),
        ({"forerunner": (forerunner("lease"),)}, run(50, **GOING), set()),
        ({"forerunner": (forerunner(job="Run candidate"),)}, run(50, **GOING), {50}),
        ({"forerunner": (forerunner(),)}, run(50, **GOING), set()),
        ({"forerunner": (forerunner(job="Run candidate"),)}, run(50), set()),
    ],
)
def test_jobs_that_must_be_read(refs: dict[str, Any], seen: github.Run, jobs: set[int]) -> None:
    """Of a holder that is known by its job, while the run around it goes on; once."""
    assert think(seen, refs=refs).wanted() == model.Wanted(jobs=frozenset(jobs))
    assert think(seen, refs=refs, jobs=dict.fromkeys(jobs, UNREAD)).wanted() == NOTHING


@pytest.mark.parametrize("refs", [{"leases": {LEASE_REF: lease()}}, {"forerunner": (forerunner(job="j"),)}])
def test_a_run_that_answers_404_has_no_jobs(refs: dict[str, Any]) -> None:
    """Also where nothing proves that it is deleted."""
    assert think(refs=refs, runs={40: MISSING, 50: MISSING}).wanted() == NOTHING


def test_the_jobs_of_a_run_that_stands_still_are_read() -> None:
    """Once it has not changed for longer than a job may last."""
    own = run(99, created_at=AT + datetime.timedelta(seconds=POLICY.zombie_seconds + 1), **GOING)
    assert think(run(60, **GOING), refs=WRITTEN, own=own).wanted() == model.Wanted(jobs=frozenset({60}))
    assert think(run(60, **GOING), refs=WRITTEN).wanted() == NOTHING


def test_pull_requests_that_must_be_read() -> None:
    """Those that a ledger names and no listing showed, until the session is settled; once, however they answered."""
    over = run(60)
    assert think(over, refs=naming(1, 2)).wanted() == model.Wanted(numbers=frozenset({1, 2}))
    seen = think(run(60, **GOING), refs=naming(1, 2), heads={BRANCH: listing(draft())}).wanted()
    assert seen == model.Wanted(numbers=frozenset({2}))
    assert think(over, refs=naming(1, 2), numbered={1: MISSING}).wanted() == model.Wanted(numbers=frozenset({2}))
    assert think(over, refs=naming(1, 2), numbered={1: MISSING, 2: UNREAD}).wanted() == NOTHING
    assert think(over, refs=naming(1, 2, more=(OUTCOME,))).wanted() == NOTHING


@pytest.mark.parametrize(
    ("row", "runs", "seen", "asked"),
    [
        ("14", (run(60),), drafted(), True),
        ("8", (run(60), FINAL_RUN), drafted(evidence={7: model.Evidence(verdict="verified")}), True),
        ("10", (run(60), FINAL_RUN), drafted(evidence={7: model.Evidence(verdict="wrong")}), True),
        ("9", (run(60), FINAL_RUN), drafted(evidence={7: model.Evidence(verdict="lost")}), True),
        ("13", (run(60), run(9)), drafted(PARKED), True),
        ("7b", (run(60),), drafted(OUTCOME), False),
        ("4", (run(60, **GOING),), drafted(), False),
    ],
)
def test_runs_at_a_head_that_is_about_to_be_declared_gone(
    row: str, runs: tuple[github.Run, ...], seen: dict[str, Any], asked: bool
) -> None:
    """A person's may be among them; asked once, and not before the session's own runs are known."""
    thinking = think(*runs, **seen)
    assert rows(thinking) == [row]
    assert thinking.wanted() == model.Wanted(head_runs=frozenset({HEAD} if asked else ()))
    assert think(*runs, **seen, head_runs={HEAD: UNREAD}).wanted() == NOTHING


def test_heads_wait_for_the_runs() -> None:
    """What a run says may change what is done with the draft."""
    seen = drafted()
    seen["refs"] |= {"leases": {f"refs/klaud/leases/1.1-{'e' * 16}-{'0' * 16}": lease()}}
    assert think(run(60), **seen).wanted() == model.Wanted(runs=frozenset({40}))


def test_a_parked_session_without_a_draft_has_no_head() -> None:
    """Nothing to ask for."""
    thinking = think(run(60), run(9), refs={"ledgers": {SESSION_REF: ledger(PARKED)}})
    assert (rows(thinking), thinking.wanted()) == (["13"], NOTHING)


def test_the_evidence_of_a_green_final_run_is_read_last() -> None:
    """After runs and heads; once, however it reads."""
    wanted = model.FinalRun(wave="50.1", candidate=CANDIDATE, number=1, head=HEAD, run_id=7)
    both = (run(60), FINAL_RUN)
    assert think(*both, **drafted()).wanted() == model.Wanted(head_runs=frozenset({HEAD}))
    read: dict[str, Any] = {HEAD: listing()}
    assert think(*both, **drafted(head_runs=read)).wanted() == model.Wanted(evidence=(wanted,))
    waiting = drafted(head_runs=read)
    waiting["refs"] |= {"leases": {f"refs/klaud/leases/1.1-{'e' * 16}-{'0' * 16}": lease()}}
    assert think(*both, **waiting).wanted() == model.Wanted(runs=frozenset({40}))
    for verdict in ("unreadable", "lost", "wrong", "verified"):
        known = drafted(head_runs=read, evidence={7: model.Evidence(verdict=verdict)})
        assert think(*both, **known).wanted() == NOTHING


def test_only_the_heads_of_drafts_that_will_be_closed_are_read() -> None:
    """The oldest, as many as one sweep closes."""
    seen = many(3, 1, 2, policy=model.Policy(max_closures=2)) | {"head_runs": {}}
    assert think(**seen).wanted().head_runs == {f"{2:040x}", f"{3:040x}"}
    seen["refs"]["claims"] = {CLAIM_REF: claim(holder(60))}
    seen["runs"][60] = run(60)
    assert think(**seen).wanted().head_runs == {f"{2:040x}", f"{3:040x}"}
    assert think(**many(3, 1, 2)).wanted() == NOTHING
