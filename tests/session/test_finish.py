"""Settling: a person between any two calls, a crash anywhere, and what is never done twice."""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from klaud import errors
from klaud.leases import model as leases
from klaud.session import decide_outcome, finish, model, run, tools
from tests.support.memory_world import Killed, Spoil

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.memory_world import Call

_SPEC = importlib.util.spec_from_file_location("kill_bench", Path(__file__).with_name("test_kill.py"))
assert _SPEC is not None
assert _SPEC.loader is not None
bench: Any = importlib.util.module_from_spec(_SPEC)
sys.modules["kill_bench"] = bench
_SPEC.loader.exec_module(bench)


def parked(place: Path, *, good: bool, final_runs: int = 1) -> Any:
    """A session that waits on its final run, which has ended well or badly; by default no other one is allowed."""
    session = bench.fresh(place)
    session.policy = msgspec.structs.replace(session.policy, budgets=model.Budgets(final_runs=final_runs))
    session.work_through()
    session.scene.world.finish_run(session.run_id)
    if good:
        session.end_runs()
    else:
        for one in list(session.scene.world.state.runs.values()):
            if one.path.endswith("bench-final.yml"):
                session.scene.world.finish_run(one.id, "failure")
    return session


def settle(session: Any, run_id: int = 0) -> Any:
    """Run ``klaud finish`` as a fresh process."""
    session.finisher_run = run_id or session.scene.world.add_run(
        "klaud-candidate.yml", actor=session.scene.world.bot, status="in_progress"
    )
    host = session.host()
    holder = leases.Holder(run_id=session.finisher_run, attempt=1, job="finish", nonce=f"{session.finisher_run:04x}")
    return run.finish_session(dataclasses.replace(host, holder=holder), session.wave, session.candidate)


def continued(session: Any, claim: str) -> None:
    """Continue a session as the planner's dispatch does, with nothing left to try."""
    run_id = session.scene.world.add_run("klaud-candidate.yml", actor=session.scene.world.bot, status="in_progress")
    holder = leases.Holder(run_id=run_id, attempt=1, job="candidate", nonce=f"{run_id:04x}")
    host = dataclasses.replace(session.host(), holder=holder)
    book = run.take_book(host, session.brief(), claim)
    assert not isinstance(book, run.NotOurs), book
    finish.settle(host.settling, book)
    session.scene.world.finish_run(run_id)


ACTS: dict[str, Callable[[Any, int], object]] = {
    "comment": lambda world, number: world.comment(number, "wait", by=world.alice),
    "label": lambda world, number: world.label(number, "klaud-handoff", by=world.alice),
    "push": lambda world, number: world.push(world.state.pulls[number].head_ref, "theirs", by=world.alice),
    "rename": lambda world, number: world.rename(number, "mine", by=world.alice),
    "close": lambda world, number: world.close(number, by=world.alice),
    "ready": lambda world, number: world.ready(number, by=world.alice),
}


def count_calls(place: Path, *, good: bool) -> int:
    session = parked(place, good=good)
    session.scene.world.calls.clear()
    answer = settle(session)
    assert isinstance(answer, finish.Settled)
    assert answer.outcome.outcome == ("validated" if good else "failed")
    return len(session.scene.world.calls)


@pytest.mark.parametrize("act", list(ACTS))
@pytest.mark.parametrize("good", [True, False])
def test_a_person_between_any_two_calls_wins(tmp_path: Path, act: str, *, good: bool) -> None:
    """Whatever a person does while klaud settles, their work stands at the end."""
    for k in range(count_calls(tmp_path, good=good)):
        session = parked(tmp_path, good=good)
        world = session.scene.world
        first = len(world.calls)
        number = next(iter(world.state.pulls))
        acted = []

        def person(call: Call, k: int = k, first: int = first, number: int = number, acted: list[bool] = acted) -> None:
            if call.k == first + k and world.state.pulls[number].open:  # noqa: B023 - called in this round only
                acted.append(True)
                ACTS[act](world, number)  # noqa: B023

        world.before.append(person)
        try:
            answer = settle(session)
        except errors.KlaudError as error:
            answer = error
        world.before.clear()
        if not acted:
            continue
        pull = world.state.pulls[number]
        where = f"{act} before call {k}: {answer}"
        branch = f"refs/heads/{pull.head_ref}"
        if act == "push":
            assert branch in world.state.refs, where
            assert pull.open, where
        elif act in {"label", "comment", "rename", "ready"}:
            assert pull.open, where
            assert branch in world.state.refs, where
        elif act == "close":
            assert not pull.open, where
        if act == "label":
            assert "klaud-handoff" in pull.labels


