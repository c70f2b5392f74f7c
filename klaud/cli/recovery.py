"""The verbs about what sessions leave behind: recover, undo, release, pause, resume, why-closed, explain."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from klaud import errors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from klaud import config as configs
    from klaud.cli import live as lives
    from klaud.leases import model as records
    from klaud.recovery import model, run
    from klaud.session import finish

ConfigOption = Annotated[
    Path | None, typer.Option("--config", help="The configuration (default: .github/klaud.yml or KLAUD_CONFIG).")
]

STATUSES = {
    "": 1,
    "forbidden": errors.ForbiddenError.exit_status,
    "temporary": errors.RetryLaterError.exit_status,
}
"""Exit status of a red sweep, by what kept it from beginning (empty: it began, and needs a person)."""

ADVICE = {
    "": "What was left and why is in the report; the next sweep goes on from there.",
    "forbidden": errors.ForbiddenError.advice,
    "temporary": errors.RetryLaterError.advice,
}


def recover(
    report: Annotated[
        bool,
        typer.Option(
            "--report", "--dry-run", envvar="KLAUD_DRY_RUN", help="Observe and decide only; write nothing anywhere."
        ),
    ] = False,
    json: Annotated[Path | None, typer.Option("--json", help="Where to write the report as JSON.")] = None,
    out: Annotated[Path, typer.Option("--out", help="Folder of recovery.json (where --json is not given).")] = Path(),
    parked_on: Annotated[
        int | None, typer.Option("--parked-on", help="Settle only the sessions that wait on this run.", min=1)
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Settle what dead sessions left behind: drafts, branches, claims, leases, runs."""
    from klaud.cli import live as lives
    from klaud.planner import files

    live = lives.open_live(config)
    place = json or out / "recovery.json"
    files.probe(place.parent, place.name)
    found = sweep(live, report=report, parked_on=parked_on, bundles=out)
    publish(found, place)
    say_red(found)
    if found.red:
        raise typer.Exit(STATUSES[found.unread])


def sweep(
    live: lives.Live, *, report: bool = False, parked_on: int | None = None, bundles: Path | None = None
) -> model.Report:
    """Run one sweep with live objects; the planner's ``wave`` calls this too. ``bundles``: where evidence bundles lie."""
    from klaud import config as configs
    from klaud.recovery import run

    paused = configs.is_paused(live.config, os.environ) or ""
    if paused and not report:
        typer.echo(f"klaud: {paused}; observing only", err=True)
    return run.sweep(parts(live, paused=paused, bundles=bundles), report_only=report, parked_on=parked_on)


def say_red(found: model.Report) -> None:
    """Say on stderr why a sweep is red, and what to do."""
    for why in found.red:
        typer.echo(f"klaud: the sweep is red: {why}", err=True)
    if found.red:
        refused = any(why.startswith("not permitted") for why in found.red)
        typer.echo(f"  -> {ADVICE[found.unread or ('forbidden' if refused else '')]}", err=True)


def parts(live: lives.Live, *, paused: str = "", bundles: Path | None = None) -> run.Parts:
    """Put together what a sweep works with."""
    from klaud.recovery import finisher, run

    return run.Parts(
        gateway=live.gateway,
        refs=live.refs,
        snapshot=live.store.snapshot,
        names=live.names,
        clock=live.clock,
        me=live.me,
        setting=setting(live),
        policy=live.config.recovery,
        finisher=finisher.SessionFinisher(
            store=live.store, world_for=lambda started: settling(live, started, bundles=bundles)
        ),
        key=live.place.record_key,
        paused=paused,
    )


def setting(live: lives.Live) -> model.Setting:
    """Return who klaud is here; ForbiddenError where the token belongs to another account (oddity L107)."""
    from klaud import config as configs
    from klaud.recovery import model

    config = live.config
    login = config.bot_login
    if not login and config.bot == configs.GITHUB_ACTIONS_BOT:
        login = config.identity()[0]
    if not login:
        account = live.gateway.account()
        if account.id != config.bot:
            raise errors.ForbiddenError(
                f"the token belongs to {account.login} ({account.id}), the configuration names the bot {config.bot}",
                advice="Hand in the bot's own token, or set bot in the configuration to this account's id.",
            )
        login = account.login
    flows = config.flows()
    return model.Setting(
        repository=live.repository,
        bot=config.bot,
        login=login,
        ignored=frozenset(config.ignored_actors),
        final_labels=frozenset(label for flow in flows for label in (flow.final_label, *flow.other_final_labels)),
        final_workflows=frozenset(flow.final for flow in flows),
        smoke_workflows=frozenset(flow.smoke for flow in flows if flow.smoke),
        approval_labels=frozenset(flow.approval_label for flow in flows if flow.approval_label),
        candidate_workflow=config.candidate_workflow,
        prefix=live.names.prefix,
    )


