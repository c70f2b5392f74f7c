"""Builds the workflow runs of a scene."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

from klaud.fakehub.actions import FIRST_RUN_ID
from klaud.fakehub.scene_text import SceneError
from klaud.fakehub.state import Attempt, Change, Job, Run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from klaud.fakehub.scene import Builder

Data = dict[str, Any]


class RunBuilder:
    """Builds the runs of one scene."""

    def __init__(self, builder: Builder) -> None:
        """Build into the builder's hub."""
        self.builder = builder
        self.hub = builder.hub
        self.repository = builder.repository
        self._numbers: dict[int, int] = {}

    def build(self, specs: Sequence[Data]) -> None:
        """Build all runs, and let the next id come after them."""
        for index, spec in enumerate(specs):
            self._run(spec, f"runs[{index}]")
        self.hub.state.counters["run"] = max([FIRST_RUN_ID - 1, *self.repository.runs]) + 1

    def build_self(self, spec: Data) -> None:
        """Make the run that the verb is, unless the scene has it or says it is absent."""
        if "run" not in spec or spec.get("absent") or int(spec["run"]) in self.repository.runs:
            return
        self._run(
            {
                "id": spec["run"],
                "workflow": spec.get("workflow", "klaud-plan.yml"),
                "event": "schedule",
                "status": "in_progress",
                "attempt": spec.get("attempt", 1),
                "jobs": [{"name": spec.get("job", "recover")}],
            },
            "self",
        )
        self.hub.state.counters["run"] = max(self.repository.runs) + 1

    def _run(self, spec: Data, path: str) -> None:
        builder, hub, repository = self.builder, self.hub, self.repository
        number = int(spec["id"]) if "id" in spec else max([FIRST_RUN_ID - 1, *repository.runs]) + 1
        if number in repository.runs:
            raise SceneError(f"{path}.id: {number} stands twice")
        file = spec["workflow"]
        workflow = hub.actions.workflow(repository, f".github/workflows/{file}")
        branch = spec.get("branch", repository.default_branch)
        known = branch is not None and builder.refs.get(f"refs/heads/{branch}")
        commit = spec.get("commit") or (branch if known else repository.default_branch)
        oid = builder.commit_of(commit, f"{path}.commit")
        status = spec.get("status", "completed")
        conclusion = spec.get("conclusion", "success") if status == "completed" else None
        created = builder.at(spec.get("created"), f"{path}.created")
        updated = builder.at(spec.get("updated"), f"{path}.updated", created)
        owner = repository.owner
        actor = builder.who(spec.get("actor", owner), f"{path}.actor")
        triggering = (
            builder.who(spec["triggering-actor"], f"{path}.triggering-actor") if "triggering-actor" in spec else actor
        )
        self._numbers[workflow.id] = self._numbers.get(workflow.id, 0) + 1
        last = int(spec.get("attempt", 1))
        attempts = [Attempt(one, actor, "completed", "failure", created, created) for one in range(1, last)]
        attempts.append(Attempt(last, triggering, status, conclusion, created, updated))
        run = Run(
            id=number,
            workflow_id=workflow.id,
            path=workflow.path,
            name=workflow.name,
            number=self._numbers[workflow.id],
            event=spec.get("event", "workflow_dispatch"),
            head_branch=branch,
            head_oid=oid,
            source_oid=oid,
            display_title=spec.get("title", workflow.name),
            actor=actor,
            created_at=created,
            attempts=attempts,
            inputs={name: str(value) for name, value in spec.get("inputs", {}).items()},
            pulls=[int(one) for one in spec.get("pulls", ())],
            on_cancel=spec.get("on-cancel", "accept"),
            on_force_cancel=spec.get("on-force-cancel", "accept"),
        )
        repository.runs[number] = run
        for job in spec.get("jobs", [{"name": "job"}]):
            run.last.jobs.append(self._job(run, job, updated))
        at = builder.start
        for index, step in enumerate(spec.get("then", ())):
            at += datetime.timedelta(seconds=float(step["after"]))
            if step["status"] == "completed" and "conclusion" not in step:
                raise SceneError(f"{path}.then[{index}]: a completed run has a conclusion")
            run.script.append(Change(at, step["status"], step.get("conclusion")))
        if "visible-after" in spec:
            run.visible_at = builder.start + datetime.timedelta(seconds=float(spec["visible-after"]))
        for artifact in spec.get("artifacts", ()):
            if "text" in artifact:
                made = hub.actions.publish_zip(run, artifact["name"], artifact["text"].encode())
            else:
                files = {name: (text or "").encode() for name, text in artifact.get("files", {}).items()}
                made = hub.actions.publish(run, artifact["name"], files)
            made.expired = artifact.get("expired", False)

    def _job(self, run: Run, spec: Data, updated: datetime.datetime) -> Job:
        status = spec.get("status", run.status if run.status in ("queued", "completed") else "in_progress")
        over = status == "completed"
        number = int(spec["id"]) if "id" in spec else self.hub.state.next_id("job", 50_000_001)
        return Job(
            id=number,
            run_id=run.id,
            attempt=run.last.number,
            key=spec["name"],
            name=spec["name"],
            status=status,
            conclusion=spec.get("conclusion", run.conclusion or "success") if over else None,
            created_at=run.created_at,
            started_at=None if status == "queued" else run.created_at,
            completed_at=updated if over else None,
        )
