"""From the agent's commits to klaud's: what is taken over, and everything that is refused."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import msgspec
import pytest

from klaud import clock as clocks
from klaud.session import gitprog, model, rules_scope, sandbox, work
from tests.support import githttp, session_bench

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOST = sandbox.find("best-effort")
SANDBOXES = [sandbox.NONE, *([HOST] if isinstance(HOST, sandbox.Sandbox) and HOST.parts else [])]
IDENTITY = ("klaud", "90001+klaud@users.noreply.github.com")


class Tree:
    """A prepared work tree, and the agent's hand in it."""

    def __init__(self, place: Path, box: sandbox.Sandbox, policy: model.Policy = session_bench.POLICY) -> None:
        self.place = place
        (place / "host").mkdir(parents=True)
        self.host = githttp.GitHost(place / "host")
        blob = self.host.git("hash-object", "-w", "--stdin", text=session_bench.CONFIG)
        readme = self.host.git("hash-object", "-w", "--stdin", text="hello\n")
        listed = f"100644 {blob}\t{session_bench.FILE}\n100644 {readme}\tREADME.md\n"
        self.host.git("update-index", "--add", "--index-info", text=listed)
        self.base = self.host.commit("first", tree=self.host.git("write-tree"))
        self.host.set("refs/heads/main", self.base)
        folder = place / "session"
        folder.mkdir(mode=0o711)
        self.work = work.Work(
            folder, url=str(self.host.repo), token="", sandbox=box, identity=IDENTITY, clock=clocks.SystemClock(),
            policy=policy,
        )  # fmt: skip
        self.work.prepare(self.base)
        self.box = box
        self.uid = box.uid

    def git(self, *arguments: str) -> str:
        """Run git in the tree; what it makes is the agent's."""
        who = ["-c", "user.name=agent", "-c", "user.email=agent@localhost", "-c", "safe.directory=*"]
        done = subprocess.run(
            ["git", *who, *arguments],
            cwd=self.work.tree,
            check=True,
            capture_output=True,
            text=True,
            env={"PATH": os.environ["PATH"], "HOME": str(self.place), "GIT_CONFIG_NOSYSTEM": "1"},
        )
        self.own()
        return done.stdout.strip()

    def write(self, path: str, text: str) -> None:
        file = self.work.tree / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        self.own()

    def own(self) -> None:
        if self.uid is not None:
            for root, folders, files in os.walk(self.work.tree):
                for name in (*folders, *files):
                    os.chown(os.path.join(root, name), self.uid, self.uid, follow_symlinks=False)  # noqa: PTH118

    def commit(self, message: str = "change") -> str:
        self.git("add", "--all")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")

    def change(self, old: str = "codecs:v1   #", new: str = "codecs:v2   #") -> None:
        path = self.work.tree / session_bench.FILE
        self.write(session_bench.FILE, path.read_text(encoding="utf-8").replace(old, new))

    def collect(self, scope: model.EditScope = session_bench.SCOPE) -> work.Collected | model.Refusal:
        return self.work.collect(scope, session_bench.FAMILY, candidate="c-1", agent="scripted")

    def code(self, scope: model.EditScope = session_bench.SCOPE) -> str:
        answer = self.collect(scope)
        return answer.code if isinstance(answer, model.Refusal) else "taken"


@pytest.fixture(params=SANDBOXES, ids=lambda found: found.words)
def tree(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Tree]:
    tmp_path.chmod(0o755)
    made = Tree(tmp_path, request.param)
    yield made
    made.work.close()
    assert not made.work.folder.exists()


def test_a_commit_is_made_anew_as_klaud(tree: Tree) -> None:
    tree.change()
    theirs = tree.commit("Use v2 @maintainer")
    answer = tree.collect()
    assert isinstance(answer, work.Collected)
    git = gitprog.Git(tree.work.store)
    shown = git.text("log", "-1", "--format=%an <%ae>|%cn <%ce>|%P|%B", answer.head)
    author, committer, parent, body = shown.split("|", 3)
    assert author == committer == f"{IDENTITY[0]} <{IDENTITY[1]}>"
    assert parent == tree.base
    assert "Klaud-Agent: scripted" in body
    assert "@maintainer" not in body
    assert theirs not in answer.oids
    assert (answer.files, answer.executable) == ((session_bench.FILE,), False)


