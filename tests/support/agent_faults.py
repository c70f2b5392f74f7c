"""Ways in which an agent's program fails, each with the end that it must come to, and one way to try them all.

The bounds are small, so that a whole table takes seconds; the program is the shipped scripted agent with a fault in it.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from klaud.session import drive, frameworks, journal, model, process

if TYPE_CHECKING:
    from collections.abc import Callable

    from klaud.session import sandbox

POLICY = model.Policy(
    entry_seconds=1.5,
    turn_seconds=1.5,
    silence_seconds=0.6,
    own_tool_seconds=1.0,
    linger_seconds=0.4,
    teardown_step_seconds=0.4,
    teardown_seconds=2.0,
    steps=50,
)
PATIENT = msgspec.structs.replace(
    POLICY, entry_seconds=15.0, turn_seconds=20.0, silence_seconds=10.0, own_tool_seconds=10.0, teardown_seconds=5.0
)
"""For programs that do not hang: a slow machine is not their fault."""
SECRET = "k-canary-0123456789"

CALL = [{"do": "call", "tool": "check_capacity"}]

TABLE: dict[str, tuple[dict[str, Any], str, str]] = {
    "no fault": ({}, "completed", ""),
    "hang at start": ({"fault": "hang-at-start"}, "failed", "entry-timeout"),
    "hang in the hand-shake": ({"fault": "hang-in-handshake"}, "failed", "entry-timeout"),
    "hang in the turn": ({"fault": "hang-in-turn"}, "stalled", "silent"),
    "own tool hangs": ({"fault": "own-tool-hangs"}, "stalled", "own-tool-timeout"),
    "hang after the result": ({"fault": "hang-after-result"}, "completed", ""),
    "ignores SIGTERM": ({"fault": "ignore-terminate"}, "completed", ""),
    "hangs and ignores SIGTERM": ({"fault": "hang-deaf"}, "stalled", "silent"),
    "child keeps stdout open": ({"fault": "child-keeps-stdout"}, "completed", ""),
    "child in its own session": ({"fault": "child-in-own-session"}, "completed", ""),
    "exit 0 at start": ({"fault": "exit-at-start"}, "failed", "handshake"),
    "exit 0 without a result": ({"fault": "no-result"}, "failed", "no-result"),
    "crash": ({"fault": "crash"}, "failed", "no-result"),
    "empty result": ({"fault": "empty-result"}, "failed", "empty-result"),
    "duplicated result": ({"fault": "duplicate-result"}, "completed", ""),
    "1.3 MB line": ({"fault": "long-line", "bytes": 1_300_000}, "completed", ""),
    "20 MB line": ({"fault": "long-line", "bytes": 20_000_000}, "completed", ""),
    "torn last line": ({"fault": "torn-line"}, "completed", ""),
    "invalid UTF-8": ({"fault": "invalid-utf8"}, "completed", ""),
    "endless steps": ({"fault": "endless-steps"}, "failed", "steps"),
    "secret on stderr": ({"fault": "secret-on-stderr", "secret": SECRET}, "completed", ""),
}
"""Name -> what the program's script adds, and the status and fault that the turn must end with."""


def policy_of(fault: str) -> model.Policy:
    """Return the bounds for a program that must end with ``fault``: small where it is the bound that ends it."""
    match fault:
        case "entry-timeout":
            return msgspec.structs.replace(PATIENT, entry_seconds=POLICY.entry_seconds)
        case "silent":
            return msgspec.structs.replace(PATIENT, silence_seconds=POLICY.silence_seconds)
        case "own-tool-timeout":
            return msgspec.structs.replace(PATIENT, own_tool_seconds=POLICY.own_tool_seconds)
    return PATIENT


def bound_of(policy: model.Policy) -> float:
    """Return the seconds after which a turn with these bounds must have ended, whatever the program does."""
    waits = max(policy.entry_seconds, policy.turn_seconds)
    return waits + policy.linger_seconds + policy.teardown_seconds + 2.0


class Desk:
    """Tools that answer at once and remember what was asked."""

    def __init__(self) -> None:
        """Nothing was asked yet."""
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def call(self, name: str, arguments: dict[str, Any]) -> model.ToolAnswer:
        """Answer."""
        self.calls.append((name, arguments))
        return model.ToolAnswer(text="done")

    def must_go_on(self) -> str:
        """Let the agent stop."""
        return ""

    def stop(self) -> None:
        """Nothing waits."""


def drive_script(
    place: Path,
    box: sandbox.Sandbox,
    script: dict[str, Any],
    *,
    policy: model.Policy = POLICY,
    watch: Callable[[], model.Fault] = lambda: "",
    argv: tuple[str, ...] | None = None,
    desk: Desk | None = None,
    told: journal.Journal = journal.SILENT,
) -> tuple[model.TurnEnd, Desk, list[str]]:
    """Run one turn of the scripted agent (or of ``argv``) in ``place``; return its end, what it asked, and the log."""
    home = place / "home"
    home.mkdir()
    if box.uid is not None:
        os.chown(home, box.uid, box.uid)
    file = place / "script.json"
    file.write_text(json.dumps(script), encoding="utf-8")
    python = os.path.realpath(sys.executable)
    start = process.Start(
        argv=argv or (python, "-I", "-S", str(frameworks.SCRIPTED), "--script", str(file)),
        env={"PATH": "/usr/bin:/bin", "HOME": str(home), "LANG": "C.UTF-8"},
        cwd=str(home),
        read=(sys.base_prefix, str(frameworks.SCRIPTED), str(file)),
        write=(str(home),),
    )
    desk = desk or Desk()
    log: list[str] = []
    prompt = '-----BEGIN TASK-----\n{"family": "a.yaml:x", "change": {}}\n-----END TASK-----'
    end = drive.run(drive.Turn(start, box, prompt, desk, policy, watch, log.append, journal=told))
    return end, desk, log


def strays(place: Path) -> list[str]:
    """Processes whose working directory is the agent's. (Command lines are not read: that can block.)"""
    found = []
    for path in Path("/proc").glob("[0-9]*/cwd"):
        try:
            where = str(path.readlink())
        except OSError:
            continue
        if where.startswith(str(place)):
            found.append(path.parent.name)
    return found
