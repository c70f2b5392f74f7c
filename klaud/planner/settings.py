"""The planner's settings: what a wave may start, from where its candidates come, and on what it works."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

from klaud.baselines import model as baselines_model
from klaud.baselines import settings as baselines_settings
from klaud.session import model as session_model

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]
"""A whole number of things, from 0."""

Positive: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=1_000_000_000)]
"""A whole number from 1."""

Text: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=2000)]
"""A text that is not empty."""

FOLDER = r"^[A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)*$"
"""A folder of the repository: relative, and no part of it begins with a dot."""


class Capacity(session_model.Section, frozen=True, kw_only=True):
    """Where to ask whether a target has room. Neither ``url`` nor ``command``: nothing is asked, everything counts as free.

    The answer is a JSON object ``{"targets": {"<name>": {"total": 8, "allocated": 2, "mixed": 1, "idle": 5}}}``. A target
    is free when ``(allocated + mixed) * 5 < total * 4`` and at least one unit is idle; a target that the answer does not
    have, or an answer that cannot be read, is unknown, which defers with its own reason.
    """

    url: str = ""
    """An HTTPS address that answers with the figures; ``KLAUD_CAPACITY_KEY`` is sent as a bearer token where it is set."""
    command: tuple[str, ...] = ()
    """A program and its arguments that prints the figures on stdout; no shell; the key is in its environment."""
    timeout_seconds: Positive = 20
    """Seconds to wait for the answer: a wave must not hang on a cluster's slow scheduler."""
    limit_bytes: Positive = 1_048_576
    """Most bytes of an answer: a thousand targets fit into a tenth of it."""
    target: Text = "{hardware}"
    """The target that a candidate needs, from fields of its family's matrix entries, e.g. ``{hardware}``."""


class Policy(session_model.Section, frozen=True, kw_only=True):
    """What one wave may start and spend. A ceiling that is reached defers the rest with that reason."""

    candidates_per_wave: Count = 4
    """Candidates started in one wave: each occupies expensive runners for hours."""
    ramp: bool = False
    """One candidate in the first wave after a change of klaud's configuration, or where none was started in 30 days."""
    open_drafts: Count = 20
    """Open drafts of klaud at most: more than maintainers can look at helps nobody."""
    ready_unreviewed: Count = 10
    """Pull requests of klaud that are ready and that nobody has reviewed: when this many wait, start nothing new."""
    dispatches_per_day: Count = 24
    """Candidate runs started within 24 hours, over all waves, counted by GitHub's own listing of the workflow's runs."""
    dollars_per_day: Count = 200
    """US dollars of model use within 24 hours, as the sessions' outcomes recorded it. 0 stops all dispatching."""
    dollars_per_month: Count = 3000
    """US dollars of model use within 30 days, as the sessions' outcomes recorded it."""
    dispatch_interval_seconds: Positive = 1
    """Seconds between two dispatches: GitHub asks for at least one second between writes of content."""
    dispatch_visible_seconds: Count = 20
    """Seconds to look for a run whose dispatch was answered without its id; later it is seen by its marker anyway."""
    review_candidates: Positive = 40
    """Most candidates that one wave looks at: bounds the baselines' and the review's cost."""
    exclusions_before_report: Positive = 3
    """Waves in a row that the review may exclude a family before a person is told (an injected text can do no more)."""
    source_limit_bytes: Positive = 16_777_216
    """Most bytes of one candidate source."""
    source_limit_records: Positive = 10_000
    """Most candidates that one source may name."""
    source_timeout_seconds: Positive = 60
    """Seconds for one candidate source to answer or to end."""
    until_quiet_rounds: Positive = 20
    """Most rounds of ``klaud wave --until-quiet``."""
    until_quiet_seconds: Positive = 5
    """Seconds between two rounds of ``klaud wave --until-quiet``."""
    capacity: Capacity = Capacity()
    """Where to ask for room."""


class Families(session_model.Section, frozen=True, kw_only=True):
    """Which families a benchmark has: each top-level key of each file is one."""

    files: Annotated[tuple[Text, ...], msgspec.Meta(min_length=1)]
    """Globs of the configuration files, relative to the repository (``*`` does not cross ``/``, ``**`` does)."""
    keys: tuple[Text, ...] = ("*",)
    """Globs of the keys that count."""


class Source(session_model.Section, frozen=True, kw_only=True):
    """One source of candidates: exactly one of ``feed``, ``file`` and ``command``. JSON Lines, one candidate a line.

    A line is ``{"family": "<file>:<key>", "subject": "image v2", "change": {"<key path>": value}}``.
    """

    feed: str = ""
    """An HTTPS address."""
    file: str = ""
    """A file of the repository."""
    command: tuple[str, ...] = ()
    """A program and its arguments that prints the lines; it runs in the job without credentials, without a shell."""

    def __post_init__(self) -> None:
        """Refuse a source that is none or several of the three."""
        if sum((bool(self.feed), bool(self.file), bool(self.command))) != 1:
            message = "a source is exactly one of feed, file and command"
            raise ValueError(message)


class Benchmark(baselines_model.Policy, frozen=True, kw_only=True):
    """One benchmark matrix of the repository: what its baselines are made of, and what klaud does with it."""

    name: Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")] = "benchmark"
    """Its name in messages and briefs; different for each benchmark."""
    generator: baselines_settings.Generator
    """How its matrix is generated."""
    rows: baselines_settings.Rows
    """Where its published rows are."""
    families: Families = Families(files=("configs/*.yaml",))
    """Which families it has."""
    sources: Annotated[tuple[Source, ...], msgspec.Meta(min_length=1)]
    """Where its candidates come from."""
    recipes: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    """Glob of families (``<file>:<key>``) -> globs of files that belong to such a family alone; ``{key}`` is filled in.
    An open pull request that edits one of them blocks the family's candidates."""
    shared: tuple[Text, ...] = ()
    """Globs of files that may matter to every family (a generator): a reviewer is asked about edits of them."""
    workflows: session_model.Workflows
    """What klaud starts for it."""
    edit_scope: session_model.EditScope | None = None
    """What an agent may change; ``klaud validate`` refuses a benchmark without it."""


class References(session_model.Section, frozen=True, kw_only=True):
    """A benchmark of databases whose knowledge is encoded into references: each is a candidate of kind ``encode``."""

    name: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")]
    """The benchmark's name in families (``<name>:<database>``), paths and artifacts; different for each entry."""
    data: Annotated[str, msgspec.Meta(pattern=FOLDER)] = "data"
    """Folder of the repository with one folder of inputs for each database; read at the base commit."""
    directory: Annotated[str, msgspec.Meta(pattern=FOLDER)] = "references"
    """Folder of the repository for the references, ``<directory>/<name>/<database>/``: all that a session may change."""
    sources: tuple[Source, ...] = ()
    """Where its candidates come from; none: each database below ``data`` that has no complete reference is one."""
    options: dict[str, str] = msgspec.field(default_factory=dict)
    """What each candidate asks for unless its source says so: ``framework``, ``authentication``, ``dialect``, ``budget``,
    ``mode``, ``query-mode``, as the options of ``klaud encode``."""
    program: tuple[str, ...] = ()
    """For a framework without a model: the command that answers for the agent. ``{root}`` is the candidate run's checkout,
    ``{python}`` klaud's own Python; the program sees no other folder but its own and Python's."""
    workflows: session_model.Workflows
    """What klaud starts for it: ``final`` is the workflow that runs ``klaud check-references``; nothing else is used."""
