"""What baselines cost: generating for 22 candidates over 8 producer commits, and judging 100,000 rows.

``python bench/baselines.py [--rows N] [--yaml-kib N]``. The generators are made up and as heavy as real ones: Python that
imports argparse, json and PyYAML and parses half a megabyte of YAML. Three layouts are measured (a process for each family,
klaud's driver, a list of families), each cold and warm. Everything is seeded; figures are this machine's.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import random
import resource
import subprocess
import sys
import tempfile
import time

from klaud.baselines import bundle, codec, decide, model, producers, run, sandbox, schema, settings

GENERATOR = """
import argparse, json, yaml
parser = argparse.ArgumentParser()
sub = parser.add_subparsers(dest="command", required=True).add_parser("test-config")
sub.add_argument("--config-keys", nargs="+", required=True)
sub.add_argument("--config-files", nargs="+", required=True)
{option}
args = parser.parse_args()
known = {{}}
for name in args.config_files:
    with open(name) as stream:
        known.update(yaml.safe_load(stream))
print(json.dumps([dict(entry, family=key) for key in args.config_keys for entry in known[key]["matrix"]]))
# version {version}
"""
OPTION = 'sub.add_argument("--no-evals", action="store_true")'
COMMAND = ("{python}", "{root}/matrix.py", "test-config", "--config-files", "{configs}", "--config-keys")
FAMILIES = 22
COMMITS = 8
PAIRS = 16


def git(folder: pathlib.Path, *words: str) -> str:
    """Run git."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    for who in ("AUTHOR", "COMMITTER"):
        environment |= {f"GIT_{who}_NAME": "a", f"GIT_{who}_EMAIL": "a@example.invalid"}
    done = subprocess.run(
        ["git", "-C", str(folder), *words], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def history(folder: pathlib.Path, kib: int, *, stable: bool) -> list[str]:
    """Make a repository of COMMITS producer commits, the older half without ``--no-evals``; return them.

    ``stable``: the generator changes when it learns the option and at no other time; else with each commit.
    """
    git(folder, "init", "-q", "-b", "main")
    chance = random.Random(1)  # noqa: S311 - a fixed seed
    commits = []
    for version in range(COMMITS):
        text = []
        for number in range(FAMILIES):
            text.append(f"family-{number}:\n  matrix:\n")
            for point in range(8):
                image = f"registry.example/team/image:v{chance.randint(1, 3)}"
                text.append(
                    f"  - {{model-prefix: m{number}, runner: h100, framework: fw, precision: fp8, isl: 1024, osl: 1024,"
                    f" tp: {2 ** (point % 4)}, conc: [{point + 1}, {point + 64}], image: '{image}'}}\n"
                )
        number = 0
        while sum(map(len, text)) < kib * 1024:
            text.append(f"filler-{version}-{number}:\n  matrix: []\n  notes: {{a: 1, b: [x, y, z], c: 'some text'}}\n")
            number += 1
        (folder / "all.yaml").write_text("".join(text))
        option = OPTION if version >= COMMITS // 2 else ""
        (folder / "matrix.py").write_text(GENERATOR.format(option=option, version="" if stable else version))
        git(folder, "add", "-A")
        git(folder, "commit", "-q", "-m", f"Version {version}")
        commits.append(git(folder, "rev-parse", "HEAD"))
    return commits


def layouts() -> dict[str, settings.Layout]:
    """Return the three ways of asking."""
    common = {"inputs": ("matrix.py", "all.yaml"), "configs": ("all.yaml",)}
    return {
        "a process for each family": settings.Layout(commands=((*COMMAND, "{family}"),), **common),  # type: ignore[arg-type]
        "klaud's driver": settings.Layout(commands=((*COMMAND, "{family}"),), driver="python", **common),  # type: ignore[arg-type]
        "a list of families": settings.Layout(commands=((*COMMAND, "{families}"),), family_field="family", **common),  # type: ignore[arg-type]
    }


def generation(kib: int, *, stable: bool) -> None:
    """Print what 22 candidates over 8 commits cost in each layout, cold and warm.

    The minimum is a call for each matrix (or each commit, where one call makes several). Beyond it is what cannot be known
    without asking: each version of a generator is asked once whether it knows ``--no-evals``, and the older ones refuse.
    """
    chance = random.Random(2)  # noqa: S311 - a fixed seed
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name) / "repository"
        folder.mkdir()
        commits = history(folder, kib, stable=stable)
        pairs = [(commits[n % COMMITS], f"all.yaml:family-{n % FAMILIES}") for n in range(PAIRS)]
        candidates = pairs + [chance.choice(pairs) for _ in range(FAMILIES - PAIRS)]
        needs = [model.Need(commit=commit, families=(family,)) for commit, family in candidates]
        size = (folder / "all.yaml").stat().st_size // 1024
        refusals = 1 if stable else COMMITS // 2
        print(
            f"generation: {len(candidates)} candidates, {COMMITS} commits, {PAIRS} distinct pairs, {size} KiB of YAML each;"
            f" {refusals} version(s) of the generator without --no-evals"
        )
        box = sandbox.Sandbox(settings.Bounds())
        print(f"  sandbox: {box.isolation.method}, network {box.isolation.network}")
        results = {}
        for title, layout in layouts().items():
            policy = model.Policy(
                name="bench",
                generator=settings.Generator(
                    layouts=(layout,),
                    optional_arguments=(settings.OptionalArgument(argument="--no-evals", meaning="throughput-only"),),
                ),
            )
            cache = pathlib.Path(name) / title.replace(" ", "-")
            least = PAIRS if title.startswith("a process") else COMMITS
            asked = 0 if layout.driver else refusals
            for state in ("cold", "warm"):
                began, used = time.perf_counter(), children()
                produced = run.regenerate(policy, needs, git=producers.GitObjects(folder), cache_folder=cache, box=box)
                seconds, used = time.perf_counter() - began, children() - used
                entries = {(each.commit, each.family): getattr(each, "entries", None) for each in produced.matrices}
                if state == "warm":
                    results[title] = entries
                want = f"minimum {least} + {asked} refused" if state == "cold" else "minimum 0"
                print(
                    f"  {title:26} {state}: {seconds:6.2f} s, {used:6.2f} s of CPU, {produced.calls:2} calls ({want})"
                )
        same = len({str(sorted(each.items())) for each in results.values()}) == 1
        print(f"  all layouts give the same {PAIRS} matrices: {same}; load {os.getloadavg()[0]:.1f}")