def settling(live: lives.Live, started: records.SessionStarted, *, bundles: Path | None = None) -> finish.World | None:
    """Build what settling one session needs; None where no benchmark has its family."""
    import fnmatch

    from klaud import names
    from klaud.baselines import schema
    from klaud.session import evidence, finish, rules_coverage, rules_touch

    file_name = f"baseline-{started.candidate}.json"

    def frozen(digest: str) -> rules_coverage.Frozen | rules_coverage.Unreadable:
        from klaud.cli import handed

        folder = bundles or Path()
        if digest and not (folder / file_name).exists():
            try:
                handed.fetch(live.gateway, started.wave, started.candidate, folder)
            except errors.KlaudError as error:
                typer.echo(f"the bundle of {started.candidate} is not at hand: {error}", err=True)
        return evidence.load(folder / file_name, digest)

    if ":" not in started.family:
        return None
    file, _ = names.split_family(started.family)
    entry = live.config.reference(file)
    fitting = [one for one in live.config.benchmarks if any(fnmatch.fnmatch(file, glob) for glob in one.families.files)]
    if entry is None and not fitting:
        return None
    flows = entry.workflows if entry is not None else fitting[0].workflows
    return finish.World(
        gateway=live.gateway,
        refs=live.refs,
        store=live.store,
        names=live.names,
        repository=live.repository,
        host=live.place.web_host,
        clock=live.clock,
        policy=live.config.session,
        workflows=flows,
        who=rules_touch.Who(
            bot=live.config.bot,
            ignored=live.config.ignored_actors,
            approvals=tuple(filter(None, [flows.approval_label])),
        ),
        plan=schema.plan(fitting[0]) if entry is None else None,
        frozen=frozen,
        log=lambda text: typer.echo(text, err=True),
        by="recovery",
        final_is_proof=entry is not None,
    )


def publish(found: model.Report, path: Path) -> None:
    """Write ``recovery.json``, the step summary, and a short text for people."""
    import msgspec

    from klaud.recovery import summary
    from klaud.reports import publish as publishing
    from klaud.reports import render

    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")
    text = summary.summary(found)
    publishing.step_summary(text, os.environ)
    typer.echo(render.text(text))


def undo(
    target: Annotated[str, typer.Argument(help="A run id, or an archive ref as the closing comment names it.")],
    config: ConfigOption = None,
) -> None:
    """Restore a draft that klaud closed: its branch from the archive, then the pull request."""
    from klaud.cli import live as lives
    from klaud.recovery import undo as undoing

    live = _writing(lives.open_live(config))
    snapshot = live.store.snapshot()
    found = undoing.targets(snapshot, live.names, target)
    if not found:
        raise errors.InputError(f"nothing in klaud's archive belongs to {target!r}")
    refused = False
    for archive in found:
        answer = undoing.undo(live.gateway, live.refs, snapshot, live.names, archive)
        if isinstance(answer, undoing.Refused):
            refused = True
            typer.echo(f"{archive}: left as it is: {answer.why}")
            continue
        for line in answer.done or ("it stands as it was already",):
            typer.echo(f"{archive}: {line}")
        if answer.new:
            typer.echo(f"  GitHub does not reopen the old pull request; #{answer.number} says so")
    if refused:
        raise typer.Exit(1)


def release(
    family: Annotated[str, typer.Argument(help="A family, <file>:<key>, or its id of 16 hex digits.")],
    even_if_alive: Annotated[bool, typer.Option("--even-if-alive", help="Release it from a live session too.")] = False,
    config: ConfigOption = None,
) -> None:
    """Release the claim on one family by hand, by compare-and-delete."""
    from klaud.cli import live as lives
    from klaud.github import model as github
    from klaud.leases import decide
    from klaud.leases import model as records
    from klaud.leases import store as stores

    live = _writing(lives.open_live(config))
    ref = live.names.claim(_family_id(family))
    held = live.store.look(ref)
    if held is None:
        typer.echo(f"{ref}: nobody has claimed it")
        return
    if not isinstance(held, records.Held) or not isinstance(held.record, records.Claim):
        raise errors.InputError(
            f"{ref} holds no claim that this klaud can read",
            advice="Look at the ref with git; klaud does not touch it.",
        )
    holder = decide.holder(held.record)
    run = live.gateway.run(holder.run_id) if holder is not None and holder.run_id else None
    over = isinstance(run, github.Run) and run.status == "completed" and held.record.parked is None
    if not over and not even_if_alive:
        state = f"run {run.id} is {run.status}" if isinstance(run, github.Run) else "its run cannot be seen"
        raise errors.OwnershipLostError(
            f"{ref} is held by candidate {held.record.candidate}: {'parked' if held.record.parked else state}",
            advice="Wait for klaud recover, or add --even-if-alive if you know that nothing works on it any more.",
        )
    answer = live.store.release(held)
    if isinstance(answer, stores.Lost):
        raise errors.OwnershipLostError(f"{ref} changed hands meanwhile; it was left alone")
    typer.echo(f"{ref}: released")


