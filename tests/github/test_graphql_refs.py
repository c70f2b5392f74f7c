# ruff: noqa: N802 - tests carry the ids of the oddities they show
"""The ref store without the git protocol: races, lost replies, refusals, on fakehub. Its contracts: ``test_contracts``."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING

import pytest

from klaud import errors, fakehub
from klaud.github import graphql_refs, refs, rest, retry
from klaud.github.gateway import RefRejected, RefSuperseded, RefUnclear, RefUpdate, RefUpdated
from klaud.leases import store as stores
from tests.support import loopback, records, ref_store_contract

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

A, B, C = ref_store_contract.A, ref_store_contract.B, ref_store_contract.C
MUTATION = "POST /graphql"


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[fakehub.Hub]:
    clock = fakehub.HubClock(datetime.datetime(2026, 11, 30, 12, tzinfo=datetime.UTC), rate=0)
    with fakehub.Hub(tmp_path, clock=clock) as made:
        made.add_token("made-up", made.add_account("klaud-bot", id=90001, role="write"))
        made.create_repository("acme/bench", files={"README.md": "x"}, author="klaud-bot")
        made.git("acme/bench").write_tree({})
        yield made


@pytest.fixture
def store(hub: fakehub.Hub) -> Iterator[graphql_refs.GraphqlRefStore]:
    ticking = loopback.FakeClock()
    with fakehub.serve(hub) as server:
        gateway = rest.RestGateway(
            repository="acme/bench", token="made-up", api_url=server.url, clock=ticking, policy=retry.Policy(tries=2)
        )
        identity = refs.Identity("klaud", "klaud@example.invalid")
        yield graphql_refs.GraphqlRefStore(hub=gateway, identity=identity, clock=ticking)
        gateway.close()


def mutations(hub: fakehub.Hub) -> int:
    return sum("pdateRefs" in entry.operation for entry in hub.log)


def test_L22_a_lost_reply_is_unclear_and_not_repeated(hub: fakehub.Hub, store: graphql_refs.GraphqlRefStore) -> None:
    oid = store.write_commit(b"1")
    store.apply([RefUpdate(C, None, oid)])
    hub.faults.add(MUTATION, "lost-reply")
    assert list(store.apply([RefUpdate(A, None, oid), RefUpdate(B, None, oid)])) == [RefUnclear(A), RefUnclear(B)]
    assert store.pushes == 2
    assert set(store.list(["refs/klaud/"])) == {A, B, C}


def test_one_ref_that_moves_in_the_gap_stops_no_other(hub: fakehub.Hub, store: graphql_refs.GraphqlRefStore) -> None:
    one, two = store.write_commit(b"1"), store.write_commit(b"2")
    store.apply([RefUpdate(A, None, one), RefUpdate(B, None, one)])
    hub.before_call(MUTATION, lambda _entry: hub.git("acme/bench").set_refs({A: two}))
    answers = store.apply([RefUpdate(A, one, two), RefUpdate(B, one, two), RefUpdate(C, None, two)])
    assert list(answers) == [RefSuperseded(A, two), RefUpdated(B), RefUpdated(C)]


def test_an_atomic_one_moves_nothing_then(hub: fakehub.Hub, store: graphql_refs.GraphqlRefStore) -> None:
    one, two = store.write_commit(b"1"), store.write_commit(b"2")
    store.apply([RefUpdate(A, None, one), RefUpdate(B, None, one)])
    hub.before_call(MUTATION, lambda _entry: hub.git("acme/bench").set_refs({A: two}))
    answers = store.apply([RefUpdate(A, one, two), RefUpdate(B, one, two)], atomic=True)
    assert answers[0] == RefSuperseded(A, two)
    assert isinstance(answers[1], RefRejected)
    assert store.list([B]) == {B: one}


def test_a_refused_ref_is_found_among_the_others(store: graphql_refs.GraphqlRefStore) -> None:
    oid = store.write_commit(b"1")
    answers = store.apply(
        [RefUpdate(A, None, oid), RefUpdate("refs/klaud/claims/a..b", None, oid), RefUpdate(B, None, oid)]
    )
    assert isinstance(answers[1], RefRejected)
    assert (answers[0], answers[2]) == (RefUpdated(A), RefUpdated(B))


def test_a_short_listing_is_an_error_never_fewer_refs(hub: fakehub.Hub, store: graphql_refs.GraphqlRefStore) -> None:
    oid = store.write_commit(b"1")
    store.apply([RefUpdate(A, None, oid), RefUpdate(B, None, oid)])
    hub.faults.add("GET */git/matching-refs/*", "null-items")
    with pytest.raises(errors.ReadFailedError, match="could not be listed whole"):
        store.list(["refs/klaud/"])
    hub.faults.add("GET */git/matching-refs/*", "status", status=502, times=9)
    with pytest.raises(errors.ReadFailedError):
        store.list(["refs/klaud/"])


def test_records_live_on_it_as_on_git(store: graphql_refs.GraphqlRefStore) -> None:
    leases = stores.LeaseStore(
        refs=store, names=records.NAMES, repository="acme/bench", clock=loopback.FakeClock(), key=b"made-up key"
    )
    won = leases.take_claim(records.claim())
    assert isinstance(won, stores.Won)
    assert isinstance(leases.take_claim(records.claim(wave="8000.1")), stores.Lost)
    ledger = leases.start_ledger(records.LEDGER, records.started())
    assert not isinstance(ledger, stores.Lost)
    grown = leases.append(ledger, records.intent(0), records.effected(0))
    store._known.clear()
    snapshot = leases.snapshot()
    assert snapshot.claims == {records.CLAIM: won.held}
    assert snapshot.ledgers == {records.LEDGER: grown}
    assert leases.release(won.held) == stores.Released()
    assert leases.release(won.held) == stores.AlreadyGone()
