"""The forerunner's mess, in its own record format and in the numbers that were counted.

For each factor: 568 leases, 402 of planner runs that are over; 42 claims, 40 of finished runs; 55 sessions, 14 of which
hit the job limit; 43 branches that nobody needs, 11 of them below an abandoned draft; 9 orphaned smoke runs; one draft with
a final run still going, two that a maintainer re-swept, two handed off, three ready; a review bot's comment on each draft.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from klaud.fakehub.scenes import ground

Data = dict[str, Any]

OVER = 24
"""Planner runs that are over, for each factor."""

LIVE = 2
"""Planner runs that are still going, for each factor."""

LEASES_OVER = 402
LEASES_LIVE = 166

FIRST_PLANNER = 18_000_000_001
FIRST_CHILD = 18_500_000_001
OWN_RUN = 18_900_000_001


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class Mess:
    """Builds the mapping of the scene."""

    def __init__(self) -> None:
        """Start from the common ground."""
        self.scene = ground.base()
        self.scene["title"] = "what the forerunner left behind"
        self.scene["self"] = {"run": OWN_RUN, "job": "recover"}
        self.planners: dict[int, Data] = {}
        self.over: list[int] = []
        self.live: list[int] = []
        self.count = 0
        self.children = FIRST_CHILD

    def add_planners(self) -> None:
        """Add the planner runs of one factor."""
        for live in (False,) * OVER + (True,) * LIVE:
            number = FIRST_PLANNER + len(self.planners)
            run: Data = {
                "id": number,
                "workflow": "klaud-plan.yml",
                "event": "schedule",
                "status": "in_progress" if live else "completed",
                "created": "-2h" if live else "-3d",
                "jobs": [],
            }
            self.planners[number] = run
            self.scene["runs"].append(run)
            (self.live if live else self.over).append(number)

    def session(self, kind: str, *, claim: bool = True, live: bool = False, limit: bool = False) -> Data:
        """Add a session with its branch and its draft; ``kind`` says what became of the draft."""
        index = self.count
        self.count += 1
        pool = self.live if live else self.over
        planner = pool[index % len(pool)]
        family = f"configs/gpu.yaml:family-{index}"
        candidate = f"{_short(family)}-{_short('image v2')}"
        branch = f"klaud/auto-{candidate}"
        job: Data = {"name": f"Run candidate {candidate}"}
        if not live:
            job["conclusion"] = "cancelled" if limit else "success"
        self.planners[planner]["jobs"].append(job)
        commit = {
            "name": f"work-{index}", "parent": "base", "author": ground.BOT, "date": "-2d",
            "files": {"configs/gpu.yaml": f"family-{index}:\n  image: two\n"},
        }  # fmt: skip
        self.scene["commits"].append(commit)
        self.scene["branches"][branch] = commit["name"]
        pull: Data = {
            "number": index + 1, "head": branch, "author": ground.BOT, "title": f"Upgrade family-{index}", "draft": True,
            "created": "-2d", "events": [],
            "comments": [{"by": ground.REVIEWER, "body": "lint: nothing found", "at": "-2d"}],
        }  # fmt: skip
        self.scene["pulls"].append(pull)
        self._change(kind, pull, branch)
        if claim:
            self._record(f"refs/heads/klaud/claim-{_short(family)}", planner, candidate)
        return pull

    def _change(self, kind: str, pull: Data, branch: str) -> None:
        match kind:
            case "closed":
                pull |= {"state": "closed", "closed": "-1d", "closed-by": ground.BOT}
                pull["events"].append({"event": "closed", "by": ground.BOT, "at": "-1d"})
            case "going":
                self._label(pull, "full-sweep", ground.BOT)
                self._child(branch, "bench-final.yml", "in_progress", event="pull_request", pulls=[pull["number"]])
            case "re-swept":
                self._label(pull, "full-sweep", ground.BOT)
                self._child(
                    branch, "bench-final.yml", "completed", event="pull_request", pulls=[pull["number"]],
                    attempt=2, conclusion="failure", **{"triggering-actor": ground.MAINTAINER},
                )  # fmt: skip
            case "handed-off":
                self._label(pull, "klaud-handoff", ground.MAINTAINER)
            case "ready":
                pull["draft"] = False
                pull["events"].append({"event": "ready_for_review", "by": ground.BOT, "at": "-1d"})
            case "orphan":
                self._child(branch, "bench-smoke.yml", "in_progress", event="workflow_dispatch")
            case _:
                pass

    def _label(self, pull: Data, name: str, by: str) -> None:
        pull["labels"] = [name]
        pull["events"].append({"event": "labeled", "by": by, "at": "-1d", "label": name})

    def _child(self, branch: str, workflow: str, status: str, **fields: Any) -> None:
        run = {"id": self.children, "workflow": workflow, "branch": branch, "status": status, "actor": ground.BOT}
        self.children += 1
        self.scene["runs"].append({**run, "created": "-1d", **fields})

    def _record(self, ref: str, planner: int, candidate: str) -> None:
        record = {"planner_run": planner, "candidate": candidate, "job": f"Run candidate {candidate}"}
        text = json.dumps({**record, "serial": len(self.scene["refs"])})
        self.scene["refs"].append({"ref": ref, "text": text, "author": ground.BOT, "date": "-2d"})

    def add_sessions(self) -> None:
        """Add the sessions of one factor."""
        for index in range(11):
            self.session("orphan" if index < 9 else "abandoned", limit=True)
        for index in range(32):
            self.session("closed", claim=index < 22, limit=index < 3)
        self.session("going", live=True)  # the forerunner's sessions waited for their final run
        for kind in ("re-swept", "re-swept", "handed-off", "handed-off", "ready", "ready", "ready"):
            self.session(kind)
        self.session("alive", live=True)
        self.count += 3  # three sessions of which nothing is left

    def add_leases(self, factor: int) -> None:
        """Add all leases: recovery passes of planner runs, on candidates of long ago."""
        for pool, number in ((self.over, LEASES_OVER * factor), (self.live, LEASES_LIVE * factor)):
            for index in range(number):
                planner = pool[index % len(pool)]
                candidate = f"{_short(f'lease {index // len(pool)}')}-{_short('image v2')}"
                self._record(f"refs/heads/klaud/recovery-{planner}-{candidate}", planner, candidate)

    def add_others(self, number: int) -> None:
        """Add open pull requests of other people."""
        self.count = max(self.count, len(self.scene["pulls"]) + 1)
        for index in range(number):
            name = f"topic-{index}"
            self.scene["commits"].append(
                {"name": name, "parent": "base", "author": "bob", "date": "-1d", "files": {f"docs/{name}.md": name}}
            )
            self.scene["branches"][name] = name
            self.scene["pulls"].append(
                {"number": 1_000_000 + index, "head": name, "author": "bob", "title": name, "created": "-1d"}
            )


def forerunner_scene(factor: int = 1, *, others: int = 0) -> Data:
    """Return the scene; ``factor`` multiplies klaud's own objects, ``others`` adds other people's pull requests."""
    mess = Mess()
    for _ in range(factor):
        mess.add_planners()
        mess.add_sessions()
    mess.add_leases(factor)
    mess.add_others(others)
    for run in mess.planners.values():
        run["jobs"].append({"name": "recover"})
    return mess.scene
