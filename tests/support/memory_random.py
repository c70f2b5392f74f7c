"""Random worlds: sessions in any state, people acting at any time, calls spoilt, planners dying; checked after each sweep.

Everything is drawn from one seeded generator, so a failing world is repeated by its seed; ``story`` says in words what was
made and what happened, and ``memory_replay`` makes a failure smaller and a scene. The checks are those of
``memory_invariants`` and a few that only a world that has come to rest can be held to.
"""

from __future__ import annotations

import random

from tests.support import memory_replay
from tests.support.memory_replay import Step
from tests.support.memory_scenes import Made, Scene
from tests.support.memory_world import Spoil

SPOILS = (Spoil.FAIL, Spoil.LOSE, Spoil.STALE, Spoil.KILL_BEFORE, Spoil.KILL_AFTER)
MOST_SESSIONS = 5
CALLS = 25
"""A trouble comes before one of so many first calls of a sweep."""


class RandomWorld(memory_replay.Played):
    """One world and its history."""

    def __init__(self, seed: int) -> None:
        """Make the sessions; nothing is swept yet."""
        super().__init__(Scene(), [])
        self.chance = random.Random(seed)  # noqa: S311 - a world to repeat, not a secret
        self.seed = seed
        self.story.append(f"seed {seed}")
        for index in range(self.chance.randint(1, MOST_SESSIONS)):
            self.made.append(self._session(index))
        for index in range(len(self.made)):
            if self.chance.random() < 0.25:
                self.person(index)
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

    def person(self, index: int) -> None:
        """Let a person do one thing, drawn by chance, to a session's draft."""
        self.deed(self.chance.choice(memory_replay.DEEDS), index, ghost=self.chance.random() < 0.5)

    def sweep(self, *, trouble: bool) -> None:
        """Run one sweep, with at most one person's act and one spoilt call in it."""
        chance = self.chance
        act = chance.random() < 0.5
        spoilt = chance.random() < 0.7
        step = Step(
            deed=chance.choice(memory_replay.DEEDS) if act else "",
            who=chance.randrange(len(self.made)),
            ghost=chance.random() < 0.5,
            at=chance.randint(0, CALLS),
            spoil=chance.choice(SPOILS) if trouble and spoilt else None,
            bad=chance.randint(0, CALLS),
            wait=chance.choice((60.0, 900.0, 7200.0)) if chance.random() < 0.3 else 0.0,
            next_run=chance.random() < 0.8,
        )
        self.play(step)


def tried(seed: int, sweeps: int = 3) -> RandomWorld:
    """Make one world, let it be swept with trouble some times, then without; return it with what was wrong."""
    world = RandomWorld(seed)
    for _ in range(sweeps):
        world.sweep(trouble=True)
    world.end()
    return world
