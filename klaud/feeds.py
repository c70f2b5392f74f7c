"""Bounded JSON over HTTPS for everything that is not GitHub: published rows, candidate sources, capacity.

A feed is one JSON document, or JSONL (one object a line). It is asked for plainly (``identity``), with up to three tries
before its body begins; no redirect is followed; http is accepted to this machine only; a TLS failure is final.

Promises: a feed that fails is an error and never an empty list (503, a page of HTML, half a JSON, ``[]`` where rows are
needed: each has its own sentence). One bad row never ends the others: it is left out, counted, and the newest are named.
Nothing of the answer, and no address, is in an error; ``name`` says in the caller's words which feed it was.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import random
import re
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec

from klaud import clock as clocks
from klaud import errors as tree
from klaud.records import acquire, codec, errors, framer, limits, reader, response
from klaud.records import call as calls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import requests

DOCUMENT_BYTES: Final = 64 * limits.MIB
"""The largest feed: it is held whole in memory, several times its size when decoded."""

ROWS: Final = 1_000_000
"""The most rows of a list: a published row has some hundred bytes, and two bytes (``0,``) cost fifty in memory.
JSONL has the bound of every record stream."""

COMMAS: Final = 4 * ROWS
"""A list with more of them is cut into its items one by one, so that the bound holds before they are all in memory."""

POST_BYTES: Final = limits.MIB
"""The largest answer to a POST: a few fields."""

IDLE_SECONDS: Final = 30
"""The longest wait for the network to say anything more."""

ACCEPT: Final = "application/json, application/x-ndjson"

LATER: Final = frozenset({408, 425, 429, *range(500, 600)})
"""A feed's server may answer anything of the 500s while it is deployed: each is tried again."""

POLICY: Final = acquire.Policy(later=LATER)

Shape: TypeAlias = Literal["list", "object", "any"]

_UNAVAILABLE: Final = frozenset({
    "connection-failed", "response-unavailable", "body-failed", "read-timeout", "deadline-exceeded",
})  # fmt: skip
_INVALID: Final = frozenset({"response-invalid", "response-status", "redirected", "download-limit"})


_SPACE: Final = re.compile(r"[ \t\r\n]*")
_SCANNER: Final = json.JSONDecoder(parse_int=len, parse_float=len, strict=False)
"""Only finds where an item ends: what it holds is decoded strictly afterwards."""


class BadRow(msgspec.Struct, frozen=True):
    """One row that was left out. ``place`` is its line (JSONL) or its position from 1 (a list); ``reason`` klaud's word."""

    place: int
    reason: str


