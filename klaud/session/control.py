"""The git control plane: what the host shows of claim, draft and pause switch is what the session obeys.

A beat lists one ref and asks for one pull request; it writes nothing. The claim and the draft's number are read from the
book at the moment of use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klaud import errors, names
from klaud.github import model as hub

if TYPE_CHECKING:
    from collections.abc import Callable

    from klaud.github import gateway as ports
    from klaud.session import heartbeat
    from klaud.session import ledger as ledgers


class GitControl:
    """``heartbeat.Control`` over refs and labels."""

    def __init__(self, gateway: ports.Gateway, book: ledgers.Book, paused: Callable[[], bool]) -> None:
        self._gateway = gateway
        self._book = book
        self._paused = paused

    def beat(self, *, running: bool) -> heartbeat.Why:
        """Read the control state."""
        if not running:
            return ""
        ours = self._book.claim_ours()
        if ours is False:
            return "claim-lost"
        if ours is None:
            message = "the claim could not be read"
            raise errors.ReadFailedError(message)
        number = self._book.view.number
        if number is not None:
            pull = self._gateway.pull(number)
            if isinstance(pull, hub.Pull) and names.HANDOFF_LABEL in pull.labels:
                return "handoff"
        return "paused" if self._paused() else ""
