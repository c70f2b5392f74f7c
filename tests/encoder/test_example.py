# ruff: noqa: S608 - statements of the test's own
"""The example, encoded offline by its program in real child processes; its values compared with plain SQL."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from typing import TYPE_CHECKING, Any

import msgspec.yaml
import pytest
from slayer import usage_reporting
from slayer.usage_reporting import settings

from klaud.encoder import checking, documents, files, inputs, model, naming, reference, slayer, validate
from tests.support import encoding

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KEY = naming.key("bench", "shop", "sqlite")

JOINED = "lines l JOIN products p ON p.id = l.product_id"
VALUES: dict[tuple[str, str], str] = {
    ("lines", "gross_revenue"): "SELECT SUM(quantity * unit_price) FROM lines",
    ("lines", "gross_margin"): (
        "SELECT (SUM(l.quantity * l.unit_price) - SUM(l.quantity * p.unit_cost)) / SUM(l.quantity * l.unit_price) "
        f"FROM {JOINED}"
    ),
    ("lines", "average_order_value"): "SELECT SUM(quantity * unit_price) / COUNT(DISTINCT order_id) FROM lines",
    ("lines", "returned_units"): "SELECT SUM(quantity) FROM returns",
    ("lines", "return_rate"): "SELECT (SELECT SUM(quantity) FROM returns) * 1.0 / SUM(quantity) FROM lines",
    ("orders", "paid_orders"): "SELECT COUNT(*) FROM orders WHERE status = 'paid'",
}
COLUMNS: dict[tuple[str, str], str] = {
    ("lines", "gross_value"): "SELECT DISTINCT quantity * unit_price FROM lines",
    ("lines", "line_cost"): f"SELECT DISTINCT l.quantity * p.unit_cost FROM {JOINED}",
    ("orders", "is_paid"): "SELECT DISTINCT status = 'paid' FROM orders",
    ("orders", "is_gift"): "SELECT DISTINCT json_extract(attributes, '$.gift') FROM orders",
    ("customers", "tier_name"): "SELECT DISTINCT CASE tier WHEN 'G' THEN 'gold' WHEN 'S' THEN 'silver' ELSE 'bronze' END "
    "FROM customers",
}  # fmt: skip


@pytest.fixture(scope="module")
def layer(whole: tuple[Path, model.ReferenceEntry], tmp_path_factory: pytest.TempPathFactory) -> Iterator[slayer.Layer]:
    """A copy of the finished reference, opened on the database."""
    root, entry = whole
    copy = tmp_path_factory.mktemp("copy") / "store"
    for name, data in files.tree(root / "refs" / "bench" / "shop", limit=validate.TREE_BYTES).items():
        path = copy / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    assert entry.built
    opened = slayer.Layer(
        database="shop",
        dialect="sqlite",
        url=slayer.sqlite_url(root / "data" / "shop" / "shop.sqlite"),
        root=copy,
        query_seconds=10.0,
    )
    yield opened
    opened.close()


def plain(root: Path, statement: str) -> list[tuple[Any, ...]]:
    with contextlib.closing(sqlite3.connect(root / "data" / "shop" / "shop.sqlite")) as connection:
        return connection.execute(statement).fetchall()


def rounded(values: Any) -> list[Any]:
    return sorted(round(value, 9) if isinstance(value, float) else value for value in values)


def test_every_item_has_the_row_it_should(whole: tuple[Path, model.ReferenceEntry]) -> None:
    _, entry = whole
    got = {row.kb_id: row.status for row in entry.results}
    deferred = {8, 9, 10, 11, 12, 13, 14}
    assert got == {number: "deferred" if number in deferred else "encoded" for number in range(19)}
    notes = {row.kb_id: row.notes for row in entry.results}
    assert notes[8] == "the definition names no rule that a query could follow"
    assert notes[9] == "in a dependency cycle: 9 -> 10 -> 9"
    assert notes[11] == "depends on a dependency cycle through item 9"
    assert notes[12] == "collision: measure orders.active_customers is claimed by item 13 too"
    assert notes[14] == "uses entities of item 12, which was deferred"
    assert entry.state == "complete"
    assert entry.usage.sessions == entry.usage.attempts == 16
    assert entry.warnings == ("shop_kb.jsonl: dropped children that no item has: 99 (of item 16)",)


@pytest.mark.parametrize("measure", sorted(VALUES), ids=".".join)
def test_measures_give_what_plain_sql_gives(
    whole: tuple[Path, model.ReferenceEntry], layer: slayer.Layer, measure: tuple[str, str]
) -> None:
    got = layer.blocking(layer.query, {"source_model": measure[0], "measures": [measure[1]]}, rows=2)
    assert rounded(got.rows[0]) == rounded(plain(whole[0], VALUES[measure])[0])


@pytest.mark.parametrize("column", sorted(COLUMNS), ids=".".join)
def test_columns_give_what_plain_sql_gives(
    whole: tuple[Path, model.ReferenceEntry], layer: slayer.Layer, column: tuple[str, str]
) -> None:
    got = layer.blocking(layer.query, {"source_model": column[0], "dimensions": [column[1]]}, rows=500)
    assert rounded(row[0] for row in got.rows) == rounded(row[0] for row in plain(whole[0], COLUMNS[column]))


def test_the_model_gives_what_plain_sql_gives(whole: tuple[Path, model.ReferenceEntry], layer: slayer.Layer) -> None:
    asked = {"source_model": "category_sales", "dimensions": ["products__category", "gross_revenue", "returned_units"]}
    got = layer.blocking(layer.query, asked, rows=10)
    wanted = plain(
        whole[0],
        f"SELECT p.category, SUM(l.quantity * l.unit_price), SUM((SELECT SUM(r.quantity) FROM returns r "
        f"WHERE r.line_id = l.id)) FROM {JOINED} GROUP BY 1",
    )
    assert sorted((a, round(b, 9), c) for a, b, c in got.rows) == sorted((a, round(b, 9), c) for a, b, c in wanted)


def test_the_tree_is_what_the_layout_says(whole: tuple[Path, model.ReferenceEntry]) -> None:
    tree = files.tree(whole[0] / "refs" / "bench" / "shop", limit=validate.TREE_BYTES)
    models = {f"models/shop/{name}.yaml" for name in
              ("customers", "products", "orders", "lines", "returns", "category_sales")}  # fmt: skip
    memories = {f"memories/shop_kb_{number}.md" for number in range(19)}
    plain_files = {"_kb_rows.json", "_setup_results.json", "_setup_usage.json", "_reference_fp.txt"}
    assert set(tree) == models | memories | plain_files | {"datasources/shop.yaml"}
    assert tree["_reference_fp.txt"].decode() == whole[1].fingerprint + "\n"
    assert b"Letter of the customer's tier" in tree["models/shop/customers.yaml"]
    assert b"channel: how it was ordered" in tree["models/shop/orders.yaml"]
    assert b"shop.lines.gross_margin" in tree["memories/shop_kb_3.md"]
    assert b"entities:" not in tree["memories/shop_kb_12.md"]


def test_the_tree_holds_no_path_of_this_machine(whole: tuple[Path, model.ReferenceEntry]) -> None:
    tree = files.tree(whole[0] / "refs" / "bench" / "shop", limit=validate.TREE_BYTES)
    assert not [name for name, data in tree.items() if str(whole[0]).encode() in data]
    assert b"file:shop/shop.sqlite?mode=ro" in tree["datasources/shop.yaml"]


def test_validation_leaves_every_byte_as_it_was(whole: tuple[Path, model.ReferenceEntry]) -> None:
    root, _ = whole
    target = root / "refs" / "bench" / "shop"
    before = files.tree_hash(files.tree(target, limit=validate.TREE_BYTES))
    found = checking.check_reference(
        KEY, data=root / "data", references=root / "refs", environment={}, policy=model.Policy()
    )
    assert found == ()
    assert files.tree_hash(files.tree(target, limit=validate.TREE_BYTES)) == before


def test_opening_the_reference_itself_would_change_it(whole: tuple[Path, model.ReferenceEntry], tmp_path: Path) -> None:
    """The broken twin of validating on a copy: the store's own files appear in the tree."""
    root, _ = whole
    tree = files.tree(root / "refs" / "bench" / "shop", limit=validate.TREE_BYTES)
    for name, data in tree.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    url = slayer.sqlite_url(root / "data" / "shop" / "shop.sqlite")
    opened = slayer.Layer(database="shop", dialect="sqlite", url=url, root=tmp_path, query_seconds=5.0)
    opened.blocking(opened.load)
    opened.close()
    after = files.tree(tmp_path, limit=validate.TREE_BYTES)
    assert files.tree_hash(after) != files.tree_hash(tree)
    assert "embeddings.db" in after


