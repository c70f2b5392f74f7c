"""The ref store over the git protocol: compare-and-swap in the push, in process, with dulwich.

Theory: every command of a push carries the oid it was decided on (zero: "must not exist"), and the host checks it when it
locks the ref. What the host advertises at the start of the push is compared here first, so that a stale expectation costs
no write; what changes between that and the lock is refused by the host, and one more listing tells moved from rejected.

Promises: one listing for ``list``, one fetch for ``read``, one push per ``batch`` updates for ``apply``; no push is sent
twice; an answer that did not come is ``RefUnclear``. The token stays in memory (see ``gitwire``). Non-promises: no git
program, no repository on disk, no merge or fast-forward rule: an update may move a ref anywhere.
"""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import dulwich.errors
import msgspec
from dulwich import object_store as stores
from dulwich import objects

from klaud import errors
from klaud.github import gateway, gitpush, gitwire, retry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from dulwich import pack

    from klaud import clock as clocks
    from klaud.github import app

T = TypeVar("T")

Results: TypeAlias = "list[gateway.RefResult]"

LOST_WANTS = 16
"""Oids that one ``read`` may find to be gone from the host; more means that something else is wrong."""

_NOT_OUR_REF = re.compile(r"not our ref ([0-9a-f]{40})")


class Identity(msgspec.Struct, frozen=True):
    """Who the record commits name as author and committer: klaud's own account."""

    name: str
    email: str


