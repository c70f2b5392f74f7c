"""Two real planner processes on one served hub, started at the same moment: rounds, and what may never be true of one.

A plan, a review and its evidence are made once; each round runs ``klaud select`` and ``klaud dispatch`` in two processes,
as two planner runs, on the same state of the hub. The judge reads the hub's own log and refs and both selections.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import json
import shutil
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

from tests.support import served

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from klaud.fakehub.hub import LogEntry
    from tests.support.served import World

MEETING_SECONDS = 10.0
"""How long one process waits for the other at the point where they are to meet; then it goes on alone."""

CLAIMS = "refs/klaud/claims/"
STEPS = "{python} -m klaud select --in {out} --out {out} && exec {python} -m klaud dispatch --in {out} --out {out}"


@dataclasses.dataclass(frozen=True)
class Round:
    """What came of one round, as the hub and the two selections tell it."""

    claims: dict[str, int]
    """Claim ref -> how many times it was taken."""
    dispatches: dict[str, int]
    """Candidate -> how many times its run was started."""
    runs: dict[str, int]
    """Candidate -> how many runs of it there are."""
    chosen: tuple[dict[str, str], dict[str, str]]
    """Of each process: candidate -> the claim's commit it started it with."""
    lost: tuple[dict[str, str], dict[str, str]]
    """Of each process: candidate that it did not get -> what it said."""
    standing: dict[str, str]
    """Claim ref -> commit, at the end."""
    statuses: tuple[int, int] = (0, 0)
    output: str = ""


def all_at_once(config: dict[str, Any], url: str) -> dict[str, Any]:
    """Let one wave take every candidate, so that both planners want all of them."""
    del url
    return {**config, "planner": {**config["planner"], "candidates-per-wave": 8}}


def prepare(world: World, made: Path) -> None:
    """Make plan, review and producers' matrices once, with the real verbs."""
    steps: Sequence[tuple[list[str], bool]] = (
        (["preflight", "--out", str(made)], True),
        (["plan", "--in", str(made), "--out", str(made)], False),
        (["review", "--in", str(made), "--out", str(made)], True),
        (["regenerate", "--in", str(made)], False),
    )
    for argv, credential in steps:
        done = world.run(*argv, environ=world.environ() if credential else world.environ(KLAUD_TOKEN=None))
        if done.status:
            raise AssertionError(argv, done.out, done.err)


@contextlib.contextmanager
def restored(world: World) -> Iterator[None]:
    """Put refs and runs back afterwards, so that every round begins on the same hub."""
    git, repository = world.hub.git(served.REPOSITORY), world.hub.repository(served.REPOSITORY)
    before, runs = world.refs(), set(repository.runs)
    yield
    with world.hub.lock:
        now = world.refs()
        git.set_refs({ref: before.get(ref) for ref in {*before, *now} if before.get(ref) != now.get(ref)})
        for number in set(repository.runs) - runs:
            del repository.runs[number]


def play(world: World, made: Path, out: Path, *, meet: str = "", turned: bool = False) -> Round:
    """Run one round in ``out``, which must be new.

    ``meet``: a call (``METHOD glob``) before whose first each process waits for the other. ``turned``: the second process
    looks at the candidates in the opposite order, so that each may win some.
    """
    first = len(world.hub.log)
    if meet:
        _meet(world, meet)
    children: list[subprocess.Popen[str]] = []
    for index, run in enumerate(served.OWN_RUNS):
        place = out / str(index)
        shutil.copytree(made, place)
        _as_planned_by(run, place / "candidates.json", turned=turned and index == 1)
        command = STEPS.format(python=sys.executable, out=place)
        children.append(
            subprocess.Popen(
                ["sh", "-c", command], cwd=world.clone, env=world.environ(run),
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            )
        )  # fmt: skip
    said = [child.communicate(timeout=200)[0] for child in children]
    ended = judged(world, world.hub.log[first:], [out / str(index) for index in range(2)])
    statuses = (children[0].returncode, children[1].returncode)
    return dataclasses.replace(ended, statuses=statuses, output="\n".join(said)[-6000:])


