"""``RefStore`` in memory: compare-and-swap on the refs of a ``World``, and the commits below them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klaud import errors
from klaud.github import gateway
from tests.support import memory_world
from tests.support.memory_world import EMPTY_TREE, GitObject, Spoil

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from klaud.github import model

MESSAGE_LIMIT = 65536
"""A commit message above this is no record (the store's size limit)."""


class MemoryRefStore:
    """The refs of one world, as one client sees them. ``account`` is whose pushes they are."""

    def __init__(self, world: memory_world.World, *, account: model.Account | None = None, client: str = "") -> None:
        self._world = world
        self._account = account or world.bot
        self._client = client
        self._local: dict[str, GitObject] = {}
        self._pushes = 0
        self._fetches = 0

    @property
    def pushes(self) -> int:
        """Pushes sent so far."""
        return self._pushes

    @property
    def fetches(self) -> int:
        """Ref listings and fetches so far."""
        return self._fetches

    def list(self, prefixes: Sequence[str]) -> Mapping[str, str]:
        """Return every ref below the prefixes."""
        self._fetches += 1
        with self._world.call("refs.list", tuple(prefixes), write=False, client=self._client) as (state, spoil):
            _spoil_read(spoil, "listing refs")
            found = {r: o for r, o in sorted(state.refs.items()) if r.startswith(tuple(prefixes))}
            return {} if spoil is Spoil.EMPTY else found

    def read(self, oids: Sequence[str], *, depth: int = 1) -> Mapping[str, gateway.CommitData | gateway.NotACommit]:
        """Return the commits and their first-parent ancestors up to ``depth`` commits."""
        wanted = list(dict.fromkeys(oids))
        if not wanted:
            return {}
        self._fetches += 1
        with self._world.call("refs.read", (tuple(wanted), depth), write=False, client=self._client) as (state, spoil):
            _spoil_read(spoil, "reading commits")
            answer: dict[str, gateway.CommitData | gateway.NotACommit] = {}
            for start in wanted:
                at: str | None = start
                for _ in range(depth):
                    thing = (self._local.get(at) or state.objects.get(at)) if at else None
                    if at is None or thing is None:
                        break
                    if thing.tag:
                        answer[at] = gateway.NotACommit(at, "a tag")
                        break
                    if len(thing.message) > MESSAGE_LIMIT:
                        answer[at] = gateway.NotACommit(at, "a commit above the size limit")
                        break
                    answer[at] = gateway.CommitData(
                        oid=at,
                        message=thing.message,
                        parents=thing.parents,
                        tree_is_empty=thing.tree == EMPTY_TREE,
                        author=_who(thing.author),
                        committer=_who(thing.committer),
                    )
                    at = thing.parents[0] if thing.parents else None
            return answer

    def write_commit(self, message: bytes, parents: Sequence[str] = ()) -> str:
        """Make a record commit locally."""
        thing = GitObject(message, tuple(parents), EMPTY_TREE, self._account, self._account)
        oid = memory_world.object_id(thing)
        self._local[oid] = thing
        return oid

    def apply(self, updates: Sequence[gateway.RefUpdate], *, atomic: bool = False) -> Sequence[gateway.RefResult]:
        """Send all updates in one push."""
        if not updates:
            return []
        with self._world.call("refs.apply", (tuple(updates), atomic), write=True, client=self._client) as (_, spoil):
            if spoil is Spoil.FORBID or "contents:write" in self._world.denied:
                raise errors.ForbiddenError("push refused: the token lacks contents:write")
            if spoil is Spoil.FAIL:
                return [gateway.RefUnclear(u.ref) for u in updates]
            if spoil is Spoil.REFUSE:
                return [gateway.RefRejected(u.ref, "refused by a rule") for u in updates]
            results = self._judge(updates)
            self._pushes += any(isinstance(r, gateway.RefUpdated) for r in results)
            if atomic and any(not isinstance(r, gateway.RefUpdated) for r in results):
                return [r if not isinstance(r, gateway.RefUpdated) else self._unmoved(r.ref) for r in results]
            for update, result in zip(updates, results, strict=True):
                if isinstance(result, gateway.RefUpdated):
                    self._send(update.new)
                    self._world.move_ref(update.ref, update.new, by=self._account)
            return [gateway.RefUnclear(u.ref) for u in updates] if spoil is Spoil.LOSE else results

    def _judge(self, updates: Sequence[gateway.RefUpdate]) -> Sequence[gateway.RefResult]:
        refs = self._world.state.refs
        results: list[gateway.RefResult] = []
        for update in updates:
            actual = refs.get(update.ref)
            if update.new is not None and update.new not in self._local and update.new not in self._world.state.objects:
                results.append(gateway.RefRejected(update.ref, "object not found"))
            elif actual != update.expected or (update.new is None and actual is None):
                results.append(gateway.RefSuperseded(update.ref, actual))
            else:
                results.append(gateway.RefUpdated(update.ref))
        return results

    def _unmoved(self, ref: str) -> gateway.RefResult:
        return gateway.RefRejected(ref, "atomic push: another ref of it was not as expected")

    def _send(self, oid: str | None) -> None:
        while oid is not None and oid in self._local and oid not in self._world.state.objects:
            thing = self._local[oid]
            self._world.state.objects[oid] = thing
            oid = thing.parents[0] if thing.parents else None


def _who(account: model.Account | None) -> bytes:
    return f"{account.login} <{account.id}+{account.login}@users.example>".encode() if account else b""


def _spoil_read(spoil: Spoil | None, what: str) -> None:
    if spoil is Spoil.FAIL:
        raise errors.ReadFailedError(f"{what}: 502 after all tries")
    if spoil is Spoil.FORBID:
        raise errors.ForbiddenError(f"{what}: the token lacks contents:read")
