"""The verbs of one candidate run: ``session``, ``finish``, ``check-stop``, ``diagnostics``."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import signal
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer

from klaud import errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from klaud import config as configs
    from klaud.baselines import schema
    from klaud.cli import live
    from klaud.leases import model as leases
    from klaud.session import model, rules_coverage, run

Room: TypeAlias = Literal["free", "full", "unknown", "not-asked"]

BRIEF_BYTES = 1_048_576
"""A brief: ids and a small change."""

ConfigOption = Annotated[Path | None, typer.Option("--config", help="The configuration; default .github/klaud.yml.")]
BundleOption = Annotated[
    Path | None, typer.Option("--bundle", help="The frozen baseline's bundle; default: baseline-<candidate>.json.")
]
ReportOption = Annotated[Path | None, typer.Option("--report", help="Where to write how it ended, as JSON.")]
WaveOption = Annotated[str, typer.Option("--wave", help="The session's wave.")]
CandidateOption = Annotated[str, typer.Option("--candidate", help="The session's candidate.")]
BriefOption = Annotated[Path | None, typer.Option("--brief", help="The session's brief, which names its benchmark.")]
HandedOption = Annotated[Path, typer.Option("--out", help="Folder for the wave's files, where --brief is not given.")]
HANDED = Path("klaud-wave")
ReferencesOption = Annotated[
    Path, typer.Option("--references", help="For a candidate that encodes: where its reference is built and kept.")
]
REFERENCES = Path("klaud-references")
ClaimOption = Annotated[str, typer.Option("--claim", help="The claim's commit that this run was started for.")]


def session(  # noqa: PLR0917 - a verb's options
    brief: Annotated[
        Path | None,
        typer.Option("--brief", help="What to do (candidate-<id>.json); without it, that of --wave and --candidate."),
    ] = None,
    wave: Annotated[str, typer.Option("--wave", help="The wave whose artifact has the brief.")] = "",
    candidate: Annotated[str, typer.Option("--candidate", help="The candidate in that artifact.")] = "",
    claim: ClaimOption = "",
    bundle: BundleOption = None,
    report: ReportOption = None,
    out: HandedOption = HANDED,
    references: ReferencesOption = REFERENCES,
    config: ConfigOption = None,
) -> None:
    """Run one candidate's session: take its claim over, let the agent work, then park or settle.

    Ends with status 0 also when another run holds the claim, or where klaud is paused: nothing is written then.
    """
    from klaud.cli import frozen, neutral
    from klaud.cli import live as lives
    from klaud.session import run

    if neutral.paused(lives.load_config(config), "session"):
        return
    place = brief if brief is not None else _handed(config, wave, candidate, out)
    told = _read_brief(place)
    beside = place.resolve().parent / f"baseline-{told.candidate}.json"
    if told.kind == "encode":
        _encode(told, claim, config, report, references)
        return
    found = frozen.find(bundle, beside, out, lambda: _fetch(config, told.wave, told.candidate, out), _log)
    frozen.refuse_unfounded(told, found)
    named = _Named(told.benchmark, told.candidate, told.targets)
    with _host(config, named, found, report) as host, _private_folder() as folder:
        end = run.run_session(host, told, folder=folder, claim=claim)
    _say(report, _words(end))


def _encode(told: model.Brief, claim: str, config: Path | None, report: Path | None, references: Path) -> None:
    """Run the session of a candidate that encodes; what the brief asks for is judged before anything is written."""
    import msgspec

    from klaud import clock as clocks
    from klaud.cli import live
    from klaud.encoder import candidate, request
    from klaud.encoder import run as encoding
    from klaud.session import run

    loaded = live.load_config(config)
    entry = loaded.reference(told.benchmark)
    if entry is None:
        message = f"references {told.benchmark[:80]!r} are not in the configuration"
        raise errors.InputError(message)
    places = {"{root}": str(Path.cwd()), "{python}": sys.executable}
    program = entry.program
    for name, place in places.items():
        program = tuple(word.replace(name, place) for word in program)
    checked = request.check(request.from_brief(told, program=program), loaded.encoding())
    for text in checked.warnings:
        _log(f"warning: {text}")
    work = candidate.Encode(
        checked=checked, data=entry.data, directory=entry.directory, references=references.absolute(),
        clock=clocks.SystemClock(), job_seconds=loaded.session.job_seconds,
    )  # fmt: skip
    named = _Named(told.benchmark, told.candidate, framework=checked.framework)
    with _host(config, named, Path(f"baseline-{told.candidate}.json"), report) as host, _private_folder() as folder:
        craft = run.Craft(workplace=work.workplace, turn=work.turn)
        end = run.run_session(host, told, folder=folder, claim=claim, craft=craft)
    words = _words(end)
    if work.outcome is not None:
        said = encoding.report(work.outcome)
        said = msgspec.structs.replace(said, upload=said.upload and work.handed_in)
        words["reference"] = msgspec.to_builtins(said)
        words["items"] = encoding.not_encoded(work.outcome)
        _outputs({"reference": said.artifact, "reference-path": str(references / said.path)} if said.upload else {})
    _say(report, words)


def _outputs(named: dict[str, str]) -> None:
    """Set outputs of the step, where it is one."""
    place = os.environ.get("GITHUB_OUTPUT", "")
    if place and named:
        with Path(place).open("a", encoding="utf-8") as file:
            file.writelines(f"{name}={value}\n" for name, value in named.items())


def finish(  # noqa: PLR0917 - a verb's options
    wave: WaveOption,
    candidate: CandidateOption,
    brief: BriefOption = None,
    bundle: BundleOption = None,
    report: ReportOption = None,
    out: HandedOption = HANDED,
    config: ConfigOption = None,
) -> None:
    """Settle a parked session whose runs are done: the outcome from facts, then report, ready or clean-up, release.

    Ends with status 0 also when the final run still goes, or when another run has it: nothing is written then.
    """
    from klaud.cli import frozen
    from klaud.session import run

    place = brief
    if place is None and bundle is None:
        try:
            place = _handed(config, wave, candidate, out)
        except errors.KlaudError as error:
            _log(f"the wave's files are not at hand: {error}")  # what needs them says so itself
    told = _read_brief(place) if place is not None else None
    beside = (place.resolve().parent if place is not None else Path()) / f"baseline-{candidate}.json"
    found = bundle or beside
    if told is not None and told.bundle:
        found = frozen.find(bundle, beside, out, lambda: _fetch(config, wave, candidate, out), _log)
    with _host(config, _Named(told.benchmark if told is not None else "", candidate), found, report) as host:
        answer = run.finish_session(host, wave, candidate)
    _say(report, _words(answer if isinstance(answer, run.NotOurs) else run.Ended(answer, None)))


def check_stop(wave: WaveOption, candidate: CandidateOption, config: ConfigOption = None) -> None:
    """Say whether an agent may stop: status 0 when it may, 1 with what is missing when it may not."""
    from klaud.session import decide_stop, rules_ledger

    missing = decide_stop.missing(rules_ledger.read(_ledger(config, wave, candidate).records))
    typer.echo(missing or "it may stop")
    if missing:
        raise typer.Exit(1)


def diagnostics(wave: WaveOption, candidate: CandidateOption, config: ConfigOption = None) -> None:
    """Print numbers and closed words about one session, as JSON: never a command, a path or a message."""
    import msgspec

    from klaud.session import rules_ledger

    found = rules_ledger.diagnose(_ledger(config, wave, candidate).records)
    typer.echo(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())


# -- the live objects


def _ledger(config: Path | None, wave: str, candidate: str) -> leases.Ledger:
    from klaud import names
    from klaud.cli import live
    from klaud.leases import model as leases

    if not names.is_wave(wave) or not names.is_candidate(candidate):
        message = f"{wave!r} and {candidate!r} are not a wave and a candidate"
        raise errors.InputError(message)
    opened = live.open_live(config)
    ledger = opened.store.look(opened.names.session(wave, candidate))
    if not isinstance(ledger, leases.Ledger):
        message = f"session {wave}-{candidate} has no ledger that can be read"
        raise errors.InputError(message)
    return ledger


def _handed(config: Path | None, wave: str, candidate: str, folder: Path) -> Path:
    """Return the brief's place in ``folder``, taken from the wave's artifact where it is not there yet."""
    from klaud.planner import files

    if not wave or not candidate:
        message = "what to do is not known: neither --brief nor --wave and --candidate are given"
        raise errors.InputError(message)
    place = folder / files.brief(candidate)
    if not place.exists():
        _fetch(config, wave, candidate, folder)
    return place


def _fetch(config: Path | None, wave: str, candidate: str, folder: Path) -> None:
    """Put the wave's files of one candidate into ``folder``."""
    from klaud.cli import handed, live

    handed.fetch(live.open_live(config).gateway, wave, candidate, folder)


