"""One candidate run's session: take the claim, work, and park or settle.

The last write is always one that recovery can read. ``run_session`` never waits for a final run: it parks. Every way out
leaves a ledger that says how far it came; whatever this process does not get to is recovery's.
"""

from __future__ import annotations

import dataclasses
import secrets
import shutil
import time
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from klaud import errors, names
from klaud.leases import model as leases
from klaud.leases import store as stores
from klaud.session import (
    control,
    control_http,
    decide,
    decide_outcome,
    finish,
    frameworks,
    heartbeat,
    model,
    prompt,
    rules_control,
    rules_coverage,
    rules_ledger,
    sandbox,
    tools,
    transcript,
    work,
)
from klaud.session import ledger as ledgers

if TYPE_CHECKING:
    import datetime
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from klaud.github import gateway as ports


CANCELLED_SECONDS = 2.0
"""For sending what waits where the job is being cancelled: the runner kills it ten seconds after it said so."""


@dataclasses.dataclass(frozen=True, slots=True)
class Host:
    """The live objects of a session, and who it is. ``open_refs``: a ref store that also pushes objects from a folder."""

    settling: finish.World
    holder: leases.Holder
    identity: tuple[str, str]
    git_url: str
    token: str = dataclasses.field(repr=False)
    open_refs: Callable[[Path, frozenset[str]], ports.RefStore]
    open_store: Callable[[ports.RefStore], stores.LeaseStore]
    target: tools.Target
    paused: Callable[[], bool]
    cancelled: Callable[[], bool]
    environ: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)
    spill: Path | None = None
    """The file for what an external control plane does not take."""
    transcripts: transcript.Keeper | None = None
    """Keeps the agent's own memory for a continuation; None: an agent always starts cold."""


@dataclasses.dataclass(frozen=True, slots=True)
class NotOurs:
    """The claim is another's (or gone): nothing was written. ``why`` names who has it."""

    why: str


@dataclasses.dataclass(frozen=True, slots=True)
class Parked:
    """The session waits on runs; its claim says so."""

    on: tuple[int, ...]
    why: leases.ParkedWhy
    turn: model.TurnEnd


@dataclasses.dataclass(frozen=True, slots=True)
class Ended:
    """The session was settled, or could not be settled yet."""

    answer: finish.Answer
    turn: model.TurnEnd | None


@dataclasses.dataclass(frozen=True, slots=True)
class Stopped:
    """The session stopped without settling (its claim was lost, or its job was cancelled); recovery has the rest."""

    why: str
    turn: model.TurnEnd | None


SessionEnd: TypeAlias = NotOurs | Parked | Ended | Stopped


@dataclasses.dataclass(frozen=True, slots=True)
class Craft:
    """How a candidate of one kind is worked on: where, and what one turn is. Everything around it is the same for all."""

    workplace: Callable[..., work.Work] = work.Work
    turn: Callable[[frameworks.Ask], model.TurnEnd] = frameworks.run_turn


UPGRADE = Craft()
"""An agent changes files of the family in a work tree of its own."""


def take_book(host: Host, brief: model.Brief, claim: str) -> ledgers.Book | NotOurs:
    """Swap the claim to this run and open the ledger; NotOurs when it names another holder (a neutral end).

    ``claim``: the oid of the claim that this run was started for; where the session has a ledger, this run continues it.
    """
    world = host.settling
    family = names.short_id(brief.family)
    if names.family_of(brief.candidate) != family:
        message = f"candidate {brief.candidate} is not one of family {brief.family}"
        raise errors.InputError(message)
    snapshot = world.store.snapshot()
    ref = world.names.claim(family)
    held = snapshot.claims.get(ref)
    if not isinstance(held, leases.Held) or not isinstance(held.record, leases.Claim):
        return NotOurs("there is no claim for this candidate" if held is None else "the claim cannot be read")
    record = held.record
    if (record.wave, record.candidate) != (brief.wave, brief.candidate):
        return NotOurs(f"the family is with candidate {record.candidate} of wave {record.wave}")
    if held.oid != claim:
        has = f"run {record.holder.run_id} has this candidate" if record.holder else "this candidate is parked"
        return NotOurs(f"{has}, and this run was started for another state of its claim")
    mine = msgspec.structs.replace(record, at=world.clock.now(), holder=host.holder, parked=None)
    won = world.store.swap_claim(held, mine)
    if isinstance(won, stores.Lost):
        return NotOurs("another run took this candidate at the same moment")
    ledger_ref = world.names.session(brief.wave, brief.candidate)
    known = snapshot.ledgers.get(ledger_ref)
    ledger = world.store.start_ledger(ledger_ref, _started(host, brief)) if known is None else known
    if not isinstance(ledger, leases.Ledger):
        return NotOurs("the session's ledger is not to be had as it should stand; recovery looks at it")
    book = ledgers.Book(
        store=world.store, refs=world.refs, clock=world.clock,
        ledger=ledger, claim=won.held,
    )  # fmt: skip
    if known is not None:  # parked, or left by a run that died while it settled: this run goes on with it
        book.append(leases.Continued(at=world.clock.now(), holder=host.holder, wave=brief.wave))
    return book


