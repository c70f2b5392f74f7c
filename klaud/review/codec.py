"""``open-prs.json`` and ``review.json`` to and from records: strict, versioned, bounded."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from klaud import errors
from klaud.review import model

DOCUMENT_BYTES = 64 * 1024 * 1024
"""The largest file read back: 1,000 pull requests with 3,000 files each stay below it."""

Document = TypeVar("Document", model.OpenPulls, model.ReviewResult)


def encode(document: model.OpenPulls | model.ReviewResult) -> bytes:
    """Return the document as indented JSON with a final newline."""
    return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"


def decode_open_pulls(raw: bytes, *, where: str = "open-prs.json") -> model.OpenPulls:
    """Read ``open-prs.json``; InputError that names ``where`` and the place in it."""
    return _decode(raw, model.OpenPulls, where)


def decode_result(raw: bytes, *, where: str = "review.json") -> model.ReviewResult:
    """Read ``review.json``; InputError that names ``where`` and the place in it."""
    return _decode(raw, model.ReviewResult, where)


def _decode(raw: bytes, kind: type[Document], where: str) -> Document:
    if len(raw) > DOCUMENT_BYTES:
        raise errors.InputError(f"{where} is larger than the limit of {DOCUMENT_BYTES} bytes")
    version: Any = None
    try:
        version = msgspec.json.decode(raw, type=_Versioned).version
        if version == model.VERSION:
            return msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        why = str(error) if isinstance(error, msgspec.ValidationError) else "not JSON"
        raise errors.InputError(f"{where} is not readable: {why}") from None
    raise errors.InputError(f"{where} has version {version}; this klaud reads version {model.VERSION}")


class _Versioned(msgspec.Struct):
    version: int
