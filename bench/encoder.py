"""Time and memory of a 60-item build with an instant agent, and the largest gap of a heartbeat beside it.

    python bench/encoder.py [ITEMS]

The database has one table; every third item is a column, the others are measures that use the ones before. The agent
answers in process, so what is measured is klaud and the semantic layer. The heartbeat is a task that wants to wake every
10 ms on the event loop of the build.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
import sqlite3
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec

from klaud import clock
from klaud.encoder import agents, model, naming, reference

BEAT_SECONDS = 0.01


def item(number: int) -> dict[str, Any]:
    """Return one item of the knowledge base: it uses the newest column and the measure before."""
    children = [] if number % 3 == 0 else [number - number % 3] + ([number - 1] if number % 3 == 2 else [])
    return {
        "id": number,
        "knowledge": f"Item {number}",
        "description": f"What item {number} is.",
        "definition": f"item {number} from {children}",
        "type": "calculation_knowledge",
        "children_knowledge": children or -1,
    }


def definition(number: int) -> model.Definition:
    """Return what the agent defines for an item."""
    base = number - number % 3
    if number % 3 == 0:
        body = {"sql": f"a * {number + 1} + b", "type": "DOUBLE"}
        return model.Definition(kind="column", model="facts", name=f"c{number}", body=body)
    formula = f"sum(c{base})" if number % 3 == 1 else f"m{number - 1} / count(*) + max(c{base})"
    return model.Definition(kind="measure", model="facts", name=f"m{number}", body={"formula": formula})


class Instant:
    """Answers at once."""

    async def run(self, task: model.Task, workspace: Path, tools: Any, bounds: model.Bounds) -> model.ItemResult:
        """Write the submission."""
        del tools, bounds
        one = definition(task.item.id)
        said = model.Submission(nonce=task.nonce, definitions=(one,), entities=(naming.canonical("load", one),))
        (workspace / agents.SUBMISSION).write_bytes(msgspec.json.encode(said))
        return model.ItemResult(ended="finished")


def make(root: Path, items: int) -> None:
    """Write the inputs."""
    folder = root / "data" / "load"
    folder.mkdir(parents=True)
    with contextlib.closing(sqlite3.connect(folder / "load.sqlite")) as connection:
        connection.execute("CREATE TABLE facts (id INTEGER PRIMARY KEY, a REAL, b REAL)")
        connection.executemany("INSERT INTO facts VALUES (?, ?, ?)", [(n, n * 0.5, n % 7) for n in range(10_000)])
        connection.commit()
    (folder / "load_kb.jsonl").write_text("\n".join(json.dumps(item(number)) for number in range(items)))


async def beat(gaps: list[float]) -> None:
    """Note how long each wait really took beyond what was asked for."""
    while True:
        began = time.perf_counter()
        await asyncio.sleep(BEAT_SECONDS)
        gaps.append(time.perf_counter() - began - BEAT_SECONDS)


async def build(root: Path) -> tuple[model.ReferenceEntry, list[float]]:
    """Build with a heartbeat beside."""
    gaps: list[float] = []
    beating = asyncio.create_task(beat(gaps))
    request = reference.Request(
        key=naming.key("bench", "load", "sqlite"),
        data=root / "data",
        references=root / "refs",
        agent=Instant(),
        clock=clock.SystemClock(),
        framework="scripted",
    )
    entry = await reference.ensure_reference(request)
    beating.cancel()
    return entry, gaps


def main(items: int) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        make(root, items)
        began, processor = time.perf_counter(), time.process_time()
        entry, gaps = asyncio.run(build(root))
        wall, spent = time.perf_counter() - began, time.process_time() - processor
    assert [row.status for row in entry.results] == ["encoded"] * items
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{items} items: {wall:.2f} s wall, {spent:.2f} s processor, {wall / items * 1000:.0f} ms an item")
    print(f"peak memory {peak:.0f} MiB")
    print(f"heartbeat: {len(gaps)} beats, largest gap {max(gaps) * 1000:.0f} ms")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
