"""The semantic layer: motley-slayer behind a small face, on a store that only klaud's own build has.

The library is imported on first use only (extra ``encoder``). It is used as a library, which reports no usage; its
switches are set to off before the import all the same.

* The database is opened read-only: SQLite by a ``mode=ro`` URI with attaching and pragmas refused, PostgreSQL in
  ``READ ONLY`` transactions. Every statement has a time limit and every answer a row limit.
* Opening a store writes into it (an index file, migrations, type refinement). So a finished reference is never opened:
  ``validate`` works on a copy with its own binding to the database.
* All calls of one ``Layer`` run in its own thread with its own event loop: the layer's planning is CPU work that must
  not stop the caller's loop, and its asynchronous drivers are bound to the loop they were made in.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import hashlib
import importlib.metadata
import os
import re
import time
import warnings
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar
from urllib.parse import quote

import msgspec
import msgspec.yaml

from klaud import errors
from klaud.encoder import documents, model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

DISTRIBUTION = "motley-slayer"
DSN_VARIABLE = "KLAUD_POSTGRES_DSN"
"""Environment variable with the PostgreSQL DSN; ``{database}`` in it stands for the database's name."""

CREATED = "2000-01-01T00:00:00Z"
"""When every memory says it was made: a build must give the same bytes on every machine."""

MEMORY_DESCRIPTION = 500
"""Characters of a memory's description that the layer accepts."""

_PG_COLUMNS = """
SELECT table_schema, table_name, column_name, ordinal_position, data_type, is_nullable FROM information_schema.columns
WHERE table_schema NOT IN ('pg_catalog', 'information_schema') ORDER BY 1, 2, 4
"""
_PG_CONSTRAINTS = """
SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
WHERE connamespace::regnamespace::text NOT IN ('pg_catalog', 'information_schema') ORDER BY 1, 2
"""

_P = ParamSpec("_P")
_T = TypeVar("_T")
_NOISE = re.compile(r"\s*\(Background on this error at: \S+\)|\[SQL: .*", re.DOTALL)


def version() -> str:
    """Return the semantic layer's version without importing it; MissingToolError where it is not installed."""
    try:
        return importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        raise errors.MissingToolError(
            f"{DISTRIBUTION} is not installed", advice="Install klaud with the extra 'encoder'; nothing was written."
        ) from None


def _library() -> Any:
    """Import what is used of the library, once, with its usage reporting switched off."""
    os.environ["SLAYER_USAGE_REPORTING"] = "off"
    os.environ["DO_NOT_TRACK"] = "1"
    version()
    from klaud.encoder import slayer_api  # noqa: PLC0415 - the library takes a second to import and is optional

    return slayer_api


def sqlite_url(path: Path) -> str:
    """Return the read-only URL of an SQLite file: never creates it."""
    return f"sqlite:///file:{quote(str(path.resolve()))}?mode=ro&uri=true"


def portable_datasource(database: str, dialect: model.Dialect) -> dict[str, Any]:
    """Return the datasource document that a reference carries: relative to the data directory, without a credential."""
    where = f"sqlite:///file:{database}/{database}.sqlite?mode=ro&uri=true"
    return {
        "version": 2,
        "name": database,
        "type": dialect,
        "connection_string": where if dialect == "sqlite" else f"${{{DSN_VARIABLE}}}",
        "granularities": [],
    }


def reason(error: BaseException) -> str:
    """Return what the layer or the database objected to: one line, no statement, no link."""
    text = _NOISE.sub("", str(error)) or type(error).__name__
    return " ".join(text.split())[:400]


