"""The verbs of the reference encoder: ``encode``, ``merge-references``, ``check-references``."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from klaud import errors

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from klaud.encoder import model as bounds
    from klaud.encoder import request
    from klaud.session import model

BRIEF_BYTES = 1_048_576
"""A brief: ids and a small change."""

_T = TypeVar("_T")

BenchmarkOption = Annotated[str, typer.Option("--benchmark", help="The benchmark's name.")]
DataOption = Annotated[Path, typer.Option("--data", help="Directory with one directory of inputs for each database.")]
ReferencesOption = Annotated[Path, typer.Option("--references", help="Directory that the references live in.")]
ConfigOption = Annotated[
    Path | None, typer.Option("--config", help="The configuration; default .github/klaud.yml, where it is there.")
]
DialectOption = Annotated[str, typer.Option("--dialect", help="sqlite, or postgres (DSN in KLAUD_POSTGRES_DSN).")]


def encode(  # noqa: PLR0917 - a verb's options
    data: DataOption,
    references: ReferencesOption,
    benchmark: Annotated[str, typer.Option("--benchmark", help="The benchmark's name.")] = "",
    databases: Annotated[str, typer.Option("--databases", help="Names of databases, separated by commas.")] = "",
    dialect: DialectOption = "sqlite",
    framework: Annotated[str, typer.Option("--framework", help="How the agent is driven.")] = "claude_sdk_otf_encode",
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Wipe these references and build them anew.")] = False,
    budget: Annotated[str, typer.Option("--budget", help="Time for each database, such as 5h40m.")] = "",
    mode: Annotated[str, typer.Option("--mode", help="a-interact or one-shot; both read the same reference.")] = (
        "a-interact"
    ),
    query_mode: Annotated[str, typer.Option("--query-mode", help="slayer.")] = "slayer",
    subscription_auth: Annotated[bool, typer.Option("--subscription-auth", help="Use a subscription token.")] = False,
    api_key: Annotated[bool, typer.Option("--api-key", help="Use an API key.")] = False,
    program: Annotated[
        str, typer.Option("--program", help="For --framework scripted: the command that answers for the agent.")
    ] = "",
    isolation: Annotated[
        str, typer.Option("--isolation", help="How the agent is kept apart: required, best-effort or none.")
    ] = "required",
    model: Annotated[str, typer.Option("--model", help="The model (default: encoder.model, else session.model).")] = "",
    config: ConfigOption = None,
    brief: Annotated[
        Path | None, typer.Option("--brief", help="A candidate's brief (candidate-<id>.json) instead of these options.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option("--report", help="Where to write what became of each, as JSON.")
    ] = None,
) -> None:
    """Encode the knowledge of databases into references; what is there already is reused.

    Ends with status 0 when every reference is complete, with 1 when one failed or is partial.
    """
    import msgspec

    from klaud.encoder import request as requests

    words = tuple(shlex.split(program))
    policy = _policy(config)
    if brief is not None:
        asked = msgspec.structs.replace(requests.from_brief(_brief(brief)), program=words, model=model)
        _encode(asked, policy, data, references, isolation, report)
        return
    given = [name for name, set_ in (("subscription", subscription_auth), ("api-key", api_key)) if set_]
    asked = requests.Asked(
        benchmark=benchmark,
        databases=databases,
        dialect=dialect,
        framework=framework,
        rebuild=rebuild,
        budget=budget,
        mode=mode,
        query_mode=query_mode,
        authentications=tuple(given),
        program=words,
        model=model,
    )
    _encode(asked, policy, data, references, isolation, report)


def _policy(config: Path | None) -> bounds.Policy:
    """Return what the configuration says of builds; the defaults where there is none and none was named."""
    from klaud.cli import live
    from klaud.encoder import model

    if config is None and not live.config_path().exists():
        return model.Policy()
    return live.load_config(config).encoding()


def _brief(path: Path) -> model.Brief:
    import msgspec

    from klaud.session import model

    try:
        data = path.read_bytes()
    except OSError as error:
        message = f"the brief {path.name} cannot be read: {error.strerror}"
        raise errors.InputError(message) from None
    try:
        if len(data) > BRIEF_BYTES:
            message = f"the brief {path.name} has more than {BRIEF_BYTES} bytes"
            raise errors.InputError(message)
        return msgspec.json.decode(data, type=model.Brief)
    except msgspec.DecodeError as error:
        message = f"the brief {path.name} is none: {error}"
        raise errors.InputError(message) from None


def _encode(  # noqa: PLR0917 - the options of a verb, read
    asked: request.Asked, policy: bounds.Policy, data: Path, references: Path, isolation: str, report: Path | None
) -> None:
    import msgspec

    from klaud import clock
    from klaud.encoder import driven, run
    from klaud.encoder import request as requests

    checked = requests.check(asked, policy)
    if not data.is_dir():
        message = f"--data {data.name!r} is not a directory"
        raise errors.InputError(message)
    for text in checked.warnings:
        typer.echo(f"warning: {text}", err=True)
    made = run.requests(
        checked,
        driven.choose(
            checked,
            os.environ,
            isolation=driven.isolation(isolation),
            log=lambda text: typer.echo(f"  {text}", err=True),
        ),
        data=data,
        references=references,
        clock=clock.SystemClock(),
        environment=os.environ,
        note=lambda text: typer.echo(text, err=True),
    )
    try:
        outcomes = asyncio.run(_until_told_to_end(run.encode_all(made)))
    except (asyncio.CancelledError, KeyboardInterrupt):
        message = "told to end: what was settled is kept as partial"
        raise errors.RetryLaterError(message, advice="Run the same command again: it resumes.") from None
    if report is not None:
        made_of = [run.report(outcome) for outcome in outcomes]
        report.write_bytes(msgspec.json.format(msgspec.json.encode(made_of), indent=2) + b"\n")
    for outcome in outcomes:
        for line in run.lines(outcome):
            typer.echo(line)
    if any(outcome.entry is None or outcome.entry.state != "complete" for outcome in outcomes):
        raise typer.Exit(1)


async def _until_told_to_end(work: Coroutine[Any, Any, _T]) -> _T:
    """Await ``work``; SIGTERM cancels it, as SIGINT does, so that agents are ended and what was settled is kept."""
    task = asyncio.ensure_future(work)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await task


def merge_references(
    uploads: Annotated[list[Path], typer.Argument(help="Directories with downloaded artifacts, one folder each.")],
    benchmark: BenchmarkOption,
    references: ReferencesOption,
) -> None:
    """Bring uploaded references home: the newest complete one of each database, whole.

    Ends with status 0, and with 1 when one could not be merged. What is incomplete or older is left alone and said.
    """
    from klaud import clock
    from klaud.encoder import merge, naming

    naming.key(benchmark, "any", "sqlite")
    merged = asyncio.run(merge.merge(uploads, references, benchmark=benchmark, clock=clock.SystemClock()))
    for one in merged:
        typer.echo(f"{one.name}: {one.what}" + (f": {one.why}" if one.why else ""))
    if not merged:
        typer.echo("no uploads")
    if any(one.what in ("error", "incomplete") for one in merged):
        raise typer.Exit(1)


def check_references(
    benchmark: BenchmarkOption,
    data: DataOption,
    references: ReferencesOption,
    databases: Annotated[
        str,
        typer.Option("--databases", help="Names of databases, separated by commas; default: every reference there."),
    ] = "",
    dialect: Annotated[
        str, typer.Option("--dialect", help="Of --databases: sqlite, or postgres (DSN in KLAUD_POSTGRES_DSN).")
    ] = "sqlite",
) -> None:
    """Validate references on a copy: the semantic layer finds no drift, every entity executes, nothing leaks.

    This is what the pull request with a reference runs as its final run. Status 1 when one does not validate.
    """
    from klaud.encoder import checking, model, naming
    from klaud.encoder import request as requests

    failed = False
    chosen = requests.keys(benchmark, databases, dialect) if databases else checking.complete(benchmark, references)
    for key in chosen:
        found = checking.check_reference(
            key, data=data, references=references, environment=os.environ, policy=model.Policy()
        )
        typer.echo(f"{naming.names(key).local}: {'not valid' if found else 'valid'}")
        for text in found:
            typer.echo(f"  {text}")
        failed = failed or bool(found)
    if failed:
        raise typer.Exit(1)
