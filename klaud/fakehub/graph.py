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
from klaud.fakehub.render import node_id, number_of_node

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from klaud.fakehub.call import Call, Router
    from klaud.fakehub.git import CommitInfo, Person
    from klaud.fakehub.state import Account, Comment, Event, Issue, PullPart, Repository, Review

Node = dict[str, Any]

PAGE_LIMIT = 100
"""Rows of a connection at most, as on GitHub."""

COMMITS_SHOWN = 250

EVENT_TYPES: Mapping[str, str] = {
    "closed": "ClosedEvent",
    "reopened": "ReopenedEvent",
    "merged": "MergedEvent",
    "renamed": "RenamedTitleEvent",
    "assigned": "AssignedEvent",
    "unassigned": "UnassignedEvent",
    "ready_for_review": "ReadyForReviewEvent",
    "convert_to_draft": "ConvertToDraftEvent",
    "head_ref_force_pushed": "HeadRefForcePushedEvent",
    "head_ref_deleted": "HeadRefDeletedEvent",
    "head_ref_restored": "HeadRefRestoredEvent",
    "base_ref_changed": "BaseRefChangedEvent",
    "base_ref_force_pushed": "BaseRefForcePushedEvent",
    "review_requested": "ReviewRequestedEvent",
    "review_request_removed": "ReviewRequestRemovedEvent",
    "review_dismissed": "ReviewDismissedEvent",
    "milestoned": "MilestonedEvent",
    "demilestoned": "DemilestonedEvent",
    "locked": "LockedEvent",
    "unlocked": "UnlockedEvent",
    "auto_merge_enabled": "AutoMergeEnabledEvent",
    "auto_merge_disabled": "AutoMergeDisabledEvent",
    "comment_deleted": "CommentDeletedEvent",
    "labeled": "LabeledEvent",
    "unlabeled": "UnlabeledEvent",
}
"""REST's event names and GraphQL's types; an event that is not here is not served by GraphQL."""


class GraphProblem(graphql.GraphQLError):
    """An error with GitHub's ``type``."""

    def __init__(self, kind: str, message: str) -> None:
        """``kind``: ``NOT_FOUND | FORBIDDEN | UNPROCESSABLE | STALE_DATA``."""
        super().__init__(message, extensions={"type": kind})


@functools.cache
def schema() -> graphql.GraphQLSchema:
    """Return the schema."""
    text = importlib.resources.files("klaud.fakehub").joinpath("schema.graphql").read_text()
    return graphql.build_schema(text)


def connection(
    items: Sequence[Any],
    render: Callable[[Any], Node | None],
    *,
    first: int | None = None,
    last: int | None = None,
    after: str | None = None,
    before: str | None = None,
    served: int | None = None,
) -> Node:
    """Return one page of a connection. ``served``: rows beyond it exist but are never served."""
    if first is None and last is None:
        raise GraphProblem(
            "MISSING_PAGINATION_BOUNDARIES",
            "You must provide a `first` or `last` value to properly paginate the connection.",
        )
    for size in (first, last):
        if size is not None and not 0 <= size <= PAGE_LIMIT:
            raise GraphProblem(
                "EXCESSIVE_PAGINATION",
                f"Requesting {size} records on the connection exceeds the limit of {PAGE_LIMIT} records.",
            )
    low, high = 0, len(items) if served is None else min(len(items), served)
    whole = high
    if after:
        low = max(low, _position(after) + 1)
    if before:
        high = min(high, _position(before))
    if first is not None:
        high = min(high, low + first)
    elif last is not None:
        low = max(low, high - last)
    return {
        "nodes": [render(item) for item in items[low:high]],
        "totalCount": len(items),
        "filteredCount": len(items),
        "pageCount": max(0, high - low),
        "pageInfo": {
            "hasNextPage": high < whole,
            "hasPreviousPage": low > 0,
            "startCursor": _cursor(low) if high > low else None,
            "endCursor": _cursor(high - 1) if high > low else None,
        },
    }


def _cursor(position: int) -> str:
    return base64.b64encode(f"cursor:{position}".encode()).decode()


