"""``klaud doctor``: look at a set-up and say of each thing that is wrong what it is and how to put it right.

Reads only, but for ``--fix`` (makes missing labels) and ``--probe`` (makes and deletes one ref below klaud's prefix). It
starts with the planner's own preflight; what that cannot know follows: labels, schedule, isolation, versions, and which
of the repository's workflows a push or a label of klaud's would start. A check that fails never hides the next one.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from klaud import errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from klaud.cli import live as lives
    from klaud.github import gateway as ports
    from klaud.planner.preflight import Check

SCHEDULE_DAYS = 2
"""A planner that has not run by its schedule for so long is not alive: the longest usual schedule is a day."""

SWITCH_OFF_DAYS = 60
"""GitHub switches schedules of a public repository off after so many days without activity."""

SWITCH_OFF_WARNING_DAYS = 45
"""Days without a commit after which it is said: two weeks are left to do something."""

PLANNER = "klaud-plan.yml"
HANDOFF = "klaud-handoff.yml"

ConfigOption = Annotated[
    Path | None, typer.Option("--config", help="The configuration (default: .github/klaud.yml or KLAUD_CONFIG).")
]


def doctor(
    root: Annotated[Path, typer.Option("--root", help="A clone of the repository, for its workflow files.")] = Path(),
    fix: Annotated[bool, typer.Option("--fix", help="Make labels that are missing.")] = False,
    probe: Annotated[bool, typer.Option("--probe", help="Make and delete one ref below klaud's prefix.")] = False,
    config: ConfigOption = None,
) -> None:
    """Check the whole set-up: token, rights, refs, workflows, schedule, labels, isolation; say how to put each right."""
    from klaud.cli import live as lives

    live = lives.open_live(config)
    found = list(findings(live, root, fix=fix, probe=probe))
    marks = {"ok": "ok     ", "wrong": "WRONG  ", "unknown": "unknown"}
    for one in found:
        typer.echo(f"{marks[one.result]} {one.name}: {one.what}")
        if one.result != "ok" and one.fix:
            typer.echo(f"        -> {one.fix}")
    bad = [one for one in found if one.result != "ok"]
    typer.echo(
        f"doctor: {len(found)} checks, {len(bad)} to look at" if bad else f"doctor: {len(found)} checks, all is well"
    )
    status = max((one.status for one in bad if one.stops), default=1 if bad else 0)
    if status:
        raise typer.Exit(status)


def findings(live: lives.Live, root: Path, *, fix: bool, probe: bool) -> Iterable[Check]:
    """Return every check, the planner's preflight first."""
    from klaud import config as configs
    from klaud.cli import doctor_files, planner_steps
    from klaud.planner import preflight

    flows = [name for one in live.config.flows() for name in (one.smoke, one.final) if name]
    yield from preflight.checks(
        live.gateway,
        bot=live.config.bot,
        me=live.me,
        workflows=list(dict.fromkeys([PLANNER, live.config.candidate_workflow, HANDOFF, *flows])),
        list_refs=lambda: live.refs.list(live.names.listed_prefixes()),
        paused=configs.is_paused(live.config, os.environ),
        ref=os.environ.get("GITHUB_REF", ""),
        rules=planner_steps.branch_rules(live),
    )
    rest: tuple[Callable[[], Iterable[Check]], ...] = (
        lambda: _rights(live),
        lambda: _candidate(live),
        lambda: _labels(live, fix=fix),
        lambda: _schedule(live, root),
        lambda: _switch_off(live),
        lambda: _namespace(live),
        lambda: _probe(live) if probe else (),
        lambda: _isolation(live),
        lambda: _versions(live),
        lambda: _key(live),
        lambda: doctor_files.standing(root),
        lambda: doctor_files.started(root),
    )
    for check in rest:
        try:
            yield from check()
        except errors.KlaudError as error:
            yield wrong("reading", str(error), error.advice, result="unknown", status=error.exit_status)


def ok(name: str, what: str) -> Check:
    """Return a check of something that is as it should be."""
    from klaud.planner import preflight

    return preflight.Check(name=name, result="ok", what=what)


def wrong(name: str, what: str, fix: str, **more: Any) -> Check:
    """Return a check of something that is not as it should be, with its remedy."""
    from klaud.planner import preflight

    return preflight.Check(**{"name": name, "result": "wrong", "what": what, "fix": fix, **more})


VERBS_OF: dict[ports.WriteRight, str] = {
    "pulls:write": "recover, session, finish, handoff and undo (drafts, labels, comments)",
    "actions:write": "dispatch, session, recover and finish (start and cancel runs)",
}
"""What a right is for; contents: write is the preflight's to look at."""


