"""Select and dispatch on a GitHub in memory: who gets a family, what is asked for once, and what is left behind."""

from __future__ import annotations

import datetime
from typing import Any

import msgspec
import pytest

from klaud import errors, names
from klaud.baselines import model as baselines
from klaud.github import model as github
from klaud.leases import model as leases
from klaud.planner import act, codec, decide, model, run
from klaud.review import model as review
from tests.support import planner_world as w
from tests.support.memory_world import Call, Killed, Spoil, World


def select(on: World, *keys: str, **changes: Any) -> run.Selected:
    return run.select(w.world(on), w.given(w.plan(*(keys or w.KEYS)), **changes))


def codes(found: model.Selection) -> dict[str, str]:
    return {one.family.partition(":")[2]: one.code for one in found.decisions}


def dispatch(on: World, selection: model.Selection, **more: Any) -> model.Selection:
    return run.dispatch(w.world(on, **more), selection, branch="main")


# -- select


def test_candidates_are_claimed_in_order_up_to_the_cap() -> None:
    on = World()
    found = select(on)
    assert [one.code for one in found.selection.decisions] == ["selected"] * 4 + ["ceiling-candidates-per-wave"] * 2
    assert set(w.claims(on)) == {"zlib", "bz2", "lzma", "gzip"}
    assert found.selection.candidates == tuple(w.candidate(key).candidate for key in w.KEYS[:4])
    codec.encode_selection(found.selection)


def test_a_selected_candidate_has_a_brief_a_bundle_and_its_claim() -> None:
    on = World()
    found = select(on, "zlib")
    (decision,) = found.selection.decisions
    brief = found.briefs[decision.candidate]
    claim = w.claims(on)["zlib"]
    assert (claim.wave, claim.candidate, claim.family, claim.base) == ("70.1", brief.candidate, brief.family, "a" * 40)
    assert claim.holder is not None
    assert claim.holder.run_id == 70
    assert brief.claim == decision.claim != ""
    assert brief.bundle == decision.bundle != ""
    assert found.bundles[decision.candidate] == f"bundle of {brief.candidate}".encode()


def test_what_is_stopped_makes_room_for_the_next() -> None:
    on = World()
    made = w.plan(*w.KEYS)
    decisions = [w.reviewed(one, "duplicate" if "zlib" in one.family else "proceed") for one in made.candidates]
    verdicts = {
        ("codecs", one.family): baselines.Verdict(
            benchmark="codecs",
            family=one.family,
            verdict="deferred" if "bz2" in one.family else "verified",
            reasons=(baselines.Reason(code="unmatched", count=1, message="m", unblock="u"),),
        )
        for one in made.candidates
    }
    found = select(on, review=review.ReviewResult(mode="rules", decisions=tuple(decisions)), verdicts=verdicts)
    assert codes(found.selection) == {
        "zlib": "edits-entry", "bz2": "unmatched", "lzma": "selected", "gzip": "selected", "brotli": "selected",
        "snappy": "selected",
    }  # fmt: skip
    assert found.selection.baseline_deferred_candidates == (w.candidate("bz2").candidate,)
    assert found.selection.baseline_deferral_reasons[w.candidate("bz2").candidate][0].code == "unmatched"


def test_a_lost_claim_goes_to_the_next_and_the_other_holder_is_told() -> None:
    """Another planner claims one family right before our push: exactly one of both has it."""
    on = World()

    def other(call: Call) -> None:
        if call.name == "refs.apply" and call.client == "planner" and "bz2" not in w.claims(on):
            act.claim(w.world(on, run_id=71, client="other"), w.plan("bz2", wave="71.1"), w.candidate("bz2"))

    on.before.append(other)
    found = select(on, "bz2", "zlib")
    assert codes(found.selection) == {"bz2": "claim-lost", "zlib": "selected"}
    assert "wave 71.1" in found.selection.decisions[0].message
    assert w.claims(on)["bz2"].wave == "71.1"


def test_two_candidates_of_one_family_are_one_start() -> None:
    on = World()
    made = msgspec.structs.replace(w.plan(), candidates=(w.candidate("zlib"), w.candidate("zlib", "level 9")))
    found = run.select(w.world(on), w.given(made))
    assert [one.code for one in found.selection.decisions] == ["selected", "family-taken"]


