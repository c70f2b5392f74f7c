"""Is this planner run who it should be, and may it do what it will have to? Reads only; nothing is spent.

Own run first, then identity, then rights, then the workflows. A wrong identity or a lacking right is an error that stops
the wave (``stops``), with what to change; what could not be read stops it too, as a temporary failure: who one is and what
one may is never assumed.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Literal

import msgspec

from klaud import errors
from klaud.github import model as github
from klaud.planner import rules_branch, rules_schedule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from klaud.github import gateway as gateways
    from klaud.github import rulesets
    from klaud.leases import model as leases

ACTIVE = "active"
"""GitHub's word for a workflow that may run."""

BRANCH = "klaud/auto-0000000000000000-0000000000000000"
"""A branch as klaud names them: rules are asked for by name, whether the branch exists or not."""


@dataclasses.dataclass(frozen=True, slots=True)
class Rules:
    """How the repository's rules are read, and the e-mail address of klaud's commits that some of them look at."""

    read: Callable[[str], tuple[rulesets.Held, ...] | str]
    email: str


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was looked at. ``stops``: nothing may be written while it is so. ``status``: what to exit with."""

    name: str
    result: Literal["ok", "wrong", "unknown"]
    what: str
    fix: str = ""
    stops: bool = False
    status: int = 1


def checks(
    gateway: gateways.Gateway,
    *,
    bot: int,
    me: leases.Holder | None,
    workflows: Sequence[str],
    list_refs: Callable[[], Mapping[str, str]],
    paused: str | None,
    ref: str = "",
    crons: Sequence[str] = (),
    rules: Rules | None = None,
) -> tuple[Check, ...]:
    """Return every check, in order. ``ref``: the git ref that this run was started on; ``crons``: the planner's schedule.

    ``rules``: None where the repository's rules for branches are not to be read.
    """
    found = list(_paused(paused))
    made: tuple[Callable[[], Iterable[Check]], ...] = (
        lambda: _own_run(gateway, me, crons),
        lambda: _identity(gateway, bot),
        lambda: _repository(gateway, ref),
        lambda: _refs(list_refs),
        lambda: () if rules is None else branch_rules(rules),
        *(functools.partial(_workflow, gateway, name) for name in workflows),
    )
    for check in made:
        try:
            found += check()
        except errors.ForbiddenError as error:
            found.append(Check(name="rights", result="wrong", what=str(error), fix=error.advice, stops=True, status=3))
        except errors.KlaudError as error:
            found.append(_unread(error))
            if isinstance(error, errors.RetryLaterError):
                break  # the retry policy has waited once already; the other reads would each wait again
    return tuple(found)


def _unread(error: errors.KlaudError) -> Check:
    return Check(
        name="reading", result="unknown", what=str(error), fix=error.advice, stops=True, status=error.exit_status
    )


def _paused(why: str | None) -> Iterable[Check]:
    if why is None:
        yield Check(name="paused", result="ok", what="klaud is not paused")
    else:
        fix = "unset the variable KLAUD_PAUSED, or set paused: false, when klaud may write again"
        yield Check(name="paused", result="wrong", what=why, fix=fix, stops=True)


def _own_run(gateway: gateways.Gateway, me: leases.Holder | None, crons: Sequence[str]) -> Iterable[Check]:
    if me is None:
        yield Check(name="own run", result="ok", what="outside of Actions: there is no run of our own to be read")
        return
    own = gateway.run(me.run_id)
    if isinstance(own, github.Missing):
        text = f"our own run {me.run_id} answers 404: with this token no run can be proven gone"
        fix = "give the token the permission actions: read"
        yield Check(name="own run", result="wrong", what=text, fix=fix, stops=True, status=3)
        return
    yield Check(name="own run", result="ok", what=f"our own run {me.run_id} can be read")
    yield from punctual(own, crons)


def branch_rules(rules: Rules) -> Iterable[Check]:
    """Name each rule of the repository that refuses klaud's branches, or may."""
    held = rules.read(BRANCH)
    if isinstance(held, str):
        yield Check(
            name="rules", result="ok", what=f"not known: {held}; a rule that refuses klaud shows at the first push"
        )
        return
    bad = False
    for one in held:
        found = rules_branch.refusal(one.rule.type, one.rule.parameters, branch=BRANCH, email=rules.email)
        if found is None:
            continue
        name = f"the ruleset {one.ruleset.name!r}" if one.ruleset is not None else "a ruleset"
        if one.ruleset is not None and one.ruleset.bypassed:
            yield Check(name="rules", result="ok", what=f"{name} has {one.rule.type}, and this account bypasses it")
            continue
        bad = True
        text = f"{name} has the rule {one.rule.type} for klaud's branches: {found.what}"
        yield Check(
            name="rules",
            result="wrong" if found.certain else "unknown",
            what=text,
            fix=f"{found.fix} (Settings, Rules)",
            stops=found.stops,
            status=3,
        )
    if not bad:
        yield Check(name="rules", result="ok", what="no rule of the repository refuses klaud's branches")


def punctual(own: github.Run, crons: Sequence[str]) -> Iterable[Check]:
    """Say how late GitHub started a scheduled run; nothing stops for it (a re-run has its first attempt's time)."""
    words = rules_schedule.late(crons, own.created_at) if own.event == "schedule" and own.attempt == 1 else ""
    if words:
        fix = "nothing: overlapping waves are safe; a cron minute away from the full hour is served sooner"
        yield Check(name="schedule", result="wrong", what=f"run {own.id}: {words}", fix=fix)


def _identity(gateway: gateways.Gateway, bot: int) -> Iterable[Check]:
    account = gateway.account()
    if account.id == bot:
        yield Check(name="identity", result="ok", what=f"the token belongs to {account.login} ({bot})")
        return
    text = f"the token belongs to {account.login} ({account.id}), the configuration names the bot {bot}"
    fix = f"hand in the bot's own token, or set bot: {account.id} in the configuration"
    yield Check(name="identity", result="wrong", what=text, fix=fix, stops=True, status=3)


def _repository(gateway: gateways.Gateway, ref: str) -> Iterable[Check]:
    repository = gateway.repository()
    default = f"refs/heads/{repository.default_branch}"
    if ref and ref != default:
        text = f"this run was started on {ref}, and klaud holds a token on the default branch only"
        fix = f"start it on {repository.default_branch}"
        yield Check(name="ref", result="wrong", what=text, fix=fix, stops=True, status=3)
    if repository.permissions and not repository.permissions.get("push", False):
        fix = "give the token contents: write, pull requests: write and actions: write"
        yield Check(name="rights", result="wrong", what="the token may not push", fix=fix, stops=True, status=3)
    else:
        yield Check(name="rights", result="ok", what=f"the token may push to {repository.full_name}")


def _refs(list_refs: Callable[[], Mapping[str, str]]) -> Iterable[Check]:
    yield Check(name="refs", result="ok", what=f"klaud's refs can be listed ({len(list_refs())})")


def _workflow(gateway: gateways.Gateway, name: str) -> Iterable[Check]:
    workflow = gateway.workflow(name)
    if isinstance(workflow, github.Missing):
        fix = "commit it to the default branch (klaud init writes klaud's own)"
        yield Check(name="workflow", result="wrong", what=f"{name} is not registered", fix=fix, stops=True)
    elif workflow.state != ACTIVE:
        fix = "enable it on the Actions page (GitHub disables scheduled workflows after 60 days without a commit)"
        yield Check(name="workflow", result="wrong", what=f"{name} is {workflow.state}", fix=fix, stops=True)
    else:
        yield Check(name="workflow", result="ok", what=f"{name} is active")
