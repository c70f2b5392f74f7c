"""Which of a repository's rules refuse what klaud does with its branches: make, push to, delete, with unsigned commits."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

REFUSING = {
    "creation": "klaud's branches cannot be made",
    "update": "klaud's work cannot be pushed",
    "deletion": "klaud's branches cannot be deleted after a clean-up",
    "required_signatures": "klaud's commits are not signed",
    "pull_request": "klaud's work cannot be pushed without a pull request into its own branch",
    "required_status_checks": "klaud's work cannot be pushed before its checks have passed",
    "required_deployments": "klaud's work cannot be pushed before it is deployed",
    "merge_queue": "klaud's work cannot be pushed past the merge queue",
    "workflows": "klaud's work cannot be pushed before a workflow has passed",
    "code_scanning": "klaud's work cannot be pushed before it is scanned",
}
"""Rules that refuse whatever klaud does of that kind, and what follows."""

EXCLUDE = "exclude klaud/** from it, or let the bot bypass it"

HARMLESS = frozenset({"non_fast_forward", "required_linear_history", "copilot_code_review", "tag_name_pattern"})
"""klaud's pushes go forward, without merge commits; reviews of others refuse no push."""

PATTERNS = {"branch_name_pattern": "name", "commit_author_email_pattern": "email", "committer_email_pattern": "email"}
"""Rules that look at a text that klaud knows beforehand, and at which."""

PUSH = frozenset({"file_path_restriction", "max_file_path_length", "file_extension_restriction", "max_file_size"})
"""Rules about files: they refuse some pushes and not others."""


class Refusal(msgspec.Struct, frozen=True):
    """What a rule does to klaud. ``certain``: it refuses; else it may. ``stops``: no wave could end well while it holds."""

    what: str
    fix: str
    certain: bool = True
    stops: bool = False


def refusal(kind: str, parameters: Mapping[str, Any], *, branch: str, email: str) -> Refusal | None:
    """Return what a rule of this type does to klaud, None where nothing. ``email``: the author of klaud's commits."""
    if kind in HARMLESS:
        return None
    if kind in REFUSING:
        return Refusal(REFUSING[kind], EXCLUDE, stops=kind != "deletion")
    if kind in PATTERNS:
        text = branch if PATTERNS[kind] == "name" else email
        match matched(parameters, text):
            case True:
                return None
            case False:
                return Refusal(f"{text} does not fit {pattern(parameters)}", EXCLUDE, stops=True)
        return Refusal(
            f"whether {text} fits {pattern(parameters)} cannot be told", "try it with a branch", certain=False
        )
    if kind in PUSH:
        return Refusal("it refuses some files", "see that it lets through what the edit scope names", certain=False)
    if kind == "commit_message_pattern":
        return Refusal(f"it wants commit messages like {pattern(parameters)}", EXCLUDE, certain=False)
    return Refusal("this klaud does not know this kind of rule", "see that it lets klaud/** through", certain=False)


def matched(parameters: Mapping[str, Any], text: str) -> Literal[True, False] | None:
    """Tell whether a pattern rule lets a text pass; None where that cannot be told."""
    wanted = str(parameters.get("pattern", ""))
    match parameters.get("operator"):
        case "starts_with":
            found = text.startswith(wanted)
        case "ends_with":
            found = text.endswith(wanted)
        case "contains":
            found = wanted in text
        case "regex":
            if not re.fullmatch(r"[\w^$./@+*\\-]{1,100}", wanted) or re.search(r"[+*].*[+*]", wanted):
                return None  # another dialect, or one that may take for ever
            try:
                found = re.search(wanted, text) is not None
            except re.error:
                return None
        case _:
            return None
    return found != bool(parameters.get("negate", False))


def pattern(parameters: Mapping[str, Any]) -> str:
    """Return a pattern in words."""
    not_ = "not " if parameters.get("negate") else ""
    return f"{not_}{parameters.get('operator')} {str(parameters.get('pattern'))[:100]!r}"
