"""A report as one HTML page that loads nothing and runs nothing (its own content security policy says so)."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from klaud.reports import model

_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:76rem;padding:0 1rem;color:#1b1f24;background:#fff}
h1{font-size:1.6rem}h2{font-size:1.15rem;margin-top:2rem;border-bottom:1px solid #d0d7de;padding-bottom:.3rem}
table{border-collapse:collapse;width:100%;font-size:.9rem;margin:.6rem 0}th,td{text-align:left;vertical-align:top;
padding:.35rem .6rem;border-bottom:1px solid #e4e8ec;overflow-wrap:anywhere}th{background:#f6f8fa}
dt{font-weight:600;float:left;clear:left;margin-right:.6rem}caption{text-align:left;font-weight:600;padding:.3rem 0}
@media(prefers-color-scheme:dark){body{color:#e6edf3;background:#0d1117}th{background:#161b22}
th,td,h2{border-color:#30363d}}
"""


def page(report: model.Report) -> str:
    """Return the report as a complete HTML document; every string is escaped."""
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        '<meta name="viewport" content="width=device-width,initial-scale=1">',
        f"<title>{html.escape(report.title)}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{html.escape(report.title)}</h1>",
    ]
    for section in report.sections:
        parts.append(f"<section><h2>{html.escape(section.title)}</h2>")
        parts += [f"<p>{html.escape(sentence)}</p>" for sentence in section.sentences]
        if section.facts:
            facts = "".join(f"<dt>{html.escape(k)}</dt><dd>{html.escape(v)}</dd>" for k, v in section.facts)
            parts.append(f"<dl>{facts}</dl>")
        parts += [_table(table) for table in section.tables]
        parts.append("</section>")
    parts.append("</body></html>\n")
    return "\n".join(parts)


def _table(table: model.Table) -> str:
    caption = f"<caption>{html.escape(table.title)}</caption>" if table.title else ""
    if not table.rows:
        return f"<p>{html.escape(f'{table.title}: ' if table.title else '')}{html.escape(table.empty)}</p>"
    head = "".join(f'<th scope="col">{html.escape(column)}</th>' for column in table.columns)
    rows = "".join("<tr>" + "".join(f"<td>{html.escape(c)}</td>" for c in row) + "</tr>" for row in table.rows)
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
