"""The batch interface in Anthropic's shape: Message Batches, one results file.

``base_url`` is without the version, e.g. ``https://api.anthropic.com``. The provider names the results' address itself; it
is not followed elsewhere, since the key goes along: the file is asked for at this base, where that address must be the
batch's own. No I/O here.
"""

from __future__ import annotations

import json
import urllib.parse
from typing import TYPE_CHECKING, Any

from klaud import names
from klaud.records import call, model, values

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

VERSION = "2023-06-01"
RESULTS = "results"
"""What the one file of a batch is called here; the provider gives it no id."""

_STATUS: dict[str, model.Status] = {"in_progress": "working", "canceling": "working", "ended": "completed"}
_ENDED = ("succeeded", "errored", "canceled", "expired")


class Shape:
    """Calls and answers of one account. The key is in the calls' headers and nowhere else."""

    def __init__(self, base_url: str, key: str) -> None:
        self._base = base_url.rstrip("/")
        self._key = key

    def __repr__(self) -> str:
        """Show no key."""
        return "<anthropic batches>"

    def creating(self, asks: Sequence[model.Ask]) -> Generator[call.Call, dict[str, Any], dict[str, Any]]:
        """Create the batch."""
        body = json.dumps({"requests": [_request(ask) for ask in asks]}).encode()
        return (yield self._call("POST", "", body=body))

    def status(self, batch_id: str) -> call.Call:
        """Ask for a batch."""
        return self._call("GET", f"/{names.path_segment(batch_id)}")

    def cancel(self, batch_id: str) -> call.Call:
        """Ask for a batch's end."""
        return self._call("POST", f"/{names.path_segment(batch_id)}/cancel", body=b"{}")

    def batch(self, said: dict[str, Any]) -> model.Batch | None:
        """Read a batch object."""
        identity = values.identifier(said.get("id"))
        if identity is None:
            return None
        files: tuple[model.BatchFile, ...] = ()
        address = said.get("results_url")
        if address is not None:
            if not isinstance(address, str) or not _is_results(address, identity):
                return None
            files = (model.BatchFile(kind="result", id=RESULTS),)
        counts = values.counts(said.get("request_counts"))
        ended = [counts[name] for name in _ENDED if name in counts]
        complete = len(ended) == len(_ENDED)
        return model.Batch(
            id=identity,
            status=values.status(said.get("processing_status"), _STATUS),
            files=files,
            total=sum(ended) + counts["processing"] if complete and "processing" in counts else None,
            ended=sum(ended) if complete else None,
        )

    def file(self, batch: model.Batch, file: model.BatchFile) -> call.Call:  # noqa: ARG002 - there is only one
        """Get the results."""
        return self._call("GET", f"/{names.path_segment(batch.id)}/results")

    def answer(self, record: dict[str, Any]) -> model.Answer | None:
        """Read one line of the results."""
        custom_id = record.get("custom_id")
        if not isinstance(custom_id, str):
            return None
        blocks = values.path(record, "result", "message", "content")
        text = None
        if values.path(record, "result", "type") == "succeeded" and isinstance(blocks, list):
            texts = [block.get("text") for block in blocks if isinstance(block, dict) and block.get("type") == "text"]
            parts = [part for part in texts if isinstance(part, str)]
            text = "".join(parts) if texts and parts == texts else None
        return model.Answer(custom_id=custom_id, text=text)

    def _call(self, method: str, path: str, body: bytes | None = None) -> call.Call:
        headers = {"x-api-key": self._key, "anthropic-version": VERSION, "Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        return call.Call(f"{self._base}/v1/messages/batches{path}", method=method, headers=headers, body=body)


def _is_results(address: str, batch_id: str) -> bool:
    try:
        path = urllib.parse.urlsplit(address).path
    except ValueError:
        return False
    return path.endswith(f"/v1/messages/batches/{batch_id}/results")


def _request(ask: model.Ask) -> dict[str, Any]:
    return {
        "custom_id": ask.custom_id,
        "params": {
            "model": ask.model,
            "max_tokens": ask.max_tokens,
            "system": ask.system,
            "messages": [{"role": "user", "content": ask.prompt}],
        },
    }
