"""A feed that fails, in a whole wave (laws 7 and 8, oddity L05): the rest goes on, and nothing follows from the failure.

Three benchmarks: the rows of the first fail, one of two sources of the second fails, the third is well. What recovery and
the planner then write is compared with the same wave on feeds that answer.
"""

from __future__ import annotations

import fnmatch
import json
from typing import TYPE_CHECKING, Any

import pytest

from klaud import names
from klaud.cli import demo_world
from klaud.fakehub import faults
from tests.support import served

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.served import Done, World

pytestmark = [pytest.mark.slow, pytest.mark.timeout(280)]

FAILURES: dict[str, faults.Fault] = {
    "503": faults.Fault("GET /_feeds/*", "status", times=None, status=503, message="try later"),
    "empty-list": faults.Fault("GET /_feeds/*", "body", times=None, message="[]"),
    "html": faults.Fault("GET /_feeds/*", "body", times=None, message="<html><title>Sign in</title></html>"),
    "half-a-json": faults.Fault("GET /_feeds/*", "cut-body", times=None, rows=700),
}

KEYS = {"rows-fail": ("bz2-text",), "source-fails": ("zlib-text", "lzma-text"), "well": ("*-json", "*-mixed")}


def three(config: dict[str, Any], url: str) -> dict[str, Any]:
    """Part the demo's benchmark in three, two of which read the feeds that fail."""
    (one,) = config["benchmarks"]
    parts = []
    for name, keys in KEYS.items():
        part = {**one, "name": name, "families": {**one["families"], "keys": list(keys)}, "rows": {"file": "rows.json"}}
        part["sources"] = [{"file": f"{name}.jsonl"}]
        parts.append(part)
    parts[0]["rows"] = {"feed": f"{url}/rows.json"}
    parts[1]["sources"] = [{"feed": f"{url}/offers.jsonl"}, *parts[1]["sources"]]
    planner = {**config["planner"], "dispatch-interval-seconds": 1}
    return {**config, "benchmarks": parts, "planner": planner, "recovery": {"poll-seconds": 1}}


def offers() -> dict[str, str]:
    """Part the demo's candidates by benchmark."""
    found: dict[str, list[str]] = {name: [] for name in KEYS}
    for line in (demo_world.DATA / "candidates.jsonl").read_text().splitlines():
        key = json.loads(line)["family"].rpartition(":")[2]
        found[next(name for name, globs in KEYS.items() if any(fnmatch.fnmatch(key, glob) for glob in globs))].append(
            line
        )
    return {f"{name}.jsonl": "\n".join(lines) + "\n" for name, lines in found.items()}


def wave(folder: Path, failure: str, *, mess: bool = True) -> tuple[Done, dict[str, Any], World]:
    """Run one wave; return what the child did and the hub's state at the end."""
    lines = offers()
    with served.world(
        folder, mess=mess, configuration=three, feeds={"offers.jsonl": {"text": lines["source-fails.jsonl"]}}
    ) as world:
        world.hub.commit(
            served.REPOSITORY, "main", {**lines, "rows.json": json.dumps(served.published())},
            message="Publish", author=demo_world.MAINTAINER,
        )  # fmt: skip
        world.reclone()
        if failure:
            world.hub.faults.all.append(FAILURES[failure])
        done = world.run("wave", "--out", str(folder / "out"))
        return done, ends(world), world


def ends(world: World) -> dict[str, Any]:
    """Return what a wave leaves: pull requests, runs that it started or ended, refs."""
    with world.hub.lock:
        repository = world.hub.repository(served.REPOSITORY)
        pulls = {n: (i.state, bool(i.pull and i.pull.draft)) for n, i in repository.issues.items()}
        ended = {run.id: (run.status, run.conclusion) for run in repository.runs.values() if run.id < 9000}
        started = sorted(run.inputs["candidate"] for run in repository.runs.values() if run.id > max(served.OWN_RUNS))
    names_only = {ref.rpartition("/")[0] if "/archive/" in ref else ref for ref in world.refs()}
    kept = {ref for ref in names_only if not ref.startswith(("refs/klaud/claims/", "refs/klaud/families/"))}
    return {"pulls": pulls, "ended": ended, "started": started, "refs": kept}


@pytest.fixture(scope="module")
def well(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    done, end, _ = wave(tmp_path_factory.mktemp("well"), "")
    assert done.status == 0, done.out[-3000:] + done.err[-2000:]
    return end


@pytest.mark.parametrize("failure", FAILURES)
def test_l05_a_feed_that_fails_takes_nothing_away_and_the_rest_goes_on(
    failure: str, well: dict[str, Any], tmp_path: Path
) -> None:
    done, end, _ = wave(tmp_path, failure)
    assert "Traceback" not in done.err
    assert done.status == 0, done.out[-3000:] + done.err[-2000:]
    assert (end["pulls"], end["ended"], end["refs"]) == (well["pulls"], well["ended"], well["refs"])
    unproven = {served_candidate(line) for line in offers()["rows-fail.jsonl"].splitlines()}
    assert set(end["started"]) == set(well["started"]) - unproven
    assert set(well["started"]) & unproven, "the first benchmark would have started something"
    selection = json.loads((tmp_path / "out" / "selection.json").read_text())
    said = [one for one in selection["decisions"] if one["candidate"] in unproven and one["gate"] == "baseline"]
    assert said
    assert all(one["code"] in {"feed-unavailable", "feed-invalid"} and one["unblock"] for one in said), said
    whole = failure == "half-a-json"  # the offers are shorter than the cut; only the rows are halved
    codes = [one["code"] for one in selection["attention"]]
    assert codes.count("source-failed") == (0 if whole else 1), codes


def test_the_rest_of_a_wave_goes_on_without_a_feed(tmp_path: Path) -> None:
    done, end, _ = wave(tmp_path, "503", mess=False)
    assert done.status == 0, done.out[-3000:] + done.err[-2000:]
    lines = offers()
    started = set(end["started"])
    assert {served_candidate(line) for line in lines["well.jsonl"].splitlines()} & started, told(tmp_path)
    assert not {served_candidate(line) for line in lines["rows-fail.jsonl"].splitlines()} & started


def told(folder: Path) -> list[str]:
    """Return what a wave's selection says of each candidate."""
    selection = json.loads((folder / "out" / "selection.json").read_text())
    return [f"{one['family']} {one['gate']} {one['code']}: {one['message']}" for one in selection["decisions"]]


def served_candidate(line: str) -> str:
    """Return the id of the candidate that a source offers."""
    one = json.loads(line)
    return names.candidate_id(one["family"], one["subject"])
