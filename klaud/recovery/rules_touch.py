"""Has a person had this draft in hand? Pure rules; any sign protects, and what cannot be read in full is a sign.

klaud and the ignored accounts are known by exact id, other bots by GitHub's own account type, never by a name. A deleted
account is a person. Other bots touch by commit only. When someone takes the hand-off label off again, what happened on the
timeline before that is forgotten; commits never are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klaud import names
from klaud.recovery import decide_cases, model

if TYPE_CHECKING:
    import datetime
    from collections.abc import Iterable, Iterator

    from klaud.github import model as github

GHOST = "a deleted account"
"""How an account is named that no longer exists."""

PASSIVE = frozenset(
    {"mentioned", "subscribed", "unsubscribed", "cross-referenced", "referenced", "connected", "disconnected"}
)
"""Timeline entries that a person causes without acting on the draft; ``committed`` is judged by the commits themselves."""


def is_person(account: github.Account | None, setting: model.Setting) -> bool:
    """Tell whether an account is neither klaud, nor ignored, nor a bot by GitHub's own word."""
    if account is None:
        return True
    return account.id != setting.bot and account.id not in setting.ignored and account.type != "Bot"


def who(account: github.Account | None) -> str:
    """Name an account for people."""
    return account.login if account is not None else GHOST


def given_back_at(events: Iterable[github.Event], setting: model.Setting) -> datetime.datetime | None:
    """Return when a person last took the hand-off label off."""
    times = [
        e.at
        for e in events
        if e.kind == "unlabeled"
        and e.detail == names.HANDOFF_LABEL
        and e.actor is not None
        and is_person(e.actor, setting)
    ]
    return max(times) if times else None


def touches(
    detail: github.PullDetail, case: model.Case, runs: Iterable[github.Run], setting: model.Setting
) -> Iterator[model.Touch]:
    """Yield every sign of a person on a pull request: commits first, then its face, its timeline and its runs."""
    since = given_back_at(detail.timeline.items, setting)
    yield from _by_commits(detail, case, setting)
    pull = detail.pull
    if is_person(pull.author, setting):
        yield model.Touch(what="opened the pull request", who=who(pull.author), at=pull.created_at)
    if not detail.timeline.complete:
        yield model.Touch(what=f"the timeline could not be read in full ({detail.timeline.why_not})", who="somebody")
    for event in detail.timeline.items:
        if event.kind == "committed" or event.kind in PASSIVE or (since is not None and event.at <= since):
            continue
        if is_person(event.actor, setting):
            yield model.Touch(what=event.kind, who=who(event.actor), at=event.at)
    edited = pull.body_edited_at
    if edited is not None and (since is None or edited > since) and is_person(pull.editor, setting):
        yield model.Touch(what="edited title or body", who=who(pull.editor), at=edited)
    yield from _by_runs(runs, since, setting)


def _by_commits(detail: github.PullDetail, case: model.Case, setting: model.Setting) -> Iterator[model.Touch]:
    commits, pull = detail.commits, detail.pull
    if not commits.complete or (pull.commit_count is not None and pull.commit_count != len(commits.items)):
        yield model.Touch(what="the commits could not be read in full", who="somebody")
        return
    own = decide_cases.own_oids(case.ledger) if case.ledger is not None else frozenset[str]()
    for commit in commits.items:
        if commit.oid in own:
            continue
        for account, email in ((commit.author, commit.author_email), (commit.committer, commit.committer_email)):
            if not is_own_commit(account, email, setting):
                yield model.Touch(
                    what=f"made commit {commit.oid[:12]}", who=who(account) if account else email or GHOST
                )
    if case.ledger is not None and not case.bad and pull.head_oid not in own:
        yield model.Touch(what=f"pushed {pull.head_oid[:12]}, which the ledger does not know", who="somebody")


def is_own_commit(account: github.Account | None, email: str, setting: model.Setting) -> bool:
    """Tell whether one side of a commit is klaud: by account, or, where GitHub names none, by the id in the address."""
    if account is not None:
        return account.id == setting.bot
    number, _, rest = email.partition("+")
    return number == str(setting.bot) and rest.endswith("@users.noreply.github.com")


def _by_runs(
    runs: Iterable[github.Run], since: datetime.datetime | None, setting: model.Setting
) -> Iterator[model.Touch]:
    for run in runs:
        if since is not None and run.updated_at <= since:
            continue
        for account, what in ((run.triggering_actor, "re-ran"), (run.actor, "started")):
            if is_person(account, setting):
                yield model.Touch(what=f"{what} run {run.id}", who=who(account), at=run.updated_at)
                break


def runs_about(detail: github.PullDetail, case: model.Case, index: decide_cases.Index) -> list[github.Run]:
    """Return the runs that say something about a draft: on any of its commits, or named by its ledger."""
    heads = {detail.pull.head_oid, *(c.oid for c in detail.commits.items)}
    found = {run.id: run for head in heads for run in index.by_head.get(head, ())}
    if case.ledger is not None:
        found.update((run.id, run) for run in index.runs(decide_cases.run_ids(case.ledger)))
    return [found[run_id] for run_id in sorted(found)]
