"""One line to one record: every rule, at its bound and one above."""

from __future__ import annotations

import enum
import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klaud.records import codec, errors, limits

GOOD = {
    b"{}": {},
    b' {"a" : [1, -0, 2.5, 1e3, true, null, "x"]} \t\r': {"a": [1, 0, 2.5, 1000.0, True, None, "x"]},
    b'{"a":"\\ud83d\\ude00"}': {"a": "\N{GRINNING FACE}"},
    '{"a":"\u2028\x7f\u0085"}'.encode(): {"a": "\u2028\x7f\u0085"},
    b'{"a":1e-999}': {"a": 0.0},
    b'{"a":1.7976931348623157e308}': {"a": 1.7976931348623157e308},
    b'{"a":' + b"9" * 4300 + b"}": {"a": int("9" * 4300)},
    b'{"a":-' + b"9" * 4300 + b"}": {"a": -int("9" * 4300)},
    b'{"a":' + b"[" * 127 + b"]" * 127 + b"}": None,
    b'{"a":' + b"[[]," * 126 + b"[]" + b"]" * 126 + b"}": None,
    b'{"a":[' + b'[1,"x"],' * 500 + b"{}]}": None,
    b'{"a":{"a":1},"b":{"a":1}}': {"a": {"a": 1}, "b": {"a": 1}},
    b'{"a":123456789012345678901234567890}': {"a": 123456789012345678901234567890},
    b'{"\x7f":-1,"b":255}': {"\x7f": -1, "b": 255},
}
BAD = {
    b"\xef\xbb\xbf{}": "ByteOrderMark",
    b'{"a":"\xff"}': "InvalidUtf8",
    b'{"a":"\xed\xa0\x80"}': "InvalidUtf8",
    b'{"a":"\xc0\x80"}': "InvalidUtf8",
    '{"a":1}'.encode("utf-16"): "InvalidUtf8",
    '{"a":1}'.encode("utf-16-le"): "InvalidJson",
    b"": "InvalidJson",
    b"  ": "InvalidJson",
    b"{": "InvalidJson",
    b"{}{}": "InvalidJson",
    b"{'a':1}": "InvalidJson",
    b'{"a":1,}': "InvalidJson",
    b'{"a":01}': "InvalidJson",
    b'{"a":+1}': "InvalidJson",
    b'{"a":"\t"}': "InvalidJson",
    b'{"a":"\\x"}': "InvalidJson",
    b"\x0b{}": "InvalidJson",
    b"\xc2\x85{}": "InvalidJson",
    b"// c\n{}": "InvalidJson",
    b'{"a":1,"a":1}': "DuplicateName",
    b'{"a":1,"\\u0061":1}': "DuplicateName",
    b'{"b":[{"a":1,"a":2}]}': "DuplicateName",
    b'{"a":NaN}': "NonFiniteNumber",
    b'{"a":Infinity}': "NonFiniteNumber",
    b'{"a":-Infinity}': "NonFiniteNumber",
    b'{"a":1e999}': "NonFiniteNumber",
    b'{"a":[[-1E+400]]}': "NonFiniteNumber",
    b'{"a":' + b"1" * 400 + b".0}": "NonFiniteNumber",
    b'{"a":"\\ud800"}': "LoneSurrogate",
    b'{"a":"\\udc00x"}': "LoneSurrogate",
    b'{"\\ud800\\u0041":1}': "LoneSurrogate",
    b'{"a":' + b"9" * 4301 + b"}": "IntegerTooLong",
    b'{"a":-' + b"9" * 4301 + b"}": "IntegerTooLong",
    b'{"a":' + b"[" * 128 + b"]" * 128 + b"}": "NestingTooDeep",
    b'{"a":' * 129 + b"1" + b"}" * 129: "NestingTooDeep",
    b'{"a":' + b"[[]," * 127 + b"[]" + b"]" * 127 + b"}": "NestingTooDeep",
    b'{"a":[' + b"[]," * 500 + b"1e999]}": "NonFiniteNumber",
    b"[" * 100_000: "NestingTooDeep",
    b"[]": "NotAnObject",
    b"1": "NotAnObject",
    b"1e999": "NonFiniteNumber",
    b'"x"': "NotAnObject",
    b"null": "NotAnObject",
}


@pytest.mark.parametrize("line", GOOD, ids=lambda line: repr(line[:20]))
def test_records(line: bytes) -> None:
    value = codec.decode(line)
    assert type(value) is dict
    assert GOOD[line] is None or value == GOOD[line]


