# ruff: noqa: T201, D102
"""The agent's program: ``python -I -S <this folder> [--script FILE] [whatever the real program takes]``.

It answers the hand-shake, reads the task from the first user message (a JSON object between two marker lines), takes the
steps of its script one by one, calls klaud's tools over the control channel, and prints a result. Same task and script,
same behaviour. A script is ``{"fault": NAME, "steps": [...], "continued": [...]}``; without one the built-in steps apply
the task's change, push it, open the draft, run the smoke test, and start the final run if that passed.

Steps: ``set`` (keys, value; default: the task's change), ``write`` (file, text), ``commit`` (message), ``call`` (tool,
arguments; ``"run_id": "last"`` is the newest run), ``require`` (stop unless the last answer says success), ``sleep``,
``run`` (a command, its output said), ``say``.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import edit  # type: ignore[import-not-found]  # beside this file: the program is started by its folder
import faults  # type: ignore[import-not-found]

BEGIN, END = "-----BEGIN TASK-----", "-----END TASK-----"
VERSION = "2.1.0 (scripted)"
LINE_BYTES = 64 * 1024 * 1024

BUILT_IN = [
    {"do": "set"},
    {"do": "commit"},
    {"do": "call", "tool": "push_work", "arguments": {"summary": "Apply the proposed change"}},
    {"do": "call", "tool": "open_draft"},
    {"do": "call", "tool": "dispatch_smoke"},
    {"do": "wait-if-dispatched"},
    {"do": "call", "tool": "start_final_run"},
]
CONTINUED = [{"do": "call", "tool": "finish", "arguments": {"claim": "failed", "note": "nothing left to try"}}]


class StoppedError(Exception):
    """klaud asked to stop."""


class Agent:
    """One run of the program."""

    def __init__(self, script: dict[str, Any]) -> None:
        self.script = script
        self.fault = script.get("fault", "")
        self.session = script.get("session", "5c219ed0-0000-4000-8000-000000000001")
        self.task: dict[str, Any] = {}
        self.numbers = 0
        self.answer = ""
        self.failed = False
        self.run_id: int | None = None

    # -- the channel

    def send(self, message: dict[str, Any]) -> None:
        faults.print_raw(json.dumps(message).encode() + b"\n")

    def receive(self) -> dict[str, Any]:
        line = sys.stdin.buffer.readline(LINE_BYTES)
        if not line:
            raise SystemExit(0)
        message: dict[str, Any] = json.loads(line)
        return message

    def serve(self, until: str) -> dict[str, Any]:
        """Handle messages until the response to request ``until`` (or, empty, a user message) has come."""
        while True:
            message = self.receive()
            kind = message.get("type")
            if kind == "control_request":
                self.take(message)
            elif kind == "control_response" and message["response"].get("request_id") == until:
                response: dict[str, Any] = message["response"]
                return response
            elif kind == "user" and not until:
                return message

    def take(self, message: dict[str, Any]) -> None:
        subtype = message["request"].get("subtype")
        response: dict[str, Any] = {}
        if subtype == "initialize":
            if self.fault == "hang-in-handshake":
                faults.hang()
            response = {"commands": [], "hook_on_failure_supported": True}
        elif subtype == "mcp_status":
            response = {"mcpServers": [{"name": "klaud", "status": "connected"}]}
        body = {"subtype": "success", "request_id": message["request_id"], "response": response}
        self.send({"type": "control_response", "response": body})
        if subtype == "interrupt":
            if self.fault == "ignore-interrupt":
                return
            raise StoppedError

    def request(self, body: dict[str, Any]) -> dict[str, Any]:
        self.numbers += 1
        number = f"cli_{self.numbers}"
        self.send({"type": "control_request", "request_id": number, "request": body})
        return self.serve(number)

    def mcp(self, method: str, parameters: dict[str, Any], *, notify: bool = False) -> dict[str, Any]:
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": parameters}
        if not notify:
            message["id"] = self.numbers + 1000
        response = self.request({"subtype": "mcp_message", "server_name": "klaud", "message": message})
        return (response.get("response") or {}).get("mcp_response") or {"error": response.get("error", "no answer")}

    # -- the steps

    def call(self, tool: str, arguments: dict[str, Any]) -> None:
        arguments = {key: self.run_id if value == "last" else value for key, value in arguments.items()}
        self.numbers += 1
        use = f"toolu_{self.numbers:04d}"
        self.assistant([{"type": "tool_use", "id": use, "name": f"mcp__klaud__{tool}", "input": arguments}])
        reply = self.mcp("tools/call", {"name": tool, "arguments": arguments})
        result = reply.get("result") or {"content": [{"type": "text", "text": str(reply)}], "isError": True}
        self.answer = "".join(part.get("text", "") for part in result["content"])
        self.failed = bool(result.get("isError"))
        if not self.failed:
            for word in self.answer.split():
                if word.startswith("run_id=") and word[7:].rstrip(".,;").isdigit():
                    self.run_id = int(word[7:].rstrip(".,;"))
        block: dict[str, Any] = {
            "type": "tool_result",
            "tool_use_id": use,
            "content": self.answer,
            "is_error": self.failed,
        }
        self.emit("user", {"role": "user", "content": [block]})

    def emit(self, kind: str, message: dict[str, Any]) -> None:
        self.send({"type": kind, "message": message, "parent_tool_use_id": None, "session_id": self.session})

    def assistant(self, content: list[Any]) -> None:
        message: dict[str, Any] = {"role": "assistant", "model": "scripted", "content": content}
        message["usage"] = {"input_tokens": 100, "output_tokens": 10}
        self.emit("assistant", message)

    def step(self, step: dict[str, Any]) -> bool:
        """Take one step; False ends the script."""
        do = step["do"]
        if do == "set":
            self.set_values(step)
        elif do == "write":
            path = Path(step["file"])
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(step["text"], encoding="utf-8")
        elif do == "commit":
            self.git("add", "--all")
            self.git("commit", "--quiet", "--message", step.get("message", "Apply the proposed change"))
        elif do == "call":
            self.call(step["tool"], step.get("arguments") or self.default_arguments(step["tool"]))
        elif do == "wait-if-dispatched":
            if not self.failed and self.run_id is not None:
                self.call("wait_for_run", {"run_id": self.run_id})
                if "conclusion=success" not in self.answer:
                    arguments = {"what": "smoke-run", "result": "failed", "run_id": self.run_id}
                    self.call("report_attempt", arguments)
                    self.call("finish", {"claim": "failed", "note": "the smoke run did not pass"})
                    return False
            elif "parked" in self.answer:
                return False
        elif do == "require":
            return not self.failed and step.get("text", "") in self.answer
        elif do == "sleep":
            time.sleep(step["seconds"])  # what the script asks for
        elif do == "run":
            self.own_tool(step)
        elif do == "say":
            self.assistant([{"type": "text", "text": step["text"]}])
        else:
            raise SystemExit(f"unknown step {do!r}")
        return True

    def default_arguments(self, tool: str) -> dict[str, Any]:
        if tool == "open_draft":
            what = self.task.get("subject") or "the proposed change"
            return {"title": f"{self.task['family']}: {what}", "summary": f"Changes {json.dumps(self.task['change'])}."}
        return {}

    def own_tool(self, step: dict[str, Any]) -> None:
        """Run a command as the real program's Bash tool does: announced, in a session of its own, its output kept."""
        self.numbers += 1
        use = f"toolu_{self.numbers:04d}"
        self.assistant([{"type": "tool_use", "id": use, "name": "Bash", "input": {"command": "..."}}])
        done = subprocess.run(step["command"], check=False, capture_output=True, start_new_session=True)
        text = (done.stdout + done.stderr).decode("utf-8", "replace")
        block: dict[str, Any] = {"type": "tool_result", "tool_use_id": use, "content": text}
        block["is_error"] = done.returncode != 0
        self.emit("user", {"role": "user", "content": [block]})
        self.answer, self.failed = text, done.returncode != 0

    def set_values(self, step: dict[str, Any]) -> None:
        path = Path(step.get("file") or self.task["file"])
        changes = step.get("change") or self.task["change"]
        text = path.read_text(encoding="utf-8")
        kind = "json" if path.suffix == ".json" else "yaml"
        for key, value in changes.items():
            text = edit.set_value(text, [self.task["key"], *key.split(".")], value, kind=kind)
        path.write_text(text, encoding="utf-8")

    def git(self, *arguments: str) -> None:
        who = ["-c", "user.name=agent", "-c", "user.email=agent@localhost"]
        subprocess.run(["git", *who, *arguments], check=True, stdout=subprocess.DEVNULL)

    # -- the run

    def run(self) -> int:
        """Speak the protocol from hand-shake to result; return the exit status."""
        self.before()
        message = self.serve("")
        content = message["message"]["content"]
        text = content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
        self.task = json.loads(text.partition(BEGIN)[2].partition(END)[0] or "{}")
        self.mcp("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}})
        self.mcp("notifications/initialized", {}, notify=True)
        tools = self.mcp("tools/list", {}).get("result", {}).get("tools", [])
        init: dict[str, Any] = {
            "type": "system",
            "subtype": "init",
            "session_id": self.session,
            "claude_code_version": "2.1.0",
        }
        init["mcp_servers"] = [{"name": "klaud", "status": "connected"}]
        init["tools"] = [f"mcp__klaud__{tool['name']}" for tool in tools]
        self.send(init)
        if status := self.during():
            return status - 1
        continued = bool(self.task.get("continued"))
        steps = self.script.get("continued" if continued else "steps", CONTINUED if continued else BUILT_IN)
        try:
            while True:
                for step in steps:
                    if not self.step(step):
                        break
                reply = self.request(
                    {"subtype": "hook_callback", "callback_id": "hook_0", "input": {"hook_event_name": "Stop"}}
                )
                block = (reply.get("response") or {}).get("decision") == "block"
                steps = self.script.get("blocked", [])
                if not block or not steps:
                    break
        except StoppedError:
            self.result("error_during_execution", "", error=True)
            return 0
        return self.after()

    def result(self, subtype: str, text: str, *, error: bool = False) -> None:
        usage = {"input_tokens": 100, "output_tokens": 10}
        message: dict[str, Any] = {
            "type": "result",
            "subtype": subtype,
            "is_error": error,
            "result": text,
            "usage": usage,
        }
        self.send({**message, "session_id": self.session, "num_turns": 1, "total_cost_usd": 0.0, "duration_ms": 1})

    def before(self) -> None:
        """Misbehave before the hand-shake, where the script says so."""
        if self.fault in {"ignore-terminate", "hang-deaf"}:
            faults.ignore_terminate()
        if self.fault == "hang-at-start":
            faults.hang()
        if self.fault == "exit-at-start":
            raise SystemExit(0)
        if self.fault == "secret-on-stderr":
            print(self.script["secret"], file=sys.stderr, flush=True)

    def during(self) -> int:
        """Misbehave inside the turn; a status above 0 ends the program with it minus 1."""
        if self.fault in {"hang-in-turn", "hang-deaf"}:
            faults.hang()
        if self.fault == "ignore-interrupt":
            while True:
                self.serve("never")
        if self.fault == "no-result":
            return 1
        if self.fault == "crash":
            return 8
        if self.fault == "own-tool-hangs":
            self.assistant([{"type": "tool_use", "id": "toolu_x", "name": "Bash", "input": {}}])
            faults.hang()
        if self.fault == "endless-steps":
            while True:
                self.assistant([{"type": "text", "text": "still thinking"}])
        if self.fault == "child-in-own-session":
            faults.leave_child(session=True)
        if self.fault == "child-keeps-stdout":
            faults.leave_child(session=False)
        if self.fault == "long-line":
            faults.long_line(self.script.get("bytes", 1_300_000))
        if self.fault == "invalid-utf8":
            faults.print_raw(b'{"type":"assistant","message":"\xff\xfe"}\nnot json at all\n[1]\n')
        return 0

    def after(self) -> int:
        """Print the result, or what the script makes of it."""
        text = "" if self.fault == "empty-result" else "done"
        self.result("success", text)
        if self.fault == "duplicate-result":
            self.result("success", "done again")
        if self.fault == "torn-line":
            faults.print_raw(b'{"type":"assistant","message":{"role":"assis')
            os._exit(0)
        if self.fault == "hang-after-result":
            faults.hang()
        if self.fault in {"ignore-terminate", "child-in-own-session"}:
            faults.hang()
        if not self.fault:
            while sys.stdin.buffer.readline(LINE_BYTES):
                pass
        return 0


def main() -> None:
    """Run the program."""
    if "--version" in sys.argv[1:]:
        print("a warning that belongs nowhere", file=sys.stderr)
        print(VERSION)
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("--script")
    known, _ = parser.parse_known_args()
    script = json.loads(Path(known.script).read_text(encoding="utf-8")) if known.script else {}
    sys.exit(Agent(script).run())


if __name__ == "__main__":
    main()
