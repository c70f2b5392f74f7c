"""The part of Actions' expression language that workflow files of this size use.

Literals, ``github.event.x``, ``a['b']``, ``a.*.name``, ``! == != < <= > >= && ||``, parentheses, and the functions in
``FUNCTIONS`` plus the status functions. Anything else is an ``ExpressionError``: the hub never guesses.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

TOKEN = re.compile(
    r"\s*(?:(?P<number>-?\d+(?:\.\d+)?)|(?P<string>'(?:[^']|'')*')|(?P<name>[A-Za-z_][A-Za-z0-9_-]*)"
    r"|(?P<op>==|!=|<=|>=|&&|\|\||[!<>().,\[\]*]))"
)
INSERT = re.compile(r"\$\{\{(.*?)\}\}", re.DOTALL)


class ExpressionError(ValueError):
    """An expression that the hub cannot read."""


class Filtered(list[Any]):
    """What ``x.*`` yields: a member of it is taken of each element."""


def truthy(value: Any) -> bool:
    """Tell what Actions takes for true."""
    return value not in (None, False, 0, "")


def text_of(value: Any) -> str:
    """Return a value as it is put into a text."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return value if isinstance(value, str) else json.dumps(value)


def equal(left: Any, right: Any) -> bool:
    """Compare as Actions does: texts without regard to case, unlike kinds as numbers."""
    if isinstance(left, str) and isinstance(right, str):
        return left.lower() == right.lower()
    if type(left) is type(right):
        return bool(left == right)
    return _number(left) == _number(right)


def _number(value: Any) -> float:
    if value is None or value is False or value == "":
        return 0.0
    if value is True:
        return 1.0
    try:
        return float(value)
    except (TypeError, ValueError):
        return float("nan")


def _contains(where: Any, what: Any) -> bool:
    if isinstance(where, list):
        return any(equal(item, what) for item in where)
    return text_of(what).lower() in text_of(where).lower()


def _format(pattern: Any, *values: Any) -> str:
    return re.sub(r"\{(\d+)\}", lambda match: text_of(values[int(match[1])]), text_of(pattern))


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "contains": _contains,
    "startswith": lambda text, head: text_of(text).lower().startswith(text_of(head).lower()),
    "endswith": lambda text, tail: text_of(text).lower().endswith(text_of(tail).lower()),
    "format": _format,
    "join": lambda items, by=",": text_of(by).join(
        text_of(item) for item in (items if isinstance(items, list) else [items])
    ),
    "tojson": lambda value: json.dumps(value, indent=2),
    "fromjson": lambda text: json.loads(text_of(text)),
}


