"""The hand-over card from the sweep: once for each time that the label is set, whoever dies meanwhile."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from klaud import names
from klaud.leases import model as leases
from tests.support.memory_scenes import Scene
from tests.support.memory_world import Call, Killed, Spoil

if TYPE_CHECKING:
    from klaud.recovery import model
    from tests.support import memory_scenes

CARD = "klaud hands this draft over"


def handed(**options: object) -> tuple[Scene, memory_scenes.Made]:
    """Return a scene whose one draft a maintainer has taken over."""
    scene = Scene()
    made = scene.session("handed", **options)  # type: ignore[arg-type]
    scene.world.label(made.number or 0, names.HANDOFF_LABEL, by=scene.world.alice)
    scene.begin()
    return scene, made


def cards(scene: Scene, made: memory_scenes.Made) -> int:
    return sum(comment.body.startswith(CARD) for comment in scene.world.state.comments[made.number or 0])


def swept(scene: Scene, times: int = 3) -> list[model.Report]:
    found = []
    for _ in range(times):
        found.append(scene.sweep())
        scene.world.advance(3600)
        scene.next_run()
    return found


@pytest.mark.parametrize("status", ["completed", "in_progress"])
def test_a_draft_without_its_card_gets_one(status: str) -> None:
    """Also where its session still runs: it writes nothing more there. The claim goes as before."""
    scene, made = handed(status=status)
    first, second, third = swept(scene)
    assert cards(scene, made) == 1
    assert [w.split()[0] for w in first.totals.writes] == ["POST"]
    assert any("hand-over card" in text for entry in first.sessions for text in entry.done)
    assert (second.totals.writes, third.totals.writes, third.totals.pushes) == ((), (), 0)
    assert scene.names.claim(names.family_of(made.candidate)) not in scene.world.state.refs
    ledger = scene.snapshot().ledgers[scene.names.session(made.wave, made.candidate)]
    assert isinstance(ledger, leases.Ledger)
    assert isinstance(ledger.records[-1], leases.Effected)
    assert ledger.records[-1].result == "done"


def test_a_draft_whose_number_no_ledger_names_gets_one_too() -> None:
    """The label came before the session could record the draft that it had opened."""
    scene = Scene()
    made = scene.session("handed", draft=False)
    made.number = scene.world.open_pull(made.branch, by=scene.world.bot)
    scene.world.label(made.number, names.HANDOFF_LABEL, by=scene.world.alice)
    swept(scene)
    assert cards(scene, made) == 1


def test_each_hand_over_has_one_card() -> None:
    scene, made = handed()
    number = made.number or 0
    swept(scene)
    scene.world.unlabel(number, names.HANDOFF_LABEL, by=scene.world.alice)
    scene.world.advance(60)
    scene.world.comment(number, "still mine", by=scene.world.alice)
    swept(scene, 1)
    scene.world.advance(60)
    scene.world.label(number, names.HANDOFF_LABEL, by=scene.world.alice)
    scene.world.advance(60)
    swept(scene)
    assert cards(scene, made) == 2


def test_klaud_has_said_something_since_the_label() -> None:
    """By GitHub's times alone: a runner whose clock is behind may have dated the card's intent before the label."""
    scene, made = handed()
    scene.world.comment(made.number or 0, CARD, by=scene.world.bot)
    assert swept(scene, 1)[0].totals.writes == ()


def test_an_intent_of_another_process_is_enough() -> None:
    """``klaud handoff`` is about to write it."""
    scene, made = handed()
    intent = leases.Intent(
        at=scene.world.time, seq=9, effect="comment", by="recovery", number=made.number, label=names.HANDOFF_LABEL
    )
    scene.ledger(made, intent)
    assert [report.totals.writes for report in swept(scene)] == [(), (), ()]


@pytest.mark.parametrize("how", ["no ledger", "a person's", "an unfinished timeline", "set at birth"])
def test_no_card_where_nothing_shows_that_it_is_due(how: str) -> None:
    scene = Scene()
    made = scene.session("handed", ledger=how != "no ledger", draft=how not in {"a person's", "set at birth"})
    world = scene.world
    if made.number is None:
        made.number = world.open_pull(made.branch, by=world.alice if how == "a person's" else world.bot)
    if how == "set at birth":
        world.set_pull(made.number, labels=(names.HANDOFF_LABEL,))
    else:
        world.label(made.number, names.HANDOFF_LABEL, by=world.alice)
    if how == "an unfinished timeline":
        world.rules.append(lambda call: Spoil.SHORT if call.name == "pulls_of_heads" else None)
    assert swept(scene, 1)[0].totals.writes == ()


def test_the_label_goes_before_the_card_is_written() -> None:
    scene, made = handed()

    def give_back(call: Call) -> None:
        if call.name == "pull_details":
            scene.world.unlabel(made.number or 0, names.HANDOFF_LABEL, by=scene.world.alice)

    scene.world.before.append(give_back)
    report = scene.sweep()
    assert cards(scene, made) == 0
    assert any("no card" in text for entry in report.sessions for text in entry.left)


def test_an_unclear_answer_is_not_repeated() -> None:
    scene, made = handed()
    scene.world.rules.append(lambda call: Spoil.LOSE if call.name == "comment" else None)
    first, *_ = swept(scene)
    assert cards(scene, made) == 1
    assert first.red == ()


def test_it_is_never_written_twice_whatever_is_killed() -> None:
    """Killed before or after each call of the first sweep: at most one card, and the claim goes all the same."""
    scene, _ = handed()
    begun = len(scene.world.calls)
    scene.sweep()
    calls = len(scene.world.calls) - begun
    written = set()
    for spoil in (Spoil.KILL_BEFORE, Spoil.KILL_AFTER):
        for k in range(calls):
            scene, made = handed()
            scene.world.spoil_nth(len(scene.world.calls) + k, spoil)
            with contextlib.suppress(Killed):
                scene.sweep()
            scene.next_run()
            last = swept(scene)[-1]
            written.add(cards(scene, made))
            assert (last.totals.writes, last.totals.pushes) == ((), 0)
            assert scene.names.claim(names.family_of(made.candidate)) not in scene.world.state.refs
    assert written == {0, 1}


def test_two_sweeps_at_once_write_one() -> None:
    """The second finds the ledger moved, and leaves it."""
    scene, made = handed()

    def rival(call: Call) -> None:
        if call.name == "refs.apply" and any("/sessions/" in u.ref for u in call.args[0]):
            scene.world.before.remove(rival)
            intent = leases.Intent(
                at=scene.world.time,
                seq=9,
                effect="comment",
                by="recovery",
                number=made.number,
                label=names.HANDOFF_LABEL,
            )
            scene.ledger(made, intent)

    scene.world.before.append(rival)
    scene.sweep()
    assert cards(scene, made) == 0
