"""One builder at a time for one reference: a file lock that is waited for off the event loop, with a deadline.

The operating system frees the lock when its holder dies, so there is nothing to break or to guess. Beside the lock lies
a small file that says who holds it; it is for people only, and nothing is decided by it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
from typing import TYPE_CHECKING

import filelock
import msgspec

from klaud import errors

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from klaud.clock import Clock

POLL_SECONDS = 0.05
"""Between two tries: short against a build, long against a system call."""


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """Who holds a lock."""

    pid: int
    host: str
    since: str


@contextlib.asynccontextmanager
async def held(lock: Path, holder: Path, *, deadline: float, clock: Clock) -> AsyncIterator[float]:
    """Hold ``lock`` for the block; yield the seconds that were waited.

    ``deadline`` is on the monotonic clock. Past it RetryLaterError names the holder's process. The waiting is done in
    a thread, which ends within one poll when the task is cancelled.
    """
    began = clock.monotonic()
    file_lock = filelock.FileLock(lock, thread_local=False)
    await _acquire(file_lock, holder, deadline, clock)
    try:
        await asyncio.to_thread(_name_holder, holder, clock)
        yield clock.monotonic() - began
    finally:
        _forget_holder(holder)
        file_lock.release()


def _name_holder(holder: Path, clock: Clock) -> None:
    me = Holder(pid=os.getpid(), host=socket.gethostname(), since=clock.now().isoformat(timespec="seconds"))
    with contextlib.suppress(OSError):
        holder.write_bytes(msgspec.json.encode(me) + b"\n")


def _forget_holder(holder: Path) -> None:
    with contextlib.suppress(OSError):
        holder.unlink(missing_ok=True)


async def _acquire(file_lock: filelock.BaseFileLock, holder: Path, deadline: float, clock: Clock) -> None:
    stop = threading.Event()

    def wait() -> bool:
        while True:
            try:
                file_lock.acquire(blocking=False)
            except filelock.Timeout:
                if stop.is_set() or clock.monotonic() >= deadline:
                    return False
                stop.wait(POLL_SECONDS)
            else:
                return True

    waiting = asyncio.ensure_future(asyncio.to_thread(wait))
    try:
        got = await asyncio.shield(waiting)
    except asyncio.CancelledError:
        stop.set()
        if await waiting:
            file_lock.release()
        raise
    if not got:
        raise errors.RetryLaterError(
            f"another build of this reference is running ({describe(holder)}) and did not end in time",
            advice="Wait for that build, or end that process if it hangs; then run the same command again.",
        )


def describe(holder: Path) -> str:
    """Return who the holder file names, in words."""
    try:
        who = msgspec.json.decode(holder.read_bytes(), type=Holder)
    except (OSError, msgspec.DecodeError):
        return "its process is unknown"
    return f"process {who.pid} on {who.host}, since {who.since}"