@pytest.mark.parametrize("good", [True, False])
@pytest.mark.parametrize("spoil", [Spoil.KILL_BEFORE, Spoil.KILL_AFTER, Spoil.LOSE, Spoil.FAIL])
def test_it_can_be_repeated_after_a_crash_at_any_point(tmp_path: Path, spoil: Spoil, *, good: bool) -> None:
    for k in range(count_calls(tmp_path, good=good)):
        session = parked(tmp_path, good=good)
        world = session.scene.world
        first = len(world.calls)
        world.rules.append(
            lambda call, k=k, first=first: (
                spoil if call.k == first + k and (spoil is not Spoil.LOSE or call.write) else None
            )
        )
        answer: Any = None
        try:
            answer = settle(session)
        except Killed:
            pass
        except errors.KlaudError:
            pass
        world.rules.clear()
        for _ in range(3):
            if (
                session.finisher_run in world.state.runs
                and world.state.runs[session.finisher_run].status != "completed"
            ):
                world.finish_run(session.finisher_run, "cancelled")
            session.recover()
            for held in session.scene.snapshot().claims.values():
                # a parked session whose run has failed is the planner's to continue
                continued(session, held.oid)  # type: ignore[union-attr]
        where = f"{spoil.name} at call {k}: {answer}"
        number = next(iter(world.state.pulls))
        pull = world.state.pulls[number]
        assert session.scene.snapshot().claims == {}, where
        outcomes = [record for record in session.ledger_records() if isinstance(record, leases.Outcome)]
        assert outcomes, where
        assert outcomes[-1].outcome == ("validated" if good else "failed"), where
        assert (pull.open, pull.draft) == ((True, False) if good else (False, True)), where
        assert (f"refs/heads/{pull.head_ref}" in world.state.refs) is good, where
        comments = [one for one in world.state.comments[number] if one.author and one.author.id == world.bot.id]
        assert len(comments) <= 2, (where, [one.body[:80] for one in comments])
        archived = [ref for ref in world.state.refs if ref.startswith("refs/klaud/archive/branch/")]
        assert bool(archived) is not good, where


@pytest.mark.parametrize("why", ["smoke-run", "job-limit", "final-run"])
@pytest.mark.parametrize("over", [False, True])
def test_the_finish_step_after_a_session_that_parked_leaves_it_to_a_continuation(
    tmp_path: Path, why: Any, *, over: bool
) -> None:
    """The candidate workflow runs ``finish`` after every session: what waits for a smoke run or a person is not over."""
    session = parked(tmp_path, good=False, final_runs=2)
    world = session.scene.world
    held = session.scene.snapshot().claims[session.scene.names.claim(session.candidate.partition("-")[0])]
    book = run.ledgers.Book(
        store=session.store(), refs=session.settling("session").refs, clock=world.clock,
        ledger=session.scene.snapshot().ledgers[session.scene.names.session(session.wave, session.candidate)], claim=held,
    )  # fmt: skip
    on = (session.last,) if why == "smoke-run" else ()
    assert run.park(session.host(), book, tools.Waiting(on, why), ())
    if not over:
        for one in list(world.state.runs.values()):
            if one.path.endswith("bench-final.yml"):
                world.state.runs[one.id] = msgspec.structs.replace(one, status="in_progress", conclusion=None)
    before = dict(world.state.refs)
    answer = settle(session)
    assert isinstance(answer, decide_outcome.NotYet), answer
    assert answer.code == ("parked" if over else "running")
    assert world.state.refs == before
    world.label(next(iter(world.state.pulls)), "klaud-handoff", by=world.alice)
    answer = settle(session)
    assert isinstance(answer, finish.Settled), "a person's word ends it at once"
    assert answer.outcome.outcome == "handoff"
