"""The verbs of a wave: preflight, plan, review, select, dispatch, wave; and validate.

Each step reads the files of the step before from ``--in`` and writes its own to ``--out``; ``wave`` runs them in a row in
one process and writes the same files.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from klaud import errors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from klaud import config as configs
    from klaud.cli import live as lives
    from klaud.planner import act, model, planning, proof, run, settings
    from klaud.planner import preflight as checking
    from klaud.planner import validate as validating
    from klaud.recovery import model as recovery
    from klaud.reports import model as reports
    from klaud.review import model as reviewed

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
    list[str] | None, typer.Option("--family", help="Plan for these families only, globs of <file>:<key>; repeatable.")
]
CapOption = Annotated[int | None, typer.Option("--cap", min=0, help="Select at most this many candidates.")]
DryOption = Annotated[bool, typer.Option("--dry-run", help="Decide everything, write nothing to the repository.")]

OUT = Path("klaud-wave")
RECOVERY = "recovery.json"
OPEN_PULLS = "open-prs.json"
REVIEW = "review.json"


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

    loaded = lives.load_config(config if config is not None else _beside(root))
    found = validating.findings(loaded.benchmarks, loaded.renames, loaded.candidate_workflow, root)
    if run:
        held = validating.credentials(os.environ)
        if held:
            message = f"generators are code of the repository, and the environment holds {', '.join(held)}"
            raise errors.InputError(
                message, advice="Run klaud validate --run without these variables; nothing was run."
            )
        if not any(one.level == "error" for one in found):
            found = (*found, *_trial(loaded, root))
    _say(summary.findings(found))
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

    live = lives.open_live(config)
    found = _preflight(live)
    typer.echo(f"preflight: {len(found)} checks, all is well")
    if out is not None:
        _remembered(live, out)


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
    from klaud.planner import files, model, validate

    held = validate.credentials(os.environ)
    if held:
        message = f"klaud plan runs code of the repository, and the environment holds {', '.join(held)}"
        raise errors.InputError(message, advice="Run it in a job without these variables; nothing was planned.")
    folder = source or out
    loaded = lives.load_config(config if config is not None else _beside(root))
    _refuse_paused(loaded)
    memory = files.read(folder, files.MEMORY, model.Memory, made_by="klaud preflight --out")
    _refuse_stale(memory, _recovery(folder))
    _plan(loaded, memory, _in_recovery(folder), root=root, cache=cache, seed=seed, only=family or (), out=out)


def review(
    out: OutOption = OUT, source: InOption = None, root: RootOption = Path(), config: ConfigOption = None
) -> None:
    """Say of each candidate whether an open pull request already does it; prove the runs of published rows. Reads only."""
    import msgspec

    from klaud.cli import live as lives
    from klaud.planner import files, model, proof

    folder = source or out
    live = lives.open_live(config)
    made = files.read(folder, files.PLAN, model.Plan, made_by="klaud plan")
    evidences = files.read(folder, proof.FILE, proof.Evidences, made_by="klaud plan")
    _review(live, made, out)
    evidences = _proven(live, made, evidences, root)
    files.write(out, proof.FILE, evidences)
    for one in evidences.benchmarks:
        wanted = proof.needs(live.config.benchmark(one.benchmark), one, _families(made, one.benchmark))
        files.write(out, files.needs(one.benchmark), msgspec.json.encode(wanted))


def select(
    out: OutOption = OUT,
    source: InOption = None,
    cap: CapOption = None,
    dry_run: DryOption = False,
    config: ConfigOption = None,
) -> None:
    """Decide which candidates start and claim their families; the runs are asked for by dispatch."""
    from klaud.cli import live as lives
    from klaud.planner import files, model, proof

    folder = source or out
    live = lives.open_live(config)
    made = files.read(folder, files.PLAN, model.Plan, made_by="klaud plan")
    evidences = _handed_in(files.read(folder, proof.FILE, proof.Evidences, made_by="klaud review"), folder)
    if not dry_run:
        _refuse_paused(live.config)
    chosen = _select(live, made, evidences, folder, out, cap=cap, dry_run=dry_run)
    _refuse_forbidden(chosen.forbidden)
    _refuse_failed_rows(made, evidences)


def dispatch(out: OutOption = OUT, source: InOption = None, config: ConfigOption = None) -> None:
    """Ask for the runs of the selected candidates, and for those of parked sessions that may go on."""
    from klaud.cli import live as lives
    from klaud.planner import files, model

    folder = source or out
    live = lives.open_live(config)
    _refuse_paused(live.config)
    made = files.read(folder, files.SELECTION, model.Selection, made_by="klaud select")
    _dispatch(live, made, _continuations(folder), out)


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
    _preflight(live)
    swept = _recover(live, out, dry_run=dry_run)
    files.write(out, "recovery-first.json", (out / RECOVERY).read_bytes())
    memory = _remembered(live, out)
    made, evidences = _plan(
        live.config, memory, swept.blocked, root=root, cache=cache, seed=seed, only=family or (), out=out,
        wave=live.place.wave,
    )  # fmt: skip
    _review(live, made, out)
    evidences = _produced(live.config, made, _proven(live, made, evidences, root), root, cache)
    files.write(out, proof.FILE, evidences)
    chosen = _select(live, made, evidences, out, out, cap=cap, dry_run=dry_run)
    selection = chosen.selection
    if not dry_run:
        selection = _dispatch(live, selection, _parked(swept), out)
        if until_quiet:
            swept, selection = _until_quiet(live, selection, swept, out)
    _refuse_forbidden(chosen.forbidden)
    _refuse_failed_rows(made, evidences)
    if swept.red:
        raise typer.Exit(1)


# -- steps


def _beside(root: Path) -> Path | None:
    """Return where the configuration lies in another folder, None for the usual place."""
    from klaud import config as configs

    return root / configs.PLACE if root != Path() and "KLAUD_CONFIG" not in os.environ else None


def _say(report: reports.Report) -> None:
    from klaud.reports import publish, render

    publish.step_summary(report, os.environ)
    typer.echo(render.text(report))


def _refuse_paused(config: configs.Config) -> None:
    from klaud import config as configs

    why = configs.is_paused(config, os.environ)
    if why:
        message = f"klaud is paused: {why}"
        raise errors.InputError(message, advice="Nothing was written; take the pause away when klaud may go on.")


def _refuse_forbidden(why: str) -> None:
    if why:
        raise errors.ForbiddenError(why)


def _refuse_failed_rows(made: model.Plan, evidences: proof.Evidences) -> None:
    """End with an error where no benchmark's published rows could be read: nothing could be proven."""
    failed = [one for one in evidences.benchmarks if one.failed is not None]
    if not made.candidates or not failed or len(failed) < len(evidences.benchmarks):
        return
    message = "; ".join(one.failed.message for one in failed if one.failed is not None)
    advice = "Correct the feed, or try again when it answers; nothing was claimed or started."
    if any(one.failed is not None and one.failed.code == "feed-unavailable" for one in failed):
        raise errors.ReadFailedError(message, advice=advice)
    raise errors.InputError(message, advice=advice)


