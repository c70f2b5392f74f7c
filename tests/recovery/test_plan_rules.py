"""From a sight to a plan, by tables: what must be read first, what stops a sweep, what waits, what is remembered."""

from __future__ import annotations

import datetime
from typing import Any

import msgspec
import pytest

from klaud import names
from klaud.github import model as github
from klaud.leases import model as leases
from klaud.recovery import decide_plan, model
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
)  # fmt: skip
from tests.support.memory_scenes import Scene

ALICE = github.Account(id=101, login="alice")
BRANCH = names.branch(CANDIDATE)
BRANCH_REF = f"refs/heads/{BRANCH}"
CLAIM_REF = f"refs/klaud/claims/{CANDIDATE[:16]}"
SESSION_REF = f"refs/klaud/sessions/{KEY}"
LEASE_REF = f"refs/klaud/leases/{KEY}"
BAD = leases.Quarantined("r", "o" * 40, "not JSON")
OUTCOME = leases.Outcome(at=AT, outcome="failed")
PUSHED = leases.Intent(at=AT, seq=0, effect="push-work", oids=(HEAD,))
PARKED = leases.Parked(at=AT, on=(9,), why="final-run")
MISSING = github.Missing(what="it")
UNREAD = model.Unread("it", "502")
OWN = run(99, **GOING)
NOTHING = model.Wanted()


def snapshot(**refs: Any) -> leases.Snapshot:
    """Return the refs of an empty repository, but for what is given."""
    return msgspec.structs.replace(Scene(outside=True).snapshot(), **refs)


def think(
    *runs: github.Run, refs: dict[str, Any] | None = None, policy: model.Policy = POLICY, **fields: Any
) -> decide_plan.Thinking:
    """Apply the rules to what was seen: runs by id, refs, and fields of a sight."""
    seen = sight(*runs, **{"snapshot": snapshot(**(refs or {})), "listing": listing(), **fields})
    return decide_plan.Thinking(seen, SETTING, policy)


def rows(thinking: decide_plan.Thinking) -> list[str]:
    return [v.row for v in thinking.verdicts]


def hours(count: float) -> datetime.datetime:
    return AT + datetime.timedelta(hours=count)


def lease(run_id: int = 40, job: str = "recover") -> leases.Held:
    record = leases.Lease(at=AT, wave="50.1", candidate=CANDIDATE, holder=holder(run_id, 1, job))
    return leases.Held(LEASE_REF, "e" * 40, record)


PASS = lease().record


def forerunner(kind: Any = "claim", job: str = "", planner_run: int = 50, name: str = CANDIDATE) -> leases.Forerunner:
    return leases.Forerunner(f"refs/heads/klaud/{kind}-{name}", "f" * 40, kind, planner_run, "", job)


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


def naming(*numbers: int, more: tuple[leases.LedgerRecord, ...] = ()) -> dict[str, Any]:
    """Return the refs of a session whose ledger names these pull requests."""
    opened = [leases.Effected(at=AT, seq=0, effect="open-draft", result="done", number=n) for n in numbers]
    return {"ledgers": {SESSION_REF: ledger(PUSHED, *opened, *more)}}


def test_pull_requests_that_must_be_read() -> None:
    """Those that a ledger names and no listing showed, until the session is settled; once, however they answered."""
    over = run(60)
    assert think(over, refs=naming(1, 2)).wanted() == model.Wanted(numbers=frozenset({1, 2}))
    seen = think(run(60, **GOING), refs=naming(1, 2), heads={BRANCH: listing(draft())}).wanted()
    assert seen == model.Wanted(numbers=frozenset({2}))
    assert think(over, refs=naming(1, 2), numbered={1: MISSING}).wanted() == model.Wanted(numbers=frozenset({2}))
    assert think(over, refs=naming(1, 2), numbered={1: MISSING, 2: UNREAD}).wanted() == NOTHING
    assert think(over, refs=naming(1, 2, more=(OUTCOME,))).wanted() == NOTHING