@pytest.mark.parametrize("line", BAD, ids=lambda line: repr(line[:20]))
def test_what_is_no_record(line: bytes) -> None:
    assert codec.decode(line) == BAD[line]
    assert type(codec.decode(line)) is codec.Refused
    assert BAD[line] in codec.MEANING


def test_documents_of_any_kind_obey_the_same_rules() -> None:
    for raw, value in {
        b"1.5": 1.5,
        b'"x"': "x",
        b"null": None,
        b"[1, [2.5]]": [1, [2.5]],
        b"[" * 128 + b"]" * 128: ...,
    }.items():
        found = codec.decode_document(raw)
        assert type(found) is not codec.Refused
        assert value is ... or found == value
    for raw, reason in {
        b"1e999": "NonFiniteNumber",
        b"[1e999]": "NonFiniteNumber",
        b"[" * 129 + b"]" * 129: "NestingTooDeep",
        b'[{"a":1,"a":1}]': "DuplicateName",
        b"[NaN]": "NonFiniteNumber",
    }.items():
        assert codec.decode_document(raw) == reason


def test_each_reason_is_met() -> None:
    assert set(BAD.values()) == set(codec.MEANING)


def reference(line: bytes) -> Any:
    """The rules again, by the standard library: slow and plain."""

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(items)) != len(items):
            raise ValueError("twice")
        return dict(items)

    def constant(_text: str) -> float:
        raise ValueError("not finite")

    def depth(value: Any) -> int:
        if isinstance(value, dict | list):
            return 1 + max(map(depth, value.values() if isinstance(value, dict) else value), default=0)
        return 0

    def floating(text: str) -> float:
        if math.isinf(float(text)):
            raise ValueError("overflow")
        return float(text)

    try:
        text = line.decode("utf-8")
        value = json.loads(text, object_pairs_hook=pairs, parse_constant=constant, parse_float=floating)
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and depth(value) <= 128 else None


TOKENS = st.sampled_from(
    [
        b"{",
        b"}",
        b"[",
        b"]",
        b'"a"',
        b'"\\u0061"',
        b'"\\ud800"',
        b'"\xff"',
        b":",
        b",",
        b"1",
        b"1e999",
        b"-0.5E+2",
        b"NaN",
        b" ",
    ]
)


@settings(max_examples=1500, derandomize=True, deadline=None)
@given(st.one_of(st.lists(TOKENS, max_size=14).map(b"".join), st.binary(max_size=12)))
def test_against_the_plain_statement(line: bytes) -> None:
    value = codec.decode(line)
    assert (value if type(value) is dict else None) == reference(line)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=300, derandomize=True, deadline=None)
@given(st.dictionaries(st.text(), JSON, max_size=4), st.booleans())
def test_whatever_is_written_is_read(value: dict[str, Any], escaped: bool) -> None:
    try:
        line = json.dumps(value, ensure_ascii=escaped).encode()
    except UnicodeEncodeError:
        return
    assert codec.decode(line) == value


def test_broken_twins_are_caught() -> None:
    """A decoder without our two checks, or without jiter's strict modes, or by another library, fails on this table."""
    import jiter  # noqa: PLC0415 - the twins only
    import msgspec  # noqa: PLC0415 - the twins only

    twins = {
        "jiter alone": lambda line: jiter.from_json(line, allow_inf_nan=False, catch_duplicate_keys=True),
        "jiter's defaults": jiter.from_json,
        "msgspec": msgspec.json.decode,
        "json": json.loads,
    }
    for name, twin in twins.items():
        wrong = []
        for line, reason in BAD.items():
            try:
                accepted = isinstance(twin(line), dict)
            except (ValueError, RecursionError):
                accepted = False
            if accepted:
                wrong.append(reason)
        assert wrong, name
    assert codec._flaw({"a": float("inf")}) == "NonFiniteNumber"


class Number(enum.IntEnum):
    ONE = 1


@pytest.mark.parametrize("name", limits.Limits.__struct_fields__)
@pytest.mark.parametrize("value", [0, -1, True, False, 1.0, "1", None, Number.ONE, math.inf])
def test_limits_are_exact_positive_ints(name: str, value: Any) -> None:
    with pytest.raises(errors.StreamError, match=rf"{name} must be a positive whole number") as caught:
        limits.Limits(**{name: value})
    assert (caught.value.code, caught.value.exit_status) == ("invalid-limit", 2)
    assert limits.Limits(**{name: 1}) is not None
