"""The table of reasons in docs/baselines.md: every code, brought about for real, in the words that a person reads.

Each scene below starts from a family that is verified and changes one thing. What comes out is the table's row, word for
word; a code without a scene, a scene without a row and a row without a code all fail.
"""

from __future__ import annotations

import pathlib
import re
from typing import TYPE_CHECKING, Any, get_args

import pytest

from klaud.baselines import model, reasons, render, run, settings
from tests.support.benchmarks import ENTRIES, FAST, PRODUCER, TODAY, Case, only, policy, row, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "baselines.md"
ROW = re.compile(r"^\| `([a-z-]+)` \| (.+?) \| (.+?) \|$")


def table() -> dict[str, tuple[str, str]]:
    """Return the page's rows: code to (message, what would unblock it)."""
    text = PAGE.read_text(encoding="utf-8")
    part = text[text.index("## Reasons") : text.index("## The sandbox")]
    found = [match for line in part.splitlines() if (match := ROW.match(line))]
    assert len({match[1] for match in found}) == len(found), "a code stands twice"
    return {match[1]: (match[2], match[3]) for match in found}


def of_feed(root: pathlib.Path, text: str | None) -> model.Verdict:
    """Return the verdict where the feed is a file with this text, or no file at all."""
    if text is not None:
        (root / "rows.json").write_text(text)
    configured = policy(rows=settings.Rows(file="rows.json"))
    read = run.read_rows(configured, root=root, repository="acme/bench")
    made = Case().produced()
    return run.verdicts(configured, read, model.Proofs(), made, families=[FAST], current=TODAY).verdicts[0]


def unprovable(case: Case) -> None:
    case.rows.append(row(ENTRIES["fast"][0], 4, run=999))
    case.runs["999"] = model.Unproven(run_id=999, why="run 999 is gone, and workflow-info does not have it")


def untrusted(case: Case) -> None:
    why = "it is inside pull request #7, but not its merged head"
    case.commits[PRODUCER] = model.Untrusted(commit=PRODUCER, why=why)


def not_generated(code: Any, error: str) -> Callable[[Case], None]:
    def change(case: Case) -> None:
        case.matrices[PRODUCER, FAST] = model.NotGenerated(commit=PRODUCER, family=FAST, code=code, error=error)

    return change


def unpublished(case: Case) -> None:
    case.rows = rows_of(ENTRIES["split"])


def drifted(case: Case) -> None:
    case.rows[0]["decode_tp"] = 4


def twins(case: Case) -> None:
    case.matrices[PRODUCER, FAST] = [*ENTRIES["fast"], {**ENTRIES["fast"][1], "router": "new"}]


def twice(case: Case) -> None:
    case.rows.append({**case.rows[0], "metrics": {"tput": 1.0}})


def not_selected(case: Case) -> None:
    case.changelog = {"1000": ("other-*",)}


def retired(case: Case) -> None:
    case.matrices[TODAY, FAST] = ENTRIES["fast"][:1]


def moved(case: Case) -> None:
    case.matrices[TODAY, FAST] = [{**entry, "image": "reg/team/img:v2"} for entry in ENTRIES["fast"]]


def recipe(case: Case) -> None:
    for commit, mark in ((PRODUCER, "aa"), (TODAY, "bb")):
        case.matrices[commit, FAST] = [
            {**entry, "recipe-fingerprint": mark, "env": {"X": mark}} for entry in ENTRIES["fast"]
        ]
    for each in case.rows:
        each["recipe_fingerprint"] = "aa"


class Spoiled(dict[str, Any]):
    """An entry that breaks whoever reads it."""

    def get(self, key: str, default: Any = None) -> Any:
        del key, default
        return 1 // 0


def fault(case: Case) -> None:
    case.matrices[PRODUCER, FAST] = [Spoiled(ENTRIES["fast"][0])]


SCENES: dict[str, Callable[[Case], None] | str | None] = {
    "feed-unavailable": None,
    "feed-invalid": "<html>502 Bad Gateway</html>",
    "producer-unprovable": unprovable,
    "producer-untrusted": untrusted,
    "producer-unavailable": not_generated(
        "producer-unavailable", "the commit is in neither this clone nor the remote"
    ),
    "generator-failed": not_generated("generator-failed", "exit status 1"),
    "generator-output-invalid": not_generated(
        "generator-output-invalid", "its output is no matrix: it is not JSON"
    ),
    "generator-timeout": not_generated("generator-timeout", "it took longer than 60 s"),
    "no-published-points": unpublished,
    "unmatched": drifted,
    "ambiguous": twins,
    "duplicate-point": twice,
    "legacy-not-selecting": not_selected,
    "point-retired": retired,
    "source-image-moved": moved,
    "recipe-changed": recipe,
    "internal-error": fault,
}  # fmt: skip


def brought_about(code: str, root: pathlib.Path) -> model.Verdict:
    scene = SCENES[code]
    if scene is None or isinstance(scene, str):
        return of_feed(root, scene)
    case = Case()
    assert case.verdict().verdict == "verified", "without the change"
    scene(case)
    return case.verdict()


@pytest.mark.parametrize("code", get_args(model.ReasonCode))
def test_a_reason_reads_as_the_page_says(code: str, tmp_path: pathlib.Path) -> None:
    verdict = brought_about(code, tmp_path)
    reason = only(verdict)
    assert reason.code == code
    assert (reason.message, reason.unblock) == table()[code]
    shown = render.explain_verdict(verdict)
    assert f"  {code}: {reason.message}\n" in shown
    assert f"    to unblock: {reason.unblock}" in shown


def test_every_reason_has_a_scene_a_row_and_words() -> None:
    every = get_args(model.ReasonCode)
    assert tuple(table()) == tuple(SCENES) == every
    assert [reasons.order(code) for code in every] == list(range(len(every)))
    assert set(reasons._MESSAGES) == set(reasons._UNBLOCK) == set(every)


def test_the_suite_catches_a_page_that_lacks_a_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines(keepends=True)
    poorer = tmp_path / "page.md"
    poorer.write_text("".join(line for line in lines if not line.startswith("| `unmatched`")), encoding="utf-8")
    monkeypatch.setitem(globals(), "PAGE", poorer)
    assert tuple(table()) != get_args(model.ReasonCode)
