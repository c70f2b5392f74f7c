from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from klaud.fakehub import hub as hubs

if TYPE_CHECKING:
    from tests.fakehub.conftest import World

READ = "mutation($i: ID!) { markPullRequestReadyForReview(input: {pullRequestId: $i}) { pullRequest { isDraft } } }"

WRITES = [
    ("contents", "POST", "git/refs", {"ref": "refs/heads/new", "sha": ""}),
    ("pull_requests", "POST", "pulls", {"title": "t", "head": "topic", "base": "main"}),
    ("issues", "POST", "issues/1/comments", {"body": "x"}),
    ("actions", "POST", "actions/workflows/bench-smoke.yml/dispatches", {"ref": "main"}),
    ("variables", "POST", "actions/variables", {"name": "X", "value": "y"}),
]


@pytest.mark.parametrize("write", WRITES, ids=[row[0] for row in WRITES])
@pytest.mark.parametrize(
    ("kind", "whom"), [("app", "integration"), ("github_token", "integration"), ("pat", "personal access token")]
)
def test_a_write_without_its_right_answers_403(
    world: World, write: tuple[str, str, str, dict[str, str]], kind: hubs.TokenKind, whom: str
) -> None:
    permission, method, path, body = write
    world.pull("topic")
    others = {
        name: "write"
        for name in hubs.EVERYTHING
        if name not in (permission, "pull_requests" if permission == "issues" else "")
    }
    world.hub.add_token("less", "klaud-bot", kind=kind, permissions={**others, permission: "read"})
    before = len(world.hub.log)
    answer = world.call(method, path, body, token="less")
    assert (answer.status_code, answer.json()["message"]) == (403, f"Resource not accessible by {whom}")
    assert world.hub.log[before].write


def test_reads_without_access_answer_404(world: World) -> None:
    run = world.dispatch()
    world.hub.add_token("blind", "klaud-bot", permissions={"metadata": "read", "contents": "read"})
    for path in (f"actions/runs/{run.id}", "actions/runs", "pulls", "issues/1"):
        assert world.call("GET", path, token="blind").status_code == 404
    world.repository.private = True
    world.hub.add_token("stranger", "alice", permissions={"contents": "read"}, repositories=["acme/other"])
    assert world.call("GET", "/repos/acme/bench", token="stranger").status_code == 404
    assert world.call("GET", "/repos/acme/bench", token="").status_code == 404


def test_the_kind_of_token_decides_who_it_is_and_who_may_convert(world: World) -> None:
    world.hub.add_account("klaud[bot]", id=90009, type="Bot")
    world.hub.add_token("job", "klaud[bot]", kind="github_token")
    world.hub.add_token("app", "klaud[bot]", kind="app")
    issue = world.pull("topic")
    node = world.call("GET", f"pulls/{issue.number}").json()["node_id"]
    body = {"query": READ, "variables": {"i": node}}
    assert world.call("GET", "/user", token="app").status_code == 403
    refused = world.call("POST", "/graphql", body, token="job").json()
    assert refused["errors"][0]["type"] == "FORBIDDEN"
    assert issue.pull is not None
    assert issue.pull.draft
    viewer = world.call("POST", "/graphql", {"query": "{ viewer { login databaseId } }"}, token="app").json()
    assert viewer["data"]["viewer"] == {"login": "klaud[bot]", "databaseId": 90009}
    assert "errors" not in world.call("POST", "/graphql", body, token="app").json()
    assert not issue.pull.draft


def test_what_a_jobs_token_does_starts_no_workflow_but_a_dispatch(world: World) -> None:
    world.hub.add_token("job", "klaud-bot", kind="github_token")
    issue = world.pull("topic")
    world.call("POST", f"issues/{issue.number}/labels", ["full-sweep"], token="job")
    assert not world.repository.runs
    answer = world.call("POST", "actions/workflows/bench-smoke.yml/dispatches", {"ref": "main"}, token="job")
    assert answer.status_code == 204
    assert len(world.repository.runs) == 1
    world.call("DELETE", f"issues/{issue.number}/labels/full-sweep", token="job")
    world.call("POST", f"issues/{issue.number}/labels", ["full-sweep"])
    assert [run.event for run in world.repository.runs.values()] == ["workflow_dispatch", "pull_request"]


def test_workflow_files_need_their_right_in_rest_too(world: World) -> None:
    world.hub.add_token("app", "klaud-bot", kind="app", permissions={"contents": "write", "metadata": "read"})
    oid = world.hub.commit("acme/bench", None, {".github/workflows/x.yml": "on: push\njobs: {}\n"}, author="klaud-bot")
    body = {"ref": "refs/heads/new", "sha": oid}
    assert world.call("POST", "git/refs", body, token="app").status_code == 403
    assert world.call("POST", "git/refs", body).status_code == 201


def test_an_unknown_route_is_a_loud_error(world: World) -> None:
    answer = world.call("GET", "nope")
    assert answer.status_code == 501
    assert world.hub.errors == ["unknown route GET /repos/acme/bench/nope"]


def test_the_rate_limit_runs_out_and_comes_back(world: World) -> None:
    world.hub.rates.limits["core"] = 3
    statuses = [world.call("GET", "pulls").status_code for _ in range(4)]
    assert statuses == [200, 200, 200, 403]
    answer = world.call("GET", "pulls")
    assert answer.headers["X-RateLimit-Remaining"] == "0"
    assert "rate limit exceeded" in answer.json()["message"]
    assert world.call("GET", "/rate_limit").json()["rate"]["remaining"] == 0
    world.hub.advance(3601)
    assert world.call("GET", "pulls").status_code == 200
