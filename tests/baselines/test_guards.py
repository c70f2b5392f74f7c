"""Each guard of the rules by itself, as small tables: what it lets through, what it holds back, and just where."""

from __future__ import annotations

from typing import Any

import pytest

from klaud.baselines import codec, decide, decide_points, identity, model, schema, settings
from tests.support.benchmarks import (
    AGGREGATE,
    ALL,
    ENTRIES,
    FAST,
    PRODUCER,
    REPOSITORY,
    TODAY,
    Case,
    only,
    policy,
    row,
    rows_of,
)

OTHER = "e" * 40
KIN = "c:kin"
FIRST = ENTRIES["fast"][0]


def judge(case: Case) -> tuple[dict[str, model.Verdict], decide.Judge]:
    one = decide.Judge(case.plan, case.proofs(), case.produced(), case.families, case.current)
    return {verdict.family: verdict for verdict in one.run(case.decoded())}, one


def with_kin() -> Case:
    """Return two families of one coarse kind, every point of both published."""
    case = Case()
    kin = [{**FIRST, "conc": [64, 128]}]
    for commit in (PRODUCER, TODAY):
        case.matrices[commit, KIN] = kin
    case.rows += rows_of(kin)
    case.families = [FAST, KIN]
    return case


# -- equivalences: none is wider than its sentence

SINGLE = {**FIRST, "scenario-type": "agentic-coding"}
MIRROR, ALONE, FLAG = ALL


def encoded(entry: dict[str, Any], names: tuple[settings.Equivalence, ...] = ALL) -> dict[str, dict[str, Any]]:
    """Return, by equivalence, what it changes of an entry's identity."""
    plan = schema.plan(policy(equivalences=names))
    found = codec.decode_entries(plan, [{**entry, "conc": 4}])
    assert isinstance(found, list)
    ways = identity.encodings(plan, found[0].identity)
    assert ways[0] == (found[0].identity, "")
    first = plan.named(found[0].identity)
    return {
        name: {key: value for key, value in plan.named(way).items() if value != first[key]} for way, name in ways[1:]
    }


def part(**more: Any) -> dict[str, Any]:
    return {"num-worker": 1, "tp": 4, "ep": 2, "dp-attn": True, **more}


SPREAD = {**AGGREGATE, "prefill": part(), "decode": part(**{"num-worker": 0, "tp": 1, "ep": 1, "dp-attn": False})}
AS_PREFILL = {"decode_tp": 4, "decode_ep": 2, "decode_dp_attention": True}


@pytest.mark.parametrize(
    ("entry", "ways"),
    [
        (FIRST, {}),
        (SINGLE, {FLAG: {"disagg": True}}),
        ({**SINGLE, "disagg": True}, {}),
        (
            SPREAD,
            {
                MIRROR: {**AS_PREFILL, "decode_num_workers": 1},
                ALONE: {**AS_PREFILL, "is_multinode": False, "prefill_num_workers": 0},
            },
        ),
        ({**SPREAD, "disagg": True}, {}),
        ({**SPREAD, "decode": part()}, {}),
        ({**SPREAD, "prefill": part(**{"num-worker": 2})}, {MIRROR: {**AS_PREFILL, "decode_num_workers": 2}}),
        ({**SPREAD, "prefill": part(**{"num-worker": 0}), "decode": part(**{"num-worker": 0})}, {}),
    ],
)
def test_an_entry_is_published_in_these_ways_and_no_others(entry: dict[str, Any], ways: Any) -> None:
    assert encoded(entry) == ways
    for name in ALL:
        assert encoded(entry, (name,)) == {key: value for key, value in ways.items() if key == name}


def test_places_that_differ_are_named_in_order() -> None:
    assert identity.differing((1, "a", None), (2, "a", 3)) == [0, 2]


# -- a row whose producer is in doubt