def _rights(live: lives.Live) -> Iterable[Check]:
    """Say of each right to write whether the token lacks it, and which verbs need it; asks for nothing to be done."""
    from klaud.github import upkeep

    for right, verbs in VERBS_OF.items():
        permission = right.replace("pulls:", "pull requests: ").replace("actions:", "actions: ")
        try:
            live.gateway.check_right(right, live.config.candidate_workflow)
        except errors.ForbiddenError as error:
            text = f"the token lacks {permission}, which {verbs} need ({error})"
            yield wrong("rights", text, f"give the token {permission} (docs/permissions.md)", stops=True, status=3)
        else:
            yield ok("rights", f"nothing stands against {permission}: {verbs}")
    if upkeep.variables(live.gateway) is None:
        yield ok("rights", "without variables: read a running session sees no KLAUD_PAUSED; paused: true it does see")


def _candidate(live: lives.Live) -> Iterable[Check]:
    """Look at the candidate workflow as it stands on the default branch: its trigger, and the inputs that klaud gives."""
    from klaud import yaml12
    from klaud.cli import init
    from klaud.github import model as github
    from klaud.planner import validate

    branch, name = live.gateway.repository().default_branch, live.config.candidate_workflow
    raw = live.gateway.contents(f"{init.FOLDER}/{name}", branch, init.FILE_BYTES)
    if isinstance(raw, github.Missing):
        return  # the preflight has said so
    why = validate.not_a_candidates(yaml12.load(raw, where=name, limit=init.FILE_BYTES))
    if why:
        fix = "take the file that klaud init writes, and commit it to the default branch"
        yield wrong("workflow", f"{name} on {branch} {why}", fix, stops=True)
    else:
        yield ok("workflow", f"{name} on {branch} takes what klaud gives it")


def labels(live: lives.Live) -> dict[str, str]:
    """Return the labels that klaud needs, each with the description that klaud gives it."""
    from klaud import names

    wanted = {names.HANDOFF_LABEL: "klaud hands this draft over"}
    for flows in live.config.flows():
        wanted[flows.final_label] = f"start {flows.final}"[:100]
    return wanted


def _labels(live: lives.Live, *, fix: bool) -> Iterable[Check]:
    for label, meaning in labels(live).items():
        if live.gateway.has_label(label):
            yield ok("label", f"{label} is there")
        elif fix:
            live.gateway.create_label(label, meaning)
            yield ok("label", f"{label} was missing and is made")
        else:
            yield wrong("label", f"the repository has no label {label}", "run klaud doctor --fix, or make it by hand")


def _schedule(live: lives.Live, root: Path) -> Iterable[Check]:
    from klaud.cli import planner_steps
    from klaud.planner import rules_schedule

    listing = live.gateway.runs(workflow=PLANNER, event="schedule")
    newest = max((run.created_at for run in listing.items), default=None)
    if newest is None:
        text = "no planner run was ever started by the schedule"
        yield wrong(
            "schedule", text, f"wait for the next slot; {PLANNER} must be on the default branch", result="unknown"
        )
        return
    days = (live.clock.now() - newest).total_seconds() / 86400
    if days > SCHEDULE_DAYS:
        text = f"the schedule last started a planner run {days:.0f} days ago"
        fix = "enable the workflow on the Actions page; GitHub switches schedules off after 60 days without a commit"
        yield wrong("schedule", text, fix)
    else:
        yield ok("schedule", f"the newest scheduled run is {days:.1f} days old")
    started = [run.created_at for run in listing.items]
    odd = rules_schedule.oddities(planner_steps.crons(root), started, live.clock.now())
    if odd and days <= SCHEDULE_DAYS:
        fix = "nothing must be done: overlapping and missed waves are safe; a cron minute away from the full hour helps"
        yield wrong("schedule", "; ".join(odd), fix, result="unknown")


