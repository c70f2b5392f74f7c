# ruff: noqa: N802 - tests carry the ids of the oddities they show
"""One policy: bounded in tries and seconds, the host's time obeyed, the whole client held by a rate limit."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klaud import errors
from klaud.github import retry
from tests.support.loopback import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable

POLICY = retry.Policy()


def failing(*agains: retry.Again, then: str = "done") -> Callable[[], str]:
    left = list(agains)

    def function() -> str:
        if left:
            raise left.pop(0)
        return then

    return function


def again(wait: retry.Wait = "backoff", seconds: float = 0.0) -> retry.Again:
    return retry.Again(errors.ReadFailedError("the host failed"), wait=wait, seconds=seconds)


def test_a_failed_read_backs_off_and_heals() -> None:
    clock = FakeClock()
    assert retry.call(failing(again(), again(), again()), policy=POLICY, clock=clock) == "done"
    assert clock.slept == [1, 2, 4]


def test_the_tries_are_bounded() -> None:
    clock = FakeClock()
    calls: list[int] = []

    def function() -> None:
        calls.append(1)
        raise again()

    with pytest.raises(errors.ReadFailedError, match="the host failed"):
        retry.call(function, policy=POLICY, clock=clock)
    assert len(calls) == POLICY.tries
    assert sum(clock.slept) == 1 + 2 + 4 + 8


def test_L81_retry_after_is_obeyed() -> None:
    clock = FakeClock()
    pace = retry.Pace(clock)
    assert retry.call(failing(again("retry-after", 120)), policy=POLICY, clock=clock, pace=pace) == "done"
    assert clock.slept == [120]
    assert pace.waited == [120], "and can be shown"


def test_L81_retry_after_is_capped() -> None:
    clock = FakeClock()
    assert retry.call(failing(again("retry-after", 86_400)), policy=POLICY, clock=clock) == "done"
    assert clock.slept == [POLICY.longest_wait]


def test_L79_a_secondary_limit_waits_a_minute_and_doubles() -> None:
    clock = FakeClock()
    assert retry.call(failing(again("secondary"), again("secondary")), policy=POLICY, clock=clock) == "done"
    assert clock.slept == [60, 120]


def test_L79_the_whole_client_waits_not_only_the_call_that_met_it() -> None:
    clock = FakeClock()
    pace = retry.Pace(clock)
    once = retry.Policy(tries=1)
    with pytest.raises(errors.ReadFailedError):
        retry.call(failing(again("secondary")), policy=once, clock=clock, pace=pace)
    assert clock.slept == []
    assert retry.call(failing(), policy=once, clock=clock, pace=pace) == "done"
    assert clock.slept == [60]
    assert retry.call(failing(), policy=once, clock=clock, pace=pace) == "done"
    assert clock.slept == [60], "once over, it is over"


def test_an_answer_that_comes_through_ends_the_doubling() -> None:
    clock = FakeClock()
    pace = retry.Pace(clock)
    for _ in range(2):
        retry.call(failing(again("secondary")), policy=POLICY, clock=clock, pace=pace)
    assert clock.slept == [60, 60]


def test_a_reset_within_reach_is_waited_for() -> None:
    clock = FakeClock()
    assert retry.call(failing(again("reset", 200)), policy=POLICY, clock=clock) == "done"
    assert clock.slept == [200]


def test_a_reset_out_of_reach_is_told_and_nobody_asks_until_then() -> None:
    clock = FakeClock()
    pace = retry.Pace(clock)
    with pytest.raises(errors.ReadFailedError) as caught:
        retry.call(failing(again("reset", 3000)), policy=POLICY, clock=clock, pace=pace)
    assert caught.value.after == 3000
    asked: list[int] = []
    with pytest.raises(errors.RetryLaterError, match="nothing was sent") as second:
        retry.call(lambda: asked.append(1), policy=POLICY, clock=clock, pace=pace)
    assert second.value.after == 3000
    assert asked == []
    assert clock.slept == []
    clock.passed += 2900
    retry.call(lambda: asked.append(1), policy=POLICY, clock=clock, pace=pace)
    assert asked == [1]
    assert clock.slept == [100]


def test_other_errors_come_through_at_once() -> None:
    clock = FakeClock()

    def function() -> None:
        raise errors.UnclearWriteError("no answer")

    with pytest.raises(errors.UnclearWriteError):
        retry.call(function, policy=POLICY, clock=clock)
    assert clock.slept == []


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["backoff", "secondary", "retry-after", "reset"]), st.floats(min_value=0, max_value=10_000)
        ),
        max_size=12,
    ),
    st.integers(min_value=1, max_value=6),
    st.floats(min_value=1, max_value=1000),
)
@settings(max_examples=200, deadline=None)
def test_every_call_is_bounded(agains: list[tuple[retry.Wait, float]], tries: int, total: float) -> None:
    clock = FakeClock()
    policy = retry.Policy(tries=tries, total_seconds=total)
    calls: list[int] = []
    left = failing(*(again(wait, seconds) for wait, seconds in agains))

    def function() -> str:
        calls.append(1)
        return left()

    with contextlib.suppress(errors.ReadFailedError):
        retry.call(function, policy=policy, clock=clock)
    assert 1 <= len(calls) <= tries
    assert sum(clock.slept) <= total
    assert all(seconds <= policy.longest_wait for seconds in clock.slept)
