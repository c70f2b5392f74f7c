"""Each reason code from a realistic input, as a user sees it; and what no input may change."""

from __future__ import annotations

import copy
import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from klaud.baselines import decide, lookup, model, render, run, settings
from tests.support.benchmarks import ENTRIES, FAST, PRODUCER, REPOSITORY, SPLIT, TODAY, Case, row, rows_of

AGGREGATE: dict[str, Any] = {
    "model-prefix": "m3", "runner": "gb200", "framework": "dyn", "precision": "fp4", "spec-decoding": "mtp", "conc": [1, 2],
    "image": "reg/img:v1", "disagg": False, "scenario-type": "agentic-coding", "kv-offloading": "none",
    "prefill": {"num-worker": 1, "tp": 4, "ep": 1, "dp-attn": False},
    "decode": {"num-worker": 0, "tp": 4, "ep": 1, "dp-attn": False},
}  # fmt: skip
ALL: tuple[settings.Equivalence, ...] = (
    "aggregate-mirror",
    "one-worker-aggregate-as-single-node",
    "agentic-single-node-disagg-flag",
)


def only(verdict: model.Verdict) -> model.Reason:
    """Return the one reason of a deferred verdict."""
    assert verdict.verdict == "deferred"
    assert len(verdict.reasons) == 1, [reason.code for reason in verdict.reasons]
    return verdict.reasons[0]


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


# -- reasons


def test_feed_unavailable_and_invalid_defer_every_family_in_the_feeds_words() -> None:
    for code in ("feed-unavailable", "feed-invalid"):
        failed = run.FeedFailed(code=code, message="the published rows of acme: HTTP 503")
        judged = run.verdicts(
            Case().policy, failed, model.Proofs(), Case().produced(), families=[FAST, SPLIT], current=TODAY
        )
        assert [verdict.reasons[0].code for verdict in judged.verdicts] == [code, code]
        assert judged.verdicts[0].reasons[0].message == "the published rows of acme: HTTP 503"
        assert "benchmark acme" in judged.verdicts[0].reasons[0].unblock


def test_producer_unprovable_defers_even_where_another_row_proves_the_point() -> None:
    case = Case()
    again = row(ENTRIES["fast"][0], 4, run=999)
    case.rows.append(again)
    case.runs["999"] = model.Unproven(run_id=999, why="run 999 is gone")
    reason = only(case.verdict())
    assert (reason.code, reason.count) == ("producer-unprovable", 1)
    assert reason.unblock == f"re-run family {FAST}: run 999 is gone"


@pytest.mark.parametrize(
    "url",
    [
        f"https://github.com/{REPOSITORY}/actions/runs/notanumber",
        "https://github.com/acme/other/actions/runs/5",
        f"https://github.com.example/{REPOSITORY}/actions/runs/5",
        f"http://github.com/{REPOSITORY}/actions/runs/5",
        f"https://github.com/{REPOSITORY}/actions/runs/5/jobs",
        f"https://github.com/{REPOSITORY}/actions/runs/5?x",
        f"https://github.com/{REPOSITORY}/actions/runs/05",
        f"https://github.com/{REPOSITORY}/actions/runs/\u0665",
        "",
    ],
)
def test_a_run_address_counts_only_in_exactly_its_form(url: str) -> None:
    case = Case()
    case.rows[0]["run_url"] = url
    reason = only(case.verdict())
    assert (reason.code, reason.count) == ("producer-unprovable", 1)


def test_an_attempt_in_the_address_is_read() -> None:
    case = Case()
    case.rows[0]["run_url"] += "/attempts/2"
    assert {point.attempt for point in case.verdict().points} == {1, 2}


def test_producer_untrusted_names_the_commit_and_why() -> None:
    case = Case()
    case.commits[PRODUCER] = model.Untrusted(
        commit=PRODUCER, why="it is inside pull request #7, but not its merged head"
    )
    reason = only(case.verdict())
    assert (reason.code, reason.count) == ("producer-untrusted", 3)
    assert "run 1000, commit cccccccccccc: it is inside pull request #7" in reason.unblock
    assert "generator.trusted" in reason.unblock