def _preflight(live: lives.Live) -> tuple[checking.Check, ...]:
    from klaud import config as configs
    from klaud.planner import preflight, summary

    flows = [name for one in live.config.benchmarks for name in (one.workflows.smoke, one.workflows.final) if name]
    found = preflight.checks(
        live.gateway,
        bot=live.config.bot,
        me=live.me,
        workflows=list(dict.fromkeys([live.config.candidate_workflow, *flows])),
        list_refs=lambda: live.refs.list(live.names.listed_prefixes()),
        paused=configs.is_paused(live.config, os.environ),
        ref=os.environ.get("GITHUB_REF", ""),
    )
    bad = [one for one in found if one.result != "ok"]
    if bad:
        _say(summary.preflight_checks(bad))
    status = max((one.status for one in found if one.stops), default=0)
    if status:
        raise typer.Exit(status)
    return found


def _recover(live: lives.Live, out: Path, *, dry_run: bool) -> recovery.Report:
    from klaud.cli import recovery as verbs

    found = verbs.sweep(live, report=dry_run, bundles=out)
    verbs.publish(found, out / RECOVERY)
    return found


def _remembered(live: lives.Live, out: Path) -> model.Memory:
    from klaud.planner import files, observe

    try:
        pulls = live.gateway.open_pulls()
    except errors.ReadFailedError:
        pulls = None
    memory = observe.memory(live.store.snapshot(), pulls, repository=live.repository, at=live.clock.now())
    files.write(out, files.MEMORY, memory)
    return memory


