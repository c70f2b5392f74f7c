"""What a sweep sees, what it decides, and what it reports: frozen records and closed unions.

``Sight`` is everything that was read; the rules turn it into one ``Verdict`` per session and per lease; ``act`` carries
the verdicts' actions out; ``Report`` is what ``recovery.json`` holds. A verdict's actions are values with a reason and the
evidence for it, and ``Leave`` is written for everything that was looked at and kept.
"""

from __future__ import annotations

import datetime
from typing import Annotated, Literal, Protocol, TypeAlias

import msgspec

from klaud.github import model as github
from klaud.leases import model as leases
from klaud.session import model as session_model

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]
Row: TypeAlias = Literal[
    "1", "1b", "2", "3", "4", "5", "6", "7", "7b", "8", "9", "10", "11", "12", "13", "14", "15", "16", "17", "18", "19",
    "20", "lease", "unmatched",
]  # fmt: skip
"""A row of the decision table (docs/recovery.md), ``lease`` for a lease judged apart, or ``unmatched``."""

ROWS: tuple[Row, ...] = (
    "1", "1b", "2", "3", "4", "5", "6", "7", "7b", "8", "9", "10", "11", "12", "13", "14", "15", "16", "17", "18", "19",
    "20",
)  # fmt: skip

Right: TypeAlias = Literal["contents:write", "pulls:write", "actions:write"]
"""What a token must be allowed for a sweep to write: refs, pull requests, runs."""

RIGHTS: tuple[Right, ...] = ("contents:write", "pulls:write", "actions:write")

BLOCKING: frozenset[Row] = frozenset({"1", "1b", "4", "5", "9", "12", "13"})
"""Rows that block their session's family this sweep (9 and 12 only while they wait)."""

UNFINISHED = ("queued", "in_progress", "requested", "waiting", "pending")
"""GitHub's status words for a run that is not over. Only ``completed`` is terminal; an unknown word is alive."""

CONCLUSIONS = frozenset(
    {
        "success",
        "failure",
        "cancelled",
        "skipped",
        "timed_out",
        "action_required",
        "neutral",
        "stale",
        "startup_failure",
    }
)
"""GitHub's conclusions. A word that is not here is not a success."""


class Policy(session_model.Section, frozen=True, kw_only=True):
    """What one sweep may do, how long it waits, and what counts as a leak."""

    max_closures: Count = 10
    """Drafts closed in one sweep, oldest first: maintainers must be able to follow; the rest waits for the next sweep."""
    reserve: Count = 200
    """Requests of the rate limit that a sweep leaves to others: it stops cleanly before the remainder falls below."""
    retention_days: Count = 30
    """Days that ledgers and archive copies are kept: as long as somebody may want to undo."""
    evidence_sweeps: Count = 4
    """Sweeps that a green final run with unreadable evidence is waited for before it is given to a person (row 9)."""
    waiting_sweeps: Count = 2
    """Sweeps that a missing final run is waited for, a conflict for example, before the draft is abandoned (row 12)."""
    continue_sweeps: Count = 2
    """Sweeps that a parked session may wait for its continuation before it is abandoned (row 13)."""
    approval_sweeps: Count = 14
    """Sweeps that a draft may wait for a person who approves files that run, before it is abandoned (row 13)."""
    final_runs: Count = 2
    """Final runs of one session: with this many used up, a failed one is not continued."""
    continuations: Count = 5
    """Continuations of one session: more would be a loop."""
    listing_days: Annotated[int, msgspec.Meta(ge=1, le=90)] = 35
    """Days that the run listing looks back: GitHub ends every run after 35 days, so what is older is over or a zombie."""
    dispatch_seconds: Count = 900
    """Seconds after the end of the run that dispatched it until a run that nobody sees counts as never started."""
    zombie_seconds: Count = 21_600
    """Seconds without a change after which an unfinished run's jobs are looked at: six hours, a hosted job's limit."""
    cancel_seconds: Count = 60
    """Seconds to wait for cancelled runs to end, all together, before they are cancelled by force."""
    force_seconds: Count = 60
    """Seconds to wait after that; what still runs is a zombie and is given to a person."""
    poll_seconds: Annotated[int, msgspec.Meta(ge=1, le=600)] = 10
    """Seconds between two looks at runs that were cancelled."""
    own_write_seconds: Count = 10
    """Seconds that a write of ours may take to become visible before it counts as not done."""
    count_seconds: Count = 600
    """Sweeps closer together than this count as one where sweeps are counted: a burst of triggers is not a wait."""
    refs_per_push: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 1000
    """Refs in one push: a host may limit it."""
    leak_claims: Count = 5
    """Claims without an owner that are tolerated; above this for two sweeps running, the planner is red."""
    leak_leases: Count = 5
    """Leases without an owner that are tolerated, likewise."""
    leak_branches: Count = 20
    """Branches without an owner that are tolerated, likewise."""
    leak_drafts: Count = 20
    """Drafts without an owner that are tolerated, likewise."""


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """Who klaud is in this repository and which workflows matter to it; from the configuration.

    ``bot`` is klaud's account id, ``login`` its login as run listings filter by it. Workflows are file names.
    """

    repository: str
    bot: int
    login: str
    ignored: frozenset[int] = frozenset()
    final_labels: frozenset[str] = frozenset({"full-sweep"})
    final_workflows: frozenset[str] = frozenset({"bench-final.yml"})
    smoke_workflows: frozenset[str] = frozenset({"bench-smoke.yml"})
    approval_labels: frozenset[str] = frozenset()
    candidate_workflow: str = "klaud-candidate.yml"
    prefix: str = "refs/klaud"


