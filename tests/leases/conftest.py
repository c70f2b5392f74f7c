"""The world that the tests of this folder write to."""

from __future__ import annotations

import pytest

from tests.support.memory_world import World


@pytest.fixture
def world() -> World:
    return World()
