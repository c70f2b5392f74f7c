"""May this candidate start? Gates in order: standing, review, ceilings, capacity, baseline. The claim itself is ``act``'s.

Each gate answers with a reason code, a sentence, and what would unblock it. What is not known never counts as a yes: a
missing review, a ceiling whose figures could not be read, a target that the provider does not know, a family without a
verdict all defer, each under its own code. No sentence here names a target or its figures.
"""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, TypeAlias, assert_never

import msgspec

from klaud import errors, names
from klaud.baselines import model as baselines
from klaud.planner import model
from klaud.review import model as review

MICRODOLLARS = 1_000_000
"""One US dollar."""

Capacity: TypeAlias = Literal["free", "busy", "unknown", "not-asked"]

Units: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=10_000_000)]


class Target(msgspec.Struct, frozen=True):
    """What a capacity provider says of one target, in units (nodes, say)."""

    total: Units
    allocated: Units
    mixed: Units
    idle: Units


class Figures(msgspec.Struct, frozen=True):
    """A capacity provider's answer. Private: it goes into no file."""

    targets: Mapping[str, Target]


class CapacityUnknown(msgspec.Struct, frozen=True):
    """The provider could not be read; ``why`` is a type of failure, without any payload."""

    why: str


class NotAsked(msgspec.Struct, frozen=True):
    """No provider is configured."""


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """What stands and was spent before this wave starts anything. None: it could not be read."""

    open_drafts: int | None
    ready_unreviewed: int | None
    dispatches_day: int | None
    microdollars_day: int | None
    microdollars_month: int | None


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one candidate when it is its turn. ``standing``: code, message, unblock of what blocks it now.

    ``measured``: it has a baseline to prove; a candidate that encodes has none.
    """

    standing: tuple[model.PlanCode, str, str] | None
    review: review.Decision | None
    capacity: Capacity
    verdict: baselines.Verdict | None
    taken: bool = False
    measured: bool = True


class Stopped(msgspec.Struct, frozen=True, kw_only=True):
    """A gate said no."""

    gate: model.Gate
    code: str
    message: str
    unblock: str
    pulls: tuple[int, ...] = ()
    reasons: tuple[model.Reason, ...] = ()


def has_room(target: Target) -> bool | None:
    """Tell whether a target has room: below 80 % used and a unit idle. None where its figures contradict each other."""
    if max(target.allocated + target.mixed, target.idle) > target.total:
        return None
    return (target.allocated + target.mixed) * 5 < target.total * 4 and target.idle >= 1


def capacity(targets: Sequence[str], figures: Figures | CapacityUnknown | NotAsked) -> Capacity:
    """Return whether all targets of a candidate have room; one that is busy decides before one that is unknown."""
    if isinstance(figures, NotAsked):
        return "not-asked"
    if isinstance(figures, CapacityUnknown) or not targets:
        return "unknown"
    rooms = [has_room(figures.targets[one]) if one in figures.targets else None for one in targets]
    if any(room is False for room in rooms):
        return "busy"
    return "unknown" if None in rooms else "free"


def foreign(wave: str, run_id: int) -> bool:
    """Tell whether a wave is another planner run's; ``run_id`` 0: this is a laptop, whose waves have no run.

    An earlier attempt of the same run is no other one: jobs that went well are not run again.
    """
    return not wave.startswith(f"{run_id}." if run_id else "local-")


def stop(
    facts: Facts, usage: Usage, policy: model.Policy, *, started: int, cap: int, ramped: bool = False
) -> Stopped | None:
    """Return the first gate that stops a candidate, None where only the claim is left.

    ``started``: candidates that this wave has selected already; ``cap``: how many it may select. ``ramped``: of them one
    only, since klaud's configuration has changed.
    """
    if facts.standing is not None:
        code, message, unblock = facts.standing
        return Stopped(gate="plan", code=code, message=message, unblock=unblock)
    return (
        _review(facts.review)
        or _ceilings(usage, policy, started, cap, ramped=ramped)
        or _capacity(facts.capacity)
        or (_baseline(facts.verdict) if facts.measured else None)
        or _taken(taken=facts.taken)
    )


def _review(decision: review.Decision | None) -> Stopped | None:
    if decision is None:
        return Stopped(
            gate="review",
            code="decision-missing",
            message="the review says nothing of it",
            unblock="a review that has it",
        )
    if decision.verdict == "proceed":
        return None
    by_pulls = f"pull requests {', '.join(f'#{n}' for n in decision.pulls)} are closed or merged"
    return Stopped(
        gate="review",
        code=decision.reason,
        message=decision.message[: model.MESSAGE_CHARACTERS],
        unblock=by_pulls if decision.pulls else "a review that can decide",
        pulls=decision.pulls,
    )


def _ceilings(usage: Usage, policy: model.Policy, started: int, cap: int, *, ramped: bool) -> Stopped | None:
    day, month = policy.dollars_per_day, policy.dollars_per_month
    rules = (
        ("ramp", started, 1 if ramped else cap + 1, "the next wave"),
        ("candidates-per-wave", started, cap, "the next wave"),
        ("open-drafts", _more(usage.open_drafts, started), policy.open_drafts, "open drafts are settled"),
        (
            "ready-unreviewed",
            usage.ready_unreviewed,
            policy.ready_unreviewed,
            "somebody reviews the pull requests that are ready",
        ),
        ("dispatches-per-day", _more(usage.dispatches_day, started), policy.dispatches_per_day, "a later hour"),
        ("dollars-per-day", usage.microdollars_day, day * MICRODOLLARS, "a later hour"),
        ("dollars-per-month", usage.microdollars_month, month * MICRODOLLARS, "a later day"),
    )
    for name, value, limit, unblock in rules:
        if value is None:
            return Stopped(
                gate="ceiling",
                code=f"ceiling-unknown-{name}",
                message=f"what counts against the ceiling {name} could not be read",
                unblock="the reading works again",
            )
        if value >= limit:
            return Stopped(
                gate="ceiling", code=f"ceiling-{name}", message=f"the ceiling {name} is reached", unblock=unblock
            )
    return None


def _more(value: int | None, started: int) -> int | None:
    return None if value is None else value + started


def _capacity(found: Capacity) -> Stopped | None:
    match found:
        case "free" | "not-asked":
            return None
        case "busy":
            return Stopped(
                gate="capacity", code="capacity-busy", message="its target has no room", unblock="its target has room"
            )
        case "unknown":
            return Stopped(
                gate="capacity",
                code="capacity-unknown",
                message="whether its target has room could not be found out",
                unblock="the capacity provider answers for its target",
            )
        case _ as never:
            assert_never(never)


def _baseline(verdict: baselines.Verdict | None) -> Stopped | None:
    if verdict is None:
        return Stopped(
            gate="baseline",
            code="no-verdict",
            message="its baseline was not judged",
            unblock="a wave that judges it",
        )
    if verdict.verdict == "verified":
        return None
    reasons = tuple(
        model.Reason(code=one.code, count=one.count, message=one.message, unblock=one.unblock)
        for one in verdict.reasons
    )
    first = reasons[0] if reasons else model.Reason(code="internal-error", count=1, message="no reason", unblock="")
    return Stopped(
        gate="baseline",
        code=first.code,
        message=first.message[: model.MESSAGE_CHARACTERS],
        unblock=first.unblock,
        reasons=reasons or (first,),
    )


def _taken(*, taken: bool) -> Stopped | None:
    if not taken:
        return None
    return Stopped(
        gate="claim",
        code="family-taken",
        message="this wave has already selected another candidate of its family",
        unblock="that session ends",
    )


def decision(candidate: model.Candidate, stopped: Stopped) -> model.Decision:
    """Return the record of a candidate that a gate stopped."""
    return model.Decision(
        candidate=candidate.candidate,
        family=candidate.family,
        benchmark=candidate.benchmark,
        selected=False,
        gate=stopped.gate,
        code=stopped.code,
        message=stopped.message,
        unblock=stopped.unblock,
        pulls=stopped.pulls,
        subject=candidate.subject,
    )


def selection(
    plan: model.Plan,
    decisions: Sequence[model.Decision],
    reasons: Mapping[str, tuple[model.Reason, ...]],
    attention: Sequence[model.Attention],
    *,
    at: str,
    dry_run: bool,
) -> model.Selection:
    """Put ``selection.json`` together: decisions in order, then what the plan blocked; lists and counts follow from them.

    ``reasons``: all reasons of the baselines that were deferred, by candidate.
    """
    blocked = tuple(
        model.Decision(
            candidate=one.candidate,
            family=one.family,
            benchmark=one.benchmark,
            selected=False,
            gate="plan",
            code=one.code,
            message=one.message,
            unblock=one.unblock,
        )
        for one in plan.blocked
    )
    every = (*decisions, *blocked)
    derived = lists(every)
    return model.Selection(
        wave=plan.wave,
        base=plan.base,
        seed=plan.seed,
        at=at,
        dry_run=dry_run,
        decisions=every,
        attention=tuple(attention),
        baseline_deferral_reasons={
            one.candidate: reasons[one.candidate]
            for one in every
            if one.gate == "baseline" and one.candidate in reasons
        },
        candidates=derived.candidates,
        capacity_deferred_candidates=derived.capacity,
        baseline_deferred_candidates=derived.baseline,
        deferred_reason=derived.reason,
        counts=derived.counts,
    )


class Lists(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a selection that follow from its decisions."""

    candidates: tuple[str, ...]
    capacity: tuple[str, ...]
    baseline: tuple[str, ...]
    reason: str
    counts: dict[str, int]


