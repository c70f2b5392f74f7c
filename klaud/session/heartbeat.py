"""One serialised loop that looks at the session's control state while the agent works.

With git refs as the control plane a beat reads (the claim's ref, the draft's labels, the pause switch) and writes nothing:
the run's own status is the proof of life. With an external control plane a beat is its heartbeat request. Either way beats
never overlap, and after ``release`` no beat follows: the last one is the release's own.

An interruption is told once, whichever beat finds it; a call-back that raises is logged, and beats go on. A beat that
fails changes nothing (it fails open), but three refusals of the credential in a row make the session *unheard*, which its
outcome says.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from klaud import errors

if TYPE_CHECKING:
    from collections.abc import Callable

    from klaud import clock as clocks
    from klaud.session import model

LOOK_SECONDS = 1.0
"""Between two looks at the wall clock while the loop waits: the monotonic one stands still in a suspended machine."""

UNHEARD = 3
"""Refusals of the credential in a row after which nobody hears this session."""

Why: TypeAlias = Literal["", "claim-lost", "handoff", "paused", "cancelled"]


class Control(Protocol):
    """A control plane. Implementations: ``control.GitControl`` and ``control_http.HttpControl``."""

    def beat(self, *, running: bool) -> Why:
        """Say that the session runs (or has ended) and return why it must stop, or an empty text.

        RetryLaterError when the plane cannot be reached, ForbiddenError when it refuses the credential.
        """
        ...


class Heartbeat:
    """The loop, in a thread of its own."""

    def __init__(
        self,
        control: Control,
        policy: model.Policy,
        clock: clocks.Clock,
        *,
        interrupted: Callable[[Why], None],
        log: Callable[[str], None],
    ) -> None:
        """``interrupted`` is called once, from the loop's thread."""
        self._control = control
        self._policy = policy
        self._clock = clock
        self._interrupted = interrupted
        self._log = log
        self._beating = threading.Lock()
        self._stop = threading.Event()
        self._first = threading.Event()
        self._told = False
        self._released = False
        self._denied = 0
        self._unheard = False
        self._thread = threading.Thread(target=self._loop, name="klaud-heartbeat", daemon=True)
        self.beats = 0
        """Beats that were answered."""
        self.missed = 0
        """Beats that were not."""
        self.why: Why = ""
        """Why the session must stop, once a beat has found it."""

    @property
    def unheard(self) -> bool:
        """Tell whether the control plane has refused the credential three times in a row."""
        return self._unheard

    def start(self) -> None:
        """Start beating; wait for the first beat, at most ``first_beat_seconds``, and go on without it then."""
        self._thread.start()
        self._first.wait(self._policy.first_beat_seconds)

    def release(self) -> None:
        """Stop the loop, wait (bounded) for the beat in flight, and send the last beat. Twice is once."""
        self._stop.set()
        if self._released:
            return
        self._released = True
        if self._thread.ident is not None:
            self._thread.join(self._policy.release_seconds)
        if self._beating.acquire(timeout=self._policy.release_seconds):
            try:
                self._beat(running=False)
            finally:
                self._beating.release()
        else:
            self._log("heartbeat: the beat in flight did not end; no last beat is sent after it")

    def _loop(self) -> None:
        while not self._stop.is_set():
            with self._beating:
                if self._stop.is_set():
                    return
                self._beat(running=True)
            self._first.set()
            if self._wait():
                return

    def _wait(self) -> bool:
        """Wait for the next beat; True when the loop must stop.

        A machine that wakes up from a suspend beats once, at once: the wall clock tells that the interval is over.
        """
        began, since, waited = self._clock.now(), self._clock.monotonic(), 0.0
        while True:
            passed = max(self._clock.monotonic() - since, waited)  # a clock that stands still must not stop the beats
            left = self._policy.heartbeat_seconds - passed
            slept = (self._clock.now() - began).total_seconds()
            if left <= 0 or slept >= self._policy.heartbeat_seconds:
                return self._stop.is_set()
            look = min(left, LOOK_SECONDS)
            if self._stop.wait(look):
                return True
            waited += look

    def _beat(self, *, running: bool) -> None:
        try:
            why = self._control.beat(running=running)
        except errors.ForbiddenError:
            self._denied += 1
            self.missed += 1
            if self._denied == UNHEARD and not self._unheard:
                self._unheard = True
                self._log("heartbeat: the control plane refuses the credential; the session is unheard")
            return
        except errors.KlaudError as error:
            self.missed += 1
            self._log(f"heartbeat: no answer ({type(error).__name__})")
            return
        except Exception as error:  # noqa: BLE001 - a beat that fails must not end the loop
            self.missed += 1
            self._log(f"heartbeat: failed ({type(error).__name__})")
            return
        self._denied = 0
        self.beats += 1
        if why and running and not self._told:
            self._told = True
            self.why = why
            with contextlib.suppress(Exception):
                self._interrupted(why)