def _position(text: str) -> int:
    try:
        return int(base64.b64decode(text).decode().removeprefix("cursor:"))
    except ValueError as error:
        raise GraphProblem("INVALID_CURSOR_ARGUMENTS", f"`{text}` does not appear to be a valid cursor.") from error


class Graph:
    """The objects of one call."""

    def __init__(self, call: Call) -> None:
        """Serve what ``call`` sees."""
        self.call = call
        self.state = call.state

    # -- people

    def actor(self, account_id: int | None) -> Node | None:
        """Return an account as an ``Actor``: here, unlike in REST, a bot's login has no ``[bot]``."""
        account = self.state.account(account_id)
        return None if account is None else self.account(account, short=True)

    def account(self, account: Account, *, short: bool = False, kind: str = "") -> Node:
        """Return an account."""
        return {
            "__typename": kind or (account.type if account.type in ("Bot", "Mannequin", "Organization") else "User"),
            "id": node_id("BOT" if account.type == "Bot" else "U", account.id),
            "databaseId": account.id,
            "login": account.login.removesuffix("[bot]") if short else account.login,
            "name": account.name,
            "url": f"{self.call.base_url}/{account.login}",
        }

    def git_actor(self, person: Person) -> Node:
        """Return an author or committer; ``user`` is null where no account has the address."""
        account = self.state.account_of(email=person.email)
        user = self.account(account, kind="User") if account and account.type != "Organization" else None
        return {"name": person.name, "email": person.email, "date": stamp(person.date), "user": user}

    # -- repositories and git

    def repository(self, repository: Repository) -> Node:
        """Return a repository."""
        owner = self.state.account_of(login=repository.owner)

        def pull(_info: Any, number: int) -> Node:
            found = repository.issues.get(number)
            if found is None or found.pull is None:
                raise GraphProblem("NOT_FOUND", f"Could not resolve to a PullRequest with the number of {number}.")
            return self.pull(repository, found, found.pull)

        return {
            "__typename": "Repository",
            "id": node_id("R", repository.id),
            "databaseId": repository.id,
            "name": repository.name,
            "nameWithOwner": repository.full_name,
            "isPrivate": repository.private,
            "url": f"{self.call.base_url}/{repository.full_name}",
            "owner": self.account(owner) if owner else None,
            "defaultBranchRef": lambda _info: self.ref(repository, f"refs/heads/{repository.default_branch}"),
            "ref": lambda _info, **args: self.ref(repository, _full_ref(args["qualifiedName"])),
            "refs": lambda _info, **args: self.refs(repository, **args),
            "pullRequest": pull,
            "pullRequests": lambda _info, **args: self.pulls(repository, **args),
        }

    def _refs_of(self, repository: Repository) -> dict[str, str]:
        if self.call.frozen_refs is not None:
            return dict(self.call.frozen_refs.get(repository.full_name, {}))
        return self.call.hub.git(repository.full_name).refs()

    def ref(self, repository: Repository, name: str) -> Node | None:
        """Return a ref, or None."""
        oid = self._refs_of(repository).get(name)
        return None if oid is None else self._ref(repository, name, oid)

    def _ref(self, repository: Repository, name: str, oid: str) -> Node:
        prefix, slash, short = name.rpartition("/")
        for known in ("refs/heads/", "refs/tags/"):
            if name.startswith(known):
                prefix, slash, short = known.rstrip("/"), "/", name.removeprefix(known)
        return {
            "id": node_id("REF", f"{repository.full_name}:{name}"),
            "name": short,
            "prefix": prefix + slash,
            "target": lambda _info: self.commit(repository, oid),
        }

    def refs(self, repository: Repository, **args: Any) -> Node:
        """Return the refs below a prefix."""
        prefix, query = args.pop("refPrefix"), args.pop("query", None)
        found = [(name, oid) for name, oid in self._refs_of(repository).items() if name.startswith(prefix)]
        found = [item for item in found if not query or query in item[0]]
        return connection(found, lambda item: self._ref(repository, *item), **args)

    def commit(self, repository: Repository, oid: str) -> Node | None:
        """Return a commit, or None."""
        info = self.call.hub.git(repository.full_name).commit(oid)
        return None if info is None else self._commit(repository, info)

    def _commit(self, repository: Repository, info: CommitInfo) -> Node:
        return {
            "__typename": "Commit",
            "id": node_id("C", info.oid),
            "oid": info.oid,
            "message": info.message.rstrip("\n"),
            "messageHeadline": info.message.partition("\n")[0],
            "author": self.git_actor(info.author),
            "committer": self.git_actor(info.committer),
            "authoredDate": stamp(info.author.date),
            "committedDate": stamp(info.committer.date),
            "url": f"{self.call.base_url}/{repository.full_name}/commit/{info.oid}",
        }

    # -- pull requests

    def pulls(self, repository: Repository, **args: Any) -> Node:
        """Return the pull requests that the arguments name. GraphQL compares ``headRefName`` exactly, forks included."""
        head, base = args.pop("headRefName", None), args.pop("baseRefName", None)
        states, labels = args.pop("states", None), args.pop("labels", None)
        order = args.pop("orderBy", None) or {"field": "CREATED_AT", "direction": "ASC"}
        found = [
            issue
            for issue in repository.issues.values()
            if issue.pull
            and (head is None or issue.pull.head_ref == head)
            and (base is None or issue.pull.base_ref == base)
            and (not states or state_of(issue) in states)
            and (not labels or set(labels) & set(issue.labels))
        ]
        key = "updated_at" if order["field"] == "UPDATED_AT" else "created_at"
        found.sort(key=lambda issue: (getattr(issue, key), issue.number), reverse=order["direction"] == "DESC")
        return connection(found, lambda issue: self.pull(repository, issue, issue.pull), **args)

    def pull(self, repository: Repository, issue: Issue, part: PullPart) -> Node:
        """Return a pull request."""
        git = self.call.hub.git(repository.full_name)

        def commits(_info: Any, **args: Any) -> Node:
            found = git.between(part.base_oid, part.head_oid)
            page = connection(
                found,
                lambda info: {
                    "__typename": "PullRequestCommit",
                    "id": node_id("PRC", info.oid),
                    "commit": self._commit(repository, info),
                },
                served=COMMITS_SHOWN,
                **args,
            )
            if part.commits_told is not None:
                page["totalCount"] = part.commits_told
            return page

        def total(word: str) -> Callable[[Any], int]:
            def count(_info: Any) -> int:
                changes = git.changes(git.merge_base(part.base_oid, part.head_oid), part.head_oid)
                return len(changes) if word == "files" else sum(getattr(change, word) for change in changes)

            return count

        where = part.head_repository
        head: Node | None = None
        if where == repository.full_name:
            head = self.repository(repository)
        elif where is not None:
            head = self.repository(repository) | {"nameWithOwner": where, "name": where.partition("/")[2]}
        owner = self.state.account_of(login=where.partition("/")[0]) if where else None
        return {
            "__typename": "PullRequest",
            "id": node_id("PR", f"{repository.full_name}#{issue.number}"),
            "fullDatabaseId": str(issue.id),
            "number": issue.number,
            "state": state_of(issue),
            "closed": issue.state == "closed",
            "merged": part.merged_at is not None,
            "isDraft": part.draft,
            "title": issue.title,
            "body": issue.body,
            "author": self.actor(issue.user),
            "editor": self.actor(issue.editor),
            "lastEditedAt": stamp(issue.edited_at),
            "headRefName": part.head_ref,
            "headRefOid": part.head_oid,
            "headRepository": head,
            "headRepositoryOwner": self.account(owner) if owner else None,
            "isCrossRepository": where != repository.full_name,
            "baseRefName": part.base_ref,
            "baseRefOid": part.base_oid,
            "mergeable": part.mergeable if issue.state == "open" else "UNKNOWN",
            "createdAt": stamp(issue.created_at),
            "updatedAt": stamp(issue.updated_at),
            "closedAt": stamp(issue.closed_at),
            "mergedAt": stamp(part.merged_at),
            "mergedBy": self.actor(part.merged_by),
            "url": f"{self.call.base_url}/{repository.full_name}/pull/{issue.number}",
            "additions": total("additions"),
            "deletions": total("deletions"),
            "changedFiles": total("files"),
            "labels": lambda _info, **args: connection(issue.labels, lambda name: self.label(repository, name), **args),
            "commits": commits,
            "comments": lambda _info, **args: connection(issue.comments, self.comment, **args),
            "reviews": lambda _info, **args: connection(part.reviews, self.review, **args),
            "timelineItems": lambda _info, **args: self.timeline(repository, issue, part, **args),
        }

    def label(self, repository: Repository, name: str) -> Node:
        """Return a label."""
        label = self.call.hub.label(repository, name)
        return {
            "id": node_id("LA", label.id),
            "name": label.name,
            "color": label.color,
            "description": label.description,
        }

    def comment(self, comment: Comment) -> Node:
        """Return a comment."""
        return {
            "__typename": "IssueComment",
            "id": node_id("IC", comment.id),
            "databaseId": comment.id if comment.id < 2**31 else None,
            "author": self.actor(comment.user),
            "body": comment.body,
            "createdAt": stamp(comment.created_at),
            "updatedAt": stamp(comment.updated_at),
            "url": f"{self.call.base_url}/comments/{comment.id}",
        }

    def review(self, review: Review) -> Node:
        """Return a review."""
        return {
            "__typename": "PullRequestReview",
            "id": node_id("PRR", review.id),
            "author": self.actor(review.user),
            "body": review.body,
            "state": review.state,
            "createdAt": stamp(review.submitted_at),
            "submittedAt": stamp(review.submitted_at),
        }

    def event(self, repository: Repository, event: Event) -> Node:
        """Return an event of the timeline."""
        data = event.data
        rename = data.get("rename") or {}
        return {
            "__typename": EVENT_TYPES[event.event],
            "id": node_id("EV", event.id),
            "actor": self.actor(event.actor),
            "createdAt": stamp(event.created_at),
            "label": self.label(repository, data["label"]["name"]) if "label" in data else None,
            "previousTitle": rename.get("from"),
            "currentTitle": rename.get("to"),
            "assignee": self.actor(data.get("assignee")),
            "commit": lambda _info: self.commit(repository, data.get("commit_id", "")),
            "afterCommit": lambda _info: self.commit(repository, data.get("commit_id", "")),
            "beforeCommit": lambda _info: self.commit(repository, data.get("before", "")),
        }

    def timeline(self, repository: Repository, issue: Issue, part: PullPart, **args: Any) -> Node:
        """Return the timeline, oldest first."""
        wanted = args.pop("itemTypes", None)
        git = self.call.hub.git(repository.full_name)
        rows: list[tuple[Any, int, Node]] = [
            (event.created_at, 2, self.event(repository, event)) for event in issue.events if event.event in EVENT_TYPES
        ]
        rows += [(made.created_at, 1, self.comment(made)) for made in issue.comments]
        rows += [(made.submitted_at, 1, self.review(made)) for made in part.reviews]
        if wanted is None or "PULL_REQUEST_COMMIT" in wanted:
            for info in git.between(part.base_oid, part.head_oid)[:COMMITS_SHOWN]:
                node = {
                    "__typename": "PullRequestCommit",
                    "id": node_id("PRC", info.oid),
                    "commit": self._commit(repository, info),
                }
                rows.append((info.committer.date, 0, node))
        rows.sort(key=lambda row: row[:2])
        kept = [node for _, _, node in rows if wanted is None or _item_type(node["__typename"]) in wanted]
        return connection(kept, lambda node: node, **args)


def _item_type(name: str) -> str:
    return "".join(f"_{letter}" if letter.isupper() and index else letter for index, letter in enumerate(name)).upper()


def state_of(issue: Issue) -> str:
    """Return GraphQL's word for a pull request's state."""
    if issue.pull is not None and issue.pull.merged_at is not None:
        return "MERGED"
    return issue.state.upper()


def _full_ref(name: str) -> str:
    return name if name.startswith("refs/") else f"refs/heads/{name}"


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
