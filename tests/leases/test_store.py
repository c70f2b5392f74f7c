# ruff: noqa: N802 - tests carry the ids of the oddities they show
"""The lease store's writes: every "no" is a value, every unclear answer is read back once and never repeated."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from klaud import errors, names
from klaud.github import gateway, refs, retry
from klaud.leases import codec, model, store
from tests.support import githttp, loopback, memory_world, records
from tests.support.lease_world import KEY, REPOSITORY, open_store, spoil_next, write
from tests.support.memory_world import Spoil, World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


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
    assert leases.release(other) == store.Lost(mine.held)
    assert leases.release(mine.held) == store.Released()


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


# -- over git


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