class _Parser:
    """Recursive descent over the tokens; evaluates while it reads (there are no effects)."""

    def __init__(self, source: str, context: Mapping[str, Any], status: Mapping[str, bool]) -> None:
        self.source = source
        self.context = context
        self.status = status
        self.tokens: list[tuple[str, str]] = []
        offset = 0
        while source[offset:].strip():
            match = TOKEN.match(source, offset)
            if match is None or match.lastgroup is None:
                raise ExpressionError(f"cannot read {source!r} at {source[offset : offset + 12]!r}")
            self.tokens.append((match.lastgroup, match[match.lastgroup]))
            offset = match.end()
        self.index = 0

    def peek(self) -> tuple[str, str]:
        return self.tokens[self.index] if self.index < len(self.tokens) else ("end", "")

    def take(self, *texts: str) -> str | None:
        kind, text = self.peek()
        if kind == "op" and text in texts:
            self.index += 1
            return text
        return None

    def need(self, text: str) -> None:
        if self.take(text) is None:
            raise ExpressionError(f"{self.source!r}: expected {text!r}, found {self.peek()[1]!r}")

    def whole(self) -> Any:
        value = self.either()
        if self.peek()[0] != "end":
            raise ExpressionError(f"{self.source!r}: left over from {self.peek()[1]!r}")
        return value

    def either(self) -> Any:
        value = self.both()
        while self.take("||"):
            right = self.both()
            value = value if truthy(value) else right
        return value

    def both(self) -> Any:
        value = self.compared()
        while self.take("&&"):
            right = self.compared()
            value = right if truthy(value) else value
        return value

    def compared(self) -> Any:
        value = self.unary()
        while op := self.take("==", "!=", "<", "<=", ">", ">="):
            right = self.unary()
            if op in ("==", "!="):
                value = equal(value, right) == (op == "==")
            else:
                one, other = _number(value), _number(right)
                value = {"<": one < other, "<=": one <= other, ">": one > other, ">=": one >= other}[op]
        return value

    def unary(self) -> Any:
        if self.take("!"):
            return not truthy(self.unary())
        return self.postfix(self.primary())

    def primary(self) -> Any:
        kind, text = self.peek()
        if self.take("("):
            value = self.either()
            self.need(")")
            return value
        self.index += 1
        if kind == "number":
            return float(text)
        if kind == "string":
            return text[1:-1].replace("''", "'")
        if kind == "name":
            words: dict[str, Any] = {"true": True, "false": False, "null": None}
            if text in words:
                return words[text]
            if self.take("("):
                return self.call(text)
            return self.member(self.context, text)
        raise ExpressionError(f"{self.source!r}: unexpected {text!r}")

    def call(self, name: str) -> Any:
        values: list[Any] = []
        if not self.take(")"):
            values.append(self.either())
            while self.take(","):
                values.append(self.either())
            self.need(")")
        if name.lower() in self.status:
            return self.status[name.lower()]
        function = FUNCTIONS.get(name.lower())
        if function is None:
            raise ExpressionError(f"{self.source!r}: the hub has no function {name}")
        return function(*values)

    def postfix(self, value: Any) -> Any:
        while True:
            if self.take("."):
                if self.take("*"):
                    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
                    value = Filtered(items)
                else:
                    kind, text = self.peek()
                    if kind != "name":
                        raise ExpressionError(f"{self.source!r}: expected a name after the dot, found {text!r}")
                    self.index += 1
                    value = self.member(value, text)
            elif self.take("["):
                key = self.either()
                self.need("]")
                value = self.member(value, key)
            else:
                return value

    def member(self, value: Any, key: Any) -> Any:
        if isinstance(value, Filtered):
            return Filtered(self.member(item, key) for item in value)
        if isinstance(value, list) and isinstance(key, float):
            return value[int(key)] if 0 <= int(key) < len(value) else None
        if hasattr(value, "items"):
            wanted = text_of(key).lower()
            return next((item for name, item in value.items() if str(name).lower() == wanted), None)
        return None


NO_STATUS: Mapping[str, bool] = {"always": True, "success": True, "failure": False, "cancelled": False}


def evaluate(source: str, context: Mapping[str, Any], status: Mapping[str, bool] = NO_STATUS) -> Any:
    """Return the value of an expression, with or without its ``${{ }}``."""
    text = source.strip()
    match = INSERT.fullmatch(text)
    return _Parser(match[1] if match else text, context, status).whole()


def substitute(text: str, context: Mapping[str, Any]) -> str:
    """Return ``text`` with every ``${{ expression }}`` replaced by its value."""
    return INSERT.sub(lambda match: text_of(evaluate(match[1], context)), text)


def condition(source: str | None, context: Mapping[str, Any], status: Mapping[str, bool]) -> bool:
    """Tell whether a job's ``if:`` lets it run; without a status function it also needs ``success()``."""
    if source is None or not source.strip():
        return status["success"]
    text = source.strip()
    names_status = re.search(r"\b(always|success|failure|cancelled)\s*\(", text, re.IGNORECASE) is not None
    if "${{" in text and INSERT.fullmatch(text) is None:
        value: Any = substitute(text, context)
    else:
        value = evaluate(text, context, status)
    return truthy(value) and (names_status or status["success"])


def glob_matches(pattern: str, name: str) -> bool:
    """Tell whether a branch or path filter matches: ``*`` stops at a slash, ``**`` does not."""
    regex = ""
    index = 0
    while index < len(pattern):
        if pattern.startswith("**", index):
            regex += ".*"
            index += 2
            if pattern.startswith("/", index):
                regex += "/?"
                index += 1
        elif pattern[index] == "*":
            regex += "[^/]*"
            index += 1
        elif pattern[index] == "?":
            regex += "[^/]"
            index += 1
        elif pattern[index] == "[" and "]" in pattern[index:]:
            end = pattern.index("]", index)
            regex += pattern[index : end + 1].replace("[!", "[^")
            index = end + 1
        else:
            regex += re.escape(pattern[index])
            index += 1
    return re.fullmatch(regex, name) is not None


def filter_matches(patterns: list[str], name: str) -> bool:
    """Tell whether a list of filters takes a name; a later ``!pattern`` excludes again."""
    taken = False
    for pattern in patterns:
        if pattern.startswith("!"):
            taken = taken and not glob_matches(pattern[1:], name)
        else:
            taken = taken or glob_matches(pattern, name)
    return taken
