"""The vendor's SDK and its bundled program, against a scripted Messages API on loopback."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from klaud.github import model as hub
from klaud.session import finish, model, rules_redact, run, transcript
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


HEARD = "h-canary-0123456789"
"""A secret of klaud's that an agent has come to hear."""
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


@pytest.mark.slow
def test_a_handoff_in_mid_turn_ends_the_session_and_leaves_the_draft(bench: session_bench.Bench) -> None:
    """The maintainer's label is found by the heartbeat while the model thinks; nothing is written to the draft after it."""
    replies = [
        use("Bash", command=EDIT, description="edit and commit"),
        ours("push_work"),
        ours("open_draft", title="zlib-text: v2"),
        use("Bash", command="tail -f /dev/null", description="think"),
        say("never said"),
    ]
    with messages_api.serve(replies) as api:

        def label(number: int) -> None:
            if number == 3:
                draft = next(iter(bench.world.state.pulls.values()))
                bench.world.label(draft.number, "klaud-handoff", by=bench.world.alice)

        api.before = label
        bench.environ = {"ANTHROPIC_API_KEY": messages_api.KEY, "ANTHROPIC_BASE_URL": api.url}
        end = bench.run(bench.brief(bench.claim()))
    assert isinstance(end, run.Ended), (end, bench.log)
    assert isinstance(end.answer, finish.Settled)
    assert (end.answer.outcome.outcome, end.answer.outcome.code) == ("handoff", "handoff-label")
    assert end.turn is not None
    assert (end.turn.status, end.turn.fault, end.turn.left) == ("interrupted", "handoff", 0)
    pull = next(iter(bench.world.state.pulls.values()))
    assert (pull.state, pull.labels) == ("open", ("klaud-handoff",))
    assert bench.world.state.comments[pull.number] == ()
    assert bench.branch in bench.klaud_refs()
    assert bench.claim_now() is None


@pytest.mark.slow
def test_a_session_parks_on_its_smoke_run_and_is_continued_with_its_memory(bench: session_bench.Bench) -> None:
    """The smoke run takes too long: parked. It fails; another process continues, repairs, and the session is validated.

    The agent's own memory goes the way of an artifact, redacted, and its program finds it again.
    """
    bench.policy = msgspec.structs.replace(bench.policy, wait_run_seconds=3.0, transcripts="artifact")
    bench.world.repository = msgspec.structs.replace(bench.world.repository, private=True)
    kept = bench.place / "kept"
    kept.mkdir()
    real = bench.host

    def host(run_id: int = 7002) -> run.Host:
        redactor = rules_redact.Redactor([HEARD])
        keeper = transcript.Keeper(bench.gateway, bench.policy, redactor, kept, bench.log.append)
        return dataclasses.replace(real(run_id), transcripts=keeper)

    bench.host = host  # type: ignore[method-assign]
    first = [
        use("Bash", command=EDIT.replace("v2/'", "v3/'"), description="edit and commit"),
        ours("push_work"),
        ours("open_draft", title="zlib-text: v3"),
        use("Bash", command=f"echo remember {HEARD} and the number 271828", description="note"),
        ours("dispatch_smoke"),
        lambda said: ours("wait_for_run", run_id=int(said.split("run_id=")[1].split()[0])),
        say("The session is parked."),
    ]
    with messages_api.serve(first) as api:
        bench.environ = {"ANTHROPIC_API_KEY": messages_api.KEY, "ANTHROPIC_BASE_URL": api.url}
        end = bench.run(bench.brief(bench.claim()))
    assert isinstance(end, run.Parked), (end, bench.log)
    assert end.why == "smoke-run"
    bench.world.finish_run(end.on[0], "failure")
    (file,) = kept.iterdir()
    assert file.name == f"transcript-{bench.candidate}.jsonl"
    assert HEARD.encode() not in file.read_bytes()
    data = session_bench.packed_results(file.read_bytes(), file.name)
    bench.world.state.artifacts[7002] = (hub.Artifact(id=5, name="klaud-session-1", size=len(data), expired=False),)
    bench.world.state.blobs[5] = data
    claim = bench.lease_store(bench.refs_store()).look(bench.names.claim(bench.candidate.partition("-")[0]))
    second = [
        ours("read_run", run_id=end.on[0]),
        use("Bash", command="sed -i 's/codecs:v3/codecs:v2/' configs/codecs.yaml && git commit -q -a -m Repair",
            description="repair"),
        ours("push_work"),
        ours("start_final_run", retry="repair"),
        say("Started."),
    ]  # fmt: skip
    with messages_api.serve(second) as api:
        bench.environ = {"ANTHROPIC_API_KEY": messages_api.KEY, "ANTHROPIC_BASE_URL": api.url}
        again = bench.run(bench.brief(""), run_id=7050, claim=claim.oid)  # type: ignore[union-attr]
        assert isinstance(again, run.Parked), (again, bench.log, api.results)
        assert "continued" in api.wholes[0], "the agent is told what the session did before"
        assert "271828" in api.wholes[0], "and its own memory is there"
        assert HEARD not in api.wholes[0], "but not a secret that was in it"
        assert "conclusion=failure" in " ".join(api.results)
    assert again.why == "final-run"
    bench.complete_final()
    answer = run.finish_session(bench.host(7060), session_bench.WAVE, bench.candidate)
    assert isinstance(answer, finish.Settled), answer
    assert (answer.outcome.outcome, answer.outcome.repairs, answer.outcome.turns) == ("validated", 1, 2)
    kinds = [type(record).__name__ for record in bench.ledger()]
    assert kinds.count("Parked") == 2
    assert kinds.count("Continued") == 1
    indexes = [record.index for record in bench.ledger() if type(record).__name__ == "TurnEnded"]
    assert indexes == [0, 1]


@pytest.mark.slow
def test_a_session_is_stopped_by_its_budget(bench: session_bench.Bench) -> None:
    """Tokens are counted by the proxy from the host's answers; over the budget no request is forwarded."""
    bench.policy = msgspec.structs.replace(bench.policy, budgets=model.Budgets(tokens=2500))
    replies: list[Any] = [use("Bash", command="true", description="nothing")] * 50
    with messages_api.serve(replies) as api:
        bench.environ = {"ANTHROPIC_API_KEY": messages_api.KEY, "ANTHROPIC_BASE_URL": api.url}
        end = bench.run(bench.brief(bench.claim()))
        assert api.asked == 3, "1100 tokens an answer: the third is the last that was still within the budget"
    assert isinstance(end, run.Ended), (end, bench.log)
    assert end.turn is not None
    assert (end.turn.fault, end.turn.left) == ("budget", 0)
    assert isinstance(end.answer, finish.Settled)
    assert (end.answer.outcome.outcome, end.answer.outcome.code) == ("failed", "budget")
    assert bench.claim_now() is None


def test_without_a_key_no_agent_starts_and_no_file_is_made(bench: session_bench.Bench) -> None:
    end = bench.run(bench.brief(bench.claim()))
    assert isinstance(end, run.Ended)
    assert end.turn is None
    assert not list(bench.place.glob("session-1/*"))
    assert isinstance(end.answer, finish.Settled)
    assert (end.answer.outcome.outcome, end.answer.outcome.code) == ("agent-never-ran", "authentication")
    assert any("ANTHROPIC_API_KEY" in line for line in bench.log)
