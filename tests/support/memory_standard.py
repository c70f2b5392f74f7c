"""The standard recovery scenes by name: each builds one world, and says which objects a person owns or a session still uses.

``build`` makes a fresh scene and says which row must decide its main session; ``people`` names the drafts that nobody may
touch, ``living`` the sessions that nobody may disturb.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from klaud import names
from klaud.leases import model as leases
from tests.support import memory_scenes
from tests.support.memory_scenes import Made, Scene

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclasses.dataclass
class Built:
    """A built scene. ``main`` is the session of interest (None where there is none)."""

    scene: Scene
    main: Made | None
    people: tuple[int, ...] = ()
    living: tuple[Made, ...] = ()


Build = "Callable[[], Built]"
STANDARD: dict[str, tuple[str, Callable[[], Built]]] = {}


def standard(row: str) -> Callable[[Callable[[], Built]], Callable[[], Built]]:
    """Register a scene under its function's name; ``row`` decides its main session."""

    def add(build: Callable[[], Built]) -> Callable[[], Built]:
        STANDARD[build.__name__] = (row, build)
        return build

    return add


@standard("1")
def forged_two_drafts() -> Built:
    """Two open pull requests of klaud's on one branch."""
    scene = Scene()
    made = scene.session("forged")
    second = scene.world.open_pull(made.branch, by=scene.world.bot)
    return Built(scene, made, (made.number or 0, second))


@standard("1")
def undecodable_claim() -> Built:
    """A claim that is no record."""
    scene = Scene()
    made = scene.session("broken")
    ref = scene.names.claim(names.family_of(made.candidate))
    scene.put(ref, scene.refs.write_commit(b'{"klaud": 1, "kind": "cla'))
    return Built(scene, None)


@standard("2")
def merged() -> Built:
    """A person merged it."""
    scene = Scene()
    made = scene.session("merged")
    scene.world.merge(made.number or 0, by=scene.world.alice)
    return Built(scene, made)


@standard("3")
def handed_off() -> Built:
    """A maintainer took it over."""
    scene = Scene()
    made = scene.session("handed", smoke="in_progress")
    scene.world.label(made.number or 0, names.HANDOFF_LABEL, by=scene.world.alice)
    return Built(scene, made, (made.number or 0,))


@standard("4")
def alive() -> Built:
    """Its run is in progress."""
    scene = Scene()
    made = scene.session("alive", status="in_progress", smoke="in_progress")
    return Built(scene, made, living=(made,))


@standard("4")
def parked_on_a_final_run() -> Built:
    """Parked, and the final run is still going."""
    scene = Scene()
    made = scene.session("parked", conclusion="success", final="in_progress", parked="final-run")
    return Built(scene, made, living=(made,))


@standard("5")
def in_hand() -> Built:
    """A live recovery pass has its lease."""
    scene = Scene()
    made = scene.session("leased")
    other = scene.world.add_run(memory_scenes.PLANNER, actor=scene.world.alice, status="in_progress")
    held = leases.Holder(run_id=other, attempt=1, job="recover", nonce="aa")
    lease = leases.Lease(at=scene.world.time, wave=made.wave, candidate=made.candidate, holder=held)
    scene.write(scene.names.lease(made.wave, made.candidate), lease)
    return Built(scene, made, living=(made,))


@standard("6")
def commented_by_a_person() -> Built:
    """A person said something."""
    scene = Scene()
    made = scene.session("commented", smoke="in_progress")
    scene.world.comment(made.number or 0, "I will look at this", by=scene.world.alice)
    return Built(scene, made, (made.number or 0,))


@standard("6")
def pushed_to_by_a_person() -> Built:
    """A person's commit lies below klaud's newest one."""
    scene = Scene()
    made = scene.session("pushed")
    scene.world.push(made.branch, "a fix", by=scene.world.alice)
    scene.world.push(made.branch, "more", by=scene.world.bot)
    return Built(scene, made, (made.number or 0,))


@standard("6")
def rerun_by_a_person() -> Built:
    """A person re-ran the failed final run: neither commit nor label shows it."""
    scene = Scene()
    made = scene.session("rerun", final="failure", parked="final-run")
    scene.world.rerun(made.final or 0, by=scene.world.alice)
    scene.world.finish_run(made.final or 0, "failure")
    return Built(scene, made, (made.number or 0,))


@standard("7")
def outcome_half_done() -> Built:
    """The outcome stands, its clean-up was interrupted."""
    scene = Scene()
    made = scene.session("half")
    scene.ledger(
        made,
        leases.Outcome(
            at=scene.world.time, outcome="failed", number=made.number, pending=("close-draft", "delete-branch")
        ),
    )
    return Built(scene, made)


@standard("7b")
def outcome_complete_with_a_claim() -> Built:
    """The outcome's clean-up is complete but for the claim."""
    scene = Scene()
    made = scene.session("settled", draft=False, branch=False)
    scene.ledger(made, leases.Outcome(at=scene.world.time, outcome="failed"))
    return Built(scene, made)


@standard("8")
def final_run_verifies() -> Built:
    """The final run succeeded and its results verify."""
    scene = Scene()
    made = scene.session("green", conclusion="success", final="success", parked="final-run")
    return Built(scene, made)


