"""Contracts C40-C52: workflows and runs, paging, caching, identity."""

from __future__ import annotations

import functools
import secrets
from typing import TYPE_CHECKING, Any

from klaud.github.conformance.model import Contract, NotHereError, holds, same
from klaud.github.conformance.target import WORKFLOW_FILE

if TYPE_CHECKING:
    import requests

    from klaud.github.conformance.target import Target

FLOW = f"actions/workflows/{WORKFLOW_FILE}"


def _ref(target: Target) -> str:
    """Return the branch that runs are of; NotHereError where the repository lacks the workflow."""
    if target.call("GET", FLOW).status_code == 404:
        message = f"the repository has no workflow {WORKFLOW_FILE}: commit what klaud conformance --workflow prints"
        raise NotHereError(message)
    return target.default_branch()


def _me(target: Target) -> dict[str, Any]:
    """Return the token's account; NotHereError for a token of an app or of a job, which has none to ask for."""
    answer = target.call("GET", "/user")
    if answer.status_code == 403:
        message = "the token is an app's or a job's: GET /user is not for it"
        raise NotHereError(message)
    found: dict[str, Any] = answer.json()
    return found


def _dispatch(target: Target, body: dict[str, Any], file: str = WORKFLOW_FILE) -> requests.Response:
    return target.call("POST", f"actions/workflows/{file}/dispatches", body)


def _started(target: Target, ref: str) -> dict[str, Any]:
    marker = f"{target.nonce}-{secrets.token_hex(4)}"
    answer = _dispatch(target, {"ref": ref, "inputs": {"marker": marker}, "return_run_details": True})
    same(answer.status_code, 200, "the status of a dispatch with return_run_details")
    run_id = answer.json()["workflow_run_id"]
    target.until(lambda: target.call("GET", f"actions/runs/{run_id}").status_code == 200, f"run {run_id} can be read")
    run: dict[str, Any] = target.call("GET", f"actions/runs/{run_id}").json()
    same(run["display_title"], f"contract {marker}", "the run's title")
    return run


def _cancel(target: Target, run: dict[str, Any]) -> requests.Response:
    return target.call("POST", f"actions/runs/{run['id']}/cancel")


def _c40(target: Target) -> None:
    ref = _ref(target)
    answer = _dispatch(target, {"ref": ref, "inputs": {"marker": f"{target.nonce}-plain"}})
    same(answer.status_code, 204, "the status without return_run_details")
    run = _started(target, ref)
    told = (run["event"], run["head_branch"], run["run_attempt"])
    same(told, ("workflow_dispatch", ref, 1), "event, branch and attempt")
    same(_cancel(target, run).status_code, 202, "the status of its cancellation")


def _c41(target: Target) -> None:
    ref = _ref(target)
    cases: tuple[tuple[dict[str, str], str], ...] = (
        ({"marker": "x", "nope": "1"}, "Unexpected inputs provided"),
        ({}, "Required input 'marker' not provided"),
        ({"marker": "x", "mode": "odd"}, "not in the list of allowed values"),
    )
    for inputs, words in cases:
        answer = _dispatch(target, {"ref": ref, "inputs": inputs})
        same(answer.status_code, 422, f"the status for {inputs}")
        holds(words in answer.json()["message"], f"{inputs}: the message is {answer.json()['message']!r}")


def _c42(target: Target) -> None:
    body = {"ref": _ref(target), "inputs": {"marker": "x"}}
    same(_dispatch(target, body, "none.yml").status_code, 404, "the status of an unknown workflow")
    answer = _dispatch(target, {**body, "ref": "no-such-branch"})
    told = (answer.status_code, answer.json()["message"])
    same(told, (422, "No ref found for: no-such-branch"), "the answer for an unknown ref")


def _c43(target: Target) -> None:
    run = _started(target, _ref(target))
    answer = _cancel(target, run)
    same((answer.status_code, answer.json()), (202, {}), "the first answer")
    place = f"actions/runs/{run['id']}"
    target.until(lambda: bool(target.call("GET", place).json()["status"] == "completed"), "the run is completed")
    same(target.call("GET", place).json()["conclusion"], "cancelled", "its conclusion")
    same(_cancel(target, run).status_code, 409, "the second status")


