"""Review: rules, then whoever is asked for the rest, then one decision for each candidate."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from klaud import errors
from klaud.review import decide, model, prompt

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_LOG = logging.getLogger(__name__)


def review(
    candidates: Sequence[model.Candidate],
    open_pulls: model.OpenPulls,
    policy: model.Policy,
    *,
    reviewer: model.Reviewer | None = None,
) -> model.ReviewResult:
    """Return one decision for each candidate, in order. ``reviewer`` is needed in the modes ``session`` and ``batch``.

    A reviewer that fails as a whole makes each candidate that it was asked about ``uncertain``; the others stand.
    """
    if policy.mode != "rules" and reviewer is None:
        raise errors.BugError(f"review mode {policy.mode} was started without a reviewer")
    first = [decide.by_rules(candidate, open_pulls, mode=policy.mode) for candidate in candidates]
    asked = [one for one in first if isinstance(one, model.Undecided) and len(one.pulls) <= policy.pulls_shown]
    answers: Mapping[str, model.Answered | model.Unanswered] | None = {}
    if asked and reviewer is not None:
        try:
            answers = reviewer.ask(tuple(prompt.question(one, policy) for one in asked))
        except errors.KlaudError as error:
            _LOG.warning("the reviewer could not be asked: %s", error)
            answers = None
    decisions = []
    for one in first:
        if isinstance(one, model.Decision):
            decisions.append(one)
        elif len(one.pulls) > policy.pulls_shown:
            decisions.append(decide.too_many(one))
        elif answers is None:
            decisions.append(decide.failed(one, policy.mode))
        else:
            decisions.append(decide.by_answer(one, answers.get(one.candidate.candidate), policy))
    return model.ReviewResult(
        mode=policy.mode,
        decisions=tuple(decisions),
        counts=decide.counts(decisions),
        batch_id=getattr(reviewer, "batch_id", ""),
    )
