"""The forerunner's world: what that system left behind, in its own record format, in the numbers that were counted.

568 leases, 402 of them of planner runs that are over; 42 claims, 40 of finished runs; 55 sessions, 14 of which hit the job
limit; 43 branches that nobody needs, 11 of them below an abandoned draft; 9 orphaned checks; one draft whose final run is
still going, two that a maintainer re-swept, two handed off, three ready; a review bot's comment on every draft. ``scale``
multiplies klaud's own objects, ``others`` adds open pull requests of other people.
"""

from __future__ import annotations

import json

from klaud import names
from tests.support import memory_scenes
from tests.support.memory_scenes import Made, Scene

PLANNERS = 24
"""Planner runs that are over and own what is left."""


class Forerunner:
    """The built scene, and the numbers of the drafts by what they are."""

    def __init__(self, *, scale: int = 1, others: int = 0) -> None:
        """Build everything."""
        self.scene = Scene()
        self.world = self.scene.world
        self.count = 0
        self.over = [self._planner("completed", "success") for _ in range(PLANNERS * scale)]
        self.live = [self._planner("in_progress", None) for _ in range(2 * scale)]
        self.abandoned: list[Made] = []
        self.leftover: list[Made] = []
        self.kept: list[Made] = []
        self.orphans: list[int] = []
        for _ in range(scale):
            self._sessions()
        self._leases(scale)
        for index in range(others):
            branch = f"topic-{index}"
            self.world.state.refs[f"refs/heads/{branch}"] = self.world.main
            self.world.open_pull(branch, by=self.world.alice, draft=False)

    def _planner(self, status: str, conclusion: str | None) -> int:
        world = self.world
        return world.add_run(
            memory_scenes.PLANNER, actor=world.alice, status=status, conclusion=conclusion, event="schedule"
        )

    def _record(self, ref: str, planner: int, candidate: str) -> None:
        text = {"planner_run": planner, "candidate": candidate, "job": f"Run candidate {candidate}", "wave": 7}
        self.scene.put(ref, self.scene.refs.write_commit(json.dumps({**text, "serial": self.world.serial()}).encode()))

    def session(self, *, claim: bool = True, live: bool = False, draft: bool = True, limit: bool = False) -> Made:
        """Add one session as a job of a planner run, its branch, its draft, and the review bot's comment."""
        self.count += 1
        planner = self.live[self.count % len(self.live)] if live else self.over[self.count % len(self.over)]
        family = f"configs/gpu.yaml:family-{self.count}"
        candidate = names.candidate_id(family, "image v2")
        made = Made("", candidate, family, planner)
        job = (f"Run candidate {candidate}", "in_progress" if live else "completed", None if live else "success")
        if limit:
            job = (job[0], "completed", "cancelled")
        jobs = self.world.state.jobs[planner]
        self.world.state.jobs[planner] = (*jobs, self.world.job(planner, *job))
        made.head = self.world.push(made.branch, f"work {self.count}", by=self.world.bot)
        if draft:
            made.number = self.world.open_pull(made.branch, by=self.world.bot)
            self.world.comment(made.number, "lint: nothing found", by=self.world.reviewer)
        if claim:
            self._record(f"refs/heads/klaud/claim-{candidate}", planner, candidate)
        return made

    def _sessions(self) -> None:
        world = self.world
        for index in range(11):
            made = self.session(limit=True)
            self.abandoned.append(made)
            if index < 9:
                self.orphans.append(self.scene.child_run(memory_scenes.SMOKE, made, "in_progress", "workflow_dispatch"))
        for index in range(32):
            made = self.session(claim=index < 22, limit=index < 3)
            world.close(made.number or 0, by=world.bot)
            self.leftover.append(made)
        going = self.session(live=True)
        world.label(going.number or 0, memory_scenes.FINAL_LABEL, by=world.bot)
        self.scene.child_run(memory_scenes.FINAL, going, "in_progress", "pull_request")
        self.kept.append(going)
        for _ in range(2):
            swept = self.session()
            final = self.scene.child_run(memory_scenes.FINAL, swept, "failure", "pull_request")
            world.rerun(final, by=world.alice)
            world.finish_run(final, "failure")
            self.kept.append(swept)
        for _ in range(2):
            handed = self.session()
            world.label(handed.number or 0, names.HANDOFF_LABEL, by=world.alice)
            self.kept.append(handed)
        for _ in range(3):
            ready = self.session()
            world.ready(ready.number or 0, by=world.bot)
            self.kept.append(ready)
        self.session(live=True)
        self.count += 2

    def _leases(self, scale: int) -> None:
        for index in range(402 * scale):
            planner = self.over[index % len(self.over)]
            self._record(f"refs/heads/klaud/recovery-{planner}-{index}", planner, "")
        for index in range(166 * scale):
            planner = self.live[index % len(self.live)]
            self._record(f"refs/heads/klaud/recovery-{planner}-{index}", planner, "")

    # -- what is there
    def leases(self) -> int:
        """Count the forerunner's leases."""
        return sum(ref.startswith("refs/heads/klaud/recovery-") for ref in self.world.state.refs)

    def claims(self) -> int:
        """Count the forerunner's claims."""
        return sum(ref.startswith("refs/heads/klaud/claim-") for ref in self.world.state.refs)

    def branches(self) -> int:
        """Count klaud's branches."""
        return sum(ref.startswith("refs/heads/klaud/auto-") for ref in self.world.state.refs)

    def drafts_closed(self) -> int:
        """Count the abandoned drafts that are closed."""
        return sum(not self.world.state.pulls[m.number or 0].open for m in self.abandoned)

    def runs_cancelled(self) -> int:
        """Count the orphaned checks that were cancelled."""
        return sum(self.world.state.runs[r].conclusion == "cancelled" for r in self.orphans)
