"""The folder that hands files from one job of a wave to the next (``--in``, ``--out``).

A file is written beside its place and moved there, so that a reader never sees half of one; it is read back whole and
bounded. Names are klaud's own; a candidate's id is checked before it becomes part of one.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from klaud import errors, names
from klaud.planner import codec

if TYPE_CHECKING:
    import msgspec

T = TypeVar("T")

MEMORY = "families.json"
PLAN = "candidates.json"
SELECTION = "selection.json"


def brief(candidate: str) -> str:
    """Name a candidate's brief."""
    return f"candidate-{_checked(candidate)}.json"


def bundle(candidate: str) -> str:
    """Name a candidate's evidence bundle."""
    return f"baseline-{_checked(candidate)}.json"


def needs(benchmark: str) -> str:
    """Name the file with the producer commits whose matrices a benchmark needs (for ``klaud regenerate --needs``)."""
    return f"needs-{benchmark}.json"


def producers(benchmark: str) -> str:
    """Name the file with a benchmark's producer matrices (what ``klaud regenerate --out`` writes)."""
    return f"producers-{benchmark}.json"


def _checked(candidate: str) -> str:
    if not names.is_candidate(candidate):
        message = f"{candidate!r} is not a candidate's id"
        raise errors.InputError(message)
    return candidate


def write(folder: Path, name: str, content: msgspec.Struct | bytes) -> Path:
    """Write one file into ``folder``, which is made where it is missing; InputError where that is not possible."""
    raw = content if isinstance(content, bytes) else codec.encode(content)
    place = folder / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{name}-", dir=folder)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(raw)
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).replace(place)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        message = f"{place} cannot be written: {error.strerror}"
        raise errors.InputError(message) from None
    return place


def probe(folder: Path, *names_there: str) -> None:
    """Make ``folder`` and see that files can be written there, before anything is done that such a file must record.

    ``names_there``: files that will be written, which may not be folders.
    InputError where that is not possible.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        message = f"files cannot be written to {folder}: {error.strerror}"
        raise errors.InputError(message) from None
    for name in names_there:
        if (folder / name).is_dir():
            message = f"{folder / name} cannot be written: it is a folder"
            raise errors.InputError(message)


def read_bytes(folder: Path, name: str) -> bytes | None:
    """Return a file's content, None where it does not exist; InputError where it is too large or cannot be read."""
    place = folder / name
    try:
        with place.open("rb") as file:
            raw = file.read(codec.LIMIT_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        message = f"{place} cannot be read: {error.strerror}"
        raise errors.InputError(message) from None
    if len(raw) > codec.LIMIT_BYTES:
        message = f"{place} is above the limit of {codec.LIMIT_BYTES} bytes"
        raise errors.InputError(message)
    return raw


def read(folder: Path, name: str, to: type[T], *, made_by: str) -> T:
    """Return a file's record; InputError where it is missing (``made_by`` names the verb that makes it) or wrong."""
    raw = read_bytes(folder, name)
    if raw is None:
        message = f"{name} is not in {folder}"
        raise errors.InputError(message, advice=f"Run {made_by} first and hand its folder on.")
    return codec.decode(raw, to, where=name)
