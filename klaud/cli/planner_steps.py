"""What the planner's verbs are made of: each step with live objects, from files or records to files and records.

``planner`` has the verbs themselves. Everything heavy is imported inside the functions, as in every file of ``klaud.cli``.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from klaud import errors

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from klaud import config as configs
    from klaud.cli import live as lives
    from klaud.planner import act, model, planning, proof, run, settings
    from klaud.planner import preflight as checking
    from klaud.planner import validate as validating
    from klaud.recovery import model as recovery
    from klaud.reports import model as reports
    from klaud.review import model as reviewed
    from klaud.session import model as sessions

RECOVERY = "recovery.json"
OPEN_PULLS = "open-prs.json"
REVIEW = "review.json"
REVIEW_KEY = "KLAUD_REVIEW_KEY"
"""The variable with the batch provider's key; only the review step needs it."""


def beside(root: Path) -> Path | None:
    """Return where the configuration lies in another folder, None for the usual place."""
    from klaud import config as configs

    return root / configs.PLACE if root != Path() and "KLAUD_CONFIG" not in os.environ else None


def say(report: reports.Report) -> None:
    """Show a report on stdout and in the step summary."""
    from klaud.reports import publish, render

    publish.step_summary(report, os.environ)
    typer.echo(render.text(report))


def refuse_forbidden(why: str) -> None:
    """End with a lacking right, where one was found on the way."""
    if why:
        raise errors.ForbiddenError(why)


def refuse_failed_rows(made: model.Plan, evidences: proof.Evidences) -> None:
    """End with an error where no benchmark's published rows could be read: nothing could be proven."""
    failed = [one for one in evidences.benchmarks if one.failed is not None]
    measured = any(one.kind == "upgrade" for one in made.candidates)
    if not measured or not failed or len(failed) < len(evidences.benchmarks):
        return
    message = "; ".join(one.failed.message for one in failed if one.failed is not None)
    advice = "Correct the feed, or try again when it answers; nothing was claimed or started."
    if any(one.failed is not None and one.failed.code == "feed-unavailable" for one in failed):
        raise errors.ReadFailedError(message, advice=advice)
    raise errors.InputError(message, advice=advice)


def need_git() -> None:
    """End with an error where the git program is missing: before anything is written, not in the middle of a wave."""
    if shutil.which("git") is None:
        message = "git is not on PATH: a wave reads the repository's commits with it"
        raise errors.MissingToolError(message)


def crons(root: Path) -> tuple[str, ...]:
    """Return the cron expressions of the clone's planner workflow; none where it has none or cannot be read."""
    from klaud import yaml12
    from klaud.cli import init
    from klaud.planner import rules_schedule

    path = root / init.FOLDER / "klaud-plan.yml"
    try:
        return rules_schedule.crons_of(yaml12.load(path.read_bytes(), where=path.name, limit=init.FILE_BYTES))
    except (OSError, errors.InputError):
        return ()


def branch_rules(live: lives.Live) -> checking.Rules:
    """Return how the preflight reads the repository's rules for klaud's branches."""
    from klaud.github import rulesets
    from klaud.planner import preflight

    return preflight.Rules(lambda branch: rulesets.of_branch(live.gateway, branch), live.config.identity()[1])


def check(live: lives.Live) -> tuple[checking.Check, ...]:
    """Run the preflight; show what is wrong, and end where it stops the wave."""
    from klaud import config as configs
    from klaud.planner import preflight, summary

    flows = [name for one in live.config.flows() for name in (one.smoke, one.final) if name]
    found = preflight.checks(
        live.gateway,
        bot=live.config.bot,
        me=live.me,
        workflows=list(dict.fromkeys([live.config.candidate_workflow, *flows])),
        list_refs=lambda: live.refs.list(live.names.listed_prefixes()),
        paused=configs.is_paused(live.config, os.environ),
        ref=os.environ.get("GITHUB_REF", ""),
        crons=crons(Path()),
        rules=branch_rules(live),
    )
    bad = [one for one in found if one.result != "ok"]
    if bad:
        say(summary.preflight_checks(bad))
    status = max((one.status for one in found if one.stops), default=0)
    if status:
        worst = next(one for one in found if one.stops and one.status == status)
        typer.echo(f"klaud: {worst.what}\n  -> {worst.fix}", err=True)
        raise typer.Exit(status)
    return found


