"""The planner's verbs on bad and good input: a clear message, the right exit status, nothing written."""

from __future__ import annotations

import datetime
import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from klaud import names
from klaud.cli import main
from klaud.planner import codec, files, model, proof, validate
from klaud.recovery import model as recovery
from tests.planner.test_devices import git
from tests.support import loopback

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MATRIX = """
import json, sys
import pathlib
keys = sys.argv[sys.argv.index("--config-keys") + 1]
print(json.dumps([{"model": keys, "hardware": "cpu", "conc": 1}]))
"""
CONFIG = """
bot: 90001
benchmarks:
  - name: codecs
    families: {{files: ["configs/*.yaml"]}}
    generator:
      layouts:
        - inputs: [tools, configs]
          commands: [[python3, "{{root}}/tools/matrix.py", --config-keys, "{{family}}"]]
    rows: {{file: rows.json}}
    sources: [{source}]
    workflows: {{final: final.yml}}
    edit-scope: {{values: [{{files: ["configs/*.yaml"], keys: ["*.level"]}}]}}
"""
FILES = {
    "tools/matrix.py": MATRIX,
    "configs/codecs.yaml": "zlib: {level: 6}\nbz2: {level: 9}\n",
    "rows.json": "[]",
    "candidates.jsonl": '{"family": "configs/codecs.yaml:*", "subject": "level 9", "change": {"*.level": 9}}\n',
    ".github/workflows/klaud-candidate.yml": "on: {workflow_dispatch: {inputs: {wave: {}, candidate: {}, claim: {}}}}",
    ".github/workflows/final.yml": "on: {pull_request: {types: [labeled]}}",
}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a clone and stand in it, in an environment without a credential."""
    folder = tmp_path / "clone"
    for path, text in {**FILES, ".github/klaud.yml": config()}.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    git(tmp_path, "init", "-q", "-b", "main", str(folder))
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "first")
    monkeypatch.chdir(folder)
    for name in validate.credentials(os.environ):
        monkeypatch.delenv(name)
    for name in ("GITHUB_RUN_ID", "GITHUB_STEP_SUMMARY", "KLAUD_CONFIG", "KLAUD_PAUSED", "GITHUB_REPOSITORY"):
        monkeypatch.delenv(name, raising=False)
    memory = model.Memory(at="2026-03-02T06:00:00Z")
    files.write(folder / "in", files.MEMORY, memory)
    return folder


@pytest.fixture
def hub() -> Iterator[loopback.Loopback]:
    with loopback.serving() as server:
        yield server


def config(source: str = "{file: candidates.jsonl}") -> str:
    return CONFIG.format(source=source)


def status(*argv: str) -> int:
    """Run a verb and return its exit status."""
    try:
        main.main(list(argv))
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def plan(root: Path, *more: str) -> int:
    return status("plan", "--in", str(root / "in"), "--out", str(root / "out"), *more)


def test_a_plan_is_made_without_a_credential_and_can_be_replayed(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plan(root, "--seed", "5") == 0
    made = codec.decode((root / "out" / files.PLAN).read_bytes(), model.Plan, where=files.PLAN)
    assert sorted(one.family for one in made.candidates) == ["configs/codecs.yaml:bz2", "configs/codecs.yaml:zlib"]
    assert (made.seed, made.not_generated) == (5, ())
    evidence = codec.decode((root / "out" / proof.FILE).read_bytes(), proof.Evidences, where=proof.FILE)
    assert len(evidence.benchmarks[0].produced.matrices) == 2
    assert "candidates: 2" in capsys.readouterr().out
    assert plan(root, "--seed", "5") == 0
    again = codec.decode((root / "out" / files.PLAN).read_bytes(), model.Plan, where=files.PLAN)
    assert again.candidates == made.candidates


BAD: dict[str, tuple[str, str, int]] = {
    "unknown-key": ("bot: 90001", "bto: 90001", 2),
    "wrong-type": ("bot: 90001", "bot: me", 2),
    "twice": ("bot: 90001", "bot: 90001\nbot: 1", 2),
}


@pytest.mark.parametrize("case", BAD)
def test_a_configuration_that_is_wrong_is_refused_and_nothing_is_written(
    case: str, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new, code = BAD[case]
    place = root / ".github/klaud.yml"
    place.write_text(place.read_text().replace(old, new))
    assert plan(root) == code
    said = capsys.readouterr().err
    assert "klaud.yml" in said
    assert "  -> " in said
    assert not (root / "out").exists()


def test_an_unknown_key_names_the_nearest(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = root / ".github/klaud.yml"
    place.write_text(place.read_text().replace("bot:", "bto:"))
    assert status("validate") == 2
    assert "bto: unknown key; did you mean 'bot'?" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["validate", "plan", "wave", "preflight", "review", "select", "dispatch"])
def test_without_a_configuration_every_verb_says_what_to_do(
    verb: str, root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / ".github/klaud.yml").unlink()
    if verb not in {"validate", "plan"}:
        monkeypatch.setenv("KLAUD_TOKEN", "x")
    assert status(verb) == 2
    said = capsys.readouterr().err
    assert "there is no configuration" in said
    assert "klaud init" in said
    assert not (root / "klaud-wave").exists()


def test_a_generator_that_does_not_exist_is_found_by_validate_and_deferred_by_plan(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = root / ".github/klaud.yml"
    place.write_text(place.read_text().replace("tools/matrix.py", "tools/gone.py"))
    assert status("validate") == 2
    assert "tools/gone.py does not exist" in " ".join(capsys.readouterr().out.split())
    assert plan(root) == 0
    made = codec.decode((root / "out" / files.PLAN).read_bytes(), model.Plan, where=files.PLAN)
    assert made.candidates == ()
    assert {one.code for one in made.not_generated} == {"generator-failed"}


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (loopback.Reply(b"hunter2", status=503), (75, "503")),
        (loopback.Reply(b"[]"), (2, "no row")),
        (loopback.Reply(b"<!doctype html>hunter2"), (2, "HTML")),
        (loopback.Reply(b'[{"family": "configs/codecs.yaml:zlib", "subject": "hunter2'), (2, "not usable")),
    ],
    ids=["503", "empty-list", "html", "half"],
)
def test_L05_a_feed_that_fails_ends_the_plan_with_its_reason(  # noqa: N802 - the oddity's id
    reply: loopback.Reply,
    told: tuple[int, str],
    root: Path,
    hub: loopback.Loopback,
    capsys: pytest.CaptureFixture[str],
) -> None:
    hub.reply("/rows", reply)
    (root / ".github/klaud.yml").write_text(config(f'{{feed: "{hub.url}/rows"}}'))
    assert plan(root) == told[0]
    said = capsys.readouterr().err
    assert told[1] in said
    assert "hunter2" not in said
    assert not (root / "out").exists()


def test_plan_refuses_to_run_beside_a_credential(root: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setenv("KLAUD_TOKEN", "hunter2")
    assert plan(root) == 2
    said = capsys.readouterr().err
    assert "KLAUD_TOKEN" in said
    assert "hunter2" not in said
    assert not (root / "out").exists()


def test_plan_without_the_file_of_the_step_before_says_which_verb_makes_it(root: Path, capsys: Any) -> None:
    (root / "in" / files.MEMORY).unlink()
    assert plan(root) == 2
    assert "Run klaud preflight --out first" in capsys.readouterr().err


def test_plan_refuses_a_memory_from_before_the_sweep(root: Path, capsys: Any) -> None:
    """It would still have the claims and drafts that the sweep has settled."""
    report = recovery.Report(
        repository="acme/bench", at=datetime.datetime(2026, 3, 2, 6, 0, 1, tzinfo=datetime.UTC), mode="act"
    )
    files.write(root / "in", "recovery.json", report)
    assert plan(root) == 2
    assert "klaud preflight --out after klaud recover" in capsys.readouterr().err
    files.write(root / "in", files.MEMORY, model.Memory(at="2026-03-02T06:00:02Z"))
    assert plan(root) == 0


def test_a_family_that_recovery_has_in_hand_is_not_planned(root: Path) -> None:
    zlib = names.short_id("configs/codecs.yaml:zlib")
    report = recovery.Report(
        repository="acme/bench", at=datetime.datetime(2026, 3, 2, 5, tzinfo=datetime.UTC), mode="act",
        blocked={zlib: "row 4: alive"},
    )  # fmt: skip
    files.write(root / "in", "recovery.json", report)
    assert plan(root) == 0
    made = codec.decode((root / "out" / files.PLAN).read_bytes(), model.Plan, where=files.PLAN)
    assert [one.family for one in made.candidates] == ["configs/codecs.yaml:bz2"]
    assert [(one.code, one.message) for one in made.blocked] == [("in-recovery", "row 4: alive")]


def test_plan_ends_neutral_where_klaud_is_paused(root: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setenv("KLAUD_PAUSED", "1")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(root / "summary"))
    assert plan(root) == 0
    assert "klaud is paused" in capsys.readouterr().out
    assert "klaud is paused" in (root / "summary").read_text()
    assert not (root / "out").exists()


def test_validate_runs_the_generator_on_request_only_without_a_credential(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    assert status("validate") == 0
    assert status("validate", "--run") == 0
    broken = root / "tools/matrix.py"
    broken.write_text("raise SystemExit('hunter2')")
    git(root, "commit", "-q", "-a", "-m", "break it")
    assert status("validate", "--run") == 2
    said = capsys.readouterr()
    assert "generator-failed" in said.out
    assert "hunter2" not in said.out + said.err
    monkeypatch.setenv("GITHUB_TOKEN", "x")
    assert status("validate", "--run") == 2
    assert "GITHUB_TOKEN" in capsys.readouterr().err


def test_validate_finds_a_benchmark_without_an_edit_scope(root: Path, capsys: Any) -> None:
    place = root / ".github/klaud.yml"
    place.write_text(place.read_text().replace("    edit-scope:", "    #"))
    assert status("validate") == 2
    assert "edit-scope" in capsys.readouterr().out


def test_outside_of_a_clone_git_says_so(root: Path, tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    place = tmp_path / "nothing" / ".github"
    place.mkdir(parents=True)
    (place / "klaud.yml").write_text(config())
    monkeypatch.chdir(tmp_path / "nothing")
    assert plan(root) == 2
    assert "git" in capsys.readouterr().err


def test_without_git_the_program_is_named(root: Path, monkeypatch: Any, capsys: Any, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert plan(root) == 2
    assert "git is not on PATH" in capsys.readouterr().err
    assert not (root / "out").exists()


@pytest.mark.parametrize("verb", ["wave", "select", "dispatch", "review", "preflight"])
def test_a_verb_that_acts_needs_a_token_and_a_repository(verb: str, root: Path, monkeypatch: Any, capsys: Any) -> None:
    assert root.is_dir()
    assert status(verb) == 2
    assert "GITHUB_REPOSITORY" in capsys.readouterr().err
    monkeypatch.setenv("GITHUB_REPOSITORY", "acme/bench")
    assert status(verb) == 2
    assert "KLAUD_TOKEN" in capsys.readouterr().err


def test_what_a_wave_hands_on_is_json_for_anybody(root: Path) -> None:
    assert plan(root) == 0
    for name in (files.PLAN, proof.FILE):
        assert json.loads((root / "out" / name).read_text())["version"] == 1
