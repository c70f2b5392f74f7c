"""What review must know of a plan's candidates: which files are a family's own, and which may matter to all."""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING

from klaud import names
from klaud.review import model as review

if TYPE_CHECKING:
    from collections.abc import Sequence

    from klaud.planner import model, settings


def candidates(plan: model.Plan, benchmarks: Sequence[settings.Benchmark]) -> tuple[review.Candidate, ...]:
    """Return the plan's candidates as review sees them; ``{key}`` in recipe globs is the family's key."""
    by_name = {one.name: one for one in benchmarks}
    found = []
    for one in plan.candidates:
        benchmark = by_name.get(one.benchmark)
        if benchmark is None:
            continue
        _, key = names.split_family(one.family)
        recipes = tuple(
            pattern.replace("{key}", key)
            for families, patterns in benchmark.recipes.items()
            if fnmatch.fnmatchcase(one.family, families)
            for pattern in patterns
        )
        found.append(
            review.Candidate(
                candidate=one.candidate,
                family=one.family,
                subject=one.subject,
                change=one.change,
                recipes=recipes,
                shared=benchmark.shared,
            )
        )
    return tuple(found)
