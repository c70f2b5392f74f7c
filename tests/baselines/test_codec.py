"""Rows and entries are read strictly; a bad one is named and stands alone."""

from __future__ import annotations

from typing import Any

import pytest

from klaud import errors
from klaud.baselines import codec, identity, model, schema, settings
from tests.support.benchmarks import ENTRIES, REPOSITORY, policy, row, rows_of

PLAN = schema.plan(policy())
CODEC = codec.RowCodec(PLAN, repository=REPOSITORY)
GOOD = rows_of(ENTRIES["fast"])[0]


def test_a_row_and_its_entry_have_the_same_identity() -> None:
    entries = codec.decode_entries(PLAN, ENTRIES["fast"])
    assert isinstance(entries, list)
    decoded = CODEC.decode(GOOD, 0)
    assert isinstance(decoded, model.Row)
    assert decoded.identity == entries[0].identity
    assert [entry.position for entry in entries] == [0, 0, 1]


def test_absent_and_null_are_the_default() -> None:
    entry = dict(ENTRIES["fast"][1])
    del entry["ep"]
    explicit = {**entry, "ep": 1, "spec-decoding": None, "isl": 8192}
    assert codec.decode_entries(PLAN, [entry]) == codec.decode_entries(PLAN, [explicit])


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"model": None}, "model is missing"),
        ({"conc": "8"}, "conc is 8, not an integer"),
        ({"conc": True}, "conc is true, not an integer"),
        ({"conc": 8.5}, "conc is 8.5, not an integer"),
        ({"conc": float("inf")}, "conc is inf, not an integer"),
        ({"conc": 2**60}, "conc is 1152921504606846976, not an integer"),
        ({"conc": [8]}, "conc is a list, not an integer"),
        ({"disagg": 1}, "disagg is 1, not true or false"),
        ({"framework": 7}, "framework is 7, not a text"),
        ({"image": {"a": 1}}, "image is an object, not a text"),
        ({"image": "x" * 600}, f"image is {'x' * 57}..., not a text"),
        ({"metrics": [1]}, "metrics is a list, not an object"),
        ({"date": 5}, "date is 5, not a text"),
    ],
)
def test_a_malformed_row_says_what_is_wrong(change: dict[str, Any], why: str) -> None:
    found = CODEC.decode({**GOOD, **change}, 3)
    assert found == model.Malformed(index=3, why=why)


@pytest.mark.parametrize("raw", [None, [], "x", 5, True])
def test_a_row_that_is_no_object_is_malformed(raw: Any) -> None:
    assert isinstance(CODEC.decode(raw, 0), model.Malformed)


def test_malformed_rows_end_no_others_and_are_counted_beyond_the_named() -> None:
    found = CODEC.decode_all([GOOD, *[None] * 50, {"model": "m1"}, GOOD])
    assert (len(found.rows), len(found.malformed), found.malformed_count) == (2, codec.MAX_NAMED_MALFORMED, 51)


def test_whole_floats_are_integers_and_metrics_are_numbers_only() -> None:
    found = CODEC.decode({**GOOD, "conc": 4.0, "metrics": {"a": 1, "b": "x", "c": True, "d": None}}, 0)
    assert isinstance(found, model.Row)
    assert found.identity[PLAN.at["conc"]] == 4
    assert found.metrics == {"a": 1.0}


def test_a_number_may_be_whole_or_not() -> None:
    fields = {"scale": settings.Field(type="number"), "name": settings.Field()}
    plan = schema.plan(policy(identity=settings.Schema(base="none", fields=fields)))
    decoder = codec.RowCodec(plan, repository=REPOSITORY)
    found = [decoder.decode({"name": "n", "scale": value}, 0) for value in (1, 1.0, 0.5, "x")]
    assert [each.identity[0] for each in found if isinstance(each, model.Row)] == [1.0, 1.0, 0.5]


def test_a_digest_names_the_content_and_nothing_else() -> None:
    one, other = CODEC.decode(GOOD, 0), CODEC.decode(dict(reversed(GOOD.items())), 9)
    changed = CODEC.decode({**GOOD, "metrics": {"tput": 1.0}}, 0)
    assert isinstance(one, model.Row)
    assert isinstance(other, model.Row)
    assert isinstance(changed, model.Row)
    assert one.digest == other.digest != changed.digest


def test_an_entry_that_cannot_be_read_is_named() -> None:
    bad = codec.decode_entries(PLAN, [ENTRIES["fast"][0], {**ENTRIES["fast"][0], "conc": [4, "x"]}])
    assert bad == model.Malformed(index=1, why="conc is x, not an integer")
    assert codec.decode_entries(PLAN, [7]) == model.Malformed(index=0, why="is 7, not an object")
    many = codec.decode_entries(PLAN, [{**ENTRIES["fast"][0], "conc": list(range(5000))}])
    assert isinstance(many, model.Malformed)


def test_settings_are_what_is_outside_the_identity() -> None:
    found = codec.settings_of(PLAN, {**ENTRIES["split"][0], "router": {"name": "r", "x": [1, {"y": 2}]}})
    assert found == {"router.name": "r", "router.x": "1, ..."}


@pytest.mark.parametrize(
    ("text", "expected"),
    [("cluster:gb200-nv", "gb200"), ("mi355x-disagg", "mi355x"), ("h100", "h100"), ("cluster:h100", "h100"), ("", "")],
)
def test_a_runner_label_becomes_its_hardware(text: str, expected: str) -> None:
    assert identity.transform("runner", text) == expected


