"""What passes between the jobs of a wave: strict records, each the content of one file.

``families.json`` (``Memory``) and ``candidates.json`` (``Plan``) lead to ``selection.json`` (``Selection``); its schema
is published as ``selection.json.schema``. Nothing here holds a credential, a private figure of a cluster, or free text of
an agent or of a child process: messages are klaud's own sentences.

Every key is written with hyphens; an unknown key is refused, and so is a file of another version.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from klaud.planner import settings

Policy = settings.Policy
"""The section ``planner:`` of the configuration."""

MAX_EXAMPLES = 20
"""Examples of refused lines a source: enough to see the pattern."""

MESSAGE_CHARACTERS = 300
"""Most characters of a message that is not klaud's own sentence, and of each example."""

# Python's ``$`` would let a line feed at the end pass: the look-ahead does not, and other engines read it alike.
Oid: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^(?:[0-9a-f]{40}|[0-9a-f]{64})$(?!\n)")]
"""A full git object id."""

CandidateId: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{16}-[0-9a-f]{16}$(?!\n)")]
"""A candidate's id."""

WaveId: TypeAlias = Annotated[
    str, msgspec.Meta(pattern=r"^(?:[1-9][0-9]{0,19}\.[1-9][0-9]{0,5}|local-[0-9a-f]{16})$(?!\n)")
]
"""A wave's id."""

Family: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[^:\n]+:[^\n]+$(?!\n)", max_length=1000)]
"""A family: ``<file>:<key>``."""

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
"""A whole number from 0."""

Time: TypeAlias = Annotated[
    str, msgspec.Meta(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$(?!\n)")
]
"""A time in UTC, to the second."""

Version: TypeAlias = Literal[1]

Kind: TypeAlias = Literal["upgrade", "encode"]
"""What a candidate is: a change to a family of a matrix, or the encoding of a database into a reference."""


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    """Base of the records: immutable, keyword-only, strict."""


# -- what is remembered of families -----------------------------------------------------------------------------------

PlanCode: TypeAlias = Literal[
    "in-recovery", "claimed", "quarantined", "newer-writer", "open-pull-request", "paused", "tombstone", "cool-down",
    "baseline-unchanged", "pulls-unknown", "conflicting-offers", "beyond-limit",
]  # fmt: skip
"""Why a candidate is not looked at in this wave."""


class FamilyState(Record, frozen=True, kw_only=True):
    """What later waves must remember of one family, as far as planning reads it."""

    family: str = ""
    """``<file>:<key>``, or empty where only its claim is known."""
    claim: Literal["", "held", "quarantined", "newer"] = ""
    """Whether a claim stands, and whether it can be read."""
    held_by: str = ""
    """The wave and the run that hold the claim, in words; empty where no claim stands or it cannot be read."""
    memory: Literal["", "quarantined", "newer"] = ""
    """Whether what is remembered can be read."""
    paused: bool = False
    """A person has paused it."""
    last_tried_at: Time | None = None
    """When a candidate of it was last started."""
    cool_down_until: Time | None = None
    """Until when no candidate of it is started."""
    blocked_inputs: str = ""
    """Digest of the baseline's inputs with which the last attempt failed: no new one until they change."""
    excluded_in_a_row: Count = 0
    """Waves in a row in which the review excluded it."""


class OpenDraft(Record, frozen=True, kw_only=True):
    """An open pull request on a branch of klaud's in this repository."""

    candidate: CandidateId
    """The candidate whose branch it is."""
    number: Annotated[int, msgspec.Meta(ge=1)]
    """The pull request's number."""


class Memory(Record, frozen=True, kw_only=True):
    """What refs and open pull requests say of families: ``families.json``."""

    version: Version = 1
    """The version of this file's format."""
    at: Time
    """When it was read."""
    families: dict[str, FamilyState] = msgspec.field(default_factory=dict)
    """By family id (16 hex)."""
    tombstones: tuple[CandidateId, ...] = ()
    """Candidates that a person closed."""
    pulls: tuple[OpenDraft, ...] = ()
    """Open pull requests on klaud's branches."""
    pulls_complete: bool = True
    """False where the listing of open pull requests was cut: then nothing new may start."""


# -- candidates.json --------------------------------------------------------------------------------------------------


class Offer(Record, frozen=True, kw_only=True):
    """One line of a candidate source."""

    family: Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]
    """``<file>:<key>``, or a glob of such: every family that matches becomes a candidate."""
    subject: Annotated[str, msgspec.Meta(min_length=1, max_length=300)]
    """What would change, in a few words; the candidate's id is made of it."""
    change: dict[str, Any] = msgspec.field(default_factory=dict)
    """Key path -> new value."""
    match: dict[str, str | int | float | bool] = msgspec.field(default_factory=dict)
    """Only families with an entry that has all these values; every matching variant counts."""


