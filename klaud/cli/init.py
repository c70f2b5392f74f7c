"""``klaud init``: write a commented configuration and the workflows into a repository.

Idempotent: what stands as it should is left alone, and a second run writes nothing. A file that differs is shown, and
without ``--force`` nothing at all is written then, so that a repository is never left half way. The
configuration is a start only: one that is there is the maintainer's and is never touched. Nothing is committed or sent.
"""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from klaud import errors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from klaud import config as configs

WORKFLOWS = ("klaud-plan.yml", "klaud-candidate.yml", "klaud-handoff.yml")
FOLDER = ".github/workflows"
CONFIG = ".github/klaud.yml"
FLOWS_LINE = '    workflows: ["bench smoke", "bench final"]'
"""The line of klaud-plan.yml that names the repository's own workflows."""

INSTALL, INSTALL_ENCODER = '"klaud[agent]==', '"klaud[agent,encoder]=='
"""What the candidate workflow installs: with the semantic layer where the configuration has references."""

CRON_LINE = '    - cron: "17 */6 * * *"'

FILE_BYTES = 1_048_576
"""Most bytes of a file that is compared."""


def init(
    root: Annotated[Path, typer.Option("--root", help="A clone of the repository.")] = Path(),
    cron: Annotated[str, typer.Option("--cron", help="When planner runs start (five fields, UTC).")] = "17 */6 * * *",
    force: Annotated[bool, typer.Option("--force", help="Replace workflow files that differ.")] = False,
    diff_only: Annotated[bool, typer.Option("--diff", help="Show what would change; write nothing.")] = False,
) -> None:
    """Write a starting configuration and klaud's workflows into a repository; commits and sends nothing."""
    if not root.is_dir():
        message = f"{root} is not a folder"
        raise errors.InputError(message, advice="Run klaud init in a clone of the repository.")
    wanted = files(root, cron)
    differing = []
    for path, text in wanted.items():
        old = _text(root / path)
        if old == text or (path == CONFIG and old is not None):
            typer.echo(f"{path}: {'as it should be' if old == text else 'is there already, and yours: left alone'}")
            continue
        typer.echo(diff(path, old or "", text))
        differing.append((path, old is not None))
    refused = [path for path, there in differing if there]
    if diff_only:
        return
    if refused and not force:
        message = f"{', '.join(refused)} differ from what klaud would write; nothing was written"
        raise errors.InputError(message, advice="Look at the diff above; add --force to replace them.")
    for path, there in differing:
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(wanted[path], encoding="utf-8")
        typer.echo(f"{path}: {'replaced' if there else 'written'}")
    if differing:
        typer.echo("Next: fill in .github/klaud.yml, run klaud validate, commit, then klaud doctor (docs/adoption.md).")


def files(root: Path, cron: str) -> dict[str, str]:
    """Return the files that init writes, by path; the workflows' names are those of the configuration where it is there."""
    from klaud.planner import rules_schedule

    if not rules_schedule.usable(cron):
        message = f"--cron {cron!r} is not a cron expression of five fields"
        raise errors.InputError(message)
    found = {CONFIG: template("klaud.yml")}
    for name in WORKFLOWS:
        text = template(f"workflows/{name}")
        if name == "klaud-plan.yml":
            text = text.replace(CRON_LINE, f'    - cron: "{cron}"')
            names = flow_names(root)
            if names:
                text = text.replace(FLOWS_LINE, f"    workflows: [{', '.join(_quoted(one) for one in names)}]")
        if name == "klaud-candidate.yml" and encodes(root):
            text = text.replace(INSTALL, INSTALL_ENCODER)
        found[f"{FOLDER}/{name}"] = text
    return found


def template(name: str) -> str:
    """Return one of the package's template files."""
    from importlib import resources

    return (resources.files("klaud") / "templates" / name).read_text(encoding="utf-8")


def flow_names(root: Path) -> Sequence[str]:
    """Return the names of the repository's smoke and final workflows; none where there is no good configuration yet."""
    from klaud import yaml12

    loaded = _configuration(root)
    found = []
    for flows in loaded.flows() if loaded is not None else ():
        for file in (flows.smoke, flows.final):
            text = _text(root / FOLDER / file) if file else None
            if text is None:
                continue
            data = yaml12.load(text.encode(), where=file, limit=FILE_BYTES)
            name = data.get("name") if isinstance(data, dict) else None
            found.append(name if isinstance(name, str) and name else f"{FOLDER}/{file}")
    return tuple(dict.fromkeys(found))


def encodes(root: Path) -> bool:
    """Tell whether the repository's configuration has references: their candidates need the semantic layer."""
    loaded = _configuration(root)
    return loaded is not None and bool(loaded.references)


def _configuration(root: Path) -> configs.Config | None:
    """Return the repository's configuration, None where there is no good one yet."""
    from klaud import config as configs

    try:
        return configs.load(root / CONFIG)
    except errors.InputError:
        return None


def diff(path: str, old: str, new: str) -> str:
    """Return a unified diff; control characters of a repository's file are shown, not sent to a terminal."""
    lines = difflib.unified_diff(
        old.splitlines(), new.splitlines(), f"a/{path}" if old else "/dev/null", f"b/{path}", lineterm=""
    )
    return "\n".join("".join(char if char.isprintable() or char == "\t" else "?" for char in line) for line in lines)


def _quoted(text: str) -> str:
    import json

    return json.dumps(text)


def _text(path: Path) -> str | None:
    """Return a file's text, None where there is none; a link or a folder in its place is refused."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        message = f"{path} is not a plain file"
        raise errors.InputError(message, advice="Move it away; klaud writes through no link.")
    try:
        with path.open("rb") as file:
            return file.read(FILE_BYTES).decode("utf-8", "replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        message = f"{path} cannot be read: {error.strerror}"
        raise errors.InputError(message) from None
