"""Where inputs fail, lie or a right is missing: nothing is written, the sweep is red, and it says why."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from klaud import errors
from klaud.recovery import model, run
from tests.support import memory_invariants
from tests.support.memory_forerunner import Forerunner
from tests.support.memory_scenes import Scene
from tests.support.memory_standard import STANDARD
from tests.support.memory_world import Call, Spoil

if TYPE_CHECKING:
    from collections.abc import Callable


def untouched(scene: Scene, sweep: Callable[[], model.Report]) -> model.Report:
    """Sweep, and see that nothing was written."""
    scene.begin()
    before = memory_invariants.digest(scene)
    report = sweep()
    assert memory_invariants.digest(scene) == before
    assert (report.totals.pushes, report.totals.writes) == (0, ())
    return report


def test_every_run_answers_404() -> None:
    """A lost permission makes every run 404, ours too: nothing is proven."""
    scene = Forerunner().scene
    scene.world.rules.append(lambda call: Spoil.MISSING if call.name == "run" else None)
    report = untouched(scene, scene.sweep)
    assert "our own run" in report.stopped
    assert report.red


def test_every_run_but_ours_answers_404_and_no_listing_has_any() -> None:
    """Zero of many is a broken read."""
    scene = Scene()
    for index in range(4):
        scene.session(f"dead {index}")

    def rule(call: Call) -> Spoil | None:
        if call.name == "run" and scene.me is not None and call.args != (scene.me.run_id,):
            return Spoil.MISSING
        if call.name == "runs" and ("actor", "klaud-bot") in call.args:
            return Spoil.EMPTY
        return None

    scene.world.rules.append(rule)
    report = untouched(scene, scene.sweep)
    assert "answer 404" in report.stopped
    assert report.red


def test_every_listing_is_empty() -> None:
    """Our own run is not in the listing of its workflow: the listings cannot be trusted."""
    scene = Forerunner().scene
    scene.world.rules.append(
        lambda call: Spoil.EMPTY if call.name in {"runs", "pulls_of_heads", "refs.list", "jobs"} else None
    )
    report = untouched(scene, scene.sweep)
    assert "does not have our own run" in report.stopped
    assert report.red


def test_a_run_that_its_listing_does_not_have() -> None:
    """A listing that calls itself complete and lacks what a read by id shows contradicts it."""
    scene = Scene()
    scene.session("dead")
    scene.session("alive", status="in_progress")
    newest = scene.world.add_run("other.yml", actor=scene.world.bot, status="in_progress")
    scene.world.rules.append(
        lambda call: Spoil.EMPTY if call.name == "runs" and ("actor", "klaud-bot") in call.args else None
    )
    report = untouched(scene, scene.sweep)
    assert "is not in the listing" in report.stopped
    assert newest


def test_a_pull_request_that_its_head_does_not_show() -> None:
    """An empty answer for a head whose pull request exists by its number stops the sweep."""
    scene = Scene()
    scene.session("dead")
    scene.world.rules.append(lambda call: Spoil.EMPTY if call.name == "pulls_of_heads" else None)
    report = untouched(scene, scene.sweep)
    assert "exists by its number" in report.stopped


@pytest.mark.parametrize("right", ["actions:read", "pulls:read", "metadata:read"])
def test_a_read_right_is_missing(right: str) -> None:
    """The permission is named; nothing is written. A right that no read needs does not matter."""
    scene = Forerunner().scene
    scene.world.denied.add(right)
    if right == "metadata:read":
        assert scene.sweep().red == ()
        return
    report = untouched(scene, scene.sweep)
    assert any(right in reason for reason in report.red)
    assert right in report.stopped


def test_refs_cannot_be_read() -> None:
    """Without the refs nothing is known at all."""
    for spoil, word in ((Spoil.FORBID, "not permitted"), (Spoil.FAIL, "could not be read")):
        scene = Forerunner().scene
        scene.begin()
        scene.world.rules.append(lambda call, spoil=spoil: spoil if call.name == "refs.list" else None)  # type: ignore[misc]
        report = scene.sweep()
        assert any(word in reason for reason in report.red)
        assert (report.totals.pushes, report.totals.writes, report.sessions) == (0, (), ())


WRITERS = ("abandoned_among_others", "merged", "final_run_wrong", "commented_by_a_person", "closed_by_klaud")
"""Scenes whose sweeps write in different ways."""


def asked_by(name: str) -> list[str]:
    """Return the rights that a scene's sweep asks for when it has them all."""
    scene = STANDARD[name][1]().scene
    scene.begin()
    first = len(scene.world.calls)
    scene.sweep()
    calls = scene.world.calls[first:]
    asked = [str(c.args[0]) for c in calls if c.name == "check_right"]
    return [*asked, "contents:write"] if any(c.name == "refs.apply" for c in calls) else asked


@pytest.mark.parametrize("right", model.RIGHTS)
def test_l77_a_write_right_is_missing(right: str) -> None:
    """Found before the first write: literally nothing is written, the sweep is red, the right is named."""
    needing = [name for name in WRITERS if right in asked_by(name)]
    assert needing
    for scene in [*(STANDARD[name][1]().scene for name in needing), Forerunner().scene]:
        scene.world.denied.add(right)
        report = untouched(scene, scene.sweep)
        assert right in report.stopped
        assert any(right in reason for reason in report.red)
        scene.world.denied.clear()
        scene.next_run()
        assert scene.sweep().red == ()