FINAL_RUN = run(7, path=FINAL, head_sha=HEAD, conclusion="success")


def drafted(*more: leases.LedgerRecord, pull: github.PullDetail | None = None, **fields: Any) -> dict[str, Any]:
    """Return what is seen of one session with a draft, its ledger naming its head."""
    refs = {"ledgers": {SESSION_REF: ledger(PUSHED, *more)}, "branches": {BRANCH_REF: HEAD}}
    return {"refs": refs, "heads": {BRANCH: listing(pull or draft())}, **fields}


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


# -- many drafts


def many(*opened: float, closed: bool = False, **fields: Any) -> dict[str, Any]:
    """Return what is seen of that many abandoned sessions, each with a draft opened so many hours after the start."""
    ledgers, branches = {}, {}
    heads: dict[str, Any] = {}
    head_runs: dict[str, Any] = {}
    runs: dict[int, Any] = {}
    for number, hour in enumerate(opened, 1):
        candidate, head = f"{number:016x}-{'0' * 16}", f"{number:040x}"
        start = leases.SessionStarted(
            at=AT, wave="50.1", candidate=candidate, family=candidate[:16], base=OTHER, holder=holder(600 + number)
        )
        push = msgspec.structs.replace(PUSHED, oids=(head,))
        ref = f"refs/klaud/sessions/50.1-{candidate}"
        ledgers[ref] = leases.Ledger(ref, "o" * 40, (start, push))
        branches[f"refs/heads/{names.branch(candidate)}"] = head
        found = draft(number=number, head=head, is_open=not closed)
        pull = msgspec.structs.replace(found.pull, head_ref=names.branch(candidate), created_at=hours(hour))
        heads[names.branch(candidate)] = listing(msgspec.structs.replace(found, pull=pull))
        head_runs[head] = listing()
        runs[600 + number] = run(600 + number)
    return {
        "refs": {"ledgers": ledgers, "branches": branches}, "heads": heads, "runs": runs, "head_runs": head_runs, **fields,
    }  # fmt: skip


def closed(plan: model.Plan) -> list[int]:
    return [a.number for v in plan.verdicts for a in v.actions if isinstance(a, model.CloseDraft)]


def codes(plan: model.Plan) -> list[str]:
    return [a.code for v in plan.verdicts for a in v.actions if isinstance(a, model.Leave)]


def test_only_the_heads_of_drafts_that_will_be_closed_are_read() -> None:
    """The oldest, as many as one sweep closes."""
    seen = many(3, 1, 2, policy=model.Policy(max_closures=2)) | {"head_runs": {}}
    assert think(**seen).wanted().head_runs == {f"{2:040x}", f"{3:040x}"}
    seen["refs"]["claims"] = {CLAIM_REF: claim(holder(60))}
    seen["runs"][60] = run(60)
    assert think(**seen).wanted().head_runs == {f"{2:040x}", f"{3:040x}"}
    assert think(**many(3, 1, 2)).wanted() == NOTHING


@pytest.mark.parametrize(("most", "expected"), [(0, []), (1, [2]), (2, [2, 3]), (3, [1, 2, 3]), (4, [1, 2, 3])])
def test_the_oldest_drafts_are_closed_and_the_rest_waits(most: int, expected: list[int]) -> None:
    """Whole: nothing of it is touched in this sweep, and it says so."""
    plan = think(**many(3, 1, 2, policy=model.Policy(max_closures=most))).plan(None)
    assert closed(plan) == expected
    assert codes(plan) == ["drain"] * (3 - len(expected))
    assert [len(v.actions) > 1 for v in plan.verdicts] == [n in expected for n in (1, 2, 3)]
    assert plan.requests == (decide_plan.CLOSE_REQUESTS * len(expected) + decide_plan.BASE_REQUESTS if expected else 0)


def test_drafts_of_one_age_are_closed_by_name() -> None:
    """So that two sweeps agree."""
    assert closed(think(**many(1, 1, 1, policy=model.Policy(max_closures=2))).plan(None)) == [1, 2]


