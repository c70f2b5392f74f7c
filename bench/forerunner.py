"""Sweep the forerunner's world in memory until nothing moves, and print what each sweep did and what it cost.

Usage: python bench/forerunner.py [SCALE] [OTHERS]
SCALE multiplies klaud's own objects, OTHERS is the number of other people's open pull requests. Drafts are closed ten in a
sweep, so SCALE 10 takes eleven sweeps and one that has nothing to do. Where there are others, the same world is swept
without them, too: the requests of each sweep must be the same ones. Exit status 1 where they are not, where the last sweep
writes, or where a draft that is a person's is not left open.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.support.memory_forerunner import Forerunner

if TYPE_CHECKING:
    from klaud.recovery import model

MOST = 40
"""Sweeps, at most."""


def swept(built: Forerunner, *, say: bool) -> list[model.Report]:
    """Sweep until a sweep writes nothing."""
    reports: list[model.Report] = []
    while len(reports) < MOST and (not reports or reports[-1].totals.pushes or reports[-1].totals.writes):
        begun = time.perf_counter()
        report = built.scene.sweep()
        reports.append(report)
        if say:
            tell(built, len(reports), report, time.perf_counter() - begun)
        built.scene.next_run()
    return reports


def tell(built: Forerunner, number: int, report: model.Report, seconds: float) -> None:
    """Print one sweep; the first and the last (which writes nothing) with their requests by endpoint."""
    totals = report.totals
    print(
        f"sweep {number}: {built.leases()} leases, {built.claims()} claims, {built.branches()} branches, "
        f"{built.drafts_closed()} drafts closed, {built.runs_cancelled()} runs cancelled; "
        f"{sum(totals.requests.values())} requests, {totals.pushes} pushes, {totals.fetches} fetches, "
        f"{len(totals.writes)} writes, {seconds:.2f} s, red: {list(report.red)}"
    )
    if number == 1 or not (totals.pushes or totals.writes):
        for endpoint, count in sorted(totals.requests.items()):
            print(f"    {count:5} {endpoint}")
        print("    leaks:", {kind: leak.count for kind, leak in report.leaks.items()})


def main() -> int:
    """Print the sweeps."""
    scale = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    others = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    built = Forerunner(scale=scale, others=others)
    print(f"scale {scale}, {others} pull requests of others")
    print(f"before: {built.leases()} leases, {built.claims()} claims, {built.branches()} branches")
    reports = swept(built, say=True)
    untouched = sum(built.world.state.pulls[m.number or 0].open for m in built.kept)
    print(f"kept drafts still open: {untouched} of {len(built.kept)}")
    quiet = not reports[-1].totals.pushes and not reports[-1].totals.writes
    print(f"the last sweep writes nothing: {'yes' if quiet else 'NO'}")
    same = True
    if others:
        alone = swept(Forerunner(scale=scale), say=False)
        same = [one.totals.requests for one in reports] == [one.totals.requests for one in alone]
        print(f"the same requests, sweep by sweep, without the others: {'yes' if same else 'NO'}")
    return int(not (quiet and same and untouched == len(built.kept)))


if __name__ == "__main__":
    sys.exit(main())
