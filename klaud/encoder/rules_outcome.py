"""What a build came to, in words: why nothing was encoded (a closed code), and what a draft says of the items. Pure."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, get_args

from klaud.encoder import model

if TYPE_CHECKING:
    from collections.abc import Iterator

SHOWN = 12
"""Items without entities that the draft's text names; all of them are in the reference's results."""

CHARACTERS = 120
"""Of the reason of each."""


def why_nothing(rows: tuple[model.Row, ...]) -> str:
    """Return why no item was encoded, as a code: the check that failed most often, or that there was nothing to encode."""
    failed = collections.Counter(check for row in rows for check in _failed(row))
    if not failed:
        return "nothing-encoded"
    most = max(failed.values())
    return f"check-{min(check for check, count in failed.items() if count == most)}"


def _failed(row: model.Row) -> Iterator[str]:
    text = f" {row.notes} {row.error}"
    if row.status == "encoded":
        return
    for check in get_args(model.Check):
        if f" {check}: " in text:
            yield check


def summary(rows: tuple[model.Row, ...]) -> str:
    """Return what became of the items, in one sentence for the draft."""
    counts: collections.Counter[str] = collections.Counter(row.status for row in rows)
    return f"{len(rows)} items: " + ", ".join(f"{counts[status]} {status}" for status in model.STATUSES)


def left_out(rows: tuple[model.Row, ...]) -> str:
    """Return which items have no entities and why, the first of them."""
    out = [f"item {row.kb_id} {row.status}: {row.error or row.notes}" for row in rows if row.status != "encoded"]
    more = f"; and {len(out) - SHOWN} more" if len(out) > SHOWN else ""
    return "; ".join(text[:CHARACTERS] for text in out[:SHOWN]) + more
