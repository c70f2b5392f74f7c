"""A child program with its whole process tree: started apart, its pipes drained, ended within a bound.

One pump thread serves stdin, stdout, stderr and the control socket of the cage (see ``cage``); the caller reads chunks and
writes bytes without ever blocking on the child. What the child prints faster than it is read waits in the pipe, so memory is
flat. ``end`` goes on regardless after its bound; what then is left is counted, never hidden.

When klaud dies the control socket closes, and the cage ends the tree. The child inherits no descriptor and no environment.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Self

if TYPE_CHECKING:
    from collections.abc import Mapping

    from klaud.session import sandbox as sandboxes

CHUNK_BYTES = 65_536
"""One read: the size of a pipe, and what the framer takes at once."""
AHEAD_BYTES = 4 * 1_048_576
"""What is read ahead of the consumer; above it the child has to wait."""
ACCEPT_SECONDS = 0.2
"""Between two looks whether the cage has died instead of calling back."""
INPUT_BYTES = 64 * 1_048_576
"""What may wait to be read by the child: an agent that never reads must not grow klaud."""
CONTROL_BYTES = 65_536
"""One event of the cage."""

CAGE: Final = Path(__file__).with_name("cage.py")


@dataclasses.dataclass(frozen=True, slots=True)
class Start:
    """What to start. ``read`` and ``write``: the paths that exist for it where files are isolated.

    ``env`` is the whole environment. ``listen``: loopback sockets to be made where the child will see them.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    home: str = "/tmp"  # noqa: S108 - the child's own /tmp where files are isolated
    listen: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Ended:
    """How the child ended. ``status``: exit status, minus the signal's number, None where it never started or is stuck.

    ``left``: processes of its tree that could not be killed. ``how``: what it took. ``stderr``: the end of its stderr.
    """

    status: int | None
    left: int
    how: Literal["by-itself", "end-of-input", "terminated", "killed", "abandoned"]
    seconds: float
    stderr: bytes


class NotStartedError(Exception):
    """The program could not be started. ``missing``: there is no such program."""

    def __init__(self, message: str, *, missing: bool) -> None:
        super().__init__(message)
        self.missing = missing


