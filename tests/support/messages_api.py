"""A scripted Messages API on loopback: answers each request of an agent's program with the next reply of a script.

A reply is a list of content blocks; ``{"type": "tool_use", "name": ..., "input": {...}}`` asks for a tool, and the texts of
the tool results that come back are kept in ``results``. A reply may also be a function of the newest tool result's text.
"""

from __future__ import annotations

import http.server
import json
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

KEY = "sk-ant-real-canary-42"


class MessagesApi:
    """The server's state."""

    def __init__(self, replies: list[list[dict[str, Any]] | Callable[[str], list[dict[str, Any]]]]) -> None:
        self.replies = replies
        self.asked = 0
        self.keys: set[str] = set()
        self.paths: list[str] = []
        self.results: list[str] = []
        self.systems: list[str] = []
        self.firsts: list[str] = []
        self.wholes: list[str] = []
        self.url = ""
        self.port = 0
        """In every id, because a resumed session has those of another server."""
        self.before: Callable[[int], None] = lambda _n: None
        self.usage = {"input_tokens": 1000, "output_tokens": 100}
        self.lock = threading.Lock()

    @property
    def mark(self) -> str:
        """What the ids of the newest answer carry."""
        return f"{self.port}_{self.asked:04d}"

    def reply(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        texts = _tool_results(body)
        with self.lock:
            number = self.asked
            self.asked += 1
            self.results = texts
            self.firsts.append(json.dumps(body["messages"][0])[:20_000])
            self.wholes.append(json.dumps(body["messages"])[:200_000])
        self.before(number)
        if number >= len(self.replies):
            return [{"type": "text", "text": "nothing more to do"}]
        made = self.replies[number]
        return made(texts[-1] if texts else "") if callable(made) else made


def _tool_results(body: dict[str, Any]) -> list[str]:
    found = []
    for message in body["messages"]:
        content = message["content"] if isinstance(message["content"], list) else []
        for block in content:
            if block.get("type") == "tool_result":
                inner = block.get("content", "")
                found.append(inner if isinstance(inner, str) else "".join(part.get("text", "") for part in inner))
    return found


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # an answer is several writes: each would wait 40 ms for an acknowledgement
    api: MessagesApi

    def log_message(self, *_: object) -> None:
        pass

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.api.keys.add(self.headers.get("x-api-key", "") or self.headers.get("authorization", ""))
        self.api.paths.append(self.path)
        if not self.path.startswith("/v1/messages?") and self.path != "/v1/messages":
            self._json({"input_tokens": 10})
            return
        blocks = self.api.reply(body)
        uses = any(block["type"] == "tool_use" for block in blocks)
        message = {
            "id": f"msg_{self.api.mark}", "type": "message", "role": "assistant", "model": body["model"],
            "stop_reason": "tool_use" if uses else "end_turn", "stop_sequence": None,
        }  # fmt: skip
        usage = self.api.usage
        if not body.get("stream"):
            content = [{"id": f"toolu_{self.api.mark}_{n}", **block} if block["type"] == "tool_use" else block
                       for n, block in enumerate(blocks)]  # fmt: skip
            self._json({**message, "content": content, "usage": usage})
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        start = {**message, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
        self._event("message_start", {"message": start})
        for number, block in enumerate(blocks):
            self._block(number, block)
        self._event(
            "message_delta",
            {"delta": {"stop_reason": message["stop_reason"], "stop_sequence": None},
             "usage": {"output_tokens": usage["output_tokens"]}},
        )  # fmt: skip
        self._event("message_stop", {})
        self.close_connection = True

    def _block(self, number: int, block: dict[str, Any]) -> None:
        if block["type"] == "tool_use":
            shown = {"type": "tool_use", "id": f"toolu_{self.api.mark}_{number}", "name": block["name"], "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        else:
            shown = {"type": "text", "text": ""}
            delta = {"type": "text_delta", "text": block["text"]}
        self._event("content_block_start", {"index": number, "content_block": shown})
        self._event("content_block_delta", {"index": number, "delta": delta})
        self._event("content_block_stop", {"index": number})

    def _event(self, kind: str, value: dict[str, Any]) -> None:
        self.wfile.write(f"event: {kind}\ndata: {json.dumps({'type': kind, **value})}\n\n".encode())
        self.wfile.flush()

    def _json(self, value: dict[str, Any]) -> None:
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@contextmanager
def serve(replies: list[Any]) -> Iterator[MessagesApi]:
    """Serve ``replies`` until the block ends."""
    api = MessagesApi(replies)
    handler = type("Handler", (_Handler,), {"api": api})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    api.port = server.server_address[1]
    api.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield api
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
