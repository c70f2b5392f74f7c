"""Try random recovery worlds for SOAK_SECONDS (60 by default), from seed SOAK_SEED (the clock's by default, printed).

A world that breaks a promise is made smaller (fewer sweeps before the check) and its story is written to
``soak-failure-<seed>.txt``, which is all that is needed to repeat it. Exit status 1 where there was one.
"""

from __future__ import annotations

import collections
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from tests.support import memory_random

MOST_SWEEPS = 4
"""Sweeps with trouble in one world."""


def main() -> int:
    """Run until the time is over; print what was tried."""
    seconds = float(os.environ.get("SOAK_SECONDS", "60"))
    first = int(os.environ.get("SOAK_SEED", "0")) or time.time_ns() % 1_000_000_000
    sys.stdout.write(f"soak: {seconds:.0f} s from seed {first}\n")
    end = time.monotonic() + seconds
    tried, sweeps, calls = 0, 0, 0
    failures: collections.Counter[str] = collections.Counter()
    while time.monotonic() < end:
        seed = first + tried
        world = memory_random.tried(seed, 1 + seed % MOST_SWEEPS)
        tried += 1
        sweeps += 10 + seed % MOST_SWEEPS
        calls += len(world.scene.world.calls)
        if world.wrong:
            failures[world.wrong[0]] += 1
            sys.stdout.write(f"seed {seed}: {world.wrong[0]}\n")
            _dump(seed, smallest(seed))
    sys.stdout.write(
        f"soak: {tried} worlds, {sweeps} sweeps, {calls} calls, {sum(failures.values())} with a broken promise\n"
    )
    return 1 if failures else 0


def smallest(seed: int) -> memory_random.RandomWorld:
    """Return the world with the fewest sweeps that still breaks a promise."""
    for sweeps in range(MOST_SWEEPS + 1):
        world = memory_random.tried(seed, sweeps)
        if world.wrong:
            return world
    return memory_random.tried(seed, 1 + seed % MOST_SWEEPS)


def _dump(seed: int, world: memory_random.RandomWorld) -> None:
    path = Path(f"soak-failure-{seed}.txt")
    path.write_text("\n".join([*world.story, "", *world.wrong]) + "\n", encoding="utf-8")
    sys.stdout.write(f"  written: {path}\n")


if __name__ == "__main__":
    sys.exit(main())
