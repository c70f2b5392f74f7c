"""Two planner runs at the same moment against one served hub: one claim of a family, one run of a candidate, and the loser
says who has it. ``bench/two_planners.py`` plays fifty rounds; here are a few, and one of two whole waves.
"""

from __future__ import annotations

import dataclasses
import functools
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.support import served
from tests.support import two_planners as game

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.served import World

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

MEETINGS = {
    "as-started": "",
    "before-the-first-look": "GET /*.git/info/refs",
    "before-the-first-push": "POST /*.git/git-receive-pack",
}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, Path]]:
    folder = tmp_path_factory.mktemp("two-planners")
    with served.world(folder / "world", mess=False, configuration=game.all_at_once) as world:
        game.prepare(world, folder / "made")
        yield world, folder / "made"


@pytest.fixture(scope="module")
def played(table: tuple[World, Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], game.Round]:
    """Play a round of each meeting once: its processes are dear, and the judge's own test needs a good round too."""
    world, made = table

    @functools.cache
    def play(meeting: str) -> game.Round:
        with game.restored(world):
            place = tmp_path_factory.mktemp("round")
            return game.play(world, made, place, meet=MEETINGS[meeting], turned=meeting != "as-started")

    return play


@pytest.mark.parametrize("meeting", MEETINGS)
def test_two_planners_never_share_a_family(meeting: str, played: Callable[[str], game.Round]) -> None:
    one = played(meeting)
    assert game.faults(one) == []
    assert len(one.claims) == len(one.standing) == len(one.runs) == 5, one


def wrong(one: game.Round) -> dict[str, game.Round]:
    """Return a good round made wrong in each way that counts."""
    ref, candidate = next(iter(one.claims)), next(iter(one.runs))
    mine, other = one.chosen
    stolen = next(iter(mine or other))
    winner = 0 if mine else 1
    silent = tuple({**lost, stolen: "claimed"} if index != winner else lost for index, lost in enumerate(one.lost))
    changes: dict[str, dict[str, Any]] = {
        "two claims": {"claims": {**one.claims, ref: 2}},
        "two dispatches": {"dispatches": {**one.dispatches, candidate: 2}},
        "two runs": {"runs": {**one.runs, candidate: 2}},
        "selected twice": {"chosen": ({**other, **mine}, {**mine, **other})},
        "a claim that does not stand": {"standing": {}},
        "claimed and not started": {"runs": {}},
        "a silent loser": {"lost": silent},
        "a status": {"statuses": (0, 1)},
    }
    return {name: dataclasses.replace(one, **change) for name, change in changes.items()}


def test_the_judge_notices_every_wrong_round(played: Callable[[str], game.Round]) -> None:
    good = played("before-the-first-push")
    assert game.faults(good) == []
    assert [name for name, bad in wrong(good).items() if not game.faults(bad)] == []


def test_two_whole_waves_at_once_share_nothing(tmp_path: Path) -> None:
    """With what dead sessions left: both sweep it, and what is done twice by two sweeps is done once."""
    with served.world(tmp_path / "world", configuration=game.all_at_once) as world:
        clones = [world.folder / f"clone-{index}" for index in range(2)]
        for place in clones:
            served.clone(world.hub.repository(served.REPOSITORY).git_path, place)
        first = len(world.hub.log)
        children = [
            subprocess.Popen(
                [sys.executable, "-m", "klaud", "wave", "--out", str(tmp_path / f"out-{run}")],
                cwd=place, env=world.environ(run), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            )
            for run, place in zip(served.OWN_RUNS, clones, strict=True)
        ]  # fmt: skip
        said = [child.communicate(timeout=200)[0] for child in children]
        log = world.hub.log[first:]
        one = game.judged(world, log, [tmp_path / f"out-{run}" for run in served.OWN_RUNS])
        assert not [text for text in said if "Traceback" in text], said
        assert {child.returncode for child in children} <= {0, 1}, said
        # a planner may have planned while the dead session's claim still stood, and then names that one's wave; or its
        # sweep met the other's claim already, and then it names the run that is at work on it
        assert game.faults(one, named=("wave ", "run {other}")) == [], said
        done = [(e.method, e.path) for e in log if e.write and e.status < 300 and e.method in {"POST", "PATCH"}]
        closes = [path for method, path in done if method == "PATCH" and path.endswith("/pulls/2")]
        comments = [path for _, path in done if path.endswith("/issues/2/comments")]
        assert len(closes) <= 1, done
        assert len(comments) <= 1, done
        with world.hub.lock:
            pulls = world.hub.repository(served.REPOSITORY).issues
            assert [pulls[number].state for number in (1, 2, 3, 4)] == ["open", "closed", "open", "open"]
        assert not [ref for ref in world.refs() if ref.startswith("refs/klaud/leases/")]
