"""Each bad input of a database, with its message, before any session; and what good ones become."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from klaud import errors
from klaud.encoder import codec, inputs, model, naming, reference
from tests.support import encoding

if TYPE_CHECKING:
    from pathlib import Path

GOOD = {
    "id": 1, "knowledge": "K", "description": "d", "definition": "x = 1", "type": "calculation_knowledge",
    "children_knowledge": -1,
}  # fmt: skip


def kb(*items: Any) -> bytes:
    return b"\n".join(item if isinstance(item, bytes) else json.dumps(item).encode() for item in items)


BAD_KB: list[tuple[str, bytes, str]] = [
    ("empty", b"\n\n", "has no items"),
    ("no json", kb(b"{"), "line 1 is not JSON"),
    ("no object", kb([1]), "line 1 is not a JSON object"),
    ("duplicate key", kb(b'{"id": 1, "id": 2}'), "line 1 is not JSON"),
    ("missing id", kb({key: value for key, value in GOOD.items() if key != "id"}), "line 1 has no id"),
    ("duplicate id", kb(GOOD, b"", GOOD), "line 3: id 1 is already the id of line 1"),
    ("id text", kb({**GOOD, "id": "1"}), "id '1' is not a whole number"),
    ("id bool", kb({**GOOD, "id": True}), "id 'True' is not a whole number"),
    ("id negative", kb({**GOOD, "id": -1}), "id '-1' is not a whole number"),
    ("type", kb({**GOOD, "type": "rumour"}), "type 'rumour' is none of calculation_knowledge, domain_knowledge"),
    ("knowledge", kb({**GOOD, "knowledge": " "}), "knowledge is empty"),
    ("definition", kb({**GOOD, "definition": 7}), "definition is not a text"),
    ("long", kb({**GOOD, "description": "x" * 70_000}), "more than 65536 characters"),
    ("children", kb({**GOOD, "children_knowledge": "2"}), "children_knowledge is -1, an id or a list of ids"),
    ("children float", kb({**GOOD, "children_knowledge": [1.5]}), "children_knowledge is -1, an id or a list"),
    ("many children", kb({**GOOD, "children_knowledge": list(range(10_001))}), "line 1: more than 10000 children"),
    ("not utf-8", b'{"id": 1, "knowledge": "\xff"}', "is not UTF-8"),
]

BAD_MEANINGS: list[tuple[str, bytes, str]] = [
    ("no json", b"nope", "is not JSON"),
    ("list", b"[]", "is not a JSON object"),
    ("key", b'{"shop|orders": "x"}', "is not <database>|<table>|<column>"),
    ("other database", b'{"other|orders|id": "x"}', "is of database 'other', not shop"),
    ("value", b'{"shop|orders|id": 5}', "neither a text nor"),
    ("fields", b'{"shop|orders|id": {"meaning": "x"}}', "neither a text nor"),
    ("meaning", b'{"shop|orders|id": {"column_meaning": 5}}', "column_meaning of 'shop|orders|id' is not a text"),
]


def refused(root: Path, said: str, **more: Any) -> None:
    """Ask for the reference: refused with that message, no session run and nothing made."""
    agent = encoding.InstantAgent()
    with pytest.raises(errors.InputError) as caught:
        asyncio.run(reference.ensure_reference(encoding.request(root, agent, **more)))
    assert said in str(caught.value)
    assert agent.runs == {}
    assert not (root / "refs").exists()


@pytest.mark.parametrize(("content", "said"), [bad[1:] for bad in BAD_KB], ids=[bad[0] for bad in BAD_KB])
def test_a_bad_knowledge_base_is_refused_before_any_session(tmp_path: Path, content: bytes, said: str) -> None:
    (encoding.make(tmp_path) / "shop_kb.jsonl").write_bytes(content)
    refused(tmp_path, said)


@pytest.mark.parametrize(("content", "said"), [bad[1:] for bad in BAD_MEANINGS], ids=[bad[0] for bad in BAD_MEANINGS])
def test_bad_column_meanings_are_refused_before_any_session(tmp_path: Path, content: bytes, said: str) -> None:
    (encoding.make(tmp_path) / "shop_column_meaning_base.json").write_bytes(content)
    refused(tmp_path, said)


def test_a_bad_database_is_refused_before_any_session(tmp_path: Path) -> None:
    path = encoding.make(tmp_path) / "shop.sqlite"
    whole = path.read_bytes()
    path.write_bytes(b"x" + whole[1:])
    refused(tmp_path, "shop.sqlite is not an SQLite database")
    path.write_bytes(whole[:100] + b"\xff" * 500)
    refused(tmp_path, "shop.sqlite cannot be opened as an SQLite database")
    path.write_bytes(whole)
    (path.parent / "shop.sqlite-wal").write_bytes(b"something")
    refused(tmp_path, "write-ahead log that is not merged")
    (path.parent / "shop.sqlite-wal").unlink()
    path.unlink()
    refused(tmp_path, "shop.sqlite is missing")
    assert not path.exists()
    (path.parent / "shop_kb.jsonl").unlink()
    refused(tmp_path, "shop_kb.jsonl is missing")


def test_an_empty_database_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    path = encoding.make(tmp_path) / "shop.sqlite"
    path.unlink()
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE t (a)")
    connection.execute("DROP TABLE t")
    connection.close()
    with pytest.raises(errors.InputError, match="has no tables"):
        asyncio.run(reference.ensure_reference(encoding.request(tmp_path, encoding.InstantAgent())))
    assert sorted(one.name for one in (tmp_path / "refs" / "bench").iterdir()) == ["shop.build.lock"]


@pytest.mark.parametrize("name", ["", "a-b", "a.b", "../x", "a/b", "x" * 65, "é", "a b"])
def test_a_database_that_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(errors.InputError, match="is not a name"):
        naming.key("bench", name, "sqlite")


@pytest.mark.parametrize("dialect", ["mysql", "SQLite", "", "duckdb"])
def test_another_dialect_is_refused_by_name(dialect: str) -> None:
    with pytest.raises(errors.InputError, match=f"dialect '{dialect}' of database shop is not supported: sqlite and"):
        naming.key("bench", "shop", dialect)


def test_postgres_without_a_dsn_is_refused(tmp_path: Path) -> None:
    encoding.make(tmp_path)
    key = naming.key("bench", "shop", "postgres")
    refused(tmp_path, "needs the DSN of the database in the environment variable KLAUD_POSTGRES_DSN", key=key)
    for text in ("nonsense", "mysql://u@h/d", "postgresql://u@h"):
        refused(tmp_path, "is not a PostgreSQL DSN", key=key, environment={"KLAUD_POSTGRES_DSN": text})


def test_unknown_children_are_dropped_with_one_warning() -> None:
    items, warnings = codec.parse_items(
        kb({**GOOD, "children_knowledge": [2, 7, -1, 8]}, {**GOOD, "id": 2, "children_knowledge": 9}), "kb"
    )
    assert [item.children for item in items] == [(2,), ()]
    assert warnings == ("kb: dropped children that no item has: 7 (of item 1), 8 (of item 1), 9 (of item 2)",)


def test_line_ends_and_a_byte_order_mark_make_no_difference() -> None:
    unix = kb(GOOD, {**GOOD, "id": 2}) + b"\n"
    other = b"\xef\xbb\xbf" + unix.replace(b"\n", b"\r\n")
    assert codec.parse_items(unix, "kb") == codec.parse_items(other, "kb")
    key = naming.key("bench", "shop", "sqlite")
    one = codec.fingerprint("1.0", key, unix, b"{}", b"d")
    assert one == codec.fingerprint("1.0", key, other, b"{}", b"d")
    differing = {
        codec.fingerprint("1.1", key, unix, b"{}", b"d"),
        codec.fingerprint("1.0", naming.key("bench", "shop", "postgres"), unix, b"{}", b"d"),
        codec.fingerprint("1.0", key, unix + b" ", b"{}", b"d"),
        codec.fingerprint("1.0", key, unix, b"{} ", b"d"),
        codec.fingerprint("1.0", key, unix, b"{}", b"e"),
    }
    assert len(differing) == 5
    assert one not in differing
    assert len(one) == 16


def test_meanings_with_fields_become_lines() -> None:
    value = {"shop|Orders|Attributes": {"column_meaning": "JSON", "fields_meaning": {"a": "x", "b": {"c": "y"}}}}
    (meaning,) = codec.parse_meanings(json.dumps(value).encode(), "shop", "m")
    assert (meaning.table, meaning.column, meaning.text) == ("Orders", "Attributes", "JSON\na: x\nb.c: y")


def test_records_come_back_as_they_were() -> None:
    manifest = model.Manifest(
        fingerprint="0" * 16,
        rows=(model.Row(kb_id=1, status="encoded", entities=("shop.a.b",)),),
        definitions={"1": (model.Definition(kind="measure", model="a", name="b", body={"formula": "sum(c)"}),)},
        usage=model.Usage(sessions=1, dollars=0.5),
    )
    assert codec.decode(codec.encode(manifest), model.Manifest, "m") == manifest
    with pytest.raises(errors.InputError, match="is not what klaud writes"):
        codec.decode(codec.encode({**msgspec.to_builtins(manifest), "more": 1}), model.Manifest, "m")
    with pytest.raises(errors.InputError, match="more than 3"):
        codec.decode(b"1234", int, "m", limit=3)


def test_a_relative_read_never_creates_a_database(tmp_path: Path) -> None:
    (tmp_path / "data" / "gone").mkdir(parents=True)
    (tmp_path / "data" / "gone" / "gone_kb.jsonl").write_bytes(kb(GOOD))
    with pytest.raises(errors.InputError, match=r"gone\.sqlite is missing"):
        inputs.read(naming.key("bench", "gone", "sqlite"), tmp_path / "data", {}, query_seconds=5.0)
    assert [path.name for path in (tmp_path / "data" / "gone").iterdir()] == ["gone_kb.jsonl"]


@pytest.mark.parametrize(
    ("limit", "value", "said"), [("ITEMS", 1, "more than 1 items"), ("KB_BYTES", 9, "more than 9")]
)
def test_a_knowledge_base_has_bounds(monkeypatch: pytest.MonkeyPatch, limit: str, value: int, said: str) -> None:
    monkeypatch.setattr(codec, limit, value)
    with pytest.raises(errors.InputError, match=said):
        codec.parse_items(kb(GOOD, {**GOOD, "id": 2}), "kb")


def test_meanings_have_a_bound_and_deep_fields_become_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    deep: Any = 1
    for _ in range(12):
        deep = {"a": deep}
    value = {"shop|t|c": {"column_meaning": "x", "fields_meaning": deep}}
    (meaning,) = codec.parse_meanings(json.dumps(value).encode(), "shop", "m")
    assert len(meaning.text.splitlines()) == 2
    assert codec.parse_meanings(b'{"shop|t|c": {"fields_meaning": 5}}', "shop", "m")[0].text == ""
    monkeypatch.setattr(codec, "MEANINGS_BYTES", 3)
    with pytest.raises(errors.InputError, match="more than 3"):
        codec.parse_meanings(b"{   }", "shop", "m")
