"""One conversation with a git host over HTTP: dulwich's client with klaud's bounds, statuses and counts.

A ``Conversation`` serves one call (dulwich keeps a push's status on the client). The token travels as a basic
authorization header to the host it was configured for and nowhere else: never in a URL, an argument list or a log.
Statuses become errors here: 401 and 403 are ``ForbiddenError``, everything else that is not 200 is ``HttpStatusError``
or a broken connection, and the caller decides what that means for a read or for a push. No promise about ``http.*``
settings of a git configuration: none is read.
"""

from __future__ import annotations

import functools
import io
import zlib
from typing import TYPE_CHECKING, Any, Self

import dulwich.errors
import urllib3
import urllib3.exceptions
from dulwich import client, object_format, objects, pack

from klaud import errors
from klaud.github import gateway

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from types import TracebackType

TIMEOUT = 60.0
"""Seconds to connect, and between two bytes: a host that is silent for a minute has lost the request."""

PACK_LIMIT = 64 * 1024 * 1024
"""Bytes of one fetched pack: 100,000 records are about 20 MB; more is somebody's history behind a record's name."""

INFLATED_LIMIT = 256 * 1024 * 1024
"""Bytes of all objects of one fetched pack together: 64 MiB of deflate can hold 64 GiB of one repeated letter."""

DELTA_LIMIT = 1024 * 1024
"""Bytes of one delta: those between commits have some hundred; reading a larger one's steps would take seconds."""

MESSAGE_LIMIT = 128 * 1024
"""Bytes of one commit object: twice what a record may have, so that the record's own limit is what speaks."""

ANSWER_LIMIT = 2 * PACK_LIMIT
"""Bytes of all answers of one conversation: a listing of a million refs, or the largest pack with its listing."""

POST_BUFFER = 32 * 1024 * 1024
"""Bytes of a push that are sent with their length known: GitHub refuses some chunked pushes; records never come near."""

EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
"""The oid of the tree without entries, the same in every repository (SHA-1)."""

TRANSPORT_ERRORS = (
    dulwich.errors.HangupException,
    dulwich.errors.GitProtocolError,
    urllib3.exceptions.HTTPError,
    ConnectionError,
    TimeoutError,
    OSError,
    AssertionError,
    ValueError,
    zlib.error,
)
"""What dulwich and urllib3 raise for a host that answers badly or not at all (assertions and ValueError included)."""

PACK_ERRORS = (
    dulwich.errors.FileFormatException,
    dulwich.errors.ApplyDeltaError,
    dulwich.errors.ChecksumMismatch,
    pack.UnresolvedDeltas,
    KeyError,
    IndexError,
)
"""What dulwich raises for a pack that is damaged or does not hold together, besides ``TRANSPORT_ERRORS``."""

NOTE_LIMIT = 4096
"""Bytes kept of what a host says beside the protocol: a hook's refusal, not its log."""

HEARD_LIMIT = 1024
"""Bytes kept of an answer's beginning, where an ``ERR`` line stands."""


class HttpStatusError(Exception):
    """The host answered with a status other than 200. ``after`` is its Retry-After in seconds, or None."""

    def __init__(self, status: int, what: str, after: float | None) -> None:
        """Keep the status; ``what`` names the request without credentials."""
        super().__init__(f"{what}: HTTP {status}")
        self.status = status
        self.after = after


class AnswerTooLargeError(dulwich.errors.GitProtocolError):
    """A host's answers passed ``ANSWER_LIMIT``."""


class PackTooLargeError(Exception):
    """A fetched pack passed ``PACK_LIMIT``, or its objects together ``INFLATED_LIMIT``."""


