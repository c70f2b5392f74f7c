"""Undo what a sweep or a finish did to one draft: the branch first, then the pull request.

GitHub reopens a pull request only when its branch stands at the closed head, so the archived commit is pushed back before
anything else. Where the host still refuses, a new draft is opened that says so. Nothing is touched that now belongs to
somebody else: a branch that exists again, a family that another session holds, a pull request that is open or merged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from klaud import errors, names
from klaud.github import gateway as ports
from klaud.github import model as github
from klaud.leases import model as leases

if TYPE_CHECKING:
    from collections.abc import Sequence


class Undone(msgspec.Struct, frozen=True, kw_only=True):
    """What was restored. ``number`` is the draft that is open now; ``new`` tells that it had to be opened anew."""

    branch: str
    oid: str
    number: int
    new: bool = False
    done: tuple[str, ...] = ()


class Refused(msgspec.Struct, frozen=True):
    """Nothing was written: why not, in words."""

    why: str


def targets(snapshot: leases.Snapshot, ref_names: names.RefNames, target: str) -> list[str]:
    """Return the archive refs that ``target`` names: an archive ref itself, or a run whose session was archived."""
    copies = [ref for ref in snapshot.refs if branch_of(ref_names, ref) is not None]
    if not target.isdigit():
        return [ref for ref in copies if target in {ref, ref.removeprefix(f"{ref_names.prefix}/")}]
    found: set[str] = set()
    for ledger in snapshot.ledgers.values():
        if isinstance(ledger, leases.Ledger) and int(target) in _runs(ledger.records):
            oids = {r.oid for r in ledger.records if isinstance(r, leases.Effected) and r.effect == "archive-branch"}
            oids |= {r.head for r in ledger.records if isinstance(r, leases.Outcome)}
            found |= {ref for ref in copies if ref.rpartition("/")[2] in oids}
    return sorted(found)


def undo(
    gateway: ports.Gateway, refs: ports.RefStore, snapshot: leases.Snapshot, ref_names: names.RefNames, archive: str
) -> Undone | Refused:
    """Restore the branch that ``archive`` keeps and reopen its draft, or open a new one."""
    candidate = branch_of(ref_names, archive)
    oid = snapshot.refs.get(archive)
    if candidate is None or oid is None:
        return Refused(f"{archive} is no archive copy of a branch")
    branch, full = names.branch(candidate), ref_names.branch(candidate)
    claim = ref_names.claim(names.family_of(candidate))
    if claim in snapshot.refs:
        return Refused(f"the family is another session's now: {claim} exists")
    if snapshot.refs.get(full, oid) != oid:
        return Refused(f"{full} exists again, at {snapshot.refs[full]}: it is somebody else's now")
    listing = gateway.pulls_of_heads([branch])[branch]
    if not listing.complete:
        raise errors.ReadFailedError(f"the pull requests of {branch} could not be read in full: {listing.why_not}")
    if any(d.pull.open and d.pull.head_oid != oid for d in listing.items):
        return Refused(f"a pull request of {branch} is open at another head")
    pulls = sorted((d.pull for d in listing.items if d.pull.head_oid == oid), key=lambda p: p.number)
    if pulls and pulls[-1].merged:
        return Refused(f"pull request {pulls[-1].number} is merged")
    done = [] if full in snapshot.refs else [_push(refs, full, oid)]
    if pulls and (pulls[-1].open or _reopened(gateway, pulls[-1].number)):
        if not pulls[-1].open:
            done.append(f"reopened pull request {pulls[-1].number}")
        return Undone(branch=branch, oid=oid, number=pulls[-1].number, done=tuple(done))
    number = _open_anew(gateway, branch, pulls)
    done.append(f"opened pull request {number}")
    return Undone(branch=branch, oid=oid, number=number, new=True, done=tuple(done))


def _push(refs: ports.RefStore, full: str, oid: str) -> str:
    result = refs.apply([ports.RefUpdate(full, None, oid)])[0]
    if isinstance(result, ports.RefUnclear):
        now = refs.list([full]).get(full)
        result = ports.RefUpdated(full) if now == oid else ports.RefSuperseded(full, now)
    if isinstance(result, ports.RefUpdated) or (isinstance(result, ports.RefSuperseded) and result.actual == oid):
        return f"restored {full} at {oid}"
    raise errors.RefusedWriteError(f"{full} could not be restored: {result}", status=0)


def _reopened(gateway: ports.Gateway, number: int) -> bool:
    try:
        gateway.reopen_pull(number)
    except errors.RefusedWriteError:
        return False
    except errors.UnclearWriteError:
        seen = gateway.pull(number)
        return isinstance(seen, github.Pull) and seen.open
    return True


def _open_anew(gateway: ports.Gateway, branch: str, pulls: Sequence[github.Pull]) -> int:
    before = f"It continues #{pulls[-1].number}, which the host does not reopen." if pulls else "It never had one."
    title = pulls[-1].title if pulls else f"klaud: {branch}"
    base = pulls[-1].base_ref if pulls else gateway.repository().default_branch
    body = f"Restored by `klaud undo` from klaud's archive. {before}"
    try:
        return gateway.create_pull(head=branch, base=base, title=title, body=body, draft=True).number
    except errors.UnclearWriteError:
        found = [d.pull for d in gateway.pulls_of_heads([branch])[branch].items if d.pull.open]
        if not found:
            raise
        return found[-1].number


def _runs(records: Sequence[leases.LedgerRecord]) -> set[int]:
    found: set[int] = set()
    for record in records:
        match record:
            case leases.SessionStarted():
                wave = record.wave.partition(".")[0]
                found |= {record.holder.run_id, int(wave) if wave.isdigit() else 0}
            case leases.Continued():
                found.add(record.holder.run_id)
            case leases.Effected(run_id=int() as run_id):
                found.add(run_id)
            case _:
                pass
    return found - {0}


def branch_of(ref_names: names.RefNames, ref: str) -> str | None:
    """Return the candidate whose branch an archive ref keeps, None for any other ref."""
    kind = ref_names.parse(ref)
    if not isinstance(kind, names.ArchiveRef) or kind.kind != "branch":
        return None
    candidate = kind.name.removeprefix("auto-")
    return candidate if names.is_candidate(candidate) else None
