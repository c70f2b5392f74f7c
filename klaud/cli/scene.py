"""The ``klaud scene`` verbs: run a klaud verb for real inside a GitHub that a file describes."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from klaud import errors

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from klaud.fakehub import Hub
    from klaud.fakehub.scene import Scene

app = typer.Typer(help="Run klaud inside a GitHub that a file describes.", no_args_is_help=True, rich_markup_mode=None)

PASSED = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "PYTHONPATH", "VIRTUAL_ENV", "SSL_CERT_FILE")
"""The variables that the verb is given of this process's own; everything else comes from the scene."""

SECONDS = 300.0
"""How long a verb may take where the scene does not say."""

WAIT_SECONDS = 60.0
"""How long the runs that a verb started may take afterwards, where the scene does not say."""

OUTPUT_SHOWN = 200_000
"""Characters of the verb's output in the JSON answer, from its end."""

File = Annotated[Path, typer.Argument(help="The scene: one YAML file (docs/scenes.md).")]


@dataclasses.dataclass(frozen=True)
class Ran:
    """One verb that was run."""

    verb: str
    status: int
    seconds: float
    output: str
    first_call: int
    last_call: int


@app.command()
def check(file: File) -> None:
    """Check a scene; exit status 2 with the place and the nearest known key where it is wrong."""
    with _loaded(file) as (_, hub):
        repositories = list(hub.state.repositories.values())
        refs = sum(len(hub.git(repository.full_name).refs()) for repository in repositories)
        pulls = sum(len(repository.issues) for repository in repositories)
        runs = sum(len(repository.runs) for repository in repositories)
    typer.echo(f"{file}: good: {refs} refs, {pulls} pull requests, {runs} runs")


@app.command()
def run(
    file: File,
    arguments: Annotated[list[str] | None, typer.Argument(help="Arguments for the verb (after --).")] = None,
    *,
    verb: Annotated[
        list[str] | None, typer.Option(help="recover, wave, finish ... ; repeat it to run several in a row.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the server up afterwards, until interrupted.")] = False,
) -> None:
    """Load a scene, run klaud's verb in it over real HTTP and git, and show what became of it.

    The exit status is the verb's (of several: the first that is not 0), or 2 where the scene is wrong.
    """
    from klaud import fakehub
    from klaud.fakehub.scene_text import SceneError

    with _loaded(file) as (scene, hub), fakehub.serve(hub) as server:
        spec = scene.data.get("verb", {})
        verbs = verb or [spec.get("name", "recover")]
        extra = arguments if arguments is not None else list(spec.get("arguments", ()))
        try:
            ran = [_run_verb(scene, hub, name, extra, quiet=as_json) for name in verbs]
        except SceneError as error:
            raise _wrong(error) from error
        answer = _answer(scene, hub, ran)
        if as_json:
            typer.echo(json.dumps(answer, indent=1))
        else:
            _print(answer)
        if keep:
            typer.echo(f"serving {server.url} and {server.git_url(scene.repository)} until interrupted", err=True)
            with contextlib.suppress(KeyboardInterrupt):
                signal.pause()
    bad = [one.status for one in ran if one.status]
    if bad:
        raise typer.Exit(bad[0])


def _wrong(error: Exception) -> errors.InputError:
    return errors.InputError(str(error), advice="Correct the scene (docs/scenes.md has every key); nothing was run.")


@contextlib.contextmanager
def _loaded(file: Path) -> Iterator[tuple[Scene, Hub]]:
    """Build the scene in a directory of its own, and remove both at the end."""
    try:
        from klaud.fakehub import scene as scenes
        from klaud.fakehub import scene_text
    except ImportError as error:
        raise errors.MissingToolError(
            f"a scene needs the embedded GitHub's libraries ({error.name} is missing)",
            advice="Install them with: pip install 'klaud[demo]'",
        ) from error
    with tempfile.TemporaryDirectory(prefix="klaud-scene-", ignore_cleanup_errors=True) as directory:
        try:
            scene = scenes.load(file)
            hub = scenes.build(scene, Path(directory) / "hub")
        except scene_text.SceneError as error:
            raise _wrong(error) from error
        with hub:
            yield scene, hub


def _run_verb(scene: Scene, hub: Hub, verb: str, arguments: Sequence[str], *, quiet: bool) -> Ran:
    from klaud.fakehub import scene as scenes

    spec = scene.data.get("verb", {})
    repository = hub.repository(scene.repository)
    environment = {name: os.environ[name] for name in PASSED if name in os.environ}
    environment |= scenes.environment(scene, hub, verb)
    first, begun = len(hub.log), time.monotonic()
    workspace = hub.root / "workspace" / str(first)
    subprocess.run(
        ["git", "clone", "--quiet", str(repository.git_path), str(workspace)],
        check=True,
        env=environment,
        capture_output=True,
    )
    with (hub.root / "verb.log").open("w+b") as log:
        child = subprocess.Popen(
            [sys.executable, "-m", "klaud", verb, *arguments],
            cwd=workspace,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log if quiet else None,
            stderr=subprocess.STDOUT if quiet else None,
        )
        hub.client_pid = child.pid
        try:
            status = child.wait(timeout=float(spec.get("seconds", SECONDS)))
        except subprocess.TimeoutExpired:
            child.kill()
            status = child.wait()
        finally:
            hub.client_pid = 0
        log.seek(0)
        output = log.read().decode(errors="replace")[-OUTPUT_SHOWN:]
    hub.wait_for_runs(float(spec.get("wait", WAIT_SECONDS)))
    status = 128 - status if status < 0 else status
    return Ran(verb, status, time.monotonic() - begun, output, first, len(hub.log))


def _answer(scene: Scene, hub: Hub, ran: Sequence[Ran]) -> dict[str, Any]:
    from klaud.fakehub import report

    return {
        "scene": scene.title,
        "repository": scene.repository,
        "verbs": [
            {
                "verb": one.verb,
                "status": one.status,
                "seconds": round(one.seconds, 2),
                "requests": report.requests(hub, one.first_call, one.last_call),
                "writes": report.writes(hub, one.first_call, one.last_call),
                "output": one.output,
            }
            for one in ran
        ],
        "end": report.state(hub, scene.repository),
        "hub-errors": list(hub.errors),
    }


def _print(answer: dict[str, Any]) -> None:
    for one in answer["verbs"]:
        typer.echo(f"\n== {one['verb']}: exit status {one['status']} after {one['seconds']} s")
        counts = one["requests"]
        typer.echo(f"requests: {counts['api']} API, {counts['git']} git ({counts['pushes']} pushes)")
        for route, number in counts["by-route"].items():
            typer.echo(f"  {number:5} {route}")
        typer.echo("writes, in order:" if one["writes"] else "writes: none")
        for number, write in enumerate(one["writes"], 1):
            typer.echo(f"  {number:3}. {write}")
    end = answer["end"]
    typer.echo("\n== end state")
    for pull in end["pulls"]:
        draft = " draft" if pull["draft"] else ""
        typer.echo(f"  #{pull['number']} {pull['state']}{draft} {pull['head']} {', '.join(pull['labels'])}".rstrip())
    for run in end["runs"]:
        typer.echo(f"  run {run['id']} {run['workflow']} {run['status']} {run['conclusion'] or ''}".rstrip())
    for ref, oid in end["refs"].items():
        typer.echo(f"  {oid[:10]} {ref}")
    for line in answer["hub-errors"]:
        typer.echo(f"hub: {line}", err=True)