@pytest.mark.parametrize(
    ("conc", "drift", "blamed"), [(4, {}, {FAST}), (64, {}, {KIN}), (4, {"decode_tp": 3}, {FAST, KIN})]
)
def test_a_row_in_doubt_defers_whose_it_is_and_where_that_is_unknown_all_of_its_kind(
    conc: int, drift: dict[str, Any], blamed: set[str]
) -> None:
    case = with_kin()
    case.rows.append(row(FIRST, conc, run=900, **drift))
    case.runs["900"] = model.Unproven(run_id=900, why="run 900 is gone")
    verdicts, one = judge(case)
    assert {name for name, verdict in verdicts.items() if verdict.verdict == "deferred"} == blamed
    assert one.outside == 0
    digest = case.decoded()[-1].digest
    for name in blamed:
        assert digest in one.relied(name).rows
        assert one.relied(name).families == {FAST, KIN}


def test_a_row_in_doubt_of_nobody_asked_is_outside() -> None:
    case = with_kin()
    case.families = [FAST]
    case.rows = [*rows_of(ENTRIES["fast"]), row(FIRST, 64, run=900), row(FIRST, 4, model="zz", run=900)]
    case.runs["900"] = model.Unproven(run_id=900, why="run 900 is gone")
    verdicts, one = judge(case)
    assert (verdicts[FAST].verdict, one.outside) == ("verified", 2)


def test_an_address_that_names_no_run_is_shown_and_an_empty_one_is_called_nothing() -> None:
    for url, text in (("ftp://x\x1b[2J", "ftp://x\ufffd[2J names no run"), ("", "nothing names no run")):
        case = Case()
        case.rows[0]["run_url"] = url
        assert only(case.verdict()).examples[0].text.startswith(text)


# -- what a verdict rests on


@pytest.mark.parametrize("drift", [{}, {"decode_tp": 3}])
def test_a_verdict_rests_on_every_family_that_its_rows_could_be_of(drift: dict[str, Any]) -> None:
    case = with_kin()
    case.rows[0].update(drift)
    _, one = judge(case)
    assert one.relied(FAST).families == {FAST, KIN}
    assert one.relied(FAST).rows >= {each.digest for each in case.decoded()[:3]}
    alone = Case()
    alone.rows[0].update(drift)
    assert judge(alone)[1].relied(FAST).families == {FAST}


def test_a_row_of_no_kind_is_rested_on_where_it_is_one_field_away() -> None:
    case = Case()
    case.rows.append(row(FIRST, 4, model="m9"))
    case.rows.append(row(FIRST, 4, model="m9", osl=7))
    verdicts, one = judge(case)
    near, far = (each.digest for each in case.decoded()[-2:])
    assert near in one.relied(FAST).rows
    assert far not in one.relied(FAST).rows
    assert (only(verdicts[FAST]).count, one.outside) == (1, 1)


# -- narrowing


@pytest.mark.parametrize(
    ("marks", "row_mark", "code"),
    [
        (("aa", "bb"), "bb", ""),
        (("aa", "bb"), None, "ambiguous"),
        (("aa", "bb"), "cc", "recipe-changed"),
        (("aa", None), "cc", "ambiguous"),
        ((None, None), "cc", "ambiguous"),
        (("aa",), "aa", ""),
        (("aa",), "bb", "recipe-changed"),
        ((None,), "bb", ""),
        (("aa",), None, ""),
    ],
)
def test_a_fingerprint_narrows_several_entries_and_refuses_a_single_other_one(
    marks: tuple[str | None, ...], row_mark: str | None, code: str
) -> None:
    case = Case(rows_of([FIRST], recipe_fingerprint=row_mark))
    entries = [{**FIRST, "exp-name": str(at), "recipe-fingerprint": mark} for at, mark in enumerate(marks)]
    case.matrices = {(commit, FAST): entries for commit in (PRODUCER, TODAY)}
    assert [reason.code for reason in case.verdict().reasons] == ([code] if code else [])


