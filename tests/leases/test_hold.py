"""A held record is given back however the block ends, by its owner only, and nothing is hidden."""

from __future__ import annotations

import pytest

from klaud import errors
from klaud.leases import hold, model, store
from tests.support import memory_refs, records
from tests.support.memory_world import Spoil, World


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def leases(world: World) -> store.LeaseStore:
    return store.LeaseStore(
        refs=memory_refs.MemoryRefStore(world), names=records.NAMES, repository="acme/bench", clock=world.clock
    )


def taken(leases: store.LeaseStore) -> model.Held:
    won = leases.take_claim(records.claim())
    assert isinstance(won, store.Won)
    return won.held


def test_it_is_released_when_the_block_ends(leases: store.LeaseStore) -> None:
    with hold.holding(leases, taken(leases)) as box:
        assert box.ended is None
    assert box.ended == store.Released()
    assert leases.look(records.CLAIM) is None


def test_it_is_released_when_the_block_fails_and_the_error_comes_through(leases: store.LeaseStore) -> None:
    with pytest.raises(KeyboardInterrupt), hold.holding(leases, taken(leases)):
        raise KeyboardInterrupt
    assert leases.look(records.CLAIM) is None


def test_what_was_kept_stays(leases: store.LeaseStore) -> None:
    with hold.holding(leases, taken(leases)) as box:
        box.keep()
    assert box.ended is None
    assert leases.look(records.CLAIM) == box.held


def test_a_swap_moves_what_is_released(leases: store.LeaseStore) -> None:
    with hold.holding(leases, taken(leases)) as box:
        box.swap(records.claim(holder=model.Holder(run_id=7001, attempt=1)))
        assert leases.look(records.CLAIM) == box.held
    assert box.ended == store.Released()


def test_what_was_lost_is_told_and_left_alone(leases: store.LeaseStore) -> None:
    held = taken(leases)
    other = leases.swap_claim(held, records.claim(holder=model.Holder(run_id=1, attempt=1)))
    assert isinstance(other, store.Won)
    with pytest.raises(errors.OwnershipLostError), hold.holding(leases, held) as box:
        box.swap(records.claim())
    assert leases.look(records.CLAIM) == other.held
    with hold.holding(leases, held) as box:
        pass
    assert box.ended == store.Lost(other.held)
    assert leases.look(records.CLAIM) == other.held


@pytest.mark.parametrize("spoil", [Spoil.FAIL, Spoil.FORBID, Spoil.REFUSE])
def test_a_release_that_fails_is_recorded_and_not_repeated(
    world: World, leases: store.LeaseStore, spoil: Spoil
) -> None:
    with hold.holding(leases, taken(leases)) as box:
        world.rules.append(lambda call: spoil if call.name == "refs.apply" else None)
    assert isinstance(box.ended, errors.KlaudError)
    box.release()
    assert sum(call.name == "refs.apply" for call in world.calls) == 2


class FreeingStore(store.LeaseStore):
    """The broken twin: it reads the ref and deletes whatever stands there."""

    def release(self, held: model.Held) -> store.Released | store.AlreadyGone | store.Lost:
        now = self.look(held.ref)
        return super().release(now) if isinstance(now, model.Held) else store.AlreadyGone()


def test_the_suite_sees_a_store_that_frees_what_is_anothers(world: World) -> None:
    twin = FreeingStore(
        refs=memory_refs.MemoryRefStore(world), names=records.NAMES, repository="acme/bench", clock=world.clock
    )
    with pytest.raises(AssertionError):
        test_what_was_lost_is_told_and_left_alone(twin)
