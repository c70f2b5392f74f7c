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

MESSAGE_LIMIT = 128 * 1024
"""Bytes of one commit object: twice what a record may have, so that the record's own limit is what speaks."""

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


class HttpStatusError(Exception):
    """The host answered with a status other than 200. ``after`` is its Retry-After in seconds, or None."""

    def __init__(self, status: int, what: str, after: float | None) -> None:
        """Keep the status; ``what`` names the request without credentials."""
        super().__init__(f"{what}: HTTP {status}")
        self.status = status
        self.after = after


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
        self.traffic = 0
        self.progress: list[bytes] = []
        self.heard = b""
        """The first KiB of the newest answer: dulwich swallows an ``ERR`` line of a protocol-2 fetch."""
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
        """Keep what the host says beside the protocol, at most 4 KiB of it."""
        if sum(map(len, self.progress)) < 4096:
            self.progress.append(text[:4096])

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
            if len(self.heard) < 1024:
                self.heard += got[:1024]
            return got

        return response, counted


def _status_error(status: int, url: str, headers: Mapping[str, str]) -> Exception:
    what = url.partition("?")[0]
    retry_after = headers.get("Retry-After", "")
    after = float(retry_after) if retry_after.isdigit() else None
    if status == 401 or (status == 403 and after is None):
        return errors.ForbiddenError(
            f"the git host refused the token (HTTP {status}) at {what}",
            advice="Give the token the permission 'contents' (read to look, write to act) on this repository.",
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
    """Raise PackTooLargeError where a pack's objects say they are larger than ``INFLATED_LIMIT`` together.

    dulwich holds an object to the size that its header says, so the sum of those sizes bounds the memory of unpacking.
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
            at = _end_of_stream(data, at)
    except IndexError as error:
        msg = "a pack that ends before its last object"
        raise dulwich.errors.GitProtocolError(msg) from error


def _end_of_stream(data: bytes, at: int) -> int:
    """Return where the zlib stream that begins at ``at`` ends; what it holds is dropped piece by piece."""
    inflating = zlib.decompressobj()
    while not inflating.eof:
        piece = inflating.unconsumed_tail
        if not piece:
            piece = data[at : at + 4096]
            at += len(piece)
            if not piece:
                raise IndexError
        inflating.decompress(piece, 64 * 1024)
    return at - len(inflating.unused_data)


def unpack(buffer: io.BytesIO) -> Iterator[tuple[str, gateway.CommitData | gateway.NotACommit]]:
    """Yield every object of a fetched pack that a ref may point at: commits and tags (trees and blobs are skipped)."""
    size = buffer.tell()
    if size == 0:
        return
    check_inflated(buffer.getvalue())
    buffer.seek(0)
    data = pack.PackData.from_file(buffer, object_format.DEFAULT_OBJECT_FORMAT, size)
    try:
        for thing in pack.PackInflater.for_pack_data(data):
            oid = thing.id.decode()
            if isinstance(thing, objects.Commit):
                yield oid, commit_data(oid, thing)
            elif isinstance(thing, objects.Tag):
                yield oid, gateway.NotACommit(oid, "a tag, not a commit")
            elif isinstance(thing, objects.Blob):
                yield oid, gateway.NotACommit(oid, "a blob, not a commit")
            elif isinstance(thing, objects.Tree):
                yield oid, gateway.NotACommit(oid, "a tree, not a commit")
    finally:
        data.close()


def commit_data(oid: str, commit: objects.Commit) -> gateway.CommitData | gateway.NotACommit:
    """Return a commit as the ref store hands it out; NotACommit where it is too large or cannot be parsed."""
    if commit.raw_length() > MESSAGE_LIMIT:
        return gateway.NotACommit(oid, f"a commit of more than {MESSAGE_LIMIT} bytes")
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
