"""What a session tells while it works: one log, one milestone log, the end of the agent's stderr. Nothing leaves unredacted.

The log is Python's own: one handler on the package's logger, at INFO, put there once however often it is asked for; what the
program above has set up still gets every record (propagation is not touched). The milestone log is a file of JSON lines,
each written and flushed at once: ``at``, ``phase``, ``item``, ``seconds`` since the beginning, ``took`` since the line
before. A session that was killed has told how far it came, so that slow and stuck look different.

Every text goes through one redactor, which fails closed: what it refuses is dropped and counted. A log that cannot be
written costs its lines (counted), never the session.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Literal, Protocol, TextIO, TypeAlias

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from klaud import clock as clocks
    from klaud.session import rules_redact

PACKAGE = "klaud"
LINES = 10_000
"""Milestones of one session: five hundred steps have a few each."""
ITEM_CHARACTERS = 200
"""One item: a tool's name, a run's id, a closed word."""
STDERR_LINES = 200
"""Lines of the agent's stderr that are repeated in the log; all that was kept is in the file."""

Phase: TypeAlias = Literal[
    "claim", "isolation", "work-tree", "turn", "agent", "tool", "beat", "park", "settle", "end",
]  # fmt: skip

LOG = logging.getLogger(f"{PACKAGE}.session")


class Handler(logging.StreamHandler[TextIO]):
    """Writes the package's records, redacted. There is one: ``install``."""

    def __init__(self, redactor: rules_redact.Redactor) -> None:
        super().__init__(sys.stderr)
        self.redactor = redactor
        self.setLevel(logging.INFO)

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record; one that cannot be redacted is dropped and counted."""
        try:
            text = self.redactor.text(self.format(record))
            if text is not None:
                self.stream.write(text + self.terminator)
                self.flush()
        except Exception:  # noqa: BLE001 - fails closed: no traceback of logging's own, which would show the record
            self.redactor.dropped += 1


def install(redactor: rules_redact.Redactor) -> Handler:
    """Put the package's one handler in place and return it; where it is already, it gets this redactor."""
    logger = logging.getLogger(PACKAGE)
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.INFO)
    for handler in logger.handlers:
        if isinstance(handler, Handler):
            handler.redactor = redactor
            handler.stream = sys.stderr
            return handler
    handler = Handler(redactor)
    logger.addHandler(handler)
    return handler


class Journal(Protocol):
    """Where a session tells. Safe to use from several threads; never raises."""

    def log(self, text: str) -> None:
        """Say one sentence."""
        ...

    def mark(self, phase: Phase, item: str = "") -> None:
        """Note a milestone. ``item``: a closed word or an id, never a text of an agent or a person."""
        ...

    def tell(self, heard: Callable[[dict[str, Any]], None] | None) -> None:
        """Let ``heard`` be told every milestone from here on, too."""
        ...

    def stderr(self, tail: bytes, limit: int) -> None:
        """Keep the end of an agent's stderr. ``limit``: how many bytes are kept of it at most."""
        ...


class Silent:
    """Tells nobody."""

    def log(self, text: str) -> None:
        """Say nothing."""

    def mark(self, phase: Phase, item: str = "") -> None:
        """Note nothing."""

    def tell(self, heard: Callable[[dict[str, Any]], None] | None) -> None:
        """Tell nobody."""

    def stderr(self, tail: bytes, limit: int) -> None:
        """Keep nothing."""


SILENT: Journal = Silent()


class Kept:
    """The journal of a process: logs, and keeps its files in a folder (None: no files). Use it as a context manager."""

    def __init__(
        self,
        folder: Path | None,
        name: str,
        *,
        redactor: rules_redact.Redactor,
        clock: clocks.Clock,
    ) -> None:
        """``name``: of the session, in the files' names."""
        self.redactor = redactor
        self._heard: Callable[[dict[str, Any]], None] | None = None
        self.lost = 0
        """Milestones that could not be written, or were beyond the limit."""
        self._clock = clock
        self._lock = threading.Lock()
        self._began = self._last = time.monotonic()
        self._lines = 0
        self._file: TextIO | None = None
        self._stderr = None if folder is None else folder / f"agent-stderr-{name}.log"
        if folder is not None:
            with contextlib.suppress(OSError):
                self._file = (folder / f"milestones-{name}.jsonl").open("a", encoding="utf-8")

    def log(self, text: str) -> None:
        """Say one sentence in the package's log; redacted already, for who gets it by propagation."""
        cleaned = self.redactor.text(text)
        if cleaned is not None:
            LOG.info("%s", cleaned)

    def mark(self, phase: Phase, item: str = "") -> None:
        """Write one milestone, at once."""
        with self._lock:
            now = time.monotonic()
            item = item[:ITEM_CHARACTERS]
            line: dict[str, Any] = {
                "at": self._clock.now().isoformat(timespec="milliseconds"),
                "phase": phase, "item": item,
                "seconds": round(now - self._began, 3), "took": round(now - self._last, 3),
            }  # fmt: skip
            self._last = now
            self._lines += 1
            text = self.redactor.text(msgspec.json.encode(line).decode())
            if text is None or self._lines > LINES:
                self.lost += 1
                return
            self._write(text)
        if self._heard is not None:
            with contextlib.suppress(Exception):
                self._heard(msgspec.json.decode(text))

    def tell(self, heard: Callable[[dict[str, Any]], None] | None) -> None:
        """Let ``heard`` be told every milestone from here on, too; what it raises costs that record."""
        self._heard = heard

    def _write(self, text: str) -> None:
        if self._file is None:
            return
        try:
            self._file.write(text + "\n")
            self._file.flush()
        except (OSError, ValueError):
            self.lost += 1

    def stderr(self, tail: bytes, limit: int) -> None:
        """Keep and log the end of the agent's stderr, redacted; where that cannot be done, only its size is told."""
        if not tail:
            return
        text = self.redactor.tail(tail, limit=limit)
        if text is None:
            self.log(f"the agent's stderr ({len(tail)} bytes) could not be redacted and was dropped")
            return
        if self._stderr is not None:
            try:
                with self._stderr.open("a", encoding="utf-8") as file:
                    file.write(text)
            except OSError:
                self.lost += 1
        for line in text.splitlines()[-STDERR_LINES:]:
            self.log(f"agent: {line}")

    def __enter__(self) -> Kept:  # noqa: PYI034 - final in practice
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Write the last milestone (how it ended: the error's class, or "done"), and close."""
        self.mark("end", "done" if kind is None else kind.__name__)
        if self.redactor.dropped or self.lost:
            self.log(f"log: {self.redactor.dropped} texts could not be redacted, {self.lost} could not be written")
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):
                file.close()


@contextlib.contextmanager
def opened(folder: Path | None, name: str, *, redactor: rules_redact.Redactor, clock: clocks.Clock) -> Iterator[Kept]:
    """Install the handler and open a journal."""
    install(redactor)
    with Kept(folder, name, redactor=redactor, clock=clock) as journal:
        yield journal