def lists(decisions: Sequence[model.Decision]) -> Lists:
    """Return what follows from the decisions."""
    stopped = collections.Counter(one.code for one in decisions if not one.selected)
    selected = tuple(one.candidate for one in decisions if one.selected)
    most = min(stopped.items(), key=lambda item: (-item[1], item[0]))[0] if stopped else "no-candidates"
    return Lists(
        candidates=selected,
        capacity=tuple(one.candidate for one in decisions if one.gate == "capacity"),
        baseline=tuple(one.candidate for one in decisions if one.gate == "baseline"),
        reason="" if selected else most,
        counts=dict(sorted(collections.Counter(one.code for one in decisions).items())),
    )


def exclusions(decisions: Sequence[model.Decision], memory: model.Memory) -> dict[str, int]:
    """Return how often in a row the review has excluded each family of this wave, 0 for one that it let pass.

    A family with several candidates is excluded where the review excluded all of them. Keys are ``<file>:<key>``.
    """
    found: dict[str, int] = {}
    for one in decisions:
        if one.gate == "plan":
            continue
        before = memory.families.get(names.short_id(one.family), model.FamilyState()).excluded_in_a_row
        count = before + 1 if one.gate == "review" else 0
        found[one.family] = min(found.get(one.family, count), count)
    return found


def words_of(error: BaseException) -> str:
    """Return what may be published of an error: klaud's own sentence, else its type and a bounded part of its text."""
    text = str(error)
    if not isinstance(error, errors.KlaudError):
        text = f"{type(error).__name__}: {text}"
    return text[: model.MESSAGE_CHARACTERS]
