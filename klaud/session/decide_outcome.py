"""The outcome of a session from repository facts, and what is then to be done. Pure.

A person's word wins over everything; then the facts: an open draft of klaud's own head, exactly one final-run label, the
newest final run at that head that was not skipped, and evidence that covers the frozen baseline. What the agent or its
program said decides nothing: ``hint`` only names the reason where the facts say that nothing was achieved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, assert_never

import msgspec

from klaud import names
from klaud.github import model as hub
from klaud.leases import model as leases
from klaud.session import rules_coverage as proofs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from klaud.session import model, rules_ledger


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What was read. ``pull``: the draft, None where there is none; ``finals``: final runs at its exact head.

    ``touched``: in words, how a person made the draft theirs; empty: nobody did. ``evidence``: None where it was not
    asked for. ``branch``: the branch's head now, None where there is none. ``smoke``: the newest smoke run.
    """

    pull: hub.Pull | None
    finals: tuple[hub.Run, ...] = ()
    finals_complete: bool = True
    touched: str = ""
    evidence: proofs.Evidence | None = None
    branch: str | None = None
    smoke: hub.Run | None = None


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome, and the clean-up that follows from it in order."""

    outcome: leases.OutcomeClass
    code: str
    phase: leases.Phase
    final_run: int | None
    pending: tuple[leases.Effect, ...]


class NotYet(msgspec.Struct, frozen=True):
    """Nothing is decided yet: ``running``, ``unreadable``, ``incomplete`` or ``parked``. ``runs``: what it waits for."""

    code: str
    why: str
    runs: tuple[int, ...] = ()


Answer: TypeAlias = Judged | NotYet

LEAVE: tuple[leases.Effect, ...] = ("cancel-run", "release-claim")
READY: tuple[leases.Effect, ...] = ("publish-report", "mark-ready", "release-claim")
ABANDON: tuple[leases.Effect, ...] = (
    "comment", "cancel-run", "remove-label", "close-draft", "archive-branch", "delete-branch", "release-claim",
)  # fmt: skip
NO_DRAFT: tuple[leases.Effect, ...] = ("cancel-run", "archive-branch", "delete-branch", "release-claim")


def newest_final(runs: Sequence[hub.Run]) -> hub.Run | None:
    """Return the newest final run that was not skipped."""
    real = [run for run in runs if not (run.status == "completed" and run.conclusion == "skipped")]
    return max(real, key=lambda run: (run.created_at, run.id), default=None)


def judge(  # noqa: PLR0911 - one return for each case is the table itself
    facts: Facts,
    view: rules_ledger.View,
    workflows: model.Workflows,
    hint: tuple[leases.OutcomeClass, str] | None = None,
) -> Answer:
    """Return the outcome, or why there is none yet."""
    pull = facts.pull
    final = newest_final(facts.finals)
    number = None if final is None else final.id
    if pull is not None:
        person = _person(pull, facts, view)
        if person is not None:
            return Judged(outcome="handoff", code=person, phase="cleanup", final_run=number, pending=LEAVE)
    if pull is None:
        outcome, code = _reason(facts.smoke, hint) or ("failed", "no-draft")
        pending = NO_DRAFT if facts.branch is None or facts.branch in view.oids else LEAVE
        return Judged(outcome=outcome, code=code, phase=_phase(view), final_run=None, pending=pending)
    if not facts.finals_complete and final is None:
        return NotYet("incomplete", "the final runs of the head are not all listed")
    if final is not None and final.status != "completed":
        return NotYet("running", f"final run {final.id} is {final.status}", (final.id,))
    if final is None:
        if view.finals and hint is None:
            hint = ("failed", "final-run-never-ran")
        outcome, code = _reason(facts.smoke, hint) or ("failed", "no-final-run")
        return Judged(outcome=outcome, code=code, phase=_phase(view), final_run=None, pending=ABANDON)
    if final.conclusion != "success":
        return _abandoned("failed", _conclusion(final.conclusion), number)
    labels = [label for label in pull.labels if label in {workflows.final_label, *workflows.other_final_labels}]
    if labels != [workflows.final_label]:
        return _abandoned("failed", "final-labels", number)
    match facts.evidence:
        case proofs.Verified():
            return Judged(outcome="validated", code="", phase="final-run", final_run=number, pending=READY)
        case proofs.Unreadable(code, why):
            return NotYet("unreadable", f"{code}: {why}", (final.id,))
        case proofs.Wrong(code):
            return _abandoned("failed", code, number)
        case None:
            return NotYet("unreadable", "the evidence was not read", (final.id,))
        case _:
            assert_never(facts.evidence)


def waits(
    judged: Judged, facts: Facts, parked: leases.ParkedHolder, view: rules_ledger.View, budgets: model.Budgets
) -> NotYet | None:
    """Return that a parked session is not over although nothing was achieved so far: a continuation may still achieve it.

    Success, a person's word, and results that do not do end it. A failure does not: what it waits for (a smoke run, a
    person's approval, another job) may come, and a final run that failed may be repaired while the budget has another one.
    Whether it is continued, and when waiting was long enough, is the sweep's to decide.
    """
    final = newest_final(facts.finals)
    if judged.outcome in {"validated", "handoff"} or (final is not None and final.conclusion == "success"):
        return None
    if parked.why == "final-run" and view.spent.final_runs >= budgets.final_runs:
        return None
    on = ", ".join(str(run) for run in parked.on) or "a person or a later job"
    return NotYet("parked", f"parked on {on}: the next sweep lets it go on, or settles it", parked.on)


def _reason(
    smoke: hub.Run | None, hint: tuple[leases.OutcomeClass, str] | None
) -> tuple[leases.OutcomeClass, str] | None:
    """Return why nothing was achieved: a smoke run that did not pass is a fact and goes before the agent's own word."""
    said = hint is None or hint[1].startswith("said-") or hint[1] == "no-final-run"
    if smoke is not None and smoke.status == "completed" and smoke.conclusion != "success" and said:
        return "failed", _conclusion(smoke.conclusion).replace("final-run", "smoke-run")
    return hint


def _person(pull: hub.Pull, facts: Facts, view: rules_ledger.View) -> str | None:
    """Return how the draft is a person's now, or None."""
    if names.HANDOFF_LABEL in pull.labels:
        return "handoff-label"
    if pull.merged:
        return "merged"
    if not pull.open:
        return "closed"
    if facts.touched:
        return "touched"
    if pull.head_oid not in view.oids:
        return "foreign-head"
    return None


def _abandoned(outcome: leases.OutcomeClass, code: str, final: int | None) -> Judged:
    return Judged(outcome=outcome, code=code, phase="final-run", final_run=final, pending=ABANDON)


def _conclusion(word: str | None) -> str:
    if word in {"cancelled", "timed_out", "startup_failure", "stale"}:
        return f"infrastructure-{word.replace('_', '-')}"
    if word == "failure":
        return "final-run-failed"
    return "final-run-not-a-success"


def _phase(view: rules_ledger.View) -> leases.Phase:
    if view.finals:
        return "final-run"
    if view.smoke_runs:
        return "targeted"
    if view.turns or view.head:
        return "resolve"
    return "unknown"