def verdict(*actions: model.Action, key: str = "k", row: Any = "14", hour: float | None = 0) -> model.Verdict:
    pulls: tuple[github.PullDetail, ...] = ()
    if hour is not None:
        pulls = (msgspec.structs.replace(draft(), pull=msgspec.structs.replace(draft().pull, created_at=hours(hour))),)
    return model.Verdict(case=case(key=key, pulls=pulls), row=row, state="s", actions=actions)


def close(number: int = 1) -> model.CloseDraft:
    return model.CloseDraft(why="w", number=number, head=HEAD, branch="b", created_at=AT)


def finish(as_: Any, number: int | None = 1) -> model.Finish:
    return model.Finish(why="w", wave="50.1", candidate=CANDIDATE, number=number, as_=as_)


LEAVE = model.Leave(why="w", code="settled")
CANCEL = model.CancelRun(why="w", run_id=5)
REOPEN = model.ReopenDraft(why="w", number=1, head=HEAD)
RELEASE = model.ReleaseClaim(why="w", ref="r", oid="o")
CONTINUE = model.Continue(why="w", wave="50.1", candidate=CANDIDATE, on=())
CARD = model.WriteCard(why="w", number=1)
DELETE = model.DeleteRef(why="w", ref="r", oid="o")
ALL_RIGHTS = ("contents:write", "pulls:write", "actions:write")

ACTIONS = [
    (LEAVE, (), 0, False),
    (CONTINUE, (), 0, False),
    (RELEASE, ALL_RIGHTS[:1], 0, False),
    (DELETE, ALL_RIGHTS[:1], 0, False),
    (CANCEL, ("contents:write", "actions:write"), decide_plan.CANCEL_REQUESTS, False),
    (close(), ALL_RIGHTS[:2], decide_plan.CLOSE_REQUESTS, True),
    (REOPEN, ALL_RIGHTS[:2], decide_plan.REOPEN_REQUESTS, False),
    (CARD, ALL_RIGHTS[:2], decide_plan.CARD_REQUESTS, False),
    (finish("failed"), ALL_RIGHTS, decide_plan.FINISH_REQUESTS, True),
    (finish("recorded"), ALL_RIGHTS, decide_plan.FINISH_REQUESTS, True),
    (finish("recorded", None), ALL_RIGHTS, decide_plan.FINISH_REQUESTS, False),
    (finish("validated"), ALL_RIGHTS, decide_plan.FINISH_REQUESTS, False),
]


@pytest.mark.parametrize(
    ("action", "rights", "cost", "closing"), ACTIONS, ids=[f"{type(a[0]).__name__}" for a in ACTIONS]
)
def test_what_an_action_takes(action: model.Action, rights: tuple[str, ...], cost: int, closing: bool) -> None:
    """Rights, requests at worst, and whether it may close a draft; also beside others."""
    alone, both = verdict(action), verdict(LEAVE, action, LEAVE)
    for one in (alone, both):
        assert decide_plan.rights([one]) == rights
        assert decide_plan.cost(one) == cost
        assert decide_plan.closes(one) is closing
    assert decide_plan.cost(verdict(action, action)) == 2 * cost


def test_rights_come_in_the_order_in_which_they_are_asked_for() -> None:
    """Each once, whichever action takes them; none for nothing."""
    assert decide_plan.rights([verdict(CANCEL), verdict(close()), verdict(RELEASE)]) == ALL_RIGHTS
    assert decide_plan.rights([]) == ()


def test_a_lease_beside_a_closure_is_not_put_off_with_it() -> None:
    """Pruning a dead pass's lease costs nothing."""
    pruned = verdict(DELETE, row="lease")
    older = verdict(RELEASE, key="older", hour=-2)
    kept = decide_plan._drained([verdict(close()), pruned, verdict(close(), key="old", hour=-1), older], 1)
    assert [type(v.actions[0]).__name__ for v in kept] == ["Leave", "DeleteRef", "CloseDraft", "ReleaseClaim"]


