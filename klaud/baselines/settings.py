"""The settings of one benchmark's baselines: how its generator is called, where its rows are, what its fields mean.

Each is a frozen struct with kebab-case keys, so that the configuration file decodes into it as it stands. Another
benchmark repository is described with these alone; no code of klaud knows a repository.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

import msgspec

Scalar: TypeAlias = str | int | float | bool | None

Equivalence: TypeAlias = Literal[
    "aggregate-mirror", "one-worker-aggregate-as-single-node", "agentic-single-node-disagg-flag"
]
"""The named equivalences of baselines.md 3; each is off unless the configuration names it."""

Transform: TypeAlias = Literal["", "image", "runner", "lower"]
"""Named normalisations of a text; ``identity.py`` says what each does."""


class Setting(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    """Base of the settings: immutable, kebab-case, an unknown key is an error."""


class Field(Setting, frozen=True, kw_only=True):
    """One field of the identity.

    ``row`` and ``entry`` are where it is read: a key, or keys joined by dots; of several, the first that is there.
    Empty: the field's own name. A path that ends in ``?`` reads as whether there is such a key. ``default`` stands for
    an absent or null value and makes the field optional.
    """

    type: Literal["text", "integer", "number", "flag"] = "text"
    """What the value must be; anything else makes the row malformed (the entry: ``generator-output-invalid``)."""
    row: str | tuple[str, ...] = ()
    """Where a published row has it."""
    entry: str | tuple[str, ...] = ()
    """Where a matrix entry has it."""
    default: Scalar | msgspec.UnsetType = msgspec.UNSET
    """What an absent value means, on both sides; unset: the field is required."""
    transform: Transform = ""
    """A named normalisation, applied on both sides."""
    entry_transform: Transform = ""
    """A named normalisation, applied to matrix entries only, before ``values``."""
    values: Mapping[str, Scalar] = {}
    """Matrix words to published words (``dram: "on"``); a word that is not here stays as it is."""
    scope: bool = False
    """True for the coarse fields by which a row that matches nothing is attributed to a family."""
    varies: bool = False
    """True for a field that a candidate may change (an image): a newer run's point supersedes across it."""
    list: bool = False
    """True where an entry may give several values, each of them a point of its own (``conc``)."""


class Schema(Setting, frozen=True, kw_only=True):
    """The identity's fields. ``base: inference`` starts from the built-in ones, ``none`` from nothing."""

    base: Literal["inference", "none"] = "inference"
    """Which fields are there before ``fields`` adds and replaces."""
    fields: Mapping[str, Field] = {}
    """Fields by name, in order; a name of the base replaces that field."""


class OptionalArgument(Setting, frozen=True, kw_only=True):
    """An argument that old generators may not know, and what its absence means for their output."""

    argument: str
    """The argument as one word, for instance ``--no-evals``; it is added at the end of the command."""
    meaning: Literal["throughput-only", "same-output"] = "same-output"
    """What to keep of the output of a generator that does not know it. ``throughput-only`` drops entries with
    ``eval-only: true``; ``same-output`` keeps everything (the argument changes nothing that is compared)."""


class Layout(Setting, frozen=True, kw_only=True):
    """How commits of one period lay out their generator. The first layout whose ``when`` files all exist is taken."""

    when: tuple[str, ...] = ()
    """Files (or globs) that all exist at the commit; empty: always."""
    inputs: tuple[str, ...]
    """Files and folders that the generator reads, taken from the object store. Their blob ids are the cache's key."""
    commands: tuple[tuple[str, ...], ...]
    """Command alternatives; one is passed over when the generator does not know its subcommand or an option.
    Placeholders: ``{root}``, ``{family}`` (the key), ``{file}`` (its file at that commit), ``{configs}`` and every name
    in ``paths`` (as a whole word: one word for each existing file), ``{families}`` (one word for each key)."""
    configs: tuple[str, ...] = ()
    """Globs of the master configuration files, for ``{configs}``."""
    paths: Mapping[str, tuple[str, ...]] = {}
    """More placeholders: name to globs (``runners: [configs/runners.yaml]``)."""
    output: Literal["json", "jsonl"] = "json"
    """``json``: stdout is one list of objects. ``jsonl``: one object a line."""
    family_field: str = ""
    """The entry's field with its family's key, where one call gives several (``{families}``, or a whole matrix)."""
    driver: Literal["", "python"] = ""
    """``python``: klaud's driver runs a Python script once for each family in one process (a fork each), with the
    imports and the parsed YAML shared. The script must be the command's first ``.py`` word."""