@pytest.mark.parametrize(
    ("selected", "codes"),
    [
        (None, {FAST: "ambiguous", KIN: "ambiguous"}),
        ((), {FAST: "ambiguous", KIN: "ambiguous"}),
        (("fast",), {FAST: "", KIN: "no-published-points"}),
        (("nobody", "kin"), {FAST: "no-published-points", KIN: ""}),
        ((FAST,), {FAST: "", KIN: "no-published-points"}),
        (("*",), {FAST: "ambiguous", KIN: "ambiguous"}),
    ],
)
def test_a_changelog_tells_two_families_apart(selected: tuple[str, ...] | None, codes: dict[str, str]) -> None:
    case = Case()
    case.matrices[PRODUCER, KIN] = case.matrices[TODAY, KIN] = ENTRIES["fast"]
    case.changelog = None if selected is None else {"1000": selected}
    case.families = [FAST, KIN]
    found = judge(case)[0]
    assert {name: "".join(reason.code for reason in verdict.reasons) for name, verdict in found.items()} == codes


def test_a_pattern_selects_by_the_whole_name_or_by_the_key() -> None:
    for patterns, yes in ((("configs/*",), True), (("no", "fa*"), True), (("fas",), False), ((), False)):
        assert decide_points.selects(patterns, FAST) is yes


# -- which row is the newest


def test_the_newest_attempt_of_the_newest_run_wins_and_a_tie_is_none() -> None:
    case = Case()
    case.rows = [
        row(FIRST, 4, metrics={"n": float(at)}, run_url=f"https://github.com/{REPOSITORY}/actions/runs/{tail}")
        for at, tail in enumerate(["900/attempts/3", "1000", "1000/attempts/2", "999/attempts/9"])
    ]  # fmt: skip
    (group,) = decide_points.newest_rows(case.plan, case.decoded())
    assert [each.metrics["n"] for each in group.newest] == [2.0]
    assert [(each.run_id, each.attempt) for each in group.older] == [(1000, 1), (999, 9), (900, 3)]
    point = next(point for point in case.verdict().points)
    assert (point.run_id, point.attempt, point.proven, point.trusted) == (1000, 2, "run", "ancestor")
    assert [(each.run_id, each.attempt) for each in point.older] == [(1000, 1), (999, 9), (900, 3)]


def test_an_older_row_in_doubt_defers_though_a_newer_one_proves_the_point() -> None:
    case = Case()
    case.rows.append(row(FIRST, 4, run=900))
    case.runs["900"] = model.Unproven(run_id=900, why="run 900 is gone")
    assert only(case.verdict()).code == "producer-unprovable"
    case.runs["900"] = model.Proof(run_id=900, attempt=1, commit=OTHER, how="run")
    case.commits[OTHER] = model.Untrusted(commit=OTHER, why="a fork")
    assert case.verdict().verdict == "verified"  # it is superseded, and nothing of it has to be started


# -- outliers


@pytest.mark.parametrize(
    ("value", "past", "factor", "history", "flagged"),
    [
        (30.0, [10.0] * 3, 3.0, 3, False),
        (30.1, [10.0] * 3, 3.0, 3, True),
        (3.3, [10.0] * 3, 3.0, 3, True),
        (3.4, [10.0] * 3, 3.0, 3, False),
        (99.0, [10.0] * 2, 3.0, 3, False),
        (99.0, [10.0] * 2, 3.0, 2, True),
        (99.0, [10.0] * 3, 1.0, 3, False),
        (99.0, [10.0] * 3, 1.1, 3, True),
        (-10.0, [10.0] * 3, 3.0, 3, True),
        (10.0, [-10.0] * 3, 3.0, 3, True),
        (0.0, [0.0] * 3, 3.0, 3, False),
        (0.5, [0.0] * 3, 3.0, 3, True),
        (-10.0, [-10.0] * 3, 3.0, 3, False),
    ],
)
def test_a_value_is_flagged_beyond_the_factor_alone(
    value: float, past: list[float], factor: float, history: int, flagged: bool
) -> None:
    decoded = Case([row(FIRST, 4, metrics={"n": each}) for each in (value, *past)]).decoded()
    limits = policy(outlier_factor=factor, outlier_history=history)
    assert bool(decide_points.outliers(limits, decoded[0], decoded[1:])) is flagged


