"""Select on a GitHub in memory: who gets a family, why another does not, and what is remembered."""

from __future__ import annotations

import msgspec
import pytest

from klaud import errors, names
from klaud.baselines import model as baselines
from klaud.github import model as github
from klaud.leases import model as leases
from klaud.planner import act, codec, decide, model, run
from klaud.review import model as review
from tests.support import planner_world as w
from tests.support.memory_world import Call, Spoil, World


def test_candidates_are_claimed_in_order_up_to_the_cap() -> None:
    on = World()
    found = w.select(on)
    assert [one.code for one in found.selection.decisions] == ["selected"] * 4 + ["ceiling-candidates-per-wave"] * 2
    assert set(w.claims(on)) == {"zlib", "bz2", "lzma", "gzip"}
    assert found.selection.candidates == tuple(w.candidate(key).candidate for key in w.KEYS[:4])
    codec.encode_selection(found.selection)


def test_a_selected_candidate_has_a_brief_a_bundle_and_its_claim() -> None:
    on = World()
    found = w.select(on, "zlib")
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
    found = w.select(on, review=review.ReviewResult(mode="rules", decisions=tuple(decisions)), verdicts=verdicts)
    assert w.codes(found.selection) == {
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
    found = w.select(on, "bz2", "zlib")
    assert w.codes(found.selection) == {"bz2": "claim-lost", "zlib": "selected"}
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
    found = w.select(on)
    assert w.codes(found.selection) == {
        "zlib": "claimed", "bz2": "open-pull-request", "lzma": "paused", "gzip": "tombstone", "brotli": "selected",
        "snappy": "selected",
    }  # fmt: skip
    assert f"#{number}" in found.selection.decisions[1].message


def test_a_fork_s_look_alike_branch_blocks_nobody() -> None:
    on = World()
    branch = names.branch(w.candidate("zlib").candidate)
    on.open_pull(branch, by=on.mallory, head_repository="mallory/bench", head_oid=on.main)
    assert w.codes(w.select(on, "zlib").selection) == {"zlib": "selected"}


def test_a_record_that_cannot_be_read_blocks_its_family_and_no_other() -> None:
    on = World()
    bad = on.commit("not a record")
    on.state.refs[f"refs/klaud/claims/{names.short_id(w.family('zlib'))}"] = bad
    on.state.refs[f"refs/klaud/families/{names.short_id(w.family('bz2'))}"] = bad
    assert w.codes(w.select(on, "zlib", "bz2", "lzma").selection) == {
        "zlib": "quarantined", "bz2": "quarantined", "lzma": "selected",
    }  # fmt: skip


@pytest.mark.parametrize("spoil", [Spoil.FAIL, Spoil.SHORT])
def test_open_pull_requests_that_cannot_be_listed_stop_every_start(spoil: Spoil) -> None:
    on = World()
    on.push("other", "work", by=on.alice)
    on.open_pull("other", by=on.alice)
    on.rules.append(lambda call: spoil if call.name == "open_pulls" else None)
    assert set(w.codes(w.select(on).selection).values()) == {"pulls-unknown"}
    assert w.claims(on) == {}


@pytest.mark.parametrize("spoil", [Spoil.FAIL, Spoil.SHORT])
def test_dispatches_that_cannot_be_counted_stop_every_start(spoil: Spoil) -> None:
    on = World()
    on.add_run(w.WORKFLOW, actor=on.bot, head=on.main, branch="main", title="x")
    on.rules.append(lambda call: spoil if call.name == "runs" else None)
    assert set(w.codes(w.select(on).selection).values()) == {"ceiling-unknown-dispatches-per-day"}


def test_an_unclear_claim_that_took_effect_is_ours_and_one_that_did_not_goes_to_the_next() -> None:
    on = World()
    on.rules.append(lambda call: Spoil.LOSE if call.name == "refs.apply" else None)
    assert w.codes(w.select(on, "zlib").selection) == {"zlib": "selected"}
    on = World()
    first: list[int] = []

    def fail_once(call: Call) -> Spoil | None:
        if call.name == "refs.apply" and not first:
            first.append(call.k)
            return Spoil.FAIL
        return None

    on.rules.append(fail_once)
    found = w.select(on, "zlib", "bz2")
    assert w.codes(found.selection) == {"zlib": "claim-unclear", "bz2": "selected"}
    assert [one.code for one in found.selection.attention] == ["claim-unclear"]


def test_L77_a_token_that_may_not_push_stops_the_wave_and_says_so() -> None:  # noqa: N802 - the oddity's id
    on = World()
    on.denied.add("contents:write")
    found = w.select(on, "zlib", "bz2")
    assert set(w.codes(found.selection).values()) == {"claim-forbidden"}
    assert "contents:write" in found.forbidden


def test_a_fault_of_one_candidate_never_stops_the_others() -> None:
    def bundle(one: model.Candidate) -> bytes:
        if "zlib" in one.family:
            raise ZeroDivisionError("x" * 1000)
        return b"fine"

    on = World()
    found = w.select(on, "zlib", "bz2", bundle=bundle)
    assert w.codes(found.selection) == {"zlib": "internal-error", "bz2": "selected"}
    assert len(found.selection.decisions[0].message) <= 300
    assert set(w.claims(on)) == {"bz2"}


def test_a_dry_run_decides_alike_and_writes_nothing() -> None:
    on = World()
    dry = run.select(w.world(on), w.given(w.plan(*w.KEYS)), dry_run=True)
    assert not [call for call in on.calls if call.write]
    assert w.codes(dry.selection) == w.codes(w.select(World()).selection)
    assert dry.selection.dry_run
    assert act.starts(dry.selection) == ()


def test_a_smaller_cap_is_kept_and_a_larger_one_is_not() -> None:
    assert len(run.select(w.world(World()), w.given(w.plan(*w.KEYS)), cap=1).selection.candidates) == 1
    assert len(run.select(w.world(World()), w.given(w.plan(*w.KEYS)), cap=99).selection.candidates) == 4


def test_capacity_that_is_unknown_defers_and_touches_nothing_else() -> None:
    on = World()
    found = w.select(on, "zlib", figures=decide.CapacityUnknown("ReadFailedError"))
    assert w.codes(found.selection) == {"zlib": "capacity-unknown"}
    assert found.selection.capacity_deferred_candidates == (w.candidate("zlib").candidate,)
    assert not [call for call in on.calls if call.write]
    assert isinstance(on.repository, github.Repository)


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


@pytest.mark.parametrize(
    ("wave", "run_id", "foreign"),
    [
        ("70.1", 70, False),
        ("70.1", 71, True),
        ("70.1", 7, True),
        ("local-0123456789abcdef", 70, True),
        ("70.1", 0, True),
        ("local-0123456789abcdef", 0, False),
    ],
)
def test_a_plan_of_another_run_is_looked_at_and_never_acted_on(wave: str, run_id: int, *, foreign: bool) -> None:
    on = World()
    made = w.given(w.plan("zlib", wave=wave))
    assert run.select(w.world(on, run_id=run_id), made, dry_run=True).selection.candidates
    if not foreign:
        assert run.select(w.world(on, run_id=run_id), made).selection.candidates
        return
    with pytest.raises(errors.InputError, match=f"the plan is of wave {wave}, and this is"):
        run.select(w.world(on, run_id=run_id), made)
    with pytest.raises(errors.InputError, match=f"the selection is of wave {wave}, and this is"):
        w.dispatch(on, run.select(w.world(on, run_id=run_id), made, dry_run=True).selection, run_id=run_id)
    assert w.claims(on) == {}
