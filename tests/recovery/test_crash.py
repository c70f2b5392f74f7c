"""A sweep may die, lose an answer, or be lied to at any call: the next ones end where an undisturbed one would have."""

from __future__ import annotations

import pytest

from tests.support import memory_crash
from tests.support.memory_standard import STANDARD


@pytest.mark.parametrize("name", STANDARD)
def test_every_call_spoilt_in_every_way(name: str) -> None:
    """Killed before and after, reply lost, 502, stale: same end, no human work touched, no effect twice."""
    tried, wrong = memory_crash.tried(name)
    assert tried > 0
    assert wrong == []


@pytest.mark.parametrize("name", STANDARD)
def test_killed_and_repeated_by_the_same_run(name: str) -> None:
    """The same job may run the sweep again right after: it takes over its own dead pass's lease."""
    assert memory_crash.tried(name, same_run=True)[1] == []


@pytest.mark.parametrize("name", STANDARD)
def test_a_second_sweep_writes_nothing(name: str) -> None:
    """Law 12, in the same run right after, and in the next one."""
    built = STANDARD[name][1]()
    scene = built.scene
    scene.sweep()
    for _ in range(2):
        report = scene.sweep()
        assert (report.totals.pushes, report.totals.writes) == (0, ())
        assert sum(report.totals.requests.values()) <= 6
        assert report.red == ()
        scene.next_run()
