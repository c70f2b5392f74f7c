"""``klaud handoff``: what follows from a maintainer's taking a draft over, at once and not at the next sweep.

The label itself is what counts, read from the pull request and never from an event: a session that still runs stops at its
next beat, or at its next write, since its claim is gone. The card is written once: its intent is in the session's ledger
before it, by compare-and-append, so that of two runs for one label only one writes it. Nothing is checked out: the
configuration is read from the default branch.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from klaud import errors

if TYPE_CHECKING:
    from klaud.cli import live as lives
    from klaud.github import model as github
    from klaud.leases import model as records

CONFIG_BYTES = 1_048_576
"""Most bytes of the configuration (as in ``klaud.config``)."""


def handoff(
    number: Annotated[int, typer.Option("--number", min=1, help="The draft's number.")],
    config: Annotated[
        Path | None, typer.Option("--config", help="The configuration (default: that of the default branch).")
    ] = None,
) -> None:
    """Hand a draft with the label klaud-handoff over: release its claim, and say once what was tried and what it cost."""
    from klaud import config as configs
    from klaud import names

    live = _open(config)
    pull = live.gateway.pull(number)
    why = _not_klauds(live, pull)
    if why:
        typer.echo(f"#{number}: {why}; nothing was written")
        return
    candidate = _pull(pull).head_ref.removeprefix(names.BRANCH_HEAD)
    if names.HANDOFF_LABEL not in _pull(pull).labels:
        typer.echo(f"#{number} is klaud's again: the next planner run goes on with it, or settles it")
        return
    paused = configs.is_paused(live.config, os.environ)
    if paused:
        typer.echo(f"#{number}: {paused}; nothing was written")
        return
    snapshot = live.store.snapshot()
    typer.echo(f"#{number}: {_release(live, snapshot, candidate)}")
    typer.echo(f"#{number}: {_card(live, snapshot, candidate, number)}")


def _open(config: Path | None) -> lives.Live:
    """Build the live objects with the configuration of the default branch, where no file is named."""
    from klaud.cli import live as lives

    if config is not None or Path(lives.CONFIG_PATH).exists():
        return lives.open_live(config)
    from klaud import clock
    from klaud import config as configs
    from klaud.github import model as github
    from klaud.github import rest

    where, ticking = lives.place(), clock.SystemClock()
    gateway = rest.RestGateway(
        repository=where.repository, token=lives.credential(where, ticking), api_url=where.api_url, clock=ticking
    )
    raw = gateway.contents(configs.PLACE, gateway.repository().default_branch, CONFIG_BYTES)
    if isinstance(raw, github.Missing):
        message = f"{configs.PLACE} is not on the default branch of {where.repository}"
        raise errors.InputError(message, advice="Run klaud init there and commit what it writes.")
    with tempfile.TemporaryDirectory(prefix="klaud-config-") as folder:
        place = Path(folder) / "klaud.yml"
        place.write_bytes(raw)
        return lives.open_live(place)


def _pull(pull: github.Pull | github.Missing) -> github.Pull:
    from klaud.github import model as github

    if isinstance(pull, github.Missing):
        raise errors.InputError(f"{pull.what} is not there")
    return pull


def _not_klauds(live: lives.Live, found: github.Pull | github.Missing) -> str:
    """Say why a pull request is none of klaud's drafts; empty where it is one."""
    from klaud import names

    pull = _pull(found)
    candidate = pull.head_ref.removeprefix(names.BRANCH_HEAD)
    if not pull.head_ref.startswith(names.BRANCH_HEAD) or not names.is_candidate(candidate):
        return "it is not of a branch of klaud's"
    if pull.head_repository != live.repository:
        return "it comes from another repository"
    if pull.author is None or pull.author.id != live.config.bot:
        return "klaud has not opened it"
    return "" if pull.open else "it is closed"


def _release(live: lives.Live, snapshot: records.Snapshot, candidate: str) -> str:
    from klaud import names
    from klaud.leases import model as records
    from klaud.leases import store as stores

    ref = live.names.claim(names.family_of(candidate))
    held = snapshot.claims.get(ref)
    if held is None:
        return "nobody has its family claimed"
    if not isinstance(held, records.Held) or not isinstance(held.record, records.Claim):
        return f"{ref} holds no claim that this klaud can read; it was left alone"
    if held.record.candidate != candidate:
        return f"its family is with another candidate, {held.record.candidate}; that claim was left alone"
    answer = live.store.release(held)
    if isinstance(answer, stores.Lost):
        return "its claim moved at this moment; the session reads the label at its next beat, and a sweep releases it"
    return "its claim is released"


def _card(live: lives.Live, snapshot: records.Snapshot, candidate: str, number: int) -> str:
    """Write the card where it has not been written since the label was last taken away; say what was done."""
    from klaud.leases import model as records
    from klaud.names import HANDOFF_LABEL
    from klaud.session import render, rules_ledger

    ledgers = [
        one
        for ref, one in snapshot.ledgers.items()
        if isinstance(one, records.Ledger) and ref.endswith(f"-{candidate}")
    ]
    mine = [one for one in ledgers if rules_ledger.read(one.records).number == number]
    ledger = mine[-1] if mine else None
    if ledger is None:
        return "no ledger of its session can be read; no card is written"
    events = live.gateway.timeline(number)
    since = max(
        (one.at for one in events.items if one.kind == "unlabeled" and one.detail == HANDOFF_LABEL), default=None
    )
    for record in ledger.records:
        card = isinstance(record, records.Intent) and (record.effect, record.label) == ("comment", HANDOFF_LABEL)
        if card and (since is None or record.at >= since):
            return "the hand-over card is there already"
    view = rules_ledger.read(ledger.records)
    intent = records.Intent(
        at=live.clock.now(), seq=view.next_seq, effect="comment", by="recovery", number=number, label=HANDOFF_LABEL
    )
    written = live.store.append(ledger, intent)
    if not isinstance(written, records.Ledger):
        return "its ledger moved at this moment; the next sweep or label hands it over"
    pull = _pull(live.gateway.pull(number))
    if HANDOFF_LABEL not in pull.labels:
        live.store.append(written, _effect(live, intent, "refused"))
        return "the label was taken away meanwhile; no card is written"
    try:
        live.gateway.comment(number, render.hand_over(view, head=pull.head_oid, label=HANDOFF_LABEL))
    except errors.UnclearWriteError:
        live.store.append(written, _effect(live, intent, "unclear"))
        return "whether the card was written is not clear; it is not written twice"
    live.store.append(written, _effect(live, intent, "done"))
    return "the hand-over card is written"


def _effect(
    live: lives.Live, intent: records.Intent, result: Literal["done", "refused", "unclear"]
) -> records.Effected:
    from klaud.leases import model as records

    return records.Effected(at=live.clock.now(), seq=intent.seq, effect="comment", result=result, number=intent.number)
