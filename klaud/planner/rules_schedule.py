"""Does GitHub start planner runs when the workflow's schedule says so? Pure: cron expressions and times in, words out.

A schedule is a wish: GitHub starts runs late at busy hours, at times twice, at times not at all. Nothing of klaud's rests on
it (claims make overlapping runs safe, and a missed wave is the next one's work), but a person should know. A run belongs to
the newest slot at or before its start; GitHub's times are UTC.
"""

from __future__ import annotations

import datetime
import itertools
import re
from typing import TYPE_CHECKING, Any

import cronsim

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

LATE_SECONDS = 3600
"""A start so long after its slot is worth a word: GitHub's usual delay is some minutes."""

SLOTS = 12
"""Slots looked back at: three days of a six-hourly schedule."""

WINDOW_DAYS = 8
"""Days looked back at, at most: one slot of a weekly schedule."""

_PART = r"(?:\*|\d{1,2}|[A-Za-z]{3})(?:-(?:\d{1,2}|[A-Za-z]{3}))?(?:/\d{1,2})?"
_FIELD = rf"{_PART}(?:,{_PART})*"
GRAMMAR = re.compile(rf"{_FIELD}(?: +{_FIELD}){{4}}")
"""Five fields, as GitHub takes them. Cron programs know more (seconds, ``L``, ``#``), and so does the library."""


def usable(expression: str) -> bool:
    """Tell whether GitHub would take an expression, and it ever comes true."""
    if not GRAMMAR.fullmatch(expression):
        return False
    try:
        cronsim.CronSim(expression, datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC))
    except cronsim.CronSimError:
        return False
    return True


def crons_of(workflow: Any) -> tuple[str, ...]:
    """Return the cron expressions of a workflow file's content."""
    on = workflow.get("on") if isinstance(workflow, dict) else None
    schedule = on.get("schedule") if isinstance(on, dict) else None
    rows = schedule if isinstance(schedule, list) else []
    return tuple(str(row["cron"]) for row in rows if isinstance(row, dict) and "cron" in row)


def slots(
    expressions: Iterable[str], since: datetime.datetime, until: datetime.datetime
) -> tuple[datetime.datetime, ...]:
    """Return the slots after ``since`` up to ``until``, oldest first, each once; an unusable expression has none."""
    found: set[datetime.datetime] = set()
    for expression in filter(usable, expressions):
        found.update(itertools.takewhile(lambda slot: slot <= until, cronsim.CronSim(expression, since)))
    return tuple(sorted(found))


def slot_of(expressions: Sequence[str], at: datetime.datetime) -> datetime.datetime | None:
    """Return the slot that a run started at ``at`` stands for, None where the expressions name none in the window."""
    return max(slots(expressions, at - datetime.timedelta(days=WINDOW_DAYS), at), default=None)


def late(expressions: Sequence[str], at: datetime.datetime) -> str:
    """Return in words how late a scheduled run started, empty where it did not."""
    slot = slot_of(expressions, at)
    if slot is None or (at - slot).total_seconds() < LATE_SECONDS:
        return ""
    hours = (at - slot).total_seconds() / 3600
    return f"GitHub started it {hours:.1f} hours after its slot at {slot:%Y-%m-%d %H:%M} UTC"


def oddities(
    expressions: Sequence[str], started: Sequence[datetime.datetime], now: datetime.datetime
) -> tuple[str, ...]:
    """Return in words what is odd about the scheduled runs: late, twice for one slot, or none for a slot.

    ``started``: when the runs that the schedule started were made. Judged are the last ``SLOTS`` slots since the first of
    them; a slot younger than ``LATE_SECONDS`` may still get its run.
    """
    if not any(map(usable, expressions)) or not started:
        return ()
    begin = max(min(started), now - datetime.timedelta(days=WINDOW_DAYS))
    first = (slot_of(expressions, begin) or begin) - datetime.timedelta(seconds=1)
    judged = slots(expressions, first, now)[-SLOTS:]
    runs: dict[datetime.datetime, int] = dict.fromkeys(judged, 0)
    found = []
    for at in sorted(started):
        slot = max((one for one in judged if one <= at), default=None)
        if slot is not None:
            runs[slot] += 1
            if (at - slot).total_seconds() >= LATE_SECONDS:
                hours = (at - slot).total_seconds() / 3600
                found.append(f"the run for the slot at {slot:%Y-%m-%d %H:%M} UTC was started {hours:.1f} hours late")
    settled = now - datetime.timedelta(seconds=LATE_SECONDS)
    for slot, count in runs.items():
        if count > 1:
            found.append(f"{count} runs were started for the slot at {slot:%Y-%m-%d %H:%M} UTC")
        elif not count and slot <= settled:
            found.append(f"no run was started for the slot at {slot:%Y-%m-%d %H:%M} UTC")
    return tuple(found)
