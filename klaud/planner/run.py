"""The verbs of a wave: each reads, decides by pure rules, and lets ``act`` write. What passes between them are records.

``select`` looks at the candidates in the plan's order, isolated from each other, and claims until the wave's cap is
reached (a candidate that is stopped makes room for the next). ``dispatch`` asks for the runs. A dry run decides
everything and stops before the first write.
"""

from __future__ import annotations

import dataclasses
import hashlib
from typing import TYPE_CHECKING

import msgspec

from klaud import errors, names
from klaud.planner import act, decide, decide_plan, model, observe
from klaud.session import model as session

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from klaud.baselines import model as baselines
    from klaud.github import model as github
    from klaud.leases import model as leases
    from klaud.review import model as review


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What earlier jobs found out, for ``select``.

    ``verdicts`` by (benchmark, family); ``inputs`` likewise: the digest of what a family's baseline rests on. ``bundle``
    makes a candidate's evidence bundle; ``figures`` are the capacity provider's. ``refuse`` says why a candidate that
    encodes cannot start. ``configuration``: the path of klaud's configuration in the repository.
    """

    plan: model.Plan
    in_recovery: Mapping[str, str]
    review: review.ReviewResult
    verdicts: Mapping[tuple[str, str], baselines.Verdict]
    bundle: Callable[[model.Candidate], bytes]
    figures: decide.Figures | decide.CapacityUnknown | decide.NotAsked
    inputs: Mapping[tuple[str, str], str] = dataclasses.field(default_factory=dict)
    refuse: Callable[[session.Brief], decide.Stopped | None] = lambda _: None
    configuration: str = ".github/klaud.yml"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Selected:
    """What ``select`` decided. ``briefs`` and ``bundles`` by candidate; ``forbidden``: why nothing more may be claimed."""

    selection: model.Selection
    briefs: Mapping[str, session.Brief]
    bundles: Mapping[str, bytes]
    forbidden: str = ""


def select(world: act.World, given: Given, *, cap: int | None = None, dry_run: bool = False) -> Selected:
    """Decide on every candidate of the plan and claim those that may start; nothing is dispatched.

    ``cap``: at most that many, where it is below the policy's. ``dry_run``: nothing is claimed or remembered.
    InputError where the plan is another run's: its claims would be told from nobody's, and may be that run's already.
    """
    if not dry_run:
        _refuse_foreign(world, given.plan.wave, "plan")
    snapshot = world.store.snapshot()
    chosen = _Chosen(world, given, snapshot, dry_run=dry_run)
    limit = world.policy.candidates_per_wave if cap is None else min(cap, world.policy.candidates_per_wave)
    for candidate in given.plan.candidates:
        try:
            chosen.look_at(candidate, limit)
        except Exception as error:  # noqa: BLE001 - one candidate's fault, klaud's own included, never stops the others
            chosen.stop(candidate, _fault(error))
    selection = decide.selection(
        given.plan,
        chosen.decisions,
        chosen.reasons,
        (*chosen.attention, *_attention(given.plan)),
        at=observe.time_text(world.clock.now()),
        dry_run=dry_run,
    )
    if not dry_run:
        selection = _remembered(world, snapshot, selection, chosen)
    return Selected(selection=selection, briefs=chosen.briefs, bundles=chosen.bundles, forbidden=chosen.forbidden)


def _refuse_foreign(world: act.World, wave: str, what: str) -> None:
    if decide.foreign(wave, world.me.run_id):
        mine = f"run {world.me.run_id}" if world.me.run_id else "a laptop"
        message = f"the {what} is of wave {wave}, and this is {mine}"
        raise errors.InputError(
            message,
            advice="Make a plan in this run (klaud plan), or look at that one with --dry-run; nothing was written.",
        )


class _Chosen:
    """The state of one ``select``: decisions so far, and what selected candidates need."""

    def __init__(self, world: act.World, given: Given, snapshot: leases.Snapshot, *, dry_run: bool) -> None:
        self.decisions: list[model.Decision] = []
        self.reasons: dict[str, tuple[model.Reason, ...]] = {}
        self.briefs: dict[str, session.Brief] = {}
        self.bundles: dict[str, bytes] = {}
        self.attention: list[model.Attention] = []
        self.forbidden = ""
        self._world = world
        self._given = given
        self._dry_run = dry_run
        self._families: set[str] = set()
        now = world.clock.now()
        self._ramped = world.policy.ramp and observe.changed(
            world.gateway, given.configuration, base=given.plan.base, workflow=world.candidate_workflow, now=now
        )
        pulls = _open_pulls(world)
        self.memory = observe.memory(snapshot, pulls, repository=world.repository, at=now)
        self._standing = decide_plan.Standing(
            memory=self.memory, in_recovery=given.in_recovery, at=observe.time_text(now)
        )
        self._usage = observe.usage(
            world.gateway,
            snapshot,
            pulls,
            repository=world.repository,
            bot=world.bot,
            candidate_workflow=world.candidate_workflow,
            now=now,
        )

    def look_at(self, candidate: model.Candidate, limit: int) -> None:
        """Take one candidate through the gates, and claim its family where none stops it."""
        key = (candidate.benchmark, candidate.family)
        measured = candidate.kind == "upgrade"
        facts = decide.Facts(
            standing=decide_plan.blocks(candidate, self._standing, inputs=self._given.inputs.get(key, "")),
            review=self._given.review.of(candidate.candidate),
            capacity=decide.capacity(candidate.targets, self._given.figures) if measured else "not-asked",
            verdict=self._given.verdicts.get(key),
            taken=candidate.family in self._families,
            measured=measured,
        )
        stopped = None if measured else self._given.refuse(self._brief(candidate))
        stopped = stopped or decide.stop(
            facts, self._usage, self._world.policy, started=len(self._families), cap=limit, ramped=self._ramped
        )
        if stopped is None and self.forbidden:
            stopped = decide.Stopped(
                gate="claim", code="claim-forbidden", message=self.forbidden, unblock="the token may push refs"
            )
        if stopped is not None:
            self.stop(candidate, stopped)
            return
        bundle = self._given.bundle(candidate) if measured else None
        if self._dry_run:
            self._select(candidate, bundle, "")
            return
        won = act.claim(self._world, self._given.plan, candidate)
        if isinstance(won, act.Claimed):
            self._select(candidate, bundle, won.held.oid)
            return
        if won.forbidden:
            self.forbidden = won.stopped.message
        if won.stopped.code == "claim-unclear":
            words = f"whether {candidate.family} was claimed is not known: {won.stopped.message}"
            self.attention.append(model.Attention(code="claim-unclear", message=words))
        self.stop(candidate, won.stopped)

    def stop(self, candidate: model.Candidate, stopped: decide.Stopped) -> None:
        """Record a candidate that does not start."""
        self.decisions.append(decide.decision(candidate, stopped))
        if stopped.reasons:
            self.reasons[candidate.candidate] = stopped.reasons

    def _brief(self, candidate: model.Candidate, *, bundle: str = "", claim: str = "") -> session.Brief:
        return session.Brief(
            kind=candidate.kind,
            wave=self._given.plan.wave,
            candidate=candidate.candidate,
            family=candidate.family,
            base=self._given.plan.base,
            benchmark=candidate.benchmark,
            subject=candidate.subject,
            change=candidate.change,
            bundle=bundle,
            claim=claim,
            targets=candidate.targets,
        )

    def _select(self, candidate: model.Candidate, bundle: bytes | None, claim: str) -> None:
        digest = "" if bundle is None else f"sha256:{hashlib.sha256(bundle).hexdigest()}"
        self._families.add(candidate.family)
        if bundle is not None:
            self.bundles[candidate.candidate] = bundle
        self.briefs[candidate.candidate] = self._brief(candidate, bundle=digest, claim=claim)
        self.decisions.append(
            model.Decision(
                candidate=candidate.candidate,
                family=candidate.family,
                benchmark=candidate.benchmark,
                selected=True,
                gate="selected",
                code="selected",
                message="selected",
                subject=candidate.subject,
                claim=claim,
                bundle=digest,
            )
        )


def _open_pulls(world: act.World) -> github.Listing[github.Pull] | None:
    try:
        return world.gateway.open_pulls()
    except errors.ReadFailedError:
        return None


def _fault(error: Exception) -> decide.Stopped:
    return decide.Stopped(
        gate="baseline",
        code="internal-error",
        message=decide.words_of(error),
        unblock="the fault that the message names is corrected",
    )


def _attention(plan: model.Plan) -> list[model.Attention]:
    """Say what of the plan a person should look at."""
    found = [
        model.Attention(code="source-failed", message=f"{one.source}: {one.message}"[: model.MESSAGE_CHARACTERS])
        for one in plan.sources
        if one.status == "failed"
    ]
    found += [
        model.Attention(code="not-generated", message=f"{one.family}: {one.code}"[: model.MESSAGE_CHARACTERS])
        for one in plan.not_generated
    ]
    return found


def _remembered(
    world: act.World, snapshot: leases.Snapshot, selection: model.Selection, chosen: _Chosen
) -> model.Selection:
    """Write what later waves must know, and add whom the review has excluded too often."""
    excluded = decide.exclusions(selection.decisions, chosen.memory)
    tried = [one.family for one in selection.decisions if one.selected]
    act.remember(world, snapshot, excluded, tried)
    limit = world.policy.exclusions_before_report
    often = [
        model.Attention(
            code="excluded-repeatedly",
            message=f"the review has excluded {family} in {count} waves in a row; look at the pull requests it names",
        )
        for family, count in sorted(excluded.items())
        if count >= limit
    ]
    return msgspec.structs.replace(selection, attention=(*selection.attention, *often))


def dispatch(
    world: act.World,
    selection: model.Selection,
    *,
    parked: Sequence[tuple[str, str]] = (),
    branch: str,
) -> model.Selection:
    """Ask for the runs of a selection and for the continuations of parked sessions; return the selection with results.

    A refused dispatch turns its decision into one of the gate ``dispatch``, with what the host said. A selection that was
    dispatched already is not dispatched again. InputError where it is another run's.
    """
    _refuse_foreign(world, selection.wave, "selection")
    orders = act.starts(selection)
    if parked:
        orders = (*orders, *act.continuations(parked, world.store.snapshot()))
    results = act.dispatch(world, orders, branch=branch)
    refused = {one.candidate: one for one in results if one.kind == "start" and one.result in {"refused", "claim-lost"}}
    decisions = tuple(
        _undone(one, refused[one.candidate]) if one.selected and one.candidate in refused else one
        for one in selection.decisions
    )
    derived = decide.lists(decisions)
    unclear = [
        model.Attention(
            code="dispatch-unclear",
            message=f"whether {names.run_marker(one.wave, one.candidate)} was started is not known",
        )
        for one in results
        if one.result == "unclear"
    ]
    return msgspec.structs.replace(
        selection,
        decisions=decisions,
        candidates=derived.candidates,
        deferred_reason=derived.reason,
        counts=derived.counts,
        dispatches=(*selection.dispatches, *results),
        attention=(*selection.attention, *unclear),
    )


def _undone(decision: model.Decision, result: model.Dispatch) -> model.Decision:
    return msgspec.structs.replace(
        decision,
        selected=False,
        gate="dispatch",
        code=f"dispatch-{result.result}",
        message=result.message or "its run was not started",
        unblock="what the message names is corrected; the next wave tries again",
        claim="",
        bundle="",
    )
