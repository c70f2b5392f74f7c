"""The tools as an MCP server answers for them: JSON-RPC messages in, messages out, nothing of the transport.

Only what the agent program asks is spoken: ``initialize``, ``ping``, ``tools/list``, ``tools/call`` and notifications. A
tool call runs where the caller wants it to; this module only reads the request and words the answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from klaud.session import model

if TYPE_CHECKING:
    from collections.abc import Callable

SERVER = "klaud"
"""The server's name; the agent sees the tools as ``mcp__klaud__<tool>``."""
PROTOCOL = "2025-06-18"
TOOLS: dict[str, type[msgspec.Struct]] = {
    "open_draft": model.OpenDraft,
    "push_work": model.PushWork,
    "dispatch_smoke": model.DispatchSmoke,
    "start_final_run": model.StartFinalRun,
    "wait_for_run": model.WaitForRun,
    "read_run": model.ReadRun,
    "report_attempt": model.ReportAttempt,
    "read_baseline": model.ReadBaseline,
    "check_capacity": model.CheckCapacity,
    "finish": model.Finish,
}


class Call(msgspec.Struct, frozen=True):
    """A tool call: the JSON-RPC id, the tool's name and its arguments as they came."""

    id: Any
    name: str
    arguments: dict[str, Any]


def listed() -> list[dict[str, Any]]:
    """Return the tools with their input schemas, as ``tools/list`` gives them."""
    return [
        {"name": name, "description": " ".join((kind.__doc__ or "").split()), "inputSchema": schema(kind)}
        for name, kind in TOOLS.items()
    ]


def schema(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the JSON Schema of one tool's arguments, without the tag that klaud adds."""
    (_,), definitions = msgspec.json.schema_components([kind])
    found: dict[str, Any] = dict(definitions[kind.__name__])
    properties = {key: value for key, value in found["properties"].items() if key != "tool"}
    required = [key for key in found.get("required", []) if key != "tool"]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def read(name: str, arguments: object) -> model.ToolRequest | str:
    """Return the typed request of a call, or in words what is wrong with it."""
    kind = TOOLS.get(name)
    if kind is None:
        return f"there is no tool of that name; the tools are {', '.join(TOOLS)}"
    if not isinstance(arguments, dict):
        return "the arguments must be an object"
    try:
        request: model.ToolRequest = msgspec.convert({**arguments, "tool": name}, model.ToolRequest)
    except msgspec.ValidationError as error:
        return f"the arguments do not fit: {str(error)[:300]}"
    return request


def answer(message: dict[str, Any], tools: Callable[[], list[dict[str, Any]]] = listed) -> dict[str, Any] | Call:
    """Return the answer to one message, or the Call that has to be carried out first (see ``answered``)."""
    method, number = message.get("method"), message.get("id")
    if number is None:
        return {"jsonrpc": "2.0", "result": {}}  # a notification; the control request that carried it wants an answer
    if method == "initialize":
        return _result(
            number,
            {
                "protocolVersion": PROTOCOL,
                "capabilities": {"tools": {}},
                "serverInfo": {"name": SERVER, "version": "1"},
            },
        )
    if method == "ping":
        return _result(number, {})
    if method == "tools/list":
        return _result(number, {"tools": tools()})
    if method == "tools/call":
        parameters = message.get("params")
        if isinstance(parameters, dict):
            arguments = parameters.get("arguments", {})
            return Call(number, str(parameters.get("name", "")), arguments if isinstance(arguments, dict) else {})
    return {"jsonrpc": "2.0", "id": number, "error": {"code": -32601, "message": "method not found"}}


def answered(call: Call, done: model.ToolAnswer) -> dict[str, Any]:
    """Word the answer to a call that was carried out."""
    content = [{"type": "text", "text": done.text}]
    return _result(call.id, {"content": content, "isError": bool(done.refused)})


def _result(number: Any, result: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "result": result}
