"""The decision table: what is done about one session, and why. Pure: a case and what was seen in, a verdict out.

``TABLE`` is the order of the rows; the first that answers decides. It is total: what no row takes is left as
``unmatched``. A row says what happens to the session's draft, branch, claim, runs and ledger; leases are judged apart.
Only ``Gone`` liveness permits closing and deleting, and only when nobody but klaud has touched the draft.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, TypeAlias

from klaud import names
from klaud.github import model as github
from klaud.leases import model as leases
from klaud.recovery import decide_cases, model, rules_liveness, rules_touch

if TYPE_CHECKING:
    from collections.abc import Callable

    from klaud.recovery.decide_facts import Facts


@dataclasses.dataclass(frozen=True, slots=True)
class Decided:
    """What a row answers."""

    row: model.Row
    state: str
    actions: tuple[model.Action, ...]
    blocks: bool = False
    waits: bool = False


Rule: TypeAlias = "Callable[[Facts], Decided | None]"


# -- what rows do to objects


def _release(f: Facts, why: str) -> tuple[model.Action, ...]:
    claims = [(f.case.claim.ref, f.case.claim.oid)] if f.case.claim else []
    claims += [(r.ref, r.oid) for r in f.case.forerunner]
    return tuple(model.ReleaseClaim(why=why, evidence=f.proof, ref=ref, oid=oid) for ref, oid in claims)


def _cancel(f: Facts) -> tuple[model.Action, ...]:
    runs = {run.id: run for run in f.case.stray_runs}
    if f.case.ledger is not None:
        named = f.index.runs(decide_cases.run_ids(f.case.ledger))
        runs.update((run.id, run) for run in named if decide_cases.is_smoke(run, f.setting))
    for run_id in rules_liveness.waits_on(f.case):
        runs.pop(run_id, None)
    dead = rules_liveness.zombies(f.sight)
    return tuple(
        model.CancelRun(
            why="a check that klaud started and nobody waits for",
            evidence=(f"run {run.id} is {run.status}",),
            run_id=run.id,
        )
        for _, run in sorted(runs.items())
        if run.id not in dead
    )


def _delete_branch(f: Facts, why: str) -> tuple[model.Action, ...]:
    if f.case.branch is None:
        return ()
    archive = names.RefNames(f.setting.prefix).archive("branch", f"auto-{f.case.candidate}", f.case.branch)
    return (model.DeleteRef(why=why, evidence=f.proof, ref=f.case.branch_ref, oid=f.case.branch, archive=archive),)


def _take(f: Facts, why: str) -> tuple[model.Action, ...]:
    case = f.case
    wave = case.wave or wave_for(case, f.sight)
    lease = names.RefNames(f.setting.prefix).lease(wave, case.candidate)
    oid = case.lease.oid if case.lease else None
    taken: tuple[model.Action, ...] = (
        model.TakeOverLease(why=why, ref=lease, oid=oid, wave=wave, candidate=case.candidate),
    )
    if case.claim is not None:
        taken += (
            model.TakeOverClaim(
                why="fence a late session off", evidence=f.proof, ref=case.claim.ref, oid=case.claim.oid
            ),
        )
    return taken


def wave_for(case: model.Case, sight: model.Sight) -> str:
    """Return the wave under which recovery keeps a session that has none: its planner's run, else this sweep's."""
    if case.forerunner:
        return f"{case.forerunner[0].planner_run}.1"
    if sight.me is not None and sight.me.run_id > 0:
        return f"{sight.me.run_id}.{sight.me.attempt}"
    return f"local-{names.short_id(case.candidate)}"


def _outcome(f: Facts, code: str) -> tuple[model.Action, ...]:
    if f.outcome is not None:
        return ()
    ran = f.case.ledger is None or any(isinstance(r, leases.TurnStarted) for r in f.case.ledger.records)
    return (
        model.WriteOutcome(
            why="the session left none",
            outcome="unexpected-error" if ran else "agent-never-ran",
            phase="final-run" if f.finals else "unknown",
            code=code,
        ),
    )


def _leave(code: str, why: str, person: str = "", evidence: tuple[str, ...] = ()) -> model.Leave:
    return model.Leave(why=why, code=code, person=person, evidence=evidence)  # type: ignore[arg-type]


# -- the rows


def row_1(f: Facts) -> Decided | None:
    """Quarantine what is forged or ambiguous."""
    why = f.case.bad
    if not why and f.open_ours > 1:
        why = f"{f.open_ours} open pull requests of klaud's on one branch"
    if not why:
        return None
    code = "newer" if f.case.newer else "quarantined"
    return Decided("1", why, (_leave(code, why, "a maintainer who knows what wrote it"),), blocks=True)


def row_1b(f: Facts) -> Decided | None:
    """Leave what a failed read hides."""
    unread = list(f.case.unread)
    unread.extend(live.unread for live in (f.live, f.lease) if isinstance(live, model.Unknown))
    if not unread:
        return None
    why = "; ".join(f"{u.what}: {u.why}" for u in unread)
    cancels = _cancel(f) if f.gone is not None and f.lease is None else ()
    return Decided("1b", f"not read: {why}", (*cancels, _leave("error", why)), blocks=True)


def row_2(f: Facts) -> Decided | None:
    """Clear up after a merge."""
    if f.pull is None or not f.pull.merged or isinstance(f.live, model.Alive):
        return None
    why = f"pull request {f.pull.number} is merged"
    branch = _delete_branch(f, why) if f.gone is not None and f.case.branch == f.pull.head_oid else ()
    ends = _ledger_outcome(f, "merged") if f.gone is not None else ()
    return Decided("2", "merged", (*_cancel(f), *branch, *_release(f, why), *ends, _leave("settled", why)))


def _ledger_outcome(f: Facts, code: str) -> tuple[model.Action, ...]:
    return _outcome(f, code) if f.case.ledger is not None else ()


def row_3(f: Facts) -> Decided | None:
    """Leave what a maintainer has taken over."""
    if f.pull is None or not f.pull.open or names.HANDOFF_LABEL not in f.pull.labels:
        return None
    why = f"pull request {f.pull.number} carries {names.HANDOFF_LABEL}"
    card: tuple[model.Action, ...] = ()
    match f.case.ledger, f.detail:
        case leases.Ledger() as ledger, github.PullDetail() as seen if decide_cases.card_due(ledger, seen, f.setting):
            card = (model.WriteCard(why=f"{why}, and its card is not written", number=f.pull.number),)
    return Decided("3", "handed off", (*card, *_release(f, why), _leave("handed-off", why)))


def row_4(f: Facts) -> Decided | None:
    """Leave what is alive; a zombie holds nothing any more."""
    match f.live:
        case model.Alive(fact):
            dead = [
                r
                for r in rules_liveness.suspects(f.case, f.sight, f.index, f.policy)
                if rules_liveness.looks_dead(r, f.sight)
            ]
            tries = tuple(
                model.CancelRun(
                    why="unfinished for GitHub, although none of its jobs is",
                    evidence=(f"run {r.id} is {r.status}",),
                    run_id=r.id,
                )
                for r in dead
            )
            person = "somebody who may approve the run" if "approval" in fact else ""
            return Decided("4", f"alive: {fact}", (*tries, _leave("alive", fact, person)), blocks=True)
        case model.Zombie(run_id):
            why = f"run {run_id} is a zombie: nothing of it runs and nothing can end it"
            return Decided("4", why, (*_release(f, why), _leave("alive", why, "GitHub's support, or nobody")))
        case _:
            return None


def row_5(f: Facts) -> Decided | None:
    """Leave what another pass has in hand."""
    if not isinstance(f.lease, model.Alive | model.Zombie):
        return None
    why = f.lease.fact if isinstance(f.lease, model.Alive) else f"run {f.lease.run_id} is a zombie"
    return Decided("5", f"in hand: {why}", (_leave("in-hand", why),), blocks=True)


def row_6(f: Facts) -> Decided | None:
    """Leave an open draft that a person has touched: it is theirs."""
    if f.touch is None or f.pull is None or not f.pull.open:
        return None
    at = f" at {f.touch.at.isoformat()}" if f.touch.at else ""
    why = f"{f.touch.who} {f.touch.what}{at}"
    actions = (*_cancel(f), *_release(f, why), _leave("touched", why, f.touch.who))
    return Decided("6", f"touched: {why}", actions)


def row_7(f: Facts) -> Decided | None:
    """Finish the clean-up of a recorded outcome from where it stopped."""
    if f.outcome is None or not f.pending or f.gone is None:
        return None
    why = f"outcome {f.outcome.outcome}, still to do: {', '.join(f.pending)}"
    finish = model.Finish(
        why=why, evidence=f.proof, wave=f.case.wave, candidate=f.case.candidate, number=f.number, as_="recorded"
    )
    return Decided("7", why, (*_take(f, why), *_cancel(f), finish, *_release(f, why)))


def row_7b(f: Facts) -> Decided | None:
    """Leave what is settled."""
    if f.outcome is None or f.pending or (f.nothing_left and f.is_old):
        return None
    why = f"outcome {f.outcome.outcome}"
    return Decided("7b", f"settled: {why}", (*_cancel(f), *_release(f, why), _leave("settled", why)))


def row_8_9_10(f: Facts) -> Decided | None:
    """Judge a successful final run by what its results say."""
    final, pull = f.newest_final, f.pull
    if final is None or pull is None or not pull.open or final.status != "completed" or final.conclusion != "success":
        return None
    evidence = f.sight.evidence.get(final.id) or model.Evidence(verdict="unreadable", why="not read")
    state = f"final run {final.id} succeeded at {pull.head_oid[:12]}"
    match evidence.verdict:
        case "verified":
            return _finished(f, "8", state, "validated", "its results verify")
        case "wrong":
            return _finished(f, "10", state, "failed", evidence.why)
        case "unreadable" if f.counted.get("9", 0) < f.policy.evidence_sweeps:
            why = f"{state}, its results cannot be read: {evidence.why}"
            return Decided("9", why, (*_cancel(f), _leave("evidence-unreadable", why)), blocks=True, waits=True)
        case _:
            why = f"{state}, its results are lost: {evidence.why}"
            return Decided("9", why, (*_cancel(f), *_release(f, why), _leave("evidence-lost", why, "a maintainer")))


def _finished(f: Facts, row: model.Row, state: str, as_: str, why: str) -> Decided:
    finish = model.Finish(
        why=why,
        evidence=(*f.proof, state),
        wave=f.case.wave,
        candidate=f.case.candidate,
        number=f.number,
        as_="validated" if as_ == "validated" else "failed",
    )
    return Decided(row, f"{state}: {why}", (*_take(f, why), *_cancel(f), finish, *_release(f, why)))


def row_11(f: Facts) -> Decided | None:
    """Leave what is ready for review: people may be looking at it."""
    if f.pull is None or not f.pull.open or f.pull.draft or f.outcome is not None:
        return None
    why = f"pull request {f.pull.number} is ready for review"
    return Decided(
        "11", "ready for review, no outcome", (*_cancel(f), *_release(f, why), _leave("ready", why, "reviewers"))
    )


def row_12(f: Facts) -> Decided | None:
    """Wait, some sweeps long, for a final run that was asked for and is not there."""
    if f.pull is None or not f.pull.open or f.finals or not f.setting.final_labels.intersection(f.pull.labels):
        return None
    conflict = f.pull.mergeable == "CONFLICTING"
    why = (
        "the draft conflicts with its base, so no final run starts" if conflict else "no final run started at the head"
    )
    if f.counted.get("12", 0) < f.policy.waiting_sweeps:
        person = "whoever can resolve the conflict" if conflict else "whoever may start the final run"
        return Decided("12", why, (*_cancel(f), _leave("waiting", why, person)), blocks=True, waits=True)
    return _abandoned(f, f.pull, why)


def row_13(f: Facts) -> Decided | None:
    """Offer a continuation of a parked session whose runs are over, or whose files a person has approved."""
    ledger = f.case.ledger
    if ledger is None:
        return None
    parked = decide_cases.parked(ledger)
    if parked is None or f.gone is None or (f.pull is not None and not f.pull.open):
        return None
    approval = parked.why == "approval"
    patience = f.policy.approval_sweeps if approval else f.policy.continue_sweeps
    if not _budget_left(ledger, f.policy) or f.counted.get("13", 0) >= patience:
        return None
    if approval and f.pull is not None and not f.setting.approval_labels.intersection(f.pull.labels):
        leave = _leave(
            "waiting", "its files run only when a person has approved them", "whoever may set the approval label"
        )
        return Decided("13", "parked until a person approves", (*_cancel(f), leave), blocks=True, waits=True)
    on = ", ".join(str(r) for r in parked.on) or "nothing"
    go = model.Continue(
        why=f"what it waited for ({on}) is over",
        evidence=f.proof,
        wave=f.case.wave,
        candidate=f.case.candidate,
        on=parked.on,
    )
    leave = _leave("continued", "parked, with budget left: the planner dispatches a continuation")
    return Decided("13", f"parked on {on}, over", (*_cancel(f), go, leave), blocks=True, waits=True)


def _budget_left(ledger: leases.Ledger, policy: model.Policy) -> bool:
    finals = [r for r in ledger.records if isinstance(r, leases.Intent) and r.effect == "start-final-run"]
    again = [r for r in ledger.records if isinstance(r, leases.Continued)]
    return len(finals) < policy.final_runs and len(again) < policy.continuations


def row_14(f: Facts) -> Decided | None:
    """Abandon a draft that its session left, with klaud's commits only."""
    if f.pull is None or not f.pull.open:
        return None
    return _abandoned(f, f.pull, "its session is over")