def _read_brief(path: Path) -> model.Brief:
    import msgspec

    from klaud.session import model

    try:
        with path.open("rb") as file:
            raw = file.read(BRIEF_BYTES + 1)
    except OSError as error:
        message = f"{path}: {error.strerror}"
        raise errors.InputError(message) from None
    if len(raw) > BRIEF_BYTES:
        message = f"{path}: more than {BRIEF_BYTES} bytes"
        raise errors.InputError(message)
    try:
        return msgspec.json.decode(raw, type=model.Brief)
    except msgspec.DecodeError as error:
        message = f"{path}: not a brief: {error}"
        raise errors.InputError(message) from None


@dataclasses.dataclass(frozen=True, slots=True)
class _Named:
    """What a session is about: the benchmark's name (empty: the only one), the candidate, the targets its family runs on.

    ``framework``: what drives it instead of the policy's.
    """

    benchmark: str
    candidate: str
    targets: tuple[str, ...] = ()
    framework: str = ""


def _room(opened: live.Live, targets: tuple[str, ...]) -> Callable[[], Room]:
    """Return what asks the configured provider, each time anew, whether the targets have room."""
    from klaud import feeds
    from klaud.planner import capacity, decide

    def ask() -> Room:
        figures = capacity.ask(
            opened.config.planner.capacity,
            root=Path(),
            web=feeds.Web(clock=opened.clock),
            key=os.environ.get(capacity.KEY_VARIABLE, ""),
        )
        found = decide.capacity(targets, figures)
        return "full" if found == "busy" else found

    return ask


