"""The vendor's SDK and its bundled program, against a scripted Messages API on loopback."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from klaud.session import finish, model, run
from tests.support import messages_api, session_bench

pytest.importorskip("claude_agent_sdk")

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[session_bench.Bench]:
    tmp_path.chmod(0o755)
    with session_bench.bench(tmp_path) as made:
        made.policy = msgspec.structs.replace(
            made.policy, framework="claude_sdk", entry_seconds=60.0, turn_seconds=90.0, silence_seconds=60.0,
            linger_seconds=5.0, budgets=model.Budgets(dollars=5),
        )  # fmt: skip
        yield made


def use(name: str, **arguments: Any) -> list[dict[str, Any]]:
    return [{"type": "tool_use", "name": name, "input": arguments}]


def ours(name: str, **arguments: Any) -> list[dict[str, Any]]:
    return use(f"mcp__klaud__{name}", **arguments)


def say(text: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text}]


EDIT = "sed -i '0,/codecs:v1/s//codecs:v2/' configs/codecs.yaml && git commit -q -a -m 'Use v2'"


@pytest.mark.slow
def test_the_real_program_edits_pushes_and_starts_the_final_run(bench: session_bench.Bench) -> None:
    replies = [
        use("Bash", command=EDIT, description="edit and commit"),
        ours("push_work", summary="v2"),
        ours("open_draft", title="zlib-text: v2", summary="Uses v2."),
        ours("start_final_run"),
        say("The final run was started."),
    ]
    with messages_api.serve(replies) as api:
        bench.environ = {"ANTHROPIC_API_KEY": messages_api.KEY, "ANTHROPIC_BASE_URL": api.url}
        end = bench.run(bench.brief(bench.claim()))
        assert isinstance(end, run.Parked), (end, bench.log, api.results)
        assert api.keys == {messages_api.KEY}
        assert (end.turn.status, end.turn.left, end.turn.usage.steps > 0) == ("completed", 0, True)
        assert end.turn.usage.input_tokens == 1000 * api.asked
        assert end.turn.usage.output_tokens == 100 * api.asked
    bench.complete_final()
    answer = run.finish_session(bench.host(7004), session_bench.WAVE, bench.candidate)
    assert isinstance(answer, finish.Settled), answer
    assert answer.outcome.outcome == "validated"
    assert answer.outcome.cost_microdollars > 0
