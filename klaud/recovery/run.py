"""One sweep: observe, decide, act, report. A dry run is this loop stopping after decide.

The sweep is red (exit status 1) when its inputs contradict each other, a permission is missing, a clean-up write was
refused, something must be reopened by hand, or more is leaking than the limits allow for two sweeps running.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Literal

import msgspec

from klaud import errors
from klaud.github import model as github
from klaud.leases import model as leases
from klaud.recovery import act, archives, decide_leaks, decide_plan, model, observe, rules_touch, settle_refs, writer
from klaud.recovery.hand import Hand

if TYPE_CHECKING:
    from collections.abc import Callable

    from klaud import clock as clocks
    from klaud import names
    from klaud.github import gateway as ports

ROUNDS = 5
"""Times the rules may ask for more: runs, then jobs, then heads, then evidence, and one in reserve."""


@dataclasses.dataclass(frozen=True, slots=True)
class Parts:
    """Everything a sweep works with. ``snapshot`` reads all of klaud's refs; ``paused`` says why nothing may be written."""

    gateway: ports.Gateway
    refs: ports.RefStore
    snapshot: Callable[[], leases.Snapshot]
    names: names.RefNames
    clock: clocks.Clock
    me: leases.Holder | None
    setting: model.Setting
    policy: model.Policy
    finisher: model.Finisher
    key: bytes | None = None
    paused: str = ""


def sweep(parts: Parts, *, report_only: bool = False, parked_on: int | None = None) -> model.Report:
    """Run one sweep and return its report. ``parked_on``: settle only the sessions that wait on this run."""
    return _Sweep(parts, report_only=report_only or bool(parts.paused), parked_on=parked_on).run()


