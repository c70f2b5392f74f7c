"""The sweep's report for people: one line a session, and one for all leases of one run."""

from __future__ import annotations

from klaud.leases import model as leases
from klaud.recovery import summary
from klaud.reports import render
from tests.support.memory_forerunner import PLANNERS, Forerunner
from tests.support.memory_scenes import PLANNER, Scene


def test_leases_of_one_run_are_one_line() -> None:
    """402 of dead runs and 166 of two live ones: a line for each of those runs, and none is left out of the counts."""
    built = Forerunner()
    report = built.scene.sweep()
    (section,) = summary.summary(report).sections
    found, done, left, _ = section.tables
    dead = [row for row in done.rows if row[1] == "lease"]
    live = [row for row in left.rows if row[1] == "lease"]
    assert (len(dead), len(live)) == (PLANNERS, 2)
    assert sum(int(row[0].split()[0]) for row in dead) == 402
    assert sum(int(row[0].split()[0]) for row in live) == 166
    assert sum(int(row[3].removeprefix("deleted ")) for row in dead) == 402
    assert {row[0]: row[2] for row in found.rows}["lease"] == "568"
    assert len(done.rows) + len(left.rows) < 100
    assert "166 leases" not in render.text(summary.summary(report)), "two runs hold 83 each"
    assert sum(entry.row == "lease" for entry in report.sessions) == 568, "recovery.json has each"


def test_a_lease_of_its_own_is_named() -> None:
    """One lease of a dead pass, one of a live one."""
    scene = Scene()
    made = scene.session("alive", status="in_progress")
    over = scene.world.add_run(PLANNER, actor=scene.world.alice, status="completed", conclusion="failure")
    holder = leases.Holder(run_id=over, attempt=1, job="recover")
    lease = leases.Lease(at=scene.world.time, wave=made.wave, candidate=made.candidate, holder=holder)
    scene.write(scene.names.lease(made.wave, made.candidate), lease)
    (section,) = summary.summary(scene.sweep()).sections
    (row,) = [row for row in section.tables[1].rows if row[1] == "lease"]
    assert row[0].startswith(made.key)
    assert row[3].startswith("deleted refs/klaud/leases/")
