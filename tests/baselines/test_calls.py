"""Several families in one process: a list, a whole matrix, klaud's driver; and what one of them cannot do to another."""

from __future__ import annotations

import json

import msgspec

from klaud.baselines import model, sandbox, settings
from tests.support.benchmarks import FAST, LAYOUTS, SPLIT, History, Repository, policy
from tests.support.generating import BOTH, OLD, made, matrices, script

LISTED = msgspec.structs.replace(
    LAYOUTS[0],
    commands=(
        (
            "{python}",
            "{root}/tools/matrix.py",
            "test-config",
            "--config-files",
            "{configs}",
            "--config-keys",
            "{families}",
        ),
    ),
    family_field="family",
)


def test_a_list_of_families_is_one_call(history: History, box: sandbox.Sandbox) -> None:
    produced = made(policy(generator={"layouts": (LISTED,)}), history, box, {history.tip: BOTH})
    assert produced.calls == 1
    assert [len(matrices(produced)[history.tip, family].entries) for family in BOTH] == [2, 1]


def test_a_broken_family_in_a_list_fails_alone(history: History, box: sandbox.Sandbox) -> None:
    gone = "configs/all.json:gone"
    produced = made(policy(generator={"layouts": (LISTED,)}), history, box, {history.tip: (*BOTH, gone)})
    codes = {each.family: getattr(each, "code", "made") for each in produced.matrices}
    assert codes == {FAST: "made", SPLIT: "made", gone: "generator-failed"}
    assert produced.calls == 1 + 3


def test_a_whole_matrix_is_one_call_for_all(repository: Repository, box: sandbox.Sandbox) -> None:
    entries = [{"who": "a", "n": 1}, {"who": "b", "n": 2}, {"who": "a", "n": 3}]
    files, policy_ = script(
        f"print({json.dumps(entries)!r})", commands=(("{python}", "{root}/gen.py"),), family_field="who"
    )
    commit = repository.commit(files)
    produced = made(policy_, repository, box, {commit: ("c.json:a", "c.json:b", "c.json:none")})
    assert produced.calls == 1
    assert [len(each.entries) for each in matrices(produced).values()] == [2, 1, 0]


def test_the_driver_runs_all_families_in_one_process_with_the_same_result(
    history: History, box: sandbox.Sandbox, periods: model.Produced
) -> None:
    driven = tuple(msgspec.structs.replace(layout, driver="python") for layout in LAYOUTS)
    needs = dict.fromkeys((history.flat, history.without, history.tip), BOTH)
    one = made(policy(generator={"layouts": driven}), history, box, needs)
    assert matrices(one) == matrices(periods)
    assert one.calls == 4  # 3, and one for the alternative; the driver leaves an unknown option out by itself
    assert periods.calls == 9  # 6, and one for each of the three things to be learned


DRIVEN = """
import argparse, json, pathlib, sys, time, yaml
parser = argparse.ArgumentParser(); parser.add_argument("--key"); parser.add_argument("--file")
args = parser.parse_args()
first = yaml.safe_load(pathlib.Path(args.file).read_text())
first[args.key].append("edited in place")
with open(args.file) as stream: again = yaml.load(stream, Loader=yaml.SafeLoader)
if args.key == "slow":
    time.sleep(60)
if args.key == "dead": sys.exit("no " + args.key)
if args.key == "loud": raise ValueError("x")
if args.key == "bytes": sys.stdout.buffer.write(b'[{"n": "\\xff"}]'); sys.exit()
print(json.dumps([{"n": each} for each in again[args.key]]))
"""


def test_the_driver_keeps_jobs_apart_and_bounded(repository: Repository, box: sandbox.Sandbox) -> None:
    keys = ("one", "dead", "two", "loud", "slow", "three", "bytes")
    files, policy_ = script(
        DRIVEN, commands=(("{python}", "{root}/gen.py", "--key", "{family}", "--file", "{configs}"),), driver="python",
        configs=("configs/all.yaml",),
    )  # fmt: skip
    text = "".join(f"{key}: [{key}-1, {key}-2]\n" for key in keys)
    commit = repository.commit({**files, "configs/all.yaml": text})
    quick = OLD(policy_, generator=OLD(policy_.generator, bounds=settings.Bounds(seconds=2)))
    produced = made(quick, repository, box, {commit: tuple(f"configs/all.yaml:{key}" for key in keys)})
    found = {
        each.family.partition(":")[2]: [entry["n"] for entry in each.entries]
        if isinstance(each, model.Matrix)
        else each.error
        for each in produced.matrices
    }
    assert found == {
        "one": ["one-1", "one-2"], "two": ["two-1", "two-2"], "three": ["three-1", "three-2"],
        "dead": "exit status 1", "loud": "exit status 1", "slow": "it took longer than 2 s",
        "bytes": "its output is no matrix: it is not UTF-8",
    }  # fmt: skip
    assert produced.calls == 1 + 1  # what is no text is asked for again, alone


def test_a_job_that_kills_the_driver_takes_no_other_family_along(repository: Repository, box: sandbox.Sandbox) -> None:
    body = "import os, sys\nif sys.argv[2] == 'b': os.kill(os.getppid(), 9)\nprint('[{}]')"
    files, policy_ = script(body, driver="python")
    commit = repository.commit(files)
    families = tuple(f"configs/all.json:{key}" for key in "abc")
    produced = made(policy_, repository, box, {commit: families})
    assert [(each.family[-1], isinstance(each, model.Matrix)) for each in produced.matrices] == [
        ("a", True), ("b", True), ("c", True),
    ]  # fmt: skip
    assert produced.calls == 1 + 2  # b and c by themselves, where there is no driver to kill


def test_what_a_job_writes_past_the_driver_moves_no_familys_answer(
    repository: Repository, box: sandbox.Sandbox
) -> None:
    """A line of its own in the driver's output, and one that claims to be another job's: that one is asked alone."""
    body = """
import json, os, sys
key = sys.argv[2]
try:
    out = os.open(f"/proc/{os.getppid()}/fd/1", os.O_WRONLY)
    if key == "a": os.write(out, b"garbage\\n")
    said = {"job": 2, "tries": [{"used": [], "exit": 0, "stdout": "[]", "stderr": ""}]}
    if key == "b": os.write(out, json.dumps(said).encode() + b"\\n")
except OSError: pass
print(json.dumps([{"key": key}]))
"""
    files, policy_ = script(body, driver="python")
    commit = repository.commit(files)
    produced = made(policy_, repository, box, {commit: tuple(f"configs/all.json:{key}" for key in "abc")})
    found = {each.family[-1]: each.entries for each in matrices(produced).values()}
    assert found == {key: ({"key": key},) for key in "abc"}
    if box.isolation.method == "namespaces":
        assert produced.calls == 2