def recover(live: lives.Live, out: Path, *, dry_run: bool) -> recovery.Report:
    """Sweep, and write and show recovery.json."""
    from klaud.cli import recovery as verbs

    found = verbs.sweep(live, report=dry_run, bundles=out)
    verbs.publish(found, out / RECOVERY)
    verbs.say_red(found)
    return found


def remembered(live: lives.Live, out: Path) -> model.Memory:
    """Read what is remembered of families, write it as families.json and return it."""
    from klaud.planner import files, observe

    try:
        pulls = live.gateway.open_pulls()
    except errors.ReadFailedError:
        pulls = None
    memory = observe.memory(live.store.snapshot(), pulls, repository=live.repository, at=live.clock.now())
    files.write(out, files.MEMORY, memory)
    return memory


def refuse_stale(memory: model.Memory, swept: recovery.Report | None) -> None:
    """Refuse a memory from before the sweep: it still has the claims and drafts that the sweep has settled."""
    from klaud.planner import files, observe

    if swept is not None and memory.at < observe.time_text(swept.at):
        message = f"{files.MEMORY} was read before {RECOVERY} was written"
        raise errors.InputError(message, advice="Run klaud preflight --out after klaud recover; nothing was planned.")


def in_recovery(folder: Path) -> dict[str, str]:
    """Return which families recovery still has in hand, from recovery.json where it is there."""
    found = swept_before(folder)
    return found.blocked if found is not None else {}


def continuations(folder: Path) -> list[tuple[str, str]]:
    """Return the parked sessions that recovery.json lets go on, as (wave, candidate)."""
    found = swept_before(folder)
    return parked_of(found) if found is not None else []


def parked_of(found: recovery.Report) -> list[tuple[str, str]]:
    """Return the parked sessions that a sweep lets go on, as (wave, candidate)."""
    return [(one.wave, one.candidate) for one in found.continuations]


def swept_before(folder: Path) -> recovery.Report | None:
    """Return the report of the sweep before, None where there is none."""
    from klaud.planner import codec, files
    from klaud.recovery import model as recovery

    raw = files.read_bytes(folder, RECOVERY)
    return None if raw is None else codec.decode(raw, recovery.Report, where=RECOVERY)


