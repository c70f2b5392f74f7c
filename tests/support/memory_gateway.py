"""``Gateway`` in memory: GitHub's REST and GraphQL faces of a ``World``, with request counts as the real client has them."""

from __future__ import annotations

import collections
import datetime
import re
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec

from klaud import errors
from klaud.github import gateway as ports
from klaud.github import model
from tests.support import memory_refs
from tests.support.memory_world import Call, Killed, MemoryClock, Spoil, State, World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from types import TracebackType

T = TypeVar("T")

__all__ = ["Call", "Killed", "MemoryClock", "MemoryGateway", "Spoil", "World", "gateway", "ref_store"]

GRAPHQL_BATCH = 40
"""Heads or numbers asked in one GraphQL request."""
PAGE = 100
SEARCH_LIMIT = 1000
"""GitHub serves at most this many rows of a filtered run listing."""
COMMIT_LIMIT = 250
FILE_LIMIT = 3000


def gateway(world: World, *, account: model.Account | None = None, client: str = "") -> MemoryGateway:
    """Return a client of the world with klaud's account (or another)."""
    return MemoryGateway(world, account=account, client=client)


def ref_store(world: World, *, account: model.Account | None = None, client: str = "") -> memory_refs.MemoryRefStore:
    """Return a ref store of the world with klaud's account (or another)."""
    return memory_refs.MemoryRefStore(world, account=account, client=client)


update = ports.RefUpdate


