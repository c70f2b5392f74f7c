"""Every way an agent's program can misbehave ends within its bounds, with no process left and no record lost."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from klaud.session import decide, drive, model, sandbox
from tests.support.agent_faults import (
    CALL,
    POLICY,
    SECRET,
    TABLE,
    Desk,
    bound_of,
    drive_script,
    policy_of,
    strays,
)

if TYPE_CHECKING:
    from pathlib import Path

HOST = sandbox.find("best-effort")
SANDBOXES = [sandbox.NONE, *([HOST] if isinstance(HOST, sandbox.Sandbox) and HOST.parts else [])]


@pytest.fixture(params=SANDBOXES, ids=lambda found: found.words)
def box(request: pytest.FixtureRequest) -> sandbox.Sandbox:
    found: sandbox.Sandbox = request.param
    return found


@pytest.mark.parametrize("name", list(TABLE))
def test_fault_ends_within_its_bounds(tmp_path: Path, box: sandbox.Sandbox, name: str) -> None:
    """Outcome class, seconds, processes left (0), records lost (0), secrets (0)."""
    script, status, fault = TABLE[name]
    began = time.monotonic()
    policy = policy_of(fault)
    end, desk, log = drive_script(tmp_path, box, {"steps": CALL, **script}, policy=policy)
    seconds = time.monotonic() - began
    assert (end.status, end.fault) == (status, fault)
    assert seconds < bound_of(policy)
    assert end.left == 0
    assert strays(tmp_path) == []
    assert end.seconds <= seconds
    if status == "completed":
        assert [call for call, _ in desk.calls] == ["check_capacity"], "the records around the fault were not lost"
    assert SECRET not in "\n".join(log) + repr(end)


def test_L93_a_long_line_costs_that_record_only(tmp_path: Path) -> None:  # noqa: N802 - the oddity's id
    """A 20 MB line is refused and counted; memory stays flat; the turn goes on."""
    end, _, _ = drive_script(tmp_path, sandbox.NONE, {"fault": "long-line", "bytes": 20_000_000, "steps": CALL})
    assert (end.skipped_lines, end.results) == (1, 1)


def test_bad_and_torn_lines_are_counted(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    end, _, _ = drive_script(tmp_path / "a", sandbox.NONE, {"fault": "invalid-utf8", "steps": CALL})
    assert end.skipped_lines == 3
    end, _, _ = drive_script(tmp_path / "b", sandbox.NONE, {"fault": "torn-line", "steps": CALL})
    assert end.skipped_lines == 1


def test_L89_the_result_counts_when_the_agent_lingers(tmp_path: Path) -> None:  # noqa: N802 - the oddity's id
    began = time.monotonic()
    end, _, _ = drive_script(tmp_path, sandbox.NONE, {"fault": "hang-after-result", "steps": CALL})
    assert (end.status, end.results) == ("completed", 1)
    assert time.monotonic() - began < POLICY.linger_seconds + POLICY.teardown_seconds + 1


def test_L90_an_agent_that_falls_silent_is_stalled(tmp_path: Path) -> None:  # noqa: N802 - the oddity's id
    """The idle watchdog ends it, long before the turn's own limit, and the outcome has a class of its own."""
    policy = msgspec.structs.replace(POLICY, silence_seconds=0.5, turn_seconds=60.0)
    end, _, _ = drive_script(tmp_path, sandbox.NONE, {"fault": "hang-in-turn"}, policy=policy)
    assert (end.status, end.fault, end.left) == ("stalled", "silent", 0)
    assert end.seconds < policy.turn_seconds
    assert decide.outcome_of_turn(end) == ("stalled", "silent")


def test_L91_exit_0_is_not_a_success(tmp_path: Path) -> None:  # noqa: N802 - the oddity's id
    end, _, _ = drive_script(tmp_path, sandbox.NONE, {"fault": "no-result"})
    assert (end.status, end.exit_status, end.fault) == ("failed", 0, "no-result")


def test_L88_a_missing_program_has_its_own_class(tmp_path: Path, box: sandbox.Sandbox) -> None:  # noqa: N802 - the oddity's id
    end, _, _ = drive_script(tmp_path, box, {}, argv=("/nonexistent/agent",))
    assert (end.status, end.fault, end.entered) == ("failed", "missing-program", False)


def test_a_file_that_is_no_program(tmp_path: Path, box: sandbox.Sandbox) -> None:
    end, _, _ = drive_script(tmp_path, box, {}, argv=("/etc/ssl",))
    assert (end.status, end.fault) == ("failed", "start")


@pytest.mark.parametrize(("why", "status"), [("handoff", "interrupted"), ("paused", "paused"), ("job-limit", "paused")])
def test_an_interruption_ends_the_turn(tmp_path: Path, why: model.Fault, status: str) -> None:
    began = time.monotonic()

    def watch() -> model.Fault:
        return why if time.monotonic() - began > 0.4 else ""

    policy = msgspec.structs.replace(POLICY, silence_seconds=30.0, turn_seconds=30.0)
    end, _, _ = drive_script(tmp_path, sandbox.NONE, {"fault": "ignore-interrupt"}, policy=policy, watch=watch)
    assert (end.status, end.fault, end.left) == (status, why, 0)
    assert time.monotonic() - began < 0.4 + drive.IDLE_SECONDS + 2 * POLICY.teardown_step_seconds + 1.5


def test_an_interruption_is_heard_by_the_agent(tmp_path: Path) -> None:
    """The program gets the interrupt first, so that it can end in order."""
    began = time.monotonic()
    end, _, _ = drive_script(
        tmp_path,
        sandbox.NONE,
        {"steps": [{"do": "call", "tool": "check_capacity"}] * 10_000},
        policy=msgspec.structs.replace(POLICY, steps=100_000, turn_seconds=30.0),
        watch=lambda: "handoff" if time.monotonic() - began > 0.5 else "",
    )
    assert (end.status, end.fault) == ("interrupted", "handoff")


def test_output_has_a_bound(tmp_path: Path) -> None:
    policy = msgspec.structs.replace(POLICY, output_bytes=100_000, steps=1_000_000)
    end, _, _ = drive_script(tmp_path, sandbox.NONE, {"fault": "endless-steps"}, policy=policy)
    assert (end.status, end.fault) == ("failed", "output-limit")


class SlowDesk(Desk):
    """A tool that takes longer than the agent may be silent."""

    def call(self, name: str, arguments: dict[str, Any]) -> model.ToolAnswer:
        time.sleep(POLICY.silence_seconds * 1.5)
        return super().call(name, arguments)


def test_silence_does_not_count_while_a_tool_of_ours_is_open(tmp_path: Path) -> None:
    end, desk, _ = drive_script(tmp_path, sandbox.NONE, {"steps": CALL}, desk=SlowDesk())
    assert (end.status, len(desk.calls)) == ("completed", 1)
