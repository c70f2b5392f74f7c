"""The import table and the purity rule hold, and the checker catches a violation of each kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import architecture

ROOT = Path(__file__).resolve().parent.parent
LONGEST_FILE = 600
"""Lines: one idea a file; above this a file holds two."""


def test_the_tree_obeys_the_table() -> None:
    assert [f"{v.path}:{v.line}: {v.what}" for v in architecture.check(ROOT)] == []


def test_no_file_is_longer_than_one_idea() -> None:
    lengths = {p: len(p.read_text(encoding="utf-8").splitlines()) for p in (ROOT / "klaud").rglob("*.py")}
    assert {str(p.relative_to(ROOT)): n for p, n in lengths.items() if n > LONGEST_FILE} == {}


SEEDED = {
    "up": ("klaud/leases/store.py", "import klaud.planner.model\n", "may not import planner"),
    "up-from": ("klaud/leases/store.py", "from klaud.planner import model\n", "may not import planner"),
    "up-in-function": ("klaud/leases/store.py", "def f():\n    from klaud import config\n", "may not import config"),
    "up-for-types": (
        "klaud/leases/store.py",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from klaud.session import model\n",
        "may not import session",
    ),
    "sideways": ("klaud/recovery/run.py", "from klaud.review import model\n", "may not import review"),
    "relative-up": ("klaud/github/rest.py", "from ..leases import model\n", "may not import leases"),
    "unknown-unit": ("klaud/utils.py", "import klaud.names\n", "no line in the import table"),
    "fakehub-imports-klaud": ("klaud/fakehub/hub.py", "from klaud import names\n", "stands apart"),
    "klaud-starts-fakehub": ("klaud/recovery/run.py", "from klaud import fakehub\n", "may not start fakehub"),
    "pygithub-outside": ("klaud/recovery/observe.py", "import github\n", "github may be imported in"),
    "requests-outside": ("klaud/planner/observe.py", "from requests import get\n", "requests may be imported in"),
    "pure-imports-os": ("klaud/recovery/decide.py", "import os\n", "a pure file imports os"),
    "pure-imports-impure": ("klaud/recovery/decide.py", "from klaud.github import rest\n", "which is not pure"),
    "pure-opens": ("klaud/planner/codec.py", "def f(p):\n    return open(p)\n", "calls open()"),
    "pure-prints": ("klaud/planner/decide.py", "print(1)\n", "calls print()"),
    "pure-reads-clock": (
        "klaud/baselines/decide.py",
        "import datetime\n\ndef f():\n    return datetime.datetime.now()\n",
        "now()",
    ),
    "pure-takes-chance": ("klaud/planner/decide.py", "import random\n", "a pure file imports random"),
}


@pytest.mark.parametrize("case", sorted(SEEDED))
def test_a_seeded_violation_is_caught(case: str, tmp_path: Path) -> None:
    name, text, expected = SEEDED[case]
    for unit in ("leases", "planner", "session", "github", "review", "recovery", "baselines", "fakehub"):
        folder = tmp_path / "klaud" / unit
        folder.mkdir(parents=True)
        (folder / "model.py").touch()
        (folder / "rest.py").touch()
    (tmp_path / "klaud/config.py").touch()
    (tmp_path / "klaud/names.py").touch()
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert any(expected in violation.what for violation in architecture.check(tmp_path)), architecture.check(tmp_path)
