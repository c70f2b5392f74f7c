"""Lines and records of a file object that is already open: the framer and the codec with a read loop around them.

The caller owns the file object and closes it; at most one chunk is read ahead of the record that is asked for. Errors
are StreamErrors without payload, and every frame that one passes through has let go of what it held.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol

from klaud.records import codec, errors, framer
from klaud.records.limits import Budget, Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Readable(Protocol):
    """What is read from: a binary file, a pipe, a response. ``read`` returns ``b""`` at the end only."""

    def read(self, size: int, /) -> bytes:
        """Return up to ``size`` bytes."""
        ...


def read_lines(
    source: Readable,
    limits: Limits | None = None,
    *,
    oversize: framer.Oversize = "fail",
    tail: framer.Tail = "line",
    framing: framer.Framer | None = None,
) -> Iterator[bytes]:
    """Yield the lines of ``source`` that are not blank. ``framing``: a Framer of the caller's, whose counts it can read."""
    limits = limits or Limits()
    framing = framing or framer.Framer(limits, oversize, tail)
    for lines in _framed(source, limits, framing.feed, framing.finish):
        yield from lines
        lines.clear()


def read_records(
    source: Readable,
    limits: Limits | None = None,
    *,
    invalid: framer.Oversize = "fail",
    tail: framer.Tail = "line",
    records: RecordReader | None = None,
) -> Iterator[codec.Record]:
    """Yield the records of ``source``. ``records``: a RecordReader of the caller's, whose counts it can read."""
    limits = limits or Limits()
    records = records or RecordReader(limits, invalid=invalid, tail=tail)
    for lines in _framed(source, limits, records.framing.frame, records.framing.frame_rest):
        yield from records.decoded(lines)
        lines.clear()


class RecordReader:
    """The records of one file, chunk by chunk, with their counts; does no I/O itself.

    ``invalid="skip"``: a line that is too long or is no record is dropped, counted in ``refused`` and named in
    ``skips``, and the stream goes on. ``budget``: the counters of a stream of several files.
    """

    __slots__ = (
        "_before", "_budget", "_file_kind", "_invalid", "_limits", "_refused", "_unfit", "framing", "line_number",
    )  # fmt: skip

    def __init__(
        self,
        limits: Limits | None = None,
        *,
        budget: Budget | None = None,
        file_kind: str = "",
        invalid: framer.Oversize = "fail",
        oversize: framer.Oversize | None = None,
        tail: framer.Tail = "line",
    ) -> None:
        """``oversize``: what becomes of a line that is too long, where that is not the same as ``invalid``."""
        self._limits = limits or Limits()
        self._budget = budget or Budget()
        self._file_kind = file_kind
        self._invalid = invalid
        self._refused = 0
        self._unfit: deque[framer.Skipped] = deque(maxlen=framer.SKIPS_NAMED)
        self.framing = framer.Framer(self._limits, oversize or invalid, tail, budget=self._budget, file_kind=file_kind)
        self.line_number = 0
        """The physical line of this file that was decoded last; blank and refused lines count."""
        self._before = self._budget.records

    @property
    def refused(self) -> int:
        """Lines of this file that were refused so far, too long or no record (``invalid="skip"``)."""
        return self._refused + self.framing.skipped

    @property
    def skips(self) -> list[framer.Skipped]:
        """The newest of them, in the file's order however it was cut: the framer runs ahead of the decoder."""
        named = sorted((*self._unfit, *self.framing.skips), key=lambda skip: skip.file_line_number)
        return named[-framer.SKIPS_NAMED :]

    def feed(self, chunk: bytes | bytearray | memoryview) -> Iterator[codec.Record]:
        """Yield the records that ``chunk`` completes; consume it before the next call. Call ``finish`` at the end."""
        try:
            return self.decoded(self.framing.frame(chunk))
        finally:
            del chunk

    def finish(self) -> Iterator[codec.Record]:
        """Yield the record of an unfinished last line, if there is one."""
        return self.decoded(self.framing.frame_rest())

    def decoded(self, lines: list[bytes]) -> Iterator[codec.Record]:
        """Yield the records of physical ``lines`` as ``framing.frame`` gave them."""
        decode, budget, limit = codec.decode, self._budget, self._limits.records
        fault = None
        start = self.line_number
        for number, line in enumerate(lines, start + 1):
            if not line or line == b"\r":  # a CR at the end of any other line is white space to JSON
                continue
            value = decode(line)
            self.line_number = number
            if type(value) is dict:
                if budget.records >= limit:
                    fault = self._over_records()
                    break
                budget.records += 1
                yield value
            elif self._invalid == "fail":
                fault = self._no_record(str(value))
                break
            else:
                self._refused += 1
                self._unfit.append(framer.Skipped(number, str(value)))
        if fault is None:
            self.line_number = start + len(lines)
        else:
            line, value = b"", {}
            lines.clear()
            self.framing.abandon()
            raise fault

    @property
    def record_count(self) -> int:
        """Return the number of this file's records so far."""
        return self._budget.records - self._before

    def _where(self) -> dict[str, int | float | str]:
        behind = self.framing.line_count - self.line_number
        details: dict[str, int | float | str] = {
            "line_number": self._budget.lines - behind,
            "file_line_number": self.line_number,
        }
        if self._file_kind:
            details["file_kind"] = self._file_kind
        return details

    def _no_record(self, reason: str) -> errors.StreamError:
        return errors.StreamError(
            f"line {self.line_number} of the file is not a record: {codec.MEANING[reason]}",
            code="invalid-record",
            details={**self._where(), "error_type": str(reason)},
        )

    def _over_records(self) -> errors.StreamError:
        limit = self._limits.records
        return errors.StreamError(
            f"the stream has more than the limit of {limit} records",
            code="too-many-records",
            details={**self._where(), "limit_records": limit, "record_count": limit},
        )


def _framed(
    source: Readable,
    limits: Limits,
    frame: Callable[[bytes], list[bytes]],
    frame_rest: Callable[[], list[bytes]],
) -> Iterator[list[bytes]]:
    while chunk := source.read(limits.chunk_bytes):
        try:
            lines = frame(chunk)
        finally:
            del chunk
        yield lines
        del lines
    yield frame_rest()
