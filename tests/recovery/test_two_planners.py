"""Two planners over one repository, handing over at every call: two sweeps, two selections, late sessions, kills."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from klaud import names
from klaud.leases import model as leases
from klaud.leases import store as stores
from klaud.recovery import run
from tests.support import memory_gateway, memory_invariants, memory_scenes
from tests.support.memory_scheduler import Scheduler
from tests.support.memory_standard import STANDARD

if TYPE_CHECKING:
    from collections.abc import Callable

    from klaud.recovery import model
    from tests.support.memory_scenes import Scene

SEEDS = range(6)
FAMILY = "configs/gpu.yaml:contested"


def planner(scene: Scene, run_id: int) -> leases.Holder:
    """Start another planner run."""
    scene.world.add_run(
        memory_scenes.PLANNER, actor=scene.world.alice, run_id=run_id, status="in_progress", event="schedule"
    )
    return leases.Holder(run_id=run_id, attempt=1, job="recover", nonce=str(run_id))


def store(scene: Scene, client: str) -> stores.LeaseStore:
    """Open a store of its own for one process."""
    return stores.LeaseStore(
        refs=memory_gateway.ref_store(scene.world, client=client),
        names=scene.names,
        repository=scene.setting.repository,
        clock=scene.world.clock,
    )


def process(scene: Scene, me: leases.Holder, reports: list[model.Report]) -> Callable[[], None]:
    """Return a planner's first two jobs: sweep, then claim the contested family where it is not blocked."""

    def go() -> None:
        client = f"planner {me.run_id}"
        own = store(scene, client)
        parts = scene.parts(
            gateway=memory_gateway.gateway(scene.world, client=client),
            refs=memory_gateway.ref_store(scene.world, client=client),
            snapshot=own.snapshot,
            me=me,
        )
        report = run.sweep(parts)
        reports.append(report)
        family = names.short_id(FAMILY)
        if family not in report.blocked:
            wave = f"{me.run_id}.{me.attempt}"
            claim = leases.Claim(
                at=scene.world.time,
                wave=wave,
                candidate=names.candidate_id(FAMILY, f"image of {me.run_id}"),
                family=FAMILY,
                base=scene.world.main,
                holder=me,
            )
            won.append(isinstance(own.take_claim(claim), stores.Won))

    won: list[bool] = []
    go.won = won  # type: ignore[attr-defined]
    return go


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", STANDARD)
def test_interleaved(name: str, seed: int) -> None:
    """Never two holders of a family, nothing of a person's lost, everything settled within two sweeps."""
    built = STANDARD[name][1]()
    scene = built.scene
    scene.begin()
    alone = STANDARD[name][1]()
    alone.scene.sweep()
    alone.scene.next_run()
    alone.scene.sweep()
    reports: list[model.Report] = []
    one = process(scene, planner(scene, 900_101), reports)
    other = process(scene, planner(scene, 900_102), reports)
    scheduler = Scheduler(scene.world, seed)
    scheduler.run({"one": one, "other": other})
    assert scheduler.errors == []
    assert sum(one.won) + sum(other.won) <= 1  # type: ignore[attr-defined]
    assert memory_invariants.violations(built) == []
    scene.world.finish_run(900_101)
    scene.world.finish_run(900_102)
    contested = scene.names.claim(names.short_id(FAMILY))
    scene.world.state.refs.pop(contested, None)
    for _ in range(2):
        scene.next_run()
        report = scene.sweep()
    assert report.red == ()
    assert memory_invariants.violations(built) == []
    wrong = memory_invariants.differences(memory_invariants.digest(scene), memory_invariants.digest(alone.scene))
    assert [w for w in wrong if "900_1" not in w] == []


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("k", range(0, 16, 3))
def test_one_of_two_dies(seed: int, k: int) -> None:
    """One planner is killed at its k-th call while the other goes on: the next two sweeps settle the rest."""
    built = STANDARD["abandoned_among_others"][1]()
    scene = built.scene
    scene.begin()
    reports: list[model.Report] = []
    one = process(scene, planner(scene, 900_101), reports)
    other = process(scene, planner(scene, 900_102), reports)
    scheduler = Scheduler(scene.world, seed, killed_at={"one": k})
    scheduler.run({"one": one, "other": other})
    assert scheduler.errors == []
    assert memory_invariants.violations(built) == []
    scene.world.finish_run(900_101, "cancelled")
    scene.world.finish_run(900_102)
    scene.world.advance(scene.policy.dispatch_seconds + 60)  # until then a run that nobody sees may still come
    for _ in range(2):
        scene.next_run()
        scene.sweep()
    assert memory_invariants.violations(built) == []
    alive = names.family_of(built.living[0].candidate)
    left = [r for r in scene.world.state.refs if r.startswith("refs/klaud/claims/") and not r.endswith(alive)]
    assert left == []
    assert not any("/leases/" in r for r in scene.world.state.refs)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_late_session_is_fenced_off(seed: int) -> None:
    """A session whose run GitHub calls over wakes up once more: its swap of the claim and its push are refused or undone."""
    built = STANDARD["abandoned"][1]()
    scene, made = built.scene, built.main
    assert made is not None
    scene.begin()
    late_store = store(scene, "late")
    held = late_store.look(scene.names.claim(names.family_of(made.candidate)))
    assert isinstance(held, leases.Held)
    record = held.record
    assert isinstance(record, leases.Claim)
    results: list[object] = []

    def late() -> None:
        for _ in range(3):
            results.append(late_store.swap_claim(held, record))  # noqa: PERF401 - each attempt is a call of its own

    scheduler = Scheduler(scene.world, seed)
    scheduler.run({"sweep": scene.sweep, "late": late})
    assert scheduler.errors == []
    wins = sum(isinstance(r, stores.Won) for r in results)
    assert wins <= 1
    for _ in range(2):
        scene.next_run()
        scene.sweep()
    assert memory_invariants.violations(built) == []
    assert scene.names.claim(names.family_of(made.candidate)) not in scene.world.state.refs
