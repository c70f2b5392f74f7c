"""Read what one database's reference is made from, and refuse what is wrong before anything is built.

``<data>/<db>/`` holds ``<db>_kb.jsonl``, ``<db>_column_meaning_base.json`` (may be absent) and, for SQLite,
``<db>.sqlite``. A PostgreSQL database is reached by the DSN in ``KLAUD_POSTGRES_DSN``. Nothing here writes, and nothing
creates a missing database: SQLite is opened by a read-only URI after its magic was seen.
"""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from klaud import errors
from klaud.encoder import codec, decide, files, model, naming, slayer

if TYPE_CHECKING:
    from collections.abc import Mapping

MAGIC = b"SQLite format 3\0"
"""The first 16 bytes of every SQLite file."""
CHUNK_BYTES = 1_048_576
"""One read while a database file is hashed."""


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """The inputs, and how the database is reached. ``url`` may hold a credential: never logged, never written."""

    inputs: model.Inputs
    url: str
    secrets: tuple[str, ...] = ()
    """Texts that must not be in anything that is written: the DSN and its password."""


def read(key: model.Key, data: Path, environment: Mapping[str, str], *, query_seconds: float) -> Source:
    """Return the inputs of one reference. InputError names the file, the line and what is wrong."""
    folder = data / key.database
    if not folder.is_dir():
        raise errors.InputError(f"there is no directory {key.database} in the data directory")
    kb_name = f"{key.database}_kb.jsonl"
    kb = _read(folder / kb_name, codec.KB_BYTES)
    items, warnings = codec.parse_items(kb, kb_name)
    meanings_name = f"{key.database}_column_meaning_base.json"
    meanings = b"{}"
    if (folder / meanings_name).exists():
        meanings = _read(folder / meanings_name, codec.MEANINGS_BYTES)
    parsed = codec.parse_meanings(meanings, key.database, meanings_name)
    layer = slayer.version()
    secrets: tuple[str, ...] = ()
    if key.dialect == "sqlite":
        path = folder / f"{key.database}.sqlite"
        digest = _sqlite(path)
        url = slayer.sqlite_url(path)
    else:
        url, secrets = dsn(key, environment)
        digest = _postgres(key, url, query_seconds)
    inputs = model.Inputs(
        key=key,
        items=items,
        meanings=parsed,
        warnings=warnings,
        fingerprint=codec.fingerprint(layer, key, kb, meanings, digest),
    )
    return Source(inputs=inputs, url=url, secrets=secrets)


def _read(path: Path, limit: int) -> bytes:
    try:
        data = files.read(path.resolve(), limit)
    except FileNotFoundError:
        raise errors.InputError(f"{path.name} is missing in the data directory of {path.parent.name}") from None
    except OSError as error:
        raise errors.InputError(f"{path.name} cannot be read: {error.strerror}") from None
    try:
        data.decode()
    except UnicodeDecodeError as error:
        raise errors.InputError(f"{path.name} is not UTF-8 (byte {error.start})") from None
    return data


def _sqlite(path: Path) -> bytes:
    """Return the digest of an SQLite file's content, having seen that it is one and can be opened read-only."""
    whole = hashlib.sha256()
    try:
        with path.open("rb") as file:
            first = file.read(CHUNK_BYTES)
            if not first.startswith(MAGIC):
                raise errors.InputError(f"{path.name} is not an SQLite database: its first 16 bytes are not the magic")
            while first:
                whole.update(first)
                first = file.read(CHUNK_BYTES)
    except FileNotFoundError:
        raise errors.InputError(f"{path.name} is missing in the data directory of {path.parent.name}") from None
    except OSError as error:
        raise errors.InputError(f"{path.name} cannot be read: {error.strerror}") from None
    log = path.with_name(path.name + "-wal")
    if log.exists() and log.stat().st_size:
        raise errors.InputError(
            f"{path.name} has a write-ahead log that is not merged: its content is not in the file alone",
            advice="Close the program that writes it, or run PRAGMA wal_checkpoint(TRUNCATE), then try again.",
        )
    uri = slayer.sqlite_url(path).removeprefix("sqlite:///").removesuffix("&uri=true")
    try:
        with contextlib.closing(sqlite3.connect(uri, uri=True)) as connection:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.Error as error:
        raise errors.InputError(f"{path.name} cannot be opened as an SQLite database: {error}") from None
    return whole.digest()


def dsn(key: model.Key, environment: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
    """Return the URL of a PostgreSQL database and the texts that must not be written anywhere."""
    from sqlalchemy import exc  # noqa: PLC0415 - comes with the optional extra
    from sqlalchemy.engine import make_url  # noqa: PLC0415 - likewise

    text = environment.get(slayer.DSN_VARIABLE, "")
    if not text:
        raise errors.InputError(
            f"the dialect postgres needs the DSN of the database in the environment variable {slayer.DSN_VARIABLE}"
        )
    whole = text.replace("{database}", key.database)
    try:
        url = make_url(whole)
    except (exc.ArgumentError, ValueError):
        raise errors.InputError(f"{slayer.DSN_VARIABLE} is not a PostgreSQL DSN") from None
    if url.get_backend_name() != "postgresql" or not url.database:
        raise errors.InputError(f"{slayer.DSN_VARIABLE} is not a PostgreSQL DSN that names a database")
    plain = url.set(drivername="postgresql").render_as_string(hide_password=False)
    secrets = [whole, plain]
    if url.password and len(str(url.password)) >= 4:
        secrets.append(str(url.password))
    return plain, tuple(dict.fromkeys(secrets))


def _postgres(key: model.Key, url: str, query_seconds: float) -> bytes:
    with tempfile.TemporaryDirectory(prefix="klaud-schema-") as scratch:
        layer = slayer.Layer(
            database=key.database, dialect="postgres", url=url, root=Path(scratch), query_seconds=query_seconds
        )
        try:
            return layer.blocking(layer.schema_digest)
        except errors.KlaudError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever the driver raises, the database cannot be reached
            raise errors.ReadFailedError(
                f"the PostgreSQL database of {key.database} cannot be read: {type(error).__name__}"
            ) from None
        finally:
            layer.close()


def reference(directory: Path, names: naming.Names) -> tuple[str, tuple[model.Item, ...], tuple[model.Row, ...]]:
    """Return a complete reference's fingerprint, rows and results; InputError says what to delete where it is corrupt."""
    advice = f"Delete the directory {names.local} in the references and run klaud encode again."
    try:
        marker = files.read(directory / naming.MARKER, 64).decode("ascii", "replace")
        rows_data = files.read(directory / naming.ROWS, codec.FILE_BYTES)
        results_data = files.read(directory / naming.RESULTS, codec.FILE_BYTES)
        rows = codec.decode(rows_data, tuple[model.Item, ...], naming.ROWS)
        results = codec.decode(results_data, tuple[model.Row, ...], naming.RESULTS)
    except OSError as error:
        name = Path(str(error.filename)).name
        raise errors.InputError(
            f"the reference {names.local} is corrupt: {name} cannot be read", advice=advice
        ) from None
    except errors.InputError as error:
        raise errors.InputError(f"the reference {names.local} is corrupt: {error}", advice=advice) from None
    wrong = decide.row_problems(rows, results)
    if not naming.is_marker(marker):
        wrong = ("its marker is not a fingerprint",)
    if wrong:
        raise errors.InputError(f"the reference {names.local} is corrupt: {wrong[0]}", advice=advice)
    return marker.strip(), rows, results