@standard("9")
def final_run_unreadable() -> Built:
    """The final run succeeded and its results cannot be read."""
    scene = Scene()
    scene.finisher.verdict = "unreadable"
    made = scene.session("unreadable", conclusion="success", final="success", parked="final-run")
    return Built(scene, made, (made.number or 0,))


@standard("10")
def final_run_wrong() -> Built:
    """The final run succeeded and its results are wrong."""
    scene = Scene()
    scene.finisher.verdict = "wrong"
    made = scene.session("wrong", conclusion="success", final="success", parked="final-run")
    return Built(scene, made)


@standard("11")
def ready_without_outcome() -> Built:
    """Ready for review, marked so by klaud, and nothing recorded."""
    scene = Scene()
    made = scene.session("ready")
    scene.world.ready(made.number or 0, by=scene.world.bot)
    return Built(scene, made, (made.number or 0,))


@standard("12")
def final_run_missing() -> Built:
    """The final label is set and no final run came."""
    scene = Scene()
    made = scene.session("conflict", final="none")
    scene.world.set_pull(made.number or 0, mergeable="CONFLICTING")
    return Built(scene, made, (made.number or 0,))


@standard("13")
def parked_and_over() -> Built:
    """Parked, the final run failed, budget is left."""
    scene = Scene()
    made = scene.session("again", conclusion="success", final="failure", parked="final-run")
    return Built(scene, made, (made.number or 0,))


@standard("14")
def abandoned() -> Built:
    """A draft whose session died, with a check still going and a review bot's comment."""
    scene = Scene()
    made = scene.session("dead", smoke="in_progress")
    scene.world.comment(made.number or 0, "lint: 3 findings", by=scene.world.reviewer)
    return Built(scene, made)


@standard("14")
def abandoned_among_others() -> Built:
    """Three dead sessions, a live one, and one that a person has touched."""
    scene = Scene()
    made = scene.session("dead")
    scene.session("dead too", smoke="queued")
    scene.session("dead as well", claim=False)
    living = scene.session("alive", status="in_progress")
    touched = scene.session("touched")
    scene.world.label(touched.number or 0, "interesting", by=scene.world.alice)
    return Built(scene, made, (touched.number or 0,), (living,))


@standard("15")
def closed_by_klaud() -> Built:
    """klaud closed it and died."""
    scene = Scene()
    made = scene.session("closed", smoke="in_progress")
    scene.world.close(made.number or 0, by=scene.world.bot)
    return Built(scene, made)


@standard("16")
def closed_by_a_person() -> Built:
    """A person closed it."""
    scene = Scene()
    made = scene.session("refused")
    scene.world.close(made.number or 0, by=scene.world.alice)
    return Built(scene, made)


@standard("17")
def branch_without_draft() -> Built:
    """Pushed, never proposed."""
    scene = Scene()
    made = scene.session("bare", draft=False)
    return Built(scene, made)


@standard("18")
def branch_with_unknown_head() -> Built:
    """A branch whose head no ledger knows."""
    scene = Scene()
    made = scene.session("unknown", draft=False, recorded=False)
    return Built(scene, made)


@standard("19")
def claim_only() -> Built:
    """A claim whose holder died before it did anything."""
    scene = Scene()
    made = scene.session("claimed", branch=False, turns=0, ledger=False)
    return Built(scene, made)


@standard("20")
def old_ledger() -> Built:
    """Nothing but a ledger older than the retention, and the archive copy of the branch that it had."""
    scene = Scene()
    made = scene.session("old", branch=False, claim=False)
    oid = scene.world.commit("old work", parent=scene.world.main, author=scene.world.bot)
    scene.world.move_ref(scene.names.archive("branch", f"auto-{made.candidate}", oid), oid, by=scene.world.bot)
    scene.ledger(made, leases.Effected(at=scene.world.time, seq=7, effect="archive-branch", result="done", oid=oid))
    scene.world.advance(40 * 86400)
    scene.started = scene.world.time
    return Built(scene, made)


@standard("20")
def old_archive() -> Built:
    """The archived copy of a ledger whose last record is older than two retentions, and a ledger as old."""
    scene = Scene()
    beside = scene.session("old", branch=False, claim=False)
    made = scene.session("older", branch=False, claim=False)
    ledger = scene.names.session(made.wave, made.candidate)
    oid = scene.world.state.refs[ledger]
    scene.world.move_ref(ledger, None, by=scene.world.bot)
    scene.put(scene.names.archive("session", made.key, oid), oid)
    scene.world.advance(70 * 86400)
    scene.started = scene.world.time
    return Built(scene, beside)


@standard("lease")
def dead_lease() -> Built:
    """A lease of a pass that is over, on a session that is alive."""
    scene = Scene()
    made = scene.session("leased", status="in_progress")
    over = scene.world.add_run(memory_scenes.PLANNER, actor=scene.world.alice, status="completed", conclusion="failure")
    held = leases.Holder(run_id=over, attempt=1, job="recover", nonce="aa")
    lease = leases.Lease(at=scene.world.time, wave=made.wave, candidate=made.candidate, holder=held)
    scene.write(scene.names.lease(made.wave, made.candidate), lease)
    return Built(scene, None, living=(made,))