def test_a_closure_without_a_dated_draft_is_the_oldest() -> None:
    """Its age is unknown, so it does not wait; of several pull requests the newest dates it."""
    dated, undated = verdict(close(), key="a", hour=-5), verdict(finish("failed"), key="z", hour=None)
    assert [v.actions[0] != undated.actions[0] and not isinstance(v.actions[0], model.CloseDraft)
            for v in decide_plan._drained([dated, undated], 1)] == [True, False]  # fmt: skip
    pulls = tuple(msgspec.structs.replace(draft(), pull=msgspec.structs.replace(draft().pull, created_at=hours(h)))
                  for h in (-9, 1))  # fmt: skip
    both = msgspec.structs.replace(dated, case=case(key="b", pulls=pulls))
    kept = decide_plan._drained([both, dated], 1)
    assert [isinstance(v.actions[0], model.CloseDraft) for v in kept] == [False, True]


# -- the budget


def within(remaining: int | None, *found: model.Verdict, reserve: int = 100) -> tuple[list[bool], int]:
    """Return which verdicts there is room for, and what all would cost."""
    kept, worst = decide_plan._within_budget(list(found), remaining, reserve)
    for before, after in zip(found, kept, strict=True):
        if after != before:
            (left,) = after.actions
            assert isinstance(left, model.Leave)
            assert left.code == "budget"
            assert (after.case, after.row, after.state) == (before.case, before.row, before.state)
    return [a == b for a, b in zip(found, kept, strict=True)], worst


BASE, CLOSE, CANCELS = decide_plan.BASE_REQUESTS, decide_plan.CLOSE_REQUESTS, decide_plan.CANCEL_REQUESTS
FINISH = decide_plan.FINISH_REQUESTS


def test_what_there_is_room_for_is_done() -> None:
    """At the reserve, not below it; where nobody said what is left, all of it; what costs nothing has room always."""
    one = verdict(close())
    worst = CLOSE + BASE
    assert within(None, one) == ([True], worst)
    assert within(100 + worst, one) == ([True], worst)
    assert within(100 + worst - 1, one) == ([False], worst)
    assert within(0, verdict(RELEASE), verdict(LEAVE)) == ([True, True], 0)
    assert within(0, verdict(RELEASE), one) == ([True, False], worst)


def test_what_has_no_room_waits_in_this_order() -> None:
    """First come cancels, then what closes no draft, then closures from the oldest; a small one may fit behind a big one."""
    cancel, good = verdict(CANCEL, key="c"), verdict(finish("validated"), key="v")
    old, new = verdict(close(), key="o", hour=1), verdict(close(), key="n", hour=2)
    bad = verdict(finish("failed"), key="f", hour=3)
    found = (bad, new, old, good, cancel)
    worst = 2 * FINISH + 2 * CLOSE + CANCELS + BASE

    def room(requests: int) -> list[bool]:
        kept, cost = within(100 + BASE + requests, *found)
        assert cost == worst
        return kept

    assert room(worst - BASE) == [True] * 5
    assert room(worst - BASE - 1) == [False, True, True, True, True]
    assert room(CANCELS + FINISH + CLOSE) == [False, False, True, True, True]
    assert room(CANCELS + FINISH) == [False, False, False, True, True]
    assert room(CANCELS + FINISH - 1) == [False, True, True, False, True]
    assert room(CANCELS) == [False] * 4 + [True]
    assert room(CANCELS - 1) == [False] * 5
    two = (verdict(CANCEL, CANCEL, key="a", hour=-1), verdict(CANCEL, key="c", hour=1))
    assert within(100 + BASE + 2 * CANCELS, *two)[0] == [False, True]


def test_the_plan_keeps_to_the_budget() -> None:
    """With the policy's reserve, after the drain."""
    seen = many(3, 1, 2, policy=model.Policy(max_closures=2, reserve=100))
    assert closed(think(**seen).plan(100 + BASE + 2 * CLOSE)) == [2, 3]
    plan = think(**seen).plan(100 + BASE + 2 * CLOSE - 1)
    assert (closed(plan), codes(plan), plan.requests) == ([2], ["drain", "budget"], BASE + 2 * CLOSE)


