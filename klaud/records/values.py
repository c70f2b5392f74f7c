"""Small readings of decoded JSON that nobody vouches for. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from klaud.records import model

_IDENTIFIER = re.compile(r"[A-Za-z0-9_-]{1,128}")


def identifier(value: object) -> str | None:
    """Return ``value`` when it is an id that may stand in a path, a file name and an error, else None."""
    return value if isinstance(value, str) and _IDENTIFIER.fullmatch(value) else None


def counts(value: object) -> dict[str, int]:
    """Return those entries of an object that are counts (whole numbers from 0)."""
    if not isinstance(value, dict):
        return {}
    return {name: count for name, count in value.items() if type(count) is int and count >= 0}


def status(value: object, known: Mapping[str, model.Status]) -> model.Status:
    """Return our word for a provider's; a word that is not known is ``unknown``, whatever it may mean."""
    return known.get(value, "unknown") if isinstance(value, str) else "unknown"


def path(value: Any, *steps: str | int) -> Any:
    """Follow names and positions into nested data; None where there is nothing there."""
    for step in steps:
        if isinstance(step, str):
            value = value.get(step) if isinstance(value, dict) else None
        else:
            value = value[step] if isinstance(value, list) and len(value) > step else None
    return value
