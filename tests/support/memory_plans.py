"""Sights for tests of the plan: one session, many drafts, leases, each seen as a sweep sees it."""

from __future__ import annotations

import datetime
from typing import Any

import msgspec

from klaud import names
from klaud.github import model as github
from klaud.leases import model as leases
from klaud.recovery import decide_plan, model
from tests.support.memory_cases import (
    AT,
    CANDIDATE,
    FINAL,
    GOING,
    HEAD,
    KEY,
    OTHER,
    POLICY,
    SETTING,
    draft,
    holder,
    ledger,
    listing,
    run,
    sight,
)  # fmt: skip
from tests.support.memory_scenes import Scene

ALICE = github.Account(id=101, login="alice")
BRANCH = names.branch(CANDIDATE)
BRANCH_REF = f"refs/heads/{BRANCH}"
CLAIM_REF = f"refs/klaud/claims/{CANDIDATE[:16]}"
SESSION_REF = f"refs/klaud/sessions/{KEY}"
LEASE_REF = f"refs/klaud/leases/{KEY}"
BAD = leases.Quarantined("r", "o" * 40, "not JSON")
OUTCOME = leases.Outcome(at=AT, outcome="failed")
PUSHED = leases.Intent(at=AT, seq=0, effect="push-work", oids=(HEAD,))
PARKED = leases.Parked(at=AT, on=(9,), why="final-run")
MISSING = github.Missing(what="it")
UNREAD = model.Unread("it", "502")
OWN = run(99, **GOING)
NOTHING = model.Wanted()


def snapshot(**refs: Any) -> leases.Snapshot:
    """Return the refs of an empty repository, but for what is given."""
    return msgspec.structs.replace(Scene(outside=True).snapshot(), **refs)


def think(
    *runs: github.Run, refs: dict[str, Any] | None = None, policy: model.Policy = POLICY, **fields: Any
) -> decide_plan.Thinking:
    """Apply the rules to what was seen: runs by id, refs, and fields of a sight."""
    seen = sight(*runs, **{"snapshot": snapshot(**(refs or {})), "listing": listing(), **fields})
    return decide_plan.Thinking(seen, SETTING, policy)


def rows(thinking: decide_plan.Thinking) -> list[str]:
    return [v.row for v in thinking.verdicts]


def hours(count: float) -> datetime.datetime:
    return AT + datetime.timedelta(hours=count)


def lease(run_id: int = 40, job: str = "recover") -> leases.Held:
    record = leases.Lease(at=AT, wave="50.1", candidate=CANDIDATE, holder=holder(run_id, 1, job))
    return leases.Held(LEASE_REF, "e" * 40, record)


PASS = lease().record


def forerunner(kind: Any = "claim", job: str = "", planner_run: int = 50, name: str = CANDIDATE) -> leases.Forerunner:
    return leases.Forerunner(f"refs/heads/klaud/{kind}-{name}", "f" * 40, kind, planner_run, "", job)


def naming(*numbers: int, more: tuple[leases.LedgerRecord, ...] = ()) -> dict[str, Any]:
    """Return the refs of a session whose ledger names these pull requests."""
    opened = [leases.Effected(at=AT, seq=0, effect="open-draft", result="done", number=n) for n in numbers]
    return {"ledgers": {SESSION_REF: ledger(PUSHED, *opened, *more)}}


FINAL_RUN = run(7, path=FINAL, head_sha=HEAD, conclusion="success")


def drafted(*more: leases.LedgerRecord, pull: github.PullDetail | None = None, **fields: Any) -> dict[str, Any]:
    """Return what is seen of one session with a draft, its ledger naming its head."""
    refs = {"ledgers": {SESSION_REF: ledger(PUSHED, *more)}, "branches": {BRANCH_REF: HEAD}}
    return {"refs": refs, "heads": {BRANCH: listing(pull or draft())}, **fields}


def many(*opened: float, closed: bool = False, **fields: Any) -> dict[str, Any]:
    """Return what is seen of that many abandoned sessions, each with a draft opened so many hours after the start."""
    ledgers, branches = {}, {}
    heads: dict[str, Any] = {}
    head_runs: dict[str, Any] = {}
    runs: dict[int, Any] = {}
    for number, hour in enumerate(opened, 1):
        candidate, head = f"{number:016x}-{'0' * 16}", f"{number:040x}"
        start = leases.SessionStarted(
            at=AT, wave="50.1", candidate=candidate, family=candidate[:16], base=OTHER, holder=holder(600 + number)
        )
        push = msgspec.structs.replace(PUSHED, oids=(head,))
        ref = f"refs/klaud/sessions/50.1-{candidate}"
        ledgers[ref] = leases.Ledger(ref, "o" * 40, (start, push))
        branches[f"refs/heads/{names.branch(candidate)}"] = head
        found = draft(number=number, head=head, is_open=not closed)
        pull = msgspec.structs.replace(found.pull, head_ref=names.branch(candidate), created_at=hours(hour))
        heads[names.branch(candidate)] = listing(msgspec.structs.replace(found, pull=pull))
        head_runs[head] = listing()
        runs[600 + number] = run(600 + number)
    return {
        "refs": {"ledgers": ledgers, "branches": branches}, "heads": heads, "runs": runs, "head_runs": head_runs, **fields,
    }  # fmt: skip
