from __future__ import annotations

from typing import Any

import pytest

from klaud.fakehub import workflowfile
from klaud.fakehub.expressions import ExpressionError, condition, evaluate, filter_matches, glob_matches, substitute

CONTEXT: dict[str, Any] = {
    "github": {
        "event": {"pull_request": {"labels": [{"name": "A"}, {"name": "full-sweep"}], "draft": True}, "number": 3.0},
        "event_name": "pull_request",
    },
    "inputs": {"candidate": "x'y", "Count": "2"},
    "needs": {"a": {"result": "failure"}},
}
GOOD = {"always": True, "success": True, "failure": False, "cancelled": False}
BAD = {"always": True, "success": False, "failure": True, "cancelled": False}


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("github.event_name == 'PULL_REQUEST'", True),
        ("contains(github.event.pull_request.labels.*.name, 'full-sweep')", True),
        ("contains(github.event.pull_request.labels.*.name, 'full')", False),
        ("contains('Hello', 'ell')", True),
        ("github.event.nothing.at.all", None),
        ("github['event']['pull_request'].labels[1].name", "full-sweep"),
        ("inputs.count == 2 && !false", True),
        ("inputs.none || 'default'", "default"),
        ("'' && 'x'", ""),
        ("startsWith('abc', 'AB') || endsWith('abc', 'x')", True),
        ("format('{0}-{1}', 'a', github.event.number)", "a-3"),
        ("join(github.event.pull_request.labels.*.name, '+')", "A+full-sweep"),
        ("fromJSON('[1, 2]')[1] >= 2", True),
        ("(1 < 2) == true", True),
        ("'it''s'", "it's"),
        ("null == 0", True),
        ("${{ inputs.candidate }}", "x'y"),
    ],
)
def test_values(source: str, value: object) -> None:
    assert evaluate(source, CONTEXT) == value


@pytest.mark.parametrize("source", ["hashFiles('x')", "1 +", "a..b", "(1", "a b", "#", "a.", "==", "'open"])
def test_what_the_hub_cannot_read_is_an_error(source: str) -> None:
    with pytest.raises(ExpressionError):
        evaluate(source, CONTEXT)


def test_substitution() -> None:
    draft = "${{ github.event.pull_request.draft }}"
    text = "klaud ${{ inputs.candidate }} [${{github.event.number}}]${{ github.none }} " + draft
    assert substitute(text, CONTEXT) == "klaud x'y [3] true"


@pytest.mark.parametrize(
    ("source", "status", "runs"),
    [
        (None, GOOD, True),
        (None, BAD, False),
        ("always()", BAD, True),
        ("${{ failure() }}", BAD, True),
        ("failure() && needs.a.result == 'failure'", BAD, True),
        ("inputs.count == 2", BAD, False),
        ("inputs.count == 2", GOOD, True),
        ("!cancelled()", BAD, True),
    ],
)
def test_conditions_need_success_unless_they_speak_of_it(
    source: str | None, status: dict[str, bool], runs: bool
) -> None:
    assert condition(source, CONTEXT, status) is runs


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("main", "main", True),
        ("main", "main2", False),
        ("release/*", "release/1", True),
        ("release/*", "release/1/2", False),
        ("release/**", "release/1/2", True),
        ("**/x.py", "x.py", True),
        ("v?.[0-9]", "v1.5", True),
        ("[!a]x", "bx", True),
    ],
)
def test_filters(pattern: str, name: str, matches: bool) -> None:
    assert glob_matches(pattern, name) is matches


def test_a_later_exclusion_wins() -> None:
    assert filter_matches(["release/**", "!release/old"], "release/new")
    assert not filter_matches(["release/**", "!release/old"], "release/old")


def test_workflow_files_are_read_as_text() -> None:
    file = workflowfile.parse("x.yml", "on: push\njobs: {b: {needs: a}, a: {timeout-minutes: 5}}\n")
    assert list(file.on) == ["push"]
    assert [job.key for job in file.ordered_jobs()] == ["a", "b"]
    assert file.jobs["a"].limit_minutes == 5
    for text in ("- 1", "name: x", "on: push", "on: [", "on: push\njobs: []"):
        with pytest.raises(workflowfile.WorkflowFileError):
            workflowfile.parse("x.yml", text)


def test_default_types_and_paths() -> None:
    text = (
        "on: {pull_request: {paths: ['src/**'], branches: [main]}, push: {paths-ignore: ['docs/**']}}\njobs: {a: {}}\n"
    )
    file = workflowfile.parse("x.yml", text)

    def pull(action: str, branch: str, paths: list[str] | None) -> bool:
        return file.listens("pull_request", action=action, branch=branch, names=(), paths=paths)

    assert pull("opened", "main", ["src/a/b"])
    assert not pull("labeled", "main", ["src/a"])
    assert not pull("opened", "other", ["src/a"])
    assert not pull("opened", "main", ["docs/a"])
    assert not file.listens("push", action="", branch="x", names=(), paths=["docs/a"])
    assert file.listens("push", action="", branch="x", names=(), paths=["docs/a", "b"])
