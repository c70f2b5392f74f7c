"""Review by a read-only agent session: one bounded question after the other, each with an answer of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klaud import errors
from klaud.review import answers, model

if TYPE_CHECKING:
    from collections.abc import Callable


class SessionReviewer:
    """A Reviewer over a callable that puts one question to an agent.

    ``ask(system, prompt)`` returns the agent's text. It is bounded by whoever made it (one turn, its seconds and money),
    reads only, and raises a KlaudError where there is no answer: that costs this question and not the next.
    """

    def __init__(self, ask: Callable[[str, str], str]) -> None:
        self._ask = ask

    def ask(self, questions: tuple[model.Question, ...]) -> dict[str, model.Answered | model.Unanswered]:
        """Put each question, in order."""
        return {question.candidate: self._one(question) for question in questions}

    def _one(self, question: model.Question) -> model.Answered | model.Unanswered:
        try:
            return answers.read(self._ask(question.system, question.prompt))
        except errors.KlaudError:
            return model.Unanswered(reason="reviewer-failed")
