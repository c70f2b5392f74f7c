"""What a session's ledger says: what was spent, what is its own, where it stands. Pure.

Everything is counted from intents, whatever became of them: an effect whose answer was lost may have happened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

import msgspec

from klaud.leases import model as leases
from klaud.session import model

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class View(msgspec.Struct, frozen=True, kw_only=True):
    """One ledger, read.

    ``oids``: every commit that klaud pushed or meant to push on the branch. ``head``: the newest one known to be pushed.
    ``number``: the draft. ``smoke_runs``: run ids of dispatched smoke runs. ``open_intents``: intents without an effect.
    ``index``: completed turns. ``agent_session``: the agent's own session id to resume, or empty.
    ``executable``: a push of this session reached files that run.
    """

    started: leases.SessionStarted | None = None
    next_seq: int = 0
    spent: model.Spent = model.Spent()
    oids: frozenset[str] = frozenset()
    head: str = ""
    number: int | None = None
    digest: str = ""
    smoke_runs: tuple[int, ...] = ()
    finals: int = 0
    open_intents: tuple[leases.Intent, ...] = ()
    index: int = 0
    turns: int = 0
    agent_session: str = ""
    parked: leases.Parked | None = None
    continued: int = 0
    tried: tuple[leases.Attempted, ...] = ()
    outcome: leases.Outcome | None = None
    beat_lost: leases.BeatLost | None = None
    status: str = ""
    cost_microdollars: int = 0
    tokens: int = 0
    isolation: str = ""
    control_refused: int = 0
    control_spilled: int = 0
    executable: bool = False


def read(records: Sequence[leases.LedgerRecord]) -> View:
    """Return what the records (oldest first) say."""
    view = _Reader()
    for record in records:
        view.take(record)
    return view.done()


def done_effects(records: Iterable[leases.LedgerRecord]) -> frozenset[leases.Effect]:
    """Return the effects that are known to be done (or found done) after the newest outcome."""
    done: set[leases.Effect] = set()
    for record in records:
        if isinstance(record, leases.Outcome):
            done.clear()
        elif isinstance(record, leases.Effected) and record.result in {"done", "found"}:
            done.add(record.effect)
    return frozenset(done)


def approval_is_fresh(records: Iterable[leases.LedgerRecord], label: str) -> bool:
    """Tell whether an approval label that is set now was set after the newest push.

    So it is where the draft was opened after that push, or where klaud has taken the label off, or found it off, since.
    No clock is asked. A push whose answer was lost counts as one.
    """
    fresh = False
    off: set[int] = set()
    for record in records:
        if isinstance(record, leases.Intent):
            if record.effect == "push-work":
                fresh = False
            elif record.effect == "remove-label" and record.label == label:
                off.add(record.seq)
        elif isinstance(record, leases.Effected) and record.result in {"done", "found"}:
            fresh = fresh or record.effect == "open-draft" or record.seq in off
    return fresh


class Diagnostics(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers and closed words about one session."""

    seconds: float
    turns: int
    completed_turns: int
    continued: int
    cost_microdollars: int
    tokens: int
    spent: model.Spent
    refused_effects: dict[str, int]
    last_turn: str
    termination: str
    outcome: str
    code: str
    isolation: str
    control_refused: int
    control_spilled: int


def diagnose(records: Sequence[leases.LedgerRecord]) -> Diagnostics:
    """Return what is known of a session without any text of an agent or a person."""
    view = read(records)
    refused: dict[str, int] = {}
    for record in records:
        if isinstance(record, leases.Effected) and record.result == "refused":
            refused[record.effect] = refused.get(record.effect, 0) + 1
    outcome = view.outcome
    return Diagnostics(
        seconds=(records[-1].at - records[0].at).total_seconds() if records else 0.0,
        turns=view.turns,
        completed_turns=view.index,
        continued=view.continued,
        cost_microdollars=view.cost_microdollars,
        tokens=view.tokens,
        spent=view.spent,
        refused_effects=refused,
        last_turn=view.status,
        termination=view.beat_lost.why if view.beat_lost else ("parked" if view.parked else ""),
        outcome=outcome.outcome if outcome else "",
        code=outcome.code if outcome else "",
        isolation=view.isolation or (outcome.isolation if outcome else ""),
        control_refused=view.control_refused,
        control_spilled=view.control_spilled,
    )


