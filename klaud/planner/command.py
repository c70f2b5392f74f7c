"""A short child program whose output is wanted: bounded in time and bytes, without klaud's environment, ended as a group.

Used for candidate sources and capacity providers that are programs. The child gets PATH, a locale and an empty HOME of its
own, no standard input, and no shell. What it says on stderr is dropped: it may hold anything. Its process group is killed
at the end in every case; a grandchild in a session of its own is not hunted (agents run in ``klaud.session``'s cage).
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import tempfile
import time
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

CHUNK_BYTES = 65_536
"""One read: the size of a pipe."""

END_SECONDS = 5.0
"""How long a killed child is waited for: SIGKILL needs no more than a moment."""


class Printed(msgspec.Struct, frozen=True):
    """The child ended with status 0; ``output`` is all of its standard output."""

    output: bytes


class CommandFailed(msgspec.Struct, frozen=True):
    """There is no output to use. ``why`` is klaud's own sentence and holds nothing that the child said."""

    why: str


def run(
    argv: Sequence[str],
    *,
    cwd: Path,
    seconds: float,
    limit_bytes: int,
    environment: Mapping[str, str] | None = None,
) -> Printed | CommandFailed:
    """Run a program in ``cwd`` for at most ``seconds`` and return what it printed (at most ``limit_bytes``)."""
    with tempfile.TemporaryDirectory(prefix="klaud-command-") as home:
        env = {"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8", "HOME": home, **(environment or {})}
        try:
            child = subprocess.Popen(
                list(argv),
                cwd=cwd,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            return CommandFailed(f"{argv[0]} could not be started: {error.strerror}")
        with child:
            try:
                return _read(child, argv[0], time.monotonic() + seconds, seconds, limit_bytes)
            finally:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(child.pid, signal.SIGKILL)
                child.wait(END_SECONDS)


def _read(
    child: subprocess.Popen[bytes], name: str, until: float, seconds: float, limit_bytes: int
) -> Printed | CommandFailed:
    output = bytearray()
    for chunk in _chunks(child, until):
        if chunk is None:
            return CommandFailed(f"{name} did not end within {seconds:g} s")
        output += chunk
        if len(output) > limit_bytes:
            return CommandFailed(f"{name} printed more than {limit_bytes} bytes")
    try:
        status = child.wait(max(0.0, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        return CommandFailed(f"{name} did not end within {seconds:g} s")
    return Printed(bytes(output)) if status == 0 else CommandFailed(f"{name} ended with status {status}")


def _chunks(child: subprocess.Popen[bytes], until: float) -> Iterator[bytes | None]:
    """Yield what the child prints; None when the time is over."""
    assert child.stdout is not None  # noqa: S101 - it was asked for
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        while (left := until - time.monotonic()) > 0:
            if selector.select(left):
                chunk = os.read(child.stdout.fileno(), CHUNK_BYTES)
                if not chunk:
                    return
                yield chunk
    yield None
