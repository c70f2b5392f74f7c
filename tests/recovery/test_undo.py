"""Undo, why-closed and explain: from recorded facts, and nothing that now belongs to somebody else is touched."""

from __future__ import annotations

import pytest

from klaud import names
from klaud.leases import model as leases
from klaud.recovery import explain, undo
from tests.support.memory_scenes import Made, Scene
from tests.support.memory_world import Spoil


def closed() -> tuple[Scene, Made, str]:
    """Return a scene in which a sweep closed one draft, and its archive ref."""
    scene = Scene()
    made = scene.session("dead")
    scene.sweep()
    archive = next(ref for ref in scene.world.state.refs if "/archive/branch/" in ref)
    return scene, made, archive


def undone(scene: Scene, archive: str) -> undo.Undone | undo.Refused:
    """Undo with fresh clients."""
    scene.client("undo")
    return undo.undo(scene.gateway, scene.refs, scene.snapshot(), scene.names, archive)


def test_branch_first_then_the_draft() -> None:
    """The same pull request is open again at the same head; doing it again does nothing; no sweep undoes it by itself."""
    scene, made, archive = closed()
    answer = undone(scene, archive)
    assert isinstance(answer, undo.Undone)
    assert (answer.number, answer.new, answer.oid) == (made.number, False, made.head)
    assert scene.world.state.pulls[made.number or 0].open
    assert scene.world.state.refs[f"refs/heads/{made.branch}"] == made.head
    again = undone(scene, archive)
    assert isinstance(again, undo.Undone)
    assert again.done == ()


def test_by_run_id() -> None:
    """The session's run, its planner's run, or the archive ref: all name the same."""
    scene, made, archive = closed()
    snapshot = scene.snapshot()
    for target in (str(made.run_id), made.wave.partition(".")[0], archive, archive.removeprefix("refs/klaud/")):
        assert undo.targets(snapshot, scene.names, target) == [archive]
    assert undo.targets(snapshot, scene.names, "1") == []
    assert undo.targets(snapshot, scene.names, "refs/heads/main") == []


def test_where_github_does_not_reopen() -> None:
    """A new draft says which one it continues."""
    scene, made, archive = closed()
    scene.world.rules.append(lambda call: Spoil.REFUSE if call.name == "reopen_pull" else None)
    answer = undone(scene, archive)
    assert isinstance(answer, undo.Undone)
    assert answer.new
    assert f"#{made.number}" in scene.world.state.pulls[answer.number].body
    assert scene.world.state.pulls[answer.number].draft


@pytest.mark.parametrize("name", ["reopen_pull", "refs.apply"])
def test_a_lost_answer_is_read_back(name: str) -> None:
    """Nothing is opened twice."""
    scene, made, archive = closed()
    scene.world.rules.append(lambda call: Spoil.LOSE if call.name == name else None)
    answer = undone(scene, archive)
    assert isinstance(answer, undo.Undone)
    assert (answer.number, answer.new) == (made.number, False)


def test_what_is_somebody_elses_is_left() -> None:
    """A claimed family, a branch that exists again, a merged pull request, an archive ref that is none."""
    scene, made, archive = closed()
    scene.write(scene.names.claim(names.family_of(made.candidate)), _claim(scene, made))
    assert "another session" in str(undone(scene, archive))
    scene, made, archive = closed()
    scene.world.push(made.branch, "new work", by=scene.world.alice)
    assert "somebody else" in str(undone(scene, archive))
    scene, made, archive = closed()
    scene.world.set_pull(made.number or 0, merged=True)
    assert "merged" in str(undone(scene, archive))
    assert "no archive copy" in str(undone(scene, "refs/klaud/archive/branch/x/y"))
    scene, made, archive = closed()
    before = dict(scene.world.state.refs)
    undone(scene, "refs/heads/main")
    assert scene.world.state.refs == before


def _claim(scene: Scene, made: Made) -> leases.Claim:
    holder = leases.Holder(run_id=scene.me.run_id if scene.me else 1, attempt=1)
    return leases.Claim(
        at=scene.world.time,
        wave="77.1",
        candidate=made.candidate,
        family=made.family,
        base=scene.world.main,
        holder=holder,
    )


def test_why_closed() -> None:
    """Who, by which outcome, and how to undo it."""
    scene, made, archive = closed()
    scene.client("ask")
    text = "\n".join(
        explain.why_closed(scene.gateway, scene.snapshot(), scene.names, made.number or 0, scene.setting.bot)
    )
    assert "closed by klaud" in text
    assert "abandoned" in text
    assert f"klaud undo {archive}" in text
    assert "no such pull request" in explain.why_closed(scene.gateway, scene.snapshot(), scene.names, 999999, 1)[0]
    scene = Scene()
    made = scene.session("refused")
    scene.world.close(made.number or 0, by=scene.world.alice)
    assert "closed by alice" in "\n".join(
        explain.why_closed(scene.gateway, scene.snapshot(), scene.names, made.number or 0, scene.setting.bot)
    )


def test_explain_a_family() -> None:
    """Claim, session, outcome, archive; and a family of which nothing is known."""
    scene, made, archive = closed()
    family = names.family_of(made.candidate)
    text = "\n".join(explain.family(scene.snapshot(), scene.names, family))
    assert "not claimed" in text
    assert f"session {made.key}" in text
    assert "outcome unexpected-error (abandoned), by recovery" in text
    assert f"kept: {archive}" in text
    living = scene.session("alive", status="in_progress")
    assert f"run {living.run_id}" in "\n".join(
        explain.family(scene.snapshot(), scene.names, names.family_of(living.candidate))
    )