# -- the heads of drafts to be closed


@pytest.mark.parametrize(
    ("seen", "row", "code"),
    [
        (listing(), "14", ""),
        (None, "14", "drain"),
        (listing(complete=False), "1b", "error"),
        (UNREAD, "1b", "error"),
    ],
)
def test_no_draft_is_closed_whose_head_was_not_read_in_full(seen: Any, row: str, code: str) -> None:
    """A person's run may be there: not read in this sweep waits for the next, a failed read is row 1b and blocks."""
    given = many(1) | {"head_runs": {} if seen is None else {f"{1:040x}": seen}}
    plan = think(**given).plan(None)
    (one,) = plan.verdicts
    assert (one.row, one.blocks) == (row, row == "1b")
    assert closed(plan) == ([] if code else [1])
    assert codes(plan) == ([code] if code else [])
    assert ("cut" in one.state, "502" in one.state) == (seen == listing(complete=False), seen == UNREAD)
    assert plan.requests == (0 if code else CLOSE + BASE)


# -- leases


def pruned(plan: model.Plan) -> list[str]:
    return [a.ref for v in plan.verdicts if v.row == "lease" for a in v.actions if isinstance(a, model.DeleteRef)]


@pytest.mark.parametrize(
    ("runs", "code", "person"),
    [
        ({40: run(40)}, "", ""),
        ({40: run(40, **GOING)}, "in-hand", ""),
        ({40: UNREAD}, "error", ""),
        ({}, "error", ""),
        ({40: run(40, **GOING), "zombie": True}, "in-hand", "GitHub's support, or nobody"),
    ],
)
@pytest.mark.parametrize("old", [False, True])
def test_a_lease_is_judged_apart(runs: dict[Any, Any], code: str, person: str, old: bool) -> None:
    """Deleted where its pass is over, with the proof; else left, and why. The forerunner's likewise, by its planner run."""
    runs = dict(runs)
    memory = held(leases.Observed(at=AT, zombies=(40,))) if runs.pop("zombie", None) else None
    refs: dict[str, Any] = {"leases": {LEASE_REF: lease()}, "observed": memory}
    if old:
        refs = {"forerunner": (forerunner("lease", planner_run=40),), "observed": memory}
    plan = think(refs=refs, runs=runs).plan(None)
    (one,) = [v for v in plan.verdicts if v.row == "lease"]
    (action,) = one.actions
    if code:
        assert isinstance(action, model.Leave)
        assert (action.code, action.person) == (code, person)
    else:
        assert isinstance(action, model.DeleteRef)
        assert (action.ref, action.oid) == (
            (f"refs/heads/klaud/lease-{CANDIDATE}", "f" * 40) if old else (LEASE_REF, "e" * 40)
        )
        assert action.evidence == ("run 40 attempt 1 is completed: failure",)
        assert action.archive == ""
    assert one.case.key == (f"forerunner/lease-{CANDIDATE}" if old else KEY)


def test_a_lease_that_is_taken_over_is_not_deleted() -> None:
    """The dead pass's lease stands in the way of nobody: this pass takes it with its oid; another's is still judged."""
    seen = drafted(head_runs={HEAD: listing()})
    other = f"refs/klaud/leases/1.1-{'e' * 16}-{'0' * 16}"
    second = leases.Held(other, "d" * 40, lease().record)
    seen["refs"] |= {"leases": {LEASE_REF: lease(), other: second}}
    plan = think(run(60), run(40), **seen).plan(None)
    assert closed(plan) == [1]
    assert pruned(plan) == [other]


