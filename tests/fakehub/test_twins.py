"""Broken twins of what the contracts guard: each must be caught by the contract that is about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from klaud.fakehub.git import GitStore
from tests.fakehub.contracts import test_refs as contracts
from tests.support.contract import Target

if TYPE_CHECKING:
    from collections.abc import Callable

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
    ("twin", "contract", "caught"),
    [
        (GitStore, contracts.test_c02_create_ref_that_exists_answers_422, False),
        (Careless, contracts.test_c02_create_ref_that_exists_answers_422, True),
        (GitStore, contracts.test_c05_update_ref_goes_backwards_only_with_force, False),
        (Forgetful, contracts.test_c05_update_ref_goes_backwards_only_with_force, True),
    ],
)
def test_a_broken_store_is_caught(
    world: World, twin: type[GitStore], contract: Callable[[Target], None], caught: bool
) -> None:
    broken = twin(world.repository.git_path)
    whole, world.hub._git["acme/bench"] = world.hub._git["acme/bench"], broken
    target = Target(world.session, world.server.url, "acme/bench", world.hub)
    try:
        if caught:
            with pytest.raises((AssertionError, KeyError)):
                contract(target)
        else:
            contract(target)
    finally:
        world.hub._git["acme/bench"] = whole
        broken.close()
