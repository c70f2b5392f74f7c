"""Planners that die or race at any call: no family has two runs, no run has no claim."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from klaud import errors, names
from klaud.planner import act, run
from tests.support import planner_world as w
from tests.support.memory_world import Call, Killed, Spoil, World

if TYPE_CHECKING:
    from klaud.leases import model as leases


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
            selection = w.select(on, "zlib", "bz2").selection
            w.dispatch(on, selection)
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
        w.dispatch(on, second.selection, run_id=71)
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
    selection = w.select(on, "zlib").selection
    world = w.world(on)
    inputs = {"wave": "70.1", "candidate": selection.candidates[0], "claim": "x"}
    for _ in range(2):
        with pytest.raises(errors.UnclearWriteError):
            world.gateway.dispatch(w.WORKFLOW, "main", inputs)
    assert len(w.candidate_runs(on)) == 2
