"""Runs jobs: one thread for each run in progress, at most ``Settings.concurrent_jobs`` of them."""

from __future__ import annotations

import dataclasses
import threading
from typing import TYPE_CHECKING, Any

from klaud.fakehub import expressions
from klaud.fakehub.jobs import Command, JobContext, make_workspace, output_of, perform

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from klaud.fakehub.hub import Hub
    from klaud.fakehub.jobs import Handler, Work
    from klaud.fakehub.state import Job, Repository, Run
    from klaud.fakehub.workflowfile import JobSpec, WorkflowFile

CLOSE_SECONDS = 10.0
"""How long closing the hub waits for its jobs to end after killing them."""


@dataclasses.dataclass
class Active:
    """A run in progress."""

    run: Run
    thread: threading.Thread | None = None
    cancelled: threading.Event = dataclasses.field(default_factory=threading.Event)
    killed: threading.Event = dataclasses.field(default_factory=threading.Event)
    lost: bool = False


class Runner:
    """The hub's runners."""

    def __init__(self, hub: Hub) -> None:
        """Work for ``hub``."""
        self._hub = hub
        self._active: dict[int, Active] = {}
        self.idle = threading.Condition(hub.lock)
        self._closed = False

    def start(self, repository: Repository, run: Run, handler: Handler) -> None:
        """Start a run when a runner is free; otherwise it stays queued. Call with the hub's lock held."""
        if self._closed or run.id in self._active or len(self._active) >= self._hub.settings.concurrent_jobs:
            return
        active = Active(run)
        active.thread = threading.Thread(
            target=self._run, args=(repository, active, handler), name=f"hub-run-{run.id}", daemon=True
        )
        self._active[run.id] = active
        run.last.status = "in_progress"
        run.last.started_at = self._hub.clock.now()
        self._hub.actions.changed(repository, run, "in_progress")
        active.thread.start()

    def cancel(self, run: Run, *, force: bool) -> bool:
        """Tell a run in progress to stop; False where it is not one of ours."""
        active = self._active.get(run.id)
        if active is None:
            return False
        active.cancelled.set()
        if force:
            active.killed.set()
        return True

    def lose(self, run: Run) -> None:
        """Take the machine away under a run: its processes are killed, no later job runs, it ends as a failure."""
        active = self._active.get(run.id)
        if active is not None:
            active.lost = True
            active.killed.set()

    def wait(self, seconds: float) -> bool:
        """Wait until no run is in progress and none is about to start; False where that took too long."""
        with self.idle:
            return self.idle.wait_for(self._all_done, timeout=seconds)

    def _all_done(self) -> bool:
        self._hub.actions.tick()
        return not self._active

    def close(self) -> None:
        """Kill what runs and wait for it to end."""
        with self.idle:
            self._closed = True
            for active in self._active.values():
                active.killed.set()
                active.cancelled.set()
            threads = [active.thread for active in self._active.values() if active.thread]
        for thread in threads:
            thread.join(CLOSE_SECONDS)

    # -- one run

    def _run(self, repository: Repository, active: Active, handler: Handler) -> None:
        run, hub = active.run, self._hub
        try:
            with hub.lock:
                files = hub.actions.files(repository, run.source_oid or run.head_oid)
                file = files.get(run.path)
            conclusion = self._jobs(repository, active, handler, file) if file else "startup_failure"
        except Exception as error:  # noqa: BLE001 - a broken workflow file is a failed run, with the reason in its summary
            conclusion = "startup_failure"
            for job in run.last.jobs:
                job.summary += f"{type(error).__name__}: {error}\n"
        with self.idle:
            del self._active[run.id]
            hub.actions.set_status(repository, run, "completed", conclusion)
            hub.actions.tick()
            self.idle.notify_all()

    def _jobs(self, repository: Repository, active: Active, handler: Handler, file: WorkflowFile) -> str:
        hub, run = self._hub, active.run
        results: dict[str, str] = {}
        with hub.lock:
            scope = hub.actions.context(repository, run)
        needs: dict[str, Any] = {}
        specs = {spec.key: spec for spec in file.ordered_jobs()}
        for job in list(run.last.jobs):
            spec = specs.get(job.key)
            if spec is None:
                continue
            status = self._status(spec, results, active)
            scope["needs"] = {key: needs[key] for key in spec.needs if key in needs}
            if active.killed.is_set() or not expressions.condition(spec.condition, scope, status):
                conclusion = "cancelled" if active.cancelled.is_set() or active.lost else "skipped"
                self._finish(job, conclusion)
            else:
                cancelled = threading.Event() if status["cancelled"] else active.cancelled
                self._one(
                    active, repository=repository, handler=handler, spec=spec, job=job, scope=scope, cancelled=cancelled
                )
            results[spec.key] = job.conclusion or "failure"
            needs[spec.key] = {"result": results[spec.key], "outputs": job.outputs}
        if active.lost:
            return "failure"
        if active.cancelled.is_set():
            return "cancelled"
        outcomes = set(results.values())
        if outcomes == {"skipped"}:
            return "skipped"
        odd = outcomes - {"success", "skipped", "neutral"}
        return "success" if not odd else min(odd) if len(odd) == 1 else "failure"

    def _status(self, spec: JobSpec, results: Mapping[str, str], active: Active) -> dict[str, bool]:
        before = [results.get(key, "skipped") for key in spec.needs]
        cancelled = active.cancelled.is_set()
        return {
            "always": True,
            "cancelled": cancelled,
            "success": not cancelled and all(result == "success" for result in before),
            "failure": not cancelled and any(result in ("failure", "timed_out", "cancelled") for result in before),
        }

    def _one(
        self,
        active: Active,
        *,
        repository: Repository,
        handler: Handler,
        spec: JobSpec,
        job: Job,
        scope: Mapping[str, Any],
        cancelled: threading.Event,
    ) -> None:
        """Do one job. ``cancelled``: the run's own event, but for a clean-up job, which is not cancelled again."""
        hub, run = self._hub, active.run
        work = _work(handler, spec.key)
        root = self.directory(run, job)
        with hub.lock:
            job.status, job.started_at = "in_progress", hub.clock.now()
        if work is None:
            self._finish(job, "success")
            return
        context = JobContext(
            hub=hub,
            repository=repository,
            run=run,
            job=job,
            event=run.payload,
            context=scope,
            workspace=make_workspace(root),
            cancelled=cancelled,
            killed=active.killed,
        )
        limit = hub.settings.job_limit_seconds
        if spec.limit_minutes is not None:
            limit = min(limit, spec.limit_minutes * 60)
        conclusion = perform(work, context, limit)
        if isinstance(work, Command) and conclusion == "failure":
            job.summary += output_of(root)[-2000:]
        self._finish(job, conclusion)

    def directory(self, run: Run, job: Job) -> Path:
        """Return where a job's workspace, control files and output lie."""
        return self._hub.root / "runs" / f"{run.id}-{job.attempt}" / job.key

    def _finish(self, job: Job, conclusion: str) -> None:
        with self._hub.lock:
            now = self._hub.clock.now()
            job.status, job.conclusion = "completed", conclusion
            job.started_at = job.started_at or now
            job.completed_at = now


def _work(handler: Handler, key: str) -> Work | None:
    if isinstance(handler, Command) or callable(handler):
        return handler
    return handler.get(key) if hasattr(handler, "get") else None
