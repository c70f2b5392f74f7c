"""Which commits may be run, and what is taken of them, on a real repository."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from klaud import errors
from klaud.baselines import calls, model, producers
from klaud.github import model as github
from tests.support.benchmarks import AskedGateway, History, Repository, github_pull

if TYPE_CHECKING:
    import pathlib

ABSENT = "1" * 40


def trusted(history: Repository, commits: list[str], gateway: Any = None, **more: Any) -> dict[str, Any]:
    return producers.trust(
        commits,
        git=history.objects,
        tip=history.git("rev-parse", "main"),
        gateway=gateway,
        default_branch="main",
        **more,
    )


@pytest.fixture
def side(repository: Repository) -> tuple[Repository, str, str]:
    """A repository with a branch of two commits beside main: (repository, middle, head)."""
    repository.commit({"a": "1"})
    repository.git("checkout", "-q", "-b", "topic")
    middle = repository.commit({"a": "2"})
    head = repository.commit({"a": "3"})
    repository.git("checkout", "-q", "main")
    repository.commit({"b": "1"})
    return repository, middle, head


def test_an_ancestor_of_the_default_branch_is_trusted_without_a_request(history: History) -> None:
    gateway = AskedGateway()
    found = trusted(history, [history.flat, history.tip], gateway)
    assert [each.how for each in found.values()] == ["ancestor", "ancestor"]
    assert gateway.asked == []


def test_the_merged_head_of_a_pull_request_is_trusted_and_a_middle_commit_is_not(side: Any) -> None:
    repository, middle, head = side
    gateway = AskedGateway()
    gateway.pulls = {commit: github.Listing((github_pull(7, head),)) for commit in (middle, head)}
    found = trusted(repository, [middle, head], gateway)
    assert found[head] == model.Trusted(commit=head, how="merged-head", detail="#7")
    assert found[middle] == model.Untrusted(commit=middle, why="it is inside pull request #7, but not its merged head")


@pytest.mark.parametrize("change", [{"merged": False}, {"base": "release"}])
def test_an_open_pull_request_or_another_base_proves_nothing(side: Any, change: dict[str, Any]) -> None:
    repository, _, head = side
    gateway = AskedGateway()
    gateway.pulls[head] = github.Listing((github_pull(7, head, **change),))
    found = trusted(repository, [head], gateway)[head]
    assert isinstance(found, model.Untrusted)
    assert not found.unknown


def test_a_forks_commit_is_untrusted_though_it_can_be_fetched(side: Any) -> None:
    repository, _, head = side
    found = trusted(repository, [head], AskedGateway())[head]
    assert "neither in the default branch's history nor the head of a merged pull request" in found.why


def test_what_could_not_be_found_out_is_no_yes(side: Any) -> None:
    repository, _, head = side
    for answer in (errors.ReadFailedError("x"), errors.ForbiddenError("x"), github.Listing((), complete=False)):
        gateway = AskedGateway()
        gateway.pulls[head] = answer
        found = trusted(repository, [head], gateway)[head]
        assert isinstance(found, model.Untrusted)
        assert found.unknown
    assert trusted(repository, [head], None)[head].unknown


def test_a_listed_commit_is_trusted(side: Any) -> None:
    repository, _, head = side
    assert trusted(repository, [head], None, listed=(head,))[head].how == "listed"


def test_a_cut_history_proves_no_stranger(side: Any, tmp_path: pathlib.Path) -> None:
    repository, _, head = side
    clone = tmp_path / "clone"
    repository.git("clone", "-q", "--depth", "1", f"file://{repository.folder}", str(clone))
    git = producers.GitObjects(clone)
    assert git.shallow()
    tip = git.resolve("HEAD")
    assert tip is not None
    found = producers.trust([head], git=git, tip=tip, gateway=AskedGateway(), default_branch="main")[head]  # type: ignore[arg-type]
    assert isinstance(found, model.Untrusted)
    assert found.unknown


def test_missing_commits_are_fetched_and_one_absent_commit_spoils_no_other(side: Any, tmp_path: pathlib.Path) -> None:
    repository, middle, head = side
    clone = tmp_path / "clone"
    repository.git("config", "uploadpack.allowAnySHA1InWant", "true")
    repository.git("clone", "-q", "--single-branch", "--no-local", f"file://{repository.folder}", str(clone))
    git = producers.GitObjects(clone)
    assert git.present([head, middle, ABSENT]) == set()
    assert git.fetch([head, middle, ABSENT]) == {head, middle}
    assert git.present([head, middle, ABSENT]) == {head, middle}


def test_inputs_are_laid_out_read_only_from_the_object_store(repository: Repository, tmp_path: pathlib.Path) -> None:
    commit = repository.commit(
        {"tools/gen.sh": "echo", "tools/deep/x": "1", "toolsmith": "no", "configs/a.yaml": "a", "b.txt": "b"},
        executable=("tools/gen.sh",),
    )
    (repository.folder / "tools/gen.sh").write_text("changed in the work tree")
    git = repository.objects
    blobs = git.inputs(commit, ["tools", "configs/*.yaml"])
    assert [blob.path for blob in blobs] == ["configs/a.yaml", "tools/deep/x", "tools/gen.sh"]
    folder = tmp_path / "tree"
    folder.mkdir()
    git.write(blobs, folder, limit=1000)
    assert (folder / "tools/gen.sh").read_text() == "echo"
    assert os.access(folder / "tools/gen.sh", os.X_OK)
    assert (folder / "tools/gen.sh").stat().st_mode & 0o222 == 0
    assert (folder / "tools").stat().st_mode & 0o222 == 0
    for path in (folder / "tools", folder / "tools/deep", folder / "configs"):
        path.chmod(0o755)


LINKS = {
    "tools/inside": ("../b.txt", True),
    "tools/outside": ("../../secret", False),
    "tools/absolute": ("/etc/passwd", False),
    "tools/up": ("..", True),
    "tools/deep/er/top": ("../../..", True),
    "tools/by-way-of-another": ("deep/er/top/../../secret", False),  # inside as written, outside as followed
    "tools/loop": ("loop", True),
    "tools/nowhere": ("not-there", True),
}


def test_a_link_that_leaves_the_tree_is_left_out(repository: Repository, tmp_path: pathlib.Path) -> None:
    for name, (target, _) in LINKS.items():
        path = repository.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target)
    commit = repository.commit({"b.txt": "b"})
    git = repository.objects
    folder = tmp_path / "some" / "tree"
    folder.mkdir(parents=True)
    git.write(git.inputs(commit, ["tools", "b.txt"]), folder, limit=1000)
    assert {name for name in LINKS if (folder / name).is_symlink()} == {
        name for name, (_, kept) in LINKS.items() if kept
    }
    calls._remove(folder)
    assert not folder.exists()


def test_a_submodule_is_left_out(repository: Repository, tmp_path: pathlib.Path) -> None:
    inside = repository.commit({"tools/gen.sh": "echo"})
    repository.git("update-index", "--add", "--cacheinfo", f"160000,{inside},tools/module")
    repository.git("commit", "-q", "-m", "Add a submodule")
    git = repository.objects
    commit = repository.git("rev-parse", "HEAD")
    blobs = git.inputs(commit, ["tools"])
    assert [blob.mode for blob in blobs] == ["100644", "160000"]
    git.write(blobs, tmp_path, limit=1000)
    assert os.listdir(tmp_path / "tools") == ["gen.sh"]  # noqa: PTH208
    (tmp_path / "tools").chmod(0o755)


@pytest.mark.parametrize("name", ["..", ".git", "."])
def test_a_tree_made_by_hand_cannot_write_outside(repository: Repository, tmp_path: pathlib.Path, name: str) -> None:
    """Git itself makes no such tree; a host that checks no objects could still serve one."""
    blob = repository.git("hash-object", "-w", "--stdin-paths", given=str(repository.write("x", "planted")))
    tree = repository.tree({"planted": ("100644", blob)})
    commit = repository.git("commit-tree", "-m", "x", repository.tree({name: ("40000", tree)}))
    git = repository.objects
    folder = tmp_path / "tree"
    folder.mkdir()
    with pytest.raises(errors.ReadFailedError, match="a path that no work tree could have"):
        git.write(git.inputs(commit, ["."]), folder, limit=1000)
    assert not (tmp_path / "planted").exists()


def test_a_file_and_a_folder_of_one_name_are_said_plainly(repository: Repository, tmp_path: pathlib.Path) -> None:
    blob = repository.git("hash-object", "-w", "--stdin-paths", given=str(repository.write("x", "planted")))
    inner = repository.tree({"b": ("100644", blob)})
    commit = repository.git("commit-tree", "-m", "x", repository.tree({"a": ("100644", blob), "a ": ("40000", inner)}))
    git = repository.objects
    twice = [*git.files(commit), producers.Blob("100644", blob, "a/b")]
    with pytest.raises(errors.ReadFailedError, match="cannot be laid out"):
        git.write(twice, tmp_path, limit=1000)


def test_inputs_over_their_bound_are_refused(repository: Repository, tmp_path: pathlib.Path) -> None:
    commit = repository.commit({"big": "x" * 2000})
    git = repository.objects
    with pytest.raises(producers.TooLargeError, match="2000 bytes, more than 1000"):
        git.write(git.inputs(commit, ["."]), tmp_path, limit=1000)


def test_no_hook_and_no_configuration_of_the_machine_takes_part(repository: Repository) -> None:
    commit = repository.commit({"a": "1"})
    hook = repository.folder / ".git/hooks/post-checkout"
    hook.write_text("#!/bin/sh\ntouch ran\n")
    hook.chmod(0o755)
    assert repository.objects.files(commit)
    assert repository.objects.resolve("HEAD") == commit
    assert repository.objects.resolve("--help") is None
    assert not (repository.folder / "ran").exists()


def test_git_missing_and_no_repository_are_said_plainly(tmp_path: pathlib.Path) -> None:
    with pytest.raises(errors.MissingToolError, match="'no-such-git' is not installed"):
        producers.GitObjects(tmp_path, git="no-such-git").git_dir()
    with pytest.raises(errors.InputError, match="is no git repository"):
        producers.GitObjects(tmp_path).git_dir()
