"""Streams without a network: a response that is already there in pieces, and what a reader of it sees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klaud.records import errors, limits, model, stream

if TYPE_CHECKING:
    from collections.abc import Callable

BATCH = model.Batch(
    id="b1", status="expired", files=(model.BatchFile(kind="result", id="f1"), model.BatchFile(kind="error", id="f2"))
)


class Pieces:
    """A response that is already there, in pieces; ends in an error where ``fails``. What is unread is out of sight."""

    def __init__(self, pieces: list[bytes], *, fails: bool = False) -> None:
        self.closes = 0
        self.failed = 0
        self.read = self._reading(list(pieces), fails=fails)

    @staticmethod
    def _reading(pieces: list[bytes], *, fails: bool) -> Callable[[int], bytes]:
        def read(size: int) -> bytes:
            if pieces:
                piece = pieces.pop(0)
                if len(piece) > size:
                    pieces.insert(0, piece[size:])
                return piece[:size]
            if fails:
                raise errors.StreamError("the answer broke off before its end", code="body-failed")
            return b""

        return read

    def open(self) -> None:
        """Nothing to do."""

    def fail(self) -> None:
        self.failed += 1

    def close(self) -> None:
        self.closes += 1


def records_of(
    *files: list[bytes], bounds: limits.Limits | None = None, fails: bool = False, **options: Any
) -> stream.BatchRecords:
    made: dict[str, Any] = {
        file.id: Pieces(pieces, fails=fails) for file, pieces in zip(BATCH.files, files, strict=False)
    }
    batch = model.Batch(id="b1", status="expired", files=BATCH.files[: len(files)])
    return stream.BatchRecords(batch, lambda file: made[file.id], bounds or limits.Limits(), **options)


def outcome(records: stream.BatchRecords) -> tuple[list[Any], Any]:
    got: list[Any] = []
    try:
        with records:
            got.extend((record.file_kind, record.record) for record in records)
    except errors.StreamError as error:
        return got, (error.code, str(error), error.details)
    return got, None


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    pieces = []
    at = 0
    for size in sizes:
        pieces.append(data[at : at + size])
        at += size
    return [piece for piece in (*pieces, data[at:]) if piece]


def row(size: int) -> bytes:
    return b'{"a":"' + b"x" * (size - 9) + b'"}\n'