def test_only_the_rights_that_are_needed_are_asked_for() -> None:
    """A sweep without work asks for none; one without a draft to close does not ask for pull requests."""
    assert asked_by("alive") == []
    assert asked_by("claim_only") == ["contents:write"]
    assert asked_by("commented_by_a_person") == ["actions:write", "contents:write"]
    assert asked_by("abandoned") == ["pulls:write", "actions:write", "contents:write"]


def test_a_right_that_cannot_be_asked_for_is_found_by_the_write() -> None:
    """A failed question is no no: the sweep goes on."""
    scene = STANDARD["abandoned"][1]().scene
    scene.world.rules.append(lambda call: Spoil.FAIL if call.name == "check_right" else None)
    report = scene.sweep()
    assert report.red == ()
    assert report.totals.writes


class Careless(run._Sweep):
    """A broken twin: it begins without asking whether it may."""

    def _permitted(self, plan: model.Plan) -> model.Plan:
        return plan


def test_a_sweep_that_does_not_ask_first_is_caught() -> None:
    """It writes leases and claims before it finds out that it may close nothing."""
    scene = STANDARD["abandoned"][1]().scene
    scene.world.denied.add("pulls:write")
    with pytest.raises(AssertionError):
        untouched(scene, Careless(scene.parts(), report_only=False, parked_on=None).run)


@pytest.mark.parametrize("call_name", ["cancel_run", "close_pull", "comment"])
def test_l77_clean_up_gets_403(call_name: str) -> None:
    """A right that is lost meanwhile: red, named, and nothing pretends to be released; claims and branches stand."""
    built = STANDARD["abandoned_among_others"][1]()
    scene = built.scene
    scene.begin()
    scene.world.rules.append(lambda call: Spoil.FORBID if call.name == call_name else None)
    before = memory_invariants.digest(scene)
    report = scene.sweep()
    after = memory_invariants.digest(scene)
    assert any("the token lacks" in reason for reason in report.red)
    assert {n: p[:5] for n, p in after["pulls"].items()} == {n: p[:5] for n, p in before["pulls"].items()}
    assert set(before["refs"]) <= set(after["refs"])
    assert not any("/leases/" in ref for ref in after["refs"])
    scene.world.rules.clear()
    scene.next_run()
    assert scene.sweep().red == ()
    assert memory_invariants.violations(built) == []


@pytest.mark.parametrize("name", STANDARD)
def test_a_report_writes_nothing(name: str) -> None:
    """Report mode decides as acting does, and writes nothing."""
    scene = STANDARD[name][1]().scene
    report = untouched(scene, lambda: scene.sweep(report_only=True))
    acting = STANDARD[name][1]().scene.sweep()
    assert report.mode == "report"
    assert [(e.session, e.row, e.decision) for e in report.sessions] == [
        (e.session, e.row, e.decision) for e in acting.sessions
    ]


def test_paused() -> None:
    """The kill switch: observation goes on, nothing is written, the report says why."""
    scene = STANDARD["abandoned"][1]().scene
    scene.begin()
    before = memory_invariants.digest(scene)
    report = run.sweep(scene.parts(paused="KLAUD_PAUSED is set"))
    assert memory_invariants.digest(scene) == before
    assert report.stopped == "KLAUD_PAUSED is set"
    assert [e.row for e in report.sessions] == ["14"]


def test_the_rate_limit_keeps_its_reserve() -> None:
    """Closures that the remainder has no room for wait; releases and lease deletions go on."""
    scene = Scene()
    for index in range(5):
        scene.session(f"dead {index}")
    scene.session("claimed", branch=False, turns=0)
    scene.begin()
    scene.client("sweep")
    scene.gateway.remaining = scene.policy.reserve + 30
    report = run.sweep(scene.parts())
    closed = [p for p in scene.world.state.pulls.values() if not p.open]
    assert 0 < len(closed) < 5
    assert scene.gateway.remaining >= scene.policy.reserve
    assert any("rate limit" in d.get("why", "") for e in report.sessions for d in e.decision)  # type: ignore[operator]
    assert next(e for e in report.sessions if e.row == "19").done


def test_a_sweep_outside_of_actions() -> None:
    """Without a run of its own a sweep takes no lease, and 404 never proves anything."""
    scene = Scene(outside=True)
    dead = scene.session("dead")
    gone = scene.session("gone")
    scene.begin()
    scene.world.state.runs.pop(gone.run_id)
    report = scene.sweep()
    rows = {e.session: e.row for e in report.sessions}
    assert rows[dead.key] == "14"
    assert rows[gone.key] == "4"
    assert not scene.world.state.pulls[dead.number or 0].open
    assert not any("/leases/" in ref for ref in scene.world.state.refs)
    assert scene.sweep().totals.pushes == 0


def test_forbidden_is_an_error_of_permission() -> None:
    """The exit status that a missing right ends with is its own."""
    assert errors.ForbiddenError("x").exit_status == 3
