"""What a wave reads before it decides: families, what is remembered of them, and what has been started and spent.

Reads only. A record that cannot be trusted blocks its family and no other; a listing that is cut makes what rests on it
unknown, and unknown never counts as free.
"""

from __future__ import annotations

import datetime
import fnmatch
from typing import TYPE_CHECKING, Literal

from klaud import errors, names, yaml12
from klaud.github import model as github
from klaud.leases import model as leases
from klaud.planner import decide, decide_plan, model, tree

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from klaud.github import gateway as gateways
    from klaud.planner import settings

DAY = datetime.timedelta(days=1)
MONTH = datetime.timedelta(days=30)


def time_text(at: datetime.datetime) -> str:
    """Return a time as the files have it: UTC, to the second."""
    return at.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def families(benchmark: settings.Benchmark, files: tree.Tree) -> tuple[tuple[str, ...], tuple[decide_plan.Known, ...]]:
    """Return a benchmark's families (``<file>:<key>``), and what could not be read, each reported and hiding no other.

    A family is a top-level key of a configuration file. A file that is no mapping, or cannot be read as YAML, is reported
    as one entry with the key ``*``.
    """
    found: list[str] = []
    broken = []
    for path in files.matching(benchmark.families.files):
        try:
            keys = _keys(files.read(path), path)
        except errors.InputError as error:
            name = names.family_text(path, "*")
            broken.append(
                decide_plan.Known(benchmark=benchmark.name, family=name, code="unreadable", message=str(error))
            )
            continue
        found += [names.family_text(path, key) for key in keys if _any(key, benchmark.families.keys)]
    return tuple(found), tuple(broken)


def _keys(raw: bytes, path: str) -> list[str]:
    data = yaml12.load(raw, where=path, limit=tree.FILE_BYTES)
    if not isinstance(data, dict):
        message = f"{path} is not a mapping"
        raise errors.InputError(message)
    return [key for key in data if isinstance(key, str) and key]


def _any(key: str, globs: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(key, one) for one in globs)


def memory(
    snapshot: leases.Snapshot,
    pulls: github.Listing[github.Pull] | None,
    *,
    repository: str,
    at: datetime.datetime,
) -> model.Memory:
    """Return what refs and open pull requests say of families. ``pulls`` None: they were not listed, thus unknown."""
    claims = {ref.rpartition("/")[2]: record for ref, record in snapshot.claims.items()}
    memories = {ref.rpartition("/")[2]: record for ref, record in snapshot.families.items()}
    found = {family: _state(claims.get(family), memories.get(family)) for family in sorted({*claims, *memories})}
    drafts = []
    for pull in pulls.items if pulls is not None else ():
        candidate = names.candidate_of_branch(pull.head_ref)
        if candidate is not None and is_ours(pull, repository):
            drafts.append(model.OpenDraft(candidate=candidate, number=pull.number))
    stones = {ref.rpartition("/")[2] for ref in snapshot.tombstones}
    return model.Memory(
        at=time_text(at),
        families=found,
        tombstones=tuple(sorted(one for one in stones if names.is_candidate(one))),
        pulls=tuple(sorted(drafts, key=lambda one: one.number)),
        pulls_complete=pulls is not None and pulls.complete,
    )


def is_ours(pull: github.Pull, repository: str) -> bool:
    """Tell whether an open pull request is on a branch of klaud's in this repository (a fork's look-alike is not)."""
    return pull.open and pull.head_repository == repository and names.candidate_of_branch(pull.head_ref) is not None


def _word(record: leases.Held | leases.Quarantined | leases.Newer) -> Literal["held", "quarantined", "newer"]:
    match record:
        case leases.Held():
            return "held"
        case leases.Quarantined():
            return "quarantined"
        case leases.Newer():
            return "newer"


def holder_of(claim: leases.Held | leases.Quarantined | leases.Newer | None) -> str:
    """Return in words which wave and run hold a claim; empty where none does or the claim cannot be read."""
    if not isinstance(claim, leases.Held) or not isinstance(claim.record, leases.Claim):
        return ""
    holder = claim.record.holder
    return f"wave {claim.record.wave}" + (f" (run {holder.run_id})" if holder is not None else "")


