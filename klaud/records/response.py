"""The one owner of one HTTP response: it opens it, reads it, and closes it exactly once, whatever happens.

States: ``OPENING`` (may be tried again, see ``acquire``) -> ``HANDED_OFF`` (one GET, no sleep, nothing is tried again)
-> ``EXHAUSTED | FAILED | CLOSED``. What is handed off has status 200 and a body whose end can be told: a declared length
or chunked encoding, in plain bytes or gzip. A body that ends early is an error, also inside gzip, where other readers are
silent.

Promises: bytes are decoded bytes, at most what was asked for at once, so that a compression bomb stops at the framer's
file limit; the idle limit counts waiting for the network only; an error holds nothing of the answer, nor does a frame it
passes through. The caller's own exception passes through as the same object. Closing takes at most 5 s and never raises:
the connection is given up, and ``close_failed`` says so.

Non-promise: the caller's deadline is looked at between waits for the network; one wait may outlast it by the idle limit,
and a host that sends its headers byte by byte is waited for as long as it does.
"""

from __future__ import annotations

import enum
import random
import zlib
from typing import TYPE_CHECKING, Any, Self

import urllib3

from klaud.records import acquire, errors
from klaud.records.limits import Limits

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    import requests

    from klaud.clock import Clock
    from klaud.records import call as calls

GZIP = 16 + zlib.MAX_WBITS

COMPRESSION = 2
"""How much larger than its limit a file may be in compressed bytes: those may decode to nothing at all, without end."""


class State(enum.Enum):
    """Where a response is in its life."""

    OPENING = "opening"
    HANDED_OFF = "handed-off"
    EXHAUSTED = "exhausted"
    FAILED = "failed"
    CLOSED = "closed"


