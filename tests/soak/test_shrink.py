"""What the soak finds is made small and becomes a scene file in which the same promise is broken over HTTP and git."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any

import pytest

from klaud import fakehub
from klaud.cli import live as lives
from klaud.cli import recovery as verbs
from klaud.fakehub import scene as scene_files
from tests.soak import soak
from tests.support import memory_random, memory_replay, memory_to_scene
from tests.support.memory_standard import STANDARD
from tests.support.memory_world import Spoil

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from klaud.fakehub.hub import Hub
    from klaud.recovery import model

REPOSITORY = "acme/bench"
FINISHED = {"8", "9", "10"}
"""Rows that the results of a final run decide, which a scene does not hold."""


@contextlib.contextmanager
def hub_of(
    path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Hub, Callable[..., model.Report]]]:
    """Serve a scene file; also return klaud's own sweep over HTTP and git, in this process."""
    scene = scene_files.load(path)
    with scene_files.build(scene, folder) as hub, fakehub.serve(hub), monkeypatch.context() as patch:
        for name in ("GITHUB_TOKEN", "KLAUD_RECORD_KEY", "KLAUD_PAUSED", "KLAUD_CONFIG", "GITHUB_STEP_SUMMARY"):
            patch.delenv(name, raising=False)
        for name, value in scene_files.environment(scene, hub, "recover").items():
            patch.setenv(name, value)
        config = folder / "klaud.yml"
        git = hub.git(REPOSITORY)
        config.write_bytes(git.read_file(git.ref("refs/heads/main"), ".github/klaud.yml"))

        def sweep(**options: Any) -> model.Report:
            return verbs.sweep(lives.open_live(config), bundles=folder, **options)

        yield hub, sweep


def written(incident: memory_replay.Incident, path: Path) -> Path:
    path.write_text(memory_to_scene.text_of(incident), encoding="utf-8")
    return path


def rows(report: model.Report) -> dict[str, str]:
    """Return the row that decides each session; those that results decide are one."""
    assert report.red == ()
    return {e.session: "results" if e.row in FINISHED else e.row for e in report.sessions}


def begin(name: str) -> memory_replay.Incident:
    """Return a standard scene, or the random world of a seed, as it is before its first sweep."""
    if name.isdigit():
        played: memory_replay.Played = memory_random.RandomWorld(int(name))
    else:
        built = STANDARD[name][1]()
        played = memory_replay.Played(built.scene, [built.main] if built.main else [])
    played.scene.begin()
    mark = played.mark()
    assert mark is not None
    return mark


WORLDS = ("abandoned_among_others", "closed_by_a_person", "forged_two_drafts", "old_ledger", "in_hand", "7", "21", "33")


