"""Time as an argument: the ``Clock`` protocol and the system's clock.

Nothing in klaud's rules reads a clock; they are handed ``now``. Devices that wait are handed a ``Clock``, so that tests
and scenes decide how time passes.
"""

from __future__ import annotations

import datetime
import time
from typing import Protocol


class Clock(Protocol):
    """What a device may ask of time."""

    def now(self) -> datetime.datetime:
        """Return the wall-clock time, timezone-aware, UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds from an arbitrary start that never go backwards."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait that many seconds (none when not positive)."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def now(self) -> datetime.datetime:
        """Return the machine's wall-clock time in UTC."""
        return datetime.datetime.now(datetime.UTC)

    def monotonic(self) -> float:
        """Return the machine's monotonic clock in seconds."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Block the thread for ``seconds``."""
        if seconds > 0:
            time.sleep(seconds)
