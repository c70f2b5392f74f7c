"""Two real planner processes started at the same moment against one served hub, round after round.

Usage: python bench/two_planners.py [ROUNDS]
Each round runs ``klaud select`` and ``klaud dispatch`` in two processes on the same state of the hub. Rounds take turns: as
they start; held until both are about to look; held until both are about to push; and every second one with the candidates
in opposite order, so that each may win some. The status is the number of rounds in which something was shared.
"""

from __future__ import annotations

import collections
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.support import served
from tests.support import two_planners as game

ROUNDS = 50
MEETINGS = ("", "GET /*.git/info/refs", "POST /*.git/git-receive-pack")


def main() -> int:
    """Play, and print what came of it."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    begun = time.monotonic()
    wrong: list[str] = []
    sums: collections.Counter[str] = collections.Counter()
    with tempfile.TemporaryDirectory(prefix="klaud-two-") as name:
        folder = Path(name)
        with served.world(folder / "world", mess=False, configuration=game.all_at_once) as world:
            game.prepare(world, folder / "made")
            for number in range(rounds):
                with game.restored(world):
                    one = game.play(
                        world, folder / "made", folder / f"round-{number}",
                        meet=MEETINGS[number % len(MEETINGS)], turned=number % 2 == 1,
                    )  # fmt: skip
                found = game.faults(one)
                wrong += [f"round {number}: {fault}" for fault in found]
                sums["rounds in which something was shared"] += bool(found)
                sums["claims taken"] += sum(one.claims.values())
                sums["runs started"] += sum(one.runs.values())
                sums["claims lost and told to whom"] += sum(
                    candidate in one.chosen[1 - index] for index in range(2) for candidate in one.lost[index]
                )
                sums["rounds in which both won something"] += all(one.chosen)
    print(f"{rounds} rounds of two planner processes in {time.monotonic() - begun:.0f} s")
    for words in ("claims taken", "runs started", "claims lost and told to whom", "rounds in which both won something"):
        print(f"  {words}: {sums[words]}")
    print(f"  rounds in which something was shared: {sums['rounds in which something was shared']}")
    for fault in wrong:
        print(f"  {fault}")
    return sums["rounds in which something was shared"]


if __name__ == "__main__":
    sys.exit(main())
