"""What a job does: a handler registered on the hub for a workflow file.

A ``Command`` is a real child process in its own process group, with the environment of Actions; a function is called in
the hub's process; a ``Script`` only moves the run's status on the hub's clock. A cancelled command gets SIGINT, then
SIGTERM, then (its whole group) SIGKILL, as on Actions.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from klaud.fakehub import expressions

if TYPE_CHECKING:
    import threading
    from pathlib import Path

    from klaud.fakehub.hub import Hub
    from klaud.fakehub.state import Artifact, Job, Repository, Run

PASSED = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "PYTHONPATH", "VIRTUAL_ENV", "SSL_CERT_FILE")
"""The variables of the hub's own environment that a command is given; nothing else leaks in."""

INTERRUPT_SECONDS = 7.5
"""From SIGINT to SIGTERM when a job is cancelled, as on Actions."""

TERMINATE_SECONDS = 2.5
"""From SIGTERM to SIGKILL."""

POLL_SECONDS = 0.02
"""How often a child is looked at."""

SUMMARY_LIMIT = 1024 * 1024
"""Bytes of a step summary; a larger one is dropped whole, as on Actions."""

LOG_SHOWN = 20_000
"""Characters of a job's output that ``JobContext.output`` returns at most, from its end."""


@dataclasses.dataclass(frozen=True)
class Step:
    """One change of a scripted run: ``after`` hub seconds since the step before (or since the run was made)."""

    after: float
    status: str
    conclusion: str | None = None


@dataclasses.dataclass(frozen=True)
class Script:
    """A run that does nothing but change its status. ``artifacts``: name -> file name -> content, at its end."""

    steps: tuple[Step, ...] = (Step(0, "in_progress"), Step(1, "completed", "success"))
    artifacts: Mapping[str, Mapping[str, str]] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Command:
    """A child process. ``${{ expressions }}`` in ``argv`` and ``env`` see ``github``, ``inputs`` and ``needs``.

    ``token``: the value of one of the hub's tokens, given as ``KLAUD_TOKEN``. ``checkout``: put the run's commit into the
    workspace first. ``artifacts``: artifact name -> path below the workspace, published at the end where it exists.
    ``passes``: which variables of the hub's own environment the child is given.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] = dataclasses.field(default_factory=dict)
    token: str = ""
    checkout: bool = False
    artifacts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    passes: tuple[str, ...] = PASSED


Function = Callable[["JobContext"], str | None]
"""A handler in the hub's process: returns the job's conclusion, None for success; an exception is a failure."""

Work = Command | Function
Handler = Command | Script | Function | Mapping[str, Work]
"""One handler does every job of the file; a mapping gives one for each job's key (a job without one succeeds)."""


@dataclasses.dataclass
class JobContext:
    """One job in hand, as a function handler sees it."""

    hub: Hub
    repository: Repository
    run: Run
    job: Job
    event: Mapping[str, Any]
    context: Mapping[str, Any]
    workspace: Path
    cancelled: threading.Event
    killed: threading.Event

    @property
    def inputs(self) -> Mapping[str, str]:
        """Return the inputs of the dispatch."""
        return self.run.inputs

    def checkout(self) -> Path:
        """Put a clone of the repository, at the run's commit, into the workspace and return it (all of its history)."""
        oid = self.run.source_oid or self.run.head_oid
        clone = ["git", "clone", "--quiet", "--shared", "--no-checkout", str(self.repository.git_path), "."]
        for argv in (clone, ["git", "checkout", "--quiet", "--detach", oid]):
            subprocess.run(argv, cwd=self.workspace, capture_output=True, check=True)
        return self.workspace

    def publish(self, name: str, directory: Path) -> Artifact:
        """Publish a directory (or one file) as an artifact."""
        files: dict[str, bytes] = {}
        if directory.is_file():
            files[directory.name] = directory.read_bytes()
        else:
            for path in sorted(directory.rglob("*")):
                if path.is_file():
                    files[path.relative_to(directory).as_posix()] = path.read_bytes()
        return self.hub.actions.publish(self.run, name, files)

    def environment(self) -> dict[str, str]:
        """Return the variables that Actions gives to every step."""
        control = self.workspace.parent / "control"
        control.mkdir(exist_ok=True)
        event_path = control / "event.json"
        event_path.write_text(json.dumps(self.event))
        for name in ("output", "summary", "env"):
            (control / name).touch()
        base = self.hub.base_url
        actor = self.hub.state.account(self.run.actor)
        triggering = self.hub.state.account(self.run.last.triggering_actor)
        reference = f"refs/heads/{self.run.head_branch}" if self.run.head_branch else ""
        if self.run.event == "pull_request" and self.run.pulls:
            reference = f"refs/pull/{self.run.pulls[0]}/merge"
        return {
            "CI": "true",
            "GITHUB_ACTIONS": "true",
            "GITHUB_RUN_ID": str(self.run.id),
            "GITHUB_RUN_NUMBER": str(self.run.number),
            "GITHUB_RUN_ATTEMPT": str(self.run.last.number),
            "GITHUB_JOB": self.job.key,
            "GITHUB_WORKFLOW": self.run.name,
            "GITHUB_WORKFLOW_REF": f"{self.repository.full_name}/{self.run.path}@{reference}",
            "GITHUB_REPOSITORY": self.repository.full_name,
            "GITHUB_REPOSITORY_ID": str(self.repository.id),
            "GITHUB_REPOSITORY_OWNER": self.repository.owner,
            "GITHUB_API_URL": base,
            "GITHUB_SERVER_URL": base,
            "GITHUB_GRAPHQL_URL": f"{base}/graphql",
            "GITHUB_ACTOR": actor.login if actor else "",
            "GITHUB_ACTOR_ID": str(actor.id) if actor else "",
            "GITHUB_TRIGGERING_ACTOR": triggering.login if triggering else "",
            "GITHUB_EVENT_NAME": self.run.event,
            "GITHUB_EVENT_PATH": str(event_path),
            "GITHUB_SHA": self.run.source_oid or self.run.head_oid,
            "GITHUB_REF": reference,
            "GITHUB_REF_NAME": reference.removeprefix("refs/heads/"),
            "GITHUB_REF_TYPE": "branch",
            "GITHUB_WORKSPACE": str(self.workspace),
            "GITHUB_OUTPUT": str(control / "output"),
            "GITHUB_ENV": str(control / "env"),
            "GITHUB_STEP_SUMMARY": str(control / "summary"),
            "RUNNER_TEMP": str(control),
            "RUNNER_OS": "Linux",
        }


