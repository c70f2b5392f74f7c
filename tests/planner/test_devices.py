"""Trees, commands, sources and capacity: what is read is bounded, and what fails says so without its payload."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from klaud import errors, feeds
from klaud.baselines import settings as baselines
from klaud.planner import capacity, command, decide, model, observe, settings, sources, tree
from klaud.session import model as session
from tests.support import loopback

if TYPE_CHECKING:
    from collections.abc import Iterator

PYTHON = sys.executable


def git(root: Path, *arguments: str) -> None:
    env = {
        "PATH": os.environ["PATH"], "HOME": str(root), "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@users.example",
        "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@users.example",
    }  # fmt: skip
    subprocess.run(["git", "-C", str(root), *arguments], env=env, check=True, capture_output=True)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    root = tmp_path / "clone"
    for path, text in {
        "configs/codecs.yaml": "zlib: {level: 6}\nbz2: {level: 9}\non: {level: 1}\n1: x\n",
        "configs/deep/more.yaml": "lzma: {}\n",
        "configs/broken.yaml": "a: 1\na: 2\n",
        "configs/list.yaml": "[1]\n",
        "candidates.jsonl": '{"family": "configs/codecs.yaml:zlib", "subject": "level 9"}\n',
        "empty.jsonl": "",
    }.items():
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    git(root.parent, "init", "-q", "-b", "main", str(root))
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "first")
    return root


# -- trees


def test_a_tree_is_the_commit_and_not_the_work_tree(clone: Path) -> None:
    (clone / "configs/codecs.yaml").write_text("changed: {}\n")
    (clone / "new.txt").write_text("x")
    files = tree.Tree(clone)
    assert len(files.commit) == 40
    assert "new.txt" not in files.paths
    assert files.read("configs/codecs.yaml").startswith(b"zlib")


def test_git_gets_nothing_of_the_environment(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GIT_DIR of the caller's would make it read another repository."""
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    assert tree.Tree(clone).matching(["*.jsonl"]) == ("candidates.jsonl", "empty.jsonl")


@pytest.mark.parametrize("revision", ["nothing", "--help", "HEAD:configs", ""])
def test_what_names_no_commit_is_refused(clone: Path, revision: str) -> None:
    with pytest.raises(errors.InputError):
        tree.Tree(clone, revision)


def test_no_clone_no_file_and_too_large_a_file_are_refused(clone: Path, tmp_path: Path, monkeypatch: Any) -> None:
    with pytest.raises(errors.InputError, match="git rev-parse"):
        tree.Tree(tmp_path)
    files = tree.Tree(clone)
    with pytest.raises(errors.InputError, match="is not in commit"):
        files.read("gone")
    monkeypatch.setattr(tree, "FILE_BYTES", 10)
    with pytest.raises(errors.InputError, match="above the limit"):
        files.read("configs/codecs.yaml")


