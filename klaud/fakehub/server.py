"""The hub on a port of 127.0.0.1: a threaded Werkzeug server, one per hub."""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import TYPE_CHECKING, Any

from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server

from klaud.fakehub.app import App

if TYPE_CHECKING:
    from collections.abc import Iterator

    from klaud.fakehub.hub import Hub

TICK_SECONDS = 0.05
"""How often the hub's time is looked at while nobody calls, so that runs end by themselves."""

SOCKET_SECONDS = 30.0
"""A client that says nothing for this long is dropped; otherwise an abandoned connection would hold a thread for ever."""


class QuietHandler(WSGIRequestHandler):
    """Logs nothing to standard error: the hub has its own log."""

    protocol_version = "HTTP/1.1"
    timeout = SOCKET_SECONDS

    def send_response(self, code: Any, message: str | None = None) -> None:
        """Begin an answer without a Date of the machine's: the hub dates its answers itself."""
        self.send_response_only(code, message)
        self.send_header("Server", "klaud-hub")

    def log(self, type: str, message: str, *args: object) -> None:  # noqa: A002 - Werkzeug's signature
        """Hand the line to the hub's logger, at debug level."""
        logging.getLogger("klaud.fakehub.http").debug("%s %s", type, message % args if args else message)


class Server:
    """A hub that listens. ``url`` is the API's base, without a slash at its end."""

    def __init__(self, hub: Hub, port: int = 0) -> None:
        """Bind 127.0.0.1 at ``port`` (0: any free one)."""
        self.hub = hub
        self.app = App(hub)
        self._server: BaseWSGIServer = make_server(
            "127.0.0.1", port, self.app, threaded=True, request_handler=QuietHandler
        )
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(
                target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, name="hub-http", daemon=True
            ),
            threading.Thread(target=self._tick, name="hub-clock", daemon=True),
        ]
        self.url = f"http://127.0.0.1:{self._server.port}"
        hub.base_url = self.url

    def git_url(self, full_name: str) -> str:
        """Return a repository's address for git."""
        return f"{self.url}/{full_name}.git"

    def start(self) -> None:
        """Begin to answer."""
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Stop answering and free the port."""
        self._stop.set()
        self._server.shutdown()
        for thread in self._threads:
            thread.join(timeout=5)
        self._server.server_close()

    def _tick(self) -> None:
        while not self._stop.wait(TICK_SECONDS):
            self.hub.tick()


@contextlib.contextmanager
def serve(hub: Hub, port: int = 0) -> Iterator[Server]:
    """Serve a hub until the block ends."""
    server = Server(hub, port)
    server.start()
    try:
        yield server
    finally:
        server.close()
