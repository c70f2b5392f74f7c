"""Bring uploaded references home: whole databases, the newest complete one, content first and marker last.

An upload is a directory named as the reference's artifact is, with the tree in it. What is not complete, not a reference, or
older than what is here is left alone and said. Merging holds the reference's lock, removes the local marker first, writes
each file under a temporary name and renames it, removes what the upload does not have, and writes the marker last: stopped
anywhere, a reader sees the old reference, or scrap, or the new one.
"""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, Literal, TypeAlias

from klaud import errors
from klaud.encoder import codec, decide, files, lock, model, naming, validate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from klaud.clock import Clock

What: TypeAlias = Literal["merged", "same", "kept-local", "superseded", "incomplete", "not-a-reference", "error"]

LOCK_SECONDS = 600.0
"""Waiting for a build of the same reference that runs here: merging is quick, and can be repeated."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """A complete upload: whose, where, its files, and when its build was complete (ISO 8601, UTC)."""

    key: model.Key
    folder: Path
    tree: Mapping[str, bytes] = dataclasses.field(repr=False)
    completed: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """What became of one upload, by its directory's name (or one reference, by its local path), and why."""

    name: str
    what: What
    why: str = ""


def read_upload(folder: Path) -> Upload | Merged:
    """Return an upload, or why it is none. Its content is judged by its bytes; no store is opened."""
    key = naming.key_of_artifact(folder.name)
    if key is None:
        return Merged(name=folder.name, what="not-a-reference", why="its name is not that of a reference's artifact")
    try:
        tree = files.tree(folder, limit=validate.TREE_BYTES)
    except (OSError, errors.InputError) as error:
        return Merged(name=folder.name, what="incomplete", why=str(error)[:300])
    found, _, _ = validate.contents(tree, key, forbidden=(), marked=True)
    if found:
        return Merged(name=folder.name, what="incomplete", why=found[0])
    usage = codec.decode(tree[naming.USAGE], model.UsageFile, naming.USAGE)
    return Upload(key=key, folder=folder, tree=tree, completed=usage.completed)


def newest(uploads: Sequence[Upload]) -> Upload:
    """Return the newest of one reference's uploads; of equal times the one whose content has the greater hash."""
    return max(uploads, key=lambda one: (one.completed, files.tree_hash(one.tree)))


async def merge(
    roots: Sequence[Path], references: Path, *, benchmark: str, clock: Clock, operations: files.Files | None = None
) -> tuple[Merged, ...]:
    """Merge every complete upload below ``roots`` (each a directory of artifacts) that is of ``benchmark``."""
    operations = operations or files.Files()
    folders = [path for root in roots for path in await asyncio.to_thread(_folders, root)]
    said: list[Merged] = []
    by_key: dict[model.Key, list[Upload]] = {}
    for folder in folders:
        one = await asyncio.to_thread(read_upload, folder)
        if isinstance(one, Merged):
            said.append(one)
        elif one.key.benchmark != benchmark:
            why = f"it is of benchmark {one.key.benchmark}"
            said.append(Merged(name=folder.name, what="not-a-reference", why=why))
        else:
            by_key.setdefault(one.key, []).append(one)
    for key, uploads in sorted(by_key.items(), key=lambda pair: naming.names(pair[0]).local):
        chosen = newest(uploads)
        said += [
            Merged(name=one.folder.name, what="superseded", why=f"the one of {chosen.completed} is newer")
            for one in uploads
            if one is not chosen
        ]
        try:
            said.append(await _merge_one(chosen, references, clock, operations))
        except errors.KlaudError as error:
            said.append(Merged(name=naming.names(key).local, what="error", why=str(error)))
    return tuple(said)


def _folders(root: Path) -> list[Path]:
    if not root.is_dir():
        raise errors.InputError(f"{root.name} is not a directory of uploads")
    return sorted(path for path in root.iterdir() if path.is_dir() and not path.is_symlink())


async def _merge_one(upload: Upload, references: Path, clock: Clock, operations: files.Files) -> Merged:
    names = naming.names(upload.key)
    parent = references / names.parent
    await asyncio.to_thread(operations.mkdir, parent)
    deadline = clock.monotonic() + LOCK_SECONDS
    async with lock.held(parent / names.lock, parent / names.holder, deadline=deadline, clock=clock):
        return await asyncio.to_thread(_take, upload, parent / names.directory, names, operations)


def _take(upload: Upload, target: Path, names: naming.Names, operations: files.Files) -> Merged:
    """Merge one upload into its place, under its lock."""
    present = files.entries(target)
    if naming.MARKER in present:
        try:
            local = files.tree(target, limit=validate.TREE_BYTES)
            if files.tree_hash(local) == files.tree_hash(upload.tree):
                return Merged(name=names.local, what="same")
            usage = codec.decode(local.get(naming.USAGE, b""), model.UsageFile, naming.USAGE)
        except errors.InputError:
            usage = None  # a corrupt local reference is replaced: that is what merging a complete one is for
        if usage is not None and usage.completed > upload.completed:
            return Merged(name=names.local, what="kept-local", why=f"the local one of {usage.completed} is newer")
    unknown = decide.foreign(present)
    if unknown:
        raise errors.InputError(f"{names.local} has {unknown[0]!r}, which is no part of a reference: not replaced")
    if naming.MARKER in present:
        operations.remove(target / naming.MARKER)
    _write(upload.tree, target, operations)
    return Merged(name=names.local, what="merged", why=f"of {upload.completed}")


def _write(tree: Mapping[str, bytes], target: Path, operations: files.Files) -> None:
    folders = {target, *(target / name.rpartition("/")[0] for name in tree if "/" in name)}
    folders |= {parent for folder in folders for parent in folder.parents if target in parent.parents}
    for folder in sorted(folders):
        operations.mkdir(folder)
    for name in sorted(set(tree) - {naming.MARKER}):
        operations.replace(target / name, tree[name])
    for path in list(files.walk(target)):
        if path.relative_to(target).as_posix() not in tree:
            operations.remove(path)
    operations.replace(target / naming.MARKER, tree[naming.MARKER])
