"""The decision table: one scene for each row, in which it decides the session, and no other row could."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from klaud.recovery import decide, decide_plan, model, observe
from tests.support.memory_standard import STANDARD, Built

DECISIONS = {
    "forged_two_drafts": ["leave:quarantined"],
    "merged": ["delete-ref", "release-claim", "write-outcome", "leave:settled"],
    "handed_off": ["write-card", "release-claim", "leave:handed-off"],
    "alive": ["leave:alive"],
    "parked_on_a_final_run": ["leave:alive"],
    "in_hand": ["leave:in-hand"],
    "commented_by_a_person": ["cancel-run", "release-claim", "leave:touched"],
    "pushed_to_by_a_person": ["release-claim", "leave:touched"],
    "rerun_by_a_person": ["release-claim", "leave:touched"],
    "outcome_half_done": ["take-lease", "take-claim", "finish", "release-claim"],
    "outcome_complete_with_a_claim": ["release-claim", "leave:settled"],
    "final_run_verifies": ["take-lease", "take-claim", "finish", "release-claim"],
    "final_run_unreadable": ["leave:evidence-unreadable"],
    "final_run_wrong": ["take-lease", "take-claim", "finish", "release-claim"],
    "ready_without_outcome": ["release-claim", "leave:ready"],
    "final_run_missing": ["leave:waiting"],
    "parked_and_over": ["continue", "leave:continued"],
    "abandoned": [
        "take-lease", "take-claim", "cancel-run", "close-draft", "delete-ref", "release-claim", "write-outcome",
    ],
    "closed_by_klaud": ["cancel-run", "delete-ref", "release-claim", "write-outcome"],
    "closed_by_a_person": ["write-tombstone", "release-claim", "leave:closed-by-person"],
    "branch_without_draft": ["delete-ref", "release-claim", "write-outcome"],
    "branch_with_unknown_head": ["release-claim", "leave:unknown-head"],
    "claim_only": ["release-claim"],
    "old_ledger": ["delete-ref", "delete-ref"],
}  # fmt: skip
"""What each scene's main session gets, in order."""

SCENES = [(row, name) for name, (row, _) in STANDARD.items()]


def thinking(built: Built) -> decide_plan.Thinking:
    """Observe a scene until the rules have all they want."""
    scene = built.scene
    scene.begin()
    scene.client("test")
    observer = observe.Observer(
        gateway=scene.gateway,
        clock=scene.world.clock,
        setting=scene.setting,
        policy=scene.policy,
        finisher=scene.finisher,
    )
    sight = observer.first(scene.me, observer.own_run(scene.me), scene.snapshot())
    thought = decide_plan.Thinking(sight, scene.setting, scene.policy)
    while wanted := thought.wanted():
        sight = observer.more(sight, wanted)
        thought = decide_plan.Thinking(sight, scene.setting, scene.policy)
    return thought


def words(verdict: model.Verdict) -> list[str]:
    """Return a verdict's actions as words."""
    return [
        f"leave:{a.code}" if isinstance(a, model.Leave) else str(msgspec.to_builtins(a)["action"])
        for a in verdict.actions
    ]


@pytest.mark.parametrize(("row", "name"), SCENES, ids=[f"row{row}-{name}" for row, name in SCENES])
def test_row(row: str, name: str) -> None:
    """The row decides, with exactly these actions; the inputs stay as they were; the same input gives the same output."""
    built = STANDARD[name][1]()
    thought = thinking(built)
    before = msgspec.json.encode(thought.sight)
    plan = thought.plan(5000)
    assert plan.stop is None
    main = built.main.key if built.main is not None else ""
    mine = [v for v in plan.verdicts if v.case.key == main and v.row != "lease"]
    if mine:
        assert [v.row for v in mine] == [row]
        assert words(mine[0]) == DECISIONS.get(name, words(mine[0]))
    else:
        assert row in {v.row for v in plan.verdicts}
    assert decide_plan.Thinking(thought.sight, built.scene.setting, built.scene.policy).plan(5000) == plan
    assert msgspec.json.encode(thought.sight) == before


@pytest.mark.parametrize(("row", "name"), SCENES, ids=[f"row{row}-{name}" for row, name in SCENES])
def test_no_row_above_answers(row: str, name: str) -> None:
    """In its scene a row is the first that answers."""
    built = STANDARD[name][1]()
    thought = thinking(built)
    if built.main is None:
        return
    answers = [d.row for rule in decide.TABLE if (d := rule(thought.facts[built.main.key])) is not None]
    assert answers[0] == row


def test_every_row_has_a_scene() -> None:
    """The table's rows and the scenes' rows are the same, but for the failed read, which no world shows by itself."""
    assert {row for row, _ in STANDARD.values()} | {"1b"} == {*model.ROWS, "lease"}


def test_what_no_row_takes_is_left() -> None:
    """The table is total: what cannot be proven over and is not known alive is left as unmatched."""
    built = STANDARD["claim_only"][1]()
    thought = thinking(built)
    assert built.main is not None
    facts = dataclasses.replace(thought.facts[built.main.key], live=model.Zombie(1))
    assert decide.decide_case(facts).row == "4"
    bare = msgspec.structs.replace(facts.case, claim=None, branch="b" * 40)
    facts = dataclasses.replace(facts, case=bare, live=None)  # type: ignore[arg-type]
    verdict = decide.decide_case(facts)
    assert (verdict.row, words(verdict)) == ("unmatched", ["leave:unmatched"])
