r"""Bytes in, lines out: the pure half of every record stream.

Only LF splits (not a lone CR, VT, NEL or U+2028). The work is one ``bytes.split`` a chunk, and one join for the line
that spans chunks, so its cost is linear in the bytes however they are cut, also for a line of many mebibytes.

Promises: any cut of the same bytes into chunks gives the same lines and the same error; memory stays below one line
plus one chunk; a fault never costs a line that came before it. To keep the last promise a fault that follows good lines
*within one chunk* is raised by the next call (``feed`` or ``finish``): always call ``finish``. ``fault`` tells at once.

Non-promises: nothing here looks into a line; see ``codec``.
"""

from __future__ import annotations

from collections import deque
from typing import Literal, TypeAlias

import msgspec

from klaud.records import errors
from klaud.records.limits import Budget, Limits

Oversize: TypeAlias = Literal["fail", "skip"]
Tail: TypeAlias = Literal["line", "torn"]

SKIPS_NAMED = 100
"""How many refused lines are named one by one (the newest); all are counted. A report needs examples, not a flood."""

BLOCK_OF_FRAGMENTS = 256
"""A reader that hands out single bytes would cost 40 bytes for each; this many pieces become one block."""


class Skipped(msgspec.Struct, frozen=True):
    """One line or record that was refused by name while the stream went on. ``reason`` is klaud's own closed word."""

    file_line_number: int
    reason: str


