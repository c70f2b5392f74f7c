"""The JSON of accounts, repositories, issues and pull requests, with all that GitHub's description requires."""

from __future__ import annotations

import base64
import urllib.parse
from typing import TYPE_CHECKING, Any

from klaud.fakehub.clock import stamp
from klaud.fakehub.state import RANKS

if TYPE_CHECKING:
    from klaud.fakehub.call import Call
    from klaud.fakehub.git import FileChange
    from klaud.fakehub.state import (
        Account,
        Comment,
        Issue,
        Label,
        Repository,
        Review,
    )

ASSOCIATIONS = {"none": "NONE", "read": "COLLABORATOR", "triage": "COLLABORATOR"}


def node_id(kind: str, number: object) -> str:
    """Return a made-up global id; it is opaque to clients and names the object for the hub."""
    return kind + "_" + base64.urlsafe_b64encode(str(number).encode()).decode().rstrip("=")


def number_of_node(kind: str, text: str) -> str | None:
    """Return what ``node_id`` was given, or None for another kind of id."""
    prefix, _, rest = text.partition("_")
    if prefix != kind:
        return None
    try:
        return base64.urlsafe_b64decode(rest + "=" * (-len(rest) % 4)).decode()
    except ValueError:
        return None


class Conversations:
    """Renders accounts, repositories and conversations for one call (its base address, its state)."""

    def __init__(self, call: Call) -> None:
        """Render what ``call`` sees."""
        self._call = call
        self._state = call.state
        self._base = call.base_url

    def url(self, repository: Repository, *rest: object) -> str:
        """Return an API address below the repository; each part is one path segment."""
        parts = [urllib.parse.quote(str(part), safe="") for part in rest]
        return "/".join([f"{self._base}/repos/{repository.full_name}", *parts])

    def html(self, repository: Repository, *rest: object) -> str:
        """Return the address that a browser would use."""
        return "/".join([f"{self._base}/{repository.full_name}", *[str(part) for part in rest]])

    # -- accounts and repositories

    def user(self, account_id: int | None) -> dict[str, Any] | None:
        """Render an account, None for a deleted one."""
        account = self._state.account(account_id)
        return None if account is None else self.account(account)

    def account(self, account: Account) -> dict[str, Any]:
        """Render an account in its short form."""
        url = f"{self._base}/users/{urllib.parse.quote(account.login)}"
        return {
            "login": account.login,
            "id": account.id,
            "node_id": node_id("BOT" if account.type == "Bot" else "U", account.id),
            "avatar_url": f"{self._base}/avatars/u/{account.id}",
            "gravatar_id": "",
            "url": url,
            "html_url": f"{self._base}/{urllib.parse.quote(account.login)}",
            "followers_url": f"{url}/followers",
            "following_url": f"{url}/following{{/other_user}}",
            "gists_url": f"{url}/gists{{/gist_id}}",
            "starred_url": f"{url}/starred{{/owner}}{{/repo}}",
            "subscriptions_url": f"{url}/subscriptions",
            "organizations_url": f"{url}/orgs",
            "repos_url": f"{url}/repos",
            "events_url": f"{url}/events{{/privacy}}",
            "received_events_url": f"{url}/received_events",
            "type": account.type,
            "user_view_type": "public",
            "site_admin": False,
        }

    def full_account(self, account: Account) -> dict[str, Any]:
        """Render an account as ``GET /users/{login}`` does."""
        created = stamp(self._call.now.replace(year=2020, month=1, day=1))
        return self.account(account) | {
            "name": account.name,
            "company": None,
            "blog": "",
            "location": None,
            "email": None,
            "hireable": None,
            "bio": None,
            "twitter_username": None,
            "public_repos": 0,
            "public_gists": 0,
            "followers": 0,
            "following": 0,
            "created_at": created,
            "updated_at": created,
        }

    def permissions(self, repository: Repository) -> dict[str, bool]:
        """Return what the call's token may do, in the words of the repository object."""
        token = self._call.token
        if token is None:
            return {name: name == "pull" for name in ("admin", "maintain", "push", "triage", "pull")}
        account = self._state.account(token.account)
        rank = RANKS.get(account.role, 0) if account else 0
        return (
            {
                "admin": rank >= RANKS["admin"],
                "maintain": rank >= RANKS["maintain"],
                "push": token.allows("contents", "write"),
                "triage": token.allows("issues", "write") or token.allows("pull_requests", "write"),
                "pull": True,
            }
            if not repository.private or token.allows("metadata", "read")
            else {}
        )

    def minimal_repository(self, repository: Repository) -> dict[str, Any]:
        """Render a repository as other objects carry it."""
        url = self.url(repository)
        owner = self._state.account_of(login=repository.owner)
        templated = {
            "archive_url": "{archive_format}{/ref}", "assignees_url": "assignees{/user}", "blobs_url": "git/blobs{/sha}",
            "branches_url": "branches{/branch}", "collaborators_url": "collaborators{/collaborator}",
            "comments_url": "comments{/number}", "commits_url": "commits{/sha}",
            "compare_url": "compare/{base}...{head}", "contents_url": "contents/{+path}",
            "contributors_url": "contributors", "deployments_url": "deployments", "downloads_url": "downloads",
            "events_url": "events", "forks_url": "forks", "git_commits_url": "git/commits{/sha}",
            "git_refs_url": "git/refs{/sha}", "git_tags_url": "git/tags{/sha}", "hooks_url": "hooks",
            "issue_comment_url": "issues/comments{/number}", "issue_events_url": "issues/events{/number}",
            "issues_url": "issues{/number}", "keys_url": "keys{/key_id}", "labels_url": "labels{/name}",
            "languages_url": "languages", "merges_url": "merges", "milestones_url": "milestones{/number}",
            "notifications_url": "notifications{?since,all,participating}", "pulls_url": "pulls{/number}",
            "releases_url": "releases{/id}", "stargazers_url": "stargazers", "statuses_url": "statuses/{sha}",
            "subscribers_url": "subscribers", "subscription_url": "subscription", "tags_url": "tags",
            "teams_url": "teams", "trees_url": "git/trees{/sha}",
        }  # fmt: skip
        return {
            "id": repository.id,
            "node_id": node_id("R", repository.id),
            "name": repository.name,
            "full_name": repository.full_name,
            "private": repository.private,
            "owner": self.account(owner) if owner else None,
            "html_url": self.html(repository),
            "description": None,
            "fork": False,
            "url": url,
            **{key: f"{url}/{rest}" for key, rest in templated.items()},
        }

    def repository(self, repository: Repository) -> dict[str, Any]:
        """Render a repository in full (once a call: every row of a listing of pull requests carries it twice)."""
        key = f"repository {repository.id}"
        if key not in self._call.cache:
            self._call.cache[key] = self._repository(repository)
        made: dict[str, Any] = self._call.cache[key]
        return made

    def _repository(self, repository: Repository) -> dict[str, Any]:
        open_issues = sum(1 for issue in repository.issues.values() if issue.state == "open")
        created = stamp(repository.created_at)
        clone = f"{self._base}/{repository.full_name}.git"
        return self.minimal_repository(repository) | {
            "clone_url": clone,
            "git_url": clone,
            "ssh_url": f"git@127.0.0.1:{repository.full_name}.git",
            "svn_url": self.html(repository),
            "mirror_url": None,
            "homepage": None,
            "language": None,
            "license": None,
            "forks": 0,
            "forks_count": 0,
            "stargazers_count": 0,
            "watchers": 0,
            "watchers_count": 0,
            "network_count": 0,
            "subscribers_count": 0,
            "size": 1,
            "default_branch": repository.default_branch,
            "open_issues": open_issues,
            "open_issues_count": open_issues,
            "has_issues": True,
            "has_projects": False,
            "has_wiki": False,
            "has_pages": False,
            "has_downloads": True,
            "has_discussions": False,
            "archived": False,
            "disabled": False,
            "visibility": "private" if repository.private else "public",
            "pushed_at": created,
            "created_at": created,
            "updated_at": created,
            "permissions": self.permissions(repository),
        }

    # -- conversations

    def label(self, repository: Repository, label: Label) -> dict[str, Any]:
        """Render a label."""
        return {
            "id": label.id,
            "node_id": node_id("LA", label.id),
            "url": self.url(repository, "labels", label.name),
            "name": label.name,
            "color": label.color,
            "default": False,
            "description": label.description,
        }

    def labels(self, repository: Repository, issue: Issue) -> list[dict[str, Any]]:
        """Render the labels of an issue."""
        return [self.label(repository, self._call.hub.label(repository, name)) for name in issue.labels]

    def association(self, account_id: int | None) -> str:
        """Return GitHub's word for what an account is to the repository."""
        account = self._state.account(account_id)
        role = account.role if account else "none"
        return ASSOCIATIONS.get(role, "MEMBER")

    def issue(self, repository: Repository, issue: Issue) -> dict[str, Any]:
        """Render an issue or the issue side of a pull request."""
        url = self.url(repository, "issues", issue.number)
        assignees = [self.user(account) for account in issue.assignees]
        body: dict[str, Any] = {
            "id": issue.id,
            "node_id": node_id("PR" if issue.pull else "I", f"{repository.full_name}#{issue.number}"),
            "url": url,
            "repository_url": self.url(repository),
            "labels_url": f"{url}/labels{{/name}}",
            "comments_url": f"{url}/comments",
            "events_url": f"{url}/events",
            "html_url": self.html(repository, "pull" if issue.pull else "issues", issue.number),
            "number": issue.number,
            "state": issue.state,
            "state_reason": None,
            "title": issue.title,
            "body": issue.body,
            "user": self.user(issue.user),
            "labels": self.labels(repository, issue),
            "assignee": assignees[0] if assignees else None,
            "assignees": assignees,
            "milestone": None,
            "locked": issue.locked,
            "active_lock_reason": None,
            "comments": len(issue.comments),
            "closed_at": stamp(issue.closed_at),
            "closed_by": self.user(issue.closed_by),
            "created_at": stamp(issue.created_at),
            "updated_at": stamp(issue.updated_at),
            "author_association": self.association(issue.user),
        }
        if issue.pull:
            api = self.url(repository, "pulls", issue.number)
            html = self.html(repository, "pull", issue.number)
            body["draft"] = issue.pull.draft
            body["pull_request"] = {
                "url": api,
                "html_url": html,
                "diff_url": f"{html}.diff",
                "patch_url": f"{html}.patch",
                "merged_at": stamp(issue.pull.merged_at),
            }
        return body

    def comment(self, repository: Repository, issue: Issue, comment: Comment) -> dict[str, Any]:
        """Render a comment."""
        return {
            "id": comment.id,
            "node_id": node_id("IC", comment.id),
            "url": self.url(repository, "issues", "comments", comment.id),
            "html_url": self.html(
                repository, "pull" if issue.pull else "issues", f"{issue.number}#issuecomment-{comment.id}"
            ),
            "issue_url": self.url(repository, "issues", issue.number),
            "body": comment.body,
            "user": self.user(comment.user),
            "created_at": stamp(comment.created_at),
            "updated_at": stamp(comment.updated_at),
            "author_association": self.association(comment.user),
        }

    def review(self, repository: Repository, issue: Issue, review: Review) -> dict[str, Any]:
        """Render a review."""
        html = self.html(repository, "pull", f"{issue.number}#pullrequestreview-{review.id}")
        pull = self.url(repository, "pulls", issue.number)
        return {
            "id": review.id,
            "node_id": node_id("PRR", review.id),
            "user": self.user(review.user),
            "body": review.body,
            "state": review.state,
            "html_url": html,
            "pull_request_url": pull,
            "author_association": self.association(review.user),
            "_links": {"html": {"href": html}, "pull_request": {"href": pull}},
            "submitted_at": stamp(review.submitted_at),
            "commit_id": review.commit_id,
        }

    # -- pull requests

    def _side(self, repository: Repository, ref: str, oid: str, where: str | None) -> dict[str, Any]:
        owner = (where or repository.full_name).partition("/")[0]
        account = self._state.account_of(login=owner)
        full: dict[str, Any] | None = None
        if where == repository.full_name:
            full = self.repository(repository)
        elif where is not None:
            full = self.repository(repository) | {
                "full_name": where, "name": where.partition("/")[2], "fork": True, "id": repository.id + 100000,
                "owner": self.account(account) if account else full_owner(self.repository(repository)),
            }  # fmt: skip
        return {
            "label": f"{owner}:{ref}",
            "ref": ref,
            "sha": oid,
            "user": self.account(account) if account else None,
            "repo": full,
        }

    def simple_pull(self, repository: Repository, issue: Issue) -> dict[str, Any]:
        """Render a pull request as listings carry it."""
        part = issue.pull
        if part is None:
            message = f"#{issue.number} is no pull request"
            raise TypeError(message)
        url = self.url(repository, "pulls", issue.number)
        html = self.html(repository, "pull", issue.number)
        issue_url = self.url(repository, "issues", issue.number)
        statuses = self.url(repository, "statuses", part.head_oid)
        assignees = [self.user(account) for account in issue.assignees]
        links = {
            "self": url, "html": html, "issue": issue_url, "comments": f"{issue_url}/comments",
            "review_comments": f"{url}/comments", "review_comment": f"{self.url(repository)}/pulls/comments{{/number}}",
            "commits": f"{url}/commits", "statuses": statuses,
        }  # fmt: skip
        return {
            "id": issue.id,
            "node_id": node_id("PR", f"{repository.full_name}#{issue.number}"),
            "url": url,
            "html_url": html,
            "diff_url": f"{html}.diff",
            "patch_url": f"{html}.patch",
            "issue_url": issue_url,
            "commits_url": f"{url}/commits",
            "review_comments_url": links["review_comments"],
            "review_comment_url": links["review_comment"],
            "comments_url": links["comments"],
            "statuses_url": statuses,
            "number": issue.number,
            "state": issue.state,
            "locked": issue.locked,
            "title": issue.title,
            "user": self.user(issue.user),
            "body": issue.body,
            "labels": self.labels(repository, issue),
            "milestone": None,
            "active_lock_reason": None,
            "created_at": stamp(issue.created_at),
            "updated_at": stamp(issue.updated_at),
            "closed_at": stamp(issue.closed_at),
            "merged_at": stamp(part.merged_at),
            "merge_commit_sha": part.merge_oid,
            "assignee": assignees[0] if assignees else None,
            "assignees": assignees,
            "requested_reviewers": [],
            "requested_teams": [],
            "head": self._side(repository, part.head_ref, part.head_oid, part.head_repository),
            "base": self._side(repository, part.base_ref, part.base_oid, repository.full_name),
            "_links": {name: {"href": href} for name, href in links.items()},
            "author_association": self.association(issue.user),
            "auto_merge": None,
            "draft": part.draft,
        }

    def pull(self, repository: Repository, issue: Issue) -> dict[str, Any]:
        """Render a pull request in full."""
        part = issue.pull
        body = self.simple_pull(repository, issue)
        if part is None:
            return body
        git = self._call.hub.git(repository.full_name)
        commits = git.between(part.base_oid, part.head_oid)
        changes = git.changes(git.merge_base(part.base_oid, part.head_oid), part.head_oid) if commits else []
        merged = part.merged_at is not None
        mergeable = {"MERGEABLE": True, "CONFLICTING": False}.get(part.mergeable)
        return body | {
            "merged": merged,
            "mergeable": None if merged or issue.state == "closed" else mergeable,
            "rebaseable": None,
            "mergeable_state": {True: "clean", False: "dirty", None: "unknown"}[mergeable],
            "merged_by": self.user(part.merged_by),
            "comments": len(issue.comments),
            "review_comments": 0,
            "maintainer_can_modify": False,
            "commits": len(commits) if part.commits_told is None else part.commits_told,
            "additions": sum(change.additions for change in changes),
            "deletions": sum(change.deletions for change in changes),
            "changed_files": len(changes),
        }

    def file(self, repository: Repository, oid: str, change: FileChange) -> dict[str, Any]:
        """Render one file of a diff."""
        body = {
            "sha": change.blob,
            "filename": change.path,
            "status": change.status,
            "additions": change.additions,
            "deletions": change.deletions,
            "changes": change.additions + change.deletions,
            "blob_url": self.html(repository, "blob", oid, change.path),
            "raw_url": self.html(repository, "raw", oid, change.path),
            "contents_url": f"{self.url(repository, 'contents')}/{urllib.parse.quote(change.path)}?ref={oid}",
        }
        if change.previous is not None:
            body["previous_filename"] = change.previous
        return body


def full_owner(repository: dict[str, Any]) -> Any:
    """Return the owner of a rendered repository."""
    return repository["owner"]


def verification() -> dict[str, Any]:
    """Render the signature check of an unsigned commit."""
    return {"verified": False, "reason": "unsigned", "signature": None, "payload": None, "verified_at": None}
