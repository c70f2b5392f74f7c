"""GitHub's oddities that a sweep must survive, by their ids; those about agents, feeds and streams are tested with them."""

from __future__ import annotations

import datetime

import msgspec
import pytest

from klaud import names
from klaud.github import model as github
from klaud.leases import model as leases
from klaud.recovery import model
from tests.support import memory_invariants, memory_scenes
from tests.support.memory_scenes import Scene
from tests.support.memory_standard import STANDARD, Built
from tests.support.memory_world import Call, Spoil


def row(report: model.Report, key: str) -> str:
    """Return the row that decided a session."""
    return next(e.row for e in report.sessions if e.session == key and e.row != "lease")


def entry(report: model.Report, key: str) -> model.Entry:
    """Return a session's entry."""
    return next(e for e in report.sessions if e.session == key and e.row != "lease")


def abandoned(**options: object) -> tuple[Scene, memory_scenes.Made]:
    """Return a scene with one dead session."""
    scene = Scene()
    return scene, scene.session("dead", **options)  # type: ignore[arg-type]


def test_l01_closed_reopened_and_committed_to_between_listing_and_delete() -> None:
    """Re-read right before; a person's commit keeps branch and draft."""
    scene, made = abandoned()
    scene.begin()

    def person() -> None:
        number, world = made.number or 0, scene.world
        world.close(number, by=world.alice)
        world.reopen(number, by=world.alice)
        world.push(made.branch, "a second commit", by=world.alice)

    calls = [c.name for c in STANDARD_CALLS()]
    scene.world.act_before(len(scene.world.calls) + calls.index("refs.apply") + 1, person)
    scene.sweep()
    assert scene.world.state.pulls[made.number or 0].open
    assert f"refs/heads/{made.branch}" in scene.world.state.refs


def STANDARD_CALLS() -> list[Call]:  # noqa: N802 - the calls of the standard scene with one dead session
    """Return the calls of an undisturbed sweep over one dead session."""
    scene, _ = abandoned()
    scene.begin()
    before = len(scene.world.calls)
    scene.sweep()
    return scene.world.calls[before:]


def test_l02_an_earlier_commit_is_a_persons() -> None:
    """All commits count, author and committer."""
    for author, committer in (("alice", "bot"), ("bot", "alice")):
        scene, made = abandoned(ledger=False)
        world = scene.world
        world.push(made.branch, "odd", by=getattr(world, author), committer=getattr(world, committer))
        world.push(made.branch, "newest", by=world.bot)
        assert row(scene.sweep(), made.key) == "6"


def test_l12_a_maintainer_re_runs_the_final_run() -> None:
    """No commit, no label: touched all the same; left alone."""
    built = STANDARD["rerun_by_a_person"][1]()
    report = built.scene.sweep()
    assert built.main is not None
    assert row(report, built.main.key) == "6"
    assert memory_invariants.violations(built) == []


def test_l15_a_longer_branch_name_is_not_ours() -> None:
    """Heads are compared exactly."""
    scene, made = abandoned()
    world = scene.world
    longer = made.branch + "2"
    world.push(longer, "somebody's", by=world.alice)
    number = world.open_pull(longer, by=world.alice)
    scene.sweep()
    assert world.state.pulls[number].open
    assert f"refs/heads/{longer}" in world.state.refs
    assert not world.state.pulls[made.number or 0].open


def test_l17_a_draft_that_the_ledger_does_not_know() -> None:
    """The process died before recording it: derived from GitHub, settled, none opened."""
    scene = Scene()
    made = scene.session("dead", draft=False)
    number = scene.world.open_pull(made.branch, by=scene.world.bot)
    assert row(scene.sweep(), made.key) == "14"
    assert not scene.world.state.pulls[number].open
    assert len(scene.world.state.pulls) == 1


def test_l22_a_write_that_answers_500_and_took_effect() -> None:
    """Read back, never repeated."""
    for name in ("comment", "close_pull", "cancel_run"):
        scene, made = abandoned(smoke="in_progress")
        scene.begin()
        scene.world.rules.append(lambda call, name=name: Spoil.LOSE if call.name == name else None)  # type: ignore[misc]
        scene.sweep()
        assert sum(c.name == name for c in scene.world.calls) == 1
        assert not scene.world.state.pulls[made.number or 0].open
        assert len(scene.world.state.comments[made.number or 0]) == 1


