"""What people do in a scene, between two calls of a verb: each deed is carried out as GitHub would carry it out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klaud.fakehub import conversation
from klaud.fakehub.hub import EVERYTHING
from klaud.fakehub.scene_text import SceneError, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from klaud.fakehub.hub import Hub
    from klaud.fakehub.scene import Builder
    from klaud.fakehub.state import Issue, Repository, Run

Data = dict[str, Any]

MODIFIERS = ("by", "pull", "run", "files", "force", "committer")
"""Keys of a deed that say more about it and are none themselves."""


class Doing:
    """One deed in hand."""

    def __init__(self, hub: Hub, repository: Repository, spec: Data, path: str) -> None:
        """``path``: where in the scene it stands."""
        self.hub, self.repository, self.spec, self.path = hub, repository, spec, path
        account = hub.state.account_of(login=spec["by"]) if spec.get("by") else None
        self.actor = account.id if account else None

    def issue(self) -> Issue:
        """Return the pull request that it is about."""
        found = self.repository.issues.get(int(self.spec.get("pull", 0)))
        if found is None:
            raise SceneError(f"{self.path}.pull: there is no pull request {self.spec.get('pull')}")
        return found

    def run(self) -> Run:
        """Return the run that it is about."""
        found = self.repository.runs.get(int(self.spec.get("run", 0)))
        if found is None:
            raise SceneError(f"{self.path}.run: there is no run {self.spec.get('run')}")
        return found

    def push(self, branch: str) -> None:
        """Commit files on a branch, or in place of its last commit."""
        git = self.hub.git(self.repository.full_name)
        head = git.ref(f"refs/heads/{branch}")
        parent = None
        if self.spec.get("force") and head is not None:
            info = git.commit(head)
            parent = info.parents[0] if info and info.parents else None
        committer = self.spec.get("committer")
        oid = self.hub.commit(
            self.repository.full_name,
            None,
            self.spec.get("files") or {"touched.txt": f"{self.path}\n"},
            message="A person's change",
            author=self.actor,
            committer=None if committer is None else committer,
            parent=parent or head,
        )
        self.hub.push(self.repository.full_name, branch, oid, actor=self.actor)

    def permissions(self, changed: Mapping[str, str]) -> None:
        """Change what a person's tokens may do."""
        for token in self.hub.state.tokens.values():
            if token.account == self.actor:
                token.permissions = {
                    name: level for name, level in {**token.permissions, **changed}.items() if level != "none"
                }

    def delete_ref(self, ref: str) -> None:
        """Delete a ref, whatever it is."""
        if ref.startswith("refs/heads/"):
            self.hub.push(self.repository.full_name, ref.removeprefix("refs/heads/"), None, actor=self.actor)
        else:
            self.hub.git(self.repository.full_name).set_refs({ref: None})

    def dispatch(self, file: str) -> None:
        """Start a workflow by hand."""
        workflow = self.hub.actions.find(self.repository, file)
        if workflow is None:
            raise SceneError(f"{self.path}.dispatch: there is no workflow {file}")
        branch = self.repository.default_branch
        self.hub.actions.dispatch(self.repository, workflow, ref=branch, inputs={}, actor=self.actor)

    def table(self) -> dict[str, Callable[[Any], Any]]:
        """Return what each key does."""
        hub, repo, actor = self.hub, self.repository, self.actor
        return {
            "push": self.push,
            "delete-branch": lambda branch: hub.push(repo.full_name, branch, None, actor=actor),
            "delete-ref": self.delete_ref,
            "comment": lambda text: conversation.comment(hub, self.issue(), text, actor=actor),
            "label": lambda name: conversation.add_labels(hub, repo, self.issue(), [name], actor=actor),
            "unlabel": lambda name: conversation.remove_label(hub, repo, self.issue(), name, actor=actor),
            "rename": lambda title: conversation.edit(hub, repo, self.issue(), actor=actor, title=title),
            "edit": lambda body: conversation.edit(hub, repo, self.issue(), actor=actor, body=body),
            "assign": lambda login: conversation.assign(hub, self.issue(), hub.account(login).id, actor=actor),
            "review": lambda state: conversation.review(hub, self.issue(), state=state, body="", actor=actor),
            "close": lambda _: conversation.close(hub, repo, self.issue(), actor=actor),
            "reopen": lambda _: conversation.reopen(hub, repo, self.issue(), actor=actor),
            "ready": lambda _: conversation.set_draft(hub, repo, self.issue(), draft=False, actor=actor),
            "draft": lambda _: conversation.set_draft(hub, repo, self.issue(), draft=True, actor=actor),
            "merge": lambda _: conversation.merge(hub, repo, self.issue(), actor=actor),
            "rerun": lambda _: hub.actions.rerun(repo, self.run(), actor=actor),
            "cancel": lambda _: hub.actions.cancel(repo, self.run()),
            "finish": lambda word: hub.actions.set_status(repo, self.run(), "completed", word),
            "delete-run": lambda _: repo.runs.pop(self.run().id),
            "lose-runner": lambda _: hub.actions.runner.lose(self.run()),
            "dispatch": self.dispatch,
            "schedule": lambda file: hub.actions.fire_schedule(repo, file),
            "advance": hub.advance,
            "permissions": self.permissions,
        }


def check(builder: Builder, spec: Data, path: str) -> None:
    """Refuse a deed that does nothing, or several things, or by nobody who is known."""
    keys = [key for key in spec if key not in MODIFIERS]
    if len(keys) != 1:
        raise SceneError(f"{path}: exactly one deed is expected, found {', '.join(keys) or 'none'}")
    builder.who(spec.get("by"), f"{path}.by")
    known = set(builder.repository.issues)
    if "pull" in spec and int(spec["pull"]) not in known:
        raise SceneError(f"{path}.pull: there is no pull request {spec['pull']}{nearest(str(spec['pull']), known)}")
    if "run" in spec and int(spec["run"]) not in builder.repository.runs:
        raise SceneError(f"{path}.run: there is no run {spec['run']}")


def do(hub: Hub, repository: Repository, spec: Data, path: str) -> None:
    """Carry out one deed."""
    with hub.lock:
        table = Doing(hub, repository, spec, path).table()
        for key, value in spec.items():
            if key not in MODIFIERS:
                table[key](value)


__all__ = ["EVERYTHING", "check", "do"]