def pause(family: Annotated[str, typer.Argument(help="A family, <file>:<key>.")], config: ConfigOption = None) -> None:
    """Plan nothing more for one family until it is resumed. KLAUD_PAUSED pauses everything."""
    _set_paused(family, paused=True, config=config)


def resume(family: Annotated[str, typer.Argument(help="A family, <file>:<key>.")], config: ConfigOption = None) -> None:
    """Let a paused family be planned again."""
    _set_paused(family, paused=False, config=config)


def why_closed(
    number: Annotated[int, typer.Argument(help="The pull request's number.", min=1)], config: ConfigOption = None
) -> None:
    """Say from recorded facts why a pull request of klaud's was closed, and how to undo it."""
    from klaud.cli import live as lives
    from klaud.recovery import explain as explaining

    live = lives.open_live(config)
    lines = explaining.why_closed(live.gateway, live.store.snapshot(), live.names, number, live.config.bot)
    for line in lines:
        typer.echo(line)


def explain(
    family: Annotated[str, typer.Argument(help="A family, <file>:<key>, or its id of 16 hex digits.")],
    wave: Annotated[
        Path, typer.Option("--wave", help="Folder of a wave's files: its decision and verdict are told too.")
    ] = Path("klaud-wave"),
    config: ConfigOption = None,
) -> None:
    """Say from recorded facts what klaud knows of one family, its baseline's verdict included."""
    from klaud.cli import live as lives
    from klaud.recovery import explain as explaining

    live = lives.open_live(config)
    for line in explaining.family(live.store.snapshot(), live.names, _family_id(family)):
        typer.echo(line)
    for line in _of_wave(live.config, wave, _family_id(family)):
        typer.echo(line)


def _of_wave(config: configs.Config, folder: Path, family_id: str) -> Iterator[str]:
    """Yield what the files of a wave say of one family (16 hex): the decision, and the verdict judged from its evidence."""
    from klaud import names
    from klaud.baselines import render
    from klaud.planner import files, model, proof

    if not (folder / files.SELECTION).is_file():
        yield f"no wave's files are in {folder} (--wave names the folder)"
        return
    selection = files.read(folder, files.SELECTION, model.Selection, made_by="klaud select")
    decided = [one for one in selection.decisions if names.family_of(one.candidate) == family_id]
    for one in decided:
        yield f"wave {selection.wave}: {one.gate}: {one.message}"
        if one.unblock:
            yield f"  to unblock: {one.unblock}"
    if not (folder / proof.FILE).is_file():
        return
    evidences = files.read(folder, proof.FILE, proof.Evidences, made_by="klaud regenerate")
    measured = {one.name for one in config.benchmarks}
    reached = sorted({(one.benchmark, one.family) for one in decided if one.gate in {"baseline", "selected"}})
    reached = [one for one in reached if one[0] in measured]  # what encodes a database has no baseline
    for name, text in reached:
        judged = proof.judge(config.benchmark(name), evidences.of(name), [text], evidences.base)
        for verdict in judged.verdicts:
            yield from render.explain_verdict(verdict).splitlines()
        yield from render.explain_feed(judged).splitlines()


def _set_paused(family: str, *, paused: bool, config: Path | None) -> None:
    import msgspec

    from klaud import names
    from klaud.cli import live as lives
    from klaud.leases import model as records
    from klaud.leases import store as stores

    live = _writing(lives.open_live(config))
    try:
        names.split_family(family)
    except ValueError as error:
        raise errors.InputError(str(error)) from None
    ref = live.names.family(names.short_id(family))
    held = live.store.look(ref)
    if held is not None and not (isinstance(held, records.Held) and isinstance(held.record, records.FamilyMemory)):
        raise errors.InputError(f"{ref} holds no memory of a family that this klaud can read")
    now = live.clock.now()
    old = held.record if isinstance(held, records.Held) and isinstance(held.record, records.FamilyMemory) else None
    if (old.paused if old is not None else False) == paused:
        typer.echo(f"{family}: {'paused' if paused else 'not paused'} already")
        return
    record = msgspec.structs.replace(old or records.FamilyMemory(at=now, family=family), at=now, paused=paused)
    answer = live.store.put(ref, held.oid if isinstance(held, records.Held) else None, record)
    if isinstance(answer, stores.Lost):
        raise errors.RetryLaterError(f"{ref} changed meanwhile")
    typer.echo(f"{family}: {'paused' if paused else 'resumed'}")


def _family_id(family: str) -> str:
    import re

    from klaud import names

    return family if re.fullmatch(r"[0-9a-f]{16}", family) else names.short_id(family)


def _writing(live: lives.Live) -> lives.Live:
    """Refuse a verb that writes while klaud is paused."""
    from klaud import config as configs

    paused = configs.is_paused(live.config, os.environ)
    if paused:
        raise errors.InputError(
            f"nothing is written: {paused}", advice="Resume klaud first, then run the command again."
        )
    return live
