"""Facts for tests of the decision table: of a session that is over and empty but for what is given; decisions in short."""

from __future__ import annotations

import dataclasses
import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from klaud import names
from klaud.github import model as github
from klaud.leases import model as leases
from klaud.recovery import decide, decide_cases, decide_facts, model
from tests.support.memory_cases import (
    AT,
    CANDIDATE,
    FINAL,
    GOING,
    HEAD,
    POLICY,
    SETTING,
    SMOKE,
    case,
    claim,
    draft,
    held,
    holder,
    ledger,
    listing,
    run,
    sight,
)  # fmt: skip

if TYPE_CHECKING:
    from collections.abc import Callable

ALICE = github.Account(id=101, login="alice")
GONE = model.Gone(proof="proven", conclusion="cancelled", ended_at=AT)
ALIVE = model.Alive("run 60 is in_progress")
UNKNOWN = model.Unknown(model.Unread("run 60", "502"))
TOUCH = model.Touch(what="commented", who="alice", at=AT)
OUTCOME = leases.Outcome(at=AT, outcome="failed")
CLAIM = claim(holder(60))
LEASE = held(leases.Lease(at=AT, wave="50.1", candidate=CANDIDATE, holder=holder(40)))
RELEASE = model.ReleaseClaim(why="", ref=CLAIM.ref, oid=CLAIM.oid)
GREEN = run(7, path=FINAL, head_sha=HEAD, conclusion="success")
BRANCH_REF = f"refs/heads/klaud/auto-{CANDIDATE}"


def facts(one: model.Case | None = None, seen: model.Sight | None = None, **fields: Any) -> decide_facts.Facts:
    """Return the facts of a session that is proven over and of which nothing is left, but for what is given."""
    one, seen = one or case(), seen or sight()
    pull = fields.pop("pull", None)
    index = decide_cases.Index.of_sight(seen, fields.pop("setting", SETTING))
    made = decide_facts.Facts(
        case=one, sight=seen, index=index, policy=POLICY, live=GONE, lease=None,
        pull=pull.pull if pull else None, detail=pull, open_ours=0, touch=None, outcome=None, pending=(), finals=(),
        counted={},
    )  # fmt: skip
    return dataclasses.replace(made, **fields)


def aged(days: int, seconds: int = 0, **fields: Any) -> model.Sight:
    """Return a sight so long after the records, by our clock and by GitHub's, in which no run is younger."""
    now = AT + datetime.timedelta(days=days, seconds=seconds)
    given = {"now": now, "own": run(99, created_at=now, **GOING), "listing": listing(), **fields}
    return sight(**given)


def changed(seen: github.PullDetail, **fields: Any) -> github.PullDetail:
    """Return a pull request with other fields."""
    return msgspec.structs.replace(seen, pull=msgspec.structs.replace(seen.pull, **fields))


def closed_by(*actors: github.Account | None, head: str = HEAD) -> github.PullDetail:
    """Return a closed pull request, closed by these accounts one after another."""
    events = tuple(github.Event(kind="closed", actor=a, at=AT) for a in actors)
    return msgspec.structs.replace(draft(is_open=False, head=head), timeline=listing(*events))


def words(decided: decide.Decided | model.Verdict | None) -> str:
    """Return a decision in short: row, actions, and whether it blocks and waits."""
    if decided is None:
        return ""
    found = [
        f"leave:{a.code}" if isinstance(a, model.Leave) else str(msgspec.to_builtins(a)["action"])
        for a in decided.actions
    ]
    return " ".join([decided.row, *found, *["blocks"] * decided.blocks, *["waits"] * decided.waits])


def left(decided: decide.Decided | None) -> model.Leave:
    """Return the one ``Leave`` of a decision."""
    assert decided is not None
    (found,) = [a for a in decided.actions if isinstance(a, model.Leave)]
    return found


SMOKING = run(5, path=SMOKE, head_branch=names.branch(CANDIDATE), **GOING)
STRAY = case(claim=CLAIM, stray_runs=(SMOKING,))
DRAFT = draft()
READY = changed(DRAFT, draft=False)
LABELLED = changed(DRAFT, labels=("full-sweep",))
PARK = leases.Parked(at=AT, on=(9,), why="final-run")
ASKED = case(claim=CLAIM, ledger=ledger(leases.Parked(at=AT, on=(), why="approval")))
ASKING: dict[str, Any] = {"setting": msgspec.structs.replace(SETTING, approval_labels=frozenset({"run-it"}))}
PUSHED = leases.Intent(at=AT, seq=0, effect="push-work", oids=(HEAD,))
PARKED = case(claim=CLAIM, ledger=ledger(PARK))
FULL = case(claim=CLAIM, stray_runs=(SMOKING,), branch=HEAD, ledger=ledger(PUSHED))
START = leases.Intent(at=AT, seq=0, effect="start-final-run")
AGAIN = leases.Continued(at=AT, wave="50.1", holder=holder(61))
COUNTED = {"9": POLICY.evidence_sweeps, "12": POLICY.waiting_sweeps, "13": POLICY.continue_sweeps}
BEFORE = {row: sweeps - 1 for row, sweeps in COUNTED.items()}
RULES: dict[str, Callable[[decide_facts.Facts], decide.Decided | None]] = {r.__name__: r for r in decide.TABLE}
TAKE = "take-lease take-claim"
SEEN = {
    v: sight(evidence={7: model.Evidence(verdict=v, why="as seen")})
    for v in ("verified", "wrong", "unreadable", "lost")
}
CONFLICT = changed(LABELLED, mergeable="CONFLICTING")

HANDED = msgspec.structs.replace(
    changed(DRAFT, labels=("klaud-handoff",)),
    timeline=listing(github.Event(kind="labeled", actor=ALICE, at=AT, detail="klaud-handoff")),
)
NOISE = github.Event(kind="commented", actor=github.Account(id=5, login="other-app", type="Bot"), at=AT)
ONCE = model.Policy(evidence_sweeps=1, waiting_sweeps=1, continue_sweeps=1)
