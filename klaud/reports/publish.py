"""Put a report where people look: the job's step summary, a markdown file, an HTML page."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from klaud.reports import page, render

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from klaud.reports import model


def step_summary(report: model.Report, environ: Mapping[str, str]) -> bool:
    """Append the report to the file that ``GITHUB_STEP_SUMMARY`` names; False where there is none.

    The file as a whole stays below ``render.SUMMARY_LIMIT_BYTES``.
    """
    name = environ.get("GITHUB_STEP_SUMMARY")
    if not name:
        return False
    with open(name, "ab") as file:  # noqa: PTH123 - append, whatever kind of file the runner made
        used = os.fstat(file.fileno()).st_size
        room = render.SUMMARY_LIMIT_BYTES - used
        if room > len(render.CUT_NOTE):
            file.write(render.markdown(report, limit_bytes=room).encode())
    return True


def files(report: model.Report, folder: Path, name: str) -> tuple[Path, Path]:
    """Write ``<name>.md`` and ``<name>.html`` into ``folder`` (made where missing); return both paths."""
    folder.mkdir(parents=True, exist_ok=True)
    markdown, web = folder / f"{name}.md", folder / f"{name}.html"
    markdown.write_text(render.markdown(report), encoding="utf-8")
    web.write_text(page.page(report), encoding="utf-8")
    return markdown, web
