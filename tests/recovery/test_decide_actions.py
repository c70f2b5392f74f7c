"""What the decided actions carry: refs with their oids, proofs, copies, reports, and what later sweeps count."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any

import msgspec
import pytest

from klaud import names
from klaud.leases import model as leases
from klaud.recovery import decide, model
from tests.support.memory_cases import (
    AT,
    CANDIDATE,
    GOING,
    HEAD,
    KEY,
    POLICY,
    SMOKE,
    case,
    held,
    holder,
    ledger,
    listing,
    run,
    sight,
    zombie_memory,
)  # fmt: skip
from tests.support.memory_decide import (
    ALICE,
    ALIVE,
    BRANCH_REF,
    CLAIM,
    CONFLICT,
    DRAFT,
    FULL,
    GREEN,
    LABELLED,
    LEASE,
    OUTCOME,
    PARKED,
    SEEN,
    SMOKING,
    STRAY,
    TOUCH,
    aged,
    closed_by,
    facts,
    left,
    words,
)  # fmt: skip


def test_what_is_released() -> None:
    """The claim and the forerunner's, each with the proof; without proof, without evidence."""
    old = leases.Forerunner(ref="refs/heads/klaud/claim-x", oid="f" * 40, kind="claim", planner_run=50)
    one = case(claim=CLAIM, forerunner=(old,))
    assert decide._release(facts(one), "w") == (
        model.ReleaseClaim(why="w", evidence=("proven",), ref=CLAIM.ref, oid=CLAIM.oid),
        model.ReleaseClaim(why="w", evidence=("proven",), ref=old.ref, oid=old.oid),
    )
    assert [a.evidence for a in decide._release(facts(one, live=ALIVE), "w")] == [(), ()]
    assert decide._release(facts(), "w") == ()


def test_what_is_cancelled() -> None:
    """Strays and checks that the ledger names, in order; what it is parked on and zombies are not."""

    def ids(*records: leases.LedgerRecord, dead: tuple[int, ...] = (), **fields: Any) -> list[int]:
        seen = sight(SMOKING, run(4, path=SMOKE, **GOING), run(3, path=SMOKE), snapshot=zombie_memory(*dead))
        one = case(stray_runs=(SMOKING,), ledger=ledger(*records), **fields)
        return [a.run_id for a in decide._cancel(facts(one, seen)) if isinstance(a, model.CancelRun)]

    def sent(run_id: int) -> leases.Effected:
        return leases.Effected(at=AT, seq=0, effect="dispatch-smoke", result="done", run_id=run_id)

    assert ids() == [5]
    assert ids(sent(4)) == [4, 5]
    assert ids(sent(3), sent(77)) == [5]
    assert ids(sent(4), leases.Parked(at=AT, on=(4,), why="smoke-run")) == [5]
    assert ids(sent(4), leases.Parked(at=AT, on=(5, 8), why="smoke-run")) == [4]
    assert ids(sent(4), dead=(5,)) == [4]
    assert decide._cancel(facts(STRAY))[0].evidence == ("run 5 is in_progress",)


def test_a_branch_goes_with_its_copy() -> None:
    """The copy's name has the branch and its head."""
    (gone,) = decide._delete_branch(facts(FULL), "w")
    assert gone == model.DeleteRef(
        why="w", evidence=("proven",), ref=BRANCH_REF, oid=HEAD,
        archive=names.RefNames("refs/klaud").archive("branch", f"auto-{CANDIDATE}", HEAD),
    )  # fmt: skip
    assert decide._delete_branch(facts(), "w") == ()


def test_what_a_pass_takes() -> None:
    """Lease and claim, on what stands there now."""
    ref = names.RefNames("refs/klaud").lease("50.1", CANDIDATE)
    lease = model.TakeOverLease(why="w", ref=ref, oid=None, wave="50.1", candidate=CANDIDATE)
    assert decide._take(facts(), "w") == (lease,)
    taken = decide._take(facts(case(claim=CLAIM, lease=LEASE)), "w")
    assert taken[0] == msgspec.structs.replace(lease, oid=LEASE.oid)
    assert isinstance(taken[1], model.TakeOverClaim)
    assert (taken[1].ref, taken[1].oid, taken[1].evidence) == (CLAIM.ref, CLAIM.oid, ("proven",))


