# ruff: noqa: T201 - a script that prints
"""Stop a build, a resumption, a rebuild or a merge by SIGKILL after each of its file operations, and look at what is left.

    python -m tests.support.killing DIRECTORY SCENE FIRST LAST [TWIN]

kills after operations FIRST to LAST, or until the scene ends by itself.

Prints one JSON object for each operation: what was found right after the kill, and whether the next call completed. The
libraries are imported once; every attempt is a fork, so that the whole takes seconds. The parent never starts a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sqlite3
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from klaud import clock
from klaud.encoder import agents, files, merge, model, naming, reference, slayer_api, validate

if TYPE_CHECKING:
    from collections.abc import Callable

KEY = naming.key("bench", "mini", "sqlite")
ITEMS = [
    {"id": 1, "knowledge": "Total", "description": "d", "definition": "sum of v", "type": "calculation_knowledge",
     "children_knowledge": -1},
    {"id": 2, "knowledge": "Half", "description": "d", "definition": "Total / 2", "type": "calculation_knowledge",
     "children_knowledge": 1},
]  # fmt: skip
FORMULAS = {1: ("total", "sum(v)"), 2: ("half", "total / 2")}


class Mini:
    """An agent in process for the two items above."""

    def __init__(self, *, stop_after: int = 0, step: Callable[[], None] = lambda: None) -> None:
        self.step = step
        del stop_after

    async def run(self, task: model.Task, workspace: Path, tools: Any, bounds: model.Bounds) -> model.ItemResult:
        del tools, bounds
        self.step()
        name, formula = FORMULAS[task.item.id]
        said = model.Submission(
            nonce=task.nonce,
            definitions=(model.Definition(kind="measure", model="t", name=name, body={"formula": formula}),),
            entities=(f"mini.t.{name}",),
        )
        (workspace / agents.SUBMISSION).write_bytes(msgspec.json.encode(said))
        return model.ItemResult(ended="finished", usage=model.Usage(input_tokens=7))


class Budget(clock.SystemClock):
    """A clock by which the first item uses the budget up."""

    at = 0.0

    def monotonic(self) -> float:
        return self.at

    def step(self) -> None:
        self.at += 1000.0


def make(root: Path) -> None:
    """Write the inputs."""
    folder = root / "data" / "mini"
    folder.mkdir(parents=True)
    with contextlib.closing(sqlite3.connect(folder / "mini.sqlite")) as connection:
        connection.executescript("CREATE TABLE t (id INTEGER PRIMARY KEY, v REAL); INSERT INTO t VALUES (1, 2.5)")
    (folder / "mini_kb.jsonl").write_text("\n".join(json.dumps(item) for item in ITEMS))


def request(root: Path, operations: files.Files, **more: Any) -> reference.Request:
    """Return the request for the mini database."""
    fixed: dict[str, Any] = {
        "key": KEY, "data": root / "data", "references": root / "refs", "agent": Mini(), "clock": clock.SystemClock(),
        "framework": "scripted", "files": operations,
    }  # fmt: skip
    return reference.Request(**{**fixed, **more})


def partial(root: Path, operations: files.Files) -> None:
    """Run a build whose budget ends after the first item."""
    ticking = Budget()
    agent = Mini(step=ticking.step)
    policy = model.Policy(budget_seconds=500.0)
    asyncio.run(reference.ensure_reference(request(root, operations, agent=agent, clock=ticking, policy=policy)))


def complete(root: Path, operations: files.Files, *, rebuild: bool = False) -> None:
    """Run a build to its end."""
    entry = asyncio.run(reference.ensure_reference(request(root, operations, rebuild=rebuild)))
    assert entry.state == "complete"


def take(root: Path, operations: files.Files) -> None:
    """Merge the upload."""
    done = asyncio.run(
        merge.merge(
            [root / "uploads"], root / "refs", benchmark="bench", clock=clock.SystemClock(), operations=operations
        )
    )
    assert [one.what for one in done] in (["merged"], ["same"]), done


def before(root: Path, scene: str) -> None:
    """Bring about what the scene begins with."""
    if scene == "resume":
        partial(root, files.Files())
    if scene in ("rebuild", "merge"):
        complete(root, files.Files())
    if scene == "merge":
        newer = root / "uploads" / naming.names(KEY).artifact
        shutil.copytree(root / "refs" / "bench" / "mini", newer)
        usage = json.loads((newer / naming.USAGE).read_text())
        (newer / naming.USAGE).write_text(json.dumps({**usage, "completed": "2999-01-01T00:00:00+00:00"}))
        (newer / "models" / "mini" / "t.yaml").write_text((newer / "models" / "mini" / "t.yaml").read_text() + "\n")
        (root / "refs" / "bench" / "mini" / "memories" / "old.md").write_text("---\nversion: 4\n---\nolder\n")


SCENES: dict[str, Callable[[Path, files.Files], None]] = {
    "build": complete,
    "partial": partial,
    "resume": complete,
    "rebuild": lambda root, operations: complete(root, operations, rebuild=True),
    "merge": take,
}


class KeepsMarker(files.Files):
    """Broken: never removes a marker, so a merge writes new content below the old one."""

    def remove(self, path: Path) -> None:
        if path.name == naming.MARKER:
            self._done("remove", path)
        else:
            super().remove(path)


class MarkerFirst(files.Files):
    """Broken: builds in the target itself, with the marker before the content."""

    @staticmethod
    def _place(path: Path) -> Path:
        parts = path.parts
        at = next((index for index, part in enumerate(parts) if part.startswith("mini.building-")), None)
        if at is None or len(parts) < at + 2 or parts[at + 1] != "tree":
            return path
        return Path(*parts[:at], "mini", *parts[at + 2 :])

    def mkdir(self, path: Path) -> None:
        path = self._place(path)
        super().mkdir(path)
        if path.name == "mini":
            super().write(path / naming.MARKER, b"0" * 16)

    def write(self, path: Path, data: bytes) -> None:
        super().write(self._place(path), data)

    def sync(self, directory: Path) -> None:
        super().sync(self._place(directory))

    def rename(self, source: Path, target: Path) -> bool:
        del source
        self._done("rename", target)
        return True


TWINS: dict[str, type[files.Files]] = {"": files.Files, "keeps-marker": KeepsMarker, "marker-first": MarkerFirst}


def forked(work: Callable[[], None]) -> int:
    """Run ``work`` in a fork; return its wait status as an exit code."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException as error:  # noqa: BLE001 - a fork must never return into its parent's code
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def look(root: Path) -> dict[str, Any]:
    """Return what a reader would see: whether there is a marker, and what is wrong below it."""
    target = root / "refs" / "bench" / "mini"
    marked = (target / naming.MARKER).exists()
    wrong: tuple[str, ...] = ()
    if marked:
        tree = files.tree(target, limit=validate.TREE_BYTES)
        wrong = validate.contents(tree, KEY, forbidden=(), marked=True)[0]
        upload = root / "uploads" / naming.names(KEY).artifact
        if upload.exists() and tree[naming.USAGE] == files.read(upload / naming.USAGE, 10**6):
            same = files.tree_hash(tree) == files.tree_hash(files.tree(upload, limit=validate.TREE_BYTES))
            wrong = wrong if same else (*wrong, "new and old content are mixed")
    return {"marked": marked, "wrong": list(wrong)}


