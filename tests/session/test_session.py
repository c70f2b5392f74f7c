"""One session from claim to outcome, over real git and real child processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from klaud.leases import model as leases
from klaud.session import finish, model, run
from tests.support import session_bench

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[session_bench.Bench]:
    tmp_path.chmod(0o755)
    with session_bench.bench(tmp_path) as made:
        yield made


def pass_smoke(bench: session_bench.Bench, conclusion: str = "success") -> None:
    """Let every smoke run end some seconds after it was dispatched."""

    def dispatch(workflow: str, ref: str, inputs: dict[str, str]) -> int:
        head = bench.world.state.refs[f"refs/heads/{ref}"]
        run_id = bench.world.add_run(
            workflow, actor=bench.world.bot, head=head, branch=ref, title=inputs.get("marker", "")
        )
        bench.world.later(2.0, lambda: bench.world.finish_run(run_id, conclusion))
        return run_id

    bench.world.on_dispatch = dispatch


def test_a_session_parks_on_its_final_run_and_finish_validates_it(bench: session_bench.Bench) -> None:
    pass_smoke(bench)
    end = bench.run(bench.brief(bench.claim()))
    assert isinstance(end, run.Parked), (end, bench.log)
    assert (end.why, end.turn.status, end.turn.left) == ("final-run", "completed", 0)
    claim = bench.claim_now()
    assert claim is not None
    assert claim.holder is None
    assert claim.parked is not None
    assert claim.parked.on == end.on == (bench.final_runs()[0].id,)
    view = bench.view()
    pull = bench.world.state.pulls[view.number or 0]
    assert pull.draft
    assert pull.head_oid == view.head
    assert view.head in view.oids

    waits = run.finish_session(bench.host(7003), session_bench.WAVE, bench.candidate)
    assert not isinstance(waits, finish.Settled), "the final run still goes: nothing is settled"
    assert bench.claim_now() == claim

    bench.complete_final()
    answer = run.finish_session(bench.host(7004), session_bench.WAVE, bench.candidate)
    assert isinstance(answer, finish.Settled), (answer, bench.log)
    assert (answer.outcome.outcome, answer.left) == ("validated", ())
    assert not bench.world.state.pulls[pull.number].draft
    assert len(bench.world.state.comments[pull.number]) == 1
    assert bench.claim_now() is None
    assert bench.branch in bench.klaud_refs()

    before = len(bench.world.calls)
    again = run.finish_session(bench.host(7005), session_bench.WAVE, bench.candidate)
    assert isinstance(again, finish.Settled), "it can be repeated"
    assert again.outcome == answer.outcome
    assert not [call for call in bench.world.calls[before:] if call.write]


def test_a_failing_final_run_ends_failed_and_leaves_nothing(bench: session_bench.Bench) -> None:
    bench.policy = msgspec.structs.replace(bench.policy, budgets=model.Budgets(final_runs=1))
    pass_smoke(bench)
    bench.run(bench.brief(bench.claim()))
    number = bench.view().number
    bench.complete_final("failure", points=0)
    answer = run.finish_session(bench.host(7004), session_bench.WAVE, bench.candidate)
    assert isinstance(answer, finish.Settled), (answer, bench.log)
    assert (answer.outcome.outcome, answer.outcome.code) == ("failed", "final-run-failed")
    pull = bench.world.state.pulls[number or 0]
    assert (pull.state, pull.labels) == ("closed", ())
    refs = bench.klaud_refs()
    assert bench.branch not in refs
    assert any(ref.startswith("refs/klaud/archive/branch/") for ref in refs)
    assert bench.claim_now() is None
    memory = bench.lease_store(bench.refs_store()).look(bench.names.family(bench.candidate.partition("-")[0]))
    assert isinstance(memory, leases.Held)
    assert isinstance(memory.record, leases.FamilyMemory)
    attempt = memory.record.attempts[0]
    assert (attempt.outcome, attempt.blame) == ("failed", "candidate")
    assert attempt.until is not None


def test_a_failing_smoke_run_settles_at_once(bench: session_bench.Bench) -> None:
    pass_smoke(bench, "failure")
    end = bench.run(bench.brief(bench.claim()))
    assert isinstance(end, run.Ended), (end, bench.log)
    assert isinstance(end.answer, finish.Settled)
    assert (end.answer.outcome.outcome, end.answer.outcome.phase) == ("failed", "targeted")
    assert bench.claim_now() is None
    assert bench.branch not in bench.klaud_refs()


def test_a_second_dispatch_is_neutral_and_writes_nothing(bench: session_bench.Bench) -> None:
    pass_smoke(bench)
    brief = bench.brief(bench.claim())
    bench.run(brief)
    before = bench.git.refs()
    end = bench.run(brief, run_id=7009)
    # the claim is parked: only a continuation may take it, and a dispatch for the old claim is not one
    assert isinstance(end, run.NotOurs), end
    assert bench.git.refs() == before
