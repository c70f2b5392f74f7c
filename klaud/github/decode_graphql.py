"""GraphQL answers to records. A 200 may hold errors: each is charged to the alias its path names, the rest stays good.

An alias whose part is null or cannot be decoded is ``Unread`` with the reason, never an empty result; so is a pull request
of which not every label came. ``__typename`` of a
timeline item becomes GitHub's REST event name, so that rules know one vocabulary.
"""

from __future__ import annotations

import datetime
import re
from typing import Any

import msgspec

from klaud.github import decode, model

TIMELINE_NAMES = {
    "PullRequestCommit": "committed",
    "IssueComment": "commented",
    "PullRequestReview": "reviewed",
    "RenamedTitleEvent": "renamed",
}
"""REST event names that do not follow from the type's name; the others are the name without ``Event``, in snake case."""


class Unread(msgspec.Struct, frozen=True):
    """A part of the answer that could not be had. ``missing``: the host says there is no such thing."""

    why: str
    missing: bool = False


class Answer(msgspec.Struct, frozen=True):
    """A decoded envelope: each alias' own JSON, what went wrong by alias, and what concerns the whole."""

    parts: dict[str, bytes]
    failed: dict[str, Unread]
    whole: tuple[str, ...]
    kinds: frozenset[str]


class _Problem(msgspec.Struct):
    message: str = ""
    type: str = ""
    path: list[str | int] | None = None


class _Envelope(msgspec.Struct):
    data: dict[str, msgspec.Raw] | None = None
    errors: list[_Problem] = []


class _Actor(msgspec.Struct, rename={"kind": "__typename", "id": "databaseId"}):
    login: str
    kind: str = "User"
    id: int | None = None


class _Name(msgspec.Struct):
    name: str


class _Repo(msgspec.Struct, rename="camel"):
    name_with_owner: str


class _GitUser(msgspec.Struct, rename={"id": "databaseId"}):
    login: str
    id: int | None = None


class _GitActor(msgspec.Struct):
    email: str | None = None
    user: _GitUser | None = None


class _GitCommit(msgspec.Struct, rename="camel"):
    oid: str
    message: str = ""
    author: _GitActor | None = None
    committer: _GitActor | None = None
    committed_date: datetime.datetime | None = None


class _CommitNode(msgspec.Struct):
    commit: _GitCommit


class _PageInfo(msgspec.Struct, rename="camel"):
    has_next_page: bool
    end_cursor: str | None = None


class _Commits(msgspec.Struct, rename="camel"):
    total_count: int
    page_info: _PageInfo
    nodes: list[_CommitNode | None]


class _Labels(msgspec.Struct, rename="camel"):
    total_count: int
    nodes: list[_Name | None]


class _Item(msgspec.Struct, rename={"kind": "__typename", "created_at": "createdAt", "submitted_at": "submittedAt"}):
    kind: str
    id: str = ""
    actor: _Actor | None = None
    author: _Actor | None = None
    created_at: datetime.datetime | None = None
    submitted_at: datetime.datetime | None = None
    label: _Name | None = None
    commit: _GitCommit | None = None


class _Items(msgspec.Struct, rename="camel"):
    page_info: _PageInfo
    nodes: list[_Item | None]


class _Pull(msgspec.Struct, rename="camel"):
    id: str
    number: int
    state: str
    is_draft: bool
    title: str
    body: str
    head_ref_name: str
    head_ref_oid: str
    base_ref_name: str
    mergeable: str
    created_at: datetime.datetime
    updated_at: datetime.datetime
    labels: _Labels | None
    commits: _Commits
    timeline_items: _Items
    author: _Actor | None = None
    editor: _Actor | None = None
    last_edited_at: datetime.datetime | None = None
    head_repository: _Repo | None = None
    closed_at: datetime.datetime | None = None
    merged_at: datetime.datetime | None = None


class _Pulls(msgspec.Struct, rename="camel"):
    total_count: int
    nodes: list[msgspec.Raw]


class _Node(msgspec.Struct, rename="camel"):
    timeline_items: _Items


