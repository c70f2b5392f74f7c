"""What happens to issues and pull requests, whoever asks: REST, GraphQL, a push, a scene, a test.

Each function changes the state, writes the timeline event that GitHub would write, and starts the workflows that GitHub
would start. ``via`` is the kind of token that acted: what a job's own ``github_token`` does starts no workflow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klaud.fakehub.call import Problem, invalid
from klaud.fakehub.state import Comment, Event, Issue, PullPart, Review

if TYPE_CHECKING:
    from klaud.fakehub.hub import Hub
    from klaud.fakehub.state import Repository

TITLE_LIMIT = 256
"""Characters of a title, as on GitHub."""

BODY_LIMIT = 65536
"""Characters of a body or comment, as on GitHub."""


def add_event(hub: Hub, issue: Issue, kind: str, actor: int | None, **data: Any) -> Event:
    """Append to the timeline."""
    now = hub.clock.now()
    event = Event(hub.state.next_id("event", 800001), kind, actor, now, data)
    issue.events.append(event)
    issue.updated_at = max(issue.updated_at, now)
    return event


def new_issue(hub: Hub, repository: Repository, *, title: str, body: str, user: int | None) -> Issue:
    """Give an issue its number and keep it."""
    now = hub.clock.now()
    number = repository.next_number
    repository.next_number += 1
    issue = Issue(number, hub.state.next_id("issue", 3001), title, body, user, now, now)
    repository.issues[number] = issue
    return issue


def check_text(resource: str, *, title: str | None, body: str | None) -> None:
    """Refuse a title or body that GitHub refuses."""
    if title is not None and not title.strip():
        raise invalid("", resource=resource, field="title", code="missing_field")
    if title is not None and len(title) > TITLE_LIMIT:
        raise invalid(
            f"title is too long (maximum is {TITLE_LIMIT} characters)", resource=resource, field="title", code="custom"
        )
    if body is not None and len(body) > BODY_LIMIT:
        raise invalid(
            f"body is too long (maximum is {BODY_LIMIT} characters)", resource=resource, field="body", code="custom"
        )


def open_pull_of(repository: Repository, head_ref: str, where: str | None, base: str | None = None) -> Issue | None:
    """Return the open pull request of exactly this head (and base), or None."""
    for issue in repository.issues.values():
        part = issue.pull
        if part is None or issue.state != "open" or part.head_ref != head_ref or part.head_repository != where:
            continue
        if base is None or part.base_ref == base:
            return issue
    return None


def create_pull(
    hub: Hub,
    repository: Repository,
    *,
    head: str,
    base: str,
    title: str,
    body: str,
    draft: bool,
    actor: int | None,
    via: str = "pat",
) -> Issue:
    """Open a pull request as ``POST /pulls`` does."""
    git = hub.git(repository.full_name)
    owner, colon, ref = head.partition(":")
    if not colon:
        owner, ref = repository.owner, head
    check_text("PullRequest", title=title, body=body)
    head_oid = git.ref(f"refs/heads/{ref}") if owner.lower() == repository.owner.lower() else None
    base_oid = git.ref(f"refs/heads/{base}")
    if head_oid is None:
        raise invalid("", resource="PullRequest", field="head", code="invalid")
    if base_oid is None:
        raise invalid("", resource="PullRequest", field="base", code="invalid")
    if not git.between(base_oid, head_oid):
        raise invalid(f"No commits between {base} and {ref}", resource="PullRequest", code="custom")
    if open_pull_of(repository, ref, repository.full_name, base) is not None:
        raise invalid(f"A pull request already exists for {owner}:{ref}.", resource="PullRequest", code="custom")
    if draft and not repository.drafts:
        raise Problem(422, "Draft pull requests are not supported in this repository.")
    issue = new_issue(hub, repository, title=title, body=body, user=actor)
    issue.pull = PullPart(ref, head_oid, repository.full_name, base, base_oid, draft)
    git.set_refs({f"refs/pull/{issue.number}/head": head_oid})
    hub.fire_pull(repository, issue, "opened", actor, via)
    return issue


def edit(
    hub: Hub,
    repository: Repository,
    issue: Issue,
    *,
    actor: int | None,
    title: str | None = None,
    body: str | None = None,
    via: str = "pat",
) -> None:
    """Change title or body."""
    check_text("PullRequest" if issue.pull else "Issue", title=title, body=body)
    changed = False
    if title is not None and title != issue.title:
        add_event(hub, issue, "renamed", actor, rename={"from": issue.title, "to": title})
        issue.title = title
        changed = True
    if body is not None and body != issue.body:
        issue.body = body
        issue.edited_at, issue.editor = hub.clock.now(), actor
        changed = True
    if changed:
        issue.updated_at = hub.clock.now()
        hub.fire_pull(repository, issue, "edited", actor, via)


def close(hub: Hub, repository: Repository, issue: Issue, *, actor: int | None, via: str = "pat") -> None:
    """Close; closing what is closed changes nothing."""
    if issue.state == "closed":
        return
    issue.state = "closed"
    issue.closed_at, issue.closed_by = hub.clock.now(), actor
    add_event(hub, issue, "closed", actor)
    hub.fire_pull(repository, issue, "closed", actor, via)


def reopen(hub: Hub, repository: Repository, issue: Issue, *, actor: int | None, via: str = "pat") -> None:
    """Reopen; a pull request only when it is unmerged and its branch stands at (or grew from) the closed head."""
    if issue.state == "open":
        return
    part = issue.pull
    if part is not None:
        field = {"resource": "PullRequest", "field": "state", "code": "invalid"}
        if part.merged_at is not None:
            raise invalid("state cannot be changed. The pull request was merged.", **field)
        git = hub.git(repository.full_name)
        if part.head_repository == repository.full_name:
            at = git.ref(f"refs/heads/{part.head_ref}")
            if at is None:
                raise invalid(f"state cannot be changed. The {part.head_ref} branch has been deleted.", **field)
            if at != part.head_oid and (part.head_recreated or not git.is_ancestor(part.head_oid, at)):
                message = f"state cannot be changed. The {part.head_ref} branch was force-pushed or recreated."
                raise invalid(message, **field)
            if open_pull_of(repository, part.head_ref, part.head_repository, part.base_ref) is not None:
                message = f"state cannot be changed. There is already an open pull request from {part.head_ref}."
                raise invalid(message, **field)
            part.head_oid = at
            part.base_oid = git.ref(f"refs/heads/{part.base_ref}") or part.base_oid
            git.set_refs({f"refs/pull/{issue.number}/head": at})
    issue.state = "open"
    issue.closed_at = issue.closed_by = None
    add_event(hub, issue, "reopened", actor)
    hub.fire_pull(repository, issue, "reopened", actor, via)


def add_labels(
    hub: Hub, repository: Repository, issue: Issue, names: list[str], *, actor: int | None, via: str = "pat"
) -> None:
    """Add labels, making those that the repository has not; a label that is there already changes nothing."""
    for name in names:
        known = next((label for label in repository.labels if label.lower() == name.lower()), name)
        label = hub.label(repository, known)
        if label.name in issue.labels:
            continue
        issue.labels.append(label.name)
        add_event(hub, issue, "labeled", actor, label={"name": label.name, "color": label.color})
        hub.fire_pull(repository, issue, "labeled", actor, via, label=label.name)


def remove_label(
    hub: Hub, repository: Repository, issue: Issue, name: str, *, actor: int | None, via: str = "pat"
) -> None:
    """Remove a label; GitHub's 404 where the issue has it not."""
    found = next((label for label in issue.labels if label.lower() == name.lower()), None)
    if found is None:
        raise Problem(404, "Label does not exist")
    issue.labels.remove(found)
    add_event(hub, issue, "unlabeled", actor, label={"name": found, "color": hub.label(repository, found).color})
    hub.fire_pull(repository, issue, "unlabeled", actor, via, label=found)