def test_l25_a_run_listing_that_ends_at_1000_rows() -> None:
    """An incomplete listing proves no absence: a claim that only its planner is known for stays; others go on."""
    scene, made = abandoned()
    waiting = scene.session("claimed", branch=False, ledger=False)
    claim = scene.names.claim(names.family_of(waiting.candidate))
    planner = int(waiting.wave.partition(".")[0])
    held = leases.Claim(
        at=scene.world.time,
        wave=waiting.wave,
        candidate=waiting.candidate,
        family=waiting.family,
        base=scene.world.main,
        holder=leases.Holder(run_id=planner, attempt=1, job="select"),
    )
    scene.write(claim, held)
    scene.world.state.runs.pop(waiting.run_id)
    for _ in range(1001):
        scene.world.add_run("other.yml", actor=scene.world.bot, status="completed", conclusion="success")
    report = scene.sweep()
    assert row(report, waiting.key) == "1b"
    assert row(report, made.key) == "14"
    assert claim in scene.world.state.refs


def test_l29_more_commits_than_are_listed() -> None:
    """The counter differs: incomplete: touched."""
    scene, made = abandoned()
    for index in range(300):
        scene.world.push(made.branch, f"commit {index}", by=scene.world.bot)
    report = scene.sweep()
    assert row(report, made.key) == "6"
    assert "could not be read in full" in entry(report, made.key).state


def test_l32_a_batch_that_fails() -> None:
    """The pull requests cannot be read: their sessions are left, the leases and claims of others go on."""
    scene, made = abandoned()
    other = scene.world.add_run(
        memory_scenes.PLANNER, actor=scene.world.alice, status="completed", conclusion="failure"
    )
    held = leases.Holder(run_id=other, attempt=1, job="recover")
    lease = scene.names.lease("77.1", made.candidate)
    scene.write(lease, leases.Lease(at=scene.world.time, wave="77.1", candidate=made.candidate, holder=held))
    scene.world.rules.append(lambda call: Spoil.FAIL if call.name == "pulls_of_heads" else None)
    report = scene.sweep()
    assert row(report, made.key) == "1b"
    assert lease not in scene.world.state.refs
    assert scene.world.state.pulls[made.number or 0].open


def test_l39_a_deleted_account_is_a_person() -> None:
    """Nobody's comment, nobody's commit, nobody's pull request: a person's."""
    scene, made = abandoned()
    scene.world.comment(made.number or 0, "hm", by=None)
    assert row(scene.sweep(), made.key) == "6"
    scene = Scene()
    made = scene.session("dead", draft=False)
    scene.world.open_pull(made.branch, by=None)
    assert row(scene.sweep(), made.key) == "6"


def test_l41_a_forks_look_alike() -> None:
    """A deleted fork's pull request with our branch's name is not ours, and blocks nothing."""
    scene, made = abandoned()
    world = scene.world
    numbers = [world.open_pull(made.branch, by=world.mallory, head_repository=r) for r in (None, "mallory/bench")]
    report = scene.sweep()
    assert row(report, made.key) == "14"
    assert all(world.state.pulls[n].open for n in numbers)
    assert report.blocked == {}


def test_l45_404_is_not_gone() -> None:
    """A run above ours in number that answers 404 may be younger than this replica."""
    scene, made = abandoned()
    scene.begin()
    scene.world.state.runs[OTHER] = msgspec.structs.replace(scene.world.state.runs.pop(made.run_id), id=OTHER)
    made.run_id = OTHER
    holder = leases.Holder(run_id=OTHER, attempt=1)
    scene.ledger(made, leases.Continued(at=scene.world.time, holder=holder, wave=made.wave))
    scene.world.state.runs.pop(OTHER)
    assert row(scene.sweep(), made.key) == "4"


OTHER = 2_000_000


def test_l48_a_pushed_branch_whose_draft_never_came() -> None:
    """Settled: its head is in the ledger."""
    built = STANDARD["branch_without_draft"][1]()
    report = built.scene.sweep()
    assert built.main is not None
    assert row(report, built.main.key) == "17"
    assert f"refs/heads/{built.main.branch}" not in built.scene.world.state.refs


