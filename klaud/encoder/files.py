"""Durable file operations, one at a time, each announced to an observer once it is done.

A reference is made of many small steps, and a machine may stop between any two. Every step that matters goes through
``Files``: write and fsync, make, rename, remove. The observer is how a test stops the process after each one; in service
it is absent. Symbolic links are never followed where something is removed or read back.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from typing import TYPE_CHECKING

from klaud import errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

TREE_FILES = 100_000
"""Files in one reference: a model for each table and a memory for each item."""

TEMPORARY = ".klaud-tmp"
"""What a file's temporary name ends with."""


class Files:
    """The operations. ``observe(operation, path)`` is called after each, when it is durable."""

    def __init__(self, observe: Callable[[str, Path], None] | None = None) -> None:
        """``observe``: called with the operation's name and its path; whatever it raises ends the build."""
        self._observe = observe

    def _done(self, operation: str, path: Path) -> None:
        if self._observe is not None:
            self._observe(operation, path)

    def mkdir(self, path: Path) -> None:
        """Make a directory and its missing parents."""
        path.mkdir(parents=True, exist_ok=True)
        self._done("mkdir", path)

    def write(self, path: Path, data: bytes) -> None:
        """Write a new file and wait until it is on the disk. For private directories: nobody reads it half-written."""
        with path.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        self._done("write", path)

    def replace(self, path: Path, data: bytes) -> None:
        """Write a file under a temporary name beside it, then rename it: readers see the old text or the new one."""
        temporary = path.with_name(path.name + TEMPORARY)
        self.write(temporary, data)
        temporary.replace(path)
        self.sync(path.parent)
        self._done("replace", path)

    def sync(self, directory: Path) -> None:
        """Wait until a directory's entries are on the disk."""
        handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        self._done("sync", directory)

    def rename(self, source: Path, target: Path) -> bool:
        """Rename a directory onto an absent target; False where the target is there and not empty."""
        try:
            source.rename(target)
        except OSError as error:
            if not target.is_dir():
                raise errors.RetryLaterError(f"{source.name} could not be renamed: {error.strerror}") from None
            return False
        self.sync(target.parent)
        self._done("rename", target)
        return True

    def remove(self, path: Path) -> None:
        """Remove one file, if it is there, and wait until that is on the disk."""
        path.unlink(missing_ok=True)
        self.sync(path.parent)
        self._done("remove", path)

    def remove_tree(self, path: Path) -> None:
        """Remove a directory and all in it, if it is there. A symbolic link in its place is an error, never followed."""
        if path.is_symlink():
            raise errors.InputError(f"{path.name} is a symbolic link: klaud removes nothing through one")
        shutil.rmtree(path, ignore_errors=True)
        if path.exists():
            shutil.rmtree(path)
        self._done("remove-tree", path)


def entries(directory: Path) -> frozenset[str]:
    """Return the names in a directory; none where it is absent. InputError where something else is in its place."""
    if directory.is_symlink() or (directory.exists() and not directory.is_dir()):
        raise errors.InputError(f"{directory.name} is not a directory (a file or a symbolic link is in its place)")
    try:
        return frozenset(path.name for path in directory.iterdir())
    except FileNotFoundError:
        return frozenset()


def walk(root: Path) -> Iterator[Path]:
    """Yield every file below ``root`` in a fixed order. A link, device or socket is an error; so are too many files."""
    count = 0
    todo = [root]
    while todo:
        directory = todo.pop()
        for path in sorted(directory.iterdir(), reverse=True):
            mode = path.lstat().st_mode
            if stat.S_ISDIR(mode):
                todo.append(path)
            elif stat.S_ISREG(mode):
                count += 1
                if count > TREE_FILES:
                    raise errors.InputError(f"{root.name} has more than {TREE_FILES} files")
                yield path
            else:
                raise errors.InputError(f"{path.relative_to(root)} in {root.name} is neither a file nor a directory")


def read(path: Path, limit: int) -> bytes:
    """Return a regular file's content, at most ``limit`` bytes and one more. Never through a link, never a device."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise errors.InputError(f"{path.name} is not a regular file")
        return file.read(limit + 1)


def tree(root: Path, *, limit: int) -> dict[str, bytes]:
    """Return the content of every file below ``root`` by its relative path; InputError over ``limit`` bytes in all."""
    left = limit
    found: dict[str, bytes] = {}
    for path in walk(root):
        data = read(path, left)
        left -= len(data)
        if left < 0:
            raise errors.InputError(f"{root.name} has more than {limit} bytes")
        found[path.relative_to(root).as_posix()] = data
    return found


def tree_hash(contents: Mapping[str, bytes]) -> str:
    """Return the SHA-256, as hex, over the paths and contents of a tree."""
    whole = hashlib.sha256()
    for name in sorted(contents):
        for part in (name.encode(), contents[name]):
            whole.update(len(part).to_bytes(8, "big"))
            whole.update(part)
    return whole.hexdigest()
