"""Random worlds: sessions in any state, people acting at any time, calls spoilt, planners dying; checked after each sweep.

Everything is drawn from one seeded generator, so a failing world is repeated by its seed; ``story`` says in words what was
made and what happened. The checks are those of ``memory_invariants`` and a few that only a random world needs.
"""

from __future__ import annotations

import contextlib
import random
from typing import TYPE_CHECKING

from klaud import names
from tests.support import memory_invariants
from tests.support.memory_scenes import Made, Scene
from tests.support.memory_standard import Built
from tests.support.memory_world import Call, Killed, Spoil

if TYPE_CHECKING:
    from collections.abc import Callable

SPOILS = (Spoil.FAIL, Spoil.LOSE, Spoil.STALE, Spoil.KILL_BEFORE, Spoil.KILL_AFTER)
MOST_SESSIONS = 5


class RandomWorld:
    """One world and its history. ``wrong`` collects broken promises."""

    def __init__(self, seed: int) -> None:
        """Make the sessions; nothing is swept yet."""
        self.chance = random.Random(seed)  # noqa: S311 - a world to repeat, not a secret
        self.seed = seed
        self.scene = Scene()
        self.story: list[str] = [f"seed {seed}"]
        self.wrong: list[str] = []
        self.made: list[Made] = [self._session(index) for index in range(self.chance.randint(1, MOST_SESSIONS))]
        self.theirs: dict[int, str] = {}
        for made in self.made:
            if self.chance.random() < 0.25:
                self._person(made)
        self.scene.begin()

    def _session(self, index: int) -> Made:
        chance = self.chance
        alive = chance.random() < 0.25
        branch = chance.random() < 0.85
        draft = branch and chance.random() < 0.8
        final = chance.choice(("", "", "success", "failure", "in_progress", "none")) if draft else ""
        options = {
            "status": chance.choice(("in_progress", "queued", "waiting")) if alive else "completed",
            "conclusion": chance.choice(("success", "failure", "cancelled", "timed_out")),
            "ledger": chance.random() < 0.85,
            "claim": alive or chance.random() < 0.75,
            "branch": branch,
            "draft": draft,
            "smoke": chance.choice(("", "", "in_progress", "queued", "success")) if branch else "",
            "final": final,
            "parked": "final-run" if final and not alive and chance.random() < 0.6 else "",
        }
        made = self.scene.session(f"family {index}", **options)  # type: ignore[arg-type]
        self.story.append(f"session {made.key}: {options}")
        if draft and chance.random() < 0.15 and not alive:
            self.scene.world.close(made.number or 0, by=self.scene.world.bot)
            self.story.append(f"klaud closed #{made.number}")
        self.scene.finisher.verdict = chance.choice(("verified", "unreadable", "wrong"))
        return made

    # -- people
    def _person(self, made: Made) -> None:
        """Let a person do one thing to a session's draft, if it has one."""
        if made.number is None:
            return
        world, number = self.scene.world, made.number
        acts: dict[str, Callable[[], object]] = {
            "push": lambda: world.push(made.branch, f"a person's {world.serial()}", by=world.alice),
            "comment": lambda: world.comment(number, "hm", by=self.chance.choice((world.alice, None))),
            "label": lambda: world.label(number, f"label {world.serial()}", by=world.alice),
            "rename": lambda: world.rename(number, "better", by=world.alice),
            "edit": lambda: world.edit_body(number, "better", by=world.alice),
            "hand-off": lambda: world.label(number, names.HANDOFF_LABEL, by=world.alice),
            "un-draft": lambda: world.ready(number, by=world.alice),
            "close": lambda: world.close(number, by=world.alice),
            "bot's comment": lambda: world.comment(number, "lint", by=world.reviewer),
        }
        name = self.chance.choice(sorted(acts))
        pull = world.state.pulls[number]
        if name == "un-draft" and not pull.draft:
            return
        acts[name]()
        self.story.append(f"{name} on #{number} at call {len(world.calls)}, {pull.state}")
        if name == "close":
            self.theirs.pop(number, None)
        elif name != "bot's comment" and pull.open and f"refs/heads/{made.branch}" in world.state.refs:
            self.theirs[number] = name

    # -- sweeping
    def sweep(self, *, trouble: bool) -> None:
        """Run one sweep, with at most one person's act and one spoilt call in it."""
        scene = self.scene
        world = scene.world
        begun = len(world.calls)
        world.keep_history = True
        at = begun + self.chance.randint(0, 25)
        act = self.chance.random() < 0.5
        spoil = self.chance.choice(SPOILS) if trouble and self.chance.random() < 0.7 else None
        bad = begun + self.chance.randint(0, 25)
        who = self.chance.choice(self.made)

        def hook(call: Call) -> None:
            if act and call.k == at and not self._settled_by_finish(who):
                self._person(who)

        def rule(call: Call) -> Spoil | None:
            if call.k != bad or spoil is None:
                return None
            self.story.append(f"{spoil.name} at call {call.k} ({call.name})")
            return spoil

        world.before.append(hook)
        world.rules.append(rule)
        with contextlib.suppress(Killed):
            scene.sweep()
        world.before.remove(hook)
        world.rules.remove(rule)
        killed = spoil in {Spoil.KILL_AFTER, Spoil.KILL_BEFORE}
        self._check(interrupted=killed)
        if self.chance.random() < 0.3:
            world.advance(self.chance.choice((60, 900, 7200)))
        if self.chance.random() < 0.8:
            scene.next_run()

    def _settled_by_finish(self, made: Made) -> bool:
        """Tell whether the session's own finish may be at work on it, whose guards are tested with it."""
        return made.final is not None

    def _check(self, *, interrupted: bool) -> None:
        scene = self.scene
        state = scene.world.state
        living = [m for m in self.made if state.runs[m.run_id].status != "completed"]
        taken = {n for n in self.theirs if names.HANDOFF_LABEL in state.pulls[n].labels}
        people = tuple(self.theirs) if not interrupted else ()
        quiet = tuple(m for m in living if m.number not in taken and m.claim)
        self.wrong += memory_invariants.violations(Built(scene, None, people, quiet))

    def end(self) -> None:
        """Sweep without trouble until nothing moves; then nobody's claim, lease or draft may be left over."""
        scene = self.scene
        for _ in range(8):
            scene.world.advance(3600)
            scene.next_run()
            report = scene.sweep()
            self._check(interrupted=False)
        again = scene.sweep()
        if again.totals.pushes or again.totals.writes:
            self.wrong.append("a sweep right after a quiet one writes")
        if report.red:
            self.wrong.append(f"red without trouble: {report.red}")
        held = [ref for ref in scene.world.state.refs if ref.startswith("refs/klaud/leases/")]
        self.wrong += [f"a lease is left: {ref}" for ref in held]
        self.wrong += [f"a claim of a dead session is left: {m.key}" for m in self.made if self._claim_leaks(m)]
        self.wrong += [f"no row decides {e.session}" for e in report.sessions if e.row == "unmatched"]

    def _claim_leaks(self, made: Made) -> bool:
        """Tell whether a claim stands although its session's run is over and it waits for nothing."""
        state = self.scene.world.state
        ref = self.scene.names.claim(names.family_of(made.candidate))
        over = state.runs[made.run_id].status == "completed"
        waits = made.final is not None and state.runs[made.final].status != "completed"
        return ref in state.refs and over and not waits


def tried(seed: int, sweeps: int = 3) -> RandomWorld:
    """Make one world, let it be swept with trouble some times, then without; return it with what was wrong."""
    world = RandomWorld(seed)
    for _ in range(sweeps):
        world.sweep(trouble=True)
    world.end()
    return world
