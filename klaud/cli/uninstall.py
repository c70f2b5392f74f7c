"""``klaud uninstall``: list what klaud has in a repository, and with ``--yes`` take it away.

Refs go by compare-and-delete with the oids that were listed; a ref that moved meanwhile is left and named. Branches of open
drafts stay (closing a draft is a person's decision here), and so does whatever is not klaud's by its exact name. Files are
taken from the clone at hand only; nothing is committed. Labels are listed: klaud has no verb that deletes one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ConfigOption = Annotated[
    Path | None, typer.Option("--config", help="The configuration (default: .github/klaud.yml or KLAUD_CONFIG).")
]


def uninstall(
    yes: Annotated[bool, typer.Option("--yes", help="Take it away; without this it is only listed.")] = False,
    root: Annotated[Path, typer.Option("--root", help="A clone of the repository.")] = Path(),
    config: ConfigOption = None,
) -> None:
    """List klaud's refs, branches, labels and workflows, and with --yes take refs and files away."""
    from klaud import errors, names
    from klaud.cli import init
    from klaud.cli import live as lives
    from klaud.github import gateway as ports

    live = lives.open_live(config)
    listing = live.gateway.open_pulls()
    if not listing.complete:
        raise errors.ReadFailedError(f"the open pull requests are not all listed: {listing.why_not}")
    drafts = {one.head_ref: one.number for one in listing.items if one.head_repository == live.repository}
    branch_head = f"refs/heads/{names.BRANCH_HEAD}"
    found = live.refs.list([f"{live.names.prefix}/", branch_head])
    going, staying = {}, []
    for ref, oid in sorted(found.items()):
        name = ref.removeprefix("refs/heads/")
        if not ref.startswith("refs/heads/") or names.is_candidate(ref.removeprefix(branch_head)):
            if name in drafts:
                staying.append(f"{ref}: pull request #{drafts[name]} is open")
            else:
                going[ref] = oid
    files = [
        path for path in (*(f"{init.FOLDER}/{one}" for one in init.WORKFLOWS), init.CONFIG) if (root / path).is_file()
    ]
    for ref in going:
        typer.echo(f"ref {ref}")
    for line in staying:
        typer.echo(f"stays: {line}")
    for path in files:
        typer.echo(f"file {path}")
    typer.echo(f"label {names.HANDOFF_LABEL}: delete it on the repository's label page")
    if not yes:
        typer.echo(f"{len(going)} refs and {len(files)} files; nothing was written (--yes takes them away)")
        return
    alive = [ref for ref in going if ref.startswith(f"{live.names.prefix}/claims/")]
    if alive:
        message = f"{len(alive)} claims are held: sessions may still run"
        raise errors.OwnershipLostError(
            message, advice="Set KLAUD_PAUSED, let klaud recover settle them (or klaud release them), then try again."
        )
    results = live.refs.apply([ports.RefUpdate(ref, oid, None) for ref, oid in going.items()])
    left = [one.ref for one in results if not isinstance(one, ports.RefUpdated)]
    for path in files:
        (root / path).unlink()
    for ref in left:
        typer.echo(f"left: {ref} moved, or the host refused it")
    typer.echo(f"{len(going) - len(left)} refs and {len(files)} files are gone; commit the files' removal yourself")
    if left:
        raise typer.Exit(1)
