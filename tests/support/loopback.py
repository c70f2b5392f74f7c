"""A scripted HTTP server on loopback, down to the byte: what a stream meets when a real one misbehaves.

``replies`` maps a path to the replies it gives in order; the last one is given again. What was asked is in ``asked``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import socket
import socketserver
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


@dataclasses.dataclass
class Asked:
    """One request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclasses.dataclass
class Reply:
    """One answer. ``raw`` replaces everything; ``length`` the declared length; ``cut`` ends the connection after the pieces.

    ``pieces``: the body, written piece by piece; ``chunked``: with chunked encoding; ``wait``: set before the piece of that
    index is written, so that a test decides when the server goes on.
    """

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = dataclasses.field(default_factory=dict)
    pieces: Sequence[bytes] | None = None
    chunked: bool = False
    length: int | str | None = -1
    cut: bool = False
    raw: bytes | None = None
    wait: dict[int, threading.Event] = dataclasses.field(default_factory=dict)


class Loopback:
    """The server: start it with ``serving``."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.replies: dict[str, list[Reply]] = {}
        self.handler: Callable[[Asked], Reply | None] = lambda _asked: None
        self.url = ""
        self.open_connections = 0
        self._lock = threading.Lock()

    def reply(self, path: str, *replies: Reply) -> None:
        """Give these replies on ``path``, in order."""
        self.replies[path] = list(replies)

    def gets(self, path: str) -> int:
        """Count the GETs of one path."""
        return sum(asked.method == "GET" and asked.path == path for asked in self.asked)

    def answer(self, asked: Asked) -> Reply:
        with self._lock:
            self.asked.append(asked)
            made = self.handler(asked)
            if made is not None:
                return made
            queue = self.replies.get(asked.path)
            if not queue:
                return Reply(b"{}", status=404)
            return queue.pop(0) if len(queue) > 1 else queue[0]


def _read_request(file: socket.SocketIO) -> Asked | None:
    line = file.readline(65536)
    if not line.strip():
        return None
    method, path, _ = line.decode("latin-1").split(" ", 2)
    headers = {}
    while (header := file.readline(65536).decode("latin-1").strip()) != "":
        name, _, value = header.partition(":")
        headers[name.lower()] = value.strip()
    return Asked(method, path, headers, file.read(int(headers.get("content-length", "0"))))


def _write(connection: socket.socket, reply: Reply) -> bool:
    """Write one reply; tell whether the connection may be used again."""
    if reply.raw is not None:
        connection.sendall(reply.raw)
        return False
    pieces = list(reply.pieces) if reply.pieces is not None else [reply.body]
    lines = [f"HTTP/1.1 {reply.status} X", *(f"{name}: {value}" for name, value in reply.headers.items())]
    if reply.chunked:
        lines.append("Transfer-Encoding: chunked")
    elif reply.length is not None:
        lines.append(f"Content-Length: {sum(map(len, pieces)) if reply.length == -1 else reply.length}")
    connection.sendall("\r\n".join([*lines, "", ""]).encode("latin-1"))
    for index, piece in enumerate(pieces):
        if index in reply.wait:
            reply.wait[index].wait(60)
        connection.sendall(b"%x\r\n%b\r\n" % (len(piece), piece) if reply.chunked else piece)
    if len(pieces) in reply.wait:
        reply.wait[len(pieces)].wait(60)
    if reply.chunked and not reply.cut:
        connection.sendall(b"0\r\n\r\n")
    return not reply.cut and (reply.chunked or reply.length == -1)


@contextlib.contextmanager
def serving() -> Iterator[Loopback]:
    """Serve until the block ends; every connection is then closed."""
    loopback = Loopback()
    connections: set[socket.socket] = set()

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            connections.add(self.request)
            loopback.open_connections += 1
            try:
                with self.request.makefile("rb") as file:
                    while asked := _read_request(file):
                        if not _write(self.request, loopback.answer(asked)):
                            break
            except (OSError, ValueError):
                pass
            finally:
                loopback.open_connections -= 1
                connections.discard(self.request)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        allow_reuse_address = True
        request_queue_size = 64

    with Server(("127.0.0.1", 0), Handler) as server:
        loopback.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield loopback
        finally:
            server.shutdown()
            for connection in list(connections):
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
            thread.join(5)


class FakeClock:
    """A clock that jumps over what is slept, and remembers it."""

    def __init__(self) -> None:
        self.slept: list[float] = []
        self.passed = 0.0

    def now(self) -> datetime.datetime:
        return datetime.datetime(2026, 11, 30, 12, tzinfo=datetime.UTC) + datetime.timedelta(seconds=self.passed)

    def monotonic(self) -> float:
        return 1000.0 + self.passed

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.passed += max(seconds, 0)