class TimelinePage(msgspec.Struct, frozen=True):
    """Some entries of a timeline, and where the next page begins (None: this was the last)."""

    events: tuple[model.Event, ...]
    dropped: int
    after: str | None


class Detail(msgspec.Struct, frozen=True):
    """A pull request whose timeline may go on after ``after``."""

    detail: model.PullDetail
    after: str | None


def answer(body: str, root: str) -> Answer:
    """Open an envelope: ``root`` is the field of ``data`` that holds the aliases (empty: ``data`` itself)."""
    envelope: _Envelope = _typed(body, _Envelope)
    failed: dict[str, Unread] = {}
    whole: list[str] = []
    for problem in envelope.errors:
        alias = _alias(problem.path, root)
        why = " ".join(f"{problem.type} {problem.message}".split())[:200]
        if alias is None:
            whole.append(why)
        else:
            failed.setdefault(alias, Unread(why, problem.type == "NOT_FOUND" and len(problem.path or ()) <= 2))
    kinds = frozenset(problem.type for problem in envelope.errors)
    data = envelope.data or {}
    if root:
        inside = data.get(root)
        parts = {} if inside is None or bytes(inside) == b"null" else _typed(bytes(inside), dict[str, msgspec.Raw])
    else:
        parts = data
    return Answer({alias: bytes(raw) for alias, raw in parts.items()}, failed, tuple(whole), kinds)


def _alias(path: list[str | int] | None, root: str) -> str | None:
    rest = list(path or ())
    if root and rest[:1] == [root]:
        rest = rest[1:]
    elif root:
        return None
    return str(rest[0]) if rest else None


def _typed(body: str | bytes, to: Any) -> Any:
    try:
        return msgspec.json.decode(body, type=to, strict=True)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        msg = f"a GraphQL answer that is not as documented ({error})"
        raise decode.UndecodableError(msg) from error


def pulls_of_head(found: Answer, alias: str) -> tuple[tuple[Detail, ...], Unread | None]:
    """Return the pull requests of one head's alias; ``Unread`` beside them where some are missing."""
    raw = found.parts.get(alias, b"null")
    trouble = found.failed.get(alias)
    if raw == b"null":
        return (), trouble or Unread("; ".join(found.whole) or "the host left this head out")
    wire: _Pulls = _typed(raw, _Pulls)
    rows: list[Detail] = []
    for node in wire.nodes:
        if bytes(node) == b"null":
            trouble = trouble or Unread("the host served a null pull request")
            continue
        try:
            rows.append(_detail(_typed(bytes(node), _Pull)))
        except decode.UndecodableError as error:
            trouble = trouble or Unread(str(error))
    if wire.total_count > len(wire.nodes):
        trouble = trouble or Unread(f"{wire.total_count} pull requests of one head, {len(wire.nodes)} served")
    return tuple(rows), trouble


def pull_of_number(found: Answer, alias: str) -> Detail | Unread:
    """Return the pull request of one number's alias."""
    raw = found.parts.get(alias, b"null")
    trouble = found.failed.get(alias)
    if raw == b"null":
        return trouble or Unread("; ".join(found.whole) or "the host left this pull request out")
    if trouble is not None:
        return trouble
    try:
        return _detail(_typed(raw, _Pull))
    except decode.UndecodableError as error:
        return Unread(str(error))


def timeline_page(found: Answer) -> TimelinePage | Unread:
    """Return one more page of a timeline (``data.node``)."""
    raw = found.parts.get("node", b"null")
    if raw == b"null" or found.failed or found.whole:
        problems = [*found.whole, *(unread.why for unread in found.failed.values())]
        return Unread("; ".join(problems) or "the host left the timeline out")
    wire: _Node = _typed(raw, _Node)
    return _timeline(wire.timeline_items)


def viewer(found: Answer) -> model.Account | None:
    """Return the account of ``data.viewer``, None where the answer has none with an id."""
    raw = found.parts.get("viewer", b"null")
    return None if raw == b"null" else _account(_typed(raw, _Actor))


