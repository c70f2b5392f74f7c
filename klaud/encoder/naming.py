"""One place that turns a reference's key into names: its local path, its artifact, its family and its merge key.

A benchmark's name has no dot and a database's name has neither dot nor hyphen, so joining by dots is reversible and two
keys never share a name. An SQLite reference keeps the plain name of the database, any other dialect is a suffix.
"""

from __future__ import annotations

import re
from typing import cast

import msgspec

from klaud import errors
from klaud.encoder import model

ARTIFACT_HEAD = "klaud-reference"
"""What the name of every reference's artifact begins with."""

MARKER = "_reference_fp.txt"
"""The completeness marker: the last file written."""
RESULTS = "_setup_results.json"
ROWS = "_kb_rows.json"
USAGE = "_setup_usage.json"
MANIFEST = "_partial.json"
"""The manifest of a partial reference."""

_BENCHMARK = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_DATABASE = re.compile(r"[A-Za-z0-9_]{1,64}")
_MARKER = re.compile(r"[0-9a-f]{16}\n?")


class Names(msgspec.Struct, frozen=True, kw_only=True):
    """The names of one reference. ``directory`` and what is beside it lie in ``<references>/<benchmark>/``."""

    parent: str
    """The benchmark's directory, relative to the references' root."""
    directory: str
    """The reference itself, below ``parent``."""
    partial: str
    lock: str
    holder: str
    building: str
    """What the temporary directories of builds begin with."""
    artifact: str
    """The name under which the reference is uploaded."""
    family: str
    """The family of the candidate that builds it."""

    @property
    def local(self) -> str:
        """The reference's path relative to the references' root, which is also the key that merging goes by."""
        return f"{self.parent}/{self.directory}"


def key(benchmark: str, database: str, dialect: str) -> model.Key:
    """Return the key, or raise InputError naming what is wrong with it."""
    if not _BENCHMARK.fullmatch(benchmark):
        raise errors.InputError(
            f"benchmark {benchmark[:80]!r} is not a name: letters, digits, '_' and '-', at most 64, no dot or slash"
        )
    if not _DATABASE.fullmatch(database):
        raise errors.InputError(
            f"database {database[:80]!r} is not a name: letters, digits and '_' only, 1 to 64 characters"
        )
    if dialect not in model.DIALECTS:
        raise errors.InputError(
            f"dialect {dialect[:40]!r} of database {database} is not supported: {' and '.join(model.DIALECTS)} are"
        )
    return model.Key(benchmark=benchmark, database=database, dialect=cast("model.Dialect", dialect))


def names(of: model.Key) -> Names:
    """Return every name that belongs to a reference."""
    directory = of.database if of.dialect == "sqlite" else f"{of.database}.{of.dialect}"
    return Names(
        parent=of.benchmark,
        directory=directory,
        partial=f"{directory}.partial",
        lock=f"{directory}.build.lock",
        holder=f"{directory}.build.holder",
        building=f"{directory}.building-",
        artifact=f"{ARTIFACT_HEAD}.{of.benchmark}.{of.database}.{of.dialect}",
        family=f"{of.benchmark}:{directory}",
    )


def key_of_artifact(name: str) -> model.Key | None:
    """Return whose artifact ``name`` is, None where it is not the artifact of a reference."""
    parts = name.split(".")
    if len(parts) != 4 or parts[0] != ARTIFACT_HEAD:
        return None
    try:
        return key(*parts[1:])
    except errors.InputError:
        return None


def key_of_family(text: str) -> model.Key | None:
    """Return whose family ``text`` is (``<benchmark>:<database>[.<dialect>]``), None where it is none."""
    benchmark, colon, directory = text.partition(":")
    database, dot, dialect = directory.partition(".")
    if not colon or (dot and dialect in ("", "sqlite")):
        return None
    try:
        return key(benchmark, database, dialect or "sqlite")
    except errors.InputError:
        return None


def is_marker(text: str) -> bool:
    """Tell whether ``text`` is the content of a completeness marker."""
    return _MARKER.fullmatch(text) is not None


def memory_id(of: model.Key, item: int) -> str:
    """Return the id of the memory of one item: its file is ``memories/<id>.md``."""
    return f"{of.database}_kb_{item}"


def canonical(database: str, definition: model.Definition) -> str:
    """Return the canonical reference of what ``definition`` defines."""
    head = f"{database}.{definition.model}"
    return head if definition.kind == "model" else f"{head}.{definition.name}"
