"""What an agent may ask while it encodes: bounded answers, refusals as answers, and nothing changed by asking."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from klaud.encoder import model, reference, slayer, tools
from tests.support import encoding

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

DEFINITION = {"kind": "column", "model": "lines", "name": "gross_value",
              "body": {"sql": "quantity * unit_price", "type": "DOUBLE"}}  # fmt: skip


class Asking(encoding.InstantAgent):
    """An agent that talks to the desk instead of writing a file."""

    def __init__(self, talk: Callable[[Any], Awaitable[None]]) -> None:
        super().__init__()
        self.talk = talk

    async def run(self, task: model.Task, workspace: Path, tools: Any, bounds: model.Bounds) -> model.ItemResult:
        del workspace, bounds
        self.runs[task.item.id] = self.runs.get(task.item.id, 0) + 1
        await self.talk(tools)
        return model.ItemResult(ended="finished")


def talk(root: Path, what: Callable[[Any], Awaitable[None]], **more: Any) -> model.ReferenceEntry:
    encoding.make(root, more.pop("ids", {0}))
    return asyncio.run(reference.ensure_reference(encoding.request(root, Asking(what), **more)))


async def submit(desk: Any) -> None:
    text, refused = await desk.call("submit", {"definitions": [DEFINITION], "entities": ["shop.lines.gross_value"]})
    assert (text.startswith("submitted"), refused) == (True, False)


def test_an_item_is_encoded_by_tools_alone(tmp_path: Path) -> None:
    async def what(desk: Any) -> None:
        text, refused = await desk.call("inspect_model", {"model": "lines"})
        assert "Price of one unit in euros" in text
        text, refused = await desk.call(
            "run_query", {"query": {"source_model": "lines", "measures": ["sum(quantity)"]}}
        )
        assert (text.splitlines(), refused) == (["lines.quantity_sum", "500"], False)
        text, refused = await desk.call("run_sql", {"statement": "SELECT COUNT(*) AS n FROM orders"})
        assert (text, refused) == ("n\n80", False)
        text, refused = await desk.call("try_definitions", {"definitions": [DEFINITION]})
        assert (text, refused) == ("all definitions run", False)
        text, refused = await desk.call("inspect_model", {"model": "lines"})
        assert "gross_value" not in text
        await submit(desk)

    entry = talk(tmp_path, what)
    assert encoding.row(entry, 0).entities == ("shop.lines.gross_value",)
    assert entry.usage.tool_calls == 6


REFUSED = [
    ("drop_table", {}, "there is no tool of that name; the tools are inspect_model, run_query"),
    ("submit", {"entities": "x"}, "the arguments do not fit"),
    ("submit", [], "the arguments do not fit"),
    ("submit", {"status": "done"}, "the submission cannot be read"),
    ("inspect_model", {"model": "nothing"}, "the models are customers, lines, orders, products, returns"),
    ("run_sql", {"statement": "DELETE FROM orders"}, ""),
    ("run_sql", {"statement": "ATTACH DATABASE '/tmp/x' AS y"}, ""),
    ("run_sql", {"statement": "PRAGMA journal_mode = DELETE"}, ""),
    ("run_sql", {"statement": "SELECT load_extension('x')"}, ""),
    ("run_sql", {"statement": "SELECT 1; SELECT 2"}, ""),
    ("run_sql", {"statement": "SELECT missing FROM nowhere"}, "no such table"),
    ("run_query", {"query": {"source_model": "nowhere", "measures": ["count(*)"]}}, "nowhere"),
]


@pytest.mark.parametrize(("name", "arguments", "said"), REFUSED, ids=[f"{n}-{i}" for i, (n, *_) in enumerate(REFUSED)])
def test_a_refusal_is_an_answer(tmp_path: Path, name: str, arguments: Any, said: str) -> None:
    async def what(desk: Any) -> None:
        text, refused = await desk.call(name, arguments)
        assert refused
        assert text.startswith("refused: ")
        assert said in text
        await submit(desk)

    before = (encoding.make(tmp_path, {0}) / "shop.sqlite").read_bytes()
    assert encoding.row(talk(tmp_path, what), 0).status == "encoded"
    assert (tmp_path / "data" / "shop" / "shop.sqlite").read_bytes() == before


def test_trying_says_what_would_fail_and_leaves_nothing(tmp_path: Path) -> None:
    async def what(desk: Any) -> None:
        bad = {**DEFINITION, "name": "other", "body": {"sql": "nothing", "type": "INT"}}
        text, refused = await desk.call("try_definitions", {"definitions": [bad]})
        assert "selects: shop.lines.other does not run" in text
        assert not refused
        await submit(desk)

    entry = talk(tmp_path, what)
    text = (tmp_path / "refs" / "bench" / "shop" / "models" / "shop" / "lines.yaml").read_text()
    assert "other" not in text
    assert encoding.row(entry, 0).status == "encoded"


def test_answers_are_cut_nudged_and_end(tmp_path: Path) -> None:
    async def what(desk: Any) -> None:
        if desk.task.item.id == 8:
            await desk.call("submit", {"status": "deferred", "notes": "no rule"})
            return
        text, _ = await desk.call("run_sql", {"statement": "SELECT hex(zeroblob(5000)) AS x FROM orders"})
        assert "[more than 20 rows]" in text or "more characters]" in text
        assert len(text) < 700
        for _ in range(34):
            text, refused = await desk.call("inspect_model", {"model": "x"})
        assert "35 tool calls so far: submit now" in text
        desk.calls = tools.CALLS
        text, refused = await desk.call("inspect_model", {"model": "orders"})
        assert (text, refused) == ("refused: more than 400 tool calls in this attempt", True)

    policy = model.Policy(attempts=1, answer_characters=500)
    assert encoding.row(talk(tmp_path, what, policy=policy, ids={0, 8}), 0).status == "error"


def test_a_statement_without_end_is_stopped(tmp_path: Path) -> None:
    folder = encoding.make(tmp_path, {0})
    url = slayer.sqlite_url(folder / "shop.sqlite")
    layer = slayer.Layer(database="shop", dialect="sqlite", url=url, root=tmp_path / "store", query_seconds=0.3)
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT COUNT(*) FROM n"
    with pytest.raises(Exception, match="interrupted"):
        layer.blocking(layer.select, endless, rows=1)
    assert layer.blocking(layer.select, "SELECT 1 AS one", rows=1).rows == ((1,),)
    layer.close()
    layer.close()


def test_the_tools_have_schemas_a_server_can_list() -> None:
    listed = {tool["name"]: tool for tool in tools.listed()}
    assert set(listed) == set(tools.TOOLS)
    assert listed["submit"]["inputSchema"]["properties"]["definitions"]["items"]["$ref"] == "#/$defs/Definition"
    assert listed["run_sql"]["inputSchema"]["required"] == ["statement"]
    assert all(tool["description"] for tool in listed.values())
