"""Published rows and matrix entries, from JSON values to records; strict, and bounded in what one bad item can do.

A value has exactly the type that its field says (a number written as text is no number; ``8.0`` is the integer 8; true
is no 1). Absent and null mean the field's default. A bad row is ``Malformed`` and stands alone; a bad entry makes the
whole matrix invalid, since a matrix with holes would prove too little.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any

import msgspec

from klaud.baselines import identity, model, reasons, schema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MAX_NAMED_MALFORMED = 20
"""Malformed rows that are named; the rest is counted."""

MAX_TEXT = 512
"""Characters of one identity text: the longest real image name has 120."""

MAX_CONC = 4096
"""Values in one list of an entry: the longest real one has 30."""

MAX_SETTINGS = 200
"""Flattened settings of one entry that are compared: real ones have 40."""

_BIG = 2**53
"""Integers beyond this are not exact in JSON."""

_LARGEST = 1.7976931348623157e308
"""The largest finite number: JSON's integers have no end."""

MAX_POINTS = 200_000
"""Points of one matrix once its lists are spread out: the largest real one has 5,000, and each takes 300 bytes."""

MAX_ASIDE = 20
"""Other benchmarks of a shared feed that are named; the rows of the rest are counted together."""

_PLAIN = (str, int, float, bool)


class _BadValueError(ValueError):
    """A value that cannot be read; caught in this file."""


def _typed(field: schema.Reader, value: Any) -> model.Value:
    """Return a present value in its field's type."""
    kind = field.field.type
    if kind == "text":
        if isinstance(value, str) and len(value) <= MAX_TEXT:
            return identity.transform(field.field.transform, value) if field.field.transform else value
    elif kind == "flag":
        if isinstance(value, bool):
            return value
    elif isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _BIG:
        if kind == "number":
            return float(value)
        if value == int(value):
            return int(value)
    raise _BadValueError(f"{field.name} is {shown(value)}, not {_WORDS[kind]}")


_WORDS = {"text": "a text", "integer": "an integer", "number": "a number", "flag": "true or false"}


def shown(value: Any) -> str:
    """Return a value as a short text for messages: JSON's words, cut."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, int) and value.bit_length() > 1024:
        return "a number of more than 300 digits"
    return reasons.cut(str(value)[:200], 60)


def _default(field: schema.Reader) -> model.Value:
    value = field.field.default
    if value is msgspec.UNSET:
        raise _BadValueError(f"{field.name} is missing")
    return value


_encode = msgspec.json.Encoder(order="deterministic").encode


def row_digest(values: model.Identity, metrics: Mapping[str, float], url: str, date: str, fingerprint: str) -> str:
    """Return the SHA-256 hex of a row's canonical text. ``metrics`` in the order of their names."""
    return hashlib.sha256(_encode((values, metrics, url, date, fingerprint))).hexdigest()


_EXACT: Mapping[str, type] = {"text": str, "integer": int, "flag": bool, "number": float}


def _value(raw: Mapping[str, Any], reader: schema.Reader, plain: type | None) -> model.Value:
    """Return a row's value of one field. ``plain``: the type that needs no second thought."""
    value: Any = raw.get(reader.row_key) if reader.row_key is not None else schema.look(raw, reader.row)
    if value is None:
        return _default(reader)
    kind = type(value)
    if kind is plain and (kind is bool or (kind is int and -_BIG < value < _BIG)):
        return value  # type: ignore[no-any-return]  # its type has just been looked at
    return _typed(reader, value)


# -- rows -------------------------------------------------------------------------------------------------------------


class Decoded(msgspec.Struct, frozen=True, kw_only=True):
    """A feed's rows, decoded. ``aside`` counts the rows that say they are another benchmark's, by what they say."""

    rows: list[model.Row]
    malformed: list[model.Malformed]
    malformed_count: int
    aside: dict[str, int]


