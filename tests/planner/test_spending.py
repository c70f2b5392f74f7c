"""What was spent and what waits holds a wave back."""

from __future__ import annotations

import datetime

import pytest

from klaud import names
from klaud.leases import model as leases
from klaud.planner import model, run
from tests.support import planner_world as w
from tests.support.memory_world import World


def test_money_is_summed_over_turns_of_the_last_day_and_month() -> None:
    on = World()
    world = w.world(on, run_id=60, client="earlier")
    one = w.candidate("zlib").candidate
    day_ago = on.time - datetime.timedelta(hours=25)
    started = leases.SessionStarted(
        at=day_ago, wave="60.1", candidate=one, family=w.family("zlib"), base="a" * 40,
        holder=leases.Holder(run_id=60, attempt=1, nonce="n"),
    )  # fmt: skip
    ledger = world.store.start_ledger(world.names.session("60.1", one), started)
    assert isinstance(ledger, leases.Ledger)
    world.store.append(
        ledger,
        leases.TurnStarted(at=day_ago, index=0),
        leases.TurnEnded(at=day_ago, index=0, status="completed", cost_microdollars=5_000_000),
        leases.TurnStarted(at=on.time, index=1),
        leases.TurnEnded(at=on.time, index=1, status="failed", cost_microdollars=3_000_000),
    )
    policy = model.Policy(dollars_per_day=3)
    found = run.select(w.world(on, policy=policy), w.given(w.plan("bz2")))
    assert w.codes(found.selection) == {"bz2": "ceiling-dollars-per-day"}
    policy = model.Policy(dollars_per_day=4, dollars_per_month=8)
    found = run.select(w.world(on, policy=policy), w.given(w.plan("bz2")))
    assert w.codes(found.selection) == {"bz2": "ceiling-dollars-per-month"}
    policy = model.Policy(dollars_per_day=4, dollars_per_month=9)
    assert run.select(w.world(on, policy=policy), w.given(w.plan("bz2"))).selection.candidates


@pytest.mark.parametrize(("reviewer", "code"), [(None, "ceiling-ready-unreviewed"), ("alice", "selected")])
def test_ready_pull_requests_that_nobody_reviewed_hold_a_wave_back(reviewer: str | None, code: str) -> None:
    on = World()
    branch = names.branch(w.candidate("zlib").candidate)
    on.push(branch, "work", by=on.bot)
    number = on.open_pull(branch, by=on.bot, draft=False)
    if reviewer:
        on.event(number, "reviewed", on.alice)
    found = run.select(w.world(on, policy=model.Policy(ready_unreviewed=1)), w.given(w.plan("bz2")))
    assert w.codes(found.selection) == {"bz2": code}


CONFIG = ".github/klaud.yml"


@pytest.mark.parametrize(
    ("before", "now", "started"),
    [
        (b"a", b"a", 2),
        (b"a", b"b", 1),
        (None, b"a", 1),
        (b"a", None, 1),
    ],
    ids=["as it was", "changed", "was not there", "cannot be read"],
)
def test_a_ramp_starts_one_candidate_after_a_change(before: bytes | None, now: bytes | None, started: int) -> None:
    on = World()
    on.add_run(w.WORKFLOW, actor=on.bot, head="b" * 40)
    for ref, raw in (("b" * 40, before), ("a" * 40, now)):
        if raw is not None:
            on.state.contents[ref, CONFIG] = raw
    found = run.select(w.world(on, policy=model.Policy(ramp=True)), w.given(w.plan("zlib", "bz2")))
    assert list(w.codes(found.selection).values()) == ["selected", "selected" if started == 2 else "ceiling-ramp"]
    assert len(run.select(w.world(World()), w.given(w.plan("zlib", "bz2"))).briefs) == 2  # off by default


def test_a_ramp_starts_one_candidate_where_none_was_started_yet() -> None:
    on = World()
    on.state.contents["a" * 40, CONFIG] = b"a"
    found = run.select(w.world(on, policy=model.Policy(ramp=True)), w.given(w.plan("zlib", "bz2")))
    assert len(found.briefs) == 1
