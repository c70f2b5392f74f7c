# ruff: noqa: T201 - a script that prints
"""Two processes that want the same reference, round after round.

    python -m tests.support.racing DIRECTORY ROUNDS

Prints a JSON list of two entries for each round: what each process was told, and what the reference's directory says.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from klaud.encoder import files, model, naming, reference, slayer_api
from tests.support import killing

if TYPE_CHECKING:
    from multiprocessing.synchronize import Barrier


def runner(root: Path, rounds: int, barrier: Barrier, answers: Any) -> None:
    """Want the reference of each round at the same moment as the other process does."""
    assert slayer_api.YAMLStorage
    runs = [0]

    def count() -> None:
        runs[0] += 1

    for number in range(rounds):
        place = root / str(number)
        barrier.wait(60)
        request = killing.request(place, files.Files(), agent=killing.Mini(step=count))
        entry = asyncio.run(reference.ensure_reference(request))
        answers.put((number, entry.built, entry.usage.input_tokens, entry.fingerprint, runs[0]))
        runs[0] = 0


def main(root: Path, rounds: int) -> None:
    """Run both processes and print what they were told."""
    for number in range(rounds):
        killing.make(root / str(number))
    context = multiprocessing.get_context("spawn")
    barrier, answers = context.Barrier(2), context.Queue()
    both = [context.Process(target=runner, args=(root, rounds, barrier, answers)) for _ in range(2)]
    for one in both:
        one.start()
    told = [answers.get(timeout=100) for _ in range(2 * rounds)]
    for one in both:
        one.join(30)
    found = []
    for number in range(rounds):
        usage = json.loads((root / str(number) / "refs" / "bench" / "mini" / naming.USAGE).read_text())
        total = model.Usage(**usage["total"]).input_tokens
        found.append({"told": sorted(one[1:] for one in told if one[0] == number), "total": total})
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
