"""Has a person had a draft in hand? The parts of the answer that the session and recovery share. Pure.

klaud and the ignored accounts are known by exact id, other bots by GitHub's own account type, never by a name. A deleted
account is a person. Other bots touch by commit only. When somebody takes the hand-off label off again, what happened on the
timeline before that is forgotten; commits never are. Setting or removing an approval label is an answer to klaud's own
question, and no touch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from klaud import names

if TYPE_CHECKING:
    import datetime
    from collections.abc import Iterable, Iterator

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
"""Timeline entries that a person causes without acting on the draft (commits are judged by themselves)."""

LABELS = frozenset({"labeled", "unlabeled"})


class Who(msgspec.Struct, frozen=True, kw_only=True):
    """Account ids: klaud's own, and those that do not count as a person. ``approvals``: labels that answer klaud."""

    bot: int
    ignored: tuple[int, ...] = ()
    approvals: tuple[str, ...] = ()

    def person(self, account: hub.Account | None) -> bool:
        """Tell whether an account is a person (a deleted one is)."""
        return account is None or (account.id != self.bot and account.id not in self.ignored and account.type != "Bot")


def given_back_at(events: Iterable[hub.Event], who: Who) -> datetime.datetime | None:
    """Return when somebody last took the hand-off label off; a deleted account cannot be asked, so it gives nothing back."""
    times = [
        event.at
        for event in events
        if event.kind == "unlabeled"
        and event.detail == names.HANDOFF_LABEL
        and event.actor is not None
        and who.person(event.actor)
    ]
    return max(times, default=None)


def acts(detail: hub.PullDetail, who: Who) -> Iterator[hub.Event]:
    """Yield what persons did on the timeline since the draft was last given back."""
    since = given_back_at(detail.timeline.items, who)
    for event in detail.timeline.items:
        if event.kind in PASSIVE or (since is not None and event.at <= since):
            continue
        if event.kind in LABELS and event.detail in who.approvals:
            continue
        if who.person(event.actor):
            yield event


def edited(pull: hub.Pull, since: datetime.datetime | None, who: Who) -> datetime.datetime | None:
    """Return when a person last edited title or body, after ``since``; None where nobody did."""
    at = pull.body_edited_at
    return at if at is not None and who.person(pull.editor) and (since is None or at > since) else None


def approver(detail: hub.PullDetail, label: str, who: Who) -> hub.Account | None:
    """Return the person, one with an account, who was the last to set ``label``, where it still is set.

    The triage role may set labels too: whether the person may write is the caller's to ask. So is it to see to it that the
    label came after the head which it approves: klaud takes it off after each push.
    """
    if not label or label not in detail.pull.labels or not detail.timeline.complete:
        return None
    sets = [event for event in detail.timeline.items if event.kind in LABELS and event.detail == label]
    if not sets:
        return None
    last = max(enumerate(sets), key=lambda pair: (pair[1].at, pair[0]))[1]
    return last.actor if last.kind == "labeled" and who.person(last.actor) else None
