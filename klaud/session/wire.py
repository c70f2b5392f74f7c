"""The agent program's line protocol: one JSON object a line, both ways.

A line that is too long, not UTF-8, not JSON or not an object costs that record and no more: it is dropped and counted.
What counts as JSON is as strict as in every record stream (``records.codec``): no name twice, no number that overflows. A
torn last line is dropped and counted.
"""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from klaud.records import codec
from klaud.records import errors as stream_errors
from klaud.records import framer as framers
from klaud.records import limits as bounds

if TYPE_CHECKING:
    from klaud.session import process

LINES = 100_000_000
"""Lines of one turn: the bytes are bounded, this only has to be larger."""


class OutputLimitError(Exception):
    """The agent has printed more than a turn may."""


class Wire:
    """Messages to and from one child."""

    def __init__(self, child: process.Child, *, line_bytes: int, output_bytes: int) -> None:
        """``line_bytes`` bounds one record, ``output_bytes`` all of them together."""
        self._child = child
        self._framer = framers.Framer(
            bounds.Limits(line_bytes=line_bytes, file_bytes=output_bytes, lines=LINES, records=LINES),
            oversize="skip",
            tail="torn",
        )
        self._ready: collections.deque[bytes] = collections.deque()
        self._bad = 0
        self._ended = False

    @property
    def skipped(self) -> int:
        """Records that were refused so far, the torn tail included."""
        return self._framer.skipped + self._bad + (1 if self._framer.torn else 0)

    def send(self, message: dict[str, Any]) -> bool:
        """Queue one message; False when the child takes no more."""
        return self._child.write(msgspec.json.encode(message) + b"\n")

    def receive(self, seconds: float) -> dict[str, Any] | Literal["nothing", "end"]:
        """Return the next message, ``nothing`` when none came within ``seconds``, ``end`` when there will be none.

        OutputLimitError when the agent printed more than it may.
        """
        while True:
            while self._ready:
                message = self._decode(self._ready.popleft())
                if message is not None:
                    return message
            if self._ended:
                return "end"
            chunk = self._child.read(seconds)
            if chunk == "nothing":
                return "nothing"
            try:
                if chunk == "end":
                    self._ended = True
                    self._ready.extend(self._framer.finish())
                else:
                    self._ready.extend(self._framer.feed(chunk))
            except stream_errors.StreamError as error:
                self._ended = True
                message_text = f"the agent printed too much: {error.code}"
                raise OutputLimitError(message_text) from None

    def _decode(self, line: bytes) -> dict[str, Any] | None:
        value = codec.decode(line)
        if isinstance(value, codec.Refused):
            self._bad += 1
            return None
        return value
