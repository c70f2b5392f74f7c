"""The outcome from facts, and whether results cover the frozen points."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest

from klaud.baselines import model as baselines
from klaud.baselines import schema
from klaud.leases import model as leases
from klaud.session import decide_outcome, model, rules_coverage, rules_ledger
from tests.support import session_bench
from tests.support.session_records import FLOWS, HOLDER, OID, final, pull

VIEW = rules_ledger.View(number=12, head=OID, oids=frozenset({OID}), finals=1)
VERIFIED = rules_coverage.Verified(2)


def read(facts: dict[str, Any]) -> decide_outcome.Facts:
    base: dict[str, Any] = {"pull": pull(), "finals": (final(),), "evidence": VERIFIED, "branch": OID}
    return decide_outcome.Facts(**{**base, **facts})


def judge(facts: dict[str, Any], view: rules_ledger.View = VIEW, hint: Any = None) -> decide_outcome.Answer:
    return decide_outcome.judge(read(facts), view, FLOWS, hint)


TABLE: list[tuple[dict[str, Any], tuple[str, str]]] = [
    ({}, ("validated", "")),
    ({"pull": pull(labels=("full-sweep", "klaud-handoff"))}, ("handoff", "handoff-label")),
    ({"pull": pull(merged=True, state="closed")}, ("handoff", "merged")),
    ({"pull": pull(state="closed")}, ("handoff", "closed")),
    ({"touched": "somebody"}, ("handoff", "touched")),
    ({"pull": pull(head_oid="b" * 40)}, ("handoff", "foreign-head")),
    ({"pull": pull(labels=())}, ("failed", "final-labels")),
    ({"pull": pull(labels=("full-sweep", "full-sweep-fast"))}, ("failed", "final-labels")),
    ({"pull": pull(labels=("full-sweep-fast",))}, ("failed", "final-labels")),
    ({"finals": (final(conclusion="failure"),)}, ("failed", "final-run-failed")),
    ({"finals": (final(conclusion="timed_out"),)}, ("failed", "infrastructure-timed-out")),
    ({"finals": (final(conclusion="cancelled"),)}, ("failed", "infrastructure-cancelled")),
    ({"finals": (final(conclusion="a_new_word"),)}, ("failed", "final-run-not-a-success")),
    ({"finals": (final(1, conclusion="failure"), final(2))}, ("validated", "")),
    ({"finals": (final(1), final(2, conclusion="failure"))}, ("failed", "final-run-failed")),
    ({"finals": (final(1), final(2, conclusion="skipped"))}, ("validated", "")),
    ({"evidence": rules_coverage.Wrong("not-covered", 1, 2)}, ("failed", "not-covered")),
    ({"finals": ()}, ("failed", "final-run-never-ran")),
    ({"pull": None}, ("failed", "no-draft")),
]


@pytest.mark.parametrize(("facts", "expected"), TABLE)
def test_the_outcome_is_computed_from_facts(facts: dict[str, Any], expected: tuple[str, str]) -> None:
    answer = judge(facts)
    assert isinstance(answer, decide_outcome.Judged)
    assert (answer.outcome, answer.code) == expected
    assert answer.pending[-1] == "release-claim"


WAITS: list[tuple[dict[str, Any], str]] = [
    ({"finals": (final(status="in_progress", conclusion=None),)}, "running"),
    ({"finals": (final(status="a_new_word", conclusion=None),)}, "running"),
    ({"finals": (final(1), final(2, status="queued", conclusion=None))}, "running"),
    ({"evidence": rules_coverage.Unreadable("expired", "gone")}, "unreadable"),
    ({"evidence": None}, "unreadable"),
    ({"finals": (), "finals_complete": False}, "incomplete"),
]


@pytest.mark.parametrize(("facts", "code"), WAITS)
def test_what_is_unknown_decides_nothing(facts: dict[str, Any], code: str) -> None:
    answer = judge(facts, hint=("failed", "x"))
    assert isinstance(answer, decide_outcome.NotYet)
    assert answer.code == code


@pytest.mark.parametrize("hint", [("validated", ""), ("failed", "x"), ("stalled", "silent"), None])
def test_a_hint_never_makes_an_outcome_better(hint: Any) -> None:
    """What the agent or its program said can only name the reason where nothing was achieved."""
    for facts, expected in TABLE[:17]:
        answer = judge(facts, hint=hint)
        assert isinstance(answer, decide_outcome.Judged)
        assert (answer.outcome, answer.code) == expected


def test_nothing_is_destroyed_that_is_not_klauds() -> None:
    for outcome, view in itertools.product(("handoff", "closed"), (VIEW,)):
        labels = ("klaud-handoff",) if outcome == "handoff" else ()
        answer = judge({"pull": pull(labels=labels, state="open" if labels else "closed")}, view)
        assert isinstance(answer, decide_outcome.Judged)
        assert not {"close-draft", "delete-branch", "mark-ready", "remove-label", "comment"} & set(answer.pending)
    answer = judge({"pull": None, "branch": "c" * 40})
    assert isinstance(answer, decide_outcome.Judged)
    assert "delete-branch" not in answer.pending


@pytest.mark.parametrize(
    ("view", "phase"),
    [({"finals": 1}, "final-run"), ({"smoke_runs": (1,)}, "targeted"), ({"turns": 1}, "resolve"), ({}, "unknown")],
)
def test_the_phase_is_how_far_it_came(view: dict[str, Any], phase: str) -> None:
    answer = judge({"pull": None, "branch": None}, rules_ledger.View(**view), ("stalled", "silent"))
    assert isinstance(answer, decide_outcome.Judged)
    assert (answer.phase, answer.outcome) == (phase, "stalled")


@pytest.mark.parametrize("conclusion", ["failure", "cancelled"])
def test_a_smoke_run_that_did_not_pass_is_a_fact_and_names_the_reason(conclusion: str) -> None:
    smoke = final(3, conclusion=conclusion)
    answer = judge({"pull": None, "smoke": smoke}, hint=("failed", "said-done"))
    assert isinstance(answer, decide_outcome.Judged)
    assert answer.code == ("smoke-run-failed" if conclusion == "failure" else "infrastructure-cancelled")
    answer = judge({"pull": None, "smoke": smoke}, hint=("stalled", "silent"))
    assert isinstance(answer, decide_outcome.Judged)
    assert answer.code == "silent"


def point(n: int) -> Any:
    return baselines.Point(
        row="0", identity={"model": "m", "streams": n, "image": "v1"}, metrics={"x": 10.0, "gone": 1.0}, run_id=1, attempt=1,
        commit=OID, proven="run", trusted="ancestor", entry=0,
    )  # fmt: skip


def row(n: int, metrics: dict[str, float] | None = None) -> Any:
    return baselines.Row(
        index=0, digest="0", identity=("m", n, "v2"), metrics={"x": 20.0} if metrics is None else metrics, run_url="",
        run_id=None, attempt=None,
    )  # fmt: skip


def plan() -> Any:
    return schema.plan(baselines.Policy(name="codecs", identity=session_bench.IDENTITY))


def test_coverage_is_by_identity_and_not_by_count() -> None:
    points = [point(1), point(2)]
    assert rules_coverage.cover(points, [row(1), row(2)], plan()) == rules_coverage.Verified(2, {"x": 2.0})
    answer = rules_coverage.cover(points, [row(1), row(3), row(4)], plan())
    assert isinstance(answer, rules_coverage.Wrong)
    assert (answer.code, answer.covered, answer.points) == ("not-covered", 1, 2)
    assert "streams=2" in answer.named[0]
    assert isinstance(rules_coverage.cover(points, [row(1), row(2, {})], plan()), rules_coverage.Wrong)
    assert rules_coverage.cover([], [row(1)], plan()) == rules_coverage.Wrong("no-points")


PARKED: list[tuple[dict[str, Any], Any, int, bool]] = [
    ({}, "smoke-run", 0, False),
    ({"pull": pull(state="closed")}, "smoke-run", 0, False),
    ({"finals": ()}, "smoke-run", 0, True),
    ({"finals": ()}, "job-limit", 0, True),
    ({"finals": ()}, "job-limit", 2, True),
    ({"finals": (final(conclusion="failure"),)}, "final-run", 1, True),
    ({"finals": (final(conclusion="failure"),)}, "final-run", 2, False),
    ({"pull": None, "finals": ()}, "smoke-run", 0, True),
    (
        {"finals": (final(conclusion="failure"), final(2)), "evidence": rules_coverage.Wrong("not-covered")},
        "final-run",
        1,
        False,
    ),
    ({"pull": pull(labels=())}, "final-run", 1, False),
]


@pytest.mark.parametrize(("facts", "why", "finals", "waits"), PARKED)
def test_a_parked_session_is_over_by_success_a_person_or_its_budget(
    facts: dict[str, Any], why: Any, finals: int, *, waits: bool
) -> None:
    """What it waits for may still come; a rule that settles every failure at once kills each session that parks."""
    judged = judge(facts)
    assert isinstance(judged, decide_outcome.Judged)
    parked = leases.ParkedHolder(on=(5,), by=HOLDER, why=why)
    view = msgspec.structs.replace(VIEW, spent=model.Spent(final_runs=finals))
    answer = decide_outcome.waits(judged, read(facts), parked, view, model.Budgets(final_runs=2))
    assert (answer is not None) is waits
    if answer is not None:
        assert (answer.code, answer.runs) == ("parked", (5,))


def test_without_a_final_run_the_hint_names_the_reason() -> None:
    never = msgspec.structs.replace(VIEW, finals=0)
    for view, hint, code in ((VIEW, ("failed", "budget"), "budget"), (never, None, "no-final-run")):
        answer = judge({"finals": ()}, view, hint)
        assert isinstance(answer, decide_outcome.Judged)
        assert answer.code == code