def test_a_second_push_goes_on_from_the_first(tree: Tree) -> None:
    tree.change()
    tree.commit()
    first = tree.collect()
    assert isinstance(first, work.Collected)
    tree.work.pushed()
    assert tree.code() == "nothing-committed"
    tree.change("codecs:v2   #", "codecs:v3   #")
    tree.commit()
    second = tree.collect()
    assert isinstance(second, work.Collected)
    assert gitprog.Git(tree.work.store).text("rev-parse", f"{second.head}^") == first.head
    tree.work.pushed()
    tree.git("reset", "-q", "--hard", "HEAD~2")
    tree.change()
    tree.commit("another way")
    assert tree.code() == "not-a-descendant"


def test_nothing_committed(tree: Tree) -> None:
    assert tree.code() == "nothing-committed"
    tree.change()
    assert tree.code() == "nothing-committed", "what is not committed is not taken"
    tree.git("checkout", "-q", "--", ".")
    tree.commit("an empty commit")
    assert tree.code() == "nothing-committed"


def test_a_merge_is_no_line(tree: Tree) -> None:
    tree.git("checkout", "-q", "-b", "side")
    tree.change()
    tree.commit()
    tree.git("checkout", "-q", "work")
    tree.commit("another")
    tree.git("merge", "-q", "--no-ff", "-m", "merge", "side")
    assert tree.code() == "not-a-descendant"


def test_what_is_out_of_scope_is_refused_in_any_commit_of_the_push(tree: Tree) -> None:
    """A commit in the middle counts too: it is pushed as well."""
    tree.write(".github/workflows/evil.yml", "on: push\n")
    tree.commit("sneak")
    (tree.work.tree / ".github/workflows/evil.yml").unlink()
    tree.change()
    tree.commit("hide")
    assert tree.code() == "outside-scope"


def test_a_link_out_of_the_tree_is_refused(tree: Tree) -> None:
    (tree.work.tree / "notes.md").symlink_to("/etc/passwd")
    tree.own()
    tree.commit()
    assert tree.code(model.EditScope(files=("**",), allow_executable=True)) == "outside-scope"


def test_executable_files_are_marked(tree: Tree) -> None:
    tree.write("tools/run.sh", "#!/bin/sh\n")
    tree.commit()
    assert tree.code(model.EditScope(files=("tools/**",))) == "outside-scope"
    answer = tree.collect(model.EditScope(files=("tools/**",), allow_executable=True))
    assert isinstance(answer, work.Collected)
    assert answer.executable


@pytest.mark.parametrize("box", SANDBOXES, ids=lambda found: found.words)
def test_limits(tmp_path: Path, box: sandbox.Sandbox) -> None:
    tmp_path.chmod(0o755)
    policy = msgspec.structs.replace(session_bench.POLICY, push_files=2, push_commits=3, push_bytes=200_000)
    everything = model.EditScope(files=("**",))
    tree = Tree(tmp_path / "files", box, policy)
    for number in range(3):
        tree.write(f"notes/{number}.md", "x")
    tree.commit()
    assert tree.code(everything) == "too-many-files"
    tree.work.close()
    tree = Tree(tmp_path / "commits", box, policy)
    for number in range(4):
        tree.write("notes.md", f"{number}")
        tree.commit()
    assert tree.code(everything) == "too-many-commits"
    tree.work.close()
    tree = Tree(tmp_path / "bytes", box, policy)
    tree.write("notes.md", os.urandom(300_000).hex())
    tree.commit()
    assert tree.code(everything) == "too-big"
    tree.work.close()