def make_plan(
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
    """Make the plan, write it with the current matrices, show it, and return both."""
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

    known = wave or wave_id()
    made = planning.make(
        config.benchmarks,
        config.planner,
        wave=known,
        seed=planning.seed_of(known) if seed is None else seed,
        places=sources.Places(files=commit, root=root, web=feeds.Web(clock=clock)),
        generate=generate,
        standing=decide_plan.Standing(memory=memory, in_recovery=in_recovery, at=observe.time_text(clock.now())),
        only=only,
        references=config.references,
    )
    evidences = proof.Evidences(base=made.base, benchmarks=tuple(evidence.values()))
    files.write(out, files.PLAN, made)
    files.write(out, proof.FILE, evidences)
    say(summary.plan(made))
    return made, evidences


def wave_id() -> str:
    """Return the wave's id from the environment; outside of Actions a new one."""
    run, attempt = os.environ.get("GITHUB_RUN_ID", ""), os.environ.get("GITHUB_RUN_ATTEMPT", "1")
    return f"{run}.{attempt}" if run else f"local-{secrets.token_hex(8)}"


def trial(config: configs.Config, root: Path) -> list[validating.Finding]:
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


def make_review(live: lives.Live, made: model.Plan, out: Path) -> reviewed.ReviewResult:
    """List the open pull requests, review the candidates, and write open-prs.json and review.json."""
    from klaud.planner import files, reviewing
    from klaud.review import codec, observe
    from klaud.review import run as verbs

    policy = live.config.review
    candidates = reviewing.candidates(made, live.config.benchmarks, live.config.references)
    pulls = observe.open_pulls(live.gateway, candidates, policy, repository=live.repository, clock=live.clock)
    files.write(out, OPEN_PULLS, codec.encode(pulls))
    with _reviewer(live, out) as reviewer:
        result = verbs.review(candidates, pulls, policy, reviewer=reviewer)
    files.write(out, REVIEW, codec.encode(result))
    return result


@contextlib.contextmanager
def _reviewer(live: lives.Live, out: Path) -> Iterator[reviewed.Reviewer | None]:
    """Yield who decides what rules cannot: nobody, an agent, or a message batch whose state lies in ``out`` between runs."""
    from klaud.review import batch

    policy = live.config.review
    if policy.mode == "rules":
        yield None
    elif policy.mode == "batch":
        key = os.environ.get(REVIEW_KEY, "")
        if not key:
            message = f"review mode batch asks {policy.provider}, and {REVIEW_KEY} is not set"
            raise errors.InputError(message, advice=f"Set {REVIEW_KEY} for this step, or review: {{mode: rules}}.")
        with batch.opened(policy, key=key, directory=out / "review-batch", clock=live.clock) as reviewer:
            yield reviewer
    else:
        yield _session_reviewer(live.config.session)


def _session_reviewer(policy: sessions.Policy) -> reviewed.Reviewer:
    """Return the reviewer that asks an agent, one bounded question after the other, in the session's sandbox."""
    from klaud.review import session as asking
    from klaud.session import frameworks, question, sandbox

    missing = frameworks.missing_credential(policy.framework, os.environ)
    if missing:
        raise errors.InputError(f"review mode session: {missing}")
    found = sandbox.find(policy.isolation)
    if isinstance(found, sandbox.Lacking):
        message = f"this host cannot isolate the reviewing agent: {'; '.join(found.missing)}"
        raise errors.InputError(message, advice="Use a host that can, or review: {mode: rules}; nothing was written.")
    handed = {key: os.environ[key] for key in (*frameworks.CREDENTIALS, "ANTHROPIC_BASE_URL") if key in os.environ}

    def ask(system: str, prompt: str) -> str:
        return question.put(
            system,
            prompt,
            policy=policy,
            sandbox=found,
            environ=handed,
            log=lambda text: typer.echo(f"klaud: review: {text}", err=True),
        )

    return asking.SessionReviewer(ask)


def proven(live: lives.Live, made: model.Plan, evidences: proof.Evidences, root: Path) -> proof.Evidences:
    """Add rows and proofs to the evidence of each benchmark that has candidates."""
    import msgspec

    from klaud import feeds
    from klaud.baselines import observe, producers, render
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
        families = families_of(made, one.benchmark)
        benchmark = live.config.benchmark(one.benchmark)
        added = proof.prove(benchmark, one, families, asking) if families else one
        if added.read is not None:
            for line in render.explain_feed(added.read).splitlines():
                typer.echo(f"benchmark {one.benchmark}: {line}")
        found.append(added)
    return msgspec.structs.replace(evidences, benchmarks=tuple(found))


def produced(
    config: configs.Config, made: model.Plan, evidences: proof.Evidences, root: Path, cache: Path | None
) -> proof.Evidences:
    """Add the producers' matrices to the evidence; runs generators, needs no credential."""
    import msgspec

    from klaud.baselines import producers
    from klaud.planner import proof

    git = producers.GitObjects(root)
    found = [
        proof.produce(config.benchmark(one.benchmark), one, families_of(made, one.benchmark), git=git, cache=cache)
        for one in evidences.benchmarks
    ]
    return msgspec.structs.replace(evidences, benchmarks=tuple(found))


def handed_in(evidences: proof.Evidences, folder: Path) -> proof.Evidences:
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


def families_of(made: model.Plan, benchmark: str) -> list[str]:
    """Return the families of one benchmark that the plan has candidates of."""
    return sorted({one.family for one in made.candidates if one.benchmark == benchmark})


def world_of(live: lives.Live) -> act.World:
    """Return what the wave acts on; outside of Actions a laptop holds the claims until their runs take them over."""
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


def choose(
    live: lives.Live,
    made: model.Plan,
    evidences: proof.Evidences,
    folder: Path,
    out: Path,
    *,
    cap: int | None,
    dry_run: bool,
) -> run.Selected:
    """Select and claim; write selection.json, briefs and bundles, and show what was decided."""
    from klaud import feeds
    from klaud.planner import capacity, codec, encoding, files, proof, run, summary
    from klaud.review import codec as reviews

    raw = files.read_bytes(folder, REVIEW)
    if raw is None:
        message = f"{REVIEW} is not in {folder}"
        raise errors.InputError(message, advice="Run klaud review first and hand its folder on.")
    verdicts, inputs, relied = {}, {}, {}
    for one in live.config.benchmarks:
        evidence = evidences.of(one.name)
        judged = proof.judge(one, evidence, families_of(made, one.name), made.base)
        verdicts.update({(one.name, verdict.family): verdict for verdict in judged.verdicts})
        relied.update({(one.name, family): rest for family, rest in judged.relied.items()})
        inputs.update({(one.name, family): digest for family, digest in proof.inputs(evidence, made.base).items()})
    given = run.Given(
        plan=made,
        in_recovery=in_recovery(folder),
        review=reviews.decode_result(raw),
        verdicts=verdicts,
        inputs=inputs,
        bundle=lambda one: proof.make_bundle(
            live.config.benchmark(one.benchmark),
            evidences.of(one.benchmark),
            one.family,
            made.base,
            relied.get((one.benchmark, one.family)),
        ),
        figures=capacity.ask(
            live.config.planner.capacity,
            root=Path(),
            web=feeds.Web(clock=live.clock),
            key=os.environ.get(capacity.KEY_VARIABLE, ""),
        ),
        refuse=lambda brief: encoding.refused(brief, live.config.reference(brief.benchmark), live.config.encoding()),
    )
    chosen = run.select(world_of(live), given, cap=cap, dry_run=dry_run)
    for candidate, brief in chosen.briefs.items():
        files.write(out, files.brief(candidate), brief)
        if candidate in chosen.bundles:
            files.write(out, files.bundle(candidate), chosen.bundles[candidate])
    files.write(out, files.SELECTION, codec.encode_selection(chosen.selection))
    say(summary.selection(chosen.selection))
    return chosen


def send(live: lives.Live, made: model.Selection, parked: Sequence[tuple[str, str]], out: Path) -> model.Selection:
    """Dispatch what was selected and what goes on; write selection.json again, and show it."""
    from klaud.planner import codec, files, run, summary

    branch = live.gateway.repository().default_branch
    done = run.dispatch(world_of(live), made, parked=parked, branch=branch)
    files.write(out, files.SELECTION, codec.encode_selection(done))
    say(summary.selection(done))
    return done


def nothing_selected(live: lives.Live) -> model.Selection:
    """Return a selection of nothing, for a run that only lets parked sessions go on."""
    from klaud.planner import model, observe

    tip = f"refs/heads/{live.gateway.repository().default_branch}"
    base = live.refs.list([tip]).get(tip, "")
    return model.Selection(wave=live.place.wave, base=base, seed=0, at=observe.time_text(live.clock.now()))


def until_quiet(
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
        before = standing(swept)
        swept = verbs.sweep(live, bundles=out)
        files.write(out, RECOVERY, swept)
        typer.echo(f"klaud: {progress(swept)}", err=True)
        parked = parked_of(swept)
        if parked:
            selection = send(live, selection, parked, out)
        elif not alive(swept) and standing(swept) == before:
            quiet = True
            break
    verbs.publish(swept, out / RECOVERY)
    if not quiet:
        typer.echo("klaud: sessions still go on; the next wave settles them", err=True)
    return swept, selection


def standing(swept: recovery.Report) -> frozenset[tuple[str, str, str]]:
    """Return where each session stands: two sweeps that agree on it have nothing to move."""
    return frozenset((one.session, one.row, one.state) for one in swept.sessions)


def alive(swept: recovery.Report) -> bool:
    """Tell whether any session is alive, in another pass's hand, or waits for its continuation."""
    return any(one.row in {"4", "5", "13"} for one in swept.sessions)


def progress(swept: recovery.Report) -> str:
    """Say how far the sessions are, in one line."""
    going = sum(1 for one in swept.sessions if one.row in {"4", "5", "13"})
    done = sum(len(one.done) for one in swept.sessions)
    return f"{going} session(s) still go on, {done} act(s) of this sweep"
