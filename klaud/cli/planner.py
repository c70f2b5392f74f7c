"""The verbs of a wave: preflight, plan, review, select, dispatch, wave; and validate.

Each step reads the files of the step before from ``--in`` and writes its own to ``--out``; ``wave`` runs them in a row in
one process and writes the same files.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from klaud import errors
from klaud.cli import planner_steps as steps

ConfigOption = Annotated[
    Path | None, typer.Option("--config", help="The configuration (default: .github/klaud.yml or KLAUD_CONFIG).")
]
InOption = Annotated[Path | None, typer.Option("--in", help="Folder of the files of the step before (default: --out).")]
OutOption = Annotated[Path, typer.Option("--out", help="Folder for this step's files.")]
RootOption = Annotated[Path, typer.Option("--root", help="A clone of the repository.")]
CacheOption = Annotated[Path | None, typer.Option("--cache", help="Folder of generated matrices, kept between waves.")]
SeedOption = Annotated[
    int | None, typer.Option("--seed", min=0, max=2**53 - 1, help="Shuffle equals with this (default: from the wave).")
]
FamilyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--family", envvar="KLAUD_FAMILIES", help="Plan for these families only, globs of <file>:<key>; repeatable."
    ),
]
CapOption = Annotated[int | None, typer.Option("--cap", envvar="KLAUD_CAP", min=0, help="Select at most this many.")]
DryOption = Annotated[bool, typer.Option("--dry-run", envvar="KLAUD_DRY_RUN", help="Decide everything, write nothing.")]

OUT = Path("klaud-wave")


# -- verbs


def validate(
    root: RootOption = Path(),
    config: ConfigOption = None,
    run: Annotated[
        bool, typer.Option("--run", help="Run the generators too, in a sandbox, without a credential.")
    ] = False,
) -> None:
    """Check the configuration against the repository: files, generators, workflows, edit scope."""
    from klaud.cli import live as lives
    from klaud.planner import summary
    from klaud.planner import validate as validating

    loaded = lives.load_config(config if config is not None else steps.beside(root))
    found = validating.findings(
        loaded.benchmarks, loaded.renames, loaded.candidate_workflow, root, references=loaded.references,
        encoder=loaded.encoding(),
    )  # fmt: skip
    if run:
        held = validating.credentials(os.environ)
        if held:
            message = f"generators are code of the repository, and the environment holds {', '.join(held)}"
            raise errors.InputError(
                message, advice="Run klaud validate --run without these variables; nothing was run."
            )
        if not any(one.level == "error" for one in found):
            found = (*found, *steps.trial(loaded, root))
    steps.say(summary.findings(found))
    if any(one.level == "error" for one in found):
        raise typer.Exit(errors.InputError.exit_status)


def preflight(
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Also write families.json there; do so after recover, whose releases it must see."),
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Check identity, rights and workflows before anything is spent."""
    from klaud.cli import live as lives
    from klaud.cli import neutral
    from klaud.planner import hand_on

    live = lives.open_live(config)
    if neutral.paused(live.config, "preflight"):
        hand_on.output("ready", "false", os.environ)
        return
    found = steps.check(live)
    typer.echo(f"preflight: {len(found)} checks, all is well")
    hand_on.output("ready", "true", os.environ)
    if out is not None:
        steps.remembered(live, out)
        hand_on.tell(out, "recover", os.environ)


def plan(  # noqa: PLR0917 - the options of a command
    out: OutOption = OUT,
    source: InOption = None,
    root: RootOption = Path(),
    cache: CacheOption = None,
    seed: SeedOption = None,
    family: FamilyOption = None,
    config: ConfigOption = None,
) -> None:
    """Find the candidates of this wave; needs no credential, and refuses to run where there is one."""
    from klaud.cli import live as lives
    from klaud.cli import neutral
    from klaud.planner import files, hand_on, model, validate

    held = validate.credentials(os.environ)
    if held:
        message = f"klaud plan runs code of the repository, and the environment holds {', '.join(held)}"
        raise errors.InputError(message, advice="Run it in a job without these variables; nothing was planned.")
    folder = source or out
    loaded = lives.load_config(config if config is not None else steps.beside(root))
    if neutral.paused(loaded, "plan"):
        return
    hand_on.check(folder, os.environ)
    memory = files.read(folder, files.MEMORY, model.Memory, made_by="klaud preflight --out")
    steps.refuse_stale(memory, steps.swept_before(folder))
    steps.make_plan(
        loaded, memory, steps.in_recovery(folder), root=root, cache=cache, seed=seed, only=family or (), out=out
    )
    hand_on.tell(out, "plan", os.environ)


