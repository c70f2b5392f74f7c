"""Beats are serialised, an interruption is told once, and the release's beat is the last."""

from __future__ import annotations

import datetime
import threading
import time
from typing import TYPE_CHECKING

import msgspec
import pytest

from klaud import clock as clocks
from klaud import errors
from klaud.session import control, heartbeat, model

if TYPE_CHECKING:
    from collections.abc import Callable

POLICY = model.Policy(heartbeat_seconds=0.02, first_beat_seconds=0.2, release_seconds=0.3)


class Plane:
    """A control plane that does as told and writes down every beat."""

    def __init__(self, act: Callable[[int], heartbeat.Why] = lambda _n: "") -> None:
        self.act = act
        self.beats: list[bool] = []
        self.open = 0
        self.most = 0
        self.times: list[float] = []

    def beat(self, *, running: bool) -> heartbeat.Why:
        self.open += 1
        self.most = max(self.most, self.open)
        try:
            self.times.append(time.monotonic())
            why = self.act(len(self.times) - 1) if running else ""
            self.beats.append(running)
            return why
        finally:
            self.open -= 1


def beating(plane: Plane, policy: model.Policy = POLICY) -> tuple[heartbeat.Heartbeat, list[str], list[str]]:
    told: list[str] = []
    log: list[str] = []
    beats = heartbeat.Heartbeat(plane, policy, clocks.SystemClock(), interrupted=told.append, log=log.append)
    return beats, told, log


def until(told: Callable[[], bool], seconds: float = 10.0) -> None:
    """Wait until something is so; what follows asserts it."""
    end = time.monotonic() + seconds
    while not told() and time.monotonic() < end:
        time.sleep(0.01)


def test_the_release_is_the_last_beat_and_twice_is_once() -> None:
    plane = Plane()
    beats, _, _ = beating(plane)
    beats.start()
    time.sleep(0.1)
    beats.release()
    beats.release()
    count = len(plane.beats)
    time.sleep(0.1)
    assert len(plane.beats) == count, "no beat after the release"
    assert plane.beats[-1] is False
    assert plane.beats.count(False) == 1
    assert plane.most == 1
    assert beats.beats == count


def test_a_slow_plane_never_lands_a_running_beat_after_the_release() -> None:
    plane = Plane(lambda _n: time.sleep(0.15) or "")  # type: ignore[func-returns-value]
    beats, _, _ = beating(plane)
    beats.start()
    time.sleep(0.05)
    beats.release()
    time.sleep(0.3)
    assert plane.beats[-1] is False
    assert plane.most == 1


def test_a_stalled_plane_holds_nobody_up() -> None:
    """The first beat is waited for, bounded; so is the release, which then sends nothing."""
    go = threading.Event()
    plane = Plane(lambda _n: (go.wait(5) and "") or "")
    beats, _, log = beating(plane)
    began = time.monotonic()
    beats.start()
    assert time.monotonic() - began < 0.4
    began = time.monotonic()
    beats.release()
    assert time.monotonic() - began < 1.0
    assert any("did not end" in line for line in log)
    go.set()
    beats._thread.join(1)
    assert False not in plane.beats, "a release that was not sent is not sent late either"


@pytest.mark.parametrize("error", [errors.ReadFailedError("x"), RuntimeError("x"), errors.ForbiddenError("x")])
def test_a_dead_plane_changes_nothing(error: Exception) -> None:
    def fail(_n: int) -> heartbeat.Why:
        raise error

    beats, told, _ = beating(Plane(fail))
    beats.start()
    until(lambda: beats.missed >= 3)
    beats.release()
    assert told == []
    assert beats.missed >= 3
    assert beats.unheard is isinstance(error, errors.ForbiddenError)


def test_unheard_takes_three_refusals_in_a_row() -> None:
    def act(n: int) -> heartbeat.Why:
        if n % 3 != 2:
            message = "no"
            raise errors.ForbiddenError(message)
        return ""

    beats, _, log = beating(Plane(act))
    beats.start()
    time.sleep(0.25)
    beats.release()
    assert not beats.unheard
    assert not any("unheard" in line for line in log)


def test_an_interruption_is_told_exactly_once() -> None:
    plane = Plane(lambda n: "handoff" if n >= 2 else "")
    beats, told, _ = beating(plane)
    beats.start()
    until(lambda: len(plane.beats) > 4)
    beats.release()
    assert told == ["handoff"]
    assert beats.why == "handoff"
    assert len(plane.beats) > 4, "beats go on"


