"""Issues, comments, labels, assignees, timelines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klaud.fakehub import conversation
from klaud.fakehub.call import Page, Reply, invalid, not_found
from klaud.fakehub.clock import stamp
from klaud.fakehub.render import Renderer
from klaud.fakehub.timeline import event_row, timeline

if TYPE_CHECKING:
    from klaud.fakehub.call import Call, Router
    from klaud.fakehub.state import Issue

EITHER = ("issues", "pull_requests")
"""For a pull request's issue side either permission will do, as on GitHub."""


def names_of(value: Any) -> list[str]:
    """Return the label names of a request: strings or objects with ``name``."""
    names = [item["name"] if isinstance(item, dict) else item for item in value or []]
    if not all(isinstance(name, str) and name for name in names):
        raise invalid("", resource="Label", field="name", code="invalid")
    return [str(name) for name in names]


def list_issues(call: Call) -> Any:
    """Answer issues and pull requests, newest first."""
    state = call.query.get("state", "open")
    wanted = {label.lower() for label in call.query.get("labels", "").split(",") if label}
    creator = call.query.get("creator")
    found = [
        issue
        for issue in call.repo.issues.values()
        if state in ("all", issue.state)
        and wanted <= {label.lower() for label in issue.labels}
        and (creator is None or ((account := call.state.account(issue.user)) is not None and account.login == creator))
    ]
    found.sort(key=lambda issue: issue.number, reverse=call.query.get("direction", "desc") == "desc")
    return Page(found, lambda issue: Renderer(call).issue(call.repo, issue))


def get_issue(call: Call) -> Any:
    """Answer an issue."""
    return Renderer(call).issue(call.repo, call.issue())


def create_issue(call: Call) -> Any:
    """Open an issue."""
    fields = call.fields(("title", "body", "labels", "assignees"))
    title = str(fields.get("title", ""))
    conversation.check_text("Issue", title=title, body=fields.get("body"))
    issue = conversation.new_issue(call.hub, call.repo, title=title, body=fields.get("body") or "", user=call.actor)
    conversation.add_labels(call.hub, call.repo, issue, names_of(fields.get("labels")), actor=call.actor, via=call.kind)
    return Reply(201, Renderer(call).issue(call.repo, issue))


def change(call: Call, issue: Issue) -> None:
    """Apply a PATCH of an issue or a pull request."""
    fields = call.fields(("title", "body", "state", "labels"))
    state = fields.get("state")
    if state not in (None, "open", "closed"):
        raise invalid("", resource="Issue", field="state", code="invalid")
    hub, repo, actor, via = call.hub, call.repo, call.actor, call.kind
    conversation.edit(hub, repo, issue, actor=actor, title=fields.get("title"), body=fields.get("body"), via=via)
    if "labels" in fields:
        replace_labels(call, issue, names_of(fields["labels"]))
    if state == "closed":
        conversation.close(hub, repo, issue, actor=actor, via=via)
    elif state == "open":
        conversation.reopen(hub, repo, issue, actor=actor, via=via)


def edit_issue(call: Call) -> Any:
    """Change an issue."""
    issue = call.issue()
    change(call, issue)
    return Renderer(call).issue(call.repo, issue)


def list_comments(call: Call) -> Any:
    """Answer an issue's comments, oldest first."""
    issue = call.issue()
    since = call.query.get("since")
    found = [made for made in issue.comments if not since or (stamp(made.updated_at) or "") >= since]
    return Page(found, lambda made: Renderer(call).comment(call.repo, issue, made))


def create_comment(call: Call) -> Any:
    """Comment."""
    issue = call.issue()
    made = conversation.comment(call.hub, issue, str(call.fields(("body",)).get("body", "")), actor=call.actor)
    return Reply(201, Renderer(call).comment(call.repo, issue, made))


def _comment(call: Call) -> Any:
    text = call.params["comment_id"]
    for issue in call.repo.issues.values():
        for made in issue.comments:
            if str(made.id) == text:
                return issue, made
    raise not_found()


def get_comment(call: Call) -> Any:
    """Answer a comment."""
    return Renderer(call).comment(call.repo, *_comment(call))


def edit_comment(call: Call) -> Any:
    """Change a comment."""
    issue, made = _comment(call)
    made.body = str(call.fields(("body",)).get("body", made.body))
    made.updated_at = call.now
    return Renderer(call).comment(call.repo, issue, made)


def delete_comment(call: Call) -> Any:
    """Delete a comment."""
    issue, made = _comment(call)
    issue.comments.remove(made)
    return Reply(204)


def list_labels_of(call: Call) -> Any:
    """Answer an issue's labels."""
    issue = call.issue()
    return Page(list(issue.labels), lambda name: Renderer(call).label(call.repo, call.hub.label(call.repo, name)))


def add_labels(call: Call) -> Any:
    """Add labels to an issue; answers all it then has."""
    issue = call.issue()
    body = call.body
    names = names_of(body.get("labels") if isinstance(body, dict) else body)
    conversation.add_labels(call.hub, call.repo, issue, names, actor=call.actor, via=call.kind)
    return Renderer(call).labels(call.repo, issue)