def main(root: Path, scene: str, first: str, last_one: str, twin: str = "") -> None:
    """Kill the scene after one operation after the other."""
    assert slayer_api.YAMLStorage
    start = root / "start"
    make(start)
    assert forked(lambda: before(start, scene)) == 0
    for number in range(int(first), int(last_one) + 1):
        place = root / f"at{number}"
        shutil.copytree(start, place)
        count = [0]
        last = root / "last"

        def observe(
            operation: str, path: Path, *, limit: int = number, seen: list[int] = count, last: Path = last
        ) -> None:
            seen[0] += 1
            if seen[0] == limit:
                last.write_text(f"{operation} {path.name.partition('.building-')[0]}")
                os.kill(os.getpid(), signal.SIGKILL)

        ended = forked(lambda at=place, watch=observe: SCENES[scene](at, TWINS[twin](watch)))
        found = {"at": number, "ended": ended, "after": last.read_text() if ended else "", **look(place)}
        again = "build" if scene in ("build", "partial", "resume", "rebuild") else scene
        found["next"] = forked(lambda at=place, name=again: SCENES[name](at, files.Files())) if not twin else 0
        found["then"] = look(place)
        found["names"] = sorted(path.name for path in (place / "refs" / "bench").iterdir()) if not twin else []
        print(json.dumps(found))
        shutil.rmtree(place)
        if ended == 0:
            return


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