def test_under_which_wave_a_session_without_one_is_kept() -> None:
    """Its planner's run, else this sweep's, else one of its own."""
    one = case(wave="")
    old = leases.Forerunner(ref="r", oid="f" * 40, kind="claim", planner_run=50)
    ours = sight(me=holder(70, 2))
    assert decide.wave_for(case(wave="", forerunner=(old,)), ours) == "50.1"
    assert decide.wave_for(one, ours) == "70.2"
    local = f"local-{names.short_id(CANDIDATE)}"
    assert decide.wave_for(one, sight()) == local
    assert decide.wave_for(one, sight(me=holder(0, 1))) == local
    assert decide.wave_for(one, sight(me=holder(1, 1))) == "1.1"
    (lease,) = decide._take(facts(one, ours), "w")
    assert isinstance(lease, model.TakeOverLease)
    assert lease.wave == "70.2"


def test_what_outcome_recovery_writes() -> None:
    """None over another; an agent that began ended unexpectedly; without a ledger nobody knows that it did not."""
    turn = leases.TurnStarted(at=AT, index=0)
    for one, finals, expected in (
        (case(), (), ("unexpected-error", "unknown")),
        (case(ledger=ledger()), (), ("agent-never-ran", "unknown")),
        (case(ledger=ledger(turn)), (), ("unexpected-error", "unknown")),
        (case(ledger=ledger(turn)), (GREEN,), ("unexpected-error", "final-run")),
    ):
        (wrote,) = decide._outcome(facts(one, finals=finals), "merged")
        assert isinstance(wrote, model.WriteOutcome)
        assert ((wrote.outcome, wrote.phase), wrote.code) == (expected, "merged")
    assert decide._outcome(facts(outcome=OUTCOME), "merged") == ()
    assert decide._ledger_outcome(facts(), "merged") == ()
    assert len(decide._ledger_outcome(facts(case(ledger=ledger())), "merged")) == 1


def test_whom_a_report_names() -> None:
    """Who must act, and why."""
    assert left(decide.row_4(facts(live=model.Alive("run 7 waits for a person's approval")))).person != ""
    assert left(decide.row_4(facts(live=ALIVE))).person == ""
    assert left(decide.row_12(facts(pull=LABELLED))).person == "whoever may start the final run"
    assert left(decide.row_12(facts(pull=CONFLICT))).person == "whoever can resolve the conflict"
    assert left(decide.row_12(facts(pull=LABELLED))).why == "no final run started at the head"
    assert left(decide.row_12(facts(pull=CONFLICT))).why == "the draft conflicts with its base, so no final run starts"
    assert left(decide.row_1(facts(open_ours=2))).why == "2 open pull requests of klaud's on one branch"
    assert left(decide.row_1(facts(case(bad="forged"), open_ours=2))).why == "forged"
    assert left(decide.row_5(facts(lease=ALIVE))).why == ALIVE.fact
    assert left(decide.row_5(facts(lease=model.Zombie(4)))).why == "run 4 is a zombie"
    assert left(decide.row_6(facts(pull=DRAFT, touch=TOUCH))).why == f"alice commented at {AT.isoformat()}"
    assert left(decide.row_6(facts(pull=DRAFT, touch=model.Touch(what="pushed", who="bob")))).why == "bob pushed"
    assert left(decide.row_15_16(facts(pull=closed_by(ALICE)))).person == "alice"
    assert left(decide.row_15_16(facts(pull=closed_by()))).person == "somebody unknown"
    assert left(decide.row_15_16(facts(pull=closed_by(None)))).person == "a deleted account"


def test_a_run_without_a_living_job_is_tried_to_end() -> None:
    """Alive for GitHub, dead by its jobs: cancelled, so that it ends or is seen to be a zombie."""
    quiet = datetime.timedelta(seconds=POLICY.zombie_seconds + 1)
    own = run(99, created_at=AT + quiet, **GOING)
    one = case(ledger=ledger())
    made: tuple[tuple[dict[int, model.JobsSeen], str], ...] = (
        ({60: listing()}, "4 cancel-run leave:alive blocks"),
        ({}, "4 leave:alive blocks"),
    )
    for jobs, expected in made:
        seen = sight(run(60, **GOING), own=own, jobs=jobs)
        assert words(decide.row_4(facts(one, seen, live=ALIVE))) == expected


@pytest.mark.parametrize(
    ("evidence", "as_", "why"), [("verified", "validated", "its results verify"), ("wrong", "failed", "as seen")]
)
def test_what_a_final_run_is_finished_as(evidence: str, as_: str, why: str) -> None:
    """With the proof, the run and the head as evidence."""
    decided = decide.row_8_9_10(facts(FULL, SEEN[evidence], pull=DRAFT, finals=(GREEN,)))
    assert decided is not None
    (finish,) = [a for a in decided.actions if isinstance(a, model.Finish)]
    assert (finish.as_, finish.why, finish.number, finish.wave, finish.candidate) == (as_, why, 1, "50.1", CANDIDATE)
    assert finish.evidence == ("proven", f"final run 7 succeeded at {HEAD[:12]}")


