"""The example in a real PostgreSQL: encoded, validated, values as plain SQL gives them, and not an SQLite reference."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from klaud import errors
from klaud.encoder import checking, files, inputs, model, naming, reference, slayer, validate
from tests.support import encoding, postgres

psycopg2 = pytest.importorskip("psycopg2", reason="the PostgreSQL drivers (psycopg2, asyncpg) are not installed")
pytest.importorskip("asyncpg", reason="the PostgreSQL drivers (psycopg2, asyncpg) are not installed")

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KEY = naming.key("bench", "shop", "postgres")
VALUES = {
    ("lines", "gross_revenue"): "SELECT SUM(quantity * unit_price) FROM lines",
    ("lines", "average_order_value"): "SELECT SUM(quantity * unit_price) / COUNT(DISTINCT order_id) FROM lines",
    ("lines", "return_rate"): "SELECT (SELECT SUM(quantity) FROM returns) * 1.0 / SUM(quantity) FROM lines",
    ("orders", "paid_orders"): "SELECT COUNT(*) FROM orders WHERE status = 'paid'",
}


@pytest.fixture(scope="module")
def socket() -> Iterator[Path]:
    """The server, with the example's tables in the database ``shop``."""
    example = encoding.load("make")
    with postgres.server() as folder:
        for database, statements in (("postgres", ["CREATE DATABASE shop"]), ("shop", [example.SCHEMA])):
            with contextlib.closing(connect(folder, database)) as connection:
                connection.autocommit = True
                for statement in statements:
                    connection.cursor().execute(statement)
        with contextlib.closing(connect(folder, "shop")) as connection, connection, connection.cursor() as cursor:
            for table, rows in example.rows().items():
                marks = ", ".join(["%s"] * len(rows[0]))
                cursor.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)  # noqa: S608 - the example's own names
        yield folder


def connect(folder: Path, database: str) -> Any:
    return psycopg2.connect(host=str(folder), dbname=database, user="klaud", password="canary-pass")


def environment(folder: Path) -> dict[str, str]:
    return {"KLAUD_POSTGRES_DSN": f"postgresql://klaud:canary-pass@/{{database}}?host={folder}"}


@pytest.fixture(scope="module")
def built(socket: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, model.ReferenceEntry]:
    """The example, encoded on PostgreSQL by the instant agent: (root, entry)."""
    root = tmp_path_factory.mktemp("postgres")
    encoding.make(root)
    (root / "data" / "shop" / "shop.sqlite").unlink()
    request = encoding.request(root, encoding.InstantAgent(), key=KEY, environment=environment(socket))
    return root, asyncio.run(reference.ensure_reference(request))


@pytest.mark.slow
def test_the_example_is_encoded_and_valid(
    socket: Path, built: tuple[Path, model.ReferenceEntry], whole: tuple[Path, model.ReferenceEntry]
) -> None:
    root, entry = built
    assert [(row.kb_id, row.status) for row in entry.results] == [(r.kb_id, r.status) for r in whole[1].results]
    assert entry.fingerprint != whole[1].fingerprint
    assert entry.directory.endswith("bench/shop.postgres")
    found = checking.check_reference(
        KEY, data=root / "data", references=root / "refs", environment=environment(socket), policy=model.Policy()
    )
    assert found == ()


def test_values_are_those_of_plain_sql(socket: Path, built: tuple[Path, model.ReferenceEntry], tmp_path: Path) -> None:
    root, _ = built
    for name, data in files.tree(root / "refs" / "bench" / "shop.postgres", limit=validate.TREE_BYTES).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    url, _ = inputs.dsn(KEY, environment(socket))
    layer = slayer.Layer(database="shop", dialect="postgres", url=url, root=tmp_path, query_seconds=10.0)
    try:
        for (host, name), statement in VALUES.items():
            got = layer.blocking(layer.query, {"source_model": host, "measures": [name]}, rows=1).rows[0][0]
            with contextlib.closing(connect(socket, "shop")) as connection, connection.cursor() as cursor:
                cursor.execute(statement)
                assert float(got) == pytest.approx(float(cursor.fetchone()[0]), abs=1e-9), name
    finally:
        layer.close()


def test_no_credential_is_in_the_reference(socket: Path, built: tuple[Path, model.ReferenceEntry]) -> None:
    tree = files.tree(built[0] / "refs" / "bench" / "shop.postgres", limit=validate.TREE_BYTES)
    for secret in ("canary-pass", str(socket), "postgresql://"):
        assert not [name for name, data in tree.items() if secret.encode() in data]
    assert b"${KLAUD_POSTGRES_DSN}" in tree["datasources/shop.yaml"]


def test_a_leaked_credential_would_be_found(socket: Path, built: tuple[Path, model.ReferenceEntry]) -> None:
    """The broken twin of the check above: a password in one memory."""
    tree = files.tree(built[0] / "refs" / "bench" / "shop.postgres", limit=validate.TREE_BYTES)
    spoilt = {**tree, "memories/shop_kb_3.md": tree["memories/shop_kb_3.md"] + b"canary-pass"}
    _, secrets = inputs.dsn(KEY, environment(socket))
    found, _, _ = validate.contents(spoilt, KEY, forbidden=secrets, marked=True)
    assert found == ("memories/shop_kb_3.md holds an absolute path or a credential",)


def test_the_connection_cannot_write_and_cannot_run_for_ever(socket: Path, tmp_path: Path) -> None:
    url, _ = inputs.dsn(KEY, environment(socket))
    layer = slayer.Layer(database="shop", dialect="postgres", url=url, root=tmp_path, query_seconds=0.4)
    try:
        for statement in ("DELETE FROM returns RETURNING id", "CREATE TABLE x (a int)"):
            with pytest.raises(Exception, match="read-only transaction"):
                layer.blocking(layer.select, statement, rows=1)
        with pytest.raises(Exception, match="statement timeout"):
            layer.blocking(layer.select, "SELECT pg_sleep(30)", rows=1)
        assert layer.blocking(layer.select, "SELECT COUNT(*) FROM returns", rows=1).rows == ((24,),)
    finally:
        layer.close()


def test_a_change_of_the_schema_changes_the_fingerprint(socket: Path, built: tuple[Path, model.ReferenceEntry]) -> None:
    def fingerprint() -> str:
        return inputs.read(KEY, built[0] / "data", environment(socket), query_seconds=10.0).inputs.fingerprint

    before = fingerprint()
    assert before == built[1].fingerprint
    for statement in ("CREATE TABLE extra (a int)", "DROP TABLE extra"):
        with contextlib.closing(connect(socket, "shop")) as connection, connection, connection.cursor() as cursor:
            cursor.execute(statement)
        assert (fingerprint() == before) is statement.startswith("DROP")


def test_a_database_that_cannot_be_reached_is_an_error_without_the_password(tmp_path: Path) -> None:
    encoding.make(tmp_path, {0})
    agent = encoding.InstantAgent()
    request = encoding.request(
        tmp_path, agent, key=KEY, environment={"KLAUD_POSTGRES_DSN": f"postgresql://u:canary-pass@/d?host={tmp_path}"}
    )
    with pytest.raises(errors.ReadFailedError) as caught:
        asyncio.run(reference.ensure_reference(request))
    assert "canary-pass" not in str(caught.value)
    assert agent.runs == {}
    assert not (tmp_path / "refs").exists()
