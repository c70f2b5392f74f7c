"""What a running session asks to see whether klaud was paused meanwhile."""

from __future__ import annotations

import types
from typing import Any

import pytest

from klaud import config as configs
from klaud.cli import pause_switch
from klaud.session import model
from tests.support import memory_gateway, memory_world


class Paused:
    """A world, and the switch over it."""

    def __init__(self) -> None:
        self.world = memory_world.World()
        self.log: list[str] = []
        live: Any = types.SimpleNamespace(
            gateway=memory_gateway.gateway(self.world),
            clock=self.world.clock,
            config=types.SimpleNamespace(session=model.Policy(), paused=False),
        )
        self.switch = pause_switch.of(live, self.log.append)

    def later(self) -> bool:
        self.world.advance(60)
        return self.switch()

    def write(self, text: str) -> None:
        self.world.state.contents["main", configs.PLACE] = text.encode()


@pytest.fixture
def paused(monkeypatch: pytest.MonkeyPatch) -> Paused:
    monkeypatch.delenv(configs.PAUSE_VARIABLE, raising=False)
    return Paused()


@pytest.mark.parametrize(("value", "pauses"), [("1", True), ("yes", True), ("0", False), ("false", False), ("", False)])
def test_the_variable_is_read_while_the_session_runs(paused: Paused, value: str, *, pauses: bool) -> None:
    assert not paused.switch()
    paused.world.variables[configs.PAUSE_VARIABLE] = value
    assert paused.later() is pauses
    del paused.world.variables[configs.PAUSE_VARIABLE]
    assert not paused.later()


@pytest.mark.parametrize(
    ("text", "pauses"), [("paused: true\n", True), ("paused: false\n", False), ("[]", False), ("paused: 'true'", False)]
)
def test_the_configuration_on_the_default_branch_is_read(paused: Paused, text: str, *, pauses: bool) -> None:
    assert not paused.switch()
    paused.write(text)
    assert paused.later() is pauses


def test_a_configuration_that_cannot_be_read_changes_nothing(paused: Paused) -> None:
    paused.write("paused: true\n")
    assert paused.switch()
    paused.write("{{{")
    assert paused.later()
    assert any("could not be read" in line for line in paused.log)


def test_without_the_right_to_read_variables_the_configuration_is_left(paused: Paused) -> None:
    paused.world.denied.add("variables:read")
    paused.world.variables[configs.PAUSE_VARIABLE] = "1"
    assert not paused.switch()
    assert any("may not read the variable KLAUD_PAUSED" in line for line in paused.log)
    paused.write("paused: true\n")
    assert paused.later()
