"""What a hub can say about what was done to it: request counts, writes in order, the state at the end."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from klaud.fakehub.hub import Hub, LogEntry

SHOWN_UPDATES = 3
"""Refs of a push that a line names; the rest is counted."""


def is_git(entry: LogEntry) -> bool:
    """Tell whether a call was git's."""
    return ".git/" in entry.template


def requests(hub: Hub, first: int = 0, last: int | None = None) -> dict[str, Any]:
    """Count the calls of a part of the log: by route, of the API, of git."""
    calls = hub.log[first:last]
    pushes = [entry for entry in calls if entry.template.endswith("/git-receive-pack")]
    return {
        "api": sum(1 for entry in calls if not is_git(entry)),
        "git": sum(1 for entry in calls if is_git(entry)),
        "pushes": len(pushes),
        "by-route": dict(sorted(Counter(entry.route for entry in calls).items())),
    }


def writes(hub: Hub, first: int = 0, last: int | None = None) -> list[str]:
    """Return the writes of a part of the log, one line each."""
    return [line(entry) for entry in hub.log[first:last] if entry.write]


def line(entry: LogEntry) -> str:
    """Return a write as one line."""
    fault = f" [{entry.fault}]" if entry.fault else ""
    if entry.updates:
        words = [
            f"{'+' if change.old is None else '-' if change.new is None else '~'}{change.ref} {change.result}"
            for change in entry.updates
        ]
        more = f" and {len(words) - SHOWN_UPDATES} more" if len(words) > SHOWN_UPDATES else ""
        return f"push {', '.join(words[:SHOWN_UPDATES])}{more}{fault}"
    operation = f" {entry.operation}" if entry.operation else ""
    return f"{entry.status} {entry.method} {entry.path}{operation}{fault}"


def state(hub: Hub, full_name: str) -> dict[str, Any]:
    """Return pull requests, runs, refs and labels as they are now."""
    with hub.lock:
        repository = hub.repository(full_name)
        pulls = [
            {
                "number": issue.number,
                "state": "merged" if issue.pull.merged_at else issue.state,
                "draft": issue.pull.draft,
                "title": issue.title,
                "author": account.login if (account := hub.state.account(issue.user)) else None,
                "head": issue.pull.head_ref,
                "head-oid": issue.pull.head_oid,
                "labels": list(issue.labels),
                "comments": len(issue.comments),
                "closed-by": closer.login if (closer := hub.state.account(issue.closed_by)) else None,
            }
            for issue in repository.issues.values()
            if issue.pull
        ]
        runs = [
            {
                "id": run.id,
                "workflow": run.path.rpartition("/")[2],
                "title": run.display_title,
                "status": run.status,
                "conclusion": run.conclusion,
                "attempt": run.last.number,
            }
            for run in repository.runs.values()
        ]
        refs = {name: oid for name, oid in hub.git(full_name).refs().items() if not name.startswith("refs/pull/")}
        return {"pulls": pulls, "runs": runs, "refs": refs, "labels": list(repository.labels)}
