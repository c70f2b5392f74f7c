"""A conversation's timeline as REST serves it: events, comments, reviews and commits in one row, oldest first."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from klaud.fakehub.clock import stamp
from klaud.fakehub.render import Renderer, node_id

if TYPE_CHECKING:
    import datetime
    from collections.abc import Callable

    from klaud.fakehub.call import Call
    from klaud.fakehub.state import Event, Issue

COMMITS_SHOWN = 250
"""Commits of a pull request that any listing of them serves, oldest first, as on GitHub."""


def event_row(call: Call, render: Renderer, event: Event) -> dict[str, Any]:
    """Render one event."""
    body: dict[str, Any] = {
        "id": event.id,
        "node_id": node_id("EV", event.id),
        "url": render.url(call.repo, "issues", "events", event.id),
        "actor": render.user(event.actor),
        "event": event.event,
        "commit_id": event.data.get("commit_id"),
        "commit_url": None,
        "created_at": stamp(event.created_at),
        "performed_via_github_app": None,
    }
    if "label" in event.data:
        body["label"] = event.data["label"]
    if "rename" in event.data:
        body["rename"] = event.data["rename"]
    if "assignee" in event.data:
        body["assignee"] = render.user(event.data["assignee"])
        body["assigner"] = render.user(event.actor)
    if event.event in ("closed", "reopened"):
        body["state_reason"] = None
    return body


def timeline(call: Call, issue: Issue) -> list[Callable[[], dict[str, Any]]]:
    """Return the rows, each rendered when it is asked for."""
    render = Renderer(call)
    repo = call.repo
    rows: list[tuple[datetime.datetime, int, Callable[[], dict[str, Any]]]] = [
        (event.created_at, 2, functools.partial(event_row, call, render, event)) for event in issue.events
    ]
    for comment in issue.comments:

        def commented(made: Any = comment) -> dict[str, Any]:
            return render.comment(repo, issue, made) | {
                "event": "commented",
                "actor": render.user(made.user),
                "performed_via_github_app": None,
            }

        rows.append((comment.created_at, 1, commented))
    if issue.pull is not None:
        for review in issue.pull.reviews:

            def reviewed(made: Any = review) -> dict[str, Any]:
                return render.review(repo, issue, made) | {"event": "reviewed", "state": made.state.lower()}

            rows.append((review.submitted_at, 1, reviewed))
        for info in call.git.between(issue.pull.base_oid, issue.pull.head_oid)[:COMMITS_SHOWN]:

            def committed(made: Any = info) -> dict[str, Any]:
                body = render.git_commit(repo, made)
                return {**body, "event": "committed"}

            rows.append((info.committer.date, 0, committed))
    rows.sort(key=lambda row: row[:2])
    return [row[2] for row in rows]
