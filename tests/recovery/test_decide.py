"""The decision table by facts: for each row, what else must hold, and exactly what is done about it."""

from __future__ import annotations

import dataclasses
import datetime
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from klaud import names
from klaud.github import model as github
from klaud.leases import model as leases
from klaud.recovery import decide, decide_cases, decide_facts, model
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
    SMOKE,
    case,
    claim,
    draft,
    held,
    holder,
    ledger,
    listing,
    run,
    sight,
    zombie_memory,
)  # fmt: skip

if TYPE_CHECKING:
    from collections.abc import Callable

ALICE = github.Account(id=101, login="alice")
GONE = model.Gone(proof="proven", conclusion="cancelled", ended_at=AT)
ALIVE = model.Alive("run 60 is in_progress")
UNKNOWN = model.Unknown(model.Unread("run 60", "502"))
TOUCH = model.Touch(what="commented", who="alice", at=AT)
OUTCOME = leases.Outcome(at=AT, outcome="failed")
CLAIM = claim(holder(60))
LEASE = held(leases.Lease(at=AT, wave="50.1", candidate=CANDIDATE, holder=holder(40)))
RELEASE = model.ReleaseClaim(why="", ref=CLAIM.ref, oid=CLAIM.oid)
GREEN = run(7, path=FINAL, head_sha=HEAD, conclusion="success")
BRANCH_REF = f"refs/heads/klaud/auto-{CANDIDATE}"


def facts(one: model.Case | None = None, seen: model.Sight | None = None, **fields: Any) -> decide_facts.Facts:
    """Return the facts of a session that is proven over and of which nothing is left, but for what is given."""
    one, seen = one or case(), seen or sight()
    pull = fields.pop("pull", None)
    index = decide_cases.Index.of_sight(seen, fields.pop("setting", SETTING))
    made = decide_facts.Facts(
        case=one, sight=seen, index=index, policy=POLICY, live=GONE, lease=None,
        pull=pull.pull if pull else None, detail=pull, open_ours=0, touch=None, outcome=None, pending=(), finals=(),
        counted={},
    )  # fmt: skip
    return dataclasses.replace(made, **fields)


def aged(days: int, seconds: int = 0, **fields: Any) -> model.Sight:
    """Return a sight so long after the records, by our clock and by GitHub's, in which no run is younger."""
    now = AT + datetime.timedelta(days=days, seconds=seconds)
    given = {"now": now, "own": run(99, created_at=now, **GOING), "listing": listing(), **fields}
    return sight(**given)


def changed(seen: github.PullDetail, **fields: Any) -> github.PullDetail:
    """Return a pull request with other fields."""
    return msgspec.structs.replace(seen, pull=msgspec.structs.replace(seen.pull, **fields))


def closed_by(*actors: github.Account | None, head: str = HEAD) -> github.PullDetail:
    """Return a closed pull request, closed by these accounts one after another."""
    events = tuple(github.Event(kind="closed", actor=a, at=AT) for a in actors)
    return msgspec.structs.replace(draft(is_open=False, head=head), timeline=listing(*events))


def words(decided: decide.Decided | model.Verdict | None) -> str:
    """Return a decision in short: row, actions, and whether it blocks and waits."""
    if decided is None:
        return ""
    found = [
        f"leave:{a.code}" if isinstance(a, model.Leave) else str(msgspec.to_builtins(a)["action"])
        for a in decided.actions
    ]
    return " ".join([decided.row, *found, *["blocks"] * decided.blocks, *["waits"] * decided.waits])


def left(decided: decide.Decided | None) -> model.Leave:
    """Return the one ``Leave`` of a decision."""
    assert decided is not None
    (found,) = [a for a in decided.actions if isinstance(a, model.Leave)]
    return found