def test_l49_a_ref_that_is_as_wanted_already() -> None:
    """A push whose answer was lost is read back: as wanted is success, moved by another is a race that was lost."""
    scene = Scene()
    made = scene.session("claimed", branch=False, turns=0)
    scene.begin()
    scene.world.rules.append(lambda call: Spoil.LOSE if call.name == "refs.apply" else None)
    report = scene.sweep()
    assert (entry(report, made.key).left, report.red) == ((), ())
    scene = Scene()
    made = scene.session("claimed", branch=False, turns=0)
    scene.begin()
    claim = scene.names.claim(names.family_of(made.candidate))

    def fail(call: Call) -> Spoil | None:
        if call.name != "refs.apply" or scene.world.state.refs.get(claim) != before:
            return None
        scene.put(claim, scene.refs.write_commit(b"{}"))
        return Spoil.FAIL

    before = scene.world.state.refs[claim]
    scene.world.rules.append(fail)
    report = scene.sweep()
    assert any("moved to" in text for text in entry(report, made.key).left)
    assert scene.world.state.refs[claim] != before, "the other's record stands"


@pytest.mark.parametrize("gone", [True, False])
def test_l52_a_delete_is_a_success_only_where_the_ref_is_proven_gone(gone: bool) -> None:
    """Another deletes (or moves) the claim right before our push: gone is success, moved is not, and neither is red."""
    scene = Scene()
    made = scene.session("claimed", branch=False, turns=0, ledger=False)
    scene.begin()
    claim = scene.names.claim(names.family_of(made.candidate))

    def other(call: Call) -> None:
        if call.name == "refs.apply" and claim in {u.ref for u in call.args[0]}:
            scene.world.before.remove(other)
            if gone:
                scene.world.move_ref(claim, None, by=scene.world.alice)
            else:
                scene.put(claim, scene.refs.write_commit(b"{}"))

    scene.world.before.append(other)
    report = scene.sweep()
    assert report.red == ()
    told = entry(report, made.key)
    assert (f"{claim} was gone already" in told.done) is gone
    assert any("moved to" in text for text in told.left) is not gone
    assert (claim in scene.world.state.refs) is not gone


def test_l58_a_run_that_nothing_can_end() -> None:
    """No jobs, cancel 409, force-cancel 409: recorded once, it blocks nothing, and a person is told."""
    scene, made = abandoned(smoke="queued")
    scene.world.state.jobs[made.smoke or 0] = ()
    scene.world.cancel_behaviour[made.smoke or 0] = "zombie"
    report = scene.sweep()
    assert report.zombies == (made.smoke,)
    assert not scene.world.state.pulls[made.number or 0].open
    again = scene.sweep()
    assert (again.totals.writes, again.zombies) == ((), (made.smoke,))


def test_l58_a_session_whose_own_run_is_a_zombie() -> None:
    """Its claim is released and its family no longer blocked; its draft is left, since nothing proves it gone."""
    scene, made = abandoned(status="queued")
    scene.world.state.jobs[made.run_id] = ()
    scene.world.cancel_behaviour[made.run_id] = "zombie"
    scene.begin()
    scene.sweep()
    scene.next_run()
    report = scene.sweep()
    assert report.blocked == {}
    assert scene.names.claim(names.family_of(made.candidate)) not in scene.world.state.refs
    assert scene.world.state.pulls[made.number or 0].open


@pytest.mark.parametrize("behaviour", ["ignored", "force-only"])
def test_l60_a_cancel_that_does_nothing(behaviour: str) -> None:
    """Verified, then forced."""
    scene, made = abandoned(smoke="in_progress")
    scene.world.cancel_behaviour[made.smoke or 0] = behaviour
    report = scene.sweep()
    assert scene.world.state.runs[made.smoke or 0].conclusion == "cancelled"
    assert report.zombies == ()


def test_l60_a_cancel_that_never_does_anything() -> None:
    """Bounded: a zombie in the end."""
    scene, made = abandoned(smoke="in_progress")
    scene.world.cancel_behaviour[made.smoke or 0] = "deaf"
    assert scene.sweep().zombies == (made.smoke,)


