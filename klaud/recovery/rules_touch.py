"""Has a person had this draft in hand? Pure rules; any sign protects, and what cannot be read in full is a sign.

Who is a person, and what on the timeline is an act of theirs, is ``leases.rules_touch``, which the session asks as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klaud.leases import rules_touch as rules
from klaud.recovery import decide_cases, model

if TYPE_CHECKING:
    import datetime
    from collections.abc import Iterable, Iterator

    from klaud.github import model as github

GHOST = "a deleted account"
"""How an account is named that no longer exists."""


def people(setting: model.Setting) -> rules.Who:
    """Return who counts as a person in this repository."""
    return rules.Who(bot=setting.bot, ignored=tuple(setting.ignored), approvals=tuple(sorted(setting.approval_labels)))


def is_person(account: github.Account | None, setting: model.Setting) -> bool:
    """Tell whether an account is neither klaud, nor ignored, nor a bot by GitHub's own word."""
    return people(setting).person(account)


def who(account: github.Account | None) -> str:
    """Name an account for people."""
    return account.login if account is not None else GHOST


def touches(
    detail: github.PullDetail, case: model.Case, runs: Iterable[github.Run], setting: model.Setting
) -> Iterator[model.Touch]:
    """Yield every sign of a person on a pull request: commits first, then its face, its timeline and its runs."""
    persons = people(setting)
    since = rules.given_back_at(detail.timeline.items, persons)
    yield from _by_commits(detail, case, setting)
    pull = detail.pull
    if is_person(pull.author, setting):
        yield model.Touch(what="opened the pull request", who=who(pull.author), at=pull.created_at)
    if not detail.timeline.complete:
        yield model.Touch(what=f"the timeline could not be read in full ({detail.timeline.why_not})", who="somebody")
    for event in rules.acts(detail, persons):
        yield model.Touch(what=event.kind, who=who(event.actor), at=event.at)
    edited = rules.edited(pull, since, persons)
    if edited is not None:
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
    if case.ledger is not None and pull.head_oid not in own:
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
