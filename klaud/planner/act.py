"""What a wave writes: claims, what it remembers of families, and dispatches; one at a time, each guarded and read back.

A claim is a compare-and-swap: exactly one planner gets a family, the other is told and goes on to its next candidate. A
dispatch is sent once. An unclear answer is settled by looking for the run by the marker in its name, never by sending it
again; a clear no releases the claim and says why. Whatever happens to one candidate, the others are tried.

What may be left behind when the process dies between two writes (a claim without a run) is recovery's to settle.
"""

from __future__ import annotations

import dataclasses
import datetime
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from klaud import errors, names
from klaud.github import gateway as gateways
from klaud.leases import model as leases
from klaud.leases import store as stores
from klaud.planner import decide, model, observe

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from klaud import clock as clocks
    from klaud.github import model as github
    from klaud.planner import settings

_Result: TypeAlias = Literal["dispatched", "unseen", "already", "refused", "unclear", "claim-lost"]

SKEW_SECONDS = 3600
"""How far GitHub's clock and ours may differ when runs are listed by their time; markers decide, not times."""

POLL_SECONDS = 5.0
"""Seconds between two looks for a run that was dispatched and is not visible yet."""


@dataclasses.dataclass(frozen=True, slots=True)
class World:
    """What a wave acts on and as whom. ``me``: this planner run as the holder of claims."""

    gateway: gateways.Gateway
    store: stores.LeaseStore
    clock: clocks.Clock
    names: names.RefNames
    repository: str
    me: leases.Holder
    policy: settings.Policy
    bot: int
    candidate_workflow: str


class Claimed(msgspec.Struct, frozen=True):
    """The claim is this run's; ``held`` says at which oid."""

    held: leases.Held


class NotClaimed(msgspec.Struct, frozen=True):
    """Another has it, or it is not known: why, in the selection's words. ``forbidden``: nobody may claim with this token."""

    stopped: decide.Stopped
    forbidden: bool = False


def claim(world: World, plan: model.Plan, candidate: model.Candidate) -> Claimed | NotClaimed:
    """Try once to take the claim of a candidate's family."""
    record = leases.Claim(
        at=world.clock.now(),
        wave=plan.wave,
        candidate=candidate.candidate,
        family=candidate.family,
        base=plan.base,
        holder=msgspec.structs.replace(world.me, nonce=f"{world.me.nonce}-{candidate.candidate}"),
    )
    try:
        won = world.store.take_claim(record)
    except errors.ForbiddenError as error:
        return NotClaimed(_no_claim("claim-forbidden", decide.words_of(error), error.advice), forbidden=True)
    except errors.KlaudError as error:
        return NotClaimed(_no_claim("claim-unclear", decide.words_of(error), "the next recovery settles it"))
    if isinstance(won, stores.Won):
        return Claimed(won.held)
    other = observe.holder_of(won.held_by) or "a record that this klaud cannot read"
    return NotClaimed(_no_claim("claim-lost", f"{other} claimed its family first", "that session ends"))


def _no_claim(code: str, message: str, unblock: str) -> decide.Stopped:
    return decide.Stopped(gate="claim", code=code, message=message, unblock=unblock)


# -- dispatch -----------------------------------------------------------------------------------------------------------


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """One candidate run to ask for. ``known_runs``: runs of this session that are not the one asked for."""

    wave: str
    candidate: str
    family: str
    claim: str
    kind: Literal["start", "continue"]
    known_runs: frozenset[int] = frozenset()


