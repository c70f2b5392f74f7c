"""A person may act between any two calls of a sweep: what they touched is open, branch and all, at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support import memory_scenes
from tests.support.memory_scenes import Scene
from tests.support.memory_standard import STANDARD, Built
from tests.support.memory_world import Call, Killed, Spoil

if TYPE_CHECKING:
    from collections.abc import Callable

FINISHED = {"outcome_half_done", "final_run_wrong", "final_run_verifies"}
"""Scenes that the session's own ``finish`` settles; its guards are tested with it."""

ACTS: dict[str, Callable[[Built], object]] = {
    "push": lambda b: b.scene.world.push(branch(b), "a person's fix", by=b.scene.world.alice),
    "label": lambda b: b.scene.world.label(number(b), "mine / 🚑", by=b.scene.world.alice),
    "comment": lambda b: b.scene.world.comment(number(b), "wait", by=b.scene.world.alice),
    "ghost's comment": lambda b: b.scene.world.comment(number(b), "wait", by=None),
    "close": lambda b: b.scene.world.close(number(b), by=b.scene.world.alice),
    "reopen": lambda b: close_and_reopen(b),  # noqa: PLW0108 - defined below
    "rename": lambda b: b.scene.world.rename(number(b), "better", by=b.scene.world.alice),
    "edit": lambda b: b.scene.world.edit_body(number(b), "better", by=b.scene.world.alice),
    "un-draft": lambda b: b.scene.world.ready(number(b), by=b.scene.world.alice),
    "assign": lambda b: b.scene.world.event(number(b), "assigned", b.scene.world.alice),
    "hand-off": lambda b: b.scene.world.label(number(b), "klaud-handoff", by=b.scene.world.alice),
    "re-run": lambda b: rerun(b),  # noqa: PLW0108 - defined below
}


def number(built: Built) -> int:
    assert built.main is not None
    return built.main.number or 0


def branch(built: Built) -> str:
    assert built.main is not None
    return built.main.branch


def close_and_reopen(built: Built) -> None:
    """Close the draft and think better of it."""
    world = built.scene.world
    world.close(number(built), by=world.alice)
    world.reopen(number(built), by=world.alice)


def rerun(built: Built) -> None:
    """Start the newest completed run at the draft's head again, if there is one."""
    world = built.scene.world
    head = world.state.pulls[number(built)].head_oid
    over = [r.id for r in world.state.runs.values() if r.head_sha == head and r.status == "completed"]
    if over:
        world.rerun(max(over), by=world.alice)


def swept(name: str, act: Callable[[Built], object], k: int) -> tuple[Built, bool, str | None]:
    """Sweep a scene with a person acting before the k-th call; tell whether the draft was open then, and its branch."""
    built = STANDARD[name][1]()
    world = built.scene.world
    if built.main is not None and built.main.final is None and built.main.head is not None:
        built.scene.child_run(memory_scenes.SMOKE, built.main, "failure", "workflow_dispatch")
    built.scene.begin()
    seen: list[tuple[bool, str | None]] = []

    def go() -> None:
        pull = world.state.pulls[number(built)]
        seen.append((pull.open, world.state.refs.get(f"refs/heads/{pull.head_ref}")))
        act(built)

    world.act_before(len(world.calls) + k, go)
    built.scene.sweep()
    return built, seen[0][0] if seen else False, seen[0][1] if seen else None


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("name", [n for n in STANDARD if n not in FINISHED])
def test_between_any_two_calls(name: str, act: str) -> None:
    """An open draft stays open or is reopened; its branch stays or is restored; a person's commit is never lost."""
    built = STANDARD[name][1]()
    if built.main is None or built.main.number is None:
        return
    built.scene.begin()
    before = len(built.scene.world.calls)
    built.scene.sweep()
    for k in range(len(built.scene.world.calls) - before):
        after, was_open, had_branch = swept(name, ACTS[act], k)
        state = after.scene.world.state
        pull = state.pulls[number(after)]
        ref = f"refs/heads/{pull.head_ref}"
        if was_open:
            assert pull.open or act == "close", f"call {k}"
        if was_open and had_branch:
            assert ref in state.refs, f"call {k}"
        if act == "push":
            assert state.objects[state.refs[ref]].author == after.scene.world.alice, f"call {k}"


@pytest.mark.parametrize("spoil", [Spoil.STALE, Spoil.FAIL])
@pytest.mark.parametrize("act", ["comment", "label", "rename", "edit"])
@pytest.mark.parametrize("ledger", [True, False])
def test_a_person_acts_and_the_look_after_closing_fails(act: str, spoil: Spoil, ledger: bool) -> None:
    """An answer from before the closing, or none: in this sweep or the next, the draft is open again."""
    scene = Scene()
    built = Built(scene, scene.session("looked at", ledger=ledger, claim=ledger))
    world = scene.world
    scene.begin()
    world.keep_history = True
    state = {"acted": False}

    def before(call: Call) -> None:
        if call.name == "close_pull" and not state["acted"]:
            state["acted"] = True
            ACTS[act](built)

    def rule(call: Call) -> Spoil | None:
        closed = any(c.name == "close_pull" for c in world.calls[:-1])
        looked = sum(c.name == "pull_details" for c in world.calls)
        return spoil if call.name == "pull_details" and closed and looked == 2 else None

    world.before.append(before)
    world.rules.append(rule)
    scene.sweep()
    world.rules.clear()
    assert state["acted"]
    if spoil is Spoil.STALE:
        assert world.state.pulls[number(built)].open
    scene.next_run()
    scene.sweep()
    assert world.state.pulls[number(built)].open
    assert f"refs/heads/{branch(built)}" in world.state.refs
    assert not any("/leases/" in ref for ref in world.state.refs)
    scene.next_run()
    report = scene.sweep()
    assert (report.totals.writes, report.totals.pushes) == ((), 0)


@pytest.mark.parametrize("act", ["comment", "label", "rename", "push"])
def test_a_person_acts_and_then_the_sweep_dies(act: str) -> None:
    """A pass that dies right after closing what a person has just touched: the next one reopens it."""
    clean = STANDARD["abandoned"][1]()
    clean.scene.begin()
    before = len(clean.scene.world.calls)
    clean.scene.sweep()
    names = [c.name for c in clean.scene.world.calls[before:]]
    for name in ("comment", "close_pull"):
        built = STANDARD["abandoned"][1]()
        scene = built.scene
        world = scene.world
        scene.begin()
        world.act_before(len(world.calls) + names.index(name), lambda built=built: ACTS[act](built))  # type: ignore[misc]
        world.spoil_nth(len(world.calls) + names.index("close_pull"), Spoil.KILL_AFTER)
        with pytest.raises(Killed):
            scene.sweep()
        world.rules.clear()
        assert not world.state.pulls[number(built)].open
        scene.next_run()
        assert scene.sweep().red == ()
        assert world.state.pulls[number(built)].open
        assert f"refs/heads/{branch(built)}" in world.state.refs
        scene.next_run()
        assert scene.sweep().totals.writes == ()
