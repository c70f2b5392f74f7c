"""The face of an agent that encodes one item, and the agents there are.

An agent is told a ``Task`` and gets a workspace directory of its own, the tools of ``tools.Desk`` and bounds. It answers
with one submission, through the tool ``submit`` or as ``submission.json`` in its workspace. Whatever it does, ``run``
returns only when the agent's whole process tree is gone: what it wrote is looked at after that.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Protocol

from klaud.encoder import model
from klaud.session import process, sandbox

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from klaud.encoder import tools as desks

SUBMISSION = "submission.json"
"""The file in the workspace by which an agent without tools submits."""
TASK = "task.json"
LOOK_SECONDS = 0.05
"""Between two looks at whether the agent was told to end."""
PAUSE_SECONDS = 0.005
"""Between two looks at a program that has closed its output: most end at once."""


class ItemAgent(Protocol):
    """What encodes one item."""

    async def run(self, task: model.Task, workspace: Path, tools: desks.Desk, bounds: model.Bounds) -> model.ItemResult:
        """Make one attempt. The process tree is gone when this returns, also when it is cancelled."""
        ...


class ProgramAgent:
    """Any program as an agent: started in its workspace, it reads ``task.json`` and writes ``submission.json``.

    It has no tools, no network where the host can take it away, and an environment of five plain variables.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        isolation: sandbox.Sandbox = sandbox.NONE,
        read: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        usage: model.Usage | None = None,
    ) -> None:
        """``command``: the program and its arguments. ``usage``: what one attempt is counted as (default nothing)."""
        self._command = tuple(command)
        self._isolation = isolation
        self._read = tuple(read)
        self._environment = dict(environment or {})
        self._usage = usage or model.Usage()

    async def run(self, task: model.Task, workspace: Path, tools: desks.Desk, bounds: model.Bounds) -> model.ItemResult:
        """Start the program, wait for its end or the bound, kill its whole tree."""
        del task, tools
        stop = threading.Event()
        running = asyncio.ensure_future(asyncio.to_thread(self._run, workspace, bounds, stop))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            stop.set()
            with contextlib.suppress(Exception):
                await running
            raise

    def _run(self, workspace: Path, bounds: model.Bounds, stop: threading.Event) -> model.ItemResult:
        start = process.Start(
            argv=self._command,
            env={
                "PATH": os.defpath,
                "LANG": "C.UTF-8",
                "HOME": str(workspace),
                "TMPDIR": str(workspace),
                "PYTHONDONTWRITEBYTECODE": "1",
                **self._environment,
            },
            cwd=str(workspace),
            read=(*self._read, sys.prefix, sys.base_prefix, *_folders(self._command)),
            write=(str(workspace),),
        )
        give(workspace, self._isolation)
        try:
            return self._start(start, bounds, stop)
        finally:
            give(workspace, self._isolation, back=True)

    def _start(self, start: process.Start, bounds: model.Bounds, stop: threading.Event) -> model.ItemResult:
        try:
            child = process.Child(start, self._isolation, start_seconds=bounds.entry_seconds)
        except process.NotStartedError as error:
            what = "there is no such program" if error.missing else "its program could not be started"
            return model.ItemResult(ended="never-ran", detail=what)
        timed_out = False
        try:
            deadline = time.monotonic() + bounds.attempt_seconds
            while not stop.is_set():
                left = deadline - time.monotonic()
                if left <= 0:
                    timed_out = True
                    break
                if child.read(min(LOOK_SECONDS, left)) == "end":
                    if not child.running:
                        break
                    time.sleep(PAUSE_SECONDS)  # its output is closed and it goes on: look now and then
        finally:
            if timed_out or stop.is_set():
                child.kill()
            ended_by = child.end(step_seconds=bounds.teardown_seconds / 3, total_seconds=bounds.teardown_seconds)
        if timed_out:
            return model.ItemResult(ended="timeout", usage=self._usage, detail=f"after {bounds.attempt_seconds:g} s")
        if ended_by.status != 0:
            return model.ItemResult(ended="crashed", usage=self._usage, detail=f"exit status {ended_by.status}")
        return model.ItemResult(ended="finished", usage=self._usage)


def give(root: Path, isolation: sandbox.Sandbox, *, back: bool = False) -> None:
    """Hand a folder over to the agent's user, where it has one, or take it back so that it can be read and removed."""
    uid = os.getuid() if back else isolation.uid
    if isolation.uid is None or uid is None:
        return
    if os.geteuid() == 0:
        for folder, folders, names in os.walk(root):
            for name in (".", *folders, *names):
                os.chown(os.path.join(folder, name), uid, uid, follow_symlinks=False)  # noqa: PTH118 - of os.walk
    else:
        isolation.as_root("chown", "-R", "-h", f"{uid}:{uid}", str(root))


def _folders(command: Sequence[str]) -> list[str]:
    """Return the directories of the files that a command line names: the program has to see its own script."""
    return [os.path.dirname(os.path.realpath(word)) for word in command if os.path.isabs(word) and os.path.isfile(word)]  # noqa: PTH120, PTH117, PTH113 - words, most of them no paths