class RowCodec:
    """Decodes the rows of one policy for one repository.

    ``host`` and ``repository`` (``owner/name``) say which run addresses count: exactly
    ``https://<host>/<owner>/<name>/actions/runs/<id>[/attempts/<n>]``.
    """

    def __init__(self, plan: schema.Plan, *, repository: str, host: str = "github.com") -> None:
        self._plan = plan
        address = re.escape(f"https://{host}/{repository}/actions/runs/")
        self._address = re.compile(address + r"([1-9][0-9]{0,18})(?:/attempts/([1-9][0-9]{0,4}))?", re.ASCII)
        rows = plan.policy.rows
        self._run_url = schema.paths(rows.run_url, "run_url")
        self._metrics = schema.paths(rows.metrics, "metrics") if rows.metrics else ()
        self._date = schema.paths(rows.date, "date")
        self._fingerprint = schema.paths(rows.fingerprint, "recipe_fingerprint")
        self._fields = [
            (reader, None if reader.field.transform else _EXACT[reader.field.type]) for reader in plan.readers
        ]
        self._known = {place.keys[0] for reader in plan.readers for place in reader.row}
        self._only = [
            (name, schema.paths(name, name), ours if isinstance(ours, tuple) else (ours,))
            for name, ours in rows.only.items()
        ]

    def decode(self, raw: Any, index: int) -> model.Row | model.Malformed:
        """Return one row as a record, or what is wrong with it."""
        if not isinstance(raw, dict):
            return model.Malformed(index=index, why=f"is {shown(raw)}, not an object")
        try:
            values = tuple([_value(raw, *each) for each in self._fields])
            metrics = self._numbers(raw)
            date, fingerprint = self._text(raw, self._date, "date"), self._text(raw, self._fingerprint, "fingerprint")
        except _BadValueError as error:
            return model.Malformed(index=index, why=str(error))
        url = schema.look(raw, self._run_url)
        url = url[:MAX_TEXT] if isinstance(url, str) else ""
        match = self._address.fullmatch(url)
        try:
            digest = row_digest(values, metrics, url, date, fingerprint)
        except UnicodeEncodeError:
            return model.Malformed(index=index, why="holds half of a character")
        return model.Row(
            index=index,
            digest=digest,
            identity=values,
            metrics=metrics,
            run_url=url,
            run_id=int(match[1]) if match else None,
            attempt=int(match[2] or 1) if match else None,
            date=date,
            fingerprint=fingerprint or None,
        )

    def decode_all(self, raws: Sequence[Any]) -> Decoded:
        """Return the rows, the first malformed ones by name, and how many there are of everything else."""
        rows: list[model.Row] = []
        malformed: list[model.Malformed] = []
        count = 0
        aside: dict[str, int] = {}
        for index, raw in enumerate(raws):
            other = self._other(raw) if self._only else ""
            if other:
                name = other if other in aside or len(aside) < MAX_ASIDE else "others"
                aside[name] = aside.get(name, 0) + 1
                continue
            row = self.decode(raw, index)
            if isinstance(row, model.Row):
                rows.append(row)
                continue
            count += 1
            if len(malformed) < MAX_NAMED_MALFORMED:
                malformed.append(row)
        return Decoded(rows=rows, malformed=malformed, malformed_count=count, aside=dict(sorted(aside.items())))

    def _other(self, raw: Any) -> str:
        """Return what a row says where it says that it is another benchmark's, else an empty text."""
        if not isinstance(raw, dict):
            return ""
        for name, place, ours in self._only:
            value = schema.look(raw, place)
            if value is not None and not any(value == each and type(value) is type(each) for each in ours):
                return f"{name} {shown(value)}"
        return ""

    def _numbers(self, raw: Mapping[str, Any]) -> dict[str, float]:
        if self._metrics:
            found = schema.look(raw, self._metrics)
            if found is not None and not isinstance(found, dict):
                raise _BadValueError(f"metrics is {shown(found)}, not an object")
        else:
            found = {key: value for key, value in raw.items() if key not in self._known}
        return {
            key: float(value)
            for key, value in sorted((found or {}).items())
            if isinstance(value, int | float) and not isinstance(value, bool) and -_LARGEST <= value <= _LARGEST
        }

    @staticmethod
    def _text(raw: Mapping[str, Any], places: tuple[schema.Path, ...], name: str) -> str:
        value = schema.look(raw, places)
        if value is None:
            return ""
        if not isinstance(value, str) or len(value) > MAX_TEXT:
            raise _BadValueError(f"{name} is {shown(value)}, not a text")
        return value


# -- entries ----------------------------------------------------------------------------------------------------------


def decode_entries(plan: schema.Plan, raws: Sequence[Any]) -> list[model.Entry] | model.Malformed:
    """Return a matrix's points (a list field expanded, each value once), or the first entry that cannot be read."""
    entries: list[model.Entry] = []
    fingerprint_at = schema.paths(plan.policy.generator.fingerprint, "recipe-fingerprint")
    for position, raw in enumerate(raws):
        if not isinstance(raw, dict):
            return model.Malformed(index=position, why=f"is {shown(raw)}, not an object")
        try:
            points = _points(plan, raw)
        except _BadValueError as error:
            return model.Malformed(index=position, why=str(error))
        if len(entries) + len(points) > MAX_POINTS:
            return model.Malformed(index=position, why=f"has point {MAX_POINTS + 1} of the matrix, one too many")
        fingerprint = schema.look(raw, fingerprint_at)
        text = fingerprint if isinstance(fingerprint, str) and fingerprint else None
        entries.extend(model.Entry(position=position, identity=point, fingerprint=text) for point in points)
    return entries


def _points(plan: schema.Plan, raw: Mapping[str, Any]) -> list[model.Identity]:
    values: list[model.Value] = []
    spread: tuple[int, list[model.Value]] | None = None
    for place, reader in enumerate(plan.readers):
        key = reader.entry_key
        value = raw.get(key) if key is not None else schema.look(raw, reader.entry)
        if isinstance(value, list) and reader.field.list:
            if len(value) > MAX_CONC:
                raise _BadValueError(f"{reader.name} has {len(value)} values, more than {MAX_CONC}")
            spread = place, list(dict.fromkeys(_entry_value(reader, each) for each in value))
            values.append(None)
        else:
            values.append(_entry_value(reader, value))
    if spread is None:
        return [tuple(values)]
    place, several = spread
    return [(*values[:place], each, *values[place + 1 :]) for each in several]


def _entry_value(reader: schema.Reader, value: Any) -> model.Value:
    if value is None:
        return _default(reader)
    if isinstance(value, str):
        if reader.field.entry_transform:
            value = identity.transform(reader.field.entry_transform, value)
        if value in reader.field.values:
            return reader.field.values[value]
    return _typed(reader, value)


def settings_of(plan: schema.Plan, raw: Mapping[str, Any]) -> dict[str, str]:
    """Return what an entry says outside the identity, flattened to ``path: text`` (at most MAX_SETTINGS)."""
    found: dict[str, str] = {}
    pending: list[tuple[tuple[str, ...], Any]] = [((key,), raw[key]) for key in sorted(raw, reverse=True)]
    while pending and len(found) < MAX_SETTINGS:
        keys, value = pending.pop()
        if keys in plan.used:
            continue
        if isinstance(value, dict):
            pending.extend(((*keys, str(key)), value[key]) for key in sorted(value, reverse=True))
        elif isinstance(value, list):
            found[".".join(keys)] = ", ".join(str(each) if isinstance(each, _PLAIN) else "..." for each in value)
        else:
            found[".".join(keys)] = shown(value)
    return found