def _abandoned(f: Facts, pull: github.Pull, why: str) -> Decided | None:
    """Abandon an open pull request: a draft only, whose session is proven over, and only when no person touched it."""
    if f.gone is None or f.touch is not None or not pull.draft:
        return None
    close = model.CloseDraft(
        why=why,
        evidence=(*f.proof, f"head {pull.head_oid} is klaud's own"),
        number=pull.number,
        head=pull.head_oid,
        branch=pull.head_ref,
        created_at=pull.created_at,
        conclusion=f.gone.conclusion,
        ended_at=f.gone.ended_at,
    )
    actions = (
        *_take(f, why), *_cancel(f), close, *_delete_branch(f, why), *_release(f, why), *_outcome(f, "abandoned"),
    )  # fmt: skip
    return Decided("14", f"abandoned: {why}", actions)


def row_15_16(f: Facts) -> Decided | None:
    """Judge a closed pull request by who closed it."""
    if f.pull is None or f.pull.open or f.pull.merged or f.detail is None:
        return None
    closed = [e for e in f.detail.timeline.items if e.kind == "closed"]
    by = closed[-1].actor if closed else None
    if decide_cases.is_klaud(by, f.setting):
        return _closed_by_klaud(f, f.pull)
    return _closed_by_person(f, f.pull, rules_touch.who(by) if closed else "somebody unknown")


