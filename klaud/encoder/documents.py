"""The semantic layer's model documents as plain data: apply an item's definitions, purge them by tag, find and resolve.

A document is what the semantic layer stores for one model: a mapping with ``name``, ``columns``, ``measures`` and more.
Nothing here knows the layer's own classes; it validates what comes out. Documents handed in are never changed.
"""

from __future__ import annotations

import copy
import re
from typing import TYPE_CHECKING, Any, TypeAlias

from klaud.encoder import model

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

Documents: TypeAlias = dict[str, dict[str, Any]]
"""Model name -> its document."""

TAG = "kb_id"
"""The key in ``meta`` that says whose an entity is."""

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
"""What an entity may be called: an identifier that every dialect takes unquoted."""

DEPTH = 12
"""Levels of nesting in a definition's body: a model of stages with computed measures has eight."""

_STRING = re.compile(r"'(?:[^']|'')*'|--[^\n]*|/\*.*?\*/", re.DOTALL)
_WORD = re.compile(r'[A-Za-z_]\w*(?:\s*\.\s*[A-Za-z_]\w*)*|"[^"]+"(?:\."[^"]+")*', re.ASCII)
_LISTS = {"column": "columns", "measure": "measures"}


def tag(entity: Mapping[str, Any]) -> int | None:
    """Return the id that an entity carries, None where it is a part of the schema."""
    meta = entity.get("meta")
    number = meta.get(TAG) if isinstance(meta, dict) else None
    return number if isinstance(number, int) and not isinstance(number, bool) else None


def find(host: str, name: str, held: Documents) -> dict[str, Any] | None:
    """Return the column or measure ``name`` of model ``host`` (the model itself when ``name`` is empty), else None."""
    document = held.get(host)
    if document is None or not name:
        return document
    for kind in _LISTS.values():
        for entity in document.get(kind) or ():
            if entity.get("name") == name:
                return dict(entity)
    return None


def resolve(text: str, database: str, held: Documents) -> str:
    """Return the canonical reference that ``text`` may have meant, empty where there is none or more than one.

    Understands a missing datasource, a missing model, other letter case and a path through joins.
    """
    wanted = [part.casefold() for part in text.strip().split(".")]
    if wanted and wanted[0] == database.casefold() and len(wanted) > 1:
        wanted = wanted[1:]
    if not wanted or not all(wanted):
        return ""
    found = set()
    for host, document in held.items():
        if len(wanted) == 1 and host.casefold() == wanted[0]:
            found.add(f"{database}.{host}")
        for kind in _LISTS.values():
            for entity in document.get(kind) or ():
                name = str(entity.get("name"))
                if name.casefold() != wanted[-1]:
                    continue
                if len(wanted) == 1 or wanted[-2] == host.casefold():
                    found.add(f"{database}.{host}.{name}")
    return found.pop() if len(found) == 1 else ""


def claim(definition: model.Definition) -> tuple[str, str, str]:
    """Return what a definition claims: (kind, host, name). A model's name is claimed regardless of case (it is a file)."""
    host = definition.model.casefold() if definition.kind == "model" else definition.model
    return (definition.kind, host, definition.name)


def apply(
    held: Documents, item: int, database: str, definitions: Sequence[model.Definition]
) -> tuple[Documents, tuple[model.Problem, ...]]:
    """Return the documents with an item's definitions in them, tagged, and what could not be applied.

    An entity of the schema is never replaced. One of another item is (that is a collision, settled at the end).
    """
    result = dict(held)
    problems: list[model.Problem] = []
    seen: set[tuple[str, str, str]] = set()
    for definition in sorted(definitions, key=lambda one: one.kind != "model"):
        text = _malformed(definition, result, database)
        if not text and claim(definition) in seen:
            text = f"{definition.kind} {definition.model}.{definition.name} is defined twice"
        if not text:
            seen.add(claim(definition))
            text = _put(result, item, database, definition)
        if text:
            problems.append(model.Problem(check="loads", text=text))
    return result, tuple(problems)


def _malformed(definition: model.Definition, held: Documents, database: str) -> str:
    unknown = sorted(set(definition.body) - model.BODY_FIELDS[definition.kind])
    if unknown:
        allowed = ", ".join(sorted(model.BODY_FIELDS[definition.kind]))
        return f"a {definition.kind} has no {', '.join(unknown)[:200]}: its body may have {allowed}"
    if inner := _inner_problem(definition.body):
        return f"{definition.kind} {definition.model[:80]}.{definition.name[:80]}: {inner}"
    if definition.kind == "model":
        if not NAME.fullmatch(definition.model) or definition.name:
            return f"model {definition.model[:80]!r}: a model's name is an identifier in 'model', 'name' stays empty"
        if definition.model.casefold() == database.casefold():
            return f"model {definition.model} has the name of the datasource"
        return ""
    if not NAME.fullmatch(definition.name):
        return f"{definition.kind} {definition.name[:80]!r} is not an identifier (letters, digits, '_', at most 63)"
    if definition.model not in held:
        return f"{definition.kind} {definition.name}: there is no model {definition.model[:80]!r}"
    return ""