def _c44(target: Target) -> None:
    ref = _ref(target)
    me = _me(target)["login"]
    run = _started(target, ref)
    day = run["created_at"][:10]

    def listed(query: str) -> bool:
        rows = target.call("GET", f"actions/runs?{query}&per_page=100").json()["workflow_runs"]
        return run["id"] in [row["id"] for row in rows]

    for query in (
        f"actor={me}",
        "event=workflow_dispatch",
        f"branch={ref}",
        f"head_sha={run['head_sha']}",
        f"created=%3E%3D{day}",
    ):
        target.until(functools.partial(listed, query), f"{query} lists the run")
    for query in ("actor=nobody-at-all", "event=release", f"created=%3C{day}"):
        holds(not listed(query), f"{query} lists the run")
    _cancel(target, run)


def _c45(target: Target) -> None:
    run = _started(target, _ref(target))
    place = f"actions/runs/{run['id']}"
    target.until(lambda: bool(target.call("GET", f"{place}/jobs").json()["jobs"]), "the run has jobs")
    jobs = target.call("GET", f"{place}/jobs").json()
    same([job["name"] for job in jobs["jobs"]], ["nothing"], "the jobs")
    same(target.call("GET", f"{place}/attempts/1").json()["run_attempt"], 1, "the first attempt")
    same(target.call("GET", f"{place}/attempts/2").status_code, 404, "the status of a second attempt")
    same(target.call("GET", f"{place}/artifacts").json()["total_count"], 0, "the count of artifacts")
    _cancel(target, run)


def _c46(target: Target) -> None:
    number = target.pull()["number"]
    for index in range(3):
        target.call("POST", f"issues/{number}/comments", {"body": str(index)})
    first = target.call("GET", f"issues/{number}/comments?per_page=2")
    same(set(first.links), {"next", "last"}, "the first page's links")
    second = target.follow(first, "next")
    same([row["body"] for row in first.json() + second.json()], ["0", "1", "2"], "both pages")
    same(set(second.links), {"prev", "first"}, "the second page's links")
    same(target.call("GET", f"issues/{number}/comments?per_page=2&page=9").json(), [], "a page beyond the last")
    same(target.call("GET", f"issues/{number}/comments?per_page=1000").status_code, 200, "the status of per_page=1000")


def _c47(target: Target) -> None:
    number = target.pull()["number"]
    answer = target.call("GET", f"issues/{number}/comments")
    tag = answer.headers["ETag"]
    again = target.call("GET", f"issues/{number}/comments", **{"If-None-Match": tag})
    same(again.status_code, 304, "the status with If-None-Match")


def _c48(target: Target) -> None:
    headers = target.call("GET", "").headers
    limit, left, used = (int(headers[f"X-RateLimit-{name}"]) for name in ("Limit", "Remaining", "Used"))
    same(limit, left + used, "the limit, against what is left and used")
    same(headers["X-RateLimit-Resource"], "core", "the resource")


def _c49(target: Target) -> None:
    answer = target.call("GET", "", Authorization="Bearer nobody-has-this")
    same((answer.status_code, answer.json()["message"]), (401, "Bad credentials"), "the answer")


def _c50(target: Target) -> None:
    me = _me(target)["id"]
    body = target.graphql("query { viewer { login databaseId } }")
    same(body["data"]["viewer"]["databaseId"], me, "the account's id")


def _c51(target: Target) -> None:
    main = target.main()
    name, oid = target.branch()
    shown = target.call("GET", f"compare/{main}...{name}").json()
    same((shown["status"], shown["ahead_by"], shown["behind_by"]), ("ahead", 1, 0), "the comparison")
    same([row["sha"] for row in shown["commits"]], [oid], "its commits")
    same(target.call("GET", f"compare/{name}...{main}").json()["status"], "behind", "the other way round")


def _c52(target: Target) -> None:
    made = target.pull()
    rows = target.call("GET", f"commits/{made['head']['sha']}/pulls").json()
    same([row["number"] for row in rows], [made["number"]], "the pull requests")


CONTRACTS = (
    Contract(40, "a dispatch answers 204, or 200 with the run where that is asked for", _c40),
    Contract(41, "wrong inputs of a dispatch answer 422", _c41),
    Contract(42, "an unknown workflow answers 404, an unknown ref 422", _c42),
    Contract(43, "cancel answers 202 with a body, and 409 once it is over", _c43),
    Contract(44, "run listings filter", _c44),
    Contract(45, "a run has jobs and attempts", _c45),
    Contract(46, "listings page by Link, and cap a page", _c46),
    Contract(47, "an ETag answers 304", _c47),
    Contract(48, "answers carry the rate limit", _c48),
    Contract(49, "a bad token answers 401", _c49),
    Contract(50, "GraphQL knows who asks", _c50),
    Contract(51, "compare counts both sides", _c51),
    Contract(52, "a commit knows its pull requests", _c52),
)
