"""One turn of an agent program over its line protocol: start, hand-shake, prompt, tool calls, result, end.

This is the driver of ``scripted`` and the reference for what a turn is; ``sdk`` drives the same through the vendor's SDK.
One thread reads and decides; tool calls run one at a time in a worker, so that a long wait for a run neither stops the
reading nor the bounds. Nothing the agent says decides anything but when the turn is over.

The turn ends by the agent's result, by a bound of the watchdog, or by ``watch``, which is asked at every look and names an
interruption. Then the whole process tree is ended, always.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import itertools
import time
from typing import TYPE_CHECKING, Any, Protocol

from klaud.session import journal, mcp, model, process, track, watchdog, wire

if TYPE_CHECKING:
    from collections.abc import Callable

    from klaud.session import sandbox as sandboxes

LOOK_SECONDS = 0.05
"""Between two looks while a tool call is open: its end must be noticed soon."""
IDLE_SECONDS = 1.0
"""Between two looks otherwise: an interruption may take that long to be noticed."""
STOPS_BLOCKED = 20
"""How often a stop may be refused in one turn: an agent that cannot satisfy the rule must not loop for ever."""
TOOLS_OPEN = 64
"""Tool calls that may wait at once; klaud carries out one at a time."""


class Tools(Protocol):
    """What carries out the agent's requests (``tools.Desk``)."""

    def call(self, name: str, arguments: dict[str, Any]) -> model.ToolAnswer:
        """Carry out one request; never raises for what the agent did."""
        ...

    def must_go_on(self) -> str:
        """Return what is missing before the agent may stop; empty when it may."""
        ...

    def stop(self) -> None:
        """Let a call that only waits end soon: the turn is over."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class Turn:
    """What one turn needs. ``watch`` returns why the turn must end now, or an empty text."""

    start: process.Start
    sandbox: sandboxes.Sandbox
    prompt: str
    tools: Tools
    policy: model.Policy
    watch: Callable[[], model.Fault]
    log: Callable[[str], None]
    listed: Callable[[], list[dict[str, Any]]] = mcp.listed
    journal: journal.Journal = journal.SILENT


def run(turn: Turn) -> model.TurnEnd:
    """Run the turn. Never raises for anything the agent or its program does; the tree is ended when this returns."""
    began = time.monotonic()
    try:
        child = process.Child(
            turn.start, turn.sandbox, stderr_bytes=turn.policy.stderr_bytes, start_seconds=turn.policy.entry_seconds
        )
    except process.NotStartedError as error:
        turn.log(f"the agent did not start: {error}")
        fault: model.Fault = "missing-program" if error.missing else "start"
        return model.TurnEnd(
            status="failed", fault=fault, seconds=time.monotonic() - began, isolation=turn.sandbox.words
        )
    loop = _Loop(turn, child, began)
    try:
        loop.run()
    finally:
        end = loop.close()
    return end


class _Loop:
    def __init__(self, turn: Turn, child: process.Child, began: float) -> None:
        self.turn = turn
        self.child = child
        self.began = began
        self.wire = wire.Wire(child, line_bytes=turn.policy.line_bytes, output_bytes=turn.policy.output_bytes)
        self.dog = watchdog.Watchdog(turn.policy, began)
        self.worker = concurrent.futures.ThreadPoolExecutor(max_workers=1, thread_name_prefix="klaud-tool")
        self.open: dict[concurrent.futures.Future[model.ToolAnswer], tuple[str, mcp.Call]] = {}
        self.numbers = itertools.count(1)
        self.initialize = ""
        self.track = track.Track(turn.policy, self.dog)
        self.blocked = 0

    def run(self) -> None:
        self.initialize = f"req_{next(self.numbers)}"
        hooks = {"Stop": [{"matcher": None, "hookCallbackIds": ["hook_0"]}]}
        self._control(self.initialize, {"subtype": "initialize", "hooks": hooks})
        while not self.track.fault:
            self._finish_calls()
            now = time.monotonic()
            wait = LOOK_SECONDS if self.open else min(IDLE_SECONDS, self.dog.due(now) + 0.001)
            try:
                message = self.wire.receive(wait)
            except wire.OutputLimitError:
                self.track.fault = "output-limit"
                return
            now = time.monotonic()
            if message == "end":
                if not self.track.entered:
                    self.track.fault = "handshake"
                elif not self.track.results:
                    self.track.fault = "no-result"
                return
            if message != "nothing":
                self.dog.heard(now)
                self._take(message, now)
            if self.track.results and not self.open:
                self.child.close_input()  # the result stands: let the program end, it may linger a while
            expired = self.dog.expired(now)
            if expired == "linger":
                return
            self.track.fault = self.track.fault or self.turn.watch() or expired

    def close(self) -> model.TurnEnd:
        """End the tree and word how the turn went."""
        policy = self.turn.policy
        if self.track.status() in {"interrupted", "paused"}:
            self._control(f"req_{next(self.numbers)}", {"subtype": "interrupt"})
        self.turn.tools.stop()
        for future in self.open:
            future.cancel()
        ended = self.child.end(step_seconds=policy.teardown_step_seconds, total_seconds=policy.teardown_seconds)
        self.turn.journal.mark("agent", f"ended {ended.how}")
        self.turn.journal.stderr(ended.stderr, policy.stderr_bytes)
        # an open tool call is klaud's own code: it ends by its own bounds, and its effects are in the ledger
        self.worker.shutdown(wait=True, cancel_futures=True)
        if not self.track.fault and not self.track.good:
            self.track.fault = "crashed" if ended.status not in {0, None} else "no-result"
        return model.TurnEnd(
            status=self.track.status(),
            fault=self.track.fault,
            entered=self.track.entered,
            results=self.track.results,
            exit_status=ended.status,
            agent_session=self.track.agent_session,
            usage=model.Usage(
                steps=self.track.steps, input_tokens=self.track.tokens[0], output_tokens=self.track.tokens[1]
            ),
            skipped_lines=self.wire.skipped,
            left=ended.left,
            seconds=time.monotonic() - self.began,
            isolation=self.turn.sandbox.words,
            denied=self.track.denied,
        )

    # -- messages

    def _control(self, number: str, request: dict[str, Any]) -> None:
        self.wire.send({"type": "control_request", "request_id": number, "request": request})

    def _take(self, message: dict[str, Any], now: float) -> None:
        match message.get("type"):
            case "control_response":
                self._take_response(message.get("response"), now)
            case "control_request":
                self._take_request(message, now)
            case _:
                self.track.take(message, now)

    def _take_response(self, response: object, now: float) -> None:
        if not isinstance(response, dict) or response.get("request_id") != self.initialize or self.track.entered:
            return
        if response.get("subtype") != "success":
            self.track.fault = "handshake"
            return
        self.track.enter(now)
        self.turn.log("the agent is in")
        self.turn.journal.mark("agent", "entered")
        user = {"role": "user", "content": self.turn.prompt}
        self.wire.send({"type": "user", "message": user, "parent_tool_use_id": None, "session_id": "default"})

    def _take_request(self, message: dict[str, Any], now: float) -> None:
        number, request = message.get("request_id"), message.get("request")
        if not isinstance(number, str) or not isinstance(request, dict):
            return
        match request.get("subtype"):
            case "mcp_message" if request.get("server_name") == mcp.SERVER and isinstance(request.get("message"), dict):
                asked = mcp.answer(request["message"], self.turn.listed)
                if not isinstance(asked, mcp.Call):
                    self._respond(number, {"mcp_response": asked})
                elif len(self.open) >= TOOLS_OPEN:
                    self._respond(number, None, "too many tool calls at once")
                else:
                    self.dog.opened(f"ours:{number}", now, ours=True)
                    future = self.worker.submit(self.turn.tools.call, asked.name, asked.arguments)
                    self.open[future] = (number, asked)
            case "hook_callback":
                missing = self.turn.tools.must_go_on() if self.blocked < STOPS_BLOCKED else ""
                if missing:
                    self.blocked += 1
                    self._respond(number, {"decision": "block", "reason": missing})
                else:
                    self._respond(number, {})
            case _:
                self._respond(number, None, "not supported")

    def _respond(self, number: str, response: dict[str, Any] | None, error: str = "") -> None:
        if response is None:
            body: dict[str, Any] = {"subtype": "error", "request_id": number, "error": error}
        else:
            body = {"subtype": "success", "request_id": number, "response": response}
        self.wire.send({"type": "control_response", "response": body})

    def _finish_calls(self) -> None:
        for future in [future for future in self.open if future.done()]:
            number, call = self.open.pop(future)
            self.dog.closed(f"ours:{number}", time.monotonic())
            answer = future.result()
            self.track.answered(answer)
            self._respond(number, {"mcp_response": mcp.answered(call, answer)})
