"""What a contract is, and how it ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

    from klaud.github.conformance.target import Target

Do: TypeAlias = "Callable[[Target], None]"

WHY_CHARS = 300
"""Most characters of a reason: the host's words may be a page."""


class BrokenError(Exception):
    """The host did something else than the contract says."""


class NotHereError(Exception):
    """The contract cannot be tried in this repository; the text says why, and what would let it be tried."""


class Contract(msgspec.Struct, frozen=True):
    """One promise of the host: its number, what it says in words, and how it is tried."""

    number: int
    claim: str
    do: Do

    @property
    def name(self) -> str:
        """``C07``."""
        return f"C{self.number:02d}"


class Ended(msgspec.Struct, frozen=True):
    """How one contract ended. ``why`` is empty where it holds."""

    number: str
    claim: str
    result: Literal["pass", "fail", "skip"]
    why: str = ""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A whole run. ``left``: what could not be taken away again; ``interrupted``: it was ended before its end."""

    repository: str
    host: str
    contracts: tuple[Ended, ...] = ()
    left: tuple[str, ...] = ()
    interrupted: bool = False

    def count(self, result: str) -> int:
        """Return how many contracts ended so."""
        return sum(one.result == result for one in self.contracts)


def same(actual: object, wanted: object, what: str) -> None:
    """Hold one value to another; BrokenError names both."""
    if actual != wanted:
        message = f"{what}: {actual!r} where {wanted!r} was promised"
        raise BrokenError(message[:WHY_CHARS])


def holds(true: object, what: str) -> None:
    """Hold a condition; BrokenError says in words what is not so."""
    if not true:
        raise BrokenError(what[:WHY_CHARS])
