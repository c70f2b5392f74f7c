"""Write the files that are made from klaud's structs: schemas and the table of settings.

    python tools/schemas.py           write them
    python tools/schemas.py --check   exit 1 and name those that differ

A field's description is the text that stands below it in its class (an attribute docstring, read from the source); a
struct without one for each field is refused, so that nothing is published without a description.
"""

from __future__ import annotations

import ast
import inspect as source_inspect
import json
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import inspect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parent.parent
DIALECT = "https://json-schema.org/draft/2020-12/schema"


class UndescribedError(Exception):
    """A struct or a field has no description."""


def describe(struct: type[Any]) -> tuple[str, dict[str, str]]:
    """Return a struct's own description and those of its fields by Python name, inherited ones included."""
    fields: dict[str, str] = {}
    for base in reversed(struct.__mro__):
        if not issubclass(base, msgspec.Struct) or base is msgspec.Struct:
            continue
        tree = ast.parse(textwrap.dedent(source_inspect.getsource(base)))
        body = tree.body[0].body  # type: ignore[attr-defined]
        for node, below in zip(body, [*body[1:], None], strict=True):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                text = _docstring(below)
                if text:
                    fields[node.target.id] = text
    own = _flat(struct.__doc__ or "")
    missing = [name for name in struct.__struct_fields__ if name not in fields]
    if missing or not own:
        message = f"{struct.__module__}.{struct.__qualname__}: no description of {', '.join(missing) or 'itself'}"
        raise UndescribedError(message)
    return own, fields


def _docstring(node: ast.stmt | None) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return _flat(node.value.value)
    return ""


def _flat(text: str) -> str:
    return " ".join(text.split())


class _Definitions(dict[str, Any]):
    """The ``$defs`` by name, which class each name stands for, and whether keys are written as the configuration's are."""

    def __init__(self, *, as_settings: bool) -> None:
        super().__init__()
        self.as_settings = as_settings
        self._names: dict[type[Any], str] = {}

    def name(self, struct: type[Any]) -> str:
        """Return the name of a struct's definition; two classes of one name get their packages' names in front."""
        if struct not in self._names:
            package = struct.__module__.split(".")[1].title()
            plain = struct.__name__
            taken = plain == "Policy" or plain in self._names.values()
            self._names[struct] = f"{package}{plain}" if taken else plain
        return self._names[struct]

    def key(self, field: inspect.Field) -> str:
        """Return the key of a field."""
        return field.name.replace("_", "-") if self.as_settings else field.encode_name


def json_schema(struct: type[Any], *, title: str, address: str, as_settings: bool = False) -> dict[str, Any]:
    """Return the JSON Schema 2020-12 of a struct as msgspec decodes it strictly, every field described.

    ``as_settings``: keys with hyphens and nothing unknown, as ``klaud.config`` reads them, whatever the struct says.
    """
    definitions = _Definitions(as_settings=as_settings)
    body = _schema(inspect.type_info(struct), definitions)
    name = body["$ref"].rsplit("/", 1)[1]
    top = definitions.pop(name)
    return {"$schema": DIALECT, "$id": address, "title": title, **top, "$defs": dict(sorted(definitions.items()))}


def _schema(info: inspect.Type, definitions: _Definitions) -> dict[str, Any]:
    if isinstance(info, inspect.StructType):
        return _struct(info, definitions)
    for kind, make in _MAKERS.items():
        if isinstance(info, kind):
            return make(info, definitions)
    message = f"no JSON Schema is known for {info!r}"
    raise NotImplementedError(message)


def _struct(info: inspect.StructType, definitions: _Definitions) -> dict[str, Any]:
    name = definitions.name(info.cls)
    if name not in definitions:
        definitions[name] = {}
        own, fields = describe(info.cls)
        properties: dict[str, Any] = {}
        if info.tag_field is not None:
            properties[info.tag_field] = {"const": info.tag, "description": "Which kind of record this is."}
        for field in info.fields:
            body = _schema(field.type, definitions)
            one = {"description": fields[field.name], **body}
            if field.default is not msgspec.NODEFAULT and field.default is not msgspec.UNSET:
                one["default"] = _plain(field.default, definitions)
            properties[definitions.key(field)] = one
        required = [definitions.key(field) for field in info.fields if field.required]
        if info.tag_field is not None:
            required.insert(0, info.tag_field)
        definitions[name] = {
            "description": own,
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": not (definitions.as_settings or info.forbid_unknown_fields),
        }
    return {"$ref": f"#/$defs/{name}"}


