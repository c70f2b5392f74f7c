"""The text of records at its limits, and the signature as it is documented, computed a second time."""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import Any

import msgspec
import pytest

from klaud.leases import codec, model
from tests.support import records

KEY = b"made-up key"
REPOSITORY = "acme/bench"
REF = records.CLAIM
OID = "c" * 40
WHERE: dict[str, Any] = {"repository": REPOSITORY, "ref": REF}


def padded(size: int) -> model.Claim:
    """Return a claim whose text is exactly so many bytes."""
    short = records.claim(base="")
    missing = size - len(codec.encode(short, **WHERE, previous=None, key=None))
    return msgspec.structs.replace(short, base="b" * missing)


def test_a_record_may_be_as_long_as_the_limit() -> None:
    """Its line end counted; one byte more is refused when written, and when read."""
    fits, over = padded(codec.LIMIT), padded(codec.LIMIT - 1)
    text = codec.encode(fits, **WHERE, previous=None, key=None)
    assert len(text) == codec.LIMIT
    assert codec.decode(text, **WHERE, parent=None, key=None) == fits
    assert codec.decode(text + b" ", **WHERE, parent=None, key=None) == codec.Bad("longer than a record may be")
    over = msgspec.structs.replace(fits, base=fits.base + "b")
    with pytest.raises(codec.RecordTooLargeError, match=f"a record of {codec.LIMIT + 1} bytes"):
        codec.encode(over, **WHERE, previous=None, key=None)


def signature(previous: str, body: bytes, key: bytes = KEY) -> str:
    """Return the signature as the module's docstring says: each part preceded by its length in eight bytes."""
    parts = [REPOSITORY.encode(), REF.encode(), previous.encode(), body]
    whole = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    return hmac.new(key, whole, hashlib.sha256).hexdigest()


@pytest.mark.parametrize("previous", [None, OID])
def test_the_signature_is_the_documented_one(previous: str | None) -> None:
    """Over repository, ref, previous oid and the object without its signature; another program can check it."""
    text = codec.encode(records.claim(), **WHERE, previous=previous, key=KEY)
    said = json.loads(text)["hmac"]
    body = text.replace(f',"hmac":"{said}"'.encode(), b"").rstrip(b"\n")
    assert said == signature(previous or "", body)
    assert json.loads(body)["previous"] == (previous or "")


def test_a_signed_text_that_names_no_previous_commit_is_refused() -> None:
    """It could stand anywhere in a chain."""
    body = msgspec.json.encode(records.claim())
    text = body[:-1] + f',"hmac":"{signature("", body)}"}}'.encode()
    assert codec.decode(text, **WHERE, parent=None, key=KEY) == codec.Bad("bad signature")


def test_an_unsigned_text_may_leave_its_previous_commit_out() -> None:
    """Where no key is set, and then it asserts no link; a named one must be the parent."""
    whole = records.claim()
    bare = msgspec.json.encode(whole)
    assert codec.decode(bare, **WHERE, parent=OID, key=None) == whole
    linked = codec.encode(whole, **WHERE, previous="d" * 40, key=None)
    assert isinstance(codec.decode(linked, **WHERE, parent=OID, key=None), codec.Bad)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (b'{"planner_run": 1}', 1),
        (b'{"planner_run": 2, "more": []}', 2),
        (b'{"planner_run": 0}', "its planner run is not a run id"),
        (b'{"planner_run": -1}', "its planner run is not a run id"),
        (b'{"planner_run": "1"}', "not a record of the forerunner"),
        (b'{"candidate": "c"}', "not a record of the forerunner"),
        (b"{", "not JSON"),
        (b"[]", "not a JSON object"),
        (b'{"planner_run": 1, "planner_run": 2}', "a field is given twice"),
    ],
)
def test_a_record_of_the_forerunner(text: bytes, found: int | str) -> None:
    """A planner run that is a run id; whatever else there is."""
    read = codec.decode_forerunner(text, ref=REF, oid=OID, kind="claim")
    if isinstance(found, int):
        assert read == model.Forerunner(REF, OID, "claim", found)
    else:
        assert read == codec.Bad(found)
