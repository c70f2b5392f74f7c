from __future__ import annotations

import subprocess
import sys
import threading
import time
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

import pytest
import requests
from werkzeug.test import Client

from klaud import fakehub
from klaud.fakehub.app import App
from klaud.fakehub.faults import KINDS

if TYPE_CHECKING:
    from tests.fakehub.conftest import World

COMMENTS = "POST /repos/*/issues/*/comments"


def test_a_status_has_no_effect_and_a_late_one_has(world: World) -> None:
    issue = world.pull("topic")
    world.hub.faults.add(COMMENTS, "status", status=502)
    assert world.call("POST", "issues/1/comments", {"body": "x"}).status_code == 502
    assert not issue.comments
    world.hub.faults.add(COMMENTS, "status-after-effect", status=500)
    assert world.call("POST", "issues/1/comments", {"body": "x"}).status_code == 500
    assert len(issue.comments) == 1
    assert world.call("POST", "issues/1/comments", {"body": "y"}).status_code == 201


@pytest.mark.parametrize(("kind", "effects"), [("lost-request", 0), ("lost-reply", 1)])
def test_a_cut_connection_with_and_without_the_effect(world: World, kind: str, effects: int) -> None:
    issue = world.pull("topic")
    world.hub.faults.add(COMMENTS, kind)
    with pytest.raises(requests.ConnectionError):
        world.call("POST", "issues/1/comments", {"body": "x"})
    assert len(issue.comments) == effects
    assert world.call("GET", "issues/1/comments").status_code == 200


def test_stale_reads_show_the_state_before_the_newest_write(world: World) -> None:
    issue = world.pull("topic")
    world.hub.faults.add("GET /repos/*/pulls/1", "stale", times=2)
    world.hub.faults.add("GET /repos/*/git/matching-refs/*", "stale", times=1)
    world.call("PATCH", f"pulls/{issue.number}", {"state": "closed"})
    states = [world.call("GET", "pulls/1").json()["state"] for _ in range(3)]
    assert states == ["open", "open", "closed"]
    world.call("DELETE", "git/refs/heads/topic")
    assert len(world.call("GET", "git/matching-refs/heads/topic").json()) == 1
    assert world.call("GET", "git/matching-refs/heads/topic").json() == []


def test_a_stale_read_answers_404_right_after_a_creation(world: World) -> None:
    world.hub.faults.add("GET /repos/*/pulls/*", "stale", times=1)
    world.pull("topic")  # its newest write made the pull request
    assert world.call("GET", "pulls/1").status_code == 404
    assert world.call("GET", "pulls/1").status_code == 200


def test_listings_are_cut_drift_hold_nulls_and_miscount(world: World) -> None:
    for _ in range(7):
        world.dispatch()
    path = "actions/runs?per_page=2"

    def ids(page: int) -> list[int | None]:
        rows = world.call("GET", f"{path}&page={page}").json()["workflow_runs"]
        return [row and row["id"] for row in rows]

    good = [run_id for page in (1, 2, 3, 4) for run_id in ids(page)]
    assert len(set(good)) == 7
    pattern = "GET /repos/*/actions/runs"
    world.hub.faults.add(pattern, "truncate", rows=3, times=2)
    assert ids(1) + ids(2) == good[:3]
    world.hub.faults.add(pattern, "drift", rows=1, times=2)
    assert ids(1) + ids(2) == good[:2] + good[3:5]
    world.hub.faults.add(pattern, "null-items", times=1)
    assert ids(1) == [None, *good[:2]]
    world.hub.faults.add(pattern, "total-count", total=4000, times=1)
    assert world.call("GET", path).json()["total_count"] == 4000
    world.hub.faults.add(pattern, "page-limit", rows=25, times=2)
    assert world.call("GET", "actions/runs?per_page=100").status_code == 502
    assert world.call("GET", path).status_code == 200


def test_a_filtered_search_serves_a_thousand_rows_and_counts_more(world: World) -> None:
    world.hub.handlers.clear()
    run = world.dispatch()
    for number in range(1, 1101):
        made = fakehub.Run(**{**vars(run), "id": run.id + number})
        world.repository.runs[made.id] = made
    page = world.call("GET", "actions/runs?event=workflow_dispatch&per_page=100&page=11").json()
    assert (page["total_count"], page["workflow_runs"]) == (1101, [])
    assert (
        len(world.call("GET", "actions/runs?event=workflow_dispatch&per_page=100&page=10").json()["workflow_runs"])
        == 100
    )
    assert len(world.call("GET", "actions/runs?per_page=100&page=11").json()["workflow_runs"]) == 100