class Conversation(client.Urllib3HttpGitClient):
    """dulwich's HTTP client for one call; close it by using it in a ``with`` statement.

    ``posted`` is True from the moment on which a push may have reached the host; ``traffic`` counts bytes both ways.
    """

    def __init__(self, url: str, token: str) -> None:
        """``url`` is the repository's address without credentials; an empty token sends none."""
        retries = urllib3.Retry(total=3, connect=0, read=0, redirect=2, status=0, other=0)
        manager = client.default_urllib3_manager(
            None,
            base_url=url,
            timeout=TIMEOUT,
            pool_manager_cls=functools.partial(urllib3.PoolManager, retries=retries),  # type: ignore[arg-type]
            proxy_manager_cls=functools.partial(urllib3.ProxyManager, retries=retries),  # type: ignore[arg-type]
        )
        credentials = {"username": "x-access-token", "password": token} if token else {}
        super().__init__(url, pool_manager=manager, thin_packs=False, quiet=True, timeout=TIMEOUT, **credentials)  # type: ignore[arg-type]
        self.posted = False
        self.traffic = self.received = 0
        self.progress: list[bytes] = []
        self.heard = b""
        """The first ``HEARD_LIMIT`` bytes of the newest answer: dulwich swallows an ``ERR`` line of a protocol-2 fetch."""
        self._answers: list[Any] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for answer in self._answers:
            answer.close()
        self.pool_manager.clear()

    def note(self, text: bytes) -> None:
        """Keep what the host says beside the protocol, at most ``NOTE_LIMIT`` bytes of it."""
        left = NOTE_LIMIT - sum(map(len, self.progress))
        if left > 0:
            self.progress.append(text[:left])

    def _post_buffer_size(self, url: str) -> int:
        del url
        return POST_BUFFER

    def _http_request(
        self,
        url: str,
        headers: dict[str, str] | None = None,
        data: bytes | Iterator[bytes] | None = None,
        raise_for_status: bool = True,
    ) -> tuple[Any, Callable[[int], bytes]]:
        del raise_for_status
        if data is not None:
            self.posted = True
            if isinstance(data, bytes):
                self.traffic += len(data)
        response, read = super()._http_request(url, headers, data, raise_for_status=False)
        self._answers.append(response)
        status: int = response.status
        if status != 200:
            raise _status_error(status, url, response.headers)
        service = url.partition("?service=")[2]
        if service and response.content_type != f"application/x-{service}-advertisement":
            # dulwich would take any other answer, an empty page included, for a listing of the old "dumb" protocol
            msg = f"{url.partition('?')[0]} does not answer as a git host ({response.content_type})"
            raise dulwich.errors.GitProtocolError(msg)

        self.heard = b""

        def counted(amount: int) -> bytes:
            got = read(amount)
            self.traffic += len(got)
            self.received += len(got)
            if self.received > ANSWER_LIMIT:
                msg = f"its answers are longer than the limit of {ANSWER_LIMIT} bytes"
                raise AnswerTooLargeError(msg)
            self.heard += got[: HEARD_LIMIT - len(self.heard)]
            return got

        return response, counted


def _status_error(status: int, url: str, headers: Mapping[str, str]) -> Exception:
    what = url.partition("?")[0]
    retry_after = headers.get("Retry-After", "")
    after = float(retry_after) if retry_after.isascii() and retry_after.isdigit() else None
    if status == 401 or (status == 403 and after is None):
        needed = "the permission 'contents' (read to look, write to act) on this repository"
        return errors.ForbiddenError(
            f"the git host refused the token (HTTP {status}) at {what}",
            advice=f"Set KLAUD_TOKEN to a valid token with {needed}." if status == 401 else f"Give the token {needed}.",
        )
    return HttpStatusError(status, what, after)


class NoHaves:
    """The graph walker of a client that has nothing."""

    shallow: set[bytes] = set()  # noqa: RUF012 - dulwich reads this attribute; it stays empty

    def __next__(self) -> None:
        return None

    def __iter__(self) -> NoHaves:
        return self

    def ack(self, oid: bytes) -> None:
        """Ignore an acknowledgement."""

    def nak(self) -> None:
        """Ignore a refusal."""


class BoundedBuffer(io.BytesIO):
    """A buffer that refuses to grow beyond ``PACK_LIMIT``."""

    def take(self, data: bytes) -> int:
        """Append ``data``; PackTooLargeError above the limit."""
        if self.tell() + len(data) > PACK_LIMIT:
            raise PackTooLargeError
        return self.write(data)


def check_inflated(data: bytes) -> None:
    """Raise PackTooLargeError where a pack's objects are larger than ``INFLATED_LIMIT`` together.

    dulwich holds an object to the size that its header says, so the sum of those sizes bounds the memory of unpacking. A
    delta's header tells of the delta alone: what its steps would write is added up, since dulwich counts that afterwards.
    """
    total, at = 0, 12
    try:
        for _ in range(int.from_bytes(data[8:12], "big")):
            byte, shift = data[at], 4
            kind, size = (byte >> 4) & 7, byte & 15
            at += 1
            while byte & 0x80:
                byte = data[at]
                size |= (byte & 0x7F) << shift
                at, shift = at + 1, shift + 7
            total += size
            if total > INFLATED_LIMIT:
                raise PackTooLargeError
            if kind == pack.OFS_DELTA:
                while data[at] & 0x80:
                    at += 1
                at += 1
            elif kind == pack.REF_DELTA:
                at += 20
            deltified = kind in {pack.OFS_DELTA, pack.REF_DELTA}
            if deltified and size > DELTA_LIMIT:
                raise PackTooLargeError
            at, steps = _end_of_stream(data, at, keep=size if deltified else 0)
            total += _written_by(steps, INFLATED_LIMIT - total)
            if total > INFLATED_LIMIT:
                raise PackTooLargeError
    except IndexError as error:
        msg = "a pack that ends before its last object"
        raise dulwich.errors.GitProtocolError(msg) from error


