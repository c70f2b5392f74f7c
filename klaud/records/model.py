"""Message batches as records: what is asked, what the provider says of it, what comes back, how far it was read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias

import msgspec

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from klaud.records.call import Call

FileKind: TypeAlias = Literal["result", "error"]
KINDS: Final[tuple[FileKind, ...]] = ("result", "error")
"""The files of a batch, in the order in which they are read."""

Status: TypeAlias = Literal["working", "completed", "failed", "expired", "cancelled", "unknown"]
TERMINAL: Final = frozenset({"completed", "failed", "expired", "cancelled"})
"""What a batch never leaves again. An unknown word of the provider is ``unknown``, and not terminal."""

CHECKPOINT_VERSION: Final = 1


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """One request of a batch. ``custom_id``: 1 to 64 of ``A-Za-z0-9_-``, unique in the batch."""

    custom_id: str
    model: str
    system: str
    prompt: str
    max_tokens: int


class BatchFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a batch, by the provider's id (or, where files have none, a word of ours)."""

    kind: FileKind
    id: str


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """What the provider says of a batch. ``ended`` counts requests that have come to an end, None where it does not say."""

    id: str
    status: Status
    files: tuple[BatchFile, ...] = ()
    total: int | None = None
    ended: int | None = None

    @property
    def terminal(self) -> bool:
        """Tell whether the batch has ended, well or not."""
        return self.status in TERMINAL


class BatchRecord(msgspec.Struct, frozen=True):
    """One record of a batch's files. ``record`` is the consumer's own; nobody else keeps it."""

    batch_id: str
    file_kind: FileKind
    record: dict[str, Any]


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What one record says: the text of the model's answer, or None where the request failed or the record is not one."""

    custom_id: str
    text: str | None


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far a batch was read: up to and including a record, at its physical line of its file.

    ``batch_line_count`` and ``record_count`` are over all files so far; ``prefix_sha256`` is of the file's decoded bytes
    up to the end of that line.
    """

    schema_version: int = CHECKPOINT_VERSION
    batch_id: str
    file_kind: FileKind
    file_id: str
    file_line_number: int
    batch_line_count: int
    record_count: int
    prefix_sha256: str

    @property
    def position(self) -> tuple[int, int]:
        """Return what must strictly rise: which file, and which line of it."""
        return KINDS.index(self.file_kind), self.file_line_number


class Provider(Protocol):
    """One provider's batch interface, as calls to make and answers to read; does no I/O."""

    def creating(self, asks: Sequence[Ask]) -> Generator[Call, dict[str, Any], dict[str, Any]]:
        """Yield the calls that create a batch, each sent the answer to it; return the batch as the provider describes it."""
        ...

    def status(self, batch_id: str) -> Call:
        """Return the call that asks for a batch's state."""
        ...

    def cancel(self, batch_id: str) -> Call:
        """Return the call that asks for a batch's end."""
        ...

    def batch(self, said: dict[str, Any]) -> Batch | None:
        """Return the batch that an answer describes, or None where it describes none."""
        ...

    def file(self, batch: Batch, file: BatchFile) -> Call:
        """Return the call that gets one of the batch's files."""
        ...

    def answer(self, record: dict[str, Any]) -> Answer | None:
        """Return what a record says, or None where it does not even say whose answer it is."""
        ...
