"""Encode several databases, one after another: a failed one is a row with its error, and the others go on."""

from __future__ import annotations

import collections
import dataclasses
from typing import TYPE_CHECKING

import msgspec

from klaud import errors
from klaud.encoder import model, naming, reference

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from klaud.clock import Clock
    from klaud.encoder import agents, request


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one database: an entry, or an error with its advice and no usage."""

    key: model.Key
    entry: model.ReferenceEntry | None
    error: str = ""
    advice: str = ""
    stale: bool = False

    @property
    def usage(self) -> model.Usage:
        """What this call used; zero unless it ran the encoder."""
        return self.entry.usage if self.entry is not None else model.Usage()

    @property
    def wasted(self) -> model.Usage:
        """What this call used for a build that lost to another one."""
        return self.entry.wasted if self.entry is not None else model.Usage()


def requests(
    checked: request.Checked,
    agent: agents.ItemAgent,
    *,
    data: Path,
    references: Path,
    clock: Clock,
    environment: Mapping[str, str],
    note: Callable[[str], None],
) -> list[reference.Request]:
    """Return what ``encode_all`` takes: the one way from what was asked for to a build, on a laptop and in a session."""
    return [
        reference.Request(
            key=key,
            data=data,
            references=references,
            agent=agent,
            clock=clock,
            framework=checked.framework,
            policy=checked.policy,
            environment=dict(environment),
            rebuild=checked.rebuild,
            note=note,
        )
        for key in checked.keys
    ]


async def encode_all(requests: Sequence[reference.Request]) -> tuple[Outcome, ...]:
    """Make sure of every reference, in the order given; never raises for what goes wrong with one of them."""
    return tuple([await _one(request) for request in requests])


async def _one(request: reference.Request) -> Outcome:
    try:
        entry = await reference.ensure_reference(request)
    except errors.KlaudError as error:
        return Outcome(key=request.key, entry=None, error=str(error), advice=error.advice)
    except Exception as error:  # noqa: BLE001 - one database's fault must not stop the others
        text = f"{type(error).__name__}: {error}"[:500]
        for secret in request.environment.values():
            text = text.replace(secret, "***") if len(secret) > 7 else text
        return Outcome(key=request.key, entry=None, error=text, advice=errors.KlaudError.advice)
    stale = False
    if not entry.built and entry.state == "complete":
        try:
            stale = await reference.is_stale(request, entry)
        except errors.KlaudError:
            stale = False  # its inputs are not here: a reference is there to be read without them
    return Outcome(key=request.key, entry=entry, stale=stale)


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one database, for a workflow: what to upload, under which name, and what it cost.

    ``path`` is relative to the references' root. ``upload``: the reference is complete and may be uploaded.
    """

    benchmark: str
    database: str
    dialect: str
    artifact: str
    path: str
    upload: bool
    built: bool
    state: str
    fingerprint: str
    counts: dict[str, int]
    usage: model.Usage
    wasted: model.Usage
    error: str


def report(outcome: Outcome) -> Report:
    """Return the report of one database."""
    names, entry = naming.names(outcome.key), outcome.entry
    counts = collections.Counter(row.status for row in entry.results) if entry is not None else {}
    return Report(
        benchmark=outcome.key.benchmark,
        database=outcome.key.database,
        dialect=outcome.key.dialect,
        artifact=names.artifact,
        path=names.local,
        upload=entry is not None and entry.state == "complete",
        built=entry is not None and entry.built,
        state=entry.state if entry is not None else "failed",
        fingerprint=entry.fingerprint if entry is not None else "",
        counts={status: counts.get(status, 0) for status in ("encoded", "deferred", "error")},
        usage=outcome.usage,
        wasted=outcome.wasted,
        error=outcome.error,
    )


def not_encoded(outcome: Outcome) -> list[str]:
    """Return, for each item without entities, what became of it and why, in words."""
    rows = outcome.entry.results if outcome.entry is not None else ()
    return [f"item {row.kb_id} {row.status}: {row.error or row.notes}" for row in rows if row.status != "encoded"]


def lines(outcome: Outcome) -> list[str]:
    """Return what became of one database, in words for a person."""
    name = naming.names(outcome.key).local
    entry = outcome.entry
    if entry is None:
        return [f"{name}: error: {outcome.error}", f"  -> {outcome.advice}"]
    counts: collections.Counter[str] = collections.Counter(row.status for row in entry.results)
    how = "built" if entry.built else "already there"
    if entry.state == "partial":
        how = "out of budget, kept as partial: the same command resumes it"
    used = entry.usage
    said = [
        f"{name}: {how}, fingerprint {entry.fingerprint}: "
        + ", ".join(f"{counts[status]} {status}" for status in model.STATUSES)
        + f"; {used.sessions} sessions, {used.attempts} attempts, {used.input_tokens + used.output_tokens} tokens"
    ]
    said += [f"  warning: {text}" for text in entry.warnings]
    if outcome.stale:
        said.append("  warning: its inputs have changed since it was built; --rebuild makes it anew")
    if outcome.wasted.attempts:
        said.append(f"  wasted: {outcome.wasted.attempts} attempts of a build that another one overtook")
    return [*said, *(f"  {text}" for text in not_encoded(outcome))]
