from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import requests

from klaud import fakehub
from klaud.fakehub import scene as scenes
from klaud.fakehub import scene_doc, scene_text
from klaud.fakehub import scenes as builders
from klaud.fakehub.scene_schema import sections

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
BRANCH = "klaud/auto-0123456789abcdef-fedcba9876543210"


def small(**more: Any) -> dict[str, Any]:
    scene = builders.base()
    scene["commits"].append({"name": "work", "parent": "base", "author": builders.BOT, "files": {"a.txt": "b"}})
    scene["branches"][BRANCH] = "work"
    scene["pulls"].append(
        {"number": 7, "head": BRANCH, "author": builders.BOT, "draft": True, "labels": ["full-sweep"]}
    )
    scene["runs"].append({"id": 18000000001, "workflow": "bench-smoke.yml", "branch": BRANCH, "status": "in_progress"})
    return builders.merged(scene, more)


@pytest.fixture
def build(tmp_path: Path) -> Iterator[Any]:
    hubs: list[fakehub.Hub] = []

    def make(data: dict[str, Any]) -> fakehub.Hub:
        scene_text.check(data, scene_text.SCENE, "")
        hubs.append(scenes.build(scenes.Scene(data), tmp_path / str(len(hubs))))
        return hubs[-1]

    yield make
    for hub in hubs:
        hub.close()
        assert hub.errors == []


def text_of(data: dict[str, Any]) -> str:
    return json.dumps(data)  # YAML reads JSON


def wrong(data: dict[str, Any], tmp_path: Path) -> str:
    with pytest.raises(scene_text.SceneError) as caught:
        scenes.build(scenes.Scene(scene_text.read(text_of(data))), tmp_path / "hub")
    return str(caught.value)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"scene": 1, "pullz": []}, "pullz: unknown key of a scene; did you mean `pulls`?"),
        ({"scene": 2}, "scene: 2 is not one of its words"),
        ({}, "key `scene` is missing"),
        (
            {"scene": 1, "runs": [{"workflow": "x.yml", "satus": "queued"}]},
            "runs[0].satus: unknown key of a run; did you mean `status`?",
        ),
        ({"scene": 1, "runs": [{}]}, "runs[0]: key `workflow` is missing"),
        ({"scene": 1, "runs": {}}, "runs: expected a list"),
        ({"scene": 1, "clock": {"start": "yesterday"}}, "clock.start: 'yesterday' is no time"),
        ({"scene": 1, "clock": {"rate": "fast"}}, "clock.rate: expected a number"),
        ({"scene": 1, "repository": {"private": "yes"}}, "repository.private: expected true or false"),
        ({"scene": 1, "faults": [{"match": "GET /*", "kind": "los-reply"}]}, "did you mean `lost-reply`?"),
        ({"scene": 1, "feeds": {"rows": {"json": 1, "text": "x"}}}, "feeds.rows: exactly one of"),
        ({"scene": 1, "tokens": [{"value": "t", "account": "klaud"}]}, "account: no account has the login 'klaud'"),
        ({"scene": 1, "branches": {"x": "bass"}}, "branches.x: no commit or branch is named 'bass'"),
        ({"scene": 1, "humans": [{"before": "GET /*", "do": [{"pull": 1, "close": True}]}]}, "there is no pull request 1"),
        ({"scene": 1, "humans": [{"do": []}]}, "humans[0]: exactly one of before, after"),
        ({"scene": 1, "refs": [{"ref": "refs/klaud/x", "record": {}, "text": "x"}]}, "refs[0]: exactly one of record"),
        ({"scene": 1, "refs": [{"ref": "klaud/x", "text": "x"}]}, "refs[0].ref: 'klaud/x' is no full ref name"),
        ({"scene": 1, "workflows": {"a.yml": {"steps": [], "command": ["x"]}}}, "steps and command exclude each other"),
        ({"scene": 1, "accounts": [{"login": "a", "id": 1}, {"login": "b", "id": 1}]}, "account id 1 is taken by a"),
    ],
)  # fmt: skip
def test_a_wrong_scene_is_refused_with_the_place_and_the_nearest_name(
    tmp_path: Path, data: dict[str, Any], words: str
) -> None:
    assert words in wrong(data, tmp_path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("scene: 1\nscene: 1\n", "line 2: key 'scene' stands twice"),
        ("scene: [1", "not YAML"),
        ("- 1", "expected a mapping"),
        (
            "scene: 1\nvariables: {a: yes}\nrepository: {private: yes}",
            "repository.private: expected true or false, found 'yes'",
        ),
    ],
)
def test_yaml_is_read_strictly(text: str, words: str) -> None:
    with pytest.raises(scene_text.SceneError) as caught:
        scene_text.read(text)
    assert words in str(caught.value)


