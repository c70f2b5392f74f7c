"""GraphQL: graphql-core over the part of GitHub's schema in ``schema.graphql``.

Objects are dictionaries whose costly members are functions; errors have GitHub's ``type`` beside their message. A query
that names anything outside the schema is refused by validation, never guessed at.
"""

from __future__ import annotations

import base64
import functools
import importlib.resources
import re
from typing import TYPE_CHECKING, Any

import graphql

from klaud.fakehub import conversation, refs
from klaud.fakehub.call import Problem, Reply
from klaud.fakehub.clock import stamp
from klaud.fakehub.git import ZERO, GitError
from klaud.fakehub.graph_objects import Graph, GraphProblem, Node
from klaud.fakehub.render import number_of_node

if TYPE_CHECKING:
    from collections.abc import Mapping

    from klaud.fakehub.call import Call, Router
    from klaud.fakehub.state import Issue, PullPart, Repository


@functools.cache
def schema() -> graphql.GraphQLSchema:
    """Return the schema."""
    text = importlib.resources.files("klaud.fakehub").joinpath("schema.graphql").read_text()
    return graphql.build_schema(text)


class Root:
    """The fields of ``Query`` and ``Mutation``."""

    def __init__(self, call: Call) -> None:
        """Answer ``call``."""
        self.call = call
        self.graph = Graph(call)

    def fields(self) -> dict[str, Any]:
        """Return the root value."""
        return {
            "viewer": self.viewer,
            "repository": self.repository,
            "node": lambda _info, id: self.node(id),  # noqa: A006 - GitHub's argument
            "nodes": lambda _info, ids: [self.node(one) for one in ids],
            "rateLimit": self.rate_limit,
            "convertPullRequestToDraft": lambda _info, input: self.set_draft(input, draft=True),  # noqa: A006
            "markPullRequestReadyForReview": lambda _info, input: self.set_draft(input, draft=False),  # noqa: A006
            "updateRefs": lambda _info, input: self.update_refs(input),  # noqa: A006 - GitHub's argument
            "createCommitOnBranch": lambda _info, input: self.create_commit(input),  # noqa: A006
        }

    def viewer(self, _info: Any) -> Node:
        """Answer who the token is."""
        if self.call.account is None:
            raise GraphProblem("FORBIDDEN", "This endpoint requires you to be authenticated.")
        return self.graph.account(self.call.account, kind="User")

    def rate_limit(self, _info: Any, **_: Any) -> Node:
        """Answer what is left."""
        left = self.call.hub.rates.peek(self.call, "graphql")
        reset = self.call.now.fromtimestamp(left["reset"], self.call.now.tzinfo)
        return {
            "cost": 1,
            "nodeCount": 1,
            "limit": left["limit"],
            "used": left["used"],
            "remaining": left["remaining"],
            "resetAt": stamp(reset),
        }

    def repository(self, _info: Any, owner: str, name: str, **_: Any) -> Node:
        """Answer a repository."""
        self.call.params.update(owner=owner, repo=name)
        try:
            return self.graph.repository(self.call.repo)
        except Problem as problem:
            raise GraphProblem(
                "NOT_FOUND", f"Could not resolve to a Repository with the name '{owner}/{name}'."
            ) from problem

    def node(self, text: str) -> Node:
        """Answer a pull request or repository by its global id."""
        found = self._pull(text)
        if found is not None:
            repository, issue, part = found
            return self.graph.pull(repository, issue, part)
        number = number_of_node("R", text)
        for repository in self.call.state.repositories.values():
            if number == str(repository.id):
                return self.graph.repository(repository)
        raise GraphProblem("NOT_FOUND", f"Could not resolve to a node with the global id of '{text}'")

    def _pull(self, text: str) -> tuple[Repository, Issue, PullPart] | None:
        name, _, number = (number_of_node("PR", text) or "").partition("#")
        repository = self.call.state.repositories.get(name)
        issue = repository.issues.get(int(number)) if repository and number.isdigit() else None
        if repository is None or issue is None or issue.pull is None:
            return None
        self.call.params.update(owner=repository.owner, repo=repository.name)
        return repository, issue, issue.pull

    def _need(self, permission: str) -> None:
        token = self.call.token
        if token is None or not token.allows(permission, "write"):
            whom = "personal access token" if self.call.kind == "pat" else "integration"
            raise GraphProblem("FORBIDDEN", f"Resource not accessible by {whom}")

    def set_draft(self, given: Mapping[str, Any], *, draft: bool) -> Node:
        """Convert to a draft or mark ready; a job's own token may do neither."""
        found = self._pull(given["pullRequestId"])
        if found is None:
            raise GraphProblem(
                "NOT_FOUND", f"Could not resolve to a node with the global id of '{given['pullRequestId']}'"
            )
        if self.call.kind == "github_token":
            raise GraphProblem("FORBIDDEN", "Resource not accessible by integration")
        self._need("pull_requests")
        repository, issue, part = found
        if issue.state != "open":
            raise GraphProblem("UNPROCESSABLE", "Pull request is closed")
        try:
            conversation.set_draft(
                self.call.hub, repository, issue, draft=draft, actor=self.call.actor, via=self.call.kind
            )
        except Problem as problem:
            raise GraphProblem("UNPROCESSABLE", problem.message) from problem
        return {
            "clientMutationId": given.get("clientMutationId"),
            "pullRequest": self.graph.pull(repository, issue, part),
        }

    def update_refs(self, given: Mapping[str, Any]) -> Node:
        """Update many refs, all or none, each compared with ``beforeOid`` where that is given."""
        number = number_of_node("R", given["repositoryId"])
        repository = next((one for one in self.call.state.repositories.values() if str(one.id) == number), None)
        if repository is None:
            raise GraphProblem(
                "NOT_FOUND", f"Could not resolve to a node with the global id of '{given['repositoryId']}'"
            )
        self._need("contents")
        self.call.params.update(owner=repository.owner, repo=repository.name)
        git = self.call.git
        changes: list[tuple[str, str | None, str | None]] = []
        for update in given["refUpdates"]:
            name, new = update["name"], None if update["afterOid"] == ZERO else update["afterOid"]
            old = git.ref(name)
            expected = update.get("beforeOid")
            if expected is not None and (None if expected == ZERO else expected) != old:
                raise GraphProblem("UNPROCESSABLE", f"Reference cannot be updated: {name} is not at {expected}")
            if new is not None and not git.exists(new):
                raise GraphProblem("UNPROCESSABLE", f"Object does not exist: {new}")
            if not name.startswith("refs/") or not git.valid_ref_name(name):
                raise GraphProblem("UNPROCESSABLE", f"Reference name is invalid: {name}")
            if old and new and not update.get("force") and not git.is_ancestor(old, new):
                raise GraphProblem("UNPROCESSABLE", f"Reference cannot be updated: {name} is not a fast-forward")
            try:
                refs.guard(self.call, name, new)
            except Problem as problem:
                raise GraphProblem("FORBIDDEN", problem.message) from problem
            changes.append((name, old, new))
        try:
            git.swap_all(changes)
        except GitError as error:
            raise GraphProblem("UNPROCESSABLE", f"Reference cannot be updated: {error}") from error
        for name, old, new in changes:
            refs.after_rest(self.call, name, old, new)
        return {"clientMutationId": given.get("clientMutationId")}

    def create_commit(self, given: Mapping[str, Any]) -> Node:
        """Commit files on a branch that stands at ``expectedHeadOid``."""
        branch = given["branch"]
        name = branch.get("repositoryNameWithOwner") or ""
        repository = self.call.state.repositories.get(name)
        if repository is None or not branch.get("branchName"):
            raise GraphProblem("NOT_FOUND", f"Could not resolve to a branch of '{name}'.")
        self._need("contents")
        self.call.params.update(owner=repository.owner, repo=repository.name)
        git = self.call.git
        short = branch["branchName"].removeprefix("refs/heads/")
        ref = f"refs/heads/{short}"
        old = git.ref(ref)
        if old is None:
            raise GraphProblem("NOT_FOUND", f"The branch `{short}` does not exist.")
        if old != given["expectedHeadOid"]:
            raise GraphProblem(
                "STALE_DATA",
                f'Expected branch to point to "{given["expectedHeadOid"]}" but it did not. Pull and try again.',
            )
        changes = given.get("fileChanges") or {}
        files = {one["path"]: base64.b64decode(one["contents"]) for one in changes.get("additions") or []}
        parent = git.commit(old)
        tree = git.write_tree(
            files,
            base_tree=parent.tree if parent else None,
            deleted=[one["path"] for one in changes.get("deletions") or []],
        )
        message = given["message"]["headline"] + (
            f"\n\n{given['message']['body']}" if given["message"].get("body") else ""
        )
        oid = git.write_commit(tree=tree, parents=[old], message=message, author=self.call.hub.person(self.call.actor))
        try:
            refs.guard(self.call, ref, oid)
            git.swap(ref, old, oid)
        except Problem as problem:
            raise GraphProblem("FORBIDDEN", problem.message) from problem
        except GitError as error:
            raise GraphProblem(
                "STALE_DATA", f"Expected branch to point to {old} but it did not. Pull and try again."
            ) from error
        refs.after_rest(self.call, ref, old, oid)
        return {
            "clientMutationId": given.get("clientMutationId"),
            "commit": self.graph.commit(repository, oid),
            "ref": self.graph.ref(repository, ref),
        }


