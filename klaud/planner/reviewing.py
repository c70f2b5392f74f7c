"""What review must know of a plan's candidates: which files are a family's own, and which may matter to all."""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING

from klaud import names
from klaud.review import model as review

if TYPE_CHECKING:
    from collections.abc import Sequence

    from klaud.planner import model, settings


def candidates(
    plan: model.Plan, benchmarks: Sequence[settings.Benchmark], references: Sequence[settings.References] = ()
) -> tuple[review.Candidate, ...]:
    """Return the plan's candidates as review sees them; ``{key}`` in recipe globs is the family's key.

    A reference's own files are its directory and its inputs.
    """
    by_name = {one.name: one for one in benchmarks}
    encoded = {one.name: one for one in references}
    found = []
    for one in plan.candidates:
        _, key = names.split_family(one.family)
        benchmark, entry = by_name.get(one.benchmark), encoded.get(one.benchmark)
        if one.kind == "encode" and entry is not None:
            shared: tuple[str, ...] = ()
            database = key.partition(".")[0]
            recipes: tuple[str, ...] = (f"{entry.directory}/{entry.name}/{key}/**", f"{entry.data}/{database}/**")
        elif one.kind == "upgrade" and benchmark is not None:
            shared = benchmark.shared
            recipes = tuple(
                pattern.replace("{key}", key)
                for families, patterns in benchmark.recipes.items()
                if fnmatch.fnmatchcase(one.family, families)
                for pattern in patterns
            )
        else:
            continue
        found.append(
            review.Candidate(
                candidate=one.candidate,
                family=one.family,
                subject=one.subject,
                change=one.change,
                recipes=recipes,
                shared=shared,
            )
        )
    return tuple(found)
