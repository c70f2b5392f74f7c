"""What an agent may ask while it encodes an item: look at the semantic layer, try definitions, submit. Nothing else.

The desk is klaud's side. Every answer is a text within a character limit; a refusal is an answer that says why. Nothing
an agent asks here changes the build: definitions are tried on the store and taken back at once, and a submission is
checked after the agent's process tree is gone. After ``nudge_after`` calls every answer reminds the agent to submit.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import msgspec

from klaud.encoder import codec, documents, model, slayer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

ROWS = 20
"""Rows that one query shows an agent."""
CALLS = 400
"""Tool calls of one attempt; a loop that goes on is answered with a refusal only."""


class InspectModel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Show one model of the semantic layer: its columns with meanings, its measures and joins."""

    model: str


class RunQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Run a query of the semantic layer, for example {"source_model": "orders", "measures": ["sum(amount)"]}."""

    query: dict[str, Any]


class RunSql(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Run one SELECT statement on the read-only database and see the first rows."""

    statement: str


class TryDefinitions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Apply definitions, execute each, and take them back: says what would fail."""

    definitions: tuple[model.Definition, ...]


class Submit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Submit the item: its definitions and the canonical references of its entities; or defer it with a reason."""

    status: str = "encoded"
    definitions: tuple[model.Definition, ...] = ()
    entities: tuple[str, ...] = ()
    notes: str = ""


TOOLS: dict[str, type[msgspec.Struct]] = {
    "inspect_model": InspectModel,
    "run_query": RunQuery,
    "run_sql": RunSql,
    "try_definitions": TryDefinitions,
    "submit": Submit,
}


def listed() -> list[dict[str, Any]]:
    """Return the tools with their input schemas, as an MCP server lists them."""
    result = []
    for name, kind in TOOLS.items():
        (_,), parts = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
        schema: dict[str, Any] = dict(parts.pop(kind.__name__))
        for unwanted in ("title", "description"):
            schema.pop(unwanted, None)
        if parts:
            schema["$defs"] = parts
        result.append({"name": name, "description": " ".join((kind.__doc__ or "").split()), "inputSchema": schema})
    return result


class Desk:
    """The tools of one attempt at ``task``. ``submission`` is the last one that was submitted, or None."""

    def __init__(
        self,
        *,
        task: model.Task,
        layer: slayer.Layer,
        held: documents.Documents,
        policy: model.Policy,
        trial: Callable[[tuple[model.Definition, ...]], Awaitable[tuple[model.Problem, ...]]],
    ) -> None:
        """``held``: the documents as they stand; ``trial``: applies definitions, executes them and takes them back."""
        self.submission: model.Submission | None = None
        self.calls = 0
        self.task = task
        self._layer = layer
        self._held = held
        self._policy = policy
        self._trial = trial
        self._one = asyncio.Lock()

    async def call(self, name: str, arguments: object) -> tuple[str, bool]:
        """Carry out one tool call; return the answer and whether it is a refusal. Never raises for what an agent asks."""
        async with self._one:
            self.calls += 1
            if self.calls > CALLS:
                return f"refused: more than {CALLS} tool calls in this attempt", True
            text, refused = await self._answer(name, arguments)
            limit = self._policy.answer_characters
            if len(text) > limit:
                text = f"{text[:limit]}\n[cut: {len(text) - limit} more characters]"
            if self.calls >= self._policy.nudge_after and self.submission is None:
                text += f"\n[{self.calls} tool calls so far: submit now, or defer the item with a reason]"
            return text, refused

    async def _answer(self, name: str, arguments: object) -> tuple[str, bool]:
        kind = TOOLS.get(name)
        if kind is None:
            return f"refused: there is no tool of that name; the tools are {', '.join(TOOLS)}", True
        try:
            asked = msgspec.convert(arguments, kind)
        except msgspec.ValidationError as error:
            return f"refused: the arguments do not fit: {str(error)[:300]}", True
        try:
            match asked:
                case InspectModel():
                    return self._inspect(asked.model)
                case RunQuery():
                    return _table(await self._layer.call(self._layer.query, asked.query, rows=ROWS)), False
                case RunSql():
                    return _table(await self._layer.call(self._layer.select, asked.statement, rows=ROWS)), False
                case TryDefinitions():
                    return await self._try(asked.definitions)
                case Submit():
                    return self._submit(asked)
                case _:
                    return "refused: there is no tool of that name", True
        except Exception as error:  # noqa: BLE001 - the layer's and the database's objections are the agent's to read
            return f"refused: {slayer.reason(error)}", True

    def _inspect(self, name: str) -> tuple[str, bool]:
        document = self._held.get(name)
        if document is None:
            return f"refused: there is no model of that name; the models are {', '.join(sorted(self._held))}", True
        shown = {key: value for key, value in document.items() if value not in ([], {}, None)}
        return json.dumps(shown, indent=1, ensure_ascii=False, default=str), False

    async def _try(self, definitions: tuple[model.Definition, ...]) -> tuple[str, bool]:
        if len(definitions) > self._policy.definitions:
            return f"refused: more than {self._policy.definitions} definitions", True
        problems = await self._trial(definitions)
        if problems:
            return "\n".join(f"{problem.check}: {problem.text}" for problem in problems), False
        return "all definitions run", False

    def _submit(self, asked: Submit) -> tuple[str, bool]:
        data = msgspec.json.encode({**msgspec.to_builtins(asked), "nonce": self.task.nonce})
        decoded = codec.decode_submission(data, self._policy.submission_bytes)
        if isinstance(decoded, model.Problem):
            return f"refused: {decoded.text}", True
        self.submission = decoded
        return "submitted; it is checked when you have ended. End now.", False


def _table(rows: slayer.Rows) -> str:
    lines = [" | ".join(rows.columns)]
    lines += [" | ".join(str(cell)[:200] for cell in row) for row in rows.rows]
    if rows.more:
        lines.append(f"[more than {len(rows.rows)} rows]")
    return "\n".join(lines)
