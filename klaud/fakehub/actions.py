"""Actions: which event starts which workflow, and how its runs go through their life.

Workflow files are read from the repository itself: of the default branch for most events, of the pull request's head for
``pull_request``, of the ref named for a dispatch. A run is queued until its handler may start (concurrency, at most
``Settings.concurrent_jobs`` at once); a scripted one moves on the hub's clock; one with neither stays queued.
"""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import io
import zipfile
from typing import TYPE_CHECKING, Any

from klaud.fakehub import expressions, workflowfile
from klaud.fakehub.call import Problem, invalid
from klaud.fakehub.jobs import Script
from klaud.fakehub.runner import Runner
from klaud.fakehub.state import Artifact, Attempt, Change, Job, Run, Workflow

if TYPE_CHECKING:
    from collections.abc import Mapping

    from klaud.fakehub.hub import Hub
    from klaud.fakehub.jobs import Handler
    from klaud.fakehub.state import Issue, Repository
    from klaud.fakehub.workflowfile import WorkflowFile

DIRECTORY = ".github/workflows"

RETENTION = datetime.timedelta(days=90)
"""How long an artifact is kept where nobody says otherwise, as on GitHub."""

FIRST_RUN_ID = 19_000_000_001
"""Where run ids begin: as large as GitHub's own, so that nobody takes them for 32-bit numbers."""

CONCLUSIONS_OF_CANCEL = "cancelled"
INPUTS_LIMIT = 25


@dataclasses.dataclass(frozen=True)
class Trigger:
    """An event with all that its runs need."""

    event: str
    action: str
    payload: Mapping[str, Any]
    actor: int | None
    branch: str | None
    filter_branch: str | None
    oid: str
    source_oid: str
    title: str
    pulls: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    paths: tuple[str, ...] | None = None


