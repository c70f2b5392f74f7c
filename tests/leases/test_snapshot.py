"""The snapshot: every ref in its place, and one bad record spoils nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from klaud import errors
from klaud.leases import codec, model, store
from tests.support import memory_refs, records
from tests.support.lease_world import KEY, REPOSITORY, open_store, spoil_next, write
from tests.support.memory_world import Spoil, World

ARCHIVE = records.NAMES.archive("claims", records.F16, "e" * 40)


def good_ref(world: World) -> str:
    return write(
        world,
        records.CLAIM,
        codec.encode(records.claim(), repository=REPOSITORY, ref=records.CLAIM, previous=None, key=None),
    )


def test_a_snapshot_sorts_every_ref_into_its_place(world: World) -> None:
    leases = open_store(world)
    took = leases.take_claim(records.claim())
    lease = leases.take_lease(records.lease())
    family = leases.put(
        records.NAMES.family(records.F16), None, model.FamilyMemory(at=records.AT, family=records.FAMILY)
    )
    stone = model.Tombstone(at=records.AT, candidate=records.CANDIDATE, number=3)
    tomb = leases.put(records.NAMES.tombstone(records.CANDIDATE), None, stone)
    seen = leases.put(records.NAMES.observed(), None, model.Observed(at=records.AT))
    ledger = leases.start_ledger(records.LEDGER, records.started())
    assert all(isinstance(won, store.Won) for won in (took, lease, family, tomb, seen))
    world.state.refs[ARCHIVE] = "e" * 40
    world.state.refs[records.NAMES.branch(records.CANDIDATE)] = world.main
    world.state.refs["refs/klaud/crowns/x"] = world.main
    world.state.refs["refs/heads/klaud/other"] = world.main
    old = write(world, "refs/heads/klaud/claim-aa-bb", b'{"planner_run": 5}', world.main, tree="tree of files")
    older = write(world, "refs/heads/klaud/recovery-5", b"nothing", world.main)
    world.state.refs["refs/tags/v1"] = world.main
    snapshot = open_store(world).snapshot()
    assert snapshot.claims == {records.CLAIM: took.held}  # type: ignore[union-attr]
    assert snapshot.leases == {records.LEASE: lease.held}  # type: ignore[union-attr]
    assert snapshot.families == {records.NAMES.family(records.F16): family.held}  # type: ignore[union-attr]
    assert snapshot.tombstones == {records.NAMES.tombstone(records.CANDIDATE): tomb.held}  # type: ignore[union-attr]
    assert snapshot.observed == seen.held  # type: ignore[union-attr]
    assert snapshot.ledgers == {records.LEDGER: ledger}
    assert snapshot.archives == {ARCHIVE: "e" * 40}
    assert snapshot.branches == {records.NAMES.branch(records.CANDIDATE): world.main}
    assert snapshot.foreign == ("refs/heads/klaud/other", "refs/klaud/crowns/x")
    assert set(snapshot.forerunner) == {
        model.Forerunner("refs/heads/klaud/claim-aa-bb", old, "claim", 5),
        model.Quarantined("refs/heads/klaud/recovery-5", older, "not JSON"),
    }
    assert "refs/tags/v1" not in snapshot.refs
    assert len(snapshot.refs) == 12


def test_a_snapshot_is_one_listing_and_one_fetch(world: World) -> None:
    own = memory_refs.MemoryRefStore(world)
    leases = open_store(world, refs=own)
    leases.take_claim(records.claim())
    leases.start_ledger(records.LEDGER, records.started())
    before = own.fetches
    leases.snapshot()
    assert own.fetches == before + 2
    assert open_store(World()).snapshot().refs == {}


@pytest.mark.parametrize(
    ("text", "word"),
    [(b'{"klaud":1,', "JSON"), (b"x" * 1_000_000, "limit"), (b'{"klaud":1,"kind":"claim","x":1}', "fields"),
     (json.dumps({"klaud": 0}).encode(), "version")],
)  # fmt: skip
def test_a_malformed_record_quarantines_its_ref_and_nothing_else(world: World, text: bytes, word: str) -> None:
    good_ref(world)
    bad = records.NAMES.claim("0" * 16)
    oid = write(world, bad, text)
    claims = open_store(world).snapshot().claims
    assert isinstance(claims[records.CLAIM], model.Held)
    found = claims[bad]
    assert isinstance(found, model.Quarantined)
    assert (found.ref, found.oid) == (bad, oid)
    assert word in found.why


def test_a_tag_a_merge_files_and_another_kind_are_quarantined(world: World) -> None:
    text = codec.encode(records.claim(), repository=REPOSITORY, ref=records.CLAIM, previous=None, key=None)
    whys = {}
    for name, fields in {
        "tag": {"tag": True},
        "files": {"tree": "some tree"},
    }.items():
        write(world, records.CLAIM, text, **fields)  # type: ignore[arg-type]
        whys[name] = open_store(world).snapshot().claims[records.CLAIM]
    write(world, records.CLAIM, text, world.main, world.commit("x", author=world.bot))
    whys["merge"] = open_store(world).snapshot().claims[records.CLAIM]
    write(world, records.LEASE, text)
    whys["another kind"] = open_store(world).snapshot().leases[records.LEASE]
    assert all(isinstance(found, model.Quarantined) and name in found.why for name, found in whys.items()), whys


def test_a_ref_whose_commit_is_gone_is_quarantined(world: World) -> None:
    world.state.refs[records.CLAIM] = "9" * 40
    world.state.refs[records.LEDGER] = "8" * 40
    snapshot = open_store(world).snapshot()
    assert isinstance(snapshot.claims[records.CLAIM], model.Quarantined)
    assert isinstance(snapshot.ledgers[records.LEDGER], model.Quarantined)


def test_with_a_key_unsigned_records_of_every_kind_are_quarantined(world: World) -> None:
    plain = open_store(world)
    plain.take_claim(records.claim())
    plain.take_lease(records.lease())
    plain.start_ledger(records.LEDGER, records.started())
    plain.put(records.NAMES.family(records.F16), None, model.FamilyMemory(at=records.AT, family=records.FAMILY))
    plain.put(records.NAMES.observed(), None, model.Observed(at=records.AT))
    stone = model.Tombstone(at=records.AT, candidate=records.CANDIDATE, number=3)
    plain.put(records.NAMES.tombstone(records.CANDIDATE), None, stone)
    found = open_store(world, KEY).snapshot()
    everything = [*found.claims.values(), *found.leases.values(), *found.ledgers.values(), *found.families.values(),
                  *found.tombstones.values(), found.observed]  # fmt: skip
    assert len(everything) == 6
    assert all(isinstance(one, model.Quarantined) and one.why == "not signed" for one in everything)
    assert isinstance(open_store(world).snapshot().claims[records.CLAIM], model.Held)


class TrustingStore(store.LeaseStore):
    """The broken twin: it reads records without the key."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(**{**fields, "key": None})


def test_the_signature_guard_is_what_keeps_forged_claims_out(world: World) -> None:
    open_store(world).take_claim(records.claim(holder=model.Holder(run_id=1, attempt=1)))

    def believed(kind: type[store.LeaseStore]) -> bool:
        own = memory_refs.MemoryRefStore(world)
        leases = kind(refs=own, names=records.NAMES, repository=REPOSITORY, clock=world.clock, key=KEY)
        return isinstance(leases.snapshot().claims[records.CLAIM], model.Held)

    assert not believed(store.LeaseStore)
    assert believed(TrustingStore)


def test_a_failed_read_is_an_error_never_an_empty_snapshot(world: World) -> None:
    good_ref(world)
    for name in ("refs.list", "refs.read"):
        spoil_next(world, name, Spoil.FAIL)
        with pytest.raises(errors.ReadFailedError):
            open_store(world).snapshot()
