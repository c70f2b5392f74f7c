"""A sweep's report for people, as ``reports.model.Report``: what was found, done, left and why, and what leaks."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING

from klaud.reports import model as reports

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from klaud.recovery import model

ROW_WORDS = {
    "1": "quarantined",
    "1b": "could not be read",
    "2": "merged",
    "3": "handed off",
    "4": "alive",
    "5": "in hand of another pass",
    "6": "touched by a person",
    "7": "clean-up resumed",
    "7b": "settled",
    "8": "validated",
    "9": "green, results unreadable",
    "10": "green, results wrong",
    "11": "ready for review",
    "12": "waiting for a final run",
    "13": "to be continued",
    "14": "abandoned",
    "15": "closed by klaud",
    "16": "closed by a person",
    "17": "branch without a pull request",
    "18": "branch with an unknown head",
    "19": "claim only",
    "20": "nothing left",
    "lease": "lease",
    "unmatched": "no row",
}
"""The decision table's rows in words, in its order."""

QUIET = frozenset({"7b", "20"})
"""Rows of which only the number is told where nothing was done."""


def summary(report: model.Report) -> reports.Report:
    """Return the report's text."""
    wrote = report.mode == "act" and not report.stopped
    counts = collections.Counter(entry.row for entry in report.sessions)
    facts = [("Mode", "acting" if wrote else "report only, nothing was written")]
    facts += [("Stopped", report.stopped)] if report.stopped else []
    facts += [("Red", reason) for reason in report.red]
    facts += [
        ("Requests", str(sum(report.totals.requests.values()))),
        ("Pushes", str(report.totals.pushes)),
        ("Writes on the API", str(len(report.totals.writes))),
        ("Seconds", f"{report.totals.seconds:.1f}"),
    ]
    unknown = "not known: klaud's refs could not be read" if report.unread else ""
    found = reports.Table(
        title="Found",
        columns=("row", "state", "sessions"),
        rows=tuple((row, words, str(counts[row])) for row, words in ROW_WORDS.items() if counts[row]),
        empty=unknown or "no session, claim, lease or branch of klaud's",
    )
    done = reports.Table(
        title="What klaud did" if wrote else "What klaud would do",
        columns=("session", "row", "why", "what", "left"),
        rows=_lines(
            [(e, ("; ".join(e.done or _actions(e)), "; ".join(e.left))) for e in report.sessions if _actions(e)]
        ),
    )
    left = reports.Table(
        title="Left alone",
        columns=("session", "row", "why", "who must act"),
        rows=_lines([(e, (_person(e),)) for e in report.sessions if not _actions(e) and e.row not in QUIET]),
        empty=unknown or "none",
    )
    leaks = reports.Table(
        title="Without an owner",
        columns=("kind", "count", "limit", "oldest, hours"),
        rows=tuple(
            (kind, str(leak.count), str(leak.limit), "" if leak.oldest_hours is None else f"{leak.oldest_hours:.1f}")
            for kind, leak in report.leaks.items()
        ),
        empty=unknown or "none",
    )
    unreadable = reports.Table(
        title="Records that cannot be read", columns=("ref", "why"), rows=tuple(report.quarantined.items())
    )
    tables = (found, done, left, leaks, *([unreadable] if report.quarantined else []))
    section = reports.Section(title="Sweep", facts=tuple(facts), tables=tables)
    return reports.Report(title=f"Recovery of {report.repository}", sections=(section,))


def _lines(entries: Iterable[tuple[model.Entry, tuple[str, ...]]]) -> tuple[tuple[str, ...], ...]:
    """Return a line for each session, and one for all the leases of one run of which the same is to be said."""
    found: dict[tuple[str, ...], list[tuple[model.Entry, tuple[str, ...]]]] = {}
    for entry, rest in entries:
        one = ("lease", entry.state, *_actions(entry)) if entry.row == "lease" and not entry.left else (entry.session,)
        found.setdefault(one, []).append((entry, rest))
    return tuple(_line(group) for group in found.values())


def _line(group: Sequence[tuple[model.Entry, tuple[str, ...]]]) -> tuple[str, ...]:
    entry, rest = group[0]
    if len(group) == 1:
        return (_name(entry), entry.row, entry.state, *rest)
    counts = collections.Counter(done.partition(" ")[0] for one, _ in group for done in one.done or _actions(one))
    what = ", ".join(f"{word} {number}" for word, number in counts.items())
    return (f"{len(group)} leases", entry.row, entry.state, *((what, "") if len(rest) > 1 else rest))


def _actions(entry: model.Entry) -> list[str]:
    return [str(a["action"]) for a in entry.decision if a["action"] not in {"leave", "continue"}]


def _person(entry: model.Entry) -> str:
    return "; ".join(str(a["person"]) for a in entry.decision if a["action"] == "leave" and a.get("person"))


def _name(entry: model.Entry) -> str:
    return f"{entry.session} (#{entry.number})" if entry.number else entry.session
