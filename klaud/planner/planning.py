"""Make a plan: families of the base commit, offers of the sources, the current matrix of each family.

Nothing here needs a credential. All families of a benchmark are generated (a whole matrix costs what one family costs, and
a row is told from a sibling's by them); a family whose generator fails is reported and the others go on. Where every source
of every benchmark has failed there is nothing to plan, and that is an error and no empty plan.
"""

from __future__ import annotations

import fnmatch
import hashlib
import re
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from klaud import errors
from klaud.baselines import model as baselines
from klaud.planner import decide_plan, encoding, observe, sources

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from klaud.planner import model, settings

SEED_BITS = 52
"""A seed fits into what JavaScript reads back exactly."""


Made: TypeAlias = baselines.Matrix | baselines.NotGenerated


class Generate(Protocol):
    """Run a benchmark's own generator at the base commit."""

    def __call__(self, benchmark: settings.Benchmark, families: Sequence[str]) -> Iterable[Made]:
        """Return, for each family (``<file>:<key>``), its matrix or why there is none."""
        ...


def seed_of(wave: str) -> int:
    """Return the seed that a wave uses unless it is told one: the same wave shuffles alike."""
    return int.from_bytes(hashlib.sha256(wave.encode()).digest()[:8], "big") >> (64 - SEED_BITS)


def make(
    benchmarks: Sequence[settings.Benchmark],
    policy: settings.Policy,
    *,
    wave: str,
    seed: int,
    places: sources.Places,
    generate: Generate,
    standing: decide_plan.Standing,
    only: Sequence[str] = (),
    references: Sequence[settings.References] = (),
) -> model.Plan:
    """Return the plan of a wave. ``only``: families to plan for, as globs of ``<file>:<key>``; empty: all.

    ``references``: benchmarks of databases; nothing is generated for them.

    InputError or RetryLaterError where every source failed: the message says each one's reason.
    """
    families: dict[str, Sequence[str]] = {}
    known: list[decide_plan.Known] = []
    read: list[decide_plan.SourceRead] = []
    for benchmark in benchmarks:
        found, broken = observe.families(benchmark, places.files)
        families[benchmark.name] = [one for one in found if _wanted(one, only)]
        known += broken
        given = sources.read(benchmark, policy, places)
        read += given
        known += _generated(benchmark, policy, found, generate)
    for entry in references:
        databases = encoding.known(entry, places.files)
        families[entry.name] = [one.family for one in databases if not one.code and _wanted(one.family, only)]
        given = sources.read(entry, policy, places) or (encoding.missing(entry, databases, places.files),)
        read += given
        known += databases
    _refuse_if_all_failed(read)
    return decide_plan.plan(
        wave=wave,
        base=places.files.commit,
        seed=seed,
        policy=policy,
        benchmarks={**{one.name: one.renames for one in benchmarks}, **{one.name: {} for one in references}},
        families=families,
        known=known,
        sources=read,
        standing=standing,
    )


def _wanted(family: str, only: Sequence[str]) -> bool:
    return not only or any(fnmatch.fnmatchcase(family, one) for one in only)


def _generated(
    benchmark: settings.Benchmark, policy: settings.Policy, families: Sequence[str], generate: Generate
) -> list[decide_plan.Known]:
    if not families:
        return []
    try:
        made = {one.family: one for one in generate(benchmark, families)}
    except errors.MissingToolError:
        raise
    except errors.KlaudError as error:
        made = {}
        why = str(error)
    else:
        why = "its generator gave no answer for it"
    found = []
    for family in families:
        one = made.get(family)
        if isinstance(one, baselines.Matrix):
            found.append(
                decide_plan.Known(
                    benchmark=benchmark.name,
                    family=family,
                    entries=one.entries,
                    inputs=one.inputs,
                    targets=targets(policy.capacity.target, benchmark.generator.fields, one.entries),
                )
            )
        else:
            code, message = (one.code, one.error) if one is not None else ("generator-failed", why)
            found.append(decide_plan.Known(benchmark=benchmark.name, family=family, code=code, message=message))
    return found


def targets(
    template: str, fields: Mapping[str, str | tuple[str, ...]], entries: Sequence[Mapping[str, Any]]
) -> tuple[str, ...]:
    """Return the targets that a family's entries run on; empty where any entry lacks a field of the template."""
    found = set()
    wanted = re.findall(r"\{([^{}]+)\}", template)
    for entry in entries:
        text = template
        for name in wanted:
            word = _value(entry, fields.get(name, name))
            if word is None:
                return ()
            text = text.replace(f"{{{name}}}", str(word))
        found.add(text)
    return tuple(sorted(found))


def _value(entry: Mapping[str, Any], paths: str | tuple[str, ...]) -> str | int | None:
    for path in (paths,) if isinstance(paths, str) else paths:
        at: Any = entry
        for step in path.split("."):
            at = at.get(step) if isinstance(at, dict) else None
        if isinstance(at, str | int):
            return at
    return None


def _refuse_if_all_failed(read: Sequence[decide_plan.SourceRead]) -> None:
    failed = [one for one in read if one.code]
    if not read or len(failed) < len(read):
        return
    message = "no candidate source could be read: " + "; ".join(f"{one.source}: {one.message}" for one in failed)
    advice = "Correct the source, or try again when it answers; nothing was planned, closed or written."
    if any(one.code == "feed-unavailable" for one in failed):
        raise errors.ReadFailedError(message, advice=advice)
    raise errors.InputError(message, advice=advice)
