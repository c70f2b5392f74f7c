"""klaud dies at any call of a session: recovery settles it, and no effect happens twice."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import typing
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from klaud import errors, names
from klaud.baselines import model as baselines
from klaud.baselines import schema
from klaud.github import gateway as ports
from klaud.leases import model as leases
from klaud.leases import store as stores
from klaud.recovery import finisher
from klaud.session import evidence, finish, ledger, model, rules_touch, run, tools, work
from tests.support import memory_gateway, memory_scenes, session_bench
from tests.support.memory_world import Killed, Spoil

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.memory_world import Call

FAMILY = "configs/gpu.yaml:one"
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("push_work", {}),
    ("open_draft", {"title": "one: v2"}),
    ("dispatch_smoke", {}),
    ("wait_for_run", {"run_id": "last"}),
    ("read_run", {"run_id": "last"}),
    ("report_attempt", {"what": "smoke-run", "result": "worked", "run_id": "last"}),
    ("read_baseline", {}),
    ("check_capacity", {}),
    ("start_final_run", {}),
    ("finish", {"claim": "done"}),
]
"""Every tool once, in an order that a session may take."""


class FakeWork:
    """The agent's work tree, without git: each call is one more commit."""

    def __init__(self, scene: memory_scenes.Scene) -> None:
        self.scene = scene
        self.head: str | None = None

    def collect(self, scope: model.EditScope, family: str, *, candidate: str, agent: str) -> work.Collected:
        del scope, family, agent
        world = self.scene.world
        oid = world.commit(f"work on {candidate}", parent=self.head or world.main, author=world.bot)
        self.made = oid
        return work.Collected(oid, (oid,), ("configs/gpu.yaml",), executable=False)

    def pushed(self) -> None:
        self.head = self.made


