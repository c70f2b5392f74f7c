"""Reads a scene's YAML and checks it against the table of keys; every complaint names the place.

YAML is read strictly: ``true`` and ``false`` only, no dates, no octal numbers, no key twice.
"""

from __future__ import annotations

import datetime
import difflib
import re
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import yaml

from klaud.fakehub.clock import parse
from klaud.fakehub.scene_schema import SCENE, Key, Many, Named, Section

SIZE_LIMIT = 16 * 1024 * 1024
"""Bytes of a scene file; larger scenes are generated."""

OFFSET = re.compile(r"([+-])(\d+(?:\.\d+)?)(s|m|h|d)")
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class SceneError(Exception):
    """A scene that cannot be used; the text says where and what."""


class _Loader(yaml.SafeLoader):
    """YAML without the surprises of version 1.1."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                continue
            if key in seen:
                raise SceneError(f"line {key_node.start_mark.line + 1}: key {key!r} stands twice")
            seen.add(key)
        return super().construct_mapping(node, deep=deep)


_Loader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in (
    ("bool", r"true|false|True|False", "tfTF"),
    ("null", r"~|null|Null|NULL|", "~nN"),
    ("int", r"-?(?:0|[1-9][0-9]*)", "-0123456789"),
    ("float", r"-?(?:0|[1-9][0-9]*)?\.[0-9]+", "-.0123456789"),
):
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), list(_first) + ([""] if _tag == "null" else [])
    )


def read(text: str, name: str = "scene") -> dict[str, Any]:
    """Return the checked mapping of a scene's text."""
    if len(text) > SIZE_LIMIT:
        raise SceneError(
            f"{name}: larger than {SIZE_LIMIT} bytes; a scene of that size is better generated (key `generate`)"
        )
    try:
        data = yaml.load(text, Loader=_Loader)  # noqa: S506 - a SafeLoader with fewer surprises
    except yaml.YAMLError as error:
        raise SceneError(f"{name}: not YAML: {' '.join(str(error).split())}") from error
    except SceneError as error:
        raise SceneError(f"{name}: {error}") from error
    try:
        check(data, SCENE, "scene" if not data else "")
    except SceneError as error:
        raise SceneError(f"{name}: {error}") from error
    return dict(data)


def check(value: Any, section: Section, path: str) -> None:
    """Refuse a value that does not fit a section: SceneError with the path."""
    where = path or "the scene"
    if not isinstance(value, Mapping):
        raise SceneError(f"{where}: expected a mapping ({section.name}), found {_shown(value)}")
    for key in value:
        if key not in section.keys:
            raise SceneError(
                f"{path}.{key}".lstrip(".") + f": unknown key of a {section.name}{nearest(str(key), section.keys)}"
            )
    for key, spec in section.keys.items():
        if spec.required and key not in value:
            raise SceneError(f"{where}: key `{key}` is missing ({spec.doc})")
    if section.only_one and len(value) != 1:
        raise SceneError(f"{where}: exactly one of {', '.join(section.keys)} is expected")
    for key, item in value.items():
        _check_key(item, section.keys[key], f"{path}.{key}".lstrip("."))


def nearest(word: str, known: Any) -> str:
    """Return a hint at the known name that is nearest to a word."""
    close = difflib.get_close_matches(word, [str(name) for name in known], n=1, cutoff=0.5)
    return f"; did you mean `{close[0]}`?" if close else f"; known are {', '.join(str(name) for name in known)}"


def _check_key(value: Any, spec: Key, path: str) -> None:
    kind = spec.kind
    if value is None and spec.null:
        return
    if isinstance(kind, Section):
        check(value, kind, path)
    elif isinstance(kind, Many):
        if not isinstance(value, Sequence) or isinstance(value, str):
            raise SceneError(f"{path}: expected a list, found {_shown(value)}")
        for index, item in enumerate(value):
            if not (kind.short and isinstance(item, str)):
                check(item, kind.section, f"{path}[{index}]")
    elif isinstance(kind, Named):
        if not isinstance(value, Mapping):
            raise SceneError(f"{path}: expected a mapping of names, found {_shown(value)}")
        for name, item in value.items():
            check(item, kind.section, f"{path}.{name}")
    elif isinstance(kind, tuple):
        if value not in kind or isinstance(value, bool):
            raise SceneError(f"{path}: {_shown(value)} is not one of its words{nearest(str(value), kind)}")
    else:
        _check_plain(value, kind, path)


def _check_plain(value: Any, kind: str, path: str) -> None:
    match kind:
        case "any":
            good = True
        case "text":
            good = isinstance(value, str)
        case "number":
            good = isinstance(value, int | float) and not isinstance(value, bool)
        case "flag":
            good = isinstance(value, bool)
        case "names":
            good = isinstance(value, list) and all(isinstance(item, str) for item in value)
        case "table":
            good = isinstance(value, Mapping) and all(
                isinstance(item, str | int | float | bool) for item in value.values()
            )
        case "files":
            good = isinstance(value, Mapping) and all(item is None or isinstance(item, str) for item in value.values())
        case "time":
            moment(value, datetime.datetime.now(datetime.UTC), path)
            good = True
        case _:
            good = False
    if not good:
        wanted = {
            "names": "a list of texts",
            "table": "a mapping to texts",
            "files": "a mapping to texts",
            "flag": "true or false",
        }
        raise SceneError(f"{path}: expected {wanted.get(kind, f'a {kind}')}, found {_shown(value)}")


def moment(value: Any, start: datetime.datetime, path: str) -> datetime.datetime:
    """Return the time that a scene means: ISO 8601, or an offset from the start such as ``-2h``."""
    if isinstance(value, datetime.datetime):
        return value
    if isinstance(value, str):
        match = OFFSET.fullmatch(value)
        if match:
            seconds = float(match[2]) * UNITS[match[3]]
            return start + datetime.timedelta(seconds=seconds if match[1] == "+" else -seconds)
        try:
            return parse(value)
        except ValueError:
            pass
    raise SceneError(f"{path}: {_shown(value)} is no time (ISO 8601, or an offset such as -2h)")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
