"""What has no owner after a sweep: claims, leases, branches and drafts, counted, with the age of the oldest. Pure.

An owner is a live or parked session, an open ready pull request, or a person. What a sweep put off, could not settle, or
does not understand has none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from klaud.recovery import model

if TYPE_CHECKING:
    import datetime
    from collections.abc import Iterable

    from klaud.leases import model as leases

OWNED_BRANCH: frozenset[str] = frozenset({"1b", "2", "3", "4", "5", "6", "8", "9", "11", "12", "13", "16"})
"""Rows after which branch and draft belong to a session, a person, or an open ready pull request."""

OWNED_CLAIM: frozenset[str] = frozenset({"1b", "4", "5", "9", "12", "13"})
"""Rows in which a claim may stand: its session is alive, waited for, or could not be read."""

MAX_COUNTS = 300
MAX_ZOMBIES = 1000
"""What one record may remember, so that it stays below its 64 KiB. Past them the sessions seen fewest times
and the oldest runs are forgotten: such a session is only given up later, such a run is only proven dead anew."""


class After(msgspec.Struct, frozen=True, kw_only=True):
    """One session after the sweep: its verdict, and which of its refs and drafts are still there."""

    verdict: model.Verdict
    claims: int = 0
    leases: int = 0
    branches: int = 0
    drafts: int = 0


def count(after: Iterable[After], policy: model.Policy, now: datetime.datetime) -> dict[str, model.Leak]:
    """Return the leak numbers by kind."""
    totals = {"claims": 0, "leases": 0, "branches": 0, "drafts": 0}
    oldest: dict[str, datetime.datetime | None] = dict.fromkeys(totals)
    for one in after:
        row = one.verdict.row
        ready = any(d.pull.open and not d.pull.draft for d in one.verdict.case.pulls)
        kept = ready or any(
            isinstance(a, model.Leave) and a.code in {"touched", "handed-off", "ready"} for a in one.verdict.actions
        )
        lost = {
            "claims": one.claims if row not in OWNED_CLAIM else 0,
            "leases": one.leases if not _in_hand(one.verdict) else 0,
            "branches": one.branches if row not in OWNED_BRANCH and not kept else 0,
            "drafts": one.drafts if row not in OWNED_BRANCH and not kept else 0,
        }
        for kind, number in lost.items():
            if number:
                totals[kind] += number
                oldest[kind] = _older(oldest[kind], since(one.verdict.case))
    limits = {
        "claims": policy.leak_claims,
        "leases": policy.leak_leases,
        "branches": policy.leak_branches,
        "drafts": policy.leak_drafts,
    }
    return {
        kind: model.Leak(count=totals[kind], limit=limits[kind], oldest_hours=_hours(oldest[kind], now))
        for kind in totals
    }


def _in_hand(verdict: model.Verdict) -> bool:
    return any(isinstance(a, model.Leave) and a.code in {"in-hand", "error"} for a in verdict.actions)


def since(case: model.Case) -> datetime.datetime | None:
    """Return the earliest time that a case's records or pull requests name."""
    times = [d.pull.created_at for d in case.pulls]
    if case.ledger is not None and case.ledger.records:
        times.append(case.ledger.records[0].at)
    times.extend(held.record.at for held in (case.claim, case.lease) if held is not None)
    return min(times, default=None)


def _older(one: datetime.datetime | None, other: datetime.datetime | None) -> datetime.datetime | None:
    times = [t for t in (one, other) if t is not None]
    return min(times, default=None)


def _hours(at: datetime.datetime | None, now: datetime.datetime) -> float | None:
    return None if at is None else round((now - at).total_seconds() / 3600, 1)


def over(leaks: dict[str, model.Leak]) -> tuple[str, ...]:
    """Return the kinds above their limits."""
    return tuple(sorted(kind for kind, leak in leaks.items() if leak.count > leak.limit))


def remembered(
    before: leases.Observed | None, plan: model.Plan, zombies: Iterable[int], *, above: bool, recent: bool
) -> tuple[tuple[int, ...], tuple[leases.Count, ...], int]:
    """Return what the next sweep must know: zombies, counts, and sweeps in a row above the limits."""
    dead = tuple(sorted({*plan.zombies, *zombies})[-MAX_ZOMBIES:])
    longest = set(sorted(plan.counts, key=lambda one: (-one.sweeps, one.session, one.row))[:MAX_COUNTS])
    kept = tuple(one for one in plan.counts if one in longest)
    was = before.leaks_over if before is not None else 0
    over_for = 0 if not above else (was if recent and was else was + 1)
    return dead, kept, over_for