def identity(found: Answer, field: str) -> str:
    """Return ``data.<root>.<field>`` as text."""
    text: str = _typed(found.parts.get(field, b"null"), str)
    return text


def _account(actor: _Actor | None) -> model.Account | None:
    if actor is None:
        return None
    return model.Account(id=actor.id or 0, login=actor.login, type=actor.kind)


def _git_account(actor: _GitActor | None) -> model.Account | None:
    if actor is None or actor.user is None:
        return None
    return model.Account(id=actor.user.id or 0, login=actor.user.login)


def _detail(wire: _Pull) -> Detail:
    page = _timeline(wire.timeline_items)
    names = [label.name for label in (wire.labels.nodes if wire.labels is not None else []) if label is not None]
    if wire.labels is None or len(names) != wire.labels.total_count:
        # a label decides whose a draft is: without all of them it is not read
        known = "no" if wire.labels is None else f"{len(names)} of {wire.labels.total_count}"
        msg = f"{known} labels of pull request {wire.number} were served"
        raise decode.UndecodableError(msg)
    pull = model.Pull(
        number=wire.number,
        node_id=wire.id,
        state="open" if wire.state == "OPEN" else "closed",
        merged=wire.state == "MERGED",
        draft=wire.is_draft,
        title=wire.title,
        body=wire.body,
        author=_account(wire.author),
        head_ref=wire.head_ref_name,
        head_oid=wire.head_ref_oid,
        head_repository=None if wire.head_repository is None else wire.head_repository.name_with_owner,
        base_ref=wire.base_ref_name,
        labels=tuple(names),
        created_at=wire.created_at,
        updated_at=wire.updated_at,
        closed_at=wire.closed_at,
        merged_at=wire.merged_at,
        body_edited_at=wire.last_edited_at,
        editor=_account(wire.editor),
        mergeable=wire.mergeable,
        commit_count=wire.commits.total_count,
    )
    detail = model.PullDetail(pull=pull, commits=_commits(wire.commits), timeline=_listing(page))
    return Detail(detail, page.after)


def _commits(wire: _Commits) -> model.Listing[model.Commit]:
    rows = tuple(
        model.Commit(
            oid=node.commit.oid,
            author=_git_account(node.commit.author),
            committer=_git_account(node.commit.committer),
            author_email=(node.commit.author and node.commit.author.email) or "",
            committer_email=(node.commit.committer and node.commit.committer.email) or "",
            message=node.commit.message,
        )
        for node in wire.nodes
        if node is not None
    )
    if len(rows) != wire.total_count or wire.page_info.has_next_page:
        return model.Listing(rows, complete=False, why_not=f"{len(rows)} of {wire.total_count} commits were served")
    return model.Listing(rows)


def _listing(page: TimelinePage) -> model.Listing[model.Event]:
    if page.dropped:
        return model.Listing(page.events, complete=False, why_not=f"{page.dropped} entries could not be read")
    return model.Listing(page.events)


def _timeline(wire: _Items) -> TimelinePage:
    events: list[model.Event] = []
    for item in wire.nodes:
        at = None if item is None else _time_of(item)
        if item is None or at is None:
            continue
        commit = item.commit.oid if item.commit is not None else ""
        events.append(
            model.Event(
                kind=event_name(item.kind),
                actor=_account(item.actor or item.author),
                at=at,
                detail=item.label.name if item.label is not None else commit,
                id=item.id,
            )
        )
    after = wire.page_info.end_cursor if wire.page_info.has_next_page else None
    return TimelinePage(tuple(events), len(wire.nodes) - len(events), after)


def _time_of(item: _Item) -> datetime.datetime | None:
    committed = item.commit.committed_date if item.commit is not None else None
    return item.submitted_at or item.created_at or committed


def event_name(kind: str) -> str:
    """Return the REST event name of a timeline item's ``__typename``."""
    known = TIMELINE_NAMES.get(kind)
    if known is not None:
        return known
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.removesuffix("Event")).lower()
