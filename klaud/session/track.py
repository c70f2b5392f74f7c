"""What the messages of one turn add up to: steps, tokens, open tool calls, the agent's session, its result.

Both drivers tell it every message. It decides only what a message itself says (a result that is an error or empty, too many
steps); bounds of time are the watchdog's, and the outcome is nobody's here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klaud.session import mcp, model

if TYPE_CHECKING:
    from klaud.session import watchdog

TOKENS = 1 << 40
"""A count of tokens above this is no count."""

INTERRUPTS: frozenset[str] = frozenset({"claim-lost", "handoff", "cancelled", "unheard", "budget"})
"""What ends a turn from outside as ``interrupted``; ``paused`` and ``job-limit`` end it as ``paused``."""


class Track:
    """One turn's account."""

    def __init__(self, policy: model.Policy, dog: watchdog.Watchdog) -> None:
        self._policy = policy
        self._dog = dog
        self.fault: model.Fault = ""
        self.entered = False
        self.results = 0
        self.good = False
        self.steps = 0
        self.tokens = [0, 0]
        self.agent_session = ""
        self.denied: dict[str, int] = {}

    def enter(self, now: float) -> None:
        """Note that the hand-shake is done."""
        self.entered = True
        self._dog.entered(now)

    def take(self, message: dict[str, Any], now: float) -> None:
        """Note one message of the agent."""
        match message.get("type"):
            case "assistant":
                self.steps += 1
                self._note(message, now)
                if self.steps > self._policy.steps:
                    self.fault = self.fault or "steps"
            case "user":
                self._note(message, now)
            case "system":
                session = message.get("session_id")
                if isinstance(session, str) and len(session) <= 64:
                    self.agent_session = session
            case "result":
                self._take_result(message, now)
            case _:
                pass

    def answered(self, answer: model.ToolAnswer) -> None:
        """Count a refusal by its code."""
        if answer.refused:
            self.denied[answer.refused] = self.denied.get(answer.refused, 0) + 1

    def _note(self, message: dict[str, Any], now: float) -> None:
        """Follow the agent's own tool calls, which have a bound of their own, and count the tokens it reports."""
        inner = message.get("message")
        if not isinstance(inner, dict):
            return
        usage = inner.get("usage")
        if isinstance(usage, dict):
            for index, name in enumerate(("input_tokens", "output_tokens")):
                count = usage.get(name)
                if isinstance(count, int) and 0 <= count < TOKENS:
                    self.tokens[index] += count
        content = inner.get("content")
        for block in content if isinstance(content, list) else ():
            if not isinstance(block, dict):
                continue
            if block.get("type") == "tool_use" and not str(block.get("name", "")).startswith(f"mcp__{mcp.SERVER}__"):
                self._dog.opened(f"own:{block.get('id')}", now, ours=False)
            elif block.get("type") == "tool_result":
                self._dog.closed(f"own:{block.get('tool_use_id')}", now)

    def _take_result(self, message: dict[str, Any], now: float) -> None:
        self.results += 1
        self._dog.result(now)
        if self.results > 1:
            return
        text = message.get("result")
        if message.get("is_error") or message.get("subtype") != "success":
            self.fault = self.fault or "agent-error"
        elif not isinstance(text, str) or not text.strip():
            self.fault = self.fault or "empty-result"
        else:
            self.good = True

    def status(self) -> model.TurnStatus:
        """Return how the turn ended, from its fault."""
        if self.fault in INTERRUPTS:
            return "interrupted"
        if self.fault in {"paused", "job-limit"}:
            return "paused"
        if self.fault in {"silent", "own-tool-timeout", "turn-timeout"}:
            return "stalled"
        return "failed" if self.fault else "completed"