def test_rate_limits_of_each_kind(world: World) -> None:
    match = "GET /repos/acme/bench/pulls"
    world.hub.faults.add(match, "rate-limit", variant="primary", seconds=900)
    answer = world.call("GET", "pulls")
    assert (answer.status_code, answer.headers["X-RateLimit-Remaining"]) == (403, "0")
    assert int(answer.headers["X-RateLimit-Reset"]) > time.time() + 800
    world.hub.faults.add(match, "rate-limit", variant="secondary")
    answer = world.call("GET", "pulls")
    assert answer.status_code == 403
    assert "Retry-After" not in answer.headers
    assert int(answer.headers["X-RateLimit-Remaining"]) > 0
    assert "secondary rate limit" in answer.json()["message"]
    world.hub.faults.add(match, "rate-limit", variant="429", seconds=120)
    answer = world.call("GET", "pulls")
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "120")


def test_dispatch_variants(world: World) -> None:
    match = "POST /repos/*/actions/workflows/*/dispatches"
    path = "actions/workflows/bench-smoke.yml/dispatches"
    world.hub.faults.add(match, "dispatch", variant="no-details")
    assert world.call("POST", path, {"ref": "main", "return_run_details": True}).status_code == 204
    world.hub.faults.add(match, "dispatch", variant="unknown-field")
    assert world.call("POST", path, {"ref": "main", "return_run_details": True}).status_code == 422
    world.hub.faults.add(match, "dispatch", variant="details", seconds=90)
    answer = world.call("POST", path, {"ref": "main"})
    run_id = answer.json()["workflow_run_id"]
    assert world.call("GET", f"actions/runs/{run_id}").status_code == 404
    assert run_id not in [run["id"] for run in world.call("GET", "actions/runs").json()["workflow_runs"]]
    world.hub.advance(91)
    assert world.call("GET", f"actions/runs/{run_id}").status_code == 200


def test_cancel_variants(world: World) -> None:
    run = world.dispatch()
    match = "POST /repos/*/actions/runs/*/cancel"
    world.hub.faults.add(match, "cancel", variant="ignore")
    assert world.call("POST", f"actions/runs/{run.id}/cancel").status_code == 202
    assert run.status == "queued"
    world.hub.faults.add(match, "cancel", variant="refuse")
    assert world.call("POST", f"actions/runs/{run.id}/cancel").status_code == 409
    run.on_force_cancel = "refuse"
    assert world.call("POST", f"actions/runs/{run.id}/force-cancel").status_code == 409
    assert world.call("POST", f"actions/runs/{run.id}/cancel").status_code == 202
    assert (run.status, run.conclusion) == ("completed", "cancelled")


def test_dates_bodies_and_delays(world: World) -> None:
    match = "GET /repos/acme/bench"
    world.hub.faults.add(match, "clock-skew", seconds=-1200)
    before = time.time()
    told = parsedate_to_datetime(world.call("GET", "/repos/acme/bench").headers["Date"]).timestamp() + 1200
    assert before - 1 <= told <= time.time(), "between the call's two ends, in whole seconds"
    world.hub.faults.add(match, "cut-body", rows=20)
    with pytest.raises(requests.exceptions.JSONDecodeError):
        world.call("GET", "/repos/acme/bench").json()
    world.hub.state.feeds["rows"] = b"[1]"
    world.hub.faults.add("GET /_feeds/*", "body", message="<html>")
    assert world.call("GET", "/_feeds/rows").text == "<html>"
    assert world.call("GET", "/_feeds/rows").json() == [1]
    world.hub.faults.add(match, "delay", seconds=0.2)
    begun = time.monotonic()
    world.call("GET", "/repos/acme/bench")
    assert time.monotonic() - begun >= 0.2
    world.hub.faults.add(match, "not-found")
    assert world.call("GET", "/repos/acme/bench").status_code == 404


