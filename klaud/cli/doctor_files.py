"""What ``klaud doctor`` reads in a clone: klaud's own workflow files, and which of the others klaud would start.

``standing`` and ``started`` yield checks; ``starts`` reads a workflow's triggers as GitHub does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klaud import errors
from klaud.cli import doctor

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from klaud.planner.preflight import Check


def standing(root: Path) -> Iterable[Check]:
    """Hold the clone's workflow files to what klaud init writes."""
    from klaud.cli import init

    for name in init.WORKFLOWS:
        path = root / init.FOLDER / name
        if not path.is_file():
            yield doctor.wrong(
                "files", f"{init.FOLDER}/{name} is not in the clone", "run klaud init and commit what it writes"
            )
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        if "pull_request_target" in text and "actions/checkout" in text:
            fix = "take the checkout out: it would put a pull request's code beside klaud's token"
            yield doctor.wrong("files", f"{name} checks out on pull_request_target", fix, stops=True)
        elif "environment: klaud" not in text:
            fix = "run klaud init --diff and take its jobs' environment over: secrets belong to a main-only environment"
            yield doctor.wrong("files", f"{name} has no environment: klaud", fix)
        else:
            yield doctor.ok("files", f"{name} stands")


def started(root: Path) -> Iterable[Check]:
    """Name the repository's own workflows that a branch, a draft or a label of klaud's would start."""
    from klaud import yaml12
    from klaud.cli import init

    found: dict[str, list[str]] = {}
    for path in sorted((root / init.FOLDER).glob("*.y*ml")):
        if path.name in init.WORKFLOWS or not path.is_file():
            continue
        try:
            data = yaml12.load(path.read_bytes(), where=path.name, limit=init.FILE_BYTES)
        except errors.InputError as error:
            yield doctor.wrong(
                "workflows", f"{path.name} cannot be read: {error}", "correct the file", result="unknown"
            )
            continue
        on = data.get("on") if isinstance(data, dict) else None
        triggers = {on: None} if isinstance(on, str) else dict.fromkeys(on) if isinstance(on, list) else on or {}
        for what in starts(triggers if isinstance(triggers, dict) else {}):
            found.setdefault(what, []).append(path.name)
    for what, files in found.items():
        yield doctor.ok("workflows", f"{what} of klaud's starts {', '.join(files)}")
    pushed = found.get("a push", [])
    if pushed:
        fix = "give their push trigger branches: [main], or branches-ignore: ['klaud/**']"
        yield doctor.wrong("workflows", f"every push of klaud's work would start {', '.join(pushed)}", fix)


def starts(triggers: dict[str, Any]) -> list[str]:
    """Return what of klaud's starts a workflow with these triggers: a push, a draft, a label."""
    from klaud.planner import tree

    found = []
    branch = "klaud/auto-0000000000000000-0000000000000000"

    def lets(filters: Any) -> bool:
        if not isinstance(filters, dict):
            return True
        wanted, ignored = _list(filters.get("branches")), _list(filters.get("branches-ignore"))
        if not wanted and ("tags" in filters or "tags-ignore" in filters) and "branches-ignore" not in filters:
            return False
        taken = not wanted or any(tree.glob(one).fullmatch(branch) for one in wanted if not one.startswith("!"))
        return taken and not any(tree.glob(one).fullmatch(branch) for one in ignored)

    if "push" in triggers and lets(triggers["push"]):
        found.append("a push")
    for name in ("pull_request", "pull_request_target"):
        if name in triggers:
            body = triggers[name]
            types = _list(body.get("types")) if isinstance(body, dict) else []
            if not types or {"opened", "synchronize", "reopened"} & set(types):
                found.append("a draft")
            if "labeled" in types:
                found.append("a label")
    return list(dict.fromkeys(found))


def _list(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else [str(one) for one in value] if isinstance(value, list) else []