class Candidate(Record, frozen=True, kw_only=True):
    """One proposed change to one family at one base commit."""

    candidate: CandidateId
    """Its id."""
    family: Family
    """``<file>:<key>``."""
    benchmark: str
    """Which benchmark of the configuration it belongs to."""
    kind: Kind = "upgrade"
    """What it is: a change to a family of a matrix, or the encoding of a database."""
    subject: str
    """What would change, in a few words: the text whose hash is in the id."""
    change: dict[str, Any] = msgspec.field(default_factory=dict)
    """Key path -> new value."""
    targets: tuple[str, ...] = ()
    """The targets that its family's current matrix runs on; empty where none could be told."""


class Blocked(Record, frozen=True, kw_only=True):
    """A candidate that this wave does not look at, and why."""

    candidate: CandidateId
    """Its id."""
    family: Family
    """``<file>:<key>``."""
    benchmark: str
    """Which benchmark of the configuration it belongs to."""
    code: PlanCode
    """Why."""
    message: str
    """The same in a sentence."""
    unblock: str
    """What would unblock it."""


class NotGenerated(Record, frozen=True, kw_only=True):
    """A family whose current matrix could not be generated; the others go on."""

    benchmark: str
    """Which benchmark of the configuration it belongs to."""
    family: Family
    """``<file>:<key>``."""
    code: str
    """The reason code."""
    message: str
    """The same in a sentence; never the generator's own words."""


class SourceReport(Record, frozen=True, kw_only=True):
    """What became of one candidate source. A failed one plans nothing and prunes nothing."""

    benchmark: str
    """Which benchmark of the configuration it belongs to."""
    source: str
    """Its address without credentials or query, its file, or its program's name."""
    status: Literal["read", "failed"]
    """Whether it was read to its end."""
    code: Literal["", "feed-unavailable", "feed-invalid"] = ""
    """Why it failed."""
    message: str = ""
    """The same in a sentence."""
    offers: Count = 0
    """Lines that are candidates."""
    refused: Count = 0
    """Lines that are not, each left out alone."""
    unmatched: Count = 0
    """Lines whose family no current generator or configuration file has."""
    examples: tuple[str, ...] = ()
    """Some refused or unmatched lines: where, and what is wrong; never the line itself."""


class Plan(Record, frozen=True, kw_only=True):
    """What a wave may choose from: ``candidates.json``."""

    version: Version = 1
    """The version of this file's format."""
    wave: WaveId
    """The planner run."""
    base: Oid
    """The commit that candidates start from."""
    seed: Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)]
    """What the order of equals was shuffled with."""
    at: Time
    """When the plan was made."""
    families: dict[str, int] = msgspec.field(default_factory=dict)
    """Families by benchmark."""
    candidates: tuple[Candidate, ...] = ()
    """In the order in which they are looked at: least recently tried first, then shuffled by the seed."""
    blocked: tuple[Blocked, ...] = ()
    """Candidates that are not looked at."""
    not_generated: tuple[NotGenerated, ...] = ()
    """Families without a current matrix."""
    sources: tuple[SourceReport, ...] = ()
    """What became of each source."""


# -- selection.json ---------------------------------------------------------------------------------------------------

Gate: TypeAlias = Literal["selected", "plan", "review", "ceiling", "capacity", "baseline", "claim", "dispatch"]
"""Where a candidate stands: selected, or the gate that stopped it."""


