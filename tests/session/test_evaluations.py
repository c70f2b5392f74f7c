"""Evaluations: where they are required nothing is validated without them, and none stands in for a measured point."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from klaud.baselines import codec, schema
from klaud.baselines import model as baselines
from klaud.session import evidence, finish, model, rules_coverage, run
from tests.support import session_bench

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NEED = model.Evaluations(need="required", field="kind", by=("streams",))
PLAN = schema.plan(baselines.Policy(name="codecs", identity=session_bench.IDENTITY))


def row(streams: int, *, kind: str = "", metrics: Any = None, name: str = "zlib") -> dict[str, Any]:
    found = {"model": name, "streams": streams, "image": "codecs:v2", "metrics": metrics or {"mb_per_s": 20.0}}
    return found | ({"kind": kind} if kind else {})


POINTS = [row(1), row(2)]
EVALUATED = [row(1, kind="evaluation"), row(2, kind="evaluation")]

CASES: dict[str, tuple[list[dict[str, Any]], str]] = {
    "all there": ([*POINTS, *EVALUATED], "verified"),
    "none": (POINTS, "no-evaluations"),
    "one group without": ([*POINTS, EVALUATED[0]], "no-evaluations"),
    "of another family": ([*POINTS, EVALUATED[0], row(2, kind="evaluation", name="bz2")], "no-evaluations"),
    "without a metric": ([*POINTS, EVALUATED[0], row(2, kind="evaluation", metrics={"note": "n/a"})], "no-evaluations"),
    "of nearly the right kind": ([*POINTS, EVALUATED[0], row(2, kind="Evaluation")], "no-evaluations"),
    "instead of the points": ([POINTS[0], *EVALUATED], "not-covered"),
}


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[session_bench.Bench]:
    tmp_path.chmod(0o755)
    with session_bench.bench(tmp_path) as made:
        yield made


def judge(bench: session_bench.Bench, rows: list[Any], wanted: model.Evaluations | None) -> rules_coverage.Evidence:
    head = bench.base
    run_id = bench.world.add_run("bench-final.yml", actor=bench.world.bot, head=head, branch="main")
    bench.put_results(run_id, json.dumps(rows).encode())
    bench.world.finish_run(run_id, "success")
    found = bench.gateway.run(run_id)
    return evidence.judge(
        bench.gateway, found, evidence.load(bench.bundle, None), plan=PLAN, repository="acme/bench", host="github.com",  # type: ignore[arg-type]
        artifact="benchmark-results", limit=1_000_000, evaluations=wanted,
    )  # fmt: skip


def test_every_case(bench: session_bench.Bench) -> None:
    for name, (rows, wanted) in CASES.items():
        answer = judge(bench, rows, NEED)
        got = answer.code if isinstance(answer, rules_coverage.Wrong) else "verified"
        assert got == wanted, name


def test_a_judge_that_asks_for_no_evaluation_is_caught_by_the_cases(bench: session_bench.Bench) -> None:
    """The broken twin is the judge with the requirement off."""
    got = {name: judge(bench, rows, None) for name, (rows, _) in CASES.items()}
    passed = {name for name, answer in got.items() if isinstance(answer, rules_coverage.Verified)}
    assert passed >= {"none", "one group without", "instead of the points"}


def test_what_is_missing_is_named(bench: session_bench.Bench) -> None:
    answer = judge(bench, [*POINTS, EVALUATED[0]], NEED)
    assert answer == rules_coverage.Wrong("no-evaluations", 1, 2, ("the evaluation of streams=2",))
    answer = judge(bench, POINTS, msgspec.structs.replace(NEED, by=()))
    assert answer == rules_coverage.Wrong("no-evaluations", 0, 1, ("the evaluation of this family",))


def test_a_group_by_a_field_that_is_not_there_decides_nothing(bench: session_bench.Bench) -> None:
    answer = judge(bench, [*POINTS, *EVALUATED], msgspec.structs.replace(NEED, by=("isl",)))
    assert isinstance(answer, rules_coverage.Unreadable)
    assert answer.code == "configuration"


def test_a_row_is_an_evaluation_by_exactly_its_field() -> None:
    deep = model.Evaluations(need="required", field="labels.kind", value="eval")
    assert rules_coverage.is_evaluation({"labels": {"kind": "eval"}}, deep)
    strange: tuple[Any, ...] = ({"labels": "eval"}, {"labels": {"kind": ["eval"]}}, {"kind": "eval"}, None, [], "eval")
    for raw in strange:
        assert not rules_coverage.is_evaluation(raw, deep)
    decoded = codec.RowCodec(PLAN, repository="acme/bench", host="github.com").decode_all(POINTS)
    assert [one.index for one in decoded.rows] == [0, 1], "a row is found again by its place"


def test_finish_validates_with_evaluations_only(bench: session_bench.Bench) -> None:
    bench.workflows = msgspec.structs.replace(bench.workflows, evaluations=NEED)
    bench.policy = msgspec.structs.replace(bench.policy, wait_run_seconds=0.5)

    def dispatch(workflow: str, ref: str, inputs: dict[str, str]) -> int:
        head = bench.world.state.refs[f"refs/heads/{ref}"]
        number = bench.world.add_run(
            workflow, actor=bench.world.bot, head=head, branch=ref, title=inputs.get("marker", "")
        )
        bench.world.finish_run(number, "success")
        return number

    bench.world.on_dispatch = dispatch
    end = bench.run(bench.brief(bench.claim()))
    assert isinstance(end, run.Parked), (end, bench.log)
    bench.put_results(end.on[0], json.dumps(POINTS).encode())
    bench.world.finish_run(end.on[0], "success")
    answer = run.finish_session(bench.host(7004), session_bench.WAVE, bench.candidate)
    assert isinstance(answer, finish.Settled), (answer, bench.log)
    assert (answer.outcome.outcome, answer.outcome.code) == ("failed", "no-evaluations")
    comments = [one.body for many in bench.world.state.comments.values() for one in many]
    assert any("missing: the evaluation of streams=1" in body for body in comments), comments
