"""What a commit's matrices are made from, and the keys by which that is known again.

A key covers everything that the output depends on: the ids of all input blobs with their paths and modes, the family and
its file, the layout with its commands, the optional arguments, the versions of the programs that are no part of the
commit, the fixed environment, and the settings' salt. It does not cover the limits (a result within them is a result) nor
the host. What a generator *knows* (its options, its subcommands) depends on less: its files without the configurations.

Nothing of a commit is run here; a program of the host is asked for its version, in the sandbox.
"""

from __future__ import annotations

import hashlib
import pathlib
import shutil
import sys
import tempfile
import threading
from typing import TYPE_CHECKING, Any

import msgspec

from klaud.baselines import cache, commands, producers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from klaud.baselines import model, sandbox, settings


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """The generator and its inputs at one commit; the digests are of listings, ``code`` without configuration files."""

    commit: str
    fit: commands.Fit
    blobs: tuple[producers.Blob, ...]
    inputs: str
    code: str

    @property
    def same(self) -> tuple[object, ...]:
        """Return what two commits have in common that have the same matrices."""
        return self.fit.index, self.inputs, tuple(sorted(self.fit.files.items()))

    def file(self, family: str, policy: model.Policy) -> str:
        """Return where a family's master file is at this commit."""
        found = commands.file_of(family, self.fit.files["configs"], policy.renames)
        return found or family.partition(":")[0]


def find(git: producers.GitObjects, generator: settings.Generator, commit: str) -> Origin | None:
    """Return what a commit's matrices are made from, None where no layout fits its files."""
    fit = commands.fit(generator.layouts, {blob.path for blob in git.files(commit)})
    if fit is None:
        return None
    blobs = git.inputs(commit, fit.layout.inputs)
    configs = set(fit.files["configs"])
    code = [blob for blob in blobs if blob.path not in configs]
    return Origin(commit=commit, fit=fit, blobs=blobs, inputs=_digest(blobs), code=_digest(code))


def _digest(blobs: Sequence[producers.Blob]) -> str:
    text = "\0".join(f"{blob.mode} {blob.oid} {blob.path}" for blob in blobs)
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


class Keys:
    """The cache's keys for one policy on this host. Safe to share between threads."""

    def __init__(self, policy: model.Policy, *, store: cache.Cache, box: sandbox.Sandbox) -> None:
        self._policy = policy
        self._store = store
        self._box = box
        self._lock = threading.Lock()
        self._programs: dict[str, str] = {}

    def matrix(self, origin: Origin, family: str) -> str:
        """Return the key of one family's matrix."""
        return cache.key(
            kind="matrix",
            inputs=origin.inputs,
            family=family,
            file=origin.file(family, self._policy),
            files=dict(origin.fit.files),
            **self._common(origin),
        )

    def known(self, origin: Origin) -> str:
        """Return the key of what the generator knows."""
        return cache.key(kind="known", code=origin.code, **self._common(origin))

    def _common(self, origin: Origin) -> dict[str, Any]:
        generator = self._policy.generator
        return {
            "layout": msgspec.to_builtins(origin.fit.layout),
            "optional": msgspec.to_builtins(generator.optional_arguments),
            "environment": dict(generator.environment),
            "salt": generator.salt,
            "programs": sorted(
                {command[0]: self.program(command[0]) for command in origin.fit.layout.commands}.items()
            ),
        }

    def program(self, word: str) -> str:
        """Return what identifies a program's version: the digest of its own words, asked once for each file of it."""
        if "{root}" in word:
            return "of the commit"
        word = sys.executable if word == "{python}" else word
        with self._lock:
            if word not in self._programs:
                self._programs[word] = self._version(word)
            return self._programs[word]

    def _version(self, word: str) -> str:
        where = shutil.which(word)
        if where is None:
            return "missing"
        stat = pathlib.Path(where).stat()
        key = cache.key(kind="program", path=where, size=stat.st_size, time=stat.st_mtime_ns)
        known = self._store.program(key)
        if known is None:
            with tempfile.TemporaryDirectory(prefix="klaud-version-") as folder:
                pathlib.Path(folder).chmod(0o755)
                done = self._box.run([word, "--version"], tree=pathlib.Path(folder), environment={}, seconds=10.0)
            said = done.stdout + done.stderr + bytes([done.exit & 255])
            known = cache.Program(version=hashlib.sha256(said).hexdigest())
            self._store.put(key, known)
        return known.version
