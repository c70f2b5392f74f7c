"""Contracts C20-C36: pull requests, labels, comments, timelines, drafts."""

from __future__ import annotations

import urllib.parse
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.contract import Target


def test_c20_a_pull_request_says_what_it_is(target: Target) -> None:
    made = target.pull(draft=True)
    shown = target.call("GET", f"pulls/{made['number']}").json()
    assert (shown["draft"], shown["state"], shown["merged"], shown["commits"], shown["changed_files"]) == (
        True,
        "open",
        False,
        1,
        1,
    )
    commits = target.call("GET", f"pulls/{made['number']}/commits").json()
    assert [row["sha"] for row in commits] == [shown["head"]["sha"]]


def test_c21_a_second_pull_request_of_one_head_answers_422(target: Target) -> None:
    made = target.pull()
    again = {"title": "Again", "head": made["head"]["ref"], "base": made["base"]["ref"]}
    answer = target.call("POST", "pulls", again)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["message"].startswith("A pull request already exists for ")


def test_c22_a_pull_request_without_commits_or_head_answers_422(target: Target) -> None:
    name, _ = target.branch(target.main())
    base = target.call("GET", "").json()["default_branch"]
    answer = target.call("POST", "pulls", {"title": "t", "head": name, "base": base})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["message"].startswith("No commits between ")
    answer = target.call("POST", "pulls", {"title": "t", "head": target.name(), "base": base})
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "head")


def test_c23_close_and_reopen(target: Target) -> None:
    number = target.pull()["number"]
    assert target.call("PATCH", f"pulls/{number}", {"state": "closed"}).json()["state"] == "closed"
    assert target.call("PATCH", f"pulls/{number}", {"state": "open"}).json()["state"] == "open"
    kinds = [row["event"] for row in target.call("GET", f"issues/{number}/timeline").json()]
    assert kinds == ["committed", "closed", "reopened"]


def test_c24_reopening_needs_the_branch_where_it_was(target: Target) -> None:
    made = target.pull()
    number, name, oid = made["number"], made["head"]["ref"], made["head"]["sha"]
    target.call("PATCH", f"pulls/{number}", {"state": "closed"})
    target.call("DELETE", f"git/refs/heads/{name}")
    answer = target.call("PATCH", f"pulls/{number}", {"state": "open"})
    assert answer.status_code == 422
    target.branch(target.commit(target.main()), name)
    assert target.call("PATCH", f"pulls/{number}", {"state": "open"}).status_code == 422
    target.call("DELETE", f"git/refs/heads/{name}")
    target.branch(oid, name)
    assert target.call("PATCH", f"pulls/{number}", {"state": "open"}).json()["state"] == "open"


def test_c25_deleting_the_head_branch_closes_the_pull_request(target: Target) -> None:
    made = target.pull()
    target.call("DELETE", f"git/refs/heads/{made['head']['ref']}")
    assert target.call("GET", f"pulls/{made['number']}").json()["state"] == "closed"


def test_c26_a_push_moves_the_head_of_an_open_pull_request(target: Target) -> None:
    made = target.pull()
    oid = target.commit(made["head"]["sha"])
    target.call("PATCH", f"git/refs/heads/{made['head']['ref']}", {"sha": oid})
    assert target.call("GET", f"pulls/{made['number']}").json()["head"]["sha"] == oid


def test_c27_labels_are_addressed_by_their_encoded_name(target: Target) -> None:
    number = target.pull()["number"]
    label = "needs / review \U0001f691"
    answer = target.call("POST", f"issues/{number}/labels", {"labels": [label]})
    assert [row["name"] for row in answer.json()] == [label]
    path = f"issues/{number}/labels/{urllib.parse.quote(label, safe='')}"
    assert target.call("DELETE", path).json() == []
    answer = target.call("DELETE", path)
    assert (answer.status_code, answer.json()["message"]) == (404, "Label does not exist")


def test_c28_a_label_is_one_whatever_its_case(target: Target) -> None:
    number = target.pull()["number"]
    target.call("POST", f"issues/{number}/labels", {"labels": ["Contract"]})
    answer = target.call("POST", f"issues/{number}/labels", {"labels": ["contract"]})
    assert [row["name"].lower() for row in answer.json()] == ["contract"]


