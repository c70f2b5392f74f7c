"""A stream of records: the same for any cut of the bytes, read once, in flat memory."""

from __future__ import annotations

import contextlib
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klaud.records import acquire, call, errors, framer, limits, model, response, stream
from tests.support import loopback
from tests.support.streams import BATCH, Pieces, cut, outcome, records_of, row

PARTS = st.sampled_from(
    [b"\n", b"\r\n", b"{}", b'{"n":1}\n', b'{"n":2}\r\n', b"x", b'{"a":1,"a":1}\n', b"\xff", b" " * 9, b"\r"]
)
TEXT = st.lists(PARTS, max_size=12).map(b"".join)
SMALL = limits.Limits(chunk_bytes=16, line_bytes=12, file_bytes=70, lines=9, records=5)


@settings(max_examples=700, derandomize=True, deadline=None)
@given(first=TEXT, second=TEXT, sizes=st.lists(st.integers(1, 16), max_size=12))
def test_any_cut_gives_the_same_records_or_the_same_error(first: bytes, second: bytes, sizes: list[int]) -> None:
    """Over both files of a stream, with every limit small enough to be met."""
    bytewise = outcome(records_of(cut(first, [1] * 99), cut(second, [1] * 99), bounds=SMALL))
    assert outcome(records_of(cut(first, sizes), cut(second, sizes), bounds=SMALL)) == bytewise


class ByChunk(framer.Framer):
    """The broken twin: it refuses a chunk that crosses the file limit whole, lines and all."""

    def frame(self, chunk: Any) -> list[bytes]:
        if self.bytes_read + len(chunk) > self._limits.file_bytes:
            raise errors.StreamError("too large", code="download-limit")
        return super().frame(chunk)


def test_a_twin_that_depends_on_the_cut_is_caught() -> None:
    seen = set()
    for pieces in (cut(b"{}\n" * 9, [1] * 99), cut(b"{}\n" * 9, [16])):
        framing = ByChunk(limits.Limits(chunk_bytes=16, file_bytes=20))
        lines = 0
        with contextlib.suppress(errors.StreamError):
            for piece in pieces:
                lines += len(framing.frame(piece))
        seen.add(lines)
    assert seen == {5, 6}


def test_a_response_is_read_once() -> None:
    with loopback.serving() as host:
        host.reply("/rows", loopback.Reply(b"{}"))
        session = acquire.new_session()
        opened = response.Response(session, call.Call(f"{host.url}/rows"), loopback.FakeClock())
        with pytest.raises(errors.StreamError, match="closed"):
            opened.read(10)
        with opened:
            assert opened.read(10) == b"{}"
            assert opened.read(10) == b""
            assert opened.read(10) == b""
        with pytest.raises(errors.StreamError, match="already opened"):
            opened.open()
        session.close()


def test_memory_is_flat() -> None:
    """32 MiB go through; what is held stays a few chunks and one record."""
    line = row(1024)
    block = line * 64
    remaining = [512]

    class Endless(Pieces):
        def __init__(self) -> None:
            self.read = self._block  # type: ignore[assignment]  # instead of pieces

        @staticmethod
        def _block(_size: int) -> bytes:
            remaining[0] -= 1
            return block if remaining[0] >= 0 else b""

    batch = model.Batch(id="b1", status="expired", files=BATCH.files[:1])
    endless: Any = Endless()
    endless.closes = endless.failed = 0
    tracemalloc.start()
    try:
        with stream.BatchRecords(batch, lambda _file: endless, limits.Limits(), checkpoints=True) as records:
            count = sum(1 for _ in records)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 64 * 512
    assert peak < 2 * 1024 * 1024