def _refuse_stale(memory: model.Memory, swept: recovery.Report | None) -> None:
    """Refuse a memory from before the sweep: it still has the claims and drafts that the sweep has settled."""
    from klaud.planner import files, observe

    if swept is not None and memory.at < observe.time_text(swept.at):
        message = f"{files.MEMORY} was read before {RECOVERY} was written"
        raise errors.InputError(message, advice="Run klaud preflight --out after klaud recover; nothing was planned.")


def _in_recovery(folder: Path) -> dict[str, str]:
    found = _recovery(folder)
    return found.blocked if found is not None else {}


def _continuations(folder: Path) -> list[tuple[str, str]]:
    found = _recovery(folder)
    return _parked(found) if found is not None else []


def _parked(found: recovery.Report) -> list[tuple[str, str]]:
    return [(one.wave, one.candidate) for one in found.continuations]


def _recovery(folder: Path) -> recovery.Report | None:
    from klaud.planner import codec, files
    from klaud.recovery import model as recovery

    raw = files.read_bytes(folder, RECOVERY)
    return None if raw is None else codec.decode(raw, recovery.Report, where=RECOVERY)


def _plan(
    config: configs.Config,
    memory: model.Memory,
    in_recovery: dict[str, str],
    *,
    root: Path,
    cache: Path | None,
    seed: int | None,
    only: Sequence[str],
    out: Path,
    wave: str = "",
) -> tuple[model.Plan, proof.Evidences]:
    from klaud import clock as clocks
    from klaud import feeds
    from klaud.baselines import producers
    from klaud.planner import decide_plan, files, observe, planning, proof, sources, summary, tree

    clock = clocks.SystemClock()
    commit = tree.Tree(root)
    git = producers.GitObjects(root)
    evidence: dict[str, proof.Evidence] = {}

    def generate(benchmark: settings.Benchmark, families: Sequence[str]) -> Sequence[planning.Made]:
        made = proof.current(benchmark, families, base=commit.commit, git=git, cache=cache)
        evidence[benchmark.name] = proof.Evidence(benchmark=benchmark.name, produced=made)
        return made.matrices

    known = wave or _wave()
    made = planning.make(
        config.benchmarks,
        config.planner,
        wave=known,
        seed=planning.seed_of(known) if seed is None else seed,
        places=sources.Places(files=commit, root=root, web=feeds.Web(clock=clock)),
        generate=generate,
        standing=decide_plan.Standing(memory=memory, in_recovery=in_recovery, at=observe.time_text(clock.now())),
        only=only,
    )
    evidences = proof.Evidences(base=made.base, benchmarks=tuple(evidence.values()))
    files.write(out, files.PLAN, made)
    files.write(out, proof.FILE, evidences)
    _say(summary.plan(made))
    return made, evidences


def _wave() -> str:
    """Return the wave's id from the environment; outside of Actions a new one."""
    run, attempt = os.environ.get("GITHUB_RUN_ID", ""), os.environ.get("GITHUB_RUN_ATTEMPT", "1")
    return f"{run}.{attempt}" if run else f"local-{secrets.token_hex(8)}"


def _trial(config: configs.Config, root: Path) -> list[validating.Finding]:
    """Run each benchmark's generator at the clone's commit and return what it cannot do."""
    from klaud.baselines import model as baselines
    from klaud.baselines import producers
    from klaud.planner import observe, proof, tree
    from klaud.planner import validate as validating

    commit = tree.Tree(root)
    git = producers.GitObjects(root)
    found = []
    for index, benchmark in enumerate(config.benchmarks):
        families, _ = observe.families(benchmark, commit)
        made = proof.current(benchmark, families, base=commit.commit, git=git, cache=None)
        fix = "run the generator by hand at this commit; klaud shows none of its words"
        found += [
            validating.Finding("error", f"benchmarks[{index}].generator", f"{one.family}: {one.code}: {one.error}", fix)
            for one in made.matrices
            if isinstance(one, baselines.NotGenerated)
        ]
    return found