class Actions:
    """The workflows and runs of a hub."""

    def __init__(self, hub: Hub) -> None:
        """Serve ``hub``."""
        self._hub = hub
        self._files: dict[tuple[str, str], dict[str, WorkflowFile]] = {}
        self.runner = Runner(hub)

    # -- workflow files

    def files(self, repository: Repository, oid: str) -> dict[str, WorkflowFile]:
        """Return the workflow files at a commit by path; a file that is no workflow is left out."""
        git = self._hub.git(repository.full_name)
        entry = git.entry(oid, DIRECTORY)
        if entry is None:
            return {}
        key = (repository.full_name, entry[1])
        if key not in self._files:
            found = {}
            for name, _, blob in git.tree(entry[1]) or []:
                path = f"{DIRECTORY}/{name}"
                if name.endswith((".yml", ".yaml")):
                    try:
                        found[path] = workflowfile.parse(path, (git.blob(blob) or b"").decode(errors="replace"))
                    except workflowfile.WorkflowFileError:
                        continue
            self._files[key] = found
        return self._files[key]

    def register(self, repository: Repository) -> None:
        """Give every workflow file of the default branch its id."""
        head = self._hub.git(repository.full_name).ref(f"refs/heads/{repository.default_branch}")
        for path, file in self.files(repository, head).items() if head else ():
            self.workflow(repository, path, file.name)

    def workflow(self, repository: Repository, path: str, name: str = "") -> Workflow:
        """Return the workflow of a file, registered where it is not yet."""
        if path not in repository.workflows:
            number = self._hub.state.next_id("workflow", 40001)
            repository.workflows[path] = Workflow(number, path, name or path, created_at=self._hub.clock.now())
        workflow = repository.workflows[path]
        workflow.name = name or workflow.name
        return workflow

    def find(self, repository: Repository, text: str) -> Workflow | None:
        """Return the workflow that an id or a file name names."""
        self.register(repository)
        for workflow in repository.workflows.values():
            if text == str(workflow.id) or text in (workflow.path, workflow.path.rpartition("/")[2]):
                return workflow
        return None

    def handler(self, path: str) -> Handler | None:
        """Return the handler of a workflow file, registered by its name or its path."""
        handlers = self._hub.handlers
        return handlers.get(path) or handlers.get(path.rpartition("/")[2])

    # -- events

    def fire(
        self,
        repository: Repository,
        event: str,
        *,
        action: str = "",
        payload: Mapping[str, Any] | None = None,
        issue: Issue | None = None,
        ref: str | None = None,
        oid: str | None = None,
        actor: int | None = None,
        via: str = "pat",
        names: tuple[str, ...] = (),
        branch: str | None = None,
    ) -> list[Run]:
        """Start the workflows that listen to an event; what a job's own token caused starts none."""
        if via == "github_token" and event not in ("repository_dispatch", "workflow_run"):
            return []
        git = self._hub.git(repository.full_name)
        head = git.ref(f"refs/heads/{repository.default_branch}")
        if head is None:
            return []
        self.register(repository)
        made: list[Run] = []
        for kind in (event, "pull_request_target") if event == "pull_request" else (event,):
            source, at = head, head
            trigger_branch: str | None = repository.default_branch
            filter_branch: str | None = branch
            title = ""
            pulls: tuple[int, ...] = ()
            part = issue.pull if issue else None
            if issue is not None and part is not None:
                trigger_branch, at, filter_branch = part.head_ref, part.head_oid, part.base_ref
                title, pulls = issue.title, (issue.number,)
                if kind == "pull_request":
                    source = part.head_oid
                    if part.mergeable == "CONFLICTING":
                        continue
            elif event == "push" and ref is not None and oid is not None:
                source, at = oid, oid
                trigger_branch = filter_branch = ref.removeprefix("refs/heads/").removeprefix("refs/tags/")
                info = git.commit(oid)
                title = info.message.partition("\n")[0] if info else ""
            found = self._listening(
                repository, kind, action=action, source=source, branch=filter_branch, names=names, payload=payload or {}
            )
            if not found:
                continue
            trigger = Trigger(
                event=kind,
                action=action,
                payload=self._payload(repository, issue, payload or {}, actor),
                actor=actor,
                branch=trigger_branch,
                filter_branch=filter_branch,
                oid=at,
                source_oid=source,
                title=title,
                pulls=pulls,
                names=names,
            )
            made += [self.new_run(repository, file, trigger) for file in found]
        return made

    def _listening(
        self,
        repository: Repository,
        event: str,
        *,
        action: str,
        source: str,
        branch: str | None,
        names: tuple[str, ...],
        payload: Mapping[str, Any],
    ) -> list[WorkflowFile]:
        found = []
        for file in self.files(repository, source).values():
            known = repository.workflows.get(file.path)
            if known is not None and known.state != "active":
                continue
            if event not in file.on:
                continue
            filters = file.on[event]
            paths: list[str] | None = None
            if filters.get("paths") or filters.get("paths-ignore"):
                paths = self._paths(repository, event, source, payload)
            if file.listens(event, action=action, branch=branch, names=names, paths=paths):
                found.append(file)
        return found

    def _paths(self, repository: Repository, event: str, source: str, payload: Mapping[str, Any]) -> list[str] | None:
        git = self._hub.git(repository.full_name)
        if event == "push":
            before = payload.get("before")
            known = isinstance(before, str) and git.commit(before) is not None
            return [change.path for change in git.changes(before if known else None, source)]
        number = payload.get("number")
        issue = repository.issues.get(number) if isinstance(number, int) else None
        if issue is None or issue.pull is None:
            return None
        base = git.merge_base(issue.pull.base_oid, issue.pull.head_oid)
        return [change.path for change in git.changes(base, issue.pull.head_oid)]

    def _payload(
        self, repository: Repository, issue: Issue | None, payload: Mapping[str, Any], actor: int | None
    ) -> dict[str, Any]:
        render = self._hub.renderer()
        body = dict(payload)
        if issue is not None and issue.pull is not None:
            body["pull_request"] = render.simple_pull(repository, issue)
        if isinstance(body.get("label"), str):
            body["label"] = render.label(repository, self._hub.label(repository, body["label"]))
        body["repository"] = render.minimal_repository(repository) | {"default_branch": repository.default_branch}
        body["sender"] = render.user(actor)
        return body

    def dispatch(
        self,
        repository: Repository,
        workflow: Workflow,
        *,
        ref: str,
        inputs: Mapping[str, Any],
        actor: int | None,
        visible_after: float = 0,
    ) -> Run:
        """Start a workflow by hand, with GitHub's refusals."""
        git = self._hub.git(repository.full_name)
        branch = ref.removeprefix("refs/heads/")
        oid = git.ref(f"refs/heads/{branch}") or git.ref(f"refs/tags/{ref.removeprefix('refs/tags/')}")
        if oid is None:
            raise Problem(422, f"No ref found for: {ref}")
        if workflow.state != "active":
            raise Problem(422, "Cannot trigger a 'workflow_dispatch' on a disabled workflow")
        file = self.files(repository, oid).get(workflow.path)
        if file is None or "workflow_dispatch" not in file.on:
            raise Problem(422, "Workflow does not have 'workflow_dispatch' trigger")
        given = check_inputs(file, inputs)
        trigger = Trigger(
            event="workflow_dispatch",
            action="",
            payload=self._payload(
                repository, None, {"inputs": given, "ref": f"refs/heads/{branch}", "workflow": workflow.path}, actor
            ),
            actor=actor,
            branch=branch,
            filter_branch=branch,
            oid=oid,
            source_oid=oid,
            title="",
        )
        run = self.new_run(repository, file, trigger, inputs=given)
        if visible_after:
            run.visible_at = self._hub.clock.now() + datetime.timedelta(seconds=visible_after)
        return run

    def fire_schedule(self, repository: Repository, file: str) -> list[Run]:
        """Start a workflow as its schedule would."""
        workflow = self.find(repository, file)
        head = self._hub.git(repository.full_name).ref(f"refs/heads/{repository.default_branch}")
        if workflow is None or head is None:
            return []
        spec = self.files(repository, head).get(workflow.path)
        if spec is None or "schedule" not in spec.on or workflow.state != "active":
            return []
        owner = self._hub.state.account_of(login=repository.owner)
        actor = owner.id if owner else None
        trigger = Trigger(
            event="schedule", action="", payload=self._payload(repository, None, {}, actor), actor=actor,
            branch=repository.default_branch, filter_branch=None, oid=head, source_oid=head, title="",
        )  # fmt: skip
        return [self.new_run(repository, spec, trigger)]

    # -- runs

    def new_run(
        self, repository: Repository, file: WorkflowFile, trigger: Trigger, *, inputs: Mapping[str, str] | None = None
    ) -> Run:
        """Make a run, queued."""
        state, now = self._hub.state, self._hub.clock.now()
        workflow = self.workflow(repository, file.path, file.name)
        number = sum(1 for run in repository.runs.values() if run.workflow_id == workflow.id) + 1
        run = Run(
            id=state.next_id("run", FIRST_RUN_ID),
            workflow_id=workflow.id,
            path=file.path,
            name=file.name,
            number=number,
            event=trigger.event,
            head_branch=trigger.branch,
            head_oid=trigger.oid,
            source_oid=trigger.source_oid,
            display_title=trigger.title or file.name,
            actor=trigger.actor,
            created_at=now,
            attempts=[Attempt(1, trigger.actor, "queued", None, now, now)],
            inputs=dict(inputs or {}),
            payload=dict(trigger.payload),
            pulls=list(trigger.pulls),
        )
        repository.runs[run.id] = run
        scope = self.context(repository, run)
        if file.run_name:
            run.display_title = expressions.substitute(file.run_name, scope)
        if file.group:
            run.concurrency = expressions.substitute(file.group, scope)
            self._make_room(repository, run, cancel=expressions.truthy(_boolean(file.cancel_in_progress, scope)))
        self.make_jobs(run, file)
        handler = self.handler(file.path)
        if isinstance(handler, Script):
            run.script = scripted(handler, now)
        self.changed(repository, run, "requested")
        return run

    def make_jobs(self, run: Run, file: WorkflowFile) -> None:
        """Give the newest attempt its jobs."""
        state, now = self._hub.state, self._hub.clock.now()
        for spec in file.ordered_jobs():
            job = Job(state.next_id("job", 50_000_001), run.id, run.last.number, spec.key, spec.name, created_at=now)
            run.last.jobs.append(job)

    def context(self, repository: Repository, run: Run) -> dict[str, Any]:
        """Return what expressions of a run can see."""
        account = self._hub.state.account(run.actor)
        triggering = self._hub.state.account(run.last.triggering_actor)
        return {
            "github": {
                "event": run.payload | ({"inputs": run.inputs} if run.inputs else {}),
                "event_name": run.event,
                "actor": account.login if account else "",
                "triggering_actor": triggering.login if triggering else "",
                "actor_id": str(account.id) if account else "",
                "run_id": str(run.id),
                "run_number": str(run.number),
                "run_attempt": str(run.last.number),
                "repository": repository.full_name,
                "repository_owner": repository.owner,
                "sha": run.source_oid or run.head_oid,
                "ref": f"refs/heads/{run.head_branch}",
                "ref_name": run.head_branch or "",
                "head_ref": run.head_branch if run.event.startswith("pull_request") else "",
                "workflow": run.name,
                "server_url": self._hub.base_url,
                "api_url": self._hub.base_url,
            },
            "inputs": run.inputs,
            "vars": repository.variables,
            "needs": {},
            "env": {},
        }

    def changed(self, repository: Repository, run: Run, action: str) -> None:
        """Tell the workflows that listen to this run: ``requested``, ``in_progress`` or ``completed``."""
        run.last.updated_at = self._hub.clock.now()
        if run.event == "workflow_run" and action == "requested":
            return
        payload = {"action": action, "workflow_run": self._hub.renderer().run(repository, run)}
        self.fire(
            repository,
            "workflow_run",
            action=action,
            payload=payload,
            actor=run.actor,
            names=(run.name,),
            branch=run.head_branch,
        )

    def set_status(self, repository: Repository, run: Run, status: str, conclusion: str | None = None) -> None:
        """Move a run (and the jobs that follow it) to a status."""
        now = self._hub.clock.now()
        was = run.status
        run.last.status, run.last.conclusion = status, conclusion if status == "completed" else None
        for job in run.last.jobs:
            if job.status == "completed":
                continue
            if status == "in_progress":
                job.status, job.started_at = "in_progress", job.started_at or now
            elif status == "completed":
                job.status, job.conclusion, job.completed_at = "completed", conclusion, now
                job.started_at = job.started_at or now
        run.last.updated_at = now
        if status != was and status in ("in_progress", "completed"):
            self.changed(repository, run, status)

    def _make_room(self, repository: Repository, run: Run, *, cancel: bool) -> None:
        """Keep one pending run of a concurrency group: an older one is cancelled."""
        for other in list(repository.runs.values()):
            if other.id == run.id or other.concurrency != run.concurrency or other.status == "completed":
                continue
            if other.status == "queued" or cancel:
                self.cancel(repository, other)

    def may_start(self, repository: Repository, run: Run) -> bool:
        """Tell whether a queued run's concurrency group is free."""
        if run.concurrency is None:
            return True
        return not any(
            other.id != run.id and other.concurrency == run.concurrency and other.status == "in_progress"
            for other in repository.runs.values()
        )

    def cancel(self, repository: Repository, run: Run, *, force: bool = False) -> None:
        """Cancel a run, with GitHub's 409 where it is over; ``on_cancel`` of the run may make it do nothing or refuse."""
        if run.status == "completed":
            raise Problem(409, "Cannot cancel a workflow run that is completed.")
        answer = run.on_force_cancel if force else run.on_cancel
        if answer == "refuse":
            raise Problem(
                409, "Cannot cancel a workflow run that is completed." if not force else "Cannot force cancel."
            )
        if answer == "ignore":
            return
        if self.runner.cancel(run, force=force):
            return
        run.script = []
        self.set_status(repository, run, "completed", CONCLUSIONS_OF_CANCEL)

    def rerun(self, repository: Repository, run: Run, *, actor: int | None) -> None:
        """Start a new attempt."""
        if run.status != "completed":
            raise Problem(403, "This workflow is already running")
        now = self._hub.clock.now()
        run.attempts.append(Attempt(run.last.number + 1, actor, "queued", None, now, now))
        file = self.files(repository, run.source_oid or run.head_oid).get(run.path)
        if file is not None:
            self.make_jobs(run, file)
        handler = self.handler(run.path)
        if isinstance(handler, Script):
            run.script = scripted(handler, now)

    def publish(self, run: Run, name: str, files: Mapping[str, bytes]) -> Artifact:
        """Add an artifact to a run: a zip of these files."""
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for path, data in files.items():
                archive.writestr(zipfile.ZipInfo(path), data, zipfile.ZIP_DEFLATED)
        return self.publish_zip(run, name, buffer.getvalue())

    def publish_zip(self, run: Run, name: str, data: bytes) -> Artifact:
        """Add an artifact whose bytes are given as they are."""
        with self._hub.lock:
            number = self._hub.state.next_id("artifact", 60_000_001)
            directory = self._hub.root / "artifacts"
            directory.mkdir(exist_ok=True)
            path = directory / f"{number}.zip"
            path.write_bytes(data)
            now = self._hub.clock.now()
            digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
            made = Artifact(number, run.id, name, path, len(data), digest, now, now + RETENTION)
            run.artifacts.append(made)
            return made

    # -- time

    def tick(self) -> None:
        """Move the scripted runs that are due, and start what may start."""
        now = self._hub.clock.now()
        for repository in self._hub.state.repositories.values():
            for run in list(repository.runs.values()):
                if run.status == "completed":
                    continue
                while run.script and run.script[0].at <= now:
                    change = run.script.pop(0)
                    if change.status == "completed":
                        self._publish_scripted(run)
                    self.set_status(repository, run, change.status, change.conclusion)
                if run.status == "queued" and not run.script:
                    handler = self.handler(run.path)
                    if handler is not None and not isinstance(handler, Script) and self.may_start(repository, run):
                        self.runner.start(repository, run, handler)

    def _publish_scripted(self, run: Run) -> None:
        handler = self.handler(run.path)
        if isinstance(handler, Script):
            for name, files in handler.artifacts.items():
                self.publish(run, name, {path: text.encode() for path, text in files.items()})