def _inner_problem(body: dict[str, Any]) -> str:
    """Return what is wrong inside a body: too deep, or a tag of its own somewhere below (tags are klaud's alone)."""
    todo: list[tuple[Any, int]] = [(body, 0)]
    while todo:
        value, depth = todo.pop()
        if depth > DEPTH:
            return f"its body is nested more than {DEPTH} levels deep"
        if isinstance(value, dict):
            if "meta" in value:
                return "its body has a meta inside: tags are not for an agent to set"
            todo.extend((inner, depth + 1) for inner in value.values())
        elif isinstance(value, list | tuple):
            todo.extend((inner, depth + 1) for inner in value)
    return ""


def _put(held: Documents, item: int, database: str, definition: model.Definition) -> str:
    """Put one well-formed definition into ``held``; return why it cannot be, else an empty text."""
    body = copy.deepcopy(definition.body)
    if definition.kind == "model":
        old = next((name for name in held if name.casefold() == definition.model.casefold()), None)
        if old is not None:
            if tag(held[old]) is None:
                return f"model {old} is a part of the schema: choose another name"
            del held[old]
        held[definition.model] = {
            **body, "name": definition.model, "data_source": database, "meta": {TAG: item},
        }  # fmt: skip
        return ""
    host = dict(held[definition.model])
    entity = find(definition.model, definition.name, held)
    mine = _LISTS[definition.kind]
    kept = [one for one in host.get(mine) or () if one.get("name") != definition.name]
    if entity is not None:
        owner = tag(entity)
        if owner is None:
            return f"{definition.model}.{definition.name} is a part of the schema: choose another name"
        if len(kept) == len(host.get(mine) or ()):
            return f"{definition.model}.{definition.name} is taken by item {owner} as another kind: choose another name"
    host[mine] = [*kept, {**body, "name": definition.name, "meta": {TAG: item}}]
    held[definition.model] = host
    return ""


def purge(held: Documents, items: Collection[int]) -> Documents:
    """Return the documents without every entity that carries one of these ids."""
    result: Documents = {}
    for name, document in held.items():
        if tag(document) in items:
            continue
        slim = dict(document)
        for kind in _LISTS.values():
            if slim.get(kind):
                slim[kind] = [entity for entity in slim[kind] if tag(entity) not in items]
        result[name] = slim
    return result


def tagged(held: Documents) -> Iterator[tuple[int, str, str, model.Kind]]:
    """Yield (item, model, name, kind) of every entity that carries an id."""
    for host, document in sorted(held.items()):
        owner = tag(document)
        if owner is not None:
            yield owner, host, "", "model"
        kinds: tuple[tuple[str, model.Kind], ...] = (("columns", "column"), ("measures", "measure"))
        for field, kind in kinds:
            for entity in document.get(field) or ():
                owner = tag(entity)
                if owner is not None:
                    yield owner, host, str(entity["name"]), kind


def describe(held: Documents, meanings: Sequence[model.Meaning]) -> tuple[Documents, tuple[str, ...]]:
    """Return the documents with the columns' meanings as descriptions, and a warning about meanings of no column."""
    wanted = {(one.table.casefold(), one.column.casefold()): one.text for one in meanings}
    used: set[tuple[str, str]] = set()
    result: Documents = {}
    for name, document in held.items():
        table = str(document.get("sql_table") or name).split(".")[-1].strip('"').casefold()
        columns = []
        for column in document.get("columns") or ():
            at = (table, str(column.get("name")).casefold())
            if at in wanted:
                used.add(at)
                columns.append({**column, "description": wanted[at]} if wanted[at] else column)
            else:
                columns.append(column)
        result[name] = {**document, "columns": columns}
    missing = sorted(set(wanted) - used)
    if not missing:
        return result, ()
    shown = ", ".join(f"{table}.{column}" for table, column in missing[:10])
    more = f" and {len(missing) - 10} more" if len(missing) > 10 else ""
    return result, (f"column meanings of no column: {shown}{more}",)


def uses(definition: model.Definition, entity: model.Definition) -> bool:
    """Tell whether ``definition`` uses ``entity`` by name in one of its expressions (not in a string or a comment).

    A column or measure counts as used when its name ends a word of an expression, and that word is bare on the same
    model, or has the model's name before it. A model counts when its name is a part of a word or its source.
    """
    name = (entity.name or entity.model).casefold()
    host = entity.model.casefold()
    for text in expressions(definition):
        for word in _WORD.findall(_STRING.sub(" ", text)):
            parts = [part.strip().strip('"').casefold() for part in word.split(".")]
            if entity.kind == "model":
                if name in parts:
                    return True
            elif parts[-1] == name and (
                parts[-2] == host
                if len(parts) > 1
                else definition.kind == "model" or definition.model.casefold() == host
            ):
                return True
    return False


def expressions(definition: model.Definition) -> Iterator[str]:
    """Yield every text of a definition that the semantic layer reads as an expression or a name."""
    if definition.kind != "model":
        yield definition.model
    prose = {"description", "label", "format", "type"}
    todo: list[Any] = [value for name, value in definition.body.items() if name not in prose]
    while todo:
        value = todo.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            todo.extend(inner for name, inner in value.items() if name not in prose)
        elif isinstance(value, list | tuple):
            todo.extend(value)


def summaries(held: Documents) -> dict[str, model.ModelSummary]:
    """Return the models in short, for an agent."""
    return {
        name: model.ModelSummary(
            columns=tuple(str(one["name"]) for one in document.get("columns") or ()),
            measures=tuple(str(one["name"]) for one in document.get("measures") or ()),
            joins=tuple(str(one["target_model"]) for one in document.get("joins") or ()),
            description=str(document.get("description") or "")[:500],
        )
        for name, document in sorted(held.items())
    }
