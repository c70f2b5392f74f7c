"""May this change be pushed? The edit scope, compared as data. Pure.

The default scope is *values*: named key paths in named YAML or JSON files. Files are compared as parsed data, by every
reading that the target's own tools may take (YAML 1.2 and 1.1 read ``010`` differently), and a change is in scope only
when it is in every reading. Comments and layout are free.

Never in scope, whatever the configuration says: ``.github/``, CODEOWNERS, git's own control files, symbolic links and
submodules. A family's file may be changed below the family's own key only: the claim covers one family.
"""

from __future__ import annotations

import functools
import posixpath
import re
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from klaud import names
from klaud.session import model

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MODE_FILE, MODE_EXECUTABLE, MODE_LINK, MODE_MODULE = "100644", "100755", "120000", "160000"

DIFFERENCES = 20
"""Changed key paths outside of the scope that a refusal names."""

_NEVER_NAMES = frozenset({"codeowners", ".gitmodules", ".gitattributes", ".gitignore", ".mailmap", ".lfsconfig"})
_RUN_NAMES = re.compile(
    r"(?i)(?:.*makefile.*|.*dockerfile.*|containerfile.*|docker-compose.*|compose\.ya?ml|jenkinsfile.*|justfile|rakefile"
    r"|gemfile.*|package(?:-lock)?\.json|pyproject\.toml|setup\.(?:py|cfg)|tox\.ini|conftest\.py|requirements.*\.txt"
    r"|cmakelists\.txt|configure.*|build(?:\.bazel)?|workspace(?:\.bazel)?|cargo\.(?:toml|lock)|go\.(?:mod|sum)"
    r"|.*\.(?:sh|bash|zsh|fish|ksh|py|pyi|pyx|pth|ipynb|js|mjs|cjs|ts|jsx|tsx|rb|pl|pm|php|lua|tcl|r|jl|ps1|psm1|bat|cmd|com"
    r"|exe|dll|so|dylib|a|o|bin|jar|class|war|wasm|mk|make|cmake|gradle|kts|groovy|bazel|bzl|nix|ninja|awk|sed|c|cc|cpp"
    r"|cxx|h|hh|hpp|cu|cuh|go|rs|java|kt|swift|zig|s|asm|slurm|sbatch|service|desktop|j2|jinja2?|tmpl|template))"
)
_KIND = re.compile(r"\.(?:ya?ml|json)$", re.IGNORECASE)


class Parsed(msgspec.Struct, frozen=True):
    """A file's content as data, in one or more readings (each an equal right to be the one that the target takes)."""

    readings: tuple[Any, ...]


class Opaque(msgspec.Struct, frozen=True):
    """A file that is not data; ``why`` in klaud's words. ``script``: it begins with ``#!`` or is not text."""

    why: str = ""
    script: bool = False


Content: TypeAlias = Parsed | Opaque | None
"""None: the file does not exist on that side."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One file that differs between base and work. Modes are git's, empty where the file does not exist."""

    path: str
    old_mode: str = ""
    new_mode: str = ""
    before: Content = None
    after: Content = None


class InScope(msgspec.Struct, frozen=True):
    """The change may be pushed; ``executable``: a person must approve before anything is dispatched on it."""

    executable: bool = False


def wants_content(path: str) -> bool:
    """Tell whether a file of that name is compared as data."""
    return _KIND.search(path) is not None


def check(changes: Sequence[Change], scope: model.EditScope, family: str) -> InScope | model.Refusal:
    """Return whether ``changes`` are in ``scope`` for ``family`` (``<file>:<key>``), or the refusal that says why not."""
    executable = False
    problems: list[str] = []
    for change in changes:
        answer = _check_one(change, scope, family)
        if isinstance(answer, _Problem):
            problems.append(f"{change.path}: {answer.why}")
        else:
            executable |= answer == "executable"
    if problems:
        shown = "; ".join(problems[:DIFFERENCES])
        more = f" (and {len(problems) - DIFFERENCES} more)" if len(problems) > DIFFERENCES else ""
        return model.Refusal(
            code="outside-scope",
            text=f"the change goes beyond what may be changed here: {shown}{more}. Undo that part, commit, push again.",
        )
    return InScope(executable)


class _Problem(msgspec.Struct, frozen=True):
    """Why a change is out of scope."""

    why: str