def test_what_is_no_lease_is_not_judged_as_one() -> None:
    """A record of another kind, one that cannot be read, a claim of the forerunner's; the next one is judged."""
    spare = f"refs/klaud/leases/1.1-{'e' * 16}-{'0' * 16}"
    refs = {
        "leases": {LEASE_REF: held(leases.Observed(at=AT)), f"{spare[:-1]}1": BAD, spare: leases.Held(spare, "d", PASS)},
        "ledgers": {f"refs/klaud/sessions/9.1-{CANDIDATE}": ledger()},
        "forerunner": (BAD, forerunner("claim", planner_run=40, name="x"), forerunner("lease", planner_run=40, name="y")),
    }  # fmt: skip
    plan = think(run(40), refs=refs).plan(None)
    assert pruned(plan) == [spare, "refs/heads/klaud/lease-y"]


# -- what the next sweep must know


def memory(*counts: leases.Count, zombies: tuple[int, ...] = (), ago: float = 1e6) -> leases.Held:
    return held(leases.Observed(at=AT - datetime.timedelta(seconds=ago), counts=counts, zombies=zombies))


def count(row: str, sweeps: int, session: str = KEY) -> leases.Count:
    return leases.Count(session=session, row=row, sweeps=sweeps)


def remembered(
    *counts: leases.Count, ago: float = 1e6, verdict_: Any = "unreadable", policy: model.Policy = POLICY
) -> tuple[leases.Count, ...]:
    """Return the counts after a sweep that saw a green final run with that evidence."""
    seen = drafted(head_runs={HEAD: listing()}, evidence={7: model.Evidence(verdict=verdict_)})
    seen["refs"] |= {"observed": memory(*counts, ago=ago)}
    return think(run(60), FINAL_RUN, policy=policy, **seen).plan(None).counts


LIMIT = POLICY.evidence_sweeps


@pytest.mark.parametrize(
    ("before", "ago", "expected"),
    [
        ((), 1e6, 1),
        ((), 0, 1),
        ((count("9", 1),), 1e6, 2),
        ((count("9", 1),), 0, 1),
        ((count("12", 3), count("9", 3, "other")), 1e6, 1),
        ((count("9", LIMIT - 1),), 1e6, LIMIT),
        ((count("9", LIMIT),), 0, LIMIT),
        ((count("9", LIMIT),), 1e6, LIMIT + 1),
        ((count("9", LIMIT + 1),), 1e6, LIMIT + 1),
        ((count("9", LIMIT + 1),), 0, LIMIT + 1),
    ],
)
def test_waiting_is_counted_by_sweeps(before: tuple[leases.Count, ...], ago: float, expected: int) -> None:
    """One more each, a burst of sweeps as one; past the limit it stays there, so that it is not waited for again."""
    assert remembered(*before, ago=ago) == (count("9", expected),)


def test_lost_evidence_is_not_counted() -> None:
    """Unless it had been waited for to the end; a session that no longer waits is forgotten."""
    assert remembered(verdict_="lost") == ()
    assert remembered(verdict_="lost", policy=model.Policy(evidence_sweeps=1)) == ()
    assert remembered(count("9", LIMIT - 1), verdict_="lost") == ()
    assert remembered(count("9", LIMIT), verdict_="lost") == (count("9", LIMIT + 1),)
    assert remembered(count("9", 2), verdict_="verified") == ()
    assert remembered(count("9", LIMIT), verdict_="verified") == ()


def test_counts_come_in_order() -> None:
    """By session, then row: the memory is written only when it changes."""
    park = leases.Parked(at=AT, on=(), why="job-limit")
    ledgers, runs = {}, {}
    for number in (3, 1, 2):
        candidate = f"{number:016x}-{'0' * 16}"
        start = leases.SessionStarted(
            at=AT, wave="50.1", candidate=candidate, family=candidate[:16], base=OTHER, holder=holder(600 + number)
        )
        ledgers[f"s/50.1-{candidate}"] = leases.Ledger("l", "o" * 40, (start, park))
        runs[600 + number] = run(600 + number)
    thinking = think(refs={"ledgers": ledgers}, runs=runs)
    counts = thinking._counts(tuple(reversed(thinking.verdicts)))
    assert [(c.session[:20], c.row, c.sweeps) for c in counts] == [
        (f"50.1-{number:016x}"[:20], "13", 1) for number in (1, 2, 3)
    ]


