"""The baselines of a plan's candidates, from the current matrices to verdicts, along the line between credentials.

``current`` and ``produce`` run the repository's own generators and need no credential; ``prove`` asks GitHub and runs
nothing; ``judge`` is pure. What passes between is ``Evidence``, one a benchmark (``baselines.json``). A benchmark whose
evidence cannot be had defers its own families, under the reason, and no other benchmark's.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import msgspec

from klaud import errors
from klaud.baselines import bundle
from klaud.baselines import model as baselines
from klaud.baselines import observe as rows
from klaud.baselines import run as verbs
from klaud.planner import model

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from klaud.baselines import producers
    from klaud.github import gateway as gateways
    from klaud.planner import settings

FILE = "baselines.json"
"""The evidence of all benchmarks, handed from job to job and growing on the way."""


class Evidence(model.Record, frozen=True, kw_only=True):
    """What is known of one benchmark's baselines so far."""

    benchmark: str
    """The benchmark's name."""
    produced: baselines.Produced
    """The current matrices, and the producers' once they are made."""
    read: rows.RowsRead | None = None
    """The published rows, once they are read."""
    proofs: baselines.Proofs | None = None
    """Which commits the producer runs have, and which of them are trusted."""
    failed: rows.FeedFailed | None = None
    """Why there are no rows or proofs."""


class Evidences(model.Record, frozen=True, kw_only=True):
    """The file's content."""

    version: model.Version = 1
    """The version of this file's format."""
    base: model.Oid
    """The commit whose matrices are the current ones."""
    benchmarks: tuple[Evidence, ...]
    """One for each benchmark of the configuration."""

    def of(self, benchmark: str) -> Evidence | None:
        """Return one benchmark's evidence."""
        return next((one for one in self.benchmarks if one.benchmark == benchmark), None)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """Where GitHub and the feeds are asked, and as whom. ``tip``: the default branch's head in the clone ``git``."""

    gateway: gateways.Gateway
    git: producers.GitObjects
    repository: str
    host: str
    tip: str
    default_branch: str
    place: rows.Place
    root: Path


def current(
    benchmark: settings.Benchmark, families: Sequence[str], *, base: str, git: producers.GitObjects, cache: Path | None
) -> baselines.Produced:
    """Make the current matrices of a benchmark's families."""
    need = baselines.Need(commit=base, families=tuple(families))
    return verbs.regenerate(benchmark, [need] if families else [], git=git, cache_folder=cache)


def prove(benchmark: settings.Benchmark, evidence: Evidence, families: Sequence[str], asking: Asking) -> Evidence:
    """Read the published rows and prove the runs that matter to ``families``; what fails is in the answer."""
    try:
        read = verbs.read_rows(
            benchmark, root=asking.root, repository=asking.repository, host=asking.host, place=asking.place
        )
        if isinstance(read, rows.FeedFailed):
            return msgspec.structs.replace(evidence, failed=read)
        runs = verbs.runs_of(benchmark, read, evidence.produced, families)
        proofs = verbs.prove(
            benchmark,
            read,
            runs=runs,
            gateway=asking.gateway,
            git=asking.git,
            tip=asking.tip,
            default_branch=asking.default_branch,
            root=asking.root,
            place=asking.place,
        )
    except errors.ReadFailedError as error:
        failed = rows.FeedFailed(code="feed-unavailable", message=str(error))
        return msgspec.structs.replace(evidence, failed=failed)
    if isinstance(proofs, rows.FeedFailed):
        return msgspec.structs.replace(evidence, failed=proofs)
    return msgspec.structs.replace(evidence, read=read, proofs=proofs)


def needs(benchmark: settings.Benchmark, evidence: Evidence, families: Sequence[str]) -> tuple[baselines.Need, ...]:
    """Return the proven producers' commits whose matrices must still be made."""
    if evidence.read is None or evidence.proofs is None:
        return ()
    return verbs.needs(benchmark, evidence.read, evidence.proofs, evidence.produced, families=families)


def produce(
    benchmark: settings.Benchmark,
    evidence: Evidence,
    families: Sequence[str],
    *,
    git: producers.GitObjects,
    cache: Path | None,
) -> Evidence:
    """Make the matrices of the proven producers' commits, and add them to the evidence."""
    wanted = needs(benchmark, evidence, families)
    if not wanted:
        return evidence
    return joined(evidence, verbs.regenerate(benchmark, wanted, git=git, cache_folder=cache))


def joined(evidence: Evidence, made: baselines.Produced) -> Evidence:
    """Add matrices that another job made; InputError where they are another benchmark's."""
    if made.benchmark != evidence.benchmark:
        message = f"matrices of {made.benchmark} were handed in for {evidence.benchmark}"
        raise errors.InputError(message)
    return msgspec.structs.replace(evidence, produced=verbs.join(evidence.produced, made))


def judge(
    benchmark: settings.Benchmark, evidence: Evidence | None, families: Sequence[str], base: str
) -> baselines.Judgement:
    """Return the judgement of the families (``<file>:<key>``); without a verdict where there is no evidence."""
    read: rows.RowsRead | rows.FeedFailed | None = (evidence.failed or evidence.read) if evidence is not None else None
    if evidence is None or read is None:
        return baselines.Judgement(verdicts=())
    return verbs.verdicts(
        benchmark, read, evidence.proofs or baselines.Proofs(), evidence.produced, families=families, current=base
    )


def inputs(evidence: Evidence | None, base: str) -> Mapping[str, str]:
    """Return, by family, the digest of what its current matrix was made from."""
    matrices = evidence.produced.matrices if evidence is not None else ()
    return {one.family: one.inputs for one in matrices if isinstance(one, baselines.Matrix) and one.commit == base}


def make_bundle(
    benchmark: settings.Benchmark,
    evidence: Evidence | None,
    family: str,
    base: str,
    relied: baselines.Relied | None = None,
) -> bytes:
    """Return the evidence bundle of one family; BugError where a verified family has no evidence.

    ``relied``: what the judgement says the family's verdict rests on; without it the whole feed is judged again.
    """
    if evidence is None or evidence.read is None or evidence.proofs is None:
        message = f"{family} was verified without evidence"
        raise errors.BugError(message)
    return bundle.make(
        benchmark,
        evidence.read.rows,
        evidence.proofs,
        evidence.produced,
        family=family,
        current=base,
        relied=relied,
    )
