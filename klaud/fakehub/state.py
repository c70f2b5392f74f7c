"""What the hub remembers: plain mutable records, one tree of them per repository.

Git objects and refs are not here: they live in the bare repository. Accounts are referred to by id; None stands for a
deleted account. Times are the hub's, timezone-aware UTC.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import datetime
    from collections.abc import Mapping
    from pathlib import Path

TokenKind = Literal["pat", "app", "github_token"]
"""``pat``: a person's or bot user's token; ``app``: a GitHub App's installation token; ``github_token``: a job's own."""

PERMISSIONS = ("contents", "pull_requests", "actions", "workflows", "issues", "variables", "metadata")
"""What a token can be given, each ``read`` or ``write`` (absent: none)."""


@dataclasses.dataclass
class Account:
    """A user, bot or organisation. ``role``, on every repository, is a word of ``RANKS``."""

    id: int
    login: str
    type: str = "User"
    name: str = ""
    email: str = ""
    role: str = "none"


@dataclasses.dataclass
class Token:
    """A credential. ``permissions`` maps a name of ``PERMISSIONS`` to ``read`` or ``write``."""

    value: str
    account: int
    kind: TokenKind = "pat"
    permissions: dict[str, str] = dataclasses.field(default_factory=dict)
    repositories: frozenset[str] | None = None
    expires_at: datetime.datetime | None = None

    def allows(self, permission: str, level: str) -> bool:
        """Tell whether the token may ``read`` or ``write`` what ``permission`` names."""
        if permission == "metadata":
            return bool(self.permissions)
        has = self.permissions.get(permission)
        return has == "write" or (has == "read" and level == "read")


@dataclasses.dataclass
class Label:
    """A label of the repository."""

    id: int
    name: str
    color: str = "ededed"
    description: str | None = None


@dataclasses.dataclass
class Comment:
    """A comment in a conversation."""

    id: int
    user: int | None
    body: str
    created_at: datetime.datetime
    updated_at: datetime.datetime


@dataclasses.dataclass
class Review:
    """A review of a pull request."""

    id: int
    user: int | None
    state: str
    body: str
    submitted_at: datetime.datetime
    commit_id: str


@dataclasses.dataclass
class Event:
    """One event of a conversation's timeline (comments, reviews and commits are kept apart and merged when listed)."""

    id: int
    event: str
    actor: int | None
    created_at: datetime.datetime
    data: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class PullPart:
    """What makes an issue a pull request."""

    head_ref: str
    head_oid: str
    head_repository: str | None
    base_ref: str
    base_oid: str
    draft: bool = False
    merged_at: datetime.datetime | None = None
    merged_by: int | None = None
    merge_oid: str | None = None
    mergeable: str = "MERGEABLE"
    reviews: list[Review] = dataclasses.field(default_factory=list)
    commits_told: int | None = None
    head_recreated: bool = False


@dataclasses.dataclass
class Issue:
    """An issue or, with ``pull`` set, a pull request."""

    number: int
    id: int
    title: str
    body: str
    user: int | None
    created_at: datetime.datetime
    updated_at: datetime.datetime
    state: str = "open"
    closed_at: datetime.datetime | None = None
    closed_by: int | None = None
    labels: list[str] = dataclasses.field(default_factory=list)
    assignees: list[int] = dataclasses.field(default_factory=list)
    comments: list[Comment] = dataclasses.field(default_factory=list)
    events: list[Event] = dataclasses.field(default_factory=list)
    edited_at: datetime.datetime | None = None
    editor: int | None = None
    locked: bool = False
    pull: PullPart | None = None


@dataclasses.dataclass
class Artifact:
    """A run's artifact: a zip on disk."""

    id: int
    run_id: int
    name: str
    path: Path
    size: int
    digest: str
    created_at: datetime.datetime
    expires_at: datetime.datetime
    expired: bool = False


@dataclasses.dataclass
class Job:
    """One job of one attempt."""

    id: int
    run_id: int
    attempt: int
    key: str
    name: str
    status: str = "queued"
    conclusion: str | None = None
    created_at: datetime.datetime | None = None
    started_at: datetime.datetime | None = None
    completed_at: datetime.datetime | None = None
    outputs: dict[str, str] = dataclasses.field(default_factory=dict)
    summary: str = ""
    annotations: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Attempt:
    """What differs from one attempt of a run to the next."""

    number: int
    triggering_actor: int | None
    status: str
    conclusion: str | None
    started_at: datetime.datetime
    updated_at: datetime.datetime
    jobs: list[Job] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Change:
    """A scripted change of a run: at ``at`` its status and conclusion become these."""

    at: datetime.datetime
    status: str
    conclusion: str | None = None


