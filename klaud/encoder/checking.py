"""Validate one finished reference: the same judgement that a build ends with, for the CI of the pull request with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klaud import errors
from klaud.encoder import build, files, inputs, naming, validate

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from klaud.encoder import model


def complete(benchmark: str, references: Path) -> tuple[model.Key, ...]:
    """Return the keys of a benchmark's complete references below ``references``; InputError where there is none."""
    parent = naming.names(naming.key(benchmark, "any", "sqlite")).parent
    keys = [naming.key_of_family(f"{benchmark}:{name}") for name in sorted(files.entries(references / parent))]
    there = [key for key in keys if key and naming.MARKER in files.entries(references / naming.names(key).local)]
    if not there:
        raise errors.InputError(
            f"there is no complete reference of {benchmark}",
            advice="Build one first: klaud encode; nothing was written.",
        )
    return tuple(there)


def check_reference(
    key: model.Key,
    *,
    data: Path,
    references: Path,
    environment: Mapping[str, str],
    policy: model.Policy,
) -> tuple[str, ...]:
    """Return what is wrong with a reference; nothing when it is whole and of exactly these inputs. Reads only, blocking.

    InputError: there is no reference, or the inputs are wrong.
    """
    names = naming.names(key)
    target = references / names.local
    if naming.MARKER not in files.entries(target):
        raise errors.InputError(
            f"there is no complete reference {names.local}", advice="Build it first: klaud encode; nothing was written."
        )
    source = inputs.read(key, data, environment, query_seconds=policy.query_seconds)
    tree = files.tree(target, limit=validate.TREE_BYTES)
    paths = validate.own_paths(build.forbidden_paths(data, references), source.inputs.items, source.inputs.meanings)
    forbidden = (*paths, *source.secrets)
    found, items, rows = validate.contents(tree, key, forbidden=forbidden, marked=True)
    said = list(found)
    if tree[naming.MARKER].decode("ascii", "replace").strip() != source.inputs.fingerprint:
        said.append("its fingerprint is not that of the inputs: they have changed since it was built")
    if {item.id for item in items} != {item.id for item in source.inputs.items}:
        said.append("its items are not those of the knowledge base")
    if not found:
        said += validate.store(tree, key, rows, url=source.url, query_seconds=policy.query_seconds)
    return tuple(said)
