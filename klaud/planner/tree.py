"""The files of one commit, read from a clone's object store by the git program; the work tree is never looked at.

A dirty work tree, a filter or a hook of the clone therefore cannot change what is planned. Git gets none of klaud's
environment but PATH, so that neither a token nor a ``GIT_*`` variable reaches it.
"""

from __future__ import annotations

import os
import re
import subprocess
from typing import TYPE_CHECKING

from klaud import errors, names

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

SECONDS = 60.0
"""One git call on a local clone: listing a tree of 100,000 files takes less than one."""

LISTING_BYTES = 256 << 20
"""Most bytes of a tree listing."""

FILE_BYTES = 16 << 20
"""Most bytes of one configuration file: the largest known has one."""


class Tree:
    """The files of the commit that ``revision`` names in the clone at ``root``."""

    def __init__(self, root: Path, revision: str = "HEAD") -> None:
        """Resolve the commit; InputError where there is no clone or no such commit, MissingToolError without git."""
        self._root = root
        found = self._git("rev-parse", "--verify", "--end-of-options", f"{revision}^{{commit}}").decode().strip()
        if not names.is_oid(found):
            message = f"git names no commit for {revision!r} in {root}"
            raise errors.InputError(message)
        self.commit = found
        """The commit's oid."""
        self._paths: tuple[str, ...] | None = None

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of all files, in git's order; names that are not UTF-8 are left out."""
        if self._paths is None:
            raw = self._git("ls-tree", "-r", "-z", "--name-only", self.commit)
            self._paths = tuple(_texts(raw.split(b"\0")))
        return self._paths

    def matching(self, globs: Iterable[str]) -> tuple[str, ...]:
        """Return the paths that any of the globs matches (``*`` does not cross ``/``, ``**`` does)."""
        patterns = [glob(one) for one in globs]
        return tuple(path for path in self.paths if any(one.fullmatch(path) for one in patterns))

    def oid(self, path: str) -> str:
        """Return git's object id of a file or folder of the commit; InputError where there is none."""
        return self._git("rev-parse", "--verify", "--end-of-options", f"{self.commit}:{path}").decode().strip()

    def read(self, path: str) -> bytes:
        """Return a file's bytes; InputError where the commit has none of that name or it is too large."""
        if path not in self.paths:
            message = f"{path} is not in commit {self.commit[:12]}"
            raise errors.InputError(message)
        name = f"{self.commit}:{path}"
        size = int(self._git("cat-file", "-s", name))
        if size > FILE_BYTES:
            message = f"{path}: {size} bytes, above the limit of {FILE_BYTES} bytes"
            raise errors.InputError(message)
        return self._git("cat-file", "blob", name)

    def _git(self, *arguments: str) -> bytes:
        env = {
            "PATH": os.environ.get("PATH", os.defpath),
            "LC_ALL": "C",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_NO_LAZY_FETCH": "1",
        }
        command = ["git", "-c", "safe.directory=*", "-C", str(self._root), *arguments]
        try:
            done = subprocess.run(
                command, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS, check=False
            )
        except FileNotFoundError:
            message = "git is not on PATH"
            raise errors.MissingToolError(message) from None
        except subprocess.TimeoutExpired:
            message = f"git {arguments[0]} in {self._root} did not end within {SECONDS:g} s"
            raise errors.RetryLaterError(message) from None
        if done.returncode:
            message = f"git {arguments[0]} in {self._root} ended with status {done.returncode}"
            raise errors.InputError(message, advice="Run klaud in a clone of the repository that has the commit.")
        if len(done.stdout) > LISTING_BYTES:
            message = f"git {arguments[0]} printed more than {LISTING_BYTES} bytes"
            raise errors.InputError(message)
        return done.stdout


def glob(pattern: str) -> re.Pattern[str]:
    """Return the regular expression of a path glob: ``*`` and ``?`` stop at ``/``, ``**`` does not, ``[...]`` is a set."""
    parts = re.split(r"(\*\*/|\*\*|\*|\?|\[[^]]*\])", pattern)
    words = {"**/": "(?:[^/]+/)*", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return re.compile(
        "".join(words.get(part) or (_set(part) if part.startswith("[") else re.escape(part)) for part in parts)
    )


def _set(part: str) -> str:
    """Return a glob's ``[...]`` as a regular expression's: ``!`` negates, nothing else is special but a range."""
    inside = part[1:-1].replace("\\", "\\\\").replace("[", "\\[")
    if not inside or inside == "!":
        return re.escape(part)
    return f"[^{inside[1:]}/]" if inside.startswith("!") else f"[{inside}]"


def _texts(raw: Sequence[bytes]) -> Iterable[str]:
    for one in raw:
        try:
            text = one.decode()
        except UnicodeDecodeError:
            continue
        if text:
            yield text