# -- what was seen


class Unread(msgspec.Struct, frozen=True):
    """A read that failed: what it would have shown is unknown."""

    what: str
    why: str


RunSeen: TypeAlias = github.Run | github.Missing | Unread
JobsSeen: TypeAlias = github.Listing[github.Job] | Unread
PullSeen: TypeAlias = github.PullDetail | github.Missing | Unread


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What a final run's results say: they verify, cannot be read now, are gone for good, or are wrong."""

    verdict: Literal["verified", "unreadable", "lost", "wrong"]
    why: str = ""


class Sight(msgspec.Struct, frozen=True, kw_only=True):
    """Everything one sweep has read, each failure a value in it.

    ``own`` is the sweep's own run (None outside of Actions). ``heads`` has the pull requests of every branch name that
    was asked for, ``numbered`` those that ledgers name. ``runs`` are reads by id, ``listing`` klaud's own runs of the last
    days, ``planners`` the runs of the sweep's own workflow, ``head_runs`` the runs on heads about to be declared gone.
    """

    now: datetime.datetime
    me: leases.Holder | None
    own: RunSeen | None
    snapshot: leases.Snapshot
    heads: dict[str, github.Listing[github.PullDetail] | Unread] = {}
    numbered: dict[int, PullSeen] = {}
    runs: dict[int, RunSeen] = {}
    jobs: dict[int, JobsSeen] = {}
    listing: github.Listing[github.Run] | Unread = Unread("runs", "not asked")
    planners: github.Listing[github.Run] | Unread | None = None
    head_runs: dict[str, github.Listing[github.Run] | Unread] = {}
    evidence: dict[int, Evidence] = {}
    listing_since: datetime.datetime | None = None


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What the rules need to read before they can decide; empty when they have all they need."""

    runs: frozenset[int] = frozenset()
    jobs: frozenset[int] = frozenset()
    numbers: frozenset[int] = frozenset()
    head_runs: frozenset[str] = frozenset()
    evidence: tuple[FinalRun, ...] = ()

    def __bool__(self) -> bool:
        """Tell whether anything is wanted."""
        return bool(self.runs or self.jobs or self.numbers or self.head_runs or self.evidence)


class FinalRun(msgspec.Struct, frozen=True, kw_only=True):
    """The newest final run at the exact head of one session's draft."""

    wave: str
    candidate: str
    number: int
    head: str
    run_id: int


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One session as the refs show it, with its objects; what the decision table is applied to.

    ``key`` is ``<wave>-<candidate>`` (or the candidate, or ``forerunner/<name>``, where no wave is known). ``pulls`` are the
    pull requests of klaud's branch that belong to this session, newest last; ``bad`` says why a record of it cannot be
    trusted. ``fresh`` means this is the newest session of its candidate: branch and unnamed pull requests are its.
    """

    key: str
    wave: str
    candidate: str
    family: str
    claim: leases.Held | None = None
    forerunner: tuple[leases.Forerunner, ...] = ()
    ledger: leases.Ledger | None = None
    lease: leases.Held | None = None
    branch: str | None = None
    pulls: tuple[github.PullDetail, ...] = ()
    unread: tuple[Unread, ...] = ()
    bad: str = ""
    newer: bool = False
    stray_runs: tuple[github.Run, ...] = ()
    fresh: bool = True

    @property
    def branch_ref(self) -> str:
        """The full name of the session's branch."""
        return f"refs/heads/klaud/auto-{self.candidate}"


