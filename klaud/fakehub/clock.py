"""The hub's own clock: where it starts, how fast it goes, and how it is moved by hand.

Everything the hub dates (runs, events, headers) is dated by this clock. By default it is the machine's time. A ``rate`` of
0 stands still until ``advance`` is called; a rate of 60 makes one real second a minute. It never goes backwards.
"""

from __future__ import annotations

import datetime
import threading
import time


class HubClock:
    """Time on the hub. Thread-safe."""

    def __init__(self, start: datetime.datetime | None = None, rate: float = 1.0) -> None:
        """``start``: timezone-aware time of the hub at construction (default: now); ``rate``: hub seconds a second."""
        if rate < 0:
            msg = f"clock rate {rate} is negative"
            raise ValueError(msg)
        self._lock = threading.Lock()
        self._base = (start or datetime.datetime.now(datetime.UTC)).astimezone(datetime.UTC)
        self.start = self._base
        self._since = time.monotonic()
        self.rate = rate

    def now(self) -> datetime.datetime:
        """Return the hub's time, UTC."""
        with self._lock:
            return self._base + datetime.timedelta(seconds=(time.monotonic() - self._since) * self.rate)

    def advance(self, seconds: float) -> None:
        """Move the clock forward by ``seconds``."""
        if seconds < 0:
            msg = f"the clock cannot go back ({seconds} s)"
            raise ValueError(msg)
        with self._lock:
            self._base += datetime.timedelta(seconds=seconds)


def stamp(moment: datetime.datetime | None) -> str | None:
    """Return the time as GitHub writes it (whole seconds, ``Z``), or None."""
    return None if moment is None else moment.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse(text: str) -> datetime.datetime:
    """Return the time that an ISO 8601 text names; without a zone it is UTC."""
    moment = datetime.datetime.fromisoformat(text)
    return moment.replace(tzinfo=datetime.UTC) if moment.tzinfo is None else moment.astimezone(datetime.UTC)
