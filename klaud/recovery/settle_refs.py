"""The refs of a sweep: one push that takes leases and claims before anything else, one that settles at the end.

A session whose branch goes is one atomic group: archive copy, branch, ledger, claim and lease change together or not at
all. All groups go in one atomic push; where that fails, each goes alone, and the one whose branch moved keeps it. What needs
no such bond (claims, leases, tombstones) goes in a push of its own, each judged alone.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import msgspec

from klaud import names
from klaud.github import gateway as ports
from klaud.leases import model as leases
from klaud.recovery import decide, model

if TYPE_CHECKING:
    from collections.abc import Iterable

    from klaud import clock as clocks
    from klaud.recovery.hand import Hand
    from klaud.recovery.writer import Writer


NOBODY = "0" * 16 + "-" + "0" * 16
"""A candidate that no family and no subject hash to."""
NO_OID = "0" * 39 + "1"
"""An oid that no object has."""


class RefSettler:
    """Writes the refs of one sweep. ``red`` collects refusals that would leak a lock behind a green job."""

    def __init__(
        self,
        *,
        writer: Writer,
        clock: clocks.Clock,
        me: leases.Holder | None,
        ref_names: names.RefNames,
        sight: model.Sight,
    ) -> None:
        """``me``: this pass; outside of Actions (None) it takes no lease, since nothing could ever prove it gone."""
        self._writer = writer
        self._clock = clock
        self._me = me
        self._names = ref_names
        self._sight = sight
        self.red: list[str] = []

    # -- first
    def take(self, hands: Iterable[Hand]) -> None:
        """Take leases and claims and write the intents, in one push; a session that loses any of it is left alone."""
        first = (model.TakeOverLease, model.WriteCard)
        taken = [hand for hand in hands if any(isinstance(action, first) for action in hand.verdict.actions)]
        plans = [(hand, self._taking(hand)) for hand in taken]
        results = self._writer.push([u for _, updates in plans for u in updates])
        for hand, updates in plans:
            for update in updates:
                self._took(hand, update, results[update.ref])

    def _taking(self, hand: Hand) -> list[ports.RefUpdate]:
        now = self._clock.now()
        updates: list[ports.RefUpdate] = []
        for action in hand.actions(model.TakeOverLease):
            if self._me is not None:
                lease = leases.Lease(
                    at=now,
                    wave=action.wave,
                    candidate=action.candidate,
                    holder=msgspec.structs.replace(self._me, nonce=secrets.token_hex(8)),
                )
                hand.lease_ref = action.ref
                updates.append(self._put(action.ref, action.oid, lease))
        claim = hand.case.claim
        if claim is not None and isinstance(claim.record, leases.Claim):
            record = fenced(claim.record, now)
            updates.extend(self._put(taken.ref, taken.oid, record) for taken in hand.actions(model.TakeOverClaim))
        intents = self._intents(hand)
        ledger = hand.case.ledger
        if intents and ledger is not None:
            tip = self._writer.chain(intents, ledger.ref, ledger.oid)
            updates.append(ports.RefUpdate(ledger.ref, ledger.oid, tip))
        return updates

    def _put(self, ref: str, expected: str | None, record: leases.Record) -> ports.RefUpdate:
        return ports.RefUpdate(ref, expected, self._writer.record(record, ref, expected))

    def _intents(self, hand: Hand) -> list[leases.LedgerRecord]:
        found: list[leases.LedgerRecord] = []
        if hand.actions(model.Finish):
            return found

        def intend(effect: leases.Effect, **fields: Any) -> None:
            seq = hand.next_seq()
            hand.seqs[effect, fields.get("run_id")] = seq
            found.append(leases.Intent(at=self._clock.now(), seq=seq, effect=effect, by="recovery", **fields))

        for action in hand.verdict.actions:
            match action:
                case model.CancelRun():
                    intend("cancel-run", run_id=action.run_id)
                case model.CloseDraft():
                    intend("comment", number=action.number)
                    intend("close-draft", number=action.number)
                case model.WriteCard():
                    intend("comment", number=action.number, label=names.HANDOFF_LABEL)
                case model.DeleteRef() if action.archive:
                    intend("archive-branch", ref=action.archive, oids=(action.oid,))
                    intend("delete-branch", ref=action.ref, oids=(action.oid,))
                case _:
                    pass
        return found

    def _took(self, hand: Hand, update: ports.RefUpdate, result: ports.RefResult) -> None:
        match result:
            case ports.RefUpdated():
                if update.ref == hand.lease_ref:
                    hand.lease_oid = update.new
                elif hand.case.claim is not None and update.ref == hand.case.claim.ref:
                    hand.claim_oid = update.new
                else:
                    hand.tip = update.new
            case ports.RefSuperseded(actual=actual):
                hand.stop(f"another has it in hand: {update.ref} is {actual or 'gone'} now")
            case ports.RefRejected(reason=reason):
                hand.stop(f"{update.ref} is refused: {reason}")
                self.red.append(f"{update.ref} is refused: {reason}")
            case ports.RefUnclear():
                hand.stop(f"{update.ref} got no clear answer")

    # -- last
    def settle(self, hands: Iterable[Hand]) -> None:
        """Push everything that is to go: atomic groups for sessions whose branch or ledger goes, the rest each alone."""
        groups: list[tuple[Hand, list[ports.RefUpdate]]] = []
        loose: list[tuple[Hand, ports.RefUpdate]] = []
        for hand in hands:
            updates = self._final(hand)
            if any(u.new is None and self._is_archived(hand, u.ref) for u in updates):
                groups.append((hand, updates))
            else:
                loose.extend((hand, u) for u in updates)
        results = self._writer.push([u for _, u in loose])
        for hand, update in loose:
            self._report(hand, update, results[update.ref])
        self._push_groups(groups)

    def _push_groups(self, groups: list[tuple[Hand, list[ports.RefUpdate]]]) -> None:
        if not groups:
            return
        results = self._writer.push([u for _, updates in groups for u in updates], atomic=True)
        whole = all(isinstance(r, ports.RefUpdated) for r in results.values())
        for hand, updates in groups:
            if not whole and not all(isinstance(results[u.ref], ports.RefUpdated) for u in updates):
                self._push_alone(hand, updates)
            else:
                for update in updates:
                    self._report(hand, update, results[update.ref])

    def _push_alone(self, hand: Hand, updates: list[ports.RefUpdate]) -> None:
        results = self._writer.push(updates, atomic=True)
        branch = results.get(hand.case.branch_ref)
        if isinstance(branch, ports.RefSuperseded) and branch.actual is not None:
            hand.keep(f"{hand.case.branch_ref} moved to {branch.actual[:12]} while it was being settled")
            rest = [u for u in self._final(hand) if u.ref != hand.case.branch_ref]
            results = self._writer.push(rest)
            updates = rest
        for update in updates:
            self._report(hand, update, results[update.ref])

    def _is_archived(self, hand: Hand, ref: str) -> bool:
        return any(a.archive and a.ref == ref for a in hand.actions(model.DeleteRef))

    def _final(self, hand: Hand) -> list[ports.RefUpdate]:
        """Return the updates that end this session's part: nothing destructive where it was stopped or kept."""
        lease = (
            [ports.RefUpdate(hand.lease_ref, hand.lease_oid, None)] if hand.lease_oid and not hand.keep_lease else []
        )
        if hand.stopped:
            return [*self._ledger(hand, ended=False), *lease]
        updates: list[ports.RefUpdate] = []
        for action in hand.verdict.actions:
            match action:
                case model.DeleteRef() if action.archive and not hand.kept:
                    if action.archive not in self._sight.snapshot.refs:
                        updates.append(ports.RefUpdate(action.archive, None, action.oid))
                    updates.append(ports.RefUpdate(action.ref, action.oid, None))
                case model.DeleteRef() if not action.archive:
                    updates.append(ports.RefUpdate(action.ref, action.oid, None))
                case model.ReleaseClaim():
                    mine = hand.case.claim is not None and action.ref == hand.case.claim.ref
                    expected = hand.claim_oid if mine and hand.claim_oid else action.oid
                    if not (hand.settled and mine):
                        updates.append(ports.RefUpdate(action.ref, expected, None))
                case model.WriteTombstone():
                    stone = leases.Tombstone(at=self._clock.now(), candidate=action.candidate, number=action.number)
                    updates.append(self._put(self._names.tombstone(action.candidate), None, stone))
                case _:
                    pass
        gone = {u.ref for u in updates if u.new is None}
        ledger = [u for u in self._ledger(hand, ended=not hand.kept) if u.ref not in gone]
        return [*updates, *ledger, *lease]

    def _ledger(self, hand: Hand, *, ended: bool) -> list[ports.RefUpdate]:
        """Return the update that appends what was done and, where the session is settled, its outcome."""
        outcomes = hand.actions(model.WriteOutcome) if ended else []
        archived = [a for a in hand.actions(model.DeleteRef) if a.archive] if ended else []
        ledger = hand.case.ledger
        if (ledger is None and not outcomes) or not (hand.effects or outcomes):
            return []
        now = self._clock.now()
        records: list[leases.LedgerRecord] = []
        seq = hand.next_seq()
        wave = hand.case.wave or decide.wave_for(hand.case, self._sight)
        ref = ledger.ref if ledger is not None else self._names.session(wave, hand.case.candidate)
        if ledger is None:
            records.append(_started(hand.case, wave, now))
        effects = list(hand.effects)
        for action in archived:
            if action.ref == hand.case.branch_ref:
                effects.append(("archive-branch", "done", {"oid": action.oid}))
                effects.append(("delete-branch", "done", {"oid": action.oid}))
        for effect, result, fields in effects:
            key = (effect, fields.get("run_id"))
            number = hand.seqs.get(key, seq)  # type: ignore[arg-type]
            if number == seq:
                seq += 1
            records.append(leases.Effected(at=now, seq=number, effect=effect, result=result, **fields))  # type: ignore[arg-type]
        records += [_outcome(hand, action, now) for action in outcomes]
        tip = hand.tip or (ledger.oid if ledger is not None else None)
        return [ports.RefUpdate(ref, tip, self._writer.chain(records, ref, tip))]

    def _report(self, hand: Hand, update: ports.RefUpdate, result: ports.RefResult) -> None:
        what = f"{'deleted' if update.new is None else 'wrote'} {update.ref}"
        match result:
            case ports.RefUpdated():
                hand.done.append(what)
            case ports.RefSuperseded(actual=None) if update.new is None:
                hand.done.append(f"{update.ref} was gone already")
            case ports.RefSuperseded(actual=actual):
                hand.left.append(f"{update.ref} moved to {actual} meanwhile")
            case ports.RefRejected(reason=reason):
                hand.left.append(f"{update.ref}: {reason}")
                self.red.append(f"{update.ref} could not be settled: {reason}")
            case ports.RefUnclear():
                hand.left.append(f"{update.ref}: no clear answer")
                self.red.append(f"{update.ref} got no clear answer and could not be read back")

    def restore_branch(self, hand: Hand, oid: str) -> bool:
        """Put a deleted branch back where it stood; True where it stands there now."""
        ref = hand.case.branch_ref
        result = self._writer.push([ports.RefUpdate(ref, None, oid)])[ref]
        there = isinstance(result, ports.RefUpdated) or (
            isinstance(result, ports.RefSuperseded) and result.actual == oid
        )
        (hand.done if there else hand.left).append(f"{'restored' if there else 'could not restore'} {ref}")
        return there

    def remember(self, record: leases.Observed, expected: str | None) -> str:
        """Write the sweeps' memory; return what went wrong, or empty."""
        ref = self._names.observed()
        result = self._writer.push([self._put(ref, expected, record)])[ref]
        return "" if isinstance(result, ports.RefUpdated) else f"{ref} was not written: {type(result).__name__}"


