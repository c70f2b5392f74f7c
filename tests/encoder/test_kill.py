"""Killed after each file operation: never a marker on incomplete content, and the next call completes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A directory in memory where there is one: thousands of waits for a disk prove nothing more here."""
    memory = Path("/dev/shm")  # noqa: S108 - a directory of its own is made in it
    with tempfile.TemporaryDirectory(prefix="klaud-kill-", dir=memory if memory.is_dir() else None) as name:
        yield Path(name)


def kills(at: Path, scene: str, first: int, last: int, twin: str = "") -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.killing", str(at), scene, str(first), str(last), *([twin] if twin else [])],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=110,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


SCENES = [("build", 1, 99), ("partial", 1, 99), ("resume", 20, 99), ("rebuild", 1, 8), ("merge", 1, 99)]
"""Which operations of a scene: a resumed build begins, and a rebuild ends, as any other does."""


@pytest.mark.slow
@pytest.mark.parametrize(("scene", "first", "last"), SCENES, ids=[scene for scene, *_ in SCENES])
def test_a_kill_after_any_operation_leaves_no_lie_and_the_next_call_completes(
    folder: Path, scene: str, first: int, last: int
) -> None:
    found = kills(folder, scene, first, last)
    assert len(found) > 5
    end = [0] if last == 99 else [-signal.SIGKILL]
    assert [one["ended"] for one in found] == [-signal.SIGKILL] * (len(found) - 1) + end
    for one in found:
        assert one["wrong"] == [], one
        assert one["next"] == 0, one
        assert one["then"] == {"marked": True, "wrong": []}, one
        if not one["marked"] or scene == "merge":  # a complete one is reused before anything else is touched
            assert one["names"] == ["mini", "mini.build.lock"], one
    if scene in ("build", "resume"):
        assert {one["marked"] for one in found} == {False, True}


@pytest.mark.slow
@pytest.mark.parametrize(("scene", "twin", "last"), [("merge", "keeps-marker", 14), ("build", "marker-first", 9)])
def test_the_wrong_order_is_caught(folder: Path, scene: str, twin: str, last: int) -> None:
    """Broken twins: the look after a kill sees a marker on incomplete content."""
    assert [one for one in kills(folder, scene, 1, last, twin) if one["wrong"]]
