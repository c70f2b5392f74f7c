"""One bare repository: objects read in process (dulwich), refs changed by git itself.

Refs stay loose: git's files backend rewrites packed-refs at each delete of a packed ref, which is slow with thousands.
Every ref change goes through ``git update-ref`` with the expected old value, so that a push and a REST call race fairly.
"""

from __future__ import annotations

import dataclasses
import datetime
import os
import subprocess
import threading
from typing import TYPE_CHECKING

import dulwich.index
import dulwich.object_store
import dulwich.objects
import dulwich.refs
import dulwich.repo

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

ZERO = "0" * 40
"""The object id that stands for "no such ref" in git's protocols."""

EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"

CONFIG: Mapping[str, str] = {
    "http.receivepack": "true",
    "gc.auto": "0",
    "receive.autogc": "false",
    "transfer.unpackLimit": "100000",  # pushed objects stay loose, so that readers in process see them at once
    "uploadpack.allowAnySHA1InWant": "true",  # as on GitHub
    "uploadpack.allowFilter": "true",
    "receive.hideRefs": "refs/pull",  # pull request refs are the host's own
    "core.packedRefsTimeout": "10000",
    "core.filesRefLockTimeout": "5000",
}

ANCESTORS_KNOWN = 200
"""Commits whose ancestors are remembered: enough for every base of a scene."""

TREES_KNOWN = 8
"""Trees whose files are remembered."""

GIT_ENVIRONMENT: Mapping[str, str] = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C.UTF-8",
}


class GitError(Exception):
    """Git refused; the text is git's own."""


@dataclasses.dataclass(frozen=True)
class Person:
    """Author or committer of a commit."""

    name: str
    email: str
    date: datetime.datetime

    def line(self) -> bytes:
        """Return the identity as a commit holds it, without the date."""
        return f"{self.name} <{self.email}>".encode()


@dataclasses.dataclass(frozen=True)
class CommitInfo:
    """A commit as the hub reads it."""

    oid: str
    tree: str
    parents: tuple[str, ...]
    author: Person
    committer: Person
    message: str


@dataclasses.dataclass(frozen=True)
class FileChange:
    """One file of a diff."""

    path: str
    status: str
    additions: int
    deletions: int
    previous: str | None
    blob: str


def run_git(path: Path | None, *argv: str, stdin: bytes | None = None, check: bool = True) -> bytes:
    """Run git in a repository and return its output. GitError with git's words when it fails and ``check`` is set."""
    command = ["git", *(["-C", str(path)] if path is not None else []), *argv]
    environment = {**GIT_ENVIRONMENT, "PATH": os.environ.get("PATH", os.defpath)}
    done = subprocess.run(command, input=stdin, capture_output=True, check=False, env=environment)
    if check and done.returncode != 0:
        raise GitError(done.stderr.decode(errors="replace").strip() or f"git {argv[0]} ended {done.returncode}")
    return done.stdout


def _id(oid: str) -> dulwich.objects.ObjectID:
    return dulwich.objects.ObjectID(oid.encode())


def _person(line: bytes, seconds: int) -> Person:
    name, _, rest = line.decode(errors="replace").partition(" <")
    moment = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return Person(name=name, email=rest.removesuffix(">"), date=moment)