def check_right(refs: ports.RefStore, ref_names: names.RefNames) -> None:
    """Raise ForbiddenError where the token may not push: begin a push of one update that no ref can answer to.

    Over git the host judges the right when the push is begun, and nothing is sent. A store that cannot ask that way shows
    nothing against the right.
    """
    nowhere = ref_names.lease("0.1", NOBODY)
    refs.apply([ports.RefUpdate(nowhere, NO_OID, None)])


def fenced(claim: leases.Claim, now: Any) -> leases.Claim:
    """Return a dead session's claim as recovery rewrites it: a new commit, so that a late session is fenced off.

    It is parked on nothing by its dead holder, so that the next sweep can prove it dead if this one dies too.
    """
    by = claim.holder or (claim.parked.by if claim.parked else leases.Holder(run_id=0, attempt=1))
    by = msgspec.structs.replace(by, nonce=secrets.token_hex(8))
    parked = leases.ParkedHolder(on=claim.parked.on if claim.parked else (), by=by, why="job-limit")
    return msgspec.structs.replace(claim, at=now, holder=None, parked=parked)


def _started(case: model.Case, wave: str, now: Any) -> leases.SessionStarted:
    """Return the first record of a ledger that recovery opens for a session that left none."""
    run = case.forerunner[0].planner_run if case.forerunner else 0
    return leases.SessionStarted(
        at=now,
        wave=wave,
        candidate=case.candidate,
        family=case.family,
        base="",
        holder=leases.Holder(run_id=run, attempt=1),
        framework="unknown",
    )


def _outcome(hand: Hand, action: model.WriteOutcome, now: Any) -> leases.Outcome:
    ledger = hand.case.ledger
    number = hand.closing.number if hand.closing else max((d.pull.number for d in hand.case.pulls), default=None)
    return leases.Outcome(
        at=now,
        outcome=action.outcome,
        phase=action.phase,
        code=action.code,
        number=number,
        head=hand.case.branch or "",
        turns=sum(isinstance(r, leases.TurnEnded) for r in ledger.records) if ledger else 0,
        by="recovery",
    )