class Child:
    """One started program. Use as a context manager, or call ``end``: both end the whole tree."""

    def __init__(
        self,
        start: Start,
        sandbox: sandboxes.Sandbox,
        *,
        stderr_bytes: int = 65_536,
        start_seconds: float = 30.0,
    ) -> None:
        """Start it and wait, at most ``start_seconds``, until it runs. NotStartedError says why it does not."""
        self.sandbox = sandbox
        self.listeners: list[socket.socket] = []
        """Sockets that listen on the child's own loopback, see ``Start.listen``."""
        self._stderr_bytes = stderr_bytes
        self._lock = threading.Condition()
        self._out: collections.deque[bytes] = collections.deque()
        self._out_bytes = 0
        self._out_ended = False
        self._in: collections.deque[memoryview] = collections.deque()
        self._in_bytes = 0
        self._in_close = False
        self._stderr = bytearray()
        self._events: list[dict[str, object]] = []
        self._control_gone = False
        self._stop = False
        self._ended: Ended | None = None
        self._control_data = b""
        self._folder = tempfile.mkdtemp(prefix="klaud-cage-")
        self._wake_read, self._wake_write = socket.socketpair()
        for end in (self._wake_read, self._wake_write):
            end.setblocking(False)  # noqa: FBT003 - the socket's own signature
        try:
            self._launch(start, start_seconds)
        except BaseException:
            self.end(step_seconds=2.0, total_seconds=5.0)
            raise

    def _launch(self, start: Start, start_seconds: float) -> None:
        deadline = time.monotonic() + start_seconds
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._pump: threading.Thread | None = None
        with listener:
            path = f"{self._folder}/control"
            listener.bind(path)
            listener.listen(1)
            listener.settimeout(ACCEPT_SECONDS)
            try:
                self._process = subprocess.Popen(
                    [*self.sandbox.prefix, sys.executable, "-I", "-S", str(CAGE), path],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env={"PATH": os.defpath, "LANG": "C.UTF-8"},
                    cwd="/",
                    start_new_session=True,
                    bufsize=0,
                )
            except OSError as error:
                message = f"the cage could not be started: {error.strerror}"
                raise NotStartedError(message, missing=False) from None
            self._control = self._accept(listener, self._process, deadline)
        self._control.sendall(json.dumps(self._config(start)).encode() + b"\n")
        pump = threading.Thread(target=self._run, name="klaud-child", daemon=True)
        try:
            pump.start()
        except RuntimeError:
            message = "the machine has no thread left"
            raise NotStartedError(message, missing=False) from None
        self._pump = pump
        with self._lock:
            while not (self._find("started") or self._find("failed") or self._control_gone):
                if not self._lock.wait(deadline - time.monotonic()):
                    message = f"{start.argv[0]} did not start within {start_seconds:g} s"
                    raise NotStartedError(message, missing=False)
        if failed := self._find("failed"):
            raise NotStartedError(
                str(failed["what"]), missing=failed["errno"] == 2 and "starting" in str(failed["what"])
            )
        if not self._find("started"):
            raise NotStartedError("the cage ended before the program was started", missing=False)

    @staticmethod
    def _accept(listener: socket.socket, process: subprocess.Popen[bytes], deadline: float) -> socket.socket:
        while time.monotonic() < deadline:
            with contextlib.suppress(TimeoutError):
                return listener.accept()[0]
            if process.poll() is not None:
                message = f"the cage ended at once with status {process.returncode}"
                raise NotStartedError(message, missing=False)
        message = "the cage did not start in time"
        raise NotStartedError(message, missing=False)

    def _config(self, start: Start) -> dict[str, object]:
        files = "files" in self.sandbox.parts
        root = None
        if files:
            at = f"{self._folder}/root"
            Path(at).mkdir()
            root = {"at": at, "read": start.read, "write": start.write, "home": start.home, "proc": True}
        return {
            "argv": start.argv,
            "env": dict(start.env),
            "cwd": start.cwd,
            "uid": self.sandbox.uid,
            "gid": self.sandbox.uid,
            "root": root,
            "listen": start.listen if "network" in self.sandbox.parts else 0,
        }

    # -- what the caller does

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def running(self) -> bool:
        """Tell whether the child has not ended yet, as far as the cage has said."""
        return not (self._find("ended") or self._control_gone)

    def write(self, data: bytes) -> bool:
        """Queue ``data`` for the child's stdin; False when it is closed or the child has let too much lie unread."""
        with self._lock:
            if self._in_close or self._stop or self._in_bytes + len(data) > INPUT_BYTES:
                return False
            self._in.append(memoryview(data))
            self._in_bytes += len(data)
        self._wake()
        return True

    def close_input(self) -> None:
        """Close the child's stdin once what was queued has been read."""
        with self._lock:
            self._in_close = True
        self._wake()

    def read(self, seconds: float) -> bytes | Literal["nothing", "end"]:
        """Return the next bytes of stdout, ``nothing`` when none came within ``seconds``, ``end`` when it is closed."""
        deadline = time.monotonic() + seconds
        with self._lock:
            while not self._out:
                if self._out_ended or self._stop:
                    return "end"
                if not self._lock.wait(max(0.0, deadline - time.monotonic())) and not self._out:
                    return "end" if self._out_ended else "nothing"
            chunk = self._out.popleft()
            self._out_bytes -= len(chunk)
        self._wake()
        return chunk

    def end(self, *, step_seconds: float = 10.0, total_seconds: float = 30.0, grace_seconds: float = 0.0) -> Ended:
        """End the whole tree and return how; a second call returns the same.

        End of input (where ``grace_seconds`` is given), SIGTERM, SIGKILL to everything, then abandon: each step at most
        ``step_seconds``, all at most ``total_seconds``.
        """
        if self._ended is not None:
            return self._ended
        started = time.monotonic()
        deadline = started + total_seconds
        how: Literal["by-itself", "end-of-input", "terminated", "killed", "abandoned"] = "by-itself"
        if not self._wait_end(
            0.2 if self._out_ended else 0.0
        ):  # its pipes close a moment before the cage has reaped it
            if grace_seconds:
                how = "end-of-input"
                self.close_input()
            if not (grace_seconds and self._wait_end(min(grace_seconds, deadline - time.monotonic()))):
                how = "terminated"
                self._order(b"T")
                if not self._wait_end(min(step_seconds, deadline - time.monotonic())):
                    how = "killed"
                    self._order(b"K")
                    if not self._wait_end(min(step_seconds, deadline - time.monotonic())):
                        how = "abandoned"
        self._close(max(0.5, min(step_seconds, deadline - time.monotonic())))
        said = self._find("ended")
        status = said["status"] if said else None
        self._ended = Ended(
            status=os.waitstatus_to_exitcode(status) if isinstance(status, int) and status >= 0 else None,
            left=int(str(said["left"])) if said else (0 if self._process is None or self._is_gone() else 1),
            how=how,
            seconds=time.monotonic() - started,
            stderr=bytes(self._stderr),
        )
        return self._ended

    def kill(self) -> None:
        """Order the cage to kill everything at once; ``end`` still has to be called."""
        self._order(b"K")

    # -- what the pump does

    def _run(self) -> None:  # noqa: C901, PLR0912, PLR0915 - one event loop, one place
        process, control = self._process, self._control
        assert process is not None  # noqa: S101 - set before the thread starts
        assert control is not None  # noqa: S101 - set before the thread starts
        assert process.stdin is not None  # noqa: S101 - asked for
        assert process.stdout is not None  # noqa: S101 - asked for
        assert process.stderr is not None  # noqa: S101 - asked for
        with selectors.DefaultSelector() as selector:
            for stream in (process.stdin, process.stdout, process.stderr):
                os.set_blocking(stream.fileno(), False)
            control.setblocking(False)  # noqa: FBT003 - the socket's own signature
            selector.register(control, selectors.EVENT_READ, "control")
            selector.register(self._wake_read, selectors.EVENT_READ, "wake")
            selector.register(process.stdout, selectors.EVENT_READ, "out")
            selector.register(process.stderr, selectors.EVENT_READ, "err")
            reading, writing = True, False
            while not self._stop:
                with self._lock:
                    want_read = self._out_bytes < AHEAD_BYTES and not self._out_ended
                    want_write = bool(self._in) and not process.stdin.closed
                    if self._in_close and not self._in and not process.stdin.closed:
                        if writing:
                            selector.unregister(process.stdin)
                            writing = False
                        process.stdin.close()
                if want_read != reading and not self._out_ended:
                    if want_read:
                        selector.register(process.stdout, selectors.EVENT_READ, "out")
                    else:
                        selector.unregister(process.stdout)
                    reading = want_read
                if want_write != writing:
                    if want_write:
                        selector.register(process.stdin, selectors.EVENT_WRITE, "in")
                    else:
                        selector.unregister(process.stdin)
                    writing = want_write
                for key, _ in selector.select():
                    if key.data == "wake":
                        with contextlib.suppress(BlockingIOError):
                            self._wake_read.recv(4096)
                    elif key.data == "control":
                        if not self._read_control(control):
                            selector.unregister(control)
                    elif key.data == "out":
                        if not self._read_out(process.stdout.fileno()):
                            selector.unregister(process.stdout)
                            reading = False
                    elif key.data == "err":
                        if not self._read_err(process.stderr.fileno()):
                            selector.unregister(process.stderr)
                    elif not self._write_in(process.stdin.fileno()):
                        selector.unregister(process.stdin)
                        writing = False

    def _read_control(self, control: socket.socket) -> bool:
        try:
            data, handed, _, _ = socket.recv_fds(control, CONTROL_BYTES, 8)
        except BlockingIOError:
            return True
        except OSError:
            data, handed = b"", []
        with self._lock:
            self.listeners += [socket.socket(fileno=number) for number in handed]
            self._control_data += data
            *lines, self._control_data = self._control_data.split(b"\n")
            for line in lines:
                with contextlib.suppress(ValueError):
                    self._events.append(json.loads(line))
            if not data or len(self._control_data) > CONTROL_BYTES:
                self._control_gone = True
            self._lock.notify_all()
            return not self._control_gone

    def _read_out(self, number: int) -> bool:
        try:
            chunk = os.read(number, CHUNK_BYTES)
        except BlockingIOError:
            return True
        except OSError:
            chunk = b""
        with self._lock:
            if chunk:
                self._out.append(chunk)
                self._out_bytes += len(chunk)
            else:
                self._out_ended = True
            self._lock.notify_all()
        return bool(chunk)

    def _read_err(self, number: int) -> bool:
        try:
            chunk = os.read(number, CHUNK_BYTES)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self._stderr += chunk
        del self._stderr[: -self._stderr_bytes]
        return bool(chunk)

    def _write_in(self, number: int) -> bool:
        with self._lock:
            head = self._in[0]
        try:
            count = os.write(number, head[:CHUNK_BYTES])
        except BlockingIOError:
            return True
        except OSError:
            with self._lock:
                self._in.clear()
                self._in_bytes = 0
                self._in_close = True
            return False
        with self._lock:
            self._in_bytes -= count
            if count == len(head):
                self._in.popleft()
            else:
                self._in[0] = head[count:]
        return True

    # -- the ends

    def _find(self, event: str) -> dict[str, object] | None:
        return next((said for said in self._events if said.get("event") == event), None)

    def _order(self, letter: bytes) -> None:
        if self._control is not None:
            with contextlib.suppress(OSError):
                self._control.send(letter)

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            self._wake_write.send(b"w")

    def _wait_end(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        with self._lock:
            while self.running and self._process is not None and self._control is not None:
                if not self._lock.wait(max(0.0, deadline - time.monotonic())):
                    return not self.running
        return True

    def _is_gone(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    def _close(self, seconds: float) -> None:
        """Let go of everything: the closed control socket makes the cage kill what still runs."""
        if self._pump is not None and not self._stop:
            # what the child printed last is still in the pipe: let the pump reach its end, or the bound
            deadline = time.monotonic() + min(seconds, 1.0)
            with self._lock:
                while not self._out_ended and self._out_bytes < AHEAD_BYTES:
                    if not self._lock.wait(max(0.0, deadline - time.monotonic())):
                        break
        self._stop = True
        self._wake()
        if self._pump is not None:
            self._pump.join(seconds)
        if self._control is not None:
            self._control.close()
        if self._process is not None:
            try:
                self._process.wait(seconds)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(OSError):
                    os.killpg(self._process.pid, signal.SIGKILL)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(1.0)
            for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
                if stream is not None:
                    with contextlib.suppress(OSError):
                        stream.close()
        for listener in self.listeners:
            listener.close()
        self._wake_read.close()
        self._wake_write.close()
        with contextlib.suppress(OSError):
            Path(self._folder, "control").unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            Path(self._folder, "root").rmdir()
        with contextlib.suppress(OSError):
            Path(self._folder).rmdir()
