"""The mutations that ``tools/mutate.py`` tries, as changes of a module's syntax tree. Pure but for reading the module.

What is changed: comparisons turned round and moved to their limit, ``and``/``or`` swapped, operands and ``not`` dropped,
conditions made true or false, filters and guards dropped, cases of a ``match`` never taken, members of a set that is
asked for dropped, numbers moved by one, booleans flipped, ``+ - * / | &`` and ``min``/``max``/``any``/``all`` exchanged,
calls, additions and ``continue`` left out, loops never entered, a returned value replaced by None.

What is not, since nothing is decided by it: docstrings, annotations, constants outside of functions, and the texts of
messages with what is formatted into them (how many digits of an oid are shown). Nor is what the type checker shows to be
unreachable (``assert_never``).
"""

from __future__ import annotations

import ast
import copy
import dataclasses
import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
MOVED: dict[type[ast.cmpop], type[ast.cmpop]] = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr,
}  # fmt: skip
CALLED = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclasses.dataclass(frozen=True)
class Mutant:
    """One change: the function around it, the lines that reach it, where it is, and how, in words.

    ``text`` is the source line; ``position`` and ``kind`` say which node of the tree and which of its changes.
    """

    path: Path
    function: str
    first: int
    last: int
    line: int
    column: int
    text: str
    what: str
    position: int
    kind: int

    def tree(self) -> ast.Module:
        """Return the module with the change in it."""
        tree = ast.parse(source(self.path))
        list(_changes(list(ast.walk(tree))[self.position]))[self.kind]()
        return ast.fix_missing_locations(tree)


@functools.cache
def source(path: Path) -> str:
    """Return a module's text, read once: whoever edits it meanwhile changes no mutant."""
    return path.read_text(encoding="utf-8")


def mutants(path: Path) -> Iterator[Mutant]:
    """Yield every mutant of a module, in the order of the tree."""
    lines = source(path).splitlines()
    tree = ast.parse(source(path))
    owners = _owners(tree)
    for position, node in enumerate(ast.walk(tree)):
        if id(node) not in owners:
            continue
        name, start = owners[id(node)]
        place = _place(node)
        line = getattr(place, "lineno", start)
        last = getattr(node, "end_lineno", None) or line
        for kind in range(len(list(_changes(node)))):
            what = list(_changes(copy.deepcopy(node)))[kind]()
            column = getattr(place, "col_offset", 0)
            yield Mutant(
                path, name, min(start, line), last, line, column, lines[line - 1].strip(), what, position, kind
            )


def _place(node: ast.AST) -> ast.AST:
    match node:
        case ast.match_case(pattern=pattern):
            return pattern
        case ast.comprehension(ifs=[first, *_]):
            return first
        case _:
            return node


def _owners(tree: ast.Module) -> dict[int, tuple[str, int]]:
    """Return the outermost function (``Class.name`` for a method) and the statement's line of each node to be changed."""
    found: dict[int, tuple[str, int]] = {}

    def claim(function: ast.FunctionDef, name: str) -> None:
        for node in ast.walk(function):
            if isinstance(node, ast.stmt) and node is not function and not _is_docstring(node):
                for inner in _behaviour(node):
                    found[id(inner)] = (name, node.lineno)

    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            claim(node, node.name)
        elif isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef):
                    claim(inner, f"{node.name}.{inner.name}")
    return found


def _behaviour(statement: ast.stmt) -> Iterator[ast.AST]:
    """Yield what belongs to a statement itself: no statement inside it, no annotation, no text with what is in it."""
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        yield node
        skip = _annotations(node)
        waiting.extend(
            child
            for child in ast.iter_child_nodes(node)
            if not isinstance(child, ast.stmt | ast.JoinedStr) and id(child) not in skip
        )


