"""Answers from recorded facts: why a pull request was closed, and what is known of a family. No log is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klaud import names
from klaud.github import model as github
from klaud.leases import model as leases
from klaud.recovery import decide_cases, rules_touch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from klaud.github import gateway as ports

NOT_CLAIMED = "not claimed"
LAST = 10
"""Effects of a ledger that are told, the newest."""


def why_closed(
    gateway: ports.Gateway, snapshot: leases.Snapshot, ref_names: names.RefNames, number: int, bot: int
) -> list[str]:
    """Say who closed a pull request, which rule did it where klaud was it, and how to undo it."""
    seen = gateway.pull_details([number])[number]
    if isinstance(seen, github.Missing):
        return [f"#{number}: there is no such pull request, or this token may not see it"]
    pull = seen.pull
    lines = [f"#{number}: {'merged' if pull.merged else pull.state}, branch {pull.head_ref} at {pull.head_oid}"]
    closed = [event for event in seen.timeline.items if event.kind == "closed"]
    if closed:
        by = closed[-1].actor
        name = "klaud" if by is not None and by.id == bot else rules_touch.who(by)
        lines.append(f"closed by {name} at {closed[-1].at.isoformat()}")
    elif not pull.open:
        lines.append("its timeline does not say who closed it")
    for ledger in snapshot.ledgers.values():
        if isinstance(ledger, leases.Ledger) and number in decide_cases.numbers_of(ledger):
            lines += _told(ledger)
    copies = [
        ref for ref in snapshot.refs if ref.startswith(f"{ref_names.prefix}/archive/") and ref.endswith(pull.head_oid)
    ]
    lines += [f"the branch is kept as {ref}; to undo: klaud undo {ref}" for ref in sorted(copies)]
    return lines


def family(snapshot: leases.Snapshot, ref_names: names.RefNames, family_id: str) -> list[str]:
    """Say what the refs know of one family (16 hex): claim, sessions, memory, tombstones, archive."""
    lines = [f"family {family_id}"]
    lines += _claim(snapshot, family_id)
    for ref, ledger in sorted(snapshot.ledgers.items()):
        if ref.rpartition("/")[2][-33:].startswith(family_id):
            lines.append(f"session {ref.rpartition('/')[2]}")
            lines += _told(ledger) if isinstance(ledger, leases.Ledger) else ["  its ledger cannot be read"]
    for name, held in snapshot.families.items():
        record = held.record if isinstance(held, leases.Held) else None
        if name.rpartition("/")[2] == family_id and isinstance(record, leases.FamilyMemory):
            lines += list(_memory(record))
    for name in sorted(snapshot.tombstones):
        candidate = name.rpartition("/")[2]
        if candidate.startswith(f"{family_id}-"):
            lines.append(f"a person closed candidate {candidate}: not tried again until its subject changes")
    for candidate, oid in sorted(decide_cases.branches(snapshot).items()):
        if candidate.startswith(f"{family_id}-"):
            lines.append(f"branch {names.branch(candidate)} at {oid}")
    for ref in sorted(snapshot.refs):
        kind = ref_names.parse(ref)
        if isinstance(kind, names.ArchiveRef) and f"{family_id}-" in kind.name:
            lines.append(f"kept: {ref}")
    return lines if len(lines) > 2 or lines[1] != NOT_CLAIMED else [f"family {family_id}: nothing is recorded of it"]


def _claim(snapshot: leases.Snapshot, family_id: str) -> list[str]:
    held = next((c for name, c in snapshot.claims.items() if name.rpartition("/")[2] == family_id), None)
    match held:
        case None:
            return [NOT_CLAIMED]
        case leases.Held(record=leases.Claim() as record):
            if record.parked is not None:
                on = ", ".join(str(run) for run in record.parked.on) or "nothing"
                return [f"claimed by candidate {record.candidate} of wave {record.wave}, parked on {on}"]
            run = record.holder.run_id if record.holder is not None else 0
            return [f"claimed by candidate {record.candidate} of wave {record.wave}, run {run}"]
        case _:
            return ["its claim cannot be read: the family is blocked"]


def _memory(record: leases.FamilyMemory) -> Iterator[str]:
    if record.paused:
        yield "paused by a person (klaud resume lets it be planned again)"
    if record.excluded_in_a_row:
        yield f"excluded by review {record.excluded_in_a_row} times in a row"
    for attempt in record.attempts:
        until = f", not again before {attempt.until.isoformat()}" if attempt.until else ""
        what = f"{attempt.outcome}, to blame: {attempt.blame}"
        yield f"tried {attempt.candidate}: {what}, ended {attempt.ended_at.isoformat()}{until}"


def _told(ledger: leases.Ledger) -> list[str]:
    lines = []
    effects = [r for r in ledger.records if isinstance(r, leases.Effected)]
    for record in effects[-LAST:]:
        what = " ".join(str(x) for x in (record.number and f"#{record.number}", record.run_id, record.oid[:12]) if x)
        lines.append(f"  {record.at.isoformat()} {record.effect} {record.result} {what}".rstrip())
    last = decide_cases.outcome(ledger)
    if last is not None:
        code = f" ({last.code})" if last.code else ""
        lines.append(f"  {last.at.isoformat()} outcome {last.outcome}{code}, by {last.by}, phase {last.phase}")
    elif (parked := decide_cases.parked(ledger)) is not None:
        lines.append(f"  parked since {parked.at.isoformat()} on {', '.join(map(str, parked.on)) or 'nothing'}")
    else:
        lines.append("  no outcome yet")
    return lines