def _plain(value: Any, definitions: _Definitions) -> Any:
    """Return a default as it would stand in the file."""
    if isinstance(value, msgspec.Struct):
        fields = _fields(type(value))
        return {definitions.key(field): _plain(getattr(value, field.name), definitions) for field in fields}
    if isinstance(value, (tuple, list)):
        return [_plain(one, definitions) for one in value]
    return msgspec.to_builtins(value)


def _limits(info: Any, **names: str) -> dict[str, Any]:
    found = {keyword: getattr(info, attribute) for attribute, keyword in names.items()}
    return {keyword: value for keyword, value in found.items() if value is not None}


def _number(kind: str) -> Callable[[Any, _Definitions], dict[str, Any]]:
    def make(info: Any, _: _Definitions) -> dict[str, Any]:
        return {"type": kind, **_limits(info, ge="minimum", le="maximum", gt="exclusiveMinimum", lt="exclusiveMaximum")}

    return make


def _text(info: Any, _: _Definitions) -> dict[str, Any]:
    return {"type": "string", **_limits(info, min_length="minLength", max_length="maxLength", pattern="pattern")}


def _list(info: Any, definitions: _Definitions) -> dict[str, Any]:
    items = _schema(info.item_type, definitions)
    return {"type": "array", "items": items, **_limits(info, min_length="minItems", max_length="maxItems")}


def _mapping(info: Any, definitions: _Definitions) -> dict[str, Any]:
    found: dict[str, Any] = {"type": "object", "additionalProperties": _schema(info.value_type, definitions)}
    names = _schema(info.key_type, definitions)
    if names != {"type": "string"}:
        found["propertyNames"] = names
    return {**found, **_limits(info, min_length="minProperties", max_length="maxProperties")}


def _union(info: Any, definitions: _Definitions) -> dict[str, Any]:
    return {"anyOf": [_schema(one, definitions) for one in info.types]}


def _words(info: Any, _: _Definitions) -> dict[str, Any]:
    values = list(info.values)
    return {"const": values[0]} if len(values) == 1 else {"enum": values}


_MAKERS: dict[type[Any], Callable[[Any, _Definitions], dict[str, Any]]] = {
    inspect.BoolType: lambda _, __: {"type": "boolean"},
    inspect.IntType: _number("integer"),
    inspect.FloatType: _number("number"),
    inspect.StrType: _text,
    inspect.NoneType: lambda _, __: {"type": "null"},
    inspect.AnyType: lambda _, __: {},
    inspect.DateTimeType: lambda _, __: {"type": "string", "format": "date-time"},
    inspect.LiteralType: _words,
    inspect.ListType: _list,
    inspect.VarTupleType: _list,
    inspect.DictType: _mapping,
    inspect.UnionType: _union,
    inspect.Metadata: lambda info, definitions: _schema(info.type, definitions),
}


def settings_table(struct: type[Any]) -> str:
    """Return docs/configuration.md: a table of every key with its type, its default and its description."""
    lines = [
        "# Configuration: `.github/klaud.yml`",
        "",
        "Every key, by section. Unknown keys are refused with the nearest known name. `klaud validate` checks the file",
        "against the repository. This page is made by `tools/schemas.py`.",
        "",
        "The file is read as YAML 1.2: `on` and `yes` are texts, `010` is ten, a key written twice is an error.",
    ]
    for path, one in _sections(struct, ""):
        own, fields = describe(one)
        lines += ["", f"## `{path}`" if path else "## The file", "", own, "", "| key | type | default | meaning |"]
        lines.append("| --- | --- | --- | --- |")
        lines += [_row(field, fields[field.name], path) for field in _fields(one)]
    return "\n".join(lines).replace("``", "`") + "\n"


