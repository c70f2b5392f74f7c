"""The ``klaud`` command: a table of verbs, each loaded only when it is called.

Errors of klaud's own tree end the process with their exit status, one line on what happened and one on what to do; see
``klaud.errors`` for the table of statuses.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.core

import klaud
from klaud import errors

if TYPE_CHECKING:
    from collections.abc import Sequence

VERBS: dict[str, tuple[str, str]] = {
    "demo": ("demo", "demo"),
    "init": ("init", "init"),
    "doctor": ("doctor", "doctor"),
    "wave": ("planner", "wave"),
    "preflight": ("planner", "preflight"),
    "recover": ("recovery", "recover"),
    "plan": ("planner", "plan"),
    "regenerate": ("baselines", "regenerate"),
    "keep-matrices": ("baselines", "keep_matrices"),
    "review": ("planner", "review"),
    "select": ("planner", "select"),
    "dispatch": ("planner", "dispatch"),
    "session": ("session", "session"),
    "finish": ("session", "finish"),
    "handoff": ("handoff", "handoff"),
    "check-stop": ("session", "check_stop"),
    "diagnostics": ("session", "diagnostics"),
    "encode": ("encoder", "encode"),
    "merge-references": ("encoder", "merge_references"),
    "check-references": ("encoder", "check_references"),
    "verify": ("baselines", "verify"),
    "validate": ("planner", "validate"),
    "explain": ("recovery", "explain"),
    "why-closed": ("recovery", "why_closed"),
    "undo": ("recovery", "undo"),
    "release": ("recovery", "release"),
    "pause": ("recovery", "pause"),
    "resume": ("recovery", "resume"),
    "uninstall": ("uninstall", "uninstall"),
    "conformance": ("conformance", "conformance"),
    "scene": ("scene", "app"),
}
"""Verb -> (module of klaud.cli, its function or Typer group), in the order that ``--help`` shows."""


class Verbs(typer.core.TyperGroup):
    """A group whose commands are imported on demand, so that one verb does not pay for another's libraries."""

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        """Return the verbs in the table's order."""
        del ctx
        return list(VERBS)

    def get_command(self, ctx: typer.Context, cmd_name: str) -> Any:  # type: ignore[override]
        """Return the command of a verb, None where there is no such verb."""
        del ctx
        if cmd_name not in VERBS:
            return None
        module, attribute = VERBS[cmd_name]
        target = getattr(importlib.import_module(f"klaud.cli.{module}"), attribute)
        if isinstance(target, typer.Typer):
            group = typer.main.get_group(target)
            group.name = cmd_name
            return group
        single = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
        single.command(cmd_name)(target)
        return typer.main.get_command(single)


app = typer.Typer(
    name="klaud",
    cls=Verbs,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"klaud {klaud.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Scheduled agent automation in GitHub Actions that cleans up after itself."""
    del version


def plain(text: str) -> str:
    """Return an error's words without what a terminal or the runner would obey: messages may quote what others wrote."""
    lines = ["".join(char if char.isprintable() else "?" for char in line) for line in text.splitlines()]
    return "\n".join(f"| {line}" if line.lstrip().startswith(("::", "##[")) else line for line in lines)


def main(argv: Sequence[str] | None = None) -> None:
    """Run one verb and end the process with its exit status."""
    try:
        app(args=None if argv is None else list(argv))
    except errors.KlaudError as error:
        typer.echo(f"klaud: {plain(str(error))}", err=True)
        typer.echo(f"  -> {plain(error.advice)}", err=True)
        sys.exit(error.exit_status)
