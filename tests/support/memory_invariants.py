"""What must hold of a world after any number of sweeps, however they were interrupted; judged by the world itself.

Nothing here asks klaud's rules: who a person is, who is alive and what was written is read from the world's own state.
"""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Any

from klaud import names
from klaud.leases import model as leases
from klaud.recovery import render

if TYPE_CHECKING:
    from tests.support.memory_scenes import Made, Scene
    from tests.support.memory_standard import Built


CARD = "klaud hands this draft over"
"""How a hand-over card begins."""


def digest(scene: Scene) -> dict[str, Any]:
    """Return the end state in a form in which two histories of one world can be compared."""
    state = scene.world.state
    refs: dict[str, Any] = {}
    snapshot = scene.snapshot()
    for ref, oid in state.refs.items():
        kind = scene.names.parse(ref)
        match kind:
            case names.SessionRef():
                ledger = snapshot.ledgers[ref]
                assert isinstance(ledger, leases.Ledger)
                refs[ref] = [(r.outcome, r.code) for r in ledger.records if isinstance(r, leases.Outcome)][-1:]
            case names.ArchiveRef(kind="session"):
                refs[ref] = "archived"
            case names.ClaimRef() | names.LeaseRef() | names.TombstoneRef() | names.ObservedRef():
                refs[ref] = "there"
            case _:
                refs[ref] = oid
    pulls = {
        n: (
            p.state,
            p.merged,
            p.draft,
            p.head_oid,
            p.labels,
            sum(c.body.startswith(render.MARK) for c in state.comments[n]),
        )
        for n, p in state.pulls.items()
    }
    planners = {i for i, r in state.runs.items() if i >= 900_000}
    runs = {i: (r.status, r.conclusion) for i, r in state.runs.items() if i not in planners}
    return {"refs": refs, "pulls": pulls, "runs": runs}


def differences(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Return what differs between two digests, in words."""
    found = []
    for part, mine in one.items():
        theirs = other[part]
        found += [
            f"{part} {key}: {mine.get(key)} / {theirs.get(key)}"
            for key in {*mine, *theirs}
            if mine.get(key) != theirs.get(key)
        ]
    return sorted(found)


def violations(built: Built) -> list[str]:
    """Return every broken promise of a world after sweeping."""
    scene = built.scene
    state = scene.world.state
    found = []
    for number in built.people:
        found += _untouched(scene, number)
    for made in built.living:
        found += _undisturbed(scene, made)
    for number, comments in state.comments.items():
        said = sum(c.body.startswith(render.MARK) for c in comments)
        closings = sum(e.kind == "closed" and e.actor == scene.world.bot for e in state.timeline[number])
        if said > max(1, closings):
            found.append(f"pull request {number} was told {said} times, closed {closings} times")
    for number, pull in state.pulls.items():
        ref = f"refs/heads/{pull.head_ref}"
        if pull.open and ref not in state.refs and pull.head_repository == scene.setting.repository:
            found.append(f"open pull request {number} has lost its branch")
        cards = sum(c.body.startswith(CARD) for c in state.comments[number])
        taken = sum(e.kind == "labeled" and e.detail == names.HANDOFF_LABEL for e in state.timeline[number])
        if cards > taken:
            found.append(f"pull request {number} has {cards} hand-over cards, and was handed over {taken} times")
    found += _archived(scene)
    return found


def _untouched(scene: Scene, number: int) -> list[str]:
    state = scene.world.state
    pull = state.pulls[number]
    found = []
    if not pull.open:
        found.append(f"a person's pull request {number} is closed")
    if state.refs.get(f"refs/heads/{pull.head_ref}") != pull.head_oid:
        found.append(f"the branch of a person's pull request {number} moved")
    return found


def _undisturbed(scene: Scene, made: Made) -> list[str]:
    state = scene.world.state
    found = []
    if made.number is not None and not state.pulls[made.number].open:
        found.append(f"the draft {made.number} of a live session is closed")
    if made.head is not None and state.refs.get(f"refs/heads/{made.branch}") != made.head:
        found.append(f"the branch of the live session {made.key} moved")
    runs = [run for run in (made.run_id, made.smoke, made.final) if run is not None]
    if state.runs[made.run_id].status != "completed":
        found += [f"run {r} of a live session was cancelled" for r in runs if state.runs[r].conclusion == "cancelled"]
    if scene.names.claim(names.family_of(made.candidate)) not in state.refs:
        found.append(f"the claim of the live session {made.key} is gone")
    return found


def _archived(scene: Scene) -> list[str]:
    """Every branch that klaud deleted has a copy; heads are known from the pull requests."""
    state = scene.world.state
    copies = collections.Counter(ref.rpartition("/")[2] for ref in state.refs if "/archive/" in ref)
    found = []
    for number, events in state.timeline.items():
        pull = state.pulls[number]
        deleted = any(e.kind == "head_ref_deleted" and e.actor == scene.world.bot for e in events)
        if deleted and f"refs/heads/{pull.head_ref}" not in state.refs and not copies[pull.head_oid]:
            found.append(f"the branch of pull request {number} is gone without a copy")
    return found
