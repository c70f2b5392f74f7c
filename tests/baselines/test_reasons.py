"""Each reason code from a realistic input: what brings it about, and what does not."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from klaud.baselines import decide, model, run, settings
from tests.support.benchmarks import ENTRIES, FAST, PRODUCER, REPOSITORY, SPLIT, TODAY, Case, only, row, rows_of


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


def test_rows_of_a_kind_that_is_gone_are_excused_by_a_coarse_field_alone() -> None:
    """A model that was removed, one field away: excused where the retirement table names it, and counted."""
    gone = rows_of([{**ENTRIES["fast"][0], "model-prefix": "m0"}])
    for match, excused in (({"model": "m0"}, 2), ({"isl": 1024}, 0), ({}, 0), ({"model": "m5"}, 0)):
        case = Case(rows_of(ENTRIES["fast"]) + gone, retired=(settings.Retired(family="*:fast", match=match),))
        verdict = case.verdict()
        assert len(verdict.retired) == excused
        assert verdict.verdict == ("verified" if excused else "deferred")
    drift = Case(retired=(settings.Retired(family="*", match={"model": "m1"}),))
    drift.rows[0]["decode_tp"] = 4
    assert only(drift.verdict()).code == "unmatched"  # a row of a kind that is there is never excused from matching


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
