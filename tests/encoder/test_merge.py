"""Bringing uploads home: only complete ones, whole databases, the newest, never over something else."""

from __future__ import annotations

import asyncio
import json
import shutil
from typing import TYPE_CHECKING

import pytest

from klaud import clock, errors
from klaud.encoder import files, merge, model, naming, reference
from tests.support import encoding

if TYPE_CHECKING:
    from pathlib import Path

KEY = naming.key("bench", "shop", "sqlite")
ARTIFACT = naming.names(KEY).artifact


def upload(whole: tuple[Path, model.ReferenceEntry], root: Path, completed: str, *, note: str = "") -> Path:
    """Lay out an upload below ``root`` as a download does, completed at that time; return its folder."""
    folder = root / ARTIFACT
    shutil.copytree(whole[0] / "refs" / "bench" / "shop", folder)
    usage = json.loads((folder / naming.USAGE).read_text())
    (folder / naming.USAGE).write_text(json.dumps({**usage, "completed": completed}))
    if note:
        path = folder / "models" / "shop" / "lines.yaml"
        path.write_text(path.read_text() + f"# {note}\n")
    return folder


def run(root: Path, *uploads: Path, benchmark: str = "bench") -> list[tuple[str, str]]:
    done = asyncio.run(merge.merge(uploads, root / "refs", benchmark=benchmark, clock=clock.SystemClock()))
    return [(one.what, one.why) for one in done]


def content(root: Path) -> dict[str, bytes]:
    return files.tree(root / "refs" / "bench" / "shop", limit=10**9)


def test_a_complete_upload_is_merged_and_reused(whole: tuple[Path, model.ReferenceEntry], tmp_path: Path) -> None:
    folder = upload(whole, tmp_path / "a", "2026-01-01T00:00:00+00:00")
    assert run(tmp_path, tmp_path / "a") == [("merged", "of 2026-01-01T00:00:00+00:00")]
    assert content(tmp_path) == files.tree(folder, limit=10**9)
    assert run(tmp_path, tmp_path / "a") == [("same", "")]
    agent = encoding.InstantAgent()
    entry = asyncio.run(reference.ensure_reference(encoding.request(tmp_path, agent, data=tmp_path)))
    assert (entry.built, agent.runs, entry.results) == (False, {}, whole[1].results)


def test_the_newest_complete_upload_decides_for_the_whole_database(
    whole: tuple[Path, model.ReferenceEntry], tmp_path: Path
) -> None:
    upload(whole, tmp_path / "old", "2026-01-01T00:00:00+00:00", note="old")
    newer = upload(whole, tmp_path / "new", "2026-01-02T00:00:00+00:00", note="new")
    broken = upload(whole, tmp_path / "broken", "2026-01-03T00:00:00+00:00")
    (broken / naming.MARKER).unlink()
    done = run(tmp_path, tmp_path / "old", tmp_path / "new", tmp_path / "broken")
    assert ("incomplete", f"{naming.MARKER} is missing") in done
    assert ("superseded", "the one of 2026-01-02T00:00:00+00:00 is newer") in done
    assert content(tmp_path) == files.tree(newer, limit=10**9)


def test_a_newer_local_reference_stays(whole: tuple[Path, model.ReferenceEntry], tmp_path: Path) -> None:
    upload(whole, tmp_path / "new", "2026-01-02T00:00:00+00:00", note="new")
    run(tmp_path, tmp_path / "new")
    before = content(tmp_path)
    upload(whole, tmp_path / "old", "2026-01-01T00:00:00+00:00", note="old")
    assert run(tmp_path, tmp_path / "old") == [("kept-local", "the local one of 2026-01-02T00:00:00+00:00 is newer")]
    assert content(tmp_path) == before


def test_files_that_the_upload_does_not_have_go(whole: tuple[Path, model.ReferenceEntry], tmp_path: Path) -> None:
    upload(whole, tmp_path / "old", "2026-01-01T00:00:00+00:00")
    run(tmp_path, tmp_path / "old")
    extra = tmp_path / "refs" / "bench" / "shop" / "models" / "shop" / "gone.yaml"
    extra.write_text("name: gone\n")
    newer = upload(whole, tmp_path / "new", "2026-01-02T00:00:00+00:00")
    assert run(tmp_path, tmp_path / "new")[0][0] == "merged"
    assert content(tmp_path) == files.tree(newer, limit=10**9)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda folder: (folder / naming.RESULTS).write_text("[]"), "has no result"),
        (lambda folder: (folder / "models" / "shop" / "lines.yaml").unlink(), "models/shop/lines.yaml"),
        (lambda folder: (folder / "memories" / "shop_kb_3.md").unlink(), "the memory of item 3 is missing"),
        (lambda folder: (folder / "models" / "evil.yaml").symlink_to("/etc/passwd"), "neither a file nor a directory"),
        (lambda folder: (folder / "run.sh").write_text("x"), "run.sh is no part of a reference"),
        (lambda folder: (folder / "datasources" / "shop.yaml").write_text("name: shop\n"), "not the portable one"),
    ],
    ids=["rows", "model", "memory", "link", "foreign", "datasource"],
)
def test_what_is_not_whole_is_left_alone(
    whole: tuple[Path, model.ReferenceEntry], tmp_path: Path, damage: object, said: str
) -> None:
    folder = upload(whole, tmp_path / "a", "2026-01-01T00:00:00+00:00")
    damage(folder)  # type: ignore[operator]
    ((what, why),) = run(tmp_path, tmp_path / "a")
    assert what == "incomplete"
    assert said in why
    assert not (tmp_path / "refs").exists()


def test_what_is_not_a_reference_is_said(whole: tuple[Path, model.ReferenceEntry], tmp_path: Path) -> None:
    (tmp_path / "a" / "benchmark-results").mkdir(parents=True)
    upload(whole, tmp_path / "a", "2026-01-01T00:00:00+00:00")
    done = run(tmp_path, tmp_path / "a", benchmark="other")
    assert [what for what, _ in done] == ["not-a-reference", "not-a-reference"]
    assert run(tmp_path) == []
    with pytest.raises(errors.InputError, match="not a directory of uploads"):
        run(tmp_path, tmp_path / "absent")


def test_a_local_directory_with_something_else_in_it_is_not_replaced(
    whole: tuple[Path, model.ReferenceEntry], tmp_path: Path
) -> None:
    (tmp_path / "refs" / "bench" / "shop").mkdir(parents=True)
    (tmp_path / "refs" / "bench" / "shop" / "thesis.txt").write_text("mine")
    upload(whole, tmp_path / "a", "2026-01-01T00:00:00+00:00")
    assert run(tmp_path, tmp_path / "a")[0][0] == "error"
    assert sorted(path.name for path in (tmp_path / "refs" / "bench" / "shop").iterdir()) == ["thesis.txt"]


def test_a_corrupt_local_reference_is_replaced(whole: tuple[Path, model.ReferenceEntry], tmp_path: Path) -> None:
    folder = upload(whole, tmp_path / "a", "2026-01-01T00:00:00+00:00")
    run(tmp_path, tmp_path / "a")
    (tmp_path / "refs" / "bench" / "shop" / naming.USAGE).write_text("{")
    assert run(tmp_path, tmp_path / "a")[0][0] == "merged"
    assert content(tmp_path) == files.tree(folder, limit=10**9)