def test_a_call_back_that_raises_does_not_end_the_beats() -> None:
    plane = Plane(lambda _n: "paused")
    log: list[str] = []

    def broken(_why: heartbeat.Why) -> None:
        message = "broken"
        raise RuntimeError(message)

    beats = heartbeat.Heartbeat(plane, POLICY, clocks.SystemClock(), interrupted=broken, log=log.append)
    beats.start()
    until(lambda: len(plane.beats) > 2)
    beats.release()
    assert len(plane.beats) > 2


def test_the_gap_between_beats_stays_small_while_the_turn_is_busy() -> None:
    plane = Plane()
    beats, _, _ = beating(plane)
    beats.start()
    until = time.monotonic() + 0.3
    while time.monotonic() < until:
        sum(range(1000))
    beats.release()
    gaps = [later - earlier for earlier, later in zip(plane.times, plane.times[1:], strict=False)]
    assert max(gaps) < 1.0, "one beat in 20 ms is meant; a machine under load may be late, a held lock would be later"


class Twin(heartbeat.Heartbeat):
    """The broken twin: its release does not wait for the beat in flight."""

    def release(self) -> None:
        self._stop.set()
        self._beat(running=False)


def test_a_twin_that_does_not_wait_is_seen() -> None:
    plane = Plane(lambda _n: time.sleep(0.15) or "")  # type: ignore[func-returns-value]
    beats = Twin(plane, POLICY, clocks.SystemClock(), interrupted=lambda _why: None, log=lambda _text: None)
    beats.start()
    time.sleep(0.1)
    beats.release()
    beats._thread.join(1)
    assert plane.beats[-1] is True, "a late running beat lands after the release"


def test_release_without_a_start_still_says_that_it_is_over() -> None:
    plane = Plane()
    beats, _, _ = beating(plane)
    beats.release()
    assert plane.beats == [False]


class Book:
    """What the git control plane reads of a book."""

    def __init__(self, *, ours: bool | None) -> None:
        self.ours = ours
        self.view = _View()

    def claim_ours(self) -> bool | None:
        return self.ours


class _View:
    number = None


def test_the_git_plane_reads_and_writes_nothing() -> None:
    assert _git(Book(ours=True)).beat(running=True) == ""
    assert _git(Book(ours=False)).beat(running=True) == "claim-lost"
    assert _git(Book(ours=True), paused=True).beat(running=True) == "paused"
    assert _git(Book(ours=False)).beat(running=False) == ""
    with pytest.raises(errors.ReadFailedError):
        _git(Book(ours=None)).beat(running=True)


def _git(book: Book, *, paused: bool = False) -> control.GitControl:
    return control.GitControl(None, book, lambda: paused)  # type: ignore[arg-type]


def test_bounds_are_read_when_used() -> None:
    policy = msgspec.structs.replace(POLICY, release_seconds=0.05)
    go = threading.Event()
    beats, _, _ = beating(Plane(lambda _n: (go.wait(5) and "") or ""), policy)
    beats.start()
    began = time.monotonic()
    beats.release()
    assert time.monotonic() - began < 0.4
    go.set()
    beats._thread.join(1)


class Suspended(clocks.SystemClock):
    """A clock on a machine that was suspended: the wall clock is further, the monotonic one is not."""

    ahead = 0.0

    def now(self) -> datetime.datetime:
        return super().now() + datetime.timedelta(seconds=self.ahead)


class Sleeper(heartbeat.Heartbeat):
    """The broken twin: it waits by the monotonic clock alone."""

    def _wait(self) -> bool:
        return self._stop.wait(self._policy.heartbeat_seconds)


@pytest.mark.parametrize(("kind", "beats"), [(heartbeat.Heartbeat, 2), (Sleeper, 1)])
def test_a_machine_that_wakes_up_beats_once_and_not_in_a_burst(
    kind: type[heartbeat.Heartbeat], beats: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "LOOK_SECONDS", 0.02)
    clock = Suspended()
    plane = Plane()
    policy = msgspec.structs.replace(POLICY, heartbeat_seconds=60.0)
    beating_ = kind(plane, policy, clock, interrupted=lambda _why: None, log=lambda _text: None)
    beating_.start()
    until(lambda: len(plane.beats) == 1)
    clock.ahead = 3600.0
    if beats > 1:
        until(lambda: len(plane.beats) >= beats)
    time.sleep(0.1)
    assert len(plane.beats) == beats
    beating_.release()
    assert plane.beats[-1] is False
