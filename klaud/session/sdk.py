"""One turn of ``claude_sdk``: the vendor's SDK over klaud's own transport, its bundled program in klaud's sandbox.

The program is started by ``process`` (empty environment, own user and namespaces, tree ended whatever happens); the SDK gets
a transport that reads and writes it, so that a line of 20 MB costs that record and not the session. The SDK runs in an
asyncio loop in a thread of its own; this module waits for it without ever cancelling and awaiting: at a bound the program is
killed, the loop ends because its transport has ended, and if it does not, it is left behind.

Hermetic: private HOME and configuration folder inside the session's own folder, no settings of anybody, no MCP server but
klaud's; the parity probe after entry names any other. Authentication is explicit: exactly one of the two variables, held by
the proxy; the program itself gets a dummy key.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import json
import queue
import re
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import claude_agent_sdk as sdk

from klaud.session import drive, frameworks, mcp, model, process, proxy, track, watchdog, wire

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

API_KEY, SUBSCRIPTION = frameworks.CREDENTIALS
BASE_URL = "ANTHROPIC_BASE_URL"
DEFAULT_URL = "https://api.anthropic.com"

OLDEST = (2, 1, 0)
"""The oldest program version whose protocol this driver was tested with."""
VERSION_SECONDS = 20.0
"""For ``--version``: the program needs 0.02 s, a cold disk some seconds."""
PROBE_SECONDS = 0.2
"""Between two looks at the MCP servers after entry: they are pending for a moment."""
RECEIVE_SECONDS = 0.25
"""How long one look of the transport blocks a worker thread."""

Event: TypeAlias = "tuple[Literal['entered', 'message', 'ended', 'foreign', 'opened', 'closed'], Any]"


def bundled() -> Path:
    """Return the command line program that the SDK's wheel ships."""
    return Path(sdk.__file__).parent / "_bundled" / "claude"


def credentials(ask: frameworks.Ask) -> proxy.Upstream | None:
    """Return how to log in at the model's host; None where neither variable is set."""
    url = ask.environ.get(BASE_URL) or DEFAULT_URL
    key, token = ask.environ.get(API_KEY, ""), ask.environ.get(SUBSCRIPTION, "")
    if key:
        return proxy.Upstream(url, key, "api-key")
    if token:
        return proxy.Upstream(url, token, "bearer")
    return None


def run(ask: frameworks.Ask) -> model.TurnEnd:
    """Run the turn. Never raises for anything the agent, the SDK or the model's host does."""
    began = time.monotonic()
    upstream = credentials(ask)
    if upstream is None:
        ask.log(f"authentication: neither {API_KEY} nor {SUBSCRIPTION} is set")
        return _never("authentication", ask, began)
    program = Path(ask.environ.get("KLAUD_AGENT_PROGRAM") or bundled())
    fault = _check_version(ask, program)
    if fault:
        return _never(fault, ask, began)
    meter = proxy.Meter(
        ask.policy.budgets, ask.policy.prices, tokens=ask.spent_tokens, microdollars=ask.spent_microdollars
    )
    with proxy.Proxy(upstream, meter, egress=ask.policy.egress) as server:
        inside = "network" in ask.sandbox.parts
        port = "{port0}" if inside else str(server.listen())
        start = _start(ask, program, server.key, upstream.kind, port)
        try:
            child = process.Child(
                start, ask.sandbox, stderr_bytes=ask.policy.stderr_bytes, start_seconds=ask.policy.entry_seconds
            )
        except process.NotStartedError as error:
            ask.log(f"the agent did not start: {error}")
            return _never("missing-program" if error.missing else "start", ask, began)
        for listener in child.listeners:
            server.serve(listener)
        turn = _Turn(ask, child, server, began)
        try:
            turn.run()
        finally:
            end = turn.close()
        return end


