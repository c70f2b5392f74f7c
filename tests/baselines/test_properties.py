"""What no input may change, whatever is in it; and weaker judges, which the suite must catch."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from klaud.baselines import decide, model, schema
from tests.support.benchmarks import (
    AGGREGATE,
    ALL,
    ENTRIES,
    FAST,
    PRODUCER,
    REPOSITORY,
    SPLIT,
    TODAY,
    Case,
    only,
    row,
    rows_of,
)


@pytest.mark.parametrize("seed", range(8))
def test_the_order_of_rows_changes_nothing(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - a fixed seed
    case = messy(chance)
    first = case.judge()
    for _ in range(3):
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


# -- a changed digit in any identity field of any row

AGENT = {**ENTRIES["fast"][0], "scenario-type": "agentic-coding", "model-prefix": "m4"}
SIBLING = {**ENTRIES["fast"][0], "conc": [64, 128], "tp": 4}
FAMILIES = {
    FAST: ENTRIES["fast"], SPLIT: ENTRIES["split"], "c:agg": [AGGREGATE], "c:agent": [AGENT], "c:sibling": [SIBLING],
}  # fmt: skip
ROWS = [
    (family, each)
    for family, entries in FAMILIES.items()
    for each in (rows_of(entries, decode_num_workers=1) if family == "c:agg" else rows_of(entries))
]


def published() -> Case:
    """Return all of them published and verified, with every equivalence on."""
    case = Case([copy.deepcopy(each) for _, each in ROWS], equivalences=ALL)
    case.matrices = {(commit, name): entries for commit in (PRODUCER, TODAY) for name, entries in FAMILIES.items()}
    case.families = list(FAMILIES)
    return case


def test_without_a_change_every_family_is_verified() -> None:
    assert {verdict.verdict for verdict in published().judge().values()} == {"verified"}


@hypothesis_settings(max_examples=300, deadline=None, derandomize=True)
@given(st.sampled_from(range(len(ROWS))), st.sampled_from(sorted(schema.INFERENCE)), st.integers(1, 9))
def test_a_changed_digit_is_named_or_a_named_siblings(at: int, field: str, digit: int) -> None:
    case = published()
    case.rows[at][field] = changed(case.rows[at][field], field, digit)
    verdicts = case.judge()
    digest = next(each.digest for each in case.decoded() if each.index == at)
    assert said(verdicts, digest, field), (ROWS[at], field, verdicts)


def said(verdicts: dict[str, model.Verdict], digest: str, field: str) -> bool:
    """Tell whether the verdicts say of a row that this field is off, whose it is instead, or what it takes to be one."""
    for verdict in verdicts.values():
        for reason in verdict.reasons:
            named = [
                [each.field for each in example.differences] for example in reason.examples if example.row == digest
            ]
            if reason.code == "unmatched" and [field] in named:
                return True
            if reason.code == "duplicate-point":  # it now says that it is another row of its run
                return True
        if any(each.row == digest for each in verdict.siblings):
            return True
        if field == "disagg" and any(
            each.row == digest and each.equivalences == ("agentic-single-node-disagg-flag",) for each in verdict.points
        ):
            return True  # the one changed value that a named equivalence allows, and counts
    return False


def changed(value: Any, field: str, digit: int) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int) or field in {"isl", "osl"}:
        return (value or 0) + digit
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


class Silent(decide.Judge):
    """Forgets rows that meet no entry."""

    def _commit(self, commit: str, pairs: Any, table: Any) -> None:
        super()._commit(commit, [pair for pair in pairs if table[pair[0].identity]], table)


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


def test_the_suite_catches_a_judge_that_forgets_unmatched_rows() -> None:
    case = Case()
    case.rows[0]["decode_tp"] = 4
    verdict = judged_by(Silent, case)
    assert not said({FAST: verdict}, case.decoded()[0].digest, "decode_tp")
    assert said({FAST: judged_by(decide.Judge, case)}, case.decoded()[0].digest, "decode_tp")
