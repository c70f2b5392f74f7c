"""Every oddity of docs/oddities.md has tests named by its id where the table says, and no test carries another id."""

from __future__ import annotations

import collections
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
IDS = tuple(
    f"L{number:02}"
    for number in (
        1, 2, 5, 12, 15, 17, 19, 22, 25, 27, 29, 32, 39, 41, 45, 48, 49, 51, 52, 53, 54, 58, 60, 62, 64, 67, 68, 69, 74,
        76, 77, 79, 81, 84, 86, 88, 89, 90, 91, 93, 96, 100, 103, 107, 114,
    )
)  # fmt: skip
"""The ids that the product promises to survive. A new one is added here, in the table and in a test's name."""


def named() -> dict[str, set[str]]:
    """Return the folders that have a test of each id, from the names of their test functions."""
    found: dict[str, set[str]] = collections.defaultdict(set)
    for path in (ROOT / "tests").rglob("test_*.py"):
        for number in re.findall(r"^ *def test_[lL](\d+)_", path.read_text(encoding="utf-8"), re.MULTILINE):
            found[f"L{number}"].add(str(path.parent.relative_to(ROOT)))
    return dict(found)


def table() -> dict[str, set[str]]:
    """Return the folders that the table names for each id."""
    text = (ROOT / "docs" / "oddities.md").read_text(encoding="utf-8")
    rows = [line.strip("|").split(" | ") for line in text.splitlines() if line.startswith("| L")]
    assert all(len(row) == 4 and all(cell.strip() for cell in row) for row in rows), "four filled cells a row"
    return {row[0].strip(): set(re.findall(r"`(tests[^`]*)`", row[3])) for row in rows}


def test_every_id_is_in_the_table_once() -> None:
    text = (ROOT / "docs" / "oddities.md").read_text(encoding="utf-8")
    assert tuple(re.findall(r"^\| (L\d+) \|", text, re.MULTILINE)) == IDS


def test_every_id_has_tests_where_the_table_says() -> None:
    """There may be more elsewhere; a folder that is named must have one."""
    written, tests = table(), named()
    assert {
        one: sorted(files - tests.get(one, set())) for one, files in written.items() if files - tests.get(one, set())
    } == {}
    assert [one for one, files in written.items() if not files] == []


def test_no_test_carries_an_id_that_the_table_lacks() -> None:
    assert sorted(set(named()) - set(IDS)) == []
