"""The forerunner's world, from cron, nobody confirming anything: settled within two sweeps, within the request budget."""

from __future__ import annotations

from tests.support.memory_forerunner import Forerunner


def total(requests: dict[str, int]) -> int:
    return sum(requests.values())


def test_within_two_sweeps() -> None:
    """402 of 568 leases, 40 of 42 claims, 11 drafts as 10 and 1, 9 runs, 43 branches; what is people's is untouched."""
    built = Forerunner()
    world = built.world
    assert (built.leases(), built.claims(), built.branches()) == (568, 42, 52)
    before = {m.number: world.state.pulls[m.number or 0] for m in built.kept}
    first = built.scene.sweep()
    assert (built.leases(), built.drafts_closed()) == (166, 10)
    assert first.red == ()
    assert total(first.totals.requests) <= 8 + 4 * 10 + 2 * built.runs_cancelled()
    built.scene.next_run()
    second = built.scene.sweep()
    assert (built.leases(), built.drafts_closed(), built.runs_cancelled()) == (166, 11, 9)
    assert built.branches() == 52 - 43
    assert built.claims() == 42 - 40
    assert second.red == ()
    built.scene.next_run()
    third = built.scene.sweep()
    assert (third.totals.pushes, third.totals.writes) == (0, ())
    assert total(third.totals.requests) <= 6
    after = {m.number: world.state.pulls[m.number or 0] for m in built.kept}
    assert after == before
    assert all(leak.count == 0 for leak in third.leaks.values())


def test_other_peoples_pull_requests_cost_nothing() -> None:
    """Ten times larger, with 5,000 open pull requests of others: observing grows with klaud's own live objects only."""
    alone = Forerunner(scale=3).scene.sweep(report_only=True)
    crowd = Forerunner(scale=3, others=5000).scene.sweep(report_only=True)
    assert crowd.totals.requests == alone.totals.requests
    small = Forerunner().scene.sweep(report_only=True)
    assert total(alone.totals.requests) <= total(small.totals.requests) + 10