class Bounds(Setting, frozen=True, kw_only=True):
    """What one generator process may use. Over a bound it is ended and named."""

    seconds: float = 60.0
    """Wall-clock seconds of one call: the slowest real generator took 2.4."""
    memory_bytes: int = 2 << 30
    """Address space of each process, and resident memory of all together; real ones need 0.2 GB."""
    output_bytes: int = 64 << 20
    """Standard output: the largest real matrix has 2 MB."""
    file_bytes: int = 64 << 20
    """Size of any file in the scratch folder, and of the folder."""
    processes: int = 64
    """Processes and threads at one time: a build tool may fork, a bomb may not."""
    input_bytes: int = 256 << 20
    """All inputs of one commit together: a configured folder may hold more than was meant."""
    parallel: int = 0
    """Calls at one time; 0: as many as there are processors."""


class Generator(Setting, frozen=True, kw_only=True):
    """How the matrix of a commit is made."""

    layouts: tuple[Layout, ...] = ()
    """In order; the first that fits the commit's files."""
    optional_arguments: tuple[OptionalArgument, ...] = ()
    """Added to each command where the commit knows them."""
    fields: Mapping[str, str | tuple[str, ...]] = {}
    """Identity field to where a matrix entry has it, where that differs from the schema."""
    fingerprint: str = "recipe-fingerprint"
    """Where an entry has its recipe's fingerprint; absent in most."""
    environment: Mapping[str, str] = {}
    """Variables that the generator needs. Nothing else of klaud's environment but PATH is passed on."""
    salt: str = ""
    """Part of the cache's key: change it when libraries that the generators import have changed."""
    bounds: Bounds = Bounds()
    """Limits of one call."""
    isolation: Literal["preferred", "required"] = "preferred"
    """``required``: nothing is started where the host grants no namespaces."""
    trusted: tuple[str, ...] = ()
    """Commits (full object ids) that a person vouches for."""


class Source(Setting, frozen=True, kw_only=True):
    """Where a JSON document is: exactly one of an HTTPS address and a file (relative to the repository's root)."""

    feed: str = ""
    """HTTPS address. ``{run}`` stands for a run id where one document a run is asked for."""
    file: str = ""
    """Path of a file."""


class Rows(Setting, frozen=True, kw_only=True):
    """Where the published rows are, and how they are written."""

    feed: str = ""
    """HTTPS address of the rows: a JSON list, or an object with the list under ``list``."""
    file: str = ""
    """Or a file, relative to the repository's root."""
    list: str = ""
    """Key of the list in an object; empty: the document is the list (or ``rows``)."""
    fields: Mapping[str, str | tuple[str, ...]] = {}
    """Identity field to where a row has it, where that differs from the schema."""
    run_url: str = "run_url"
    """Where a row has the address of its producer run."""
    metrics: str = "metrics"
    """Where a row has its numbers; empty: every number outside the identity."""
    date: str = "date"
    """Where a row has its date."""
    fingerprint: str = "recipe_fingerprint"
    """Where a row has its recipe's fingerprint."""
    workflow_info: Source | None = None
    """Runs that GitHub no longer has: a JSON list of ``{run_id, attempt, head_sha}``."""
    changelog: Source | None = None
    """What each run meant to publish: a JSON list of ``{run_id, families: [glob, ...]}``."""
    only: Mapping[str, Scalar | tuple[Scalar, ...]] = {}
    """Which rows of a feed that several benchmarks share are this one's: where a row says it, to the value (or values)
    that this benchmark's rows have there. Rows that say another one are left aside and counted by what they say; a row
    that says nothing is judged like any other."""
    limit_bytes: int = 256 << 20
    """Size of the document: 100,000 rows are about 80 MB."""
    limit_rows: int = 500_000
    """Rows read; more is ``feed-invalid``, since a cut feed would look like retired points."""


class Retired(Setting, frozen=True, kw_only=True):
    """Published points that a person has retired, so that their absence from the current matrix is no surprise."""

    family: str
    """A glob over ``<file>:<key>``."""
    match: Mapping[str, Scalar] = {}
    """Identity fields and their values; all must agree. Empty: every point of the family. One that names a coarse field
    also excuses rows of a kind that no family has any more (a model that was removed), so that none is taken for a drifted
    row of ``family``."""
    reason: str = ""
    """Why, for people."""
