"""The in-memory world behaves as its protocols promise (the shared contracts hold it to the embedded server)."""

from __future__ import annotations

import pytest

from klaud import errors
from klaud.github.gateway import Gateway, RefRejected, RefStore, RefSuperseded, RefUnclear, RefUpdate, RefUpdated
from klaud.github.model import Missing, Run
from tests.support import memory_gateway
from tests.support.memory_gateway import Killed, Spoil, World

BRANCH = "klaud/auto-00000000000000aa-00000000000000bb"


def protocols(world: World) -> tuple[Gateway, RefStore]:
    return memory_gateway.gateway(world), memory_gateway.ref_store(world)


def test_compare_and_swap() -> None:
    """Create, update and delete each compare first; a loser is told what stands there."""
    world = World()
    _, refs = protocols(world)
    one, two = refs.write_commit(b"one"), refs.write_commit(b"two")
    ref = "refs/klaud/claims/00000000000000aa"
    assert refs.apply([RefUpdate(ref, None, one)]) == [RefUpdated(ref)]
    assert refs.apply([RefUpdate(ref, None, two)]) == [RefSuperseded(ref, one)]
    assert refs.apply([RefUpdate(ref, two, None)]) == [RefSuperseded(ref, one)]
    assert refs.apply([RefUpdate(ref, one, None)]) == [RefUpdated(ref)]
    assert refs.apply([RefUpdate(ref, one, None)]) == [RefSuperseded(ref, None)]


def test_an_atomic_push_is_all_or_nothing() -> None:
    """One ref that moved keeps the others from being written."""
    world = World()
    _, refs = protocols(world)
    one = refs.write_commit(b"one")
    results = refs.apply([RefUpdate("refs/klaud/a", None, one), RefUpdate("refs/klaud/b", one, None)], atomic=True)
    assert isinstance(results[0], RefRejected)
    assert results[1] == RefSuperseded("refs/klaud/b", None)
    assert refs.list(["refs/klaud/"]) == {}


def test_spoils() -> None:
    """Each way of spoiling a call does what it says."""
    world = World()
    gateway, refs = protocols(world)
    world.push(BRANCH, "work", by=world.bot)
    number = world.open_pull(BRANCH, by=world.bot)
    run = world.add_run("smoke.yml", actor=world.bot)

    def spoil(kind: Spoil) -> None:
        world.rules[:] = [lambda _: kind]

    spoil(Spoil.FAIL)
    with pytest.raises(errors.ReadFailedError):
        gateway.run(run)
    with pytest.raises(errors.UnclearWriteError):
        gateway.close_pull(number)
    assert world.state.pulls[number].open
    spoil(Spoil.LOSE)
    with pytest.raises(errors.UnclearWriteError):
        gateway.close_pull(number)
    assert not world.state.pulls[number].open
    one = refs.write_commit(b"one")
    assert refs.apply([RefUpdate("refs/klaud/a", None, one)]) == [RefUnclear("refs/klaud/a")]
    assert world.state.refs["refs/klaud/a"] == one
    spoil(Spoil.MISSING)
    assert isinstance(gateway.run(run), Missing)
    spoil(Spoil.KILL_AFTER)
    with pytest.raises(Killed):
        gateway.reopen_pull(number)
    assert world.state.pulls[number].open
    world.rules.clear()
    assert isinstance(gateway.run(run), Run)


def test_a_stale_read_shows_the_world_before_the_newest_change() -> None:
    """Stale data is one change old."""
    world = World()
    world.keep_history = True
    gateway, _ = protocols(world)
    run = world.add_run("smoke.yml", actor=world.bot)
    world.finish_run(run)
    world.rules.append(lambda _: Spoil.STALE)
    seen = gateway.run(run)
    assert isinstance(seen, Run)
    assert seen.status == "queued"


def test_deleting_a_branch_closes_its_pull_request_and_reopening_needs_the_closed_head() -> None:
    """GitHub's own rules about heads."""
    world = World()
    gateway, refs = protocols(world)
    oid = world.push(BRANCH, "work", by=world.bot)
    number = world.open_pull(BRANCH, by=world.bot)
    refs.apply([RefUpdate(f"refs/heads/{BRANCH}", oid, None)])
    assert not world.state.pulls[number].open
    with pytest.raises(errors.RefusedWriteError):
        gateway.reopen_pull(number)
    refs.apply([RefUpdate(f"refs/heads/{BRANCH}", None, oid)])
    gateway.reopen_pull(number)
    assert world.state.pulls[number].open


def test_heads_are_compared_exactly_and_forks_are_dropped() -> None:
    """A longer name and a fork's look-alike are not ours."""
    world = World()
    gateway, _ = protocols(world)
    world.push(BRANCH, "work", by=world.bot)
    world.push(BRANCH + "2", "work", by=world.bot)
    number = world.open_pull(BRANCH, by=world.bot)
    world.open_pull(BRANCH + "2", by=world.bot)
    world.open_pull(BRANCH, by=world.mallory, head_repository="mallory/bench")
    world.open_pull(BRANCH, by=world.mallory, head_repository=None)
    assert [d.pull.number for d in gateway.pulls_of_heads([BRANCH])[BRANCH].items] == [number]


def test_a_long_run_listing_says_that_it_is_short() -> None:
    """A filtered listing ends at 1,000 rows (oddity L25)."""
    world = World()
    gateway, _ = protocols(world)
    for _ in range(1001):
        world.add_run("smoke.yml", actor=world.bot)
    listing = gateway.runs(actor="klaud-bot")
    assert len(listing.items) == 1000
    assert not listing.complete
    assert gateway.requests["GET /repos/{owner}/{repo}/actions/runs"] == 10
