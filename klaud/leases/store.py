"""Claims, leases, ledgers and memory on top of a ref store: every write says what it was decided on.

Promises: a snapshot is one listing and one fetch (one more where the forerunner's refs exist); a write is one push; an
expected "no" is a value (``Lost``, ``AlreadyGone``); an unclear answer is read back here, once, and never repeated.
A record that cannot be trusted is ``Quarantined`` by itself and changes nothing else.

Raised: ``ReadFailedError`` and ``ForbiddenError`` as the ref store raises them; ``RefusedWriteError`` where the host refused
the ref; ``UnclearWriteError`` where neither the write's answer nor the read-back told whether it happened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from klaud import errors, names
from klaud.github import gateway
from klaud.leases import codec, decide, model

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from klaud import clock as clocks

Found: TypeAlias = "model.Held | model.Quarantined | model.Newer"


class Won(msgspec.Struct, frozen=True):
    """The record stands, and it is ours."""

    held: model.Held


class Lost(msgspec.Struct, frozen=True):
    """Another's record stands there (or nothing, ``held_by`` None, where ours was expected); nothing was written."""

    held_by: model.Held | model.Quarantined | model.Newer | None


class Released(msgspec.Struct, frozen=True):
    """The ref is gone, by this call."""


class AlreadyGone(msgspec.Struct, frozen=True):
    """The ref was gone before this call: a fresh listing said so."""


class Fenced(msgspec.Struct, frozen=True):
    """All refs of a fenced push moved together."""

    ledger: model.Ledger
    claim: model.Held