def _annotations(node: ast.AST) -> set[int]:
    match node:
        case ast.AnnAssign(annotation=annotation):
            return {id(annotation)}
        case ast.arg(annotation=ast.expr() as annotation):
            return {id(annotation)}
        case ast.FunctionDef(returns=ast.expr() as annotation):
            return {id(annotation)}
        case ast.Subscript(value=ast.Name(id="frozenset" | "set" | "dict" | "list")):
            return {id(node.slice)}
        case _:
            return set()


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _changes(node: ast.AST) -> Iterator[Callable[[], str]]:
    """Yield, for a node, functions that each change it in place and say how."""
    match node:
        case ast.Compare():
            yield from _of_compare(node)
        case ast.BoolOp():
            other, word = (ast.Or(), "and became or") if isinstance(node.op, ast.And) else (ast.And(), "or became and")
            yield functools.partial(_set, node, "op", other, word)
            for index in range(len(node.values)):
                yield functools.partial(_drop_value, node, index)
        case ast.UnaryOp(op=ast.Not()):
            yield functools.partial(_drop_not, node)
        case ast.Constant(value=bool() as value):
            yield functools.partial(_set, node, "value", not value, f"{value} flipped")
        case ast.Constant(value=int() as number):
            yield functools.partial(_set, node, "value", int(number) + 1, f"{number} became {int(number) + 1}")
        case ast.BinOp() if type(node.op) in ARITHMETIC:
            yield _other_operator(node)
        case ast.Call(func=ast.Name(id=name)) if name in CALLED:
            yield functools.partial(_set, node.func, "id", CALLED[name], f"{name} became {CALLED[name]}")
        case _:
            yield from _of_flow(node)


def _of_flow(node: ast.AST) -> Iterator[Callable[[], str]]:
    match node:
        case ast.If() | ast.IfExp():
            yield functools.partial(_set, node, "test", ast.Constant(value=True), "condition always true")
            yield functools.partial(_set, node, "test", ast.Constant(value=False), "condition always false")
        case ast.While():
            yield functools.partial(_set, node, "test", ast.Constant(value=False), "loop never entered")
        case ast.For():
            yield functools.partial(_set, node, "iter", ast.Tuple(elts=[], ctx=ast.Load()), "loop never entered")
        case ast.comprehension(ifs=[_, *_]):
            yield functools.partial(_set, node, "ifs", [], "filter dropped")
        case ast.match_case():
            yield from _of_case(node)
        case ast.Expr(value=ast.Call() | ast.Yield() | ast.YieldFrom()) if not _is_unreachable(node):
            yield functools.partial(_set, node, "value", ast.Constant(value=None), "statement left out")
        case ast.AugAssign():
            yield _other_operator(node)
            yield functools.partial(_empty, node, "statement left out")
        case ast.Continue():
            yield functools.partial(_empty, node, "continue left out")
        case ast.Return(value=ast.expr() as value) if not (isinstance(value, ast.Constant) and value.value is None):
            yield functools.partial(_set, node, "value", ast.Constant(value=None), "returns None")
        case _:
            return


def _other_operator(node: ast.BinOp | ast.AugAssign) -> Callable[[], str]:
    other = ARITHMETIC.get(type(node.op), ast.Sub)
    return functools.partial(_set, node, "op", other(), f"{type(node.op).__name__} became {other.__name__}")


def _of_compare(node: ast.Compare) -> Iterator[Callable[[], str]]:
    for index, op in enumerate(node.ops):
        for table, word in ((TURNED, "turned round"), (MOVED, "moved to its limit")):
            if type(op) in table:
                yield functools.partial(_set_op, node, index, table[type(op)](), f"{type(op).__name__} {word}")
    match node:
        case ast.Compare(ops=[ast.In() | ast.NotIn()], comparators=[ast.Set(elts=elements) | ast.Tuple(elts=elements)]):
            for index in range(len(elements) if len(elements) > 1 else 0):
                yield functools.partial(_drop_element, elements, index)
        case _:
            return


def _of_case(node: ast.match_case) -> Iterator[Callable[[], str]]:
    if all(isinstance(s, ast.Pass) or _is_unreachable(s) for s in node.body):
        return
    yield functools.partial(_set, node, "guard", ast.Constant(value=False), "case never taken")
    if node.guard is not None:
        yield functools.partial(_set, node, "guard", None, "guard dropped")


def _is_unreachable(node: ast.AST) -> bool:
    match node:
        case ast.Expr(value=ast.Call(func=ast.Name(id="assert_never"))):
            return True
        case _:
            return False


def _set(node: ast.AST, field: str, value: object, what: str) -> str:
    setattr(node, field, value)
    return what


def _set_op(node: ast.Compare, index: int, op: ast.cmpop, what: str) -> str:
    node.ops[index] = op
    return what


def _drop_element(elements: list[ast.expr], index: int) -> str:
    return f"member dropped: {ast.unparse(elements.pop(index))[:50]}"


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


def _empty(node: ast.AST, what: str) -> str:
    """Make a statement do nothing, in place: it becomes ``None``."""
    node.__class__ = ast.Expr
    for field in ("target", "op"):
        if hasattr(node, field):
            delattr(node, field)
    node.value = ast.Constant(value=None)  # type: ignore[attr-defined]
    return what
