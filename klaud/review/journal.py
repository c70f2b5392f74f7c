"""What a batch has answered so far, on disk: which batch was created for which questions, and each answer as it came.

Two files in one directory: ``review-batch.json`` (the questions' digest and the batch's id) and ``answers-<batch>.jsonl``
(one line a record, synced before the checkpoint moves). A crash in between delivers some records again: a line is known
by its candidate, so the second is the same answer twice. A torn last line is cut off before more is appended.
"""

from __future__ import annotations

import contextlib
import os
from typing import IO, TYPE_CHECKING, Any

import msgspec

from klaud import errors
from klaud.records import checkpoint, reader, values
from klaud.records.limits import Limits
from klaud.review import model

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType
    from typing import Self

STATE_BYTES = 4096
"""The state is some 200 bytes; a larger file is none."""


class State(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was asked. ``batch_id`` is empty from before the creation until its answer: the batch may then exist or not."""

    version: int = model.VERSION
    digest: str
    batch_id: str = ""


def load(directory: Path) -> State | None:
    """Return the state, None where there is none; InputError where it is damaged."""
    path = directory / "review-batch.json"
    try:
        with path.open("rb") as file:
            raw = file.read(STATE_BYTES)
    except FileNotFoundError:
        return None
    state = None
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        state = msgspec.json.decode(raw, type=State)
    if state is None or state.version != model.VERSION or (state.batch_id and not values.identifier(state.batch_id)):
        raise errors.InputError(
            f"{path} is not a review's state", advice="Remove that file: the next review then creates a new batch."
        )
    return state


def save(directory: Path, state: State) -> None:
    """Replace the state, synced."""
    checkpoint.write_whole(directory / "review-batch.json", msgspec.json.encode(state) + b"\n")


class Answers:
    """The answers of one batch; a context manager that holds the file open for appending."""

    def __init__(self, directory: Path, batch_id: str, limits: Limits | None = None) -> None:
        self._path = directory / f"answers-{batch_id}.jsonl"
        self._limits = limits or Limits()
        self._file: IO[bytes] | None = None
        self.by_candidate: dict[str, model.Answered | model.Unanswered] = {}

    def __enter__(self) -> Self:
        """Read what is there, cut off a torn end, and open for appending."""
        self._file = self._path.open("a+b")
        try:
            self._file.seek(0)
            records = reader.RecordReader(self._limits, invalid="skip", tail="torn")
            for line in reader.read_records(self._file, self._limits, records=records):
                self._take(line.get("candidate"), _of_line(line))
            if records.framing.torn:
                self._file.truncate(records.framing.bytes_read - records.framing.torn)
        except BaseException:
            self._file.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close; what was synced stays."""
        if self._file is not None:
            self._file.close()

    def add(self, candidate: str, answer: model.Answered | model.Unanswered) -> None:
        """Append one answer; it is durable after the next ``sync``."""
        assert self._file is not None  # noqa: S101 - used inside the with block
        self._file.write(msgspec.json.encode(_to_line(candidate, answer)) + b"\n")
        self._take(candidate, answer)

    def sync(self) -> None:
        """Make what was appended durable."""
        assert self._file is not None  # noqa: S101 - used inside the with block
        self._file.flush()
        os.fsync(self._file.fileno())

    def _take(self, candidate: object, answer: model.Answered | model.Unanswered | None) -> None:
        if not isinstance(candidate, str) or answer is None:
            return
        known = self.by_candidate.get(candidate)
        if known is not None and known != answer:
            answer = model.Unanswered(reason="decision-malformed")  # two answers to one question are none
        self.by_candidate[candidate] = answer


def _to_line(candidate: str, answer: model.Answered | model.Unanswered) -> dict[str, Any]:
    if isinstance(answer, model.Answered):
        return {"candidate": candidate, "value": answer.value}
    return {"candidate": candidate, "unanswered": answer.reason}


def _of_line(line: dict[str, Any]) -> model.Answered | model.Unanswered | None:
    if "value" in line:
        return model.Answered(value=line["value"])
    match line.get("unanswered"):
        case "decision-missing" | "decision-malformed" | "reviewer-failed" as reason:
            return model.Unanswered(reason=reason)
        case _:
            return None
