"""REST answers to records: tolerant of fields klaud does not know, strict on those it needs.

Each wire struct names only what is read, so a new field of GitHub's changes nothing and a missing needed one is an error
of that answer (``UndecodableError``), never a default. ``null`` accounts stay None (a deleted account: a person). A row of
a page that is ``null`` or unreadable is dropped and counted, so that its listing says it is incomplete and the others stay
good; a page of which no row can be read is not as documented.
"""

from __future__ import annotations

import base64
import binascii
import datetime
from typing import Any, Generic, TypeVar

import msgspec

from klaud.github import model

T = TypeVar("T")


class UndecodableError(ValueError):
    """An answer of the host lacks a needed field, or is no JSON at all."""


class Page(msgspec.Struct, Generic[T], frozen=True):
    """One decoded page: its rows, how many were ``null`` or unreadable, and the host's ``total_count`` where it gave one."""

    rows: tuple[T, ...]
    dropped: int = 0
    total: int | None = None


class _User(msgspec.Struct):
    id: int
    login: str
    type: str = "User"


class _Repo(msgspec.Struct):
    full_name: str


class _Head(msgspec.Struct):
    ref: str
    sha: str
    repo: _Repo | None = None


class _Base(msgspec.Struct):
    ref: str


class _Label(msgspec.Struct):
    name: str


class _Pull(msgspec.Struct):
    number: int
    node_id: str
    state: str
    title: str
    head: _Head
    base: _Base
    created_at: datetime.datetime
    updated_at: datetime.datetime
    labels: list[_Label]
    user: _User | None = None
    draft: bool = False
    body: str | None = None
    closed_at: datetime.datetime | None = None
    merged_at: datetime.datetime | None = None
    mergeable: bool | None = None
    commits: int | None = None


class _Run(msgspec.Struct):
    id: int
    head_sha: str
    path: str
    event: str
    created_at: datetime.datetime
    updated_at: datetime.datetime
    status: str | None = None
    run_attempt: int = 1
    conclusion: str | None = None
    head_branch: str | None = None
    display_title: str = ""
    actor: _User | None = None
    triggering_actor: _User | None = None
    workflow_id: int = 0


class _Job(msgspec.Struct):
    id: int
    run_id: int
    name: str
    status: str
    run_attempt: int = 1
    conclusion: str | None = None
    started_at: datetime.datetime | None = None
    completed_at: datetime.datetime | None = None


class _Artifact(msgspec.Struct):
    id: int
    name: str
    size_in_bytes: int
    expired: bool
    digest: str | None = None


class _Workflow(msgspec.Struct):
    id: int
    name: str
    path: str
    state: str


class _Repository(msgspec.Struct):
    id: int
    full_name: str
    default_branch: str
    private: bool = False
    permissions: dict[str, bool] = {}


class _Permission(msgspec.Struct):
    permission: str
    user: _User


class _Variable(msgspec.Struct):
    value: str


class _File(msgspec.Struct):
    filename: str
    status: str
    previous_filename: str | None = None


class _Stamp(msgspec.Struct):
    date: datetime.datetime | None = None


class _Comment(msgspec.Struct):
    user: _User | None = None
    created_at: datetime.datetime | None = None


class _Event(msgspec.Struct):
    event: str
    id: int | None = None
    node_id: str = ""
    sha: str = ""
    actor: _User | None = None
    user: _User | None = None
    committer: _Stamp | None = None
    created_at: datetime.datetime | None = None
    submitted_at: datetime.datetime | None = None
    label: _Label | None = None
    comments: list[_Comment] = []


class _Content(msgspec.Struct):
    type: str
    size: int = 0
    sha: str = ""
    encoding: str = ""
    content: str = ""


class _Blob(msgspec.Struct):
    content: str
    encoding: str


class _GitObject(msgspec.Struct):
    sha: str


class _Ref(msgspec.Struct):
    ref: str
    object: _GitObject


class _Person(msgspec.Struct):
    name: str = ""
    email: str = ""


class _GitCommit(msgspec.Struct):
    sha: str
    message: str
    tree: _GitObject
    parents: list[_GitObject]
    author: _Person
    committer: _Person


class _Numbered(msgspec.Struct):
    id: int


class _Compared(msgspec.Struct):
    merge_base_commit: _GitObject


class _Dispatched(msgspec.Struct):
    workflow_run_id: int | None = None


def _typed(body: str | bytes, to: Any) -> Any:
    try:
        return msgspec.json.decode(body, type=to, strict=True)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        msg = f"an answer that is not as documented ({error})"
        raise UndecodableError(msg) from error


