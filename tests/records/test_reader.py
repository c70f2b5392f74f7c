"""A reader that goes on past bad lines: the same records, counts and names however the bytes are cut."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from klaud.records import errors, framer, limits, reader

SMALL = limits.Limits(chunk_bytes=64, line_bytes=12, file_bytes=160, lines=16, records=6)
PARTS = st.sampled_from(
    [b"\n", b"\r\n", b"{}", b'{"n":1}\n', b'{"n":2}\r\n', b"x", b"\xff\n", b" " * 13, b"[]\n", b"\r"]
)
TEXT = st.lists(PARTS, max_size=20).map(b"".join)


def seen(data: bytes, size: int, **options: Any) -> tuple[Any, ...]:
    """What a caller learns of ``data``, cut into pieces of ``size``."""
    records = reader.RecordReader(SMALL, **options)
    got: list[Any] = []
    try:
        for at in range(0, len(data), size):
            got.extend(records.feed(data[at : at + size]))
        got.extend(records.finish())
    except errors.StreamError as error:
        return got, error.code, str(error), error.details
    return got, records.refused, records.skips, records.line_number, records.framing.line_count, records.framing.torn


BEHIND = b"x\n" + b" " * 13 + b"\n[]\n"
"""A line that is no record before one that is too long, in one chunk: the framer sees the second one first."""


@settings(max_examples=400, derandomize=True, deadline=None)
@example(data=BEHIND, size=64, tail="line")
@example(data=b"{}\n" + b" " * 20, size=64, tail="line")
@given(data=TEXT, size=st.integers(1, 64), tail=st.sampled_from(["line", "torn"]))
def test_any_cut_refuses_the_same_lines_by_the_same_names(data: bytes, size: int, tail: str) -> None:
    whole = seen(data, size, invalid="skip", tail=tail)
    assert whole == seen(data, 1, invalid="skip", tail=tail)
    if len(whole) > 4 and tail == "line":
        assert whole[3] == whole[4], "the reader has come to the framer's last line"


def test_a_twin_that_names_them_as_they_are_noticed_is_caught() -> None:
    """One list for both kinds of refusal: the order then depends on the cut."""

    class Noticing(reader.RecordReader):
        __slots__ = ()

        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self._unfit = self.framing.skips

    def order(size: int) -> list[int]:
        records = Noticing(SMALL, invalid="skip")
        for at in range(0, len(BEHIND), size):
            assert list(records.feed(BEHIND[at : at + size])) == []
        return [skip.file_line_number for skip in records.framing.skips]

    assert order(1) == [1, 2, 3]
    assert order(64) == [2, 1, 3]


def test_the_newest_are_named_and_all_are_counted() -> None:
    """Also where one kind of refusal would crowd out the other."""
    bound = limits.Limits(line_bytes=2)
    lines = [b"x" if number % 2 else b"long" for number in range(1, 301)]
    for size in (1, 7, 64 * 1024):
        records = reader.RecordReader(bound, invalid="skip")
        data = b"\n".join(lines)
        for at in range(0, len(data), size):
            assert list(records.feed(data[at : at + size])) == []
        assert list(records.finish()) == []
        assert records.refused == 300
        assert [skip.file_line_number for skip in records.skips] == list(range(201, 301))
        assert {skip.reason for skip in records.skips} == {"InvalidJson", "line-too-long"}
        assert len(records.skips) == framer.SKIPS_NAMED
