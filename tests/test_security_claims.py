"""docs/security.md: every promise has a number, every number a row, every row tests, and every test is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
TITLE = "## Claims, and the test of each\n"


def split(page: str) -> tuple[str, dict[str, tuple[str, list[str]]]]:
    """Return the page without its table of claims, and the table: number to claim and tests."""
    before, _, rest = page.partition(TITLE)
    table, _, after = rest.partition("\n## ")
    found: dict[str, tuple[str, list[str]]] = {}
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split(" | ")]
        if re.fullmatch(r"S\d+", cells[0]):
            assert cells[0] not in found
            assert len(cells) == 3, line
            found[cells[0]] = (cells[1], re.findall(r"`(test_\w+)`", cells[2]))
    return f"{before}\n## {after}", found


def numbers(text: str) -> set[str]:
    """Return the numbers that a text names, those of ``S1 to S6`` included."""
    found = set(re.findall(r"\bS\d+\b", text))
    for first, last in re.findall(r"\bS(\d+) to S(\d+)\b", text):
        found |= {f"S{number}" for number in range(int(first), int(last) + 1)}
    return found


def there() -> dict[str, str]:
    """Return every test of the suite, by name, with its file's text."""
    found = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        found.update(dict.fromkeys(re.findall(r"^(?: {4})?def (test_\w+)\(", text, re.MULTILINE), text))
    return found


def problems(page: str) -> list[str]:
    """Say of each number what is missing."""
    prose, claims = split(page)
    tests = there()
    said = numbers(prose.replace("(S1, S2, ...)", ""))
    bad = [f"{number} has no row" for number in sorted(said - set(claims))]
    for number, (claim, named) in claims.items():
        bad += [f"{number} has no test"] if not named else []
        bad += [f"{number} has no claim"] if not claim else []
        bad += [f"{number}: there is no {name}" for name in named if name not in tests]
    bad += [] if list(claims) == [f"S{number + 1}" for number in range(len(claims))] else ["numbers are not in order"]
    return bad


def test_each_claim_has_its_tests() -> None:
    assert problems(PAGE) == []


def test_no_sentence_of_the_threat_model_is_without_a_number() -> None:
    """Whoever is not trusted with something, and whatever an injected text cannot do, is a promise with a number."""
    prose, _ = split(PAGE)
    rows = [line for line in prose.splitlines() if line.startswith("| ") and line.count(" | ") >= 2]
    for row in rows[1:]:
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        inherits = cells[0] in {"the model's answers", "---"} or cells[0].startswith("whoever can merge")
        assert inherits or numbers(row), row
    injected = prose.partition("## What an injected text")[2].partition("\n## ")[0]
    for part in re.split(r"\n\n|\n\* ", injected)[1:]:
        assert not part.strip() or numbers(part) or "reaches a" in part, part


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("(S16)", "(S99)", "S99 has no row"),
        ("`test_nothing_leaves`", "`test_that_nobody_wrote`", "S3: there is no test_that_nobody_wrote"),
        ("| S4 | One hostile item", "| S40 | One hostile item", "numbers are not in order"),
        ("`test_what_was_never_looked_up_is_not_proven`", "see the code", "S17 has no test"),
    ],
)
def test_a_page_that_promises_more_than_is_tested_is_caught(old: str, new: str, says: str) -> None:
    assert old in PAGE
    assert says in problems(PAGE.replace(old, new))