def test_what_a_closing_carries() -> None:
    """The number, the exact head, the branch, how and when the session ended."""
    decided = decide.row_14(facts(FULL, pull=DRAFT))
    assert decided is not None
    (close,) = [a for a in decided.actions if isinstance(a, model.CloseDraft)]
    assert close == model.CloseDraft(
        why="its session is over", evidence=("proven", f"head {HEAD} is klaud's own"), number=1, head=HEAD,
        branch=names.branch(CANDIDATE), created_at=AT, conclusion="cancelled", ended_at=AT,
    )  # fmt: skip


def test_what_a_continuation_carries() -> None:
    """The session, and what it waited for; nothing is a word too."""
    for on, text in (((9, 8), "9, 8"), ((), "nothing")):
        park = leases.Parked(at=AT, on=on, why="final-run")
        decided = decide.row_13(facts(case(ledger=ledger(park))))
        assert decided is not None
        (go,) = [a for a in decided.actions if isinstance(a, model.Continue)]
        assert (go.on, go.wave, go.candidate, go.evidence) == (on, "50.1", CANDIDATE, ("proven",))
        assert decided.state == f"parked on {text}, over"


@pytest.mark.parametrize(
    ("records", "outcome", "interrupted"),
    [
        ((), None, False),
        ((leases.Intent(at=AT, seq=3, effect="close-draft", by="recovery"),), None, True),
        ((leases.Intent(at=AT, seq=3, effect="close-draft", by="recovery"),), OUTCOME, False),
        ((leases.Intent(at=AT, seq=3, effect="close-draft"),), None, False),
        ((leases.Intent(at=AT, seq=3, effect="comment", by="recovery"),), None, False),
        ((leases.Intent(at=AT, seq=3, effect="close-draft", by="recovery"),
          leases.Effected(at=AT, seq=3, effect="close-draft", result="done")), None, False),
        ((leases.Intent(at=AT, seq=3, effect="close-draft", by="recovery"),
          leases.Effected(at=AT, seq=2, effect="comment", result="done")), None, True),
    ],
)  # fmt: skip
def test_a_pass_that_died_while_it_closed(
    records: tuple[leases.LedgerRecord, ...], outcome: leases.Outcome | None, interrupted: bool
) -> None:
    """By its lease, or by an intent of recovery's that nothing answered and no outcome ended."""
    assert decide._interrupted(facts(case(ledger=ledger(*records)), outcome=outcome)) is interrupted
    assert decide._interrupted(facts(case(lease=LEASE)))
    assert not decide._interrupted(facts())


@pytest.mark.parametrize("stone", [f"refs/klaud/tombstones/{CANDIDATE}", "refs/klaud/tombstones/other"])
@pytest.mark.parametrize("has_branch", [True, False])
@pytest.mark.parametrize("has_claim", [True, False])
def test_a_tombstone_is_written_once(stone: str, has_branch: bool, has_claim: bool) -> None:
    """With one there and nothing left to release, the row has nothing to say any more."""
    record = held(leases.Tombstone(at=AT, candidate=CANDIDATE, number=1))
    snapshot = msgspec.structs.replace(sight().snapshot, tombstones={stone: record})
    one = case(branch=HEAD if has_branch else None, claim=CLAIM if has_claim else None)
    decided = decide.row_15_16(facts(one, sight(snapshot=snapshot), pull=closed_by(ALICE)))
    buried = stone.endswith(CANDIDATE)
    if buried and not has_branch and not has_claim:
        assert decided is None
        return
    assert decided is not None
    assert any(isinstance(a, model.WriteTombstone) for a in decided.actions) is not buried
    assert any(isinstance(a, model.ReleaseClaim) for a in decided.actions) is has_claim


def test_an_archived_ledger_names_its_copy() -> None:
    """By the session's key and the ledger's tip; none is made that would be past its time at once."""
    copy = names.RefNames("refs/klaud").archive("session", KEY, "o" * 40)
    for days, why, archive in (
        (31, "older than the retention of 30 days", copy),
        (61, "older than two retentions of 30 days", ""),
    ):
        decided = decide.row_20(facts(case(ledger=ledger()), aged(days)))
        assert decided is not None
        assert decided.actions == (model.DeleteRef(why=why, ref="l", oid="o" * 40, archive=archive),)


