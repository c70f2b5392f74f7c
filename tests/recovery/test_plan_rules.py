"""From verdicts to a plan, by tables: what an action takes, what waits, which leases go, and what is remembered."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from klaud.leases import model as leases
from klaud.recovery import decide_plan, model
from tests.support.memory_cases import (
    AT,
    CANDIDATE,
    GOING,
    HEAD,
    KEY,
    OTHER,
    POLICY,
    case,
    draft,
    held,
    holder,
    ledger,
    listing,
    run,
)  # fmt: skip
from tests.support.memory_plans import (
    BAD,
    FINAL_RUN,
    LEASE_REF,
    MISSING,
    PASS,
    UNREAD,
    drafted,
    forerunner,
    hours,
    lease,
    many,
    think,
)  # fmt: skip

if TYPE_CHECKING:
    from klaud.github import model as github

# -- many drafts


def closed(plan: model.Plan) -> list[int]:
    return [a.number for v in plan.verdicts for a in v.actions if isinstance(a, model.CloseDraft)]


def codes(plan: model.Plan) -> list[str]:
    return [a.code for v in plan.verdicts for a in v.actions if isinstance(a, model.Leave)]


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
