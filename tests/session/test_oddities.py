"""Oddities that are about a session's own writes, by their ids (docs/oddities.md has them all)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from klaud.leases import model as leases
from klaud.session import finish, model, rules_scope, run
from tests.support import session_bench

if TYPE_CHECKING:
    from pathlib import Path

REFUSAL = (
    "refusing to allow a GitHub App to create or update workflow .github/workflows/ci.yml without workflows permission"
)


def test_L67_a_change_of_workflow_files_is_found_before_anything_is_pushed() -> None:  # noqa: N802 - the oddity's id
    """Whatever the configuration says is in scope."""
    wide = model.EditScope(files=("**",))
    change = rules_scope.Change(path=".github/workflows/ci.yml", old_mode="100644", new_mode="100644")
    answer = rules_scope.check([change], wide, session_bench.FAMILY)
    assert not isinstance(answer, rules_scope.InScope)


def test_L67_a_push_that_needs_the_workflows_right_has_its_own_code(  # noqa: N802 - the oddity's id
    tmp_path: Path,
) -> None:
    """The host refuses the branch: the session ends by name, its claim is released, and the family has no cool-down."""
    tmp_path.chmod(0o755)
    with session_bench.bench(tmp_path) as bench:
        hook = bench.git.repo / "hooks" / "update"
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f'#!/bin/sh\ncase "$1" in refs/heads/*) echo "{REFUSAL}" >&2; exit 1;; esac\n')
        hook.chmod(0o755)
        end = bench.run(bench.brief(bench.claim()))
        assert isinstance(end, run.Ended), (end, bench.log)
        assert isinstance(end.answer, finish.Settled), (end, bench.log)
        assert (end.answer.outcome.outcome, end.answer.outcome.code) == ("failed", "workflow-rights")
        assert bench.claim_now() is None
        assert bench.branch not in bench.klaud_refs()
        memory = bench.lease_store(bench.refs_store()).look(bench.names.family(bench.candidate.partition("-")[0]))
        assert isinstance(memory, leases.Held)
        assert isinstance(memory.record, leases.FamilyMemory)
        attempt = memory.record.attempts[0]
        assert (attempt.blame, attempt.until) == ("permission", None)


@pytest.mark.parametrize("holder", [7001, 7002])
def test_L84_the_clean_up_of_a_run_that_never_got_the_claim_frees_nothing(  # noqa: N802 - the oddity's id
    tmp_path: Path, holder: int
) -> None:
    """Whether the planner still holds it or another candidate run does: not its claim."""
    tmp_path.chmod(0o755)
    with session_bench.bench(tmp_path) as bench:
        bench.world.add_run("klaud-candidate.yml", actor=bench.world.bot, run_id=holder, status="in_progress")
        bench.claim(planner_run=holder)
        before = bench.git.refs()
        answer = run.finish_session(bench.host(7009), session_bench.WAVE, bench.candidate)
        assert not isinstance(answer, finish.Settled)
        assert bench.git.refs() == before