def test_what_changed_since_the_plan_is_seen_again() -> None:
    """A claim, an open pull request, a pause, a tombstone that came after the plan still block."""
    on = World()
    world = w.world(on, run_id=60, client="earlier")
    act.claim(world, w.plan("zlib", wave="60.1"), w.candidate("zlib"))
    on.push(names.branch(w.candidate("bz2", "other").candidate), "work", by=on.bot)
    number = on.open_pull(names.branch(w.candidate("bz2", "other").candidate), by=on.bot)
    lzma = w.family("lzma")
    world.store.put(
        world.names.family(names.short_id(lzma)), None, leases.FamilyMemory(at=on.time, family=lzma, paused=True)
    )
    gzip = w.candidate("gzip").candidate
    world.store.put(world.names.tombstone(gzip), None, leases.Tombstone(at=on.time, candidate=gzip, number=3))
    found = select(on)
    assert codes(found.selection) == {
        "zlib": "claimed", "bz2": "open-pull-request", "lzma": "paused", "gzip": "tombstone", "brotli": "selected",
        "snappy": "selected",
    }  # fmt: skip
    assert f"#{number}" in found.selection.decisions[1].message


def test_a_fork_s_look_alike_branch_blocks_nobody() -> None:
    on = World()
    branch = names.branch(w.candidate("zlib").candidate)
    on.open_pull(branch, by=on.mallory, head_repository="mallory/bench", head_oid=on.main)
    assert codes(select(on, "zlib").selection) == {"zlib": "selected"}


def test_a_record_that_cannot_be_read_blocks_its_family_and_no_other() -> None:
    on = World()
    bad = on.commit("not a record")
    on.state.refs[f"refs/klaud/claims/{names.short_id(w.family('zlib'))}"] = bad
    on.state.refs[f"refs/klaud/families/{names.short_id(w.family('bz2'))}"] = bad
    assert codes(select(on, "zlib", "bz2", "lzma").selection) == {
        "zlib": "quarantined", "bz2": "quarantined", "lzma": "selected",
    }  # fmt: skip


@pytest.mark.parametrize("spoil", [Spoil.FAIL, Spoil.SHORT])
def test_open_pull_requests_that_cannot_be_listed_stop_every_start(spoil: Spoil) -> None:
    on = World()
    on.push("other", "work", by=on.alice)
    on.open_pull("other", by=on.alice)
    on.rules.append(lambda call: spoil if call.name == "open_pulls" else None)
    assert set(codes(select(on).selection).values()) == {"pulls-unknown"}
    assert w.claims(on) == {}


@pytest.mark.parametrize("spoil", [Spoil.FAIL, Spoil.SHORT])
def test_dispatches_that_cannot_be_counted_stop_every_start(spoil: Spoil) -> None:
    on = World()
    on.add_run(w.WORKFLOW, actor=on.bot, head=on.main, branch="main", title="x")
    on.rules.append(lambda call: spoil if call.name == "runs" else None)
    assert set(codes(select(on).selection).values()) == {"ceiling-unknown-dispatches-per-day"}


def test_an_unclear_claim_that_took_effect_is_ours_and_one_that_did_not_goes_to_the_next() -> None:
    on = World()
    on.rules.append(lambda call: Spoil.LOSE if call.name == "refs.apply" else None)
    assert codes(select(on, "zlib").selection) == {"zlib": "selected"}
    on = World()
    first: list[int] = []

    def fail_once(call: Call) -> Spoil | None:
        if call.name == "refs.apply" and not first:
            first.append(call.k)
            return Spoil.FAIL
        return None

    on.rules.append(fail_once)
    found = select(on, "zlib", "bz2")
    assert codes(found.selection) == {"zlib": "claim-unclear", "bz2": "selected"}
    assert [one.code for one in found.selection.attention] == ["claim-unclear"]


def test_L77_a_token_that_may_not_push_stops_the_wave_and_says_so() -> None:  # noqa: N802 - the oddity's id
    on = World()
    on.denied.add("contents:write")
    found = select(on, "zlib", "bz2")
    assert set(codes(found.selection).values()) == {"claim-forbidden"}
    assert "contents:write" in found.forbidden


def test_a_fault_of_one_candidate_never_stops_the_others() -> None:
    def bundle(one: model.Candidate) -> bytes:
        if "zlib" in one.family:
            raise ZeroDivisionError("x" * 1000)
        return b"fine"

    on = World()
    found = select(on, "zlib", "bz2", bundle=bundle)
    assert codes(found.selection) == {"zlib": "internal-error", "bz2": "selected"}
    assert len(found.selection.decisions[0].message) <= 300
    assert set(w.claims(on)) == {"bz2"}