class GitStore:
    """The bare repository of one hub repository. Thread-safe."""

    def __init__(self, path: Path, default_branch: str = "main") -> None:
        """Open the bare repository at ``path``; make it when it is not there."""
        self.path = path
        self._lock = threading.RLock()
        if not (path / "HEAD").exists():
            run_git(None, "init", "--quiet", "--bare", "--template=", f"--initial-branch={default_branch}", str(path))
            with (path / "config").open("a") as file:
                for key, value in CONFIG.items():
                    section, _, name = key.partition(".")
                    file.write(f"[{section}]\n\t{name} = {value}\n")
        self._repo = dulwich.repo.Repo(str(path))
        self._objects = self._repo.object_store
        if _id(EMPTY_TREE) not in self._objects:
            self._objects.add_object(dulwich.objects.Tree())
        self._commits: dict[str, CommitInfo] = {}
        self._ancestors: dict[str, frozenset[str]] = {}
        self._trees: dict[str, dict[str, tuple[int, dulwich.objects.ObjectID]]] = {}

    def close(self) -> None:
        """Close the files that dulwich holds open."""
        self._repo.close()

    # -- refs

    def refs(self, prefix: str = "refs/") -> dict[str, str]:
        """Return every ref that begins with ``prefix`` (in full, ``refs/heads/...``), sorted by name."""
        found: dict[str, str] = {}
        packed = self.path / "packed-refs"
        if packed.exists():
            for line in packed.read_text().splitlines():
                if line and line[0] not in "#^":
                    oid, _, name = line.partition(" ")
                    if name.startswith(prefix):
                        found[name] = oid
        start = self.path / prefix[: prefix.rfind("/")] if "/" in prefix else self.path / "refs"
        found |= {name: oid for name, oid in self._loose(start) if name.startswith(prefix)}
        return dict(sorted(found.items()))

    def _loose(self, directory: Path) -> Iterator[tuple[str, str]]:
        pending = [str(directory)]
        root = len(str(self.path)) + 1
        while pending:
            try:
                with os.scandir(pending.pop()) as entries:
                    listed = list(entries)
            except (FileNotFoundError, NotADirectoryError):
                continue
            for entry in listed:
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
                elif not entry.name.endswith(".lock"):
                    try:
                        with open(entry.path) as file:  # noqa: PTH123 - thousands of refs: Path.open is twice as slow
                            oid = file.read().strip()
                    except FileNotFoundError:
                        continue
                    if len(oid) == len(ZERO):
                        yield entry.path[root:], oid

    def ref(self, name: str) -> str | None:
        """Return the oid that a ref (full name) stands at, or None."""
        file = self.path / name
        try:
            oid = file.read_text().strip()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return self.refs(name).get(name)
        return oid if len(oid) == len(ZERO) else None

    def swap(self, name: str, expected: str | None, new: str | None) -> None:
        """Move a ref from ``expected`` to ``new`` (None: absent). GitError when it is not as expected, or refused."""
        if new is None:
            run_git(self.path, "update-ref", "-d", name, *([expected] if expected else []))
        else:
            run_git(self.path, "update-ref", name, new, ZERO if expected is None else expected)

    def swap_all(self, changes: Sequence[tuple[str, str | None, str | None]]) -> None:
        """Move many refs (name, expected, new), all or none. GitError when one is not as expected."""
        lines = [
            f"delete {name} {old or ZERO}\n" if new is None else f"update {name} {new} {old or ZERO}\n"
            for name, old, new in changes
            if old is not None or new is not None
        ]
        if lines:
            run_git(self.path, "update-ref", "--stdin", stdin="".join(lines).encode())

    def set_refs(self, refs: Mapping[str, str | None]) -> None:
        """Set (or, with None, delete) many refs in one git process, whatever they were."""
        lines = [f"delete {name}\n" if oid is None else f"update {name} {oid}\n" for name, oid in refs.items()]
        if lines:
            run_git(self.path, "update-ref", "--stdin", stdin="".join(lines).encode())

    def valid_ref_name(self, name: str) -> bool:
        """Tell whether git takes the full name as a ref's."""
        return dulwich.refs.check_ref_format(dulwich.refs.Ref(name.encode()))

    # -- objects

    def exists(self, oid: str) -> bool:
        """Tell whether the object is in the repository."""
        with self._lock:
            return len(oid) == len(ZERO) and _id(oid) in self._objects

    def kind(self, oid: str) -> str | None:
        """Return ``commit``, ``tree``, ``blob`` or ``tag``, or None where there is no such object."""
        with self._lock:
            try:
                return self._objects[_id(oid)].type_name.decode()
            except (KeyError, ValueError, AssertionError):
                return None

    def commit(self, oid: str) -> CommitInfo | None:
        """Return a commit, or None where the object is not there or no commit."""
        known = self._commits.get(oid)
        if known is not None:
            return known
        with self._lock:
            try:
                found = self._objects[_id(oid)]
            except (KeyError, ValueError, AssertionError):
                return None
        if not isinstance(found, dulwich.objects.Commit):
            return None
        info = CommitInfo(
            oid=oid,
            tree=found.tree.decode(),
            parents=tuple(parent.decode() for parent in found.parents),
            author=_person(found.author, found.author_time),
            committer=_person(found.committer, found.commit_time),
            message=found.message.decode(errors="replace"),
        )
        self._commits[oid] = info
        return info

    def blob(self, oid: str) -> bytes | None:
        """Return a blob's bytes, or None."""
        with self._lock:
            try:
                found = self._objects[_id(oid)]
            except (KeyError, ValueError, AssertionError):
                return None
        return found.data if isinstance(found, dulwich.objects.Blob) else None

    def tree(self, oid: str) -> list[tuple[str, int, str]] | None:
        """Return a tree's entries (name, mode, oid) in git's order, or None."""
        with self._lock:
            try:
                found = self._objects[_id(oid)]
            except (KeyError, ValueError, AssertionError):
                return None
        if not isinstance(found, dulwich.objects.Tree):
            return None
        return [(e.path.decode(errors="replace"), e.mode, e.sha.decode()) for e in found.items()]

    def entry(self, commit: str, path: str) -> tuple[int, str] | None:
        """Return (mode, oid) of a path at a commit, or None."""
        info = self.commit(commit)
        if info is None:
            return None
        mode, oid = 0o040000, info.tree
        for part in [piece for piece in path.split("/") if piece]:
            entries = self.tree(oid)
            found = next(((m, o) for name, m, o in entries or [] if name == part), None)
            if found is None:
                return None
            mode, oid = found
        return mode, oid

    def read_file(self, commit: str, path: str) -> bytes | None:
        """Return a file's bytes at a commit, or None."""
        found = self.entry(commit, path)
        return None if found is None else self.blob(found[1])

    # -- history

    def ancestors(self, oid: str) -> frozenset[str]:
        """Return a commit and everything it descends from."""
        known = self._ancestors.get(oid)
        if known is None:
            seen: set[str] = set()
            pending = [oid]
            while pending:
                current = pending.pop()
                if current in seen:
                    continue
                info = self.commit(current)
                if info is None:
                    continue
                seen.add(current)
                pending.extend(info.parents)
            known = self._ancestors[oid] = frozenset(seen)
            if len(self._ancestors) > ANCESTORS_KNOWN:
                self._ancestors.pop(next(iter(self._ancestors)))
        return known

    def between(self, base: str, head: str) -> list[CommitInfo]:
        """Return the commits of ``head`` that ``base`` has not, oldest first (``base..head``, parents before children)."""
        excluded = self.ancestors(base)
        order: list[CommitInfo] = []
        seen: set[str] = set()
        stack: list[tuple[str, bool]] = [(head, False)]
        while stack:
            oid, expanded = stack.pop()
            info = self.commit(oid)
            if info is None:
                continue
            if expanded:
                order.append(info)
                continue
            if oid in seen or oid in excluded:
                continue
            seen.add(oid)
            stack.append((oid, True))
            stack.extend((parent, False) for parent in reversed(info.parents))
        return order

    def history(self, oid: str) -> list[str]:
        """Return a commit and its ancestors, newest first."""
        return sorted(self.ancestors(oid), key=lambda one: (self._date(one), len(self.ancestors(one))), reverse=True)

    def is_ancestor(self, old: str, new: str) -> bool:
        """Tell whether ``new`` descends from ``old`` (or is it)."""
        return old in self.ancestors(new)

    def merge_base(self, one: str, other: str) -> str | None:
        """Return the best common ancestor, or None."""
        common = self.ancestors(one) & self.ancestors(other)
        if not common:
            return None
        return max(common, key=lambda oid: (len(self.ancestors(oid)) if len(common) < 50 else 0, self._date(oid)))

    def _date(self, oid: str) -> datetime.datetime:
        info = self.commit(oid)
        return info.committer.date if info else datetime.datetime.min.replace(tzinfo=datetime.UTC)

    def changes(self, base: str | None, head: str) -> list[FileChange]:
        """Return the files that differ from ``base`` (None: the empty tree) to ``head``."""
        argv = ["diff-tree", "-r", "-M", "-z", "--raw", "--numstat", base or EMPTY_TREE, head]
        return list(parse_diff(run_git(self.path, *argv).decode(errors="replace")))

    # -- writing

    def write_tree(
        self,
        files: Mapping[str, bytes],
        base_tree: str | None = None,
        deleted: Iterable[str] = (),
        *,
        modes: Mapping[str, int] | None = None,
    ) -> str:
        """Write a tree with these files on top of ``base_tree`` and return its oid.

        ``modes``: git's modes of files, where they are not plain (a text that begins with ``#!`` is executable).
        """
        blobs = [(path, dulwich.objects.Blob.from_string(data)) for path, data in files.items()]
        plain = {path: 0o100755 if data.startswith(b"#!") else 0o100644 for path, data in files.items()}
        chosen = plain | dict(modes or {})
        with self._lock:
            current = dict(self._flat(base_tree)) if base_tree is not None and base_tree != EMPTY_TREE else {}
            for path in deleted:
                current.pop(path, None)
            for path, blob in blobs:
                self._objects.add_object(blob)
                current[path] = (chosen[path], blob.id)
            if not current:
                return EMPTY_TREE
            entries = [(path.encode(), sha, mode) for path, (mode, sha) in sorted(current.items())]
            return dulwich.index.commit_tree(self._objects, entries).decode()

    def _flat(self, tree: str) -> dict[str, tuple[int, dulwich.objects.ObjectID]]:
        """Return all files of a tree; the last few trees are remembered, since scenes build many commits on one."""
        known = self._trees.get(tree)
        if known is None:
            entries = dulwich.object_store.iter_tree_contents(self._objects, _id(tree))
            known = self._trees[tree] = {entry.path.decode(): (entry.mode, entry.sha) for entry in entries}
            if len(self._trees) > TREES_KNOWN:
                self._trees.pop(next(iter(self._trees)))
        return known

    def write_blob(self, data: bytes) -> str:
        """Write a blob and return its oid."""
        blob = dulwich.objects.Blob.from_string(data)
        with self._lock:
            self._objects.add_object(blob)
        return blob.id.decode()

    def write_commit(
        self,
        *,
        tree: str,
        parents: Sequence[str],
        message: str,
        author: Person,
        committer: Person | None = None,
    ) -> str:
        """Write a commit and return its oid."""
        commit = make_commit(tree=tree, parents=parents, message=message, author=author, committer=committer)
        with self._lock:
            self._objects.add_object(commit)
        return commit.id.decode()

    def write_commits(self, commits: Sequence[dulwich.objects.Commit]) -> None:
        """Write many commits as one pack."""
        with self._lock:
            self._objects.add_objects([(commit, None) for commit in commits])


