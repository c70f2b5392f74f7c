"""What a reviewer wrote, as a value that ``decide`` then judges. Pure."""

from __future__ import annotations

import re

from klaud.records import codec
from klaud.review import model

ANSWER_CHARACTERS = 20_000
"""The longest answer that is looked at: a decision is a few hundred."""

_FENCED = re.compile(r"\s*```(?:json)?\s*\n(.*)\n```\s*", re.DOTALL)


def read(text: str | None) -> model.Answered | model.Unanswered:
    """Return the one JSON value in ``text`` (a code fence around it is tolerated), or that there is none."""
    if text is None:
        return model.Unanswered(reason="decision-missing")
    if len(text) > ANSWER_CHARACTERS:
        return model.Unanswered(reason="decision-malformed")
    if match := _FENCED.fullmatch(text):
        text = match[1]
    value = codec.decode_document(text.strip().encode("utf-8", "replace"))
    if isinstance(value, codec.Refused):
        return model.Unanswered(reason="decision-malformed")
    return model.Answered(value=value)