# -- today


@pytest.mark.parametrize(
    ("family", "match", "excused"),
    [
        ("configs/*", {"isl": 8192}, True),
        ("configs/*", {"isl": 8192, "osl": 1024}, True),
        ("configs/*", {"isl": 8192, "osl": 1}, False),
        ("configs/*", {"isl": 1, "osl": 1024}, False),
        ("configs/*", {}, True),
        ("other/*", {}, False),
        ("other/*", {"isl": 8192}, False),
    ],
)
def test_a_retired_point_is_excused_where_family_and_every_field_agree(
    family: str, match: dict[str, Any], excused: bool
) -> None:
    case = Case(retired=(settings.Retired(family=family, match=match),))
    case.matrices[TODAY, FAST] = ENTRIES["fast"][:1]
    verdict = case.verdict()
    assert (verdict.verdict, len(verdict.retired)) == (("verified", 1) if excused else ("deferred", 0))


def test_a_family_whose_points_are_all_excused_is_not_without_points() -> None:
    case = Case(retired=(settings.Retired(family="*"),))
    case.matrices[TODAY, FAST] = [{**FIRST, "conc": 999}]
    verdict = case.verdict()
    assert (verdict.verdict, len(verdict.retired), verdict.unpublished) == ("verified", 3, 1)
    case.current = ""
    assert (len(case.verdict().points), case.verdict().unpublished) == (3, 0)


@pytest.mark.parametrize(("then", "now", "same"), [("aa", "aa", True), ("aa", None, True), ("aa", "bb", False)])
def test_a_recipe_is_the_same_where_nothing_says_otherwise(then: str, now: str | None, same: bool) -> None:
    case = Case(rows_of(ENTRIES["fast"], recipe_fingerprint=then))
    for commit, mark in ((PRODUCER, then), (TODAY, now)):
        case.matrices[commit, FAST] = [{**entry, "recipe-fingerprint": mark} for entry in ENTRIES["fast"]]
    verdict = case.verdict()
    assert (verdict.verdict == "verified", len(verdict.points)) == (same, 3 if same else 0)


# -- counts


def test_a_failure_is_counted_by_commits_in_its_words_and_by_rows_in_its_number() -> None:
    case = Case()
    case.rows += rows_of(ENTRIES["fast"][:1], run=2000, image="reg/other:v9")
    case.runs["2000"] = model.Proof(run_id=2000, attempt=1, commit=OTHER, how="run")
    case.commits[OTHER] = model.Trusted(commit=OTHER, how="listed")
    for commit in (PRODUCER, OTHER):
        case.matrices[commit, FAST] = model.NotGenerated(
            commit=commit, family=FAST, code="generator-failed", error="exit status 1"
        )
    reason = only(case.verdict())
    assert (reason.message, reason.count) == ("the generator failed at 2 commit(s)", 3)


def test_without_a_row_of_its_own_a_family_is_told_where_it_has_no_matrix() -> None:
    case = Case([])
    case.current = ""
    case.matrices = {
        (commit, FAST): model.NotGenerated(commit=commit, family=FAST, code="generator-timeout", error="too long")
        for commit in (PRODUCER, OTHER)
    }
    reason = only(case.verdict())
    assert (reason.code, reason.count) == ("generator-timeout", 2)
    assert reason.message == "the generator took longer than its time limit at 2 commit(s)"
    case.matrices = {}
    assert only(case.verdict()).code == "no-published-points"


def test_near_misses_are_explained_up_to_the_bound_and_counted_beyond_it() -> None:
    entry = {**FIRST, "conc": list(range(1, 31))}
    case = Case(rows_of([entry], decode_tp=4))
    case.matrices = {(commit, FAST): [entry] for commit in (PRODUCER, TODAY)}
    reason = only(case.verdict())
    assert (reason.count, len(reason.examples)) == (30, model.MAX_EXAMPLES)
    assert all(each.differences for each in reason.examples)


# -- one row alone: what the others cannot make up for


