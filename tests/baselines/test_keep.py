"""What a clean job keeps of a wave's matrices: under keys of its own making, and nothing else that lies in the folder."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec
import pytest

from klaud.baselines import cache, commands, keep, model, run
from klaud.cli import main
from klaud.planner import files, hand_on, proof
from tests.baselines.test_generate import BOTH, FAST, policy

if TYPE_CHECKING:
    import pathlib

    from klaud.baselines import sandbox
    from tests.support.benchmarks import History


def made(source: History, box: sandbox.Sandbox, folder: pathlib.Path | None = None) -> model.Produced:
    return run.regenerate(policy(), needs(source), git=source.objects, cache_folder=folder, box=box)


def needs(source: History) -> list[model.Need]:
    return [model.Need(commit=source.tip, families=BOTH)]


@pytest.fixture(scope="module")
def produced(history: History, box: sandbox.Sandbox) -> model.Produced:
    return made(history, box)


def kept(
    folder: pathlib.Path, history: History, box: sandbox.Sandbox, produced: model.Produced, **changed: object
) -> keep.Kept:
    part = (policy(), changed.get("needs", needs(history)), produced)
    return keep.keep([part], git=history.objects, folder=folder, box=box)  # type: ignore[list-item]


def test_what_is_kept_is_found_by_the_next_wave_which_starts_nothing(
    history: History, box: sandbox.Sandbox, produced: model.Produced, tmp_path: pathlib.Path
) -> None:
    first = kept(tmp_path, history, box, produced)
    assert (first.new, first.dropped, first.entries) == (2, 0, 2)
    again = made(history, box, tmp_path)
    assert (again.cached, again.calls) == (2, 0)
    assert [msgspec.structs.replace(one, cached=False) for one in again.matrices if isinstance(one, model.Matrix)] == [
        *produced.matrices
    ]
    assert kept(tmp_path, history, box, produced).new == 0


def test_the_digest_is_of_what_is_kept(
    history: History, box: sandbox.Sandbox, produced: model.Produced, tmp_path: pathlib.Path
) -> None:
    one, other = (kept(tmp_path / name, history, box, produced) for name in ("one", "other"))
    assert one.digest == other.digest
    fewer = kept(tmp_path / "fewer", history, box, produced, needs=[model.Need(commit=history.tip, families=(FAST,))])
    assert fewer.entries == 1
    assert fewer.digest != one.digest


def test_only_what_was_asked_for_is_kept_and_only_of_commits_that_are_here(
    history: History, box: sandbox.Sandbox, produced: model.Produced, tmp_path: pathlib.Path
) -> None:
    """The job of the generators cannot add a matrix that nobody asked for, nor one of a commit that is none."""
    strange = msgspec.structs.replace(produced.matrices[0], commit="d" * 40)
    more = msgspec.structs.replace(produced, matrices=(*produced.matrices, strange))
    wanted = [model.Need(commit=history.tip, families=(FAST,)), model.Need(commit="d" * 40, families=BOTH)]
    assert kept(tmp_path, history, box, more, needs=wanted).entries == 1


def test_a_matrix_whose_generator_left_processes_behind_is_not_kept(
    history: History, box: sandbox.Sandbox, produced: model.Produced, tmp_path: pathlib.Path
) -> None:
    left = tuple(msgspec.structs.replace(one, daemons=1) for one in produced.matrices)
    assert kept(tmp_path, history, box, msgspec.structs.replace(produced, matrices=left)).entries == 0


def test_a_program_of_the_clone_is_not_asked_for_its_version(
    history: History, box: sandbox.Sandbox, produced: model.Produced, tmp_path: pathlib.Path
) -> None:
    layout = policy().generator.layouts[0]
    own = msgspec.structs.replace(layout, commands=(("tools/run", "{root}/x", "{family}"),))
    changed = msgspec.structs.replace(policy().generator, layouts=(own,))
    part = (msgspec.structs.replace(policy(), generator=changed), needs(history), produced)
    assert keep.keep([part], git=history.objects, folder=tmp_path, box=box).entries == 0


def test_whatever_else_is_in_the_folder_is_thrown_away(
    history: History, box: sandbox.Sandbox, produced: model.Produced, tmp_path: pathlib.Path
) -> None:
    """What a job with old code may have left there: other kinds, damaged entries, true entries under false keys, links."""
    folder = tmp_path / "kept"
    kept(folder, history, box, produced)
    (entry, second) = sorted(folder.rglob("*.gz"))
    cache.Cache(folder).put("a" * 64, commands.Known())
    (folder / "notes.txt").write_text("x")
    false = folder / "matrices" / "ff" / f"{'f' * 64}.json.gz"
    false.parent.mkdir()
    false.write_bytes(entry.read_bytes())
    linked = folder / "matrices" / "ee" / f"{'e' * 64}.json.gz"
    linked.parent.mkdir()
    linked.symlink_to(entry)
    second.write_bytes(b"damaged")
    again = kept(folder, history, box, produced)
    assert (again.new, again.dropped, again.entries) == (1, 5, 2)
    assert sorted(path for path in folder.rglob("*") if not path.is_dir()) == [entry, second]


def test_the_oldest_go_first_above_the_bounds(
    history: History, box: sandbox.Sandbox, produced: model.Produced, tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    kept(tmp_path, history, box, produced)
    old, new = sorted(tmp_path.rglob("*.gz"))
    os.utime(old, (1, 1))
    monkeypatch.setattr(keep, "MOST_ENTRIES", 1)
    assert kept(tmp_path, history, box, produced, needs=[]).dropped == 1
    assert list(tmp_path.rglob("*.gz")) == [new]


def test_the_verb_takes_files_by_their_digests_and_tells_whether_anything_changed(
    history: History, produced: model.Produced, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("KLAUD_TOKEN", "GITHUB_TOKEN", "KLAUD_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "klaud.yml").write_text(
        "benchmarks:\n- name: acme\n  generator: {layouts: [{inputs: [tools, configs], configs: ['configs/*.json'], "
        "commands: [[python3, '{root}/tools/matrix.py', '{family}']]}]}\n  rows: {file: rows.json}\n"
        "  sources: [{file: candidates.jsonl}]\n  workflows: {final: final.yml}\n"
    )
    folder = tmp_path / "wave"
    named = msgspec.structs.replace(produced, benchmark="acme")
    evidence = proof.Evidence(benchmark="acme", produced=model.Produced(benchmark="acme", matrices=()))
    files.write(folder, proof.FILE, proof.Evidences(base=history.tip, benchmarks=(evidence,)))
    files.write(folder, files.needs("acme"), msgspec.json.encode(needs(history)))
    files.write(folder, files.producers("acme"), named)
    for step in ("produce", "review"):
        monkeypatch.setenv(hand_on.variable(step), msgspec.json.encode(hand_on.digests(folder, step)).decode())
    monkeypatch.setenv("GITHUB_OUTPUT", str(tmp_path / "output"))
    argv = ["keep-matrices", "--in", str(folder), "--cache", str(tmp_path / "kept"),
            "--repository", str(history.folder), "--config", str(tmp_path / "klaud.yml")]  # fmt: skip
    main.app(args=argv, standalone_mode=False)
    told = dict(line.split("=", 1) for line in (tmp_path / "output").read_text().splitlines())
    assert told["changed"] == "true"
    assert len(told["digest"]) == 64
    assert len(list((tmp_path / "kept").rglob("*.gz"))) == 2
    files.write(folder, files.producers("acme"), msgspec.structs.replace(named, matrices=()))
    with pytest.raises(Exception, match="was changed on its way from the step produce"):
        main.app(args=argv, standalone_mode=False)
