"""Dispatch on a GitHub in memory: each run is asked for once, and what was not started is released."""

from __future__ import annotations

import datetime
from typing import Any

import msgspec

from klaud import names
from klaud.leases import model as leases
from klaud.planner import act, codec, model, run
from tests.support import planner_world as w
from tests.support.memory_world import Call, Spoil, World


def test_each_selected_candidate_is_dispatched_once_with_its_wave_and_claim() -> None:
    on = World()
    asked: list[dict[str, str]] = []
    sent = []

    def start(workflow: str, ref: str, inputs: dict[str, str]) -> int:
        asked.append(inputs)
        sent.append(on.time)
        assert (workflow, ref) == (w.WORKFLOW, "main")
        return on.add_run(workflow, actor=on.bot, head=on.main, branch=ref, title=f"x {_marker(inputs)}")

    on.on_dispatch = start
    selection = w.select(on, "zlib", "bz2").selection
    done = w.dispatch(on, selection)
    assert [one.result for one in done.dispatches] == ["dispatched", "dispatched"]
    assert asked == [{"wave": "70.1", "candidate": one.candidate, "claim": one.claim} for one in selection.decisions]
    assert sent[1] - sent[0] >= datetime.timedelta(seconds=1)
    codec.encode_selection(done)
    again = w.dispatch(on, done)
    assert again == done
    assert len(asked) == 2
    once_more = w.dispatch(on, selection)
    assert [one.result for one in once_more.dispatches] == ["already", "already"]
    assert len(asked) == 2


def _marker(inputs: dict[str, str]) -> str:
    return names.run_marker(inputs["wave"], inputs["candidate"])


def test_L68_an_answer_without_a_run_id_is_found_by_its_marker() -> None:  # noqa: N802 - the oddity's id
    on = World()
    on.dispatch_tells_id = False
    done = w.dispatch(on, w.select(on, "zlib").selection)
    (one,) = done.dispatches
    assert one.result == "dispatched"
    assert one.run_id in on.state.runs


def test_L69_a_run_that_shows_90_seconds_later_is_dispatched_unseen() -> None:  # noqa: N802 - the oddity's id
    on = World()
    on.on_dispatch = _late(on, 90)
    done = w.dispatch(on, w.select(on, "zlib").selection)
    assert [one.result for one in done.dispatches] == ["unseen"]
    assert done.candidates
    assert w.claims(on)
    patient = model.Policy(dispatch_visible_seconds=120)
    on = World()
    on.on_dispatch = _late(on, 90)
    done = w.dispatch(on, w.select(on, "zlib").selection, policy=patient)
    assert [one.result for one in done.dispatches] == ["dispatched"]


def _late(on: World, seconds: float) -> Any:
    def start(workflow: str, ref: str, inputs: dict[str, str]) -> None:
        def show() -> None:
            on.add_run(workflow, actor=on.bot, head=on.main, branch=ref, title=f"x {_marker(inputs)}")

        on.later(seconds, show)

    return start


def test_L22_an_unclear_dispatch_that_took_effect_is_found_and_never_repeated() -> None:  # noqa: N802 - the oddity's id
    on = World()
    on.rules.append(lambda call: Spoil.LOSE if call.name == "dispatch" else None)
    done = w.dispatch(on, w.select(on, "zlib").selection)
    assert [one.result for one in done.dispatches] == ["dispatched"]
    assert len(w.candidate_runs(on)) == 1


def test_an_unclear_dispatch_without_a_run_keeps_its_claim_and_is_told() -> None:
    on = World()
    on.rules.append(lambda call: Spoil.FAIL if call.name == "dispatch" else None)
    done = w.dispatch(on, w.select(on, "zlib").selection)
    assert [one.result for one in done.dispatches] == ["unclear"]
    assert [one.code for one in done.attention] == ["dispatch-unclear"]
    assert set(w.claims(on)) == {"zlib"}
    assert len([call for call in on.calls if call.name == "dispatch"]) == 1


def test_a_refused_dispatch_releases_its_claim_says_why_and_stops_no_other() -> None:
    on = World()
    first: list[int] = []

    def refuse_once(call: Call) -> Spoil | None:
        if call.name == "dispatch" and not first:
            first.append(call.k)
            return Spoil.REFUSE
        return None

    on.rules.append(refuse_once)
    done = w.dispatch(on, w.select(on, "zlib", "bz2").selection)
    assert w.codes(done) == {"zlib": "dispatch-refused", "bz2": "selected"}
    assert done.decisions[0].gate == "dispatch"
    assert "422" in done.decisions[0].message
    assert set(w.claims(on)) == {"bz2"}
    assert done.candidates == (w.candidate("bz2").candidate,)
    codec.encode_selection(done)