LATER = AT + datetime.timedelta(days=31)
AGES: list[tuple[str, model.Sight, bool]] = [
    ("by both clocks", aged(31), True),
    ("to the second", aged(30), False),
    ("by our own clock only", aged(31, own=run(99, created_at=AT, **GOING)), False),
    ("by GitHub's clock only", aged(31, now=AT), False),
    ("GitHub's clock was not seen", aged(31, own=None), False),
    ("the runs could not be listed", aged(31, listing=model.Unread("runs", "502")), False),
    ("the runs were cut", aged(31, listing=listing(complete=False)), False),
    ("its run changed since", aged(31, listing=listing(run(60, updated_at=LATER))), False),
    ("its run changed at the very end",
     aged(31, listing=listing(run(60, updated_at=AT + datetime.timedelta(days=1)))), False),
    ("its planner's run changed since", aged(31, listing=listing(run(50, updated_at=LATER))), False),
    ("its run is as old", aged(31, listing=listing(run(60), run(50))), True),
    ("another run changed since", aged(31, listing=listing(run(61, updated_at=LATER))), True),
]  # fmt: skip


@pytest.mark.parametrize(("seen", "old"), [row[1:] for row in AGES], ids=[row[0] for row in AGES])
def test_when_the_retention_is_over(seen: model.Sight, old: bool) -> None:
    """Whoever dated the records may have had a wrong clock, and so may we: GitHub must not show anything younger."""
    assert facts(case(ledger=ledger()), seen).is_old is old
    assert not facts(case(ledger=leases.Ledger("l", "o", ())), seen).is_old
    assert not facts(case(), seen).is_old


def test_the_retention_of_a_session_without_a_planners_run() -> None:
    """A laptop's wave is no number: its own runs and clocks decide."""
    one = case(wave="local-0123456789abcdef", ledger=ledger())
    assert facts(one, aged(31)).is_old


def test_archive_copies_go_with_their_ledger() -> None:
    """Those that this ledger alone names, as they stand; another session's, unknown and moved ones stay."""
    ref_names = names.RefNames("refs/klaud")

    def copy(oid: str) -> str:
        return ref_names.archive("branch", f"auto-{CANDIDATE}", oid)

    done = leases.Effected(at=AT, seq=0, effect="archive-branch", result="done", oid="1" * 40)
    begun = leases.Intent(at=AT, seq=1, effect="archive-branch", oids=("2" * 40,))
    end = leases.Outcome(at=AT, outcome="failed", head="3" * 40)
    pushed = leases.Effected(at=AT, seq=2, effect="push-work", result="done", oid="4" * 40)
    one = case(ledger=ledger(done, begun, end, pushed))
    stands = {copy(c * 40): c * 40 for c in "1245"} | {copy("3" * 40): "9" * 40}
    other = leases.Ledger(f"refs/klaud/sessions/51.1-{CANDIDATE}", "p" * 40, ledger(begun).records)
    foreign = leases.Ledger(f"refs/klaud/sessions/51.1-{'f' * 33}", "p" * 40, ledger(done).records)
    bad = leases.Quarantined(other.ref, "p" * 40, "no record")

    def gone(*ledgers: leases.Ledger | leases.Quarantined) -> list[str]:
        assert one.ledger is not None
        known = {"l": one.ledger, **{found.ref: found for found in ledgers}}
        snapshot = msgspec.structs.replace(sight().snapshot, archives=stands, ledgers=known)
        decided = decide.row_20(facts(one, aged(31, snapshot=snapshot)))
        assert decided is not None
        return [a.oid[0] for a in decided.actions if isinstance(a, model.DeleteRef) and not a.archive]

    assert gone() == ["1", "2"]
    assert gone(other) == ["1"]
    assert gone(foreign) == ["1", "2"]
    assert gone(bad) == []


def test_a_verdict_has_all_that_its_row_said() -> None:
    """Case, row, state, actions, and whether it blocks or waits."""
    given = facts(PARKED, pull=DRAFT)
    decided, verdict = decide.row_13(given), decide.decide_case(given)
    assert decided is not None
    said = (verdict.case, verdict.row, verdict.state, verdict.actions, verdict.blocks, verdict.waits)
    assert said == (given.case, "13", decided.state, decided.actions, True, True)
    nobody = dataclasses.replace(facts(FULL), live=None)  # type: ignore[arg-type]
    assert words(decide.decide_case(nobody)) == "unmatched leave:unmatched"