def _closed_by_klaud(f: Facts, pull: github.Pull) -> Decided | None:
    if f.case.branch is None or f.gone is None:
        return None
    why = f"klaud closed pull request {pull.number}"
    if f.case.branch != pull.head_oid:
        kept = _leave("unknown-head", f"{why}, and its branch has moved since to {f.case.branch[:12]}")
        return Decided("15", "closed by klaud, branch moved", (*_cancel(f), *_release(f, why), kept))
    if f.touch is not None:
        again: tuple[model.Action, ...] = ()
        if _interrupted(f):
            reason = f"a pass died while it closed this draft, and {f.touch.who} {f.touch.what}"
            again = (model.ReopenDraft(why=reason, number=pull.number, head=pull.head_oid),)
        kept = _leave("touched", f"{f.touch.who} {f.touch.what}", f.touch.who)
        return Decided("15", "closed by klaud, touched by a person", (*_cancel(f), *again, *_release(f, why), kept))
    actions = (*_cancel(f), *_delete_branch(f, why), *_release(f, why), *_outcome(f, "abandoned"))
    return Decided("15", "closed by klaud, branch left", actions)


def _interrupted(f: Facts) -> bool:
    """Tell whether a recovery pass began to close the draft and never said that it ended: by its lease, or its intent."""
    if f.case.lease is not None:
        return True
    records = f.case.ledger.records if f.case.ledger is not None else ()
    begun = {
        r.seq for r in records if isinstance(r, leases.Intent) and r.effect == "close-draft" and r.by == "recovery"
    }
    ended = {r.seq for r in records if isinstance(r, leases.Effected)}
    return bool(begun - ended) and f.outcome is None


