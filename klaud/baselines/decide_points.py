"""Parts of a judgement that need no matrices: which rows are one point, what a changelog selects, outliers, differences."""

from __future__ import annotations

import fnmatch
import statistics
from typing import TYPE_CHECKING

from klaud.baselines import codec, model, reasons

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from klaud.baselines import schema


def selects(patterns: Iterable[str], family: str) -> bool:
    """Tell whether a changelog's glob patterns select a family, by its whole name or by its key."""
    key = family.partition(":")[2]
    return any(fnmatch.fnmatchcase(family, each) or fnmatch.fnmatchcase(key, each) for each in patterns)


class Group(model.Record, frozen=True, kw_only=True):
    """The rows of one point: those of the newest run and attempt, and all older ones, newest first."""

    newest: tuple[model.Row, ...]
    older: tuple[model.Row, ...]


def newest_rows(
    plan: schema.Plan, rows: Iterable[model.Row], shared: Collection[model.Identity] = frozenset()
) -> list[Group]:
    """Group rows by point (a candidate's fields left out); within a group the newest run and attempt wins.

    ``shared``: points that stand several times in the matrix, told apart by such a field alone (two images side by side);
    there a row supersedes only what is the same in every field.
    """
    groups: dict[model.Identity, list[model.Row]] = {}
    for row in rows:
        if row.run_id is not None:
            point = plan.point_of(row.identity)
            groups.setdefault(row.identity if point in shared else point, []).append(row)
    found = []
    for group in groups.values():
        if len(group) == 1:
            found.append(Group(newest=tuple(group), older=()))
            continue
        group.sort(key=lambda row: (-(row.run_id or 0), -(row.attempt or 0), row.digest))
        first = group[0]
        count = sum((row.run_id, row.attempt) == (first.run_id, first.attempt) for row in group)
        found.append(Group(newest=tuple(group[:count]), older=tuple(group[count:])))
    return found


def outliers(policy: model.Policy, row: model.Row, older: Sequence[model.Row]) -> tuple[model.Outlier, ...]:
    """Return the row's metrics that are far from the median of their own history; none where there is too little of it."""
    if policy.outlier_factor <= 1 or len(older) < policy.outlier_history:
        return ()
    found = []
    for metric, value in sorted(row.metrics.items()):
        past = [each.metrics[metric] for each in older if metric in each.metrics]
        if len(past) < policy.outlier_history:
            continue
        median = statistics.median(past)
        small, large = sorted((abs(value), abs(median)))
        if large > small * policy.outlier_factor or (value < 0) != (median < 0):
            found.append(model.Outlier(metric=metric, value=value, median=median, history=len(past)))
    return tuple(found)


def excused(plan: schema.Plan, family: str, row: model.Row, *, coarse: bool = False) -> bool:
    """Tell whether the configuration's retirement table names a family's point.

    ``coarse``: by an entry that names a coarse field, so that it speaks of a kind of points that is gone altogether.
    """
    named = plan.named(row.identity)
    scope = {reader.name for reader in plan.readers if reader.field.scope}
    return any(
        fnmatch.fnmatchcase(family, retired.family)
        and all(named[name] == value for name, value in retired.match.items())
        and (not coarse or not scope.isdisjoint(retired.match))
        for retired in plan.policy.retired
    )


def where(plan: schema.Plan, row: model.Row) -> str:
    """Return a point as a person would name it: the fields that are not coarse and not at their default."""
    parts = []
    for value, reader in zip(row.identity, plan.readers, strict=True):
        if not reader.field.scope and not reader.field.varies and value != reader.field.default:
            parts.append(f"{reader.name} {codec.shown(value)}")
    return reasons.cut(", ".join(parts) or "the point", 160)


def changed_settings(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    """Return what differs between two entries' settings, as texts ``path: a, b`` (at most MAX_EXAMPLES)."""
    names = [name for name in sorted(one.keys() | other.keys()) if one.get(name) != other.get(name)]
    return [f"{name}: {one.get(name, 'absent')}, {other.get(name, 'absent')}" for name in names[: model.MAX_EXAMPLES]]
