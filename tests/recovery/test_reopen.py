"""A person acts while a draft is being closed, and reopening it fails: again in the same sweep, else in the next."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from klaud import names
from tests.support.memory_scenes import Scene
from tests.support.memory_world import Call, Spoil

if TYPE_CHECKING:
    from tests.support import memory_scenes


def taken_over_late(*, failures: int, ledger: bool = True) -> tuple[Scene, memory_scenes.Made]:
    """Return a dead session whose draft is handed off right before it is closed; reopening fails so many times."""
    scene = Scene()
    made = scene.session("dead", ledger=ledger)
    left = [failures]

    def person(call: Call) -> None:
        if call.name == "close_pull":
            scene.world.label(made.number or 0, names.HANDOFF_LABEL, by=scene.world.alice)

    def spoil(call: Call) -> Spoil | None:
        if call.name != "reopen_pull" or not left[0]:
            return None
        left[0] -= 1
        return Spoil.FAIL

    scene.world.before.append(person)
    scene.world.rules.append(spoil)
    return scene, made


@pytest.mark.parametrize("failures", [0, 1])
def test_it_is_open_again_at_the_end_of_the_same_sweep(failures: int) -> None:
    scene, made = taken_over_late(failures=failures)
    report = scene.sweep()
    assert report.red == ()
    assert scene.world.state.pulls[made.number or 0].open
    assert sum(call.name == "reopen_pull" for call in scene.world.calls) == failures + 1


@pytest.mark.parametrize("ledger", [True, False])
def test_where_it_fails_twice_the_sweep_is_red_and_the_next_one_reopens(ledger: bool) -> None:
    """The lease stays as the sign; branch and draft are the person's, and nothing of the pass is left in the end."""
    scene, made = taken_over_late(failures=2, ledger=ledger)
    first = scene.sweep()
    assert any("not seen to be open again" in why for why in first.red)
    assert f"refs/heads/{made.branch}" in scene.world.state.refs
    scene.next_run()
    second = scene.sweep()
    assert second.red == ()
    assert scene.world.state.pulls[made.number or 0].open
    scene.next_run()
    scene.sweep()
    assert not [ref for ref in scene.world.state.refs if "/leases/" in ref]
    assert scene.world.state.pulls[made.number or 0].open
