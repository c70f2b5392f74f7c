"""What klaud asks of GitHub and of git: two protocols, implemented by the real clients and by the in-memory worlds.

Reads return records (or ``Missing`` for a 404 by id), raise ``ReadFailedError`` when the answer could not be had after the
retry policy, ``ForbiddenError`` when the token is refused or lacks a right (a rate limit's 403 is not that).
Listings never raise for a short page: they say ``complete=False`` and why. A read that fails on its first page raises.

Writes return on a clear yes, raise ``RefusedWriteError`` on a clear no, ``ForbiddenError`` on a lacking right, and
``UnclearWriteError`` when the answer is neither (a time-out, a 5xx, a cut connection): the caller reads back. No write is
ever sent twice by a gateway.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from klaud.github import model

Oid: TypeAlias = str
WriteRight: TypeAlias = Literal["pulls:write", "actions:write"]
"""Rights of a token that klaud asks for before it begins to write."""


class Gateway(Protocol):
    """GitHub's REST and GraphQL faces for one repository and one token."""

    @property
    def requests(self) -> Mapping[str, int]:
        """Requests sent so far by endpoint template, e.g. ``GET /repos/{owner}/{repo}/actions/runs/{run_id}``."""
        ...

    @property
    def writes(self) -> Sequence[str]:
        """The writes sent so far, in order, one line each (method, path; no bodies)."""
        ...

    @property
    def rate_limit(self) -> model.RateLimit:
        """What the newest answer's headers said of the rate limit."""
        ...

    # -- who and where
    def account(self) -> model.Account:
        """Return the token's own account (``GET /user``, or the app's bot account)."""
        ...

    def repository(self) -> model.Repository:
        """Return the repository with the token's permissions on it."""
        ...

    def may_write(self, account: model.Account) -> bool:
        """Tell whether an account may push here; one that is not there any more, or has another id, may not."""
        ...

    def variable(self, name: str) -> str | model.Missing:
        """Return a variable of the repository. ForbiddenError where the token may not read variables."""
        ...

    def check_right(self, right: WriteRight, workflow: str = "") -> None:
        """Raise ForbiddenError where the token surely lacks a right; every other answer shows nothing against it.

        Asked by a request that names nothing to be done (a pull request without a head, a dispatch of ``workflow`` without
        a ref): GitHub looks at the right first, and refuses the rest. It is no write, and not counted as one.
        """
        ...

    # -- runs
    def run(self, run_id: int) -> model.Run | model.Missing:
        """Return one run by id."""
        ...

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
        """List runs, filtered as GitHub filters; ``workflow`` is a file name. Incomplete above 1,000 rows, and says so."""
        ...

    def jobs(self, run_id: int, attempt: int | None = None) -> model.Listing[model.Job]:
        """List the jobs of a run's newest attempt, or of the named one. A 404 raises ReadFailedError."""
        ...

    def artifacts(self, run_id: int) -> model.Listing[model.Artifact]:
        """List a run's artifacts."""
        ...

    def download_artifact(self, artifact_id: int, limit: int) -> bytes:
        """Return the zip of one artifact, at most ``limit`` bytes (more: ReadFailedError that names the limit)."""
        ...

    def workflow(self, file: str) -> model.Workflow | model.Missing:
        """Return one workflow by file name."""
        ...

    # -- pull requests
    def pulls_of_heads(self, heads: Sequence[str]) -> Mapping[str, model.Listing[model.PullDetail]]:
        """Return, for each branch name asked, the pull requests of exactly that head in this repository, any state.

        Batched (GraphQL). Forks and longer names are dropped. Every asked head is a key of the answer; a head whose
        part of the answer failed has an incomplete listing.
        """
        ...

    def pull_details(self, numbers: Sequence[int]) -> Mapping[int, model.PullDetail | model.Missing]:
        """Return pull requests by number with commits and timeline (GraphQL, batched)."""
        ...

    def pull(self, number: int) -> model.Pull | model.Missing:
        """Return one pull request (REST), for the re-read right before and right after an act."""
        ...

    def open_pulls(self) -> model.Listing[model.Pull]:
        """List every open pull request, drafts and forks included."""
        ...

    def pull_files(self, number: int) -> model.Listing[model.ChangedFile]:
        """List the files of a pull request (at most 3,000, then incomplete)."""
        ...

    def timeline(self, number: int) -> model.Listing[model.Event]:
        """List a pull request's timeline (REST)."""
        ...

    def pulls_of_commit(self, oid: str) -> model.Listing[model.Pull]:
        """List the pull requests that a commit belongs to."""
        ...

    # -- contents
    def contents(self, path: str, ref: str, limit: int) -> bytes | model.Missing:
        """Return one file's bytes at a commit (also of a fork's open pull request), at most ``limit`` bytes.

        More: ReadFailedError that names the limit. A directory, a submodule or a link is Missing.
        """
        ...

    def merge_base(self, base: str, head: str) -> Oid | model.Missing:
        """Return the commit at which ``head`` (an oid) left ``base`` (a branch or oid): what its diff is taken against."""
        ...

    # -- writes
    def create_pull(self, *, head: str, base: str, title: str, body: str, draft: bool) -> model.Pull:
        """Open a pull request from a branch of this repository."""
        ...

    def comment(self, number: int, body: str) -> int:
        """Comment on a pull request; return the comment's id."""
        ...

    def close_pull(self, number: int) -> None:
        """Close a pull request."""
        ...

    def reopen_pull(self, number: int) -> None:
        """Reopen a pull request (GitHub: only when its branch stands at the closed head)."""
        ...

    def edit_pull(self, number: int, *, title: str | None = None, body: str | None = None) -> None:
        """Change title or body."""
        ...

    def add_labels(self, number: int, labels: Sequence[str]) -> tuple[str, ...]:
        """Add labels; return all the labels that the host then reports."""
        ...

    def remove_label(self, number: int, label: str) -> None:
        """Remove one label; a label that is not there is success."""
        ...

    def convert_to_draft(self, node_id: str) -> None:
        """Turn a pull request into a draft (GraphQL only)."""
        ...

    def mark_ready(self, node_id: str) -> None:
        """Mark a draft ready for review (GraphQL only)."""
        ...

    def dispatch(self, workflow: str, ref: str, inputs: Mapping[str, str]) -> model.Dispatched:
        """Start a workflow by ``workflow_dispatch``."""
        ...

    def cancel_run(self, run_id: int, *, force: bool = False) -> Literal["accepted", "already-finished"]:
        """Ask for a run's cancellation. 202 is ``accepted`` (and promises nothing); 409 on a completed run the other.

        A 409 on a run that is not completed raises RefusedWriteError.
        """
        ...