def review(
    out: OutOption = OUT, source: InOption = None, root: RootOption = Path(), config: ConfigOption = None
) -> None:
    """Say of each candidate whether an open pull request already does it; prove the runs of published rows. Reads only."""
    import msgspec

    from klaud.cli import live as lives
    from klaud.planner import files, hand_on, model, proof

    folder = source or out
    live = lives.open_live(config)
    hand_on.check(folder, os.environ)
    made = files.read(folder, files.PLAN, model.Plan, made_by="klaud plan")
    evidences = files.read(folder, proof.FILE, proof.Evidences, made_by="klaud plan")
    steps.make_review(live, made, out)
    evidences = steps.proven(live, made, evidences, root)
    files.write(out, proof.FILE, evidences)
    for one in evidences.benchmarks:
        wanted = proof.needs(live.config.benchmark(one.benchmark), one, steps.families_of(made, one.benchmark))
        files.write(out, files.needs(one.benchmark), msgspec.json.encode(wanted))
    hand_on.tell(out, "review", os.environ)


def select(
    out: OutOption = OUT,
    source: InOption = None,
    cap: CapOption = None,
    dry_run: DryOption = False,
    config: ConfigOption = None,
) -> None:
    """Decide which candidates start and claim their families; the runs are asked for by dispatch."""
    from klaud.cli import live as lives
    from klaud.cli import neutral
    from klaud.planner import files, hand_on, model, proof

    folder = source or out
    live = lives.open_live(config)
    if not dry_run and neutral.paused(live.config, "select"):
        return
    hand_on.check(folder, os.environ)
    made = files.read(folder, files.PLAN, model.Plan, made_by="klaud plan")
    evidences = steps.handed_in(files.read(folder, proof.FILE, proof.Evidences, made_by="klaud review"), folder)
    files.probe(out)
    chosen = steps.choose(live, made, evidences, folder, out, cap=cap, dry_run=dry_run)
    steps.refuse_forbidden(chosen.forbidden)
    steps.refuse_failed_rows(made, evidences)


def dispatch(
    out: OutOption = OUT,
    source: InOption = None,
    parked_only: Annotated[
        bool, typer.Option("--parked-only", help="Only let parked sessions go on: no selection is needed.")
    ] = False,
    config: ConfigOption = None,
) -> None:
    """Ask for the runs of the selected candidates, and for those of parked sessions that may go on."""
    from klaud.cli import live as lives
    from klaud.cli import neutral
    from klaud.planner import files, model

    folder = source or out
    live = lives.open_live(config)
    if neutral.paused(live.config, "dispatch"):
        return
    parked = steps.continuations(folder)
    if parked_only:
        if not parked:
            typer.echo("dispatch: no parked session may go on")
            return
        made = steps.nothing_selected(live)
    else:
        made = files.read(folder, files.SELECTION, model.Selection, made_by="klaud select")
    files.probe(out)
    steps.send(live, made, parked, out)


def wave(  # noqa: PLR0917 - the options of a command
    out: OutOption = OUT,
    root: RootOption = Path(),
    cache: CacheOption = None,
    seed: SeedOption = None,
    cap: CapOption = None,
    family: FamilyOption = None,
    dry_run: DryOption = False,
    until_quiet: Annotated[
        bool, typer.Option("--until-quiet", help="Go on settling and continuing sessions until nothing moves.")
    ] = False,
    config: ConfigOption = None,
) -> None:
    """Run one whole wave in a row: preflight, recover, plan, review, select, dispatch."""
    from klaud.cli import live as lives
    from klaud.planner import files, proof

    live = lives.open_live(config)
    steps.need_git()
    files.probe(out)
    steps.check(live)
    swept = steps.recover(live, out, dry_run=dry_run)
    files.write(out, "recovery-first.json", (out / steps.RECOVERY).read_bytes())
    memory = steps.remembered(live, out)
    made, evidences = steps.make_plan(
        live.config, memory, swept.blocked, root=root, cache=cache, seed=seed, only=family or (), out=out,
        wave=live.place.wave,
    )  # fmt: skip
    steps.make_review(live, made, out)
    evidences = steps.produced(live.config, made, steps.proven(live, made, evidences, root), root, cache)
    files.write(out, proof.FILE, evidences)
    chosen = steps.choose(live, made, evidences, out, out, cap=cap, dry_run=dry_run)
    selection = chosen.selection
    if not dry_run:
        selection = steps.send(live, selection, steps.parked_of(swept), out)
        if until_quiet:
            swept, selection = steps.until_quiet(live, selection, swept, out)
    steps.refuse_forbidden(chosen.forbidden)
    steps.refuse_failed_rows(made, evidences)
    if swept.red:
        raise typer.Exit(1)