def test_without_git_the_program_is_named(clone: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(errors.MissingToolError, match="git is not on PATH"):
        tree.Tree(clone)


@pytest.mark.parametrize(
    ("pattern", "path", "fits"),
    [
        ("configs/*.yaml", "configs/a.yaml", True), ("configs/*.yaml", "configs/deep/a.yaml", False),
        ("configs/**", "configs/deep/a.yaml", True), ("**/*.yaml", "a.yaml", True), ("**/*.yaml", "x/y/a.yaml", True),
        ("*.y?ml", "a.yaml", True), ("a?b", "a/b", False), ("[ab].c", "b.c", True), ("[!ab].c", "b.c", False),
        ("[!ab].c", "d.c", True), ("a+b.c", "a+b.c", True), ("a.c", "abc", False), ("[].c", "[].c", True),
    ],
)  # fmt: skip
def test_globs_of_paths(pattern: str, path: str, fits: bool) -> None:
    assert (tree.glob(pattern).fullmatch(path) is not None) is fits


def test_families_are_the_top_level_keys_and_a_broken_file_hides_no_other(clone: Path) -> None:
    benchmark = bench(families=settings.Families(files=("configs/*.yaml",), keys=("[!o]*",)))
    found, broken = observe.families(benchmark, tree.Tree(clone))
    assert found == ("configs/codecs.yaml:zlib", "configs/codecs.yaml:bz2")
    assert [(one.family, one.code) for one in broken] == [
        ("configs/broken.yaml:*", "unreadable"),
        ("configs/list.yaml:*", "unreadable"),
    ]
    assert "written twice" in broken[0].message


# -- commands


def run(code: str, tmp_path: Path, **more: Any) -> command.Printed | command.CommandFailed:
    return command.run([PYTHON, "-c", code], cwd=tmp_path, **{"seconds": 20.0, "limit_bytes": 1000, **more})


def test_a_command_s_output_is_returned_whole(tmp_path: Path) -> None:
    assert run("print('x' * 999, end='')", tmp_path) == command.Printed(b"x" * 999)


@pytest.mark.parametrize(
    ("code", "more", "why"),
    [
        ("print('hunter2'); raise SystemExit(3)", {}, "ended with status 3"),
        ("import sys; print('hunter2' * 1000)", {}, "printed more than 1000 bytes"),
        ("import time; time.sleep(60)", {"seconds": 0.3}, "did not end within 0.3 s"),
        ("import os, time; os.close(1); time.sleep(60)", {"seconds": 0.3}, "did not end within 0.3 s"),
        ("import os; os.kill(os.getpid(), 9)", {}, "ended with status -9"),
    ],
)
def test_a_command_that_fails_says_how_and_nothing_that_it_said(
    code: str, more: dict[str, Any], why: str, tmp_path: Path
) -> None:
    begun = time.monotonic()
    found = run(code, tmp_path, **more)
    assert isinstance(found, command.CommandFailed)
    assert why in found.why
    assert "hunter2" not in found.why
    assert time.monotonic() - begun < 15


def test_a_command_that_is_missing_is_named(tmp_path: Path) -> None:
    found = command.run(["no-such-program"], cwd=tmp_path, seconds=5, limit_bytes=10)
    assert found == command.CommandFailed("no-such-program could not be started: No such file or directory")


def test_a_command_gets_no_credential_and_no_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KLAUD_TOKEN", "GITHUB_TOKEN", "GITHUB_ENV", "HOME", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, "hunter2")
    found = run("import os, json; print(json.dumps(dict(os.environ)))", tmp_path)
    assert isinstance(found, command.Printed)
    assert b"hunter2" not in found.output
    assert set(json.loads(found.output)) - {"LC_CTYPE"} == {"PATH", "LANG", "HOME"}


def test_a_command_s_children_end_with_it(tmp_path: Path) -> None:
    """A grandchild that keeps stdout open neither delays the result beyond the bound nor lives on."""
    code = "import subprocess, sys; p = subprocess.Popen(['sleep', '60']); print(p.pid, flush=True)"
    begun = time.monotonic()
    found = run(code + "; sys.stdout.flush()", tmp_path, seconds=1.0)
    assert isinstance(found, command.CommandFailed)
    assert time.monotonic() - begun < 10
    assert not [one for one in children("sleep", "60") if one]


def children(*argv: str) -> list[bytes]:
    wanted = b"\0".join(one.encode() for one in argv) + b"\0"
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_bytes()
            dead = b") Z " in (process / "stat").read_bytes()
        except OSError:
            continue
        if line == wanted and not dead:
            found.append(line)
    return found


# -- sources


def bench(**changes: Any) -> settings.Benchmark:
    given: dict[str, Any] = {
        "name": "codecs",
        "generator": baselines.Generator(
            layouts=(baselines.Layout(inputs=("tools",), commands=(("python", "{family}"),)),)
        ),
        "rows": baselines.Rows(file="rows.json"),
        "sources": (settings.Source(file="candidates.jsonl"),),
        "workflows": session.Workflows(final="final.yml"),
    }
    return settings.Benchmark(**{**given, **changes})


@pytest.fixture
def hub() -> Iterator[loopback.Loopback]:
    with loopback.serving() as server:
        yield server


def places(clone: Path) -> sources.Places:
    web = feeds.Web(clock=loopback.FakeClock(), chance=lambda: 0.0)
    return sources.Places(files=tree.Tree(clone), root=clone, web=web)


LINE = b'{"family": "configs/codecs.yaml:zlib", "subject": "level 9", "change": {"zlib.level": 9}}\n'


def read(clone: Path, *, policy: model.Policy | None = None, **source: Any) -> Any:
    one = bench(sources=(settings.Source(**source),))
    (found,) = sources.read(one, policy or model.Policy(), places(clone))
    return found


def test_a_file_of_the_commit_offers_candidates(clone: Path) -> None:
    (clone / "candidates.jsonl").write_text("changed in the work tree only")
    found = read(clone, file="candidates.jsonl")
    assert [one.subject for one in found.offers] == ["level 9"]
    assert (found.code, found.source) == ("", "candidates.jsonl")
    assert read(clone, file="empty.jsonl").code == ""
    missing = read(clone, file="gone.jsonl")
    assert (missing.code, missing.offers) == ("feed-invalid", ())


def test_a_command_offers_candidates(clone: Path) -> None:
    code = f"import sys; sys.stdout.buffer.write({LINE!r})"
    assert [one.change for one in read(clone, command=(PYTHON, "-c", code)).offers] == [{"zlib.level": 9}]
    assert read(clone, command=(PYTHON, "-c", "raise SystemExit(1)")).code == "feed-invalid"
    assert read(clone, command=(PYTHON, "-c", "pass")).code == "feed-invalid"


def test_a_feed_offers_candidates_and_its_label_has_no_query(clone: Path, hub: loopback.Loopback) -> None:
    hub.reply("/rows?key=hunter2", loopback.Reply(LINE * 2))
    found = read(clone, feed=f"{hub.url}/rows?key=hunter2")
    assert len(found.offers) == 2
    assert found.source == "http://127.0.0.1/rows"


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (loopback.Reply(b"busy hunter2", status=503), "feed-unavailable"),
        (loopback.Reply(b"[]"), "feed-invalid"),
        (loopback.Reply(b""), "feed-invalid"),
        (loopback.Reply(b"<!doctype html><p>hunter2"), "feed-invalid"),
        (loopback.Reply(b'[{"family": "configs/codecs.yaml:zlib", "sub'), "feed-invalid"),
        (loopback.Reply(b'{"family": "configs/codecs.yaml:zlib", "sub'), "feed-invalid"),
        (loopback.Reply(b'{"hunter2": 1}\n'), "feed-invalid"),
        (loopback.Reply(LINE, length=len(LINE) * 2, cut=True), "feed-unavailable"),
        (loopback.Reply(b"", status=404), "feed-invalid"),
        (loopback.Reply(b"x", status=302, headers={"Location": "/elsewhere"}), "feed-invalid"),
    ],
    ids=["503", "empty-list", "nothing", "html", "half-list", "half-line", "no-offer", "cut", "404", "redirect"],
)
def test_L05_a_feed_that_fails_is_failed_by_name_and_offers_nothing(  # noqa: N802 - the oddity's id
    reply: loopback.Reply, code: str, clone: Path, hub: loopback.Loopback
) -> None:
    hub.reply("/rows", reply)
    found = read(clone, feed=f"{hub.url}/rows")
    assert (found.code, found.offers) == (code, ())
    assert found.message
    assert "hunter2" not in found.message


