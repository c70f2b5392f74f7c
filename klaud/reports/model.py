"""A report as data: titled sections of sentences, facts and tables. Every string is data; the renderers escape it."""

from __future__ import annotations

import msgspec


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """Rows under named columns. ``empty`` is the sentence shown where there are no rows."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...] = ()
    title: str = ""
    empty: str = "none"


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """One titled part: sentences first, then facts (label, value), then tables."""

    title: str
    sentences: tuple[str, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    tables: tuple[Table, ...] = ()


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What one run of a verb tells people."""

    title: str
    sections: tuple[Section, ...] = ()
