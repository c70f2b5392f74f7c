"""A benchmark repository in small: a real git history whose generator changes, its policy, and its published rows."""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import textwrap
from typing import TYPE_CHECKING, Any

from klaud.baselines import codec, decide, model, producers, schema, settings
from klaud.github import model as github

if TYPE_CHECKING:
    import pathlib

ENTRIES: dict[str, list[dict[str, Any]]] = {
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

AGGREGATE: dict[str, Any] = {
    "model-prefix": "m3", "runner": "gb200", "framework": "dyn", "precision": "fp4", "spec-decoding": "mtp", "conc": [1, 2],
    "image": "reg/img:v1", "disagg": False, "scenario-type": "agentic-coding", "kv-offloading": "none",
    "prefill": {"num-worker": 1, "tp": 4, "ep": 1, "dp-attn": False},
    "decode": {"num-worker": 0, "tp": 4, "ep": 1, "dp-attn": False},
}  # fmt: skip
"""An aggregate on several nodes: one engine, which publishers mirror into both roles."""

ALL: tuple[settings.Equivalence, ...] = (
    "aggregate-mirror",
    "one-worker-aggregate-as-single-node",
    "agentic-single-node-disagg-flag",
)
"""Every named equivalence."""

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

    def git(self, *words: str, given: bytes | str = b"") -> str:
        """Run git with something on its standard input, and return what it printed."""
        environment = {
            "PATH": os.environ["PATH"], "HOME": str(self.folder), "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.invalid",
            "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@example.invalid",
        }  # fmt: skip
        done = subprocess.run(
            ["git", "-C", str(self.folder), *words],
            env=environment,
            input=given if isinstance(given, bytes) else given.encode(),
            capture_output=True,
            check=True,
        )
        return done.stdout.decode("utf-8", "surrogateescape").strip()

    def write(self, name: str, text: str) -> pathlib.Path:
        """Write a file of the work tree and return its path."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def tree(self, entries: dict[str, tuple[str, str]]) -> str:
        """Write a tree object as it is given (name to mode and id), also one that git itself would refuse."""
        raw = b"".join(f"{mode} {name}\0".encode() + bytes.fromhex(oid) for name, (mode, oid) in entries.items())
        return self.git("hash-object", "-t", "tree", "-w", "--literally", "--stdin", given=raw)

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


# -- published rows, as a publisher writes them


def row(entry: dict[str, Any], conc: int, *, run: int = 1000, **changes: Any) -> dict[str, Any]:
    """Return the published row of one point of a matrix entry; ``changes`` replace columns."""
    roles = {}
    for role in ("prefill", "decode"):
        part = entry.get(role, entry)
        roles |= {
            f"{role}_tp": part["tp"],
            f"{role}_ep": part.get("ep", 1),
            f"{role}_dp_attention": part.get("dp-attn", False),
            f"{role}_num_workers": part.get("num-worker", 0) if "prefill" in entry else 0,
        }
    return {
        "model": entry["model-prefix"],
        "hardware": entry["runner"].removeprefix("cluster:").partition("-")[0],
        "framework": entry["framework"],
        "precision": entry["precision"],
        "spec_method": entry.get("spec-decoding", "none"),
        "disagg": entry.get("disagg", False),
        "is_multinode": "prefill" in entry,
        "benchmark_type": "agentic_traces" if entry.get("scenario-type") == "agentic-coding" else "single_turn",
        "isl": entry.get("isl"),
        "osl": entry.get("osl"),
        "conc": conc,
        "offload_mode": "off",
        "image": entry["image"].replace("#", "/"),
        **roles,
        "metrics": {"tput": 100.0 + conc},
        "date": "2026-03-20",
        "run_url": f"https://github.com/{REPOSITORY}/actions/runs/{run}",
        **changes,
    }


def rows_of(entries: list[dict[str, Any]], **changes: Any) -> list[dict[str, Any]]:
    """Return a row for each point of a matrix."""
    found = []
    for entry in entries:
        several = entry["conc"] if isinstance(entry["conc"], list) else [entry["conc"]]
        found += [row(entry, conc, **changes) for conc in several]
    return found


PRODUCER = "c" * 40
TODAY = "d" * 40


class Case:
    """Rows and matrices to be judged; every run is proven to be of PRODUCER, which is trusted, unless changed."""

    def __init__(self, rows: list[Any] | None = None, **policy_changes: Any) -> None:
        self.policy = policy(**policy_changes)
        self.rows = rows_of(ENTRIES["fast"]) if rows is None else rows
        self.matrices: dict[tuple[str, str], Any] = {}
        for commit in (PRODUCER, TODAY):
            self.matrices[commit, FAST] = ENTRIES["fast"]
            self.matrices[commit, SPLIT] = ENTRIES["split"]
        self.runs: dict[str, model.Proof | model.Unproven] = {}
        self.commits: dict[str, model.Trusted | model.Untrusted] = {
            PRODUCER: model.Trusted(commit=PRODUCER, how="ancestor")
        }
        self.changelog: dict[str, tuple[str, ...]] | None = None
        self.families = [FAST]
        self.current = TODAY

    @property
    def plan(self) -> schema.Plan:
        return schema.plan(self.policy)

    def decoded(self) -> list[model.Row]:
        """Return the rows that can be read."""
        return codec.RowCodec(self.plan, repository=REPOSITORY).decode_all(self.rows).rows

    def proofs(self) -> model.Proofs:
        """Return what is proven."""
        runs = dict(self.runs)
        for each in self.decoded():
            if each.run_id is not None and str(each.run_id) not in runs:
                runs[str(each.run_id)] = model.Proof(run_id=each.run_id, attempt=1, commit=PRODUCER, how="run")
        return model.Proofs(runs=runs, commits=self.commits, changelog=self.changelog)

    def produced(self) -> model.Produced:
        """Return the matrices; a value that is no list stands for itself."""
        made = []
        for (commit, family), entries in self.matrices.items():
            if isinstance(entries, list):
                made.append(model.Matrix(commit=commit, family=family, entries=tuple(entries)))
            else:
                made.append(entries)
        return model.Produced(benchmark=self.policy.name, matrices=tuple(made))

    def judge(self) -> dict[str, model.Verdict]:
        """Return the verdicts by family."""
        judged = decide.judge(
            self.plan, self.decoded(), self.proofs(), self.produced(), families=self.families, current=self.current
        )
        return {verdict.family: verdict for verdict in judged.verdicts}

    def verdict(self) -> model.Verdict:
        """Return the verdict of the first family."""
        return self.judge()[self.families[0]]


# -- GitHub, as far as baselines ask


class AskedGateway:
    """Runs by id and pull requests by commit; an exception stands for itself. ``asked`` lists what was asked."""

    def __init__(self) -> None:
        self.runs: dict[int, Any] = {}
        self.pulls: dict[str, Any] = {}
        self.asked: list[Any] = []

    def run(self, run_id: int) -> Any:
        """Return one run."""
        self.asked.append(run_id)
        found = self.runs.get(run_id, github.Missing(what=f"run {run_id}"))
        if isinstance(found, Exception):
            raise found
        return found

    def pulls_of_commit(self, oid: str) -> Any:
        """List the pull requests of a commit."""
        self.asked.append(oid)
        found = self.pulls.get(oid, github.Listing(()))
        if isinstance(found, Exception):
            raise found
        return found


WHEN = datetime.datetime(2026, 3, 2, tzinfo=datetime.UTC)


def github_run(run_id: int, commit: str, *, attempt: int = 1) -> github.Run:
    """Return a run of a commit."""
    return github.Run(
        id=run_id, attempt=attempt, status="completed", conclusion="success", event="push", head_branch="main",
        head_sha=commit, path=".github/workflows/bench.yml", display_title="bench", actor=None, triggering_actor=None,
        created_at=WHEN, updated_at=WHEN,
    )  # fmt: skip


def github_pull(number: int, head: str, *, merged: bool = True, base: str = "main") -> github.Pull:
    """Return a pull request."""
    return github.Pull(
        number=number, node_id=f"PR_{number}", state="closed" if merged else "open", merged=merged, draft=False, title="t",
        body="", author=None, head_ref="topic", head_oid=head, head_repository=REPOSITORY, base_ref=base, labels=(),
        created_at=WHEN, updated_at=WHEN,
    )  # fmt: skip


def only(verdict: model.Verdict) -> model.Reason:
    """Return the one reason of a deferred verdict."""
    assert verdict.verdict == "deferred"
    assert len(verdict.reasons) == 1, [reason.code for reason in verdict.reasons]
    return verdict.reasons[0]
