"""One line to one record: strict JSON, decoded by jiter, with what jiter lets pass checked here.

A record is a JSON object in strict UTF-8 without a byte order mark, without a name twice (also where one is written with
escapes), NaN, Infinity or a number that overflows to it, without lone surrogates, with integers of at most 4,300 digits
and nesting of at most 128.

jiter refuses all of that except overflow (``1e999`` becomes infinity) and depth (its own limit is 200): both are looked
for in what it returns. Its messages quote the line: they are never shown.
"""

from __future__ import annotations

import json
import math
from typing import Any, Final, TypeAlias

import jiter

MAX_INTEGER_DIGITS: Final = 4300
"""Python's own bound for text to int; above it the conversion is quadratic. jiter has the same."""

MAX_DEPTH: Final = 128
"""Levels of nesting, the record itself included; deeper data is an attack on whatever walks it."""

BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"

Record: TypeAlias = dict[str, Any]


_parse: Final = jiter.from_json


class Refused(str):
    """Why a line is no record: one of the closed words in ``MEANING``. Holds nothing of the line."""

    __slots__ = ()


MEANING: Final = {
    "ByteOrderMark": "it begins with a byte order mark",
    "InvalidUtf8": "it is not UTF-8",
    "InvalidJson": "it is not JSON",
    "DuplicateName": "an object in it has a name twice",
    "NonFiniteNumber": "a number in it is not finite",
    "LoneSurrogate": "a string in it has half a surrogate pair",
    "IntegerTooLong": f"an integer in it has more than {MAX_INTEGER_DIGITS} digits",
    "NestingTooDeep": f"it nests deeper than {MAX_DEPTH} levels",
    "NotAnObject": "it is JSON, but not an object",
}
"""Every word a ``Refused`` may be, with what it means to a person."""


def decode(line: bytes) -> Record | Refused:
    """Return the record in ``line`` (one line without its end), or why there is none. Never raises for any bytes."""
    value = decode_document(line)
    return value if type(value) is dict or type(value) is Refused else Refused("NotAnObject")


def decode_document(data: bytes) -> Any | Refused:
    """Return the JSON value in ``data`` under the same rules, whatever its top-level type, or why there is none."""
    try:
        value = _parse(data, allow_inf_nan=False, catch_duplicate_keys=True, cache_mode="keys")
    except ValueError as error:
        said = str(error)
    else:
        if type(value) is not dict and type(value) is not list:
            return Refused("NonFiniteNumber") if type(value) is float and math.isinf(value) else value
        flaw = _flaw(value)
        return value if flaw is None else flaw
    return _why(data, said)


def _flaw(value: dict[str, Any] | list[Any]) -> Refused | None:
    """Look for what jiter lets pass: an infinity (from a number that overflows), and more than ``MAX_DEPTH`` levels.

    A plain loop over the values: 1.5 us for a record of twenty, less than any way to ask the bytes. Its list of what has
    values grows while it is walked; only one that is longer than the depth allowed may be deeper than that.
    """
    found: list[dict[str, Any] | list[Any]] = [value]
    part: Any
    for item in found:
        for part in item.values() if type(item) is dict else item:
            if (kind := type(part)) is str:
                continue
            if kind is dict or kind is list:
                found.append(part)
            elif kind is float and part - part != 0.0:
                return Refused("NonFiniteNumber")
    return Refused("NestingTooDeep") if len(found) > MAX_DEPTH and _is_deep(value) else None


def _is_deep(value: dict[str, Any] | list[Any]) -> bool:
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        level = [
            part
            for item in level
            for part in (item.values() if type(item) is dict else item)
            if type(part) is dict or type(part) is list
        ]
        if not level:
            return False
    return True


def _why(line: bytes, said: str) -> Refused:
    if line.startswith(BYTE_ORDER_MARK):
        return Refused("ByteOrderMark")
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return Refused("InvalidUtf8")
    if said.startswith("Detected duplicate key"):
        return Refused("DuplicateName")
    if said.startswith("recursion limit exceeded"):
        return Refused("NestingTooDeep")
    if said.startswith("number out of range"):
        return Refused("IntegerTooLong")
    if said.startswith(("lone leading surrogate", "unexpected end of hex escape")):
        return Refused("LoneSurrogate")
    try:
        json.loads(line.decode("utf-8"), parse_constant=_constant)
    except _ConstantError:
        return Refused("NonFiniteNumber")
    except (ValueError, RecursionError):
        pass
    return Refused("InvalidJson")


class _ConstantError(Exception):
    """NaN or an infinity was written out."""


def _constant(_text: str) -> float:
    raise _ConstantError
