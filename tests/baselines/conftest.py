"""A real repository whose generator changes over time, as real ones do, and the policy that describes it."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import textwrap
from typing import Any

import pytest

from klaud.baselines import model, producers, sandbox, settings

ENTRIES = {
    "fast": [
        {"model-prefix": "m1", "runner": "cluster:h100-x", "framework": "fw", "precision": "fp8", "isl": 1024, "osl": 1024,
         "tp": 8, "conc": [4, 8], "image": "reg#team/img:v1", "exp-name": "a"},
        {"model-prefix": "m1", "runner": "h100", "framework": "fw", "precision": "fp8", "isl": 8192, "osl": 1024,
         "tp": 8, "ep": 8, "conc": 4, "image": "reg/team/img:v1", "exp-name": "b"},
    ],
    "split": [
        {"model-prefix": "m2", "runner": "h100", "framework": "dyn", "precision": "fp8", "isl": 1024, "osl": 1024,
         "conc": [16, 32], "image": "reg/team/img:v1", "disagg": True,
         "prefill": {"num-worker": 1, "tp": 4, "ep": 1, "dp-attn": False},
         "decode": {"num-worker": 2, "tp": 8, "ep": 8, "dp-attn": True}},
    ],
}  # fmt: skip
"""Two families: one on a single node, one disaggregated."""

GENERATOR = """
    import argparse, json, os, pathlib, sys
    parser = argparse.ArgumentParser()
    {parser}
    args = parser.parse_args()
    keys, files = args.keys, args.files
    entries = []
    for key in keys:
        known = {{}}
        for name in files:
            known.update(json.loads(pathlib.Path(name).read_text()))
        if key not in known:
            sys.exit("no such family: " + key)
        entries += [dict(entry, family=key) for entry in known[key]]
    {evals}
    print(json.dumps(entries))
"""

SUBCOMMAND = """commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("full")
    parser = sub = commands.add_parser("test-config")
    sub.add_argument("--config-keys", dest="keys", nargs="+", required=True)
    sub.add_argument("--config-files", dest="files", nargs="+", required=True)
    parser = argparse.Namespace(parse_args=lambda: root.parse_args())"""

FLAT = """parser.add_argument("--key", dest="keys", nargs="+", required=True)
    parser.add_argument("--files", nargs="+", required=True)"""


def generator(parser: str, evals: str = "") -> str:
    """Return a generator script."""
    text = textwrap.dedent(GENERATOR).format(
        parser=textwrap.dedent(parser).replace("\n    ", "\n"), evals=textwrap.dedent(evals).replace("\n    ", "\n")
    )
    return text.replace("parser = argparse.ArgumentParser()", "root = parser = argparse.ArgumentParser()")


EVALS = """if not args.no_evals:
        entries += [dict(entry, **{"eval-only": True}) for entry in entries]"""


class Repository:
    """A git repository in a folder, with a helper to commit files."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.git("init", "-q", "-b", "main")

    def git(self, *words: str) -> str:
        """Run git and return what it printed."""
        environment = {
            "PATH": os.environ["PATH"], "HOME": str(self.folder), "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.invalid",
            "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@example.invalid",
        }  # fmt: skip
        done = subprocess.run(
            ["git", "-C", str(self.folder), *words], env=environment, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    def commit(self, files: dict[str, str | None], *, executable: tuple[str, ...] = ()) -> str:
        """Write (None: remove) files, commit, and return the commit."""
        for name, text in files.items():
            path = self.folder / name
            if text is None:
                path.unlink()
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            path.chmod(0o755 if name in executable else 0o644)
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", "Change")
        return self.git("rev-parse", "HEAD")

    @property
    def objects(self) -> producers.GitObjects:
        """The object store, asked without a remote that answers."""
        return producers.GitObjects(self.folder)


class History(Repository):
    """Four periods: another folder and ``--key``; the subcommand; ``--no-evals``; and a broken family."""

    def __init__(self, folder: pathlib.Path) -> None:
        super().__init__(folder)
        configs = json.dumps(ENTRIES)
        self.flat = self.commit({"gen/make.py": generator(FLAT), "gen/configs/all.json": configs})
        self.without = self.commit(
            {
                "gen/make.py": None,
                "gen/configs/all.json": None,
                "tools/matrix.py": generator(SUBCOMMAND),
                "configs/all.json": configs,
            }
        )
        option = SUBCOMMAND.replace(
            "    parser = argparse.N",
            '    sub.add_argument("--no-evals", action="store_true")\n    parser = argparse.N',
        )
        self.with_option = self.commit({"tools/matrix.py": generator(option, EVALS)})
        self.tip = self.with_option


LAYOUTS = (
    settings.Layout(
        when=("tools/matrix.py",),
        inputs=("tools", "configs"),
        configs=("configs/*.json",),
        commands=(
            (
                "{python}",
                "{root}/tools/matrix.py",
                "test-config",
                "--config-keys",
                "{family}",
                "--config-files",
                "{configs}",
            ),
        ),
    ),
    settings.Layout(
        when=("gen/make.py",),
        inputs=("gen",),
        configs=("gen/configs/*.json",),
        commands=(
            (
                "{python}",
                "{root}/gen/make.py",
                "test-config",
                "--config-keys",
                "{family}",
                "--config-files",
                "{configs}",
            ),
            ("{python}", "{root}/gen/make.py", "--key", "{family}", "--files", "{configs}"),
        ),
    ),
)
NO_EVALS = settings.OptionalArgument(argument="--no-evals", meaning="throughput-only")

FAST, SPLIT = "configs/all.json:fast", "configs/all.json:split"
REPOSITORY = "acme/bench"


def policy(**changes: Any) -> model.Policy:
    """Return the repository's policy; ``changes`` replace fields, ``generator`` fields by dict."""
    generated = {"layouts": LAYOUTS, "optional_arguments": (NO_EVALS,), **changes.pop("generator", {})}
    return model.Policy(name="acme", generator=settings.Generator(**generated), **changes)


@pytest.fixture(scope="session")
def history(tmp_path_factory: pytest.TempPathFactory) -> History:
    return History(tmp_path_factory.mktemp("history") / "repository")


@pytest.fixture
def repository(tmp_path: pathlib.Path) -> Repository:
    return Repository(tmp_path / "repository")


@pytest.fixture(scope="session")
def box() -> sandbox.Sandbox:
    """The strongest sandbox that this host grants, with the default bounds."""
    return sandbox.Sandbox(settings.Bounds(seconds=20))