class Reason(Record, frozen=True, kw_only=True):
    """One reason of a deferred baseline."""

    code: str
    """The reason code (see docs/baselines.md)."""
    count: Count
    """How many instances there are."""
    message: str
    """The same in a sentence."""
    unblock: str
    """What would unblock it."""


class Decision(Record, frozen=True, kw_only=True):
    """What was decided on one candidate that was looked at."""

    candidate: CandidateId
    """The candidate's id."""
    family: Family
    """The family it would change, ``<file>:<key>``."""
    benchmark: str
    """The benchmark of the configuration that the family belongs to."""
    selected: bool
    """True when the candidate holds its family's claim and its run was asked for."""
    gate: Gate
    """``selected``, or the gate that stopped it."""
    code: str
    """The reason code, ``selected`` for a selected one."""
    message: str
    """The reason in a sentence, by the privacy rules: no figures of a cluster, no words of a child process."""
    unblock: str = ""
    """What would let it pass; empty for a selected one."""
    pulls: tuple[Annotated[int, msgspec.Meta(ge=1)], ...] = ()
    """Open pull requests that the reason is about."""
    subject: str = ""
    """What would change, in a few words."""
    claim: str = ""
    """For a selected one: the oid of its claim."""
    bundle: str = ""
    """For a selected one: the digest of its baseline's evidence bundle."""


class Dispatch(Record, frozen=True, kw_only=True):
    """One candidate run that was asked for."""

    wave: WaveId
    """The wave in whose name the session runs (a continued session keeps its first)."""
    candidate: CandidateId
    """The candidate."""
    kind: Literal["start", "continue"]
    """A new session, or a parked one that goes on."""
    result: Literal["dispatched", "unseen", "already", "refused", "unclear", "claim-lost"]
    """``dispatched``: its run is known. ``unseen``: accepted, its run not visible yet. ``already``: it had been dispatched
    before. ``refused``: a clear no; the claim was released. ``unclear``: no answer, and no run seen; the claim stays.
    ``claim-lost``: another run has the claim; nothing was dispatched."""
    run_id: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """The candidate run's id, where it is known."""
    message: str = ""
    """What happened, in a sentence; empty when all went well."""


class Attention(Record, frozen=True, kw_only=True):
    """Something that a person should look at."""

    code: Literal[
        "excluded-repeatedly", "source-failed", "not-generated", "dispatch-unclear", "claim-unclear", "schedule"
    ]
    """What kind of thing it is."""
    message: str
    """The same in a sentence."""


class Selection(Record, frozen=True, kw_only=True):
    """What a planner run decided on every candidate, and why: ``selection.json``."""

    version: Version = 1
    """The version of this file's format."""
    wave: WaveId
    """The planner run that decided."""
    base: Oid
    """The commit that the candidates start from."""
    seed: Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)]
    """What the order of equals was shuffled with: the same seed, inputs and time give the same plan."""
    at: Time
    """When the selection was made."""
    dry_run: bool = False
    """True when nothing was claimed or dispatched."""
    candidates: tuple[CandidateId, ...] = ()
    """The selected candidates, in the order in which they were claimed."""
    capacity_deferred_candidates: tuple[CandidateId, ...] = ()
    """Candidates stopped at the gate ``capacity``."""
    baseline_deferred_candidates: tuple[CandidateId, ...] = ()
    """Candidates stopped at the gate ``baseline``."""
    baseline_deferral_reasons: dict[str, tuple[Reason, ...]] = msgspec.field(default_factory=dict)
    """For each of those: every reason of its verdict."""
    deferred_reason: str = ""
    """When nothing was selected: the reason code that stopped most candidates (``no-candidates`` when there were none)."""
    decisions: tuple[Decision, ...] = ()
    """One for each candidate, in the order in which they were looked at; those that the plan blocked come last."""
    dispatches: tuple[Dispatch, ...] = ()
    """The candidate runs that were asked for, in order; filled in by ``klaud dispatch``."""
    attention: tuple[Attention, ...] = ()
    """What a person should look at."""
    counts: dict[str, Count] = msgspec.field(default_factory=dict)
    """How many candidates there are by reason code."""
