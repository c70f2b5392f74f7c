"""The records of the reference encoder: what is encoded, how far it came, and what bounds it.

A *reference* is the durable directory that one database's knowledge base becomes: every item turned once, by an agent,
into named and tested entities of a semantic layer. Its key is (benchmark, database, dialect). An *entity* is a column or
a measure on a model, or a whole model; its canonical reference is ``<database>.<model>.<name>`` (``<database>.<model>``
for a model), and each entity carries the item's id as ``meta.kb_id``.

An agent never edits the semantic layer. It *submits* definitions; klaud applies, checks and stores them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec

DIALECTS = ("sqlite", "postgres")
"""The dialects a reference can be built for."""

MODES = ("a-interact", "one-shot")
"""The evaluation modes that references serve. Building is the same for both."""

QUERY_MODES = ("slayer",)
"""The query modes that read a reference."""

STATUSES = ("encoded", "deferred", "error")
"""What can become of an item."""

Status: TypeAlias = Literal["encoded", "deferred", "error"]
Dialect: TypeAlias = Literal["sqlite", "postgres"]
Kind: TypeAlias = Literal["column", "measure", "model"]
KnowledgeType: TypeAlias = Literal["calculation_knowledge", "domain_knowledge", "value_illustration"]

Seconds: TypeAlias = Annotated[float, msgspec.Meta(gt=0, le=100_000_000)]
"""A span of time in seconds."""

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=1_000_000_000_000)]
"""A whole number of things, from 0."""

Check: TypeAlias = Literal[
    "submitted", "at-least-one", "canonical", "exists", "carries-id", "uses-dependencies", "executes", "selects",
    "loads", "within-limits",
]  # fmt: skip
"""The checks of one submission, by name; a failed one is told to the next attempt and written into the item's row."""


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    """What bounds one build. All spans are in seconds, on the monotonic clock, read when used."""

    budget_seconds: Seconds = 20_400.0
    """One build: a hosted job ends after six hours, and the partial reference must be kept before that (5 h 40 min)."""
    entry_seconds: Seconds = 240.0
    """Start of an item's agent until it speaks: the SDK's own hand-shake limit of 60 s fires first."""
    attempt_seconds: Seconds = 300.0
    """One attempt at one item: a formula takes an agent a minute or two; longer means that it is lost."""
    attempts: Annotated[int, msgspec.Meta(ge=1, le=20)] = 4
    """Attempts at one item: what four rounds of named failures do not mend, a fifth does not either."""
    teardown_seconds: Seconds = 30.0
    """Ending an item's process group: the runner kills a cancelled job soon after."""
    nudge_after: Count = 35
    """Tool calls of one attempt after which every answer reminds the agent to submit."""
    turns: Count = 120
    """Rounds of an agent with its model in one attempt: a loop that makes no progress ends here."""
    lock_seconds: Seconds = 21_600.0
    """Waiting for another build of the same reference: somewhat longer than that build's own budget."""
    query_seconds: Seconds = 20.0
    """One statement on the database: entities are aggregates and expressions; a cross join is a mistake."""
    submission_bytes: Count = 262_144
    """One submission: a hundred definitions of two kilobytes."""
    definitions: Count = 100
    """Definitions in one submission."""
    answer_characters: Count = 8000
    """One answer of a tool to the agent: an answer must not fill its context."""
    note_characters: Count = 700
    """One free text from the agent in a row of the results; the rest is cut."""
    model: str = ""
    """Model that the claude framework asks for; empty: ``session.model``. One of the two must be named."""


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """Which reference: a benchmark, one of its databases, and the dialect it is built for."""

    benchmark: str
    database: str
    dialect: Dialect = "sqlite"


# -- inputs


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """One item of the knowledge base. ``children`` are the ids of the items it depends on, unknown ones dropped."""

    id: int
    knowledge: str
    description: str
    definition: str
    type: KnowledgeType
    children: tuple[int, ...] = ()


class Meaning(msgspec.Struct, frozen=True, kw_only=True):
    """What one column means, in words. Table and column are matched without regard to case."""

    table: str
    column: str
    text: str


class Inputs(msgspec.Struct, frozen=True, kw_only=True):
    """All that one database's reference is made from; ``fingerprint`` is 16 hex digits over the contents."""

    key: Key
    items: tuple[Item, ...]
    meanings: tuple[Meaning, ...]
    warnings: tuple[str, ...]
    fingerprint: str


# -- what an agent submits


class Definition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entity as an agent proposes it.

    ``kind`` column or measure: ``model`` is the host, ``name`` the entity. ``kind`` model: ``model`` is its own name
    and ``name`` is empty. ``body`` holds the semantic layer's own fields (``BODY_FIELDS``); klaud adds name and tag.
    """

    kind: Kind
    model: str
    name: str = ""
    body: dict[str, Any] = {}


BODY_FIELDS: dict[Kind, frozenset[str]] = {
    "column": frozenset({"sql", "type", "description", "label", "filter", "format"}),
    "measure": frozenset({"formula", "type", "description", "label"}),
    "model": frozenset({"sql", "source_queries", "columns", "measures", "joins", "description"}),
}
"""What a definition may say, by kind. Never ``meta``: the tag is klaud's."""