def _closed_by_person(f: Facts, pull: github.Pull, by: str) -> Decided | None:
    buried = any(name.rpartition("/")[2] == f.case.candidate for name in f.sight.snapshot.tombstones)
    if buried and f.case.branch is None and not f.has_claim:
        return None
    why = f"{by} closed pull request {pull.number}"
    stone: tuple[model.Action, ...] = (
        () if buried else (model.WriteTombstone(why=why, candidate=f.case.candidate, number=pull.number),)
    )
    actions = (*_cancel(f), *stone, *_release(f, why), _leave("closed-by-person", why, by))
    return Decided("16", f"closed: {why}", actions)


def row_17_18(f: Facts) -> Decided | None:
    """Judge a branch without a pull request by whether its ledger knows the head."""
    if f.case.branch is None or f.case.pulls or f.gone is None:
        return None
    own = decide_cases.own_oids(f.case.ledger) if f.case.ledger is not None else frozenset[str]()
    if f.case.branch in own:
        why = "a branch that its session pushed and never proposed"
        actions = (*_cancel(f), *_delete_branch(f, why), *_release(f, why), *_outcome(f, "abandoned"))
        return Decided("17", "branch without a pull request", actions)
    why = f"no ledger knows the head {f.case.branch[:12]} of {f.case.branch_ref}"
    kept = _leave("unknown-head", why, "whoever pushed it")
    return Decided("18", "branch with an unknown head", (*_cancel(f), *_release(f, why), kept))


