"""The one retry policy of klaud's GitHub and git traffic: bounded in tries and in seconds, on an injected clock.

Only what is *known to have had no effect* is sent again: a read, or a write that the host refused because of a rate limit
before doing anything. Everything else surfaces at once. A function under ``call`` raises ``Again`` to ask for another try;
when the policy is spent, the error inside it is raised as it stands.

The wait is the host's own ``Retry-After``, capped; a secondary rate limit that named none waits ``secondary_wait`` and
then doubles; everything else backs off from ``first_wait``, doubling. A primary rate limit that resets later than
``longest_wait``, and any wait that would end after ``total_seconds``, is not begun: the caller is told how long the host
asked for instead. No jitter: klaud is one client, and a test must be repeatable.
"""

from __future__ import annotations

import threading
from collections.abc import Callable  # noqa: TC003 - in a public signature
from typing import Literal, TypeVar, assert_never

import msgspec
import tenacity

from klaud import clock as clocks
from klaud import errors

T = TypeVar("T")


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """How often and how long klaud tries one request."""

    tries: int = 5
    """Requests sent for one wish, the first included: a host that fails five times in a row is down."""
    total_seconds: float = 600.0
    """Seconds from the first try to the start of the last: a job has better uses for more than ten minutes."""
    first_wait: float = 1.0
    """Seconds before the second try of a failed read; doubles with each further one."""
    longest_wait: float = 300.0
    """Seconds; a longer Retry-After is cut to this, and for a later reset of the primary limit nobody waits."""
    secondary_wait: float = 60.0
    """Seconds before the next request of a secondary rate limit without Retry-After (GitHub's own advice); doubles."""
    request_timeout: float = 30.0
    """Seconds to connect, and between two bytes of an answer."""


Wait = Literal["backoff", "secondary", "retry-after", "reset"]
"""Why another try must wait: our own back-off, a secondary limit without a time, a Retry-After, the primary reset."""


class Again(Exception):  # noqa: N818 - a request for another try, not an error that a person meets
    """Raised inside ``call``: nothing took effect, and the same may be tried after a wait."""

    def __init__(self, error: errors.KlaudError, *, wait: Wait = "backoff", seconds: float = 0.0) -> None:
        """``error`` is raised when no try is left; ``seconds`` is the host's own time for ``retry-after`` and ``reset``."""
        super().__init__(str(error))
        self.error = error
        self.wait: Wait = wait
        self.seconds = seconds


class Pace:
    """When the whole client may send again: a rate limit met by one request holds all of them (oddity L79)."""

    def __init__(self, clock: clocks.Clock) -> None:
        """Start without a hold."""
        self._clock = clock
        self._lock = threading.Lock()
        self._free_at = 0.0
        self._secondary = 0
        self.waited: list[float] = []
        """Seconds of every wait so far, so that a summary can show them."""

    def hold(self, seconds: float) -> None:
        """Let nobody send before ``seconds`` from now."""
        with self._lock:
            self._free_at = max(self._free_at, self._clock.monotonic() + seconds)

    def held(self) -> float:
        """Return the seconds for which nobody may send."""
        with self._lock:
            return max(0.0, self._free_at - self._clock.monotonic())

    def secondary_hits(self) -> int:
        """Count one more secondary refusal in a row and return how many there were before it."""
        with self._lock:
            self._secondary += 1
            return self._secondary - 1

    def succeeded(self) -> None:
        """Forget the secondary refusals: an answer came through."""
        with self._lock:
            self._secondary = 0

    def sleep(self, seconds: float) -> None:
        """Wait, and remember that it was waited."""
        if seconds > 0:
            self.waited.append(seconds)
            self._clock.sleep(seconds)


def wait_of(again: Again, policy: Policy, *, attempt: int, secondary_hits: int) -> float:
    """Return the seconds to wait after try number ``attempt`` (from 1) ended in ``again``."""
    match again.wait:
        case "reset":
            return max(again.seconds, 0.0)
        case "retry-after":
            return min(max(again.seconds, 0.0), policy.longest_wait)
        case "secondary":
            return float(min(policy.secondary_wait * 2**secondary_hits, policy.longest_wait))
        case "backoff":
            return float(min(policy.first_wait * 2 ** (attempt - 1), policy.longest_wait))
        case _:
            assert_never(again.wait)


def call(function: Callable[[], T], *, policy: Policy, clock: clocks.Clock, pace: Pace | None = None) -> T:
    """Return ``function()``, trying again as long as it raises ``Again`` and the policy allows; then raise its error."""
    shared = Pace(clock) if pace is None else pace
    begun = clock.monotonic()

    def wait(state: tenacity.RetryCallState) -> float:
        again = state.outcome.exception() if state.outcome is not None else None
        if not isinstance(again, Again):
            return 0.0
        hits = shared.secondary_hits() if again.wait == "secondary" else 0
        seconds = wait_of(again, policy, attempt=state.attempt_number, secondary_hits=hits)
        if again.wait != "backoff":
            shared.hold(seconds)
        return seconds

    def stop(state: tenacity.RetryCallState) -> bool:
        longest = min(policy.longest_wait, policy.total_seconds - (clock.monotonic() - begun))
        return state.attempt_number >= policy.tries or state.upcoming_sleep > longest

    def attempt() -> T:
        held = shared.held()
        if held > policy.longest_wait:
            msg = f"nothing was sent: the host's rate limit lets nobody send for another {held:.0f} s"
            raise errors.RetryLaterError(msg, after=held)
        shared.sleep(held)
        answer = function()
        shared.succeeded()
        return answer

    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(Again), wait=wait, stop=stop, sleep=shared.sleep, reraise=True
    )
    try:
        return retrying(attempt)
    except Again as again:
        raise _final(again) from again.__cause__


def _final(again: Again) -> errors.KlaudError:
    if isinstance(again.error, errors.RetryLaterError) and again.error.after is None and again.seconds > 0:
        again.error.after = again.seconds
    return again.error
