"""May this tool call proceed, and how does a turn that ended go on? Pure.

The guards are asked in one order, the strongest first: is the claim still ours, has a person taken the draft over, is
klaud paused, is budget left, is there room. What could not be read refuses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias, assert_never

from klaud.session import model

if TYPE_CHECKING:
    from klaud.leases import model as leases

SPENDS: frozenset[model.ToolName] = frozenset({"dispatch_smoke", "start_final_run"})
"""Tools that occupy a target: they ask for room."""

WRITES: frozenset[model.ToolName] = frozenset({"open_draft", "push_work", "dispatch_smoke", "start_final_run"})
"""Tools with an outward effect; the others only read, and stay allowed while klaud is paused."""


def may_proceed(
    tool: model.ToolName,
    guards: model.Guards,
    budgets: model.Budgets,
    *,
    retry: Literal["none", "repair", "infrastructure"] = "none",
) -> model.Allowed | model.Refusal:
    """Return whether the call may go on, or the first guard that stands against it."""
    if guards.claim_ours is False:
        return _no("claim-lost", "another run has this candidate now. Stop: nothing more will be written.", ends=True)
    if guards.claim_ours is None:
        return _no("claim-unreadable", "the claim could not be read. Try again in a minute.")
    if guards.handoff:
        return _no(
            "handoff", "a maintainer has taken this draft over. Stop: klaud writes nothing more here.", ends=True
        )
    if guards.handoff is None:
        return _no("claim-unreadable", "the draft's labels could not be read. Try again in a minute.")
    if tool not in WRITES:
        return model.ALLOWED
    if guards.paused:
        return _no("paused", "klaud is paused: nothing is started or pushed now. End your turn.", ends=True)
    spent = _over_budget(tool, guards.spent, budgets, retry)
    if spent:
        return _no("budget", spent)
    if tool in SPENDS and guards.capacity == "full":
        return _no("no-capacity", "the target has no room now. Wait, or finish.")
    if tool in SPENDS and guards.capacity == "unknown":
        return _no("capacity-unknown", "whether the target has room could not be found out. Try again in a minute.")
    return model.ALLOWED


def _over_budget(tool: model.ToolName, spent: model.Spent, budgets: model.Budgets, retry: str) -> str:
    pairs = {
        "open_draft": ("drafts", spent.drafts, budgets.drafts),
        "push_work": ("pushes", spent.pushes, budgets.pushes),
        "dispatch_smoke": ("smoke runs", spent.smoke_runs, budgets.smoke_runs),
        "start_final_run": ("final runs", spent.final_runs, budgets.final_runs),
    }
    what, used, allowed = pairs[tool]
    if used >= allowed:
        return f"all {allowed} {what} of this session are used. Finish with what there is."
    if retry == "repair" and spent.repairs >= budgets.repairs:
        return f"all {budgets.repairs} repairs of this session are used. Finish with what there is."
    if retry == "infrastructure" and spent.infrastructure_retries >= budgets.infrastructure_retries:
        return f"all {budgets.infrastructure_retries} retries for infrastructure are used. Finish with what there is."
    return ""


def _no(code: model.RefusalCode, text: str, *, ends: bool = False) -> model.Refusal:
    return model.Refusal(code=code, text=text, ends=ends)


# -- outcomes and their consequences


def blame_of(outcome: leases.OutcomeClass, code: str = "") -> model.Blame:
    """Return who is to blame for an outcome: that decides the cool-down."""
    if code in {"workflow-rights", "not-permitted", "account", "authentication"}:
        return "permission"
    match outcome:
        case "validated" | "handoff" | "duplicate" | "retired" | "already-updated":
            return "none"
        case "capacity-deferred":
            return "capacity"
        case "readiness-blocked":
            return "baseline"
        case "incompatible" | "failed" | "uncertain":
            return "infrastructure" if code.startswith("infrastructure") else "candidate"
        case "stalled" | "agent-never-ran" | "unexpected-error":
            return "infrastructure"
        case _:
            assert_never(outcome)


def outcome_of_turn(end: model.TurnEnd) -> tuple[leases.OutcomeClass, str]:
    """Return the outcome class and its code for a session whose last turn ended so and left nothing to wait for."""
    if end.code and end.fault in {"", "agent-error"}:
        return "failed", end.code
    match end.fault:
        case "missing-program" | "bad-version" | "start" | "isolation" | "authentication" | "hermetic":
            return "agent-never-ran", end.fault
        case "handshake" | "entry-timeout":
            return "agent-never-ran", end.fault
        case "silent" | "own-tool-timeout" | "turn-timeout":
            return "stalled", end.fault
        case "handoff":
            return "handoff", ""
        case "no-result" | "empty-result" | "agent-error" | "crashed" | "steps" | "output-limit" | "budget":
            return "failed", end.fault
        case "claim-lost" | "paused" | "cancelled" | "unheard" | "job-limit":
            return "failed", end.fault
        case "":
            return "failed", "no-final-run"
        case _:
            assert_never(end.fault)


NextStep: TypeAlias = Literal["park", "settle", "stop"]


def after_turn(
    end: model.TurnEnd,
    *,
    waits_on: tuple[int, ...],
    final_started: bool,
    claim_ours: bool | None,
    asks_person: bool = False,
) -> NextStep:
    """Return what follows a turn: ``park`` on runs, ``settle`` at once, or ``stop`` without any write.

    A final run that was started is waited for whatever the agent did afterwards; a smoke run is waited for only when the
    turn ended in order, or because the job nears its limit or klaud is paused. ``asks_person``: likewise for an approval.
    """
    if claim_ours is False or end.fault == "claim-lost":
        return "stop"
    if end.fault == "handoff":
        return "settle"
    if final_started:
        return "park"
    in_order = end.status in {"completed", "paused"}
    if in_order and (waits_on or asks_person or end.fault in {"paused", "job-limit"}):
        return "park"
    return "settle"