def row_19(f: Facts) -> Decided | None:
    """Release a claim of which nothing else is left."""
    if not f.has_claim or f.case.branch is not None or f.gone is None or (f.pull is not None and f.pull.open):
        return None
    why = "its holder is gone and nothing else is left"
    return Decided("19", "claim only", (*_cancel(f), *_release(f, why), *_ledger_outcome(f, "abandoned")))


def row_20(f: Facts) -> Decided | None:
    """Archive the ledger of which nothing else is left; one that is older than its copy would be kept just goes."""
    if not f.nothing_left:
        return None
    actions: tuple[model.Action, ...] = (*_cancel(f), _leave("nothing-left", "nothing of it is left to settle"))
    ledger = f.case.ledger
    if ledger is not None and f.is_old:
        why = f"older than the retention of {f.policy.retention_days} days"
        archive = names.RefNames(f.setting.prefix).archive("session", f.case.key, ledger.oid)
        if f.is_past_keeping:
            why, archive = f"older than two retentions of {f.policy.retention_days} days", ""
        kept = decide_cases.copies(f.case, f.sight.snapshot, f.setting.prefix)
        actions = (
            *_cancel(f),
            *(model.DeleteRef(why=why, ref=ref, oid=oid) for ref, oid in kept.items()),
            model.DeleteRef(why=why, ref=ledger.ref, oid=ledger.oid, archive=archive),
        )
    return Decided("20", "nothing left", actions)


TABLE: tuple[Rule, ...] = (
    row_1, row_1b, row_2, row_3, row_4, row_5, row_6, row_7, row_7b, row_8_9_10, row_11, row_12, row_13, row_14, row_15_16,
    row_17_18, row_19, row_20,
)  # fmt: skip
"""The decision table, top to bottom; the first row that answers decides."""


def decide_case(f: Facts) -> model.Verdict:
    """Apply the table to one case."""
    for rule in TABLE:
        decided = rule(f)
        if decided is not None:
            break
    else:
        decided = Decided(
            "unmatched", "no row of the table", (_leave("unmatched", "no row of the table", "klaud's authors"),)
        )
    return model.Verdict(
        case=f.case,
        row=decided.row,
        state=decided.state,
        actions=decided.actions,
        blocks=decided.blocks,
        waits=decided.waits,
    )
