"""Ledgers: a chain of commits that is read whole or not at all."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from klaud.leases import codec, decide, model, store
from tests.support import records
from tests.support.lease_world import KEY, REPOSITORY, open_store, write

if TYPE_CHECKING:
    from tests.support.memory_world import World


def test_a_ledger_grows_and_is_read_back_whole(world: World) -> None:
    leases = open_store(world, KEY)
    ledger = leases.start_ledger(records.LEDGER, records.started())
    assert isinstance(ledger, model.Ledger)
    grown = leases.append(ledger, records.intent(0), records.effected(0))
    assert isinstance(grown, model.Ledger)
    assert leases.look(records.LEDGER) == grown
    assert open_store(world, KEY).snapshot().ledgers == {records.LEDGER: grown}
    assert leases.append(ledger, records.intent(0)) == store.Lost(None), "it has moved on"
    assert leases.append(grown) is grown
    assert leases.start_ledger(records.LEDGER, records.started()) == store.Lost(None)


@pytest.mark.parametrize("where", [0, 1, 2])
def test_one_bad_link_quarantines_the_whole_ledger(world: World, where: int) -> None:
    at: list[str] = []
    for number in range(3):
        text = b"no record" if number == where else None
        parents = at[-1:]
        record: model.Record = records.started() if number == 0 else records.intent(number)
        text = text or codec.encode(
            record, repository=REPOSITORY, ref=records.LEDGER, previous=parents[0] if parents else None, key=None
        )
        at.append(write(world, records.LEDGER, text, *parents))
    found = open_store(world).snapshot().ledgers[records.LEDGER]
    assert found == model.Quarantined(records.LEDGER, at[-1], "not JSON")


def test_a_ledger_longer_than_the_limit_is_quarantined(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decide, "LEDGER_LIMIT", 5)
    leases = open_store(world)
    ledger = leases.start_ledger(records.LEDGER, records.started())
    assert isinstance(ledger, model.Ledger)
    assert isinstance(leases.append(ledger, *(records.intent(n) for n in range(4))), model.Ledger)
    assert isinstance(leases.look(records.LEDGER), model.Ledger)
    grown = leases.append(ledger, records.intent(9))
    assert grown == store.Lost(None)
    whole = leases.look(records.LEDGER)
    assert isinstance(whole, model.Ledger)
    leases.append(whole, records.intent(4))
    found = leases.look(records.LEDGER)
    assert isinstance(found, model.Quarantined)
    assert "more than 5" in found.why


def test_a_ledger_with_a_link_of_a_later_version_is_newer(world: World) -> None:
    first = write(
        world,
        records.LEDGER,
        codec.encode(records.started(), repository=REPOSITORY, ref=records.LEDGER, previous=None, key=None),
    )
    top = write(world, records.LEDGER, json.dumps({"klaud": 9}).encode(), first)
    assert open_store(world).snapshot().ledgers == {records.LEDGER: model.Newer(records.LEDGER, top, 9)}
