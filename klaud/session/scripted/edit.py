"""Set one value in a YAML or JSON file without touching anything else.

Block YAML only: the key path is followed by indentation, the scalar at its end is replaced, comments stay. A path through
a flow mapping or a list, an anchor or a block scalar is refused: this is a small agent, not a YAML editor.
"""

import json
import re

_KEY = re.compile(r"^(?P<indent> *)(?P<key>\"[^\"]*\"|'[^']*'|[^\s#:\-][^:#]*?)\s*:(?P<rest>(?:\s.*)?)$")
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/+-]*(?::[A-Za-z0-9._/+-]+)*")
_SPECIAL = re.compile(r"(?i)(?:null|true|false|yes|no|on|off|~|[-+.0-9][0-9_.eExXoO:+-]*)")


class NotEditableError(Exception):
    """The file has another shape than this editor can change."""


def set_value(text: str, keys: list[str], value: object, *, kind: str) -> str:
    """Return ``text`` (``kind`` is ``yaml`` or ``json``) with the value at the key path replaced."""
    if kind == "json":
        data = json.loads(text)
        place = data
        for key in keys[:-1]:
            place = place[key]
        place[keys[-1]] = value
        return json.dumps(data, indent=2) + "\n"
    lines = text.split("\n")
    at, indent = 0, -1
    for depth, key in enumerate(keys):
        at, indent = _find(lines, at, indent, key)
        if depth < len(keys) - 1:
            rest = _line(lines[at])["rest"].split("#")[0].strip()
            if rest:
                raise NotEditableError(f"{'.'.join(keys[: depth + 1])} is not a block mapping")
            at += 1
    match = _line(lines[at])
    old, comment = _split_comment(match["rest"])
    if old.strip()[:1] in {"|", ">", "&", "*", "{", "["} or (not old.strip() and _has_children(lines, at, indent)):
        raise NotEditableError(f"{'.'.join(keys)} is not a plain value")
    lines[at] = f"{match['indent']}{match['key']}: {_scalar(value)}{comment}"
    return "\n".join(lines)


def _line(text: str) -> re.Match[str]:
    match = _KEY.match(text)
    if match is None:
        raise NotEditableError("not a line with a key")
    return match


def _find(lines: list[str], start: int, parent: int, key: str) -> tuple[int, int]:
    child = None
    for number in range(start, len(lines)):
        line = lines[number]
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        indent = len(line) - len(line.lstrip(" "))
        if indent <= parent:
            break
        child = indent if child is None else child
        match = _KEY.match(line)
        if indent == child and match and match["key"].strip().strip("\"'") == key:
            return number, indent
    raise NotEditableError(f"there is no key {key!r} where it was looked for")


def _has_children(lines: list[str], at: int, indent: int) -> bool:
    for line in lines[at + 1 :]:
        if line.strip() and not line.lstrip().startswith("#"):
            return len(line) - len(line.lstrip(" ")) > indent
    return False


def _split_comment(rest: str) -> tuple[str, str]:
    match = re.match(r"^(\s*(?:\"[^\"]*\"|'[^']*'|[^#]*?))(\s+#.*)?$", rest)
    return (match[1], match[2] or "") if match else (rest, "")


def _scalar(value: object) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value) and not _SPECIAL.fullmatch(value):
        return value
    return json.dumps(value)
