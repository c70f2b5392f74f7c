"""The framer: lines out of chunks, within limits, whatever the cut."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klaud.records import errors, framer
from klaud.records.limits import Budget, Limits

SMALL = Limits(chunk_bytes=64, line_bytes=8, file_bytes=60, lines=6, records=4)
ALPHABET = st.sampled_from([b"\n", b"\r", b"a", b"\n\n", b"{}", b"aaaaaaa", b"\xe2\x80\xa8", b"\x0b", b"\xc2\x85"])
DATA = st.lists(ALPHABET, max_size=24).map(b"".join)
CUTS = st.lists(st.integers(1, 80), max_size=12)


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    chunks = []
    for size in sizes:
        chunks.append(data[: min(size, SMALL.chunk_bytes)])
        data = data[min(size, SMALL.chunk_bytes) :]
    chunks.extend(data[index : index + SMALL.chunk_bytes] for index in range(0, len(data), SMALL.chunk_bytes))
    return [chunk for chunk in chunks if chunk]


def outcome(chunks: list[bytes], **options: Any) -> tuple[list[bytes], Any, Any]:
    """What a reader sees: the lines, then the error or the end, and the counts."""
    framing = framer.Framer(SMALL, **options)
    lines: list[bytes] = []
    try:
        for chunk in chunks:
            lines += framing.frame(chunk)
        lines += framing.frame_rest()
    except errors.StreamError as error:
        return lines, (error.code, str(error), error.details), None
    return lines, None, (framing.line_count, framing.skipped, list(framing.skips), framing.torn, framing.bytes_read)


@settings(max_examples=600, derandomize=True, deadline=None)
@given(data=DATA, sizes=CUTS, oversize=st.sampled_from(["fail", "skip"]), tail=st.sampled_from(["line", "torn"]))
def test_any_cut_gives_the_same(data: bytes, sizes: list[int], oversize: str, tail: str) -> None:
    """Any split of the same bytes gives the same lines and the same error, with the same details."""
    by_byte = outcome([bytes([byte]) for byte in data], oversize=oversize, tail=tail)
    assert outcome(cut(data, sizes), oversize=oversize, tail=tail) == by_byte


@settings(max_examples=300, derandomize=True, deadline=None)
@given(data=DATA)
def test_only_lf_splits(data: bytes) -> None:
    """Against the plain statement of the rule, where no limit is met."""
    framing = framer.Framer()
    lines = (framing.feed(data) if data else []) + framing.finish()
    assert lines == [line for line in (part.removesuffix(b"\r") for part in data.split(b"\n")) if line]


def fault(chunks: list[Any], limits: Limits = SMALL, **options: Any) -> errors.StreamError:
    framing = framer.Framer(limits, **options)
    try:
        for chunk in chunks:
            framing.feed(chunk)
        framing.finish()
    except errors.StreamError as error:
        return error
    raise AssertionError("nothing was refused")


@pytest.mark.parametrize("chunk", ["text", 3, None, [b"x"]])
def test_a_chunk_is_bytes(chunk: object) -> None:
    assert fault([chunk]).details["error_type"] == "InvalidByteChunk"


@pytest.mark.parametrize("chunk", [b"", bytearray(), memoryview(b"")])
def test_a_chunk_makes_progress(chunk: Any) -> None:
    assert fault([chunk]).details["error_type"] == "NoForwardProgress"


def test_a_memoryview_is_measured_in_bytes() -> None:
    """``len`` of a view of 4-byte items is a quarter of its size."""
    view = memoryview(bytearray(68)).cast("I")
    assert fault([view]).details == {
        "error_type": "OversizedByteChunk", "chunk_bytes": 68, "limit_bytes": 64, "line_number": 0, "file_line_number": 0,
    }  # fmt: skip
    assert framer.Framer(SMALL, "skip").feed(view[:15]) == []


def test_kinds_of_chunks_are_equal() -> None:
    for kind in (bytes, bytearray, memoryview):
        assert framer.Framer().feed(kind(b"{}\n")) == [b"{}"]


def test_a_line_at_the_limit_passes_and_one_above_fails() -> None:
    """The length counts a trailing CR and not the LF, finished or not."""
    assert framer.Framer(SMALL).feed(b"1234567\r\n") == [b"1234567"]
    assert fault([b"12345678\r\n"]).code == "line-too-long"
    framing = framer.Framer(SMALL)
    framing.feed(b"12345678")
    assert framing.finish() == [b"12345678"]
    assert fault([b"123456789"]).code == "line-too-long"


def test_an_unfinished_line_is_refused_as_soon_as_it_is_too_long() -> None:
    framing = framer.Framer(SMALL)
    framing.feed(b"12345678")
    with pytest.raises(errors.StreamError) as caught:
        framing.feed(b"9")
    assert caught.value.details == {"line_number": 1, "file_line_number": 1, "limit_bytes": 8, "bytes_buffered": 9}


def test_lines_at_the_limit_pass_and_one_above_fails() -> None:
    """Blank lines count, and an unfinished last one does."""
    assert framer.Framer(SMALL).feed(b"\n" * 6) == []
    assert fault([b"\n" * 7]).code == "too-many-lines"
    assert fault([b"\n" * 6, b"x"]).details["limit_lines"] == 6


def test_a_file_at_the_limit_passes_and_one_above_fails() -> None:
    data = b"aaaaa\n" * 10
    limits = Limits(chunk_bytes=64, file_bytes=60)
    framing = framer.Framer(limits)
    assert len(framing.feed(data)) == 10
    with pytest.raises(errors.StreamError) as caught:
        framing.feed(b"x")
    assert caught.value.code == "download-limit"
    assert caught.value.details == {
        "error_type": "DownloadLimit", "limit_bytes": 60, "bytes_read": 60, "line_number": 10, "file_line_number": 10,
    }  # fmt: skip


def test_a_chunk_at_the_limit_passes_and_one_above_fails() -> None:
    assert framer.Framer().feed(b"x" * 64 * 1024) == []
    assert fault([b"x" * (64 * 1024 + 1)], Limits()).details["chunk_bytes"] == 65537


def test_a_fault_costs_no_line_before_it() -> None:
    """The good lines of the faulty chunk are handed out; the next call raises, and every one after it."""
    framing = framer.Framer(SMALL)
    assert framing.feed(b"a\nb\n123456789\nc\n") == [b"a", b"b"]
    assert framing.fault is not None
    for _ in range(2):
        with pytest.raises(errors.StreamError, match="line 3 of the file"):
            framing.finish()
    with pytest.raises(errors.StreamError, match="line 3 of the file"):
        framing.feed(b"d\n")


def test_skipping_names_and_counts_and_goes_on() -> None:
    framing = framer.Framer(SMALL, "skip")
    assert framing.feed(b"a\n123456789") == [b"a"]
    assert framing.feed(b"x" * 40) == []
    assert framing.feed(b"\nb\n") == [b"b"]
    assert list(framing.skips) == [framer.Skipped(2, "line-too-long")]
    assert (framing.skipped, framing.line_count) == (1, 3)


def test_a_torn_tail_is_withheld_and_reported() -> None:
    framing = framer.Framer(tail="torn")
    assert framing.feed(b"a\nbcd") == [b"a"]
    assert framing.finish() == []
    assert framing.torn == 3


def test_files_of_one_stream_share_the_lines() -> None:
    budget = Budget()
    assert framer.Framer(SMALL, budget=budget).feed(b"\n" * 4) == []
    second = framer.Framer(SMALL, budget=budget, file_kind="error")
    second.feed(b"\n\n")
    with pytest.raises(errors.StreamError) as caught:
        second.feed(b"\n")
    assert caught.value.details == {
        "line_number": 6, "file_line_number": 2, "limit_lines": 6, "batch_line_count": 6, "file_kind": "error",
    }  # fmt: skip


def test_nothing_after_the_end() -> None:
    framing = framer.Framer()
    framing.feed(b"a")
    assert framing.finish() == [b"a"]
    assert framing.finish() == []
    with pytest.raises(errors.StreamError) as caught:
        framing.feed(b"b")
    assert caught.value.code == "stream-closed"


def test_single_bytes_cost_no_more_memory_than_the_line() -> None:
    """Many small pieces become blocks."""
    framing = framer.Framer()
    for _ in range(10_000):
        framing.feed(b"x")
    assert (
        len(framing._fragments) + len(framing._blocks) < 10_000 / framer.BLOCK_OF_FRAGMENTS + framer.BLOCK_OF_FRAGMENTS
    )
    assert framing.finish() == [b"x" * 10_000]


def test_long_lines_in_single_bytes_do_not_run_into_each_other() -> None:
    """Each is longer than a block of pieces; nothing of one is left when the next begins."""
    framing = framer.Framer()
    data = b"x" * 600 + b"\n" + b"y" * 700 + b"\n" + b"z" * 300
    lines = [line for byte in data for line in framing.feed(bytes([byte]))]
    assert [*lines, *framing.finish()] == data.split(b"\n")


def test_a_line_that_began_before_its_chunk_is_counted_once() -> None:
    """Its refusal is known before its end is there; those after it have their own numbers."""
    framing = framer.Framer(SMALL, "skip")
    assert framing.feed(b"123456789") == []
    assert framing.feed(b"x\nb\n123456789\nc\n") == [b"b", b"c"]
    assert [skip.file_line_number for skip in framing.skips] == [1, 3]
    assert framing.line_count == 4


@pytest.mark.parametrize("sizes", [[1] * 40, [64]])
def test_a_line_above_the_count_is_refused_for_that_however_long_it_is(sizes: list[int]) -> None:
    assert outcome(cut(b"\n" * 5 + b"123456789", sizes))[1][0] == "line-too-long"
    assert outcome(cut(b"\n" * 6 + b"123456789", sizes))[1][0] == "too-many-lines"
