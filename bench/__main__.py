"""``python -m bench [NAME ...]``: run the named benchmarks (default: all) in turn, each in its own process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main(names: list[str]) -> int:
    """Run each benchmark; the status is the number of those that failed."""
    found = {path.stem: path for path in sorted(HERE.glob("*.py")) if not path.stem.startswith("_")}
    unknown = [name for name in names if name not in found]
    if unknown:
        sys.stderr.write(f"no benchmark {', '.join(unknown)}; there are: {', '.join(found)}\n")
        return 2
    failed = 0
    for name in names or found:
        print(f"== {name}", flush=True)
        failed += bool(subprocess.run([sys.executable, str(found[name])], cwd=HERE.parent, check=False).returncode)
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