def _state(
    claim: leases.Held | leases.Quarantined | leases.Newer | None,
    remembered: leases.Held | leases.Quarantined | leases.Newer | None,
) -> model.FamilyState:
    claimed: Literal["", "held", "quarantined", "newer"] = _word(claim) if claim is not None else ""
    holder = holder_of(claim)
    if remembered is None:
        return model.FamilyState(claim=claimed, held_by=holder)
    if isinstance(remembered, leases.Newer):
        return model.FamilyState(claim=claimed, held_by=holder, memory="newer")
    if isinstance(remembered, leases.Quarantined) or not isinstance(remembered.record, leases.FamilyMemory):
        return model.FamilyState(claim=claimed, held_by=holder, memory="quarantined")
    record = remembered.record
    newest = max(record.attempts, key=lambda one: one.ended_at, default=None)
    untils = [one.until for one in record.attempts if one.until is not None]
    return model.FamilyState(
        family=record.family,
        claim=claimed,
        held_by=holder,
        paused=record.paused,
        last_tried_at=time_text(record.last_tried_at) if record.last_tried_at is not None else None,
        cool_down_until=time_text(max(untils)) if untils else None,
        blocked_inputs=newest.inputs if newest is not None and newest.blame == "baseline" else "",
        excluded_in_a_row=record.excluded_in_a_row,
    )


def usage(
    gateway: gateways.Gateway,
    snapshot: leases.Snapshot,
    pulls: github.Listing[github.Pull] | None,
    *,
    repository: str,
    bot: int,
    candidate_workflow: str,
    now: datetime.datetime,
) -> decide.Usage:
    """Return what stands and was spent. A figure whose reading failed or was cut is None, and the others are told."""
    ours = [one for one in pulls.items if is_ours(one, repository)] if pulls is not None and pulls.complete else None
    return decide.Usage(
        open_drafts=None if ours is None else sum(1 for one in ours if one.draft),
        ready_unreviewed=None if ours is None else _unreviewed(gateway, [one for one in ours if not one.draft], bot),
        dispatches_day=_dispatches(gateway, candidate_workflow, now),
        microdollars_day=_spent(snapshot, now - DAY),
        microdollars_month=_spent(snapshot, now - MONTH),
    )


CONFIG_BYTES = 1_048_576
"""Most bytes of klaud's configuration, as ``klaud.config`` reads it."""


def changed(gateway: gateways.Gateway, path: str, *, base: str, workflow: str, now: datetime.datetime) -> bool:
    """Tell whether klaud's configuration differs from what the newest candidate run of 30 days was started with.

    True also where there is no such run, or either file could not be read: what is not known starts little.
    """
    try:
        listing = gateway.runs(workflow=workflow, event="workflow_dispatch", created=f">={time_text(now - MONTH)}")
        newest = max(listing.items, key=lambda one: one.id, default=None)
        if newest is None:
            return True
        before, after = (gateway.contents(path, ref, CONFIG_BYTES) for ref in (newest.head_sha, base))
    except errors.KlaudError:
        return True
    return isinstance(before, github.Missing) or isinstance(after, github.Missing) or before != after


def _unreviewed(gateway: gateways.Gateway, ready: Sequence[github.Pull], bot: int) -> int | None:
    """Count ready pull requests in which no review of anybody else stands."""
    if not ready:
        return 0
    try:
        details = gateway.pull_details([one.number for one in ready])
    except errors.ReadFailedError:
        return None
    return _count_unreviewed(ready, details, bot)


def _count_unreviewed(
    ready: Sequence[github.Pull], details: Mapping[int, github.PullDetail | github.Missing], bot: int
) -> int | None:
    count = 0
    for one in ready:
        detail = details.get(one.number)
        if not isinstance(detail, github.PullDetail):
            return None
        events = detail.timeline.items
        reviewed = any(one.kind == "reviewed" and (one.actor is None or one.actor.id != bot) for one in events)
        if not reviewed and not detail.timeline.complete:
            return None
        count += not reviewed
    return count


def _dispatches(gateway: gateways.Gateway, workflow: str, now: datetime.datetime) -> int | None:
    """Count the candidate runs that were started within 24 hours."""
    try:
        listing = gateway.runs(workflow=workflow, event="workflow_dispatch", created=f">={time_text(now - DAY)}")
    except errors.ReadFailedError:
        return None
    return len(listing.items) if listing.complete else None


def _spent(snapshot: leases.Snapshot, since: datetime.datetime) -> int:
    """Sum what turns cost since a time, in microdollars; of a ledger that cannot be read nothing is known or counted.

    An outcome may count more than its turns (a turn that was cut off): the difference counts at the outcome's time.
    Ledgers stay for as long as recovery's retention, which by default is the month that is asked about.
    """
    total = 0
    for ledger in snapshot.ledgers.values():
        if not isinstance(ledger, leases.Ledger):
            continue
        turns = [one for one in ledger.records if isinstance(one, leases.TurnEnded)]
        total += sum(one.cost_microdollars for one in turns if one.at >= since)
        for one in ledger.records:
            if isinstance(one, leases.Outcome) and one.at >= since:
                total += max(0, one.cost_microdollars - sum(turn.cost_microdollars for turn in turns))
    return total
