"""A broken twin for each guard: the same sweep with one guard taken out must be caught by what the other tests check.

Each twin is put in place of one part of the product; the named check must then find something wrong. A twin that nothing
catches would mean that its guard is not tested.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from klaud import names
from klaud.github import gateway as ports
from klaud.leases import rules_touch as touch_rules
from klaud.recovery import (
    act,
    decide,
    decide_cases,
    decide_facts,
    decide_plan,
    hand,
    model,
    rules_liveness,
    rules_touch,
    run,
    settle_refs,
)
from klaud.recovery import writer as writers
from tests.support import memory_crash, memory_invariants, memory_refs, memory_scenes
from tests.support.memory_forerunner import Forerunner
from tests.support.memory_scenes import Scene
from tests.support.memory_standard import STANDARD
from tests.support.memory_world import Call, Killed, Spoil

if TYPE_CHECKING:
    from collections.abc import Callable


# -- checks: each returns what is wrong


def crashes() -> list[str]:
    """Spoil every call of a dead session's sweep."""
    return memory_crash.tried("abandoned")[1]


def crashes_in_company() -> list[str]:
    """Spoil every call of a sweep over several sessions."""
    return memory_crash.tried("abandoned_among_others")[1]


def people(act_of: str = "comment") -> Callable[[], list[str]]:
    """Let a person act between any two calls of a dead session's sweep."""
    return lambda: [text for k in range(30) for text in _person_before(act_of, k)]


def _person_before(act_of: str, k: int) -> list[str]:
    built = STANDARD["abandoned"][1]()
    scene, made = built.scene, built.main
    assert made is not None
    world, number = scene.world, made.number or 0
    over = scene.child_run(memory_scenes.SMOKE, made, "failure", "workflow_dispatch") if act_of == "rerun" else 0
    scene.begin()
    theirs: list[bool] = []

    def person() -> None:
        was_open = world.state.pulls[number].open
        theirs.append(was_open and act_of != "reopen")
        match act_of:
            case "comment":
                world.comment(number, "wait", by=world.alice)
            case "push":
                world.push(made.branch, "mine", by=world.alice)
            case "reopen":
                theirs.append(not was_open and world.reopen(number, by=world.alice))
            case _:
                world.rerun(over, by=world.alice)

    world.act_before(len(world.calls) + k, person)
    scene.sweep()
    if not any(theirs):
        return []
    wrong = []
    if not world.state.pulls[number].open:
        wrong.append(f"closed although a person acted before call {k}")
    if f"refs/heads/{made.branch}" not in world.state.refs:
        wrong.append(f"branch gone although a person acted before call {k}")
    return wrong


def never_closed() -> list[str]:
    """What a person touched before the last look is not even closed for a moment, and no word is said."""
    built = STANDARD["abandoned"][1]()
    scene, made = built.scene, built.main
    assert made is not None
    world, number = scene.world, made.number or 0
    scene.begin()

    def person(call: Call) -> None:
        if call.name == "refs.apply" and not any(e.actor == world.alice for e in world.state.timeline[number]):
            world.comment(number, "wait", by=world.alice)

    world.before.append(person)
    scene.sweep()
    kinds = [e.kind for e in world.state.timeline[number] if e.actor == world.bot]
    return [k for k in kinds if k in {"closed", "commented"}]


def rerun_unparked() -> list[str]:
    """A person re-ran the final run of a session that never parked."""
    scene = Scene()
    made = scene.session("rerun", final="failure")
    scene.world.rerun(made.final or 0, by=scene.world.alice)
    scene.world.finish_run(made.final or 0, "failure")
    scene.sweep()
    return [] if scene.world.state.pulls[made.number or 0].open else ["closed"]


def unread_holder() -> list[str]:
    """A live session's run cannot be read; its claim is all there is."""
    scene = Scene()
    made = scene.session("alive", status="in_progress", branch=False, turns=0)
    scene.begin()
    own = scene.me.run_id if scene.me else 0
    scene.world.rules.append(
        lambda call: (
            Spoil.FAIL
            if (call.name == "runs" and ("actor", "klaud-bot") in call.args)
            or (call.name == "run" and call.args != (own,))
            else None
        )
    )
    scene.sweep()
    claim = scene.names.claim(names.family_of(made.candidate))
    return [] if claim in scene.world.state.refs else ["a live session's claim is gone"]


