"""Standard recovery worlds, built through klaud's own records: one session at a time, in any state of its life.

``Scene`` wraps a ``World`` with the sweep's own run in it; ``session`` puts one session and its objects there; ``sweep``
runs one recovery pass over it as a process would. Every name is made up.
"""

from __future__ import annotations

import dataclasses
import datetime
from typing import TYPE_CHECKING, Any

from klaud import errors, names
from klaud.github import gateway as ports
from klaud.github import model as github
from klaud.leases import model as leases
from klaud.leases import store as stores
from klaud.recovery import model, run, writer
from tests.support import memory_gateway
from tests.support.memory_world import World

if TYPE_CHECKING:
    from collections.abc import Sequence

FINAL_LABEL = "full-sweep"
PLANNER = "klaud-plan.yml"
CANDIDATE = "klaud-candidate.yml"
SMOKE = "bench-smoke.yml"
FINAL = "bench-final.yml"
OWN_RUN = 900_000
"""The sweep's own run: above every run that a scene makes."""


class NoFinisher:
    """Stands for the session's ``finish``: says what it was told to say, and settles a draft as the real one does."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.verdict = "verified"
        self.asked: list[model.FinalRun] = []
        self.settled: list[tuple[str, str]] = []

    def evidence(self, final: model.FinalRun) -> model.Evidence:
        """Answer as the scene says."""
        self.asked.append(final)
        if self.scene.names.session(final.wave, final.candidate) not in self.scene.world.state.refs:
            return model.Evidence(verdict="unreadable", why="no ledger says what was frozen")
        return model.Evidence(verdict=self.verdict, why="as the scene says")  # type: ignore[arg-type]

    def settle(self, wave: str, candidate: str, *, as_: str, why: str) -> model.Settled:
        """Bring the session to its outcome through the scene's own gateway and refs; can be repeated."""
        del why
        self.settled.append((candidate, as_))
        gateway, pen = self.scene.gateway, self.scene.pen()
        snapshot = self.scene.snapshot()
        ledger = snapshot.ledgers[self.scene.names.session(wave, candidate)]
        assert isinstance(ledger, leases.Ledger)
        number = next((r.number for r in ledger.records if isinstance(r, leases.Effected) and r.number), None)
        validated = as_ == "validated" or any(
            isinstance(r, leases.Outcome) and r.outcome == "validated" for r in ledger.records
        )
        tip: str | None = ledger.oid
        if not any(isinstance(r, leases.Outcome) for r in ledger.records):
            outcome = leases.Outcome(
                at=self.scene.world.time,
                outcome="validated" if validated else "failed",
                number=number,
                pending=("mark-ready",) if validated else ("close-draft", "delete-branch"),
            )
            tip = pen.chain([outcome], ledger.ref, ledger.oid)
            self._sure(pen.push([memory_gateway.update(ledger.ref, ledger.oid, tip)]))
        detail = gateway.pull_details([number])[number] if number else None
        if isinstance(detail, github.PullDetail) and detail.pull.open:
            if validated and detail.pull.draft:
                gateway.mark_ready(detail.pull.node_id)
            elif not validated:
                gateway.close_pull(detail.pull.number)
        self._end(wave, candidate, tip, validated=validated)
        return model.Settled(done=(f"settled as {as_}",))

    def _end(self, wave: str, candidate: str, tip: str | None, *, validated: bool) -> None:
        refs, pen, ref_names = self.scene.refs, self.scene.pen(), self.scene.names
        now = refs.list(ref_names.listed_prefixes())
        branch, claim = ref_names.branch(candidate), ref_names.claim(names.family_of(candidate))
        ledger = ref_names.session(wave, candidate)
        updates = []
        effects: list[leases.Effect] = ["mark-ready"] if validated else ["close-draft", "delete-branch"]
        if branch in now and not validated:
            archive = ref_names.archive("branch", f"auto-{candidate}", now[branch])
            if archive not in now:
                updates.append(memory_gateway.update(archive, None, now[branch]))
            updates.append(memory_gateway.update(branch, now[branch], None))
        at = self.scene.world.time
        done: list[leases.LedgerRecord] = [
            leases.Effected(at=at, seq=90 + i, effect=e, result="done") for i, e in enumerate(effects)
        ]
        updates.append(memory_gateway.update(ledger, tip, pen.chain(done, ledger, tip)))
        if claim in now:
            updates.append(memory_gateway.update(claim, now[claim], None))
        self._sure(pen.push(updates, atomic=True))

    @staticmethod
    def _sure(results: dict[str, ports.RefResult]) -> None:
        if not all(isinstance(r, ports.RefUpdated) for r in results.values()):
            raise errors.UnclearWriteError("a push of the settlement got no clear yes")


