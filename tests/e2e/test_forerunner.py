"""The forerunner's mess, swept three times by the real command over HTTP and git; counted in the hub's own state.

Nothing here is taken from klaud's reports: the numbers are of the hub's refs, pull requests, runs and log of calls.
Run with ``-s`` to see requests, pushes and writes by endpoint of each sweep.
"""

from __future__ import annotations

import collections
import dataclasses
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from klaud import fakehub
from klaud.fakehub import report, scenes
from klaud.fakehub import scene as scene_files

if TYPE_CHECKING:
    from pathlib import Path

    from klaud.fakehub.hub import Hub

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

REPOSITORY = "acme/bench"
SWEEPS = 3
REQUESTS_OF_NOTHING = 6
"""API requests that a sweep which finds nothing to do may make."""


@dataclasses.dataclass(frozen=True)
class Pull:
    """What may not change of a pull request that is not klaud's to touch."""

    state: str
    draft: bool
    title: str
    body: str
    labels: tuple[str, ...]
    head: str
    comments: int
    events: int


@dataclasses.dataclass(frozen=True)
class Seen:
    """The hub at one moment."""

    refs: dict[str, str]
    pulls: dict[int, Pull]
    runs: dict[int, tuple[str, str, str | None]]

    def leases(self) -> set[str]:
        return {ref for ref in self.refs if ref.startswith("refs/heads/klaud/recovery-")}

    def claims(self) -> set[str]:
        return {ref for ref in self.refs if ref.startswith(("refs/heads/klaud/claim-", "refs/klaud/claims/"))}

    def branches(self) -> set[str]:
        return {ref for ref in self.refs if ref.startswith("refs/heads/klaud/auto-")}

    def drafts(self) -> set[int]:
        return {number for number, pull in self.pulls.items() if pull.draft and pull.state == "open"}

    def going(self) -> set[int]:
        return {number for number, (_, status, _) in self.runs.items() if status != "completed"}


@dataclasses.dataclass(frozen=True)
class Swept:
    """One sweep: its status, what it asked of the hub, and the hub before and after."""

    status: int
    output: str
    seconds: float
    requests: dict[str, Any]
    writes: list[str]
    before: Seen
    after: Seen


def look(hub: Hub) -> Seen:
    """Read the hub itself."""
    with hub.lock:
        repository = hub.repository(REPOSITORY)
        pulls = {
            issue.number: Pull(
                state=issue.state,
                draft=issue.pull.draft,
                title=issue.title,
                body=issue.body or "",
                labels=tuple(issue.labels),
                head=issue.pull.head_oid,
                comments=len(issue.comments),
                events=len(issue.events),
            )
            for issue in repository.issues.values()
            if issue.pull
        }
        runs = {run.id: (run.path.rpartition("/")[2], run.status, run.conclusion) for run in repository.runs.values()}
    return Seen(dict(hub.git(REPOSITORY).refs()), pulls, runs)


def sweep(hub: Hub, environ: dict[str, str], out: Path) -> Swept:
    """Run ``klaud recover`` as a child process in a clone, as the planner's first job does."""
    clone = out / "clone"
    subprocess.run(["git", "clone", "-q", str(hub.repository(REPOSITORY).git_path), str(clone)], check=True)
    before, first, begun = look(hub), len(hub.log), time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "klaud", "recover", "--out", str(out)],
        cwd=clone, env=environ, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    return Swept(
        status=done.returncode,
        output=done.stdout[-3000:] + done.stderr[-3000:],
        seconds=time.monotonic() - begun,
        requests=report.requests(hub, first),
        writes=report.writes(hub, first),
        before=before,
        after=look(hub),
    )


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> list[Swept]:
    """Sweep three times; cancelled runs are looked at every second, so that the test does not wait ten."""
    data = scenes.forerunner_scene(1, others=50)
    data["config"] = {**data["config"], "recovery": {"poll-seconds": 1}}
    scene = scene_files.Scene(data)
    folder = tmp_path_factory.mktemp("forerunner")
    found = []
    with scene_files.build(scene, folder / "hub") as hub, fakehub.serve(hub):
        environ = {key: os.environ[key] for key in ("PATH", "HOME", "LANG") if key in os.environ}
        environ |= scene_files.environment(scene, hub, "recover")
        for number in range(SWEEPS):
            (folder / str(number)).mkdir()
            found.append(sweep(hub, environ, folder / str(number)))
        assert not hub.errors
    for number, one in enumerate(found, 1):
        counts = one.requests
        kinds = collections.Counter(line.split()[1 if line[0].isdigit() else 0] for line in one.writes)
        lines = [f"sweep {number}: {one.seconds:.1f} s, {counts['api']} API requests, {counts['pushes']} pushes"]
        lines += [f"{count:8} {route}" for route, count in counts["by-route"].items()]
        sys.stdout.write("\n".join([*lines, f"    writes: {dict(kinds)}", ""]))
    return found