def _review(live: lives.Live, made: model.Plan, out: Path) -> reviewed.ReviewResult:
    from klaud.planner import files, reviewing
    from klaud.review import codec, observe
    from klaud.review import run as verbs

    policy = live.config.review
    candidates = reviewing.candidates(made, live.config.benchmarks)
    pulls = observe.open_pulls(live.gateway, candidates, policy, repository=live.repository, clock=live.clock)
    files.write(out, OPEN_PULLS, codec.encode(pulls))
    reviewer = None
    if policy.mode != "rules":
        message = f"review mode {policy.mode} needs a reviewer, which this verb does not have yet"
        raise errors.InputError(message, advice="Set review: {mode: rules} in the configuration.")
    result = verbs.review(candidates, pulls, policy, reviewer=reviewer)
    files.write(out, REVIEW, codec.encode(result))
    return result


def _proven(live: lives.Live, made: model.Plan, evidences: proof.Evidences, root: Path) -> proof.Evidences:
    """Add rows and proofs to the evidence of each benchmark that has candidates."""
    import msgspec

    from klaud import feeds
    from klaud.baselines import observe, producers
    from klaud.planner import proof

    asking = proof.Asking(
        gateway=live.gateway,
        git=producers.GitObjects(root),
        repository=live.repository,
        host=live.place.web_host,
        tip=made.base,
        default_branch=live.gateway.repository().default_branch,
        place=observe.Place(root=root, web=feeds.Web(clock=live.clock)),
        root=root,
    )
    found = []
    for one in evidences.benchmarks:
        families = _families(made, one.benchmark)
        benchmark = live.config.benchmark(one.benchmark)
        found.append(proof.prove(benchmark, one, families, asking) if families else one)
    return msgspec.structs.replace(evidences, benchmarks=tuple(found))


def _produced(
    config: configs.Config, made: model.Plan, evidences: proof.Evidences, root: Path, cache: Path | None
) -> proof.Evidences:
    """Add the producers' matrices to the evidence; runs generators, needs no credential."""
    import msgspec

    from klaud.baselines import producers
    from klaud.planner import proof

    git = producers.GitObjects(root)
    found = [
        proof.produce(config.benchmark(one.benchmark), one, _families(made, one.benchmark), git=git, cache=cache)
        for one in evidences.benchmarks
    ]
    return msgspec.structs.replace(evidences, benchmarks=tuple(found))


def _handed_in(evidences: proof.Evidences, folder: Path) -> proof.Evidences:
    """Add the producers' matrices that ``klaud regenerate`` has left in ``folder``."""
    import msgspec

    from klaud.baselines import model as baselines
    from klaud.planner import codec, files, proof

    found = []
    for one in evidences.benchmarks:
        name = files.producers(one.benchmark)
        raw = files.read_bytes(folder, name)
        found.append(one if raw is None else proof.joined(one, codec.decode(raw, baselines.Produced, where=name)))
    return msgspec.structs.replace(evidences, benchmarks=tuple(found))


def _families(made: model.Plan, benchmark: str) -> list[str]:
    """Return the families of one benchmark that the plan has candidates of."""
    return sorted({one.family for one in made.candidates if one.benchmark == benchmark})


def _world(live: lives.Live) -> act.World:
    from klaud.leases import model as leases
    from klaud.planner import act

    return act.World(
        gateway=live.gateway,
        store=live.store,
        clock=live.clock,
        names=live.names,
        repository=live.repository,
        me=live.me or leases.Holder(run_id=0, attempt=1, job="laptop", nonce=secrets.token_hex(8)),
        policy=live.config.planner,
        bot=live.config.bot,
        candidate_workflow=live.config.candidate_workflow,
    )


