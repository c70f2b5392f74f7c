"""A wave that encodes databases, for real: HTTP, git, child processes, the semantic layer. One wave, three databases.

``shop`` is encoded well and ends as a pull request whose validation passed; the agent of ``spoilt`` makes the same mistake
in every attempt; ``wrong`` asks for a mode that does not exist.
"""

from __future__ import annotations

import json
import subprocess
import zipfile
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("slayer", reason="the extra 'encoder' (motley-slayer) is not installed")

from klaud import names
from klaud.encoder import files, merge, naming, validate
from tests.support import encoding

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OFFERS = (
    {"family": "bench:shop", "subject": "encode shop"},
    {"family": "bench:spoilt", "subject": "encode spoilt"},
    {"family": "bench:wrong", "subject": "encode wrong", "change": {"mode": "c-interact"}},
)


def candidate(database: str) -> str:
    return names.candidate_id(f"bench:{database}", f"encode {database}")


@pytest.fixture(scope="module")
def wave(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Any, Path]]:
    script = encoding.load("wave")
    folder = tmp_path_factory.mktemp("wave")
    story = script.Story(
        databases={"shop": None, "spoilt": {0, 8}, "wrong": {0}}, fault="missing@spoilt", offers=OFFERS
    )
    with script.world(folder / "it", story) as it:
        yield it, it.run(), folder


def session(it: Any, database: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((it.out / f"session-{candidate(database)}.json").read_text())
    return found


def row(it: Any, database: str) -> dict[str, Any]:
    recovery = json.loads((it.out / "recovery.json").read_text())
    (found,) = [one for one in recovery["sessions"] if one["candidate"] == candidate(database)]
    return dict(found)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_reference_ends_as_a_validated_pull_request_and_holds_nothing(wave: tuple[Any, Any, Path]) -> None:
    it, run, folder = wave
    assert run.conclusion == "success"
    repository = it.hub.repository("acme/knowledge")
    (pull,) = [one for one in repository.issues.values() if one.pull is not None]
    assert (pull.title, pull.state, pull.pull.draft) == ("Encode shop (sqlite) for bench", "open", False)
    assert "19 items: 12 encoded, 7 deferred, 0 error" in pull.body
    assert "item 9 deferred: in a dependency cycle" in pull.body
    assert row(it, "shop")["state"] == "settled: outcome validated"
    (final,) = [one for one in repository.runs.values() if one.path.endswith("check-references.yml")]
    assert (final.conclusion, final.head_oid) == ("success", pull.pull.head_oid)
    assert it.refs("refs/klaud/claims/") == it.refs("refs/klaud/leases/") == {}
    clone = folder / "clone"
    branch = names.branch(candidate("shop"))
    subprocess.run(["git", "clone", "-q", "-b", branch, str(repository.git_path), str(clone)], check=True)
    changed = subprocess.run(
        ["git", "diff", "--name-only", "origin/main", "HEAD"], cwd=clone, check=True, capture_output=True, text=True
    ).stdout.splitlines()
    tree = files.tree(clone / "references" / "bench" / "shop", limit=validate.TREE_BYTES)
    assert sorted(changed) == sorted(f"references/bench/shop/{name}" for name in tree)
    assert naming.MARKER in tree
    assert session(it, "shop")["reference"]["upload"] is True
    told = [
        dict(one.last.jobs[0].outputs) for one in repository.runs.values() if one.path.endswith("klaud-candidate.yml")
    ]
    uploaded = {"reference": "klaud-reference.bench.shop.sqlite", "reference-path": "klaud-references/bench/shop"}
    assert [one for one in told if one] == [uploaded]
    (packed,) = [
        artifact
        for one in repository.runs.values()
        for artifact in one.artifacts
        if artifact.name == uploaded["reference"]
    ]
    with zipfile.ZipFile(packed.path) as archive:
        archive.extractall(folder / "downloads" / packed.name)
    taken = merge.read_upload(folder / "downloads" / packed.name)
    assert isinstance(taken, merge.Upload), taken
    assert (taken.key.database, dict(taken.tree)) == ("shop", tree)


@pytest.mark.slow
def test_a_bad_agent_ends_failed_with_the_row_of_the_check_and_pushes_nothing(wave: tuple[Any, Any, Path]) -> None:
    it, _, _ = wave
    said = session(it, "spoilt")
    assert (said["end"], said["outcome"], said["code"]) == ("settled", "failed", "check-exists")
    assert (
        said["items"][0] == "item 0 deferred: failed its checks 2 times: exists: spoilt.orders.not_there does not exist"
    )
    assert said["reference"]["upload"] is False
    assert row(it, "spoilt")["state"] == "settled: outcome failed"
    assert it.refs(f"refs/heads/{names.branch(candidate('spoilt'))}") == {}


@pytest.mark.slow
def test_a_wrong_mode_is_refused_before_anything_is_made(wave: tuple[Any, Any, Path]) -> None:
    it, _, _ = wave
    selection = json.loads((it.out / "selection.json").read_text())
    (decision,) = [one for one in selection["decisions"] if one["candidate"] == candidate("wrong")]
    assert (decision["gate"], decision["code"]) == ("dispatch", "request-refused")
    assert decision["message"] == "mode 'c-interact' does not exist: a-interact and one-shot do"
    assert not [path for path in it.out.iterdir() if candidate("wrong") in path.name]
    assert not [
        run for run in it.hub.repository("acme/knowledge").runs.values() if candidate("wrong") in run.display_title
    ]
    assert not [ref for ref in it.refs("refs/") if candidate("wrong") in ref or names.short_id("bench:wrong") in ref]
