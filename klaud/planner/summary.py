"""What one planner run tells people: a report built from the selection and the plan, nothing else.

Every string is data for the renderers of ``klaud.reports``; what a selection may not say is not in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klaud.reports import model as reports

if TYPE_CHECKING:
    from collections.abc import Sequence

    from klaud.planner import model, preflight, validate

ROWS = 200
"""Most rows of one table; the rest is counted: a step summary holds a megabyte."""


def selection(made: model.Selection, plan: model.Plan | None = None) -> reports.Report:
    """Return the report of a selection: what was started, what was not and why, and what needs a person."""
    chosen = [one for one in made.decisions if one.selected]
    rest = [one for one in made.decisions if not one.selected]
    facts = [
        ("wave", made.wave),
        ("base", made.base[:12]),
        ("seed", str(made.seed)),
        ("looked at", str(len(made.decisions))),
        ("selected", str(len(chosen))),
    ]
    if made.deferred_reason:
        facts.append(("why nothing was selected", made.deferred_reason))
    runs = {(one.wave, one.candidate): one for one in made.dispatches}
    started: list[tuple[str, ...]] = []
    for one in chosen:
        run = runs.get((made.wave, one.candidate))
        what = "not dispatched yet" if run is None else run.result
        started.append((one.family, one.subject, what, str(run.run_id or "") if run is not None else ""))
    tables = [
        reports.Table(
            title="Selected", columns=("family", "subject", "run", "run id"), rows=tuple(started), empty="nothing"
        ),
        reports.Table(
            title="Not started",
            columns=("family", "gate", "reason", "message", "what would unblock it"),
            rows=_cut([(one.family, one.gate, one.code, one.message, one.unblock) for one in rest], 5),
        ),
        reports.Table(
            title="By reason", columns=("reason", "candidates"), rows=tuple((k, str(v)) for k, v in made.counts.items())
        ),
    ]
    continued = [one for one in made.dispatches if one.kind == "continue"]
    if continued:
        rows: tuple[tuple[str, ...], ...] = tuple(
            (one.wave, one.candidate, one.result, one.message) for one in continued
        )
        tables.append(reports.Table(title="Continued", columns=("wave", "candidate", "run", "message"), rows=rows))
    sections = [reports.Section(title="Selection", facts=tuple(facts), tables=tuple(tables))]
    if made.attention:
        rows = _cut([(one.code, one.message) for one in made.attention], 2)
        table = reports.Table(columns=("what", "message"), rows=rows)
        sections.append(reports.Section(title="Needs a person", tables=(table,)))
    if plan is not None:
        sections.append(_plan(plan))
    title = f"klaud wave {made.wave}" + (" (dry run)" if made.dry_run else "")
    return reports.Report(title=title, sections=tuple(sections))


def plan(made: model.Plan) -> reports.Report:
    """Return the report of a plan."""
    return reports.Report(title=f"klaud plan {made.wave}", sections=(_plan(made),))


def _plan(made: model.Plan) -> reports.Section:
    sources = tuple(
        (one.benchmark, one.source, one.status, str(one.offers), str(one.refused), str(one.unmatched), one.message)
        for one in made.sources
    )
    return reports.Section(
        title="Plan",
        facts=(
            ("candidates", str(len(made.candidates))),
            ("blocked", str(len(made.blocked))),
            *((f"families of {name}", str(count)) for name, count in made.families.items()),
        ),
        tables=(
            reports.Table(
                title="Sources",
                columns=("benchmark", "source", "status", "offers", "refused", "without a family", "message"),
                rows=sources,
            ),
            reports.Table(
                title="Families without a matrix",
                columns=("family", "reason", "message"),
                rows=_cut([(one.family, one.code, one.message) for one in made.not_generated], 3),
            ),
        ),
    )


def preflight_checks(found: Sequence[preflight.Check]) -> reports.Report:
    """Return the report of a preflight."""
    rows = tuple((one.result, one.name, one.what, one.fix) for one in found)
    table = reports.Table(columns=("result", "check", "what was found", "what to do"), rows=rows)
    return reports.Report(title="klaud preflight", sections=(reports.Section(title="Checks", tables=(table,)),))


def findings(found: Sequence[validate.Finding]) -> reports.Report:
    """Return the report of a validation."""
    rows = tuple((one.level, one.place, one.what, one.fix) for one in found)
    table = reports.Table(columns=("level", "where", "what", "what to do"), rows=rows, empty="nothing is wrong")
    return reports.Report(title="klaud validate", sections=(reports.Section(title="Findings", tables=(table,)),))


def _cut(rows: Sequence[tuple[str, ...]], columns: int) -> tuple[tuple[str, ...], ...]:
    if len(rows) <= ROWS:
        return tuple(rows)
    rest = (f"and {len(rows) - ROWS} more", *("" for _ in range(columns - 1)))
    return (*rows[:ROWS], rest)
