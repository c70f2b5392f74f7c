"""A git host for tests: real bare repositories behind ``git http-backend`` on a loopback socket, with faults.

Faults are functions ``(method, path) -> Fault | None`` asked at each request, so that a test decides exactly which answer
is lost, refused or cut. ``before`` runs in the server before a request is served: that is where another client moves a ref
between the advertisement and the lock.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import http.server
import os
import subprocess
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

ZERO = "0" * 40
CONFIG = """[http]
\treceivepack = true
[uploadpack]
\tallowFilter = true
\tallowAnySHA1InWant = true
[receive]
\tadvertiseAtomic = true
\tautogc = false
[gc]
\tauto = 0
"""
"""What a host allows; no collection of garbage after each push, which would cost a process or two."""


@functools.cache
def backend() -> str:
    """Return git's own program for HTTP, found once: asking git for it costs a process at each request."""
    place = subprocess.run(["git", "--exec-path"], check=True, capture_output=True, text=True).stdout.strip()
    return f"{place}/git-http-backend"


@dataclasses.dataclass
class Fault:
    """What goes wrong with one request. ``lose`` serves it and cuts the connection instead of answering."""

    status: int = 0
    headers: dict[str, str] = dataclasses.field(default_factory=dict)
    body: bytes = b""
    lose: bool = False
    cut_after: int | None = None


class GitHost:
    """One bare repository ``acme/bench.git`` and what was asked of it."""

    def __init__(self, root: Path, *, token: str = "") -> None:
        self.root = root
        self.repo = root / "acme" / "bench.git"
        self.token = token
        self.log: list[tuple[str, str]] = []
        self.headers_seen: list[dict[str, str]] = []
        self.fault: Callable[[str, str], Fault | None] = lambda _method, _path: None
        self.before: Callable[[str, str], None] = lambda _method, _path: None
        self.url = ""
        self.git("init", "-q", "--bare", "-b", "main", str(self.repo), cwd=root)
        with (self.repo / "config").open("a", encoding="ascii") as file:
            file.write(CONFIG)

    def git(self, *arguments: str, cwd: Path | None = None, text: str | None = None) -> str:
        """Run git on the bare repository and return its output."""
        environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("GIT_")},
            "GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@example.invalid", "GIT_AUTHOR_DATE": "1700000000 +0000",
            "GIT_COMMITTER_NAME": "A", "GIT_COMMITTER_EMAIL": "a@example.invalid", "GIT_COMMITTER_DATE": "1700000000 +0000",
            "GIT_CONFIG_NOSYSTEM": "1", "HOME": str(self.root),
        }  # fmt: skip
        done = subprocess.run(
            ["git", *arguments],
            cwd=cwd or self.repo,
            env=environment,
            input=text,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    def commit(self, message: str, *parents: str, tree: str = "4b825dc642cb6eb9a060e54bf8d69288fbee4904") -> str:
        """Make a commit object straight in the repository."""
        if tree.startswith("4b825"):
            self.git("hash-object", "-t", "tree", "-w", "--stdin", text="")
        return self.git(
            "commit-tree", tree, *(word for parent in parents for word in ("-p", parent)), "-F", "-", text=message
        )

    def refs(self) -> dict[str, str]:
        """Return every ref."""
        rows = self.git("for-each-ref", "--format=%(refname) %(objectname)").splitlines()
        return dict(row.split(" ") for row in rows)

    def set(self, ref: str, oid: str) -> None:
        """Move a ref by force."""
        self.git("update-ref", ref, oid)


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # an answer is several writes: each would wait 40 ms for an acknowledgement
    timeout = 60
    host: GitHost

    def log_message(self, *_arguments: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._serve(b"")

    def do_POST(self) -> None:
        if self.headers.get("Transfer-Encoding", "") == "chunked":
            body = b""
            while size := int(self.rfile.readline().strip(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self._serve(body)

    def _serve(self, body: bytes) -> None:
        host = self.host
        host.log.append((self.command, self.path))
        host.headers_seen.append(dict(self.headers.items()))
        expected = "Basic " + base64.b64encode(f"x-access-token:{host.token}".encode()).decode()
        if host.token and self.headers.get("Authorization") != expected:
            self._answer(401, {"WWW-Authenticate": "Basic"}, b"")
            return
        fault = host.fault(self.command, self.path)
        if fault is not None and fault.status:
            self._answer(fault.status, fault.headers, fault.body)
            return
        host.before(self.command, self.path)
        status, headers, answer = self._backend(body)
        if fault is not None and fault.lose:
            self.close_connection = True
            return
        if fault is not None and fault.cut_after is not None:
            self.send_response(status)
            for key, value in headers.items():
                self.send_header(key, value)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer[: fault.cut_after])
            self.close_connection = True
            return
        self._answer(status, headers, answer)

    def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _backend(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        path, _, query = self.path.partition("?")
        environment = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(self.host.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_CONFIG_NOSYSTEM": "1",
            "HOME": str(self.host.root),
            "REQUEST_METHOD": self.command,
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "REMOTE_USER": "tester",
            "REMOTE_ADDR": "127.0.0.1",
        }
        if protocol := self.headers.get("Git-Protocol"):
            environment["GIT_PROTOCOL"] = protocol
        done = subprocess.run([backend()], env=environment, input=body, capture_output=True, check=False)
        head, _, answer = done.stdout.partition(b"\r\n\r\n")
        status, headers = 200, {}
        for line in head.decode("latin-1").splitlines():
            key, _, value = line.partition(":")
            if key.lower() == "status":
                status = int(value.split()[0])
            elif key:
                headers[key] = value.strip()
        return status, headers, answer


@contextmanager
def serve(root: Path, *, token: str = "") -> Iterator[GitHost]:
    """Serve a fresh host below ``root`` until the block ends."""
    host = GitHost(root, token=token)
    handler = type("Handler", (_Handler,), {"host": host})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.block_on_close = False
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    host.url = f"http://127.0.0.1:{server.server_address[1]}/acme/bench.git"
    try:
        yield host
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
