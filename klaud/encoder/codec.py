"""Texts to records and back: the knowledge base, the column meanings, and the files of a reference.

Everything is bounded and strict where it decides something: an item without an id, two items of one id, a type that does
not exist are errors with a line number. Fields klaud does not know are ignored in the inputs, which others write, and
refused in klaud's own files. Line ends are normalised before anything is hashed, so that a checkout with CRLF makes the
same reference.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_args

import jiter
import msgspec

from klaud import errors
from klaud.encoder import model

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

KB_BYTES = 33_554_432
"""A knowledge base file: thousands of items of a few kilobytes."""
MEANINGS_BYTES = 33_554_432
"""A column meaning file."""
ITEMS = 50_000
"""Items of one knowledge base; each costs an agent session, so real ones have some tens."""
CHILDREN = 10_000
"""Dependencies of one item."""
TEXT_CHARACTERS = 65_536
"""One text of an item: it is put into a prompt."""
FILE_BYTES = 67_108_864
"""One file of a reference."""

_T = TypeVar("_T")
_TYPES = get_args(model.KnowledgeType)


def lf(data: bytes) -> bytes:
    """Return ``data`` with LF line ends and without a byte order mark."""
    return data.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _json(data: bytes, where: str) -> Any:
    try:
        return jiter.from_json(data, allow_inf_nan=False, catch_duplicate_keys=True)
    except ValueError as error:
        raise errors.InputError(f"{where} is not JSON: {str(error)[:200]}") from None


def parse_items(data: bytes, where: str) -> tuple[tuple[model.Item, ...], tuple[str, ...]]:
    """Return the items of a knowledge base (JSON lines) and the warnings about it.

    InputError names the line: not an object, no ``id``, a duplicate id, an unknown type, a text that is not one.
    Children that no item has are dropped with one warning for the whole file.
    """
    if len(data) > KB_BYTES:
        raise errors.InputError(f"{where} has {len(data)} bytes: more than {KB_BYTES}")
    found: dict[int, model.Item] = {}
    lines: dict[int, int] = {}
    for number, line in enumerate(lf(data).split(b"\n"), 1):
        if not line.strip():
            continue
        at = f"{where}, line {number}"
        item = _item(_json(line, at), at)
        if item.id in found:
            raise errors.InputError(f"{at}: id {item.id} is already the id of line {lines[item.id]}")
        found[item.id] = item
        lines[item.id] = number
        if len(found) > ITEMS:
            raise errors.InputError(f"{where} has more than {ITEMS} items")
    if not found:
        raise errors.InputError(f"{where} has no items: nothing to encode")
    unknown = sorted({(item.id, child) for item in found.values() for child in item.children if child not in found})
    items = tuple(
        msgspec.structs.replace(item, children=tuple(child for child in item.children if child in found))
        for item in found.values()
    )
    if not unknown:
        return items, ()
    shown = ", ".join(f"{child} (of item {parent})" for parent, child in unknown[:20])
    more = f" and {len(unknown) - 20} more" if len(unknown) > 20 else ""
    return items, (f"{where}: dropped children that no item has: {shown}{more}",)


def _item(value: Any, at: str) -> model.Item:
    if not isinstance(value, dict):
        raise errors.InputError(f"{at} is not a JSON object")
    if "id" not in value:
        raise errors.InputError(f"{at} has no id")
    number = value["id"]
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < 10**15:
        raise errors.InputError(f"{at}: id {str(number)[:40]!r} is not a whole number from 0")
    kind = value.get("type")
    if kind not in _TYPES:
        raise errors.InputError(f"{at}: type {str(kind)[:60]!r} is none of {', '.join(_TYPES)}")
    return model.Item(
        id=number,
        knowledge=_text(value, "knowledge", at),
        description=_text(value, "description", at),
        definition=_text(value, "definition", at),
        type=cast("model.KnowledgeType", kind),
        children=_children(value.get("children_knowledge", -1), at),
    )


def _text(value: Mapping[str, Any], name: str, at: str) -> str:
    text = value.get(name)
    if not isinstance(text, str):
        raise errors.InputError(f"{at}: {name} is not a text")
    if name == "knowledge" and not text.strip():
        raise errors.InputError(f"{at}: {name} is empty")
    if len(text) > TEXT_CHARACTERS:
        raise errors.InputError(f"{at}: {name} has more than {TEXT_CHARACTERS} characters")
    return text


def _children(value: Any, at: str) -> tuple[int, ...]:
    values = value if isinstance(value, list) else [value]
    if len(values) > CHILDREN:
        raise errors.InputError(f"{at}: more than {CHILDREN} children")
    for child in values:
        if not isinstance(child, int) or isinstance(child, bool) or child < -1:
            raise errors.InputError(f"{at}: children_knowledge is -1, an id or a list of ids, not {str(value)[:60]!r}")
    return tuple(dict.fromkeys(child for child in values if child != -1))


def parse_meanings(data: bytes, database: str, where: str) -> tuple[model.Meaning, ...]:
    """Return the column meanings: ``{"db|table|column": text or {column_meaning, fields_meaning}}``."""
    if len(data) > MEANINGS_BYTES:
        raise errors.InputError(f"{where} has {len(data)} bytes: more than {MEANINGS_BYTES}")
    value = _json(lf(data), where)
    if not isinstance(value, dict):
        raise errors.InputError(f"{where} is not a JSON object")
    return tuple(_meaning(name, text, database, where) for name, text in value.items())


def _meaning(name: str, value: Any, database: str, where: str) -> model.Meaning:
    parts = name.split("|")
    if len(parts) != 3 or not all(parts):
        raise errors.InputError(f"{where}: key {name[:120]!r} is not <database>|<table>|<column>")
    if parts[0].casefold() != database.casefold():
        raise errors.InputError(f"{where}: key {name[:120]!r} is of database {parts[0][:64]!r}, not {database}")
    if isinstance(value, str):
        text = value
    elif isinstance(value, dict) and set(value) <= {"column_meaning", "fields_meaning"}:
        head = value.get("column_meaning", "")
        if not isinstance(head, str):
            raise errors.InputError(f"{where}: column_meaning of {name[:120]!r} is not a text")
        text = "\n".join([head, *_fields("", value.get("fields_meaning", {}), 0)]).strip()
    else:
        raise errors.InputError(f"{where}: {name[:120]!r} is neither a text nor {{column_meaning, fields_meaning}}")
    return model.Meaning(table=parts[1], column=parts[2], text=text[:TEXT_CHARACTERS])


def _fields(path: str, value: Any, depth: int) -> Iterable[str]:
    if isinstance(value, dict) and depth < 8:
        for name, inner in value.items():
            yield from _fields(f"{path}.{name}" if path else name, inner, depth + 1)
    elif path:
        yield f"{path}: {value if isinstance(value, str) else json.dumps(value, sort_keys=True)}"


def fingerprint(layer: str, key: model.Key, kb: bytes, meanings: bytes, database: bytes) -> str:
    """Return 16 hex digits of SHA-256 over the semantic layer's version, the dialect and the contents of the inputs.

    ``kb`` and ``meanings`` are hashed with LF line ends; ``database`` is the digest of the database (for SQLite of its
    file, for PostgreSQL of its schema). No path and no time is part of it.
    """
    whole = hashlib.sha256()
    for part in (layer.encode(), key.dialect.encode(), lf(kb), lf(meanings), database):
        whole.update(len(part).to_bytes(8, "big"))
        whole.update(part)
    return whole.hexdigest()[:16]


def encode(value: Any) -> bytes:
    """Return ``value`` as JSON text that a person can read, ending in a line end; the same for the same value."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


def decode(data: bytes, kind: type[_T], where: str, *, limit: int = FILE_BYTES) -> _T:
    """Return the record in ``data``, or raise InputError naming ``where`` and what is wrong."""
    if len(data) > limit:
        raise errors.InputError(f"{where} has {len(data)} bytes: more than {limit}")
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise errors.InputError(f"{where} is not what klaud writes: {str(error)[:200]}") from None


def decode_submission(data: bytes, limit: int) -> model.Submission | model.Problem:
    """Return an agent's submission, or the failed check that says what is wrong with it."""
    if len(data) > limit:
        return model.Problem(check="within-limits", text=f"the submission has {len(data)} bytes: more than {limit}")
    try:
        return msgspec.json.decode(data, type=model.Submission)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return model.Problem(check="submitted", text=f"the submission cannot be read: {str(error)[:200]}")