@dataclasses.dataclass
class Made:
    """What a scene made for one session."""

    wave: str
    candidate: str
    family: str
    run_id: int
    number: int | None = None
    head: str | None = None
    smoke: int | None = None
    final: int | None = None
    claim: bool = False

    @property
    def branch(self) -> str:
        """The branch's short name."""
        return names.branch(self.candidate)

    @property
    def key(self) -> str:
        """``<wave>-<candidate>``."""
        return f"{self.wave}-{self.candidate}"


class Scene:
    """A world with the sweep's own run, klaud's settings, and sessions."""

    def __init__(self, *, policy: model.Policy | None = None, outside: bool = False) -> None:
        """``outside``: the sweep runs outside of Actions."""
        self.world = World()
        self.names = names.RefNames()
        self.policy = policy or model.Policy()
        self.setting = model.Setting(
            repository=self.world.repository.full_name,
            bot=self.world.bot.id,
            login=self.world.bot.login,
            ignored=frozenset({self.world.reviewer.id}),
        )
        self.gateway = memory_gateway.gateway(self.world, client="sweep")
        self.refs = memory_gateway.ref_store(self.world, client="sweep")
        self.finisher = NoFinisher(self)
        self.me: leases.Holder | None = None
        self.world.time -= datetime.timedelta(hours=12)
        self.started = self.world.time
        if not outside:
            self.me = leases.Holder(run_id=OWN_RUN, attempt=1, job="recover", nonce="00")

    def begin(self) -> None:
        """Let twelve hours pass and the sweep's own run start."""
        self.world.time = max(self.world.time, self.started + datetime.timedelta(hours=12))
        if self.me is not None and self.me.run_id not in self.world.state.runs:
            self.world.add_run(
                PLANNER, actor=self.world.alice, run_id=self.me.run_id, status="in_progress", event="schedule"
            )

    def next_run(self) -> None:
        """Let the sweep's run end, however it did, and another planner run begin."""
        self.world.advance(1)
        if self.me is not None:
            if self.me.run_id in self.world.state.runs:
                self.world.finish_run(self.me.run_id, "cancelled")
            self.me = leases.Holder(run_id=self.me.run_id + 1, attempt=1, job="recover", nonce="00")
        self.begin()

    # -- klaud's own pen
    def pen(self) -> writer.Writer:
        """Return a writer that leaves no trace in the sweep's counts."""
        return writer.Writer(refs=self.refs, repository=self.setting.repository, key=None)

    def put(self, ref: str, oid: str) -> None:
        """Make a local object known to the world and set a ref to it."""
        self.refs._send(oid)
        self.world.move_ref(ref, oid, by=self.world.bot)

    def write(self, ref: str, record: leases.Record) -> str:
        """Write one record to a ref."""
        oid = self.pen().record(record, ref, None)
        self.put(ref, oid)
        return oid

    def ledger(self, made: Made, *records: leases.LedgerRecord) -> None:
        """Append records to a session's ledger."""
        ref = self.names.session(made.wave, made.candidate)
        tip = self.pen().chain(records, ref, self.world.state.refs.get(ref))
        assert tip is not None
        self.put(ref, tip)

    # -- sessions
    def session(
        self,
        name: str,
        *,
        status: str = "completed",
        conclusion: str | None = "cancelled",
        ledger: bool = True,
        claim: bool = True,
        branch: bool = True,
        draft: bool = True,
        recorded: bool = True,
        parked: str = "",
        smoke: str = "",
        final: str = "",
        turns: int = 1,
    ) -> Made:
        """Put one session there. ``smoke`` and ``final``: status, or conclusion of a completed one; empty: there is none."""
        world = self.world
        family = f"configs/gpu.yaml:{name}"
        planner = world.add_run(PLANNER, actor=world.alice, status="completed", conclusion="success", event="schedule")
        candidate = names.candidate_id(family, "image v2")
        wave = f"{planner}.1"
        run_id = world.add_run(
            CANDIDATE,
            actor=world.bot,
            status=status,
            conclusion=conclusion if status == "completed" else None,
            title=f"klaud candidate {candidate} {names.run_marker(wave, candidate)}",
        )
        made = Made(wave, candidate, family, run_id, claim=claim)
        holder = leases.Holder(run_id=run_id, attempt=1, job="candidate", nonce=name)
        if branch:
            made.head = world.push(made.branch, f"work on {name}", by=world.bot)
        if branch and draft:
            made.number = world.open_pull(made.branch, by=world.bot, title=f"Try {name}")
        if smoke:
            made.smoke = self.child_run(SMOKE, made, smoke, "workflow_dispatch")
        if final and made.number:
            world.label(made.number, FINAL_LABEL, by=world.bot)
            if final != "none":
                made.final = self.child_run(FINAL, made, final, "pull_request")
        if ledger:
            self.ledger(made, *self._records(made, holder, recorded=recorded, parked=parked, turns=turns))
        if claim:
            record = leases.Claim(
                at=world.time, wave=wave, candidate=candidate, family=family, base=world.main, holder=holder
            )
            if parked:
                on = tuple(r for r in (made.final,) if r)
                held = leases.ParkedHolder(on=on, by=holder, why="final-run")
                record = leases.Claim(
                    at=world.time, wave=wave, candidate=candidate, family=family, base=world.main, parked=held
                )
            self.write(self.names.claim(names.family_of(candidate)), record)
        return made

    def child_run(self, workflow: str, made: Made, word: str, event: str) -> int:
        """Add a smoke or final run at the session's head in the state that ``word`` names."""
        done = word in model.CONCLUSIONS
        return self.world.add_run(
            workflow,
            actor=self.world.bot,
            status="completed" if done else word,
            conclusion=word if done else None,
            event=event,
            head=made.head,
            branch=made.branch,
        )

    def _records(
        self, made: Made, holder: leases.Holder, *, recorded: bool, parked: str, turns: int
    ) -> Sequence[leases.LedgerRecord]:
        at = self.world.time
        seq = 0
        records: list[leases.LedgerRecord] = [
            leases.SessionStarted(
                at=at, wave=made.wave, candidate=made.candidate, family=made.family, base=self.world.main, holder=holder
            )
        ]
        records += [leases.TurnStarted(at=at, index=i) for i in range(turns)]

        def pair(effect: Any, intent: dict[str, Any], result: dict[str, Any]) -> None:
            nonlocal seq
            records.append(leases.Intent(at=at, seq=seq, effect=effect, **intent))
            records.append(leases.Effected(at=at, seq=seq, effect=effect, result="done", **result))
            seq += 1

        if made.head and recorded:
            pair("push-work", {"oids": (made.head,)}, {"oid": made.head})
        if made.number:
            pair("open-draft", {}, {"number": made.number})
        if made.smoke:
            pair("dispatch-smoke", {}, {"run_id": made.smoke})
        if made.final:
            pair("start-final-run", {"number": made.number, "label": FINAL_LABEL}, {"run_id": made.final})
        if parked:
            on = tuple(r for r in (made.final,) if r)
            records.append(leases.Parked(at=at, on=on, why=parked, head=made.head or ""))  # type: ignore[arg-type]
        return records

    # -- sweeping
    def snapshot(self) -> leases.Snapshot:
        """Read all of klaud's refs."""
        return stores.LeaseStore(
            refs=self.refs, names=self.names, repository=self.setting.repository, clock=self.world.clock
        ).snapshot()

    def parts(self, **changes: Any) -> run.Parts:
        """Return what a sweep works with."""
        fields: dict[str, Any] = {
            "gateway": self.gateway,
            "refs": self.refs,
            "snapshot": self.snapshot,
            "names": self.names,
            "clock": self.world.clock,
            "me": self.me,
            "setting": self.setting,
            "policy": self.policy,
            "finisher": self.finisher,
        }
        return run.Parts(**{**fields, **changes})

    def client(self, name: str) -> None:
        """Go on as a new process: fresh gateway and ref store."""
        self.gateway = memory_gateway.gateway(self.world, client=name)
        self.refs = memory_gateway.ref_store(self.world, client=name)

    def sweep(self, **options: Any) -> model.Report:
        """Run one sweep as a fresh process."""
        self.begin()
        self.client("sweep")
        return run.sweep(self.parts(), **options)