@pytest.mark.parametrize(
    "code", ["producer-unavailable", "generator-failed", "generator-output-invalid", "generator-timeout"]
)
def test_a_matrix_that_could_not_be_made_defers_with_its_own_code(code: Any) -> None:
    case = Case()
    case.matrices[PRODUCER, FAST] = model.NotGenerated(commit=PRODUCER, family=FAST, code=code, error="exit status 3")
    reason = only(case.verdict())
    assert (reason.code, reason.count) == (code, 3)
    assert "exit status 3" in reason.examples[0].text
    assert reason.unblock


def test_an_entry_that_cannot_be_read_makes_its_matrix_invalid() -> None:
    case = Case()
    case.matrices[PRODUCER, FAST] = [*ENTRIES["fast"], {**ENTRIES["fast"][0], "tp": "eight"}]
    reason = only(case.verdict())
    assert reason.code == "generator-output-invalid"
    assert "entry 2: prefill_tp is eight, not an integer" in reason.examples[0].text


def test_no_published_points() -> None:
    case = Case(rows_of(ENTRIES["split"]))
    reason = only(case.verdict())
    assert (reason.code, reason.unblock) == (
        "no-published-points",
        f"run family {FAST} once on the default branch and publish it",
    )


def test_unmatched_names_the_drifted_field() -> None:
    case = Case()
    case.rows[0]["decode_tp"] = 4
    reason = only(case.verdict())
    assert (reason.code, reason.count) == ("unmatched", 1)
    assert reason.examples[0].text == "run 1000: decode_tp: row 4, matrix 8"
    assert reason.unblock == f"re-run family {FAST}, or correct the published row: run 1000: decode_tp: row 4, matrix 8"


def test_a_row_of_no_known_kind_is_unmatched_where_one_field_is_off() -> None:
    case = Case()
    case.rows[0]["model"] = "m9"
    reason = only(case.verdict())
    assert [each.field for each in reason.examples[0].differences] == ["model"]


def test_a_point_of_a_sibling_is_said_to_be_one() -> None:
    case = Case()
    sibling = {**ENTRIES["fast"][0], "conc": [64]}
    case.matrices[PRODUCER, "c:sibling"] = case.matrices[TODAY, "c:sibling"] = [sibling]
    case.rows.append(row(sibling, 64))
    verdict = case.verdict()
    assert verdict.verdict == "verified"
    assert [sibling.family for sibling in verdict.siblings] == ["c:sibling"]


def test_ambiguous_says_in_what_the_entries_differ() -> None:
    case = Case()
    twin = {**ENTRIES["fast"][0], "exp-name": "z", "router": {"version": "2"}}
    case.matrices[PRODUCER, FAST] = [*ENTRIES["fast"], twin]
    reason = only(case.verdict())
    assert (reason.code, reason.count) == ("ambiguous", 2)
    assert "entries 0 and 2 differ in exp-name: a, z; router.version: absent, 2" in reason.examples[0].text


def test_a_fingerprint_narrows_two_entries_to_one() -> None:
    case = Case()
    first, second = ENTRIES["fast"]
    twin = {**first, "recipe-fingerprint": "bb"}
    case.matrices[PRODUCER, FAST] = [{**first, "recipe-fingerprint": "aa"}, second, twin]
    case.matrices[TODAY, FAST] = case.matrices[PRODUCER, FAST]
    for each in case.rows[:2]:
        each["recipe_fingerprint"] = "bb"
    verdict = case.verdict()
    assert verdict.verdict == "verified"
    assert sorted(point.entry for point in verdict.points) == [1, 2, 2]


def test_a_point_of_two_families_is_ambiguous_unless_the_changelog_selects_one() -> None:
    case = Case()
    for commit in (PRODUCER, TODAY):
        case.matrices[commit, "c:twin"] = ENTRIES["fast"]
    reason = only(case.verdict())
    assert (reason.code, reason.count) == ("ambiguous", 3)
    assert f"entries of c:twin and {FAST} are the same point" in reason.examples[0].text
    case.changelog = {"1000": ("fa*",)}
    assert case.verdict().verdict == "verified"


def test_duplicate_point_is_two_values_of_one_run_and_attempt() -> None:
    case = Case()
    case.rows.append({**case.rows[0], "metrics": {"tput": 1.0}})
    reason = only(case.verdict())
    assert (reason.code, reason.count) == ("duplicate-point", 1)
    assert reason.examples[0].text == "isl 1024, osl 1024, conc 4, prefill_tp 8, decode_tp 8: run 1000, attempt 1"
    case.rows[-1] = copy.deepcopy(case.rows[0])
    assert case.verdict().verdict == "verified"