class MemoryGateway:
    """One client of a world. ``World.denied`` names rights its token lacks, e.g. ``actions:write``, ``pulls:read``."""

    def __init__(self, world: World, *, account: model.Account | None = None, client: str = "") -> None:
        self._world = world
        self._account = account or world.bot
        self._client = client
        self._requests: collections.Counter[str] = collections.Counter()
        self._writes: list[str] = []
        self.limit = 5000
        self.remaining = 5000

    @property
    def requests(self) -> Mapping[str, int]:
        """Requests so far by endpoint template."""
        return self._requests

    @property
    def writes(self) -> Sequence[str]:
        """Writes so far, one line each."""
        return self._writes

    @property
    def rate_limit(self) -> model.RateLimit:
        """What the newest answer said."""
        return model.RateLimit(limit=self.limit, remaining=self.remaining)

    # -- who and where
    def account(self) -> model.Account:
        """Return this client's account."""
        return self._read("account", (), "GET /user", "metadata:read", lambda _: self._account)

    def repository(self) -> model.Repository:
        """Return the repository."""
        return self._read(
            "repository", (), "GET /repos/{owner}/{repo}", "metadata:read", lambda _: self._world.repository
        )

    def may_write(self, account: model.Account) -> bool:
        """Tell whether an account may push here."""
        endpoint = "GET /repos/{owner}/{repo}/collaborators/{username}/permission"
        known = self._world.writers
        return self._read("may_write", (account.id,), endpoint, "metadata:read", lambda _: account.id in known)

    def variable(self, name: str) -> str | model.Missing:
        """Return a variable of the repository."""
        endpoint = "GET /repos/{owner}/{repo}/actions/variables/{name}"
        return self._by_id("variable", name, endpoint, "variables:read", lambda _: self._world.variables.get(name))

    def check_right(self, right: ports.WriteRight, workflow: str = "") -> None:
        """Raise where the token lacks a right."""
        endpoint = "POST /repos/{owner}/{repo}/pulls"
        if right == "actions:write":
            endpoint = "POST /repos/{owner}/{repo}/actions/workflows/{workflow_id}/dispatches"
        self._read("check_right", (right, workflow), endpoint, right, lambda _: None)

    # -- runs
    def run(self, run_id: int) -> model.Run | model.Missing:
        """Return one run."""
        return self._by_id(
            "run",
            run_id,
            "GET /repos/{owner}/{repo}/actions/runs/{run_id}",
            "actions:read",
            lambda s: s.runs.get(run_id),
        )

    def runs(
        self,
        *,
        status: str | None = None,
        actor: str | None = None,
        head_sha: str | None = None,
        event: str | None = None,
        branch: str | None = None,
        created: str | None = None,
        workflow: str | None = None,
    ) -> model.Listing[model.Run]:
        """List runs as GitHub filters them, newest first."""

        def keep(run: model.Run) -> bool:
            return (
                (status is None or status in (run.status, run.conclusion))
                and (actor is None or (run.actor is not None and run.actor.login == actor))
                and (head_sha is None or run.head_sha == head_sha)
                and (event is None or run.event == event)
                and (branch is None or run.head_branch == branch)
                and (created is None or _in_window(run.created_at, created))
                and (workflow is None or run.path.partition("@")[0].rpartition("/")[2] == workflow)
            )

        args = tuple((k, v) for k, v in dict(locals()).items() if isinstance(v, str))
        filtered = bool(status or actor or head_sha or event or branch or created)
        endpoint = "GET /repos/{owner}/{repo}/actions/runs"
        if workflow:
            endpoint = "GET /repos/{owner}/{repo}/actions/workflows/{workflow_id}/runs"
        return self._listing(
            "runs",
            args,
            endpoint,
            "actions:read",
            lambda s: [r for _, r in sorted(s.runs.items(), reverse=True) if keep(r)],
            limit=SEARCH_LIMIT if filtered else None,
        )

    def jobs(self, run_id: int, attempt: int | None = None) -> model.Listing[model.Job]:
        """List a run's jobs."""

        def rows(state: State) -> list[model.Job]:
            if run_id not in state.runs:
                raise errors.ReadFailedError(f"jobs of run {run_id}: 404")
            return [j for j in state.jobs.get(run_id, ()) if attempt is None or j.attempt == attempt]

        return self._listing(
            "jobs", (run_id, attempt), "GET /repos/{owner}/{repo}/actions/runs/{run_id}/jobs", "actions:read", rows
        )

    def artifacts(self, run_id: int) -> model.Listing[model.Artifact]:
        """List a run's artifacts."""
        return self._listing(
            "artifacts",
            (run_id,),
            "GET /repos/{owner}/{repo}/actions/runs/{run_id}/artifacts",
            "actions:read",
            lambda s: list(s.artifacts.get(run_id, ())),
        )

    def download_artifact(self, artifact_id: int, limit: int) -> bytes:
        """Return the zip of an artifact."""

        def blob(state: State) -> bytes:
            data = state.blobs.get(artifact_id)
            if data is None:
                raise errors.ReadFailedError(f"artifact {artifact_id}: gone")
            if len(data) > limit:
                raise errors.ReadFailedError(f"artifact {artifact_id}: above the limit of {limit} bytes")
            return data

        return self._read(
            "download_artifact",
            (artifact_id,),
            "GET /repos/{owner}/{repo}/actions/artifacts/{id}/zip",
            "actions:read",
            blob,
        )

    def workflow(self, file: str) -> model.Workflow | model.Missing:
        """Return one workflow."""
        return self._by_id(
            "workflow",
            file,
            "GET /repos/{owner}/{repo}/actions/workflows/{workflow_id}",
            "actions:read",
            lambda s: s.workflows.get(file),
        )

    # -- pull requests
    def pulls_of_heads(self, heads: Sequence[str]) -> Mapping[str, model.Listing[model.PullDetail]]:
        """Return the pull requests of exactly those heads in this repository."""
        answer: dict[str, model.Listing[model.PullDetail]] = {}
        for start in range(0, len(heads), GRAPHQL_BATCH):
            part = tuple(heads[start : start + GRAPHQL_BATCH])
            with self._call("pulls_of_heads", part, "POST /graphql pulls-of-heads", "pulls:read") as (state, spoil):
                by_head: dict[str, list[model.Pull]] = collections.defaultdict(list)
                for pull in state.pulls.values():
                    if pull.head_repository == self._world.repository.full_name:
                        by_head[pull.head_ref].append(pull)
                for head in part:
                    items = tuple(self._detail(state, p.number) for p in by_head[head])
                    if spoil is Spoil.EMPTY:
                        items = ()
                    short = spoil is Spoil.SHORT
                    answer[head] = model.Listing(
                        items[:-1] if short else items, not short, "cut by a fault" if short else ""
                    )
        return answer

    def pull_details(self, numbers: Sequence[int]) -> Mapping[int, model.PullDetail | model.Missing]:
        """Return pull requests by number with commits and timeline."""
        answer: dict[int, model.PullDetail | model.Missing] = {}
        for start in range(0, len(numbers), GRAPHQL_BATCH):
            part = tuple(numbers[start : start + GRAPHQL_BATCH])
            with self._call("pull_details", part, "POST /graphql pull-details", "pulls:read") as (state, spoil):
                for number in part:
                    gone = spoil is Spoil.MISSING or number not in state.pulls
                    answer[number] = (
                        model.Missing(what=f"pull request {number}") if gone else self._detail(state, number)
                    )
        return answer

    def pull(self, number: int) -> model.Pull | model.Missing:
        """Return one pull request."""
        return self._by_id(
            "pull", number, "GET /repos/{owner}/{repo}/pulls/{pull_number}", "pulls:read", lambda s: s.pulls.get(number)
        )

    def open_pulls(self) -> model.Listing[model.Pull]:
        """List the open pull requests."""
        return self._listing(
            "open_pulls",
            (),
            "GET /repos/{owner}/{repo}/pulls",
            "pulls:read",
            lambda s: [p for _, p in sorted(s.pulls.items(), reverse=True) if p.open],
        )

    def pull_files(self, number: int) -> model.Listing[model.ChangedFile]:
        """List the files of a pull request."""
        return self._listing(
            "pull_files",
            (number,),
            "GET /repos/{owner}/{repo}/pulls/{pull_number}/files",
            "pulls:read",
            lambda s: list(s.files.get(number, ())),
            limit=FILE_LIMIT,
        )

    def timeline(self, number: int) -> model.Listing[model.Event]:
        """List a pull request's timeline."""
        return self._listing(
            "timeline",
            (number,),
            "GET /repos/{owner}/{repo}/issues/{issue_number}/timeline",
            "pulls:read",
            lambda s: list(s.timeline.get(number, ())),
        )

    def pulls_of_commit(self, oid: str) -> model.Listing[model.Pull]:
        """List the pull requests of a commit."""
        return self._listing(
            "pulls_of_commit",
            (oid,),
            "GET /repos/{owner}/{repo}/commits/{commit_sha}/pulls",
            "pulls:read",
            lambda s: [p for n, p in s.pulls.items() if oid == p.head_oid or oid in self._world.commits_of(n, s)],
        )

    # -- contents
    def contents(self, path: str, ref: str, limit: int) -> bytes | model.Missing:
        """Return one file's bytes at a commit."""

        def get(state: State) -> bytes | None:
            data = state.contents.get((ref, path))
            if data is not None and len(data) > limit:
                raise errors.ReadFailedError(f"{path}: above the limit of {limit} bytes")
            return data

        return self._by_id("contents", (path, ref), "GET /repos/{owner}/{repo}/contents/{path}", "contents:read", get)

    def merge_base(self, base: str, head: str) -> str | model.Missing:
        """Return where ``head`` left ``base``."""

        def get(state: State) -> str | None:
            trunk = set(self._world.ancestors(state.refs.get(f"refs/heads/{base}", base), state))
            return next((oid for oid in self._world.ancestors(head, state) if oid in trunk), None)

        return self._by_id(
            "merge_base", (base, head), "GET /repos/{owner}/{repo}/compare/{basehead}", "contents:read", get
        )

    # -- writes
    def create_pull(self, *, head: str, base: str, title: str, body: str, draft: bool) -> model.Pull:
        """Open a pull request."""

        def do() -> model.Pull:
            state = self._world.state
            if f"refs/heads/{head}" not in state.refs:
                raise errors.RefusedWriteError(
                    "create pull: 422 head does not exist", status=422, reason="head invalid"
                )
            if any(p.open and p.head_ref == head and p.base_ref == base for p in state.pulls.values()):
                raise errors.RefusedWriteError(
                    "create pull: 422 one exists", status=422, reason="A pull request already exists"
                )
            number = self._world.open_pull(head, by=self._account, draft=draft, title=title, body=body)
            return state.pulls[number]

        return self._write("create_pull", (head,), "POST /repos/{owner}/{repo}/pulls", "pulls:write", do)

    def comment(self, number: int, body: str) -> int:
        """Comment on a pull request."""
        return self._write(
            "comment",
            (number, body),
            "POST /repos/{owner}/{repo}/issues/{issue_number}/comments",
            "pulls:write",
            lambda: self._world.comment(self._known(number), body, by=self._account),
        )

    def close_pull(self, number: int) -> None:
        """Close a pull request."""
        self._write(
            "close_pull",
            (number,),
            "PATCH /repos/{owner}/{repo}/pulls/{pull_number}",
            "pulls:write",
            lambda: self._world.close(self._known(number), by=self._account),
        )

    def reopen_pull(self, number: int) -> None:
        """Reopen a pull request."""

        def do() -> None:
            if not self._world.reopen(self._known(number), by=self._account):
                raise errors.RefusedWriteError(f"reopen {number}: 422", status=422, reason="state cannot be changed")

        self._write("reopen_pull", (number,), "PATCH /repos/{owner}/{repo}/pulls/{pull_number}", "pulls:write", do)

    def edit_pull(self, number: int, *, title: str | None = None, body: str | None = None) -> None:
        """Change title or body."""

        def do() -> None:
            if title is not None:
                self._world.rename(self._known(number), title, by=self._account)
            if body is not None:
                self._world.edit_body(self._known(number), body, by=self._account)

        self._write("edit_pull", (number,), "PATCH /repos/{owner}/{repo}/pulls/{pull_number}", "pulls:write", do)

    def add_labels(self, number: int, labels: Sequence[str]) -> tuple[str, ...]:
        """Add labels."""

        def do() -> tuple[str, ...]:
            for label in labels:
                self._world.label(self._known(number), label, by=self._account)
            return self._world.state.pulls[number].labels

        return self._write(
            "add_labels",
            (number, *labels),
            "POST /repos/{owner}/{repo}/issues/{issue_number}/labels",
            "pulls:write",
            do,
        )

    def remove_label(self, number: int, label: str) -> None:
        """Remove one label."""
        self._write(
            "remove_label",
            (number, label),
            "DELETE /repos/{owner}/{repo}/issues/{issue_number}/labels/{name}",
            "pulls:write",
            lambda: self._world.unlabel(self._known(number), label, by=self._account),
        )

    def convert_to_draft(self, node_id: str) -> None:
        """Turn it into a draft."""
        self._write(
            "convert_to_draft",
            (node_id,),
            "POST /graphql convert-to-draft",
            "pulls:write",
            lambda: self._world.to_draft(self._node(node_id), by=self._account),
        )

    def mark_ready(self, node_id: str) -> None:
        """Mark it ready."""
        self._write(
            "mark_ready",
            (node_id,),
            "POST /graphql mark-ready",
            "pulls:write",
            lambda: self._world.ready(self._node(node_id), by=self._account),
        )

    def dispatch(self, workflow: str, ref: str, inputs: Mapping[str, str]) -> model.Dispatched:
        """Start a workflow."""

        def do() -> model.Dispatched:
            world = self._world
            if world.on_dispatch is not None:
                run_id = world.on_dispatch(workflow, ref, dict(inputs))
            else:
                title = ""
                if "candidate" in inputs:
                    title = (
                        f"klaud candidate {inputs['candidate']} [klaud {inputs.get('wave', '')}-{inputs['candidate']}]"
                    )
                head = world.state.refs.get(f"refs/heads/{ref}", world.main)
                run_id = world.add_run(workflow, actor=self._account, head=head, branch=ref, title=title)
            return model.Dispatched(run_id=run_id if world.dispatch_tells_id else None)

        return self._write(
            "dispatch",
            (workflow, ref, tuple(sorted(inputs.items()))),
            "POST /repos/{owner}/{repo}/actions/workflows/{workflow_id}/dispatches",
            "actions:write",
            do,
        )

    def cancel_run(self, run_id: int, *, force: bool = False) -> Literal["accepted", "already-finished"]:
        """Ask for a run's cancellation."""

        def do() -> Literal["accepted", "already-finished"]:
            if run_id not in self._world.state.runs:
                raise errors.RefusedWriteError(f"cancel {run_id}: 404", status=404, reason="Not Found")
            answer = self._world.cancel(run_id, force=force)
            if answer == "refused":
                raise errors.RefusedWriteError(
                    f"cancel {run_id}: 409", status=409, reason="Cannot cancel a workflow run"
                )
            return "accepted" if answer == "accepted" else "already-finished"

        word = "force-cancel" if force else "cancel"
        return self._write(
            "cancel_run",
            (run_id, force),
            f"POST /repos/{{owner}}/{{repo}}/actions/runs/{{run_id}}/{word}",
            "actions:write",
            do,
        )

    # -- how
    def _call(self, name: str, args: tuple[Any, ...], endpoint: str, right: str, *, write: bool = False) -> _Counted:
        return _Counted(self, name, args, endpoint, right, write=write)

    def _read(self, name: str, args: tuple[Any, ...], endpoint: str, right: str, get: Callable[[State], T]) -> T:
        with self._call(name, args, endpoint, right) as (state, _):
            return get(state)

    def _by_id(
        self, name: str, key: Any, endpoint: str, right: str, get: Callable[[State], T | None]
    ) -> T | model.Missing:
        with self._call(name, (key,), endpoint, right) as (state, spoil):
            found = None if spoil is Spoil.MISSING else get(state)
            return model.Missing(what=f"{name} {key}") if found is None else found

    def _listing(
        self,
        name: str,
        args: tuple[Any, ...],
        endpoint: str,
        right: str,
        get: Callable[[State], Iterable[T]],
        *,
        limit: int | None = None,
    ) -> model.Listing[T]:
        with self._call(name, args, endpoint, right) as (state, spoil):
            rows = tuple(get(state))
            if spoil is Spoil.EMPTY:
                rows = ()
            complete = limit is None or len(rows) <= limit
            served = rows if limit is None else rows[:limit]
            self.count(endpoint, max(0, -(-len(served) // PAGE) - 1))
            if spoil is Spoil.SHORT:
                return model.Listing(served[:-1], complete=False, why_not="cut by a fault")
            return model.Listing(served, complete, "" if complete else f"{len(rows)} rows, {limit} served")

    def _write(self, name: str, args: tuple[Any, ...], endpoint: str, right: str, do: Callable[[], T]) -> T:
        with self._call(name, args, endpoint, right, write=True) as (_, spoil):
            self._writes.append(f"{endpoint} {' '.join(str(a)[:60] for a in args)}")
            if spoil is Spoil.REFUSE:
                raise errors.RefusedWriteError(f"{name}: 422", status=422, reason="Unprocessable")
            if spoil is Spoil.FAIL:
                raise errors.UnclearWriteError(f"{name}: 502")
            answer = do()
            if spoil is Spoil.LOSE:
                raise errors.UnclearWriteError(f"{name}: connection cut before the answer")
            return answer

    def count(self, endpoint: str, more: int = 1) -> None:
        """Count requests of an endpoint."""
        if more:
            self._requests[endpoint] += more
            self.remaining -= more

    def _known(self, number: int) -> int:
        if number not in self._world.state.pulls:
            raise errors.RefusedWriteError(f"pull request {number}: 404", status=404, reason="Not Found")
        return number

    def _node(self, node_id: str) -> int:
        return self._known(int(node_id.removeprefix("PR_")))

    def _detail(self, state: State, number: int) -> model.PullDetail:
        pull = state.pulls[number]
        oids = self._world.commits_of(number, state)
        commits = tuple(
            model.Commit(
                oid=oid,
                author=state.objects[oid].author,
                committer=state.objects[oid].committer,
                message=state.objects[oid].message.decode(),
            )
            for oid in oids[:COMMIT_LIMIT]
        )
        short = len(oids) > COMMIT_LIMIT
        return model.PullDetail(
            pull=msgspec.structs.replace(pull, commit_count=len(oids)),
            commits=model.Listing(commits, not short, "250 commits served" if short else ""),
            timeline=model.Listing(state.timeline.get(number, ())),
        )


class _Counted:
    """One call of the world with the gateway's counting and the rights of its token."""

    def __init__(
        self, owner: MemoryGateway, name: str, args: tuple[Any, ...], endpoint: str, right: str, *, write: bool
    ) -> None:
        self._owner = owner
        self._right = right
        self._name = name
        owner.count(endpoint)
        world = owner._world
        self._inner = world.call(name, args, write=write, client=owner._client)
        self._write = write

    def __enter__(self) -> tuple[State, Spoil | None]:
        state, spoil = self._inner.__enter__()
        try:
            if spoil is Spoil.FORBID or self._right in self._owner._world.denied:
                raise errors.ForbiddenError(f"{self._name}: 403, the token lacks {self._right}")
            if spoil is Spoil.FAIL and not self._write:
                raise errors.ReadFailedError(f"{self._name}: 502 after all tries")
        except errors.KlaudError as error:
            if not self._inner.__exit__(type(error), error, error.__traceback__):
                raise
        return state, spoil

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._inner.__exit__(kind, value, trace)


_WINDOW = re.compile(r"(>=|<=|>|<)?([0-9T:Z+-]+)(?:\.\.([0-9T:Z+-]+))?")


def _in_window(at: datetime.datetime, created: str) -> bool:
    found = _WINDOW.fullmatch(created)
    assert found is not None, f"a created filter that GitHub would not know: {created}"
    sign, first, last = found.groups()
    if last:
        return _time(first) <= at <= _time(last, end=True)
    if sign == ">=":
        return at >= _time(first)
    if sign == ">":
        return at > _time(first, end=True)
    if sign == "<=":
        return at <= _time(first, end=True)
    if sign == "<":
        return at < _time(first)
    return _time(first) <= at <= _time(first, end=True)


def _time(text: str, *, end: bool = False) -> datetime.datetime:
    if "T" not in text:
        text += "T23:59:59Z" if end else "T00:00:00Z"
    return datetime.datetime.fromisoformat(text)