def test_a_line_that_is_no_candidate_costs_only_itself(clone: Path, hub: loopback.Loopback) -> None:
    hub.reply("/rows", loopback.Reply(b"3\n" + LINE + b'{"family": "x"}\n' + LINE))
    found = read(clone, feed=f"{hub.url}/rows")
    assert (len(found.offers), found.refused, found.code) == (2, 2, "")
    assert found.examples[0].startswith("line 1: ")
    assert found.examples[1] == "row 2: subject: is missing"


def test_a_source_with_too_much_is_failed_not_cut(clone: Path, hub: loopback.Loopback) -> None:
    hub.reply("/rows", loopback.Reply(LINE * 3))
    few = model.Policy(source_limit_records=2)
    assert read(clone, policy=few, feed=f"{hub.url}/rows").code == "feed-invalid"
    small = model.Policy(source_limit_bytes=len(LINE))
    assert read(clone, policy=small, feed=f"{hub.url}/rows").code == "feed-invalid"
    tiny = model.Policy(source_limit_bytes=5)
    assert read(clone, policy=tiny, file="candidates.jsonl").code == "feed-invalid"


# -- capacity

FIGURES = {"targets": {"h200": {"total": 8, "allocated": 1, "mixed": 0, "idle": 7, "more": "x"}}, "more": 1}


def ask(tmp_path: Path, **changes: Any) -> Any:
    key = changes.pop("key", "")
    web = feeds.Web(clock=loopback.FakeClock(), chance=lambda: 0.0)
    return capacity.ask(settings.Capacity(**changes), root=tmp_path, web=web, key=key)


def test_a_provider_by_address_gets_the_key_in_a_header_only(tmp_path: Path, hub: loopback.Loopback) -> None:
    hub.reply("/figures", loopback.Reply(json.dumps(FIGURES).encode()))
    found = ask(tmp_path, url=f"{hub.url}/figures", key="hunter2")
    assert found == decide.Figures({"h200": decide.Target(8, 1, 0, 7)})
    assert hub.asked[0].headers["authorization"] == "Bearer hunter2"
    assert hub.asked[0].path == "/figures"


def test_a_provider_by_command_gets_the_key_in_its_environment(tmp_path: Path) -> None:
    code = f"import os; assert os.environ['KLAUD_CAPACITY_KEY'] == 'k'; print({json.dumps(FIGURES)!r})"
    found = ask(tmp_path, command=(PYTHON, "-c", code), key="k")
    assert isinstance(found, decide.Figures)


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"<p>hunter2", b'{"targets": []}', b'{"targets": {"a": {"total": -1}}}', b'{"targets": {"a": 1'],
)
def test_a_provider_that_fails_is_unknown_without_a_word_of_it(
    body: bytes, tmp_path: Path, hub: loopback.Loopback
) -> None:
    hub.reply("/figures", loopback.Reply(body))
    by_url = ask(tmp_path, url=f"{hub.url}/figures")
    by_command = ask(tmp_path, command=(PYTHON, "-c", f"import sys; sys.stdout.buffer.write({body!r})"))
    for found in (by_url, by_command):
        assert isinstance(found, decide.CapacityUnknown)
        assert "hunter2" not in found.why


def test_capacity_that_is_busy_or_gone_or_not_configured(tmp_path: Path, hub: loopback.Loopback) -> None:
    hub.reply("/figures", loopback.Reply(b"", status=503))
    assert isinstance(ask(tmp_path, url=f"{hub.url}/figures"), decide.CapacityUnknown)
    assert isinstance(ask(tmp_path, command=(PYTHON, "-c", "raise SystemExit(9)")), decide.CapacityUnknown)
    assert isinstance(ask(tmp_path, command=("no-such-program",)), decide.CapacityUnknown)
    assert ask(tmp_path) == decide.NotAsked()
