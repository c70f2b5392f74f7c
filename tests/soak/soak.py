"""Try random recovery worlds for SOAK_SECONDS (60 by default), from seed SOAK_SEED (the clock's by default, printed).

Usage: python tests/soak/soak.py [--seed N] [--worlds N] [--jobs N] [--twins]
SOAK_JOBS (1 by default) processes share the seeds.
A world that breaks a promise is made smaller (later beginning, fewer sweeps, troubles and sessions), and what is left is
written to ``soak-failure-<seed>.yaml``: a scene that ``klaud scene run FILE`` repeats over HTTP and git. At the end the
broken twins are put in place one by one (``--twins``: nothing else is done), each with the invariant that catches it.
Exit status 1 where a promise was broken, or a twin was not caught.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

import pytest

from tests.recovery import test_twins
from tests.support import memory_random, memory_to_scene

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

MOST_SWEEPS = 4
"""Sweeps with trouble in one world."""

BLOCK = 20
"""Worlds that one process tries in a row."""

INVARIANTS = (
    "a person's pull request is open and its branch unmoved",
    "a live session keeps draft, branch, runs and claim",
    "a draft is told once for each time that it is closed",
    "an open pull request has its branch",
    "a deleted branch has a copy",
    "a sweep right after a quiet one writes nothing and is not red",
    "no lease and no dead session's claim is left when all is quiet",
    "a row of the table decides every session",
)


def say(text: str) -> None:
    """Print a line."""
    sys.stdout.write(f"{text}\n")


def main(argv: Sequence[str] = ()) -> int:
    """Run until the time is over; print what was tried."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=int(os.environ.get("SOAK_SEED", "0")))
    parser.add_argument("--worlds", type=int, default=0, help="so many worlds, whatever the time")
    parser.add_argument("--jobs", type=int, default=int(os.environ.get("SOAK_JOBS", "1")), help="processes")
    parser.add_argument("--twins", action="store_true", help="only the broken twins")
    asked = parser.parse_args(argv)
    if asked.twins:
        return int(not twins())
    seconds = float(os.environ.get("SOAK_SECONDS", "60"))
    first = asked.seed or time.time_ns() % 1_000_000_000
    say(
        f"soak: {f'{asked.worlds} worlds' if asked.worlds else f'{seconds:.0f} s'} from seed {first}, {asked.jobs} at once"
    )
    end = time.monotonic() + seconds
    tried = sweeps = calls = 0
    failures: list[int] = []
    for done in blocks(
        first, jobs=asked.jobs, more=lambda begun: begun < asked.worlds if asked.worlds else time.monotonic() < end
    ):
        tried += done.worlds
        sweeps += done.sweeps
        calls += done.calls
        failures += done.broken
        for seed in done.broken:
            world = one(seed)
            say(f"seed {seed}: {world.wrong[0]}")
            say(f"  written: {memory_to_scene.write(world, Path(f'soak-failure-{seed}.yaml'))}")
    say(f"soak: {tried} worlds, {sweeps} sweeps, {calls} calls, {len(failures)} with a broken promise")
    for line in INVARIANTS:
        say(f"  held to: {line}")
    caught = asked.worlds > 0 or twins()
    return int(bool(failures) or not caught)


@dataclasses.dataclass
class Block:
    """What some worlds in a row came to; ``broken``: the seeds of those that break a promise."""

    worlds: int = 0
    sweeps: int = 0
    calls: int = 0
    broken: list[int] = dataclasses.field(default_factory=list)


def one(seed: int) -> memory_random.RandomWorld:
    """Try the world of one seed."""
    return memory_random.tried(seed, 1 + seed % MOST_SWEEPS)


def block(seed: int) -> Block:
    """Try the worlds of ``BLOCK`` seeds."""
    done = Block()
    for number in range(seed, seed + BLOCK):
        world = one(number)
        done.worlds += 1
        done.sweeps += len(world.steps)
        done.calls += len(world.scene.world.calls)
        if world.wrong:
            done.broken.append(number)
    return done


def blocks(first: int, *, jobs: int, more: Callable[[int], bool]) -> Iterator[Block]:
    """Yield blocks from seed ``first`` on for as long as ``more`` says so of the worlds begun; in so many processes."""
    begun = 0
    if jobs == 1:
        while more(begun):
            yield block(first + begun)
            begun += BLOCK
        return
    with concurrent.futures.ProcessPoolExecutor(jobs) as pool:
        going: set[concurrent.futures.Future[Block]] = set()
        while going or more(begun):
            while len(going) < 2 * jobs and more(begun):
                going.add(pool.submit(block, first + begun))
                begun += BLOCK
            done, going = concurrent.futures.wait(going, return_when=concurrent.futures.FIRST_COMPLETED)
            for future in done:
                yield future.result()


def twins() -> bool:
    """Print each broken twin with what catches it; True where all are caught."""
    good = True
    for name, (replaced, check) in test_twins.TWINS.items():
        with pytest.MonkeyPatch.context() as patch:
            for owner, attribute, twin in replaced:
                patch.setattr(owner, attribute, twin)
            try:
                wrong = check()
            except (AssertionError, KeyError) as error:
                wrong = [repr(error)]
        good = good and bool(wrong)
        say(f"  twin: {name}: {wrong[0] if wrong else 'NOT CAUGHT'}")
    return good


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