def test_each_sweep_ends_well(swept: list[Swept]) -> None:
    assert [one.status for one in swept] == [0, 0, 0], [one.output for one in swept]


def test_the_scene_is_the_mess_that_was_counted(swept: list[Swept]) -> None:
    begin = swept[0].before
    assert (len(begin.leases()), len(begin.claims()), len(begin.branches())) == (568, 42, 52)


def test_two_sweeps_settle_all_that_is_gone(swept: list[Swept]) -> None:
    begin, end = swept[0].before, swept[1].after
    assert len(begin.leases() - end.leases()) == 402
    assert len(begin.claims() - end.claims()) == 40
    assert len(begin.branches() - end.branches()) == 43
    assert not end.claims() - begin.claims()
    assert not [ref for ref in end.refs if ref.startswith("refs/klaud/leases/")]


def test_ten_drafts_are_closed_in_the_first_sweep_and_one_in_the_second(swept: list[Swept]) -> None:
    assert [len(one.before.drafts() - one.after.drafts()) for one in swept] == [10, 1, 0]
    closed = swept[0].before.drafts() - swept[2].after.drafts()
    assert closed == set(range(1, 12))
    assert {swept[2].after.pulls[number].state for number in closed} == {"closed"}


def test_nine_runs_are_cancelled_and_no_other_run_is_touched(swept: list[Swept]) -> None:
    begin, end = swept[0].before, swept[1].after
    stopped = begin.going() - end.going()
    assert len(stopped) == 9
    assert {end.runs[number] for number in stopped} == {("bench-smoke.yml", "completed", "cancelled")}
    assert {number for number in begin.runs if begin.runs[number] != end.runs[number]} == stopped


def test_what_people_hold_or_still_goes_is_untouched(swept: list[Swept]) -> None:
    begin, end = swept[0].before, swept[2].after
    kept = sorted(number for number, pull in begin.pulls.items() if pull.state == "open" and number > 11)
    assert len([number for number in kept if number < 1_000_000]) == 2 + 2 + 3 + 1 + 1
    assert len([number for number in kept if number >= 1_000_000]) == 50
    assert {number: end.pulls[number] for number in kept} == {number: begin.pulls[number] for number in kept}
    heads = {pull.head for number, pull in begin.pulls.items() if number in kept}
    assert {ref for ref, oid in begin.refs.items() if oid in heads} <= set(end.refs)


def test_every_deleted_branch_is_in_the_archive(swept: list[Swept]) -> None:
    begin, end = swept[0].before, swept[2].after
    archived = {oid for ref, oid in end.refs.items() if ref.startswith("refs/klaud/archive/branch/")}
    assert {begin.refs[ref] for ref in begin.branches() - end.branches()} == archived


def test_the_third_sweep_writes_nothing_and_asks_little(swept: list[Swept]) -> None:
    third = swept[2]
    assert third.writes == []
    assert third.requests["pushes"] == 0
    assert third.requests["api"] <= REQUESTS_OF_NOTHING, third.requests
    assert third.before == third.after


RIGHTS = 2
"""Requests by which a sweep that will write learns first whether it may: pull requests, and actions."""


def test_a_sweep_costs_what_the_design_allows(swept: list[Swept]) -> None:
    """At most 8 + 4N + 2M requests for N drafts closed and M runs cancelled, and one for each right asked for first."""
    for one in swept[:2]:
        drafts = len(one.before.drafts() - one.after.drafts())
        runs = len(one.before.going() - one.after.going())
        assert one.requests["api"] <= 8 + 4 * drafts + 2 * runs + RIGHTS, (drafts, runs, one.requests)
        assert one.requests["pushes"] <= 4
