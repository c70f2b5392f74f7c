"""Published points, matrix entries, and what may be said of a family's baseline.

An *identity* is the tuple of values, in the order of a ``Schema``, by which a published row and an entry of the
producer's matrix are the same point. The schema is data: the built-in one (``schema.INFERENCE``) describes inference
benchmarks, and a repository that measures something else names its own fields in the configuration.

Everything here is frozen and plain, so that it can be written to a file by one job and read by another.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from klaud.baselines import settings

Value: TypeAlias = str | int | float | bool | None
"""One identity value. None where the point has none (an agentic benchmark has no ``isl``)."""

Identity: TypeAlias = tuple[Value, ...]
"""Values in the order of the schema's fields."""

ReasonCode: TypeAlias = Literal[
    "feed-unavailable",
    "feed-invalid",
    "producer-unprovable",
    "producer-untrusted",
    "producer-unavailable",
    "generator-failed",
    "generator-output-invalid",
    "generator-timeout",
    "no-published-points",
    "unmatched",
    "ambiguous",
    "duplicate-point",
    "legacy-not-selecting",
    "point-retired",
    "source-image-moved",
    "recipe-changed",
    "internal-error",
]
"""Why a family is deferred; the closed set of baselines.md 4."""

MAX_EXAMPLES = 20
"""Examples per reason: enough to see the pattern, few enough for a step summary."""


class Policy(settings.Setting, frozen=True, kw_only=True):
    """What one benchmark's baselines are made of and judged by: one entry of ``benchmarks:``."""

    name: str
    """The benchmark's name; a brief names it."""
    generator: settings.Generator = settings.Generator()
    """How the matrix of a commit is made."""
    rows: settings.Rows = settings.Rows()
    """Where the published rows are."""
    identity: settings.Schema = settings.Schema()
    """What makes two points the same."""
    equivalences: tuple[settings.Equivalence, ...] = ()
    """Named equivalences that are on; each is counted where it was needed."""
    retired: tuple[settings.Retired, ...] = ()
    """Published points that need no match in the current matrix."""
    renames: Mapping[str, str] = {}
    """Old path of a master configuration file to its present one."""
    outlier_factor: float = 3.0
    """A value this many times above or below the median of its own history is flagged; 0 switches it off."""
    outlier_history: int = 3
    """Older values needed before a median means anything."""