class _Sweep:
    def __init__(self, parts: Parts, *, report_only: bool, parked_on: int | None) -> None:
        self.parts = parts
        self.report_only = report_only
        self.parked_on = parked_on
        self.red: list[str] = []
        self.unread: Literal["", "forbidden", "temporary"] = ""
        self.begun = parts.clock.monotonic()
        self.before = parts.gateway.rate_limit.remaining
        self.observer = observe.Observer(
            gateway=parts.gateway,
            clock=parts.clock,
            setting=parts.setting,
            policy=parts.policy,
            finisher=parts.finisher,
        )

    def run(self) -> model.Report:
        """Observe, decide, act, report."""
        snapshot = self._snapshot()
        if snapshot is None:
            return self._report(None, None, {}, {})
        if self.parked_on is not None:
            snapshot = only_parked_on(snapshot, self.parked_on)
            if not (snapshot.claims or snapshot.ledgers):
                return self._report(None, None, {}, {})
        own = self.observer.own_run(self.parts.me)
        sight = self.observer.first(self.parts.me, own, snapshot)
        thinking = self._think(sight)
        plan = thinking.plan(self.parts.gateway.rate_limit.remaining)
        if self.observer.forbidden:
            why = f"not permitted: {self.observer.forbidden[0]}"
            plan = msgspec.structs.replace(plan, stop=model.Stop(why=why, permission=self.observer.forbidden[0]))
        plan = self._with_archives(thinking, plan)
        if plan.stop is None and not self.report_only:
            plan = self._permitted(plan)
        hands = {v.case.key + ("/lease" if v.row == "lease" else ""): Hand(v) for v in plan.verdicts}
        if plan.stop is not None:
            self.red.append(plan.stop.why)
        zombies: set[int] = set()
        if plan.stop is None and not self.report_only:
            zombies = self._act(thinking, list(hands.values()))
        leaks = decide_leaks.count([after(h) for h in hands.values()], self.parts.policy, self.parts.clock.now())
        if plan.stop is None and not self.report_only:
            self._remember(thinking.sight, plan, zombies, leaks)
        return self._report(thinking, plan, hands, leaks, zombies)

    def _snapshot(self) -> leases.Snapshot | None:
        try:
            return self.parts.snapshot()
        except errors.ForbiddenError as error:
            self.red.append(f"not permitted: {error}")
            self.unread = "forbidden"
        except errors.RetryLaterError as error:
            self.red.append(f"klaud's refs could not be read: {error}")
            self.unread = "temporary"
        return None

    def _think(self, sight: model.Sight) -> decide_plan.Thinking:
        thinking = decide_plan.Thinking(sight, self.parts.setting, self.parts.policy)
        for _ in range(ROUNDS):
            if thinking.stop() is not None or self.observer.forbidden:
                break
            wanted = thinking.wanted()
            if not wanted:
                break
            sight = self.observer.more(sight, wanted)
            thinking = decide_plan.Thinking(sight, self.parts.setting, self.parts.policy)
        return thinking

    def _with_archives(self, thinking: decide_plan.Thinking, plan: model.Plan) -> model.Plan:
        """Add what goes from the archive, in a sweep over everything that nothing stops."""
        if plan.stop is not None or self.parked_on is not None:
            return plan
        parts = self.parts
        kept = archives.Archives(
            refs=parts.refs, ref_names=parts.names, repository=parts.setting.repository, key=parts.key
        )
        return msgspec.structs.replace(plan, verdicts=(*plan.verdicts, *kept.past(thinking)))

    def _permitted(self, plan: model.Plan) -> model.Plan:
        """Stop a plan whose first write would be refused sooner or later: half of a clean-up is worse than none.

        Only a clear no stops it. What cannot be asked is found by the write itself.
        """
        for right in decide_plan.rights(plan.verdicts):
            try:
                if right == "contents:write":
                    settle_refs.check_right(self.parts.refs, self.parts.names)
                else:
                    self.parts.gateway.check_right(right, self.parts.setting.candidate_workflow)
            except errors.ForbiddenError as error:
                named = "" if right in str(error) else f" (the token lacks {right})"
                why = f"not permitted: {error}{named}"
                return msgspec.structs.replace(plan, stop=model.Stop(why=why, permission=right))
            except errors.RetryLaterError:
                continue
        return plan

    def _act(self, thinking: decide_plan.Thinking, hands: list[Hand]) -> set[int]:
        parts, sight = self.parts, thinking.sight
        actor = act.Actor(
            gateway=parts.gateway,
            observer=self.observer,
            clock=parts.clock,
            setting=parts.setting,
            policy=parts.policy,
            finisher=parts.finisher,
        )
        pen = writer.Writer(
            refs=parts.refs, repository=parts.setting.repository, key=parts.key, per_push=parts.policy.refs_per_push
        )
        refs = settle_refs.RefSettler(writer=pen, clock=parts.clock, me=parts.me, ref_names=parts.names, sight=sight)
        try:
            actor.cancel(hands, sight.listing_since, leased=False)
            if not actor.halted:
                refs.take(hands)
            actor.cancel(hands, sight.listing_since, leased=True)
            actor.cards(hands)
            actor.restore(hands)
            actor.close(hands)
            actor.finish(hands)
            actor.check_closed(hands, thinking.index)
            index = actor.see_through(sight.listing_since, hands)
            if index is not None:
                actor.check_reruns(hands, index)
            if actor.halted:
                for hand in hands:
                    hand.stop(actor.halted)
            refs.settle(hands)
            self._check_deleted(actor, refs, hands)
        except errors.ForbiddenError as error:
            self.red.append(f"not permitted: {error}")
            for hand in hands:
                hand.stop(f"not permitted: {error}")
        self.red += [*actor.red, *refs.red]
        return actor.zombies

    def _check_deleted(self, actor: act.Actor, refs: settle_refs.RefSettler, hands: list[Hand]) -> None:
        """Look once more at what was closed: whoever acted until the branch was gone gets branch and draft back."""
        closed = [h for h in hands if h.closed and not h.kept and not h.stopped and h.closing is not None]
        seen = actor.read_closed(closed)
        for hand in closed:
            detail = seen.get(hand.closing.number) if hand.closing is not None else None
            if not isinstance(detail, github.PullDetail) or hand.closing is None:
                continue
            touch = next(rules_touch.touches(detail, hand.case, (), self.parts.setting), None)
            if touch is not None and refs.restore_branch(hand, hand.closing.head):
                actor.reopen(hand, f"{touch.who} {touch.what}", detail)

    def _remember(self, sight: model.Sight, plan: model.Plan, zombies: set[int], leaks: dict[str, model.Leak]) -> None:
        held = sight.snapshot.observed
        if held is not None and not (isinstance(held, leases.Held) and isinstance(held.record, leases.Observed)):
            return
        before = held.record if isinstance(held, leases.Held) and isinstance(held.record, leases.Observed) else None
        above = bool(decide_leaks.over(leaks))
        now = self.parts.clock.now()
        recent = before is not None and abs((now - before.at).total_seconds()) < self.parts.policy.count_seconds
        dead, counts, over_for = decide_leaks.remembered(before, plan, zombies, above=above, recent=recent)
        if self.parked_on is not None:
            counts = before.counts if before is not None else ()
            over_for = before.leaks_over if before is not None else 0
        if over_for > 1:
            self.red.append(f"above the leak limits for {over_for} sweeps: {', '.join(decide_leaks.over(leaks))}")
        record = leases.Observed(at=now, zombies=dead, counts=counts, leaks_over=over_for)
        same = before if before is not None else leases.Observed(at=now)
        if msgspec.structs.replace(record, at=same.at) == same:
            return
        pen = writer.Writer(refs=self.parts.refs, repository=self.parts.setting.repository, key=self.parts.key)
        refs = settle_refs.RefSettler(
            writer=pen, clock=self.parts.clock, me=self.parts.me, ref_names=self.parts.names, sight=sight
        )
        try:
            wrong = refs.remember(record, held.oid if held is not None else None)
        except errors.ForbiddenError as error:
            wrong = f"not permitted: {error}"
        if wrong:
            self.red.append(wrong)

    def _report(
        self,
        thinking: decide_plan.Thinking | None,
        plan: model.Plan | None,
        hands: dict[str, Hand],
        leaks: dict[str, model.Leak],
        zombies: set[int] | None = None,
    ) -> model.Report:
        parts = self.parts
        entries = tuple(entry(h) for _, h in sorted(hands.items()))
        blocked: dict[str, str] = {}
        for hand in hands.values():
            if hand.verdict.blocks and hand.case.family:
                blocked.setdefault(hand.case.family, f"row {hand.verdict.row}: {hand.verdict.state}")
        return model.Report(
            repository=parts.setting.repository,
            at=parts.clock.now(),
            mode="report" if self.report_only else "act",
            sessions=entries,
            blocked=blocked,
            continuations=tuple(a for h in hands.values() for a in h.actions(model.Continue)),
            leaks=leaks,
            totals=model.Totals(
                requests=dict(parts.gateway.requests),
                pushes=parts.refs.pushes,
                fetches=parts.refs.fetches,
                writes=tuple(parts.gateway.writes),
                rate_limit_before=self.before,
                rate_limit_after=parts.gateway.rate_limit.remaining,
                seconds=round(parts.clock.monotonic() - self.begun, 3),
                worst_case_requests=plan.requests if plan is not None else 0,
            ),
            foreign=thinking.sight.snapshot.foreign if thinking is not None else (),
            quarantined=quarantined(thinking.sight.snapshot) if thinking is not None else {},
            zombies=tuple(sorted({*(plan.zombies if plan else ()), *(zombies or ())})),
            stopped=plan.stop.why if plan is not None and plan.stop is not None else parts.paused,
            red=tuple(dict.fromkeys(self.red)),
            unread=self.unread,
        )