def test_building_again_on_another_path_gives_the_same_bytes(
    whole: tuple[Path, model.ReferenceEntry], tmp_path: Path
) -> None:
    encoding.make(tmp_path / "else where")
    again = asyncio.run(reference.ensure_reference(encoding.request(tmp_path / "else where", encoding.InstantAgent())))
    one = files.tree(whole[0] / "refs" / "bench" / "shop", limit=validate.TREE_BYTES)
    two = files.tree(tmp_path / "else where" / "refs" / "bench" / "shop", limit=validate.TREE_BYTES)
    assert {name for name in one if one[name] != two.get(name)} == {naming.USAGE}
    assert again.fingerprint == whole[1].fingerprint


def broken(tree: dict[str, bytes], name: str, old: bytes, new: bytes) -> dict[str, bytes]:
    assert old in tree[name]
    return {**tree, name: tree[name].replace(old, new)}


@pytest.mark.parametrize(
    ("name", "old", "new", "finding"),
    [
        ("models/shop/lines.yaml", b"formula: sum(gross_value)", b"formula: sum(gone)", "gross_revenue does not run"),
        ("models/shop/lines.yaml", b"kb_id: 2\n", b"kb_id: 3\n", "shop.lines.gross_revenue does not exist or does not"),
        ("models/shop/lines.yaml", b"sql: unit_price", b"sql: unit_prize", "drifts from the database"),
        ("models/shop/orders.yaml", b"name: orders\n", b"name: [\n", "does not load"),
        ("memories/shop_kb_3.md", b"- shop.lines.gross_margin\n", b"- shop.lines.other\n", "the memory of item 3"),
        ("memories/shop_kb_3.md", b"version: 4", b"version: [", "memory"),
    ],
)
def test_validation_sees_each_kind_of_damage(
    whole: tuple[Path, model.ReferenceEntry], name: str, old: bytes, new: bytes, finding: str
) -> None:
    root, entry = whole
    tree = broken(files.tree(root / "refs" / "bench" / "shop", limit=validate.TREE_BYTES), name, old, new)
    url = slayer.sqlite_url(root / "data" / "shop" / "shop.sqlite")
    found = validate.store(tree, KEY, entry.results, url=url, query_seconds=5.0)
    assert [text for text in found if finding in text], found


