"""The demo is the whole wave for real: real git, real HTTP, real child processes, real measurements."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from klaud import config, names
from klaud.cli import recovery

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    out = tmp_path_factory.mktemp("demo")
    environ = {key: value for key, value in os.environ.items() if key in {"PATH", "HOME", "LANG", "TMPDIR"}}
    done = subprocess.run(
        [sys.executable, "-m", "klaud", "demo", "--out", str(out)],
        cwd=ROOT, env=environ, capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    return out, done.stdout


def section(text: str, title: str) -> str:
    """Return the part of the printed report below one title."""
    start = text.index(title + "\n")
    rest = text[start:].split("\n\n", 1)[0]
    assert rest.count("\n") > 2
    return rest


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_two_sessions_are_validated_and_one_failed(demo: tuple[Path, str]) -> None:
    told = section(demo[1], "How the sessions ended")
    assert told.count(" validated ") == 2
    assert told.count(" failed ") == 1
    assert "none yet" not in told


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_what_dead_sessions_left_is_settled_and_what_people_touched_is_left(demo: tuple[Path, str]) -> None:
    found = json.loads((demo[0] / "wave" / "recovery-first.json").read_text(encoding="utf-8"))
    assert sorted(one["row"] for one in found["sessions"]) == ["14", "17", "19", "3", "6", "lease"]
    by_row = {one["row"]: one for one in found["sessions"]}
    assert any("closed pull request 2" in done for done in by_row["14"]["done"])
    assert any("cancelled run 8821" in done for done in by_row["14"]["done"])
    assert [done.partition("/claims/")[0] for done in by_row["6"]["done"]] == ["deleted refs/klaud"]
    assert [one.partition("/claims/")[0] for one in by_row["3"]["done"] if "claims" in one] == ["deleted refs/klaud"]
    assert not any("close" in done or "branch" in done for done in by_row["3"]["done"]), "a handed-off draft stays"
    pulls = section(demo[1], "Pull requests at the end")
    assert any("#3" in line and "draft" in line for line in pulls.splitlines())
    assert any("#4" in line and "draft" in line for line in pulls.splitlines())


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_every_candidate_has_a_decision_and_the_deferral_names_its_near_miss(demo: tuple[Path, str]) -> None:
    found = json.loads((demo[0] / "wave" / "selection-first.json").read_text(encoding="utf-8"))
    offered = (ROOT / "klaud/fakehub/demo/candidates.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(found["decisions"]) == len(offered)
    assert all(one["selected"] or (one["code"] and one["message"] and one["unblock"]) for one in found["decisions"])
    gates = sorted(one["gate"] for one in found["decisions"])
    assert gates == ["baseline", "plan", "plan", "review", "selected", "selected", "selected"]
    (deferred,) = [one for one in found["decisions"] if one["gate"] == "baseline"]
    assert deferred["code"] == "unmatched"
    assert "decode_num_workers: row 3, matrix 0" in deferred["unblock"]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_producer_too_old_for_an_option_is_verified_by_the_fallback(demo: tuple[Path, str]) -> None:
    told = section(demo[1], "The published numbers, each tied to the matrix of the commit that produced it")
    assert "too old for --no-evals" in told
    assert told.count("repeats with the same bytes") == 3


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_nothing_is_left_without_an_owner_and_the_second_recovery_writes_nothing(demo: tuple[Path, str]) -> None:
    refs = section(demo[1], "klaud's refs at the end")
    assert "NONE" not in refs
    assert "refs/klaud/claims/" not in refs
    assert "refs/klaud/leases/" not in refs
    assert "  claims: 0\n  leases: 0\n" in refs
    assert "It found nothing to do and wrote nothing." in demo[1]
    again = json.loads((demo[0] / "wave" / "again" / "recovery.json").read_text(encoding="utf-8"))
    assert again["totals"]["pushes"] == 0
    assert again["totals"]["writes"] == []
    assert sum(again["totals"]["requests"].values()) <= 6


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_readme_shows_the_parts_that_the_demo_prints(demo: tuple[Path, str]) -> None:
    """Commit ids and counts of requests apart: they differ from day to day."""

    def shape(text: str) -> list[str]:
        same = [re.sub(r"\b[0-9a-f]{12}\b|(?<=requests: )\d+", "#", line) for line in text.splitlines()]
        return [re.sub(r"-{2,}", "--", re.sub(r" {2,}", "  ", line)).rstrip() for line in same]

    shown = (ROOT / "README.md").read_text(encoding="utf-8").partition("$ make demo")[2].partition("```")[0]
    parts = [part for part in shown.split("\n\n") if "\n---" in part]
    parts[0] = parts[0][parts[0].index("Which candidates") :]
    assert len(parts) == 5
    printed = shape(demo[1])
    for part in map(shape, parts):
        told = [line for line in part if "isolation" in line or "user+pid" in line]
        kept = [line for line in part if line not in told]  # what was in force depends on the machine
        assert [line for line in kept if line not in printed] == []


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_family_is_explained_from_the_waves_files(demo: tuple[Path, str], tmp_path: Path) -> None:
    settings = config.load(ROOT / "klaud/fakehub/demo/klaud.yml")

    def told(key: str, folder: Path = demo[0] / "wave") -> str:
        return "\n".join(recovery._of_wave(settings, folder, names.short_id(f"configs/codecs.yaml:{key}")))

    assert "deferred (2 point(s) proven" in told("zlib-json")
    assert "- run 4102: decode_num_workers: row 3, matrix 0" in told("zlib-json")
    assert "verified (2 point(s) proven" in told("bz2-text")
    assert "fallback: the producer does not know --no-evals" in told("bz2-text")
    assert told("bz2-json").splitlines()[1:] == ["  to unblock: #4 is closed or merged"]
    assert "no wave's files" in told("zlib-json", tmp_path)