def standard(*scenes: str) -> Callable[[], list[str]]:
    """Sweep standard scenes twice and look at the world."""

    def check() -> list[str]:
        wrong = []
        for name in scenes or STANDARD:
            built = STANDARD[name][1]()
            first = built.scene.sweep()
            wrong += memory_invariants.violations(built)
            rows = {e.session: e.row for e in first.sessions if e.row != "lease"}
            wrong += [f"{m.key} is alive, row {rows[m.key]}" for m in built.living if rows[m.key] not in {"4", "5"}]
            if built.main is not None and built.main.key not in {e.session for e in first.sessions}:
                wrong.append(f"{name}: not seen")
            if built.scene.sweep().totals.pushes:
                wrong.append(f"{name}: the second sweep writes")
        return wrong

    return check


def nothing_is_proven() -> list[str]:
    """Every run answers 404."""
    scene = Forerunner().scene
    scene.begin()
    before = memory_invariants.digest(scene)
    scene.world.rules.append(lambda call: Spoil.MISSING if call.name == "run" else None)
    scene.sweep()
    return memory_invariants.differences(before, memory_invariants.digest(scene))


def empty_listings() -> list[str]:
    """Every listing is empty."""
    scene = Forerunner().scene
    scene.begin()
    before = memory_invariants.digest(scene)
    scene.world.rules.append(lambda call: Spoil.EMPTY if call.name in {"runs", "pulls_of_heads"} else None)
    report = scene.sweep()
    return [*memory_invariants.differences(before, memory_invariants.digest(scene)), *([] if report.red else ["green"])]


def swapped_refs() -> list[str]:
    """A branch and a claim move right before the last push."""
    built = STANDARD["branch_without_draft"][1]()
    scene, made = built.scene, built.main
    assert made is not None
    scene.begin()
    calls = len(scene.world.calls)
    scene.world.act_before(calls + 6, lambda: scene.world.push(made.branch, "mine", by=scene.world.alice))
    scene.sweep()
    there = scene.world.state.refs.get(f"refs/heads/{made.branch}")
    author = scene.world.state.objects[there].author if there else None
    return [] if author == scene.world.alice else ["a person's push was deleted"]


def drained() -> list[str]:
    """More than ten drafts are abandoned."""
    built = Forerunner()
    built.scene.sweep()
    return [] if built.drafts_closed() == 10 else [f"{built.drafts_closed()} drafts were closed"]


def zombies_end() -> list[str]:
    """A run that nothing can end is tried once."""
    scene = Scene()
    made = scene.session("dead", smoke="queued")
    scene.world.cancel_behaviour[made.smoke or 0] = "deaf"
    scene.sweep()
    return [f"tried again: {w}" for w in scene.sweep().totals.writes]


def forced() -> list[str]:
    """A cancel that answers 202 and does nothing is seen through."""
    scene = Scene()
    made = scene.session("dead", smoke="in_progress")
    scene.world.cancel_behaviour[made.smoke or 0] = "ignored"
    scene.sweep()
    return [] if scene.world.state.runs[made.smoke or 0].status == "completed" else ["still going"]


def reserve_kept() -> list[str]:
    """The rate limit's reserve is left to others."""
    scene = Scene()
    for index in range(8):
        scene.session(f"dead {index}")
    scene.begin()
    scene.client("sweep")
    scene.gateway.remaining = scene.policy.reserve + 25
    run.sweep(scene.parts())
    return [] if scene.gateway.remaining >= scene.policy.reserve else [f"{scene.gateway.remaining} left"]


# -- twins: each takes one guard out


class CarelessStore(memory_refs.MemoryRefStore):
    """A store that ignores ``expected``."""

    def _judge(self, updates: Any) -> list[ports.RefResult]:
        for update in updates:
            actual = self._world.state.refs.get(update.ref)
            if update.new is None and actual is None:
                return list(super()._judge(updates))
        return [ports.RefUpdated(update.ref) for update in updates]


def _errors_are_gone(run_id: int, sight: model.Sight, index: decide_cases.Index) -> model.Liveness:
    found = REAL_OF_RUN(run_id, sight, index)
    return model.Gone(proof="it could not be read") if isinstance(found, model.Unknown) else found


def _missing_is_gone(run_id: int, sight: model.Sight) -> model.Liveness:
    del sight
    return model.Gone(proof=f"run {run_id} answers 404")


REAL_OF_RUN = rules_liveness.of_run
REAL_APPLY = writers.Writer.push


def _unfenced(self: settle_refs.RefSettler, hands: Any) -> None:
    del self, hands


def _split_groups(self: settle_refs.RefSettler, groups: Any) -> None:
    for one, updates in groups:
        ordered = sorted(updates, key=lambda u: u.new is not None)
        for update in ordered:
            self._report(one, update, self._writer.push([update])[update.ref])


def _believe(self: act.Actor, hands: Any, index: object) -> None:
    del self, index
    for one in hands:
        one.closed = one.closing is not None


class Everything:
    """Contains whatever is looked for."""

    def __contains__(self, what: object) -> bool:
        """Say yes."""
        return True


