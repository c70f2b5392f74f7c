"""Has a person had a session's draft in hand? Pure; what the session and recovery share is ``leases.rules_touch``.

A commit that the ledger does not name as klaud's is somebody else's, whoever signed it. What cannot be read in full counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klaud.leases import rules_touch as rules

if TYPE_CHECKING:
    from collections.abc import Iterable

    from klaud.github import model as hub

Who = rules.Who


def touched(detail: hub.PullDetail, own: frozenset[str], runs: Iterable[hub.Run], who: Who) -> str:
    """Return the first sign of a person in words, or an empty text. ``own``: commits that the ledger names as klaud's."""
    if not detail.commits.complete:
        return "the commits could not be read in full"
    for commit in detail.commits.items:
        if commit.oid not in own:
            return f"commit {commit.oid[:12]} is not klaud's"
    if not detail.timeline.complete:
        return "the timeline could not be read in full"
    back = rules.given_back_at(detail.timeline.items, who)
    for event in rules.acts(detail, who):
        return f"{event.kind} by a person"
    if rules.edited(detail.pull, back, who) is not None:
        return "title or body were edited by a person"
    for run in runs:
        if who.person(run.triggering_actor) and (back is None or run.updated_at > back):
            return f"run {run.id} was started again by a person"
    return ""