@dataclasses.dataclass
class Session:
    """One session in memory, which a test kills."""

    scene: memory_scenes.Scene
    place: Path
    policy: model.Policy = session_bench.POLICY

    def __post_init__(self) -> None:
        world = self.scene.world
        planner = world.add_run("klaud-plan.yml", actor=world.alice, status="completed", conclusion="success")
        self.wave = f"{planner}.1"
        self.candidate = names.candidate_id(FAMILY, "image v2")
        self.run_id = world.add_run(
            "klaud-candidate.yml", actor=world.bot, status="in_progress",
            title=f"klaud candidate {self.candidate} {names.run_marker(self.wave, self.candidate)}",
        )  # fmt: skip
        world.label_workflows = {"full-sweep": "bench-final.yml"}
        world.on_dispatch = self.dispatch
        self.bundle = self.place / "bundle.json"
        point = baselines.Point(
            row="0", identity={"model": "zlib", "streams": 1, "image": "v1"}, metrics={"x": 1.0}, run_id=1, attempt=1,
            commit=world.main, proven="run", trusted="ancestor", entry=0,
        )  # fmt: skip
        verdict = baselines.Verdict(benchmark="codecs", family=FAMILY, verdict="verified", points=(point,))
        self.bundle.write_bytes(msgspec.json.encode({"verdict": verdict}))
        record = leases.Claim(
            at=world.time, wave=self.wave, candidate=self.candidate, family=FAMILY, base=world.main,
            holder=leases.Holder(run_id=planner, attempt=1, nonce="aa"),
        )  # fmt: skip
        won = self.store().take_claim(record)
        assert isinstance(won, stores.Won)
        self.claim = won.held.oid
        self.last = 0

    def dispatch(self, workflow: str, ref: str, inputs: dict[str, str]) -> int:
        world = self.scene.world
        run_id = world.add_run(
            workflow,
            actor=world.bot,
            head=world.state.refs[f"refs/heads/{ref}"],
            branch=ref,
            title=inputs.get("marker", ""),
        )
        world.later(5.0, lambda: world.finish_run(run_id))
        return run_id

    def store(self, client: str = "session") -> stores.LeaseStore:
        return stores.LeaseStore(
            refs=memory_gateway.ref_store(self.scene.world, client=client), names=self.scene.names,
            repository="acme/bench", clock=self.scene.world.clock,
        )  # fmt: skip

    def settling(self, client: str, by: Any = "finish") -> finish.World:
        world = self.scene.world
        refs = memory_gateway.ref_store(world, client=client)
        return finish.World(
            gateway=memory_gateway.gateway(world, client=client), refs=refs,
            store=stores.LeaseStore(refs=refs, names=self.scene.names, repository="acme/bench", clock=world.clock),
            names=self.scene.names, repository="acme/bench", host="github.com", clock=world.clock, policy=self.policy,
            workflows=session_bench.WORKFLOWS, who=rules_touch.Who(bot=world.bot.id, ignored=(world.reviewer.id,)),
            plan=schema.plan(baselines.Policy(name="codecs", identity=session_bench.IDENTITY)),
            frozen=lambda digest: evidence.load(self.bundle, digest), log=lambda _text: None, by=by,
        )  # fmt: skip

    def host(self) -> run.Host:
        def never(*_: Any) -> Any:
            message = "no real git in this world"
            raise AssertionError(message)

        holder = leases.Holder(run_id=self.run_id, attempt=1, job="candidate", nonce="bb")
        return run.Host(
            settling=self.settling("session"), holder=holder, identity=("klaud", "k@example.invalid"), git_url="", token="",
            open_refs=never, open_store=never, target=tools.Target(session_bench.WORKFLOWS, session_bench.SCOPE),
            paused=lambda: False, cancelled=lambda: False,
        )  # fmt: skip

    def brief(self) -> model.Brief:
        digest = f"sha256:{hashlib.sha256(self.bundle.read_bytes()).hexdigest()}"
        return model.Brief(
            wave=self.wave, candidate=self.candidate, family=FAMILY, base=self.scene.world.main, benchmark="codecs",
            subject="image v2", bundle=digest, claim=self.claim,
        )  # fmt: skip

    def work_through(self) -> list[str]:
        """Do what a session does, until it is parked; return the answers' codes."""
        host, brief = self.host(), self.brief()
        book = run.take_book(host, brief, self.claim)
        if isinstance(book, run.NotOurs):
            return [book.why]
        desk = tools.Desk(
            gateway=host.settling.gateway, book=book, work=FakeWork(self.scene), brief=brief, policy=self.policy,  # type: ignore[arg-type]
            target=host.target, clock=self.scene.world.clock, branch_ref=self.scene.names.branch(self.candidate),
            agent="scripted", paused=lambda: False, log=lambda _text: None,
        )  # fmt: skip
        book.append(leases.TurnStarted(at=self.scene.world.time, index=0))
        said = []
        for name, arguments in CALLS:
            known = {key: self.last if value == "last" else value for key, value in arguments.items()}
            answer = desk.call(name, known)
            said.append(answer.refused or "done")
            if "run_id=" in answer.text:
                self.last = int(answer.text.split("run_id=")[1].split()[0].rstrip(");"))
        book.append(leases.TurnEnded(at=self.scene.world.time, index=0, status="completed"))
        if desk.waiting is not None:
            run.park(host, book, desk.waiting, desk.tried)
        return said

    def end_runs(self) -> None:
        """Let every run that still goes end well; a final run leaves results."""
        world = self.scene.world
        for one in list(world.state.runs.values()):
            if one.id == self.scene.me.run_id if self.scene.me else False:
                continue
            if one.status != "completed" and one.path.endswith("bench-final.yml"):
                rows = [{"model": "zlib", "streams": 1, "image": "v2", "metrics": {"x": 2.0}}]
                packed = session_bench.packed_results(json.dumps(rows).encode())
                session_bench.put_artifact(world, one.id, packed)
            if one.status != "completed" and "klaud-" not in one.path:
                world.finish_run(one.id)

    def recover(self) -> None:
        """Let the job be gone, and sweep until nothing moves, with the real finish."""
        world = self.scene.world
        if world.state.runs[self.run_id].status != "completed":
            world.finish_run(self.run_id, "cancelled")
        for _ in range(4):
            self.scene.next_run()
            self.scene.client("sweep")
            self.scene.finisher = finisher.SessionFinisher(  # type: ignore[assignment]
                store=self.store("sweep"), world_for=lambda _started: self.settling("sweep", "recovery")
            )
            report = self.scene.sweep()
            assert not report.red, report.red
            self.end_runs()

    def ledger_records(self) -> tuple[leases.LedgerRecord, ...]:
        found = self.store("look").look(self.scene.names.session(self.wave, self.candidate))
        assert isinstance(found, leases.Ledger)
        return found.records

    def writes(self, name: str) -> int:
        return sum(call.name == name and call.client == "session" for call in self.scene.world.calls)


def fresh(place: Path) -> Session:
    scene = memory_scenes.Scene()
    return Session(scene, place)


def end_state(session: Session) -> tuple[Any, ...]:
    """What must not depend on where the session died, and what may differ: the outcome."""
    world = session.scene.world
    refs = {ref for ref in world.state.refs if ref.startswith(("refs/klaud/claims/", "refs/klaud/leases/"))}
    pulls = [(pull.state, pull.draft) for pull in world.state.pulls.values()]
    branch = session.scene.names.branch(session.candidate) in world.state.refs
    going = [one.id for one in world.state.runs.values() if one.status != "completed" and "klaud-" not in one.path]
    return refs, pulls, branch, going


def test_the_undisturbed_session_is_validated(tmp_path: Path) -> None:
    session = fresh(tmp_path)
    assert {name for name, _ in CALLS} == set(typing.get_args(model.ToolName)), "each tool is killed in"
    assert session.work_through() == ["done"] * len(CALLS)
    session.end_runs()
    session.recover()
    assert end_state(session) == (set(), [("open", False)], True, [])
    assert session.scene.snapshot().claims == {}


def calls_of_a_session(place: Path) -> int:
    session = fresh(place)
    session.scene.world.calls.clear()
    session.work_through()
    return len(session.scene.world.calls)


