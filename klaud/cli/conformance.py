"""``klaud conformance``: what klaud relies on of GitHub, as numbered contracts; with ``--live`` tried on a real repository.

Without ``--live`` they are listed and nothing is sent. With it the repository of GITHUB_REPOSITORY is written to, so that
``--yes`` is asked for, and the repository has to be a spare one. Everything made is taken away at the end, also after Ctrl-C
or a SIGTERM; what an earlier, killed run left is taken away by ``--tidy``. Pull requests stay, closed: GitHub deletes none.
"""

from __future__ import annotations

import signal
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer

from klaud import errors

if TYPE_CHECKING:
    from klaud.github.conformance import model
    from klaud.github.conformance import target as targets

PAUSE_SECONDS = 1.0
"""Before each write: GitHub asks for a second between them."""

INTERRUPTED_STATUS = 130
"""Exit status after Ctrl-C or SIGTERM, as shells count it."""


def conformance(  # noqa: PLR0917 - the options of a command
    live: Annotated[bool, typer.Option("--live", help="Try them on the repository of GITHUB_REPOSITORY.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Yes, write to that repository: branches, drafts, runs.")] = False,
    even_if_used: Annotated[
        bool, typer.Option("--even-if-used", help="Also where the repository has other branches or pull requests.")
    ] = False,
    only: Annotated[list[str] | None, typer.Option("--only", help="This contract only, as C07; repeatable.")] = None,
    json: Annotated[Path | None, typer.Option("--json", help="Where to write how each ended, as JSON.")] = None,
    workflow: Annotated[
        bool, typer.Option("--workflow", help="Print the workflow file that the contracts about runs need.")
    ] = False,
    tidy: Annotated[
        bool, typer.Option("--tidy", help="Only take away what an earlier run left that was killed.")
    ] = False,
) -> None:
    """List what klaud relies on of GitHub; with --live --yes try each on a spare repository, and tidy up."""
    from klaud.github.conformance import run
    from klaud.github.conformance import target as targets
    from klaud.planner import files

    if workflow:
        typer.echo(targets.WORKFLOW, nl=False)
        return
    contracts = run.chosen(only or ())
    if not live:
        for one in contracts:
            typer.echo(f"{one.name} {one.claim}")
        typer.echo(f"{len(contracts)} contracts; nothing was sent (--live --yes tries them on GITHUB_REPOSITORY)")
        return
    target = _target()
    if not yes:
        message = f"the contracts write to {target.repository}: branches, pull requests, comments, labels, runs"
        raise errors.InputError(
            message, advice="Name a spare repository in GITHUB_REPOSITORY and add --yes; nothing was sent."
        )
    if json is not None:
        files.probe(json.parent, json.name)
    previous = signal.signal(signal.SIGTERM, _interrupt)
    try:
        run.allowed(target)
        if tidy:
            _tidied(run.tidy(target, f"{targets.WORD}/"))
            return
        found = () if even_if_used else run.used(target)
        if found:
            message = f"{target.repository} is not a spare repository: it has {', '.join(found[:5])}"
            raise errors.InputError(message, advice="Use an empty one, or add --even-if-used; nothing was written.")
        report, limit = run.conform(target, contracts, _tell)
    finally:
        signal.signal(signal.SIGTERM, previous)
        target.close()
    _end(report, limit, json)


def _target() -> targets.Target:
    """Return the repository and the token that the environment names; nothing is sent yet."""
    from klaud import clock as clocks
    from klaud.cli import live as lives
    from klaud.github.conformance import target as targets

    where, ticking = lives.place(), clocks.SystemClock()
    secret = lives.credential(where, ticking)
    return targets.Target(
        url=where.api_url,
        repository=where.repository,
        token=(lambda: secret) if isinstance(secret, str) else secret,
        clock=ticking,
        pause=0.0 if where.api_url.startswith("http://") else PAUSE_SECONDS,  # only a loopback may be without TLS
    )


def _interrupt(number: int, frame: Any) -> None:
    del number, frame
    raise KeyboardInterrupt


def _tell(one: model.Ended) -> None:
    typer.echo(f"{one.result} {one.number} {one.claim}")
    if one.why:
        typer.echo(f"       {_plain(one.why)}")


def _plain(text: str) -> str:
    """Return a host's words without what a terminal or a runner would obey."""
    return "".join(char if char.isprintable() else "?" for char in text)


def _tidied(left: tuple[str, ...]) -> None:
    for one in left:
        typer.echo(f"left: {_plain(one)}")
    if left:
        raise typer.Exit(1)
    typer.echo("nothing of an earlier run is left")


def _end(report: model.Report, limit: errors.RetryLaterError | None, place: Path | None) -> None:
    """Write and say how it went, and end with the status that follows."""
    import msgspec

    if place is not None:
        place.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")
    for one in report.left:
        typer.echo(f"left: {_plain(one)}")
    counts = ", ".join(f"{report.count(word)} {word}" for word in ("pass", "fail", "skip"))
    tail = "; something is left (--tidy tries again)" if report.left else "; nothing is left"
    typer.echo(f"conformance of {report.host}: {len(report.contracts)} contracts, {counts}{tail}")
    if report.interrupted:
        raise typer.Exit(INTERRUPTED_STATUS)
    if limit is not None:
        raise limit
    if report.count("fail") or report.left:
        raise typer.Exit(1)
