"""A message batch provider on loopback, in either shape: it takes batches, ends them after some polls, serves the files."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from tests.support import loopback

if TYPE_CHECKING:
    from collections.abc import Callable

KEY = "not-a-real-key"


class Provider:
    """Answers for every batch that was created. ``says`` gives the text for (custom_id, prompt), None: that one failed."""

    def __init__(self, host: loopback.Loopback, shape: str, *, polls: int = 0) -> None:
        self.host = host
        self.shape = shape
        self.polls = polls
        self.says: Callable[[str, str], str | None] = lambda _custom_id, _prompt: "{}"
        self.batches: dict[str, list[dict[str, Any]]] = {}
        self.uploads: dict[str, list[dict[str, Any]]] = {}
        self.polled: dict[str, int] = {}
        self.override: dict[str, loopback.Reply] = {}
        self.cancelled: set[str] = set()
        host.handler = self.handle

    @property
    def base_url(self) -> str:
        return self.host.url + ("/v1" if self.shape == "openai" else "")

    def handle(self, asked: loopback.Asked) -> loopback.Reply | None:
        headers = asked.headers
        key = headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ")
        if key != KEY:
            return loopback.Reply(b"{}", status=401)
        if asked.path in self.override:
            return self.override[asked.path]
        return self.anthropic(asked) if self.shape == "anthropic" else self.openai(asked)

    def anthropic(self, asked: loopback.Asked) -> loopback.Reply | None:
        if asked.method == "POST" and asked.path == "/v1/messages/batches":
            identity = f"msgbatch_{len(self.batches)}"
            self.batches[identity] = [
                {"custom_id": one["custom_id"], "prompt": one["params"]["messages"][0]["content"]}
                for one in json.loads(asked.body)["requests"]
            ]
            return self.json(self.status(identity, polling=False))
        if match := re.fullmatch(r"/v1/messages/batches/([^/]+)(/results|/cancel)?", asked.path):
            identity, rest = match[1], match[2]
            if rest == "/cancel":
                self.cancelled.add(identity)
            if rest == "/results":
                return loopback.Reply(self.lines(identity), chunked=True)
            return self.json(self.status(identity, polling=rest is None))
        return None

    def openai(self, asked: loopback.Asked) -> loopback.Reply | None:
        if asked.method == "POST" and asked.path == "/v1/files":
            identity = f"file-{len(self.uploads)}"
            lines = [line for line in asked.body.split(b"\n") if line.startswith(b'{"custom_id"')]
            self.uploads[identity] = [json.loads(line) for line in lines]
            return self.json({"id": identity, "object": "file"})
        if asked.method == "POST" and asked.path == "/v1/batches":
            identity = f"batch_{len(self.batches)}"
            self.batches[identity] = [
                {"custom_id": one["custom_id"], "prompt": one["body"]["messages"][1]["content"]}
                for one in self.uploads[json.loads(asked.body)["input_file_id"]]
            ]
            return self.json(self.status(identity, polling=False))
        if match := re.fullmatch(r"/v1/batches/([^/]+)(/cancel)?", asked.path):
            if match[2]:
                self.cancelled.add(match[1])
            return self.json(self.status(match[1], polling=not match[2]))
        if match := re.fullmatch(r"/v1/files/(out|err)-([^/]+)/content", asked.path):
            return loopback.Reply(self.lines(match[2], failed=match[1] == "err"), chunked=True)
        return None

    def status(self, identity: str, *, polling: bool) -> dict[str, Any]:
        asks = self.batches.get(identity, [])
        self.polled[identity] = self.polled.get(identity, 0) + polling
        ended = self.polled[identity] > self.polls or identity in self.cancelled
        failed = sum(self.says(one["custom_id"], one["prompt"]) is None for one in asks)
        if self.shape == "anthropic":
            counts = {"processing": 0, "succeeded": len(asks) - failed, "errored": failed, "canceled": 0, "expired": 0}
            if not ended:
                counts = {**dict.fromkeys(counts, 0), "processing": len(asks)}
            address = f"{self.host.url}/v1/messages/batches/{identity}/results" if ended else None
            return {
                "id": identity, "processing_status": "ended" if ended else "in_progress", "request_counts": counts,
                "results_url": address,
            }  # fmt: skip
        return {
            "id": identity,
            "status": ("cancelled" if identity in self.cancelled else "completed") if ended else "in_progress",
            "output_file_id": f"out-{identity}" if ended and failed < len(asks) else None,
            "error_file_id": f"err-{identity}" if ended and failed else None,
            "request_counts": {"total": len(asks), "completed": len(asks) - failed, "failed": failed},
        }

    def lines(self, identity: str, *, failed: bool = False) -> bytes:
        made = []
        for one in self.batches[identity]:
            text = self.says(one["custom_id"], one["prompt"])
            if self.shape == "anthropic":
                message = {"role": "assistant", "content": [{"type": "text", "text": text}]}
                result = {"type": "errored"} if text is None else {"type": "succeeded", "message": message}
                made.append({"custom_id": one["custom_id"], "result": result})
            elif (text is None) == failed:
                body = {"choices": [{"message": {"role": "assistant", "content": text}}]}
                made.append({
                    "custom_id": one["custom_id"],
                    "response": {"status_code": 500 if failed else 200, "body": {} if failed else body},
                    "error": {"code": "server_error"} if failed else None,
                })  # fmt: skip
        return "".join(json.dumps(line) + "\n" for line in made).encode()

    @staticmethod
    def json(value: Any) -> loopback.Reply:
        return loopback.Reply(json.dumps(value).encode())