# -- liveness and touch


class Alive(msgspec.Struct, frozen=True):
    """The session may still act; ``fact`` says what shows it (or could not be read)."""

    fact: str


class Gone(msgspec.Struct, frozen=True, kw_only=True):
    """The session is over. ``proof`` says what was read; ``ended_at`` is GitHub's own time of the end, where it has one."""

    proof: str
    ended_at: datetime.datetime | None = None
    conclusion: str = ""


class Zombie(msgspec.Struct, frozen=True):
    """GitHub calls the run unfinished, although nothing runs and nothing can end it; recorded by an earlier sweep."""

    run_id: int


class Unknown(msgspec.Struct, frozen=True):
    """A read that liveness needs failed: treated as alive, and the session is row 1b."""

    unread: Unread


Liveness: TypeAlias = Alive | Gone | Zombie | Unknown


class Touch(msgspec.Struct, frozen=True, kw_only=True):
    """A person has had this in hand: ``who`` is a login (or ``a deleted account``), ``what`` the kind of act."""

    what: str
    who: str
    at: datetime.datetime | None = None


# -- what is decided


class Act(msgspec.Struct, frozen=True, kw_only=True, tag_field="action"):
    """Base of the actions: ``why`` is a sentence, ``evidence`` what was read that permits it."""

    why: str
    evidence: tuple[str, ...] = ()


class CloseDraft(Act, frozen=True, kw_only=True, tag="close-draft"):
    """Comment why and close one draft whose head is exactly ``head``. ``seen``: the newest human-visible change known."""

    number: int
    head: str
    branch: str
    created_at: datetime.datetime
    conclusion: str = ""
    ended_at: datetime.datetime | None = None


class ReopenDraft(Act, frozen=True, kw_only=True, tag="reopen-draft"):
    """Reopen a draft that a pass closed while a person acted on it, and then died before it could look again."""

    number: int
    head: str


class DeleteRef(Act, frozen=True, kw_only=True, tag="delete-ref"):
    """Delete a ref that stands at ``oid``; ``archive`` names the copy made in the same push (empty: none is kept)."""

    ref: str
    oid: str
    archive: str = ""


class CancelRun(Act, frozen=True, kw_only=True, tag="cancel-run"):
    """Cancel one run of klaud's own, verify, force, and call it a zombie where nothing helps."""

    run_id: int


class ReleaseClaim(Act, frozen=True, kw_only=True, tag="release-claim"):
    """Delete a claim that stands at ``oid``."""

    ref: str
    oid: str


class TakeOverLease(Act, frozen=True, kw_only=True, tag="take-lease"):
    """Take the lease on a session for this pass (``oid``: the dead pass's lease that stands there, or None)."""

    ref: str
    oid: str | None
    wave: str
    candidate: str


class TakeOverClaim(Act, frozen=True, kw_only=True, tag="take-claim"):
    """Put this pass into a dead session's claim, so that a late session finds itself fenced off."""

    ref: str
    oid: str


class WriteCard(Act, frozen=True, kw_only=True, tag="write-card"):
    """Say once, on a draft that a maintainer has taken over, what was tried and what it cost; its intent comes first."""

    number: int


class WriteTombstone(Act, frozen=True, kw_only=True, tag="write-tombstone"):
    """Remember that a person closed this candidate's pull request."""

    candidate: str
    number: int


class Finish(Act, frozen=True, kw_only=True, tag="finish"):
    """Let the session's own ``finish`` settle it: as recorded, as ``validated`` or as ``failed``."""

    wave: str
    candidate: str
    number: int | None
    as_: Literal["recorded", "validated", "failed"]


class WriteOutcome(Act, frozen=True, kw_only=True, tag="write-outcome"):
    """Append the outcome of an abandoned session to its ledger."""

    outcome: leases.OutcomeClass
    phase: leases.Phase
    code: str