def test_graphql_can_fail_in_part(world: World) -> None:
    world.pull("topic")
    query = """{ repository(owner: "acme", name: "bench") { h0: pullRequests(headRefName: "topic", first: 1) { totalCount }
      h1: pullRequests(headRefName: "x", first: 1) { totalCount } } }"""
    world.hub.faults.add("POST /graphql", "graphql-errors", message="h1")
    body = world.call("POST", "/graphql", {"query": query}).json()
    assert body["data"]["repository"] == {"h0": {"totalCount": 1}, "h1": None}
    assert body["errors"][0]["path"] == ["repository", "h1"]


def test_a_fault_can_skip_calls_and_be_for_one_account(world: World) -> None:
    world.hub.faults.add("GET /repos/acme/bench", "status", status=503, skip=1, times=1, account="alice")
    assert world.call("GET", "/repos/acme/bench").status_code == 200
    statuses = [world.call("GET", "/repos/acme/bench", token="alice").status_code for _ in range(3)]
    assert statuses == [200, 503, 200]


@pytest.mark.parametrize(("variant", "effects"), [("before", 0), ("after", 1)])
def test_the_client_can_be_killed_at_a_call(world: World, variant: str, effects: int) -> None:
    issue = world.pull("topic")
    code = (
        "import urllib.request as u, sys\n"
        "r = u.Request(sys.argv[1], b'{\"body\": \"x\"}', {'Authorization': 'Bearer bot'})\n"
        "u.urlopen(r)\n"
    )
    world.hub.faults.add(COMMENTS, "kill", variant=variant)
    child = subprocess.Popen([sys.executable, "-c", code, f"{world.server.url}/repos/acme/bench/issues/1/comments"])
    world.hub.client_pid = child.pid
    assert child.wait(timeout=60) == -9
    assert len(issue.comments) == effects


def test_hooks_run_before_and_after_a_call(world: World) -> None:
    issue = world.pull("topic")
    seen: list[tuple[str, int]] = []
    world.hub.before_call("PATCH /repos/*/pulls/*", lambda entry: seen.append((issue.state, entry.status)))
    world.hub.after_call("PATCH /repos/*/pulls/*", lambda entry: seen.append((issue.state, entry.status)))
    world.hub.before_call(lambda entry: entry.account == "alice", lambda _: seen.append(("alice", 0)))
    world.call("PATCH", "pulls/1", {"state": "closed"})
    world.call("PATCH", "pulls/1", {"state": "open"}, token="alice")
    assert seen == [("open", 0), ("closed", 200), ("alice", 0)]


def test_a_hook_may_call_the_hub_itself(world: World) -> None:
    world.pull("topic")

    def meddle(_entry: fakehub.LogEntry) -> None:
        assert world.call("POST", "issues/1/comments", {"body": "between"}, token="alice").status_code == 201

    world.hub.before_call("GET /repos/*/pulls/1", meddle)
    assert world.call("GET", "pulls/1").json()["comments"] == 1


def test_calls_are_counted_by_route_and_writes_are_in_order(world: World) -> None:
    world.pull("topic")
    since = world.hub.log[-1].number
    workers = [threading.Thread(target=world.call, args=("GET", "pulls/1")) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    world.call("POST", "issues/1/comments", {"body": "x"})
    counts = world.hub.requests(since=since)
    assert counts == {
        "GET /repos/{owner}/{repo}/pulls/{pull_number}": 3,
        "POST /repos/{owner}/{repo}/issues/{issue_number}/comments": 1,
    }
    assert [(entry.method, entry.status, entry.body) for entry in world.hub.writes(since=since)] == [
        ("POST", 201, {"body": "x"})
    ]


def test_the_application_answers_in_process_too(world: World) -> None:
    world.pull("topic")
    client = Client(App(world.hub))
    headers = {"Authorization": "Bearer bot"}
    assert client.get("/repos/acme/bench/git/ref/heads%2Ftopic", headers=headers).status_code == 200
    world.hub.faults.add("GET /user", "lost-request")
    with pytest.raises(ConnectionError):
        client.get("/user", headers=headers)


def test_a_fault_of_the_hub_itself_is_shown_not_hidden(world: World) -> None:
    world.pull("topic")
    world.repository.issues[1].pull.head_oid = None  # type: ignore[union-attr,assignment]
    assert world.call("GET", "pulls/1").status_code == 500
    assert len(world.hub.errors) == 1
    world.hub.errors.clear()


def test_an_unknown_kind_of_fault_is_refused(world: World) -> None:
    with pytest.raises(ValueError, match="unknown fault"):
        world.hub.faults.add("GET /", "flaky")
    assert "stale" in KINDS
