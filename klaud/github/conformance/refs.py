"""Contracts C01-C13: refs and git objects."""

from __future__ import annotations

import base64
import urllib.parse
from typing import TYPE_CHECKING

from klaud.github.conformance.model import Contract, holds, same

if TYPE_CHECKING:
    import requests

    from klaud.github.conformance.target import Target


def _said(answer: requests.Response) -> tuple[int, str]:
    return answer.status_code, answer.json().get("message", "")


def _c01(target: Target) -> None:
    name, oid = target.name(), target.main()
    answer = target.call("POST", "git/refs", {"ref": f"refs/heads/{name}", "sha": oid})
    same(answer.status_code, 201, "the status")
    same((answer.json()["ref"], answer.json()["object"]["sha"]), (f"refs/heads/{name}", oid), "ref and object")


def _c02(target: Target) -> None:
    name, _ = target.branch()
    answer = target.call("POST", "git/refs", {"ref": f"refs/heads/{name}", "sha": target.main()})
    same(_said(answer), (422, "Reference already exists"), "the answer")


def _c03(target: Target) -> None:
    answer = target.call("POST", "git/refs", {"ref": f"refs/heads/{target.name()}", "sha": "1" * 40})
    same(_said(answer), (422, "Object does not exist"), "the answer")


def _c04(target: Target) -> None:
    oid = target.main()
    for ref in ("heads/x", "refs/x", "refs/heads/a..b", "refs/heads/with space"):
        same(target.call("POST", "git/refs", {"ref": ref, "sha": oid}).status_code, 422, f"the status for {ref!r}")


def _c05(target: Target) -> None:
    main = target.main()
    name, _ = target.branch(target.commit(main))
    answer = target.call("PATCH", f"git/refs/heads/{name}", {"sha": main})
    same(_said(answer), (422, "Update is not a fast forward"), "the answer without force")
    answer = target.call("PATCH", f"git/refs/heads/{name}", {"sha": main, "force": True})
    same(answer.status_code, 200, "the status with force")


def _c06(target: Target) -> None:
    answer = target.call("PATCH", f"git/refs/heads/{target.name()}", {"sha": target.main()})
    same(_said(answer), (422, "Reference does not exist"), "the answer")


def _c07(target: Target) -> None:
    name, _ = target.branch()
    same(target.call("DELETE", f"git/refs/heads/{name}").status_code, 204, "the first status")
    same(_said(target.call("DELETE", f"git/refs/heads/{name}")), (422, "Reference does not exist"), "the second answer")


def _c08(target: Target) -> None:
    name, oid = target.branch()
    target.branch(oid, name + "2")
    same(target.call("GET", f"git/ref/heads/{name[:-1]}").status_code, 404, "the status of a part of a name")
    same(target.call("GET", f"git/ref/heads/{name}").json()["object"]["sha"], oid, "the ref's object")
    found = [row["ref"] for row in target.call("GET", f"git/matching-refs/heads/{name}").json()]
    same(found, [f"refs/heads/{name}", f"refs/heads/{name}2"], "the matching refs")
    same(target.call("GET", f"git/matching-refs/heads/{target.name()}").json(), [], "refs that match nothing")


def _c09(target: Target) -> None:
    name = target.name() + "/#1-%25-\u00fc\U0001f680"
    _, oid = target.branch(name=name)
    by_segment = "/".join(urllib.parse.quote(part, safe="") for part in name.split("/"))
    whole = urllib.parse.quote(name, safe="")
    for path in (f"heads/{by_segment}", f"heads%2F{whole}"):
        same(target.call("GET", f"git/ref/{path}").json()["object"]["sha"], oid, f"what {path} names")
    same(target.call("DELETE", f"git/refs/heads/{by_segment}").status_code, 204, "the status of its deletion")


def _c10(target: Target) -> None:
    name, oid = target.branch()
    answer = target.call("POST", "git/refs", {"ref": f"refs/heads/{name}/below", "sha": oid})
    same(answer.status_code, 422, "the status")


def _c11(target: Target) -> None:
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
    holds(target.graphql(mutation, r=repository, u=[create, wrong]).get("errors"), "a wrong beforeOid was taken")
    same(target.call("GET", f"git/ref/heads/{other}").status_code, 404, "the other ref after the refusal")
    answer = target.graphql(mutation, r=repository, u=[create, {**wrong, "beforeOid": oid}])
    holds("errors" not in answer, f"refused: {answer.get('errors')}")
    same(target.call("GET", f"git/ref/heads/{name}").status_code, 404, "the deleted ref")
    same(target.call("GET", f"git/ref/heads/{other}").json()["object"]["sha"], main, "the made ref")


def _c12(target: Target) -> None:
    name, oid = target.branch()
    mutation = "mutation($i: CreateCommitOnBranchInput!) { createCommitOnBranch(input: $i) { commit { oid } } }"
    given = {
        "branch": {"repositoryNameWithOwner": target.repository, "branchName": name},
        "message": {"headline": "By GraphQL"},
        "expectedHeadOid": oid,
        "fileChanges": {"additions": [{"path": "a/b.txt", "contents": base64.b64encode(b"hello").decode()}]},
    }
    made = target.graphql(mutation, i=given)["data"]["createCommitOnBranch"]["commit"]["oid"]
    same(target.call("GET", f"git/ref/heads/{name}").json()["object"]["sha"], made, "the branch")
    same(target.graphql(mutation, i=given)["errors"][0]["type"], "STALE_DATA", "the second answer")
    answer = target.call("GET", f"contents/a/b.txt?ref={made}", Accept="application/vnd.github.raw+json")
    same(answer.text, "hello", "the file")


def _c13(target: Target) -> None:
    answer = target.call("GET", f"rules/branches/{urllib.parse.quote(target.name(), safe='/')}")
    same(answer.status_code, 200, "the status for a branch that is not there")
    holds(isinstance(answer.json(), list), "the answer is no list")
    holds(all("type" in one for one in answer.json()), "a rule has no type")


CONTRACTS = (
    Contract(1, "create-ref answers 201 with the ref", _c01),
    Contract(2, "create-ref of one that exists answers 422", _c02),
    Contract(3, "create-ref at an unknown object answers 422", _c03),
    Contract(4, "create-ref with a bad name answers 422", _c04),
    Contract(5, "update-ref goes backwards only with force", _c05),
    Contract(6, "update-ref of an absent ref answers 422", _c06),
    Contract(7, "delete-ref answers 204, and then 422", _c07),
    Contract(8, "get-ref is exact, matching-refs is a prefix", _c08),
    Contract(9, "odd characters in a ref's name are percent-decoded", _c09),
    Contract(10, "a ref below a ref is refused", _c10),
    Contract(11, "updateRefs is all or nothing, and compares", _c11),
    Contract(12, "createCommitOnBranch refuses a branch that moved", _c12),
    Contract(13, "the rules for a branch can be asked for before it is there", _c13),
)
