"""Does GitHub start planner runs when the workflow's schedule says so? Pure: cron expressions and times in, words out.

A schedule is a wish: GitHub starts runs late at busy hours, at times twice, at times not at all. Nothing of klaud's rests on
it (claims make overlapping runs safe, and a missed wave is the next one's work), but a person should know. A run belongs to
the newest slot at or before its start; GitHub's times are UTC.
"""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

LATE_SECONDS = 3600
"""A start so long after its slot is worth a word: GitHub's usual delay is some minutes."""

SLOTS = 12
"""Slots looked back at: three days of a six-hourly schedule."""

WINDOW_DAYS = 8
"""Days looked back at, at most: one slot of a weekly schedule."""

_FIELDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_DAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]


class Cron(msgspec.Struct, frozen=True):
    """One expression: the minutes, hours, days, months and weekdays (0 is Sunday) that it names."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    any_day: bool
    any_weekday: bool

    def names(self, day: datetime.date) -> bool:
        """Tell whether a day has slots: where both kinds of day are restricted, either is enough (as cron has it)."""
        if day.month not in self.months:
            return False
        by_date, by_weekday = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        if self.any_day or self.any_weekday:
            return by_date and by_weekday
        return by_date or by_weekday


def parse(text: str) -> Cron | None:
    """Return a cron expression of five fields, None where it is none."""
    fields = text.split()
    if len(fields) != len(_FIELDS):
        return None
    sets = []
    for field, (low, high), words in zip(fields, _FIELDS, ((), (), (), _MONTHS, _DAYS), strict=True):
        found = _field(field.lower(), low, high, words)
        if not found:
            return None
        sets.append(frozenset(found))
    minutes, hours, days, months, weekdays = sets
    return Cron(
        minutes, hours, days, months, frozenset(day % 7 for day in weekdays), fields[2][0] == "*", fields[4][0] == "*"
    )


def _field(text: str, low: int, high: int, words: Sequence[str]) -> set[int]:
    found: set[int] = set()
    for part in text.split(","):
        span, _, step = part.partition("/")
        begin, dash, end = span.partition("-")
        first = low if span == "*" else _number(begin, words, low)
        last = high if span == "*" or (step and not dash) else _number(end, words, low) if dash else first
        every = _number(step, (), 0) if step else 1
        if first is None or last is None or not every or not low <= first <= last <= high:
            return set()
        found.update(range(first, last + 1, every))
    return found


def _number(text: str, words: Sequence[str], low: int) -> int | None:
    if text in words:
        return words.index(text) + low
    return int(text) if text.isascii() and text.isdigit() else None


def crons_of(workflow: Any) -> tuple[str, ...]:
    """Return the cron expressions of a workflow file's content."""
    on = workflow.get("on") if isinstance(workflow, dict) else None
    schedule = on.get("schedule") if isinstance(on, dict) else None
    rows = schedule if isinstance(schedule, list) else []
    return tuple(str(row["cron"]) for row in rows if isinstance(row, dict) and "cron" in row)


def slots(crons: Iterable[Cron], since: datetime.datetime, until: datetime.datetime) -> Iterator[datetime.datetime]:
    """Yield the slots after ``since`` up to ``until``, oldest first, each once."""
    wanted = tuple(crons)
    day = since.date()
    while day <= until.date():
        times = sorted({(h, m) for cron in wanted if cron.names(day) for h in cron.hours for m in cron.minutes})
        for hour, minute in times:
            at = datetime.datetime.combine(day, datetime.time(hour, minute), datetime.UTC)
            if since < at <= until:
                yield at
        day += datetime.timedelta(days=1)


def slot_of(expressions: Sequence[str], at: datetime.datetime) -> datetime.datetime | None:
    """Return the slot that a run started at ``at`` stands for, None where the expressions name none in the window."""
    crons = [cron for text in expressions if (cron := parse(text)) is not None]
    return max(slots(crons, at - datetime.timedelta(days=WINDOW_DAYS), at), default=None)


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
    crons = [cron for text in expressions if (cron := parse(text)) is not None]
    if not crons or not started:
        return ()
    begin = max(min(started), now - datetime.timedelta(days=WINDOW_DAYS))
    first = (slot_of(expressions, begin) or begin) - datetime.timedelta(seconds=1)
    judged = list(slots(crons, first, now))[-SLOTS:]
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