def _never(fault: model.Fault, ask: frameworks.Ask, began: float) -> model.TurnEnd:
    return model.TurnEnd(status="failed", fault=fault, seconds=time.monotonic() - began, isolation=ask.sandbox.words)


def _check_version(ask: frameworks.Ask, program: Path) -> model.Fault:
    """Compare what the program prints for ``--version`` on stdout (never stderr); one retry (oddity L88)."""
    if not program.exists():
        return "missing-program"
    text = ""
    for _ in range(2):
        start = process.Start((str(program), "--version"), _environment(ask, "", ""), "/", read=(str(program.parent),))
        with contextlib.suppress(process.NotStartedError), process.Child(start, ask.sandbox) as child:
            child.close_input()
            deadline = time.monotonic() + VERSION_SECONDS
            while isinstance(chunk := child.read(max(0.0, deadline - time.monotonic())), bytes) and len(text) < 1000:
                text += chunk.decode("utf-8", "replace")
        match = re.match(r"\s*(\d{1,6})\.(\d{1,6})\.(\d{1,6})\b", text)
        if match:
            return "" if tuple(map(int, match.groups())) >= OLDEST else "bad-version"
        text = ""
    return "bad-version"


def _environment(ask: frameworks.Ask, url: str, key: str, kind: str = "api-key") -> dict[str, str]:
    """Return the whole environment of the program: an allow-list written out, nothing inherited."""
    home = str(ask.work.home)
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": home,
        "TERM": "dumb",
        "LANG": "C.UTF-8",
        "NO_COLOR": "1",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_PAGER": "cat",
        BASE_URL: url,
        API_KEY: key if kind == "api-key" else "",
        SUBSCRIPTION: key if kind == "bearer" else "",
        "CLAUDE_CONFIG_DIR": f"{home}/.claude",
        "CLAUDE_CODE_ENTRYPOINT": "sdk-py",
        "CLAUDE_CODE_SDK_READS_SESSION_STATE": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_MAX_RETRIES": "3",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "ENABLE_TOOL_SEARCH": "false",
        "IS_SANDBOX": "1",
        **({"HTTPS_PROXY": url, "NO_PROXY": "127.0.0.1"} if ask.policy.egress and url else {}),
    }


def _start(ask: frameworks.Ask, program: Path, key: str, kind: str, port: str) -> process.Start:
    policy = ask.policy
    servers = json.dumps({"mcpServers": {mcp.SERVER: {"type": "sdk", "name": mcp.SERVER}}})
    allowed = ",".join([*ask.own_tools, *(f"mcp__{mcp.SERVER}__{entry['name']}" for entry in ask.listed())])
    argv = [
        str(program), "--output-format", "stream-json", "--input-format", "stream-json", "--verbose",
        "--permission-mode", "acceptEdits", "--tools", ",".join(ask.own_tools), "--allowedTools", allowed,
        "--mcp-config", servers, "--strict-mcp-config", "--setting-sources=", "--max-turns", str(policy.steps),
    ]  # fmt: skip
    if policy.model:
        argv += ["--model", policy.model]
    if ask.resume:
        argv.append(f"--resume={ask.resume}")
    return process.Start(
        argv=tuple(argv),
        env=_environment(ask, f"http://127.0.0.1:{port}", key, kind),
        cwd=str(ask.work.tree),
        read=(str(program.parent),),
        write=(str(ask.work.agent_root),),
        home=str(ask.work.home),
        listen=1,
    )


