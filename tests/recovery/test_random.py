"""Random worlds: whatever state, person's act, fault and death are drawn, no promise is broken; and a state machine."""

from __future__ import annotations

from pathlib import Path

import hypothesis
import hypothesis.stateful
import pytest
from hypothesis import strategies

from tests.support import memory_random, memory_to_scene


def held(world: memory_random.RandomWorld) -> None:
    """Fail where a promise is broken, with the scene file that repeats it over HTTP and git."""
    if world.wrong:
        scene = memory_to_scene.write(world, Path(f"soak-failure-{world.seed}.yaml"))
        pytest.fail("\n".join([*world.wrong[:3], f"written: {scene.resolve()}", *world.story]))


@pytest.mark.parametrize("block", range(10))
def test_random_worlds(block: int) -> None:
    """A thousand seeds in ten blocks; the soak goes on from there."""
    for seed in range(block * 100, block * 100 + 100):
        world = memory_random.tried(seed)
        held(world)


class Sweeping(hypothesis.stateful.RuleBasedStateMachine):
    """Sweeps, people and time in any order that hypothesis can think of."""

    @hypothesis.stateful.initialize(seed=strategies.integers(0, 10_000))
    def begin(self, seed: int) -> None:
        self.world = memory_random.RandomWorld(seed)

    @hypothesis.stateful.rule(index=strategies.integers(0, 4))
    def person(self, index: int) -> None:
        self.world.person(index % len(self.world.made))

    @hypothesis.stateful.rule(index=strategies.integers(0, 4))
    def run_ends(self, index: int) -> None:
        made = self.world.made[index % len(self.world.made)]
        self.world.scene.world.finish_run(made.run_id, "failure")

    @hypothesis.stateful.rule()
    def sweep(self) -> None:
        self.world.sweep(trouble=False)

    @hypothesis.stateful.rule()
    def sweep_with_trouble(self) -> None:
        self.world.sweep(trouble=True)

    @hypothesis.stateful.rule(seconds=strategies.sampled_from((60, 3600, 86_400)))
    def wait(self, seconds: int) -> None:
        self.world.scene.world.advance(seconds)

    @hypothesis.stateful.invariant()
    def nothing_is_wrong(self) -> None:
        if getattr(self, "world", None) is not None:
            held(self.world)

    def teardown(self) -> None:
        if getattr(self, "world", None) is not None:
            self.world.end()
            held(self.world)


TestSweeping = Sweeping.TestCase
TestSweeping.settings = hypothesis.settings(
    max_examples=40, stateful_step_count=12, deadline=None, derandomize=True, database=None,
    suppress_health_check=list(hypothesis.HealthCheck),
)  # fmt: skip
