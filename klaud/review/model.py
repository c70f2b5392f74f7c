"""What review looks at and what it answers: candidates, open pull requests as facts, one decision for each candidate.

``OpenPulls`` is the file ``open-prs.json``, ``ReviewResult`` the file ``review.json``; ``codec`` writes and reads both.
Every text in ``OpenPulls`` that a person wrote is data: bounded here, fenced in a prompt, and never an order to anybody.
"""

from __future__ import annotations

import datetime
from typing import Any, Literal, Protocol, TypeAlias

import msgspec

VERSION = 1
"""The version of both files. A later one is refused by name."""

Mode: TypeAlias = Literal["rules", "session", "batch"]
Verdict: TypeAlias = Literal["proceed", "duplicate", "uncertain"]

Reason: TypeAlias = Literal[
    "no-overlap",  # no open pull request touches what the candidate changes
    "edits-entry",  # a pull request edits the family's entry
    "edits-recipe",  # a pull request edits one of the family's recipe files
    "moves-file",  # a pull request removes or renames the family's file
    "pulls-incomplete",  # the listing of open pull requests is not all there is
    "files-incomplete",  # a pull request's file list is not all there is
    "entry-unknown",  # a pull request edits the family's file, and what it does to the entry could not be read
    "too-many-pulls",  # more pull requests are undecided than one question may hold
    "reviewed",  # a reviewer decided; the rules could not
    "decision-missing",  # the reviewer said nothing about this candidate
    "decision-malformed",  # the reviewer's answer is not a decision
    "decision-unknown-name",  # the reviewer named a pull request or a name that is not there
    "reviewer-failed",  # the reviewer could not be asked
]
"""Why a decision is as it is. Closed: a report counts them."""


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of the records: immutable, keyword-only, strict."""


class Policy(Record, frozen=True, kw_only=True):
    """The section ``review:`` of the configuration."""

    mode: Mode = "rules"
    """Who decides what the rules cannot: nobody (the candidate is ``uncertain``), an agent session, a message batch."""
    title_characters: int = 200
    """How much of a pull request's title a reviewer is shown; titles are one line."""
    body_characters: int = 700
    """How much of its text: enough to say what it is for, too little to argue with."""
    files_shown: int = 40
    """How many of its files a reviewer is shown for each candidate; the rest is counted."""
    pulls_shown: int = 20
    """How many undecided pull requests one question may hold; above it the candidate is ``uncertain``."""
    contents_bytes: int = 1_048_576
    """The largest configuration file whose entries are compared; a larger one leaves the entry unknown."""
    contents_reads: int = 400
    """File contents read in one review; each is one request of the token's hourly quota. Above it: unknown."""
    provider: Literal["anthropic", "openai"] = "anthropic"
    """The shape of the batch interface (mode ``batch``)."""
    base_url: str = "https://api.anthropic.com"
    """Where the batch interface is; ``http`` is accepted to this machine only."""
    model: str = "claude-opus-4-5"
    """The model that a batch asks."""
    answer_tokens: int = 400
    """The longest answer to one question: a decision is three short fields."""
    batch_seconds: int = 7200
    """How long a review waits for its batch; then its candidates are ``uncertain`` and the next run resumes it."""
    known_names: tuple[str, ...] = ()
    """Names (clusters, models) that a decision may mention; any other named one makes that candidate ``uncertain``."""


class Candidate(Record, frozen=True, kw_only=True):
    """What review must know of one candidate.

    ``family`` is ``<file>:<top-level key>``; ``recipes`` are glob patterns of files that belong to this family alone;
    ``shared`` are patterns of files that may matter to it (a generator): only a reviewer can tell, and only they are asked.
    """

    candidate: str
    family: str
    subject: str
    change: dict[str, Any] = {}
    recipes: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()


class TouchedFile(Record, frozen=True, kw_only=True):
    """One file of a pull request's diff; ``status`` is GitHub's word, ``previous`` the earlier name of a renamed one."""

    path: str
    status: str = "modified"
    previous: str | None = None


class TouchedEntries(Record, frozen=True, kw_only=True):
    """What a pull request does to a YAML file: its top-level keys that differ between the merge base and the head.

    ``known=False``: it could not be told (``why_not`` says why); ``keys`` is then empty and means nothing.
    """

    path: str
    known: bool
    keys: tuple[str, ...] = ()
    why_not: str = ""


class OpenPull(Record, frozen=True, kw_only=True):
    """One open pull request as rules and reviewers see it. ``title`` and ``body`` are cut to the policy's bounds."""

    number: int
    title: str
    body: str
    draft: bool
    author: int | None
    head_repository: str | None
    head_ref: str
    head_oid: str
    base_ref: str
    files: tuple[TouchedFile, ...]
    files_complete: bool = True
    entries: tuple[TouchedEntries, ...] = ()
    own: bool = False
    """It is on a branch of klaud's in this repository; the planner blocks its family by the branch."""


class OpenPulls(Record, frozen=True, kw_only=True):
    """Every open pull request at one time: ``open-prs.json``. ``complete`` is False where the listing was cut."""

    version: int = VERSION
    repository: str
    at: datetime.datetime
    pulls: tuple[OpenPull, ...]
    complete: bool = True
    why_not: str = ""


class Decision(Record, frozen=True, kw_only=True):
    """May this candidate go on? ``pulls`` are the pull requests that the reason is about, ``message`` is klaud's sentence.

    A reviewer's own words are not in it; ``by`` says who decided.
    """

    candidate: str
    family: str
    verdict: Verdict
    reason: Reason
    message: str
    pulls: tuple[int, ...] = ()
    by: Mode = "rules"


class ReviewResult(Record, frozen=True, kw_only=True):
    """One decision for each candidate, in the candidates' order: ``review.json``."""

    version: int = VERSION
    mode: Mode
    decisions: tuple[Decision, ...]
    counts: dict[str, int] = {}
    """How many decisions have each reason."""
    batch_id: str = ""
    """The batch that was asked, so that a person can find it; empty in the other modes."""

    def of(self, candidate: str) -> Decision | None:
        """Return the decision on one candidate, or None where it was not reviewed."""
        return next((decision for decision in self.decisions if decision.candidate == candidate), None)


class Undecided(Record, frozen=True, kw_only=True):
    """What the rules could not decide about one candidate: the pull requests in question, and why they are."""

    candidate: Candidate
    pulls: tuple[OpenPull, ...]
    fallback: Decision
    """The decision when nobody else decides."""


class Answered(Record, frozen=True, kw_only=True):
    """A reviewer's answer to one question, as it came: decoded JSON, not yet believed."""

    value: Any


class Unanswered(Record, frozen=True, kw_only=True):
    """No answer to one question, and which of the closed reasons that is."""

    reason: Literal["decision-missing", "decision-malformed", "reviewer-failed"]


class Question(Record, frozen=True, kw_only=True):
    """One question to a reviewer: the candidate's id and the prompt (klaud's words around fenced data)."""

    candidate: str
    system: str
    prompt: str


class Reviewer(Protocol):
    """Who decides what the rules cannot: an agent session, or a message batch."""

    def ask(self, questions: tuple[Question, ...]) -> dict[str, Answered | Unanswered]:
        """Return an answer for each candidate id; one that is left out counts as missing. May raise a KlaudError."""
        ...
