"""Matrices by what they were made from: a folder that candidates, waves and processes share.

The key covers everything that the output depends on: the ids of all input blobs with their paths and modes, the family,
the layout with its commands, the optional arguments, the programs' versions, the fixed environment, and the settings'
salt. It does not cover the limits (a result within them is a result) nor the host.

An entry is believed only when its own digest and its key agree with what is asked; anything else is damaged and made
anew. Entries are written whole beside their place and moved there, so writers and readers never meet half a file; two
writers of one key write the same thing, and the last move wins.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import os
import pathlib
import stat
import tempfile
import zlib
from typing import Any, TypeVar

import msgspec

from klaud.baselines import commands

_T = TypeVar("_T")

VERSION = 1
"""Of the entries' form; another version is another key."""

MAX_ENTRY = 64 << 20
"""Bytes of one unpacked entry: the output bound of a generator."""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """What is stored of one matrix. ``alternative`` and ``dropped`` are what the commit turned out to know."""

    entries: tuple[dict[str, Any], ...]
    dropped: tuple[str, ...] = ()
    alternative: int = 0


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """What a program called its version, for one file of it on one machine."""

    version: str


class _Sealed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    key: str
    digest: str
    body: msgspec.Raw


def key(**parts: Any) -> str:
    """Return the digest of a key's parts. A file name that is not UTF-8 is as good as any other."""
    text = json.dumps({"version": VERSION, **parts}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


class Cache:
    """The folder, or no folder at all (then nothing is found and nothing is stored). ``rebuilt`` counts damaged entries."""

    def __init__(self, folder: pathlib.Path | None, *, most: int = 2 * MAX_ENTRY) -> None:
        """``most``: bytes of one unpacked file (an entry and its seal)."""
        self._folder = folder
        self._most = most
        self.rebuilt = 0

    def matrix(self, key_: str) -> Entry | None:
        """Return a stored matrix, None where there is none that can be believed."""
        return self._read("matrices", key_, Entry)

    def known(self, key_: str) -> commands.Known | None:
        """Return what is stored of a generator's capabilities."""
        return self._read("known", key_, commands.Known)

    def program(self, key_: str) -> Program | None:
        """Return a program's version."""
        return self._read("programs", key_, Program)

    def put(self, key_: str, value: Entry | commands.Known | Program) -> None:
        """Store one thing. A full or read-only disk is no error: the next wave makes it again."""
        if self._folder is None:
            return
        kind = "matrices" if isinstance(value, Entry) else "known" if isinstance(value, commands.Known) else "programs"
        body = msgspec.json.encode(value)
        sealed = _Sealed(key=key_, digest=hashlib.sha256(body).hexdigest(), body=msgspec.Raw(body))
        data = gzip.compress(msgspec.json.encode(sealed), 6, mtime=0)
        place = self._place(kind, key_)
        with contextlib.suppress(OSError):
            place.parent.mkdir(parents=True, exist_ok=True)
            number, name = tempfile.mkstemp(dir=place.parent, prefix=".new-")
            try:
                with os.fdopen(number, "wb") as file:
                    file.write(data)
                pathlib.Path(name).replace(place)
            except BaseException:
                pathlib.Path(name).unlink(missing_ok=True)
                raise

    def _place(self, kind: str, key_: str) -> pathlib.Path:
        return (self._folder or pathlib.Path()) / kind / key_[:2] / f"{key_}.json.gz"

    def _read(self, kind: str, key_: str, form: type[_T]) -> _T | None:
        if self._folder is None:
            return None
        try:
            with open(self._place(kind, key_), "rb", opener=_plainly) as file, gzip.open(file) as unpacked:
                data = unpacked.read(self._most + 1)
        except FileNotFoundError:
            return None
        except (OSError, EOFError, zlib.error):
            self.rebuilt += 1
            return None
        try:
            sealed = msgspec.json.decode(data, type=_Sealed)
            body = bytes(sealed.body)
            if sealed.key == key_ and hashlib.sha256(body).hexdigest() == sealed.digest:
                return msgspec.json.decode(body, type=form)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            pass
        self.rebuilt += 1
        return None


def _plainly(path: str, flags: int) -> int:
    """Open a regular file and nothing else: a link leads elsewhere, and a pipe that nobody writes to never opens."""
    number = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise OSError("not a regular file")
    return number
