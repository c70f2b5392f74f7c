"""The agent's work tree, and the way of what it committed from there to a commit of klaud's.

klaud keeps a bare repository of its own with the base commit. The agent gets a clone of it: its own objects, no remote, no
credential. What it committed comes back as a bundle that git makes *inside the agent's own sandbox*, so that nothing in the
agent's repository (hooks, filters, alternates) runs or reads with klaud's rights. The bundle is unpacked with git's own
checks into a quarantine beside the bare repository; its commits are looked at one by one, and re-created with klaud's
identity as author and committer. Only then do objects enter the store from which klaud pushes.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from klaud import errors, yaml12
from klaud.session import gitprog, model, process, render, rules_scope

if TYPE_CHECKING:
    from collections.abc import Sequence

    from klaud import clock as clocks
    from klaud.session import sandbox as sandboxes

FILE_BYTES = 1_048_576
"""A file that is compared as data: configuration files are far smaller."""
BUNDLE_SECONDS = 60.0
"""Making a bundle of some small commits inside the sandbox."""
AGENT_BRANCH = "work"
"""The branch in the agent's clone; its name says nothing about where it goes."""

_AGENT_GIT = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C.UTF-8",
    "PATH": "/usr/local/bin:/usr/bin:/bin",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Collected:
    """What the agent committed, re-created: the new head, every new oid (oldest first), and what changed since the base."""

    head: str
    oids: tuple[str, ...]
    files: tuple[str, ...]
    executable: bool


