"""The control plane of a session: a small protocol, and git refs as the default for it.

Git: what the host shows of claim, draft and pause switch is what the session obeys. A beat lists one ref and asks for one
pull request; it writes nothing. The claim and the draft's number are read from the book at the moment of use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol

from klaud import errors, names
from klaud.github import model as hub
from klaud.session import rules_control

if TYPE_CHECKING:
    from collections.abc import Callable

    from klaud.github import gateway as ports
    from klaud.session import heartbeat
    from klaud.session import ledger as ledgers


class Plane(Protocol):
    """What a session tells and asks: ``GitControl`` or ``control_http.HttpControl``. Only ``beat`` ever raises."""

    def beat(self, *, running: bool) -> heartbeat.Why:
        """See ``heartbeat.Control``."""
        ...

    def turn(self, turn: rules_control.Turn) -> Literal["taken", "spilled"]:
        """Append one completed turn."""
        ...

    def hear(self, value: dict[str, Any]) -> None:
        """Take one record, to be sent later."""
        ...

    def drain(self, seconds: float) -> None:
        """Send what waits, within ``seconds``."""
        ...

    @property
    def trouble(self) -> rules_control.Trouble:
        """What did not arrive so far."""
        ...


class GitControl:
    """``Plane`` over refs and labels: the ledger has the turns and the effects, so that nothing else has to be sent."""

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

    def turn(self, turn: rules_control.Turn) -> Literal["taken", "spilled"]:
        """Do nothing: the ledger has it."""
        del turn
        return "taken"

    def hear(self, value: dict[str, Any]) -> None:
        """Do nothing: milestones are in the session's own file."""

    def drain(self, seconds: float) -> None:
        """Do nothing: nothing waits."""

    @property
    def trouble(self) -> rules_control.Trouble:
        """What did not arrive: nothing is sent."""
        return rules_control.Trouble()
