"""The second ref store, for hosts that refuse pushes or the namespace over git: GraphQL ``updateRefs`` and REST reads.

Theory: ``updateRefs`` carries the oid each ref must stand at (zero: "must not exist") and moves all of its refs or none.
To judge each update alone, the refs are listed first; those as expected are sent in one mutation; where that is refused
because one of them moved, the refs are listed again and what is still as expected is sent, at most ``ROUNDS`` times: a
refused mutation had no effect, so that is no repetition of a write.

To delete one ref that is not there is sent, too, although it cannot succeed: GitHub judges the right before the ref, so that
a sweep finds out before its first write whether it may write (``recovery.settle_refs.check_right``).

Promises: those of ``gateway.RefStore``, with one difference: ``write_commit`` makes the commit on the host at once (a
commit's oid is the host's to say here), where no ref names it yet; and GitHub's REST answers leave out the line end at a
message's end. Costs: one REST request a commit read or written, so this store is for hosts that leave no choice.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import msgspec

from klaud import errors, names
from klaud.github import decode, decode_graphql, gateway, gitpush, gitwire, graphql, paging, refs, rest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from klaud import clock as clocks
    from klaud.github import sender

ROUNDS = 3
"""Mutations of one ``apply`` without ``atomic``: each further one answers refs that moved in the moment before."""

ZERO = gitpush.ZERO.decode()


class GraphqlRefStore:
    """``klaud.github.gateway.RefStore`` without the git protocol, on a gateway's own requests and limits."""

    def __init__(self, *, hub: rest.RestGateway, identity: refs.Identity, clock: clocks.Clock) -> None:
        """``hub``: the gateway of the repository; ``identity``: whom the record commits name."""
        self._hub = hub
        self._identity = identity
        self._clock = clock
        self._known: dict[str, gateway.CommitData | gateway.NotACommit] = {}
        self._lock = threading.Lock()
        self._pushes = self._fetches = 0
        self._repository_id = ""

    @property
    def pushes(self) -> int:
        """Mutations sent so far."""
        return self._pushes

    @property
    def fetches(self) -> int:
        """Listings and reads of commits so far."""
        return self._fetches

    # -- reads
    def list(self, prefixes: Sequence[str]) -> Mapping[str, str]:
        """Return every ref below the prefixes; ReadFailedError where the listing is not complete."""
        found: dict[str, str] = {}
        for prefix in dict.fromkeys(prefixes):
            self._count(fetches=1)
            below = prefix.removeprefix("refs/").rstrip("/")
            listing = self._hub.listing(
                "/git/matching-refs/{ref}", f"/git/matching-refs/{names.path_of_ref(below)}", decode.refs
            )
            if not listing.complete:
                raise errors.ReadFailedError(f"the refs below {prefix} could not be listed whole: {listing.why_not}")
            found |= {row.ref: row.oid for row in listing.items if row.ref.startswith(prefix)}
        return found

    def read(self, oids: Sequence[str], *, depth: int = 1) -> Mapping[str, gateway.CommitData | gateway.NotACommit]:
        """Return the commits and their first-parent ancestors, ``depth`` commits each; one request a commit."""
        answer: dict[str, gateway.CommitData | gateway.NotACommit] = {}
        for start in dict.fromkeys(oids):
            at: str | None = start
            for _ in range(depth):
                thing = None if at is None else self._commit(at)
                if at is None or thing is None:
                    break
                answer[at] = thing
                at = None if isinstance(thing, gateway.NotACommit) or not thing.parents else thing.parents[0]
        return answer

    def _commit(self, oid: str) -> gateway.CommitData | gateway.NotACommit | None:
        known = self._known.get(oid)
        if known is not None:
            return known
        self._count(fetches=1)
        answer = self._hub.ask("/git/commits/{commit_sha}", f"/git/commits/{names.path_segment(oid)}", (404, 422))
        if answer.status != 200:
            return None
        self._known[oid] = self._decoded(answer)
        return self._known[oid]

    def _decoded(self, answer: sender.Answer) -> gateway.CommitData | gateway.NotACommit:
        wire = paging.decode_or_fail(decode.commit, answer)
        if len(wire.message) > gitwire.MESSAGE_LIMIT:
            return gateway.NotACommit(wire.oid, f"a commit of more than {gitwire.MESSAGE_LIMIT} bytes")
        return gateway.CommitData(
            oid=wire.oid,
            message=wire.message.encode(),
            parents=wire.parents,
            tree_is_empty=wire.tree == gitwire.EMPTY_TREE,
            author=wire.author.encode(),
            committer=wire.committer.encode(),
        )

    # -- writes
    def write_commit(self, message: bytes, parents: Sequence[str] = ()) -> str:
        """Make a commit of the empty tree on the host, named by no ref yet; return its oid."""
        person = {
            "name": self._identity.name,
            "email": self._identity.email,
            "date": f"{self._clock.now():%Y-%m-%dT%H:%M:%SZ}",
        }
        fields = {
            "message": message.decode(),
            "tree": gitwire.EMPTY_TREE,
            "parents": list(parents),
            "author": person,
            "committer": person,
        }
        answer = self._hub.tell("/git/commits", "/git/commits", fields)
        thing = rest.unclear_if_undecodable(decode.commit, answer)
        self._known[thing.oid] = gateway.CommitData(
            thing.oid,
            message,
            tuple(parents),
            thing.tree == gitwire.EMPTY_TREE,
            thing.author.encode(),
            thing.committer.encode(),
        )
        return thing.oid

    def apply(self, updates: Sequence[gateway.RefUpdate], *, atomic: bool = False) -> Sequence[gateway.RefResult]:
        """Send all updates, each judged alone (or all together); one result for each, in order."""
        if len({update.ref for update in updates}) != len(updates):
            msg = "two updates of one ref at once"
            raise errors.BugError(msg)
        results: dict[str, gateway.RefResult] = {}
        left = list(updates)
        reason = ""
        for turn in range(1 if atomic else ROUNDS):
            judged = self._judge(left, atomic=atomic)
            if not turn and not atomic and _asks_for_the_right(updates, judged):
                judged = {}  # sent all the same: the host judges the right first
            results |= judged
            if turn and not judged:
                break
            left = [update for update in left if update.ref not in judged]
            if not left:
                break
            try:
                self._send(left)
            except errors.UnclearWriteError:
                results |= {update.ref: gateway.RefUnclear(update.ref) for update in left}
                left = []
                break
            except errors.RefusedWriteError as refused:
                reason = refused.reason
                continue
            results |= {update.ref: gateway.RefUpdated(update.ref) for update in left}
            left = []
            break
        if left:
            results |= self._refused(left, reason, atomic=atomic)
        return [results[update.ref] for update in updates]

    def _judge(self, updates: Sequence[gateway.RefUpdate], *, atomic: bool) -> dict[str, gateway.RefResult]:
        if not updates:
            return {}
        now = {ref.encode(): oid.encode() for ref, oid in self._stand(updates).items()}
        return gitpush.judge(updates, now, atomic=atomic)

    def _stand(self, updates: Sequence[gateway.RefUpdate]) -> Mapping[str, str]:
        """Return where the refs stand: one listing for each kind of ref among them, two names at most one each."""
        named = [update.ref for update in updates]
        found = self.list(named if len(named) <= 2 else sorted({_kind(ref) for ref in named}))
        return {ref: found[ref] for ref in named if ref in found}

    def _send(self, updates: Sequence[gateway.RefUpdate]) -> None:
        self._count(pushes=1)
        changes = [
            {"name": one.ref, "beforeOid": one.expected or ZERO, "afterOid": one.new or ZERO, "force": True}
            for one in updates
        ]
        self._hub.mutate(
            graphql.UPDATE_REFS, {"repository": self._id(), "updates": changes}, f"UpdateRefs x{len(updates)}"
        )

    def _refused(
        self, updates: Sequence[gateway.RefUpdate], reason: str, *, atomic: bool
    ) -> dict[str, gateway.RefResult]:
        """Say of each refused ref whether it moved or the host has a rule; alone, where that cannot be told together."""
        judged = self._judge(updates, atomic=False)
        moved: dict[str, gateway.RefResult] = {
            ref: result for ref, result in judged.items() if isinstance(result, gateway.RefSuperseded)
        }
        rest_of = [update for update in updates if update.ref not in moved]
        if atomic or len(rest_of) == 1:
            return moved | {one.ref: gateway.RefRejected(one.ref, reason[: gitpush.REASON_LIMIT]) for one in rest_of}
        for update in rest_of:
            moved |= {result.ref: result for result in self.apply([update])}
        return moved

    def _id(self) -> str:
        if not self._repository_id:
            owner, name = self._hub.owner, self._hub.name
            found = self._hub.query(graphql.REPOSITORY_ID, {"owner": owner, "name": name}, root="repository")
            try:
                self._repository_id = decode_graphql.identity(found, "id")
            except (decode.UndecodableError, msgspec.MsgspecError) as error:
                raise errors.ReadFailedError(f"the id of {owner}/{name} could not be read: {error}") from error
        return self._repository_id

    def _count(self, *, pushes: int = 0, fetches: int = 0) -> None:
        with self._lock:
            self._pushes += pushes
            self._fetches += fetches


def _asks_for_the_right(updates: Sequence[gateway.RefUpdate], judged: Mapping[str, gateway.RefResult]) -> bool:
    """Tell whether all that is asked for is to delete one ref that is not there: that is how a right is asked for."""
    return len(updates) == 1 and updates[0].new is None and judged.get(updates[0].ref) == _gone(updates[0].ref)


def _gone(ref: str) -> gateway.RefResult:
    return gateway.RefSuperseded(ref, None)


def _kind(ref: str) -> str:
    """Return the folder of a ref's kind: ``refs/klaud/claims/``, ``refs/heads/klaud/``, or the ref itself."""
    parts = ref.split("/")
    return "/".join(parts[:3]) + "/" if len(parts) > 3 else ref