def test_nothing_of_the_agents_repository_runs_with_klauds_rights(tree: Tree) -> None:
    """Hooks, a file system monitor and filters of the agent's configuration run in its sandbox only, if at all."""
    proof = tree.place / "proof"
    proof.mkdir(mode=0o777)
    proof.chmod(0o777)
    script = tree.work.tree / ".git" / "evil.sh"
    tree.change()
    tree.commit()
    script.write_text(f"#!/bin/sh\nid -u > {proof}/ran\n", encoding="utf-8")
    script.chmod(0o755)
    tree.own()
    for key in (
        "core.fsmonitor",
        "core.pager",
        "uploadpack.packObjectsHook",
        "core.alternateRefsCommand",
        "diff.external",
    ):
        tree.git("config", key, str(script))
    shutil.copy(script, tree.work.tree / ".git" / "hooks" / "pre-push")
    assert tree.code() == "taken"
    ran = proof / "ran"
    if tree.uid is not None:
        assert not ran.exists(), "the agent's sandbox has no way to that folder"


def test_objects_that_the_agent_may_not_read_do_not_get_out(tree: Tree) -> None:
    """An alternates file that points elsewhere is of no use: the bundle is made where that path does not exist."""
    secret = tree.place / "secret"
    secret.mkdir(mode=0o700)
    other = githttp.GitHost(secret)
    blob = other.git("hash-object", "-w", "--stdin", text="k-canary-7")
    listed = f"100644 {blob}\tnotes.md\n"
    other.git("update-index", "--add", "--index-info", text=listed)
    hidden = other.git("write-tree")
    (tree.work.tree / ".git/objects/info/alternates").write_text(f"{other.repo}/objects\n", encoding="utf-8")
    tree.own()
    if tree.uid is None:
        pytest.skip("without a user of its own the agent can read whatever klaud can")
    made = tree.git("commit-tree", hidden, "-p", tree.base, "-m", "x")  # made with rights that the agent does not have
    tree.git("update-ref", "HEAD", made)
    assert tree.code(model.EditScope(files=("**",))) in {"not-readable", "nothing-committed"}


def test_the_agents_tree_has_no_credential_and_no_remote(tree: Tree) -> None:
    text = (tree.work.tree / ".git" / "config").read_text(encoding="utf-8")
    assert "remote" not in text
    assert "http" not in text
    assert not tree.work.shallow - {tree.base}


def test_a_file_of_the_home_is_read_with_the_agents_rights(tree: Tree) -> None:
    """Bounded, and a link leads nowhere that the agent could not go itself."""
    home = tree.work.home
    (home / "kept").write_bytes(b"0123456789")
    secret = tree.place / "secret"
    secret.write_text("k-canary-8", encoding="ascii")
    (home / "link").symlink_to(secret)
    assert tree.work.read_home("kept", 10) == b"0123456789"
    assert tree.work.read_home("kept", 9) is None
    assert tree.work.read_home("none", 10) == b""
    if "files" in tree.box.parts:
        assert tree.work.read_home("link", 100) == b""


class Trusting(work.Work):
    """The broken twin: it pushes whatever was committed."""

    def collect(
        self, scope: model.EditScope, family: str, *, candidate: str, agent: str
    ) -> work.Collected | model.Refusal:
        del scope
        return super().collect(
            model.EditScope(files=("**",), allow_executable=True), family, candidate=candidate, agent=agent
        )


def test_a_twin_that_ignores_the_scope_is_seen(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    tree = Tree(tmp_path, sandbox.NONE)
    tree.write("tools/run.py", "x\n")
    tree.commit()
    assert tree.code() == "outside-scope"
    tree.work.__class__ = Trusting
    assert tree.code() == "taken"
    tree.work.close()


def test_a_change_of_mode_alone_is_a_change() -> None:
    change = rules_scope.Change(
        path=session_bench.FILE, old_mode="100644", new_mode="100755",
        before=work.parse(b"a: 1", "x.yaml"), after=work.parse(b"a: 1", "x.yaml"),
    )  # fmt: skip
    assert isinstance(rules_scope.check([change], session_bench.SCOPE, session_bench.FAMILY), model.Refusal)


def test_git_failures_have_words_and_no_secret(tmp_path: Path) -> None:
    git = gitprog.Git(tmp_path, gitprog.basic_header("t-canary"))
    with pytest.raises(gitprog.GitFailedError) as caught:
        git.run("fetch", "http://127.0.0.1:1/acme/bench.git")
    assert "t-canary" not in str(caught.value) + repr(git)
    with pytest.raises(gitprog.GitFailedError, match="did not end"):
        git.run("init", "--quiet", "x", seconds=0.0001)
