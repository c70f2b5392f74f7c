"""The text of records: what is written is read, everything else is refused in klaud's own words, nothing ever raises."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klaud.leases import codec, model
from tests.support import records

KEY = b"made-up key"
REPOSITORY = "acme/bench"
REF = records.CLAIM
OID = "c" * 40
CANARY = "canary-9d1f"


def encode(record: model.Record, previous: str | None = None, key: bytes | None = None, ref: str = REF) -> bytes:
    return codec.encode(record, repository=REPOSITORY, ref=ref, previous=previous, key=key)


def decode(
    text: bytes, parent: str | None = None, key: bytes | None = None, ref: str = REF, repository: str = REPOSITORY
) -> model.Record | codec.Bad | codec.Later:
    return codec.decode(text, repository=repository, ref=ref, parent=parent, key=key)


def plain(**changes: Any) -> dict[str, Any]:
    whole: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(records.claim()))
    whole.update(changes)
    return whole


@given(records.RECORDS, st.sampled_from([None, OID]), st.sampled_from([None, KEY]))
@settings(max_examples=300, deadline=None)
def test_every_record_is_read_as_it_was_written(record: model.Record, previous: str | None, key: bytes | None) -> None:
    text = encode(record, previous, key)
    assert decode(text, previous, key) == record
    assert text.endswith(b"}\n")
    assert json.loads(text)["previous"] == (previous or "")


@given(st.binary(max_size=300))
@settings(max_examples=300, deadline=None)
def test_no_text_raises(text: bytes) -> None:
    assert isinstance(decode(text), codec.Bad)


@given(records.RECORDS, st.data())
@settings(max_examples=200, deadline=None)
def test_a_signed_record_with_one_byte_changed_is_bad(record: model.Record, data: st.DataObject) -> None:
    text = bytearray(encode(record, OID, KEY))
    at = data.draw(st.integers(min_value=0, max_value=len(text) - 1))
    text[at] ^= data.draw(st.integers(min_value=1, max_value=255))
    assert isinstance(decode(bytes(text), OID, KEY), codec.Bad | codec.Later)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=8,
    )
)
@settings(max_examples=150, deadline=None)
def test_no_other_json_is_a_record(value: object) -> None:
    assert isinstance(decode(json.dumps(value).encode()), codec.Bad | codec.Later)


BAD: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "JSON"),
    "no-json": (b"fix the build\n", "JSON"),
    "truncated": (encode(records.claim())[:-9], "JSON"),
    "two-objects": (encode(records.claim()) * 2, "JSON"),
    "list": (b"[]", "object"),
    "utf16": (json.dumps(plain()).encode("utf-16"), "JSON"),
    "bad-utf8": (encode(records.claim()).replace(b"plan", b"pl\xffn"), "JSON"),
    "nan": (encode(records.claim()).replace(b'"run_id":7000', b'"run_id":NaN'), "JSON"),
    "deep": (b"[" * 60_000, "JSON"),
    "deep-object": (b'{"klaud":1,"a":' * 4000 + b"1" + b"}" * 4000, ""),
    "doubled-field": (encode(records.claim()).replace(b'"wave":', b'"wave":"1.1","wave":', 1), "twice"),
    "doubled-inner-field": (encode(records.claim()).replace(b'"run_id":', b'"run_id":1,"run_id":', 1), "twice"),
    "no-version": (json.dumps({**plain(), "klaud": None}).encode(), "version"),
    "version-0": (json.dumps({**plain(), "klaud": 0}).encode(), "version"),
    "version-true": (json.dumps({**plain(), "klaud": True}).encode(), "version"),
    "version-text": (json.dumps({**plain(), "klaud": "1"}).encode(), "version"),
    "version-float": (json.dumps({**plain(), "klaud": 1.0}).encode(), "version"),
    "unknown-field": (json.dumps({**plain(), CANARY: CANARY}).encode(), "fields"),
    "unknown-inner-field": (json.dumps(plain(holder={"run_id": 1, "attempt": 1, "x": 1})).encode(), "fields"),
    "missing-field": (json.dumps({k: v for k, v in plain().items() if k != "wave"}).encode(), "fields"),
    "wrong-type": (json.dumps(plain(holder={"run_id": "7000", "attempt": 1})).encode(), "fields"),
    "unknown-kind": (json.dumps(plain(kind="crown")).encode(), "fields"),
    "no-kind": (json.dumps({k: v for k, v in plain().items() if k != "kind"}).encode(), "fields"),
    "naive-time": (json.dumps(plain(at="2026-11-30T12:00:00")).encode(), "zone"),
    "bad-time": (json.dumps(plain(at="yesterday")).encode(), "fields"),
    "previous-number": (json.dumps(plain(previous=7)).encode(), "previous"),
    "previous-short": (json.dumps(plain(previous="abc")).encode(), "previous"),
    "large": (json.dumps(plain(job="x" * 70_000)).encode(), "longer"),
    "one-byte-too-large": (b" " * (codec.LIMIT + 1), "longer"),
}


@pytest.mark.parametrize("case", sorted(BAD))
def test_a_malformed_record_is_bad_and_says_why_without_its_text(case: str) -> None:
    text, word = BAD[case]
    found = decode(text)
    assert isinstance(found, codec.Bad)
    assert word in found.why
    assert CANARY not in found.why
    assert len(found.why) < 80


def test_times_inside_a_memory_need_a_zone() -> None:
    memory = model.FamilyMemory(
        at=records.AT,
        family=records.FAMILY,
        attempts=(model.Attempt(candidate="c", outcome="failed", blame="none", ended_at=records.AT, until=records.AT),),
        last_tried_at=records.AT,
    )
    text = encode(memory)
    for name in (b"ended_at", b"until", b"last_tried_at"):
        start = text.index(b'"' + name + b'":')
        naive = text[:start] + text[start:].replace(b"00Z", b"00", 1)
        assert decode(naive) == codec.Bad("a time without a time zone"), name


def test_a_later_version_is_not_bad_whatever_else_it_holds() -> None:
    text = json.dumps({"klaud": 2, "anything": [1]}).encode()
    assert decode(text) == codec.Later(2)
    assert decode(text, key=KEY) == codec.Later(2)


def test_with_a_key_only_signed_records_are_believed() -> None:
    good = encode(records.claim(), OID, KEY)
    assert decode(good, None, KEY) == records.claim()
    assert decode(encode(records.claim(), OID), None, KEY) == codec.Bad("not signed")
    assert decode(encode(records.claim(), OID, b"other"), None, KEY) == codec.Bad("bad signature")
    assert decode(good, None, KEY, ref=records.LEASE) == codec.Bad("bad signature"), "moved to another ref"
    assert decode(good, None, KEY, repository="acme/other") == codec.Bad("bad signature"), (
        "copied to another repository"
    )
    assert decode(good.replace(OID.encode(), b"d" * 40), None, KEY) == codec.Bad("bad signature"), "another previous"
    spaced = good.replace(b',"hmac"', b', "hmac"')
    assert decode(spaced, None, KEY) == codec.Bad("bad signature"), "the signature has one place"


def test_without_a_key_a_signed_record_is_read_all_the_same() -> None:
    assert decode(encode(records.claim(), OID, KEY)) == records.claim()


def test_parts_of_the_signed_text_cannot_be_shifted_into_each_other() -> None:
    one = codec.encode(records.claim(), repository="acme/bench", ref="refs/x", previous=None, key=KEY)
    two = codec.encode(records.claim(), repository="acme/benchr", ref="efs/x", previous=None, key=KEY)
    assert json.loads(one)["hmac"] != json.loads(two)["hmac"]


def test_a_link_must_name_its_own_parent() -> None:
    text = encode(records.started(), OID)
    assert decode(text, OID) == records.started()
    assert isinstance(decode(text, "d" * 40), codec.Bad)
    assert isinstance(decode(encode(records.started(), None), "d" * 40), codec.Bad), "a first record put on a chain"


def test_a_record_that_does_not_fit_is_refused_when_written() -> None:
    with pytest.raises(codec.RecordTooLargeError):
        encode(records.claim(base="b" * codec.LIMIT))


class TestForerunner:
    def read(self, text: bytes) -> model.Forerunner | codec.Bad:
        return codec.decode_forerunner(text, ref="refs/heads/klaud/claim-x", oid=OID, kind="claim")

    def test_it_is_read(self) -> None:
        text = b'{"planner_run": 5, "candidate": "aa-bb", "job": "Run candidate aa-bb", "since": "v0"}'
        found = self.read(text)
        assert isinstance(found, model.Forerunner)
        assert (found.planner_run, found.candidate, found.job, found.kind) == (
            5,
            "aa-bb",
            "Run candidate aa-bb",
            "claim",
        )

    @pytest.mark.parametrize(
        "text",
        [b"", b"merge", b"{}", b'{"planner_run":"5"}', b'{"planner_run":0}', b'{"planner_run":-5}', b'{"planner_run":true}',
         b'{"planner_run":5,"planner_run":6}', b'{"planner_run":5,"job":7}', b"[5]", b" " * 70_000],
    )  # fmt: skip
    def test_anything_else_is_bad(self, text: bytes) -> None:
        assert isinstance(self.read(text), codec.Bad)