def test_the_document_has_every_key_as_the_table_has_it() -> None:
    document = (ROOT / "docs" / "scenes.md").read_text()
    assert scene_doc.written(document) == document
    for section in sections():
        for name in section.keys:
            assert f"| `{name}` |" in document


def test_a_document_that_lacks_a_key_is_caught() -> None:
    document = (ROOT / "docs" / "scenes.md").read_text()
    broken = document.replace("| `labels` | ", "| `lables` | ", 1)
    assert scene_doc.written(broken) != broken


def test_the_scene_in_the_document_is_a_good_one(tmp_path: Path) -> None:
    document = (ROOT / "docs" / "scenes.md").read_text()
    text = document.split("```yaml\n", 1)[1].split("```", 1)[0]
    with scenes.build(scenes.Scene(scene_text.read(text)), tmp_path / "hub") as hub:
        assert hub.repository("acme/bench").issues[7].pull is not None


def test_the_shipped_scenes_are_good(tmp_path: Path) -> None:
    files = sorted((ROOT / "klaud" / "fakehub" / "scenes").glob("*.yaml"))
    assert files
    for index, file in enumerate(files):
        scenes.build(scenes.load(file), tmp_path / str(index)).close()


def test_a_scene_becomes_what_it_says(build: Any) -> None:
    data = small(
        refs=[
            {
                "ref": "refs/klaud/claims/0123456789abcdef",
                "record": {"kind": "claim", "base": "<commit:base>"},
                "author": builders.BOT,
            },
            {"ref": "refs/klaud/sessions/1.1-x", "records": [{"n": 1}, {"n": 2}]},
        ],
        feeds={"rows.json": {"json": [1]}},
        variables={"klaud_paused": "true"},
    )
    data["pulls"][0] |= {
        "events": [{"event": "labeled", "by": "alice", "at": "-1h", "label": "full-sweep"}],
        "comments": [{"by": None, "body": "hello"}],
        "reviews": [{"by": "bob", "state": "APPROVED"}],
        "created": "-2d",
        "edited": "-3h",
        "edited-by": "alice",
    }
    hub = build(data)
    git, repository = hub.git("acme/bench"), hub.repository("acme/bench")
    base = git.ref("refs/heads/main")
    claim = git.commit(git.ref("refs/klaud/claims/0123456789abcdef"))
    assert json.loads(claim.message) == {"kind": "claim", "base": base}
    assert (claim.tree, claim.author.email) == (
        "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
        "90001+klaud-bot@users.noreply.github.com",
    )
    ledger = git.commit(git.ref("refs/klaud/sessions/1.1-x"))
    assert json.loads(git.commit(ledger.parents[0]).message) == {"n": 1}
    issue = repository.issues[7]
    assert issue.pull.head_oid == git.ref(f"refs/heads/{BRANCH}") == git.ref("refs/pull/7/head")
    assert (issue.created_at, issue.comments[0].user) == (datetime.datetime(2026, 2, 28, 3, tzinfo=datetime.UTC), None)
    assert repository.variables == {"KLAUD_PAUSED": "true"}
    assert repository.runs[18000000001].last.jobs[0].status == "in_progress"