def test_a_dry_run_decides_alike_and_writes_nothing() -> None:
    on = World()
    dry = run.select(w.world(on), w.given(w.plan(*w.KEYS)), dry_run=True)
    assert not [call for call in on.calls if call.write]
    assert codes(dry.selection) == codes(select(World()).selection)
    assert dry.selection.dry_run
    assert act.starts(dry.selection) == ()


def test_a_smaller_cap_is_kept_and_a_larger_one_is_not() -> None:
    assert len(run.select(w.world(World()), w.given(w.plan(*w.KEYS)), cap=1).selection.candidates) == 1
    assert len(run.select(w.world(World()), w.given(w.plan(*w.KEYS)), cap=99).selection.candidates) == 4


# -- what is remembered


def remembered(on: World, key: str) -> leases.FamilyMemory | None:
    held = (
        w.world(on, client="reader")
        .store.snapshot()
        .families.get(f"refs/klaud/families/{names.short_id(w.family(key))}")
    )
    return held.record if isinstance(held, leases.Held) and isinstance(held.record, leases.FamilyMemory) else None


def test_a_claimed_family_is_remembered_as_tried_and_an_excluded_one_as_excluded() -> None:
    on = World()
    made = w.plan("zlib", "bz2")
    decisions = (w.reviewed(made.candidates[0]), w.reviewed(made.candidates[1], "uncertain"))
    found = run.select(w.world(on), w.given(made, review=review.ReviewResult(mode="rules", decisions=decisions)))
    tried = remembered(on, "zlib")
    excluded = remembered(on, "bz2")
    assert tried is not None
    assert tried.last_tried_at is not None
    assert excluded is not None
    assert (excluded.excluded_in_a_row, excluded.last_tried_at) == (1, None)
    assert found.selection.attention == ()


def test_three_exclusions_in_a_row_are_told_to_a_person() -> None:
    on = World()
    seen = []
    for number in range(4):
        made = w.plan("zlib", wave=f"{70 + number}.1")
        decisions = (w.reviewed(made.candidates[0], "uncertain"),)
        found = run.select(
            w.world(on, run_id=70 + number),
            w.given(made, review=review.ReviewResult(mode="rules", decisions=decisions)),
        )
        seen.append([one.code for one in found.selection.attention])
    assert seen == [[], [], ["excluded-repeatedly"], ["excluded-repeatedly"]]


def test_what_does_not_change_is_not_written() -> None:
    """A wave that selects and excludes nothing pushes nothing."""
    on = World()
    made = w.plan("zlib")
    run.select(w.world(on), w.given(made, verdicts={}))
    assert not [call for call in on.calls if call.write]


# -- dispatch


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
    selection = select(on, "zlib", "bz2").selection
    done = dispatch(on, selection)
    assert [one.result for one in done.dispatches] == ["dispatched", "dispatched"]
    assert asked == [{"wave": "70.1", "candidate": one.candidate, "claim": one.claim} for one in selection.decisions]
    assert sent[1] - sent[0] >= datetime.timedelta(seconds=1)
    codec.encode_selection(done)
    again = dispatch(on, done)
    assert again == done
    assert len(asked) == 2
    once_more = dispatch(on, selection)
    assert [one.result for one in once_more.dispatches] == ["already", "already"]
    assert len(asked) == 2


def _marker(inputs: dict[str, str]) -> str:
    return names.run_marker(inputs["wave"], inputs["candidate"])


def test_L68_an_answer_without_a_run_id_is_found_by_its_marker() -> None:  # noqa: N802 - the oddity's id
    on = World()
    on.dispatch_tells_id = False
    done = dispatch(on, select(on, "zlib").selection)
    (one,) = done.dispatches
    assert one.result == "dispatched"
    assert one.run_id in on.state.runs


def test_L69_a_run_that_shows_90_seconds_later_is_dispatched_unseen() -> None:  # noqa: N802 - the oddity's id
    on = World()
    on.on_dispatch = _late(on, 90)
    done = dispatch(on, select(on, "zlib").selection)
    assert [one.result for one in done.dispatches] == ["unseen"]
    assert done.candidates
    assert w.claims(on)
    patient = model.Policy(dispatch_visible_seconds=120)
    on = World()
    on.on_dispatch = _late(on, 90)
    done = dispatch(on, select(on, "zlib").selection, policy=patient)
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
    done = dispatch(on, select(on, "zlib").selection)
    assert [one.result for one in done.dispatches] == ["dispatched"]
    assert len(w.candidate_runs(on)) == 1