def children() -> float:
    """Return the CPU seconds of this process and of what it started."""
    own, below = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + below.ru_utime + below.ru_stime


def judging(count: int) -> None:
    """Print what judging ``count`` rows against ``count`` entries costs, and the peak memory."""
    policy = model.Policy(name="bench", equivalences=("aggregate-mirror", "one-worker-aggregate-as-single-node"))
    plan = schema.plan(policy)
    families, commits = max(count // 500, 1), 4
    before = peak()
    raws, matrices = [], []
    for number in range(families):
        commit = f"{number % commits:x}" * 40
        entries = []
        for point in range(100):
            entry = {
                "model-prefix": f"m{number}", "runner": "cluster:h100-x", "framework": "fw", "precision": "fp8",
                "isl": 1024, "osl": 1024, "tp": 2 ** (point % 4), "ep": point, "conc": [1, 2, 4, 8, 16],
                "image": "reg#team/img:v1", "exp-name": f"e{point}",
            }  # fmt: skip
            entries.append(entry)
            raws += [published(entry, conc, number) for conc in (1, 2, 4, 8, 16)]
        matrices += [
            model.Matrix(commit=where, family=f"all.yaml:f{number}", entries=tuple(entries))
            for where in (commit, "f" * 40)
        ]
    raws = raws[:count]
    drifted = 0
    for at in range(0, len(raws), 1000):
        raws[at]["decode_tp"] = 3
        drifted += 1
    made = peak()
    began = clock()
    found_rows = codec.RowCodec(plan, repository="acme/bench").decode_all(raws)
    rows, malformed = found_rows.rows, found_rows.malformed_count
    decoded = clock()
    runs = {row.run_id for row in rows if row.run_id}
    proofs = model.Proofs(
        runs={str(n): model.Proof(run_id=n, attempt=1, commit=f"{(n - 1) % commits:x}" * 40, how="run") for n in runs},
        commits={f"{n:x}" * 40: model.Trusted(commit=f"{n:x}" * 40, how="ancestor") for n in range(commits)},
    )
    produced = model.Produced(benchmark="bench", matrices=tuple(matrices))
    names = [f"all.yaml:f{number}" for number in range(families)]
    judged = decide.judge(plan, rows, proofs, produced, families=names, current="f" * 40)
    ended = clock()
    entries_in_all = sum(len(each.entries) for each in matrices) * 5
    good = sum(verdict.verdict == "verified" for verdict in judged.verdicts)
    found = sum(reason.count for verdict in judged.verdicts for reason in verdict.reasons)
    print(
        f"judging: {len(rows)} rows, {entries_in_all // 2} producer entries and as many of today, {families} families"
    )
    print(f"  decode rows {decoded - began:.2f} s of CPU, judge {ended - decoded:.2f} s, malformed {malformed}")
    print(f"  {good} families verified; {found} of {drifted} drifted rows found; points {points(judged)}")
    print(
        f"  peak memory: {before} MB at start, {made} MB with rows and matrices as JSON values, {peak()} MB after judging"
    )
    began = clock()
    relied = judged.relied[names[0]]
    data = bundle.make(policy, rows, proofs, produced, family=names[0], current="f" * 40, relied=relied)
    made_in = clock() - began
    began = clock()
    problem = bundle.check(data).problem or "it repeats"
    size = len(data) // 1024
    print(f"  bundle of one family: {size} KiB, made in {made_in:.2f} s, checked in {clock() - began:.2f} s: {problem}")


clock = time.process_time
"""CPU seconds: the machine may be busy with other things."""


def points(judged: model.Judgement) -> int:
    """Return how many points are proven in all."""
    return sum(len(verdict.points) for verdict in judged.verdicts)


def published(entry: dict[str, object], conc: int, number: int) -> dict[str, object]:
    """Return one published row."""
    roles: dict[str, object] = {}
    for role in ("prefill", "decode"):
        roles |= {f"{role}_tp": entry["tp"], f"{role}_ep": entry["ep"]}
        roles |= {f"{role}_dp_attention": False, f"{role}_num_workers": 0}
    return {
        "model": entry["model-prefix"], "hardware": "h100", "framework": "fw", "precision": "fp8", "spec_method": "none",
        "disagg": False, "is_multinode": False, "benchmark_type": "single_turn", "isl": 1024, "osl": 1024, "conc": conc,
        "offload_mode": "off", "image": "reg/team/img:v1", **roles, "metrics": {"tput": 1.0 * conc, "ttft": 0.5},
        "date": "2026-03-20", "run_url": f"https://github.com/acme/bench/actions/runs/{number % 4 + 1}",
    }  # fmt: skip


def peak() -> int:
    """Return the peak resident memory of this process in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--yaml-kib", type=int, default=500)
    arguments = parser.parse_args()
    judging(arguments.rows)
    if arguments.yaml_kib:
        generation(arguments.yaml_kib, stable=False)
        generation(arguments.yaml_kib, stable=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