def _account(user: _User | None) -> model.Account | None:
    return None if user is None else model.Account(id=user.id, login=user.login, type=user.type)


def account(body: str) -> model.Account:
    """Decode ``GET /user``."""
    user: _User = _typed(body, _User)
    return model.Account(id=user.id, login=user.login, type=user.type)


def repository(body: str) -> model.Repository:
    """Decode ``GET /repos/{owner}/{repo}``."""
    found: _Repository = _typed(body, _Repository)
    return model.Repository(
        id=found.id,
        full_name=found.full_name,
        default_branch=found.default_branch,
        private=found.private,
        permissions=found.permissions,
    )


def may_write(body: str) -> int | None:
    """Decode ``GET /repos/{owner}/{repo}/collaborators/{username}/permission``: the account's id if it may push."""
    found: _Permission = _typed(body, _Permission)
    return found.user.id if found.permission in {"admin", "write"} else None


def variable(body: str) -> str:
    """Decode ``GET /repos/{owner}/{repo}/actions/variables/{name}``."""
    found: _Variable = _typed(body, _Variable)
    return found.value


def pull(body: str) -> model.Pull:
    """Decode one pull request."""
    return _pull(_typed(body, _Pull))


def _pull(wire: _Pull) -> model.Pull:
    mergeable = {True: "MERGEABLE", False: "CONFLICTING", None: "UNKNOWN"}[wire.mergeable]
    return model.Pull(
        number=wire.number,
        node_id=wire.node_id,
        state=wire.state,
        merged=wire.merged_at is not None,
        draft=wire.draft,
        title=wire.title,
        body=wire.body or "",
        author=_account(wire.user),
        head_ref=wire.head.ref,
        head_oid=wire.head.sha,
        head_repository=None if wire.head.repo is None else wire.head.repo.full_name,
        base_ref=wire.base.ref,
        labels=tuple(label.name for label in wire.labels),
        created_at=wire.created_at,
        updated_at=wire.updated_at,
        closed_at=wire.closed_at,
        merged_at=wire.merged_at,
        mergeable=mergeable,
        commit_count=wire.commits,
    )


def run(body: str) -> model.Run:
    """Decode one workflow run."""
    return _run(_typed(body, _Run))


def _run(wire: _Run) -> model.Run:
    return model.Run(
        id=wire.id,
        attempt=wire.run_attempt,
        status=wire.status or "",
        conclusion=wire.conclusion,
        event=wire.event,
        head_branch=wire.head_branch,
        head_sha=wire.head_sha,
        path=wire.path,
        display_title=wire.display_title,
        actor=_account(wire.actor),
        triggering_actor=_account(wire.triggering_actor),
        created_at=wire.created_at,
        updated_at=wire.updated_at,
        workflow_id=wire.workflow_id,
    )


def _job(wire: _Job) -> model.Job:
    return model.Job(
        id=wire.id,
        run_id=wire.run_id,
        attempt=wire.run_attempt,
        name=wire.name,
        status=wire.status,
        conclusion=wire.conclusion,
        started_at=wire.started_at,
        completed_at=wire.completed_at,
    )


def job(body: str) -> model.Job:
    """Decode one job."""
    return _job(_typed(body, _Job))


def _artifact(wire: _Artifact) -> model.Artifact:
    return model.Artifact(
        id=wire.id, name=wire.name, size=wire.size_in_bytes, expired=wire.expired, digest=wire.digest or ""
    )


def workflow(body: str) -> model.Workflow:
    """Decode one workflow."""
    wire: _Workflow = _typed(body, _Workflow)
    return model.Workflow(id=wire.id, name=wire.name, path=wire.path, state=wire.state)


def _file(wire: _File) -> model.ChangedFile:
    return model.ChangedFile(path=wire.filename, status=wire.status, previous=wire.previous_filename)


def _event(wire: _Event) -> model.Event | None:
    """Return an entry of the timeline; None where it says neither when nor by whom it was."""
    first = wire.comments[0] if wire.comments else _Comment()
    at = wire.created_at or wire.submitted_at or (wire.committer and wire.committer.date) or first.created_at
    if at is None:
        return None
    detail = wire.label.name if wire.label is not None else wire.sha if wire.event == "committed" else ""
    return model.Event(
        kind=wire.event,
        actor=_account(wire.actor or wire.user or first.user),
        at=at,
        detail=detail,
        id=wire.node_id or ("" if wire.id is None else str(wire.id)),
    )