def test_validation_of_bytes_sees_each_kind_of_damage(whole: tuple[Path, model.ReferenceEntry]) -> None:
    root, _ = whole
    tree = files.tree(root / "refs" / "bench" / "shop", limit=validate.TREE_BYTES)

    def findings(changed: dict[str, bytes], *forbidden: str) -> str:
        return "\n".join(validate.contents(changed, KEY, forbidden=forbidden, marked=True)[0])

    assert findings(tree) == ""
    for name in (naming.ROWS, naming.RESULTS, naming.USAGE, naming.MARKER, "datasources/shop.yaml"):
        assert f"{name} is missing" in findings({key: data for key, data in tree.items() if key != name})
    assert "is not a fingerprint" in findings({**tree, naming.MARKER: b"0123"})
    assert "not the portable one" in findings(broken(tree, "datasources/shop.yaml", b"file:shop", b"file:/srv/shop"))
    assert "is no part of a reference" in findings({**tree, "embeddings.db": b""})
    assert "absolute path or a credential" in findings(tree, "gross_margin")
    assert "the memory of item 3 is missing" in findings(
        {key: data for key, data in tree.items() if key != "memories/shop_kb_3.md"}
    )
    assert "item 3 has 2 results" in findings(broken(tree, naming.RESULTS, b'"kb_id": 4,', b'"kb_id": 3,'))
    assert "item 4 has no result" in findings(broken(tree, naming.RESULTS, b'"kb_id": 4,', b'"kb_id": 3,'))
    assert "is deferred and has 1 entities" in findings(
        broken(tree, naming.RESULTS, b'"kb_id": 4,\n    "status": "encoded"', b'"kb_id": 4,\n    "status": "deferred"')
    )


def test_usage_reporting_of_the_layer_is_off(whole: tuple[Path, model.ReferenceEntry]) -> None:
    assert whole[1].built
    assert not usage_reporting.is_active()
    assert not settings.resolve_state().enabled


def test_fingerprint_is_of_content_only(whole: tuple[Path, model.ReferenceEntry], tmp_path: Path) -> None:
    root, entry = whole
    folder = encoding.make(tmp_path)
    kb = folder / "shop_kb.jsonl"
    kb.write_bytes(kb.read_bytes().replace(b"\n", b"\r\n"))

    def fingerprint() -> str:
        return inputs.read(KEY, tmp_path / "data", {}, query_seconds=5.0).inputs.fingerprint

    assert fingerprint() == entry.fingerprint
    kb.write_bytes(kb.read_bytes().replace(b"Gross Margin", b"Gross  Margin"))
    assert fingerprint() != entry.fingerprint
    assert root != tmp_path


def test_documents_purge_by_tag_leaves_nothing_of_an_item(whole: tuple[Path, model.ReferenceEntry]) -> None:
    tree = files.tree(whole[0] / "refs" / "bench" / "shop", limit=validate.TREE_BYTES)
    held = {name[12:-5]: msgspec.yaml.decode(data) for name, data in tree.items() if name.startswith("models/shop/")}
    owners = {owner for owner, *_ in documents.tagged(held)}
    assert owners == {row.kb_id for row in whole[1].results if row.status == "encoded"}
    slim = documents.purge(held, {3, 18})
    assert {owner for owner, *_ in documents.tagged(slim)} == owners - {3, 18}
    assert "category_sales" not in slim
    assert {owner for owner, *_ in documents.tagged(held)} == owners