def parse_output(text: str) -> dict[str, str]:
    """Read what a step wrote to ``GITHUB_OUTPUT``: ``name=value`` and ``name<<END`` forms."""
    found: dict[str, str] = {}
    lines = iter(text.splitlines())
    for line in lines:
        name, equals, value = line.partition("=")
        before, marker, end = line.partition("<<")
        if marker and (not equals or len(before) < len(name)):
            block: list[str] = []
            for inner in lines:
                if inner == end:
                    break
                block.append(inner)
            found[before] = "\n".join(block)
        elif equals:
            found[name] = value
    return found


def perform(work: Work, context: JobContext, limit_seconds: float) -> str:
    """Do a job and return its conclusion."""
    if not isinstance(work, Command):
        try:
            said = work(context)
        except Exception as error:  # noqa: BLE001 - whatever a handler raises is a failed job, shown in its summary
            context.job.summary += f"{type(error).__name__}: {error}\n"
            return "failure"
        return "cancelled" if context.cancelled.is_set() and said is None else said or "success"
    if work.checkout:
        context.checkout()
    environment = {name: os.environ[name] for name in work.passes if name in os.environ} | context.environment()
    if work.token:
        environment["KLAUD_TOKEN"] = work.token
    scope = context.context
    environment |= {name: expressions.substitute(value, scope) for name, value in work.env.items()}
    argv = [expressions.substitute(part, scope) for part in work.argv]
    log_path = context.workspace.parent / "output.log"
    with log_path.open("wb") as log:
        try:
            child = subprocess.Popen(
                argv,
                cwd=context.workspace,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            log.write(f"cannot start {argv[0]}: {error}\n".encode())
            return "failure"
        status = _watch(child, context, limit_seconds)
    control = context.workspace.parent / "control"
    context.job.outputs |= parse_output((control / "output").read_text(errors="replace"))
    summary = (control / "summary").read_bytes()
    if len(summary) <= SUMMARY_LIMIT:
        context.job.summary += summary.decode(errors="replace")
    else:
        context.job.annotations.append(
            f"the step summary has {len(summary)} bytes and was dropped (limit {SUMMARY_LIMIT})"
        )
    if not context.killed.is_set():
        for name, path in work.artifacts.items():
            place = context.workspace / path
            if place.exists():
                context.publish(name, place)
    if context.cancelled.is_set():
        return "cancelled"
    return "success" if status == 0 else "failure"


def _watch(child: subprocess.Popen[bytes], context: JobContext, limit_seconds: float) -> int:
    """Wait for the child; cancel it when told to, or when its time is up (hub time)."""
    scale = context.hub.settings.cancel_scale
    begun = context.hub.clock.now()
    asked_at: float | None = None
    sent = 0
    try:
        while True:
            try:
                return child.wait(timeout=POLL_SECONDS)
            except subprocess.TimeoutExpired:
                pass
            if context.killed.is_set():
                _kill_group(child)
                continue
            if (context.hub.clock.now() - begun).total_seconds() > limit_seconds:
                context.cancelled.set()
            if not context.cancelled.is_set():
                continue
            asked_at = asked_at or time.monotonic()
            waited = (time.monotonic() - asked_at) / scale if scale else float("inf")
            if sent == 0:
                child.send_signal(signal.SIGINT)
                sent = 1
            elif sent == 1 and waited > INTERRUPT_SECONDS:
                child.send_signal(signal.SIGTERM)
                sent = 2
            elif waited > INTERRUPT_SECONDS + TERMINATE_SECONDS:
                _kill_group(child)
    finally:
        _kill_group(child)  # a runner ends what a step left running
        child.wait()


def _kill_group(child: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)


def make_workspace(root: Path) -> Path:
    """Make an empty workspace (in a directory of its own, beside which the control files lie)."""
    if root.exists():
        shutil.rmtree(root)
    workspace = root / "work"
    workspace.mkdir(parents=True)
    return workspace


def output_of(root: Path) -> str:
    """Return the end of what a job's command printed."""
    path = root / "output.log"
    return path.read_text(errors="replace")[-LOG_SHOWN:] if path.exists() else ""
