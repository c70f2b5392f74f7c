"""Records to and from the text of a commit message: JSON, versioned, at most 64 KiB, strict, signed where a key is set.

The text is one JSON object and a line end: the record's own fields, then ``previous`` (the oid that the ref pointed at when
this was written, empty for a new ref) and, where a key is set, ``hmac`` as the last field: HMAC-SHA256 in hex over
(repository, ref, previous oid, the object without ``hmac``), each part preceded by its length. Whoever can push can write a
ref, so with a key an unsigned or wrongly signed record says nothing about anybody.

``decode`` never raises for a bad text: it returns ``Bad`` with klaud's own words (no part of the text: it may be anyone's)
or ``Later`` for a version above ours. It does not judge whether the record fits its ref: ``decide.fits`` does.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import Any, Literal

import jiter
import msgspec

from klaud import errors
from klaud.leases import model

LIMIT = 64 * 1024
"""Bytes of one record's text: a commit message, not a data store."""

_SIGNED = re.compile(rb',"hmac":"([0-9a-f]{64})"}\n?\Z')
_OID = re.compile(r"[0-9a-f]{40}")
_OWN = msgspec.json.Encoder()
_RECORD: msgspec.json.Decoder[model.Record] = msgspec.json.Decoder(model.Record, strict=True)


class Bad(msgspec.Struct, frozen=True):
    """Why a text is no record, in klaud's own words."""

    why: str


class Later(msgspec.Struct, frozen=True):
    """The text says it is of a later version than this klaud knows."""

    version: int


class RecordTooLargeError(errors.BugError):
    """A record does not fit into ``LIMIT``: who wrote it had to cut what it keeps."""


def encode(record: model.Record, *, repository: str, ref: str, previous: str | None, key: bytes | None) -> bytes:
    """Return the text of ``record`` for ``ref``, signed when ``key`` is given.

    ``previous`` is the oid that the update expects (None: the ref is new). RecordTooLargeError above ``LIMIT``.
    """
    body = _OWN.encode(record)[:-1] + b',"previous":"' + (previous or "").encode() + b'"}'
    if key is not None:
        body = body[:-1] + b',"hmac":"' + _sign(key, repository, ref, previous, body).encode() + b'"}'
    if len(body) + 1 > LIMIT:
        msg = f"a record of {len(body) + 1} bytes for {ref} is above the limit of {LIMIT}"
        raise RecordTooLargeError(msg)
    return body + b"\n"


def decode(
    text: bytes, *, repository: str, ref: str, parent: str | None, key: bytes | None
) -> model.Record | Bad | Later:
    """Return the record in ``text``, the commit message of what ``ref`` points at (or of a link of its chain).

    ``parent`` is the commit's own parent, None where it has none: a record that has one must name it as ``previous``.
    """
    parsed = _object(text)
    if isinstance(parsed, Bad):
        return parsed
    version = parsed.get("klaud")
    if type(version) is not int or version < 1:
        return Bad("no version of klaud's records")
    if version > model.VERSION:
        return Later(version)
    previous = parsed.pop("previous", None)
    if previous is not None and not (isinstance(previous, str) and (not previous or _OID.fullmatch(previous))):
        return Bad("its previous commit is not an oid")
    signature = parsed.pop("hmac", None)
    if key is not None and not _verified(key, text, repository, ref, previous):
        return Bad("not signed" if signature is None else "bad signature")
    if parent is not None and previous is not None and previous != parent:
        return Bad("bad link: it names another commit before it than its parent")
    try:
        record = _RECORD.decode(_OWN.encode(parsed))
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return Bad("its fields are not those of a record of this version")
    return record if _times_have_zones(record) else Bad("a time without a time zone")


def _object(text: bytes) -> dict[str, Any] | Bad:
    if len(text) > LIMIT:
        return Bad("longer than a record may be")
    try:
        parsed = jiter.from_json(text, allow_inf_nan=False, catch_duplicate_keys=True)
    except (ValueError, RecursionError) as error:
        return Bad("a field is given twice" if "uplicate key" in str(error) else "not JSON")
    return parsed if isinstance(parsed, dict) else Bad("not a JSON object")


def _verified(key: bytes, text: bytes, repository: str, ref: str, previous: str | None) -> bool:
    found = _SIGNED.search(text)
    if found is None or previous is None:
        return False
    body = text[: found.start()] + b"}"
    return hmac.compare_digest(found[1].decode(), _sign(key, repository, ref, previous, body))


def _sign(key: bytes, repository: str, ref: str, previous: str | None, body: bytes) -> str:
    digest = hmac.new(key, digestmod=hashlib.sha256)
    for part in (repository.encode(), ref.encode(), (previous or "").encode(), body):
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()


def _times_have_zones(record: model.Record) -> bool:
    times = [record.at]
    if isinstance(record, model.FamilyMemory):
        times += [attempt.ended_at for attempt in record.attempts]
        times += [attempt.until for attempt in record.attempts if attempt.until is not None]
        times += [record.last_tried_at] if record.last_tried_at is not None else []
    return all(time.tzinfo is not None for time in times)


class _ForerunnerText(msgspec.Struct, frozen=True):
    planner_run: int
    candidate: str = ""
    job: str = ""


def decode_forerunner(text: bytes, *, ref: str, oid: str, kind: Literal["claim", "lease"]) -> model.Forerunner | Bad:
    """Return a claim or lease as the forerunner wrote it: ``{"planner_run": N, "candidate": "...", "job": "..."}``.

    Other fields are allowed (that format grew without a version). Bad where it names no planner run.
    """
    parsed = _object(text)
    if isinstance(parsed, Bad):
        return parsed
    try:
        found = msgspec.convert(parsed, _ForerunnerText, strict=True)
    except (msgspec.MsgspecError, RecursionError):
        return Bad("not a record of the forerunner")
    if found.planner_run < 1:
        return Bad("its planner run is not a run id")
    return model.Forerunner(
        ref=ref, oid=oid, kind=kind, planner_run=found.planner_run, candidate=found.candidate, job=found.job
    )
