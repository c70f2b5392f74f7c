"""Which rows are points: equivalences, history, near misses, outliers, and how a verdict is explained."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from klaud.baselines import decide, lookup, model, render, settings
from tests.support.benchmarks import (
    AGGREGATE,
    ALL,
    ENTRIES,
    FAST,
    PRODUCER,
    SPLIT,
    TODAY,
    Case,
    only,
    row,
    rows_of,
)


def test_every_point_tied_to_one_entry_is_verified() -> None:
    verdict = Case().verdict()
    assert (verdict.verdict, len(verdict.points), verdict.reasons) == ("verified", 3, ())
    assert {point.identity["hardware"] for point in verdict.points} == {"h100"}
    assert {point.identity["image"] for point in verdict.points} == {"reg/team/img:v1"}
    assert render.explain_verdict(verdict) == f"{FAST}: verified (3 point(s) proven at commit {PRODUCER[:12]})"


def test_a_disaggregated_family_is_verified_by_roles() -> None:
    case = Case(rows_of(ENTRIES["split"]))
    case.families = [SPLIT]
    assert case.verdict().verdict == "verified"


# -- equivalences


def aggregate(rows: list[dict[str, Any]], names: tuple[settings.Equivalence, ...]) -> model.Verdict:
    case = Case(rows, equivalences=names)
    for commit in (PRODUCER, TODAY):
        case.matrices[commit, "c:agg"] = [AGGREGATE]
    case.families = ["c:agg"]
    return case.verdict()


def mirrored(**changes: Any) -> list[dict[str, Any]]:
    return rows_of([AGGREGATE], decode_num_workers=1, **changes)


def test_a_mirrored_aggregate_needs_its_equivalence_by_name() -> None:
    assert dict(aggregate(mirrored(), ALL).equivalences) == {"aggregate-mirror": 2}
    reason = only(aggregate(mirrored(), ()))
    assert reason.code == "unmatched"
    assert [each.field for each in reason.examples[0].differences] == ["decode_num_workers"]
    assert "decode_num_workers: row 1, matrix 0" in reason.examples[0].text


def test_a_mirror_is_no_wider_than_it_says() -> None:
    assert only(aggregate(mirrored(decode_ep=2), ALL)).code == "unmatched"
    assert only(aggregate(mirrored(disagg=True), ALL)).code == "unmatched"


def test_one_worker_may_be_published_as_a_single_node_and_two_may_not() -> None:
    alone = rows_of([AGGREGATE], is_multinode=False, prefill_num_workers=0)
    assert dict(aggregate(alone, ALL).equivalences) == {"one-worker-aggregate-as-single-node": 2}
    case = Case(alone, equivalences=ALL)
    two = {**AGGREGATE, "prefill": {**AGGREGATE["prefill"], "num-worker": 2}}
    case.matrices[PRODUCER, "c:agg"] = case.matrices[TODAY, "c:agg"] = [two]
    case.families = ["c:agg"]
    assert only(case.verdict()).code == "unmatched"


def test_an_agentic_single_node_may_carry_the_disagg_flag_and_others_may_not() -> None:
    single = {**ENTRIES["fast"][0], "scenario-type": "agentic-coding", "model-prefix": "m4"}
    for entry, good in ((single, True), ({**single, "scenario-type": "fixed-seq-len"}, False)):
        case = Case(rows_of([entry], disagg=True), equivalences=ALL)
        case.matrices[PRODUCER, "c:s"] = case.matrices[TODAY, "c:s"] = [entry]
        case.families = ["c:s"]
        assert (case.verdict().verdict == "verified") is good


def test_L103_each_encoding_of_one_topology_needs_its_name() -> None:  # noqa: N802 - the oddity's id
    """One worker of an aggregate, published as itself, as a mirror, as a single node, and as one that is no equivalence."""
    published: dict[settings.Equivalence | str, list[dict[str, Any]]] = {
        "": rows_of([AGGREGATE]),
        "aggregate-mirror": mirrored(),
        "one-worker-aggregate-as-single-node": rows_of([AGGREGATE], is_multinode=False, prefill_num_workers=0),
        "unnamed": rows_of([AGGREGATE], decode_num_workers=2),
    }
    for name, rows in published.items():
        for allowed in ((), *((one,) for one in ALL)):
            verified = aggregate(rows, allowed).verdict == "verified"
            assert verified is (name == "" or allowed == (name,)), (name, allowed)


def test_two_equivalences_are_never_combined() -> None:
    rows = rows_of([AGGREGATE], is_multinode=False, prefill_num_workers=0, disagg=True)
    assert only(aggregate(rows, ALL)).code == "unmatched"


def test_outliers_are_flagged_and_defer_nothing() -> None:
    case = Case()
    for number in range(5):
        case.rows.append(row(ENTRIES["fast"][0], 4, run=900 + number, metrics={"tput": 10.0 + number}))
    verdict = case.verdict()
    assert verdict.verdict == "verified"
    outliers = [each for point in verdict.points for each in point.outliers]
    assert [(each.metric, each.value, each.median, each.history) for each in outliers] == [("tput", 104.0, 12.0, 5)]
    assert "outlier: tput is 104, the median of its 5 older values 12 (run 1000)" in render.explain_verdict(verdict)


def test_fallbacks_and_unpublished_points_are_in_the_verdict() -> None:
    case = Case(rows_of(ENTRIES["fast"])[:2])
    case.matrices[PRODUCER, FAST] = model.Matrix(
        commit=PRODUCER, family=FAST, entries=tuple(ENTRIES["fast"]), dropped=("--no-evals",)
    )
    verdict = case.verdict()
    assert (verdict.verdict, verdict.dropped, verdict.unpublished) == ("verified", ("--no-evals",), 1)


def test_a_reason_holds_twenty_examples_and_the_true_count() -> None:
    entry = {**ENTRIES["fast"][0], "conc": list(range(1, 101))}
    case = Case(rows_of([entry], decode_tp=4))
    case.matrices[PRODUCER, FAST] = case.matrices[TODAY, FAST] = [entry]
    reason = only(case.verdict())
    assert (reason.count, len(reason.examples)) == (100, model.MAX_EXAMPLES)
    assert all(example.differences for example in reason.examples)


def test_two_images_side_by_side_do_not_supersede_each_other() -> None:
    case = Case()
    nightly = [{**entry, "image": "reg/team/img:nightly"} for entry in ENTRIES["fast"]]
    for commit in (PRODUCER, TODAY):
        case.matrices[commit, "c:nightly"] = nightly
    case.rows += rows_of(nightly, run=2000)
    case.families = [FAST, "c:nightly"]
    verdicts = case.judge()
    assert [(verdict.verdict, len(verdict.points)) for verdict in verdicts.values()] == [("verified", 3)] * 2


def test_a_recipe_that_its_own_producer_never_generated_is_another_recipe() -> None:
    case = Case()
    case.matrices[PRODUCER, FAST] = [{**entry, "recipe-fingerprint": "aa"} for entry in ENTRIES["fast"]]
    for each in case.rows:
        each["recipe_fingerprint"] = "zz"
    reason = only(case.verdict())
    assert (reason.code, reason.count) == ("recipe-changed", 3)
    assert "published is zz, generated aa" in reason.examples[0].text


def test_two_recipes_of_one_entry_in_one_run_are_a_duplicate() -> None:
    case = Case()
    case.rows += [{**case.rows[0], "recipe_fingerprint": "bb", "metrics": {"tput": 1.0}}]
    assert only(case.verdict()).code == "duplicate-point"


def test_what_was_never_looked_up_is_not_proven() -> None:
    case = Case()
    judged = decide.judge(case.plan, case.decoded(), model.Proofs(), case.produced(), families=[FAST], current=TODAY)
    assert only(judged.verdicts[0]).examples[0].text == "run 1000 was not looked up"
    runs = {"1000": model.Proof(run_id=1000, attempt=1, commit=PRODUCER, how="run")}
    judged = decide.judge(
        case.plan, case.decoded(), model.Proofs(runs=runs), case.produced(), families=[FAST], current=TODAY
    )
    assert "its trust was not looked up" in only(judged.verdicts[0]).examples[0].text


def test_an_ambiguity_by_equivalence_says_so() -> None:
    single = {key: value for key, value in AGGREGATE.items() if key not in {"prefill", "decode"}} | {"tp": 4}
    case = Case(rows_of([single], offload_mode="off"), equivalences=ALL)
    for commit in (PRODUCER, TODAY):
        case.matrices[commit, "c:agg"] = [single, AGGREGATE]
    case.families = ["c:agg"]
    reason = only(case.verdict())
    assert reason.code == "ambiguous"
    assert reason.examples[0].text.endswith("(by one-worker-aggregate-as-single-node)")


def test_a_matrix_that_failed_blames_no_sibling_that_is_far_off() -> None:
    case = Case()
    broken = model.NotGenerated(
        commit=PRODUCER, family="c:other", code="generator-timeout", error="it took longer than 60 s"
    )
    case.matrices[PRODUCER, "c:other"] = broken
    case.matrices[TODAY, "c:other"] = [{**ENTRIES["fast"][0], "conc": [512]}]
    case.rows.append(row(ENTRIES["fast"][0], 512, osl=7, isl=7))
    case.families = [FAST, "c:other"]
    verdicts = case.judge()
    assert verdicts[FAST].verdict == "verified"
    assert only(verdicts["c:other"]).code == "generator-timeout"
    case.rows[-1] = row(ENTRIES["fast"][0], 4, osl=7)
    assert only(case.judge()[FAST]).code == "unmatched"


def test_a_current_matrix_that_failed_defers_with_its_own_code() -> None:
    case = Case()
    case.matrices[TODAY, FAST] = model.NotGenerated(
        commit=TODAY, family=FAST, code="generator-failed", error="signal 9"
    )
    reason = only(case.verdict())
    assert (reason.code, reason.examples[0].text) == (
        "generator-failed",
        "at the current commit dddddddddddd: signal 9",
    )


def test_rows_of_nobody_asked_are_outside() -> None:
    case = Case(rows_of(ENTRIES["fast"]) + rows_of(ENTRIES["split"]))
    case.rows.append(row(ENTRIES["fast"][0], 4, model="q", osl=1, isl=1, framework="x"))
    case.rows.append(row(ENTRIES["split"][0], 999))
    case.rows.append(row(ENTRIES["split"][0], 16, run_url="nowhere"))
    judged = decide.judge(case.plan, case.decoded(), case.proofs(), case.produced(), families=[FAST], current=TODAY)
    assert judged.verdicts[0].verdict == "verified"
    assert judged.outside == 5


def test_a_family_without_entries_there_has_no_near_miss() -> None:
    case = Case()
    case.matrices[PRODUCER, FAST] = []
    assert only(case.verdict()).examples[0].text == "run 1000: the producer's matrix has no entry"


def test_a_matrix_that_is_not_there_is_never_handed_out() -> None:
    case = Case()
    case.matrices[PRODUCER, FAST] = model.NotGenerated(commit=PRODUCER, family=FAST, code="generator-failed", error="x")
    with pytest.raises(KeyError):
        lookup.Matrices(case.plan, case.produced()).known(PRODUCER, FAST)


def test_outliers_need_their_own_history_and_the_same_sign() -> None:
    case = Case(outlier_factor=2.0)
    for number in range(4):
        case.rows.append(
            row(ENTRIES["fast"][0], 4, run=900 + number, metrics={"tput": 100.0, "x": 1.0} if number else {})
        )
    case.rows[0]["metrics"] = {"tput": 120.0, "gain": 3.0, "x": -1.0}
    outliers = [each.metric for point in case.verdict().points for each in point.outliers]
    assert outliers == ["x"]
    case.policy = msgspec.structs.replace(case.policy, outlier_factor=0.0)
    assert not [each for point in case.verdict().points for each in point.outliers]


def test_large_matrices_find_the_near_miss_by_hash() -> None:
    entry = {**ENTRIES["fast"][0], "conc": list(range(1, 1001))}
    many = [{**entry, "ep": ep} for ep in (1, 2, 4, 8, 16, 16)]
    case = Case(rows_of([{**many[4], "conc": [7]}], decode_tp=4))
    case.rows += rows_of([{**many[4], "conc": [5]}], decode_tp=4, isl=3)
    case.matrices[PRODUCER, FAST] = case.matrices[TODAY, FAST] = many
    reason = only(case.verdict())
    named = {len(example.differences): [each.field for each in example.differences] for example in reason.examples}
    assert named[1] == ["decode_tp"]
    assert {"decode_tp", "isl"} < set(named[4])  # two fields off, and its entry is beyond what is scanned


def test_the_explanation_shows_everything_a_person_needs() -> None:
    case = Case(equivalences=ALL, retired=(settings.Retired(family="*", match={"isl": 8192}),))
    sibling = {**ENTRIES["fast"][0], "conc": [64]}
    for commit in (PRODUCER, TODAY):
        case.matrices[commit, "c:sibling"] = [sibling]
    case.matrices[TODAY, FAST] = ENTRIES["fast"][:1]
    case.rows.append(row(sibling, 64))
    case.rows += [row(ENTRIES["fast"][0], 4, decode_tp=number, run=1000) for number in range(20, 28)]
    text = render.explain_verdict(case.verdict())
    assert "unmatched: 8 published row(s) match no entry of their producer's matrix" in text
    assert "    - and 3 more" in text
    assert "siblings: 1 near row(s) are points of c:sibling" in text
    assert "retired: 1 published point(s) are excused by the configuration" in text
    nothing = Case([row(ENTRIES["fast"][0], 4, run_url="")])
    assert render.explain_verdict(nothing.verdict()).startswith(f"{FAST}: deferred (no point is proven)")
    dropped = Case(mirrored() + mirrored(run=2), equivalences=ALL)
    made = model.Matrix(commit=PRODUCER, family="c:agg", entries=(AGGREGATE,), dropped=("--no-evals",))
    dropped.matrices = {(PRODUCER, "c:agg"): made, (TODAY, "c:agg"): [AGGREGATE]}
    dropped.families = ["c:agg"]
    text = render.explain_verdict(dropped.verdict())
    assert "equivalence aggregate-mirror: 2 point(s)" in text
    assert "fallback: the producer does not know --no-evals" in text
    assert "history: 2 older row(s) of the same points are superseded" in text
