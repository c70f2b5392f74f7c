"""Settle a session: read the facts, record the outcome, clean up. It can be repeated after a crash at any point.

Order: the facts are read, the outcome is computed (``decide_outcome``) and appended to the ledger with the list of what is
still to be done; only then is anything done, one effect at a time, each preceded by its intent and followed by what became
of it, each guarded again at the act. Whoever comes later (a second ``finish``, a sweep's rows 7, 8 and 10) goes on with the
recorded list. The caller must hold the claim (``Book``): a lost claim stops everything.

Where GitHub offers no compare (closing, labels), the draft is read again after the act, and an act that a person has
overtaken is undone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import functools
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from klaud import errors, names
from klaud.github import gateway as ports
from klaud.github import model as hub
from klaud.leases import model as leases
from klaud.leases import store as stores
from klaud.session import (
    decide,
    decide_outcome,
    evidence,
    journal,
    model,
    render,
    rules_coverage,
    rules_ledger,
    rules_touch,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from klaud import clock as clocks
    from klaud.baselines import schema
    from klaud.session import ledger as ledgers

ATTEMPTS = 20
"""Attempts that a family remembers."""
CANCEL_LOOKS = 20
"""Looks at a run that was cancelled, one ``poll_seconds`` apart, before it is cancelled by force, and again after."""


@dataclasses.dataclass(frozen=True, slots=True)
class World:
    """What settling needs beside the book. ``plan``: the benchmark's identity.

    ``frozen`` loads the frozen baseline whose digest it is handed (the ledger's). ``final_is_proof``: the final run is a
    validation that says all by its end, and there is no baseline to cover.
    """

    gateway: ports.Gateway
    refs: ports.RefStore
    store: stores.LeaseStore
    names: names.RefNames
    repository: str
    host: str
    clock: clocks.Clock
    policy: model.Policy
    workflows: model.Workflows
    who: rules_touch.Who
    plan: schema.Plan | None
    frozen: Callable[[str], rules_coverage.Frozen | rules_coverage.Unreadable]
    log: Callable[[str], None]
    by: Literal["finish", "recovery"] = "finish"
    journal: journal.Journal = journal.SILENT
    final_is_proof: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Settled:
    """The outcome stands and its clean-up is done. ``left``: what could not be done, in words."""

    outcome: leases.Outcome
    left: tuple[str, ...] = ()


Answer: TypeAlias = Settled | decide_outcome.NotYet


def settle(
    world: World, book: ledgers.Book, *, hint: tuple[leases.OutcomeClass, str] | None = None, isolation: str = ""
) -> Answer:
    """Settle the session of ``book``. OwnershipLostError when the claim or the ledger is another's meanwhile."""
    view = book.view
    started = view.started
    if started is None:
        message = f"ledger {book.ledger.ref} does not begin with a session"
        raise errors.BugError(message)
    closer = _Closer(world, book, started)
    if view.outcome is None:
        facts = observe(world, view, started)
        judged = decide_outcome.judge(facts, view, world.workflows, hint)
        if isinstance(judged, decide_outcome.NotYet):
            return judged
        book.append(_outcome(world, view, facts, judged, isolation))
        closer.evidence = facts.evidence
    return closer.run()


def observe(world: World, view: rules_ledger.View, started: leases.SessionStarted) -> decide_outcome.Facts:
    """Read what the outcome rests on. ReadFailedError when a part of it cannot be had."""
    branch = names.branch(started.candidate)
    ref = world.names.branch(started.candidate)
    head = world.refs.list([ref]).get(ref)
    detail = _detail(world, view, branch)
    smoke = _newest_smoke(world, view)
    if detail is None:
        return decide_outcome.Facts(pull=None, branch=head, smoke=smoke)
    pull = detail.pull
    listing = world.gateway.runs(head_sha=pull.head_oid, workflow=world.workflows.final, event="pull_request")
    finals = tuple(run for run in listing.items if run.head_branch == branch)
    touched = rules_touch.touched(detail, view.oids, finals, world.who)
    found: rules_coverage.Evidence | None = None
    final = decide_outcome.newest_final(finals)
    if final is not None and final.status == "completed" and final.conclusion == "success":
        found = proof(world, final, started.bundle)
    return decide_outcome.Facts(
        pull=pull,
        finals=finals,
        finals_complete=listing.complete,
        touched=touched,
        evidence=found,
        branch=head,
        smoke=smoke,
    )


def proof(world: World, final: hub.Run, bundle: str) -> rules_coverage.Evidence:
    """Return what a successful final run proves; ``bundle``: the digest of the frozen baseline, as the ledger has it."""
    if world.final_is_proof:
        return rules_coverage.Verified(0)
    if world.plan is None:
        return rules_coverage.Unreadable("bundle", "this benchmark has no identity to compare by")
    return evidence.judge(
        world.gateway, final, world.frozen(bundle),
        plan=world.plan, repository=world.repository, host=world.host,
        artifact=world.workflows.results_artifact, limit=world.policy.results_bytes,
        evaluations=world.workflows.evaluations,
    )  # fmt: skip


def _newest_smoke(world: World, view: rules_ledger.View) -> hub.Run | None:
    """Return the newest smoke run; only its conclusion is read, to name a reason, so that a run that is gone is no error."""
    if not view.smoke_runs:
        return None
    with contextlib.suppress(errors.ReadFailedError):
        run = world.gateway.run(view.smoke_runs[-1])
        return run if isinstance(run, hub.Run) else None
    return None


def _detail(world: World, view: rules_ledger.View, branch: str) -> hub.PullDetail | None:
    """Return the session's pull request: the one on record, else an open one of exactly its branch (oddity L17)."""
    if view.number is not None:
        found = world.gateway.pull_details([view.number])[view.number]
        if isinstance(found, hub.PullDetail):
            return found
        message = f"pull request #{view.number} is on record and the host does not show it"
        raise errors.ReadFailedError(message)
    listing = world.gateway.pulls_of_heads([branch])[branch]
    if not listing.complete:
        message = f"the pull requests of {branch} could not be read in full: {listing.why_not}"
        raise errors.ReadFailedError(message)
    mine = [detail for detail in listing.items if detail.pull.head_ref == branch and detail.pull.open]
    return mine[0] if mine else None


def _outcome(
    world: World,
    view: rules_ledger.View,
    facts: decide_outcome.Facts,
    judged: decide_outcome.Judged,
    isolation: str,
) -> leases.Outcome:
    return leases.Outcome(
        at=world.clock.now(),
        outcome=judged.outcome,
        phase=judged.phase,
        code=judged.code,
        number=facts.pull.number if facts.pull else view.number,
        head=facts.pull.head_oid if facts.pull else (facts.branch or view.head),
        final_run=judged.final_run,
        smoke_runs=view.smoke_runs,
        repairs=view.spent.repairs,
        turns=view.turns,
        cost_microdollars=view.cost_microdollars,
        isolation=isolation or view.isolation,
        by=world.by,
        pending=judged.pending,
    )


class _Closer:
    """Carries out the recorded clean-up."""

    def __init__(self, world: World, book: ledgers.Book, started: leases.SessionStarted) -> None:
        self.world = world
        self.book = book
        self.started = started
        self.left: list[str] = []
        self.evidence: rules_coverage.Evidence | None = None
        self.by: Literal["session", "recovery"] = "recovery" if world.by == "recovery" else "session"

    def run(self) -> Settled:
        outcome = self.book.view.outcome
        assert outcome is not None  # noqa: S101 - settle has just appended it, or it was there
        for effect in outcome.pending:
            if effect in rules_ledger.done_effects(self.book.ledger.records):
                continue
            if self.book.claim_ours() is False:
                self.book.must_be_ours()
            stop = self._do(effect, outcome)
            if stop:
                self.left.append(stop)
                break
            if effect not in rules_ledger.done_effects(self.book.ledger.records):
                self._note(effect)  # there was nothing to do: the next sweep must not look for it again
        return Settled(outcome, tuple(self.left))

    def _do(self, effect: leases.Effect, outcome: leases.Outcome) -> str:
        """Carry out one effect; return why the rest must wait, or an empty text."""
        self.world.log(f"finish: {effect}")
        self.world.journal.mark("settle", effect)
        match effect:
            case "comment" | "publish-report":
                return self._comment(effect, outcome)
            case "cancel-run":
                return self._cancel_runs(outcome)
            case "remove-label":
                return self._remove_labels(outcome)
            case "close-draft":
                return self._close(outcome)
            case "mark-ready":
                return self._mark_ready(outcome)
            case "archive-branch":
                return self._drop_branch(outcome)
            case "delete-branch":
                return ""
            case "release-claim":
                return self._release(outcome)
            case _:
                return f"{effect} is not part of a clean-up"

    # -- each effect

    def _acting(self, effect: leases.Effect, act: Callable[[], object], **fields: object) -> None:
        """Intent, act, record; a clear no is recorded and raised."""
        intent = self.book.intend(effect, by=self.by, **fields)
        try:
            act()
        except (errors.RefusedWriteError, errors.ForbiddenError):
            self.book.effected(intent, "refused")
            raise
        except errors.UnclearWriteError:
            self.book.effected(intent, "unclear")
            raise
        self.book.effected(intent, "done")

    def _pull(self, outcome: leases.Outcome) -> hub.Pull | None:
        if outcome.number is None:
            return None
        pull = self.world.gateway.pull(outcome.number)
        return pull if isinstance(pull, hub.Pull) else None

    def _overtaken(self, pull: hub.Pull, outcome: leases.Outcome) -> str:
        """Return how a person has made the draft theirs meanwhile, or an empty text.

        The whole touch rule is asked again, on a fresh read: comparing times would trust this machine's clock.
        """
        if names.HANDOFF_LABEL in pull.labels:
            return "a maintainer has taken the draft over"
        if pull.head_oid != outcome.head:
            return "somebody has pushed to the branch"
        if not pull.draft and outcome.outcome != "validated":
            return "somebody has made it ready for review"
        detail = self._detail(pull.number)
        return rules_touch.touched(detail, self.book.view.oids, (), self.world.who)

    def _detail(self, number: int) -> hub.PullDetail:
        found = self.world.gateway.pull_details([number])[number]
        if isinstance(found, hub.PullDetail):
            return found
        message = f"pull request #{number} is not shown by the host any more"
        raise errors.ReadFailedError(message)

    def _hand_over(self, why: str, outcome: leases.Outcome) -> str:
        """Give way to a person who came in between: a new outcome replaces the old one, only the claim is released."""
        self.world.log(f"finish: gives way, {why}")
        given = msgspec.structs.replace(
            outcome, at=self.world.clock.now(), outcome="handoff", code="overtaken", pending=decide_outcome.LEAVE
        )
        self.book.append(given)
        settled = self.run()
        return "; ".join(settled.left) or "given over"

    def _comment(self, effect: leases.Effect, outcome: leases.Outcome) -> str:
        pull = self._pull(outcome)
        if pull is None or not pull.open:
            return ""
        why = self._overtaken(pull, outcome)
        if why:
            return self._hand_over(why, outcome)
        unclear = [
            record for record in self.book.ledger.records
            if isinstance(record, leases.Effected) and record.effect == effect and record.result == "unclear"
        ]  # fmt: skip
        open_intents = [intent for intent in self.book.view.open_intents if intent.effect == effect]
        if (unclear or open_intents) and self._said_since(pull.number, outcome.at):
            intent = self.book.intend(effect, by=self.by, number=pull.number)
            self.book.effected(intent, "found")
            return ""
        body = self._report(outcome)
        self._acting(effect, lambda: self.world.gateway.comment(pull.number, body), number=pull.number)
        return ""

    def _said_since(self, number: int, at: datetime.datetime) -> bool:
        listing = self.world.gateway.timeline(number)
        return any(
            event.kind == "commented" and event.at >= at and event.actor is not None
            and event.actor.id == self.world.who.bot
            for event in listing.items
        )  # fmt: skip

    def _report(self, outcome: leases.Outcome) -> str:
        found = self.evidence
        covered = 0
        points: int | None = None if self.world.final_is_proof else 0
        lines: list[str] = []
        if isinstance(found, rules_coverage.Verified):
            covered = found.points
            points = None if self.world.final_is_proof else covered
            lines = [
                f"* {name}: {ratio:.4g} of the old value (median over the points)"
                for name, ratio in found.deltas.items()
            ]
        elif isinstance(found, rules_coverage.Wrong):
            covered, points = found.covered, found.points
            lines = [f"* missing: {text}" for text in found.named]
        if outcome.outcome != "validated":
            archive = (
                self.world.names.archive("branch", self.started.candidate, outcome.head) if outcome.head else "none"
            )
            lines += [
                f"* Reason: {outcome.code or outcome.outcome} (phase {outcome.phase})",
                f"* The work stays in {archive}; to bring it back: git fetch origin {archive}",
                "* To keep such a draft next time, add the label klaud-handoff while it is open.",
            ]
        return render.coverage_report(
            outcome=outcome.outcome, covered=covered, points=points, run_id=outcome.final_run, head=outcome.head,
            lines=lines, bundle=self.started.bundle,
        )  # fmt: skip

    def _cancel_runs(self, outcome: leases.Outcome) -> str:
        """Cancel the session's own runs that still go, and see them end."""
        own = {r.run_id for r in self.book.ledger.records if isinstance(r, leases.Effected) and r.run_id is not None}
        stuck = []
        for run_id in sorted(run for run in own if run is not None):
            run = self.world.gateway.run(run_id)
            if isinstance(run, hub.Missing) or run.status == "completed":
                continue
            if outcome.outcome == "handoff" and run_id not in outcome.smoke_runs:
                continue  # a final run of a draft that is a person's now is theirs
            if self.world.who.person(run.triggering_actor):
                continue
            self._acting("cancel-run", functools.partial(self.world.gateway.cancel_run, run_id), run_id=run_id)
            if not self._ended(run_id):
                stuck.append(str(run_id))
        if stuck:
            return f"runs that do not end: {', '.join(stuck)}"
        self._note("cancel-run")
        return ""

    def _ended(self, run_id: int) -> bool:
        for force in (False, True):
            if force:
                with contextlib.suppress(errors.RefusedWriteError):
                    self.world.gateway.cancel_run(run_id, force=True)
            for _ in range(CANCEL_LOOKS):
                run = self.world.gateway.run(run_id)
                if isinstance(run, hub.Missing) or run.status == "completed":
                    return True
                self.world.clock.sleep(self.world.policy.poll_seconds)
        return False

    def _note(self, effect: leases.Effect) -> None:
        """Record that nothing was left to do of an effect."""
        intent = self.book.intend(effect, by=self.by)
        self.book.effected(intent, "done")

    def _remove_labels(self, outcome: leases.Outcome) -> str:
        pull = self._pull(outcome)
        if pull is None or not pull.open:
            return ""
        flows = self.world.workflows
        for label in [label for label in pull.labels if label in {flows.final_label, *flows.other_final_labels}]:
            self._acting(
                "remove-label", functools.partial(self.world.gateway.remove_label, pull.number, label), number=pull.number,
                label=label,
            )  # fmt: skip
        return ""

    def _close(self, outcome: leases.Outcome) -> str:
        pull = self._pull(outcome)
        if pull is None or not pull.open:
            return ""
        why = self._overtaken(pull, outcome)
        if why:
            return self._hand_over(why, outcome)
        self._acting("close-draft", lambda: self.world.gateway.close_pull(pull.number), number=pull.number)
        after = self._pull(outcome)
        why = "" if after is None else self._overtaken(after, outcome)
        if why and after is not None:
            if not self._closed_by_a_person(after.number):
                self.world.gateway.reopen_pull(after.number)
            return self._hand_over(why, outcome)
        return ""

    def _closed_by_a_person(self, number: int) -> bool:
        """Tell whether the newest closing was a person's: then it stays closed."""
        closings = [event for event in self._detail(number).timeline.items if event.kind in {"closed", "reopened"}]
        return bool(closings) and closings[-1].kind == "closed" and self.world.who.person(closings[-1].actor)

    def _mark_ready(self, outcome: leases.Outcome) -> str:
        pull = self._pull(outcome)
        if pull is None or not pull.open:
            return self._hand_over("the draft is not open any more", outcome)
        why = self._overtaken(pull, outcome)
        if why:
            return self._hand_over(why, outcome)
        if pull.draft:
            self._acting("mark-ready", lambda: self.world.gateway.mark_ready(pull.node_id), number=pull.number)
        else:
            self._note("mark-ready")
        return ""

    def _drop_branch(self, outcome: leases.Outcome) -> str:
        """Archive and delete the branch in one atomic push, only where its head is klaud's own."""
        ref = self.world.names.branch(self.started.candidate)
        head = self.world.refs.list([ref]).get(ref)
        view = self.book.view
        if head is None:
            return ""
        if head not in view.oids:
            return self._hand_over("the branch has commits that are not klaud's", outcome)
        archive = self.world.names.archive("branch", self.started.candidate, head)
        archived = self.world.refs.list([archive]).get(archive)
        keep = self.book.intend("archive-branch", by=self.by, ref=archive, oids=(head,))
        drop = self.book.intend("delete-branch", by=self.by, ref=ref, oids=(head,))
        updates = [ports.RefUpdate(archive, archived, head), ports.RefUpdate(ref, head, None)]
        results = self.world.refs.apply(updates, atomic=True)
        if all(isinstance(result, ports.RefUpdated) for result in results):
            self.book.effected(keep, "done", oid=head)
            self.book.effected(drop, "done", oid=head)
            return ""
        now = self.world.refs.list([ref, archive])
        if now.get(archive) == head and ref not in now:
            self.book.effected(keep, "found", oid=head)
            self.book.effected(drop, "found", oid=head)
            return ""
        self.book.effected(drop, "refused")
        if now.get(ref) not in {None, head}:
            return self._hand_over("somebody has pushed to the branch", outcome)
        return "the branch could not be archived and deleted"

    def _release(self, outcome: leases.Outcome) -> str:
        self._remember(outcome)
        self._acting("release-claim", lambda: None, ref=self.book.claim.ref)
        answer = self.world.store.release(self.book.claim)
        if isinstance(answer, stores.Lost):
            message = f"claim {self.book.claim.ref} is another's now"
            raise errors.OwnershipLostError(message)
        return ""

    def _remember(self, outcome: leases.Outcome) -> None:
        """Add the attempt to the family's memory; who else writes it meanwhile wins, and this one reads again."""
        blame = decide.blame_of(outcome.outcome, outcome.code)
        now = self.world.clock.now()
        until = now + datetime.timedelta(hours=self.world.policy.cool_down_hours) if blame == "candidate" else None
        attempt = leases.Attempt(
            candidate=self.started.candidate, outcome=outcome.outcome, blame=blame, ended_at=now, until=until
        )
        ref = self.world.names.family(names.family_of(self.started.candidate))
        for _ in range(5):
            held = self.world.store.look(ref)
            if isinstance(held, leases.Quarantined | leases.Newer):
                self.left.append(f"the family's memory is not to be written: {type(held).__name__.lower()}")
                return
            old = (
                held.record if isinstance(held, leases.Held) and isinstance(held.record, leases.FamilyMemory) else None
            )
            if old is not None and any(_same_attempt(one, attempt, self.started) for one in old.attempts):
                return
            memory = _remembered(old, attempt, self.started.family, now)
            answer = self.world.store.put(ref, held.oid if isinstance(held, leases.Held) else None, memory)
            if isinstance(answer, stores.Won):
                return
        self.left.append("the family's memory could not be written")


def _same_attempt(one: leases.Attempt, other: leases.Attempt, started: leases.SessionStarted) -> bool:
    return one.candidate == other.candidate and one.outcome == other.outcome and one.ended_at >= started.at


def _remembered(
    old: leases.FamilyMemory | None, attempt: leases.Attempt, family: str, now: datetime.datetime
) -> leases.FamilyMemory:
    attempts: Sequence[leases.Attempt] = (*(old.attempts if old else ()), attempt)
    if old is None:
        return leases.FamilyMemory(at=now, family=family, attempts=tuple(attempts), last_tried_at=now)
    return msgspec.structs.replace(old, at=now, attempts=tuple(attempts)[-ATTEMPTS:], last_tried_at=now)
