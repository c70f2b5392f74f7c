"""The files that pass between the jobs of a wave: bytes to records and back, strict and bounded.

A file is read as strictly as it is written: an unknown key, a wrong type, a value out of its range, another version, and
(for ``selection.json``) lists that do not follow from the decisions are refused with the file's name and the place.
``selection.json.schema`` is generated from the same structs, so what it accepts in structure is what is accepted here.
"""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec

from klaud import errors, names
from klaud.planner import decide, model

T = TypeVar("T")

LIMIT_BYTES = 256 << 20
"""Most bytes of one such file: a hundred thousand published rows with their matrices fit; a selection is far smaller."""


def encode(record: msgspec.Struct) -> bytes:
    """Return a record as JSON text, two spaces a level, keys in the struct's order, one line feed at the end."""
    return msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n"


def decode(raw: bytes, to: type[T], *, where: str) -> T:
    """Return the record in ``raw``; InputError with ``where`` and the place of what is wrong."""
    if len(raw) > LIMIT_BYTES:
        message = f"{where}: {len(raw)} bytes, above the limit of {LIMIT_BYTES} bytes"
        raise errors.InputError(message)
    try:
        record = msgspec.json.decode(raw, type=to, strict=True)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        place = re.sub(r" - at `\$\.?(.*)`$", r" (at \1)", str(error)[: model.MESSAGE_CHARACTERS])
        message = f"{where}: {place}"
        raise errors.InputError(
            message, advice="The file was not written by this version of klaud, or was changed: make it again."
        ) from None
    if isinstance(record, model.Selection):
        _check(record, where)
    return record


def encode_selection(selection: model.Selection) -> bytes:
    """Return ``selection.json``, validated as a reader will: BugError where klaud itself has put it together wrongly."""
    raw = encode(selection)
    try:
        decode(raw, model.Selection, where="selection.json")
    except errors.InputError as error:
        message = f"klaud was about to write an invalid file: {error}"
        raise errors.BugError(message) from None
    return raw


def offer(value: Any) -> model.Offer | str:
    """Return one line of a candidate source as an offer, or what is wrong with it in klaud's own words."""
    try:
        found = msgspec.convert(value, model.Offer, strict=True)
    except msgspec.ValidationError as error:
        return _reason(str(error))
    if ":" not in found.family.strip(":"):
        return "family is not <file>:<key>"
    if not found.subject.strip():
        return "subject is blank"
    return found


def _reason(text: str) -> str:
    """Cut msgspec's message to what cannot hold a value of the line: its kind and the place among known keys."""
    place = re.search(r"at `\$\.(family|subject|change|match)\b", text)
    kind = "is missing" if "missing required" in text else "unknown key" if "unknown field" in text else "wrong type"
    named = re.search(r"required field `([a-z]+)`", text)
    field = place[1] if place else named[1] if named else "the line"
    return f"{field}: {kind}"


def _check(selection: model.Selection, where: str) -> None:
    """Refuse lists that do not follow from the decisions."""
    derived = decide.lists(selection.decisions)
    for key, given, wanted in (
        ("candidates", selection.candidates, derived.candidates),
        ("capacity-deferred-candidates", selection.capacity_deferred_candidates, derived.capacity),
        ("baseline-deferred-candidates", selection.baseline_deferred_candidates, derived.baseline),
        ("deferred-reason", selection.deferred_reason, derived.reason),
        ("counts", selection.counts, derived.counts),
    ):
        if given != wanted:
            message = f"{where}: {key} does not follow from the decisions"
            raise errors.InputError(message)
    for one in selection.decisions:
        if one.selected != (one.gate == "selected"):
            message = f"{where}: decision on {one.candidate}: selected and gate contradict each other"
            raise errors.InputError(message)
        if not one.candidate.startswith(names.short_id(one.family)):
            message = f"{where}: decision on {one.candidate}: its family is another"
            raise errors.InputError(message)
    if not set(selection.baseline_deferral_reasons) <= set(selection.baseline_deferred_candidates):
        message = f"{where}: baseline-deferral-reasons names a candidate that was not deferred by its baseline"
        raise errors.InputError(message)