def judged(world: World, log: Sequence[LogEntry], folders: Sequence[Path]) -> Round:
    """Read what came of two planners: from a part of the hub's log, from the hub, and from their selections."""
    selections = [json.loads((folder / "selection.json").read_text()) for folder in folders]
    with world.hub.lock:
        runs = collections.Counter(
            run.inputs["candidate"]
            for run in world.hub.repository(served.REPOSITORY).runs.values()
            if run.path.endswith("klaud-candidate.yml") and run.id > max(served.OWN_RUNS)
        )
    return Round(
        claims=dict(_taken(log)),
        dispatches=dict(_dispatched(log)),
        runs=dict(runs),
        chosen=(_chosen(selections[0]), _chosen(selections[1])),
        lost=(_lost(selections[0]), _lost(selections[1])),
        standing={ref: oid for ref, oid in world.refs().items() if ref.startswith(CLAIMS)},
    )


def faults(one: Round, *, named: Sequence[str] = ("run {other}",)) -> list[str]:
    """Return what must never be true of a round; empty when all is well. ``named``: the ways a loser may name who has it."""
    found = [f"{ref} was taken {count} times" for ref, count in one.claims.items() if count > 1]
    found += [f"{candidate} was dispatched {count} times" for candidate, count in one.dispatches.items() if count > 1]
    found += [f"{candidate} has {count} runs" for candidate, count in one.runs.items() if count > 1]
    both = set(one.chosen[0]) & set(one.chosen[1])
    found += [f"{candidate} was selected by both" for candidate in sorted(both)]
    oids = set(one.standing.values())
    for index, chosen in enumerate(one.chosen):
        found += [
            f"process {index} has {c} on a claim that does not stand" for c, oid in chosen.items() if oid not in oids
        ]
    won = {**one.chosen[0], **one.chosen[1]}
    found += [f"{candidate} was claimed and not started" for candidate in sorted(set(won) - set(one.runs))]
    for index, lost in enumerate(one.lost):
        other = str(served.OWN_RUNS[1 - index])
        found += [
            f"process {index} lost {candidate} and did not say to whom: {said!r}"
            for candidate, said in lost.items()
            if candidate in one.chosen[1 - index] and not any(name.format(other=other) in said for name in named)
        ]
    if one.statuses != (0, 0):
        found.append(f"statuses {one.statuses}: {one.output}")
    return found


def _as_planned_by(run: int, plan: Path, *, turned: bool) -> None:
    made = json.loads(plan.read_text().replace(f"{served.OWN_RUNS[0]}.1", f"{run}.1"))
    if turned:
        made["candidates"].reverse()
    plan.write_text(json.dumps(made))


def _meet(world: World, at: str) -> None:
    """Hold each process before its first such call until both are there."""
    barrier = threading.Barrier(2)

    def wait(entry: LogEntry) -> None:
        del entry
        with contextlib.suppress(threading.BrokenBarrierError):
            barrier.wait(MEETING_SECONDS)

    world.hub.before_call(at, wait, times=2)


def _taken(log: Sequence[LogEntry]) -> collections.Counter[str]:
    return collections.Counter(
        change.ref
        for entry in log
        for change in entry.updates
        if change.ref.startswith(CLAIMS) and change.result == "ok" and change.old is None
    )


def _dispatched(log: Sequence[LogEntry]) -> collections.Counter[str]:
    return collections.Counter(
        entry.body["inputs"]["candidate"]
        for entry in log
        if entry.path.endswith("klaud-candidate.yml/dispatches") and entry.status < 300
    )


def _chosen(selection: dict[str, Any]) -> dict[str, str]:
    return {one["candidate"]: one["claim"] for one in selection["decisions"] if one["selected"]}


def _lost(selection: dict[str, Any]) -> dict[str, str]:
    return {
        one["candidate"]: f"{one['code']}: {one['message']}" for one in selection["decisions"] if not one["selected"]
    }