def _written_by(delta: bytes, limit: int) -> int:
    """Return how many bytes the steps of a delta write, not counted on above ``limit``; 0 for no delta."""
    at = written = 0
    for _ in range(2 if delta else 0):  # the sizes of base and result, which nobody has checked
        while delta[at] & 0x80:
            at += 1
        at += 1
    while at < len(delta) and written <= limit:
        step = delta[at]
        at += 1
        if step & 0x80:
            at += (step & 0x0F).bit_count()
            size = 0
            for place in range(3):
                if step & (0x10 << place):
                    size |= delta[at] << (8 * place)
                    at += 1
            written += size or 0x10000
        else:
            at += step
            written += step
    return written


def _end_of_stream(data: bytes, at: int, *, keep: int) -> tuple[int, bytes]:
    """Return where the zlib stream that begins at ``at`` ends, and its first ``keep`` bytes; the rest is dropped."""
    inflating = zlib.decompressobj()
    kept = bytearray()
    while not inflating.eof:
        piece = inflating.unconsumed_tail
        if not piece:
            piece = data[at : at + 4096]
            at += len(piece)
            if not piece:
                raise IndexError
        got = inflating.decompress(piece, 64 * 1024)
        kept += got[: keep - len(kept)]
    return at - len(inflating.unused_data), bytes(kept)


class _Inflater(pack.PackInflater):
    """dulwich's, where an object that cannot be parsed spoils itself and nothing else."""

    def _result(self, unpacked: pack.UnpackedObject) -> Any:
        try:
            return super()._result(unpacked)
        except (dulwich.errors.ObjectFormatException, AssertionError, ValueError):
            return gateway.NotACommit(unpacked.sha().hex(), "an object that cannot be parsed")


def unpack(buffer: io.BytesIO) -> Iterator[tuple[str, gateway.CommitData | gateway.NotACommit]]:
    """Yield every object of a fetched pack that a ref may point at, in whatever kind it is.

    PackTooLargeError above the bounds; GitProtocolError (or another of ``TRANSPORT_ERRORS``) for a damaged pack.
    """
    size = buffer.tell()
    if size == 0:
        return
    check_inflated(buffer.getvalue())
    buffer.seek(0)
    data = pack.PackData.from_file(buffer, object_format.DEFAULT_OBJECT_FORMAT, size)
    try:
        things: Iterator[Any] = iter(_Inflater.for_pack_data(data))
        for thing in things:
            if isinstance(thing, gateway.NotACommit):
                yield thing.oid, thing
                continue
            oid = thing.id.decode()
            if isinstance(thing, objects.Commit):
                yield oid, commit_data(oid, thing)
            elif isinstance(thing, objects.Tag):
                yield oid, gateway.NotACommit(oid, "a tag, not a commit")
            elif isinstance(thing, objects.Blob):
                yield oid, gateway.NotACommit(oid, "a blob, not a commit")
            elif isinstance(thing, objects.Tree):
                yield oid, gateway.NotACommit(oid, "a tree, not a commit")
    except PACK_ERRORS as error:
        msg = f"a pack that cannot be read ({type(error).__name__})"
        raise dulwich.errors.GitProtocolError(msg) from error
    finally:
        data.close()


def commit_data(oid: str, commit: objects.Commit) -> gateway.CommitData | gateway.NotACommit:
    """Return a commit as the ref store hands it out; NotACommit where it is too large or cannot be parsed."""
    if commit.raw_length() > MESSAGE_LIMIT:
        return gateway.NotACommit(oid, f"a commit of more than {MESSAGE_LIMIT} bytes")
    if commit.author is None or commit.committer is None:
        return gateway.NotACommit(oid, "a commit without author or committer")
    try:
        return gateway.CommitData(
            oid=oid,
            message=commit.message,
            parents=tuple(parent.decode() for parent in commit.parents),
            tree_is_empty=commit.tree.decode() == EMPTY_TREE,
            author=commit.author,
            committer=commit.committer,
        )
    except (dulwich.errors.ObjectFormatException, UnicodeDecodeError, AttributeError, ValueError) as error:
        return gateway.NotACommit(oid, f"a commit that cannot be parsed ({type(error).__name__})")


def records_of(commits: Iterable[objects.ShaFile]) -> tuple[int, Iterator[pack.UnpackedObject]]:
    """Return pack data of these objects, undeltified: records are small and unlike each other."""
    whole = list(commits)
    return len(whole), iter([pack.full_unpacked_object(thing) for thing in whole])