class Rows(msgspec.Struct, frozen=True):
    """The rows of a feed. ``malformed`` counts what was left out; ``bad`` names the newest of these, at most 100."""

    rows: tuple[dict[str, Any], ...]
    malformed: int = 0
    bad: tuple[BadRow, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Web:
    """How the network is reached: the clock that waits are slept on, the retry policy, a session of the caller's, chance."""

    clock: clocks.Clock = dataclasses.field(default_factory=clocks.SystemClock)
    policy: acquire.Policy = POLICY
    session: requests.Session | None = None
    chance: Callable[[], float] = random.random


def fetch_json(
    url: str,
    *,
    name: str = "the feed",
    shape: Shape = "any",
    limit_bytes: int = DOCUMENT_BYTES,
    idle_seconds: int = IDLE_SECONDS,
    deadline: float | None = None,
    headers: Mapping[str, str] | None = None,
    web: Web | None = None,
) -> Any:
    """Return the one JSON document at ``url``, of the top-level type that ``shape`` names.

    ``limit_bytes`` bounds its size, ``idle_seconds`` each wait for the network, ``deadline`` all of it (on the clock's
    monotonic scale; none). StreamError: ``feed-unavailable`` where it may be there later, ``feed-invalid`` where the
    answer is not what was asked for, ``tls-failed``, ``response-forbidden``, ``address-refused``.
    """
    bounds = limits.Limits(file_bytes=limit_bytes, idle_seconds=idle_seconds)
    raw = _fetch(calls.Call(url, headers={"Accept": ACCEPT, **(headers or {})}), name, bounds, deadline, web or Web())
    value = document(raw, name=name, shape=shape)
    del raw
    if isinstance(value, errors.StreamError):
        raise value
    return value


def fetch_rows(
    url: str,
    *,
    name: str = "the feed",
    limit_bytes: int = DOCUMENT_BYTES,
    idle_seconds: int = IDLE_SECONDS,
    deadline: float | None = None,
    headers: Mapping[str, str] | None = None,
    allow_empty: bool = False,
    web: Web | None = None,
) -> Rows:
    """Return the rows at ``url``: a JSON list of objects, or JSONL, told apart by the first character.

    No row at all is ``feed-invalid`` unless ``allow_empty``: a feed that lost its rows looks like that. Otherwise as
    ``fetch_json``.
    """
    bounds = limits.Limits(file_bytes=limit_bytes, idle_seconds=idle_seconds)
    raw = _fetch(calls.Call(url, headers={"Accept": ACCEPT, **(headers or {})}), name, bounds, deadline, web or Web())
    found = rows(raw, name=name, allow_empty=allow_empty)
    del raw
    if isinstance(found, errors.StreamError):
        raise found
    return found


class Posted(msgspec.Struct, frozen=True):
    """A clear answer to a POST: its HTTP status, and the JSON value it came with (None unless it was a 2xx with one)."""

    status: int
    value: Any = None

    @property
    def good(self) -> bool:
        """Tell whether it was a yes."""
        return 200 <= self.status < 300


def post_json(
    url: str,
    value: Any,
    *,
    name: str = "the service",
    limit_bytes: int = POST_BYTES,
    idle_seconds: int = IDLE_SECONDS,
    deadline: float | None = None,
    headers: Mapping[str, str] | None = None,
    web: Web | None = None,
) -> Posted:
    """Send ``value`` as JSON, once, and return the answer; a clear no (a 3xx or 4xx) is an answer, too.

    ``limit_bytes`` bounds the answer. UnclearWriteError where there was no clear answer (a 5xx, a time-out, a cut
    connection): it may or may not have been taken. StreamError where the address is refused or TLS failed.
    """
    web = web or Web()
    session = web.session or acquire.new_session()
    sent = {"Accept": "application/json", "Content-Type": "application/json", **(headers or {})}
    call = calls.Call(url, method="POST", headers=sent, body=msgspec.json.encode(value))
    bounds = limits.Limits(file_bytes=limit_bytes, idle_seconds=idle_seconds)
    fault: tree.KlaudError | None = None
    status, raw = 200, b""
    try:
        opened = response.Response(session, call, web.clock, bounds, web.policy, deadline=deadline, chance=web.chance)
        raw = response.whole(opened, bounds)
    except tree.UnclearWriteError:
        fault = tree.UnclearWriteError(f"{name} gave no clear answer")
    except errors.StreamError as error:
        status = error.status or 0
        if not 200 <= status < 500:
            unclear = error.code in _UNAVAILABLE
            fault = tree.UnclearWriteError(f"{name} gave no clear answer") if unclear else _named(error, name)
    finally:
        del call, sent
        if web.session is None:
            session.close()
    if fault is not None:
        raise fault
    answer = codec.decode_document(raw) if raw else None
    return Posted(status, None if isinstance(answer, codec.Refused) else answer)


def read_rows(path: str, *, name: str = "", limit_bytes: int = DOCUMENT_BYTES, allow_empty: bool = False) -> Rows:
    """Return the rows of a file, by the same rules; ``feed-unavailable`` where it cannot be read."""
    name = name or path
    found: Rows | errors.StreamError
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - read as bytes, at most one byte too many
            raw = file.read(limit_bytes + 1)
    except OSError as error:
        found = errors.StreamError(
            f"{name} cannot be read: {error.strerror or type(error).__name__}",
            code="feed-unavailable",
            advice="Check that the file is there and may be read.",
        )
    else:
        found = rows(raw, name=name, allow_empty=allow_empty) if len(raw) <= limit_bytes else _large(name, limit_bytes)
        del raw
    if isinstance(found, errors.StreamError):
        raise found
    return found


def document(raw: bytes, *, name: str = "the document", shape: Shape = "any") -> Any | errors.StreamError:
    """Return the JSON value in ``raw`` under the strict rules of ``records.codec``, or the error that says why not."""
    if fault := _no_data(raw, name):
        return fault
    value = codec.decode_document(raw)
    if isinstance(value, codec.Refused):
        return _invalid(f"{name} is not usable: {codec.MEANING[value]}", str(value))
    if shape == "list" and type(value) is not list:
        return _invalid(f"{name} is {_kind(value)}, and a list is needed", "NotAList")
    if shape == "object" and type(value) is not dict:
        return _invalid(f"{name} is {_kind(value)}, and an object is needed", "NotAnObject")
    return value


def rows(
    raw: bytes, *, name: str = "the document", allow_empty: bool = False, limit_rows: int = ROWS
) -> Rows | errors.StreamError:
    """Return the rows in ``raw`` (a JSON list of objects, or JSONL), or the error that says why there are none.

    ``limit_rows``: the most items of a list.
    """
    start = raw.lstrip(b" \t\r\n")[:1]
    if not (allow_empty and not start) and (fault := _no_data(raw, name)):
        return fault
    found = _listed(raw, name, limit_rows) if start == b"[" else _lined(raw, name)
    if isinstance(found, errors.StreamError) or found.rows or (allow_empty and not found.malformed):
        return found
    if found.malformed:
        why = codec.MEANING.get(found.bad[-1].reason, "it is too long")
        return _invalid(f"{name} has {found.malformed} rows and none is usable: of the last one, {why}", "NoRow")
    return _invalid(f"{name} has no row: an empty answer is not taken for an empty wish", "NoRow")


def _fetch(call: calls.Call, name: str, bounds: limits.Limits, deadline: float | None, web: Web) -> bytes:
    session = web.session or acquire.new_session()
    fault: errors.StreamError | None = None
    raw = b""
    try:
        opened = response.Response(session, call, web.clock, bounds, web.policy, deadline=deadline, chance=web.chance)
        raw = response.whole(opened, bounds)
    except errors.StreamError as error:
        fault = _named(error, name)
    finally:
        del call
        if web.session is None:
            session.close()
    if fault is not None:
        raise fault
    return raw


def _named(error: errors.StreamError, name: str) -> errors.StreamError:
    """Say which feed it was, and with the two codes of feeds whether to come back or to correct something."""
    if error.code == "download-limit":
        return _large(name, int(error.details["limit_bytes"]))
    code = "feed-unavailable" if error.code in _UNAVAILABLE else error.code
    code = "feed-invalid" if error.code in _INVALID else code
    return errors.StreamError(f"{name}: {error}", code=code, status=error.status, details=error.details)


def _no_data(raw: bytes, name: str) -> errors.StreamError | None:
    if not raw or raw.isspace():
        return _invalid(f"{name} is empty", "Empty")
    if raw[:1024].lstrip()[:1] == b"<":
        return _invalid(f"{name} is a page of HTML or XML, and JSON is needed", "NotJson")
    return None


def _listed(raw: bytes, name: str, most: int) -> Rows | errors.StreamError:
    items = _items(raw, most)
    if items is None:
        why = codec.decode_document(raw)
        reason = str(why) if isinstance(why, codec.Refused) else "InvalidJson"
        return _invalid(f"{name} begins as a list and is not usable: {codec.MEANING[reason]}", reason)
    bad: collections.deque[BadRow] = collections.deque(maxlen=framer.SKIPS_NAMED)
    malformed = 0
    kept = []
    for place, item in enumerate(items, 1):
        if place > most:
            return _invalid(f"{name} has more than the limit of {most} rows", "TooManyRows")
        row = codec.decode(item)
        if isinstance(row, codec.Refused):
            malformed += 1
            bad.append(BadRow(place, str(row)))
        else:
            kept.append(row)
    return Rows(tuple(kept), malformed, tuple(bad))


def _items(raw: bytes, most: int) -> Iterable[bytes] | None:
    """Cut a JSON list into its items' bytes, or return None where it is not one list to its end.

    Of a list with more than ``most`` items there are ``most`` and one more, at least.
    """
    if raw.count(b",") > COMMAS:
        return _leniently(raw.decode("utf-8", "surrogateescape"), most)
    try:
        return map(bytes, msgspec.json.decode(raw, type=list[msgspec.Raw]))
    except (msgspec.DecodeError, RecursionError, ValueError):
        return _leniently(raw.decode("utf-8", "surrogateescape"), most)


def _leniently(text: str, most: int) -> list[bytes] | None:
    """Do the same one by one, also where msgspec refuses an item as a value: that costs the item and not the list."""
    at = _SPACE.match(text, text.index("[") + 1).end()  # type: ignore[union-attr]  # matches nothing, too
    items: list[bytes] = []
    if text[at : at + 1] != "]":
        while True:
            try:
                _, end = _SCANNER.raw_decode(text, at)
            except (ValueError, RecursionError):
                return None
            items.append(text[at:end].encode("utf-8", "surrogateescape"))
            if len(items) > most:
                return items
            at = _SPACE.match(text, end).end()  # type: ignore[union-attr]  # matches nothing, too
            if text[at : at + 1] != ",":
                break
            at = _SPACE.match(text, at + 1).end()  # type: ignore[union-attr]  # matches nothing, too
    whole = text[at : at + 1] == "]" and _SPACE.fullmatch(text, at + 1)
    return items if whole else None


def _lined(raw: bytes, name: str) -> Rows | errors.StreamError:
    bounds = limits.Limits(file_bytes=max(len(raw), 1))
    records = reader.RecordReader(bounds, invalid="skip")
    kept: list[dict[str, Any]] = []
    try:
        for at in range(0, len(raw), bounds.chunk_bytes):
            kept.extend(records.feed(raw[at : at + bounds.chunk_bytes]))
        kept.extend(records.finish())
    except errors.StreamError as error:
        return errors.StreamError(f"{name}: {error}", code="feed-invalid", details=error.details)
    bad = tuple(BadRow(skip.file_line_number, skip.reason) for skip in records.skips)
    return Rows(tuple(kept), records.refused, bad)


def _kind(value: object) -> str:
    kinds = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return kinds.get(type(value), "a number")


def _large(name: str, limit_bytes: int) -> errors.StreamError:
    return errors.StreamError(
        f"{name} is larger than the limit of {limit_bytes} bytes",
        code="feed-invalid",
        details={"error_type": "DownloadLimit", "limit_bytes": limit_bytes},
    )


def _invalid(message: str, error_type: str) -> errors.StreamError:
    return errors.StreamError(message, code="feed-invalid", details={"error_type": error_type})
