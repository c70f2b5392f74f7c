"""Hold a claim or lease for the length of a block, and give it back whatever ends the block.

The release is owner-only (compare-and-delete on the exact commit) and bounded: one push, and one listing when its answer
is unclear. It never hides the error that ended the block, and it raises none of its own: what became of the release is
``Holding.ended``. Use ``keep()`` where the record must outlive the block (a parked session).
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from klaud import errors
from klaud.leases import model, store

if TYPE_CHECKING:
    from collections.abc import Iterator


class Holding:
    """What is held now. ``ended`` is None inside the block, then the release's result or the error that it met."""

    def __init__(self, leases: store.LeaseStore, held: model.Held) -> None:
        """``held``: a record of ours, as ``Won`` handed it out."""
        self._leases = leases
        self.held = held
        self.ended: store.Released | store.AlreadyGone | store.Lost | errors.KlaudError | None = None
        self._kept = False

    def keep(self) -> None:
        """Leave the record where it is when the block ends."""
        self._kept = True

    def swap(self, record: model.Claim) -> None:
        """Replace our record by another of ours; OwnershipLostError where it is no longer ours."""
        answer = self._leases.swap_claim(self.held, record)
        if isinstance(answer, store.Lost):
            self.keep()
            msg = f"{self.held.ref} is held by another run now"
            raise errors.OwnershipLostError(msg)
        self.held = answer.held

    def release(self) -> None:
        """Give the record back unless it was to be kept; at most once, never raising."""
        if self._kept or self.ended is not None:
            return
        try:
            self.ended = self._leases.release(self.held)
        except errors.KlaudError as error:
            self.ended = error


@contextmanager
def holding(leases: store.LeaseStore, held: model.Held) -> Iterator[Holding]:
    """Hold ``held`` until the block ends, then release it."""
    box = Holding(leases, held)
    try:
        yield box
    finally:
        box.release()