SMOKING = run(5, path=SMOKE, head_branch=names.branch(CANDIDATE), **GOING)
STRAY = case(claim=CLAIM, stray_runs=(SMOKING,))
DRAFT = draft()
READY = changed(DRAFT, draft=False)
LABELLED = changed(DRAFT, labels=("full-sweep",))
PARK = leases.Parked(at=AT, on=(9,), why="final-run")
ASKED = case(claim=CLAIM, ledger=ledger(leases.Parked(at=AT, on=(), why="approval")))
ASKING: dict[str, Any] = {"setting": msgspec.structs.replace(SETTING, approval_labels=frozenset({"run-it"}))}
PUSHED = leases.Intent(at=AT, seq=0, effect="push-work", oids=(HEAD,))
PARKED = case(claim=CLAIM, ledger=ledger(PARK))
FULL = case(claim=CLAIM, stray_runs=(SMOKING,), branch=HEAD, ledger=ledger(PUSHED))
START = leases.Intent(at=AT, seq=0, effect="start-final-run")
AGAIN = leases.Continued(at=AT, wave="50.1", holder=holder(61))
COUNTED = {"9": POLICY.evidence_sweeps, "12": POLICY.waiting_sweeps, "13": POLICY.continue_sweeps}
BEFORE = {row: sweeps - 1 for row, sweeps in COUNTED.items()}
RULES: dict[str, Callable[[decide_facts.Facts], decide.Decided | None]] = {r.__name__: r for r in decide.TABLE}
TAKE = "take-lease take-claim"
SEEN = {
    v: sight(evidence={7: model.Evidence(verdict=v, why="as seen")})
    for v in ("verified", "wrong", "unreadable", "lost")
}
CONFLICT = changed(LABELLED, mergeable="CONFLICTING")

HANDED = msgspec.structs.replace(
    changed(DRAFT, labels=("klaud-handoff",)),
    timeline=listing(github.Event(kind="labeled", actor=ALICE, at=AT, detail="klaud-handoff")),
)
NOISE = github.Event(kind="commented", actor=github.Account(id=5, login="other-app", type="Bot"), at=AT)
ONCE = model.Policy(evidence_sweeps=1, waiting_sweeps=1, continue_sweeps=1)

