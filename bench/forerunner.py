"""Sweep the forerunner's world in memory until nothing moves, and print what each sweep did and what it cost.

Usage: python bench/forerunner.py [SCALE] [OTHERS]
SCALE multiplies klaud's own objects, OTHERS is the number of other people's open pull requests.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.support.memory_forerunner import Forerunner


def main() -> None:
    """Print three sweeps."""
    scale = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    others = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    built = Forerunner(scale=scale, others=others)
    print(f"scale {scale}, {others} pull requests of others")
    print(f"before: {built.leases()} leases, {built.claims()} claims, {built.branches()} branches")
    for sweep in range(1, 4):
        begun = time.perf_counter()
        report = built.scene.sweep()
        seconds = time.perf_counter() - begun
        totals = report.totals
        print(
            f"sweep {sweep}: {built.leases()} leases, {built.claims()} claims, {built.branches()} branches, "
            f"{built.drafts_closed()} drafts closed, {built.runs_cancelled()} runs cancelled; "
            f"{sum(totals.requests.values())} requests, {totals.pushes} pushes, {totals.fetches} fetches, "
            f"{len(totals.writes)} writes, {seconds:.2f} s, red: {list(report.red)}"
        )
        for endpoint, count in sorted(totals.requests.items()):
            print(f"    {count:5} {endpoint}")
        print("    leaks:", {kind: leak.count for kind, leak in report.leaks.items()})
        untouched = sum(built.world.state.pulls[m.number or 0].open for m in built.kept)
        print(f"    kept drafts still open: {untouched} of {len(built.kept)}")
        built.scene.next_run()


if __name__ == "__main__":
    main()
