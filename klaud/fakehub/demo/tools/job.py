"""What the codecs repository's CI jobs do: ``job.py smoke --families KEY`` or ``job.py final``, in a checkout.

Generates the matrix of the checkout, measures it, and writes ``results/results.json``. A family that fails does not
stop the others, but fails the job.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import yaml

CONFIG = Path("configs/codecs.yaml")


def measure(key: str, *, evals: bool, run_url: str, date: str) -> str | None:
    """Return the published rows of one family as JSON text, None where it failed (which is printed)."""
    generate = [sys.executable, "tools/matrix.py", "test-config", "--config-keys", key, "--config-files", str(CONFIG)]
    matrix = subprocess.run([*generate, *([] if evals else ["--no-evals"])], capture_output=True, check=True).stdout
    bench = [sys.executable, "tools/bench.py", "--run-url", run_url, "--date", date]
    done = subprocess.run(bench, input=matrix, capture_output=True, check=False)
    if done.returncode:
        sys.stderr.write(f"{key}: {done.stderr.decode(errors='replace')}\n")
        return None
    return done.stdout.decode()


def main() -> None:
    """Measure the families, write the results, and end with 1 where one failed."""
    parser = argparse.ArgumentParser(prog="job")
    parser.add_argument("kind", choices=["smoke", "final"])
    parser.add_argument("--families", nargs="*", default=[])
    parser.add_argument("--run-url", required=True)
    parser.add_argument("--date", required=True)
    args = parser.parse_args()
    families = yaml.safe_load(CONFIG.read_text(encoding="utf-8"))
    unknown = set(args.families) - set(families)
    if unknown:
        sys.exit(f"job: no family {sorted(unknown)}")
    evals = args.kind == "final"
    done = [
        measure(key, evals=evals, run_url=args.run_url, date=args.date) for key in args.families or sorted(families)
    ]
    parts = [text.strip().removeprefix("[").removesuffix("]") for text in done if text]
    Path("results").mkdir(exist_ok=True)
    Path("results/results.json").write_text("[" + ", ".join(part for part in parts if part) + "]", encoding="utf-8")
    sys.exit(1 if None in done else 0)


if __name__ == "__main__":
    main()
