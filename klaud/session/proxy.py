"""The small proxy in klaud's process through which an agent talks to its model: it holds the key, meters, and stops.

The agent has a dummy key that is good for this proxy and this session only. A request must be one of the Messages API's,
carry the dummy key, and find budget left; then it is sent to the configured host with the real key, and the answer is
passed on as it comes. Tokens and money are counted from the host's own answers, never from what the agent reports. Over the
budget the answer is an error that the agent's program does not try again, and the session is told.

With ``egress`` hosts configured the same port is an HTTP proxy for ``CONNECT`` to exactly those names; an address that is
no public one (loopback, private, link-local, metadata) is refused after the name was resolved.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hmac
import http.client
import http.server
import ipaddress
import secrets
import select
import socket
import socketserver
import threading
import time
import urllib.parse
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from klaud.session import model

if TYPE_CHECKING:
    from collections.abc import Sequence

PATHS = frozenset({"/v1/messages", "/v1/messages/count_tokens"})
"""What is forwarded; everything else is 404 here."""
BODY_BYTES = 64 * 1_048_576
"""A request: a long conversation with its images."""
LINE_BYTES = 4 * 1_048_576
"""One line of an event stream that is looked at for its usage."""
CONNECT_SECONDS = 15.0
"""To reach the model's host."""
IDLE_SECONDS = 600.0
"""Between two bytes of an answer: a model may think for minutes."""
CALLS = 16
"""Requests at one time: an agent's program has a few."""
CHUNK = 16_384

_PASS_REQUEST = frozenset(
    {"content-type", "accept", "anthropic-version", "anthropic-beta", "user-agent", "accept-encoding"}
)
_PASS_ANSWER = frozenset({"content-type", "request-id", "retry-after", "x-should-retry", "anthropic-organization-id"})


@dataclasses.dataclass(frozen=True, slots=True)
class Upstream:
    """Where the model is and how to log in there. ``kind``: as an API key, or as a subscription's bearer token."""

    url: str
    secret: str = dataclasses.field(repr=False)
    kind: Literal["api-key", "bearer"] = "api-key"


class Meter:
    """What was used so far, and whether there is budget left. Safe to use from several threads."""

    def __init__(
        self, budgets: model.Budgets, prices: dict[str, model.Price], *, tokens: int = 0, microdollars: int = 0
    ) -> None:
        """``tokens`` and ``microdollars``: what earlier turns of the session have used."""
        self._budgets = budgets
        self._prices = prices
        self._before = (tokens, microdollars)
        self._lock = threading.Lock()
        self.input_tokens = 0
        self.output_tokens = 0
        self.microdollars = 0.0
        self.calls = 0
        self.refused = 0

    def price(self, name: str) -> model.Price:
        """Return the price of a model: the longest configured beginning of its name, else the default."""
        fitting = [known for known in self._prices if name.startswith(known)]
        return self._prices[max(fitting, key=len)] if fitting else model.Price()

    def add(self, name: str, usage: dict[str, int]) -> None:
        """Count one answer's usage."""
        price = self.price(name)
        cost = (
            usage.get("input_tokens", 0) * price.input
            + usage.get("output_tokens", 0) * price.output
            + usage.get("cache_creation_input_tokens", 0) * price.cache_write
            + usage.get("cache_read_input_tokens", 0) * price.cache_read
        )
        with self._lock:
            self.calls += 1
            self.input_tokens += sum(count for key, count in usage.items() if key != "output_tokens")
            self.output_tokens += usage.get("output_tokens", 0)
            self.microdollars += cost

    def over(self) -> str:
        """Return which budget is used up, in words, or an empty text."""
        with self._lock:
            tokens = self._before[0] + self.input_tokens + self.output_tokens
            spent = self._before[1] + self.microdollars
        if tokens >= self._budgets.tokens:
            return f"the session's {self._budgets.tokens} tokens are used"
        if spent >= self._budgets.dollars * 1_000_000:
            return f"the session's {self._budgets.dollars} dollars are used"
        return ""