def dispatch(world: World, orders: Sequence[Order], *, branch: str) -> tuple[model.Dispatch, ...]:
    """Ask for each candidate run once, at least the policy's interval apart; return what became of each, in order.

    ``branch``: the default branch, on which the candidate workflow runs. A right that is lacking stops all that follow:
    their claims are released too.
    """
    if not orders:
        return ()
    since = world.clock.now()
    before = _runs(world, since)
    snapshot = world.store.snapshot()
    claims = {ref.rpartition("/")[2]: held for ref, held in snapshot.claims.items()}
    results: list[model.Dispatch] = []
    last: float | None = None
    forbidden = ""
    for order in orders:
        held = claims.get(names.short_id(order.family))
        if not isinstance(held, leases.Held) or held.oid != order.claim:
            results.append(_done(order, "claim-lost", message="its claim is not the one that was decided on"))
            continue
        run_id = _seen(before, order)
        if run_id is not None:
            results.append(_done(order, "already", run_id=run_id))
            continue
        if forbidden:
            results.append(_refused(world, order, held, forbidden))
            continue
        if last is not None:
            world.clock.sleep(last + world.policy.dispatch_interval_seconds - world.clock.monotonic())
        last = world.clock.monotonic()
        result = _send(world, order, held, branch)
        if isinstance(result, errors.ForbiddenError):
            forbidden = decide.words_of(result)
            results.append(_refused(world, order, held, forbidden))
        else:
            results.append(result)
    return _look(world, orders, results, since)


def _send(world: World, order: Order, held: leases.Held, branch: str) -> model.Dispatch | errors.ForbiddenError:
    inputs = {"wave": order.wave, "candidate": order.candidate, "claim": order.claim}
    try:
        answer = world.gateway.dispatch(world.candidate_workflow, branch, inputs)
    except errors.ForbiddenError as error:
        return error
    except errors.RefusedWriteError as error:
        return _refused(world, order, held, decide.words_of(error))
    except errors.KlaudError as error:
        return _done(order, "unclear", message=decide.words_of(error))
    return _done(order, "dispatched" if answer.run_id is not None else "unseen", run_id=answer.run_id)


def _refused(world: World, order: Order, held: leases.Held, why: str) -> model.Dispatch:
    """Release the claim of a run that was not started; a parked session's claim stays: recovery goes on with it."""
    if order.kind == "continue":
        return _done(order, "refused", message=why)
    try:
        world.store.release(held)
    except errors.KlaudError as error:
        why = f"{why}; its claim could not be released ({decide.words_of(error)})"
    return _done(order, "refused", message=why)


def _done(order: Order, result: _Result, *, run_id: int | None = None, message: str = "") -> model.Dispatch:
    return model.Dispatch(
        wave=order.wave,
        candidate=order.candidate,
        kind=order.kind,
        result=result,
        run_id=run_id,
        message=message[: model.MESSAGE_CHARACTERS],
    )


def _look(
    world: World, orders: Sequence[Order], results: Sequence[model.Dispatch], since: datetime.datetime
) -> tuple[model.Dispatch, ...]:
    """Look for the runs of dispatches that told no id, or did not answer, for as long as the policy says."""
    found = list(results)
    until = world.clock.monotonic() + world.policy.dispatch_visible_seconds
    while any(one.result in {"unseen", "unclear"} for one in found):
        runs = _runs(world, since)
        for index, (order, one) in enumerate(zip(orders, found, strict=True)):
            run_id = _seen(runs, order) if one.result in {"unseen", "unclear"} else None
            if run_id is not None:
                found[index] = msgspec.structs.replace(one, result="dispatched", run_id=run_id, message="")
        left = until - world.clock.monotonic()
        if left <= 0:
            break
        world.clock.sleep(min(POLL_SECONDS, left))
    return tuple(found)


def _runs(world: World, since: datetime.datetime) -> tuple[github.Run, ...]:
    """Return the newest candidate runs. What cannot be listed is not seen, which is said of each run that was not seen."""
    created = f">={observe.time_text(since - datetime.timedelta(seconds=SKEW_SECONDS))}"
    try:
        return world.gateway.runs(workflow=world.candidate_workflow, event="workflow_dispatch", created=created).items
    except errors.ReadFailedError:
        return ()


def _seen(runs: Sequence[github.Run], order: Order) -> int | None:
    """Return the newest run that carries the order's marker and is not one of the session's earlier ones.

    An earlier continuation that ended without taking the claim up is none: a parked session may be continued again.
    """
    marker = names.run_marker(order.wave, order.candidate)
    fitting = [
        one.id
        for one in runs
        if marker in one.display_title
        and one.id not in order.known_runs
        and (order.kind == "start" or one.status != "completed")
    ]
    return max(fitting, default=None)