def _about(config: configs.Config, name: str) -> tuple[model.Workflows, model.EditScope, schema.Plan | None]:
    """Return workflows, edit scope and identity of a benchmark (empty: the only one); references have no identity."""
    from klaud.baselines import schema
    from klaud.session import model

    if not name and len(config.benchmarks) + len(config.references) == 1:
        name = (*(one.name for one in config.benchmarks), *(one.name for one in config.references))[0]
    entry = config.reference(name)
    if entry is not None:
        return entry.workflows, model.EditScope(files=(f"{entry.directory}/{entry.name}/**",)), None
    chosen = config.benchmark(name)
    if chosen.edit_scope is None:
        message = f"benchmark {chosen.name} has no edit-scope: what an agent may change is not known"
        raise errors.InputError(message)
    return chosen.workflows, chosen.edit_scope, schema.plan(chosen)


@contextlib.contextmanager
def _host(config: Path | None, named: _Named, bundle: Path, report: Path | None) -> Iterator[run.Host]:
    """Build what a session acts with; SIGINT and SIGTERM ask it to end. Logs are kept beside ``report``."""
    import msgspec

    from klaud.cli import live, pause_switch
    from klaud.github import folder as folders
    from klaud.github import gateway as ports
    from klaud.github import refs
    from klaud.leases import store as stores
    from klaud.session import (
        evidence,
        finish,
        journal,
        model,
        rules_coverage,
        rules_redact,
        rules_touch,
        run,
        tools,
        transcript,
    )

    opened = live.open_live(config)
    if opened.me is None:
        message = "GITHUB_RUN_ID is not set: a session needs a workflow run that others can see"
        raise errors.InputError(message)
    name = named.candidate
    flows, scope, plan = _about(opened.config, named.benchmark)
    policy = opened.config.session
    if named.framework:
        policy = msgspec.structs.replace(policy, framework=msgspec.convert(named.framework, model.Framework))
    loaded = evidence.load(bundle, None)

    def frozen(digest: str) -> rules_coverage.Frozen | rules_coverage.Unreadable:
        return evidence.load(bundle, digest)

    stop = threading.Event()
    with contextlib.ExitStack() as stack:
        for number in (signal.SIGINT, signal.SIGTERM):  # a cancelled step gets the first, 7.5 s later the second
            stack.callback(signal.signal, number, signal.signal(number, lambda *_: stop.set()))
        redactor = rules_redact.Redactor(rules_redact.secrets_of(os.environ))
        keep = report.absolute().parent if report is not None else None
        told = stack.enter_context(journal.opened(keep, name, redactor=redactor, clock=opened.clock))

        def open_refs(place: Path, shallow: frozenset[str]) -> ports.RefStore:
            return refs.GitRefStore(
                url=opened.place.git_url,
                token=opened.credential,
                identity=refs.Identity(*opened.config.identity()),
                clock=opened.clock,
                object_store=stack.enter_context(folders.objects_of(place)),
                shallow=shallow,
            )

        def open_store(store: ports.RefStore) -> stores.LeaseStore:
            return stores.LeaseStore(
                refs=store,
                names=opened.names,
                repository=opened.repository,
                clock=opened.clock,
                key=opened.place.record_key,
            )

        settling = finish.World(
            gateway=opened.gateway,
            refs=opened.refs,
            store=opened.store,
            names=opened.names,
            repository=opened.repository,
            host=opened.place.web_host,
            clock=opened.clock,
            policy=policy,
            workflows=flows,
            who=rules_touch.Who(
                bot=opened.config.bot,
                ignored=opened.config.ignored_actors,
                approvals=tuple(filter(None, [flows.approval_label])),
            ),
            plan=plan,
            frozen=frozen,
            log=told.log,
            journal=told,
            final_is_proof=plan is None,
        )
        yield run.Host(
            settling=settling,
            holder=opened.me,
            identity=opened.config.identity(),
            git_url=opened.place.git_url,
            token=opened.credential if isinstance(opened.credential, str) else opened.credential(),
            open_refs=open_refs,
            open_store=open_store,
            target=tools.Target(
                workflows=flows,
                scope=scope,
                points=loaded.points if isinstance(loaded, rules_coverage.Frozen) else (),
                capacity=_room(opened, named.targets) if plan is not None else None,
                who=settling.who,
            ),
            paused=pause_switch.of(opened, told.log),
            cancelled=stop.is_set,
            environ=dict(os.environ),
            spill=keep / f"control-spill-{name}.jsonl" if keep is not None else None,
            transcripts=transcript.Keeper(opened.gateway, policy, redactor, keep, told.log)
            if keep is not None and policy.transcripts == "artifact"
            else None,
        )