def replace_labels(call: Call, issue: Issue, names: list[str]) -> None:
    """Make an issue's labels exactly these."""
    wanted = {name.lower() for name in names}
    for name in [label for label in issue.labels if label.lower() not in wanted]:
        conversation.remove_label(call.hub, call.repo, issue, name, actor=call.actor, via=call.kind)
    conversation.add_labels(call.hub, call.repo, issue, names, actor=call.actor, via=call.kind)


def set_labels(call: Call) -> Any:
    """Answer PUT of an issue's labels."""
    issue = call.issue()
    body = call.body
    replace_labels(call, issue, names_of(body.get("labels") if isinstance(body, dict) else body))
    return Renderer(call).labels(call.repo, issue)


def clear_labels(call: Call) -> Any:
    """Answer DELETE of all of an issue's labels."""
    replace_labels(call, call.issue(), [])
    return Reply(204)


def remove_label(call: Call) -> Any:
    """Remove one label; answers what is left."""
    issue = call.issue()
    conversation.remove_label(call.hub, call.repo, issue, call.params["name"], actor=call.actor, via=call.kind)
    return Renderer(call).labels(call.repo, issue)


def list_labels(call: Call) -> Any:
    """Answer the repository's labels."""
    return Page(list(call.repo.labels.values()), lambda label: Renderer(call).label(call.repo, label))


def _label(call: Call) -> Any:
    wanted = call.params["name"].lower()
    found = next((label for name, label in call.repo.labels.items() if name.lower() == wanted), None)
    if found is None:
        raise not_found()
    return found


def get_label(call: Call) -> Any:
    """Answer a label of the repository."""
    return Renderer(call).label(call.repo, _label(call))


def create_label(call: Call) -> Any:
    """Add a label to the repository."""
    fields = call.fields(("name", "color", "description"))
    name = str(fields.get("name", ""))
    if not name:
        raise invalid("", resource="Label", field="name", code="missing_field")
    if any(known.lower() == name.lower() for known in call.repo.labels):
        raise invalid("", resource="Label", field="name", code="already_exists")
    label = call.hub.label(call.repo, name)
    label.color, label.description = str(fields.get("color") or "ededed"), fields.get("description")
    return Reply(201, Renderer(call).label(call.repo, label))


def edit_label(call: Call) -> Any:
    """Change a label of the repository."""
    fields = call.fields(("new_name", "color", "description"))
    label = _label(call)
    new = fields.get("new_name")
    if new and new != label.name:
        call.repo.labels[str(new)] = call.repo.labels.pop(label.name)
        for issue in call.repo.issues.values():
            issue.labels = [str(new) if name == label.name else name for name in issue.labels]
        label.name = str(new)
    label.color = str(fields.get("color") or label.color)
    label.description = fields.get("description", label.description)
    return Renderer(call).label(call.repo, label)


def delete_label(call: Call) -> Any:
    """Delete a label of the repository, from every issue too."""
    label = _label(call)
    del call.repo.labels[label.name]
    for issue in call.repo.issues.values():
        issue.labels = [name for name in issue.labels if name != label.name]
    return Reply(204)


def add_assignees(call: Call) -> Any:
    """Assign accounts; names that are no account's are ignored, as on GitHub."""
    issue = call.issue()
    for login in call.fields(("assignees",)).get("assignees") or []:
        account = call.state.account_of(login=str(login))
        if account is not None:
            conversation.assign(call.hub, issue, account.id, actor=call.actor)
    return Reply(201, Renderer(call).issue(call.repo, issue))


def get_timeline(call: Call) -> Any:
    """Answer an issue's timeline, oldest first."""
    return Page(timeline(call, call.issue()), lambda row: row())


def events(call: Call) -> Any:
    """Answer an issue's events: the timeline without comments, commits and reviews."""
    issue = call.issue()
    render = Renderer(call)
    return Page(issue.events, lambda event: event_row(call, render, event))


def add_routes(router: Router) -> None:
    """Add these routes to the table."""
    base = "/repos/{owner}/{repo}"

    def add(method: str, path: str, handler: Any) -> None:
        router.route(method, f"{base}/{path}", permission=EITHER)(handler)

    add("GET", "issues", list_issues)
    add("POST", "issues", create_issue)
    add("GET", "issues/{issue_number}", get_issue)
    add("PATCH", "issues/{issue_number}", edit_issue)
    add("GET", "issues/{issue_number}/comments", list_comments)
    add("POST", "issues/{issue_number}/comments", create_comment)
    add("GET", "issues/comments/{comment_id}", get_comment)
    add("PATCH", "issues/comments/{comment_id}", edit_comment)
    add("DELETE", "issues/comments/{comment_id}", delete_comment)
    add("GET", "issues/{issue_number}/labels", list_labels_of)
    add("POST", "issues/{issue_number}/labels", add_labels)
    add("PUT", "issues/{issue_number}/labels", set_labels)
    add("DELETE", "issues/{issue_number}/labels", clear_labels)
    add("DELETE", "issues/{issue_number}/labels/{name}", remove_label)
    add("POST", "issues/{issue_number}/assignees", add_assignees)
    add("GET", "issues/{issue_number}/timeline", get_timeline)
    add("GET", "issues/{issue_number}/events", events)
    add("GET", "labels", list_labels)
    add("POST", "labels", create_label)
    add("GET", "labels/{name}", get_label)
    add("PATCH", "labels/{name}", edit_label)
    add("DELETE", "labels/{name}", delete_label)