def _page(body: str, to: Any, make: Any, key: str | None) -> Page[Any]:
    total: int | None = None
    if key is None:
        raw: list[msgspec.Raw | None] = _typed(body, list[msgspec.Raw])
    else:
        whole: dict[str, msgspec.Raw] = _typed(body, dict[str, msgspec.Raw])
        if key not in whole:
            msg = f"an answer without {key!r}"
            raise UndecodableError(msg)
        raw = _typed(bytes(whole[key]), list[msgspec.Raw])
        total = _typed(bytes(whole["total_count"]), int) if "total_count" in whole else None
    rows = []
    trouble: UndecodableError | None = None
    for one in raw:
        if one is None or bytes(one) == b"null":
            continue
        try:
            made = make(_typed(bytes(one), to))
        except UndecodableError as error:
            trouble = error
            continue
        if made is not None:
            rows.append(made)
    if trouble is not None and not rows:
        raise trouble
    return Page(tuple(rows), len(raw) - len(rows), total)


def pulls(body: str) -> Page[model.Pull]:
    """Decode a page of pull requests."""
    return _page(body, _Pull, _pull, None)


def runs(body: str) -> Page[model.Run]:
    """Decode a page of workflow runs."""
    return _page(body, _Run, _run, "workflow_runs")


def jobs(body: str) -> Page[model.Job]:
    """Decode a page of jobs."""
    return _page(body, _Job, _job, "jobs")


def artifacts(body: str) -> Page[model.Artifact]:
    """Decode a page of artifacts."""
    return _page(body, _Artifact, _artifact, "artifacts")


def files(body: str) -> Page[model.ChangedFile]:
    """Decode a page of a pull request's files."""
    return _page(body, _File, _file, None)


def events(body: str) -> Page[model.Event]:
    """Decode a page of a timeline; an entry without any time counts as dropped."""
    return _page(body, _Event, _event, None)


class Contents(msgspec.Struct, frozen=True):
    """One entry of the contents answer: ``data`` is None where it must be fetched as the blob ``blob``."""

    kind: str
    size: int
    blob: str
    data: bytes | None


def contents(body: str) -> Contents:
    """Decode ``GET contents``: a folder's list is of kind ``dir``."""
    if body.lstrip().startswith("["):
        return Contents("dir", 0, "", None)
    wire: _Content = _typed(body, _Content)
    data = _base64(wire.content) if wire.encoding == "base64" else None
    return Contents(wire.type, wire.size, wire.sha, data)


def blob(body: str) -> bytes:
    """Decode ``GET git/blobs``."""
    wire: _Blob = _typed(body, _Blob)
    return _base64(wire.content) if wire.encoding == "base64" else wire.content.encode()


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        msg = "contents that are not base64"
        raise UndecodableError(msg) from error


class RefRow(msgspec.Struct, frozen=True):
    """One row of a listing of refs."""

    ref: str
    oid: str


def _ref(wire: _Ref) -> RefRow:
    return RefRow(wire.ref, wire.object.sha)


def refs(body: str) -> Page[RefRow]:
    """Decode a page of refs."""
    return _page(body, _Ref, _ref, None)


class GitCommit(msgspec.Struct, frozen=True):
    """One commit object; ``author`` and ``committer`` as git writes them, without the time."""

    oid: str
    message: str
    tree: str
    parents: tuple[str, ...]
    author: str
    committer: str


def commit(body: str) -> GitCommit:
    """Decode ``git/commits``."""
    wire: _GitCommit = _typed(body, _GitCommit)
    author, committer = (f"{who.name} <{who.email}>" for who in (wire.author, wire.committer))
    parents = tuple(parent.sha for parent in wire.parents)
    return GitCommit(wire.sha, wire.message, wire.tree.sha, parents, author, committer)


def numbered(body: str) -> int:
    """Return the id of what was created."""
    wire: _Numbered = _typed(body, _Numbered)
    return wire.id


def labels(body: str) -> tuple[str, ...]:
    """Decode the labels that an issue has now."""
    wire: list[_Label] = _typed(body, list[_Label])
    return tuple(label.name for label in wire)


def merge_base(body: str) -> str:
    """Return the merge base of a comparison."""
    wire: _Compared = _typed(body, _Compared)
    return wire.merge_base_commit.sha


def dispatched(body: str) -> model.Dispatched:
    """Decode a dispatch's answer: a body with a run id, or none at all."""
    if not body.strip():
        return model.Dispatched(run_id=None)
    wire: _Dispatched = _typed(body, _Dispatched)
    return model.Dispatched(run_id=wire.workflow_run_id)
