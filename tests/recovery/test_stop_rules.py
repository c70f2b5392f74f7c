"""What stops a sweep, by tables: inputs that contradict each other, or are all missing."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from klaud.github import model as github
from klaud.recovery import decide_plan
from tests.support.memory_cases import (
    BOT,
    GOING,
    HEAD,
    KEY,
    SMOKE,
    draft,
    holder,
    listing,
    run,
)  # fmt: skip
from tests.support.memory_plans import (
    ALICE,
    BRANCH,
    MISSING,
    OWN,
    UNREAD,
    drafted,
    hours,
    lease,
    naming,
    think,
)  # fmt: skip


def stopped(*runs: github.Run, **fields: Any) -> str:
    """Return why nothing may be written, empty where nothing stops the sweep; the plan says the same."""
    thinking = think(*runs, **fields)
    stop = thinking.stop()
    assert thinking.plan(None).stop == stop
    return stop.why if stop else ""


PLANNED = run(99, path=".github/workflows/klaud-plan.yml@refs/heads/main", **GOING)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({}, ""),
        ({"own": PLANNED}, ""),
        ({"own": MISSING, "me": holder(99)}, "our own run 99 answers 404: this token cannot prove any run gone"),
        ({"own": MISSING}, "our own run 0 answers 404: this token cannot prove any run gone"),
        ({"own": UNREAD}, "our own run could not be read (it: 502)"),
        ({"own": PLANNED, "planners": listing(run(98), PLANNED)}, ""),
        ({"own": PLANNED, "planners": listing(run(98))}, "the listing of klaud-plan.yml does not have our own run 99"),
        ({"own": PLANNED, "planners": listing(run(98), complete=False)}, ""),
        ({"own": PLANNED, "planners": UNREAD}, ""),
        ({"planners": listing(run(98))}, ""),
    ],
)
def test_our_own_run_is_seen_or_nothing_is_written(fields: dict[str, Any], why: str) -> None:
    """By its id and, where it was read whole, in its workflow's listing; outside of Actions there is none."""
    assert stopped(**fields) == why


SINCE = {"listing_since": hours(-1)}
LOGIN = github.Account(id=90001, login="klaud-bot", type="Bot")


@pytest.mark.parametrize(
    ("one", "fields", "contradicts"),
    [
        (run(7), {"listing": listing(run(8)), **SINCE}, True),
        (run(7), {"listing": listing(), **SINCE}, True),
        (run(7), {"listing": listing(run(7), run(8)), **SINCE}, False),
        (run(7), {"listing": listing(run(6)), **SINCE}, False),
        (run(7), {"listing": listing(run(8))}, False),
        (run(7), {"listing": listing(run(8), complete=False), **SINCE}, False),
        (run(7), {"listing": UNREAD, **SINCE}, False),
        (run(7, actor=ALICE), {"listing": listing(run(8)), **SINCE}, False),
        (run(7, actor=None), {"listing": listing(run(8)), **SINCE}, False),
        (run(7, created_at=hours(-1)), {"listing": listing(run(8)), **SINCE}, False),
        (run(7, created_at=hours(-2)), {"listing": listing(run(8)), **SINCE}, False),
    ],
)
def test_a_run_that_the_listing_should_have_stops_the_sweep(
    one: github.Run, fields: dict[str, Any], contradicts: bool
) -> None:
    """Klaud's own, younger than the listing's begin and older than its newest: a whole listing would show it."""
    why = "run 7 of klaud's exists by its id and is not in the listing of klaud's runs"
    assert stopped(one, **fields) == (why if contradicts else "")


def test_each_run_is_held_against_the_listing() -> None:
    """One that is there hides none that is not."""
    assert "run 6 " in stopped(run(5), run(6), listing=listing(run(5), run(8)), **SINCE)


def numbered(**fields: Any) -> github.PullDetail:
    return msgspec.structs.replace(draft(), pull=msgspec.structs.replace(draft().pull, **fields))


