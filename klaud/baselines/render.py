"""A verdict as lines for a person: what is proven, what is not, and what would unblock it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from klaud.baselines import model, observe

SHOWN = 5
"""Examples of a reason that are printed; the verdict holds up to 20."""


def explain_verdict(verdict: model.Verdict) -> str:
    """Return a verdict as text, without a last newline."""
    lines = [f"{verdict.family}: {verdict.verdict} ({_points(verdict)})"]
    for reason in verdict.reasons:
        lines.append(f"  {reason.code}: {reason.message}")
        lines += [f"    - {example.text}" for example in reason.examples[:SHOWN]]
        if reason.count > min(len(reason.examples), SHOWN):
            lines.append(f"    - and {reason.count - min(len(reason.examples), SHOWN)} more")
        lines.append(f"    to unblock: {reason.unblock}")
    for name, count in verdict.equivalences.items():
        lines.append(f"  equivalence {name}: {count} point(s)")
    for argument in verdict.dropped:
        lines.append(
            f"  fallback: the producer does not know {argument}; its output was filtered by the argument's meaning"
        )
    lines += _notes(verdict)
    return "\n".join(lines)


def explain_feed(judged: model.Judgement | observe.RowsRead) -> str:
    """Return what there is to say of the feed as a whole, empty where every row was read and judged."""
    lines = []
    if judged.malformed_count:
        lines.append(f"{judged.malformed_count} of the feed's rows could not be read")
        lines += [f"  - row {bad.index} {bad.why}" for bad in judged.malformed[:SHOWN]]
        if judged.malformed_count > SHOWN:
            lines.append(f"  - and {judged.malformed_count - min(len(judged.malformed), SHOWN)} more")
    lines += [f"{count} row(s) of another benchmark are left aside: {name}" for name, count in judged.aside.items()]
    return "\n".join(lines)


def _points(verdict: model.Verdict) -> str:
    commits = sorted({point.commit[:12] for point in verdict.points})
    if not commits:
        return "no point is proven"
    where = f"commit {commits[0]}" if len(commits) == 1 else f"{len(commits)} commits"
    return f"{len(verdict.points)} point(s) proven at {where}"


def _notes(verdict: model.Verdict) -> Sequence[str]:
    lines = []
    if verdict.sibling_count:
        families = sorted({sibling.family for sibling in verdict.siblings})
        lines.append(f"  siblings: {verdict.sibling_count} near row(s) are points of {', '.join(families)}")
    if verdict.retired:
        lines.append(f"  retired: {len(verdict.retired)} published point(s) are excused by the configuration")
    if verdict.unpublished:
        lines.append(f"  unpublished: {verdict.unpublished} point(s) of today's matrix have no published row")
    lines += [
        f"  outlier: {outlier.metric} is {outlier.value:g}, the median of its {outlier.history} older values"
        f" {outlier.median:g} (run {point.run_id})"
        for point in verdict.points
        for outlier in point.outliers
    ]
    older = sum(len(point.older) for point in verdict.points)
    if older:
        lines.append(f"  history: {older} older row(s) of the same points are superseded")
    return lines