def comment(hub: Hub, issue: Issue, body: str, *, actor: int | None) -> Comment:
    """Comment."""
    if not body.strip():
        raise invalid("Body cannot be blank", resource="IssueComment", field="body", code="missing_field")
    check_text("IssueComment", title=None, body=body)
    now = hub.clock.now()
    made = Comment(hub.state.next_id("comment", 600001), actor, body, now, now)
    issue.comments.append(made)
    issue.updated_at = now
    return made


def review(hub: Hub, issue: Issue, *, state: str, body: str, actor: int | None) -> Review:
    """Review a pull request."""
    part = issue.pull
    if part is None:
        raise Problem(404, "Not Found")
    made = Review(hub.state.next_id("review", 700001), actor, state, body, hub.clock.now(), part.head_oid)
    part.reviews.append(made)
    issue.updated_at = made.submitted_at
    return made


def assign(hub: Hub, issue: Issue, account: int, *, actor: int | None) -> None:
    """Assign an account; one that is assigned already changes nothing."""
    if account not in issue.assignees:
        issue.assignees.append(account)
        add_event(hub, issue, "assigned", actor, assignee=account)


def set_draft(
    hub: Hub, repository: Repository, issue: Issue, *, draft: bool, actor: int | None, via: str = "pat"
) -> None:
    """Turn a pull request into a draft, or into one that is ready for review."""
    part = issue.pull
    if part is None or part.draft == draft:
        return
    if draft and not repository.drafts:
        raise Problem(422, "Draft pull requests are not supported in this repository.")
    part.draft = draft
    add_event(hub, issue, "convert_to_draft" if draft else "ready_for_review", actor)
    hub.fire_pull(repository, issue, "converted_to_draft" if draft else "ready_for_review", actor, via)


