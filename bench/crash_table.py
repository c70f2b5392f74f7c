"""Spoil every outward call of every standard scene's sweep, sweep on, and print what came of it, scene by scene.

Usage: python bench/crash_table.py [SCENE ...]
The machinery is that of tests/recovery/test_crash.py: a scene is swept once undisturbed; then, for each of its calls, the
process is killed before it, killed after it, its answer is an error, lost (writes) or stale (reads), and two more sweeps
follow. Columns: calls of the undisturbed sweep; kill points tried (before and after each call); other troubles tried; how
many ended as the undisturbed history did; how often a person's or a living session's things were touched; how often one
effect happened twice. Exit status 1 where anything but "all converged, none, none" is printed.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.support import memory_crash, memory_invariants
from tests.support.memory_standard import STANDARD
from tests.support.memory_world import Spoil

KILLS = frozenset({Spoil.KILL_BEFORE, Spoil.KILL_AFTER})
TWICE = " was told "
"""What the invariant says of a draft that was commented on more often than it was closed."""


@dataclasses.dataclass
class Line:
    """One scene's line of the table."""

    name: str
    calls: int
    kills: int = 0
    others: int = 0
    converged: int = 0
    touched: int = 0
    doubled: int = 0

    @property
    def is_good(self) -> bool:
        """Whether everything converged and nothing was touched or doubled."""
        return self.converged == self.kills + self.others and not self.touched and not self.doubled

    def __str__(self) -> str:
        """Return the line as printed."""
        tried = self.kills + self.others
        return (
            f"{self.name:34} {self.calls:5} {self.kills:6} {self.others:7} {f'{self.converged} of {tried}':>13} "
            f"{self.touched:8} {self.doubled:8}"
        )


def measured(name: str) -> Line:
    """Try every trouble at every call of one scene."""
    history = memory_crash.undisturbed(name)
    line = Line(name, len(history.calls))
    for k, call in enumerate(history.calls):
        for spoil in memory_crash.kinds(call):
            if spoil in KILLS:
                line.kills += 1
            else:
                line.others += 1
            built, early = memory_crash.spoilt(name, spoil, k)
            broken = [*early, *memory_invariants.violations(built)]
            end = memory_invariants.differences(memory_invariants.digest(built.scene), history.end)
            line.converged += all(memory_crash.excused(name, spoil, text) for text in end)
            line.doubled += any(TWICE in text for text in broken)
            line.touched += any(TWICE not in text for text in broken)
    return line


def main() -> int:
    """Print the table."""
    begun = time.monotonic()
    print(f"{'scene':34} {'calls':>5} {'kills':>6} {'others':>7} {'converged':>13} {'touched':>8} {'doubled':>8}")
    lines = []
    for name in sys.argv[1:] or STANDARD:
        lines.append(measured(name))
        print(lines[-1], flush=True)
    total = Line("all scenes", sum(one.calls for one in lines))
    for field in ("kills", "others", "converged", "touched", "doubled"):
        setattr(total, field, sum(getattr(one, field) for one in lines))
    print(total)
    print(f"{len(lines)} scenes, {time.monotonic() - begun:.0f} s")
    return 0 if all(one.is_good for one in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
