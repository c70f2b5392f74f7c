"""Is a reference whole? Looked at on a copy, because opening a store may rewrite it.

A reference is whole when the semantic layer's validation finds no drift, every model and memory loads, every entity that a
result names exists, carries the item's id and executes, nothing carries an id that no result names, each item has exactly
one result, and no file holds an absolute path of this machine or a credential.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import msgspec.yaml

from klaud import errors
from klaud.encoder import codec, decide, documents, model, naming, slayer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TREE_BYTES = 536_870_912
"""All of one reference."""


def contents(
    tree: Mapping[str, bytes], key: model.Key, *, forbidden: Sequence[str], marked: bool
) -> tuple[tuple[str, ...], tuple[model.Item, ...], tuple[model.Row, ...]]:
    """Judge a tree by its bytes alone: files, rows, paths, credentials. Return findings, items and results.

    ``forbidden``: texts that no file may hold. ``marked``: whether the completeness marker must be there.
    """
    found: list[str] = []
    datasource = f"datasources/{key.database}.yaml"
    needed = [naming.ROWS, naming.RESULTS, naming.USAGE, datasource, *([naming.MARKER] if marked else [])]
    found += [f"{name} is missing" for name in needed if name not in tree]
    if marked and not naming.is_marker(tree.get(naming.MARKER, b"").decode("ascii", "replace")):
        found.append(f"{naming.MARKER} is not a fingerprint")
    if datasource in tree and tree[datasource] != slayer.yaml_text(
        slayer.portable_datasource(key.database, key.dialect)
    ):
        found.append(f"{datasource} is not the portable one: it must be relative and hold no credential")
    for name, data in tree.items():
        folder, _, rest = name.partition("/")
        if folder not in decide.OURS or (folder == "models" and rest.count("/") != 1):
            found.append(f"{name} is no part of a reference")
        text = data.decode("utf-8", "replace")
        found += [f"{name} holds an absolute path or a credential" for part in forbidden if part and part in text]
    items: tuple[model.Item, ...] = ()
    rows: tuple[model.Row, ...] = ()
    try:
        items = codec.decode(tree.get(naming.ROWS, b""), tuple[model.Item, ...], naming.ROWS)
        rows = codec.decode(tree.get(naming.RESULTS, b""), tuple[model.Row, ...], naming.RESULTS)
        codec.decode(tree.get(naming.USAGE, b""), model.UsageFile, naming.USAGE)
    except errors.InputError as error:
        found.append(str(error))
    found += decide.row_problems(items, rows)
    found += [
        f"the memory of item {item.id} is missing"
        for item in items
        if f"memories/{naming.memory_id(key, item.id)}.md" not in tree
    ]
    for row in rows:
        hosts = {f"models/{key.database}/{one.split('.')[1]}.yaml" for one in row.entities if one.count(".") in (1, 2)}
        found += [f"item {row.kb_id}: {name} is missing" for name in sorted(hosts) if name not in tree]
    found += [
        f"{name} does not name the model of its file"
        for name, data in tree.items()
        if name.startswith("models/") and _model_name(data) != Path(name).stem
    ]
    return tuple(dict.fromkeys(found)), items, rows


def _model_name(data: bytes) -> str:
    try:
        document = msgspec.yaml.decode(data)
    except msgspec.DecodeError:
        return ""
    return str(document.get("name", "")) if isinstance(document, dict) else ""


def own_paths(forbidden: Sequence[str], items: Sequence[model.Item], meanings: Sequence[model.Meaning]) -> list[str]:
    """Return the paths that must not be in a reference: not those that the inputs themselves speak of."""
    told = "\n".join(
        [
            *(text for item in items for text in (item.knowledge, item.description, item.definition)),
            *(meaning.text for meaning in meanings),
        ]
    )
    return [path for path in forbidden if path not in told]


def store(
    tree: Mapping[str, bytes], key: model.Key, rows: Sequence[model.Row], *, url: str, query_seconds: float
) -> tuple[str, ...]:
    """Open a copy of the store on the live database and judge it by the semantic layer. Blocking."""
    with tempfile.TemporaryDirectory(prefix="klaud-validate-") as scratch:
        root = Path(scratch) / "store"
        for name, data in tree.items():
            if name.split("/")[0] in ("models", "memories"):
                path = root / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
        layer = slayer.Layer(
            database=key.database, dialect=key.dialect, url=url, root=root, query_seconds=query_seconds
        )
        try:
            return _judge(layer, key, rows)
        finally:
            layer.close()


def _judge(layer: slayer.Layer, key: model.Key, rows: Sequence[model.Row]) -> tuple[str, ...]:
    run = layer.blocking
    found = list(run(layer.drift))
    held = run(layer.load)
    tagged: dict[int, set[str]] = {}
    probes: list[tuple[str, str, model.Kind]] = []
    for owner, host, name, kind in documents.tagged(held):
        definition = model.Definition(kind=kind, model=host, name=name)
        tagged.setdefault(owner, set()).add(naming.canonical(key.database, definition))
        probes.append((host, name, kind))
    for row in rows:
        named, carried = set(row.entities), tagged.pop(row.kb_id, set())
        found += [f"item {row.kb_id}: {one} does not exist or does not carry its id" for one in sorted(named - carried)]
        found += [f"item {row.kb_id}: {one} carries its id but no result names it" for one in sorted(carried - named)]
    found += [f"item {owner} has entities and no result: {', '.join(sorted(of))}" for owner, of in tagged.items()]
    found += [problem.text for problem in run(layer.probe, probes)]
    memories = run(layer.memories)
    for row in rows:
        linked = set(memories.get(naming.memory_id(key, row.kb_id), ()))
        if linked != set(row.entities):
            found.append(f"the memory of item {row.kb_id} is not indexed under exactly its entities")
    return tuple(dict.fromkeys(found))