def scripted(script: Script, start: datetime.datetime) -> list[Change]:
    """Return a script's changes with their times."""
    changes = []
    at = start
    for step in script.steps:
        at += datetime.timedelta(seconds=step.after)
        changes.append(Change(at, step.status, step.conclusion))
    return changes


def _boolean(text: str, scope: Mapping[str, Any]) -> Any:
    return expressions.evaluate(text, scope)


def check_inputs(file: WorkflowFile, inputs: Mapping[str, Any]) -> dict[str, str]:
    """Return the inputs of a dispatch with defaults filled in; GitHub's 422 where they do not fit the file."""
    if len(inputs) > INPUTS_LIMIT:
        raise invalid(f"you may only define up to {INPUTS_LIMIT} `inputs` for a `workflow_dispatch` event")
    unexpected = [name for name in inputs if name not in file.inputs]
    if unexpected:
        raise Problem(422, "Unexpected inputs provided: " + str([*unexpected]).replace("'", '"'))
    given: dict[str, str] = {}
    for name, spec in file.inputs.items():
        value = expressions.text_of(inputs[name]) if name in inputs else spec.default
        if spec.required and name not in inputs and not spec.default:
            raise Problem(422, f"Required input '{name}' not provided")
        if spec.kind == "choice" and value and value not in spec.options:
            raise Problem(422, f"Provided value '{value}' for input '{name}' not in the list of allowed values")
        if spec.kind == "boolean" and value.lower() not in ("true", "false", ""):
            raise Problem(422, f"Provided value '{value}' for input '{name}' is not a boolean")
        given[name] = value
    return given