class RefUpdate(msgspec.Struct, frozen=True):
    """One compare-and-swap: ``expected`` None means "must not exist", ``new`` None means "delete"."""

    ref: str
    expected: Oid | None
    new: Oid | None


class RefUpdated(msgspec.Struct, frozen=True):
    """The ref was as expected and now is as wanted."""

    ref: str


class RefSuperseded(msgspec.Struct, frozen=True):
    """The ref was not as expected; nothing was written. ``actual`` is its oid now, None where it does not exist."""

    ref: str
    actual: Oid | None


class RefRejected(msgspec.Struct, frozen=True):
    """The host refused this ref (a rule, a hook, a limit). ``reason`` is the host's own words, cut at 300 characters."""

    ref: str
    reason: str


class RefUnclear(msgspec.Struct, frozen=True):
    """No clear answer came: list again before doing anything else."""

    ref: str


RefResult: TypeAlias = RefUpdated | RefSuperseded | RefRejected | RefUnclear


class CommitData(msgspec.Struct, frozen=True):
    """A commit as the ref store reads it. ``message`` is raw bytes; ``tree_is_empty`` tells a record from other commits."""

    oid: Oid
    message: bytes
    parents: tuple[Oid, ...]
    tree_is_empty: bool
    author: bytes = b""
    committer: bytes = b""


class NotACommit(msgspec.Struct, frozen=True):
    """A ref points at something else than a commit (a tag, a blob), or at a commit above the size limit."""

    oid: Oid
    why: str


class RefStore(Protocol):
    """Refs of one repository with compare-and-swap, and the commits below them."""

    @property
    def pushes(self) -> int:
        """Pushes sent so far."""
        ...

    @property
    def fetches(self) -> int:
        """Ref listings and fetches so far."""
        ...

    def list(self, prefixes: Sequence[str]) -> Mapping[str, Oid]:
        """Return every ref below the prefixes, freshly from the host. ReadFailedError when it could not be had."""
        ...

    def read(self, oids: Sequence[Oid], *, depth: int = 1) -> Mapping[Oid, CommitData | NotACommit]:
        """Return the commits, and with ``depth`` above 1 their first-parent ancestors up to that many commits in all.

        One fetch for all that is not already known. An oid that the host no longer has is left out.
        """
        ...

    def write_commit(self, message: bytes, parents: Sequence[Oid] = ()) -> Oid:
        """Make a commit of the empty tree locally and return its oid; it reaches the host with the update that names it."""
        ...

    def apply(self, updates: Sequence[RefUpdate], *, atomic: bool = False) -> Sequence[RefResult]:
        """Send all updates in one push (batched where the host limits it), each judged alone; ``atomic``: all or none.

        The answer has one result per update, in order. Deleting a ref that is already absent is
        ``RefSuperseded(actual=None)``. An update whose ref already stands at ``new`` while ``expected`` differs is
        ``RefSuperseded(actual=new)``: the caller knows whether that was its own earlier write.
        """
        ...
