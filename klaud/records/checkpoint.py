"""How far a batch was read, kept in a file: compare-and-set, with positions that strictly rise.

A checkpoint is written *after* the record's own effect is durable, so that a crash in between re-delivers that record on
resume: the consumer's effects must be idempotent (by the record's ``custom_id``), or looked up before they are repeated.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Protocol, TypeAlias

import filelock
import msgspec

from klaud.records import errors, model, values

CHECKPOINT_BYTES = 4096
"""A checkpoint is some 300 bytes; a larger file is none."""

LOCK_SECONDS = 10.0
"""How long to wait for another process that is writing one; a write takes milliseconds."""


class Saved(msgspec.Struct, frozen=True):
    """The checkpoint was as expected, and now is the new one."""


class Superseded(msgspec.Struct, frozen=True):
    """It was not as expected (``actual``), the new one is not ahead of it, or another process holds it: nothing written."""

    actual: model.Checkpoint | None


Advanced: TypeAlias = Saved | Superseded


class Store(Protocol):
    """Where checkpoints are kept."""

    def load(self, batch_id: str) -> model.Checkpoint | None:
        """Return the batch's checkpoint, or None where there is none. StreamError ``checkpoint-invalid`` when damaged."""
        ...

    def advance(self, expected: model.Checkpoint | None, new: model.Checkpoint) -> Advanced:
        """Replace ``expected`` (None: there must be none) by ``new``, which must be further on."""
        ...


class FileStore:
    """One file a batch in a directory; replaced whole, synced, guarded by a lock file between processes."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        """``directory`` is made when it is not there."""
        self._directory = Path(directory)
        self._directory.mkdir(parents=True, exist_ok=True)

    def load(self, batch_id: str) -> model.Checkpoint | None:
        """Return the batch's checkpoint, or None."""
        path = self._path(batch_id)
        fault = None
        try:
            with path.open("rb") as file:
                raw = file.read(CHECKPOINT_BYTES + 1)
        except FileNotFoundError:
            return None
        try:
            found = msgspec.json.decode(raw[:CHECKPOINT_BYTES], type=model.Checkpoint)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            fault = "is damaged"
        else:
            if found.schema_version != model.CHECKPOINT_VERSION:
                fault = f"has version {found.schema_version}, and this klaud reads {model.CHECKPOINT_VERSION}"
            elif found.batch_id != batch_id:
                fault = "is of another batch"
        if fault is not None:
            raise errors.StreamError(f"the checkpoint {path.name} {fault}", code="checkpoint-invalid")
        return found

    def advance(self, expected: model.Checkpoint | None, new: model.Checkpoint) -> Advanced:
        """Compare and set, under the lock."""
        path = self._path(new.batch_id)
        lock = filelock.FileLock(f"{path}.lock")
        try:
            lock.acquire(timeout=LOCK_SECONDS)
        except filelock.Timeout:
            return Superseded(self.load(new.batch_id))
        try:
            actual = self.load(new.batch_id)
            if actual != expected or (actual is not None and new.position <= actual.position):
                return Superseded(actual)
            write_whole(path, msgspec.json.encode(new) + b"\n")
        finally:
            lock.release()
        return Saved()

    def _path(self, batch_id: str) -> Path:
        if values.identifier(batch_id) is None:
            raise errors.StreamError("a batch's id is 1 to 128 letters, digits, - and _", code="invalid-argument")
        return self._directory / f"checkpoint-{batch_id}.json"


def write_whole(path: Path, data: bytes) -> None:
    """Replace a file so that a reader, or a crash, sees the old or the new one and nothing else; synced to the disk."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=path.name + ".")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