@pytest.mark.parametrize(
    ("published", "proven", "asked"),
    [
        (row(FIRST, 4), True, FAST),  # a point
        (row(FIRST, 64), True, FAST),  # a sibling's point
        (row(FIRST, 4, decode_tp=3), True, FAST),  # of either, as far as can be told
        (row(FIRST, 4, decode_tp=3), False, FAST),
        (row(FIRST, 4), False, FAST),
    ],
)
def test_one_row_is_enough_to_rest_on_every_family_of_its_kind(
    published: dict[str, Any], proven: bool, asked: str
) -> None:
    case = with_kin()
    case.rows = [published]
    if not proven:
        case.runs["1000"] = model.Unproven(run_id=1000, why="run 1000 is gone")
    _, one = judge(case)
    assert one.relied(asked).families == {FAST, KIN}
    assert one.relied(asked).rows == {case.decoded()[0].digest}


def test_a_row_of_no_kind_at_a_commit_without_a_matrix_is_outside() -> None:
    case = Case([*rows_of(ENTRIES["fast"]), row(FIRST, 4, model="m9", run=2000)])
    case.runs["2000"] = model.Proof(run_id=2000, attempt=1, commit=OTHER, how="run")
    case.commits[OTHER] = model.Trusted(commit=OTHER, how="listed")
    for made in (
        {},
        {(OTHER, FAST): model.NotGenerated(commit=OTHER, family=FAST, code="generator-failed", error="x")},
    ):
        case.matrices.update(made)
        verdicts, one = judge(case)
        assert (verdicts[FAST].verdict, one.outside) == ("verified", 1)


def test_the_bound_of_explained_rows_is_for_all_commits_together() -> None:
    entry = {**FIRST, "conc": list(range(1, 16))}
    case = Case(rows_of([entry], decode_tp=4) + rows_of([entry], decode_tp=2, run=2000))
    case.runs["2000"] = model.Proof(run_id=2000, attempt=1, commit=OTHER, how="run")
    case.commits[OTHER] = model.Trusted(commit=OTHER, how="listed")
    case.matrices = {(commit, FAST): [entry] for commit in (PRODUCER, OTHER, TODAY)}
    reason = only(case.verdict())
    texts = [each.text for each in reason.examples]
    assert (reason.count, len(texts)) == (30, model.MAX_EXAMPLES)
    assert sum(": decode_tp: " in text for text in texts) == model.MAX_EXAMPLES


def test_entries_that_differ_in_nothing_are_ambiguous_in_just_these_words() -> None:
    case = Case(rows_of([FIRST])[:1])
    case.matrices = {(commit, FAST): [FIRST, FIRST] for commit in (PRODUCER, TODAY)}
    assert only(case.verdict()).examples[0].text.endswith(": entries 0 and 1 differ in nothing outside the identity")


def test_a_reason_that_is_no_rows_names_none_and_counts_once() -> None:
    case = Case(rows_of([FIRST]))
    case.matrices[TODAY, FAST] = model.NotGenerated(commit=TODAY, family=FAST, code="generator-failed", error="x")
    reason = only(case.verdict())
    assert (reason.count, reason.examples[0].row, reason.examples[0].run_id) == (1, "", None)
    drifted = Case([row(FIRST, 4, decode_tp=3)])
    example = only(drifted.verdict()).examples[0]
    assert (example.row, example.run_id) == (drifted.decoded()[0].digest, 1000)
    plan = case.plan
    assert only(decide.internal_error(plan, FAST, "KeyError")).count == 1
    failed = decide.feed_failed(plan, [FAST, FAST], "feed-invalid", "no feed")
    assert [only(verdict).count for verdict in failed.verdicts] == [1]


def test_a_normalisation_is_what_its_name_says() -> None:
    for name, text, expected in (
        ("image", "a#b", "a/b"), ("runner", "cluster:x-y", "x"), ("lower", "A#b", "a#b"), ("", "A#b", "A#b"),
    ):  # fmt: skip
        assert identity.transform(name, text) == expected
