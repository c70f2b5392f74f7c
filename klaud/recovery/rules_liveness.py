"""Is a session over? Pure rules; three values and the zombie, each with what shows it.

Only GitHub's own word proves an end: a run (or its job) is ``completed``; or a run below ours in number answers 404 while
ours answers 200 to the same token. Everything else, an error, an unknown status word, an incomplete listing, is alive. A
completed run that waits for a person's approval (``action_required``) is alive too.
"""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, assert_never

from klaud.github import model as github
from klaud.leases import model as leases
from klaud.recovery import decide_cases, model

if TYPE_CHECKING:
    from collections.abc import Sequence

    from klaud.recovery.decide_cases import Index


def of_run(run_id: int, sight: model.Sight, index: Index) -> model.Liveness:
    """Judge one run."""
    if run_id == 0:
        return model.Alive("its holder ran outside of Actions, where nothing can be proven")
    seen = index.by_id.get(run_id)
    match seen:
        case None:
            return model.Unknown(model.Unread(f"run {run_id}", "not read"))
        case model.Unread():
            return model.Unknown(seen)
        case github.Missing():
            return _of_missing(run_id, sight)
        case github.Run(status="completed", conclusion="action_required"):
            return model.Alive(f"run {run_id} waits for a person's approval")
        case github.Run(status="completed"):
            return model.Gone(
                proof=f"run {run_id} attempt {seen.attempt} is completed: {seen.conclusion}",
                ended_at=seen.updated_at,
                conclusion=seen.conclusion or "",
            )
        case github.Run():
            if run_id in zombies(sight):
                return model.Zombie(run_id)
            return model.Alive(f"run {run_id} is {seen.status}")
        case _:
            assert_never(seen)


def _of_missing(run_id: int, sight: model.Sight) -> model.Liveness:
    if isinstance(sight.own, github.Run) and run_id < sight.own.id:
        return model.Gone(proof=f"run {run_id} answers 404 while our own run {sight.own.id} answers 200")
    return model.Alive(f"run {run_id} answers 404, and nothing proves that it is deleted")


def zombies(sight: model.Sight) -> frozenset[int]:
    """Return the runs that an earlier sweep could not end."""
    held = sight.snapshot.observed
    if isinstance(held, leases.Held) and isinstance(held.record, leases.Observed):
        return frozenset(held.record.zombies)
    return frozenset()


def of_case(case: model.Case, sight: model.Sight, index: Index, policy: model.Policy) -> model.Liveness:
    """Judge a session by everything that could still act for it: its run, what it is parked on, its final run."""
    found = [*_of_session_runs(case, sight, index, policy), *_of_parked(case, sight, index)]
    found.extend(_of_forerunner(case, sight, index))
    found.extend(of_run(run.id, sight, index) for run in finals_going(case, index))
    return _strongest(found)


def _strongest(found: Sequence[model.Liveness]) -> model.Liveness:
    """Return the first that keeps the session: alive, unknown, zombie, in this order; only where none does, its end."""
    for kind in (model.Alive, model.Unknown, model.Zombie):
        for one in found:
            if isinstance(one, kind):
                return one
    proofs = [one for one in found if isinstance(one, model.Gone)]
    if not proofs:
        return model.Gone(proof="no claim, no ledger and no run names a holder")
    times = [p.ended_at for p in proofs if p.ended_at is not None]
    return model.Gone(
        proof="; ".join(dict.fromkeys(p.proof for p in proofs)),
        ended_at=max(times) if times else None,
        conclusion=proofs[0].conclusion,
    )


def session_runs(case: model.Case, index: Index) -> tuple[frozenset[int], int | None]:
    """Return the runs that are this session (by ledger, claim and marker), and the planner run where only that is known."""
    ids = {run.id for run in index.by_session.get(case.key, ())} if case.wave else set[int]()
    if case.ledger is not None and not decide_cases.is_buried(case.ledger):
        held = decide_cases.holder(case.ledger)
        ids.update({held.run_id} if held is not None else ())
    claim = case.claim.record if case.claim is not None else None
    planner: int | None = None
    if isinstance(claim, leases.Claim):
        by = claim.holder or (claim.parked.by if claim.parked else None)
        if by is not None and case.wave == f"{by.run_id}.{by.attempt}" and case.ledger is None:
            planner = by.run_id
        elif by is not None:
            ids.add(by.run_id)
    if ids:
        planner = None
    return frozenset(ids), planner


def _of_session_runs(case: model.Case, sight: model.Sight, index: Index, policy: model.Policy) -> list[model.Liveness]:
    ids, planner = session_runs(case, index)
    found = [of_run(run_id, sight, index) for run_id in sorted(ids)]
    if planner is None:
        return found
    state = of_run(planner, sight, index)
    if not isinstance(state, model.Gone):
        return [state]
    if isinstance(sight.listing, model.Unread):
        return [model.Unknown(sight.listing)]
    if not sight.listing.complete:
        return [model.Unknown(model.Unread("klaud's runs", sight.listing.why_not))]
    quiet = datetime.timedelta(seconds=policy.dispatch_seconds)
    if state.ended_at is not None and (index.now is None or index.now - state.ended_at < quiet):
        return [model.Alive(f"dispatched by run {planner}, its run is not to be seen yet")]
    return [state]


