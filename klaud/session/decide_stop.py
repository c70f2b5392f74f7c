"""May an agent stop? The one rule behind the Stop hook, ``klaud check-stop`` and the tools. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from klaud.session import rules_ledger


def missing(view: rules_ledger.View) -> str:
    """Return what is missing before the agent may stop; empty when the session is parked, handed off or settled."""
    if view.outcome is not None or view.parked is not None or view.beat_lost is not None:
        return ""
    if not view.head:
        return "nothing is pushed yet. Push your work, or call finish and say why there is nothing to do."
    if view.number is None:
        return "there is no draft yet. Call open_draft, or call finish and say why."
    if view.finals == 0:
        return "the final run was not started. Call start_final_run, or call finish and say why not."
    return ""