ROWS: list[tuple[str, str, decide_facts.Facts, str]] = [
    ("row_1", "nothing bad", facts(open_ours=1), ""),
    ("row_1", "bad", facts(case(bad="forged")), "1 leave:quarantined blocks"),
    ("row_1", "newer", facts(case(bad="newer", newer=True)), "1 leave:newer blocks"),
    ("row_1", "two drafts", facts(open_ours=2), "1 leave:quarantined blocks"),
    ("row_1b", "all read", facts(STRAY), ""),
    ("row_1b", "a pull request", facts(msgspec.structs.replace(STRAY, unread=(model.Unread("p", "502"),))),
     "1b cancel-run leave:error blocks"),
    ("row_1b", "its liveness", facts(STRAY, live=UNKNOWN), "1b leave:error blocks"),
    ("row_1b", "its lease", facts(STRAY, lease=UNKNOWN), "1b leave:error blocks"),
    ("row_2", "none", facts(STRAY), ""),
    ("row_2", "not merged", facts(FULL, pull=draft(is_open=False)), ""),
    ("row_2", "merged and alive", facts(FULL, pull=changed(DRAFT, merged=True), live=ALIVE), ""),
    ("row_2", "merged", facts(FULL, pull=changed(DRAFT, merged=True)),
     "2 cancel-run delete-ref release-claim write-outcome leave:settled"),
    ("row_2", "merged, unknown", facts(FULL, pull=changed(DRAFT, merged=True), live=UNKNOWN),
     "2 cancel-run release-claim leave:settled"),
    ("row_2", "merged, branch moved", facts(FULL, pull=changed(DRAFT, merged=True, head_oid=OTHER)),
     "2 cancel-run release-claim write-outcome leave:settled"),
    ("row_2", "merged, no ledger", facts(STRAY, pull=changed(DRAFT, merged=True)),
     "2 cancel-run release-claim leave:settled"),
    ("row_2", "merged, outcome there", facts(FULL, pull=changed(DRAFT, merged=True), outcome=OUTCOME),
     "2 cancel-run delete-ref release-claim leave:settled"),
    ("row_3", "none", facts(FULL), ""),
    ("row_3", "no label", facts(FULL, pull=DRAFT), ""),
    ("row_3", "closed", facts(FULL, pull=changed(draft(is_open=False), labels=("klaud-handoff",))), ""),
    ("row_3", "handed off", facts(FULL, pull=changed(DRAFT, labels=("klaud-handoff",))), "3 release-claim leave:handed-off"),
    ("row_3", "handed off, no card yet", facts(FULL, pull=HANDED), "3 write-card release-claim leave:handed-off"),
    ("row_3", "handed off, no ledger", facts(STRAY, pull=HANDED), "3 release-claim leave:handed-off"),
    ("row_4", "gone", facts(FULL), ""),
    ("row_4", "unknown", facts(FULL, live=UNKNOWN), ""),
    ("row_4", "alive", facts(FULL, live=ALIVE), "4 leave:alive blocks"),
    ("row_4", "zombie", facts(FULL, live=model.Zombie(60)), "4 release-claim leave:alive"),
    ("row_5", "no lease", facts(FULL), ""),
    ("row_5", "dead pass", facts(FULL, lease=GONE), ""),
    ("row_5", "live pass", facts(FULL, lease=ALIVE), "5 leave:in-hand blocks"),
    ("row_5", "zombie pass", facts(FULL, lease=model.Zombie(4)), "5 leave:in-hand blocks"),
    ("row_6", "no touch", facts(FULL, pull=DRAFT), ""),
    ("row_6", "closed", facts(FULL, pull=draft(is_open=False), touch=TOUCH), ""),
    ("row_6", "no draft", facts(FULL, touch=TOUCH), ""),
    ("row_6", "touched", facts(FULL, pull=DRAFT, touch=TOUCH), "6 cancel-run release-claim leave:touched"),
    ("row_7", "no outcome", facts(FULL, pending=("close-draft",)), ""),
    ("row_7", "nothing pending", facts(FULL, outcome=OUTCOME), ""),
    ("row_7", "alive", facts(FULL, outcome=OUTCOME, pending=("close-draft",), live=ALIVE), ""),
    ("row_7", "half done", facts(FULL, outcome=OUTCOME, pending=("close-draft",)),
     f"7 {TAKE} cancel-run finish release-claim"),
    ("row_7b", "no outcome", facts(FULL), ""),
    ("row_7b", "pending", facts(FULL, outcome=OUTCOME, pending=("close-draft",)), ""),
    ("row_7b", "settled", facts(FULL, outcome=OUTCOME), "7b cancel-run release-claim leave:settled"),
    ("row_7b", "old, and something is left",
     facts(FULL, aged(31), outcome=OUTCOME), "7b cancel-run release-claim leave:settled"),
    ("row_7b", "young, and nothing is left", facts(case(ledger=ledger()), outcome=OUTCOME), "7b leave:settled"),
    ("row_7b", "old, and nothing is left",
     facts(case(ledger=ledger()), aged(31), outcome=OUTCOME), ""),
    ("row_8_9_10", "no final", facts(FULL, pull=DRAFT), ""),
    ("row_8_9_10", "no draft", facts(FULL, finals=(GREEN,)), ""),
    ("row_8_9_10", "closed", facts(FULL, pull=draft(is_open=False), finals=(GREEN,)), ""),
    ("row_8_9_10", "failed", facts(FULL, pull=DRAFT, finals=(GREEN, run(8))), ""),
    ("row_8_9_10", "going", facts(FULL, pull=DRAFT, finals=(run(8, status="queued", conclusion="success"),)), ""),
    ("row_8_9_10", "verified", facts(FULL, SEEN["verified"], pull=DRAFT, finals=(GREEN,)),
     f"8 {TAKE} cancel-run finish release-claim"),
    ("row_8_9_10", "wrong", facts(FULL, SEEN["wrong"], pull=DRAFT, finals=(GREEN,)),
     f"10 {TAKE} cancel-run finish release-claim"),
    ("row_8_9_10", "unreadable", facts(FULL, SEEN["unreadable"], pull=DRAFT, finals=(GREEN,)),
     "9 cancel-run leave:evidence-unreadable blocks waits"),
    ("row_8_9_10", "not read", facts(FULL, pull=DRAFT, finals=(GREEN,), counted=BEFORE),
     "9 cancel-run leave:evidence-unreadable blocks waits"),
    ("row_8_9_10", "unreadable too long", facts(FULL, SEEN["unreadable"], pull=DRAFT, finals=(GREEN,), counted=COUNTED),
     "9 cancel-run release-claim leave:evidence-lost"),
    ("row_8_9_10", "unreadable for the first time",
     facts(FULL, SEEN["unreadable"], pull=DRAFT, finals=(GREEN,), policy=ONCE),
     "9 cancel-run leave:evidence-unreadable blocks waits"),
    ("row_8_9_10", "lost", facts(FULL, SEEN["lost"], pull=DRAFT, finals=(GREEN,)),
     "9 cancel-run release-claim leave:evidence-lost"),
    ("row_11", "none", facts(FULL), ""),
    ("row_11", "closed", facts(FULL, pull=changed(READY, state="closed")), ""),
    ("row_11", "draft", facts(FULL, pull=DRAFT), ""),
    ("row_11", "outcome", facts(FULL, pull=READY, outcome=OUTCOME), ""),
    ("row_11", "ready", facts(FULL, pull=READY), "11 cancel-run release-claim leave:ready"),
    ("row_12", "none", facts(FULL), ""),
    ("row_12", "closed", facts(FULL, pull=changed(LABELLED, state="closed")), ""),
    ("row_12", "unlabelled", facts(FULL, pull=DRAFT), ""),
    ("row_12", "a final", facts(FULL, pull=LABELLED, finals=(run(7),)), ""),
    ("row_12", "waiting", facts(FULL, pull=LABELLED), "12 cancel-run leave:waiting blocks waits"),
    ("row_12", "waiting for the first time", facts(FULL, pull=LABELLED, policy=ONCE),
     "12 cancel-run leave:waiting blocks waits"),
    ("row_12", "waiting still", facts(FULL, pull=CONFLICT, counted=BEFORE), "12 cancel-run leave:waiting blocks waits"),
    ("row_12", "waited for", facts(FULL, pull=LABELLED, counted=COUNTED),
     f"14 {TAKE} cancel-run close-draft delete-ref release-claim write-outcome"),
    ("row_12", "waited for, alive", facts(FULL, pull=LABELLED, counted=COUNTED, live=ALIVE), ""),
    ("row_12", "waited for, touched", facts(FULL, pull=LABELLED, counted=COUNTED, touch=TOUCH), ""),
    ("row_12", "waited for, ready", facts(FULL, pull=changed(LABELLED, draft=False), counted=COUNTED), ""),
    ("row_13", "no ledger", facts(STRAY), ""),
    ("row_13", "not parked", facts(FULL), ""),
    ("row_13", "alive", facts(PARKED, live=ALIVE), ""),
    ("row_13", "closed", facts(PARKED, pull=draft(is_open=False)), ""),
    ("row_13", "no draft", facts(PARKED), "13 continue leave:continued blocks waits"),
    ("row_13", "over", facts(PARKED, pull=DRAFT, counted=BEFORE), "13 continue leave:continued blocks waits"),
    ("row_13", "nobody came", facts(PARKED, pull=DRAFT, counted=COUNTED), ""),
    ("row_13", "seen for the first time", facts(PARKED, policy=ONCE), "13 continue leave:continued blocks waits"),
    ("row_13", "pushes are no final runs", facts(case(ledger=ledger(PUSHED, PUSHED, PARK))),
     "13 continue leave:continued blocks waits"),
    ("row_13", "one final run used", facts(case(ledger=ledger(START, PARK))), "13 continue leave:continued blocks waits"),
    ("row_13", "final runs used", facts(case(ledger=ledger(START, START, PARK))), ""),
    ("row_13", "continuations left", facts(case(ledger=ledger(*[AGAIN] * 4, PARK))),
     "13 continue leave:continued blocks waits"),
    ("row_13", "continuations used", facts(case(ledger=ledger(*[AGAIN] * 5, PARK))), ""),
    ("row_13", "without a draft nobody is asked", facts(ASKED, **ASKING), "13 continue leave:continued blocks waits"),
    ("row_13", "nobody has approved", facts(ASKED, pull=DRAFT, **ASKING), "13 leave:waiting blocks waits"),
    ("row_13", "nobody approves", facts(ASKED, pull=DRAFT, counted={"13": POLICY.approval_sweeps}, **ASKING), ""),
    ("row_13", "approved late", facts(ASKED, pull=changed(DRAFT, labels=("run-it",)),
     counted={"13": POLICY.approval_sweeps - 1}, **ASKING), "13 continue leave:continued blocks waits"),
    ("row_14", "alive", facts(FULL, pull=DRAFT, live=ALIVE), ""),
    ("row_14", "none", facts(FULL), ""),
    ("row_14", "closed", facts(FULL, pull=draft(is_open=False)), ""),
    ("row_14", "ready", facts(FULL, pull=READY), ""),
    ("row_14", "touched", facts(FULL, pull=DRAFT, touch=TOUCH), ""),
    ("row_14", "abandoned", facts(FULL, pull=DRAFT),
     f"14 {TAKE} cancel-run close-draft delete-ref release-claim write-outcome"),
    ("row_15_16", "none", facts(FULL), ""),
    ("row_15_16", "open", facts(FULL, pull=DRAFT), ""),
    ("row_15_16", "merged", facts(FULL, pull=changed(closed_by(BOT), merged=True)), ""),
    ("row_15_16", "no detail", dataclasses.replace(facts(FULL, pull=closed_by(BOT)), detail=None), ""),
    ("row_15_16", "klaud", facts(FULL, pull=closed_by(BOT)), "15 cancel-run delete-ref release-claim write-outcome"),
    ("row_15_16", "klaud last", facts(FULL, pull=closed_by(ALICE, BOT)),
     "15 cancel-run delete-ref release-claim write-outcome"),
    ("row_15_16", "klaud, then a bot spoke",
     facts(FULL, pull=msgspec.structs.replace(closed_by(BOT), timeline=listing(*closed_by(BOT).timeline.items, NOISE))),
     "15 cancel-run delete-ref release-claim write-outcome"),
    ("row_15_16", "klaud, alive", facts(FULL, pull=closed_by(BOT), live=ALIVE), ""),
    ("row_15_16", "klaud, no branch", facts(STRAY, pull=closed_by(BOT)), ""),
    ("row_15_16", "klaud, moved", facts(FULL, pull=closed_by(BOT, head=OTHER)),
     "15 cancel-run release-claim leave:unknown-head"),
    ("row_15_16", "klaud, touched", facts(FULL, pull=closed_by(BOT), touch=TOUCH),
     "15 cancel-run release-claim leave:touched"),
    ("row_15_16", "klaud, touched, a pass died",
     facts(msgspec.structs.replace(FULL, lease=LEASE), pull=closed_by(BOT), touch=TOUCH),
     "15 cancel-run reopen-draft release-claim leave:touched"),
    ("row_15_16", "a person", facts(FULL, pull=closed_by(BOT, ALICE)),
     "16 cancel-run write-tombstone release-claim leave:closed-by-person"),
    ("row_15_16", "a ghost", facts(FULL, pull=closed_by(None)),
     "16 cancel-run write-tombstone release-claim leave:closed-by-person"),
    ("row_15_16", "nobody", facts(FULL, pull=closed_by()),
     "16 cancel-run write-tombstone release-claim leave:closed-by-person"),
    ("row_17_18", "no branch", facts(STRAY), ""),
    ("row_17_18", "a draft", facts(msgspec.structs.replace(FULL, pulls=(DRAFT,))), ""),
    ("row_17_18", "alive", facts(FULL, live=ALIVE), ""),
    ("row_17_18", "known", facts(FULL), "17 cancel-run delete-ref release-claim write-outcome"),
    ("row_17_18", "unknown", facts(msgspec.structs.replace(FULL, branch="c" * 40)),
     "18 cancel-run release-claim leave:unknown-head"),
    ("row_17_18", "no ledger", facts(msgspec.structs.replace(FULL, ledger=None)),
     "18 cancel-run release-claim leave:unknown-head"),
    ("row_19", "no claim", facts(case(ledger=ledger())), ""),
    ("row_19", "a branch", facts(FULL), ""),
    ("row_19", "alive", facts(STRAY, live=ALIVE), ""),
    ("row_19", "an open draft", facts(STRAY, pull=DRAFT), ""),
    ("row_19", "a closed draft", facts(STRAY, pull=draft(is_open=False)), "19 cancel-run release-claim"),
    ("row_19", "claim only", facts(STRAY), "19 cancel-run release-claim"),
    ("row_19", "with a ledger", facts(case(claim=CLAIM, ledger=ledger())), "19 release-claim write-outcome"),
    ("row_20", "a claim", facts(STRAY), ""),
    ("row_20", "a branch", facts(case(branch=HEAD)), ""),
    ("row_20", "an open draft", facts(case(pulls=(DRAFT,))), ""),
    ("row_20", "nothing", facts(case(stray_runs=(SMOKING,))), "20 cancel-run leave:nothing-left"),
    ("row_20", "a young ledger", facts(case(ledger=ledger()), aged(30)),
     "20 leave:nothing-left"),
    ("row_20", "an old ledger",
     facts(case(ledger=ledger(), stray_runs=(SMOKING,)), aged(30, 1)),
     "20 cancel-run delete-ref"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "given", "expected"), [(r, f, e) for r, _, f, e in ROWS], ids=[f"{r}-{n}" for r, n, _, _ in ROWS]
)
def test_row_by_facts(rule: str, given: decide_facts.Facts, expected: str) -> None:
    """Each condition of each row, one at a time."""
    assert words(RULES[rule](given)) == expected


def test_every_rule_is_in_these_tables_and_answers_both_ways() -> None:
    """No rule without a yes and a no."""
    for rule in RULES:
        answers = {bool(expected) for name, _, _, expected in ROWS if name == rule}
        assert answers == {True, False}, rule


# -- what actions carry


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