def test_an_unclear_dispatch_without_a_run_keeps_its_claim_and_is_told() -> None:
    on = World()
    on.rules.append(lambda call: Spoil.FAIL if call.name == "dispatch" else None)
    done = dispatch(on, select(on, "zlib").selection)
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
    done = dispatch(on, select(on, "zlib", "bz2").selection)
    assert codes(done) == {"zlib": "dispatch-refused", "bz2": "selected"}
    assert done.decisions[0].gate == "dispatch"
    assert "422" in done.decisions[0].message
    assert set(w.claims(on)) == {"bz2"}
    assert done.candidates == (w.candidate("bz2").candidate,)
    codec.encode_selection(done)


def test_a_token_that_may_not_dispatch_releases_every_claim_after_one_try() -> None:
    on = World()
    selection = select(on, "zlib", "bz2").selection
    on.denied.add("actions:write")
    done = dispatch(on, selection)
    assert set(codes(done).values()) == {"dispatch-refused"}
    assert w.claims(on) == {}
    assert len([call for call in on.calls if call.name == "dispatch"]) == 1


def test_a_claim_that_is_another_s_by_now_is_not_dispatched() -> None:
    on = World()
    selection = select(on, "zlib").selection
    world = w.world(on, run_id=71, client="other")
    held = next(iter(world.store.snapshot().claims.values()))
    assert isinstance(held, leases.Held)
    world.store.release(held)
    act.claim(world, w.plan("zlib", wave="71.1"), w.candidate("zlib"))
    done = dispatch(on, selection)
    assert codes(done) == {"zlib": "dispatch-claim-lost"}
    assert w.candidate_runs(on) == []
    assert w.claims(on)["zlib"].wave == "71.1"


def test_a_listing_that_fails_before_the_dispatch_does_not_stop_it() -> None:
    on = World()
    selection = select(on, "zlib").selection
    on.rules.append(lambda call: Spoil.FAIL if call.name == "runs" else None)
    assert [one.result for one in dispatch(on, selection).dispatches] == ["dispatched"]


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
    nothing = select(on, "bz2").selection
    done = run.dispatch(w.world(on), nothing, parked=[waiting], branch="main")
    kinds = [(one.kind, one.wave, one.result) for one in done.dispatches]
    assert kinds == [("start", "70.1", "dispatched"), ("continue", "60.1", "dispatched")]
    assert names.run_marker(*waiting) in w.candidate_runs(on)[-1]
    again = run.dispatch(w.world(on), done, parked=[waiting], branch="main")
    assert [one.result for one in again.dispatches[2:]] == ["already"]


def test_a_continuation_that_ended_without_taking_the_claim_up_may_be_asked_for_again() -> None:
    on = World()
    waiting = parked(on)
    empty = select(on, "bz2", verdicts={}).selection
    done = run.dispatch(w.world(on), empty, parked=[waiting], branch="main")
    newest = max(on.state.runs)
    on.state.runs[newest] = msgspec.structs.replace(on.state.runs[newest], status="completed", conclusion="failure")
    again = run.dispatch(w.world(on), done, parked=[waiting], branch="main")
    assert [one.result for one in again.dispatches] == ["dispatched", "dispatched"]


def test_a_refused_continuation_keeps_the_parked_claim() -> None:
    on = World()
    waiting = parked(on)
    on.rules.append(lambda call: Spoil.REFUSE if call.name == "dispatch" else None)
    empty = select(on, "bz2", verdicts={}).selection
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
    empty = select(on, "bz2", verdicts={}).selection
    assert run.dispatch(w.world(on), empty, parked=[waiting, ("9.9", "x")], branch="main").dispatches == ()


# -- spending


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
    assert codes(found.selection) == {"bz2": "ceiling-dollars-per-day"}
    policy = model.Policy(dollars_per_day=4, dollars_per_month=8)
    found = run.select(w.world(on, policy=policy), w.given(w.plan("bz2")))
    assert codes(found.selection) == {"bz2": "ceiling-dollars-per-month"}
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
    assert codes(found.selection) == {"bz2": code}


# -- crashes and races