def test_c29_the_draft_state_is_changed_by_graphql_only(target: Target) -> None:
    made = target.pull(draft=True)
    assert target.call("PATCH", f"pulls/{made['number']}", {"draft": False}).json()["draft"] is True
    for word, name in (("false", "markPullRequestReadyForReview"), ("true", "convertPullRequestToDraft")):
        query = f"mutation($i: ID!) {{ {name}(input: {{pullRequestId: $i}}) {{ pullRequest {{ isDraft }} }} }}"
        shown = target.graphql(query, i=made["node_id"])["data"][name]["pullRequest"]["isDraft"]
        assert shown is (word == "true")
    kinds = [row["event"] for row in target.call("GET", f"issues/{made['number']}/timeline").json()]
    assert kinds[-2:] == ["ready_for_review", "convert_to_draft"]


def test_c30_a_blank_comment_answers_422(target: Target) -> None:
    number = target.pull()["number"]
    assert target.call("POST", f"issues/{number}/comments", {"body": "  "}).status_code == 422
    assert target.call("POST", f"issues/{number}/comments", {"body": "hello"}).status_code == 201
    assert target.call("GET", f"issues/{number}/comments").json()[0]["body"] == "hello"


def test_c31_a_changed_title_is_in_the_timeline_and_a_changed_body_only_in_graphql(target: Target) -> None:
    made = target.pull()
    target.call("PATCH", f"pulls/{made['number']}", {"title": "Other", "body": "Other"})
    rows = target.call("GET", f"issues/{made['number']}/timeline").json()
    assert [row["rename"] for row in rows if row["event"] == "renamed"] == [{"from": "Contract", "to": "Other"}]
    query = "query($i: ID!) { node(id: $i) { ... on PullRequest { lastEditedAt editor { login } } } }"
    assert target.graphql(query, i=made["node_id"])["data"]["node"]["lastEditedAt"] is not None


def test_c32_the_head_filter_is_exact_and_needs_an_owner(target: Target) -> None:
    name, oid = target.branch()
    longer, _ = target.branch(oid, name + "2")
    base = target.call("GET", "").json()["default_branch"]
    for head in (name, longer):
        target.call("POST", "pulls", {"title": "t", "head": head, "base": base})
    exact = target.call("GET", f"pulls?head={target.owner}:{name}&state=all").json()
    assert [row["head"]["ref"] for row in exact] == [name]
    ignored = target.call("GET", f"pulls?head={name}&state=all&per_page=100").json()
    assert len(ignored) >= 2


def test_c33_graphql_finds_by_exact_head_name_and_reports_the_missing(target: Target) -> None:
    made = target.pull()
    query = """query($o: String!, $n: String!, $h: String!) { repository(owner: $o, name: $n) {
      a: pullRequests(headRefName: $h, first: 10) { totalCount nodes { number } }
      b: pullRequest(number: 99999999) { number } } }"""
    body = target.graphql(query, o=target.owner, n=target.repository.partition("/")[2], h=made["head"]["ref"])
    assert [row["number"] for row in body["data"]["repository"]["a"]["nodes"]] == [made["number"]]
    assert body["data"]["repository"]["b"] is None
    assert (body["errors"][0]["type"], body["errors"][0]["path"]) == ("NOT_FOUND", ["repository", "b"])


def test_c34_a_reopened_pull_request_must_not_have_a_twin(target: Target) -> None:
    made = target.pull()
    target.call("PATCH", f"pulls/{made['number']}", {"state": "closed"})
    twin = {"title": "Twin", "head": made["head"]["ref"], "base": made["base"]["ref"]}
    assert target.call("POST", "pulls", twin).status_code == 201
    assert target.call("PATCH", f"pulls/{made['number']}", {"state": "open"}).status_code == 422


def test_c35_a_review_is_in_the_timeline(target: Target) -> None:
    number = target.pull()["number"]
    answer = target.call("POST", f"pulls/{number}/reviews", {"event": "COMMENT", "body": "seen"})
    assert answer.json()["state"] == "COMMENTED"
    assert target.call("GET", f"issues/{number}/timeline").json()[-1]["event"] == "reviewed"


@pytest.mark.parametrize("path", ["pulls/99999999", "issues/99999999", "pulls/0"])
def test_c36_what_is_not_there_answers_404_with_githubs_body(target: Target, path: str) -> None:
    answer = target.call("GET", path)
    assert answer.status_code == 404
    assert answer.json()["message"] == "Not Found"
    assert {"documentation_url", "status"} <= set(answer.json())