def test_the_newer_run_wins_and_the_older_is_listed() -> None:
    case = Case()
    case.rows.append(row(ENTRIES["fast"][0], 4, run=900, metrics={"tput": 1.0}, image="reg/team/img:v0"))
    verdict = case.verdict()
    assert verdict.verdict == "verified"
    point = next(point for point in verdict.points if point.older)
    assert (point.run_id, point.older[0].run_id, point.metrics) == (1000, 900, {"tput": 104.0})


def test_legacy_rows_need_a_changelog_that_selects_the_family() -> None:
    case = Case()
    case.changelog = {"1000": ("other-*",)}
    reason = only(case.verdict())
    assert (reason.code, reason.count) == ("legacy-not-selecting", 3)
    assert "run 1000 does not select it" in reason.examples[0].text
    for each in case.rows:
        each["recipe_fingerprint"] = "aa"
    assert case.verdict().verdict == "verified"


def test_point_retired_unless_the_table_names_it() -> None:
    case = Case()
    case.matrices[TODAY, FAST] = ENTRIES["fast"][:1]
    reason = only(case.verdict())
    assert (reason.code, reason.count) == ("point-retired", 1)
    assert "isl 8192" in reason.examples[0].text
    table = settings.Retired(family="configs/*:fast", match={"isl": 8192}, reason="too slow")
    other = settings.Retired(family="configs/*:slow")
    again = Case(retired=(other, table))
    again.matrices = case.matrices
    verdict = again.verdict()
    assert (verdict.verdict, len(verdict.points), len(verdict.retired)) == ("verified", 2, 1)


def test_source_image_moved_names_both_images() -> None:
    case = Case()
    case.matrices[TODAY, FAST] = [{**entry, "image": "reg/team/img:v2"} for entry in ENTRIES["fast"]]
    reason = only(case.verdict())
    assert (reason.code, reason.count) == ("source-image-moved", 3)
    assert "image: published reg/team/img:v1, today reg/team/img:v2" in reason.examples[0].text
    assert reason.unblock.startswith(f"re-run family {FAST} with the image of today")


def test_recipe_changed_names_the_settings() -> None:
    case = Case()
    case.matrices[PRODUCER, FAST] = [
        {**entry, "recipe-fingerprint": "aa", "env": {"X": 1}} for entry in ENTRIES["fast"]
    ]
    case.matrices[TODAY, FAST] = [{**entry, "recipe-fingerprint": "bb", "env": {"X": 2}} for entry in ENTRIES["fast"]]
    for each in case.rows:
        each["recipe_fingerprint"] = "aa"
    reason = only(case.verdict())
    assert (reason.code, reason.count) == ("recipe-changed", 3)
    assert "changed are env.X: 1, 2; recipe-fingerprint: aa, bb" in reason.examples[0].text


def test_internal_error_is_one_familys_alone_and_tells_the_type_only() -> None:
    verdict = decide.internal_error(Case().plan, FAST, "KeyError")
    reason = only(verdict)
    assert (reason.code, reason.message) == ("internal-error", "klaud failed while it judged this family: KeyError")


def test_a_fault_of_klaud_in_one_family_leaves_the_others_judged() -> None:
    case = Case(rows_of(ENTRIES["fast"]) + rows_of(ENTRIES["split"]))
    read = run.RowsRead(rows=tuple(case.decoded()))
    produced = case.produced()
    broken = [each for each in produced.matrices if each.family != SPLIT]
    broken.append(model.Matrix(commit=PRODUCER, family=SPLIT, entries=(Spoiled(ENTRIES["split"][0]),)))
    produced = model.Produced(benchmark="acme", matrices=tuple(broken))
    judged = run.verdicts(case.policy, read, case.proofs(), produced, families=[FAST, SPLIT], current="")
    assert [verdict.verdict for verdict in judged.verdicts] == ["verified", "deferred"]
    assert only(judged.verdicts[1]).code == "internal-error"


class Spoiled(dict[str, Any]):
    """An entry that breaks whoever reads it."""

    def get(self, key: str, default: Any = None) -> Any:
        del key, default
        return 1 // 0


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


# -- what no input may change


