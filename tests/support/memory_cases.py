"""Small records for tests of the pure rules: runs, claims, ledgers, cases, sights and drafts, each with plain defaults."""

from __future__ import annotations

import datetime
from typing import Any, TypeVar

import msgspec

from klaud import names
from klaud.github import model as github
from klaud.leases import model as leases
from klaud.recovery import model
from tests.support.memory_scenes import Scene

T = TypeVar("T")
AT = datetime.datetime(2026, 3, 1, 12, 0, tzinfo=datetime.UTC)
BOT = github.Account(id=90001, login="klaud-bot", type="Bot")
SETTING = model.Setting(repository="acme/bench", bot=90001, login="klaud-bot")
POLICY = model.Policy()
HEAD, OTHER = "a" * 40, "b" * 40
CANDIDATE = "0" * 15 + "a-" + "0" * 15 + "b"
FAMILY = CANDIDATE[:16]
KEY = f"50.1-{CANDIDATE}"
FINAL, SMOKE = ".github/workflows/bench-final.yml@refs/heads/main", ".github/workflows/bench-smoke.yml"
GOING: dict[str, Any] = {"status": "in_progress", "conclusion": None}


def run(run_id: int, **fields: Any) -> github.Run:
    made = github.Run(
        id=run_id, attempt=1, status="completed", conclusion="failure", event="workflow_dispatch",
        head_branch="main", head_sha=OTHER, path=".github/workflows/klaud-candidate.yml", display_title="",
        actor=BOT, triggering_actor=BOT, created_at=AT, updated_at=AT,
    )  # fmt: skip
    return msgspec.structs.replace(made, **fields)


def holder(run_id: int, attempt: int = 1, job: str = "") -> leases.Holder:
    return leases.Holder(run_id=run_id, attempt=attempt, job=job)


def held(
    record: leases.Claim | leases.Lease | leases.Observed | leases.FamilyMemory | leases.Tombstone, ref: str = "ref"
) -> leases.Held:
    return leases.Held(ref, "o" * 40, record)


def claim(by: leases.Holder | None = None, on: tuple[int, ...] | None = None) -> leases.Held:
    """Return a claim with a holder, or parked on runs by that holder."""
    parked = None if on is None else leases.ParkedHolder(on=on, by=by or holder(0), why="final-run")
    record = leases.Claim(
        at=AT, wave="50.1", candidate=CANDIDATE, family=FAMILY, base=OTHER,
        holder=by if on is None else None, parked=parked,
    )  # fmt: skip
    return held(record)


def ledger(*more: leases.LedgerRecord, by: int = 60) -> leases.Ledger:
    start = leases.SessionStarted(at=AT, wave="50.1", candidate=CANDIDATE, family=FAMILY, base=OTHER, holder=holder(by))
    return leases.Ledger("l", "o" * 40, (start, *more))


def case(**fields: Any) -> model.Case:
    return msgspec.structs.replace(model.Case(key=KEY, wave="50.1", candidate=CANDIDATE, family=FAMILY), **fields)


def sight(*runs: github.Run | github.Missing, own: github.Run | None = None, **fields: Any) -> model.Sight:
    seen: dict[int, model.RunSeen] = {r.id: r for r in runs if isinstance(r, github.Run)}
    made = model.Sight(now=AT, me=None, own=own, snapshot=Scene(outside=True).snapshot(), runs=seen)
    return msgspec.structs.replace(made, **fields)


def listing(*rows: T, complete: bool = True) -> github.Listing[T]:
    """Return a listing of these rows, whole or cut."""
    return github.Listing(rows, complete, "" if complete else "cut")


def zombie_memory(*ids: int) -> leases.Snapshot:
    return msgspec.structs.replace(Scene(outside=True).snapshot(), observed=held(leases.Observed(at=AT, zombies=ids)))


def draft(*, is_open: bool = True, head: str = HEAD, number: int = 1) -> github.PullDetail:
    pull = github.Pull(
        number=number, node_id="PR", state="open" if is_open else "closed", merged=False, draft=True, title="", body="",
        author=BOT, head_ref=names.branch(CANDIDATE), head_oid=head, head_repository="acme/bench", base_ref="main",
        labels=(), created_at=AT, updated_at=AT,
    )  # fmt: skip
    return github.PullDetail(pull=pull, commits=listing(), timeline=listing())