class Proxy:
    """The server; use as a context manager."""

    def __init__(self, upstream: Upstream, meter: Meter, *, egress: Sequence[str] = ()) -> None:
        self.upstream = upstream
        self.meter = meter
        self.egress = frozenset(egress)
        self.key = f"sk-ant-klaud-{secrets.token_hex(24)}"
        """The dummy key that the agent gets."""
        self.exhausted = ""
        """Which budget was used up, once a request was refused for it."""
        self.slots = threading.BoundedSemaphore(CALLS)
        self._servers: list[_Server] = []
        self._threads: list[threading.Thread] = []

    def serve(self, listener: socket.socket) -> int:
        """Serve on a socket that listens already; return its port."""
        server = _Server(listener, self)
        thread = threading.Thread(target=server.serve_forever, args=(0.1,), name="klaud-proxy", daemon=True)
        self._servers.append(server)
        self._threads.append(thread)
        thread.start()
        return int(listener.getsockname()[1])

    def listen(self) -> int:
        """Serve on a socket of its own on this machine's loopback; return its port."""
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        return self.serve(listener)

    def close(self) -> None:
        """Stop serving; requests in flight are cut."""
        for server in self._servers:
            server.shutdown()
            server.cut()
            server.server_close()
        for thread in self._threads:
            thread.join(2.0)

    def __enter__(self) -> Proxy:  # noqa: PYI034 - final in practice
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Server(socketserver.ThreadingMixIn, socketserver.BaseServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, listener: socket.socket, proxy: Proxy) -> None:
        socketserver.BaseServer.__init__(self, listener.getsockname(), _Handler)
        self.socket = listener
        self.proxy = proxy
        self.open: set[socket.socket] = set()

    def fileno(self) -> int:
        return self.socket.fileno()

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = self.socket.accept()
        self.open.add(connection)
        return connection, address

    def shutdown_request(self, request: Any) -> None:
        self.open.discard(request)
        with contextlib.suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)
        request.close()

    def cut(self) -> None:
        for connection in list(self.open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing: a connection that breaks is the agent's affair."""

    def server_close(self) -> None:
        self.socket.close()


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # an answer is several writes: each would wait 40 ms for an acknowledgement
    timeout = IDLE_SECONDS
    server: _Server

    def log_message(self, *_: object) -> None:
        """Nothing of what an agent sends is logged."""

    def do_POST(self) -> None:
        proxy = self.server.proxy
        path = urllib.parse.urlsplit(self.path).path
        body = self._body()
        if body is None:
            return
        if path not in PATHS:
            self._refuse(404, "not_found_error", "only the Messages API is served here")
        elif not self._known():
            self._refuse(401, "authentication_error", "this key is not this session's")
        elif over := proxy.meter.over():
            proxy.exhausted = over
            proxy.meter.refused += 1
            self._refuse(400, "invalid_request_error", f"stopped by klaud: {over}")
        elif not proxy.slots.acquire(blocking=False):
            self._refuse(429, "rate_limit_error", "too many requests at once")
        else:
            try:
                self._forward(path, body)
            finally:
                proxy.slots.release()

    def do_CONNECT(self) -> None:
        host, _, port = self.path.rpartition(":")
        if host not in self.server.proxy.egress or port != "443":
            self._refuse(403, "permission_error", "this host is not among the allowed ones")
            return
        remote = _connect_public(host, 443)
        if remote is None:
            self._refuse(502, "api_error", "the host cannot be reached, or its address is not a public one")
            return
        with remote:
            self.wfile.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            self.wfile.flush()
            _splice(self.connection, remote)
        self.close_connection = True

    def __getattr__(self, name: str) -> Any:
        if name.startswith("do_"):
            return lambda: self._refuse(404, "not_found_error", "only the Messages API is served here")
        raise AttributeError(name)

    # -- parts

    def _body(self) -> bytes | None:
        length = self.headers.get("content-length", "")
        if not length.isascii() or not length.isdigit() or int(length) > BODY_BYTES:
            self.close_connection = True
            self._refuse(413, "request_too_large", "a request needs its length, and it must be below the limit")
            return None
        return self.rfile.read(int(length))

    def _known(self) -> bool:
        given = self.headers.get("x-api-key") or self.headers.get("authorization", "").removeprefix("Bearer ")
        return hmac.compare_digest(given.encode(), self.server.proxy.key.encode())

    def _forward(self, path: str, body: bytes) -> None:
        upstream = self.server.proxy.upstream
        parts = urllib.parse.urlsplit(upstream.url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(parts.hostname or "", parts.port, timeout=CONNECT_SECONDS)
        headers = {key: value for key, value in self.headers.items() if key.lower() in _PASS_REQUEST}
        headers["accept-encoding"] = "identity"  # the answer is read here for its usage
        if upstream.kind == "api-key":
            headers["x-api-key"] = upstream.secret
        else:
            headers["authorization"] = f"Bearer {upstream.secret}"
        query = urllib.parse.urlsplit(self.path).query
        try:
            connection.connect()
            if connection.sock is not None:
                connection.sock.settimeout(IDLE_SECONDS)
            connection.request("POST", f"{parts.path.rstrip('/')}{path}{'?' + query if query else ''}", body, headers)
            answer = connection.getresponse()
            self._pass_on(answer)
        except (OSError, http.client.HTTPException):
            self.close_connection = True
            with contextlib.suppress(OSError):
                self._refuse(502, "api_error", "the model's host cannot be reached")
        finally:
            connection.close()

    def _pass_on(self, answer: http.client.HTTPResponse) -> None:
        """Pass the answer on as it comes, and count what it says was used."""
        count = Counter()
        self.send_response(answer.status)
        for key, value in answer.getheaders():
            if key.lower() in _PASS_ANSWER:
                self.send_header(key, value)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        try:
            while chunk := answer.read1(CHUNK):
                count.feed(chunk)
                self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
                self.wfile.flush()
        finally:
            name, usage = count.done()
            if usage:
                self.server.proxy.meter.add(name, usage)
        self.wfile.write(b"0\r\n\r\n")  # after the count: who has the whole answer finds it counted
        self.wfile.flush()

    def _refuse(self, status: int, kind: str, text: str) -> None:
        body = msgspec.json.encode({"type": "error", "error": {"type": kind, "message": text}})
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.send_header("x-should-retry", "false")
        self.end_headers()
        self.wfile.write(body)


class Counter:
    """Finds model and usage in an answer of the Messages API: a JSON object, or an event stream. Bounded in memory."""

    def __init__(self) -> None:
        self._rest = b""
        self._model = ""
        self._usage: dict[str, int] = {}
        self._dropping = False

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes."""
        lines = (self._rest + chunk).split(b"\n")
        self._rest = lines.pop()
        for line in lines:
            if self._dropping:
                self._dropping = False
            else:
                self._line(line)
        if len(self._rest) > LINE_BYTES:
            self._rest = b""
            self._dropping = True

    def done(self) -> tuple[str, dict[str, int]]:
        """Return the model's name and the usage, as far as the answer told."""
        if self._rest:
            self._line(self._rest)
            self._rest = b""
        return self._model, dict(self._usage)

    def _line(self, line: bytes) -> None:
        text = line.removeprefix(b"data:").strip()
        if not text.startswith(b"{"):
            return
        try:
            value = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            return
        if not isinstance(value, dict):
            return
        for place in (value, value.get("message")):
            if not isinstance(place, dict):
                continue
            if isinstance(place.get("model"), str):
                self._model = place["model"]
            usage = place.get("usage")
            if isinstance(usage, dict):
                # a stream repeats its counts, growing: the newest of each kind counts
                for key in ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"):
                    if isinstance(usage.get(key), int) and usage[key] >= 0:
                        self._usage[key] = usage[key]


def _connect_public(host: str, port: int) -> socket.socket | None:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return None
    for family, kind, protocol, _, address in found:
        if not ipaddress.ip_address(address[0]).is_global:
            continue
        remote = socket.socket(family, kind, protocol)
        remote.settimeout(CONNECT_SECONDS)
        try:
            remote.connect(address)
        except OSError:
            remote.close()
            continue
        return remote
    return None


def _splice(one: socket.socket, other: socket.socket) -> None:
    """Pass bytes both ways until a side ends or nothing comes for IDLE_SECONDS."""
    last = time.monotonic()
    while time.monotonic() - last < IDLE_SECONDS:
        readable, _, _ = select.select([one, other], [], [], 1.0)
        for side in readable:
            try:
                data = side.recv(CHUNK)
                if not data:
                    return
                (other if side is one else one).sendall(data)
            except OSError:
                return
            last = time.monotonic()