@pytest.mark.parametrize(
    ("seen", "kept"),
    [(None, True), (UNREAD, True), (run(5, **GOING), True), (run(5), False), (MISSING, False)],
)
def test_a_zombie_is_remembered_until_it_ends(seen: Any, kept: bool) -> None:
    """Completed or deleted; what could not be read is still one. In order of their numbers."""
    refs = {"observed": memory(zombies=(5, 3))}
    runs = {} if seen is None else {5: seen}
    assert think(refs=refs, runs=runs).plan(None).zombies == ((3, 5) if kept else (3,))


# -- what stops a sweep


def stopped(*runs: github.Run, **fields: Any) -> str:
    """Return why nothing may be written, empty where nothing stops the sweep; the plan says the same."""
    thinking = think(*runs, **fields)
    stop = thinking.stop()
    assert thinking.plan(None).stop == stop
    return stop.why if stop else ""


PLANNED = run(99, path=".github/workflows/klaud-plan.yml@refs/heads/main", **GOING)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({}, ""),
        ({"own": PLANNED}, ""),
        ({"own": MISSING, "me": holder(99)}, "our own run 99 answers 404: this token cannot prove any run gone"),
        ({"own": MISSING}, "our own run 0 answers 404: this token cannot prove any run gone"),
        ({"own": UNREAD}, "our own run could not be read (it: 502)"),
        ({"own": PLANNED, "planners": listing(run(98), PLANNED)}, ""),
        ({"own": PLANNED, "planners": listing(run(98))}, "the listing of klaud-plan.yml does not have our own run 99"),
        ({"own": PLANNED, "planners": listing(run(98), complete=False)}, ""),
        ({"own": PLANNED, "planners": UNREAD}, ""),
        ({"planners": listing(run(98))}, ""),
    ],
)
def test_our_own_run_is_seen_or_nothing_is_written(fields: dict[str, Any], why: str) -> None:
    """By its id and, where it was read whole, in its workflow's listing; outside of Actions there is none."""
    assert stopped(**fields) == why


SINCE = {"listing_since": hours(-1)}
LOGIN = github.Account(id=90001, login="klaud-bot", type="Bot")


@pytest.mark.parametrize(
    ("one", "fields", "contradicts"),
    [
        (run(7), {"listing": listing(run(8)), **SINCE}, True),
        (run(7), {"listing": listing(), **SINCE}, True),
        (run(7), {"listing": listing(run(7), run(8)), **SINCE}, False),
        (run(7), {"listing": listing(run(6)), **SINCE}, False),
        (run(7), {"listing": listing(run(8))}, False),
        (run(7), {"listing": listing(run(8), complete=False), **SINCE}, False),
        (run(7), {"listing": UNREAD, **SINCE}, False),
        (run(7, actor=ALICE), {"listing": listing(run(8)), **SINCE}, False),
        (run(7, actor=None), {"listing": listing(run(8)), **SINCE}, False),
        (run(7, created_at=hours(-1)), {"listing": listing(run(8)), **SINCE}, False),
        (run(7, created_at=hours(-2)), {"listing": listing(run(8)), **SINCE}, False),
    ],
)
def test_a_run_that_the_listing_should_have_stops_the_sweep(
    one: github.Run, fields: dict[str, Any], contradicts: bool
) -> None:
    """Klaud's own, younger than the listing's begin and older than its newest: a whole listing would show it."""
    why = "run 7 of klaud's exists by its id and is not in the listing of klaud's runs"
    assert stopped(one, **fields) == (why if contradicts else "")


def test_each_run_is_held_against_the_listing() -> None:
    """One that is there hides none that is not."""
    assert "run 6 " in stopped(run(5), run(6), listing=listing(run(5), run(8)), **SINCE)


def numbered(**fields: Any) -> github.PullDetail:
    return msgspec.structs.replace(draft(), pull=msgspec.structs.replace(draft().pull, **fields))