@contextlib.contextmanager
def _private_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="klaud-session-"))
    folder.chmod(0o711)  # the agent's own user must be able to reach its tree inside, and to list nothing
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _log(text: str) -> None:
    typer.echo(text, err=True)


def _words(end: Any) -> dict[str, Any]:
    """Return how a session ended in closed words and numbers."""
    from klaud.session import decide_outcome, run

    match end:
        case run.NotOurs():
            return {"end": "not-ours", "why": end.why}
        case run.Parked():
            turn = {"turn": end.turn.status, "fault": end.turn.fault}
            return {"end": "parked", "on": list(end.on), "why": end.why, **turn}
        case run.Stopped():
            return {"end": "stopped", "why": end.why}
        case run.Ended(answer=decide_outcome.NotYet() as waits):
            return {"end": "not-yet", "code": waits.code, "why": waits.why}
    outcome = end.answer.outcome
    words = {"end": "settled", "outcome": outcome.outcome, "code": outcome.code, "phase": outcome.phase}
    return {**words, "number": outcome.number, "final_run": outcome.final_run, "left": list(end.answer.left)}


def _say(report: Path | None, words: dict[str, Any]) -> None:
    import msgspec

    text = msgspec.json.encode(words)
    if report is not None:
        report.write_bytes(text + b"\n")
    typer.echo(text.decode())
