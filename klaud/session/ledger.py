"""The session's own book: its ledger and its claim, appended to and checked, intent before effect.

Fencing. Every append is a compare-and-swap on the ledger's newest commit; a push of work moves branch, ledger and claim in
one atomic push, so that whoever lost either of them cannot move the branch. A swap that is lost raises
``OwnershipLostError``: from then on this book refuses everything, and nothing more is written.
"""

from __future__ import annotations

import secrets
import threading
from typing import TYPE_CHECKING, Any

import msgspec

from klaud import errors
from klaud.github import gateway as ports
from klaud.leases import model as leases
from klaud.leases import store as stores
from klaud.session import rules_ledger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from klaud import clock as clocks


class RejectedError(Exception):
    """The host refused the branch's part of an atomic push; nothing of it was written. ``reason``: its words, cut."""

    def __init__(self, reason: str, *, moved: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.moved = moved


class Book:
    """One session's ledger and claim, held by this process. Safe to use from several threads."""

    def __init__(
        self,
        *,
        store: stores.LeaseStore,
        refs: ports.RefStore,
        clock: clocks.Clock,
        ledger: leases.Ledger,
        claim: leases.Held,
    ) -> None:
        """``ledger`` and ``claim`` as they stand now; ``refs`` is what ``store`` writes to."""
        self._store = store
        self._refs = refs
        self._clock = clock
        self._ledger = ledger
        self._claim = claim
        self._lock = threading.RLock()
        self._lost = ""

    @property
    def ledger(self) -> leases.Ledger:
        """The ledger as this process last saw or wrote it."""
        return self._ledger

    @property
    def claim(self) -> leases.Held:
        """The claim as this process last saw or wrote it."""
        return self._claim

    @property
    def view(self) -> rules_ledger.View:
        """What the ledger says."""
        return rules_ledger.read(self._ledger.records)

    @property
    def lost(self) -> bool:
        """Tell whether ownership was lost."""
        return bool(self._lost)

    def use(self, store: stores.LeaseStore, refs: ports.RefStore) -> None:
        """Go on with another ref store (the one that has the work's objects)."""
        with self._lock:
            self._store, self._refs = store, refs

    # -- checks

    def claim_ours(self) -> bool | None:
        """Read the claim's ref from the host: ours, another's (False), or unreadable (None). Writes nothing."""
        with self._lock:  # a push of ours moves the claim: a look in the middle of one would call it lost
            if self._lost:
                return False
            try:
                now = self._refs.list([self._claim.ref])
            except (errors.RetryLaterError, errors.ForbiddenError):
                return None
            ours = now.get(self._claim.ref) == self._claim.oid
            if not ours:
                self._lost = "the claim is another's"
            return ours

    def must_be_ours(self) -> None:
        """Raise OwnershipLostError where ownership is known to be lost."""
        if self._lost:
            message = f"session {self._ledger.ref}: {self._lost}"
            raise errors.OwnershipLostError(message)

    # -- appends

    def append(self, *records: leases.LedgerRecord) -> None:
        """Append records in one push. OwnershipLostError when the ledger moved."""
        with self._lock:
            self.must_be_ours()
            answer = self._store.append(self._ledger, *records)
            if not isinstance(answer, leases.Ledger):
                self._lost = "another process has written its ledger"
                self.must_be_ours()
            else:
                self._ledger = answer

    def intend(self, effect: leases.Effect, **fields: Any) -> leases.Intent:
        """Write down what is about to be done, before it is done."""
        with self._lock:
            intent = leases.Intent(at=self._clock.now(), seq=self.view.next_seq, effect=effect, **fields)
            self.append(intent)
            return intent

    def effected(self, intent: leases.Intent, result: Any, **fields: Any) -> None:
        """Write down what became of an intent."""
        self.append(
            leases.Effected(at=self._clock.now(), seq=intent.seq, effect=intent.effect, result=result, **fields)
        )

    def push(self, intent: leases.Intent, branch: str, expected: str | None, new: str) -> None:
        """Move the branch, and with it the ledger (the effect) and the claim, all or nothing.

        OwnershipLostError when ledger or claim moved; RejectedError when the branch did or the host refused it;
        UnclearWriteError when it could not be found out.
        """
        with self._lock:
            self.must_be_ours()
            record = leases.Effected(at=self._clock.now(), seq=intent.seq, effect=intent.effect, result="done", oid=new)
            answer = self._store.push_fenced(
                [ports.RefUpdate(branch, expected, new)],
                ledger=self._ledger,
                records=[record],
                claim=self._claim,
                renewed=self._renewed_claim(),
            )
            if isinstance(answer, stores.Fenced):
                self._ledger, self._claim = answer.ledger, answer.claim
                return
            self._judge(answer, branch)

    def _judge(self, results: Sequence[ports.RefResult], branch: str) -> None:
        """Raise what a fenced push that did not go through means.

        git looks at missing objects before its transaction, so that a command may be refused although the push is atomic and
        the others are carried out: what then stands is taken over, so that the refusal can be recorded.
        """
        if isinstance(results[1], ports.RefUpdated) or isinstance(results[2], ports.RefUpdated):
            self._take_over(moved=results)
        if any(isinstance(result, ports.RefUnclear) for result in results):
            message = f"a push of {branch} got no clear answer"
            raise errors.UnclearWriteError(message)
        if any(isinstance(result, ports.RefSuperseded) for result in results[1:]):
            self._lost = "claim or ledger moved during a push"
            self.must_be_ours()
        if isinstance(results[0], ports.RefSuperseded):
            raise RejectedError("the branch moved", moved=True)
        reasons = [result.reason for result in results if isinstance(result, ports.RefRejected)]
        raise RejectedError(reasons[0] if reasons else "the host did not move all refs", moved=False)

    def _take_over(self, moved: Sequence[ports.RefResult]) -> None:
        ledger, claim = self._store.look(moved[1].ref), self._store.look(moved[2].ref)
        if isinstance(ledger, leases.Ledger) and ledger.records[: len(self._ledger.records)] == self._ledger.records:
            self._ledger = ledger
        record = claim.record if isinstance(claim, leases.Held) else None
        mine = self._claim.record
        if isinstance(claim, leases.Held) and isinstance(record, leases.Claim) and isinstance(mine, leases.Claim):
            ours = record.holder and mine.holder and record.holder.run_id == mine.holder.run_id
            if ours and (record.wave, record.candidate) == (mine.wave, mine.candidate):
                self._claim = claim

    def _renewed_claim(self) -> leases.Claim:
        """Return our claim as a record with a commit of its own: that is what makes the push compare it."""
        record = self._claim.record
        if not isinstance(record, leases.Claim) or record.holder is None:
            message = "the claim of a running session has no holder"
            raise errors.BugError(message)
        holder = msgspec.structs.replace(record.holder, nonce=secrets.token_hex(8))
        return msgspec.structs.replace(record, at=self._clock.now(), holder=holder)