@pytest.mark.parametrize("name", WORLDS)
def test_a_scene_begins_as_its_world_does(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same refs, drafts and runs; and klaud, reading them over HTTP and git, decides each session by the same row."""
    incident = begin(name)
    played = memory_replay.begun(incident)
    expected = rows(played.scene.sweep(report_only=True))
    with hub_of(written(incident, tmp_path / "scene.yaml"), tmp_path / "hub", monkeypatch) as (hub, sweep):
        repository, state = hub.repository(REPOSITORY), incident.state
        assert len(hub.git(REPOSITORY).refs()) == len(state.refs) + len(state.pulls)  # and refs/pull/N/head
        unnamed = {ref for ref in state.refs if "/archive/" not in ref}
        assert unnamed <= set(hub.git(REPOSITORY).refs())
        for number, pull in state.pulls.items():
            issue = repository.issues[number]
            assert (issue.state, issue.pull.draft, tuple(issue.labels)) == (pull.state, pull.draft, pull.labels)
        there = {one.id: (one.status, one.conclusion, one.head_branch) for one in repository.runs.values()}
        assert there == {one.id: (one.status, one.conclusion, one.head_branch) for one in state.runs.values()}
        assert rows(sweep(report=True)) == expected
        assert not hub.errors


# -- a twin's failure, from the random world to the hub


def blind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a twin in place that never sees a person's touch."""
    from klaud.recovery import decide_facts, rules_touch  # noqa: PLC0415 - only the twin's

    monkeypatch.setattr(decide_facts, "_touch", lambda *_: None)
    monkeypatch.setattr(rules_touch, "touches", lambda *_: iter(()))


def found(monkeypatch: pytest.MonkeyPatch, seeds: int = 200) -> memory_replay.Incident:
    """Return what the twin breaks first in random worlds."""
    with monkeypatch.context() as patch:
        blind(patch)
        for seed in range(seeds):
            world = memory_random.tried(seed)
            if any("person's pull request" in wrong and "closed" in wrong for wrong in world.wrong):
                return memory_replay.shrunk(world.incident())
    raise AssertionError("no world of the soak shows what the twin breaks")


def test_a_twins_failure_is_shrunk_and_repeated_on_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One session, one sweep; the twin closes a person's draft in the scene, and the sound product does not."""
    small = found(monkeypatch)
    assert (len(small.made), len(small.steps), small.ends) == (1, 1, False), small.wrong
    number = small.made[0].number or 0
    assert f"a person's pull request {number} is closed" in small.wrong
    path = written(small, tmp_path / "scene.yaml")
    assert path.read_text().startswith(f"# a person's pull request {number} is closed")
    with hub_of(path, tmp_path / "sound", monkeypatch) as (hub, sweep):
        sweep()
        assert hub.repository(REPOSITORY).issues[number].state == "open"
    with hub_of(path, tmp_path / "broken", monkeypatch) as (hub, sweep):
        with monkeypatch.context() as patch:
            blind(patch)
            sweep()
        assert hub.repository(REPOSITORY).issues[number].state == "closed"


def test_a_sound_product_repeats_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The incident is the twin's alone."""
    small = found(monkeypatch)
    assert memory_replay.replayed(small).wrong == []


def calls_of(mark: memory_replay.Incident, step: memory_replay.Step) -> list[str]:
    """Return the calls of a sweep that is disturbed so."""
    played = memory_replay.begun(mark)
    played.play(step)
    return [call.name for call in played.calls[0]]


def test_what_disturbs_a_sweep_becomes_faults_and_people(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A person comments right before the draft is closed, and the answer of the first push is lost: all is restored."""
    mark = begin("abandoned")
    lost = memory_replay.Step(spoil=Spoil.LOSE, bad=calls_of(mark, memory_replay.Step()).index("comment"))
    step = dataclasses.replace(lost, deed="push", at=calls_of(mark, lost).index("close_pull"))
    incident = dataclasses.replace(mark, steps=(step,))
    data = memory_to_scene.scene_of(incident)
    assert [human["before"] for human in data["humans"]] == ["PATCH /repos/{owner}/{repo}/pulls/{pull_number}"]
    assert [(one["match"], one["kind"], one["skip"]) for one in data["faults"]] == [
        ("POST /repos/{owner}/{repo}/issues/{issue_number}/comments", "lost-reply", 0)
    ]
    number = incident.made[0].number or 0
    with hub_of(written(incident, tmp_path / "scene.yaml"), tmp_path / "hub", monkeypatch) as (hub, sweep):
        sweep()
        issue = hub.repository(REPOSITORY).issues[number]
        closed = [event.event for event in issue.events if event.event in {"closed", "reopened"}]
        assert (issue.state, closed) == ("open", ["closed", "reopened"]), closed
        assert sum("klaud:abandoned" in comment.body for comment in issue.comments) == 1


def test_the_soak_writes_a_scene_for_what_it_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as patch:
        blind(patch)
        assert soak.main(["--worlds", "20", "--seed", "1", "--jobs", "1"]) == 1
    said = capsys.readouterr().out
    files = sorted(tmp_path.glob("soak-failure-*.yaml"))
    assert files, said
    assert all(str(path.name) in said for path in files)
    assert all(scene_files.load(path).title for path in files)


def test_an_incident_that_shows_only_at_rest_is_shrunk_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A twin that never gives its leases back: nothing is wrong before all is quiet."""
    from klaud.recovery import settle_refs  # noqa: PLC0415 - only the twin's

    final = settle_refs.RefSettler._final
    monkeypatch.setattr(
        settle_refs.RefSettler, "_final", lambda self, hand: [u for u in final(self, hand) if "/leases/" not in u.ref]
    )
    for seed in range(50):
        world = memory_random.tried(seed)
        if world.ended and world.wrong:
            break
    small = memory_replay.shrunk(world.incident())
    assert small.ends
    assert len(small.made) == 1
    assert len(small.steps) <= memory_replay.QUIET_STEPS


@pytest.mark.parametrize("seed", [7_004_858])
def test_a_world_that_once_broke_a_promise_is_whole(seed: int) -> None:
    """7004858: a person acted before the closing, reopening got no clear answer, and the draft stayed closed."""
    assert soak.one(seed).wrong == []
