"""Write refs and find out what became of it: an unclear answer is read back, never repeated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klaud import errors
from klaud.github import gateway as ports
from klaud.leases import codec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from klaud.leases import model as leases


class Writer:
    """Records and refs of one repository, as one sweep writes them."""

    def __init__(self, *, refs: ports.RefStore, repository: str, key: bytes | None, per_push: int = 1000) -> None:
        """``key``: the record key, where one is set; ``per_push``: refs in one push at most."""
        self._refs = refs
        self._repository = repository
        self._key = key
        self._per_push = per_push

    def record(self, record: leases.Record, ref: str, previous: str | None) -> str:
        """Make the commit of a record that is not part of a chain; return its oid."""
        text = codec.encode(record, repository=self._repository, ref=ref, previous=previous, key=self._key)
        return self._refs.write_commit(text, [])

    def chain(self, records: Sequence[leases.LedgerRecord], ref: str, tip: str | None) -> str | None:
        """Make the commits of ledger records on top of ``tip``; return the new tip."""
        for record in records:
            text = codec.encode(record, repository=self._repository, ref=ref, previous=tip, key=self._key)
            tip = self._refs.write_commit(text, [tip] if tip else [])
        return tip

    def push(self, updates: Sequence[ports.RefUpdate], *, atomic: bool = False) -> dict[str, ports.RefResult]:
        """Send updates (in pushes of at most ``per_push`` refs unless atomic); return the result of each by ref."""
        found: dict[str, ports.RefResult] = {}
        step = max(1, len(updates)) if atomic else self._per_push
        for start in range(0, len(updates), step):
            part = updates[start : start + step]
            results = self._refs.apply(part, atomic=atomic)
            found.update((r.ref, r) for r in results)
            if any(isinstance(r, ports.RefUnclear) for r in results):
                found.update(self._read_back(part, found))
        return found

    def _read_back(
        self, updates: Sequence[ports.RefUpdate], results: dict[str, ports.RefResult]
    ) -> dict[str, ports.RefResult]:
        unclear = [u for u in updates if isinstance(results[u.ref], ports.RefUnclear)]
        try:
            now = self._refs.list([u.ref for u in unclear])
        except errors.RetryLaterError:
            return {}
        found: dict[str, ports.RefResult] = {}
        for update in unclear:
            actual = now.get(update.ref)
            if actual == update.new:
                found[update.ref] = ports.RefUpdated(update.ref)
            elif actual != update.expected:
                found[update.ref] = ports.RefSuperseded(update.ref, actual)
        return found