def test_people_act_before_and_after_the_calls_that_are_named(build: Any) -> None:
    humans = [
        {"before": "GET /repos/*/pulls/7", "call": 2, "do": [{"by": "alice", "pull": 7, "comment": "hello"}]},
        {
            "after": "PATCH /repos/*/pulls/7",
            "do": [{"by": "alice", "push": BRANCH, "files": {"x": "y"}}, {"by": "bob", "pull": 7, "reopen": True}],
        },
    ]
    hub = build(small(humans=humans))
    issue = hub.repository("acme/bench").issues[7]
    with fakehub.serve(hub) as server, requests.Session() as session:
        session.headers["Authorization"] = f"Bearer {builders.TOKEN}"
        url = f"{server.url}/repos/acme/bench/pulls/7"
        assert session.get(url, timeout=60).json()["comments"] == 0
        assert session.get(url, timeout=60).json()["comments"] == 1
        assert session.patch(url, json={"state": "closed"}, timeout=60).json()["state"] == "closed"
    assert issue.state == "open"
    assert [event.event for event in issue.events] == ["closed", "reopened"]
    assert len(hub.git("acme/bench").between(issue.pull.base_oid, issue.pull.head_oid)) == 2


def test_a_run_goes_on_as_it_is_told(build: Any) -> None:
    hub = build(
        small(
            clock={"start": "2026-03-02T03:00:00Z", "rate": 0},
            runs=[
                {
                    "id": 18000000002,
                    "workflow": "bench-final.yml",
                    "status": "queued",
                    "jobs": [],
                    "then": [
                        {"after": 60, "status": "in_progress"},
                        {"after": 60, "status": "completed", "conclusion": "failure"},
                    ],
                }
            ],
        )
    )  # fmt: skip
    run = hub.repository("acme/bench").runs[18000000002]
    assert run.status == "queued"
    hub.advance(61)
    assert run.status == "in_progress"
    hub.advance(60)
    assert (run.status, run.conclusion) == ("completed", "failure")


def test_the_forerunners_mess_has_the_numbers_that_were_counted(build: Any) -> None:
    hub = build(builders.forerunner_scene())
    repository, refs = hub.repository("acme/bench"), hub.git("acme/bench").refs("refs/heads/klaud/")
    runs = repository.runs
    over = {run.id for run in runs.values() if run.path.endswith("klaud-plan.yml") and run.status == "completed"}

    def planner(ref: str) -> int:
        number: int = json.loads(hub.git("acme/bench").commit(refs[ref]).message)["planner_run"]
        return number

    leases = [ref for ref in refs if "/recovery-" in ref]
    claims = [ref for ref in refs if "/claim-" in ref]
    assert (len(leases), sum(planner(ref) in over for ref in leases)) == (568, 402)
    assert (len(claims), sum(planner(ref) in over for ref in claims)) == (42, 40)
    drafts = [issue for issue in repository.issues.values() if issue.state == "open" and issue.pull.draft]
    assert sum(run.path.endswith("bench-smoke.yml") for run in runs.values()) == 9
    assert sum(job.conclusion == "cancelled" for run in runs.values() for job in run.last.jobs) == 14
    assert sum("klaud-handoff" in issue.labels for issue in drafts) == 2
    assert sum(issue.state == "open" and not issue.pull.draft for issue in repository.issues.values()) == 3
    assert all(issue.comments for issue in drafts)
    assert sum(1 for issue in repository.issues.values() if issue.state == "closed") + 11 == 43


def test_a_generated_scene_takes_additions(tmp_path: Path) -> None:
    path = tmp_path / "scene.yaml"
    path.write_text(
        "scene: 1\ngenerate: {forerunner: 1, others: 5}\nvariables: {X: y}\nfaults: [{match: 'GET /*', kind: delay}]\n"
    )
    scene = scenes.load(path)
    with scenes.build(scene, tmp_path / "hub") as hub:
        assert len(hub.repository("acme/bench").issues) == 52 + 5
        assert hub.faults.all