def waits_on(case: model.Case) -> tuple[int, ...]:
    """Return the runs that the session is parked on."""
    on: tuple[int, ...] = ()
    if case.ledger is not None and (parked := decide_cases.parked(case.ledger)) is not None:
        on = parked.on
    claim = case.claim.record if case.claim is not None else None
    if isinstance(claim, leases.Claim) and claim.parked is not None:
        on = (*on, *claim.parked.on)
    return tuple(dict.fromkeys(on))


def _of_parked(case: model.Case, sight: model.Sight, index: Index) -> list[model.Liveness]:
    """Judge what it is parked on: only an unfinished run counts; one that is over proves nothing about the session."""
    found = [of_run(run_id, sight, index) for run_id in waits_on(case)]
    return [one for one in found if isinstance(one, (model.Alive, model.Unknown))]


def _of_forerunner(case: model.Case, sight: model.Sight, index: Index) -> list[model.Liveness]:
    return [of_job(r.planner_run, r.job, sight, index) for r in case.forerunner]


def of_job(run_id: int, job: str, sight: model.Sight, index: Index, attempt: int | None = None) -> model.Liveness:
    """Judge one job of a run by its name: over when its run is, or when it is itself, or when a later attempt began."""
    state = of_run(run_id, sight, index)
    if not isinstance(state, model.Alive):
        return state
    run = index.by_id.get(run_id)
    if attempt is not None and isinstance(run, github.Run) and run.attempt > attempt:
        return model.Gone(proof=f"run {run_id} is in attempt {run.attempt}, the holder's was {attempt}")
    jobs = sight.jobs.get(run_id)
    if not job or not isinstance(jobs, github.Listing) or not jobs.complete:
        return state
    mine = [j for j in jobs.items if j.name == job]
    if mine and all(j.status == "completed" for j in mine):
        ends = [j.completed_at for j in mine if j.completed_at is not None]
        return model.Gone(
            proof=f"job {mine[-1].id} of run {run_id} is completed: {mine[-1].conclusion}",
            ended_at=max(ends) if ends else None,
            conclusion=mine[-1].conclusion or "",
        )
    return state


def of_lease(lease: leases.Lease, sight: model.Sight, index: Index) -> model.Liveness:
    """Judge the recovery pass that holds a lease; an earlier pass of our own job is over, since we are running."""
    held = lease.holder
    if sight.me is not None and (held.run_id, held.attempt, held.job) == (
        sight.me.run_id,
        sight.me.attempt,
        sight.me.job,
    ):
        return model.Gone(proof=f"an earlier pass of our own job (run {held.run_id})")
    return of_job(held.run_id, held.job, sight, index, held.attempt)


def finals(case: model.Case, index: Index, head: str) -> list[github.Run]:
    """Return the final runs at exactly this head, newest last; skipped ones are not final runs."""
    ids = waits_on(case)
    parked_final = (
        case.ledger is not None and (p := decide_cases.parked(case.ledger)) is not None and p.why == "final-run"
    )
    found: dict[int, github.Run] = {}
    for run in index.by_head.get(head, ()):
        if run.conclusion == "skipped":
            continue
        if decide_cases.workflow_of(run) in index.setting.final_workflows or (parked_final and run.id in ids):
            found[run.id] = run
    return [found[run_id] for run_id in sorted(found)]


def finals_going(case: model.Case, index: Index) -> list[github.Run]:
    """Return the unfinished final runs on the session's branch or at its heads, whoever started them."""
    heads = {case.branch, *(d.pull.head_oid for d in case.pulls if d.pull.open)}
    branch = f"klaud/auto-{case.candidate}"
    candidates = [*(index.by_branch.get(branch, ()) if case.fresh else ())]
    candidates.extend(run for head in heads if head for run in index.by_head.get(head, ()))
    found = {
        run.id: run
        for run in candidates
        if run.status != "completed" and decide_cases.workflow_of(run) in index.setting.final_workflows
    }
    return [found[run_id] for run_id in sorted(found)]


def seen_since(case: model.Case, sight: model.Sight, index: Index, since: datetime.datetime) -> bool:
    """Tell whether GitHub shows a run of the session (its planner's too) that changed since then, or could not show it."""
    if not isinstance(sight.listing, github.Listing) or not sight.listing.complete:
        return True
    ids, _ = session_runs(case, index)
    planner = case.wave.partition(".")[0]
    if planner.isdigit():
        ids |= {int(planner)}
    return any(run.updated_at >= since for run in index.runs(ids))


def suspects(case: model.Case, sight: model.Sight, index: Index, policy: model.Policy) -> list[github.Run]:
    """Return the session's unfinished runs that have not changed for so long that their jobs should be looked at."""
    ids, planner = session_runs(case, index)
    del planner
    quiet = datetime.timedelta(seconds=policy.zombie_seconds)
    known = zombies(sight)
    return [
        run
        for run in index.runs(sorted({*ids, *waits_on(case)}))
        if run.status in {"queued", "in_progress"}
        and run.id not in known
        and index.now is not None
        and index.now - run.updated_at > quiet
    ]


def looks_dead(run: github.Run, sight: model.Sight) -> bool:
    """Tell whether an unfinished run has no unfinished job, by a complete listing."""
    jobs = sight.jobs.get(run.id)
    return isinstance(jobs, github.Listing) and jobs.complete and all(j.status == "completed" for j in jobs.items)
