"""An HTTP control plane on loopback that keeps to its own formats, and misbehaves as told.

``mode``: ``well``; ``slow`` (each answer takes ``delay``); ``stalled`` (no answer until ``go`` is set); ``dripping`` (a byte
of the head at a time); ``lying`` (answers of the wrong kind); ``denying`` (401); ``failing`` (500). ``writes`` holds what
was taken, in order. A format that is wrong is answered with 422 in every mode that answers at all.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import re
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

LIES: tuple[Any, ...] = (
    {"is_current_turn": 0}, {"is_current_turn": "false"}, {"is_current_turn": None}, {"stream": None}, {}, [], "false", None,
    {"stream": {"id": ["s"]}, "is_current_turn": ""}, {"stream": "s", "replica_id": "another"}, {"stream": {"id": True}},
)  # fmt: skip
BODY_BYTES = 1 << 20


class Server(http.server.ThreadingHTTPServer):
    """The server; start it with ``serving``."""

    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.mode = "well"
        self.delay = 0.3
        self.go = threading.Event()
        self.token = ""
        self.current = True
        self.stream: str | None = "st-1"
        self.refuse: dict[str, int] = {}
        self.lock = threading.Lock()
        self.writes: list[tuple[str, dict[str, Any]]] = []
        self.asked: list[str] = []
        self.turns: set[tuple[str, int]] = set()
        self.most = 0
        self._open = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def beats(self) -> list[bool]:
        """Return ``is_running`` of every heartbeat that was taken."""
        return [body["is_running"] for route, body in self.writes if route.endswith("heartbeat")]

    def take(self, route: str, body: Any) -> tuple[int, Any]:
        """Take one request: its status and its answer."""
        if route in self.refuse:
            return self.refuse[route], {"detail": "no"}
        if self.mode == "denying":
            return 401, {"detail": "who are you"}
        if self.mode == "failing":
            return 500, {}
        fault = _fault(route, body)
        if fault:
            return (404 if fault == "route" else 422), {"detail": fault}
        if route == "sessions/turns/":
            key = (body["session_id"], body["turn_index"])
            if key in self.turns:
                return 409, {"detail": "there is such a turn"}
            self.turns.add(key)
        self.writes.append((route, body))
        if route != "sessions/streams/heartbeat":
            return 201, {}
        if self.mode == "lying":
            return 200, LIES[(len(self.writes) - 1) % len(LIES)]
        stream = None if self.stream is None else {"id": self.stream}
        return 200, {"stream": stream, "replica_id": body["replica_id"], "is_current_turn": self.current}


def _fault(route: str, body: Any) -> str:
    if not isinstance(body, dict):
        return "body"
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,128}", str(body.get("session_id"))):
        return "session_id"
    if route == "sessions/streams/heartbeat":
        return "" if isinstance(body.get("is_running"), bool) and body.get("replica_id") else "heartbeat"
    if route == "sessions/turns/":
        if not re.fullmatch(r"[0-9a-f]{16}", str(body.get("span_id", "0" * 16))):
            return "span_id"
        needed = {
            "stream_id": str,
            "turn_index": int,
            "harness_kind": str,
            "references": list,
            "start_time": str,
            "end_time": str,
        }
        wrong = [name for name, kind in needed.items() if not isinstance(body.get(name), kind) or body[name] == ""]
        return ", ".join(wrong)
    if route == "sessions/records/ingest":
        for record in body.get("records", [None]):
            if not isinstance(record, dict) or not record.get("turn_id"):
                return "turn_id"
            if not re.fullmatch(r"[0-9a-f]{16}", str(record.get("span_id"))):
                return "span_id"
        return ""
    return "route"


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # an answer is several writes: each would wait 40 ms for an acknowledgement
    timeout = 10

    def do_POST(self) -> None:
        server = self.server
        body = self.rfile.read(min(int(self.headers.get("Content-Length", 0)), BODY_BYTES))
        route = self.path.lstrip("/")
        with server.lock:
            server.asked.append(route)
            server._open += 1
            server.most = max(server.most, server._open)
        try:
            if server.mode == "slow":
                server.go.wait(server.delay)
            if server.mode == "stalled" and not server.go.wait(8):
                return
            answer: Any
            with server.lock:
                if server.token and self.headers.get("Authorization") != f"Bearer {server.token}":
                    status, answer = 401, None
                else:
                    status, answer = server.take(route, json.loads(body))
            self._answer(status, json.dumps(answer).encode())
        finally:
            with server.lock:
                server._open -= 1

    def _answer(self, status: int, body: bytes) -> None:
        with contextlib.suppress(OSError):
            if self.server.mode == "dripping":
                for byte in f"HTTP/1.1 {status} x\r\nX: {'y' * 500}".encode():
                    self.wfile.write(bytes([byte]))
                    self.wfile.flush()
                    if self.server.go.wait(0.05):
                        return
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's signature
        """Say nothing."""


@contextlib.contextmanager
def serving() -> Iterator[Server]:
    """Serve until the block ends."""
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.go.set()
            server.shutdown()
            thread.join(5)