class _Transport(sdk.Transport):
    """The SDK's messages over klaud's child."""

    def __init__(self, lines: wire.Wire, child: process.Child, events: queue.SimpleQueue[Event]) -> None:
        self._wire = lines
        self._child = child
        self._events = events
        self._closed = False
        self._pool = concurrent.futures.ThreadPoolExecutor(max_workers=1, thread_name_prefix="klaud-wire")

    async def connect(self) -> None:
        """Do nothing: the program runs already."""

    async def write(self, data: str) -> None:
        """Queue what the SDK says."""
        if self._closed or not self._child.write(data.encode()):
            message = "the agent takes no more input"
            raise sdk.CLIConnectionError(message)

    async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        """Yield the program's messages; each is also told to the driver."""
        loop = asyncio.get_running_loop()
        while not self._closed:
            message = await loop.run_in_executor(self._pool, self._wire.receive, RECEIVE_SECONDS)
            if message == "end":
                return
            if message != "nothing":
                self._events.put(("message", message))
                yield message

    async def close(self) -> None:
        """Let the program end; that it does is the driver's business."""
        self._closed = True
        self._child.close_input()
        self._pool.shutdown(wait=False)

    def is_ready(self) -> bool:
        """Tell whether the program can be written to."""
        return not self._closed

    async def end_input(self) -> None:
        """Close the program's stdin."""
        self._child.close_input()


