"""The records of one batch: its result file, then its error file, under shared limits, each response with one owner.

Promises: every record is delivered at most once by one iterator; leaving the ``with`` block, in any way, closes the
iterator and the response, each once; the consumer's own exception passes as the same object. A bare ``break`` out of a
loop closes nothing: leave the block. An iterator that is held longer raises ``stream-closed`` instead of looking
finished. After a failure the same error comes again.

With ``checkpoints=True``, ``checkpoint()`` says where the last delivered record ends. Resuming re-reads from byte 0,
under all limits, and delivers nothing until the prefix is proven to be the same bytes.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Self

from klaud.records import errors, framer, model, reader, response
from klaud.records.limits import Budget, Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from types import TracebackType


class BatchRecords:
    """An iterator of ``BatchRecord`` and a context manager. Made by ``BatchClient.open_batch_records``."""

    def __init__(
        self,
        batch: model.Batch,
        open_file: Callable[[model.BatchFile], response.Response],
        limits: Limits,
        *,
        resume: model.Checkpoint | None = None,
        checkpoints: bool = False,
        invalid: framer.Oversize = "fail",
    ) -> None:
        """``open_file`` makes the (not yet opened) response of a file; ``invalid``: what a line that is no record does."""
        self.batch = batch
        self.delivered = 0
        """Records handed to the consumer."""
        self.refused = 0
        """Lines that were no record and were left out (``invalid="skip"``), of the files read to their end."""
        self.response: response.Response | None = None
        """The owner of the response that is being read; kept after it has ended, for its counts."""
        self._open_file = open_file
        self._limits = limits
        self._resume = resume
        self._invalid = invalid
        self._prefix = _Prefix() if checkpoints or resume is not None else None
        self._budget = Budget()
        self._file: model.BatchFile | None = None
        self._records: reader.RecordReader | None = None
        self._fault: errors.StreamError | None = None
        self._closed = False
        self._opened: response.Response | None = None
        self._generator = self._read_all()
        self._step = self._generator.__next__

    def __enter__(self) -> Self:
        """Open the first file, within the retry policy: what cannot be had fails here, before any record."""
        if self._closed or self.response is not None:
            raise errors.StreamError("this stream was already opened", code="stream-closed")
        if self.batch.files:
            self._opened = self._acquire(self.batch.files[0])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close everything, once."""
        self.close()

    def __iter__(self) -> Iterator[model.BatchRecord]:
        """Iterate; there is one iterator, and it does not start again."""
        return self

    def __next__(self) -> model.BatchRecord:
        """Return the next record; StreamError where the stream failed, now or before, or was closed."""
        if self._closed:
            raise errors.StreamError("this stream is closed", code="stream-closed")
        if self._fault is not None:
            raise self._fault.again()
        try:
            return self._step()
        except errors.StreamError as error:
            self._fault = error.again()
            self._let_go()
            raise

    def close(self) -> None:
        """Close the iterator and the response; a later call does nothing."""
        if self._closed:
            return
        self._closed = True
        self._generator.close()
        self._let_go()
        if self.response is not None:
            self.response.close()

    def checkpoint(self) -> model.Checkpoint:
        """Return the position of the last delivered record. Only with ``checkpoints=True``, and after a record."""
        if self._prefix is None or self._file is None or self._records is None or not self.delivered:
            raise errors.StreamError("there is no record to make a checkpoint of", code="invalid-argument")
        return self._position(self._file, self._records)

    def _let_go(self) -> None:
        """Keep nothing of what was read, and read no more."""
        if self._prefix is not None:
            self._prefix.start()
        if self._records is not None:
            self._records.framing.abandon()
        if self.response is not None and self._fault is not None:
            self.response.fail()

    def _acquire(self, file: model.BatchFile) -> response.Response:
        self.response = self._open_file(file)
        self.response.open()
        return self.response

    def _read_all(self) -> Generator[model.BatchRecord, None, None]:
        resume = self._resume
        batch_id, made = self.batch.id, model.BatchRecord
        for file in self.batch.files:
            opened = self._opened or self._acquire(file)
            self._opened = None
            self._file = file
            self._records = reader.RecordReader(
                self._limits, budget=self._budget, file_kind=file.kind, invalid=self._invalid, oversize="fail"
            )
            if self._prefix is not None:
                self._prefix.start()
            for lines in self._read_lines(opened, self._records):
                for record in self._records.decoded(lines):
                    if resume is None:
                        self.delivered += 1
                        yield made(batch_id, file.kind, record)
                    elif self._reached(resume, file, self._records):
                        resume = None
                    del record  # an error that passes through this frame later must not show it
                lines.clear()
            self.refused += self._records.refused
            if resume is not None and resume.file_kind == file.kind:
                raise _mismatch("the file ends before the checkpoint")
        if resume is not None:
            raise _mismatch("the batch has no such file")
        self._check_count()

    def _read_lines(self, opened: response.Response, records: reader.RecordReader) -> Iterator[list[bytes]]:
        """Yield physical lines, chunk by chunk, and show them to the running digest."""
        framing, size, prefix = records.framing, self._limits.chunk_bytes, self._prefix
        while chunk := opened.read(size):
            try:
                lines = framing.frame(chunk)
            finally:
                del chunk
            if prefix is not None:
                prefix.window(lines, records.line_number, b"\n")
            yield lines
            del lines
        lines = framing.frame_rest()
        if prefix is not None:
            prefix.window(lines, records.line_number, b"")
        yield lines

    def _reached(self, resume: model.Checkpoint, file: model.BatchFile, records: reader.RecordReader) -> bool:
        """Tell whether the record just read is the checkpoint's; a StreamError where it cannot come any more."""
        if resume.file_kind != file.kind or records.line_number < resume.file_line_number:
            return False
        if self._position(file, records) != resume:
            raise _mismatch("what comes before it has changed")
        return True

    def _position(self, file: model.BatchFile, records: reader.RecordReader) -> model.Checkpoint:
        assert self._prefix is not None  # noqa: S101 - both callers have checked it
        behind = records.framing.line_count - records.line_number
        return model.Checkpoint(
            batch_id=self.batch.id,
            file_kind=file.kind,
            file_id=file.id,
            file_line_number=records.line_number,
            batch_line_count=self._budget.lines - behind,
            record_count=self._budget.records,
            prefix_sha256=self._prefix.digest(records.line_number),
        )

    def _check_count(self) -> None:
        """Find a body that was cut at a line's end and then ended properly: the batch's own count says so."""
        batch = self.batch
        if (
            batch.status == "completed"
            and batch.ended is not None
            and self._budget.records + self.refused < batch.ended
        ):
            raise errors.StreamError(
                f"the batch ended {batch.ended} requests and its files have {self._budget.records} records",
                code="batch-incomplete",
                details={"record_count": self._budget.records},
            )


class _Prefix:
    """The running SHA-256 of one file, brought up to a line only when somebody asks, else by whole chunks."""

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Begin a file."""
        self._hash = hashlib.sha256()
        self._lines: list[bytes] = []
        self._first = 0
        self._hashed = 0
        self._end = b"\n"

    def window(self, lines: list[bytes], first: int, end: bytes) -> None:
        """Take the next physical lines, which follow line number ``first``; ``end`` is what ended each of them."""
        self._upto(len(self._lines))
        self._lines, self._first, self._hashed, self._end = lines.copy(), first, 0, end

    def digest(self, line_number: int) -> str:
        """Return the hex digest of everything up to the end of that line."""
        self._upto(line_number - self._first)
        return self._hash.hexdigest()

    def _upto(self, index: int) -> None:
        if index > self._hashed:
            self._hash.update(self._end.join((*self._lines[self._hashed : index], b"")))
            self._hashed = index


def _mismatch(why: str) -> errors.StreamError:
    return errors.StreamError(f"the checkpoint does not fit: {why}", code="checkpoint-mismatch")
