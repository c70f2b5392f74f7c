"""GitHub's objects as frozen records, with only what klaud's rules read.

Absent is never the same as unknown: a field is None only where GitHub itself says null (a ghost's account, an unmerged
pull request's merge time). What could not be read is not in a record at all; see ``Listing.complete``.
All times are timezone-aware UTC.
"""

from __future__ import annotations

import datetime
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec

T = TypeVar("T")
Oid: TypeAlias = str
"""A full git object id, lower-case hex."""


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Base of the records: immutable, keyword-only."""


class Listing(msgspec.Struct, Generic[T], frozen=True):
    """Some rows, and whether they are all there are.

    ``complete`` is True only where the host itself served every row; ``why_not`` says in words what is missing. A rule
    that needs completeness refuses on an incomplete listing.
    """

    items: tuple[T, ...]
    complete: bool = True
    why_not: str = ""


class Account(Record, frozen=True, kw_only=True):
    """A user, bot or app. Compare by ``id`` only; None in place of an Account is a deleted account, thus a person."""

    id: int
    login: str
    type: str = "User"


class Repository(Record, frozen=True, kw_only=True):
    """The repository that klaud works on."""

    id: int
    full_name: str
    default_branch: str
    private: bool = False
    permissions: dict[str, bool] = msgspec.field(default_factory=dict)


class Rule(Record, frozen=True, kw_only=True):
    """One rule for refs, by GitHub's word for its type. ``ruleset``: the id of the ruleset that it is part of."""

    type: str
    ruleset: int = 0
    parameters: dict[str, Any] = msgspec.field(default_factory=dict)


class Ruleset(Record, frozen=True, kw_only=True):
    """Rules that belong together. ``bypassed``: the token's account is above them; ``rules`` only where asked by id."""

    id: int
    name: str
    target: str
    active: bool
    bypassed: bool = False
    rules: tuple[Rule, ...] = ()


class Run(Record, frozen=True, kw_only=True):
    """One workflow run, of its newest attempt unless asked otherwise.

    ``status`` and ``conclusion`` are GitHub's own words, kept as they came: an unknown word must stay visible.
    ``display_title`` is the run name, which carries klaud's marker. ``path`` is the workflow file, e.g.
    ``.github/workflows/klaud-candidate.yml`` (GitHub may append ``@ref``).
    """

    id: int
    attempt: int
    status: str
    conclusion: str | None
    event: str
    head_branch: str | None
    head_sha: Oid
    path: str
    display_title: str
    actor: Account | None
    triggering_actor: Account | None
    created_at: datetime.datetime
    updated_at: datetime.datetime
    workflow_id: int = 0


class Job(Record, frozen=True, kw_only=True):
    """One job of a run's attempt."""

    id: int
    run_id: int
    attempt: int
    name: str
    status: str
    conclusion: str | None
    started_at: datetime.datetime | None = None
    completed_at: datetime.datetime | None = None


class Commit(Record, frozen=True, kw_only=True):
    """One commit of a pull request. The accounts are None where GitHub knows no account for the e-mail address."""

    oid: Oid
    author: Account | None
    committer: Account | None
    author_email: str = ""
    committer_email: str = ""
    message: str = ""


class Event(Record, frozen=True, kw_only=True):
    """One entry of a pull request's timeline.

    ``kind`` is GitHub's REST event name (``labeled``, ``closed``, ``reopened``, ``commented``, ``reviewed``,
    ``committed``, ``head_ref_force_pushed``, ``ready_for_review``, ``convert_to_draft``, ``renamed``, ``assigned`` ...);
    ``detail`` a label's name, a commit's oid, or empty. ``actor`` is None for a deleted account (and for ``committed``).
    """

    kind: str
    actor: Account | None
    at: datetime.datetime
    detail: str = ""
    id: str = ""


class Pull(Record, frozen=True, kw_only=True):
    """A pull request. ``head_repository`` is ``owner/name``, or None where the fork was deleted.

    ``body_edited_at``/``editor``: the last edit of title or body after creation, or None. ``commit_count`` is GitHub's
    own counter (None where the endpoint does not tell). ``mergeable``: ``MERGEABLE | CONFLICTING | UNKNOWN``.
    """

    number: int
    node_id: str
    state: str
    merged: bool
    draft: bool
    title: str
    body: str
    author: Account | None
    head_ref: str
    head_oid: Oid
    head_repository: str | None
    base_ref: str
    labels: tuple[str, ...]
    created_at: datetime.datetime
    updated_at: datetime.datetime
    closed_at: datetime.datetime | None = None
    merged_at: datetime.datetime | None = None
    body_edited_at: datetime.datetime | None = None
    editor: Account | None = None
    mergeable: str = "UNKNOWN"
    commit_count: int | None = None

    @property
    def open(self) -> bool:
        """Tell whether GitHub calls it open."""
        return self.state == "open"


class PullDetail(Record, frozen=True, kw_only=True):
    """A pull request with its commits and its timeline, each with its own completeness."""

    pull: Pull
    commits: Listing[Commit]
    timeline: Listing[Event]


class ChangedFile(Record, frozen=True, kw_only=True):
    """One file of a pull request's diff; ``previous`` is its earlier name when renamed."""

    path: str
    status: str
    previous: str | None = None


class Artifact(Record, frozen=True, kw_only=True):
    """One artifact of a run. ``digest`` is ``sha256:<hex>`` or empty."""

    id: int
    name: str
    size: int
    expired: bool
    digest: str = ""


class Workflow(Record, frozen=True, kw_only=True):
    """One workflow file as GitHub registered it. ``state`` is GitHub's word (``active``, ``disabled_inactivity`` ...)."""

    id: int
    name: str
    path: str
    state: str


class Missing(Record, frozen=True, kw_only=True):
    """The host answered 404: gone, never there, or not ours to see. Not a proof of anything by itself."""

    what: str


class Dispatched(Record, frozen=True, kw_only=True):
    """A dispatch that the host accepted. ``run_id`` is None where the host answered without one (204)."""

    run_id: int | None


class RateLimit(Record, frozen=True, kw_only=True):
    """What the last answer's headers said; None where no answer had them yet."""

    limit: int | None = None
    remaining: int | None = None
    reset_at: datetime.datetime | None = None
