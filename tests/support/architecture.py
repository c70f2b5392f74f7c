"""Check a source tree against the import table and the purity rule of docs/architecture.md.

The checker reads files as text (standard library ``ast``); nothing is imported. It is handed the root of a tree, so that
the tests can run it over trees with a seeded violation.
"""

from __future__ import annotations

import ast
import dataclasses
import fnmatch
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LAYERS: tuple[frozenset[str], ...] = (
    frozenset({"cli"}),
    frozenset({"config"}),
    frozenset({"planner"}),
    frozenset({"recovery", "encoder", "review"}),
    frozenset({"session"}),
    frozenset({"leases", "baselines", "reports"}),
    frozenset({"feeds", "github"}),
    frozenset({"records"}),
    frozenset({"names", "yaml12"}),
    frozenset({"errors", "clock"}),
)
"""Each line may use the lines below it, never up, never sideways."""

APART = frozenset({"fakehub"})
"""Imports nothing of klaud; started by the demo and the scene runner only."""

MAY_START_FAKEHUB = ("klaud/cli/demo*.py", "klaud/cli/scene*.py", "klaud/cli/init*.py", "klaud/cli/doctor*.py")

LIBRARY_HOMES: dict[str, tuple[str, ...]] = {
    "github": ("klaud/github/*",),
    "dulwich": ("klaud/github/*", "klaud/fakehub/*"),
    "yaml": ("klaud/yaml12.py", "klaud/session/work.py", "klaud/fakehub/*"),
    "requests": ("klaud/github/*", "klaud/records/*", "klaud/feeds.py"),
    "urllib3": ("klaud/github/*", "klaud/records/*", "klaud/feeds.py"),
    "tenacity": ("klaud/github/*", "klaud/records/*", "klaud/feeds.py"),
    "claude_agent_sdk": ("klaud/session/*",),
    "slayer": ("klaud/encoder/*",),
    "motley_slayer": ("klaud/encoder/*",),
    "werkzeug": ("klaud/fakehub/*",),
    "graphql": ("klaud/fakehub/*",),
    "typer": ("klaud/cli/*",),
    "click": ("klaud/cli/*",),
    "rich": ("klaud/cli/*",),
}
"""Which files may import a third-party library."""

PURE_FILES = (
    "klaud/errors.py",
    "klaud/names.py",
    "klaud/*/model.py",
    "klaud/*/settings.py",
    "klaud/*/codec.py",
    "klaud/*/decide.py",
    "klaud/*/decide_*.py",
    "klaud/*/rules_*.py",
    "klaud/*/render.py",
    "klaud/github/decode*.py",
    "klaud/baselines/answers.py",
    "klaud/baselines/commands.py",
    "klaud/baselines/identity.py",
    "klaud/baselines/lookup.py",
    "klaud/baselines/nearest.py",
    "klaud/baselines/reasons.py",
    "klaud/baselines/schema.py",
    "klaud/records/address.py",
    "klaud/records/anthropic.py",
    "klaud/records/call.py",
    "klaud/records/errors.py",
    "klaud/records/framer.py",
    "klaud/records/limits.py",
    "klaud/records/openai.py",
    "klaud/records/values.py",
    "klaud/review/prompt.py",
    "klaud/encoder/documents.py",
    "klaud/encoder/naming.py",
)
"""Files that do no I/O and read neither the clock, the environment nor chance (glob patterns)."""

PURE_IMPORTS = frozenset(
    {
        "__future__", "ast", "base64", "binascii", "bisect", "collections", "contextlib", "copy", "dataclasses", "datetime",
        "decimal", "difflib", "enum", "fnmatch", "functools", "hashlib", "heapq", "hmac", "html", "ipaddress", "itertools",
        "json", "marshal", "math", "operator", "posixpath", "re", "statistics", "string", "textwrap", "types", "typing",
        "unicodedata", "urllib.parse",
        "msgspec", "jiter", "graphlib", "cronsim",
    }
)  # fmt: skip

IMPURE_CALLS = frozenset({"open", "print", "input", "exec", "eval", "breakpoint"})
IMPURE_ATTRIBUTES = frozenset(
    {"now", "utcnow", "today", "urandom", "environ", "getenv", "uuid4", "token_hex", "read_text", "write_text"}
)


