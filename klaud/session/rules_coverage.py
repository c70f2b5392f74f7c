"""Do results cover the frozen baseline? The three answers, and the comparison. Pure.

Coverage is by identity (without the fields that a candidate may change), never by count: every frozen point needs a
result with the same fixed fields and at least one metric. Deltas are reported; they decide nothing. Where evaluations are
required every group of frozen points needs one as well, with a metric; an evaluation never stands in for a measured point.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from klaud.baselines import model as baselines

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from klaud.baselines import schema
    from klaud.session import model

NAMED = 10
"""Missing points that are named."""


class Verified(msgspec.Struct, frozen=True):
    """Every frozen point has a result. ``deltas``: metric -> (median of new/old over the points)."""

    points: int
    deltas: dict[str, float] = {}


class Unreadable(msgspec.Struct, frozen=True):
    """It could not be found out.

    ``code`` is ``bundle``, ``listing``, ``expired``, ``too-big``, ``download`` or ``configuration``.
    """

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


def is_evaluation(raw: Any, wanted: model.Evaluations) -> bool:
    """Tell whether a result row, as it came, is an evaluation."""
    found: Any = raw
    for key in wanted.field.split("."):
        found = found.get(key) if isinstance(found, dict) else None
    return type(found) is str and found == wanted.value


def evaluated(
    points: Sequence[baselines.Point], rows: Sequence[baselines.Row], plan: schema.Plan, by: Sequence[str]
) -> Wrong | None:
    """Return Wrong where a group of the frozen points has no evaluation in ``rows`` (evaluations only), else None.

    A group: what tells families apart, and the fields in ``by`` (all of them the identity's).
    """
    places = [plan.at[name] for name in by]

    def group(identity: baselines.Identity) -> tuple[Any, ...]:
        return plan.scope_of(identity), *(identity[place] for place in places)

    wanted: dict[tuple[Any, ...], str] = {}
    for point in points:
        identity = tuple(point.identity[name] for name in plan.names)
        shown = ", ".join(f"{name}={identity[plan.at[name]]}" for name in by)
        wanted.setdefault(group(identity), f"the evaluation of {shown or 'this family'}"[:300])
    done = {group(row.identity) for row in rows if row.metrics}
    missing = [text for key, text in wanted.items() if key not in done]
    if not missing:
        return None
    return Wrong("no-evaluations", len(wanted) - len(missing), len(wanted), tuple(missing[:NAMED]))


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
