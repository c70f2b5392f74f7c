"""One bounded question to an agent: its first answer counts, and no answer is an error, never an empty text."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from klaud import errors
from klaud.review import model as reviewed
from klaud.review import session as reviewing
from klaud.session import model, question, sandbox

if TYPE_CHECKING:
    from pathlib import Path

DECISION = json.dumps({"decision": "duplicate", "pulls": [7], "names": [], "reason": "it changes the same image"})


def put(tmp_path: Path, steps: list[dict[str, Any]], isolation: str = "best-effort", fault: str = "") -> str:
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"steps": steps, "fault": fault}), encoding="utf-8")
    script.chmod(0o644)
    policy = model.Policy(framework="scripted", script=str(script), turn_seconds=8.0, entry_seconds=5.0)
    found = sandbox.find(isolation)  # type: ignore[arg-type]
    assert isinstance(found, sandbox.Sandbox)
    return question.put(
        "Say what you see.", "<data>\n{}\n</data>\n", policy=policy, sandbox=found, environ={}, log=lambda _: None
    )


def answer(text: str) -> dict[str, Any]:
    return {"do": "call", "tool": "answer", "arguments": {"text": text}}


def test_the_answer_comes_back_as_it_was_given(tmp_path: Path) -> None:
    assert put(tmp_path, [{"do": "say", "text": "thinking"}, answer(DECISION)], isolation="none") == DECISION


def test_the_first_answer_counts(tmp_path: Path) -> None:
    assert put(tmp_path, [answer("first"), answer("second")], isolation="none") == "first"


@pytest.mark.parametrize(
    "steps",
    [
        [{"do": "say", "text": DECISION}],
        [{"do": "call", "tool": "push_work", "arguments": {"summary": "x"}}],
        [{"do": "call", "tool": "answer", "arguments": {"text": 7}}],
        [{"do": "call", "tool": "answer", "arguments": {"text": "x", "more": 1}}],
        [answer("x" * (question.ANSWER_CHARACTERS + 1))],
    ],
    ids=["said, not answered", "another tool", "no text", "more than a text", "too long"],
)
def test_what_is_no_answer_is_an_error_of_the_question(tmp_path: Path, steps: list[dict[str, Any]]) -> None:
    with pytest.raises(errors.RetryLaterError, match="without an answer"):
        put(tmp_path, steps, isolation="none")


def test_an_agent_that_crashes_after_its_answer_has_answered(tmp_path: Path) -> None:
    assert put(tmp_path, [answer("kept"), {"do": "no such step"}], isolation="none") == "kept"


@pytest.mark.skipif(os.geteuid() != 0, reason="the strongest sandbox needs root here")
def test_the_agent_has_an_empty_folder_and_no_credential(tmp_path: Path) -> None:
    """What it can see is said back through its only tool's refusal-free answer: nothing of klaud's."""
    look = "import os,json;print(json.dumps([sorted(os.listdir('.')), sorted(k for k in os.environ if 'KEY' in k)]))"
    steps = [
        {"do": "run", "command": ["/usr/bin/env", "python3", "-c", look]},
        {"do": "require", "text": "[[], []]"},
        answer("empty"),
    ]
    assert put(tmp_path, steps) == "empty"


def test_a_reviewer_over_it_decides_each_question_alone(tmp_path: Path) -> None:
    asked: list[str] = []

    def ask(system: str, prompt: str) -> str:
        del system
        asked.append(prompt)
        steps = [answer(DECISION)] if prompt == "good" else [{"do": "say", "text": "no idea"}]
        return put(tmp_path, steps, isolation="none")

    questions = tuple(reviewed.Question(candidate=one, system="s", prompt=one) for one in ("good", "bad"))
    found = reviewing.SessionReviewer(ask).ask(questions)
    assert asked == ["good", "bad"]
    assert found["good"] == reviewed.Answered(value=json.loads(DECISION))
    assert found["bad"] == reviewed.Unanswered(reason="reviewer-failed")
