"""Change one thing at a time in a pure file of rules and see whether the tests notice: a small mutation tool.

Usage: python tools/mutate.py [--tests FILES] [--limit N] [--seed S] [--jobs J] FILE...
Without files: recovery's rules, against recovery's quick tests. Exit status 1 below 95 % killed.

pytest collects once. Every test runs once unchanged while the lines of the mutated files are recorded; then each mutant is
put in place in a forked process (the code of the one function that it changes is exchanged, nothing else), and only the
tests that reach its line run there, quickest first, until one fails. A mutant that no test reaches has survived; one that
hangs counts as killed. ``--limit`` draws so many mutants a file by ``--seed``.

Mutations: comparisons turned round, ``and``/``or`` swapped, operands and ``not`` dropped, numbers moved by one, booleans
flipped, conditions made true or false, one returned value replaced by None. Left out, since no behaviour is in them:
docstrings, annotations, constants outside of functions, and the texts of messages (nothing decides by a text).
"""

from __future__ import annotations

import argparse
import ast
import collections
import copy
import dataclasses
import functools
import importlib
import io
import os
import random
import signal
import sys
import threading
import time
import types
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pytest

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
    "klaud/leases/rules_touch.py",
)
ENOUGH = 0.95
"""Share of mutants that must be killed."""
SECONDS = 60
"""A mutant that hangs the tests for longer counts as killed."""
JOBS = 2
"""Mutants tried at the same time."""

COMPARE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Mutant:
    """One change: where (file, the function around it, its lines), which (node and kind), and how, in words."""

    path: Path
    function: str
    first: int
    last: int
    line: int
    what: str
    position: int
    kind: int

    def tree(self) -> ast.Module:
        """Return the module with the change in it."""
        tree = ast.parse(self.path.read_text(encoding="utf-8"))
        list(_changes(list(ast.walk(tree))[self.position]))[self.kind]()
        return ast.fix_missing_locations(tree)


def mutants(path: Path) -> Iterator[Mutant]:
    """Yield every mutant of a module."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    code = _code(tree)
    owners = _owners(tree)
    for position, node in enumerate(ast.walk(tree)):
        if id(node) not in code or id(node) not in owners:
            continue
        for kind in range(len(list(_changes(node)))):
            what = list(_changes(copy.deepcopy(node)))[kind]()
            line = getattr(node, "lineno", 0)
            last = getattr(node, "end_lineno", line)
            name, start = owners[id(node)]
            yield Mutant(path, name, min(line, start) or line, last, line, what, position, kind)


def _owners(tree: ast.Module) -> dict[int, tuple[str, int]]:
    """Return, for each node, the outermost function that it is in (``Class.name`` for a method) and its statement's line."""
    found: dict[int, tuple[str, int]] = {}

    def claim(function: ast.FunctionDef, name: str) -> None:
        for node in ast.walk(function):
            if isinstance(node, ast.stmt) and node is not function:
                for inner in _own_expressions(node):
                    found[id(inner)] = (name, node.lineno)

    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            claim(node, node.name)
        elif isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef):
                    claim(inner, f"{node.name}.{inner.name}")
    return found


def _own_expressions(statement: ast.stmt) -> Iterator[ast.AST]:
    """Yield what belongs to a statement itself, not to the statements inside it."""
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(c for c in ast.iter_child_nodes(node) if not isinstance(c, ast.stmt))


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


# -- the tests, collected once


class Plugin:
    """Takes pytest's loop over: first every test unchanged, then the mutants; ``survivors`` is the result."""

    def __init__(self, chosen: list[Mutant], jobs: int) -> None:
        """``chosen``: what to try."""
        self.chosen = chosen
        self.jobs = jobs
        self.reach: dict[tuple[str, int], set[int]] = collections.defaultdict(set)
        self.seconds: list[float] = []
        self.survivors: list[tuple[Mutant, str]] = []
        self.broken = ""

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Record, then mutate."""
        files = {str(m.path) for m in self.chosen}
        for number, item in enumerate(session.items):
            begun = time.monotonic()
            ok = self._recorded(item, number, files)
            self.seconds.append(time.monotonic() - begun)
            if not ok:
                self.broken = item.nodeid
                return True
        print(f"{len(session.items)} tests, {sum(self.seconds):.1f} s unchanged", file=sys.__stdout__, flush=True)
        waiting = list(reversed(self.chosen))
        running: dict[int, tuple[Mutant, float]] = {}
        while waiting or running:
            while waiting and len(running) < self.jobs:
                mutant = waiting.pop()
                tests = self.covering(mutant)
                if not tests:
                    self.survivors.append((mutant, "no test reaches it"))
                    continue
                running[_fork(mutant, [session.items[n] for n in tests])] = (mutant, time.monotonic() + SECONDS)
            self._reap(running)
        return True

    def covering(self, mutant: Mutant) -> list[int]:
        """Return the tests that reach a mutant's lines, quickest first."""
        lines = range(mutant.first, mutant.last + 1)
        found = set[int]().union(*(self.reach.get((str(mutant.path), line), set()) for line in lines))
        return sorted(found, key=lambda n: self.seconds[n])

    def _recorded(self, item: pytest.Item, number: int, files: set[str]) -> bool:
        reach = self.reach

        def lines(frame: types.FrameType, event: str, arg: object) -> Any:
            del arg
            if event == "line":
                reach[frame.f_code.co_filename, frame.f_lineno].add(number)
            return lines

        def calls(frame: types.FrameType, event: str, arg: object) -> Any:
            del event, arg
            return lines if frame.f_code.co_filename in files else None

        before = sys.gettrace()
        threading.settrace(calls)
        sys.settrace(calls)
        try:
            return passes(item)
        finally:
            sys.settrace(before)
            threading.settrace(before)

    def _reap(self, running: dict[int, tuple[Mutant, float]]) -> None:
        for child, (mutant, end) in list(running.items()):
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                del running[child]
                if status == 0:
                    self.survivors.append((mutant, "every test passes"))
            elif time.monotonic() > end:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                del running[child]
        time.sleep(0.002)