@pytest.mark.parametrize("seed", range(8))
def test_the_order_of_rows_changes_nothing(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - a fixed seed
    case = messy(chance)
    first = case.judge()
    chance.shuffle(case.rows)
    assert case.judge() == first


def messy(chance: random.Random) -> Case:
    """Return rows of two families with duplicates, older runs, drift and unproven runs among them."""
    rows = rows_of(ENTRIES["fast"]) + rows_of(ENTRIES["split"])
    for _ in range(12):
        each = copy.deepcopy(chance.choice(rows))
        each["run_url"] = f"https://github.com/{REPOSITORY}/actions/runs/{chance.choice([900, 1000, 1100])}"
        each[chance.choice(["conc", "decode_tp", "isl"])] = chance.choice([4, 8, 1024])
        each["metrics"] = {"tput": float(chance.randint(1, 3))}
        rows.append(each)
    case = Case(rows, equivalences=ALL)
    case.runs["900"] = model.Unproven(run_id=900, why="run 900 is gone")
    case.families = [FAST, SPLIT]
    return case


@pytest.mark.parametrize("seed", range(8))
def test_an_unrelated_family_changes_nothing(seed: int) -> None:
    case = messy(random.Random(seed))  # noqa: S311 - a fixed seed
    case.families = [FAST]
    first = case.verdict()
    other = {**ENTRIES["split"][0], "model-prefix": "zz", "runner": "other"}
    case.matrices[PRODUCER, "c:other"] = case.matrices[TODAY, "c:other"] = [other]
    case.rows += [*rows_of([other]), row(other, 77)]
    case.families = [FAST, "c:other"]
    assert case.verdict() == first


FIELDS = [
    name
    for name, value in rows_of(ENTRIES["split"])[0].items()
    if name not in {"metrics", "date", "run_url"} and value != ""
]


@hypothesis_settings(max_examples=200, deadline=None, derandomize=True)
@given(st.sampled_from([FAST, SPLIT]), st.integers(0, 10), st.sampled_from(FIELDS), st.integers(1, 9))
def test_a_changed_digit_is_unmatched_with_that_field_named_or_a_named_sibling(
    family: str, at: int, field: str, digit: int
) -> None:
    case = Case(rows_of(ENTRIES["fast"]) + rows_of(ENTRIES["split"]))
    mine = rows_of(ENTRIES[family.partition(":")[2]])
    changed = case.rows.index(mine[at % len(mine)])
    before = case.rows[changed][field]
    case.rows[changed] = {**case.rows[changed], field: other_value(before, digit)}
    case.families = [FAST, SPLIT]
    verdicts = case.judge()
    index = {each.index: each.digest for each in case.decoded()}
    digest = index[changed]
    named = [
        [each.field for each in example.differences]
        for verdict in verdicts.values()
        for reason in verdict.reasons
        if reason.code == "unmatched"
        for example in reason.examples
        if example.row == digest
    ]
    twice = [
        reason.code for verdict in verdicts.values() for reason in verdict.reasons if reason.code == "duplicate-point"
    ]
    sibling = any(each.row == digest for verdict in verdicts.values() for each in verdict.siblings)
    assert [field] in named or sibling or twice, (verdicts, field)


def other_value(value: Any, digit: int) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + digit
    return f"{value}{digit}"


# -- broken twins: a weaker rule is caught


class FirstWins(decide.Judge):
    """Takes the first of two entries, as a join by dictionary would."""

    def _narrow(self, row: model.Row, hits: Any) -> Any:
        return super()._narrow(row, hits)[:1]


class NoBlame(decide.Judge):
    """Forgets rows whose producer is in doubt."""

    def _blame(self, row: model.Row, code: Any, why: str) -> None:
        del row, code, why


def judged_by(judge: type[decide.Judge], case: Case) -> model.Verdict:
    return judge(case.plan, case.proofs(), case.produced(), [FAST], case.current).run(case.decoded())[0]


def test_the_suite_catches_a_judge_that_takes_the_first_of_two_entries() -> None:
    case = Case()
    case.matrices[PRODUCER, FAST] = [*ENTRIES["fast"], {**ENTRIES["fast"][0], "exp-name": "z"}]
    assert judged_by(FirstWins, case).verdict == "verified"
    assert only(judged_by(decide.Judge, case)).code == "ambiguous"


def test_the_suite_catches_a_judge_that_forgets_unproven_rows() -> None:
    case = Case()
    case.rows[0]["run_url"] = "https://github.com/acme/bench/actions/runs/x"
    assert judged_by(NoBlame, case).verdict == "verified"
    assert only(judged_by(decide.Judge, case)).code == "producer-unprovable"