def NOTHING(*_: object) -> None:  # noqa: N802 - stands for a guard that is not there
    """Do nothing."""


TWINS: dict[str, tuple[list[tuple[object, str, Any]], Callable[[], list[str]]]] = {
    "a store that ignores expected": (
        [(memory_refs, "MemoryRefStore", CarelessStore)],
        swapped_refs,
    ),
    "errors are gone": ([(rules_liveness, "of_run", _errors_are_gone)], unread_holder),
    "404 is gone": (
        [(rules_liveness, "_of_missing", _missing_is_gone), (decide_plan.Thinking, "stop", lambda _: None)],
        nothing_is_proven,
    ),
    "contradictions do not stop": ([(decide_plan.Thinking, "stop", lambda _: None)], empty_listings),
    "no re-read before closing": ([(act.Actor, "objection", lambda *_, **__: "")], never_closed),
    "no re-read after closing": (
        [(act.Actor, "check_closed", _believe), (run._Sweep, "_check_deleted", NOTHING)],
        people("push"),
    ),
    "no look for re-runs": ([(act.Actor, "check_reruns", NOTHING)], people("rerun")),
    "no look after deleting": ([(run._Sweep, "_check_deleted", NOTHING)], people("reopen")),
    "commits are not looked at": (
        [(rules_touch, "_by_commits", lambda *_: iter(()))],
        standard("pushed_to_by_a_person"),
    ),
    "the timeline is not looked at": (
        [(touch_rules, "PASSIVE", _Everything := type("E", (), {"__contains__": lambda *_: True})())],
        standard("commented_by_a_person"),
    ),
    "runs are not looked at": (
        [(rules_touch, "_by_runs", lambda *_: iter(())), (act.Actor, "check_reruns", NOTHING)],
        rerun_unparked,
    ),
    "the hand-off label is not looked at": (
        [
            (decide, "TABLE", tuple(r for r in decide.TABLE if r is not decide.row_3)),
            (decide_facts, "_touch", NOTHING),
            (act.Actor, "_theirs", lambda *_: ""),
            (run._Sweep, "_check_deleted", NOTHING),
        ],
        standard("handed_off"),
    ),
    "parked runs are not looked at": (
        [(rules_liveness, "waits_on", lambda _: ()), (rules_liveness, "finals_going", lambda *_: [])],
        standard("parked_on_a_final_run"),
    ),
    "leases are not looked at": (
        [(decide, "TABLE", tuple(r for r in decide.TABLE if r is not decide.row_5))],
        standard("in_hand"),
    ),
    "ambiguity is not looked at": ([(decide, "TABLE", decide.TABLE[1:])], standard("forged_two_drafts")),
    "comments are repeated": ([(act, "said_already", lambda *_: False)], crashes),
    "branches are deleted without a copy": (
        [(settle_refs.RefSettler, "_is_archived", lambda *_: False), (settle_refs.RefSettler, "_final", None)],
        standard("abandoned"),
    ),
    "archive and branch are not one push": ([(settle_refs.RefSettler, "_push_groups", _split_groups)], crashes),
    "no drain": (
        [
            (decide_plan, "_drained", lambda verdicts, *_: verdicts),
            (decide_plan.Thinking, "_heads_read", lambda _, v: v),
        ],
        drained,
    ),
    "zombies are not remembered": ([(rules_liveness, "zombies", lambda _: frozenset())], zombies_end),
    "a cancel is believed": (
        [(act.Actor, "_verify", lambda self, _: [self._over(i) for i in list(self._asked)])],
        forced,
    ),
    "no reserve": (
        [(act.Actor, "_room", lambda *_: True), (decide_plan, "_within_budget", lambda v, *_: (v, 0))],
        reserve_kept,
    ),
}


def _final_without_archive(self: settle_refs.RefSettler, one: hand.Hand) -> list[ports.RefUpdate]:
    return [u for u in REAL_FINAL(self, one) if "/archive/" not in u.ref]


REAL_FINAL = settle_refs.RefSettler._final
TWINS["branches are deleted without a copy"][0][1] = (settle_refs.RefSettler, "_final", _final_without_archive)


@pytest.mark.parametrize("name", TWINS)
def test_the_sound_product_passes_its_checks(name: str) -> None:
    """Without a twin the check finds nothing."""
    assert TWINS[name][1]() == []


@pytest.mark.parametrize("name", TWINS)
def test_a_twin_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the twin in place the same check finds something, or the sweep itself breaks."""
    replaced, check = TWINS[name]
    for owner, attribute, twin in replaced:
        monkeypatch.setattr(owner, attribute, twin)
    try:
        wrong = check()
    except (AssertionError, KeyError, Killed) as error:
        wrong = [repr(error)]
    assert wrong != []