@pytest.mark.parametrize("spoil", [Spoil.KILL_BEFORE, Spoil.KILL_AFTER, Spoil.LOSE])
def test_killed_at_every_call_recovery_settles_it_and_nothing_happens_twice(tmp_path: Path, spoil: Spoil) -> None:
    total = calls_of_a_session(tmp_path)
    assert total > 25
    seen = set()
    for k in range(total):
        session = fresh(tmp_path)
        world = session.scene.world
        first = len(world.calls)
        spoiled = []

        def rule(call: Call, k: int = k, first: int = first, spoiled: list[str] = spoiled) -> Spoil | None:
            if call.k != first + k or (spoil is Spoil.LOSE and not call.write):
                return None
            spoiled.append(call.name)
            return spoil

        world.rules.append(rule)
        try:
            session.work_through()
        except Killed:
            pass
        except errors.KlaudError:
            assert spoil is Spoil.LOSE
        world.rules.clear()
        session.end_runs()
        session.recover()
        where = f"{spoil.name} at call {k} ({spoiled})"
        refs, pulls, branch, going = end_state(session)
        assert refs == set(), where
        assert going == [], where
        assert len(pulls) <= 1, where
        for name in ("create_pull", "dispatch", "add_labels"):
            assert session.writes(name) <= 1, (where, name)
        if pulls and pulls[0] == ("open", False):
            assert branch, where
            seen.add("validated")
        else:
            assert not pulls or pulls[0][0] == "closed", (where, pulls)
            assert not branch, where
            seen.add("cleaned up")
    assert seen == ({"validated"} if spoil is Spoil.LOSE else {"validated", "cleaned up"}), seen


@pytest.mark.parametrize("spoil", [None, Spoil.SHORT])
def test_no_run_is_started_where_the_ones_before_it_are_not_all_listed(tmp_path: Path, spoil: Spoil | None) -> None:
    """Else an older run could be taken for the new one; without the fault the same calls do start runs."""
    session = fresh(tmp_path)
    session.scene.world.rules.append(lambda call: spoil if call.name == "runs" else None)
    said = dict(zip([name for name, _ in CALLS], session.work_through(), strict=True))
    started = {name: session.writes(name) for name in ("dispatch", "add_labels")}
    intents = [one for one in session.ledger_records() if isinstance(one, leases.Intent)]
    kinds = {one.effect for one in intents} & {"dispatch-smoke", "start-final-run"}
    if spoil is None:
        assert (said["dispatch_smoke"], said["start_final_run"], set(started.values())) == ("done", "done", {1})
        assert len(kinds) == 2
    else:
        assert (said["dispatch_smoke"], said["start_final_run"], set(started.values())) == ("unclear", "unclear", {0})
        assert kinds == set(), "nothing was meant to be done that was not done"


class Unfenced(ledger.Book):
    """The broken twin: it pushes the branch alone and never looks at the claim."""

    def claim_ours(self) -> bool | None:
        return True

    def push(self, intent: leases.Intent, branch: str, expected: str | None, new: str) -> None:
        self._refs.apply([ports.RefUpdate(branch, expected, new)])
        done = leases.Effected(at=intent.at, seq=intent.seq, effect="push-work", result="done", oid=new)
        self._ledger = leases.Ledger(
            self._ledger.ref, self._ledger.oid,
            (*self._ledger.records, done),
        )  # fmt: skip


@pytest.mark.parametrize("fenced", [True, False])
def test_a_session_that_lost_its_claim_cannot_move_its_branch(tmp_path: Path, *, fenced: bool) -> None:
    session = fresh(tmp_path)
    host, brief = session.host(), session.brief()
    book = run.take_book(host, brief, session.claim)
    assert isinstance(book, ledger.Book)
    if not fenced:
        book.__class__ = Unfenced
    desk = tools.Desk(
        gateway=host.settling.gateway, book=book, work=FakeWork(session.scene), brief=brief, policy=session.policy,  # type: ignore[arg-type]
        target=host.target, clock=session.scene.world.clock, branch_ref=session.scene.names.branch(session.candidate),
        agent="scripted", paused=lambda: False, log=lambda _text: None,
    )  # fmt: skip
    other = session.store("other")
    mine = book.claim.record
    assert isinstance(mine, leases.Claim)
    world = session.scene.world

    def take_over(call: Call) -> None:
        """Between the guard's look and the push, recovery takes the claim."""
        if (call.name == "refs.apply" and call.client == "session" and len(call.args[0]) != 1) or not fenced:
            world.before.clear()
            holder = leases.Holder(run_id=999, attempt=1, nonce="cc")
            assert isinstance(other.swap_claim(book.claim, msgspec.structs.replace(mine, holder=holder)), stores.Won)

    world.before.append(take_over)
    answer = desk.call("push_work", {})
    moved = session.scene.names.branch(session.candidate) in world.state.refs
    if fenced:
        assert (answer.refused, moved) == ("claim-lost", False)
        assert desk.call("open_draft", {"title": "late"}).refused == "claim-lost"
    else:
        assert moved, "the twin moves a branch that is another's"