def quarantined(snapshot: leases.Snapshot) -> dict[str, str]:
    """Return every ref whose record cannot be read, and why; a newer klaud's record is one, too."""
    kinds = (snapshot.claims, snapshot.ledgers, snapshot.leases, snapshot.families, snapshot.tombstones)
    found: dict[str, str] = {}
    for thing in (*(one for kind in kinds for one in kind.values()), *snapshot.forerunner, snapshot.observed):
        if isinstance(thing, leases.Quarantined):
            found[thing.ref] = thing.why
        elif isinstance(thing, leases.Newer):
            found[thing.ref] = f"a newer klaud wrote it (version {thing.version})"
    return dict(sorted(found.items()))


def only_parked_on(snapshot: leases.Snapshot, run_id: int) -> leases.Snapshot:
    """Return the part of a snapshot that belongs to sessions that are parked on one run."""
    from klaud.recovery import decide_cases  # noqa: PLC0415 - only this narrow verb needs it

    keys: set[str] = set()
    candidates: set[str] = set()
    for ref, ledger in snapshot.ledgers.items():
        if isinstance(ledger, leases.Ledger):
            parked = decide_cases.parked(ledger)
            if parked is not None and run_id in parked.on:
                keys.add(ref.rpartition("/")[2])
    for claim in snapshot.claims.values():
        record = claim.record if isinstance(claim, leases.Held) else None
        if isinstance(record, leases.Claim) and record.parked is not None and run_id in record.parked.on:
            keys.add(f"{record.wave}-{record.candidate}")
    candidates = {key[-33:] for key in keys}

    def mine(claim: leases.Held | leases.Quarantined | leases.Newer) -> bool:
        record = claim.record if isinstance(claim, leases.Held) else None
        return isinstance(record, leases.Claim) and f"{record.wave}-{record.candidate}" in keys

    return msgspec.structs.replace(
        snapshot,
        claims={name: c for name, c in snapshot.claims.items() if mine(c)},
        ledgers={ref: x for ref, x in snapshot.ledgers.items() if ref[-33:] in candidates},
        leases={ref: x for ref, x in snapshot.leases.items() if ref.rpartition("/")[2] in keys},
        branches={name: oid for name, oid in snapshot.branches.items() if name[-33:] in candidates},
        forerunner=(),
        foreign=(),
    )


