"""The batch interface in OpenAI's shape: an uploaded input file, a batch over it, an output and an error file.

``base_url`` includes the version, e.g. ``https://api.openai.com/v1``. No I/O here.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from klaud import names
from klaud.records import call, model, values

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

ENDPOINT = "/v1/chat/completions"

_STATUS: dict[str, model.Status] = {
    "validating": "working",
    "in_progress": "working",
    "finalizing": "working",
    "cancelling": "working",
    "completed": "completed",
    "failed": "failed",
    "expired": "expired",
    "cancelled": "cancelled",
}


class Shape:
    """Calls and answers of one account. The key is in the calls' headers and nowhere else."""

    def __init__(self, base_url: str, key: str) -> None:
        self._base = base_url.rstrip("/")
        self._key = key

    def __repr__(self) -> str:
        """Show no key."""
        return "<openai batches>"

    def creating(self, asks: Sequence[model.Ask]) -> Generator[call.Call, dict[str, Any], dict[str, Any]]:
        """Upload the input file, then create the batch."""
        lines = "".join(json.dumps(_request(ask)) + "\n" for ask in asks).encode()
        form = call.Form({"purpose": (None, b"batch"), "file": ("batch.jsonl", lines, "application/jsonl")})
        uploaded = yield self._call("POST", "/files", body=form)
        file = values.identifier(uploaded.get("id"))
        body = {"input_file_id": file or "", "endpoint": ENDPOINT, "completion_window": "24h"}
        if file is None:
            return {}
        return (yield self._call("POST", "/batches", body=json.dumps(body).encode()))

    def status(self, batch_id: str) -> call.Call:
        """Ask for a batch."""
        return self._call("GET", f"/batches/{names.path_segment(batch_id)}")

    def cancel(self, batch_id: str) -> call.Call:
        """Ask for a batch's end."""
        return self._call("POST", f"/batches/{names.path_segment(batch_id)}/cancel", body=b"{}")

    def batch(self, said: dict[str, Any]) -> model.Batch | None:
        """Read a batch object."""
        identity = values.identifier(said.get("id"))
        if identity is None:
            return None
        files: list[model.BatchFile] = []
        ids: tuple[tuple[model.FileKind, Any], ...] = (
            ("result", said.get("output_file_id")),
            ("error", said.get("error_file_id")),
        )
        for kind, value in ids:
            if value is None:
                continue
            file = values.identifier(value)
            if file is None:
                return None
            files.append(model.BatchFile(kind=kind, id=file))
        counts = values.counts(said.get("request_counts"))
        ended = [counts[name] for name in ("completed", "failed") if name in counts]
        return model.Batch(
            id=identity,
            status=values.status(said.get("status"), _STATUS),
            files=tuple(files),
            total=counts.get("total"),
            ended=sum(ended) if len(ended) == 2 else None,
        )

    def file(self, batch: model.Batch, file: model.BatchFile) -> call.Call:  # noqa: ARG002 - files have ids of their own
        """Get a file's content."""
        return self._call("GET", f"/files/{names.path_segment(file.id)}/content")

    def answer(self, record: dict[str, Any]) -> model.Answer | None:
        """Read one line of the output or the error file."""
        custom_id = record.get("custom_id")
        if not isinstance(custom_id, str):
            return None
        text = values.path(record, "response", "body", "choices", 0, "message", "content")
        good = values.path(record, "response", "status_code") == 200 and record.get("error") is None
        return model.Answer(custom_id=custom_id, text=text if good and isinstance(text, str) else None)

    def _call(self, method: str, path: str, body: bytes | call.Form | None = None) -> call.Call:
        headers = {"Authorization": f"Bearer {self._key}", "Accept": "application/json"}
        if isinstance(body, bytes):
            headers["Content-Type"] = "application/json"
        return call.Call(self._base + path, method=method, headers=headers, body=body)


def _request(ask: model.Ask) -> dict[str, Any]:
    messages = [{"role": "system", "content": ask.system}, {"role": "user", "content": ask.prompt}]
    return {
        "custom_id": ask.custom_id,
        "method": "POST",
        "url": ENDPOINT,
        "body": {"model": ask.model, "max_completion_tokens": ask.max_tokens, "messages": messages},
    }