@pytest.mark.parametrize(
    ("seen", "heads", "contradicts"),
    [
        (draft(), {BRANCH: listing()}, True),
        (draft(), {BRANCH: listing(complete=False)}, False),
        (draft(), {BRANCH: UNREAD}, False),
        (draft(), {}, False),
        (numbered(head_repository="other/bench"), {BRANCH: listing()}, False),
        (numbered(head_repository=None), {BRANCH: listing()}, False),
        (numbered(head_ref="feature"), {BRANCH: listing()}, False),
    ],
)
def test_a_pull_request_that_its_heads_listing_should_have_stops_the_sweep(
    seen: Any, heads: dict[str, Any], contradicts: bool
) -> None:
    """Of this repository, by a whole listing; one that could not be read hides none."""
    why = f"pull request 1 exists by its number and is not among those of its head {BRANCH}"
    assert stopped(heads=heads, numbered={3: MISSING, 2: UNREAD, 1: seen}) == (why if contradicts else "")


def gone(count_: int) -> dict[int, Any]:
    return dict.fromkeys(range(1, count_ + 1), MISSING)


@pytest.mark.parametrize(
    ("runs", "listed", "stops"),
    [
        (gone(3), listing(), 3),
        (gone(4), listing(), 4),
        (gone(2), listing(), 0),
        (gone(3), UNREAD, 3),
        (gone(3), listing(run(9)), 0),
        ({**gone(3), 4: run(4)}, listing(), 0),
        ({**gone(3), 4: UNREAD}, listing(), 3),
        ({**gone(2), 4: UNREAD}, listing(), 0),
        ({}, listing(), 0),
    ],
)
def test_many_runs_that_are_all_missing_stop_the_sweep(runs: dict[int, Any], listed: Any, stops: int) -> None:
    """Three are no coincidence, unless one of klaud's is to be seen; what could not be read is not counted."""
    why = f"all {stops} runs on record answer 404, and no run of klaud's is listed"
    assert stopped(runs=runs, listing=listed) == (why if stops else "")


@pytest.mark.parametrize(
    ("named", "seen", "heads", "stops"),
    [
        ((1, 2, 3), gone(3), {}, 3),
        ((1, 2, 3, 4), gone(3), {}, 3),
        ((1, 2), gone(2), {}, 0),
        ((1, 2), gone(3), {}, 0),
        ((1, 2, 3), {**gone(2), 3: draft(number=3)}, {}, 0),
        ((1, 2, 3), {**gone(2), 3: UNREAD}, {}, 0),
        ((1, 2, 3), gone(3), {"feature": listing(draft())}, 0),
        ((1, 2, 3), gone(3), {"feature": listing()}, 3),
        ((1, 2, 3), gone(3), {"feature": UNREAD}, 3),
    ],
)
def test_many_pull_requests_that_are_all_missing_stop_the_sweep(
    named: tuple[int, ...], seen: dict[int, Any], heads: dict[str, Any], stops: int
) -> None:
    """Those that ledgers name; unless any head has one."""
    why = f"all {stops} pull requests on record answer 404, and no head has one"
    assert stopped(run(60), refs=naming(*named), numbered=seen, heads=heads) == (why if stops else "")


def test_a_session_without_a_ledger_names_no_pull_request() -> None:
    """And hides no other's."""
    refs = naming(1, 2, 3) | {"leases": {f"refs/klaud/leases/1.1-{'0' * 16}-{'0' * 16}": lease()}}
    assert stopped(run(60), refs=refs, numbered=gone(3)).startswith("all 3 pull requests")


def test_stray_checks_of_a_live_sweep_stop_nothing() -> None:
    """A plan of an ordinary world goes on, with every verdict in the order of its key."""
    smoking = run(5, path=SMOKE, head_branch=BRANCH, actor=BOT, **GOING)
    thinking = think(run(60), smoking, own=OWN, **drafted(head_runs={HEAD: listing()}))
    plan = thinking.plan(None)
    assert plan.stop is None
    assert plan.requests == decide_plan.CLOSE_REQUESTS + decide_plan.CANCEL_REQUESTS + decide_plan.BASE_REQUESTS
    assert [v.case.key for v in plan.verdicts] == [KEY]