class Work:
    """One session's repositories below ``folder`` (private to klaud, but for the work tree)."""

    def __init__(
        self,
        folder: Path,
        *,
        url: str,
        token: str,
        sandbox: sandboxes.Sandbox,
        identity: tuple[str, str],
        clock: clocks.Clock,
        policy: model.Policy,
    ) -> None:
        """``identity``: name and e-mail address of klaud's commits. Nothing is done yet."""
        self.folder = folder
        self.store = folder / "store.git"
        self.agent_root = folder / "agent"
        self.tree = self.agent_root / "tree"
        self.home = self.agent_root / "home"
        self._url = url
        self._sandbox = sandbox
        self._identity = identity
        self._clock = clock
        self._policy = policy
        self._git = gitprog.Git(self.store, gitprog.basic_header(token) if token else "")
        self._known: dict[str, str] = {}
        self._base = ""
        self.memory: dict[str, bytes] = {}
        """Files that the agent finds in its home when it starts, by their place in it; set before ``prepare``."""
        self.head = ""
        """The newest commit of klaud's own on the branch, or the base."""

    # -- before the agent

    def prepare(self, base: str, head: str = "") -> None:
        """Fetch the base (and, for a continuation, the branch's head), and give the agent its work tree on top of it."""
        self.open_store(base, head)
        for path in (self.agent_root, self.home):
            path.mkdir(exist_ok=True)
        self.agent_root.chmod(0o755)
        for name, data in self.memory.items():
            (self.home / name).parent.mkdir(parents=True, exist_ok=True)
            (self.home / name).write_bytes(data)
        git = gitprog.Git(self.folder)
        git.run("init", "--quiet", f"--initial-branch={AGENT_BRANCH}", str(self.tree))
        tree = gitprog.Git(self.tree)
        tree.run("fetch", "--quiet", "--no-tags", str(self.store), "refs/klaud-base/*:refs/remotes/base/*")
        tree.run("reset", "--quiet", "--hard", self.head)
        tree.run("update-ref", "-d", "refs/remotes/base/0")
        (self.tree / ".git" / "FETCH_HEAD").unlink(missing_ok=True)
        tree.run("config", "user.name", "agent")
        tree.run("config", "user.email", "agent@localhost")
        self._known = {self.head: self.head}
        self._give()

    def open_store(self, base: str, head: str) -> None:
        """Fetch the base and the branch's head (empty: there is none) into klaud's own store."""
        self._base = base
        self.head = head or base
        self.store.mkdir(parents=True)
        self._git.run("init", "--quiet", "--bare", ".")
        self._fetch(list(dict.fromkeys([base, self.head])))

    def _fetch(self, oids: Sequence[str]) -> None:
        names = [f"{oid}:refs/klaud-base/{number}" for number, oid in enumerate(oids)]
        try:
            self._git.run("fetch", "--quiet", "--no-tags", "--depth=1", self._url, *names)
        except gitprog.GitFailedError as error:
            message = f"the base of the session could not be fetched: {error}"
            raise errors.ReadFailedError(message) from None

    def _give(self) -> None:
        """Make the agent the owner of its tree and home, where it is a user of its own."""
        uid = self._sandbox.uid
        if uid is None:
            return
        if os.geteuid() == 0:
            for root, folders, files in os.walk(self.agent_root):
                for name in (".", *folders, *files):
                    os.chown(Path(root, name), uid, uid, follow_symlinks=False)
        else:
            self._sandbox.as_root("chown", "-R", "-h", f"{uid}:{uid}", str(self.agent_root))

    @property
    def shallow(self) -> frozenset[str]:
        """Commits of the store that have no parents here."""
        path = self.store / "shallow"
        return frozenset(path.read_text(encoding="ascii").split()) if path.exists() else frozenset()

    def close(self) -> None:
        """Remove everything, also what the agent owns."""
        shutil.rmtree(self.folder, ignore_errors=True)
        if self.folder.exists():
            self._sandbox.as_root("rm", "-rf", "--", str(self.folder))

    # -- after the agent

    def collect(self, scope: model.EditScope, family: str, *, candidate: str, agent: str) -> Collected | model.Refusal:
        """Take what the agent committed since the last push; a refusal the agent can act on, or re-created commits."""
        bundle = self._bundle()
        if isinstance(bundle, model.Refusal):
            return bundle
        quarantine = self.folder / "quarantine.git"
        shutil.rmtree(quarantine, ignore_errors=True)
        quarantine.mkdir()
        try:
            return self._judge(quarantine, bundle, scope, family=family, candidate=candidate, agent=agent)
        except gitprog.GitFailedError as error:
            return _no("not-readable", f"what was committed could not be read ({_cause(error)}). Commit it again.")
        finally:
            shutil.rmtree(quarantine, ignore_errors=True)

    def read_home(self, name: str, limit: int) -> bytes | None:
        """Return a file of the agent's home, read by the agent's user in its sandbox; empty: none, None: above ``limit``."""
        start = process.Start(
            ("/bin/cat", "--", str(self.home / name)), _AGENT_GIT, str(self.tree), write=(str(self.agent_root),)
        )
        return self._collect_output(start, limit)

    def _bundle(self) -> bytes | model.Refusal:
        """Let git make the bundle as the agent, in the agent's sandbox, bounded."""
        git = gitprog.find()
        start = process.Start(
            (
                git,
                "-C",
                str(self.tree),
                "bundle",
                "create",
                "--quiet",
                "-",
                "HEAD",
                *[f"^{oid}" for oid in self._tips()],
            ),
            _AGENT_GIT,
            str(self.tree),
            write=(str(self.agent_root),),
        )
        if not self._has_commits(git):
            return _no("nothing-committed", "nothing new is committed in the work tree. Commit first, then push.")
        answer = self._collect_output(start, self._policy.push_bytes)
        if answer is None:
            return _no("too-big", f"what was committed is larger than {self._policy.push_bytes} bytes.")
        if not answer.startswith(b"# v"):
            return _no("not-readable", "git could not pack what was committed. Is HEAD a commit on top of the base?")
        return answer

    def _has_commits(self, git: str) -> bool:
        start = process.Start(
            (git, "-C", str(self.tree), "rev-list", "--max-count=1", "HEAD", *[f"^{oid}" for oid in self._tips()]),
            _AGENT_GIT,
            str(self.tree),
            write=(str(self.agent_root),),
        )
        return bool((self._collect_output(start, 4096) or b"").strip())

    def _tips(self) -> tuple[str, ...]:
        """Return where the bundle begins: the agent's commits are not kept in klaud's store, so it is always the start."""
        return tuple(list(self._known)[:1])

    def _collect_output(self, start: process.Start, limit: int) -> bytes | None:
        """Run a program in the agent's sandbox and return its output; None above the limit."""
        parts: list[bytes] = []
        size = 0
        try:
            with process.Child(start, self._sandbox) as child:
                child.close_input()
                deadline = self._clock.monotonic() + BUNDLE_SECONDS
                while (left := deadline - self._clock.monotonic()) > 0:
                    chunk = child.read(left)
                    if not isinstance(chunk, bytes):
                        break
                    size += len(chunk)
                    if size > limit:
                        return None
                    parts.append(chunk)
        except process.NotStartedError:
            return b""
        return b"".join(parts)

    def _judge(
        self, quarantine: Path, bundle: bytes, scope: model.EditScope, *, family: str, candidate: str, agent: str
    ) -> Collected | model.Refusal:
        git = gitprog.Git(quarantine)
        git.run("init", "--quiet", "--bare", ".")
        (quarantine / "objects" / "info").mkdir(exist_ok=True)
        (quarantine / "objects" / "info" / "alternates").write_text(f"{self.store}/objects\n", encoding="utf-8")
        if (self.store / "shallow").exists():
            shutil.copy(self.store / "shallow", quarantine / "shallow")
        head = _bundle_head(bundle)
        pack = bundle[bundle.index(b"\n\n") + 2 :]
        git.run(
            "index-pack", "--stdin", "--fix-thin", "--strict", f"--max-input-size={self._policy.push_bytes}", data=pack
        )
        known = list(self._known)[-1]
        if git.run("cat-file", "--batch-check", data=f"{known}\n".encode()).split()[-1] == b"missing":
            return _no(
                "not-a-descendant",
                f"what was pushed last ({known}) is not in your history. Put your work on top of it.",
            )
        listed = git.text("rev-list", "--topo-order", "--reverse", "--parents", head, f"^{known}").splitlines()
        if not listed:
            return _no("nothing-committed", "nothing new is committed in the work tree. Commit first, then push.")
        if len(listed) > self._policy.push_commits:
            return _no(
                "too-many-commits", f"{len(listed)} commits; at most {self._policy.push_commits} can be pushed at once."
            )
        expected = known
        chain: list[str] = []
        for line in listed:
            oid, *parents = line.split()
            if parents != [expected]:
                return _no(
                    "not-a-descendant",
                    "the commits are not one line on top of what was pushed last: no merge, no rebase, no amend of it. "
                    f"Put your work on top of {expected} and push again.",
                )
            chain.append(oid)
            expected = oid
        files: tuple[str, ...] = ()
        executable = False
        for oid in chain:
            changes = self._changes(git, oid)
            if len(changes) > self._policy.push_files:
                return _no("too-many-files", f"{len(changes)} files differ; at most {self._policy.push_files} may.")
            answer = rules_scope.check(changes, scope, family)
            if isinstance(answer, model.Refusal):
                return answer
            executable |= answer.executable
            files = tuple(change.path for change in changes)
        if not files:
            return _no("nothing-committed", "the committed files are the same as the base's: there is nothing to push.")
        return self._recreate(git, chain, candidate, agent, files, executable=executable)

    def _changes(self, git: gitprog.Git, oid: str) -> list[rules_scope.Change]:
        """Return what differs between the base and ``oid``, as data where it is data."""
        raw = git.run("diff-tree", "-r", "-z", "--no-renames", "--full-index", "--raw", self._base, oid)
        fields = raw.decode("utf-8", "surrogateescape").split("\0")
        changes = []
        for info, path in zip(fields[0::2], fields[1::2], strict=False):
            old_mode, new_mode, old, new, _ = info.removeprefix(":").split(" ")
            data = rules_scope.wants_content(path)
            changes.append(
                rules_scope.Change(
                    path=path,
                    old_mode="" if old_mode == "000000" else old_mode,
                    new_mode="" if new_mode == "000000" else new_mode,
                    before=None if old_mode == "000000" else _content(git, old, path, data=data),
                    after=None if new_mode == "000000" else _content(git, new, path, data=data),
                )
            )
        return changes

    def _recreate(
        self,
        git: gitprog.Git,
        chain: Sequence[str],
        candidate: str,
        agent: str,
        files: tuple[str, ...],
        *,
        executable: bool,
    ) -> Collected:
        """Make the commits anew, as klaud, and move every object that they need into klaud's store."""
        who = self._who()
        parent = self.head
        made = []
        for oid in chain:
            subject = git.text("log", "-1", "--format=%s", oid)
            message = render.commit_message(subject, candidate=candidate, agent=agent)
            tree = git.text("rev-parse", f"{oid}^{{tree}}")
            parent = git.text("commit-tree", tree, "-p", parent, data=message.encode(), env=who)
            made.append(parent)
        pack = git.run(
            "pack-objects", "--quiet", "--revs", "--stdout", "--thin", data=f"{parent}\n^{self.head}\n".encode()
        )
        self._git.run("index-pack", "--stdin", "--fix-thin", "--strict", data=pack)
        self._pending = (chain[-1], parent)
        return Collected(parent, tuple(made), files, executable)

    def _who(self) -> dict[str, str]:
        """Return the variables by which git makes a commit as klaud, now."""
        name, email = self._identity
        stamp = f"@{int(self._clock.now().timestamp())} +0000"
        return {
            "GIT_AUTHOR_NAME": name,
            "GIT_AUTHOR_EMAIL": email,
            "GIT_AUTHOR_DATE": stamp,
            "GIT_COMMITTER_NAME": name,
            "GIT_COMMITTER_EMAIL": email,
            "GIT_COMMITTER_DATE": stamp,
        }

    def pushed(self) -> None:
        """Note that what was collected last now stands on the branch."""
        theirs, ours = self._pending
        self._known[theirs] = ours
        self.head = ours


