"""Contracts C40-C52: workflows and runs, paging, caching, identity."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.support.contract import Target

WAIT_SECONDS = 60


@pytest.fixture
def ref(target: Target) -> str:
    if target.call("GET", "actions/workflows/contract.yml").status_code == 404:
        pytest.skip("the repository has no workflow contract.yml")
    branch: str = target.call("GET", "").json()["default_branch"]
    return branch


def started(target: Target, ref: str) -> dict[str, Any]:
    marker = secrets.token_hex(4)
    body = {"ref": ref, "inputs": {"marker": marker}, "return_run_details": True}
    answer = target.call("POST", "actions/workflows/contract.yml/dispatches", body)
    assert answer.status_code == 200
    run_id = answer.json()["workflow_run_id"]
    until = time.monotonic() + WAIT_SECONDS
    while (answer := target.call("GET", f"actions/runs/{run_id}")).status_code == 404 and time.monotonic() < until:
        time.sleep(1)
    run: dict[str, Any] = answer.json()
    assert run["display_title"] == f"contract {marker}"
    return run


def test_c40_a_dispatch_answers_204_or_with_details_200(target: Target, ref: str) -> None:
    body = {"ref": ref, "inputs": {"marker": "x"}}
    assert target.call("POST", "actions/workflows/contract.yml/dispatches", body).status_code == 204
    run = started(target, ref)
    assert (run["event"], run["head_branch"], run["run_attempt"]) == ("workflow_dispatch", ref, 1)
    assert target.call("POST", f"actions/runs/{run['id']}/cancel").status_code == 202


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({"marker": "x", "nope": "1"}, "Unexpected inputs provided"),
        ({}, "Required input 'marker' not provided"),
        ({"marker": "x", "mode": "odd"}, "not in the list of allowed values"),
    ],
)
def test_c41_wrong_inputs_answer_422(target: Target, ref: str, inputs: dict[str, str], words: str) -> None:
    answer = target.call("POST", "actions/workflows/contract.yml/dispatches", {"ref": ref, "inputs": inputs})
    assert answer.status_code == 422
    assert words in answer.json()["message"]


def test_c42_an_unknown_workflow_or_ref_is_refused(target: Target, ref: str) -> None:
    body = {"ref": ref, "inputs": {"marker": "x"}}
    assert target.call("POST", "actions/workflows/none.yml/dispatches", body).status_code == 404
    body["ref"] = "no-such-branch"
    answer = target.call("POST", "actions/workflows/contract.yml/dispatches", body)
    assert (answer.status_code, answer.json()["message"]) == (422, "No ref found for: no-such-branch")


def test_c43_cancel_answers_202_with_a_body_and_409_once_it_is_over(target: Target, ref: str) -> None:
    run = started(target, ref)
    answer = target.call("POST", f"actions/runs/{run['id']}/cancel")
    assert (answer.status_code, answer.json()) == (202, {})
    until = time.monotonic() + WAIT_SECONDS
    while (shown := target.call("GET", f"actions/runs/{run['id']}").json())["status"] != "completed":
        assert time.monotonic() < until
        time.sleep(1)
    assert shown["conclusion"] == "cancelled"
    assert target.call("POST", f"actions/runs/{run['id']}/cancel").status_code == 409


def test_c44_run_listings_filter(target: Target, ref: str) -> None:
    run = started(target, ref)
    me = target.call("GET", "/user").json()["login"]
    day = run["created_at"][:10]
    for query in (
        f"actor={me}",
        "event=workflow_dispatch",
        f"branch={ref}",
        f"head_sha={run['head_sha']}",
        f"created=%3E%3D{day}",
    ):
        rows = target.call("GET", f"actions/runs?{query}&per_page=100").json()["workflow_runs"]
        assert run["id"] in [row["id"] for row in rows], query
    for query in ("actor=nobody-at-all", "event=release", f"created=%3C{day}"):
        rows = target.call("GET", f"actions/runs?{query}&per_page=100").json()["workflow_runs"]
        assert run["id"] not in [row["id"] for row in rows], query
    target.call("POST", f"actions/runs/{run['id']}/cancel")


def test_c45_a_run_has_jobs_and_attempts(target: Target, ref: str) -> None:
    run = started(target, ref)
    jobs = target.call("GET", f"actions/runs/{run['id']}/jobs").json()
    assert [job["name"] for job in jobs["jobs"]] == ["nothing"]
    assert target.call("GET", f"actions/runs/{run['id']}/attempts/1").json()["run_attempt"] == 1
    assert target.call("GET", f"actions/runs/{run['id']}/attempts/2").status_code == 404
    assert target.call("GET", f"actions/runs/{run['id']}/artifacts").json()["total_count"] == 0
    target.call("POST", f"actions/runs/{run['id']}/cancel")


def test_c46_listings_page_by_link_and_cap_at_100(target: Target) -> None:
    prefix = target.name("page")
    oid = target.main()
    number = target.pull()["number"]
    for index in range(3):
        target.branch(oid, f"{prefix}/{index}")
        target.call("POST", f"issues/{number}/comments", {"body": str(index)})
    first = target.call("GET", f"issues/{number}/comments?per_page=2")
    assert set(first.links) == {"next", "last"}
    second = target.session.get(first.links["next"]["url"], timeout=30)
    assert [row["body"] for row in first.json() + second.json()] == ["0", "1", "2"]
    assert set(second.links) == {"prev", "first"}
    assert target.call("GET", f"issues/{number}/comments?per_page=2&page=9").json() == []
    assert target.call("GET", f"issues/{number}/comments?per_page=1000").status_code == 200


def test_c47_an_etag_answers_304(target: Target) -> None:
    number = target.pull()["number"]
    answer = target.call("GET", f"issues/{number}/comments")
    tag = answer.headers["ETag"]
    assert target.call("GET", f"issues/{number}/comments", **{"If-None-Match": tag}).status_code == 304


def test_c48_answers_carry_the_rate_limit(target: Target) -> None:
    headers = target.call("GET", "").headers
    limit, left, used = (int(headers[f"X-RateLimit-{name}"]) for name in ("Limit", "Remaining", "Used"))
    assert limit == left + used
    assert headers["X-RateLimit-Resource"] == "core"


def test_c49_a_bad_token_answers_401(target: Target) -> None:
    answer = target.call("GET", "", Authorization="Bearer nobody-has-this")
    assert (answer.status_code, answer.json()["message"]) == (401, "Bad credentials")


def test_c50_graphql_knows_who_asks(target: Target) -> None:
    body = target.graphql("query { viewer { login databaseId } }")
    assert body["data"]["viewer"]["databaseId"] == target.call("GET", "/user").json()["id"]


def test_c51_compare_counts_both_sides(target: Target) -> None:
    main = target.main()
    name, oid = target.branch()
    shown = target.call("GET", f"compare/{main}...{name}").json()
    assert (shown["status"], shown["ahead_by"], shown["behind_by"]) == ("ahead", 1, 0)
    assert [row["sha"] for row in shown["commits"]] == [oid]
    assert target.call("GET", f"compare/{name}...{main}").json()["status"] == "behind"


def test_c52_a_commit_knows_its_pull_requests(target: Target) -> None:
    made = target.pull()
    rows = target.call("GET", f"commits/{made['head']['sha']}/pulls").json()
    assert [row["number"] for row in rows] == [made["number"]]