class Submission(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An agent's answer for one attempt. ``nonce`` is the attempt's own; any other makes the submission stale.

    ``status`` deferred: the item cannot be encoded, ``notes`` says why. ``entities`` are canonical references.
    """

    nonce: str
    status: Literal["encoded", "deferred"] = "encoded"
    definitions: tuple[Definition, ...] = ()
    entities: tuple[str, ...] = ()
    notes: str = ""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """A failed check and what failed, in a sentence for the agent and for the row."""

    check: Check
    text: str


# -- what becomes of an item


class Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of ``_setup_results.json``: what became of an item.

    ``entities`` are canonical references, empty unless ``status`` is encoded. ``notes`` says why an item was deferred,
    ``error`` why it failed.
    """

    kb_id: int
    status: Status
    entities: tuple[str, ...] = ()
    notes: str = ""
    error: str = ""


class Usage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What agents used: tokens, US dollars, item sessions, attempts. Add with ``+``; the zero is ``Usage()``."""

    input_tokens: int = 0
    output_tokens: int = 0
    dollars: float = 0.0
    sessions: int = 0
    attempts: int = 0
    tool_calls: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            dollars=self.dollars + other.dollars,
            sessions=self.sessions + other.sessions,
            attempts=self.attempts + other.attempts,
            tool_calls=self.tool_calls + other.tool_calls,
        )


class UsageFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``_setup_usage.json``: what the whole build used, and when it was complete (ISO 8601, UTC)."""

    total: Usage
    framework: str
    model: str
    layer: str
    completed: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``_partial.json`` in ``<database>.partial/``: the settled items of a build that ran out of budget.

    ``definitions`` holds, for each encoded item by its id as text, what was accepted. A manifest of another
    ``fingerprint`` is of other inputs and is not resumed.
    """

    fingerprint: str
    rows: tuple[Row, ...]
    definitions: dict[str, tuple[Definition, ...]]
    usage: Usage


State: TypeAlias = Literal["absent", "complete", "partial", "scrap"]
"""What a reference's place holds: nothing; a directory with its marker; a partial one; one without marker or manifest."""


class ReferenceEntry(msgspec.Struct, frozen=True, kw_only=True):
    """What ``ensure_reference`` returns.

    ``built`` is true only for the call that ran the encoder, and ``usage`` is what that call used (else zero), so that
    adding up entries counts each token once. ``wasted`` is what a call used whose result was not kept because another
    build was there first. ``state`` is complete or partial; ``directory`` is then ``<database>`` or its ``.partial``.
    """

    directory: str
    fingerprint: str
    kb_rows: tuple[Item, ...]
    results: tuple[Row, ...]
    built: bool
    state: Literal["complete", "partial"] = "complete"
    usage: Usage = Usage()
    wasted: Usage = Usage()
    warnings: tuple[str, ...] = ()


# -- one item's session


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent is told for one attempt: written as ``task.json`` into its workspace.

    ``dependencies`` maps the id (as text) of each item it depends on to that item's name and entities. ``failed`` holds
    the failed checks of the attempt before, and only those. ``models`` names the semantic layer's models and what they
    have. ``nonce`` must come back in the submission.
    """

    nonce: str
    attempt: int
    benchmark: str
    database: str
    dialect: Dialect
    item: Item
    dependencies: dict[str, Dependency]
    models: dict[str, ModelSummary]
    failed: tuple[Problem, ...] = ()
    previous: tuple[Definition, ...] = ()


class Dependency(msgspec.Struct, frozen=True, kw_only=True):
    """An item that another depends on: its name and the canonical references of its entities."""

    knowledge: str
    entities: tuple[str, ...]


class ModelSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A model of the semantic layer in short: names of columns and measures, and of the models it joins."""

    columns: tuple[str, ...] = ()
    measures: tuple[str, ...] = ()
    joins: tuple[str, ...] = ()
    description: str = ""


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """How long one attempt may take, in seconds, and how many rounds and tool calls it has."""

    entry_seconds: float
    attempt_seconds: float
    teardown_seconds: float
    turns: int
    nudge_after: int


Ended: TypeAlias = Literal["finished", "entry-timeout", "timeout", "turn-limit", "crashed", "failed", "never-ran"]
"""How an agent's attempt ended. Only ``finished`` (and a turn limit after a submission) lets a submission count.

``never-ran``: the program is missing, too old, or could not log in. That is nobody's knowledge item: it ends the build.
"""


class ItemResult(msgspec.Struct, frozen=True, kw_only=True):
    """How an attempt ended; never what the agent claims. ``detail`` is a closed phrase for the row, without paths."""

    ended: Ended
    usage: Usage = Usage()
    detail: str = ""