def _bundle_head(bundle: bytes) -> str:
    header = bundle[: bundle.index(b"\n\n")].decode("utf-8", "replace")
    for line in header.splitlines()[1:]:
        if not line.startswith(("-", "@")):
            return line.split(" ")[0]
    message = "a bundle without a head"
    raise gitprog.GitFailedError(message, 0)


def _content(git: gitprog.Git, oid: str, path: str, *, data: bool) -> rules_scope.Content:
    size = int(git.text("cat-file", "-s", oid))
    if size > FILE_BYTES:
        return rules_scope.Opaque(f"{size} bytes, more than {FILE_BYTES}", script=True)
    raw = git.run("cat-file", "blob", oid)
    if not data:
        return rules_scope.Opaque("not compared as data", script=raw.startswith(b"#!") or b"\0" in raw)
    return parse(raw, path)


def parse(raw: bytes, path: str) -> rules_scope.Content:
    """Return a YAML or JSON file as data, in every reading that a tool may take."""
    if path.lower().endswith(".json"):
        try:
            return rules_scope.Parsed((json.loads(raw.decode(), object_pairs_hook=_no_duplicates),))
        except (ValueError, RecursionError):
            return rules_scope.Opaque("not readable as JSON", script=raw.startswith(b"#!"))
    try:
        newer = yaml12.load(raw, where=path, limit=FILE_BYTES)
        older = yaml12.load_older(raw, where=path, limit=FILE_BYTES)
    except (errors.InputError, RecursionError):
        return rules_scope.Opaque("not readable as YAML", script=raw.startswith(b"#!"))
    return rules_scope.Parsed((newer, older))


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        message = "a key twice"
        raise ValueError(message)
    return found


def _no(code: model.RefusalCode, text: str) -> model.Refusal:
    return model.Refusal(code=code, text=text)


def _cause(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
