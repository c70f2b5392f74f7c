"""Contracts C20-C36: pull requests, labels, comments, timelines, drafts."""

from __future__ import annotations

import urllib.parse
from typing import TYPE_CHECKING

from klaud.github.conformance import target as targets
from klaud.github.conformance.model import Contract, holds, same

if TYPE_CHECKING:
    from klaud.github.conformance.target import Target


def _events(target: Target, number: int) -> list[str]:
    return [row["event"] for row in target.call("GET", f"issues/{number}/timeline").json()]


def _state(target: Target, number: int, state: str) -> tuple[int, str]:
    answer = target.call("PATCH", f"pulls/{number}", {"state": state})
    return answer.status_code, answer.json().get("state", "")


def _c20(target: Target) -> None:
    made = target.pull(draft=True)
    shown = target.call("GET", f"pulls/{made['number']}").json()
    told = {key: shown[key] for key in ("draft", "state", "merged", "commits", "changed_files")}
    same(told, {"draft": True, "state": "open", "merged": False, "commits": 1, "changed_files": 1}, "what it says")
    commits = target.call("GET", f"pulls/{made['number']}/commits").json()
    same([row["sha"] for row in commits], [shown["head"]["sha"]], "its commits")


def _c21(target: Target) -> None:
    made = target.pull()
    again = {"title": "Again", "head": made["head"]["ref"], "base": made["base"]["ref"]}
    answer = target.call("POST", "pulls", again)
    same(answer.status_code, 422, "the status")
    why = answer.json()["errors"][0]["message"]
    holds(why.startswith("A pull request already exists for "), f"the reason is {why!r}")


def _c22(target: Target) -> None:
    name, _ = target.branch(target.main())
    base = target.default_branch()
    answer = target.call("POST", "pulls", {"title": "t", "head": name, "base": base})
    same(answer.status_code, 422, "the status without a commit")
    why = answer.json()["errors"][0]["message"]
    holds(why.startswith("No commits between "), f"the reason is {why!r}")
    answer = target.call("POST", "pulls", {"title": "t", "head": target.name(), "base": base})
    same((answer.status_code, answer.json()["errors"][0]["field"]), (422, "head"), "the answer without a branch")


def _c23(target: Target) -> None:
    number = target.pull()["number"]
    same(_state(target, number, "closed"), (200, "closed"), "closing")
    same(_state(target, number, "open"), (200, "open"), "reopening")
    same(_events(target, number), ["committed", "closed", "reopened"], "the timeline")


def _c24(target: Target) -> None:
    made = target.pull()
    number, name, oid = made["number"], made["head"]["ref"], made["head"]["sha"]
    _state(target, number, "closed")
    target.call("DELETE", f"git/refs/heads/{name}")
    same(_state(target, number, "open")[0], 422, "reopening without the branch")
    target.branch(target.commit(target.main()), name)
    same(_state(target, number, "open")[0], 422, "reopening with a branch that stands elsewhere")
    target.call("DELETE", f"git/refs/heads/{name}")
    target.branch(oid, name)
    same(_state(target, number, "open"), (200, "open"), "reopening with the branch where it was")


def _c25(target: Target) -> None:
    made = target.pull()
    target.call("DELETE", f"git/refs/heads/{made['head']['ref']}")
    target.until(
        lambda: bool(target.call("GET", f"pulls/{made['number']}").json()["state"] == "closed"), "it is closed"
    )


def _c26(target: Target) -> None:
    made = target.pull()
    oid = target.commit(made["head"]["sha"])
    target.call("PATCH", f"git/refs/heads/{made['head']['ref']}", {"sha": oid})
    target.until(
        lambda: bool(target.call("GET", f"pulls/{made['number']}").json()["head"]["sha"] == oid), "its head moves"
    )


def _c27(target: Target) -> None:
    number = target.pull()["number"]
    label = targets.LABELS[0]
    answer = target.call("POST", f"issues/{number}/labels", {"labels": [label]})
    same([row["name"] for row in answer.json()], [label], "the labels")
    path = f"issues/{number}/labels/{urllib.parse.quote(label, safe='')}"
    same(target.call("DELETE", path).json(), [], "the labels after its removal")
    answer = target.call("DELETE", path)
    same((answer.status_code, answer.json()["message"]), (404, "Label does not exist"), "the second removal")


def _c28(target: Target) -> None:
    number = target.pull()["number"]
    label = targets.LABELS[1]
    target.call("POST", f"issues/{number}/labels", {"labels": [label]})
    answer = target.call("POST", f"issues/{number}/labels", {"labels": [label.lower()]})
    same([row["name"].lower() for row in answer.json()], [label.lower()], "the labels")


def _c29(target: Target) -> None:
    made = target.pull(draft=True)
    answer = target.call("PATCH", f"pulls/{made['number']}", {"draft": False})
    holds(answer.json()["draft"], "REST's draft: false made it ready")
    for draft, name in ((False, "markPullRequestReadyForReview"), (True, "convertPullRequestToDraft")):
        query = f"mutation($i: ID!) {{ {name}(input: {{pullRequestId: $i}}) {{ pullRequest {{ isDraft }} }} }}"
        shown = target.graphql(query, i=made["node_id"])["data"][name]["pullRequest"]["isDraft"]
        same(shown, draft, name)
    same(_events(target, made["number"])[-2:], ["ready_for_review", "convert_to_draft"], "the timeline's end")


