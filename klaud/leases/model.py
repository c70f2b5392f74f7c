"""The records in klaud's refs. One record per commit message, versioned; see ``codec`` for the text form.

No record carries free text of an agent or a person: only ids, closed words, numbers, and texts that klaud itself wrote.
"""

from __future__ import annotations

import datetime
from typing import Literal, TypeAlias

import msgspec

VERSION = 1
"""The version of every record this klaud writes. A later one is left alone, never quarantined."""

Effect: TypeAlias = Literal[
    "create-branch", "push-work", "open-draft", "comment", "add-label", "remove-label", "dispatch-smoke",
    "start-final-run", "cancel-run", "close-draft", "mark-ready", "archive-branch", "delete-branch", "release-claim",
    "publish-report",
]  # fmt: skip
"""Every outward effect a session (or a recovery pass on its behalf) may have."""

OutcomeClass: TypeAlias = Literal[
    "validated", "capacity-deferred", "readiness-blocked", "incompatible", "duplicate", "retired", "already-updated",
    "uncertain", "failed", "handoff", "stalled", "agent-never-ran", "unexpected-error",
]  # fmt: skip

Phase: TypeAlias = Literal["resolve", "baseline", "targeted", "final-run", "cleanup", "unknown"]


class Holder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A workflow run's attempt (and job) that holds something. ``nonce`` makes the record's commit unique to it."""

    run_id: int
    attempt: int
    job: str = ""
    nonce: str = ""


ParkedWhy: TypeAlias = Literal["final-run", "smoke-run", "job-limit", "approval"]
"""What a parked session waits for: one of its runs, another job, or a person who approves files that run."""


class ParkedHolder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A session that ended its job and waits on runs, or on a person's approval; ``by`` is the run that parked it."""

    on: tuple[int, ...]
    by: Holder
    why: ParkedWhy = "final-run"