def _check_one(change: Change, scope: model.EditScope, family: str) -> Literal["", "executable"] | _Problem:
    path = change.path
    if never(path):
        return _Problem("this file is never changed by klaud")
    for mode in (change.old_mode, change.new_mode):
        if mode not in {"", MODE_FILE, MODE_EXECUTABLE}:
            return _Problem("a symbolic link or a submodule")
    listed = any(matches(glob, path) for glob in scope.files)
    if listed:
        run = _is_executable(change)
        if run and not scope.allow_executable:
            return _Problem("it is executable, and the configuration does not allow that")
        return "executable" if run else ""
    scopes = [one for one in scope.values if any(matches(glob, path) for glob in one.files)]
    if not scopes:
        return _Problem("not among the files that may be changed")
    if change.old_mode != change.new_mode:
        return _Problem("values may be changed, but the file may not be added, removed or made executable")
    keys = tuple(key for one in scopes for key in one.keys)
    return _check_values(change, keys, family)


def _check_values(change: Change, keys: Sequence[str], family: str) -> Literal["", "executable"] | _Problem:
    for side, content in (("before", change.before), ("now", change.after)):
        if not isinstance(content, Parsed):
            why = content.why if isinstance(content, Opaque) else "it does not exist"
            return _Problem(f"it cannot be compared as data ({side}: {why})")
    before, after = change.before, change.after
    if not isinstance(before, Parsed) or not isinstance(after, Parsed) or len(before.readings) != len(after.readings):
        return _Problem("it cannot be compared as data")
    file, key = names.split_family(family)
    for old, new in zip(before.readings, after.readings, strict=True):
        outside = []
        for place, what in differences(old, new):
            shown = ".".join(place) or "the whole file"
            if change.path == file and place[:1] != (key,):
                outside.append(f"{shown} is not of this family")
            elif what == "removed":
                outside.append(f"{shown} was removed")
            elif not any(_path_matches(pattern, place) for pattern in keys):
                outside.append(f"{shown} may not be changed")
        if outside:
            return _Problem(", ".join(outside[:DIFFERENCES]))
    return ""


def never(path: str) -> bool:
    """Tell whether ``path`` is never changed, whatever the scope says."""
    parts = path.casefold().split("/")
    return (
        parts[0] in {".github", ".git", ".gitlab", ".circleci", ".gitea", ".forgejo"}
        or any(part in {"", ".", "..", ".git"} for part in parts)
        or parts[-1] in _NEVER_NAMES
        or any(not char.isprintable() for char in path)
    )


def _is_executable(change: Change) -> bool:
    name = posixpath.basename(change.path)
    scripts = any(isinstance(side, Opaque) and side.script for side in (change.before, change.after))
    return MODE_EXECUTABLE in {change.old_mode, change.new_mode} or scripts or _RUN_NAMES.fullmatch(name) is not None


def differences(old: Any, new: Any) -> Iterator[tuple[tuple[str, ...], Literal["changed", "added", "removed"]]]:
    """Yield the key paths in which two values differ: mappings are entered, everything else is compared whole.

    ``1``, ``1.0`` and ``true`` are three values.
    """
    stack: list[tuple[tuple[str, ...], Any, Any]] = [((), old, new)]
    while stack:
        place, one, other = stack.pop()
        if isinstance(one, dict) and isinstance(other, dict):
            for key in sorted({*one, *other}, key=repr):
                inner = (*place, key if isinstance(key, str) else repr(key))
                if key not in other:
                    yield inner, "removed"
                elif key not in one:
                    yield inner, "added"
                else:
                    stack.append((inner, one[key], other[key]))
        elif not same(one, other):
            yield place, "changed"


def same(one: Any, other: Any) -> bool:
    """Tell whether two values are the same, type included, at every level."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        pairs = zip(one.items(), other.items(), strict=False)
        return len(one) == len(other) and all(same(a, c) and same(b, d) for (a, b), (c, d) in pairs)
    if isinstance(one, list):
        return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other, strict=True))
    return bool(one == other)


def _path_matches(pattern: str, place: tuple[str, ...]) -> bool:
    """Tell whether a key path is the pattern, or lies below what the pattern names."""
    parts = pattern.split(".")
    if len(place) < len(parts):
        return False
    return all(part in {"*", key} for part, key in zip(parts, place, strict=False))


def matches(glob: str, path: str) -> bool:
    """Tell whether ``path`` is matched whole: ``*`` and ``?`` do not cross ``/``, ``**`` does."""
    return _regex(glob).fullmatch(path) is not None


@functools.lru_cache(maxsize=1024)
def _regex(glob: str) -> re.Pattern[str]:
    out, at = [], 0
    while at < len(glob):
        if glob.startswith("**/", at):
            out.append("(?:.*/)?")
            at += 3
        elif glob.startswith("**", at):
            out.append(".*")
            at += 2
        else:
            char = glob[at]
            out.append({"*": "[^/]*", "?": "[^/]"}.get(char, re.escape(char)))
            at += 1
    return re.compile("".join(out), re.DOTALL)
