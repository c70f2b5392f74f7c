"""One bounded question to an agent that reads nothing and writes nothing: it answers by calling one tool, once.

The agent runs in the same sandbox and under the same bounds as a session's, in an empty folder that is removed on every
path, with no tool of its own. Its first answer counts; what it says besides is not looked at. An agent that ends without
an answer is an error of this question (``RetryLaterError``), never an empty text.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from klaud import errors
from klaud.session import frameworks, model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from klaud.session import sandbox as sandboxes

ANSWER_CHARACTERS = 20_000
"""The longest answer that is taken: a decision is a few hundred characters."""

REMINDERS = 2
"""How often an agent that wants to end without an answer is told to give one."""

SECONDS = 300.0
"""One question at most: it is answered from the prompt alone."""

STEPS = 20
"""Rounds of the agent with its model for one question."""

TOOL: dict[str, Any] = {
    "name": "answer",
    "description": "Give your answer, once. Nothing else that you write is read.",
    "inputSchema": {
        "type": "object",
        "properties": {"text": {"type": "string", "maxLength": ANSWER_CHARACTERS}},
        "required": ["text"],
        "additionalProperties": False,
    },
}


class _Answers:
    """The one tool. The first answer is kept; a later one is refused."""

    def __init__(self) -> None:
        self.text: str | None = None
        self._reminded = 0
        self._over = False

    def call(self, name: str, arguments: dict[str, Any]) -> model.ToolAnswer:
        """Take the answer."""
        if self.text is not None or self._over:
            return model.ToolAnswer(text="refused: no answer is taken any more; end now", refused="already-finished")
        text = arguments.get("text")
        if name != TOOL["name"] or not isinstance(text, str) or set(arguments) != {"text"}:
            return model.ToolAnswer(text='refused: call answer with {"text": "..."}', refused="bad-arguments")
        if len(text) > ANSWER_CHARACTERS:
            return model.ToolAnswer(text=f"refused: at most {ANSWER_CHARACTERS} characters", refused="bad-arguments")
        self.text = text
        return model.ToolAnswer(text="taken; end now")

    def must_go_on(self) -> str:
        """Return that the answer is missing, a few times."""
        if self.text is not None or self._reminded >= REMINDERS:
            return ""
        self._reminded += 1
        return "there is no answer yet: call the tool answer of the server klaud"

    def stop(self) -> None:
        """Take nothing more."""
        self._over = True


@dataclasses.dataclass(frozen=True, slots=True)
class _Place:
    agent_root: Path
    tree: Path
    home: Path


def put(
    system: str,
    prompt: str,
    *,
    policy: model.Policy,
    sandbox: sandboxes.Sandbox,
    environ: Mapping[str, str],
    log: Callable[[str], None],
) -> str:
    """Put one question and return the answer's text (at most ``ANSWER_CHARACTERS``).

    ``environ``: the model's credential and address, for klaud's proxy; the agent sees neither. RetryLaterError where the
    agent ended without an answer, with the closed word for why.
    """
    bounded = msgspec.structs.replace(
        policy,
        turn_seconds=min(policy.turn_seconds, SECONDS),
        silence_seconds=min(policy.silence_seconds, SECONDS),
        steps=min(policy.steps, STEPS),
    )
    answers = _Answers()
    with _folder(sandbox) as place:
        end = frameworks.run_turn(
            frameworks.Ask(
                sandbox=sandbox,
                work=place,
                prompt=f"{system}\nGive your answer by calling the tool answer of the server klaud.\n\n{prompt}",
                tools=answers,
                policy=bounded,
                watch=lambda: "",
                log=log,
                environ=environ,
                listed=lambda: [TOOL],
                own_tools=(),
            )
        )
    if answers.text is None:
        message = f"the agent ended without an answer ({end.fault or end.status})"
        raise errors.RetryLaterError(message)
    return answers.text


@contextlib.contextmanager
def _folder(sandbox: sandboxes.Sandbox) -> Iterator[_Place]:
    """Make an empty place that the sandbox's user owns, and take it away again."""
    with tempfile.TemporaryDirectory(prefix="klaud-question-", ignore_cleanup_errors=True) as name:
        root = Path(name)
        root.chmod(0o711)  # the agent's own user must get into its folders inside, and list nothing
        place = _Place(agent_root=root / "agent", tree=root / "agent" / "tree", home=root / "agent" / "home")
        for folder in (place.tree, place.home):
            folder.mkdir(parents=True)
        _own(sandbox, place.agent_root, sandbox.uid)
        try:
            yield place
        finally:
            _own(sandbox, place.agent_root, os.getuid() if sandbox.uid is not None else None)


def _own(sandbox: sandboxes.Sandbox, root: Path, uid: int | None) -> None:
    if uid is None:
        return
    if os.geteuid() != 0:
        sandbox.as_root("chown", "-R", "-h", f"{uid}:{uid}", str(root))
        return
    for folder, folders, files in os.walk(root):
        for name in (".", *folders, *files):
            os.chown(Path(folder, name), uid, uid, follow_symlinks=False)