@pytest.mark.parametrize("end", ["cancelled", "timed_out", "failure"])
def test_l76_a_session_that_the_job_limit_cut_off(end: str) -> None:
    """Its later steps never ran: no outcome, an open draft, a claim, a running check; one sweep settles all of it."""
    scene = Scene()
    made = scene.session("cut off", conclusion=end, smoke="in_progress")
    report = scene.sweep()
    state = scene.world.state
    assert [e.row for e in report.sessions] == ["14"]
    assert not state.pulls[made.number or 0].open
    assert state.runs[made.smoke or 0].conclusion == "cancelled"
    assert f"refs/heads/{made.branch}" not in state.refs
    assert not any("/claims/" in ref or "/leases/" in ref for ref in state.refs)
    scene.next_run()
    again = scene.sweep()
    assert (again.totals.writes, again.totals.pushes, again.red) == ((), 0, ())


@pytest.mark.parametrize("status", ["requested", "waiting", "pending", "levitating"])
def test_l62_a_status_that_is_not_completed_is_alive(status: str) -> None:
    """Words nobody has heard of included."""
    scene, made = abandoned(status=status, conclusion=None)
    assert row(scene.sweep(), made.key) == "4"


def test_l62_a_run_that_waits_for_approval_is_alive() -> None:
    """Completed with ``action_required``: reported with who must act."""
    scene, made = abandoned(conclusion="action_required")
    report = scene.sweep()
    assert row(report, made.key) == "4"
    assert "approv" in str(entry(report, made.key).decision)


def test_l69_a_dispatched_run_that_is_not_visible_yet() -> None:
    """For a quarter of an hour a run that nobody sees may still come."""
    scene = Scene()
    made = scene.session("claimed", branch=False, ledger=False)
    planner = int(made.wave.partition(".")[0])
    scene.world.state.runs.pop(made.run_id)
    scene.begin()
    scene.world.set_run(planner, updated_at=scene.world.time - datetime.timedelta(seconds=90))
    record = leases.Claim(
        at=scene.world.time,
        wave=made.wave,
        candidate=made.candidate,
        family=made.family,
        base=scene.world.main,
        holder=leases.Holder(run_id=planner, attempt=1),
    )
    scene.write(scene.names.claim(names.family_of(made.candidate)), record)
    assert row(scene.sweep(), made.key) == "4"
    scene.world.advance(1000)
    scene.next_run()
    assert row(scene.sweep(), made.key) == "19"


def test_l84_a_re_run_attempt_frees_nothing_by_itself() -> None:
    """Attempt 2 of a finished run keeps the session alive for as long as it runs, and no longer."""
    scene, made = abandoned()
    scene.world.rerun(made.run_id, by=scene.world.bot)
    assert row(scene.sweep(), made.key) == "4"
    scene.world.finish_run(made.run_id, "neutral")
    scene.next_run()
    assert row(scene.sweep(), made.key) == "14"


def test_l86_a_lease_dated_in_the_future() -> None:
    """No decision rests on a remote clock: the pass is over because its run is."""
    scene, made = abandoned()
    other = scene.world.add_run(
        memory_scenes.PLANNER, actor=scene.world.alice, status="completed", conclusion="failure"
    )
    future = scene.world.time + datetime.timedelta(days=3)
    holder = leases.Holder(run_id=other, attempt=1, job="recover")
    lease = leases.Lease(at=future, wave=made.wave, candidate=made.candidate, holder=holder)
    scene.write(scene.names.lease(made.wave, made.candidate), lease)
    assert row(scene.sweep(), made.key) == "14"


def test_l100_a_foreign_bots_marker_counts_for_nothing() -> None:
    """A comment that looks like klaud's, by anybody else, is no proof that klaud has commented."""
    scene, made = abandoned()
    scene.world.advance(60)
    scene.world.comment(made.number or 0, "<!-- klaud:abandoned -->", by=scene.world.reviewer)
    scene.sweep()
    mine = [c for c in scene.world.state.comments[made.number or 0] if c.author == scene.world.bot]
    assert len(mine) == 1


def test_a_name_that_ends_like_a_bots_is_a_person() -> None:
    """Accounts are known by id and GitHub's own type, never by a name's ending."""
    scene, made = abandoned()
    impostor = github.Account(id=777, login="klaud-bot[bot]")
    scene.world.comment(made.number or 0, "close this", by=impostor)
    assert row(scene.sweep(), made.key) == "6"


