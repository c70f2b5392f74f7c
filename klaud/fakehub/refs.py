"""What follows when a ref changes outside a push: rights, pull requests, workflows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klaud.fakehub.call import Problem
from klaud.fakehub.hub import RefChange

if TYPE_CHECKING:
    from klaud.fakehub.call import Call

WORKFLOWS = ".github/workflows"


def guard(call: Call, name: str, new: str | None) -> None:
    """Refuse what GitHub refuses: its own refs, and workflow files without the right to them."""
    if name.startswith("refs/pull/"):
        raise Problem(422, "Reference name is reserved")
    if new is None and name == f"refs/heads/{call.repo.default_branch}":
        raise Problem(422, "Cannot delete the default branch")
    if (
        new is None
        or call.token is None
        or call.token.allows("workflows", "write")
        or not name.startswith("refs/heads/")
    ):
        return
    known: frozenset[str] = frozenset()
    for oid in call.git.refs("refs/heads/").values():
        known |= call.git.ancestors(oid)
    for oid in call.git.ancestors(new) - known:
        info = call.git.commit(oid)
        if info is None:
            continue
        before = call.git.entry(info.parents[0], WORKFLOWS) if info.parents else None
        if call.git.entry(oid, WORKFLOWS) != before:
            whom = "personal access token" if call.kind == "pat" else "integration"
            raise Problem(403, f"Resource not accessible by {whom}")


def after_rest(call: Call, name: str, old: str | None, new: str | None) -> None:
    """Do what follows a ref's change by REST or GraphQL."""
    call.hub.pushed(call.repo, [RefChange(name, old, new, "ok")], call.account, call.kind)
