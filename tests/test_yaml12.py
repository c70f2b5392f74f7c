"""YAML as klaud reads it."""

from __future__ import annotations

import json
import math

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from klaud import errors, yaml12


def load(text: str | bytes, limit: int = 1_000_000) -> object:
    raw = text.encode() if isinstance(text, str) else text
    return yaml12.load(raw, where="file.yml", limit=limit)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("on", "on"), ("yes", "yes"), ("No", "No"), ("off", "off"), ("true", True), ("False", False), ("010", 10),
        ("-7", -7), ("+7", 7), ("0o10", 8), ("0x1f", 31), ("0b1", "0b1"), ("1_000", "1_000"), ("1:30", "1:30"),
        ("1.", 1.0), (".5", 0.5), ("1e3", 1000.0), (".inf", math.inf), ("-.Inf", -math.inf), ("2026-01-01", "2026-01-01"),
        ("~", None), ("null", None), ("", None), ("'1'", "1"), ("=", "="), ("<<", "<<"), ("!!str 1", "1"),
    ],
)  # fmt: skip
def test_a_plain_scalar_is_what_yaml_1_2_says(text: str, value: object) -> None:
    loaded = load(f"key: {text}")
    assert loaded == {"key": value}
    assert isinstance(loaded, dict)
    assert type(loaded["key"]) is type(value)


def test_L114_a_workflow_s_on_is_a_text_and_nan_is_a_number() -> None:  # noqa: N802 - the oddity's id
    assert load("on: [push]") == {"on": ["push"]}
    value = load(".nan")
    assert isinstance(value, float)
    assert math.isnan(value)


def test_merge_keys_work_and_may_be_overridden() -> None:
    assert load("a: &x {k: 1, z: 2}\nb: {<<: *x, k: 3}") == {"a": {"k": 1, "z": 2}, "b": {"k": 3, "z": 2}}


def bomb(width: int, depth: int) -> str:
    lines = ["x0: &x0 [" + ", ".join("1" * width) + "]"]
    lines += [f"x{i}: &x{i} [{', '.join([f'*x{i - 1}'] * width)}]" for i in range(1, depth)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: 1\na: 2", "line 2, column 1: not readable as YAML: key 'a' is written twice"),
        ("a: {b: 1, b: 1}", "key 'b' is written twice"),
        ("1: a\ntrue: b", "written twice"),
        ("&a [*a]", "alias *a names nothing before it"),
        ("a: *b", "alias *b names nothing before it"),
        ("a: !!python/object:os.system x", "could not determine a constructor"),
        ("!!binary aGk=", "not allowed"),
        ("!!timestamp 2001-01-01", "not allowed"),
        ("!!set {a}", "not allowed"),
        ("!!int abc", "not an integer"),
        ("!!float abc", "not a number"),
        ("!!bool 1", "not true or false"),
        ("a\n---\nb", "another document"),
        (b"\xff\xfe", "not UTF-8 (byte 0)"),
        ("a: \x00", "a character that YAML does not allow"),
        ("? [1]\n: 2", "a key that is a list or a mapping"),
        ("[" * 70 + "]" * 70, "nested more than 64 levels"),
        ("[" * 100_000, "exceeded maximum nesting depth"),
        (bomb(10, 8), "more than 200000 values"),
        ("9" * 5000, "not an integer"),
        ("x" * 1_000_001, "above the limit of 1000000 bytes"),
    ],
)
def test_what_is_refused_is_refused_by_name_and_place(text: str | bytes, words: str) -> None:
    with pytest.raises(errors.InputError) as caught:
        load(text)
    assert str(caught.value).startswith("file.yml: ")
    assert words in str(caught.value)


def test_the_size_limit_passes_exactly_at_the_limit() -> None:
    assert load("a: b", limit=4) == {"a": "b"}
    with pytest.raises(errors.InputError):
        load("a: bc", limit=4)


def test_broken_twin_without_the_walk_over_events_a_bomb_is_built() -> None:
    """The plain safe loader builds what the bound refuses, so the bound is what stops it."""
    built = yaml.load(bomb(10, 5), Loader=yaml.CSafeLoader)
    assert len(json.dumps(built)) > yaml12.NODES


TEXT = st.text(st.characters(exclude_categories=("Cc", "Cf", "Cs", "Cn", "Co", "Zl", "Zp")), max_size=20)
PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)


@settings(deadline=None, derandomize=True)
@given(PLAIN)
def test_json_is_read_as_json(data: object) -> None:
    """YAML 1.2 is a superset of JSON (libyaml's own limits on escapes of control characters apart)."""
    assert load(json.dumps(data, ensure_ascii=False)) == data
