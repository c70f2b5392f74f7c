"""What the tests of the lease store share: a store in a world in memory, refs written behind its back, and faults."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klaud.leases import store
from tests.support import memory_refs, memory_world, records
from tests.support.memory_world import GitObject, Spoil, World

if TYPE_CHECKING:
    from klaud.github import gateway

REPOSITORY = "acme/bench"
KEY = b"made-up key"


def open_store(world: World, key: bytes | None = None, refs: gateway.RefStore | None = None) -> store.LeaseStore:
    """Open a store on the world's refs."""
    return store.LeaseStore(
        refs=refs or memory_refs.MemoryRefStore(world),
        names=records.NAMES,
        repository=REPOSITORY,
        clock=world.clock,
        key=key,
    )


def write(
    world: World, ref: str, text: bytes, *parents: str, tree: str = memory_world.EMPTY_TREE, tag: bool = False
) -> str:
    """Have a ref stand at a new commit with this message; return its oid."""
    oid = world.add_object(GitObject(text, parents, tree, world.bot, world.bot, tag))
    world.state.refs[ref] = oid
    return oid


def spoil_next(world: World, name: str, spoil: Spoil) -> None:
    """Let the next call of this name fail this way."""
    left = [spoil]
    world.rules.append(lambda call: left.pop() if left and call.name == name else None)