def after(hand: Hand) -> decide_leaks.After:
    """Return what of a session is still there after acting."""
    case, done = hand.case, set(hand.done)

    def stands(ref: str) -> bool:
        return f"deleted {ref}" not in done and f"{ref} was gone already" not in done

    lease = hand.verdict.row == "lease"
    claims = [case.claim.ref] if case.claim else []
    claims += [record.ref for record in case.forerunner]
    held = [a.ref for a in hand.actions(model.DeleteRef)] if lease else []
    drafts = [d.pull for d in case.pulls if d.pull.open and d.pull.draft]
    return decide_leaks.After(
        verdict=hand.verdict,
        claims=0 if lease or hand.settled else sum(map(stands, claims)),
        leases=sum(map(stands, held)),
        branches=0 if lease or hand.settled or hand.kept or case.branch is None else int(stands(case.branch_ref)),
        drafts=0 if lease or hand.settled or hand.closed or hand.kept else len(drafts),
    )


def entry(hand: Hand) -> model.Entry:
    """Return one session's part of the report."""
    case = hand.case
    actions = hand.verdict.actions
    return model.Entry(
        session=case.key,
        candidate=case.candidate,
        family=case.family,
        row=hand.verdict.row,
        state=hand.verdict.state,
        decision=tuple(msgspec.to_builtins(a) for a in actions),
        evidence=tuple(dict.fromkeys(e for a in actions for e in a.evidence)),
        done=tuple(hand.done),
        left=tuple(hand.left),
        blocks=hand.verdict.blocks,
        number=case.pulls[-1].pull.number if case.pulls else None,
    )
