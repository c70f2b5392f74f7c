"""Print the coverage of the pure files and of the rest; fail where the pure files together fall below the floor.

The aim is every branch of every pure file; the files that are not there yet are printed, each with what is missing. The
floor is what is held so far and only ever rises.

Reads the combined ``.coverage`` of the last run. Which files are pure is the architecture test's own list.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path

import coverage

FLOOR = 99.8
"""Per cent of the pure files' lines and branches that the suite must reach."""

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.support import architecture  # noqa: E402 - found through the line above


def main() -> int:
    """Print one line per pure file below 100 %, then both totals; 1 where they are below the floor together."""
    data = coverage.Coverage(config_file=str(ROOT / "pyproject.toml"))
    data.load()
    names = sorted(p.relative_to(ROOT).as_posix() for p in (ROOT / "klaud").rglob("*.py"))
    pure = [name for name in names if architecture.is_pure(name)]
    rest = [name for name in names if name not in pure and not name.startswith("klaud/fakehub/demo/")]
    low = []
    for name in pure:
        share = _share(data, [name])
        if share < 100:
            low.append(name)
            sys.stdout.write(f"{name}: {share:.2f} % {_missing(data, name)}\n")
    sys.stdout.write(f"pure files: {len(pure)}, {_share(data, pure):.2f} % (branches included), {len(low)} not whole\n")
    sys.stdout.write(f"the rest: {len(rest)} files, {_share(data, rest):.2f} %\n")
    return 1 if _share(data, pure) < FLOOR else 0


def _share(data: coverage.Coverage, names: list[str]) -> float:
    return data.report(include=[str(ROOT / name) for name in names], file=io.StringIO(), ignore_errors=True)


def _missing(data: coverage.Coverage, name: str) -> str:
    lines = data.analysis2(str(ROOT / name))[3]
    return f"lines {lines}" if lines else "branches"


if __name__ == "__main__":
    sys.exit(main())
