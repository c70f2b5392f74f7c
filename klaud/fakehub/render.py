"""The JSON of GitHub's REST objects, with every member that its OpenAPI description requires."""

from __future__ import annotations

import urllib.parse
from typing import TYPE_CHECKING, Any

from klaud.fakehub.clock import stamp
from klaud.fakehub.render_base import Conversations, node_id, number_of_node, verification

if TYPE_CHECKING:
    from klaud.fakehub.git import CommitInfo, Person
    from klaud.fakehub.state import (
        Artifact,
        Attempt,
        Job,
        Repository,
        Run,
        Workflow,
    )


class Renderer(Conversations):
    """Renders everything for one call: here what is of git and of Actions."""

    # -- git

    def person(self, person: Person) -> dict[str, Any]:
        """Render an author or committer as git knows him."""
        return {"name": person.name, "email": person.email, "date": stamp(person.date)}

    def commit(self, repository: Repository, info: CommitInfo) -> dict[str, Any]:
        """Render a commit with its accounts."""
        url = self.url(repository, "commits", info.oid)
        author = self._state.account_of(email=info.author.email)
        committer = self._state.account_of(email=info.committer.email)
        return {
            "sha": info.oid,
            "node_id": node_id("C", info.oid),
            "url": url,
            "html_url": self.html(repository, "commit", info.oid),
            "comments_url": f"{url}/comments",
            "commit": {
                "author": self.person(info.author),
                "committer": self.person(info.committer),
                "message": info.message.rstrip("\n"),
                "tree": {"sha": info.tree, "url": self.url(repository, "git", "trees", info.tree)},
                "url": self.url(repository, "git", "commits", info.oid),
                "comment_count": 0,
                "verification": verification(),
            },
            "author": self.account(author) if author else None,
            "committer": self.account(committer) if committer else None,
            "parents": [
                {
                    "sha": parent,
                    "url": self.url(repository, "commits", parent),
                    "html_url": self.html(repository, "commit", parent),
                }
                for parent in info.parents
            ],
        }

    def git_commit(self, repository: Repository, info: CommitInfo) -> dict[str, Any]:
        """Render a commit object."""
        return {
            "sha": info.oid,
            "node_id": node_id("C", info.oid),
            "url": self.url(repository, "git", "commits", info.oid),
            "html_url": self.html(repository, "commit", info.oid),
            "author": self.person(info.author),
            "committer": self.person(info.committer),
            "tree": {"sha": info.tree, "url": self.url(repository, "git", "trees", info.tree)},
            "message": info.message.rstrip("\n"),
            "parents": [
                {
                    "sha": parent,
                    "url": self.url(repository, "git", "commits", parent),
                    "html_url": self.html(repository, "commit", parent),
                }
                for parent in info.parents
            ],
            "verification": verification(),
        }

    def ref(self, repository: Repository, name: str, oid: str) -> dict[str, Any]:
        """Render a ref."""
        kind = self._call.hub.git(repository.full_name).kind(oid) or "commit"
        path = "/".join(urllib.parse.quote(part, safe="") for part in name.split("/")[1:])
        return {
            "ref": name,
            "node_id": node_id("REF", f"{repository.full_name}:{name}"),
            "url": f"{self.url(repository, 'git', 'refs')}/{path}",
            "object": {"sha": oid, "type": kind, "url": self.url(repository, "git", f"{kind}s", oid)},
        }

    # -- actions

    def workflow(self, repository: Repository, workflow: Workflow) -> dict[str, Any]:
        """Render a workflow."""
        file = workflow.path.rpartition("/")[2]
        created = stamp(workflow.created_at or repository.created_at)
        return {
            "id": workflow.id,
            "node_id": node_id("W", workflow.id),
            "name": workflow.name,
            "path": workflow.path,
            "state": workflow.state,
            "created_at": created,
            "updated_at": created,
            "url": self.url(repository, "actions", "workflows", workflow.id),
            "html_url": self.html(repository, "blob", repository.default_branch, workflow.path),
            "badge_url": self.html(repository, "workflows", file, "badge.svg"),
        }

    def run(self, repository: Repository, run: Run, attempt: Attempt | None = None) -> dict[str, Any]:
        """Render a run's newest attempt, or the one given."""
        shown = attempt or run.last
        url = self.url(repository, "actions", "runs", run.id)
        git = self._call.hub.git(repository.full_name)
        info = git.commit(run.head_oid)
        suite = run.id + 1_000_000
        head_commit = (
            None
            if info is None
            else {
                "id": info.oid,
                "tree_id": info.tree,
                "message": info.message.rstrip("\n"),
                "timestamp": stamp(info.committer.date),
                "author": {"name": info.author.name, "email": info.author.email},
                "committer": {"name": info.committer.name, "email": info.committer.email},
            }
        )
        small = self.minimal_repository(repository)
        pulls = []
        for number in run.pulls:
            issue = repository.issues.get(number)
            if issue is not None and issue.pull is not None:
                side = {"id": repository.id, "url": self.url(repository), "name": repository.name}
                pulls.append({
                    "id": issue.id, "number": number, "url": self.url(repository, "pulls", number),
                    "head": {"ref": issue.pull.head_ref, "sha": issue.pull.head_oid, "repo": side},
                    "base": {"ref": issue.pull.base_ref, "sha": issue.pull.base_oid, "repo": side},
                })  # fmt: skip
        return {
            "id": run.id,
            "name": run.name,
            "node_id": node_id("WFR", run.id),
            "head_branch": run.head_branch,
            "head_sha": run.head_oid,
            "path": run.path,
            "display_title": run.display_title,
            "run_number": run.number,
            "event": run.event,
            "status": shown.status,
            "conclusion": shown.conclusion,
            "workflow_id": run.workflow_id,
            "check_suite_id": suite,
            "check_suite_node_id": node_id("CS", suite),
            "url": url,
            "html_url": self.html(repository, "actions", "runs", run.id),
            "pull_requests": pulls,
            "created_at": stamp(run.created_at),
            "updated_at": stamp(shown.updated_at),
            "actor": self.user(run.actor),
            "triggering_actor": self.user(shown.triggering_actor),
            "run_attempt": shown.number,
            "referenced_workflows": [],
            "run_started_at": stamp(shown.started_at),
            "jobs_url": f"{url}/jobs",
            "logs_url": f"{url}/logs",
            "check_suite_url": self.url(repository, "check-suites", suite),
            "artifacts_url": f"{url}/artifacts",
            "cancel_url": f"{url}/cancel",
            "rerun_url": f"{url}/rerun",
            "previous_attempt_url": f"{url}/attempts/{shown.number - 1}" if shown.number > 1 else None,
            "workflow_url": self.url(repository, "actions", "workflows", run.workflow_id),
            "head_commit": head_commit,
            "repository": small,
            "head_repository": small,
        }

    def job(self, repository: Repository, run: Run, job: Job) -> dict[str, Any]:
        """Render a job."""
        started = job.started_at or job.created_at or run.created_at
        return {
            "id": job.id,
            "run_id": run.id,
            "run_url": self.url(repository, "actions", "runs", run.id),
            "run_attempt": job.attempt,
            "node_id": node_id("CR", job.id),
            "head_sha": run.head_oid,
            "head_branch": run.head_branch,
            "workflow_name": run.name,
            "url": self.url(repository, "actions", "jobs", job.id),
            "html_url": self.html(repository, "actions", "runs", run.id, "job", job.id),
            "status": job.status,
            "conclusion": job.conclusion,
            "created_at": stamp(job.created_at or run.created_at),
            "started_at": stamp(started),
            "completed_at": stamp(job.completed_at),
            "name": job.name,
            "steps": [],
            "check_run_url": self.url(repository, "check-runs", job.id),
            "labels": ["ubuntu-latest"],
            "runner_id": None if job.status == "queued" else 1,
            "runner_name": None if job.status == "queued" else "hub",
            "runner_group_id": None if job.status == "queued" else 1,
            "runner_group_name": None if job.status == "queued" else "hub",
        }

    def artifact(self, repository: Repository, run: Run, artifact: Artifact) -> dict[str, Any]:
        """Render an artifact."""
        url = self.url(repository, "actions", "artifacts", artifact.id)
        return {
            "id": artifact.id,
            "node_id": node_id("AR", artifact.id),
            "name": artifact.name,
            "size_in_bytes": artifact.size,
            "url": url,
            "archive_download_url": f"{url}/zip",
            "expired": artifact.expired or artifact.expires_at <= self._call.now,
            "digest": artifact.digest,
            "created_at": stamp(artifact.created_at),
            "updated_at": stamp(artifact.created_at),
            "expires_at": stamp(artifact.expires_at),
            "workflow_run": {
                "id": run.id,
                "repository_id": repository.id,
                "head_repository_id": repository.id,
                "head_branch": run.head_branch,
                "head_sha": run.head_oid,
            },
        }


__all__ = ["Renderer", "node_id", "number_of_node"]
