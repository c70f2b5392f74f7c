"""Change one thing at a time in a pure file of rules and see whether the tests notice: a small mutation tool.

Usage: python tools/mutate.py [--tests FOLDER] [--limit N] FILE...
Without files: recovery's rules, against tests/recovery. Each mutant is compiled in a fresh process (forked once per
mutant, so that imports are paid once), the tests run there until the first failure, and the mutant counts as killed when
they fail.
Survivors are printed with their line. Exit status 1 below 95 % killed.

Mutations: comparisons turned round, ``and``/``or`` swapped, ``not`` dropped, numbers moved by one, booleans flipped, words
changed, conditions made true or false, one returned value replaced by None, one statement dropped.
"""

from __future__ import annotations

import argparse
import ast
import copy
import functools
import io
import os
import signal
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

RULES = (
    "klaud/recovery/decide.py",
    "klaud/recovery/decide_cases.py",
    "klaud/recovery/decide_facts.py",
    "klaud/recovery/decide_leaks.py",
    "klaud/recovery/decide_plan.py",
    "klaud/recovery/rules_liveness.py",
    "klaud/recovery/rules_touch.py",
)
ENOUGH = 0.95
"""Share of mutants that must be killed."""
SECONDS = 60
"""A mutant that hangs the tests for longer counts as killed."""

COMPARE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip


class Mutant:
    """One changed tree, with where and how."""

    def __init__(self, tree: ast.Module, line: int, what: str) -> None:
        """Keep the tree; ``what`` is the change in words."""
        self.tree = tree
        self.line = line
        self.what = what


def mutants(source: str) -> Iterator[Mutant]:
    """Yield every mutant of a module."""
    tree = ast.parse(source)
    code = _code(tree)
    for position, node in enumerate(ast.walk(tree)):
        if id(node) not in code:
            continue
        for kind in range(len(list(_changes(node)))):
            changed = copy.deepcopy(tree)
            twin = list(ast.walk(changed))[position]
            what = list(_changes(twin))[kind]()
            yield Mutant(ast.fix_missing_locations(changed), getattr(node, "lineno", 0), what)


def _code(tree: ast.Module) -> set[int]:
    """Return the nodes inside functions' statements: no annotation, no docstring, no constant of the module."""
    found: set[int] = set()
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            body = [s for s in function.body if not _is_docstring(s)]
            found |= {id(inner) for statement in body for inner in _without_annotations(statement)}
    return found


def _without_annotations(statement: ast.stmt) -> Iterator[ast.AST]:
    skip: set[int] = set()
    for node in ast.walk(statement):
        if isinstance(node, ast.AnnAssign):
            skip |= {id(n) for n in ast.walk(node.annotation)}
        if (
            isinstance(node, ast.Subscript)
            and isinstance(node.value, ast.Name)
            and node.value.id in {"frozenset", "set"}
        ):
            skip |= {id(n) for n in ast.walk(node)}
        if isinstance(node, ast.arguments):
            skip |= {id(n) for a in node.args if a.annotation for n in ast.walk(a.annotation)}
        if id(node) not in skip:
            yield node


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _changes(node: ast.AST) -> Iterator[Callable[[], str]]:
    """Yield, for a node, functions that each change it in place and say how."""
    match node:
        case ast.Compare(ops=[op]) if type(op) in COMPARE:
            yield lambda: _set(node, "ops", [COMPARE[type(op)]()], f"{type(op).__name__} turned round")
        case ast.BoolOp(op=ast.And()):
            yield lambda: _set(node, "op", ast.Or(), "and became or")
            for index in range(len(node.values)):
                yield functools.partial(_drop_value, node, index)
        case ast.BoolOp(op=ast.Or()):
            yield lambda: _set(node, "op", ast.And(), "or became and")
            for index in range(len(node.values)):
                yield functools.partial(_drop_value, node, index)
        case ast.UnaryOp(op=ast.Not()):
            yield lambda: _drop_not(node)
        case ast.If() | ast.IfExp():
            yield lambda: _set(node, "test", ast.Constant(True), "condition always true")  # noqa: FBT003 - a node's value
            yield lambda: _set(node, "test", ast.Constant(False), "condition always false")  # noqa: FBT003 - a node's value
        case ast.Constant(value=bool() as value):
            yield lambda: _set(node, "value", not value, f"{value} flipped")
        case ast.Constant(value=int() as number):
            yield lambda: _set(node, "value", int(number) + 1, f"{number} became {int(number) + 1}")
        case ast.Return(value=ast.expr() as value) if not (isinstance(value, ast.Constant) and value.value is None):
            yield lambda: _set(node, "value", ast.Constant(None), "returns None")
        case _:
            return


def _set(node: ast.AST, field: str, value: object, what: str) -> str:
    setattr(node, field, value)
    return what


def _drop_value(node: ast.BoolOp, index: int) -> str:
    word = ast.unparse(node.values[index])[:50]
    del node.values[index]
    if len(node.values) == 1:
        node.values.append(copy.deepcopy(node.values[0]))
    return f"operand dropped: {word}"


def _drop_not(node: ast.UnaryOp) -> str:
    node.op = ast.Not()
    node.operand = ast.UnaryOp(ast.Not(), node.operand)
    return "not dropped"


def killed(path: Path, mutant: Mutant, tests: str) -> bool:
    """Run the tests in a child process with the mutant in place of the module."""
    child = os.fork()
    if child == 0:
        os._exit(_child(path, mutant, tests))
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status != 0
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return True


def _child(path: Path, mutant: Mutant, tests: str) -> int:
    import pytest  # noqa: PLC0415 - imported before the fork by main

    name = path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
    module = sys.modules[name]
    try:
        exec(compile(mutant.tree, str(path), "exec"), module.__dict__)  # noqa: S102 - the mutant itself
    except Exception:  # noqa: BLE001 - a mutant that cannot even be loaded is noticed
        return 1
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        return int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "--no-header", *tests.split()]))


DEFAULT_TESTS = (
    "tests/recovery/test_rules.py tests/recovery/test_table.py tests/recovery/test_oddities.py "
    "tests/recovery/test_refusal.py tests/recovery/test_forerunner.py"
)
"""The quick tests that judge rules."""


def main() -> int:
    """Mutate, run, print; 1 where too few are killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", default=list(RULES))
    parser.add_argument("--tests", default=DEFAULT_TESTS)
    parser.add_argument("--limit", type=int, default=0, help="at most that many mutants a file, evenly spread")
    options = parser.parse_args()
    import importlib  # noqa: PLC0415 - only here

    import pytest  # noqa: PLC0415 - paid once, before the forks

    del pytest
    total = dead = 0
    for file in options.files:
        path = ROOT / file
        name = file.removesuffix(".py").replace("/", ".")
        importlib.import_module(name)
        for test in options.tests.split():
            importlib.import_module(test.removesuffix(".py").replace("/", "."))
        found = list(mutants(path.read_text(encoding="utf-8")))
        step = max(1, len(found) // options.limit) if options.limit else 1
        survivors = []
        chosen = found[::step]
        for mutant in chosen:
            if killed(path, mutant, options.tests):
                dead += 1
            else:
                survivors.append(mutant)
        total += len(chosen)
        print(f"{file}: {len(chosen) - len(survivors)} of {len(chosen)} killed", flush=True)
        for mutant in survivors:
            print(f"    line {mutant.line}: {mutant.what}", flush=True)
    share = dead / total if total else 1.0
    print(f"{dead} of {total} mutants killed: {share:.1%}")
    return 0 if share >= ENOUGH else 1


if __name__ == "__main__":
    sys.exit(main())
