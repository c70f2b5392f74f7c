"""Producer commits: fetch them once, prove that their code may be started, and lay out their generator's inputs.

Everything is read from git's object store by the git program; no work tree is made of a commit. Hooks, replacement refs
and lazy fetches are off, and no configuration of the machine is read, so that what a commit contains is what its id says.
"""

from __future__ import annotations

import fnmatch
import os
import pathlib
import subprocess
from typing import TYPE_CHECKING

import msgspec

from klaud import errors
from klaud.baselines import model

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from klaud.github import gateway as gateways

GIT_SECONDS = 120.0
"""One local git command: a listing takes milliseconds."""

FETCH_SECONDS = 900.0
"""One fetch of history: a large repository over a slow line."""

MAX_FILES = 50_000
"""Files of one commit's inputs: real generators read a few hundred."""

_SETTINGS = (
    "core.hooksPath=/dev/null",
    "protocol.ext.allow=never",
    "fetch.recurseSubmodules=no",
    "gc.auto=0",
    "maintenance.auto=false",
)


class Blob(msgspec.Struct, frozen=True):
    """One file of a commit: git's mode, the blob's id, its path."""

    mode: str
    oid: str
    path: str


class TooLargeError(errors.InputError):
    """A commit's inputs are over a bound."""


class GitObjects:
    """One repository's object store on this machine, read by the git program."""

    def __init__(self, folder: pathlib.Path, *, git: str = "git", remote: str = "origin") -> None:
        """``folder``: the repository (its work tree or git directory); ``remote``: where missing commits are fetched."""
        self.folder = folder
        self._git = git
        self._remote = remote
        self._listings: dict[str, tuple[Blob, ...]] = {}

    def _environment(self) -> dict[str, str]:
        names = ("PATH", "HOME", "SSL_CERT_FILE", "SSL_CERT_DIR", "GIT_SSL_CAINFO", "https_proxy", "no_proxy")
        kept = {name: os.environ[name] for name in names if name in os.environ}
        return {
            **kept,
            "LC_ALL": "C.UTF-8",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "safe.directory",
            "GIT_CONFIG_VALUE_0": "*",
        }

    def _run(self, *words: str, stdin: bytes = b"", seconds: float = GIT_SECONDS) -> subprocess.CompletedProcess[bytes]:
        settings = [word for each in _SETTINGS for word in ("-c", each)]
        try:
            return subprocess.run(
                [self._git, *settings, "-C", str(self.folder), *words],
                input=stdin,
                capture_output=True,
                env=self._environment(),
                timeout=seconds,
                check=False,
            )
        except FileNotFoundError:
            raise errors.MissingToolError(f"the program {self._git!r} is not installed") from None
        except subprocess.TimeoutExpired:
            raise errors.RetryLaterError(f"git {words[0]} took longer than {seconds:.0f} s") from None

    def git_dir(self) -> pathlib.Path:
        """Return the repository's git directory (its configuration may hold a credential, so sandboxes hide it)."""
        done = self._run("rev-parse", "--absolute-git-dir")
        if done.returncode != 0:
            raise errors.InputError(f"{self.folder} is no git repository")
        return pathlib.Path(done.stdout.decode().strip())

    def resolve(self, revision: str) -> str | None:
        """Return the commit that a revision names, None where there is none."""
        done = self._run("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
        return done.stdout.decode().strip() if done.returncode == 0 else None

    def shallow(self) -> bool:
        """Tell whether the history is cut off, so that "no ancestor" proves nothing."""
        return self._run("rev-parse", "--is-shallow-repository").stdout.strip() != b"false"

    def present(self, commits: Iterable[str]) -> set[str]:
        """Return those of the commits that the object store has."""
        asked = sorted(set(commits))
        if not asked:
            return set()
        done = self._run("cat-file", "--batch-check", stdin="".join(f"{each}^{{commit}}\n" for each in asked).encode())
        lines = done.stdout.decode("utf-8", "replace").splitlines()
        return {each for each, line in zip(asked, lines, strict=False) if line.split(" ")[:2] == [each, "commit"]}

    def fetch(self, commits: Iterable[str]) -> set[str]:
        """Fetch what is missing, by one fetch naming all of it; return what is present afterwards.

        A host refuses the whole fetch for one commit that it does not have: then the list is halved until the missing
        ones stand alone.
        """
        wanted = sorted(set(commits))
        have = self.present(wanted)
        missing = [each for each in wanted if each not in have]
        pending = [missing] if missing else []
        while pending:
            some = pending.pop()
            done = self._run(
                "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", self._remote, *some, seconds=FETCH_SECONDS
            )
            if done.returncode != 0 and len(some) > 1:
                pending += [some[: len(some) // 2], some[len(some) // 2 :]]
        return have | self.present(missing)

    def is_ancestor(self, commit: str, tip: str) -> bool:
        """Tell whether ``commit`` is in the history of ``tip`` (False where the object store does not have it)."""
        return self._run("merge-base", "--is-ancestor", commit, tip).returncode == 0

    def files(self, commit: str) -> tuple[Blob, ...]:
        """Return every file of a commit."""
        if commit not in self._listings:
            done = self._run("ls-tree", "-r", "-z", "--full-tree", commit)
            if done.returncode != 0:
                raise errors.ReadFailedError(f"commit {commit[:12]} cannot be listed: is its history complete?")
            self._listings[commit] = tuple(_blobs(done.stdout))
        return self._listings[commit]

    def inputs(self, commit: str, paths: Sequence[str]) -> tuple[Blob, ...]:
        """Return the files of a commit at or below ``paths`` (which may be globs), in path order."""
        return tuple(blob for blob in self.files(commit) if any(_covers(path, blob.path) for path in paths))

    def write(self, blobs: Sequence[Blob], folder: pathlib.Path, *, limit: int) -> None:
        """Lay the files out below ``folder``, read-only. TooLargeError above ``limit`` bytes or MAX_FILES files.

        A submodule is left out, and so is a symbolic link that leads outside, by itself or by way of others. A path that
        would leave the folder (a tree made by hand can hold one) is a ReadFailedError.
        """
        if len(blobs) > MAX_FILES:
            raise TooLargeError(f"the generator's inputs are {len(blobs)} files, more than {MAX_FILES}")
        kept = [blob for blob in blobs if blob.mode in ("100644", "100664", "100755", "120000")]
        if any(part in _NO_NAMES for blob in kept for part in blob.path.split("/")):
            raise errors.ReadFailedError("the commit holds a path that no work tree could have")
        content = self._contents([blob.oid for blob in kept], limit)
        try:
            _lay_out(kept, content, folder)
        except OSError as error:  # a file where a folder should be, a name that the host's file system does not take
            raise errors.ReadFailedError(f"the commit's files cannot be laid out ({error.strerror})") from None

    def _contents(self, oids: Sequence[str], limit: int) -> Mapping[str, bytes]:
        asked = list(dict.fromkeys(oids))
        ask = "".join(f"{oid}\n" for oid in asked).encode()
        check = self._run("cat-file", "--batch-check=%(objectname) %(objecttype) %(objectsize)", stdin=ask)
        sizes = [line.split() for line in check.stdout.decode().splitlines()]
        if len(sizes) != len(asked) or any(len(line) != 3 or line[1] != "blob" for line in sizes):
            raise errors.ReadFailedError("some of the generator's inputs are not in this clone: is it a partial one?")
        total = sum(int(line[2]) for line in sizes)
        if total > limit:
            raise TooLargeError(f"the generator's inputs have {total} bytes, more than {limit}")
        data = self._run("cat-file", "--batch", stdin=ask).stdout
        found: dict[str, bytes] = {}
        at = 0
        for oid in asked:
            end = data.index(b"\n", at)
            size = int(data[at:end].split()[2])
            found[oid] = data[end + 1 : end + 1 + size]
            at = end + size + 2
        return found


_NO_NAMES = frozenset({"", ".", "..", ".git"})


def _lay_out(blobs: Sequence[Blob], content: Mapping[str, bytes], folder: pathlib.Path) -> None:
    links = []
    for blob in blobs:
        target = folder / blob.path
        target.parent.mkdir(parents=True, exist_ok=True)
        data = content[blob.oid]
        if blob.mode == "120000":
            links.append((target, os.fsdecode(data)))
            continue
        target.write_bytes(data)
        target.chmod(0o555 if blob.mode == "100755" else 0o444)
    for target, text in links:  # after every file: nothing is written through a link
        if text and "\0" not in text:
            target.symlink_to(text)
    root = folder.resolve()
    for target, _ in links:  # where one leads is known only once all are there
        if target.is_symlink() and not pathlib.Path(os.path.realpath(target)).is_relative_to(root):
            target.unlink()
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o555)


def _blobs(listing: bytes) -> Iterator[Blob]:
    for line in listing.split(b"\0"):
        if line:
            head, _, path = line.partition(b"\t")
            mode, _, oid = head.decode().split(" ")
            yield Blob(mode, oid, os.fsdecode(path))


def _covers(pattern: str, path: str) -> bool:
    pattern = pattern.rstrip("/")
    return path == pattern or path.startswith(pattern + "/") or fnmatch.fnmatchcase(path, pattern) or pattern == "."


# -- trust ------------------------------------------------------------------------------------------------------------


def trust(
    commits: Iterable[str],
    *,
    git: GitObjects,
    tip: str,
    gateway: gateways.Gateway | None,
    default_branch: str,
    listed: Sequence[str] = (),
) -> dict[str, model.Trusted | model.Untrusted]:
    """Say of each commit whether its generator may be started.

    Trusted are ancestors of ``tip`` (the default branch's head), commits that a merged pull request into the default
    branch had as its head, and those ``listed`` by hand. GitHub serves commits of forks by id too, so being there means
    nothing. Without a gateway (the job without a credential) only the first and the last can be found out.
    """
    found: dict[str, model.Trusted | model.Untrusted] = {}
    shallow = git.shallow()
    for commit in sorted(set(commits)):
        if commit in listed:
            found[commit] = model.Trusted(commit=commit, how="listed")
        elif git.is_ancestor(commit, tip):
            found[commit] = model.Trusted(commit=commit, how="ancestor", detail=default_branch)
        elif gateway is None:
            why = "it is not in the default branch's history, and pull requests cannot be asked without a token"
            found[commit] = model.Untrusted(commit=commit, why=why, unknown=True)
        else:
            found[commit] = _of_pulls(commit, gateway, default_branch, shallow=shallow)
    return found


def _of_pulls(
    commit: str, gateway: gateways.Gateway, default_branch: str, *, shallow: bool
) -> model.Trusted | model.Untrusted:
    try:
        pulls = gateway.pulls_of_commit(commit)
    except errors.KlaudError as error:
        return model.Untrusted(
            commit=commit, why=f"its pull requests could not be read ({type(error).__name__})", unknown=True
        )
    merged = [pull for pull in pulls.items if pull.merged and pull.base_ref == default_branch]
    for pull in merged:
        if pull.head_oid == commit:
            return model.Trusted(commit=commit, how="merged-head", detail=f"#{pull.number}")
    if merged:
        return model.Untrusted(
            commit=commit, why=f"it is inside pull request #{merged[0].number}, but not its merged head"
        )
    if not pulls.complete:
        return model.Untrusted(commit=commit, why="its pull requests could not all be read", unknown=True)
    if shallow:
        return model.Untrusted(commit=commit, why="this clone's history is cut off, so it proves nothing", unknown=True)
    return model.Untrusted(
        commit=commit, why="it is neither in the default branch's history nor the head of a merged pull request"
    )