class LeaseStore:
    """Records of one repository, behind any ``RefStore``."""

    def __init__(
        self,
        *,
        refs: gateway.RefStore,
        names: names.RefNames,
        repository: str,
        clock: clocks.Clock,
        key: bytes | None = None,
    ) -> None:
        """``key``: the record key; with one, only records signed with it are believed."""
        self._refs = refs
        self._names = names
        self._repository = repository
        self._clock = clock
        self._key = key

    # -- reads
    def snapshot(self) -> model.Snapshot:
        """Read all of klaud's refs with their records."""
        refs = dict(self._refs.list(self._names.listed_prefixes()))
        kinds = {ref: self._names.parse(ref) for ref in refs}
        own = {ref for ref, kind in kinds.items() if isinstance(kind, _RECORDED)}
        before = {ref for ref, kind in kinds.items() if isinstance(kind, _FORERUNNERS)}
        commits = dict(self._refs.read(sorted({refs[ref] for ref in own}), depth=decide.LEDGER_LIMIT)) if own else {}
        if before:
            commits |= self._refs.read(sorted({refs[ref] for ref in before}))
        found = {ref: self._decode(ref, refs[ref], kinds[ref], commits) for ref in sorted(own | before)}

        def held(*kind: type[names.KlaudRef]) -> dict[str, Found]:
            return {r: x for r, x in found.items() if isinstance(kinds[r], kind) and not isinstance(x, _NOT_HELD)}

        observed = held(names.ObservedRef)
        return model.Snapshot(
            refs=refs,
            claims=held(names.ClaimRef),
            ledgers={
                r: x
                for r, x in found.items()
                if isinstance(kinds[r], names.SessionRef) and not isinstance(x, _NOT_LEDGER)
            },
            leases=held(names.LeaseRef),
            families=held(names.FamilyRef),
            tombstones=held(names.TombstoneRef),
            observed=next(iter(observed.values()), None),
            branches={ref: oid for ref, oid in refs.items() if isinstance(kinds[ref], names.BranchRef)},
            archives={ref: oid for ref, oid in refs.items() if isinstance(kinds[ref], names.ArchiveRef)},
            forerunner=tuple(
                x for r, x in found.items() if r in before and isinstance(x, model.Forerunner | model.Quarantined)
            ),
            foreign=tuple(sorted(ref for ref, kind in kinds.items() if isinstance(kind, names.ForeignRef))),
        )

    def look(self, ref: str) -> Found | model.Ledger | model.Forerunner | None:
        """Read one ref afresh; None where it does not exist."""
        oid = self._refs.list([ref]).get(ref)
        return None if oid is None else self._at(ref, oid)

    def _at(self, ref: str, oid: str) -> Found | model.Ledger | model.Forerunner:
        kind = self._names.parse(ref)
        commits = self._refs.read([oid], depth=decide.LEDGER_LIMIT if isinstance(kind, names.SessionRef) else 1)
        return self._decode(ref, oid, kind, commits)

    def _decode(
        self, ref: str, oid: str, kind: names.KlaudRef, commits: Mapping[str, gateway.CommitData | gateway.NotACommit]
    ) -> Found | model.Ledger | model.Forerunner:
        if isinstance(kind, names.SessionRef):
            return self._ledger(ref, oid, kind, commits)
        commit = commits.get(oid)
        if not isinstance(commit, gateway.CommitData):
            return model.Quarantined(ref, oid, "gone from the host" if commit is None else commit.why)
        if isinstance(kind, _FORERUNNERS):
            which: Literal["claim", "lease"] = "claim" if isinstance(kind, names.ForerunnerClaimRef) else "lease"
            old = codec.decode_forerunner(commit.message, ref=ref, oid=oid, kind=which)
            return model.Quarantined(ref, oid, old.why) if isinstance(old, codec.Bad) else old
        record = self._record(ref, commit)
        if isinstance(record, model.Quarantined | model.Newer):
            return record
        if why := decide.fits(record, kind):
            return model.Quarantined(ref, oid, why)
        if isinstance(record, model.Claim | model.Lease | model.FamilyMemory | model.Tombstone | model.Observed):
            return model.Held(ref, oid, record)
        return model.Quarantined(ref, oid, "a record of another kind than its ref")

    def _record(self, ref: str, commit: gateway.CommitData) -> model.Record | model.Quarantined | model.Newer:
        if not commit.tree_is_empty:
            return model.Quarantined(ref, commit.oid, "a commit with files, not a record")
        if len(commit.parents) > 1:
            return model.Quarantined(ref, commit.oid, "a merge, not a record")
        parent = commit.parents[0] if commit.parents else None
        record = codec.decode(commit.message, repository=self._repository, ref=ref, parent=parent, key=self._key)
        match record:
            case codec.Bad(why):
                return model.Quarantined(ref, commit.oid, why)
            case codec.Later(version):
                return model.Newer(ref, commit.oid, version)
            case _:
                return record

    def _ledger(
        self,
        ref: str,
        oid: str,
        kind: names.SessionRef,
        commits: Mapping[str, gateway.CommitData | gateway.NotACommit],
    ) -> model.Ledger | model.Quarantined | model.Newer:
        records: list[model.Record] = []
        at: str | None = oid
        while at is not None:
            commit = commits.get(at)
            if len(records) >= decide.LEDGER_LIMIT:
                return model.Quarantined(ref, oid, f"a ledger of more than {decide.LEDGER_LIMIT} records")
            if not isinstance(commit, gateway.CommitData):
                return model.Quarantined(ref, oid, "a ledger with a missing link" if commit is None else commit.why)
            record = self._record(ref, commit)
            if isinstance(record, model.Newer):
                return model.Newer(ref, oid, record.version)
            if isinstance(record, model.Quarantined):
                return model.Quarantined(ref, oid, record.why)
            records.append(record)
            at = commit.parents[0] if commit.parents else None
        whole = tuple(reversed(records))
        if why := decide.chain(whole, kind):
            return model.Quarantined(ref, oid, why)
        return model.Ledger(ref, oid, tuple(r for r in whole if not isinstance(r, _HELD_RECORDS)))

    # -- single records
    def take_claim(self, claim: model.Claim) -> Won | Lost:
        """Make the claim of a family that has none. The holder's nonce makes its commit unique."""
        return self.put(self._names.claim(names.family_of(claim.candidate)), None, claim)

    def swap_claim(self, held: model.Held, record: model.Claim) -> Won | Lost:
        """Replace the claim that ``held`` is by ``record``."""
        return self.put(held.ref, held.oid, record)

    def take_lease(self, lease: model.Lease) -> Won | Lost:
        """Take a dead session in hand."""
        return self.put(self._names.lease(lease.wave, lease.candidate), None, lease)

    def put(
        self,
        ref: str,
        expected: str | None,
        record: model.Claim | model.Lease | model.FamilyMemory | model.Tombstone | model.Observed,
    ) -> Won | Lost:
        """Write ``record`` at ``ref`` where it still stands at ``expected`` (None: does not exist)."""
        why = decide.fits(record, self._names.parse(ref))
        if why:
            msg = f"would write {why} at {ref}"
            raise errors.BugError(msg)
        update = self.prepare(ref, expected, record)
        held = model.Held(ref, str(update.new), record)
        moved = self._swap(update)
        return Won(held) if moved is None else Lost(self._found(ref, moved.actual))

    def release(self, held: model.Held) -> Released | AlreadyGone | Lost:
        """Delete the ref of ``held`` where it still is exactly that: nobody frees what is another's."""
        moved = self._swap(gateway.RefUpdate(held.ref, held.oid, None))
        if moved is None:
            return Released()
        return AlreadyGone() if moved.actual is None else Lost(self._found(held.ref, moved.actual))

    # -- ledgers
    def start_ledger(self, ref: str, record: model.SessionStarted) -> model.Ledger | Lost:
        """Begin a session's ledger at ``ref``."""
        kind = self._names.parse(ref)
        why = decide.fits(record, kind)
        if why:
            msg = f"would begin {why} at {ref}"
            raise errors.BugError(msg)
        return self._grow(model.Ledger(ref, "", ()), (record,))

    def append(self, ledger: model.Ledger, *records: model.LedgerRecord) -> model.Ledger | Lost:
        """Append records to a ledger that still stands where ``ledger`` was read; one push."""
        return self._grow(ledger, records) if records else ledger

    def _grow(self, ledger: model.Ledger, records: Sequence[model.LedgerRecord]) -> model.Ledger | Lost:
        update, grown = self.prepare_append(ledger, *records)
        moved = self._swap(update)
        return grown if moved is None else Lost(self._found(ledger.ref, moved.actual))

    # -- several refs at once
    def prepare(self, ref: str, expected: str | None, record: model.Record) -> gateway.RefUpdate:
        """Make the commit of a record and the update that would write it; nothing is sent."""
        text = codec.encode(record, repository=self._repository, ref=ref, previous=expected, key=self._key)
        return gateway.RefUpdate(ref, expected, self._refs.write_commit(text))

    def prepare_append(
        self, ledger: model.Ledger, *records: model.LedgerRecord
    ) -> tuple[gateway.RefUpdate, model.Ledger]:
        """Make the commits that would append ``records``, the update, and the ledger as it then is; nothing is sent."""
        tip = ledger.oid or None
        for record in records:
            text = codec.encode(record, repository=self._repository, ref=ledger.ref, previous=tip, key=self._key)
            tip = self._refs.write_commit(text, [tip] if tip else [])
        grown = model.Ledger(ledger.ref, tip or "", (*ledger.records, *records))
        return gateway.RefUpdate(ledger.ref, ledger.oid or None, tip), grown

    def apply(self, updates: Sequence[gateway.RefUpdate], *, atomic: bool = False) -> Sequence[gateway.RefResult]:
        """Send updates in one push; what stayed unclear is read back once (and may still be ``RefUnclear``)."""
        results = list(self._refs.apply(updates, atomic=atomic))
        unclear = [u for u, r in zip(updates, results, strict=True) if isinstance(r, gateway.RefUnclear)]
        if not unclear:
            return results
        try:
            now = self._refs.list([update.ref for update in unclear])
        except errors.KlaudError:
            return results
        told = {update.ref: _read_back(update, now.get(update.ref)) for update in unclear}
        return [told.get(result.ref, result) for result in results]

    def push_fenced(
        self,
        updates: Sequence[gateway.RefUpdate],
        *,
        ledger: model.Ledger,
        records: Sequence[model.LedgerRecord],
        claim: model.Held,
        renewed: model.Claim,
    ) -> Fenced | Sequence[gateway.RefResult]:
        """Move ``updates`` (a branch), the ledger and the claim in one atomic push, or none of them.

        The claim must get a new commit (``renewed``), since git compares only refs that a push changes. When not all
        moved, the results are returned: those of ``updates`` first, then the ledger's, then the claim's.
        """
        on_ledger, grown = self.prepare_append(ledger, *records)
        on_claim = self.prepare(claim.ref, claim.oid, renewed)
        results = self.apply([*updates, on_ledger, on_claim], atomic=True)
        if all(isinstance(result, gateway.RefUpdated) for result in results):
            return Fenced(grown, model.Held(claim.ref, str(on_claim.new), renewed))
        return results

    def _swap(self, update: gateway.RefUpdate) -> gateway.RefSuperseded | None:
        """Send one update; None when it was done, else what stands there."""
        result = self.apply([update])[0]
        match result:
            case gateway.RefUpdated():
                return None
            case gateway.RefSuperseded():
                return result
            case gateway.RefRejected(reason=reason):
                raise errors.RefusedWriteError(
                    f"the git host refused to move {update.ref}: {reason}", status=0, reason=reason
                )
            case gateway.RefUnclear():
                msg = f"a push of {update.ref} got no clear answer, and reading it back did not tell"
                raise errors.UnclearWriteError(msg)

    def _found(self, ref: str, oid: str | None) -> Found | None:
        """Return what stands at a ref that we lost (a good ledger is None: only that it moved matters)."""
        if oid is None:
            return None
        try:
            thing = self._at(ref, oid)
        except errors.RetryLaterError:
            return model.Quarantined(ref, oid, "another's record, which could not be read")
        return None if isinstance(thing, model.Ledger | model.Forerunner) else thing


def _read_back(update: gateway.RefUpdate, actual: str | None) -> gateway.RefResult:
    """Say what became of an unclear update, now that the ref stands at ``actual``."""
    if actual == update.new:
        return gateway.RefUpdated(update.ref)
    if actual != update.expected:
        return gateway.RefSuperseded(update.ref, actual)
    return gateway.RefUnclear(update.ref)


_HELD_RECORDS = (model.Claim, model.Lease, model.FamilyMemory, model.Tombstone, model.Observed)
_RECORDED = (
    names.ClaimRef,
    names.SessionRef,
    names.LeaseRef,
    names.FamilyRef,
    names.TombstoneRef,
    names.ObservedRef,
)
_FORERUNNERS = (names.ForerunnerClaimRef, names.ForerunnerLeaseRef)
_NOT_HELD = (model.Ledger, model.Forerunner)
_NOT_LEDGER = (model.Held, model.Forerunner)