@dataclasses.dataclass
class Run:
    """A workflow run. Status, conclusion and jobs are those of its newest attempt."""

    id: int
    workflow_id: int
    path: str
    name: str
    number: int
    event: str
    head_branch: str | None
    head_oid: str
    display_title: str
    actor: int | None
    created_at: datetime.datetime
    attempts: list[Attempt]
    inputs: dict[str, str] = dataclasses.field(default_factory=dict)
    payload: dict[str, Any] = dataclasses.field(default_factory=dict)
    pulls: list[int] = dataclasses.field(default_factory=list)
    artifacts: list[Artifact] = dataclasses.field(default_factory=list)
    script: list[Change] = dataclasses.field(default_factory=list)
    visible_at: datetime.datetime | None = None
    concurrency: str | None = None
    on_cancel: str = "accept"
    on_force_cancel: str = "accept"
    source_oid: str = ""

    @property
    def last(self) -> Attempt:
        """Return the newest attempt."""
        return self.attempts[-1]

    @property
    def status(self) -> str:
        """Return the newest attempt's status."""
        return self.last.status

    @property
    def conclusion(self) -> str | None:
        """Return the newest attempt's conclusion."""
        return self.last.conclusion


@dataclasses.dataclass
class Workflow:
    """A workflow file that the hub has seen."""

    id: int
    path: str
    name: str
    state: str = "active"
    created_at: datetime.datetime | None = None


@dataclasses.dataclass
class Ruleset:
    """Rules of the repository for refs, as the API words them. ``bypass``: whoever asks is above them."""

    id: int
    name: str
    target: str = "branch"
    enforcement: str = "active"
    include: list[str] = dataclasses.field(default_factory=lambda: ["~ALL"])
    exclude: list[str] = dataclasses.field(default_factory=list)
    rules: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    bypass: bool = False


@dataclasses.dataclass
class Repository:
    """A repository. ``git_path`` is its bare repository."""

    id: int
    owner: str
    name: str
    git_path: Path
    created_at: datetime.datetime
    default_branch: str = "main"
    private: bool = False
    drafts: bool = True
    labels: dict[str, Label] = dataclasses.field(default_factory=dict)
    issues: dict[int, Issue] = dataclasses.field(default_factory=dict)
    runs: dict[int, Run] = dataclasses.field(default_factory=dict)
    workflows: dict[str, Workflow] = dataclasses.field(default_factory=dict)
    variables: dict[str, str] = dataclasses.field(default_factory=dict)
    rulesets: list[Ruleset] = dataclasses.field(default_factory=list)
    next_number: int = 1

    @property
    def full_name(self) -> str:
        """Return ``owner/name``."""
        return f"{self.owner}/{self.name}"


@dataclasses.dataclass
class State:
    """Everything but git."""

    accounts: dict[int, Account] = dataclasses.field(default_factory=dict)
    tokens: dict[str, Token] = dataclasses.field(default_factory=dict)
    repositories: dict[str, Repository] = dataclasses.field(default_factory=dict)
    feeds: dict[str, Any] = dataclasses.field(default_factory=dict)
    counters: dict[str, int] = dataclasses.field(default_factory=dict)

    def next_id(self, kind: str, first: int = 1) -> int:
        """Return the next id of a kind; ids of one kind count up from ``first``."""
        value = self.counters.get(kind, first)
        self.counters[kind] = value + 1
        return value

    def account(self, account_id: int | None) -> Account | None:
        """Return the account, or None for a deleted one."""
        return None if account_id is None else self.accounts.get(account_id)

    def account_of(self, *, login: str = "", email: str = "") -> Account | None:
        """Return the account with this login (any case) or this e-mail address, or None."""
        for account in self.accounts.values():
            if login and account.login.lower() == login.lower():
                return account
            if email and account.email.lower() == email.lower():
                return account
        return None


RANKS: Mapping[str, int] = {"none": 0, "read": 1, "triage": 2, "write": 3, "maintain": 4, "admin": 5}
"""Roles on a repository, weakest first."""