class _Turn:
    def __init__(self, ask: frameworks.Ask, child: process.Child, server: proxy.Proxy, began: float) -> None:
        self.ask = ask
        self.child = child
        self.server = server
        self.began = began
        self.wire = wire.Wire(child, line_bytes=ask.policy.line_bytes, output_bytes=ask.policy.output_bytes)
        self.dog = watchdog.Watchdog(ask.policy, began)
        self.track = track.Track(ask.policy, self.dog)
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.worker = concurrent.futures.ThreadPoolExecutor(max_workers=1, thread_name_prefix="klaud-tool")
        self.thread = threading.Thread(target=self._loop, name="klaud-sdk", daemon=True)
        self.blocked = 0
        self.over = threading.Event()

    # -- the SDK's side, in its own thread

    def _loop(self) -> None:
        try:
            asyncio.run(self._talk())
        except Exception as error:  # noqa: BLE001 - whatever the SDK raises is told, never shown
            self.events.put(("ended", type(error).__name__))
        else:
            self.events.put(("ended", ""))

    async def _talk(self) -> None:
        client = sdk.ClaudeSDKClient(self._options(), transport=_Transport(self.wire, self.child, self.events))
        try:
            await client.connect()
            foreign = await self._foreign(client)
            if foreign:
                self.events.put(("foreign", foreign))
                return
            self.events.put(("entered", None))
            await client.query(self.ask.prompt)
            async for message in client.receive_messages():
                if isinstance(message, sdk.ResultMessage):
                    break
        finally:
            await client.disconnect()

    def _options(self) -> sdk.ClaudeAgentOptions:
        async def may_stop(_input: Any, _use: str | None, _context: Any) -> dict[str, Any]:
            missing = self.ask.tools.must_go_on() if self.blocked < drive.STOPS_BLOCKED else ""
            if not missing:
                return {}
            self.blocked += 1
            return {"decision": "block", "reason": missing}

        server = sdk.create_sdk_mcp_server(mcp.SERVER, tools=[self._tool(entry) for entry in self.ask.listed()])
        return sdk.ClaudeAgentOptions(
            mcp_servers={mcp.SERVER: server},
            hooks={"Stop": [sdk.HookMatcher(hooks=[may_stop])]},  # type: ignore[list-item]
            setting_sources=[],
        )

    def _tool(self, entry: dict[str, Any]) -> sdk.SdkMcpTool[Any]:
        name = entry["name"]

        async def call(arguments: dict[str, Any]) -> dict[str, Any]:
            number = f"ours:{name}:{time.monotonic_ns()}"
            self.events.put(("opened", number))
            try:
                loop = asyncio.get_running_loop()
                answer = await loop.run_in_executor(self.worker, self.ask.tools.call, name, arguments)
            finally:
                self.events.put(("closed", number))
            self.track.answered(answer)
            return {"content": [{"type": "text", "text": answer.text}], "is_error": bool(answer.refused)}

        return sdk.SdkMcpTool(name, entry["description"], entry["inputSchema"], call)

    async def _foreign(self, client: sdk.ClaudeSDKClient) -> str:
        """Wait until klaud's server is connected; return names and states of any other server."""
        while not self.over.is_set():
            status = await client.get_mcp_status()
            servers = status.get("mcpServers", [])
            others = [f"{one.get('name')} ({one.get('status')})" for one in servers if one.get("name") != mcp.SERVER]
            if others:
                return ", ".join(others)[:300]
            if any(one.get("status") == "connected" for one in servers):
                return ""
            await asyncio.sleep(PROBE_SECONDS)
        return ""

    # -- the driver's side

    def run(self) -> None:
        """Wait for what happens, and for the bounds."""
        self.thread.start()
        while not self.track.fault:
            now = time.monotonic()
            wait = min(drive.IDLE_SECONDS, self.dog.due(now) + 0.001)
            try:
                kind, value = self.events.get(timeout=wait)
            except queue.Empty:
                kind, value = "message", None
            now = time.monotonic()
            if kind == "ended":
                self._take_end(value)
                return
            self._take(kind, value, now)
            expired = self.dog.expired(now)
            if expired == "linger":
                return
            budget: model.Fault = "budget" if self.server.exhausted else ""
            self.track.fault = self.track.fault or self.ask.watch() or budget or expired

    def _take(self, kind: str, value: Any, now: float) -> None:
        match kind:
            case "message" if value is not None:
                self.dog.heard(now)
                self.track.take(value, now)
            case "entered":
                self.ask.log("the agent is in")
                self.ask.journal.mark("agent", "entered")
                self.track.enter(now)
            case "foreign":
                self.ask.log(f"hermetic: other MCP servers were loaded: {value}")
                self.track.fault = "hermetic"
            case "opened":
                self.dog.opened(value, now, ours=True)
            case "closed":
                self.dog.closed(value, now)
            case _:
                pass

    def _take_end(self, error: str) -> None:
        if self.track.results:
            return
        if error:
            self.ask.log(f"the SDK ended with {error}")
        self.track.fault = "no-result" if self.track.entered else "handshake"

    def close(self) -> model.TurnEnd:
        """End the tree, then the SDK's thread; neither can hold this up."""
        policy = self.ask.policy
        self.over.set()
        self.ask.tools.stop()
        grace = policy.linger_seconds if self.track.good and not self.track.fault else 0.0
        ended = self.child.end(
            step_seconds=policy.teardown_step_seconds,
            total_seconds=policy.teardown_seconds + grace,
            grace_seconds=grace,
        )
        self.ask.journal.mark("agent", f"ended {ended.how}")
        self.ask.journal.stderr(ended.stderr, policy.stderr_bytes)
        self.thread.join(policy.teardown_step_seconds)
        if self.thread.is_alive():
            self.ask.log("the SDK's loop did not end; it is left behind")
        self.worker.shutdown(wait=True, cancel_futures=True)
        while not self.events.empty():  # what came late is counted, never used
            kind, value = self.events.get()
            if kind == "message" and value is not None and value.get("type") == "result" and not self.track.results:
                self.ask.log("a result came too late")
        if not self.track.fault and not self.track.good:
            self.track.fault = "crashed" if ended.status not in {0, None} else "no-result"
        if self.server.exhausted and self.track.fault == "agent-error":
            self.track.fault = "budget"
        meter = self.server.meter
        return model.TurnEnd(
            status=self.track.status(),
            fault=self.track.fault,
            entered=self.track.entered,
            results=self.track.results,
            exit_status=ended.status,
            agent_session=self.track.agent_session,
            usage=model.Usage(
                steps=self.track.steps,
                input_tokens=meter.input_tokens,
                output_tokens=meter.output_tokens,
                cost_microdollars=round(meter.microdollars),
            ),
            skipped_lines=self.wire.skipped,
            left=ended.left,
            seconds=time.monotonic() - self.began,
            isolation=self.ask.sandbox.words,
            denied=self.track.denied,
        )