def test_a_token_that_may_not_dispatch_releases_every_claim_after_one_try() -> None:
    on = World()
    selection = w.select(on, "zlib", "bz2").selection
    on.denied.add("actions:write")
    done = w.dispatch(on, selection)
    assert set(w.codes(done).values()) == {"dispatch-refused"}
    assert w.claims(on) == {}
    assert len([call for call in on.calls if call.name == "dispatch"]) == 1


def test_a_claim_that_is_another_s_by_now_is_not_dispatched() -> None:
    on = World()
    selection = w.select(on, "zlib").selection
    world = w.world(on, run_id=71, client="other")
    held = next(iter(world.store.snapshot().claims.values()))
    assert isinstance(held, leases.Held)
    world.store.release(held)
    act.claim(world, w.plan("zlib", wave="71.1"), w.candidate("zlib"))
    done = w.dispatch(on, selection)
    assert w.codes(done) == {"zlib": "dispatch-claim-lost"}
    assert w.candidate_runs(on) == []
    assert w.claims(on)["zlib"].wave == "71.1"


def test_a_listing_that_fails_before_the_dispatch_does_not_stop_it() -> None:
    on = World()
    selection = w.select(on, "zlib").selection
    on.rules.append(lambda call: Spoil.FAIL if call.name == "runs" else None)
    assert [one.result for one in w.dispatch(on, selection).dispatches] == ["dispatched"]


# -- continuations


def parked(on: World, key: str = "zlib") -> tuple[str, str]:
    """Leave a session of wave 60.1 parked on a run; its candidate run 2 is over."""
    world = w.world(on, run_id=60, client="earlier")
    one = w.candidate(key)
    won = act.claim(world, w.plan(key, wave="60.1"), one)
    assert isinstance(won, act.Claimed)
    claim = won.held.record
    assert isinstance(claim, leases.Claim)
    marker = names.run_marker("60.1", one.candidate)
    run_id = on.add_run(w.WORKFLOW, actor=on.bot, head=on.main, branch="main", title=f"x {marker}")
    on.state.runs[run_id] = msgspec.structs.replace(on.state.runs[run_id], status="completed", conclusion="success")
    by = leases.Holder(run_id=run_id, attempt=1, job="session", nonce="n")
    world.store.swap_claim(
        won.held, msgspec.structs.replace(claim, holder=None, parked=leases.ParkedHolder(on=(5,), by=by))
    )
    return "60.1", one.candidate


def test_a_parked_session_is_continued_under_its_first_wave() -> None:
    on = World()
    waiting = parked(on)
    nothing = w.select(on, "bz2").selection
    done = run.dispatch(w.world(on), nothing, parked=[waiting], branch="main")
    kinds = [(one.kind, one.wave, one.result) for one in done.dispatches]
    assert kinds == [("start", "70.1", "dispatched"), ("continue", "60.1", "dispatched")]
    assert names.run_marker(*waiting) in w.candidate_runs(on)[-1]
    again = run.dispatch(w.world(on), done, parked=[waiting], branch="main")
    assert [one.result for one in again.dispatches[2:]] == ["already"]


def test_a_continuation_that_ended_without_taking_the_claim_up_may_be_asked_for_again() -> None:
    on = World()
    waiting = parked(on)
    empty = w.select(on, "bz2", verdicts={}).selection
    done = run.dispatch(w.world(on), empty, parked=[waiting], branch="main")
    newest = max(on.state.runs)
    on.state.runs[newest] = msgspec.structs.replace(on.state.runs[newest], status="completed", conclusion="failure")
    again = run.dispatch(w.world(on), done, parked=[waiting], branch="main")
    assert [one.result for one in again.dispatches] == ["dispatched", "dispatched"]


def test_a_refused_continuation_keeps_the_parked_claim() -> None:
    on = World()
    waiting = parked(on)
    on.rules.append(lambda call: Spoil.REFUSE if call.name == "dispatch" else None)
    empty = w.select(on, "bz2", verdicts={}).selection
    done = run.dispatch(w.world(on), empty, parked=[waiting], branch="main")
    assert [one.result for one in done.dispatches] == ["refused"]
    assert "zlib" in w.claims(on)


def test_a_session_that_is_not_parked_any_more_is_not_continued() -> None:
    on = World()
    waiting = parked(on)
    world = w.world(on)
    held = next(iter(world.store.snapshot().claims.values()))
    assert isinstance(held, leases.Held)
    world.store.release(held)
    empty = w.select(on, "bz2", verdicts={}).selection
    assert run.dispatch(w.world(on), empty, parked=[waiting, ("9.9", "x")], branch="main").dispatches == ()
