"""A pause reaches a session that runs, and an error changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from klaud import errors
from klaud.session import model, pause, run
from tests.support import memory_world, session_bench

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Switches:
    """Two switches that say what a test wants, or fail as it wants."""

    def __init__(self) -> None:
        self.says: dict[str, bool | Exception] = {"variable": False, "file": False}
        self.asked: list[str] = []
        self.log: list[str] = []
        self.world = memory_world.World()
        looks = {name: self._look(name) for name in self.says}
        self.paused = pause.Switch(looks, clock=self.world.clock, seconds=30.0, log=self.log.append)

    def _look(self, name: str) -> pause.Look:
        def look() -> bool:
            self.asked.append(name)
            said = self.says[name]
            if isinstance(said, Exception):
                raise said
            return said

        return look

    def later(self) -> bool:
        self.world.advance(31)
        return self.paused()


@pytest.mark.parametrize("name", ["variable", "file"])
def test_either_switch_pauses_and_lets_go_on(name: str) -> None:
    one = Switches()
    assert not one.paused()
    one.says[name] = True
    assert not one.paused(), "it is not asked again within its interval"
    assert one.later()
    one.says[name] = False
    assert not one.later()
    assert len(one.log) == 1, "said once"


@pytest.mark.parametrize("said", [False, True])
def test_an_error_leaves_what_was_known(*, said: bool) -> None:
    one = Switches()
    one.says["variable"] = said
    assert one.paused() is said
    one.says["variable"] = errors.ReadFailedError("no answer")
    assert one.later() is said
    assert any("could not be read" in line for line in one.log)


def test_what_the_token_may_not_read_is_given_up_and_said_once() -> None:
    one = Switches()
    one.says["variable"] = errors.ForbiddenError("no right")
    assert not one.paused()
    assert not one.later()
    assert (one.asked.count("variable"), one.asked.count("file")) == (1, 2)
    assert sum("may not read variable" in line for line in one.log) == 1
    one.says["file"] = True
    assert one.later(), "the other one is still heard"


def test_what_was_known_at_the_start_stays() -> None:
    assert pause.Switch({}, clock=memory_world.World().clock, seconds=1.0, log=print, paused=True)()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[session_bench.Bench]:
    tmp_path.chmod(0o755)
    with session_bench.bench(tmp_path) as made:
        yield made


def test_a_pause_in_mid_turn_ends_it_within_a_beat_and_the_session_parks(bench: session_bench.Bench) -> None:
    """Nothing more is spent; what stands is kept for a continuation."""

    def pull(call: memory_world.Call) -> None:
        if call.name == "create_pull":
            bench.paused = True

    bench.world.after.append(pull)
    steps = [{"do": "set"}, {"do": "commit"}, *({"do": "call", "tool": tool} for tool in ("push_work", "open_draft"))]
    bench.script({"steps": [*steps, {"do": "sleep", "seconds": 20}, {"do": "call", "tool": "dispatch_smoke"}]})
    end = bench.run(bench.brief(bench.claim()))
    assert isinstance(end, run.Parked), (end, bench.log)
    assert (end.turn.status, end.turn.fault, end.why) == ("paused", "paused", "job-limit")
    assert bench.view().spent == model.Spent(drafts=1, pushes=1)
