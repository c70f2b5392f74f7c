"""Put the matrices of a finished wave into the folder that later waves take them from.

The job that ran the generators must not write what later jobs believe: code of an old commit could have left anything in its
folders. So a clean job, which runs nothing of the repository, computes each key anew from the commits' files and the
configuration, and takes under it the matrix of ``producers-*.json``: what this wave's verdicts are made of, and no more.
Whoever can falsify that file falsifies this wave; what is kept lets it falsify no other commit's matrix.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import msgspec

from klaud.baselines import cache, generate, model

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Iterator, Sequence

    from klaud.baselines import producers, sandbox

MOST_ENTRIES = 4_096
"""Matrices that are kept: the oldest go first. The model repository has 819 sets of inputs in three years."""

MOST_BYTES = 512 << 20
"""Bytes that are kept: a repository has ten gigabytes of caches in all."""


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """What was kept: how many matrices are new, how many files were thrown away, and the digest of all that is there."""

    new: int
    dropped: int
    entries: int
    digest: str


def keep(
    parts: Sequence[tuple[model.Policy, Sequence[model.Need], model.Produced]],
    *,
    git: producers.GitObjects,
    folder: pathlib.Path,
    box: sandbox.Sandbox,
) -> Kept:
    """Keep each benchmark's wanted matrices in ``folder``, and throw away there what is none or above the bounds.

    ``box``: for asking the host's own programs for their versions; they are part of a key.
    """
    dropped = _cleaned(folder)
    store = cache.Cache(folder)
    new = 0
    for policy, wanted, produced in parts:
        if any("/" in command[0] and not command[0].startswith(("/", "{root}/")) for command in _commands(policy)):
            continue  # a program of the clone: its version cannot be asked without running it
        found = {(one.commit, one.family): one for one in produced.matrices if isinstance(one, model.Matrix)}
        generation = generate.Generation(policy, git=git, store=cache.Cache(None), box=box)
        for need in wanted:
            for family, key in generation.keys(need).items():
                matrix = found.get((need.commit, family))
                if matrix is None or matrix.daemons or store.matrix(key) is not None:
                    continue
                store.put(key, cache.Entry(entries=matrix.entries, dropped=matrix.dropped))
                new += 1
    dropped += _bounded(folder)
    return Kept(new=new, dropped=dropped, entries=len(list(_files(folder))), digest=_digest(folder))


def _commands(policy: model.Policy) -> Iterator[Sequence[str]]:
    for layout in policy.generator.layouts:
        yield from layout.commands


def _files(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    yield from sorted(path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())


def _cleaned(folder: pathlib.Path) -> int:
    """Remove every file that is not a sound matrix under its own key; return how many."""
    store = cache.Cache(folder)
    gone = 0
    for path in list(_files(folder)):
        key = path.name.removesuffix(".json.gz")
        if path.is_symlink() or path != folder / "matrices" / key[:2] / f"{key}.json.gz" or store.matrix(key) is None:
            path.unlink()
            gone += 1
    return gone


def _bounded(folder: pathlib.Path) -> int:
    """Remove the oldest entries above the bounds; return how many."""
    entries = sorted(((path.stat(), path) for path in _files(folder)), key=lambda one: -one[0].st_mtime)
    total, gone = 0, 0
    for index, (stat, path) in enumerate(entries):
        total += stat.st_size
        if index >= MOST_ENTRIES or total > MOST_BYTES:
            path.unlink()
            gone += 1
    return gone


def _digest(folder: pathlib.Path) -> str:
    sha = hashlib.sha256()
    for path in _files(folder):
        sha.update(path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return sha.hexdigest()
