"""``refs-store: graphql``: recovery without the git protocol, on the embedded GitHub, to the same end as with it."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from klaud import fakehub
from klaud.cli import live as lives
from klaud.cli import recovery as verbs
from klaud.fakehub import scene as scene_files
from klaud.github import graphql_refs
from tests.support import memory_replay, memory_to_scene
from tests.support.memory_standard import STANDARD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from klaud.fakehub.hub import Hub
    from klaud.recovery import model

REPOSITORY = "acme/bench"


@contextlib.contextmanager
def world(
    name: str, store: str, folder: Path, patch: pytest.MonkeyPatch
) -> Iterator[tuple[Hub, Callable[[], model.Report]]]:
    """Serve a standard scene, and sweep it as ``klaud recover`` does, with that ref store."""
    built = STANDARD[name][1]()
    played = memory_replay.Played(built.scene, [built.main] if built.main else [])
    played.scene.begin()
    mark = played.mark()
    assert mark is not None
    data = memory_to_scene.scene_of(mark)
    data["config"] = {**data["config"], "refs-store": store}
    scene = scene_files.Scene(data)
    with scene_files.build(scene, folder) as hub, fakehub.serve(hub), patch.context() as env:
        for variable in ("GITHUB_TOKEN", "KLAUD_RECORD_KEY", "KLAUD_PAUSED", "KLAUD_CONFIG", "GITHUB_STEP_SUMMARY"):
            env.delenv(variable, raising=False)
        for variable, value in scene_files.environment(scene, hub, "recover").items():
            env.setenv(variable, value)
        place = folder / "klaud.yml"
        place.write_text(yaml.safe_dump(data["config"]))
        yield hub, lambda: verbs.sweep(lives.open_live(place), bundles=folder)
        assert not hub.errors


def end(hub: Hub) -> dict[str, Any]:
    """Return what is there: refs by name (oids differ with the configuration in the first commit), drafts, runs."""
    repository = hub.repository(REPOSITORY)
    return {
        "refs": {re.sub(r"/[0-9a-f]{40}$", "/copy", ref) for ref in hub.git(REPOSITORY).refs()},
        "pulls": {n: (i.state, i.pull.draft, len(i.comments)) for n, i in repository.issues.items() if i.pull},
        "runs": {n: (run.status, run.conclusion) for n, run in repository.runs.items()},
    }


@pytest.mark.parametrize("name", ["abandoned_among_others", "handed_off"])
def test_both_stores_come_to_the_same_end(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two sweeps each; the second writes nothing; over GraphQL not one request is git's."""
    ends = {}
    for store in ("git", "graphql"):
        with world(name, store, tmp_path / store, monkeypatch) as (hub, sweep):
            first, second = sweep(), sweep()
            assert (first.red, second.red) == ((), ())
            assert (second.totals.pushes, second.totals.writes) == (0, ())
            asked = {"git" if ".git/" in entry.path else "api" for entry in hub.log}
            assert asked == ({"api"} if store == "graphql" else {"api", "git"})
            ends[store] = end(hub)
    assert ends["graphql"] == ends["git"]


def test_a_lacking_right_is_found_before_the_first_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The probe of the interface: red, the right named, nothing written and nothing moved."""
    with world("abandoned", "graphql", tmp_path / "hub", monkeypatch) as (hub, sweep):
        hub.state.tokens["scene-token"].permissions = {
            "contents": "read", "pull_requests": "write", "actions": "write", "issues": "write", "metadata": "read",
        }  # fmt: skip
        before = end(hub)
        report = sweep()
        assert "contents:write" in report.red[0]
        assert report.stopped
        assert report.totals.writes == ("POST /graphql UpdateRefs x1",), "the probe alone, which was refused"
        assert end(hub) == before


def test_the_probe_moves_nothing_where_the_right_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from klaud.recovery import settle_refs  # noqa: PLC0415 - only here

    with world("abandoned", "graphql", tmp_path / "hub", monkeypatch) as (hub, _):
        live = lives.open_live(tmp_path / "hub" / "klaud.yml")
        assert isinstance(live.refs, graphql_refs.GraphqlRefStore)
        before = end(hub)
        settle_refs.check_right(live.refs, live.names)
        assert end(hub) == before
