# ruff: noqa: N802 - tests carry the ids of the oddities they show
"""The lease store: every "no" is a value, every unclear answer is read back once, one bad record spoils nothing else."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from klaud import errors, names
from klaud.github import gateway, refs, retry
from klaud.leases import codec, decide, model, store
from tests.support import githttp, loopback, memory_refs, memory_world, records
from tests.support.memory_world import GitObject, Spoil, World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

REPOSITORY = "acme/bench"
KEY = b"made-up key"
ARCHIVE = records.NAMES.archive("claims", records.F16, "e" * 40)


@pytest.fixture
def world() -> World:
    return World()


def open_store(world: World, key: bytes | None = None, refs: gateway.RefStore | None = None) -> store.LeaseStore:
    return store.LeaseStore(
        refs=refs or memory_refs.MemoryRefStore(world),
        names=records.NAMES,
        repository=REPOSITORY,
        clock=world.clock,
        key=key,
    )


def write(
    world: World, ref: str, text: bytes, *parents: str, tree: str = memory_world.EMPTY_TREE, tag: bool = False
) -> str:
    oid = world.add_object(GitObject(text, parents, tree, world.bot, world.bot, tag))
    world.state.refs[ref] = oid
    return oid


def spoil_next(world: World, name: str, spoil: Spoil) -> None:
    left = [spoil]
    world.rules.append(lambda call: left.pop() if left and call.name == name else None)


# -- claims and leases


def test_a_claim_is_taken_swapped_and_released(world: World) -> None:
    leases = open_store(world)
    won = leases.take_claim(records.claim())
    assert isinstance(won, store.Won)
    assert leases.look(records.CLAIM) == won.held
    mine = records.claim(holder=model.Holder(run_id=7001, attempt=1, nonce="m"))
    swapped = leases.swap_claim(won.held, mine)
    assert isinstance(swapped, store.Won)
    assert leases.look(records.CLAIM) == swapped.held
    assert leases.release(won.held) == store.Lost(swapped.held), "what was swapped away is not ours to free"
    assert leases.release(swapped.held) == store.Released()
    assert leases.release(swapped.held) == store.AlreadyGone()
    assert leases.look(records.CLAIM) is None


def test_L51_a_claim_that_stands_is_lost_and_the_holder_is_told(world: World) -> None:
    first = open_store(world).take_claim(records.claim())
    other = open_store(world).take_claim(records.claim(wave="8000.1", holder=model.Holder(run_id=8000, attempt=1)))
    assert isinstance(first, store.Won)
    assert other == store.Lost(first.held)


def test_the_same_claim_a_second_time_is_lost(world: World) -> None:
    leases = open_store(world)
    assert isinstance(leases.take_claim(records.claim()), store.Won)
    assert isinstance(open_store(world).take_claim(records.claim()), store.Lost), (
        "equal commits do not make two holders"
    )


def test_a_swap_of_what_is_gone_is_lost_to_nobody(world: World) -> None:
    leases = open_store(world)
    won = leases.take_claim(records.claim())
    assert isinstance(won, store.Won)
    leases.release(won.held)
    assert leases.swap_claim(won.held, records.claim()) == store.Lost(None)


def test_a_lease_is_taken_once_and_dropped_by_its_owner_only(world: World) -> None:
    leases = open_store(world)
    mine = leases.take_lease(records.lease())
    assert isinstance(mine, store.Won)
    assert leases.take_lease(records.lease(holder=model.Holder(run_id=1, attempt=1))) == store.Lost(mine.held)
    other = model.Held(mine.held.ref, "f" * 40, mine.held.record)
    assert leases.drop_lease(other) == store.Lost(mine.held)
    assert leases.drop_lease(mine.held) == store.Released()


def test_L19_eight_planners_at_once_and_one_claim(tmp_path: Path) -> None:
    with githttp.serve(tmp_path) as host:
        answers: list[Any] = [None] * 8
        gate = threading.Barrier(8)

        def plan(number: int) -> None:
            ticking = loopback.FakeClock()
            own = refs.GitRefStore(
                url=host.url, token="", identity=refs.Identity("k", "k@example.invalid"), clock=ticking
            )
            leases = store.LeaseStore(refs=own, names=records.NAMES, repository=REPOSITORY, clock=ticking)
            holder = model.Holder(run_id=7000 + number, attempt=1, nonce=str(number))
            gate.wait()
            answers[number] = leases.take_claim(records.claim(holder=holder))

        threads = [threading.Thread(target=plan, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    winners = [answer for answer in answers if isinstance(answer, store.Won)]
    assert len(winners) == 1
    assert all(answer == store.Lost(winners[0].held) for answer in answers if answer is not winners[0])


def test_a_record_that_does_not_belong_there_is_never_written(world: World) -> None:
    leases = open_store(world)
    with pytest.raises(errors.BugError):
        leases.put(records.NAMES.claim("0" * 16), None, records.claim())
    with pytest.raises(errors.BugError):
        leases.start_ledger(records.NAMES.session("1.1", records.CANDIDATE), records.started())
    assert records.CLAIM not in world.state.refs


# -- ledgers


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


# -- unclear answers


def test_L22_a_lost_reply_is_read_back_and_found_done(world: World) -> None:
    leases = open_store(world)
    spoil_next(world, "refs.apply", Spoil.LOSE)
    won = leases.take_claim(records.claim())
    assert isinstance(won, store.Won)
    assert sum(call.name == "refs.apply" for call in world.calls) == 1, "it was not repeated"
    spoil_next(world, "refs.apply", Spoil.LOSE)
    assert leases.release(won.held) == store.Released()


def test_L22_an_answer_that_stays_unclear_is_an_error_and_not_repeated(world: World) -> None:
    leases = open_store(world)
    won = leases.take_claim(records.claim())
    assert isinstance(won, store.Won)
    for spoil in (Spoil.FAIL, Spoil.LOSE):
        spoil_next(world, "refs.apply", Spoil.FAIL)
        if spoil is Spoil.LOSE:
            spoil_next(world, "refs.list", Spoil.FAIL)
        before = sum(call.name == "refs.apply" for call in world.calls)
        with pytest.raises(errors.UnclearWriteError):
            leases.release(won.held)
        assert sum(call.name == "refs.apply" for call in world.calls) == before + 1


def test_an_unclear_swap_that_another_won_is_lost(world: World) -> None:
    leases = open_store(world)
    won = leases.take_claim(records.claim())
    assert isinstance(won, store.Won)
    other = records.claim(holder=model.Holder(run_id=9, attempt=1))

    def race(call: memory_world.Call) -> None:
        if call.name == "refs.list":
            world.before.clear()
            text = codec.encode(other, repository=REPOSITORY, ref=records.CLAIM, previous=won.held.oid, key=None)
            write(world, records.CLAIM, text)

    spoil_next(world, "refs.apply", Spoil.FAIL)
    world.before.append(race)
    answer = leases.swap_claim(won.held, records.claim(wave="7000.2"))
    assert isinstance(answer, store.Lost)
    assert isinstance(answer.held_by, model.Held)
    assert answer.held_by.record == other


def test_a_refused_ref_is_an_error_with_the_hosts_words(world: World) -> None:
    spoil_next(world, "refs.apply", Spoil.REFUSE)
    with pytest.raises(errors.RefusedWriteError, match="refused by a rule"):
        open_store(world).take_claim(records.claim())


def test_L77_a_forbidden_push_is_forbidden(world: World) -> None:
    leases = open_store(world)
    won = leases.take_claim(records.claim())
    assert isinstance(won, store.Won)
    world.denied.add("contents:write")
    with pytest.raises(errors.ForbiddenError):
        leases.release(won.held)


def test_a_winner_that_cannot_be_read_is_still_a_loss(world: World) -> None:
    assert isinstance(open_store(world).take_claim(records.claim()), store.Won)
    spoil_next(world, "refs.read", Spoil.FAIL)
    answer = open_store(world).take_claim(records.claim(wave="8000.1"))
    assert isinstance(answer, store.Lost)
    assert isinstance(answer.held_by, model.Quarantined)


# -- several refs at once


def fenced_push(world: World, leases: store.LeaseStore) -> tuple[Callable[..., Any], model.Ledger, model.Held]:
    ledger = leases.start_ledger(records.LEDGER, records.started())
    won = leases.take_claim(records.claim())
    assert isinstance(ledger, model.Ledger)
    assert isinstance(won, store.Won)
    branch = records.NAMES.branch(records.CANDIDATE)
    work = world.commit("work", author=world.bot)

    def push(**changes: Any) -> Any:
        fields: dict[str, Any] = {
            "ledger": ledger,
            "records": [records.effected(0, oid=work)],
            "claim": won.held,
            "renewed": records.claim(holder=msgspec.structs.replace(records.ME, nonce="n2")),
            **changes,
        }
        return leases.push_fenced([gateway.RefUpdate(branch, None, work)], **fields)

    return push, ledger, won.held


def test_a_fenced_push_moves_branch_ledger_and_claim_together(world: World) -> None:
    leases = open_store(world)
    push, _, _ = fenced_push(world, leases)
    answer = push()
    assert isinstance(answer, store.Fenced)
    snapshot = leases.snapshot()
    assert snapshot.ledgers == {records.LEDGER: answer.ledger}
    assert snapshot.claims == {records.CLAIM: answer.claim}
    assert list(snapshot.branches) == [records.NAMES.branch(records.CANDIDATE)]


@pytest.mark.parametrize("lost", ["claim", "ledger"])
def test_a_session_that_lost_claim_or_ledger_cannot_move_its_branch(world: World, lost: str) -> None:
    leases = open_store(world)
    push, ledger, held = fenced_push(world, leases)
    if lost == "claim":
        leases.release(held)
    else:
        leases.append(ledger, records.intent(0, by="recovery"))
    answer = push()
    assert not isinstance(answer, store.Fenced)
    assert isinstance(answer[2 if lost == "claim" else 1], gateway.RefSuperseded)
    assert not open_store(world).snapshot().branches


def test_a_fenced_push_whose_reply_is_lost_is_found_done(world: World) -> None:
    leases = open_store(world)
    push, _, _ = fenced_push(world, leases)
    spoil_next(world, "refs.apply", Spoil.LOSE)
    assert isinstance(push(), store.Fenced)


def test_apply_reads_back_only_what_is_unclear_and_keeps_what_stays_so(world: World) -> None:
    leases = open_store(world)
    update = leases.prepare(records.CLAIM, None, records.claim())
    spoil_next(world, "refs.apply", Spoil.FAIL)
    assert list(leases.apply([update])) == [gateway.RefUnclear(records.CLAIM)]
    spoil_next(world, "refs.apply", Spoil.FAIL)
    spoil_next(world, "refs.list", Spoil.FORBID)
    assert list(leases.apply([update])) == [gateway.RefUnclear(records.CLAIM)]
    assert list(leases.apply([update])) == [gateway.RefUpdated(records.CLAIM)]


# -- the snapshot


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


@pytest.fixture
def host(tmp_path: Path) -> Iterator[githttp.GitHost]:
    with githttp.serve(tmp_path) as served:
        yield served


def test_a_whole_life_over_real_git(host: githttp.GitHost) -> None:
    ticking = loopback.FakeClock()

    def leases() -> store.LeaseStore:
        own = refs.GitRefStore(
            url=host.url,
            token="",
            identity=refs.Identity("k", "k@example.invalid"),
            clock=ticking,
            policy=retry.Policy(tries=1),
        )
        return store.LeaseStore(
            refs=own, names=names.RefNames("refs/other"), repository=REPOSITORY, clock=ticking, key=KEY
        )

    one = leases()
    won = one.take_claim(records.claim())
    assert isinstance(won, store.Won)
    ledger = one.start_ledger(names.RefNames("refs/other").session(records.WAVE, records.CANDIDATE), records.started())
    assert isinstance(ledger, model.Ledger)
    grown = one.append(ledger, *(records.intent(number) for number in range(40)))
    assert isinstance(grown, model.Ledger)
    host.set("refs/heads/klaud/claim-x", host.commit('{"planner_run": 9}', tree=host.git("mktree", text="")))
    snapshot = leases().snapshot()
    assert snapshot.claims == {won.held.ref: won.held}
    assert snapshot.ledgers == {grown.ref: grown}
    assert [old.ref for old in snapshot.forerunner] == ["refs/heads/klaud/claim-x"]
    assert leases().release(won.held) == store.Released()
