"""Which bound of a turn has run out: a small state machine that is told what happened and asked at any time.

Time is handed in (seconds of the monotonic clock), the bounds are read from the policy when they are asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from klaud.session import model

Expired: TypeAlias = Literal["", "entry-timeout", "turn-timeout", "silent", "own-tool-timeout", "linger"]


class Watchdog:
    """The clocks of one turn."""

    def __init__(self, policy: model.Policy, now: float) -> None:
        """``now`` is when the agent was started."""
        self._policy = policy
        self._started = now
        self._entered: float | None = None
        self._heard = now
        self._result: float | None = None
        self._tools: dict[str, tuple[float, bool]] = {}

    def entered(self, now: float) -> None:
        """Note that hand-shake and parity probe are done: the turn begins."""
        self._entered = now
        self._heard = now

    def heard(self, now: float) -> None:
        """Note a sign of life: any message."""
        self._heard = now

    def opened(self, call: str, now: float, *, ours: bool) -> None:
        """Note that a tool call began; ``ours`` has its own bounds."""
        self._tools.setdefault(call, (now, ours))
        self._heard = now

    def closed(self, call: str, now: float) -> None:
        """Note that a tool call ended."""
        self._tools.pop(call, None)
        self._heard = now

    def result(self, now: float) -> None:
        """Note the agent's result: from here it may only linger."""
        if self._result is None:
            self._result = now

    def resumed(self) -> None:
        """Forget the result: the agent was told to go on."""
        self._result = None

    @property
    def open_tools(self) -> int:
        """Tool calls, ours or the agent's own, that have not ended."""
        return len(self._tools)

    def expired(self, now: float) -> Expired:
        """Return which bound has run out, the outermost first; empty when none has."""
        policy = self._policy
        if self._entered is None:
            return "entry-timeout" if now - self._started >= policy.entry_seconds else ""
        if self._result is not None:
            return "linger" if now - self._result >= policy.linger_seconds else ""
        if now - self._entered >= policy.turn_seconds:
            return "turn-timeout"
        if any(not ours and now - since >= policy.own_tool_seconds for since, ours in self._tools.values()):
            return "own-tool-timeout"
        if not self._tools and now - self._heard >= policy.silence_seconds:
            return "silent"
        return ""

    def due(self, now: float) -> float:
        """Return the seconds until the next bound can run out (at least 0)."""
        policy = self._policy
        if self._entered is None:
            at = self._started + policy.entry_seconds
        elif self._result is not None:
            at = self._result + policy.linger_seconds
        else:
            times = [self._entered + policy.turn_seconds]
            times += [since + policy.own_tool_seconds for since, ours in self._tools.values() if not ours]
            if not self._tools:
                times.append(self._heard + policy.silence_seconds)
            at = min(times)
        return max(0.0, at - now)
