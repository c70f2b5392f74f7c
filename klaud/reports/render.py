"""A report as markdown and as plain text. Pure.

Nothing in a report can become markup: ``<``, ``&``, backticks, pipes, brackets and line breaks are escaped, and an ``@``
is written as an entity, so that no text, wherever it came from, mentions anyone or hides anything.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from klaud.reports import model

SUMMARY_LIMIT_BYTES = 900 * 1024
"""GitHub drops a step summary above 1 MiB whole (oddity L74); cut well below it."""

CUT_NOTE = "\n\nCut here: the rest is in the run's artifact.\n"

_MARKDOWN = str.maketrans(
    {
        "&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "&#64;", "|": "&#124;", "`": "&#96;", "[": "&#91;", "]": "&#93;",
        "*": "&#42;", "_": "&#95;", "~": "&#126;", "#": "&#35;", "!": "&#33;", "\\": "&#92;", "\r": " ", "\n": " ",
    }
)  # fmt: skip


def escape(text: str) -> str:
    """Return ``text`` as one line of markdown that shows exactly that text and does nothing else."""
    return text.translate(_MARKDOWN)


def markdown(report: model.Report, *, limit_bytes: int = SUMMARY_LIMIT_BYTES) -> str:
    """Return the report as markdown of at most ``limit_bytes`` bytes of UTF-8, cut at a line's end with a note."""
    lines = [f"# {escape(report.title)}", ""]
    for section in report.sections:
        lines += [f"## {escape(section.title)}", ""]
        for sentence in section.sentences:
            lines += [escape(sentence), ""]
        for label, value in section.facts:
            lines.append(f"* {escape(label)}: {escape(value)}")
        if section.facts:
            lines.append("")
        for table in section.tables:
            lines += [*_markdown_table(table), ""]
    return cut("\n".join(lines) + "\n", limit_bytes)


def cut(text: str, limit_bytes: int) -> str:
    """Return ``text`` if its UTF-8 form fits, else its longest run of whole lines that fits together with a note."""
    raw = text.encode()
    if len(raw) <= limit_bytes:
        return text
    head = raw[: max(0, limit_bytes - len(CUT_NOTE.encode()))]
    return head[: head.rfind(b"\n") + 1].decode() + CUT_NOTE


def text(report: model.Report, *, width: int = 100) -> str:
    """Return the report for a terminal of ``width`` columns; control characters are shown as ``?``."""
    lines = [_plain(report.title), "=" * min(width, len(report.title)), ""]
    for section in report.sections:
        lines += [_plain(section.title), "-" * min(width, len(section.title))]
        for sentence in section.sentences:
            lines += textwrap.wrap(_plain(sentence), width) or [""]
        lines += [f"  {_plain(label)}: {_plain(value)}" for label, value in section.facts]
        for table in section.tables:
            lines += _text_table(table, width)
        lines.append("")
    return "\n".join(lines)


def _markdown_table(table: model.Table) -> list[str]:
    lines = [f"**{escape(table.title)}**", ""] if table.title else []
    if not table.rows:
        return [*lines, escape(table.empty)]
    lines.append("| " + " | ".join(escape(column) for column in table.columns) + " |")
    lines.append("|" + " --- |" * len(table.columns))
    lines += ["| " + " | ".join(escape(cell) for cell in row) + " |" for row in table.rows]
    return lines


def _plain(value: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in value)


def _text_table(table: model.Table, width: int) -> list[str]:
    lines = [f"  {_plain(table.title)}"] if table.title else []
    if not table.rows:
        return [*lines, f"  {table.empty}"]
    cells = [[_plain(cell) for cell in row] for row in (table.columns, *table.rows)]
    widths = _widths(cells, width)
    for number, row in enumerate(cells):
        wrapped = [textwrap.wrap(cell, size) or [""] for cell, size in zip(row, widths, strict=True)]
        for depth in range(max(len(cell) for cell in wrapped)):
            parts = [
                (cell[depth] if depth < len(cell) else "").ljust(size)
                for cell, size in zip(wrapped, widths, strict=True)
            ]
            lines.append(("  " + "  ".join(parts)).rstrip())
        if number == 0:
            lines.append("  " + "  ".join("-" * size for size in widths))
    return lines


def _widths(cells: Sequence[Sequence[str]], width: int) -> list[int]:
    """Share ``width`` among the columns: each gets what it needs, the widest ones give way first."""
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    room = max(width - 2 * len(widths), 8 * len(widths))
    while sum(widths) > room:
        widest = widths.index(max(widths))
        rest = sum(widths) - widths[widest]
        second = max((w for i, w in enumerate(widths) if i != widest), default=0)
        widths[widest] = max(room - rest, min(second, widths[widest] - 1), 8)
    return widths