def is_mutation(body: Any) -> bool:
    """Tell whether a request changes something."""
    query = body.get("query") if isinstance(body, dict) else None
    return isinstance(query, str) and query.lstrip().startswith("mutation")


def operation(body: Any) -> str:
    """Return the name of a request's operation, or nothing."""
    query = body.get("query") if isinstance(body, dict) else None
    match = re.search(r"\b(?:query|mutation)\s+(\w+)", query) if isinstance(query, str) else None
    return match[1] if match else ""


def spoil(reply: Reply, word: str) -> None:
    """Make the aliases below the first object that contain ``word`` fail, as when GitHub runs out of time on a part."""
    body = reply.body
    if not isinstance(body, dict) or not isinstance(body.get("data"), dict):
        return
    for name, value in body["data"].items():
        if not isinstance(value, dict):
            continue
        for alias in [key for key in value if word in key]:
            value[alias] = None
            body.setdefault("errors", []).append({
                "type": "SERVICE_UNAVAILABLE",
                "path": [name, alias],
                "message": "Something went wrong while executing your query.",
            })  # fmt: skip


def answer(call: Call) -> Any:
    """Answer ``POST /graphql``."""
    fields = call.fields(("query", "variables", "operationName"))
    if not isinstance(fields.get("query"), str):
        raise Problem(400, "A query attribute must be specified and must be a string.")
    if call.token is None:
        raise Problem(401, "This endpoint requires you to be authenticated.")
    result = graphql.graphql_sync(
        schema(),
        fields["query"],
        Root(call).fields(),
        context_value=call,
        variable_values=fields.get("variables") or {},
        operation_name=fields.get("operationName"),
    )
    if result.errors and result.data is None and any(error.path is None for error in result.errors):
        return Reply(200, {"errors": [_error(error) for error in result.errors]})
    body: dict[str, Any] = {"data": result.data}
    if result.errors:
        for error in result.errors:
            if error.original_error is not None and not isinstance(error.original_error, graphql.GraphQLError):
                raise error.original_error
        body["errors"] = [_error(error) for error in result.errors]
    return body


def _error(error: graphql.GraphQLError) -> dict[str, Any]:
    body: dict[str, Any] = {"message": error.message}
    if error.extensions and "type" in error.extensions:
        body = {"type": error.extensions["type"], **body}
    if error.path is not None:
        body["path"] = list(error.path)
    if error.locations:
        body["locations"] = [{"line": place.line, "column": place.column} for place in error.locations]
    return body


def add_routes(router: Router) -> None:
    """Add the one route to the table."""
    router.route("POST", "/graphql")(answer)