def _fields(struct: type[Any]) -> tuple[inspect.Field, ...]:
    info = inspect.type_info(struct)
    assert isinstance(info, inspect.StructType)  # noqa: S101 - a tool's own invariant
    return info.fields


def _row(field: inspect.Field, text: str, path: str) -> str:
    key = field.name.replace("_", "-")
    kind, inner = _kind(field.type)
    if inner is not None:
        kind = f"{kind} [`{_at(path, key, kind)}`](#{_anchor(_at(path, key, kind))})"
    return f"| `{key}` | {kind} | {_default(field, inner)} | {text.replace('|', chr(92) + '|')} |"


def _default(field: inspect.Field, inner: type[Any] | None) -> str:
    if field.required:
        return "*required*"
    value: Any = field.default_factory() if field.default_factory is not msgspec.NODEFAULT else field.default
    if isinstance(value, msgspec.Struct):
        return "see there"
    if value is None or value is msgspec.UNSET or value is msgspec.NODEFAULT:
        return "none"
    if inner is not None and not value:
        return "none"
    return f"`{json.dumps(msgspec.to_builtins(value), ensure_ascii=False)}`"


def _at(path: str, key: str, kind: str) -> str:
    step = f"{path}.{key}" if path else key
    return {"list of": f"{step}[]", "mapping of": f"{step}.*"}.get(kind, step)


def _anchor(path: str) -> str:
    return "".join(char for char in path.lower() if char.isalnum() or char in "-_")


def _kind(info: inspect.Type) -> tuple[str, type[Any] | None]:
    match info:
        case inspect.Metadata():
            return _kind(info.type)
        case inspect.StructType():
            return "section", info.cls
        case inspect.ListType() | inspect.VarTupleType():
            kind, inner = _kind(info.item_type)
            return ("list of", inner) if inner is not None else (f"list of {kind}", None)
        case inspect.DictType():
            kind, inner = _kind(info.value_type)
            return ("mapping of", inner) if inner is not None else (f"mapping of {kind}", None)
        case inspect.UnionType():
            kinds = [_kind(one) for one in info.types]
            inner = next((one for _, one in kinds if one is not None), None)
            return ("section", inner) if inner is not None else (" or ".join(kind for kind, _ in kinds), None)
        case inspect.LiteralType():
            return " or ".join(f"`{value}`" for value in info.values), None
        case inspect.IntType():
            low = f" from {info.ge}" if info.ge is not None else ""
            return f"whole number{low}", None
        case inspect.NoneType():
            return "nothing", None
        case _:
            plain = {"StrType": "text", "BoolType": "true or false", "FloatType": "number", "AnyType": "anything"}
            return plain[type(info).__name__], None


def _sections(struct: type[Any], path: str) -> Iterator[tuple[str, type[Any]]]:
    yield path, struct
    for field in _fields(struct):
        kind, inner = _kind(field.type)
        if inner is not None:
            yield from _sections(inner, _at(path, field.name.replace("_", "-"), kind))


def _pretty(data: Any) -> str:
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def products() -> dict[str, str]:
    """Return what is made: path below the repository -> text."""
    from klaud import config  # noqa: PLC0415 - the tool can be imported without the product's heavy parts
    from klaud.planner import model  # noqa: PLC0415 - likewise

    schema = json_schema(
        config.Config, title="klaud's configuration", address="klaud/config_schema.json", as_settings=True
    )
    return {
        "klaud/config_schema.json": _pretty(schema),
        "selection.json.schema": _pretty(
            json_schema(model.Selection, title="What a planner run decided, and why", address="selection.json.schema")
        ),
        "docs/configuration.md": settings_table(config.Config),
    }


def main(arguments: list[str]) -> int:
    """Write, or with ``--check`` compare."""
    made = products()
    if arguments == ["--check"]:
        stale = [
            path for path, text in made.items() if not (ROOT / path).is_file() or (ROOT / path).read_text() != text
        ]
        for path in stale:
            print(f"{path} is not what tools/schemas.py makes: run it")
        return 1 if stale else 0
    for path, text in made.items():
        (ROOT / path).write_text(text, encoding="utf-8")
        print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main(sys.argv[1:]))
