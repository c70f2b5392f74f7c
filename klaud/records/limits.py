"""The bounds of one record stream, and the counters that its files share.

Limits are exact positive ints: a bool, a float, a string or an IntEnum is refused with the field's name, before any
other work is done. Exactly at a limit passes; one above fails.
"""

from __future__ import annotations

import msgspec

from klaud.records import errors

KIB = 1024
MIB = 1024 * KIB


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What bounds one stream. Bytes are decoded bytes (after any content encoding), times are seconds.

    * ``chunk_bytes``: one chunk handed to the framer; keeps a decompressing reader from handing out a bomb at once.
    * ``line_bytes``: one physical line without its LF, with a trailing CR: what one record may hold in memory.
    * ``file_bytes``: each file of the stream; what a run may download from one address.
    * ``lines``: physical lines, blank ones too, of all files together: a flood of blank lines costs time, not memory.
    * ``records``: records of all files together.
    * ``control_bytes``: one control response (a batch's status); these are small, so a large one is not one.
    * ``idle_seconds``: between two reads of the network; the consumer's own pauses do not count.
    """

    chunk_bytes: int = 64 * KIB
    line_bytes: int = MIB
    file_bytes: int = 128 * MIB
    lines: int = 100_000
    records: int = 100_000
    control_bytes: int = MIB
    idle_seconds: int = 30

    def __post_init__(self) -> None:
        """Refuse everything that is not an exact positive int, naming the field."""
        for name in self.__struct_fields__:
            require_positive_int(name, getattr(self, name))


def require_positive_int(name: str, value: object) -> int:
    """Return ``value`` when it is exactly a positive int; otherwise a StreamError that names the field."""
    if type(value) is not int:
        raise errors.StreamError(
            f"{name} must be a positive whole number, not a {type(value).__name__}", code="invalid-limit"
        )
    if value <= 0:
        raise errors.StreamError(f"{name} must be a positive whole number, not zero or less", code="invalid-limit")
    return value


class Budget:
    """Lines and records of one stream so far, over all its files. One stream has one Budget; it only ever grows."""

    __slots__ = ("lines", "records")

    def __init__(self) -> None:
        self.lines = 0
        self.records = 0
