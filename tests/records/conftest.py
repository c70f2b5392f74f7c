"""A loopback host, a clock that does not wait, and a batch to read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support import loopback, reading

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def host() -> Iterator[loopback.Loopback]:
    with loopback.serving() as served:
        yield served


@pytest.fixture
def clock() -> loopback.FakeClock:
    return loopback.FakeClock()


@pytest.fixture(name="reading")
def _reading(host: loopback.Loopback, clock: loopback.FakeClock) -> Iterator[reading.Reading]:
    """An ended batch of the one-file shape, whose results a test scripts."""
    made = reading.Reading(host, clock)
    with made.client:
        yield made
