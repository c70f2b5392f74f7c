"""The pure rules of a turn: guards, what follows it, the stop rule and the watchdog's bounds."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from klaud.leases import model as leases
from klaud.session import decide, decide_stop, model, rules_ledger, watchdog
from tests.support.session_records import AT, OID, end

GOOD = model.Guards(claim_ours=True, handoff=False, paused=False, spent=model.Spent())


@pytest.mark.parametrize(
    ("guards", "tool", "code"),
    [
        ({"claim_ours": False, "handoff": True, "paused": True}, "push_work", "claim-lost"),
        ({"claim_ours": None, "handoff": True}, "push_work", "claim-unreadable"),
        ({"handoff": True, "paused": True}, "push_work", "handoff"),
        ({"handoff": None}, "push_work", "claim-unreadable"),
        ({"handoff": True}, "read_run", "handoff"),
        ({"paused": True}, "read_run", ""),
        ({"paused": True}, "open_draft", "paused"),
        ({"spent": model.Spent(drafts=1)}, "open_draft", "budget"),
        ({"spent": model.Spent(pushes=20)}, "push_work", "budget"),
        ({"spent": model.Spent(smoke_runs=6), "capacity": "full"}, "dispatch_smoke", "budget"),
        ({"capacity": "full"}, "dispatch_smoke", "no-capacity"),
        ({"capacity": "unknown"}, "start_final_run", "capacity-unknown"),
        ({"capacity": "full"}, "push_work", ""),
        ({"capacity": "free"}, "start_final_run", ""),
        ({"spent": model.Spent(final_runs=2)}, "start_final_run", "budget"),
    ],
)
def test_the_guards_stand_in_their_order(guards: dict[str, Any], tool: model.ToolName, code: str) -> None:
    answer = decide.may_proceed(tool, msgspec.structs.replace(GOOD, **guards), model.Budgets())
    assert (answer.code if isinstance(answer, model.Refusal) else "") == code


@pytest.mark.parametrize(("retry", "field"), [("repair", "repairs"), ("infrastructure", "infrastructure_retries")])
def test_retries_have_a_budget_of_their_own(retry: Any, field: str) -> None:
    budgets = model.Budgets()
    used = msgspec.structs.replace(GOOD, spent=model.Spent(**{field: getattr(budgets, field)}))
    assert decide.may_proceed("dispatch_smoke", GOOD, budgets, retry=retry) == model.ALLOWED
    assert isinstance(decide.may_proceed("dispatch_smoke", used, budgets, retry=retry), model.Refusal)
    assert decide.may_proceed("dispatch_smoke", used, budgets) == model.ALLOWED


FAULTS: tuple[model.Fault, ...] = model.Fault.__args__


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_has_an_outcome_with_a_blame(fault: model.Fault) -> None:
    outcome, code = decide.outcome_of_turn(model.TurnEnd(status="failed", fault=fault))
    assert outcome in leases.OutcomeClass.__args__
    assert decide.blame_of(outcome, code) in model.Blame.__args__


@pytest.mark.parametrize("outcome", leases.OutcomeClass.__args__)
def test_blame(outcome: leases.OutcomeClass) -> None:
    assert decide.blame_of(outcome) in model.Blame.__args__
    assert decide.blame_of(outcome, "workflow-rights") == "permission"


def test_a_crafts_own_code_names_the_reason_and_a_real_fault_goes_before_it() -> None:
    assert decide.outcome_of_turn(end(code="not-encoded")) == ("failed", "not-encoded")
    assert decide.outcome_of_turn(end(fault="agent-error", code="not-encoded")) == ("failed", "not-encoded")
    assert decide.outcome_of_turn(end(fault="silent", code="not-encoded")) == ("stalled", "silent")


def test_infrastructure_does_not_cool_a_family_down() -> None:
    assert decide.blame_of("failed", "infrastructure-timed-out") == "infrastructure"
    assert decide.blame_of("failed", "final-run-failed") == "candidate"


@pytest.mark.parametrize(
    ("turn", "on", "final", "ours", "following"),
    [
        ({}, (1,), True, True, "park"),
        ({}, (1,), False, True, "park"),
        ({}, (), False, True, "settle"),
        ({"status": "failed", "fault": "crashed"}, (1,), False, True, "settle"),
        ({"status": "failed", "fault": "crashed"}, (1,), True, True, "park"),
        ({"status": "paused", "fault": "paused"}, (), False, True, "park"),
        ({"status": "paused", "fault": "job-limit"}, (), False, True, "park"),
        ({"status": "interrupted", "fault": "handoff"}, (1,), True, True, "settle"),
        ({"status": "interrupted", "fault": "claim-lost"}, (1,), True, None, "stop"),
        ({}, (1,), True, False, "stop"),
        ({}, (1,), True, None, "park"),
    ],
)
def test_what_follows_a_turn(
    turn: dict[str, Any], on: tuple[int, ...], *, final: bool, ours: bool | None, following: str
) -> None:
    answer = decide.after_turn(end(**turn), waits_on=on, final_started=final, claim_ours=ours)
    assert answer == following


def test_an_approval_that_is_waited_for_parks_a_turn_that_ended_in_order() -> None:
    def after(turn_end: model.TurnEnd, *, asks: bool) -> str:
        return decide.after_turn(turn_end, waits_on=(), final_started=False, claim_ours=True, asks_person=asks)

    assert after(end(status="completed"), asks=True) == "park"
    assert after(end(status="completed"), asks=False) == "settle"
    assert after(end(status="failed", fault="crashed"), asks=True) == "settle"


@pytest.mark.parametrize(
    ("view", "word"),
    [
        ({}, "nothing is pushed"),
        ({"head": OID}, "no draft"),
        ({"head": OID, "number": 1}, "final run was not started"),
        ({"head": OID, "number": 1, "finals": 1}, ""),
        ({"parked": leases.Parked(at=AT, on=(), why="smoke-run")}, ""),
        ({"beat_lost": leases.BeatLost(at=AT, why="handoff")}, ""),
        ({"outcome": leases.Outcome(at=AT, outcome="failed")}, ""),
    ],
)
def test_the_stop_rule(view: dict[str, Any], word: str) -> None:
    missing = decide_stop.missing(rules_ledger.View(**view))
    assert (word in missing) if word else (missing == "")


BOUNDS = model.Policy(entry_seconds=10, turn_seconds=100, silence_seconds=20, own_tool_seconds=30, linger_seconds=5)


def test_the_watchdogs_bounds() -> None:
    dog = watchdog.Watchdog(BOUNDS, 0)
    assert (dog.expired(9.9), dog.due(4)) == ("", 6)
    assert dog.expired(10) == "entry-timeout"
    dog.entered(5)
    assert (dog.expired(24.9), dog.expired(25)) == ("", "silent")
    assert dog.due(6) == 19
    dog.heard(20)
    dog.opened("a", 20, ours=True)
    assert (dog.expired(90), dog.open_tools, dog.due(21)) == ("", 1, 84)
    dog.opened("b", 22, ours=False)
    assert (dog.expired(51.9), dog.expired(52), dog.due(50)) == ("", "own-tool-timeout", 2)
    dog.closed("b", 53)
    dog.closed("a", 60)
    assert dog.expired(79.9) == ""
    dog.heard(104)
    assert dog.expired(105) == "turn-timeout"
    dog.result(101)
    dog.result(104)
    assert (dog.expired(105.9), dog.expired(106), dog.due(103)) == ("", "linger", 3)
    dog.resumed()
    assert dog.expired(106) == "turn-timeout"