class Framer:
    """Cut one file's chunks into physical lines, within ``limits``.

    ``oversize``: a line above the line limit fails the stream (``fail``), or is dropped, counted and named while memory
    stays flat (``skip``). ``tail``: an unfinished last line is a line (``line``) or is withheld and reported in ``torn``
    (``torn``). ``budget``: the counters of a stream of several files; ``file_kind``: a closed word for error details.
    """

    __slots__ = (
        "_blocks", "_budget", "_dropping", "_fault", "_file_kind", "_finished", "_fragments", "_held",
        "_limits", "_oversize", "_tail", "bytes_read", "line_count", "skipped", "skips", "torn",
    )  # fmt: skip

    def __init__(
        self,
        limits: Limits | None = None,
        oversize: Oversize = "fail",
        tail: Tail = "line",
        *,
        budget: Budget | None = None,
        file_kind: str = "",
    ) -> None:
        self._limits = limits or Limits()
        self._oversize = oversize
        self._tail = tail
        self._budget = budget or Budget()
        self._file_kind = file_kind
        self._blocks: list[bytes] = []
        self._fragments: list[bytes] = []
        self._held = 0
        self._dropping = False
        self._finished = False
        self._fault: errors.StreamError | None = None
        self.bytes_read = 0
        """Bytes accepted so far."""
        self.line_count = 0
        """Physical lines of this file so far, blank and refused ones too."""
        self.skipped = 0
        """Lines refused so far (``oversize="skip"``)."""
        self.skips: deque[Skipped] = deque(maxlen=SKIPS_NAMED)
        """The newest refused lines."""
        self.torn = 0
        """Bytes of an unfinished last line that was withheld (``tail="torn"``)."""

    @property
    def fault(self) -> errors.StreamError | None:
        """The fault that the next call will raise, or None."""
        return self._fault

    def feed(self, chunk: bytes | bytearray | memoryview) -> list[bytes]:
        """Return the lines that ``chunk`` completes, without LF and one trailing CR, and without blank and refused ones."""
        try:
            return _full(self.frame(chunk))
        finally:
            del chunk  # an error that passes through this frame must not show what was in it

    def finish(self) -> list[bytes]:
        """End the file: return its unfinished last line, if that counts as one. A second call returns nothing."""
        return _full(self.frame_rest())

    def abandon(self) -> None:
        """Forget the unfinished line: the stream has failed elsewhere, and nothing of it may stay in memory."""
        self._forget()
        self._finished = True

    def frame(self, chunk: bytes | bytearray | memoryview) -> list[bytes]:
        """Do as ``feed``, but with one entry for each physical line: a trailing CR stays, a refused line is ``b""``."""
        fault = self.fault or self._check(chunk)
        if fault is not None:
            self._fail(fault)
            del chunk
            raise fault.again()
        data = chunk if type(chunk) is bytes else bytes(chunk)
        del chunk
        over = self.bytes_read + len(data) > self._limits.file_bytes
        if over:
            data = data[: self._limits.file_bytes - self.bytes_read]
        self.bytes_read += len(data)
        lines = self._split(data)
        del data
        if over and self.fault is None:
            self._fail(self._over_file())
        if self.fault is not None and not lines:
            raise self.fault.again()
        return lines

    def frame_rest(self) -> list[bytes]:
        """Do as ``finish`` does, but return an entry also for a blank or refused line."""
        if self.fault is not None:
            raise self.fault.again()
        if self._finished:
            return []
        self._finished = True
        if self._dropping:
            self._dropping = False
            return [b""]
        if not self._held:
            return []
        if self._tail == "torn":
            self.torn = self._held
            self._forget()
            return []
        lines = self._accept([self._joined(b"")])
        if self.fault is not None:
            raise self.fault.again()
        return lines

    def _check(self, chunk: object) -> errors.StreamError | None:
        if self._finished:
            return errors.StreamError("this stream has ended; nothing can be added to it", code="stream-closed")
        if isinstance(chunk, memoryview):
            size = chunk.nbytes
        elif isinstance(chunk, bytes | bytearray):
            size = len(chunk)
        else:
            return self._bad_chunk("InvalidByteChunk", "the reader handed over something that is not bytes")
        if size == 0:
            return self._bad_chunk("NoForwardProgress", "the reader handed over nothing without having ended")
        if size > self._limits.chunk_bytes:
            return errors.StreamError(
                f"the reader handed over {size} bytes at once, more than the limit of {self._limits.chunk_bytes}",
                code="invalid-chunk",
                details=self._where(
                    error_type="OversizedByteChunk", chunk_bytes=size, limit_bytes=self._limits.chunk_bytes
                ),
            )
        return None

    def _split(self, data: bytes) -> list[bytes]:
        lines = data.split(b"\n")
        del data
        rest = lines.pop()
        if lines:
            if self._held:
                lines[0] = self._joined(lines[0])
            lines = self._accept(lines)
        if rest and self.fault is None and not self._dropping:
            self._hold(rest)
        return lines

    def _hold(self, fragment: bytes) -> None:
        """Keep a piece of the unfinished line; many small pieces are joined into blocks, so that they cost no memory."""
        self._fragments.append(fragment)
        self._held += len(fragment)
        if len(self._fragments) >= BLOCK_OF_FRAGMENTS:
            self._blocks.append(b"".join(self._fragments))
            self._fragments.clear()
        if self._held > self._limits.line_bytes:
            self._overlong_rest()

    def _joined(self, end: bytes) -> bytes:
        line = b"".join((*self._blocks, *self._fragments, end))
        self._forget()
        return line

    def _forget(self) -> None:
        self._blocks.clear()
        self._fragments.clear()
        self._held = 0

    def _accept(self, lines: list[bytes]) -> list[bytes]:
        """Count the completed ``lines`` and check their lengths; on a fault keep what came before it."""
        limit = self._limits.line_bytes
        if self._dropping:
            lines[0] = b""
            self._dropping = False
            uncounted = len(lines) - 1
        else:
            uncounted = len(lines)
        room = self._limits.lines - self._budget.lines
        cut = uncounted > room
        if cut:
            del lines[len(lines) - uncounted + room :]
            uncounted = room
        already = len(lines) - uncounted
        # only the first can be longer than a chunk, so where chunks are shorter than lines the others need no look
        longest = map(len, lines if self._limits.chunk_bytes > limit else lines[:1])
        for index, size in enumerate(map(len, lines)) if max(longest, default=0) > limit else ():
            if size > limit:
                number = index - already + 1
                if self._oversize == "fail":
                    self._count(number)
                    del lines[index:]
                    self._fail(self._over_line())
                    return lines
                lines[index] = b""
                self._skip(self.line_count + number)
        self._count(uncounted)
        if cut:
            self._fail(self._over_lines())
        return lines

    def _overlong_rest(self) -> None:
        """Refuse the unfinished line that has just grown above the limit."""
        self._forget()
        if self._budget.lines >= self._limits.lines:
            self._fail(self._over_lines())
            return
        self._count(1)
        if self._oversize == "fail":
            self._fail(self._over_line())
        else:
            self._dropping = True
            self._skip(self.line_count)

    def _count(self, lines: int) -> None:
        self._budget.lines += lines
        self.line_count += lines

    def _skip(self, number: int) -> None:
        self.skipped += 1
        self.skips.append(Skipped(number, "line-too-long"))

    def _fail(self, fault: errors.StreamError) -> None:
        self._forget()
        self._fault = fault

    def _where(self, **more: int | str) -> dict[str, int | float | str]:
        details: dict[str, int | float | str] = {
            "line_number": self._budget.lines,
            "file_line_number": self.line_count,
            **more,
        }
        if self._file_kind:
            details["file_kind"] = self._file_kind
        return details

    def _bad_chunk(self, error_type: str, message: str) -> errors.StreamError:
        return errors.StreamError(message, code="invalid-chunk", details=self._where(error_type=error_type))

    def _over_file(self) -> errors.StreamError:
        limit = self._limits.file_bytes
        return errors.StreamError(
            f"the file is larger than the limit of {limit} bytes",
            code="download-limit",
            details=self._where(error_type="DownloadLimit", limit_bytes=limit, bytes_read=self.bytes_read),
        )

    def _over_line(self) -> errors.StreamError:
        limit = self._limits.line_bytes
        return errors.StreamError(
            f"line {self.line_count} of the file is longer than the limit of {limit} bytes",
            code="line-too-long",
            details=self._where(limit_bytes=limit, bytes_buffered=limit + 1),
        )

    def _over_lines(self) -> errors.StreamError:
        limit = self._limits.lines
        return errors.StreamError(
            f"the stream has more than the limit of {limit} lines",
            code="too-many-lines",
            details=self._where(limit_lines=limit, batch_line_count=limit),
        )


def _full(lines: list[bytes]) -> list[bytes]:
    """Strip one trailing CR of each line, and leave the blank ones out."""
    kept = list(filter(None, lines))
    if any(line[-1:] == b"\r" for line in kept):
        kept = [line[:-1] if line[-1:] == b"\r" else line for line in kept]
        kept = list(filter(None, kept))
    return kept