class Base(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", forbid_unknown_fields=True):
    """What every record has."""

    klaud: int = VERSION
    at: datetime.datetime


class Claim(Base, frozen=True, kw_only=True, tag="claim"):
    """Whose work a family is. Exactly one of ``holder`` and ``parked`` is set; ``base`` is the commit it works from."""

    wave: str
    candidate: str
    family: str
    base: str
    holder: Holder | None = None
    parked: ParkedHolder | None = None


class Lease(Base, frozen=True, kw_only=True, tag="lease"):
    """The recovery pass (its job) that has a dead session in hand."""

    wave: str
    candidate: str
    holder: Holder


class SessionStarted(Base, frozen=True, kw_only=True, tag="session-started"):
    """First record of a ledger: who, on what, and the digest of the frozen baseline's bundle (``sha256:<hex>`` or empty)."""

    wave: str
    candidate: str
    family: str
    base: str
    holder: Holder
    bundle: str = ""
    framework: str = "scripted"
    subject: str = ""


class Intent(Base, frozen=True, kw_only=True, tag="intent"):
    """About to have one outward effect. ``seq`` counts intents of this ledger from 0; recovery's own go on counting.

    ``oids``: for a push, every oid about to be pushed as klaud's own. ``number``: pull request. ``digest``: SHA-256 of
    title and body as klaud renders them. ``marker``: what a dispatched run carries in its name. ``retry``: why a run is
    started again; it is counted against a budget of its own. ``executable``: the push reaches files that run.
    """

    seq: int
    effect: Effect
    by: Literal["session", "recovery"] = "session"
    oids: tuple[str, ...] = ()
    number: int | None = None
    run_id: int | None = None
    label: str = ""
    ref: str = ""
    digest: str = ""
    marker: str = ""
    retry: Literal["", "repair", "infrastructure"] = ""
    executable: bool = False


class Effected(Base, frozen=True, kw_only=True, tag="effect"):
    """What became of intent ``seq``: ``done``, ``refused`` (a clear no), or ``unclear`` (read back later)."""

    seq: int
    effect: Effect
    result: Literal["done", "refused", "unclear", "found", "undone"]
    number: int | None = None
    run_id: int | None = None
    oid: str = ""
    code: str = ""


class TurnStarted(Base, frozen=True, kw_only=True, tag="turn-started"):
    """One attempt of the agent begins. ``index`` counts completed turns, from 0; ``isolation`` is what is in force."""

    index: int
    isolation: str = ""


class TurnEnded(Base, frozen=True, kw_only=True, tag="turn-ended"):
    """One attempt of the agent ended. ``agent_session`` is the agent's own session id where it gave one (its hex form).

    ``control_refused``: requests that an external control plane refused in this turn; ``control_spilled``: turns and records
    that went to a file because it did not take them.
    """

    index: int
    status: Literal["completed", "interrupted", "failed", "paused", "stalled"]
    agent_session: str = ""
    steps: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_microdollars: int = 0
    control_refused: int = 0
    control_spilled: int = 0


class BeatLost(Base, frozen=True, kw_only=True, tag="beat-lost"):
    """The heartbeat found something that ended the turn; ``unheard``: the control plane refused the credential meanwhile."""

    why: Literal["claim-lost", "handoff", "paused", "cancelled", "unheard"]


class Attempted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One thing that was tried, in closed words and numbers."""

    what: str
    run_id: int | None = None
    result: str = ""


class Parked(Base, frozen=True, kw_only=True, tag="parked"):
    """The session ends its job and waits on runs. ``tried``: at most 50 entries of what was attempted so far."""

    on: tuple[int, ...]
    why: ParkedWhy
    head: str = ""
    tried: tuple[Attempted, ...] = ()


class Continued(Base, frozen=True, kw_only=True, tag="continued"):
    """A new candidate run took the parked session up again."""

    holder: Holder
    wave: str


class Outcome(Base, frozen=True, kw_only=True, tag="outcome"):
    """The terminal record of a session, computed from repository facts.

    ``pending``: the clean-up effects still to be done when this was written, in order; each is idempotent.
    """

    outcome: OutcomeClass
    phase: Phase = "unknown"
    code: str = ""
    number: int | None = None
    head: str = ""
    final_run: int | None = None
    smoke_runs: tuple[int, ...] = ()
    repairs: int = 0
    turns: int = 0
    cost_microdollars: int = 0
    isolation: str = ""
    by: Literal["finish", "recovery"] = "finish"
    pending: tuple[Effect, ...] = ()


class Attempt(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One ended candidate of a family, for later waves. ``blame`` decides ``until``, the end of the cool-down."""

    candidate: str
    outcome: OutcomeClass
    blame: Literal["none", "candidate", "capacity", "infrastructure", "baseline", "permission"]
    ended_at: datetime.datetime
    until: datetime.datetime | None = None
    inputs: str = ""


class FamilyMemory(Base, frozen=True, kw_only=True, tag="family"):
    """What later waves must remember of a family: at most the 20 newest attempts, exclusions in a row, a pause."""

    family: str
    attempts: tuple[Attempt, ...] = ()
    excluded_in_a_row: int = 0
    paused: bool = False
    last_tried_at: datetime.datetime | None = None


class Tombstone(Base, frozen=True, kw_only=True, tag="tombstone"):
    """A person closed this candidate's pull request: not to be tried again until its subject changes."""

    candidate: str
    number: int


class Count(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many sweeps in a row one session was seen in one waiting row of the decision table."""

    session: str
    row: str
    sweeps: int


class Observed(Base, frozen=True, kw_only=True, tag="observed"):
    """What later sweeps must remember. Written only when it changes; ``leaks_over`` counts sweeps above the limits."""

    zombies: tuple[int, ...] = ()
    counts: tuple[Count, ...] = ()
    leaks_over: int = 0


LedgerRecord: TypeAlias = (
    SessionStarted | Intent | Effected | TurnStarted | TurnEnded | BeatLost | Parked | Continued | Outcome
)
Record: TypeAlias = LedgerRecord | Claim | Lease | FamilyMemory | Tombstone | Observed


class Quarantined(msgspec.Struct, frozen=True):
    """A ref whose record cannot be trusted: ``why`` in klaud's own words, no payload. Never touched; its family blocked."""

    ref: str
    oid: str
    why: str


class Newer(msgspec.Struct, frozen=True):
    """A record of a later version: a newer klaud wrote it. Left alone."""

    ref: str
    oid: str
    version: int


class Held(msgspec.Struct, frozen=True):
    """A decoded claim, lease, family memory, tombstone or observed record, with where it stands."""

    ref: str
    oid: str
    record: Claim | Lease | FamilyMemory | Tombstone | Observed


class Ledger(msgspec.Struct, frozen=True):
    """A session's chain, oldest record first. ``oid`` is the newest commit."""

    ref: str
    oid: str
    records: tuple[LedgerRecord, ...]


class Forerunner(msgspec.Struct, frozen=True):
    """A claim or lease as the forerunner wrote it: JSON in the commit message, other names.

    ``planner_run`` is the run that wrote it; ``candidate`` its id as the forerunner wrote it, or empty; ``job`` the
    planner's job that worked on it (``Run candidate <id>``).
    """

    ref: str
    oid: str
    kind: Literal["claim", "lease"]
    planner_run: int
    candidate: str = ""
    job: str = ""


class Snapshot(msgspec.Struct, frozen=True):
    """All of klaud's refs at one listing. ``refs`` has every ref below the prefixes, whatever it is."""

    refs: dict[str, str]
    claims: dict[str, Held | Quarantined | Newer]
    ledgers: dict[str, Ledger | Quarantined | Newer]
    leases: dict[str, Held | Quarantined | Newer]
    families: dict[str, Held | Quarantined | Newer]
    tombstones: dict[str, Held | Quarantined | Newer]
    observed: Held | Quarantined | Newer | None
    branches: dict[str, str]
    archives: dict[str, str]
    forerunner: tuple[Forerunner | Quarantined, ...]
    foreign: tuple[str, ...]