def passes(item: pytest.Item) -> bool:
    """Run one test with its fixtures; tell whether it passed."""
    from _pytest import runner  # noqa: PLC0415 - the one door to running a collected test again

    request = getattr(item, "_initrequest", None)
    if request is not None:
        request()
    reports = runner.runtestprotocol(item, log=False, nextitem=None)
    return not any(r.failed for r in reports)


def _fork(mutant: Mutant, items: Iterable[pytest.Item]) -> int:
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            put_in_place(mutant)
            status = 0 if all(passes(item) for item in items) else 1
    finally:
        os._exit(status)


def put_in_place(mutant: Mutant) -> None:
    """Exchange the code of the function that the mutant changes; whoever holds the function runs the mutant."""
    name = mutant.path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
    module = sys.modules[name]
    changed = dict(module.__dict__)
    exec(compile(mutant.tree(), str(mutant.path), "exec"), changed)  # noqa: S102 - the mutant itself
    _function(module.__dict__, mutant.function).__code__ = _function(changed, mutant.function).__code__


def _function(space: dict[str, Any], name: str) -> types.FunctionType:
    owner, _, method = name.rpartition(".")
    found: object = vars(space[owner])[method] if owner else space[method]
    for inner in ("__func__", "fget", "func"):
        found = getattr(found, inner, None) or found
    if not isinstance(found, types.FunctionType):
        raise TypeError(f"{name} is no function: {found!r}")
    return found


DEFAULT_TESTS = (
    "tests/recovery/test_rules.py tests/recovery/test_decide.py tests/recovery/test_liveness.py "
    "tests/recovery/test_table.py tests/recovery/test_oddities.py tests/recovery/test_refusal.py "
    "tests/recovery/test_forerunner.py"
)
"""The quick tests that judge rules."""


def main() -> int:
    """Mutate, run, print; 1 where too few are killed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", default=list(RULES))
    parser.add_argument("--tests", default=DEFAULT_TESTS)
    parser.add_argument("--limit", type=int, default=0, help="at most that many mutants a file, drawn by the seed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=JOBS)
    options = parser.parse_args()
    import pytest  # noqa: PLC0415 - paid once, before the forks

    chance = random.Random(options.seed)  # noqa: S311 - a sample, drawn again by the same seed
    chosen: list[Mutant] = []
    made: dict[str, int] = {}
    begun = time.monotonic()
    for file in options.files:
        importlib.import_module(file.removesuffix(".py").replace("/", "."))
        found = list(mutants(ROOT / file))
        made[file] = len(found)
        chosen += chance.sample(found, options.limit) if 0 < options.limit < len(found) else found
    plugin = Plugin(chosen, options.jobs)
    quiet = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--no-header", "--no-summary", "--capture=no"]
    pytest.main([*quiet, *options.tests.split()], plugins=[plugin])
    if plugin.broken or not plugin.seconds:
        print(f"the tests fail without any mutant: {plugin.broken or 'nothing was collected'}")
        return 2
    for file in options.files:
        tried = sum(m.path == ROOT / file for m in chosen)
        left = sorted(((m, why) for m, why in plugin.survivors if m.path == ROOT / file), key=lambda x: x[0].line)
        print(f"{file}: {tried - len(left)} of {tried} killed ({made[file]} exist)", flush=True)
        for mutant, why in left:
            print(f"    line {mutant.line}: {mutant.what} ({why})", flush=True)
    dead = len(chosen) - len(plugin.survivors)
    share = dead / len(chosen) if chosen else 1.0
    print(
        f"{dead} of {len(chosen)} mutants killed: {share:.1%} (seed {options.seed}, {time.monotonic() - begun:.0f} s)"
    )
    return 0 if share >= ENOUGH else 1


if __name__ == "__main__":
    sys.exit(main())