def test_a_draft_given_back_is_klauds_again_but_for_commits() -> None:
    """A person took the hand-off label off: touches before that are forgotten, commits of others never."""
    for with_commit, expected in ((False, "14"), (True, "6")):
        scene, made = abandoned()
        world, number = scene.world, made.number or 0
        world.comment(number, "mine", by=world.alice)
        if with_commit:
            world.push(made.branch, "mine", by=world.alice)
        world.advance(60)
        world.label(number, names.HANDOFF_LABEL, by=world.alice)
        world.advance(60)
        world.unlabel(number, names.HANDOFF_LABEL, by=world.alice)
        assert row(scene.sweep(), made.key) == expected


def built_of(name: str) -> Built:
    """Build a standard scene."""
    return STANDARD[name][1]()


def test_rows_9_12_and_13_end() -> None:
    """Waiting is counted, not more than once in ten minutes, and has an end."""
    for name, sweeps, after in (
        ("final_run_unreadable", 4, "9"),
        ("final_run_missing", 2, "14"),
        ("parked_and_over", 2, "14"),
    ):
        built = built_of(name)
        scene, main = built.scene, built.main
        assert main is not None
        for _ in range(sweeps):
            first = scene.sweep()
            assert entry(first, main.key).blocks
            assert scene.sweep().totals.pushes == 0
            scene.world.advance(3600)
            scene.next_run()
        last = scene.sweep()
        assert row(last, main.key) == after
        assert not entry(last, main.key).blocks
        claim = scene.names.claim(names.family_of(main.candidate))
        assert claim not in scene.world.state.refs
        assert scene.world.state.pulls[main.number or 0].open is (name == "final_run_unreadable")


def test_leaks_above_the_limits_for_two_sweeps_are_red() -> None:
    """One sweep above is told, the second is red."""
    scene = Scene(policy=model.Policy(leak_drafts=0, max_closures=0))
    scene.session("dead")
    first = scene.sweep()
    assert first.leaks["drafts"].count == 1
    assert first.red == ()
    scene.world.advance(3600)
    scene.next_run()
    assert any("leak" in reason for reason in scene.sweep().red)
    scene.policy = model.Policy()
    scene.world.advance(3600)
    scene.next_run()
    assert scene.sweep().red == ()


def test_parked_on_settles_only_who_waits_on_that_run() -> None:
    """Any other run's completion ends after the ref listing, with no request."""
    built = built_of("final_run_verifies")
    scene, main = built.scene, built.main
    assert main is not None
    other = scene.session("dead")
    report = scene.sweep(parked_on=12345)
    assert dict(report.totals.requests) == {}
    assert report.sessions == ()
    report = scene.sweep(parked_on=main.final)
    assert [e.session for e in report.sessions] == [main.key]
    assert scene.finisher.settled == [(main.candidate, "validated")]
    assert scene.world.state.pulls[other.number or 0].open


@pytest.mark.parametrize(
    "text",
    [
        b"{",
        b'{"klaud":1,"kind":"claim","at":"2026-01-01T00:00:00Z"}',
        b"x" * 70_000,
        b'{"klaud":1,"kind":"lease"}',
        b"",
    ],
)
def test_a_malformed_record_costs_only_itself(text: bytes) -> None:
    """That ref is named and left, its family blocked; everything else goes on."""
    scene, made = abandoned()
    other = scene.session("other")
    ref = scene.names.claim(names.family_of(other.candidate))
    scene.put(ref, scene.refs.write_commit(text))
    oid = scene.world.state.refs[ref]
    report = scene.sweep()
    assert row(report, made.key) == "14"
    assert row(report, other.key) == "1"
    assert set(report.blocked) == {names.family_of(other.candidate)}
    assert scene.world.state.refs[ref] == oid
    assert scene.world.state.pulls[other.number or 0].open


def test_a_newer_writers_record_is_left_alone() -> None:
    """The next version is not quarantined, and not touched."""
    scene, made = abandoned()
    ref = scene.names.claim(names.family_of(made.candidate))
    scene.put(ref, scene.refs.write_commit(b'{"klaud":2,"kind":"claim","at":"2026-01-01T00:00:00Z","surprise":1}'))
    report = scene.sweep()
    assert "newer" in str(entry(report, made.key).decision)
    assert scene.world.state.pulls[made.number or 0].open
