"""Refs of sessions for tests of the pure rules: those of an empty repository but for what is given, and what they show."""

from __future__ import annotations

import datetime
from typing import Any

import msgspec

from klaud import names
from klaud.github import model as github
from klaud.leases import model as leases
from klaud.recovery import decide_cases, model
from tests.support.memory_cases import (
    AT,
    CANDIDATE,
    FAMILY,
    KEY,
    SETTING,
    held,
    holder,
    ledger,
    sight,
)  # fmt: skip
from tests.support.memory_scenes import Scene

ALICE = github.Account(id=101, login="alice")
FAMILY_TEXT = "configs/m.yaml:key"
SECOND = FAMILY + "-" + "0" * 15 + "c"
"""Another candidate of the same family."""
CLAIM_REF = f"refs/klaud/claims/{FAMILY}"
SESSION_REF = f"refs/klaud/sessions/{KEY}"
LEASE_REF = f"refs/klaud/leases/{KEY}"
LEASE = held(leases.Lease(at=AT, wave="50.1", candidate=CANDIDATE, holder=holder(40)), LEASE_REF)
BAD = leases.Quarantined("r", "o" * 40, "not JSON")
NEWER = leases.Newer("r", "o" * 40, 7)
ODD = held(leases.Observed(at=AT))
"""A record that belongs to neither claim, ledger nor lease."""
BRANCH = names.branch(CANDIDATE)
LATER = AT + datetime.timedelta(hours=1)
MARKED = {"display_title": f"klaud candidate [klaud {KEY}]", "head_branch": "main"}


def snapshot(**fields: Any) -> leases.Snapshot:
    """Return the refs of an empty repository, but for what is given."""
    return msgspec.structs.replace(Scene(outside=True).snapshot(), **fields)


def known(seen: model.Sight | None = None, **refs: Any) -> dict[str, model.Case]:
    """Return every session that these refs (and what else was seen) show, by key."""
    seen = msgspec.structs.replace(seen or sight(), snapshot=snapshot(**refs))
    found = decide_cases.cases(seen, decide_cases.Index.of_sight(seen, SETTING))
    assert [c.key for c in found] == sorted(c.key for c in found)
    return {c.key: c for c in found}


def only(seen: model.Sight | None = None, **refs: Any) -> model.Case:
    """Return the one session that these refs show."""
    (found,) = known(seen, **refs).values()
    return found


START = ledger().records[0]
AGAIN = leases.Continued(at=AT, wave="50.1", holder=holder(61))
PARK = leases.Parked(at=AT, on=(9, 8), why="final-run")
TURN = leases.TurnStarted(at=AT, index=0)


def records(*found: leases.LedgerRecord) -> leases.Ledger:
    """Return a ledger of exactly these records."""
    return leases.Ledger("l", "o" * 40, found)


def intent(effect: leases.Effect, *oids: str, number: int | None = None, seq: int = 0) -> leases.Intent:
    return leases.Intent(at=AT, seq=seq, effect=effect, oids=oids, number=number)


def effected(effect: leases.Effect, result: Any = "done", **fields: Any) -> leases.Effected:
    return leases.Effected(at=AT, seq=0, effect=effect, result=result, **fields)


def outcome(word: leases.OutcomeClass = "failed", **fields: Any) -> leases.Outcome:
    return leases.Outcome(at=AT, outcome=word, **fields)
