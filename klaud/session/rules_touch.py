"""Has a person made this draft theirs? Pure; any sign protects, and what cannot be read in full is a sign.

klaud and the ignored accounts are known by exact id, other bots by GitHub's own word, never by a name; a deleted account is
a person. Other bots touch by commit only. After a person has taken the hand-off label off again, what happened on the
timeline before that is forgotten; commits never are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from klaud import names

if TYPE_CHECKING:
    from collections.abc import Iterable

    from klaud.github import model as hub

PASSIVE = frozenset(
    {
        "mentioned",
        "subscribed",
        "unsubscribed",
        "cross-referenced",
        "referenced",
        "connected",
        "disconnected",
        "committed",
    }
)
"""Timeline entries that are no act on the draft (commits are judged by themselves)."""


class Who(msgspec.Struct, frozen=True, kw_only=True):
    """Account ids: klaud's own, and those that do not count as a person."""

    bot: int
    ignored: tuple[int, ...] = ()

    def person(self, account: hub.Account | None) -> bool:
        """Tell whether an account is a person (a deleted one is)."""
        return account is None or (account.id != self.bot and account.id not in self.ignored and account.type != "Bot")


def touched(detail: hub.PullDetail, own: frozenset[str], runs: Iterable[hub.Run], who: Who) -> str:
    """Return the first sign of a person in words, or an empty text. ``own``: commits that the ledger names as klaud's."""
    if not detail.commits.complete:
        return "the commits could not be read in full"
    for commit in detail.commits.items:
        if commit.oid not in own:
            return f"commit {commit.oid[:12]} is not klaud's"
    if not detail.timeline.complete:
        return "the timeline could not be read in full"
    back = max(
        (
            event.at
            for event in detail.timeline.items
            if event.kind == "unlabeled" and event.detail == names.HANDOFF_LABEL and who.person(event.actor)
        ),
        default=None,
    )
    for event in detail.timeline.items:
        if event.kind not in PASSIVE and who.person(event.actor) and (back is None or event.at > back):
            return f"{event.kind} by a person"
    pull = detail.pull
    edited = pull.body_edited_at
    if edited is not None and who.person(pull.editor) and (back is None or edited > back):
        return "title or body were edited by a person"
    for run in runs:
        if who.person(run.triggering_actor) and (back is None or run.updated_at > back):
            return f"run {run.id} was started again by a person"
    return ""