def _started(host: Host, brief: model.Brief) -> leases.SessionStarted:
    return leases.SessionStarted(
        at=host.settling.clock.now(), wave=brief.wave, candidate=brief.candidate, family=brief.family, base=brief.base,
        holder=host.holder, bundle=brief.bundle, framework=host.settling.policy.framework,
        subject=names.short_id(brief.subject),
    )  # fmt: skip


def run_session(host: Host, brief: model.Brief, *, folder: Path, claim: str = "", craft: Craft = UPGRADE) -> SessionEnd:
    """Run one session. ``folder``: an empty private folder, removed afterwards; ``claim``: see ``take_book``."""
    began = time.monotonic()
    book = take_book(host, brief, claim or brief.claim)
    host.settling.journal.mark("claim", "not-ours" if isinstance(book, NotOurs) else "taken")
    if isinstance(book, NotOurs):
        return book
    try:
        return _Session(host, brief, book, folder, began, craft).run()
    except errors.OwnershipLostError as error:
        return Stopped(str(error), None)


class _Session:
    def __init__(  # noqa: PLR0917 - what one session is made of
        self, host: Host, brief: model.Brief, book: ledgers.Book, folder: Path, began: float, craft: Craft
    ) -> None:
        self.craft = craft
        self.host = host
        self.world = host.settling
        self.policy = host.settling.policy
        self.brief = brief
        self.book = book
        self.folder = folder
        self.began = began
        self.interruption: model.Fault = ""
        self.desk: tools.Desk | None = None
        self.trouble = rules_control.Trouble()
        self.resume = ""

    def run(self) -> SessionEnd:
        missing = frameworks.missing_credential(self.policy.framework, self.host.environ)
        if missing:
            self.world.log(f"authentication: {missing}")
            return self._settle(None, ("agent-never-ran", "authentication"), "none")
        found = sandbox.find(self.policy.isolation)
        if isinstance(found, sandbox.Lacking):
            self.world.log("isolation is required and cannot be had: " + "; ".join(found.missing))
            return self._settle(None, ("agent-never-ran", "isolation"), "none")
        self.world.journal.mark("isolation", found.words)
        place = self.craft.workplace(
            self.folder, url=self.host.git_url, token=self.host.token, sandbox=found, identity=self.host.identity,
            clock=self.world.clock, policy=self.policy,
        )  # fmt: skip
        view, keeper = self.book.view, self.host.transcripts
        session = transcript.dashed(view.agent_session) if view.continued and keeper is not None else ""
        raw = keeper.bring(self.book.ledger, self.brief.candidate, session) if session and keeper is not None else None
        if raw is not None:
            place.memory[transcript.place_in_home(place.tree, session)] = raw
            self.resume = session
        try:
            try:
                place.prepare(self.brief.base, self.book.view.head)
            except errors.ReadFailedError as error:
                self.world.log(str(error))
                return self._settle(None, ("unexpected-error", "base-unavailable"), found.words)
            self.world.journal.mark("work-tree", "ready")
            refs = self.host.open_refs(place.store, place.shallow)
            self.book.use(self.host.open_store(refs), refs)
            return self._work(place, found)
        finally:
            place.close()
            shutil.rmtree(self.folder, ignore_errors=True)

    def _work(self, place: work.Work, found: sandbox.Sandbox) -> SessionEnd:
        view = self.book.view
        desk = self.desk = tools.Desk(
            gateway=self.world.gateway, book=self.book, work=place, brief=self.brief, policy=self.policy,
            target=self.host.target, clock=self.world.clock, branch_ref=self.world.names.branch(self.brief.candidate),
            agent=self.policy.framework, paused=self.host.paused, log=self.world.log,
            journal=self.world.journal,
        )  # fmt: skip
        self.book.append(leases.TurnStarted(at=self.world.clock.now(), index=view.index, isolation=found.words))
        plane = self._plane(view)
        self.world.journal.tell(plane.hear)
        beats = heartbeat.Heartbeat(
            plane, self.policy, self.world.clock, interrupted=self._interrupted, log=self.world.log
        )
        began = self.world.clock.now()
        beats.start()
        self.world.journal.mark("turn", f"started {view.index}")
        try:
            turn = transcript.warm_or_cold(
                self.craft.turn,
                frameworks.Ask(
                    sandbox=found,
                    work=place,
                    prompt=prompt.task(self.brief, view, points=len(self.host.target.points)),
                    tools=desk,
                    policy=self.policy,
                    watch=self._watch,
                    log=self.world.log,
                    journal=self.world.journal,
                    resume=self.resume,
                    spent_tokens=view.tokens,
                    spent_microdollars=view.cost_microdollars,
                    finals=view.finals,
                    environ=self.host.environ,
                ),
            )
            self.world.journal.mark("turn", f"{turn.status} {turn.fault}".strip())
            self._tell(plane, turn, view.index, began)
        finally:
            self.world.journal.tell(None)
            beats.release()  # the last write to the control plane
        self.trouble = msgspec.structs.replace(plane.trouble, unheard=beats.unheard)
        if self.host.transcripts is not None and turn.status == "completed":
            self.host.transcripts.keep(place, turn.agent_session, self.brief.candidate)
        self.world.log(f"turn: {turn.status} {turn.fault} after {turn.seconds:.1f} s, {turn.left} processes left")
        return self._after(turn, desk, view.index)

    def _plane(self, view: rules_ledger.View) -> control.Plane:
        """Return the control plane that the configuration names."""
        git = control.GitControl(self.world.gateway, self.book, self.host.paused)
        if not self.policy.control_url:
            return git
        holder = self.host.holder
        session = rules_control.session_id(self.brief.wave, self.brief.candidate)
        who = rules_control.Who(
            session_id=session, replica_id=f"{holder.run_id}-{holder.attempt}", turn_id=f"{session}-{view.turns}",
            trace_id=secrets.token_hex(16), span_id=secrets.token_hex(8), kind=self.policy.framework,
        )  # fmt: skip
        return control_http.HttpControl(
            self.policy.control_url, who, inner=git, token=self.host.environ.get(control_http.TOKEN_VARIABLE, ""),
            clock=self.world.clock, spill=self.host.spill, refreshed=self._turns_on_record,
        )  # fmt: skip

    def _turns_on_record(self) -> int:
        """Read the counter of completed turns from the host's newest row of the ledger; the own copy where that fails."""
        try:
            found = self.world.store.look(self.book.ledger.ref)
        except errors.RetryLaterError:
            found = None
        records = found.records if isinstance(found, leases.Ledger) else self.book.ledger.records
        return rules_ledger.read(records).index

    def _tell(self, plane: control.Plane, turn: model.TurnEnd, index: int, began: datetime.datetime) -> None:
        """Append a completed turn to the control plane and send what waits; bounded, more tightly where the job ends."""
        if turn.status == "completed":
            now = self.world.clock.now()
            plane.turn(rules_control.Turn(index=index, start=began, end=now, agent_session=_hex(turn.agent_session)))
        plane.drain(CANCELLED_SECONDS if self.host.cancelled() else control_http.DRAIN_SECONDS)

    def _interrupted(self, why: heartbeat.Why) -> None:
        if why:
            if self.interruption != why:
                self.world.journal.mark("beat", why)
            self.interruption = why
            if self.desk is not None:
                self.desk.stopping = True

    def _watch(self) -> model.Fault:
        """Say why the turn must end now."""
        if self.host.cancelled():
            self._interrupted("cancelled")
        if time.monotonic() - self.began >= self.policy.job_seconds and not self.interruption:
            self.interruption = "job-limit"
            if self.desk is not None:
                self.desk.stopping = True
        if self.interruption == "paused" and self.desk is not None and self.desk.waiting is not None:
            return ""
        if not self.interruption and self.desk is not None and self.desk.ended in {"claim-lost", "handoff"}:
            return "claim-lost" if self.desk.ended == "claim-lost" else "handoff"
        return self.interruption

    def _after(self, turn: model.TurnEnd, desk: tools.Desk, index: int) -> SessionEnd:
        waiting = desk.waiting
        if waiting is None and desk.open_runs:
            finals = tuple(run for run, kind in desk.open_runs.items() if kind == "final-run")
            waiting = tools.Waiting(finals or tuple(desk.open_runs), "final-run" if finals else "smoke-run")
        following = decide.after_turn(
            turn, waits_on=waiting.on if waiting else (), final_started=bool(waiting and waiting.why == "final-run"),
            claim_ours=self.book.claim_ours(), asks_person=desk.ended == "needs-approval" and bool(desk.approval_label),
        )  # fmt: skip
        if following == "stop":
            return Stopped(turn.fault or "claim-lost", turn)
        self._record(turn, index)
        if following == "park":
            waiting = waiting or tools.Waiting((), "approval" if desk.ended == "needs-approval" else "job-limit")
            if turn.fault == "job-limit" and waiting.why != "final-run":
                waiting.why = "job-limit"
            return self._park(waiting, turn, desk.tried)
        if turn.fault == "cancelled":
            return Stopped("cancelled", turn)
        hint = decide.outcome_of_turn(turn)
        if not turn.fault and desk.claimed is not None:
            hint = ("failed", f"said-{desk.claimed.claim}")  # a claim is on record; it never makes another outcome
        if desk.ended == "workflow-rights":
            hint = ("failed", "workflow-rights")
        return self._settle(turn, hint, turn.isolation)

    def _record(self, turn: model.TurnEnd, index: int) -> None:
        now = self.world.clock.now()
        records: list[leases.LedgerRecord] = [
            leases.TurnEnded(
                at=now, index=index, status=turn.status, agent_session=_hex(turn.agent_session), steps=turn.usage.steps,
                input_tokens=turn.usage.input_tokens, output_tokens=turn.usage.output_tokens,
                cost_microdollars=turn.usage.cost_microdollars, control_refused=self.trouble.refused,
                control_spilled=self.trouble.spilled_turns + self.trouble.spilled_records,
            )
        ]  # fmt: skip
        if turn.fault in {"claim-lost", "handoff", "paused", "cancelled", "unheard"}:
            records.append(leases.BeatLost(at=now, why=turn.fault))
        elif self.trouble.unheard:
            records.append(leases.BeatLost(at=now, why="unheard"))
        self.book.append(*records)

    def _park(self, waiting: tools.Waiting, turn: model.TurnEnd, tried: tuple[leases.Attempted, ...]) -> SessionEnd:
        if not park(self.host, self.book, waiting, tried):
            return Stopped("the claim was lost while parking", turn)
        return Parked(waiting.on, waiting.why, turn)

    def _settle(self, turn: model.TurnEnd | None, hint: tuple[leases.OutcomeClass, str], isolation: str) -> SessionEnd:
        answer = finish.settle(self.world, self.book, hint=hint, isolation=isolation)
        if isinstance(answer, decide_outcome.NotYet) and turn is not None:
            return self._park(tools.Waiting(answer.runs, "final-run"), turn, ())
        return Ended(answer, turn)