class Response:
    """One GET's response as a readable file; use it as a context manager. ``read`` returns ``b""`` at the end."""

    def __init__(
        self,
        session: requests.Session,
        call: calls.Call,
        clock: Clock,
        limits: Limits | None = None,
        policy: acquire.Policy | None = None,
        *,
        deadline: float | None = None,
        limit_bytes: int | None = None,
        file_kind: str = "",
        chance: Callable[[], float] = random.random,
    ) -> None:
        """``limit_bytes``: what the declared length of a small answer may be; else it is a file's, under the file limit."""
        self._session: requests.Session | None = session
        self._call: calls.Call | None = call
        self._clock = clock
        self._limits = limits or Limits()
        self._policy = policy or acquire.Policy()
        self._deadline = deadline
        self._small = limit_bytes is not None
        self._limit_bytes = limit_bytes or self._limits.file_bytes
        self._file_kind = file_kind
        self._chance = chance
        self._response: requests.Response | None = None
        self._raw: Any = None
        self._gzip: Any = None
        self._compressed = b""
        self._arrived = 0
        self.state = State.OPENING
        self.requests = 0
        self.sleeps = 0
        self.closes = 0
        self.close_failed = False
        self.bytes_read = 0
        self.content_type = ""

    def __enter__(self) -> Self:
        """Open, within the retry policy."""
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close; the exception passes as it is."""
        self.close()

    def open(self) -> None:
        """Get the response: the only part that is ever tried again, and only for a GET. May raise UnclearWriteError."""
        session, call, self._session, self._call = self._session, self._call, None, None
        if session is None or call is None or self.state is not State.OPENING:
            raise errors.StreamError("this response was already opened", code="stream-closed")
        idle = self._limits.idle_seconds
        if call.method == "GET":
            got = acquire.get(
                session,
                call,
                self._policy,
                self._clock,
                idle_seconds=idle,
                deadline=self._deadline,
                chance=self._chance,
            )
        else:
            got = acquire.send(session, call, self._policy, idle_seconds=idle)
        self.requests, self.sleeps, self.closes = got.requests, got.sleeps, got.closes
        fault = got.fault
        if got.response is not None:
            self._response, self._raw = got.response, got.response.raw
            fault = self._inspect(got.response)
        del got, call, session
        if fault is not None:
            self._end(State.FAILED)
            raise fault
        self.state = State.HANDED_OFF

    def read(self, size: int) -> bytes:
        """Return from one to ``size`` decoded bytes as soon as there are any, or ``b""`` at the end of a whole body."""
        if self.state is State.EXHAUSTED:
            return b""
        if self.state is not State.HANDED_OFF:
            raise errors.StreamError("this response is closed", code="stream-closed")
        fault: errors.StreamError | None = None
        data = b""
        try:
            while True:
                if self._deadline is not None and self._clock.monotonic() >= self._deadline:
                    fault = acquire.past_deadline()
                    break
                found = self._plain(size) if self._gzip is None else self._unzipped(size)
                if found is not None:
                    data, found = found, None
                    break
                if self._arrived > COMPRESSION * self._limit_bytes + size:
                    fault = self._too_large()
                    break
        except urllib3.exceptions.ReadTimeoutError:
            fault = errors.StreamError(
                f"the host sent nothing for {self._limits.idle_seconds} s",
                code="read-timeout",
                details={"timeout_seconds": self._limits.idle_seconds, **self._where()},
            )
        except zlib.error:
            fault = self._broken("DecodeError")
        except (urllib3.exceptions.HTTPError, OSError, ValueError):
            fault = self._broken("ConnectionError")
        except BaseException:
            self._end(State.FAILED)  # a cancellation, or our bug: it passes as it is
            raise
        if fault is not None:
            del data
            self._end(State.FAILED)
            raise fault
        self.bytes_read += len(data)
        if not data:
            self._end(State.EXHAUSTED)
        return data

    def fail(self) -> None:
        """Tell that what was read is of no use: nothing more is read."""
        if self.state is State.HANDED_OFF:
            self._end(State.FAILED)
        elif self.state is State.EXHAUSTED:
            self.state = State.FAILED

    def close(self) -> None:
        """Close, once; a later call does nothing."""
        if self.state in {State.OPENING, State.HANDED_OFF}:
            self._end(State.CLOSED)

    def _end(self, state: State) -> None:
        self.state = state
        response, self._response, self._raw, self._gzip, self._compressed = self._response, None, None, None, b""
        if response is not None:
            self.closes += 1
            self.close_failed = not acquire.close_quietly(response.close)

    def _inspect(self, response: requests.Response) -> errors.StreamError | None:
        """Check the headers of a 200: the end of the body must be tellable, and its size within the limit."""
        headers = response.headers
        self.content_type = headers.get("Content-Type", "").partition(";")[0].strip().lower()
        encoding = headers.get("Content-Encoding", "identity").strip().lower()
        if encoding in {"gzip", "x-gzip"}:
            self._gzip = zlib.decompressobj(GZIP)
        elif encoding not in {"identity", ""}:
            return self._invalid("the answer is encoded in a way that klaud did not ask for", "ContentEncoding")
        if headers.get("Transfer-Encoding", "").strip().lower() == "chunked":
            return None
        declared = headers.get("Content-Length", "").strip()
        if not (declared.isascii() and declared.isdigit() and len(declared) < 19):
            return self._invalid("the answer has neither a length nor chunked encoding", "ContentLength")
        if int(declared) > self._limit_bytes:
            return errors.StreamError(
                f"the {'answer' if self._small else 'file'} is larger than the limit of {self._limit_bytes} bytes",
                code="response-too-large" if self._small else "download-limit",
                details={
                    "error_type": "DownloadLimit",
                    "declared_bytes": int(declared),
                    "limit_bytes": self._limit_bytes,
                    **self._where(),
                },
            )
        return None

    def _plain(self, size: int) -> bytes:
        data = bytes(self._raw.read1(size, decode_content=False))
        self._arrived += len(data)
        return data

    def _unzipped(self, size: int) -> bytes | None:
        """Return decoded bytes, ``b""`` at the end, None where what has come so far decodes to nothing."""
        if self._gzip.eof:
            self._compressed = self._gzip.unused_data or self._plain(size)
            if not self._compressed:
                return b""
            self._gzip = zlib.decompressobj(GZIP)  # one more member
        data: bytes = self._gzip.decompress(self._compressed, size)
        self._compressed = self._gzip.unconsumed_tail
        if data:
            return data
        if not self._gzip.eof and not self._compressed:
            self._compressed = self._plain(size)
            if not self._compressed:
                if self._arrived:
                    raise zlib.error("cut")
                return b""
        return None

    def _too_large(self) -> errors.StreamError:
        return errors.StreamError(
            f"the file is compressed to more than {COMPRESSION} times the limit of {self._limit_bytes} bytes",
            code="download-limit",
            status=200,
            details={"error_type": "DownloadLimit", "limit_bytes": self._limit_bytes, **self._where()},
        )

    def _where(self) -> dict[str, int | float | str]:
        where: dict[str, int | float | str] = {"bytes_read": self.bytes_read}
        if self._file_kind:
            where["file_kind"] = self._file_kind
        return where

    def _broken(self, error_type: str) -> errors.StreamError:
        return errors.StreamError(
            "the answer broke off before its end",
            code="body-failed",
            status=200,
            details={"error_type": error_type, **self._where()},
        )

    def _invalid(self, message: str, error_type: str) -> errors.StreamError:
        return errors.StreamError(
            message, code="response-invalid", status=200, details={"error_type": error_type, **self._where()}
        )


def whole(opened: Response, limits: Limits) -> bytes:
    """Return the whole body of a response that is not opened yet; ``download-limit`` above the file limit."""
    parts: list[bytes] = []
    with opened:
        try:
            while part := opened.read(limits.chunk_bytes):
                if opened.bytes_read > limits.file_bytes:
                    break
                parts.append(part)
        except BaseException:
            parts.clear()  # what passes through this frame must not show what was in it
            raise
        finally:
            part = b""
    if opened.bytes_read > limits.file_bytes:
        parts.clear()
        raise errors.StreamError(
            f"the file is larger than the limit of {limits.file_bytes} bytes",
            code="download-limit",
            details={"limit_bytes": limits.file_bytes},
        )
    return b"".join(parts)