@pytest.mark.parametrize(
    ("seen", "heads", "contradicts"),
    [
        (draft(), {BRANCH: listing()}, True),
        (draft(), {BRANCH: listing(complete=False)}, False),
        (draft(), {BRANCH: UNREAD}, False),
        (draft(), {}, False),
        (numbered(head_repository="other/bench"), {BRANCH: listing()}, False),
        (numbered(head_repository=None), {BRANCH: listing()}, False),
        (numbered(head_ref="feature"), {BRANCH: listing()}, False),
    ],
)
def test_a_pull_request_that_its_heads_listing_should_have_stops_the_sweep(
    seen: Any, heads: dict[str, Any], contradicts: bool
) -> None:
    """Of this repository, by a whole listing; one that could not be read hides none."""
    why = f"pull request 1 exists by its number and is not among those of its head {BRANCH}"
    assert stopped(heads=heads, numbered={3: MISSING, 2: UNREAD, 1: seen}) == (why if contradicts else "")


def gone(count_: int) -> dict[int, Any]:
    return dict.fromkeys(range(1, count_ + 1), MISSING)


@pytest.mark.parametrize(
    ("runs", "listed", "stops"),
    [
        (gone(3), listing(), 3),
        (gone(4), listing(), 4),
        (gone(2), listing(), 0),
        (gone(3), UNREAD, 3),
        (gone(3), listing(run(9)), 0),
        ({**gone(3), 4: run(4)}, listing(), 0),
        ({**gone(3), 4: UNREAD}, listing(), 3),
        ({**gone(2), 4: UNREAD}, listing(), 0),
        ({}, listing(), 0),
    ],
)
def test_many_runs_that_are_all_missing_stop_the_sweep(runs: dict[int, Any], listed: Any, stops: int) -> None:
    """Three are no coincidence, unless one of klaud's is to be seen; what could not be read is not counted."""
    why = f"all {stops} runs on record answer 404, and no run of klaud's is listed"
    assert stopped(runs=runs, listing=listed) == (why if stops else "")


@pytest.mark.parametrize(
    ("named", "seen", "heads", "stops"),
    [
        ((1, 2, 3), gone(3), {}, 3),
        ((1, 2, 3, 4), gone(3), {}, 3),
        ((1, 2), gone(2), {}, 0),
        ((1, 2), gone(3), {}, 0),
        ((1, 2, 3), {**gone(2), 3: draft(number=3)}, {}, 0),
        ((1, 2, 3), {**gone(2), 3: UNREAD}, {}, 0),
        ((1, 2, 3), gone(3), {"feature": listing(draft())}, 0),
        ((1, 2, 3), gone(3), {"feature": listing()}, 3),
        ((1, 2, 3), gone(3), {"feature": UNREAD}, 3),
    ],
)
def test_many_pull_requests_that_are_all_missing_stop_the_sweep(
    named: tuple[int, ...], seen: dict[int, Any], heads: dict[str, Any], stops: int
) -> None:
    """Those that ledgers name; unless any head has one."""
    why = f"all {stops} pull requests on record answer 404, and no head has one"
    assert stopped(run(60), refs=naming(*named), numbered=seen, heads=heads) == (why if stops else "")


def test_a_session_without_a_ledger_names_no_pull_request() -> None:
    """And hides no other's."""
    refs = naming(1, 2, 3) | {"leases": {f"refs/klaud/leases/1.1-{'0' * 16}-{'0' * 16}": lease()}}
    assert stopped(run(60), refs=refs, numbered=gone(3)).startswith("all 3 pull requests")


def test_stray_checks_of_a_live_sweep_stop_nothing() -> None:
    """A plan of an ordinary world goes on, with every verdict in the order of its key."""
    smoking = run(5, path=SMOKE, head_branch=BRANCH, actor=BOT, **GOING)
    thinking = think(run(60), smoking, own=OWN, **drafted(head_runs={HEAD: listing()}))
    plan = thinking.plan(None)
    assert plan.stop is None
    assert plan.requests == CLOSE + CANCELS + BASE
    assert [v.case.key for v in plan.verdicts] == [KEY]
