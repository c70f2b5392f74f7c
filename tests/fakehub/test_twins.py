"""Broken twins of what the contracts guard: each must be caught by the contract that is about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from klaud import clock
from klaud.fakehub.git import GitStore
from klaud.github.conformance import model, run
from klaud.github.conformance.target import Target

if TYPE_CHECKING:
    from tests.fakehub.conftest import World


class Careless(GitStore):
    """A store that writes whatever it is told, whatever the ref stands at."""

    def swap(self, name: str, expected: str | None, new: str | None) -> None:
        del expected
        self.set_refs({name: new})


class Forgetful(GitStore):
    """A store that takes every commit for an ancestor of every other."""

    def is_ancestor(self, old: str, new: str) -> bool:
        del old, new
        return True


@pytest.mark.parametrize(
    ("twin", "number", "caught"),
    [(GitStore, "C02", False), (Careless, "C02", True), (GitStore, "C05", False), (Forgetful, "C05", True)],
)
def test_a_broken_store_is_caught(world: World, twin: type[GitStore], number: str, caught: bool) -> None:
    (contract,) = run.chosen([number])
    broken = twin(world.repository.git_path)
    whole, world.hub._git["acme/bench"] = world.hub._git["acme/bench"], broken
    target = Target(
        url=world.server.url,
        repository="acme/bench",
        token=lambda: "bot",
        clock=clock.SystemClock(),
        session=world.session,
    )
    try:
        if caught:
            with pytest.raises((model.BrokenError, KeyError)):
                contract.do(target)
        else:
            contract.do(target)
    finally:
        world.hub._git["acme/bench"] = whole
        broken.close()