def _switch_off(live: lives.Live) -> Iterable[Check]:
    """Say how near the day is on which GitHub switches the schedule off: it counts days without a commit."""
    from klaud.github import activity

    repository = live.gateway.repository()
    if repository.private:
        yield ok("switch-off", "GitHub switches schedules off in public repositories only")
        return
    newest = activity.committed(live.gateway, repository.default_branch)
    days = int((live.clock.now() - newest).total_seconds() // 86400)
    if days >= SWITCH_OFF_WARNING_DAYS:
        text = (
            f"the newest commit of {repository.default_branch} is {days} days old: GitHub switches schedules off after"
        )
        fix = "push a commit to the default branch; once it is off, enable klaud-plan.yml again on the Actions page"
        yield wrong("switch-off", f"{text} {SWITCH_OFF_DAYS} days without one", fix)
    else:
        yield ok("switch-off", f"the newest commit of {repository.default_branch} is {days} days old")


def _namespace(live: lives.Live) -> Iterable[Check]:
    """Say which rulesets reach refs that are neither branches nor tags: GitHub has them for every push only."""
    from klaud.github import rulesets

    found = rulesets.every(live.gateway)
    if isinstance(found, str):
        yield ok("rules", f"for {live.names.prefix}: not known: {found}; --probe tries it")
        return
    reaching = [one for one in found if one.active and one.target == "push" and not one.bypassed]
    for one in reaching:
        whole = rulesets.ruleset(live.gateway, one.id)
        if whole is not None and whole.bypassed:
            continue
        kinds = ", ".join(rule.type for rule in whole.rules) if whole is not None else "rules that cannot be read"
        text = f"the ruleset {one.name!r} looks at every push, also below {live.names.prefix}: {kinds}"
        yield wrong("rules", text, "let the bot bypass it, or run klaud doctor --probe to see", result="unknown")
    if not reaching:
        yield ok("rules", f"no ruleset reaches {live.names.prefix} (--probe tries it)")


def _probe(live: lives.Live) -> Iterable[Check]:
    """Try the configured way to klaud's refs; where that is refused, say whether the other one would do."""
    from klaud.cli import live as lives

    found = list(_probe_store(live, live.refs, live.config.refs_store))
    yield from found
    if any(one.stops for one in found):
        other: Literal["git", "graphql"] = "git" if live.config.refs_store == "graphql" else "graphql"
        store = lives.ref_store(other, live.config, live.place, live.gateway, live.credential, live.clock)
        if all(one.result == "ok" for one in _probe_store(live, store, other)):
            yield ok("refs", f"refs-store: {other} would do: they can be made and deleted by it")


def _probe_store(live: lives.Live, store: ports.RefStore, kind: str) -> Iterable[Check]:
    import secrets

    from klaud.github import gateway as ports

    ref = f"{live.names.prefix}/doctor/{secrets.token_hex(8)}"
    try:
        oid = store.write_commit(b"klaud doctor")
        (made,) = store.apply([ports.RefUpdate(ref, None, oid)])
    except errors.ForbiddenError as error:
        yield wrong("refs", f"by {kind}: {error}", error.advice, stops=True, status=error.exit_status)
        return
    if not isinstance(made, ports.RefUpdated):
        why = made.reason if isinstance(made, ports.RefRejected) else type(made).__name__
        fix = "allow it in the host's rulesets, set refs-prefix to a name that the host takes, or choose another refs-store"
        yield wrong("refs", f"the host refuses refs below {live.names.prefix} by {kind}: {why}", fix, stops=True)
        return
    (gone,) = store.apply([ports.RefUpdate(ref, oid, None)])
    if isinstance(gone, ports.RefUpdated):
        yield ok("refs", f"refs below {live.names.prefix} can be made and deleted by {kind}")
    else:
        yield wrong(
            "refs", f"{ref} could be made and not deleted", "allow deletions below the prefix, delete it by hand"
        )


def _isolation(live: lives.Live) -> Iterable[Check]:
    from klaud.session import sandbox

    policy = live.config.session
    found = sandbox.find(policy.isolation)
    if isinstance(found, sandbox.Lacking):
        text = f"isolation: required cannot be had on this machine: {'; '.join(found.missing)}"
        yield wrong("isolation", text, "run klaud doctor where the sessions run; they need root or sudo there")
    elif policy.isolation != "required":
        text = f"isolation is {policy.isolation} ({found.words} is in force here): an agent may get what klaud can read"
        yield wrong("isolation", text, "set session: {isolation: required}")
    else:
        yield ok("isolation", f"{found.words} is in force on this machine")


def _versions(live: lives.Live) -> Iterable[Check]:
    import importlib.util
    import subprocess

    import klaud

    if shutil.which("git") is None:
        yield wrong("versions", "git is not on PATH", "install git", stops=True)
        return
    git = subprocess.run(["git", "--version"], capture_output=True, text=True, check=False, timeout=20).stdout.strip()
    yield ok("versions", f"klaud {klaud.__version__}, Python {sys.version.split()[0]}, {git}")
    needs_sdk = live.config.session.framework == "claude_sdk"
    if needs_sdk and importlib.util.find_spec("claude_agent_sdk") is None:
        text = "framework claude_sdk needs the extra agent, which is not installed here"
        yield wrong("versions", text, "pip install 'klaud[agent]' where the sessions run")


def _key(live: lives.Live) -> Iterable[Check]:
    if live.place.record_key is None:
        text = "KLAUD_RECORD_KEY is not set: whoever can push can write klaud's records"
        yield wrong("record key", text, "put a random text into the secret KLAUD_RECORD_KEY of the environment klaud")
    else:
        yield ok("record key", "records are signed")
