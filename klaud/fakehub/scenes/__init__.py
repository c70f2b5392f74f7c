"""Scenes that are built by code: the common ground of small ones, and big ones.

A builder returns the same mapping that a scene file holds, so that it is checked, documented and run like one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klaud.fakehub.scenes.forerunner import forerunner_scene
from klaud.fakehub.scenes.ground import BOT, CONFIG, MAINTAINER, REVIEWER, TOKEN, base

if TYPE_CHECKING:
    from collections.abc import Mapping

LISTS = ("accounts", "tokens", "labels", "commits", "refs", "pulls", "runs", "faults", "humans")
TABLES = ("variables", "branches", "workflows", "feeds")


def generated(data: Mapping[str, Any], *, forerunner: int, others: int) -> dict[str, Any]:
    """Return a generated scene with what ``data`` says added to it (its lists after, its other keys in place)."""
    return merged(forerunner_scene(forerunner, others=others), data)


def merged(made: Mapping[str, Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """Return one scene with another's lists appended and its other keys in place."""
    both = dict(made)
    for key, value in data.items():
        if key in LISTS:
            both[key] = [*both.get(key, ()), *value]
        elif key in TABLES:
            both[key] = {**both.get(key, {}), **value}
        elif key != "generate":
            both[key] = value
    return both


__all__ = ["BOT", "CONFIG", "MAINTAINER", "REVIEWER", "TOKEN", "base", "forerunner_scene", "generated", "merged"]
