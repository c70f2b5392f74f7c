"""``klaud uninstall``: list what klaud has in a repository, and with ``--yes`` take it away.

Only what is klaud's goes, and never a person's: refs by compare-and-delete with the oids that were listed; branches whose
newest commit klaud made itself, or whose commits are all in the default branch; labels that still say what klaud made them
for and that no open pull request wears; files of the clone at hand that call klaud. What stays is named with its reason.
KLAUD_PAUSED and KLAUD_APP_ID stay until the workflows are gone from the default branch: without the first, the next slot of
the schedule would begin anew. Nothing is committed; secrets and the environment are for an administrator.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from klaud import errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from klaud.cli import live as lives
    from klaud.github import model as github

ConfigOption = Annotated[
    Path | None, typer.Option("--config", help="The configuration (default: .github/klaud.yml or KLAUD_CONFIG).")
]

VARIABLES = ("KLAUD_PAUSED", "KLAUD_APP_ID")
"""The repository's variables that klaud's workflows read."""


@dataclasses.dataclass
class Found:
    """What is klaud's, and what stays, each with its reason."""

    refs: dict[str, str] = dataclasses.field(default_factory=dict)
    labels: list[str] = dataclasses.field(default_factory=list)
    variables: list[str] = dataclasses.field(default_factory=list)
    files: list[str] = dataclasses.field(default_factory=list)
    staying: list[str] = dataclasses.field(default_factory=list)

    def count(self) -> str:
        """Say how much it is."""
        kinds = {"refs": self.refs, "labels": self.labels, "variables": self.variables, "files": self.files}
        return ", ".join(f"{len(found)} {kind}" for kind, found in kinds.items())


def uninstall(
    yes: Annotated[bool, typer.Option("--yes", help="Take it away; without this it is only listed.")] = False,
    root: Annotated[Path, typer.Option("--root", help="A clone of the repository.")] = Path(),
    config: ConfigOption = None,
) -> None:
    """List klaud's refs, branches, labels, variables and workflows, and with --yes take away what is no person's."""
    from klaud.cli import live as lives

    live = lives.open_live(config)
    found = look(live, root)
    for kind, names_ in (
        ("ref", found.refs),
        ("label", found.labels),
        ("variable", found.variables),
        ("file", found.files),
    ):
        for name in names_:
            typer.echo(f"{kind} {name}")
    for line in found.staying:
        typer.echo(f"stays: {line}")
    typer.echo("by hand: the environment klaud with its secrets, on the repository's settings page")
    if not yes:
        typer.echo(f"{found.count()}; nothing was written (--yes takes them away)")
        return
    left = _take_away(live, found, root)
    for line in left:
        typer.echo(f"left: {line}")
    typer.echo(f"{found.count()}: {'some are left' if left else 'gone'}; commit the files' removal yourself")
    if left:
        raise typer.Exit(1)


def look(live: lives.Live, root: Path) -> Found:
    """Return what is klaud's and what stays; reads only."""
    listing = live.gateway.open_pulls()
    if not listing.complete:
        message = f"the open pull requests are not all listed: {listing.why_not}"
        raise errors.ReadFailedError(message)
    found = Found()
    _refs(live, listing.items, found)
    _labels(live, listing.items, found)
    _files(root, found)
    _variables(live, found)
    return found


def _refs(live: lives.Live, pulls: Iterable[github.Pull], found: Found) -> None:
    from klaud import names
    from klaud.github import gateway as ports

    drafts = {one.head_ref: one.number for one in pulls if one.head_repository == live.repository}
    heads = f"refs/heads/{names.BRANCH_HEAD}"
    listed = live.refs.list([f"{live.names.prefix}/", heads])
    branches = {ref: oid for ref, oid in listed.items() if names.is_candidate(ref.removeprefix(heads))}
    commits = live.refs.read(sorted(set(branches.values()))) if branches else {}
    mine = f"<{live.config.identity()[1]}>".encode()
    default = live.gateway.repository().default_branch if branches else ""
    for ref, oid in sorted(listed.items()):
        if not ref.startswith("refs/heads/"):
            found.refs[ref] = oid
        elif ref in branches:
            commit, number = commits.get(oid), drafts.get(ref.removeprefix("refs/heads/"))
            made = isinstance(commit, ports.CommitData) and mine in commit.author and mine in commit.committer
            if number is not None:
                found.staying.append(f"{ref}: pull request #{number} is open")
            elif made or live.gateway.merge_base(default, oid) == oid:
                found.refs[ref] = oid
            else:
                found.staying.append(f"{ref}: its newest commit is a person's")


def _labels(live: lives.Live, pulls: Iterable[github.Pull], found: Found) -> None:
    from klaud.cli import doctor
    from klaud.github import upkeep

    worn = {label.lower(): one.number for one in pulls for label in one.labels}
    for name, meaning in doctor.labels(live).items():
        says = upkeep.label(live.gateway, name)
        if says is None:
            continue
        if says != meaning:
            found.staying.append(f"label {name}: klaud has not made it, or a person has changed it")
        elif name.lower() in worn:
            found.staying.append(f"label {name}: pull request #{worn[name.lower()]} wears it")
        else:
            found.labels.append(name)


def _files(root: Path, found: Found) -> None:
    from klaud.cli import init

    for name in init.WORKFLOWS:
        path = root / init.FOLDER / name
        if not path.is_file():
            continue
        if "exec klaud " in path.read_text(encoding="utf-8", errors="replace"):
            found.files.append(f"{init.FOLDER}/{name}")
        else:
            found.staying.append(f"file {init.FOLDER}/{name}: it does not call klaud")
    if (root / init.CONFIG).is_file():
        found.files.append(init.CONFIG)


def _variables(live: lives.Live, found: Found) -> None:
    from klaud.cli import init
    from klaud.github import model as github
    from klaud.github import upkeep

    names_ = [name for name in init.WORKFLOWS if not isinstance(live.gateway.workflow(name), github.Missing)]
    there = upkeep.variables(live.gateway)
    if there is None:
        words = "the token may not look; see the repository's settings page"
        found.staying.append(f"variables {', '.join(VARIABLES)}: {words}")
    for variable in (one for one in VARIABLES if there is not None and one in there):
        if names_:
            found.staying.append(f"variable {variable}: {', '.join(names_)} still reads it; merge their removal first")
        else:
            found.variables.append(variable)


def _take_away(live: lives.Live, found: Found, root: Path) -> list[str]:
    """Take away what was found; return what is left of it, and why."""
    from klaud.github import gateway as ports
    from klaud.github import upkeep

    alive = [ref for ref in found.refs if ref.startswith(f"{live.names.prefix}/claims/")]
    if alive:
        message = f"{len(alive)} claims are held: sessions may still run"
        raise errors.OwnershipLostError(
            message, advice="Set KLAUD_PAUSED, let klaud recover settle them (or klaud release them), then try again."
        )
    results = live.refs.apply([ports.RefUpdate(ref, oid, None) for ref, oid in found.refs.items()])
    left = [f"{one.ref}: it moved, or the host refused it" for one in results if not isinstance(one, ports.RefUpdated)]
    deletions: tuple[tuple[str, list[str], Callable[..., None]], ...] = (
        ("label", found.labels, upkeep.delete_label),
        ("variable", found.variables, upkeep.delete_variable),
    )
    for kind, names_, delete in deletions:
        for name in names_:
            try:
                delete(live.gateway, name)
            except errors.KlaudError as error:
                left.append(f"{kind} {name}: {error}")
    for path in found.files:
        (root / path).unlink()
    return left