class _Reader:
    def __init__(self) -> None:
        self.started: leases.SessionStarted | None = None
        self.head = ""
        self.number: int | None = None
        self.digest = ""
        self.agent_session = ""
        self.parked: leases.Parked | None = None
        self.outcome: leases.Outcome | None = None
        self.beat_lost: leases.BeatLost | None = None
        self.status = ""
        self.isolation = ""
        self.intents: dict[int, leases.Intent] = {}
        self.settled: set[int] = set()
        self.oids: set[str] = set()
        self.smoke: list[int] = []
        self.tried: list[leases.Attempted] = []
        self.turns = 0
        self.index = 0
        self.continued = 0
        self.cost = 0
        self.tokens = 0
        self.control = [0, 0]

    def take(self, record: leases.LedgerRecord) -> None:
        match record:
            case leases.SessionStarted():
                self.started = record
            case leases.Intent():
                self.intents[record.seq] = record
                self.oids.update(record.oids)
                if record.effect == "open-draft":
                    self.digest = record.digest
            case leases.Effected():
                self._take_effect(record)
            case leases.TurnStarted():
                self.parked = None
                self.isolation = record.isolation
            case leases.TurnEnded():
                self._take_turn(record)
            case leases.BeatLost():
                self.beat_lost = record
            case leases.Parked():
                self.parked = record
                self.tried = list(record.tried)
            case leases.Continued():
                self.continued += 1
                self.parked = None
                self.beat_lost = None
            case leases.Outcome():
                self.outcome = record
            case _:
                assert_never(record)

    def _take_effect(self, record: leases.Effected) -> None:
        self.settled.add(record.seq)
        if record.result not in {"done", "found"}:
            return
        if record.effect == "open-draft" and record.number is not None:
            self.number = record.number
        elif record.effect == "push-work" and record.oid:
            self.head = record.oid
        elif record.effect == "dispatch-smoke" and record.run_id is not None:
            self.smoke.append(record.run_id)

    def _take_turn(self, record: leases.TurnEnded) -> None:
        self.turns += 1
        self.cost += record.cost_microdollars
        self.tokens += record.input_tokens + record.output_tokens
        self.control[0] += record.control_refused
        self.control[1] += record.control_spilled
        self.status = record.status
        if record.status == "completed":
            self.index = record.index + 1
            self.agent_session = record.agent_session
        else:
            self.agent_session = ""

    def done(self) -> View:
        mine = [intent for intent in self.intents.values() if intent.by == "session"]

        def count(effect: leases.Effect) -> int:
            return sum(intent.effect == effect for intent in mine)

        spent = model.Spent(
            drafts=count("open-draft"),
            pushes=count("push-work"),
            smoke_runs=count("dispatch-smoke"),
            final_runs=count("start-final-run"),
            repairs=sum(intent.retry == "repair" for intent in mine),
            infrastructure_retries=sum(intent.retry == "infrastructure" for intent in mine),
        )
        return View(
            started=self.started,
            next_seq=max(self.intents, default=-1) + 1,
            spent=spent,
            oids=frozenset(self.oids),
            head=self.head,
            number=self.number,
            digest=self.digest,
            smoke_runs=tuple(self.smoke),
            finals=count("start-final-run"),
            open_intents=tuple(i for seq, i in sorted(self.intents.items()) if seq not in self.settled),
            index=self.index,
            turns=self.turns,
            agent_session=self.agent_session,
            parked=self.parked,
            continued=self.continued,
            tried=tuple(self.tried),
            outcome=self.outcome,
            beat_lost=self.beat_lost,
            status=self.status,
            cost_microdollars=self.cost,
            tokens=self.tokens,
            isolation=self.isolation,
            control_refused=self.control[0],
            control_spilled=self.control[1],
            executable=any(intent.executable for intent in mine),
        )
