"""YAML files as klaud reads them: YAML 1.2's core scalars, no duplicate keys, bounded.

PyYAML speaks YAML 1.1: it reads ``on:`` as True, ``010`` as 8 and ``1:30`` as 90, and lets the last of two equal keys win.
Here the core schema of YAML 1.2 decides what a plain scalar is, and a key that is written twice is refused with its line.
Merge keys (``<<``), which 1.2 dropped, still work: configuration files of benchmarks use them. No tag makes an object.

Bounds: the caller's size in bytes; ``DEPTH`` levels; ``NODES`` nodes *after* aliases are expanded, so that a few lines of
aliases cannot become millions of values. What is returned is plain data: None, bool, int, float, str, list, dict.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any

import yaml

from klaud import errors

DEPTH = 64
"""Levels of nesting. Configuration has fewer than ten; the bound keeps recursion shallow."""

NODES = 200_000
"""Nodes after alias expansion: a matrix configuration has some ten thousand."""

_NULL = re.compile(r"(?:~|null|Null|NULL|)")
_BOOL = re.compile(r"(?:true|True|TRUE|false|False|FALSE)")
_INT = re.compile(r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)")
_FLOAT = re.compile(
    r"(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))"
)
_DIGITS = 4300
"""Digits of an integer that Python still converts in reasonable time (its own default limit)."""


class _Loader(yaml.CSafeLoader):
    """The C parser with 1.2's resolver and a check for duplicate keys."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - PyYAML's own class-level table; filled once below

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Refuse a key that is written twice, then build the mapping as PyYAML does."""
        seen: set[Hashable] = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                raise yaml.constructor.ConstructorError(
                    None, None, "a key that is a list or a mapping", key_node.start_mark
                )
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {key!r} is written twice", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep=deep)


def _construct_int(loader: _Loader, node: yaml.ScalarNode) -> int:
    text = str(loader.construct_scalar(node))
    if not _INT.fullmatch(text) or len(text) > _DIGITS:
        raise yaml.constructor.ConstructorError(None, None, "not an integer of YAML 1.2", node.start_mark)
    if text.startswith(("0o", "0x")):
        return int(text, 0)
    return int(text)


def _construct_float(loader: _Loader, node: yaml.ScalarNode) -> float:
    text = str(loader.construct_scalar(node))
    if not (_FLOAT.fullmatch(text) or _INT.fullmatch(text)):
        raise yaml.constructor.ConstructorError(None, None, "not a number of YAML 1.2", node.start_mark)
    return float(
        text.replace(".inf", "inf").replace(".Inf", "inf").replace(".INF", "inf").lower().replace(".nan", "nan")
    )


def _construct_bool(loader: _Loader, node: yaml.ScalarNode) -> bool:
    text = str(loader.construct_scalar(node))
    if not _BOOL.fullmatch(text):
        raise yaml.constructor.ConstructorError(None, None, "not true or false", node.start_mark)
    return text.lower() == "true"


def _construct_text(loader: _Loader, node: yaml.ScalarNode) -> str:
    return str(loader.construct_scalar(node))


def _refuse_tag(loader: _Loader, node: yaml.Node) -> None:  # noqa: ARG001 - PyYAML's signature
    raise yaml.constructor.ConstructorError(None, None, f"tag {node.tag!r} is not allowed", node.start_mark)


def _prepare() -> None:
    for tag, pattern, first in (
        ("null", _NULL, ["~", "n", "N", ""]),
        ("bool", _BOOL, list("tTfF")),
        ("int", _INT, list("-+0123456789")),
        ("float", _FLOAT, list("-+0123456789.")),
        ("merge", re.compile(r"<<"), ["<"]),
    ):
        # a pattern is matched, not fullmatched, by PyYAML: the end is part of it
        whole = re.compile(rf"(?:{pattern.pattern})\Z")
        _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", whole, first)
    _Loader.add_constructor("tag:yaml.org,2002:int", _construct_int)
    _Loader.add_constructor("tag:yaml.org,2002:float", _construct_float)
    _Loader.add_constructor("tag:yaml.org,2002:bool", _construct_bool)
    _Loader.add_constructor("tag:yaml.org,2002:merge", _construct_text)  # a value "<<" is a text
    for tag in ("timestamp", "binary", "omap", "pairs", "set"):
        _Loader.add_constructor(f"tag:yaml.org,2002:{tag}", _refuse_tag)


_prepare()


def load(raw: bytes, *, where: str, limit: int) -> Any:
    """Return the data of the one YAML document in ``raw`` (None when it is empty).

    ``where`` names the source in messages; ``limit`` is its size bound in bytes. InputError when it is too big, not UTF-8,
    not YAML, has a key twice, has several documents, or grows beyond the bounds of this module.
    """
    if len(raw) > limit:
        message = f"{where}: {len(raw)} bytes, above the limit of {limit} bytes"
        raise errors.InputError(message)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        message = f"{where}: not UTF-8 (byte {error.start})"
        raise errors.InputError(message) from None
    try:
        _bounded(text, where)
        return yaml.load(text, Loader=_Loader)  # noqa: S506 - a subclass of the safe loader
    except yaml.YAMLError as error:
        message = f"{where}: {_words(error)}"
        raise errors.InputError(message) from None


def load_older(raw: bytes, *, where: str, limit: int) -> Any:
    """Return what a YAML 1.1 reader makes of a document that ``load`` accepts: who compares files as data needs both.

    The same bounds and errors as ``load``, whose checks (duplicate keys, tags) must have passed before.
    """
    load(raw, where=where, limit=limit)
    try:
        return yaml.load(raw.decode("utf-8-sig"), Loader=yaml.CSafeLoader)
    except (yaml.YAMLError, ValueError) as error:
        problem = _words(error) if isinstance(error, yaml.YAMLError) else "a value that YAML 1.1 cannot make"
        message = f"{where}: {problem}"
        raise errors.InputError(message) from None


def _words(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
    problem = getattr(error, "problem", None) or "a character that YAML does not allow"
    return f"{place}not readable as YAML: {problem}"


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark is not None else 0


def _bounded(text: str, where: str) -> None:
    """Walk the events before any node exists: depth, and nodes counted as if each alias were written out."""
    anchors: dict[str, int] = {}
    open_nodes: list[tuple[str | None, int]] = []  # anchor and the count when it began
    count = 0
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        if isinstance(event, yaml.AliasEvent):
            size = anchors.get(event.anchor or "")
            if size is None:
                message = f"{where}: line {_line(event)}: alias *{event.anchor} names nothing before it"
                raise errors.InputError(message)
            count += size
        elif isinstance(event, yaml.ScalarEvent):
            count += 1
            if event.anchor:
                anchors[event.anchor] = 1
        elif isinstance(event, yaml.CollectionStartEvent):
            open_nodes.append((event.anchor, count))
            count += 1
            if event.anchor:
                anchors.pop(event.anchor, None)
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = open_nodes.pop()
            if anchor:
                anchors[anchor] = count - before
        if len(open_nodes) > DEPTH:
            message = f"{where}: line {_line(event)}: nested more than {DEPTH} levels deep"
            raise errors.InputError(message)
        if count > NODES:
            message = f"{where}: more than {NODES} values once its aliases are written out"
            raise errors.InputError(message)