def _c30(target: Target) -> None:
    number = target.pull()["number"]
    same(target.call("POST", f"issues/{number}/comments", {"body": "  "}).status_code, 422, "the blank one's status")
    same(target.call("POST", f"issues/{number}/comments", {"body": "hello"}).status_code, 201, "the other's status")
    same(target.call("GET", f"issues/{number}/comments").json()[0]["body"], "hello", "the comment")


def _c31(target: Target) -> None:
    made = target.pull()
    target.call("PATCH", f"pulls/{made['number']}", {"title": "Other", "body": "Other"})
    rows = target.call("GET", f"issues/{made['number']}/timeline").json()
    renames = [row["rename"] for row in rows if row["event"] == "renamed"]
    same(renames, [{"from": "Contract", "to": "Other"}], "the renames in the timeline")
    query = "query($i: ID!) { node(id: $i) { ... on PullRequest { lastEditedAt editor { login } } } }"
    edited = target.graphql(query, i=made["node_id"])["data"]["node"]["lastEditedAt"]
    holds(edited is not None, "lastEditedAt is null after the body's edit")


def _c32(target: Target) -> None:
    name, oid = target.branch()
    longer, _ = target.branch(oid, name + "2")
    base = target.default_branch()
    for head in (name, longer):
        target.call("POST", "pulls", {"title": "t", "head": head, "base": base})
    exact = target.call("GET", f"pulls?head={target.owner}:{name}&state=all").json()
    same([row["head"]["ref"] for row in exact], [name], "with an owner")
    ignored = target.call("GET", f"pulls?head={name}&state=all&per_page=100").json()
    holds(len(ignored) >= 2, "a filter without an owner was not ignored")


def _c33(target: Target) -> None:
    made = target.pull()
    query = """query($o: String!, $n: String!, $h: String!) { repository(owner: $o, name: $n) {
      a: pullRequests(headRefName: $h, first: 10) { totalCount nodes { number } }
      b: pullRequest(number: 99999999) { number } } }"""
    body = target.graphql(query, o=target.owner, n=target.repository.partition("/")[2], h=made["head"]["ref"])
    found = body["data"]["repository"]
    same([row["number"] for row in found["a"]["nodes"]], [made["number"]], "the pull requests of the head")
    same(found["b"], None, "one that is not there")
    told = (body["errors"][0]["type"], body["errors"][0]["path"])
    same(told, ("NOT_FOUND", ["repository", "b"]), "its error")


def _c34(target: Target) -> None:
    made = target.pull()
    _state(target, made["number"], "closed")
    twin = {"title": "Twin", "head": made["head"]["ref"], "base": made["base"]["ref"]}
    same(target.call("POST", "pulls", twin).status_code, 201, "the twin's status")
    same(_state(target, made["number"], "open")[0], 422, "the status of the reopening")


def _c35(target: Target) -> None:
    number = target.pull()["number"]
    answer = target.call("POST", f"pulls/{number}/reviews", {"event": "COMMENT", "body": "seen"})
    same(answer.json()["state"], "COMMENTED", "the review's state")
    same(_events(target, number)[-1], "reviewed", "the timeline's end")


def _c36(target: Target) -> None:
    for path in ("pulls/99999999", "issues/99999999", "pulls/0"):
        answer = target.call("GET", path)
        same((answer.status_code, answer.json()["message"]), (404, "Not Found"), path)
        holds({"documentation_url", "status"} <= set(answer.json()), f"{path}: the body lacks its usual keys")


CONTRACTS = (
    Contract(20, "a pull request says what it is", _c20),
    Contract(21, "a second pull request of one head answers 422", _c21),
    Contract(22, "a pull request without commits or without a head answers 422", _c22),
    Contract(23, "a pull request is closed and reopened, and the timeline says so", _c23),
    Contract(24, "reopening needs the branch where it was", _c24),
    Contract(25, "deleting the head branch closes the pull request", _c25),
    Contract(26, "a push moves the head of an open pull request", _c26),
    Contract(27, "labels are addressed by their encoded name", _c27),
    Contract(28, "a label is one whatever its case", _c28),
    Contract(29, "the draft state is changed by GraphQL only", _c29),
    Contract(30, "a blank comment answers 422", _c30),
    Contract(31, "a changed title is in the timeline, a changed body only in GraphQL", _c31),
    Contract(32, "the head filter is exact and needs an owner", _c32),
    Contract(33, "GraphQL finds by exact head name, and reports what is missing", _c33),
    Contract(34, "a reopened pull request must not have a twin", _c34),
    Contract(35, "a review is in the timeline", _c35),
    Contract(36, "what is not there answers 404 with GitHub's body", _c36),
)
