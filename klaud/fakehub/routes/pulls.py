"""Pull requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klaud.fakehub import conversation
from klaud.fakehub.call import Page, Reply, invalid
from klaud.fakehub.render import Renderer
from klaud.fakehub.routes.issues import change
from klaud.fakehub.timeline import COMMITS_SHOWN

if TYPE_CHECKING:
    from klaud.fakehub.call import Call, Router
    from klaud.fakehub.state import Issue

FILES_SHOWN = 3000
"""Files of a pull request that the listing serves, as on GitHub."""

REVIEW_STATES = {"APPROVE": "APPROVED", "REQUEST_CHANGES": "CHANGES_REQUESTED", "COMMENT": "COMMENTED", "": "PENDING"}


def head_matches(issue: Issue, wanted: str) -> bool:
    """Tell whether ``owner:branch`` names the head; GitHub ignores a filter without an owner."""
    owner, colon, ref = wanted.partition(":")
    part = issue.pull
    if not colon or part is None:
        return True
    where = part.head_repository or ""
    return part.head_ref == ref and where.partition("/")[0].lower() == owner.lower()


def list_pulls(call: Call) -> Any:
    """Answer pull requests."""
    state = call.query.get("state", "open")
    head, base = call.query.get("head"), call.query.get("base")
    found = [
        issue
        for issue in call.repo.issues.values()
        if issue.pull
        and state in ("all", issue.state)
        and (not head or head_matches(issue, head))
        and (not base or issue.pull.base_ref == base)
    ]
    key = "updated_at" if call.query.get("sort") == "updated" else "created_at"
    down = call.query.get("direction", "desc") == "desc"
    found.sort(key=lambda issue: (getattr(issue, key), issue.number), reverse=down)
    return Page(found, lambda issue: Renderer(call).simple_pull(call.repo, issue))


def get_pull(call: Call) -> Any:
    """Answer a pull request."""
    return Renderer(call).pull(call.repo, call.pull())


def create_pull(call: Call) -> Any:
    """Open a pull request."""
    fields = call.fields(("title", "head", "base", "body", "draft"))
    for name in ("title", "head", "base"):
        if not fields.get(name):
            raise invalid("", resource="PullRequest", field=name, code="missing_field")
    issue = conversation.create_pull(
        call.hub,
        call.repo,
        head=str(fields["head"]),
        base=str(fields["base"]),
        title=str(fields["title"]),
        body=fields.get("body") or "",
        draft=bool(fields.get("draft")),
        actor=call.actor,
        via=call.kind,
    )
    return Reply(201, Renderer(call).pull(call.repo, issue))


def edit_pull(call: Call) -> Any:
    """Change a pull request: title, body, state, base."""
    issue = call.pull()
    change(call, issue)
    return Renderer(call).pull(call.repo, issue)


def files(call: Call) -> Any:
    """Answer the files of a pull request."""
    part = call.pull().pull
    if part is None:
        return []
    base = call.git.merge_base(part.base_oid, part.head_oid)
    changes = call.git.changes(base, part.head_oid)[:FILES_SHOWN]
    return Page(changes, lambda item: Renderer(call).file(call.repo, part.head_oid, item))


def commits(call: Call) -> Any:
    """Answer the commits of a pull request, oldest first, at most 250."""
    part = call.pull().pull
    found = call.git.between(part.base_oid, part.head_oid) if part else []
    return Page(found[:COMMITS_SHOWN], lambda info: Renderer(call).commit(call.repo, info))


def reviews(call: Call) -> Any:
    """Answer the reviews of a pull request."""
    issue = call.pull()
    return Page(issue.pull.reviews if issue.pull else [], lambda made: Renderer(call).review(call.repo, issue, made))


def create_review(call: Call) -> Any:
    """Review a pull request."""
    fields = call.fields(("event", "body"))
    state = REVIEW_STATES.get(str(fields.get("event") or ""))
    if state is None:
        raise invalid("", resource="PullRequestReview", field="event", code="invalid")
    issue = call.pull()
    made = conversation.review(call.hub, issue, state=state, body=fields.get("body") or "", actor=call.actor)
    return Renderer(call).review(call.repo, issue, made)


def review_comments(call: Call) -> Any:
    """Answer the comments on lines: the hub keeps none."""
    call.pull()
    return Page([], lambda row: row)


def merge(call: Call) -> Any:
    """Merge a pull request."""
    oid = conversation.merge(call.hub, call.repo, call.pull(), actor=call.actor, via=call.kind)
    return {"sha": oid, "merged": True, "message": "Pull Request successfully merged"}


def add_routes(router: Router) -> None:
    """Add these routes to the table."""
    base = "/repos/{owner}/{repo}"

    def add(method: str, path: str, handler: Any) -> None:
        router.route(method, f"{base}/{path}", permission="pull_requests")(handler)

    add("GET", "pulls", list_pulls)
    add("POST", "pulls", create_pull)
    add("GET", "pulls/{pull_number}", get_pull)
    add("PATCH", "pulls/{pull_number}", edit_pull)
    add("GET", "pulls/{pull_number}/files", files)
    add("GET", "pulls/{pull_number}/commits", commits)
    add("GET", "pulls/{pull_number}/reviews", reviews)
    add("POST", "pulls/{pull_number}/reviews", create_review)
    add("GET", "pulls/{pull_number}/comments", review_comments)
    router.route("PUT", f"{base}/pulls/{{pull_number}}/merge", permission="contents")(merge)
