"""The objects of GraphQL answers, as dictionaries whose costly members are functions, and connections with their pages."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import graphql

from klaud.fakehub.clock import stamp
from klaud.fakehub.render import node_id

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from klaud.fakehub.call import Call
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
