"""Contracts C01-C12: refs and git objects."""

from __future__ import annotations

import urllib.parse
from typing import TYPE_CHECKING

import pytest

from tests.support.contract import base64_text

if TYPE_CHECKING:
    from tests.support.contract import Target


def test_c01_create_ref_answers_201_with_the_ref(target: Target) -> None:
    name, oid = target.name(), target.main()
    answer = target.call("POST", "git/refs", {"ref": f"refs/heads/{name}", "sha": oid})
    assert answer.status_code == 201
    assert answer.json()["ref"] == f"refs/heads/{name}"
    assert answer.json()["object"]["sha"] == oid


def test_c02_create_ref_that_exists_answers_422(target: Target) -> None:
    name, _ = target.branch()
    answer = target.call("POST", "git/refs", {"ref": f"refs/heads/{name}", "sha": target.main()})
    assert (answer.status_code, answer.json()["message"]) == (422, "Reference already exists")


def test_c03_create_ref_at_an_unknown_object_answers_422(target: Target) -> None:
    answer = target.call("POST", "git/refs", {"ref": f"refs/heads/{target.name()}", "sha": "1" * 40})
    assert (answer.status_code, answer.json()["message"]) == (422, "Object does not exist")


@pytest.mark.parametrize("ref", ["heads/x", "refs/x", "refs/heads/a..b", "refs/heads/with space"])
def test_c04_create_ref_with_a_bad_name_answers_422(target: Target, ref: str) -> None:
    assert target.call("POST", "git/refs", {"ref": ref, "sha": target.main()}).status_code == 422


def test_c05_update_ref_goes_backwards_only_with_force(target: Target) -> None:
    main = target.main()
    name, _ = target.branch(target.commit(main))
    answer = target.call("PATCH", f"git/refs/heads/{name}", {"sha": main})
    assert (answer.status_code, answer.json()["message"]) == (422, "Update is not a fast forward")
    assert target.call("PATCH", f"git/refs/heads/{name}", {"sha": main, "force": True}).status_code == 200


def test_c06_update_of_an_absent_ref_answers_422(target: Target) -> None:
    answer = target.call("PATCH", f"git/refs/heads/{target.name()}", {"sha": target.main()})
    assert (answer.status_code, answer.json()["message"]) == (422, "Reference does not exist")


def test_c07_delete_ref_answers_204_and_then_422(target: Target) -> None:
    name, _ = target.branch()
    assert target.call("DELETE", f"git/refs/heads/{name}").status_code == 204
    answer = target.call("DELETE", f"git/refs/heads/{name}")
    assert (answer.status_code, answer.json()["message"]) == (422, "Reference does not exist")


def test_c08_get_ref_is_exact_and_matching_refs_is_a_prefix(target: Target) -> None:
    name, oid = target.branch()
    target.branch(oid, name + "2")
    assert target.call("GET", f"git/ref/heads/{name[:-1]}").status_code == 404
    assert target.call("GET", f"git/ref/heads/{name}").json()["object"]["sha"] == oid
    found = [row["ref"] for row in target.call("GET", f"git/matching-refs/heads/{name}").json()]
    assert found == [f"refs/heads/{name}", f"refs/heads/{name}2"]
    assert target.call("GET", f"git/matching-refs/heads/{target.name('none')}").json() == []


def test_c09_ref_names_with_odd_characters_are_percent_decoded(target: Target) -> None:
    name = target.name() + "/#1-%25-\u00fc\U0001f680"
    _, oid = target.branch(name=name)
    by_segment = "/".join(urllib.parse.quote(part, safe="") for part in name.split("/"))
    whole = urllib.parse.quote(name, safe="")
    for path in (f"heads/{by_segment}", f"heads%2F{whole}"):
        assert target.call("GET", f"git/ref/{path}").json()["object"]["sha"] == oid
    assert target.call("DELETE", f"git/refs/heads/{by_segment}").status_code == 204


def test_c10_a_ref_below_a_ref_is_refused(target: Target) -> None:
    name, oid = target.branch()
    answer = target.call("POST", "git/refs", {"ref": f"refs/heads/{name}/below", "sha": oid})
    assert answer.status_code == 422


def test_c11_update_refs_is_all_or_nothing_and_compares(target: Target) -> None:
    main = target.main()
    name, oid = target.branch()
    repository = target.graphql(
        "query($o: String!, $n: String!) { repository(owner: $o, name: $n) { id } }",
        o=target.owner,
        n=target.repository.partition("/")[2],
    )["data"]["repository"]["id"]
    given = "input: {repositoryId: $r, refUpdates: $u}"
    mutation = f"mutation($r: ID!, $u: [RefUpdate!]!) {{ updateRefs({given}) {{ clientMutationId }} }}"
    other = target.name()
    create = {"name": f"refs/heads/{other}", "beforeOid": "0" * 40, "afterOid": main}
    wrong = {"name": f"refs/heads/{name}", "beforeOid": main, "afterOid": "0" * 40}
    assert target.graphql(mutation, r=repository, u=[create, wrong])["errors"]
    assert target.call("GET", f"git/ref/heads/{other}").status_code == 404
    assert "errors" not in target.graphql(mutation, r=repository, u=[create, {**wrong, "beforeOid": oid}])
    assert target.call("GET", f"git/ref/heads/{name}").status_code == 404
    assert target.call("GET", f"git/ref/heads/{other}").json()["object"]["sha"] == main


def test_c12_create_commit_on_branch_refuses_a_branch_that_moved(target: Target) -> None:
    name, oid = target.branch()
    mutation = "mutation($i: CreateCommitOnBranchInput!) { createCommitOnBranch(input: $i) { commit { oid } } }"
    given = {
        "branch": {"repositoryNameWithOwner": target.repository, "branchName": name},
        "message": {"headline": "By GraphQL"},
        "expectedHeadOid": oid,
        "fileChanges": {"additions": [{"path": "a/b.txt", "contents": base64_text("hello")}]},
    }
    made = target.graphql(mutation, i=given)["data"]["createCommitOnBranch"]["commit"]["oid"]
    assert target.call("GET", f"git/ref/heads/{name}").json()["object"]["sha"] == made
    assert target.graphql(mutation, i=given)["errors"][0]["type"] == "STALE_DATA"
    answer = target.call("GET", f"contents/a/b.txt?ref={made}", Accept="application/vnd.github.raw+json")
    assert answer.text == "hello"