@dataclasses.dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule: which file, which line, and what is wrong."""

    path: str
    line: int
    what: str


@dataclasses.dataclass(frozen=True, slots=True)
class Import:
    """One imported module by its full name; ``typing_only`` where it stands below ``if TYPE_CHECKING``."""

    module: str
    line: int
    typing_only: bool


def check(root: Path) -> list[Violation]:
    """Return every violation in ``root/klaud``."""
    found: list[Violation] = []
    for path in sorted((root / "klaud").rglob("*.py")):
        name = path.relative_to(root).as_posix()
        tree = ast.parse(path.read_text(encoding="utf-8"), filename=name)
        found.extend(_check_file(root, name, tree))
    return found


def is_pure(name: str) -> bool:
    """Tell whether the file of that name must be pure."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in PURE_FILES) and not name.startswith("klaud/fakehub/")


def _check_file(root: Path, name: str, tree: ast.Module) -> Iterator[Violation]:
    imports = list(_imports(root, name, tree))
    yield from _check_layers(name, imports)
    yield from _check_libraries(name, imports)
    if is_pure(name):
        yield from _check_purity(name, tree, imports)


def _imports(root: Path, name: str, tree: ast.Module) -> Iterator[Import]:
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    package = name.rsplit("/", 1)[0].split("/")
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno, id(node) in typing_only)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = package[: len(package) - node.level + 1]
                base = ".".join([*parts, *([base] if base else [])])
            for alias in node.names:
                full = f"{base}.{alias.name}"
                yield Import(full if _is_module(root, full) else base, node.lineno, id(node) in typing_only)


def _is_module(root: Path, full: str) -> bool:
    place = root.joinpath(*full.split("."))
    return place.with_suffix(".py").is_file() or place.is_dir()


def _unit(module: str) -> str | None:
    """Return the unit of the table that a klaud module belongs to, None outside of klaud, "" for klaud itself."""
    parts = module.split(".")
    if parts[0] != "klaud":
        return None
    return parts[1] if len(parts) > 1 else ""


def _rank(unit: str) -> int | None:
    return next((rank for rank, units in enumerate(LAYERS) if unit in units), None)


def _check_layers(name: str, imports: list[Import]) -> Iterator[Violation]:
    here = name.split("/")[1].removesuffix(".py")
    for imported in imports:
        unit = _unit(imported.module)
        if not unit or unit == here or (here == "__main__" and unit == "cli"):
            continue
        if here in APART:
            yield Violation(name, imported.line, f"{here} stands apart and imports {imported.module}")
        elif unit in APART:
            if not any(fnmatch.fnmatchcase(name, pattern) for pattern in MAY_START_FAKEHUB):
                yield Violation(name, imported.line, f"{name} may not start {unit}")
        else:
            mine, theirs = _rank(here), _rank(unit)
            if theirs is None or (mine is None and here != "__init__"):
                yield Violation(
                    name, imported.line, f"{unit if theirs is None else here} has no line in the import table"
                )
            elif mine is None or mine >= theirs:
                yield Violation(name, imported.line, f"{here} may not import {unit}: not below it in the import table")


def _check_libraries(name: str, imports: list[Import]) -> Iterator[Violation]:
    for imported in imports:
        library = imported.module.split(".")[0]
        homes = LIBRARY_HOMES.get(library)
        if homes and not any(fnmatch.fnmatchcase(name, home) for home in homes):
            yield Violation(name, imported.line, f"{library} may be imported in {', '.join(homes)} only")


def _check_purity(name: str, tree: ast.Module, imports: list[Import]) -> Iterator[Violation]:
    for imported in imports:
        if imported.typing_only:
            continue
        if imported.module.startswith("klaud"):
            target = imported.module.replace(".", "/") + ".py"
            if not is_pure(target) and imported.module != "klaud":
                yield Violation(name, imported.line, f"a pure file imports {imported.module}, which is not pure")
        elif imported.module not in PURE_IMPORTS and imported.module.split(".")[0] not in PURE_IMPORTS:
            yield Violation(name, imported.line, f"a pure file imports {imported.module}")
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in IMPURE_CALLS:
            yield Violation(name, node.lineno, f"a pure file calls {node.func.id}()")
        elif (
            isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in IMPURE_ATTRIBUTES
        ):
            yield Violation(name, node.lineno, f"a pure file calls {ast.unparse(node.func)}()")