class Continue(Act, frozen=True, kw_only=True, tag="continue"):
    """The planner may dispatch a continuation of this parked session."""

    wave: str
    candidate: str
    on: tuple[int, ...]


class Leave(Act, frozen=True, kw_only=True, tag="leave"):
    """Looked at and kept. ``code`` is a closed word; ``person`` says who must act, where somebody must."""

    code: Literal[
        "quarantined", "newer", "error", "handed-off", "alive", "in-hand", "touched", "settled", "evidence-unreadable",
        "evidence-lost", "ready", "waiting", "closed-by-person", "unknown-head", "drain", "budget", "nothing-left",
        "unmatched", "continued", "claim-only", "settling",
    ]  # fmt: skip
    person: str = ""


Action: TypeAlias = (
    CloseDraft | ReopenDraft | DeleteRef | CancelRun | ReleaseClaim | TakeOverLease | TakeOverClaim | WriteTombstone
    | WriteCard | Finish | WriteOutcome | Continue | Leave
)  # fmt: skip


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What is decided for one session (or one lease): the row that matched, its actions in order, and whether it blocks."""

    case: Case
    row: Row
    state: str
    actions: tuple[Action, ...]
    blocks: bool = False
    waits: bool = False


class Stop(msgspec.Struct, frozen=True, kw_only=True):
    """Inputs that contradict each other or are missing: nothing may be written this sweep."""

    why: str
    permission: str = ""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """All verdicts of a sweep, what it costs at worst, what to remember, and what stops it."""

    verdicts: tuple[Verdict, ...]
    stop: Stop | None = None
    requests: int = 0
    counts: tuple[leases.Count, ...] = ()
    zombies: tuple[int, ...] = ()


# -- what is reported


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One session of ``recovery.json``: the state read, the rule, the decision, what was done and what is left."""

    session: str
    candidate: str
    family: str
    row: str
    state: str
    decision: tuple[dict[str, object], ...]
    evidence: tuple[str, ...] = ()
    done: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    blocks: bool = False
    number: int | None = None


class Leak(msgspec.Struct, frozen=True, kw_only=True):
    """How many objects of one kind have no owner after the sweep, and the age of the oldest in hours (None: unknown)."""

    count: int
    limit: int
    oldest_hours: float | None = None


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """What the sweep cost."""

    requests: dict[str, int] = {}
    pushes: int = 0
    fetches: int = 0
    writes: tuple[str, ...] = ()
    rate_limit_before: int | None = None
    rate_limit_after: int | None = None
    seconds: float = 0.0
    worst_case_requests: int = 0


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """``recovery.json``. ``red``: reasons why the sweep's exit status is 1 (empty: green).

    ``foreign``: refs below klaud's prefix that are none of its kinds. ``quarantined``: refs with an unreadable record: why.

    ``unread``: klaud's refs could not be listed and there was no sweep: the token is refused, or the host did not answer.
    """

    version: int = 1
    repository: str
    at: datetime.datetime
    mode: Literal["report", "act"]
    sessions: tuple[Entry, ...] = ()
    blocked: dict[str, str] = {}
    continuations: tuple[Continue, ...] = ()
    leaks: dict[str, Leak] = {}
    totals: Totals = Totals()
    foreign: tuple[str, ...] = ()
    quarantined: dict[str, str] = {}
    zombies: tuple[int, ...] = ()
    stopped: str = ""
    red: tuple[str, ...] = ()
    unread: Literal["", "forbidden", "temporary"] = ""


# -- what settles a session's outcome


class Settled(msgspec.Struct, frozen=True, kw_only=True):
    """What ``finish`` did for one session; ``left`` names what could not be done (empty: all is settled)."""

    done: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    closed: bool = False


class Finisher(Protocol):
    """The session's own ``finish``, as recovery calls it. Both may be repeated at any time."""

    def evidence(self, final: FinalRun) -> Evidence:
        """Read the results of a successful final run and compare them with the frozen baseline."""
        ...

    def settle(
        self, wave: str, candidate: str, *, as_: Literal["recorded", "validated", "failed"], why: str
    ) -> Settled:
        """Bring the session to that outcome, or finish the clean-up of the one it has recorded."""
        ...