class Rows(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of a statement: column names and at most the asked number of rows; ``more`` says that there are more."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    more: bool


class Layer:
    """One open store over one database. Close it: it owns a thread, an event loop and database connections."""

    def __init__(self, *, database: str, dialect: model.Dialect, url: str, root: Path, query_seconds: float) -> None:
        """``root``: an empty or absent directory that becomes the store. ``url``: may hold a credential, is never written.

        ``query_seconds`` bounds each statement.
        """
        self.database = database
        self._dialect = dialect
        self._url = url
        self._root = root
        self._seconds = query_seconds
        self._thread = concurrent.futures.ThreadPoolExecutor(max_workers=1, thread_name_prefix="klaud-layer")
        self._runner: asyncio.Runner | None = None
        self._stored: dict[str, bytes] = {}
        self._normal: documents.Documents = {}

    async def call(self, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Run one of this object's blocking methods in the layer's own thread."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, functools.partial(function, *args, **kwargs))

    def blocking(self, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Run one of this object's blocking methods in the layer's own thread and wait for it."""
        return self._thread.submit(functools.partial(function, *args, **kwargs)).result()

    def _open(self) -> None:
        if self._runner is not None:
            return
        api = _library()
        self._api = api
        self._runner = asyncio.Runner()
        self._source = api.DatasourceConfig(name=self.database, type=self._dialect, connection_string=self._url)
        self._storage = api.YAMLStorage(str(self._root))
        self._runner.run(self._storage.save_datasource(self._source))
        self._engine = api.SlayerQueryEngine(self._storage)

    def close(self) -> None:
        """Close connections, loop and thread; can be called twice. Blocks at most one statement's time."""

        def down() -> None:
            if self._runner is None:
                return
            self._runner.run(self._engine.aclose())
            self._engine.close()
            self._api.engine_factory.invalidate_engine(self._source)
            self._runner.close()
            self._runner = None

        with contextlib.suppress(RuntimeError):  # the thread is gone already
            self._thread.submit(down).result()
        self._thread.shutdown(wait=True)

    # -- the schema

    def ingest(self) -> tuple[documents.Documents, tuple[str, ...]]:
        """Read the database's schema; return a document for each table or view, and warnings about those left out."""
        self._open()
        report = self._api.ingest_datasource_report(self._source)
        held = {one.name: one.model_dump(mode="json", exclude_none=True) for one in report.models}
        skipped = tuple(f"left out of the schema: {_skipped(one)}" for one in report.skipped)
        if not held:
            raise errors.InputError(f"database {self.database} has no tables: there is nothing to define entities on")
        return held, skipped

    # -- documents in and out

    def put(self, held: documents.Documents) -> tuple[documents.Documents, tuple[model.Problem, ...]]:
        """Make the store hold exactly ``held``; return the documents as the layer normalises them, and its objections.

        With objections the returned documents are of no use: put the ones that were there before.
        """
        self._open()
        for name in [name for name in self._stored if name not in held]:
            self._run(self._storage.delete_model(name, data_source=self.database))
            del self._stored[name], self._normal[name]
        todo = {name: doc for name, doc in held.items() if self._stored.get(name) != msgspec.json.encode(doc)}
        failed: dict[str, str] = {}
        while todo:
            failed = {}
            for name, document in todo.items():
                try:
                    self._put_one(name, document)
                except Exception as error:  # noqa: BLE001 - whatever the layer raises is its objection to a definition
                    failed[name] = reason(error)
            if len(failed) == len(todo):
                break
            todo = {name: todo[name] for name in failed}
        result = {name: self._normal[name] for name in held if name in self._normal}
        return result, tuple(
            model.Problem(check="loads", text=f"model {name} is refused: {text}") for name, text in failed.items()
        )

    def _put_one(self, name: str, document: dict[str, Any]) -> None:
        given = dict(document)
        if given.get("source_queries"):
            given.pop("columns", None)  # the layer derives them, and refuses to be told
        one = self._api.SlayerModel.model_validate(given)
        self._stored.pop(name, None)
        if document.get("sql") or document.get("source_queries") or any(documents.tagged({name: document})):
            self._run(self._engine.save_model(one))
        else:
            self._run(self._storage.save_model(one))
        back = self._run(self._storage.get_model(name, data_source=self.database))
        self._normal[name] = back.model_dump(mode="json", exclude_none=True)
        self._stored[name] = msgspec.json.encode(self._normal[name])

    def _run(self, coroutine: Any) -> Any:
        assert self._runner is not None  # noqa: S101 - every caller has opened
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # the layer warns about taste; what matters, it raises
            return self._runner.run(coroutine)

    # -- execution

    def probe(self, entities: Iterable[tuple[str, str, model.Kind]]) -> tuple[model.Problem, ...]:
        """Execute every measure and select every column named by (model, name, kind); return what failed."""
        found: list[model.Problem] = []
        for host, name, kind in entities:
            shown = f"{self.database}.{host}.{name}" if name else f"{self.database}.{host}"
            if kind == "model":
                document = self._normal.get(host, {})
                columns = [str(one["name"]) for one in document.get("columns") or ()]
                if not columns:
                    found.append(model.Problem(check="selects", text=f"{shown} has no columns"))
                parts: list[tuple[str, model.Kind]] = [(column, "column") for column in columns]
                parts += [(str(one["name"]), "measure") for one in document.get("measures") or ()]
            else:
                parts = [(name, kind)]
            for part, what in parts:
                text = self._probe_one(host, part, what)
                if text:
                    check: model.Check = "executes" if what == "measure" else "selects"
                    inner = f"{shown}.{part}" if kind == "model" else shown
                    found.append(model.Problem(check=check, text=f"{inner} does not run: {text}"))
        return tuple(found)

    def _probe_one(self, host: str, name: str, kind: model.Kind) -> str:
        asked: dict[str, Any] = {"source_model": host, "limit": 1}
        asked["measures" if kind == "measure" else "dimensions"] = [name]
        try:
            self.query(asked, rows=1)
        except Exception as error:  # noqa: BLE001 - whatever comes is what the agent must mend
            if kind != "measure" or "time" not in str(error).lower():
                return reason(error)
            first = reason(error)
        else:
            return ""
        column = self._time_column(host)
        if not column:
            return first
        asked["time_dimensions"] = [{"dimension": column, "granularity": "month"}]
        try:
            self.query(asked, rows=1)
        except Exception as error:  # noqa: BLE001 - likewise
            return reason(error)
        return ""

    def _time_column(self, host: str) -> str:
        one = self._run(self._storage.get_model(host, data_source=self.database))
        return str(one.effective_default_time_dimension or "") if one is not None else ""

    def query(self, asked: dict[str, Any], *, rows: int) -> Rows:
        """Run one query of the layer's own language, read-only; at most ``rows`` rows."""
        self._open()
        query = self._api.SlayerQuery.model_validate(asked)
        planned = self._run(self._engine.execute(query, dry_run=True, data_source=self.database))
        return self.select(str(planned.sql), rows=rows)

    def select(self, statement: str, *, rows: int) -> Rows:
        """Run one statement on the read-only connection, within the time limit; at most ``rows`` rows."""
        self._open()
        engine = self._api.engine_factory.get_engine(self._source)
        with engine.connect() as connection:
            raw = connection.connection.dbapi_connection
            with self._limited(raw):
                cursor = raw.cursor()
                try:
                    cursor.execute(statement)
                    if cursor.description is None:
                        raise errors.InputError("the statement returns no rows: only queries are run")
                    got = cursor.fetchmany(rows + 1)
                    columns = tuple(str(one[0]) for one in cursor.description)
                finally:
                    cursor.close()
        return Rows(columns=columns, rows=tuple(tuple(row) for row in got[:rows]), more=len(got) > rows)

    @contextlib.contextmanager
    def _limited(self, raw: Any) -> Iterator[None]:
        """Bound what a statement on ``raw`` may do and how long it may take."""
        if self._dialect == "postgres":
            with raw.cursor() as cursor:
                cursor.execute(f"SET TRANSACTION READ ONLY; SET LOCAL statement_timeout = {int(self._seconds * 1000)}")
            try:
                yield
            finally:
                raw.rollback()
            return
        deadline = time.monotonic() + self._seconds
        raw.set_progress_handler(lambda: int(time.monotonic() > deadline), 10_000)
        raw.set_authorizer(_authorize)
        try:
            yield
        finally:
            raw.set_authorizer(None)
            raw.set_progress_handler(None, 0)

    # -- the whole

    def drift(self) -> tuple[str, ...]:
        """Return what the layer's own validation finds: drift from the live schema, models that do not load."""
        self._open()
        found = self._run(self._engine.validate_models(self.database))
        texts = [_drift_text(one) for one in found]
        _, unloadable = self._run(self._storage.load_models(data_source=self.database))
        texts += [f"model {one.name} does not load: {reason(one)}" for one in unloadable]
        _, lost = self._run(self._storage.load_memories())
        texts += [f"a memory does not load: {reason(one)}" for one in lost]
        return tuple(dict.fromkeys(texts))

    def memories(self) -> dict[str, tuple[str, ...]]:
        """Return the ids of the store's memories, each with the entities that it is indexed under."""
        self._open()
        loaded, _ = self._run(self._storage.load_memories())
        return {one.id: tuple(one.entities) for one in loaded}

    def load(self) -> documents.Documents:
        """Return the documents that are in the store already (for a copy of a reference)."""
        self._open()
        loaded, _ = self._run(self._storage.load_models(data_source=self.database))
        held = {one.name: one.model_dump(mode="json", exclude_none=True) for one in loaded}
        self._normal = dict(held)
        return held

    def schema_digest(self) -> bytes:
        """Return a digest of the live schema: tables, columns, types, keys (PostgreSQL's part of the fingerprint)."""
        whole = hashlib.sha256()
        for statement in (_PG_COLUMNS, _PG_CONSTRAINTS):
            whole.update(msgspec.json.encode(self.select(statement, rows=1_000_000).rows))
        return whole.digest()


def _drift_text(entry: Any) -> str:
    why = "; ".join(f"{one.target}: {one.reason}" for one in getattr(entry, "reasons", ()))
    return f"model {getattr(entry, 'model_name', '?')} drifts from the database: {why or entry}"[:400]


def _skipped(entry: Any) -> str:
    return f"{getattr(entry, 'table_name', '') or entry}"[:120]


def _authorize(action: int, first: str | None, second: str | None, _database: str | None, _trigger: str | None) -> int:
    """Let SQLite read and call functions; refuse attaching, pragmas and extensions."""
    import sqlite3  # noqa: PLC0415 - constants only, where they are used

    if action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE):
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_FUNCTION and (second or "").lower() != "load_extension":
        return sqlite3.SQLITE_OK
    del first
    return sqlite3.SQLITE_DENY


def yaml_text(value: dict[str, Any]) -> bytes:
    """Return a document as the layer itself would write it."""
    return msgspec.yaml.encode(value)


def memory_text(item: model.Item, names: Sequence[str], entities: Sequence[str]) -> bytes:
    """Return the memory of one item: front matter with its entities, then what the item says. ``names``: its children."""
    front: dict[str, Any] = {"created_at": CREATED}
    description = item.description.strip()[:MEMORY_DESCRIPTION].strip()
    if description:
        front["description"] = description
    if entities:
        front["entities"] = list(entities)
    front["version"] = 4
    lines = [f"# {item.knowledge}", "", item.description.strip(), "", f"Definition: {item.definition.strip()}", ""]
    lines.append(f"Kind: {item.type}")
    if names:
        lines.append("Depends on: " + ", ".join(names))
    return b"---\n" + yaml_text(front) + b"---\n" + "\n".join(lines).encode() + b"\n"
