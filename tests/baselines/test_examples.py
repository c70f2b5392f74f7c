"""The example adapters: another repository is described by its configuration alone, and its README tells the truth."""

from __future__ import annotations

import pathlib
import subprocess
from typing import TYPE_CHECKING

import pytest
import typer.testing

from klaud import config as configs
from klaud.baselines import bundle, model, run
from klaud.cli import main
from tests.support.benchmarks import AskedGateway, Repository, github_run

if TYPE_CHECKING:
    from klaud.baselines import sandbox

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "database-bench"
READ, MIXED = "workloads/oltp.yaml:point-read", "workloads/oltp.yaml:mixed"
ACME = "acme/database-bench"


@pytest.fixture
def example(repository: Repository) -> tuple[Repository, str, str]:
    """The example as a repository with a past: (repository, first commit, newest commit)."""
    common: dict[str, str | None] = {
        name: (EXAMPLE / name).read_text(encoding="utf-8")
        for name in ("workloads/oltp.yaml", "published.jsonl", "candidates.jsonl")
    }
    old = {
        "bench/points.sh": (EXAMPLE / "history/points-1.sh").read_text(encoding="utf-8"),
        "bench/read.awk": (EXAMPLE / "history/read.awk").read_text(encoding="utf-8"),
    }
    first = repository.commit({**common, **old}, executable=("bench/read.awk", "bench/points.sh"))
    new = (EXAMPLE / "bench/points.sh").read_text(encoding="utf-8")
    newest = repository.commit({"bench/points.sh": new, "bench/read.awk": None}, executable=("bench/points.sh",))
    return repository, first, newest


def test_the_database_benchmark_is_proven_by_its_configuration_alone(
    example: tuple[Repository, str, str], box: sandbox.Sandbox
) -> None:
    repository, first, newest = example
    policy = configs.load(EXAMPLE / "klaud.yml").benchmarks[0]
    git, root = repository.objects, repository.folder
    read = run.read_rows(policy, root=root, repository=ACME)
    assert isinstance(read, run.RowsRead)
    assert read.malformed_count == 0
    current = run.regenerate(policy, [model.Need(commit=newest, families=(READ, MIXED))], git=git, box=box)
    gateway = AskedGateway()
    gateway.runs = {501: github_run(501, first), 502: github_run(502, newest)}
    proofs = run.prove(
        policy,
        read,
        runs=run.runs_of(policy, read, current, [READ, MIXED]),
        gateway=gateway,  # type: ignore[arg-type]
        git=git,
        tip=newest,
        default_branch="main",
        root=root,
    )
    assert isinstance(proofs, model.Proofs)
    needed = run.needs(policy, read, proofs, current, families=[READ, MIXED])
    assert {need.commit for need in needed} == {first, newest}
    made = run.regenerate(policy, needed, git=git, box=box)
    produced = run.join(current, made)
    judged = run.verdicts(policy, read, proofs, produced, families=[READ, MIXED], current=newest)
    verdicts = {verdict.family: verdict for verdict in judged.verdicts}
    proven = verdicts[READ]
    assert (proven.verdict, proven.dropped, proven.unpublished) == ("verified", ("--no-profile",), 0)
    assert sorted(point.metrics["tx_per_s"] for point in proven.points) == [11021.4, 80214.9, 191004.0]
    deferred = verdicts[MIXED]
    assert deferred.reasons[0].examples[0].text == "run 502: isolation: row repeatable-read, matrix serializable"
    data = bundle.make(policy, read.rows, proofs, produced, family=READ, current=newest)
    assert bundle.check(data).problem == ""


def test_the_readme_shows_what_the_command_prints(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GITHUB_REPOSITORY", raising=False)
    matrix = subprocess.run(
        ["sh", "bench/points.sh", "workloads/oltp.yaml", "mixed"], cwd=EXAMPLE, capture_output=True, check=True
    )
    (tmp_path / "matrix.jsonl").write_bytes(matrix.stdout)
    words = ["verify", "--config", str(EXAMPLE / "klaud.yml"), "--rows", str(EXAMPLE / "published.jsonl")]
    words += ["--matrix", str(tmp_path / "matrix.jsonl"), "--family", MIXED]
    done = typer.testing.CliRunner().invoke(main.app, words)
    assert done.exit_code == 1
    readme = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    shown = [line.removeprefix("    ") for line in readme.splitlines() if line.startswith("    ")]
    assert [line for line in shown if line and not line.startswith(("sh ", "klaud "))] == done.output.splitlines()