class Record(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Base of the records: immutable, keyword-only."""


# -- rows and entries -------------------------------------------------------------------------------------------------


class Row(Record, frozen=True, kw_only=True):
    """One published row, decoded.

    ``index`` is its place in the feed (for a person only: no rule reads it); ``digest`` is the SHA-256 hex of its
    canonical text. ``run_id`` and ``attempt`` are None where ``run_url`` does not have exactly the expected form.
    ``metrics`` holds the numbers only.
    """

    index: int
    digest: str
    identity: Identity
    metrics: Mapping[str, float]
    run_url: str
    run_id: int | None
    attempt: int | None
    date: str = ""
    fingerprint: str | None = None


class Malformed(Record, frozen=True, kw_only=True):
    """One row or entry that could not be read: where it stands and what is wrong, in klaud's own words."""

    index: int
    why: str


class Entry(Record, frozen=True, kw_only=True):
    """One point of a producer's matrix (a ``conc`` list is already expanded).

    ``position`` is the index of the matrix entry that it came from.
    """

    position: int
    identity: Identity
    fingerprint: str | None = None


# -- what is known about producers ------------------------------------------------------------------------------------


class Proof(Record, frozen=True, kw_only=True, tag="proven"):
    """The commit of one producer run, and how it was proven: ``run`` (GitHub said so) or ``workflow-info``."""

    run_id: int
    attempt: int
    commit: str
    how: Literal["run", "workflow-info"]


class Unproven(Record, frozen=True, kw_only=True, tag="unproven"):
    """A run whose commit cannot be proven. ``why`` completes the sentence "re-run family X: ..."."""

    run_id: int
    why: str


class Trusted(Record, frozen=True, kw_only=True, tag="trusted"):
    """A commit whose generator may be started, and why."""

    commit: str
    how: Literal["ancestor", "merged-head", "listed"]
    detail: str = ""


class Untrusted(Record, frozen=True, kw_only=True, tag="untrusted"):
    """A commit whose generator is never started. ``unknown``: it could not be found out, which is no yes either."""

    commit: str
    why: str
    unknown: bool = False


class Proofs(Record, frozen=True, kw_only=True):
    """What the job with the credential found out: the file's text is data for the job without one.

    ``runs``: by run id, as text. ``commits``: by full object id. ``changelog``: by run id, the family patterns that the
    run's changelog selects; None where no changelog is configured.
    """

    runs: Mapping[str, Proof | Unproven] = {}
    commits: Mapping[str, Trusted | Untrusted] = {}
    changelog: Mapping[str, tuple[str, ...]] | None = None


class Need(Record, frozen=True, kw_only=True):
    """One producer commit and the families (``<file>:<key>``) whose matrix at that commit is wanted."""

    commit: str
    families: tuple[str, ...]


class Matrix(Record, frozen=True, kw_only=True, tag="matrix"):
    """What a commit's own generator said of one family.

    ``dropped``: optional arguments that this commit did not know, so that the output was filtered by their meaning.
    ``inputs`` is the digest of the input listing, ``layout`` the index of the layout that fitted; ``daemons`` counts the
    processes that the generator left behind (they were ended).
    """

    commit: str
    family: str
    entries: tuple[dict[str, Any], ...]
    dropped: tuple[str, ...] = ()
    inputs: str = ""
    layout: int = 0
    cached: bool = False
    daemons: int = 0


class NotGenerated(Record, frozen=True, kw_only=True, tag="not-generated"):
    """Why there is no matrix. ``error`` is a type of error or an exit status, never a child's words."""

    commit: str
    family: str
    code: Literal[
        "producer-untrusted",
        "producer-unavailable",
        "generator-failed",
        "generator-output-invalid",
        "generator-timeout",
        "internal-error",
    ]
    error: str


class Isolation(Record, frozen=True, kw_only=True):
    """What actually stood between the generators and the machine, as found out by trying."""

    method: Literal["namespaces", "bubblewrap", "process-group"] = "process-group"
    network: Literal["none", "host"] = "host"
    writes: Literal["scratch-only", "file-permissions"] = "file-permissions"
    ends_daemons: Literal["pid-namespace", "process-group-and-scan"] = "process-group-and-scan"
    why: str = ""


class Outcome(Record, frozen=True, kw_only=True):
    """What one sandboxed process did. ``exceeded`` names the bound it went over, ``daemons`` counts what it left behind.

    ``exit`` is the status (negative: a signal). ``stderr`` is private: it is looked at and dropped.
    """

    exit: int
    stdout: bytes
    stderr: bytes
    exceeded: str = ""
    daemons: int = 0
    not_started: str = ""
    seconds: float = 0.0


class Produced(Record, frozen=True, kw_only=True):
    """The result of ``regenerate``; as JSON it is the file ``producers.json``.

    ``calls`` counts processes started for generators, ``cached`` the matrices that needed none, ``rebuilt`` the cache
    entries that were damaged and made anew.
    """

    version: int = 1
    benchmark: str
    matrices: tuple[Matrix | NotGenerated, ...]
    isolation: Isolation = Isolation()
    calls: int = 0
    cached: int = 0
    rebuilt: int = 0


# -- the verdict ------------------------------------------------------------------------------------------------------


class Difference(Record, frozen=True, kw_only=True):
    """One identity field (or setting) in which a row and the nearest entry differ, as texts."""

    field: str
    row: str
    matrix: str


class Example(Record, frozen=True, kw_only=True):
    """One instance of a reason. ``row`` is the row's digest, or empty; ``text`` is klaud's own words."""

    text: str
    row: str = ""
    run_id: int | None = None
    differences: tuple[Difference, ...] = ()


class Reason(Record, frozen=True, kw_only=True):
    """Why a family is deferred: ``count`` instances, at most MAX_EXAMPLES of them, and what would unblock it."""

    code: ReasonCode
    count: int
    message: str
    unblock: str
    examples: tuple[Example, ...] = ()


class Older(Record, frozen=True, kw_only=True):
    """An older row of the same point, superseded by a newer run."""

    row: str
    run_id: int
    attempt: int


class Outlier(Record, frozen=True, kw_only=True):
    """A metric of a point far from the median of its own history; a flag, not a reason to defer."""

    metric: str
    value: float
    median: float
    history: int


class Point(Record, frozen=True, kw_only=True):
    """One published point tied to one matrix entry: what a candidate will be compared with.

    ``identity`` by field name; ``row`` the row's digest; ``entry`` the position in the producer's matrix;
    ``proven``/``trusted`` say how the producer's commit was proven and why its generator was started.
    """

    row: str
    identity: Mapping[str, Value]
    metrics: Mapping[str, float]
    run_id: int
    attempt: int
    commit: str
    proven: str
    trusted: str
    entry: int
    equivalences: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    older: tuple[Older, ...] = ()
    outliers: tuple[Outlier, ...] = ()


class Sibling(Record, frozen=True, kw_only=True):
    """A row near this family that is the point of another family."""

    row: str
    family: str


class Verdict(Record, frozen=True, kw_only=True):
    """What is proven about one family.

    ``points`` are the tied points, also where the family is deferred for others. ``equivalences`` counts, by name, the
    points that needed one. ``siblings`` holds at most MAX_EXAMPLES of ``sibling_count``. ``retired`` lists published
    points that the retirement table excuses (their digests). ``unpublished`` counts points of the current matrix that
    nobody published.
    """

    benchmark: str
    family: str
    verdict: Literal["verified", "deferred"]
    reasons: tuple[Reason, ...] = ()
    points: tuple[Point, ...] = ()
    equivalences: Mapping[str, int] = {}
    dropped: tuple[str, ...] = ()
    siblings: tuple[Sibling, ...] = ()
    sibling_count: int = 0
    retired: tuple[str, ...] = ()
    unpublished: int = 0


class Relied(Record, frozen=True, kw_only=True):
    """What a verdict was made from: the rows, by digest, and every family that these rows could belong to."""

    rows: frozenset[str] = frozenset()
    families: frozenset[str] = frozenset()


class Judgement(Record, frozen=True, kw_only=True):
    """Verdicts of several families over one feed.

    ``malformed`` are the unreadable rows; ``aside`` counts those of other benchmarks, by what they say; ``outside`` counts
    rows that no asked family has to answer for. ``relied``, by
    family, spares ``bundle.make`` from judging the whole feed again.
    """

    verdicts: tuple[Verdict, ...]
    rows: int = 0
    malformed: tuple[Malformed, ...] = ()
    malformed_count: int = 0
    aside: Mapping[str, int] = {}
    outside: int = 0
    relied: Mapping[str, Relied] = {}