def park(host: Host, book: ledgers.Book, waiting: tools.Waiting, tried: tuple[leases.Attempted, ...]) -> bool:
    """Let the session wait: its ledger says so first, then its claim. False when the claim was lost in between."""
    now = host.settling.clock.now()
    host.settling.journal.mark("park", waiting.why)
    book.append(leases.Parked(at=now, on=waiting.on, why=waiting.why, head=book.view.head, tried=tried))
    record = book.claim.record
    if not isinstance(record, leases.Claim):
        message = "the book's claim is no claim"
        raise errors.BugError(message)
    parked = leases.ParkedHolder(on=waiting.on, by=host.holder, why=waiting.why)
    renewed = msgspec.structs.replace(record, at=now, holder=None, parked=parked)
    return isinstance(host.settling.store.swap_claim(book.claim, renewed), stores.Won)


def _hex(session: str) -> str:
    """Return an agent's session id as plain hex, or nothing where it is another kind of text (records hold no free text)."""
    packed = session.replace("-", "").lower()
    return packed if 1 <= len(packed) <= 64 and all(char in "0123456789abcdef" for char in packed) else ""


def finish_session(
    host: Host, wave: str, candidate: str, *, hint: tuple[leases.OutcomeClass, str] | None = None
) -> finish.Answer | NotOurs:
    """Settle a parked session (``klaud finish``): take its claim over, then settle. NotOurs writes nothing."""
    world = host.settling
    snapshot = world.store.snapshot()
    ledger = snapshot.ledgers.get(world.names.session(wave, candidate))
    if not isinstance(ledger, leases.Ledger):
        return NotOurs("there is no ledger of this session" if ledger is None else "its ledger cannot be read")
    family = names.family_of(candidate)
    held = snapshot.claims.get(world.names.claim(family))
    over = rules_ledger.read(ledger.records).outcome
    mine_no_more = not isinstance(held, leases.Held) or not isinstance(held.record, leases.Claim)
    if over is not None and (held is None or (not mine_no_more and _other(held, wave, candidate))):
        return finish.Settled(
            over
        )  # by an earlier finish or a sweep: its claim was released, nothing is left to do here
    if not isinstance(held, leases.Held) or not isinstance(held.record, leases.Claim):
        return NotOurs("the family is not claimed" if held is None else "its claim cannot be read")
    record = held.record
    if _other(held, wave, candidate):
        return NotOurs(f"the family is with candidate {record.candidate} of wave {record.wave}")
    same_run = record.holder is not None and record.holder.run_id == host.holder.run_id
    if record.parked is None and not same_run:
        return NotOurs(f"run {record.holder.run_id if record.holder else 0} has it in hand")
    book = ledgers.Book(
        store=world.store, refs=world.refs, clock=world.clock,
        ledger=ledger, claim=held,
    )  # fmt: skip
    if book.view.outcome is None:
        waits = _still_waits(host, book, record.parked)
        if waits is not None:
            return waits
    mine = msgspec.structs.replace(record, at=world.clock.now(), holder=host.holder, parked=None)
    won = world.store.swap_claim(held, mine)
    if isinstance(won, stores.Lost):
        return NotOurs("another run took it at the same moment")
    taken = ledgers.Book(
        store=world.store, refs=world.refs, clock=world.clock,
        ledger=ledger, claim=won.held,
    )  # fmt: skip
    answer = finish.settle(world, taken, hint=hint)
    if isinstance(answer, decide_outcome.NotYet) and record.parked is not None:
        world.store.swap_claim(taken.claim, msgspec.structs.replace(record, at=world.clock.now()))
    return answer


def _other(held: leases.Held | leases.Quarantined | leases.Newer | None, wave: str, candidate: str) -> bool:
    record = held.record if isinstance(held, leases.Held) else None
    return isinstance(record, leases.Claim) and (record.wave, record.candidate) != (wave, candidate)


def _still_waits(host: Host, book: ledgers.Book, parked: leases.ParkedHolder | None) -> decide_outcome.NotYet | None:
    """Look before the claim is touched: what still goes, cannot be read, or may be continued is left as it is."""
    world = host.settling
    started = book.view.started
    if started is None:
        return decide_outcome.NotYet("incomplete", f"ledger {book.ledger.ref} does not begin with a session")
    facts = finish.observe(world, book.view, started)
    judged = decide_outcome.judge(facts, book.view, world.workflows)
    if isinstance(judged, decide_outcome.NotYet) or parked is None:
        return judged if isinstance(judged, decide_outcome.NotYet) else None
    return decide_outcome.waits(judged, facts, parked, book.view, world.policy.budgets)


def no_baseline() -> rules_coverage.Unreadable:
    """Return the answer where no bundle is at hand."""
    return rules_coverage.Unreadable("bundle", "the frozen baseline's bundle is not at hand")