def merge(hub: Hub, repository: Repository, issue: Issue, *, actor: int | None, via: str = "pat") -> str:
    """Merge a pull request by a merge commit and return its oid."""
    part = issue.pull
    if part is None or issue.state != "open":
        raise Problem(405, "Pull Request is not mergeable")
    if part.draft:
        raise Problem(405, "Pull Request is still a draft")
    if part.mergeable == "CONFLICTING":
        raise Problem(405, "Pull Request is not mergeable")
    git = hub.git(repository.full_name)
    base = git.ref(f"refs/heads/{part.base_ref}")
    head = git.commit(part.head_oid)
    if base is None or head is None:
        raise Problem(409, "Base branch was modified. Review and try the merge again.")
    by = hub.person(actor)
    message = f"Merge pull request #{issue.number} from {part.head_ref}\n\n{issue.title}"
    oid = git.write_commit(tree=head.tree, parents=[base, part.head_oid], message=message, author=by)
    git.set_refs({f"refs/heads/{part.base_ref}": oid})
    now = hub.clock.now()
    part.merged_at, part.merged_by, part.merge_oid = now, actor, oid
    issue.state, issue.closed_at, issue.closed_by = "closed", now, actor
    add_event(hub, issue, "merged", actor, commit_id=oid)
    add_event(hub, issue, "closed", actor)
    hub.fire_pull(repository, issue, "closed", actor, via)
    return oid


def base_moved(hub: Hub, repository: Repository, branch: str, new: str, *, actor: int | None) -> None:
    """Mark as merged the open pull requests whose head has come into their base by a push."""
    git = hub.git(repository.full_name)
    for issue in list(repository.issues.values()):
        part = issue.pull
        if part is None or issue.state != "open" or part.base_ref != branch or not git.is_ancestor(part.head_oid, new):
            continue
        now = hub.clock.now()
        part.merged_at, part.merged_by, part.merge_oid = now, actor, new
        issue.state, issue.closed_at, issue.closed_by = "closed", now, actor
        add_event(hub, issue, "merged", actor, commit_id=new)
        add_event(hub, issue, "closed", actor)


def head_moved(
    hub: Hub,
    repository: Repository,
    branch: str,
    old: str | None,
    new: str | None,
    *,
    actor: int | None,
    via: str = "pat",
) -> None:
    """Tell the pull requests of a branch that it moved, came or went."""
    git = hub.git(repository.full_name)
    for issue in list(repository.issues.values()):
        part = issue.pull
        if part is None or part.head_repository != repository.full_name or part.head_ref != branch:
            continue
        if new is None:
            if part.merged_at is None or issue.state == "closed":
                add_event(hub, issue, "head_ref_deleted", actor)
            close(hub, repository, issue, actor=actor, via=via)
        elif issue.state == "closed":
            if old is None:
                part.head_recreated = new != part.head_oid
                add_event(hub, issue, "head_ref_restored", actor)
        else:
            if old is not None and not git.is_ancestor(part.head_oid, new):
                add_event(hub, issue, "head_ref_force_pushed", actor, before=part.head_oid, commit_id=new)
            part.head_oid = new
            part.base_oid = git.ref(f"refs/heads/{part.base_ref}") or part.base_oid
            issue.updated_at = hub.clock.now()
            git.set_refs({f"refs/pull/{issue.number}/head": new})
            hub.fire_pull(repository, issue, "synchronize", actor, via, before=old, after=new)