class GitRefStore:
    """``klaud.github.gateway.RefStore`` on one repository of a git host. Safe to share between threads."""

    def __init__(
        self,
        *,
        url: str,
        token: str | app.AppToken,
        identity: Identity,
        clock: clocks.Clock,
        object_store: stores.BaseObjectStore | None = None,
        shallow: frozenset[str] = frozenset(),
        batch: int = 1000,
        policy: retry.Policy | None = None,
    ) -> None:
        """Make a store; nothing is sent yet.

        ``url``: the repository's HTTP address without credentials. ``object_store``: where commits of a working copy
        lie that a push may name (``shallow``: its commits without parents). ``batch``: updates a push.
        """
        self._url = url
        self._token = token
        self._identity = identity
        self._clock = clock
        self._disk = object_store
        self._shallow = {oid.encode() for oid in shallow}
        self._batch = batch
        self._policy = policy or retry.Policy()
        self._own = stores.MemoryObjectStore()
        self._own.add_object(objects.Tree())
        self._known: dict[str, gateway.CommitData | gateway.NotACommit] = {}
        self._lock = threading.Lock()
        self._pushes = self._fetches = self._traffic = 0

    @property
    def pushes(self) -> int:
        """Pushes sent so far."""
        return self._pushes

    @property
    def fetches(self) -> int:
        """Ref listings and fetches so far."""
        return self._fetches

    @property
    def traffic(self) -> int:
        """Bytes sent and received so far, without HTTP headers."""
        return self._traffic

    def _secret(self) -> str:
        return self._token if isinstance(self._token, str) else self._token()

    # -- reads
    def list(self, prefixes: Sequence[str]) -> Mapping[str, str]:
        """Return every ref below the prefixes, freshly from the host."""
        wanted = tuple(prefixes)

        def ask(talk: gitwire.Conversation) -> dict[str, str]:
            answer = talk.get_refs(b"", ref_prefix=[prefix.encode() for prefix in wanted])
            found: dict[str, str] = {}
            for name, oid in answer.refs.items():
                ref = name.decode("utf-8", "backslashreplace")  # git allows no backslash: this is nobody's name
                if oid is not None and ref.startswith(wanted) and not ref.endswith("^{}"):
                    found[ref] = oid.decode()
            return found

        return self._read(ask, "list the refs")

    def read(self, oids: Sequence[str], *, depth: int = 1) -> Mapping[str, gateway.CommitData | gateway.NotACommit]:
        """Return the commits, with first-parent ancestors up to ``depth`` commits each; see the protocol."""
        wanted = list(dict.fromkeys(oids))
        missing = [oid for oid in wanted if not self._reached(oid, depth)]
        if missing:
            self._fetch(missing, depth)
        answer: dict[str, gateway.CommitData | gateway.NotACommit] = {}
        for oid in wanted:
            answer.update(self._chain(oid, depth))
        return answer

    def _chain(self, oid: str, depth: int) -> Iterator[tuple[str, gateway.CommitData | gateway.NotACommit]]:
        for _ in range(depth):
            thing = self._known.get(oid)
            if thing is None:
                return
            yield oid, thing
            if isinstance(thing, gateway.NotACommit) or not thing.parents:
                return
            oid = thing.parents[0]

    def _reached(self, oid: str, depth: int) -> bool:
        """Tell whether what is known answers for ``oid`` without a fetch."""
        for _ in range(depth):
            thing = self._known.get(oid)
            if thing is None:
                return False
            if isinstance(thing, gateway.NotACommit) or not thing.parents:
                return True
            oid = thing.parents[0]
        return True

    def _fetch(self, oids: Sequence[str], depth: int) -> None:
        wants = list(oids)
        for _ in range(LOST_WANTS):
            if not wants:
                return
            lost = self._fetch_once(wants, depth)
            if lost is None:
                return
            wants = [oid for oid in wants if oid != lost]
        msg = f"the git host no longer has more than {LOST_WANTS} of the commits that its own refs named ({self._url})"
        raise errors.ReadFailedError(msg)

    def _fetch_once(self, wants: Sequence[str], depth: int) -> str | None:
        """Fetch all of ``wants``; return the oid that the host no longer has, if it said so."""

        def ask(talk: gitwire.Conversation) -> str | None:
            buffer = gitwire.BoundedBuffer()
            try:
                talk.fetch_pack(
                    b"",
                    lambda _refs, depth=None: [objects.ObjectID(oid.encode()) for oid in wants],  # noqa: ARG005 - dulwich's name
                    gitwire.NoHaves(),
                    buffer.take,
                    depth=depth,
                    ref_prefix=[b"refs/klaud-asks-for-no-ref"],
                    filter_spec=b"tree:0",
                )
            except gitwire.TRANSPORT_ERRORS as error:
                if match := _NOT_OUR_REF.search(f"{error} {talk.heard.decode('latin-1')}"):
                    return match[1]
                raise
            for oid, thing in gitwire.unpack(buffer):
                self._known.setdefault(oid, thing)
            for oid in wants:
                self._known.setdefault(oid, gateway.NotACommit(oid, "not a commit"))
            return None

        try:
            return self._read(ask, f"fetch {len(wants)} commits")
        except gitwire.PackTooLargeError:
            if len(wants) == 1:
                self._known[wants[0]] = gateway.NotACommit(wants[0], "its history is above the size limit of a fetch")
                return None
        half = len(wants) // 2
        self._fetch(wants[:half], depth)
        self._fetch(wants[half:], depth)
        return None

    def _read(self, ask: Callable[[gitwire.Conversation], T], what: str) -> T:
        def attempt() -> T:
            with gitwire.Conversation(self._url, self._secret()) as talk:
                try:
                    return ask(talk)
                except gitwire.PackTooLargeError:
                    raise
                except dulwich.errors.NotGitRepository as error:  # pragma: no cover - HttpStatusError comes first
                    raise self._unreadable(what, error) from error
                except gitwire.HttpStatusError as error:
                    failed = self._unreadable(what, error)
                    if error.status >= 500 or error.status in {403, 408, 429}:
                        kind: retry.Wait = "backoff" if error.after is None else "retry-after"
                        raise retry.Again(failed, wait=kind, seconds=error.after or 0.0) from error
                    raise failed from error
                except gitwire.AnswerTooLargeError as error:
                    raise self._unreadable(what, error) from error
                except gitwire.TRANSPORT_ERRORS as error:
                    raise retry.Again(self._unreadable(what, error)) from error
                finally:
                    self._count(fetches=1, traffic=talk.traffic)

        return retry.call(attempt, policy=self._policy, clock=self._clock)

    def _unreadable(self, what: str, error: Exception) -> errors.KlaudError:
        if isinstance(error, gitwire.HttpStatusError) and error.status == 404:
            # as REST's 404 of the repository: waiting does not help, and nothing is known of any ref
            return errors.ForbiddenError(
                f"could not {what} at {self._url} (HTTP 404): there is no such repository, or the token may not see it",
                advice="Check the repository's name (GITHUB_REPOSITORY), and that the token may read it.",
            )
        return errors.ReadFailedError(f"could not {what} at {self._url}: {gitpush.words(error)}")

    # -- writes
    def write_commit(self, message: bytes, parents: Sequence[str] = ()) -> str:
        """Make a commit of the empty tree in memory; the update that names it carries it to the host."""
        commit = objects.Commit()
        commit.tree = objects.ObjectID(gitwire.EMPTY_TREE.encode())
        commit.parents = [objects.ObjectID(parent.encode()) for parent in parents]
        commit.author = commit.committer = f"{self._identity.name} <{self._identity.email}>".encode()
        commit.author_time = commit.commit_time = int(self._clock.now().timestamp())
        commit.author_timezone = commit.commit_timezone = 0
        commit.message = message
        oid = commit.id.decode()
        self._own.add_object(commit)
        self._known[oid] = gitwire.commit_data(oid, commit)
        return oid

    def apply(self, updates: Sequence[gateway.RefUpdate], *, atomic: bool = False) -> Sequence[gateway.RefResult]:
        """Send all updates, each judged alone (or all together); one result for each, in order."""
        results: dict[str, gateway.RefResult] = {}
        if len({update.ref for update in updates}) != len(updates):
            msg = "two updates of one ref in one push"
            raise errors.BugError(msg)
        queue = [list(updates)] if atomic else gitpush.parts(list(updates), self._batch)
        sent_before = False
        while queue:
            part = queue.pop(0)
            try:
                answer: Sequence[gateway.RefResult] = self._push(part, atomic=atomic)
            except (errors.ReadFailedError, errors.ForbiddenError):
                if not sent_before:
                    raise
                answer = [gateway.RefUnclear(update.ref) for update in part]
            except gitpush.TooManyRefsError as many:
                queue[:0] = gitpush.parts(list(many.left), max(1, len(many.left) // 2))
                answer = many.settled
            sent_before = sent_before or bool(answer)
            results.update({result.ref: result for result in answer})
        return [results[update.ref] for update in updates]

    def _push(self, updates: Sequence[gateway.RefUpdate], *, atomic: bool) -> Results:
        if not updates:
            return []
        judged: dict[str, gateway.RefResult] = {}

        def choose(advertised: dict[objects.ObjectID, objects.ObjectID]) -> dict[bytes, bytes]:
            judged.update(
                gitpush.judge(
                    updates, {name: oid for name, oid in advertised.items() if oid != gitpush.ZERO}, atomic=atomic
                )
            )
            return {
                update.ref.encode(): (update.new or gitpush.ZERO.decode()).encode()
                for update in updates
                if update.ref not in judged
            }

        with gitwire.Conversation(self._url, self._secret()) as talk:
            try:
                answer = talk.send_pack(b"", choose, self._pack, progress=talk.note, atomic=atomic)  # type: ignore[arg-type]
                said = dict(answer.ref_status or {})
            except dulwich.errors.SendPackError as error:
                said = {update.ref.encode(): gitpush.words(error) for update in updates}
            except gitwire.HttpStatusError as error:
                if not talk.posted:
                    raise self._unreadable("open a push", error) from error
                clear = error.status < 500 and error.status != 408  # a time-out may come after the effect
                said = {update.ref.encode(): f"HTTP {error.status}" for update in updates} if clear else {}
            except gitwire.TRANSPORT_ERRORS as error:
                if not talk.posted:
                    raise self._unreadable("open a push", error) from error
                said = {}
            finally:
                self._count(pushes=int(talk.posted), fetches=int(not talk.posted), traffic=talk.traffic)
            spoken = b"".join(talk.progress).decode("utf-8", "replace")
        return self._settle(updates, judged, said, spoken, atomic=atomic)

    def _settle(
        self,
        updates: Sequence[gateway.RefUpdate],
        judged: Mapping[str, gateway.RefResult],
        said: Mapping[bytes, str | None],
        spoken: str,
        *,
        atomic: bool,
    ) -> Results:
        refused = [u for u in updates if u.ref not in judged and said.get(u.ref.encode()) is not None]
        texts = {u.ref: str(said[u.ref.encode()]) for u in refused}
        pushed = sum(update.ref not in judged for update in updates)
        if refused and pushed > 1 and not atomic and gitpush.too_many(spoken, set(texts.values())):
            others = [update for update in updates if update.ref not in texts]
            raise gitpush.TooManyRefsError(self._settle(others, judged, said, spoken, atomic=atomic), refused)
        now = self._now_of(refused)
        results: Results = []
        for update in updates:
            if update.ref in judged:
                results.append(judged[update.ref])
            elif update.ref in texts:
                if now is not None and now.get(update.ref) != update.expected:
                    results.append(gateway.RefSuperseded(update.ref, now.get(update.ref)))
                else:
                    words = f"{texts[update.ref]}; {spoken}" if spoken.strip() else texts[update.ref]
                    results.append(gateway.RefRejected(update.ref, " ".join(words.split())[: gitpush.REASON_LIMIT]))
            elif update.ref.encode() in said:
                results.append(gateway.RefUpdated(update.ref))
            else:
                results.append(gateway.RefUnclear(update.ref))
        return results

    def _now_of(self, refused: Sequence[gateway.RefUpdate]) -> Mapping[str, str] | None:
        """List the refused refs once: a lock that failed because the ref moved is not a refusal."""
        if not refused:
            return {}
        try:
            return self.list([update.ref for update in refused])
        except errors.KlaudError:
            return None

    def _pack(
        self,
        have: set[objects.ObjectID],
        want: set[objects.ObjectID],
        *,
        ofs_delta: bool = False,
        progress: object = None,
    ) -> tuple[int, Iterator[pack.UnpackedObject]]:
        """Return the objects that the host needs for ``want``; what is not here, the host must have already."""
        del progress
        own = gitpush.own_commits(self._own, have, want)
        if self._disk is None or not any(oid in self._disk for oid in want if oid not in self._own):
            return gitwire.records_of([*own, self._own[objects.ObjectID(gitwire.EMPTY_TREE.encode())]] if own else [])
        both = stores.OverlayObjectStore([self._own, self._disk])
        local = {oid for oid in want if self._here(oid)}
        # a record's parent may be known to the host only: there the walk ends, as at a shallow commit
        made = (self._own[oid] for oid in self._own)
        ends = {c.id for c in made if isinstance(c, objects.Commit) and not all(map(self._here, c.parents))}
        return both.generate_pack_data(have, local, shallow=self._shallow | ends, ofs_delta=ofs_delta)  # type: ignore[arg-type]

    def _here(self, oid: objects.ObjectID) -> bool:
        """Tell whether an object is in memory or in the working copy (an overlay looks at loose objects only)."""
        return oid in self._own or (self._disk is not None and oid in self._disk)

    def _count(self, *, pushes: int = 0, fetches: int = 0, traffic: int = 0) -> None:
        with self._lock:
            self._pushes += pushes
            self._fetches += fetches
            self._traffic += traffic