def test_enroot_images_and_lower_case() -> None:
    assert identity.transform("image", "nvcr.io#team/img:v1") == "nvcr.io/team/img:v1"
    assert identity.transform("lower", "FP8") == "fp8"
    assert identity.transform("", "A#b") == "A#b"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"identity": settings.Schema(base="none")}, "has no fields"),
        ({"identity": settings.Schema(base="none", fields={"a": settings.Field(varies=True)})}, "no two points differ"),
        ({"identity": settings.Schema(fields={"n": settings.Field(list=True)})}, "only one field may be a list"),
        ({"rows": settings.Rows(fields={"nope": "x"})}, "rows.fields names 'nope'"),
        ({"generator": {"fields": {"nope": "x"}}}, "generator.fields names 'nope'"),
        ({"retired": (settings.Retired(family="*", match={"nope": 1}),)}, "retired names 'nope'"),
        (
            {
                "identity": settings.Schema(base="none", fields={"a": settings.Field()}),
                "equivalences": ("aggregate-mirror",),
            },
            "equivalence aggregate-mirror names 'is_multinode'",
        ),
        ({"generator": {"layouts": (settings.Layout(inputs=("a",), commands=((),)),)}}, "has no command"),
        ({"generator": {"layouts": (settings.Layout(inputs=("a",), commands=(("x",),)),)}}, "needs family-field"),
    ],
)
def test_an_identity_that_cannot_work_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(errors.InputError, match=words):
        schema.plan(policy(**change))


def test_metrics_may_stand_beside_the_identity() -> None:
    plan = schema.plan(policy(rows=settings.Rows(metrics="")))
    raw = {key: value for key, value in row(ENTRIES["fast"][0], 4).items() if key != "metrics"}
    found = codec.RowCodec(plan, repository=REPOSITORY).decode({**raw, "tput": 5}, 0)
    assert isinstance(found, model.Row)
    assert found.metrics == {"tput": 5.0}


def test_identities_of_one_field_and_without_a_scope_work() -> None:
    fields = {"case": settings.Field(), "build": settings.Field(varies=True)}
    plan = schema.plan(policy(identity=settings.Schema(base="none", fields=fields)))
    assert plan.scope_of(("a", "1")) == ()
    assert plan.point_of(("a", "1")) == ("a",)


# -- rows of other benchmarks, and values that want to be more than values


@pytest.mark.parametrize(
    ("only", "aside"),
    [
        ({}, {}),
        ({"suite": "acme"}, {"suite other": 2, "suite 7": 1}),
        ({"suite": ("acme", "other")}, {"suite 7": 1}),
        ({"suite": "acme", "of.team": True}, {"of.team 1": 1, "suite 7": 1, "suite other": 2}),
    ],
)
def test_rows_that_say_another_benchmark_are_left_aside_and_counted(only: Any, aside: dict[str, int]) -> None:
    raws: list[Any] = [
        {**GOOD, "suite": "acme"}, {**GOOD, "suite": "other"}, {**GOOD, "suite": "other", "conc": "x"}, GOOD,
        {**GOOD, "suite": None}, {**GOOD, "suite": 7}, {**GOOD, "of": {"team": 1}}, None,
    ]  # fmt: skip
    plan = schema.plan(policy(rows=settings.Rows(only=only)))
    found = codec.RowCodec(plan, repository=REPOSITORY).decode_all(raws)
    assert found.aside == aside
    assert len(found.rows) + found.malformed_count + sum(aside.values()) == len(raws)
    assert {0, 3, 4} <= {each.index for each in found.rows}


def test_other_benchmarks_beyond_the_named_are_counted_together() -> None:
    plan = schema.plan(policy(rows=settings.Rows(only={"suite": "acme"})))
    found = codec.RowCodec(plan, repository=REPOSITORY).decode_all([{**GOOD, "suite": f"s{n:03}"} for n in range(50)])
    assert (len(found.aside), found.aside["others"]) == (codec.MAX_ASIDE + 1, 30)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"conc": 10**5000}, "conc is a number of more than 300 digits, not an integer"),
        ({"conc": float("nan")}, "conc is nan, not an integer"),
        ({"conc": "\x1b[2J\u202e4"}, "conc is \ufffd[2J\ufffd4, not an integer"),
        ({"model": "\ud800"}, "holds half of a character"),
        ({"metrics": {"\ud800": 1.0}}, "holds half of a character"),
    ],
)
def test_a_hostile_value_is_one_malformed_row(change: dict[str, Any], why: str) -> None:
    assert CODEC.decode({**GOOD, **change}, 0) == model.Malformed(index=0, why=why)


def test_a_number_beyond_all_floats_is_no_metric() -> None:
    found = CODEC.decode({**GOOD, "metrics": {"a": 10**400, "b": -(10**400), "c": float("inf"), "d": 2}}, 0)
    assert isinstance(found, model.Row)
    assert found.metrics == {"d": 2.0}


def test_a_value_that_a_list_has_twice_is_one_point() -> None:
    found = codec.decode_entries(PLAN, [{**ENTRIES["fast"][0], "conc": [4, 4.0, 8, 4]}])
    assert isinstance(found, list)
    assert [entry.identity[PLAN.at["conc"]] for entry in found] == [4, 8]


def test_lists_that_spread_out_beyond_the_bound_are_no_matrix() -> None:
    entry = {**ENTRIES["fast"][0], "conc": list(range(1, codec.MAX_CONC + 1))}
    found = codec.decode_entries(PLAN, [entry] * 60)
    assert found == model.Malformed(index=48, why="has point 200001 of the matrix, one too many")