def make_commit(
    *, tree: str, parents: Sequence[str], message: str, author: Person, committer: Person | None = None
) -> dulwich.objects.Commit:
    """Return a commit object that is in no repository yet."""
    commit = dulwich.objects.Commit()
    commit.tree = _id(tree)
    commit.parents = [_id(parent) for parent in parents]
    commit.author = author.line()
    commit.author_time = int(author.date.timestamp())
    commit.author_timezone = 0
    by = committer or author
    commit.committer = by.line()
    commit.commit_time = int(by.date.timestamp())
    commit.commit_timezone = 0
    commit.encoding = b"UTF-8"
    commit.message = message.encode()
    return commit


STATUS_WORDS: Mapping[str, str] = {
    "A": "added",
    "M": "modified",
    "D": "removed",
    "R": "renamed",
    "C": "copied",
    "T": "changed",
}


def parse_diff(text: str) -> Iterator[FileChange]:
    """Read the output of ``git diff-tree -r -M -z --raw --numstat``."""
    fields = text.split("\0")
    raw: dict[str, tuple[str, str | None, str]] = {}
    index = 0
    while index < len(fields) and fields[index].startswith(":"):
        _, _, _, blob, status = fields[index][1:].split(" ")
        if status[0] in "RC":
            raw[fields[index + 2]] = (status[0], fields[index + 1], blob)
            index += 3
        else:
            raw[fields[index + 1]] = (status[0], None, blob)
            index += 2
    while index < len(fields) and fields[index]:
        added, deleted, path = fields[index].split("\t")
        if not path:
            path = fields[index + 2]
            index += 3
        else:
            index += 1
        letter, previous, blob = raw[path]
        counts = [0 if count == "-" else int(count) for count in (added, deleted)]
        yield FileChange(path, STATUS_WORDS.get(letter, "changed"), counts[0], counts[1], previous, blob)