def _select(
    live: lives.Live,
    made: model.Plan,
    evidences: proof.Evidences,
    folder: Path,
    out: Path,
    *,
    cap: int | None,
    dry_run: bool,
) -> run.Selected:
    from klaud import feeds
    from klaud.planner import capacity, codec, files, proof, run, summary
    from klaud.review import codec as reviews

    raw = files.read_bytes(folder, REVIEW)
    if raw is None:
        message = f"{REVIEW} is not in {folder}"
        raise errors.InputError(message, advice="Run klaud review first and hand its folder on.")
    verdicts, inputs = {}, {}
    for one in live.config.benchmarks:
        evidence = evidences.of(one.name)
        judged = proof.judge(one, evidence, _families(made, one.name), made.base)
        verdicts.update({(one.name, family): verdict for family, verdict in judged.items()})
        inputs.update({(one.name, family): digest for family, digest in proof.inputs(evidence, made.base).items()})
    given = run.Given(
        plan=made,
        in_recovery=_in_recovery(folder),
        review=reviews.decode_result(raw),
        verdicts=verdicts,
        inputs=inputs,
        bundle=lambda one: proof.make_bundle(
            live.config.benchmark(one.benchmark), evidences.of(one.benchmark), one.family, made.base
        ),
        figures=capacity.ask(
            live.config.planner.capacity,
            root=Path(),
            web=feeds.Web(clock=live.clock),
            key=os.environ.get(capacity.KEY_VARIABLE, ""),
        ),
    )
    chosen = run.select(_world(live), given, cap=cap, dry_run=dry_run)
    for candidate, brief in chosen.briefs.items():
        files.write(out, files.brief(candidate), brief)
        files.write(out, files.bundle(candidate), chosen.bundles[candidate])
    files.write(out, files.SELECTION, codec.encode_selection(chosen.selection))
    _say(summary.selection(chosen.selection))
    return chosen


def _dispatch(live: lives.Live, made: model.Selection, parked: Sequence[tuple[str, str]], out: Path) -> model.Selection:
    from klaud.planner import codec, files, run, summary

    branch = live.gateway.repository().default_branch
    done = run.dispatch(_world(live), made, parked=parked, branch=branch)
    files.write(out, files.SELECTION, codec.encode_selection(done))
    _say(summary.selection(done))
    return done


def _until_quiet(
    live: lives.Live, selection: model.Selection, swept: recovery.Report, out: Path
) -> tuple[recovery.Report, model.Selection]:
    """Sweep and continue until no session of klaud's is alive, parked or about to go on; bounded in rounds."""
    from klaud.cli import recovery as verbs
    from klaud.planner import files

    files.write(out, "selection-first.json", (out / files.SELECTION).read_bytes())
    policy = live.config.planner
    quiet = False
    for _ in range(policy.until_quiet_rounds):
        live.clock.sleep(policy.until_quiet_seconds)
        before = _standing(swept)
        swept = verbs.sweep(live, bundles=out)
        files.write(out, RECOVERY, swept)
        typer.echo(f"klaud: {_progress(swept)}", err=True)
        parked = _parked(swept)
        if parked:
            selection = _dispatch(live, selection, parked, out)
        elif not _alive(swept) and _standing(swept) == before:
            quiet = True
            break
    verbs.publish(swept, out / RECOVERY)
    if not quiet:
        typer.echo("klaud: sessions still go on; the next wave settles them", err=True)
    return swept, selection


def _standing(swept: recovery.Report) -> frozenset[tuple[str, str, str]]:
    """Return where each session stands: two sweeps that agree on it have nothing to move."""
    return frozenset((one.session, one.row, one.state) for one in swept.sessions)


def _alive(swept: recovery.Report) -> bool:
    """Tell whether any session is alive, in another pass's hand, or waits for its continuation."""
    return any(one.row in {"4", "5", "13"} for one in swept.sessions)


def _progress(swept: recovery.Report) -> str:
    going = sum(1 for one in swept.sessions if one.row in {"4", "5", "13"})
    done = sum(len(one.done) for one in swept.sessions)
    return f"{going} session(s) still go on, {done} act(s) of this sweep"
