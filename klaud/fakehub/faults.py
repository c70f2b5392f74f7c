"""What goes wrong on purpose: by route, by account, a number of times.

A fault names calls by ``METHOD glob`` (over the path or the template) and says what is done to them. Several faults may
meet in one call. Kinds are a closed table (``KINDS``); each says which of a fault's fields it reads.
"""

from __future__ import annotations

import copy
import dataclasses
from typing import TYPE_CHECKING, Any

from klaud.fakehub.call import Problem, pattern_matches

if TYPE_CHECKING:
    from collections.abc import Mapping

    from klaud.fakehub.hub import Hub, LogEntry
    from klaud.fakehub.state import State

KINDS: Mapping[str, str] = {
    "status": "answers `status` with `message`; the effect does not happen",
    "status-after-effect": "lets the effect happen, then answers `status` with `message`",
    "lost-request": "cuts the connection; the effect does not happen",
    "lost-reply": "lets the effect happen, then cuts the connection",
    "delay": "waits `seconds` (of the machine) first",
    "stale": "answers a read from the state before the newest write",
    "truncate": "a listing ends after `rows` rows, though its count and links say more",
    "drift": "a listing has moved on by `rows` rows from its second page on, so that rows are skipped",
    "null-items": "puts a null into each page of a listing",
    "total-count": "says `total` in a listing's `total_count`",
    "page-limit": "answers `status` (502) where `per_page` is above `rows`",
    "rate-limit": "a rate limit: `variant` primary (403, nothing left for `seconds`), secondary (403, no Retry-After), 429 "
    "(Retry-After `seconds`)",
    "not-found": "answers 404, as GitHub does where a right is missing",
    "dispatch": "`variant` details (200), no-details (204), unknown-field (422 where details are asked); the run becomes "
    "visible after `seconds` of the hub",
    "cancel": "`variant` ignore (202 and nothing), refuse (409)",
    "clock-skew": "the Date header is `seconds` off",
    "cut-body": "sends only the first `rows` bytes of the body, as if that were all",
    "body": "answers 200 with `message` as the body; the effect does not happen",
    "graphql-errors": "answers with data, but null and an error for the aliases that contain `message` (all, when empty)",
    "refuse-refs": "a push to refs that begin with `message` is refused, as for a hidden namespace",
    "ref-limit": "a push of more than `rows` refs is refused whole, by a hook",
    "kill": "kills the scene's client with SIGKILL: `variant` before (the effect) or after",
}


@dataclasses.dataclass
class Fault:
    """One fault. ``times`` None: for ever; ``skip``: that many matching calls go unharmed first."""

    match: str
    kind: str
    times: int | None = 1
    skip: int = 0
    account: str = ""
    status: int = 500
    message: str = ""
    seconds: float = 0
    rows: int = 0
    total: int = 0
    variant: str = ""
    seen: int = 0
    snapshot: Snapshot | None = None

    def __post_init__(self) -> None:
        """Refuse a kind that is not in the table."""
        if self.kind not in KINDS:
            msg = f"unknown fault {self.kind!r}; known are {', '.join(KINDS)}"
            raise ValueError(msg)

    def due(self, entry: LogEntry) -> bool:
        """Tell whether this call is harmed; counts those that match."""
        if self.times is not None and self.times <= 0:
            return False
        if self.account and entry.account != self.account:
            return False
        if not pattern_matches(self.match, entry.method, entry.path, entry.template):
            return False
        self.seen += 1
        if self.seen <= self.skip:
            return False
        if self.times is not None:
            self.times -= 1
        return True


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """The hub's state at one moment."""

    state: State
    refs: Mapping[str, dict[str, str]]


class CutError(ConnectionError):
    """The connection is to be cut without an answer."""


class Faults:
    """The faults of a hub."""

    def __init__(self, hub: Hub) -> None:
        """Start with none."""
        self._hub = hub
        self.all: list[Fault] = []

    def add(self, match: str, kind: str, **fields: Any) -> Fault:
        """Add a fault and return it."""
        fault = Fault(match, kind, **fields)
        if kind == "stale":
            fault.snapshot = self.snapshot()
        self.all.append(fault)
        return fault

    def clear(self) -> None:
        """Heal everything."""
        self.all.clear()

    def due(self, entry: LogEntry) -> list[Fault]:
        """Return what is to be done to a call."""
        with self._hub.lock:
            found = [fault for fault in self.all if fault.due(entry)]
        entry.fault = " ".join(fault.kind for fault in found)
        return found

    def before_write(self) -> None:
        """Remember the state before a write, where a later read is to be stale."""
        waiting = [fault for fault in self.all if fault.kind == "stale" and (fault.times is None or fault.times > 0)]
        if waiting:
            now = self.snapshot()
            for fault in waiting:
                fault.snapshot = now

    def snapshot(self) -> Snapshot:
        """Copy the state."""
        with self._hub.lock:
            refs = {name: self._hub.git(name).refs() for name in self._hub.state.repositories}
            return Snapshot(copy.deepcopy(self._hub.state), refs)


def problem_of(fault: Fault, *, now: float, limit: int) -> Problem | None:
    """Return the error answer that a fault gives in place of the effect, or None."""
    match fault.kind:
        case "status":
            return Problem(fault.status, fault.message or WORDS.get(fault.status, "Server Error"))
        case "not-found":
            return Problem(404, "Not Found")
        case "rate-limit":
            return _rate_limit(fault, now, limit)
        case _:
            return None


def _rate_limit(fault: Fault, now: float, limit: int) -> Problem:
    seconds = fault.seconds or 60
    if fault.variant == "primary":
        headers = {
            "X-RateLimit-Limit": str(limit),
            "X-RateLimit-Remaining": "0",
            "X-RateLimit-Used": str(limit),
            "X-RateLimit-Reset": str(int(now + seconds)),
        }
        return Problem(403, "API rate limit exceeded for user ID 1.", headers=headers)
    message = "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."
    if fault.variant == "429":
        return Problem(429, message, headers={"Retry-After": str(int(seconds))})
    return Problem(403, message)


WORDS: Mapping[int, str] = {
    401: "Bad credentials",
    403: "Resource not accessible by integration",
    404: "Not Found",
    409: "Conflict",
    500: "Server Error",
    502: "Server Error",
    503: "Service Unavailable",
}