def starts(selection: model.Selection) -> tuple[Order, ...]:
    """Return the orders of a selection's selected candidates that have not been dispatched yet."""
    done = {(one.wave, one.candidate) for one in selection.dispatches}
    return tuple(
        Order(wave=selection.wave, candidate=one.candidate, family=one.family, claim=one.claim, kind="start")
        for one in selection.decisions
        if one.selected and one.claim and (selection.wave, one.candidate) not in done
    )


def continuations(parked: Sequence[tuple[str, str]], snapshot: leases.Snapshot) -> tuple[Order, ...]:
    """Return the orders of parked sessions (wave, candidate) that recovery lets go on, whose claims still are parked."""
    orders = []
    for wave, candidate in parked:
        held = next(
            (one for ref, one in snapshot.claims.items() if ref.rpartition("/")[2] == names.family_of(candidate)), None
        )
        if not isinstance(held, leases.Held) or not isinstance(held.record, leases.Claim):
            continue
        record = held.record
        if record.parked is None or record.wave != wave or record.candidate != candidate:
            continue
        ledger = next(
            (one for ref, one in snapshot.ledgers.items() if ref.rpartition("/")[2] == f"{wave}-{candidate}"), None
        )
        orders.append(
            Order(
                wave=wave,
                candidate=candidate,
                family=record.family,
                claim=held.oid,
                kind="continue",
                known_runs=_known_runs(ledger, record.parked),
            )
        )
    return tuple(orders)


def _known_runs(ledger: object, parked: leases.ParkedHolder) -> frozenset[int]:
    known = {parked.by.run_id}
    for record in ledger.records if isinstance(ledger, leases.Ledger) else ():
        if isinstance(record, leases.SessionStarted | leases.Continued):
            known.add(record.holder.run_id)
    return frozenset(known)


# -- memory -------------------------------------------------------------------------------------------------------------


def remember(
    world: World, snapshot: leases.Snapshot, excluded: Mapping[str, int], tried: Sequence[str]
) -> tuple[str, ...]:
    """Write what later waves must know of families, in one push: exclusions in a row, and when one was last tried.

    ``excluded``: family -> exclusions in a row; ``tried``: families whose claim was won. Only what changes is written; a
    record that cannot be read, or that somebody else moves meanwhile, is left alone. Returns the refs that did not move.
    """
    known = {ref.rpartition("/")[2]: held for ref, held in snapshot.families.items()}
    now = world.clock.now()
    updates = []
    for family in sorted({*excluded, *tried}):
        held = known.get(names.short_id(family))
        if isinstance(held, leases.Quarantined | leases.Newer):
            continue
        old = held.record if held is not None and isinstance(held.record, leases.FamilyMemory) else None
        new = _memory(old, family, excluded.get(family), now if family in tried else None, now)
        if new is not None:
            ref = world.names.family(names.short_id(family))
            updates.append(world.store.prepare(ref, held.oid if held is not None else None, new))
    if not updates:
        return ()
    try:
        results = world.store.apply(updates)
    except errors.KlaudError:
        return tuple(one.ref for one in updates)
    return tuple(one.ref for one in results if not isinstance(one, gateways.RefUpdated))


def _memory(
    old: leases.FamilyMemory | None,
    family: str,
    excluded: int | None,
    tried: datetime.datetime | None,
    now: datetime.datetime,
) -> leases.FamilyMemory | None:
    """Return the record to write, None where nothing changes."""
    before = old or leases.FamilyMemory(at=now, family=family)
    after = msgspec.structs.replace(
        before,
        at=now,
        excluded_in_a_row=before.excluded_in_a_row if excluded is None else excluded,
        last_tried_at=tried or before.last_tried_at,
    )
    return None if msgspec.structs.replace(after, at=before.at) == before else after