def outcome(on: World) -> tuple[set[str], int]:
    return set(w.claims(on)), len(w.candidate_runs(on))


@pytest.mark.parametrize("spoil", [Spoil.KILL_BEFORE, Spoil.KILL_AFTER])
def test_killed_at_any_call_no_family_has_two_runs_and_no_run_has_no_claim(spoil: Spoil) -> None:
    """After the k-th call the process dies; the same planner run again neither claims nor dispatches anything twice."""
    k = 0
    while True:
        on = World()
        on.spoil_nth(k, spoil)
        done = False
        try:
            selection = select(on, "zlib", "bz2").selection
            dispatch(on, selection)
            done = True
        except Killed:
            on.rules.clear()
        else:
            break
        standing = w.claims(on)
        titles = w.candidate_runs(on)
        assert len(titles) == len(set(titles))
        for title in titles:
            assert any(f"-{claim.candidate}]" in title for claim in standing.values())
        second = run.select(w.world(on, run_id=71), w.given(w.plan("zlib", "bz2", wave="71.1")))
        dispatch(on, second.selection)
        families = [one.rpartition("-")[0].rpartition("-")[2] for one in w.candidate_runs(on)]
        assert len(families) == len(set(families))
        k += 1
    assert done
    assert k > 5


@pytest.mark.parametrize("seed", range(30))
def test_two_planners_interleaved_at_every_call_share_the_families(seed: int) -> None:
    """The turn goes to the other planner before some call of the first: never two claims, each loss is told."""
    on = World()
    other: list[run.Selected] = []

    def hook(call: Call) -> None:
        if call.client == "planner" and call.k == seed and not other:
            other.append(
                run.select(
                    w.world(on, run_id=71, client="other"), w.given(w.plan(*reversed(w.KEYS), wave="71.1")), cap=3
                )
            )

    on.before.append(hook)
    first = run.select(w.world(on), w.given(w.plan(*w.KEYS)), cap=4)
    mine = {one.family for one in first.selection.decisions if one.selected}
    theirs = {one.family for found in other for one in found.selection.decisions if one.selected}
    assert not mine & theirs
    waves = {w.family(key): claim.wave for key, claim in w.claims(on).items()}
    assert waves == {**dict.fromkeys(mine, "70.1"), **dict.fromkeys(theirs, "71.1")}


def test_broken_twin_a_store_that_ignores_what_stands_gives_a_family_to_two() -> None:
    """With a claim that does not compare, the check above fails: both planners believe they have it."""
    on = World()
    first, second = w.world(on), w.world(on, run_id=71, client="other")

    class Careless:
        def __init__(self, store: Any) -> None:
            self._store = store

        def take_claim(self, claim: leases.Claim) -> Any:
            ref = f"refs/klaud/claims/{names.family_of(claim.candidate)}"
            return self._store.put(ref, on.state.refs.get(ref), claim)

    def careless(world: act.World) -> act.World:
        return act.World(**{
            **{name: getattr(world, name) for name in act.World.__slots__}, "store": Careless(world.store),
        })  # fmt: skip

    one = act.claim(careless(first), w.plan("zlib"), w.candidate("zlib"))
    two = act.claim(careless(second), w.plan("zlib", wave="71.1"), w.candidate("zlib"))
    assert isinstance(one, act.Claimed)
    assert isinstance(two, act.Claimed)


def test_broken_twin_a_dispatch_that_is_repeated_starts_two_runs() -> None:
    """The check of L22 fails on a gateway that sends an unclear dispatch again."""
    on = World()
    on.rules.append(lambda call: Spoil.LOSE if call.name == "dispatch" else None)
    selection = select(on, "zlib").selection
    world = w.world(on)
    inputs = {"wave": "70.1", "candidate": selection.candidates[0], "claim": "x"}
    for _ in range(2):
        with pytest.raises(errors.UnclearWriteError):
            world.gateway.dispatch(w.WORKFLOW, "main", inputs)
    assert len(w.candidate_runs(on)) == 2


def test_capacity_that_is_unknown_defers_and_touches_nothing_else() -> None:
    on = World()
    found = select(on, "zlib", figures=decide.CapacityUnknown("ReadFailedError"))
    assert codes(found.selection) == {"zlib": "capacity-unknown"}
    assert found.selection.capacity_deferred_candidates == (w.candidate("zlib").candidate,)
    assert not [call for call in on.calls if call.write]
    assert isinstance(on.repository, github.Repository)
