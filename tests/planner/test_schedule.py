"""Schedules as GitHub keeps them: late, twice, not at all. Slots are computed as cron does, in UTC."""

from __future__ import annotations

import datetime

import msgspec
import pytest

from klaud.github import model as github
from klaud.planner import preflight, rules_schedule

NOW = datetime.datetime(2026, 3, 4, 13, 0, tzinfo=datetime.UTC)
SIX_HOURLY = ("17 */6 * * *",)


def at(day: int, hour: int, minute: int = 17) -> datetime.datetime:
    return datetime.datetime(2026, 3, day, hour, minute, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("text", "first", "count"),
    [
        ("17 */6 * * *", at(1, 0, 17), 12),
        ("0 3 * * *", at(1, 3, 0), 3),
        ("30 4,16 * * *", at(1, 4, 30), 6),
        ("0 5-7 * * *", at(1, 5, 0), 9),
        ("0 0 2 * *", at(2, 0, 0), 1),
        ("0 12 * * mon", at(2, 12, 0), 1),
        ("0 12 * mar TUE-THU", at(3, 12, 0), 1),
        ("0 12 3 * mon", at(2, 12, 0), 2),
        ("0 12 * * 7", at(1, 12, 0), 1),
        ("5/30 0 * * *", at(1, 0, 5), 6),
        ("0 12 * apr *", None, 0),
    ],
)
def test_slots_are_those_of_cron(text: str, first: datetime.datetime | None, count: int) -> None:
    """From Sunday, 1 March 2026, for three days."""
    assert rules_schedule.usable(text)
    begin = at(1, 0, 0) - datetime.timedelta(minutes=1)
    found = rules_schedule.slots([text], begin, begin + datetime.timedelta(days=3))
    assert (found[0] if found else None, len(found)) == (first, count)


@pytest.mark.parametrize(
    "text",
    [
        "", "* * * *", "60 * * * *", "1 2 0 * *", "x * * * *", "*/0 * * * *", "5-1 * * * *", "0 0 30 2 *",
        "0 0 0 * * *", "0 0 L * *", "0 0 LW * *", "0 0 * * 5L", "0 0 * * FRIL", "0 0 * * 1#2", "0 0 * * *\n", "0\t0 * * *",
        "\u0660 0 * * *", '0 0 * * "',
    ],
)  # fmt: skip
def test_what_github_takes_for_no_schedule_has_no_slots(text: str) -> None:
    """The library knows seconds, last days and n-th weekdays, too: GitHub does not."""
    assert not rules_schedule.usable(text)
    assert rules_schedule.slot_of([text], NOW) is None
    assert rules_schedule.oddities([text], [NOW], NOW) == ()


@pytest.mark.parametrize(
    ("started", "says"),
    [
        ([at(3, 6), at(3, 12), at(3, 18), at(4, 0), at(4, 6), at(4, 12)], ()),
        (
            [at(3, 6), at(3, 12), at(3, 18), at(4, 0), at(4, 9, 30), at(4, 12)],
            ("06:17 UTC was started 3.2 hours late",),
        ),
        ([at(3, 6), at(3, 12), at(3, 18), at(3, 18, 40), at(4, 0), at(4, 6), at(4, 12)], ("2 runs", "03-03 18:17")),
        ([at(3, 6), at(3, 12), at(4, 0), at(4, 6), at(4, 12)], ("no run was started", "03-03 18:17")),
        ([at(3, 6), at(3, 12), at(3, 18), at(4, 0), at(4, 6)], ()),
        ([at(3, 6)], ("03-03 12:17", "03-04 06:17")),
        ([], ()),
    ],
)
def test_L64_late_doubled_and_missing_runs_are_told(  # noqa: N802 - the oddity's id
    started: list[datetime.datetime], says: tuple[str, ...]
) -> None:
    """The newest slot, 43 minutes ago, may still get its run."""
    found = rules_schedule.oddities(SIX_HOURLY, started, NOW)
    assert all(any(words in one for one in found) for words in says), found
    assert bool(found) is bool(says)


def test_only_the_newest_slots_are_judged() -> None:
    """Twelve of them: what was odd before is history."""
    every = [at(1, 0) + datetime.timedelta(hours=6 * n) for n in range(15) if n != 1]
    assert rules_schedule.oddities(SIX_HOURLY, every, NOW) == ()


@pytest.mark.parametrize(
    ("workflow", "crons"),
    [
        ({"on": {"schedule": [{"cron": "17 */6 * * *"}, {"cron": "0 3 * * 1"}]}}, ("17 */6 * * *", "0 3 * * 1")),
        ({"on": {"schedule": [{"at": 1}, "x"]}}, ()),
        ({"on": {"schedule": None, "workflow_dispatch": {}}}, ()),
        ({"on": ["push"]}, ()),
        ([], ()),
    ],
)
def test_a_workflows_schedule_is_read_whatever_it_is(workflow: object, crons: tuple[str, ...]) -> None:
    assert rules_schedule.crons_of(workflow) == crons


@pytest.mark.parametrize(
    ("event", "created", "says"),
    [
        ("schedule", at(4, 6, 20), ""),
        ("schedule", at(4, 9, 20), "3.0 hours after its slot at 2026-03-04 06:17"),
        ("workflow_dispatch", at(4, 9, 20), ""),
    ],
)
def test_L64_a_wave_that_was_started_late_says_so_and_goes_on(  # noqa: N802 - the oddity's id
    event: str, created: datetime.datetime, says: str
) -> None:
    account = github.Account(id=1, login="acme")
    run = github.Run(
        id=77, attempt=1, status="in_progress", conclusion=None, event=event, head_branch="main", head_sha="a" * 40,
        path=".github/workflows/klaud-plan.yml", display_title="", actor=account, triggering_actor=account,
        created_at=created, updated_at=created,
    )  # fmt: skip
    found = list(preflight.punctual(run, SIX_HOURLY))
    assert bool(found) is bool(says)
    assert all(one.result == "wrong" and not one.stops and says in one.what for one in found)
    again = msgspec.structs.replace(run, attempt=2)
    assert list(preflight.punctual(again, SIX_HOURLY)) == [], "a re-run has its first attempt's time"
