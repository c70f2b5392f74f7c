"""``klaud scene`` as a person calls it: a real child process, over real HTTP and git."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from klaud.fakehub import scenes as builders

ROOT = Path(__file__).resolve().parents[2]
ABANDONED = ROOT / "klaud" / "fakehub" / "scenes" / "abandoned.yaml"


def klaud(*argv: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "LC_ALL": "C.UTF-8", "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-m", "klaud", *argv],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )


def run(path: Path, *argv: str) -> tuple[int, dict[str, Any]]:
    done = klaud("scene", "run", str(path), "--json", *argv)
    assert done.stdout, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, answer


def write(path: Path, scene: dict[str, Any]) -> Path:
    path.write_text(json.dumps(scene))
    return path


def test_a_good_scene_is_good() -> None:
    done = klaud("scene", "check", str(ABANDONED))
    assert (done.returncode, done.stderr) == (0, "")
    assert "1 pull requests" in done.stdout


@pytest.mark.parametrize("verb", ["check", "run"])
def test_a_typo_ends_with_status_2_and_nothing_is_run(tmp_path: Path, verb: str) -> None:
    path = tmp_path / "scene.yaml"
    path.write_text(ABANDONED.read_text().replace("    draft: true", "    darft: true"))
    done = klaud("scene", verb, str(path))
    assert (done.returncode, done.stdout) == (2, "")
    assert "pulls[0].darft: unknown key of a pull request; did you mean `draft`?" in done.stderr


def test_a_scene_that_is_not_there_ends_with_status_2(tmp_path: Path) -> None:
    done = klaud("scene", "check", str(tmp_path / "none.yaml"))
    assert done.returncode == 2
    assert "cannot be read" in done.stderr


@pytest.mark.slow
def test_a_report_in_a_scene_writes_nothing() -> None:
    status, answer = run(ABANDONED, "--", "--report")
    assert status == answer["verbs"][0]["status"] == 0, answer["verbs"][0]["output"]
    assert answer["verbs"][0]["writes"] == []
    assert answer["hub-errors"] == []
    assert answer["end"]["pulls"][0]["state"] == "open"


@pytest.mark.slow
def test_a_sweep_in_a_scene_spares_what_a_person_touches_meanwhile() -> None:
    status, answer = run(ABANDONED, "--verb", "recover", "--verb", "recover")
    first, second = answer["verbs"]
    assert (status, answer["hub-errors"]) == (0, []), first["output"]
    assert answer["end"]["pulls"][0]["state"] == "open"
    assert [run["conclusion"] for run in answer["end"]["runs"] if run["workflow"] == "bench-smoke.yml"] == ["cancelled"]
    assert "refs/heads/klaud/claim-0123456789abcdef" not in answer["end"]["refs"]
    assert first["requests"]["pushes"] >= 1
    assert second["writes"] == []


def test_a_verb_that_is_killed_by_a_fault_has_its_signals_status(tmp_path: Path) -> None:
    scene = builders.merged(
        builders.base(),
        {"self": {"run": 18900000001}, "faults": [{"match": "GET /repos/*/actions/runs/18900000001", "kind": "kill"}]},
    )
    status, answer = run(write(tmp_path / "scene.yaml", scene))
    assert status == 137
    assert answer["verbs"][0]["writes"] == []


def test_a_token_without_the_own_run_stops_the_sweep(tmp_path: Path) -> None:
    scene = builders.merged(builders.base(), {"self": {"run": 18900000001, "absent": True}})
    status, answer = run(write(tmp_path / "scene.yaml", scene))
    assert status != 0
    assert answer["verbs"][0]["writes"] == []
