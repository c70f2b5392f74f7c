"""Do results cover the frozen baseline? The three answers, and the comparison. Pure.

Coverage is by identity (without the fields that a candidate may change), never by count: every frozen point needs a
result with the same fixed fields and at least one metric. Deltas are reported; they decide nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from klaud.baselines import model as baselines

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from klaud.baselines import schema

NAMED = 10
"""Missing points that are named."""


class Verified(msgspec.Struct, frozen=True):
    """Every frozen point has a result. ``deltas``: metric -> (median of new/old over the points)."""

    points: int
    deltas: dict[str, float] = {}


class Unreadable(msgspec.Struct, frozen=True):
    """It could not be found out; ``code`` is ``bundle``, ``listing``, ``expired``, ``too-big`` or ``download``."""

    code: str
    why: str


class Wrong(msgspec.Struct, frozen=True):
    """It was read, and it does not cover. ``missing``: how many points, ``named`` some of them."""

    code: str
    covered: int = 0
    points: int = 0
    named: tuple[str, ...] = ()


Evidence: TypeAlias = Verified | Unreadable | Wrong


class Frozen(msgspec.Struct, frozen=True):
    """The frozen baseline: its points, each with identity by field name and metrics."""

    points: tuple[baselines.Point, ...]


def cover(points: Sequence[baselines.Point], rows: Sequence[baselines.Row], plan: schema.Plan) -> Verified | Wrong:
    """Compare by identity: every point needs a row with the same fixed fields and at least one metric."""
    found: dict[tuple[Any, ...], Mapping[str, float]] = {}
    for row in rows:
        if row.metrics:
            found[plan.point_of(row.identity)] = row.metrics
    missing: list[str] = []
    ratios: dict[str, list[float]] = {}
    for point in points:
        identity = tuple(point.identity[name] for name in plan.names)
        metrics = found.get(plan.point_of(identity))
        if metrics is None:
            missing.append(", ".join(f"{name}={value}" for name, value in point.identity.items() if value is not None))
            continue
        for name, old in point.metrics.items():
            new = metrics.get(name)
            if new is not None and old:
                ratios.setdefault(name, []).append(new / old)
    if missing:
        covered = len(points) - len(missing)
        return Wrong("not-covered", covered, len(points), tuple(text[:300] for text in missing[:NAMED]))
    if not points:
        return Wrong("no-points")
    return Verified(len(points), {name: sorted(values)[len(values) // 2] for name, values in sorted(ratios.items())})
