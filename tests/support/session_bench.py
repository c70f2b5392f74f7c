"""A small benchmark repository for session tests: real git over HTTP, real child processes, GitHub in memory.

Refs and objects live in a real bare repository behind ``githttp``; pull requests, labels and runs in a ``memory_world``.
What is pushed to branches is mirrored into the world, so that a draft's head is what git has.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import json
import zipfile
from typing import TYPE_CHECKING, Any

import msgspec

from klaud import names
from klaud.baselines import model as baselines
from klaud.baselines import schema, settings
from klaud.github import folder, refs
from klaud.github import gateway as ports
from klaud.github import model as hub
from klaud.leases import model as leases
from klaud.leases import store as stores
from klaud.session import evidence, finish, model, rules_ledger, rules_touch, run, tools
from tests.support import githttp, memory_gateway, memory_world

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

TOKEN = "t-canary-0123456789abcdef"
FILE = "configs/codecs.yaml"
FAMILY = f"{FILE}:zlib-text"
SUBJECT = "image v2"
WAVE = "7001.1"
CONFIG = """\
zlib-text:
  image: codecs:v1   # the settings' name
  runner: cpu
  streams: [1, 2]
bz2-text:
  image: codecs:v1
  runner: cpu
  streams: [1]
"""
WORKFLOWS = model.Workflows(smoke="bench-smoke.yml", final="bench-final.yml", smoke_inputs={"marker": "{marker}"})
SCOPE = model.EditScope(values=(model.ValueScope(files=("configs/*.yaml",), keys=("*.image", "*.level")),))
POLICY = model.Policy(
    framework="scripted", isolation="best-effort", entry_seconds=10.0, turn_seconds=30.0, silence_seconds=10.0,
    linger_seconds=1.0, teardown_step_seconds=1.0, teardown_seconds=4.0, wait_run_seconds=30.0, poll_seconds=1.0,
    seen_seconds=3.0, heartbeat_seconds=0.2, release_seconds=2.0,
)  # fmt: skip
IDENTITY = settings.Schema(
    base="none",
    fields={
        "model": settings.Field(scope=True),
        "streams": settings.Field(type="integer"),
        "image": settings.Field(varies=True),
    },
)


def packed_results(data: bytes, name: str = "results.json") -> bytes:
    """Return a results artifact's zip."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr(name, data)
    return packed.getvalue()


def put_artifact(world: memory_world.World, run_id: int, data: bytes) -> None:
    """Let a run have the results artifact."""
    number = world.serial()
    world.state.artifacts[run_id] = (hub.Artifact(id=number, name="benchmark-results", size=len(data), expired=False),)
    world.state.blobs[number] = data


class MirroredRefs:
    """A real ref store whose branches are seen by the world."""

    def __init__(self, real: refs.GitRefStore, bench: Bench) -> None:
        self._real = real
        self._bench = bench

    @property
    def pushes(self) -> int:
        return self._real.pushes

    @property
    def fetches(self) -> int:
        return self._real.fetches

    def list(self, prefixes: Sequence[str]) -> Mapping[str, str]:
        return self._real.list(prefixes)

    def read(self, oids: Sequence[str], *, depth: int = 1) -> Mapping[str, ports.CommitData | ports.NotACommit]:
        return self._real.read(oids, depth=depth)

    def write_commit(self, message: bytes, parents: Sequence[str] = ()) -> str:
        return self._real.write_commit(message, parents)

    def apply(self, updates: Sequence[ports.RefUpdate], *, atomic: bool = False) -> Sequence[ports.RefResult]:
        with self._bench.world.call("refs.apply", (tuple(updates), atomic), write=True):
            results = self._real.apply(updates, atomic=atomic)
        if any(update.ref.startswith("refs/heads/") for update in updates):
            self._bench.mirror()
        return results


@dataclasses.dataclass
class Bench:
    """The repository, the world, and ways to start a session on them."""

    place: Path
    git: githttp.GitHost
    world: memory_world.World
    stack: contextlib.ExitStack
    base: str = ""
    policy: model.Policy = POLICY
    scope: model.EditScope = SCOPE
    workflows: model.Workflows = WORKFLOWS
    log: list[str] = dataclasses.field(default_factory=list)
    paused: bool = False
    cancelled: bool = False
    frozen_points: int = 2
    folders: int = 0
    environ: dict[str, str] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        self.names = names.RefNames()
        self.candidate = names.candidate_id(FAMILY, SUBJECT)
        self.branch = self.names.branch(self.candidate)
        tree = self._tree(
            {FILE: CONFIG, "tools/run.py": "print('ok')\n", ".github/workflows/bench-final.yml": "on: {}\n"}
        )
        self.base = self.git.commit("first", tree=tree)
        self.git.set("refs/heads/main", self.base)
        self.world.state.objects[self.base] = memory_world.GitObject(b"first", (), "tree first", self.world.alice)
        self.world.main = self.base
        self.world.state.refs["refs/heads/main"] = self.base
        self.world.label_workflows = {"full-sweep": "bench-final.yml"}
        self.gateway = memory_gateway.gateway(self.world)
        self.bundle = self.place / f"baseline-{self.candidate}.json"
        self.write_bundle()

    def _tree(self, files: dict[str, str]) -> str:
        index = self.place / "index"
        lines = []
        for path, text in files.items():
            blob = self.git.git("hash-object", "-w", "--stdin", text=text)
            lines.append(f"100644 {blob}\t{path}")
        self.git.git("update-index", "--add", "--index-info", text="\n".join(lines) + "\n")
        tree = self.git.git("write-tree")
        index.unlink(missing_ok=True)
        return tree

    def write_bundle(self) -> None:
        points = tuple(
            baselines.Point(
                row=f"{n:064x}", identity={"model": "zlib", "streams": n, "image": "codecs:v1"}, metrics={"mb_per_s": 10.0},
                run_id=1, attempt=1, commit=self.base, proven="run", trusted="ancestor", entry=0,
            )
            for n in range(1, self.frozen_points + 1)
        )  # fmt: skip
        verdict = baselines.Verdict(benchmark="codecs", family=FAMILY, verdict="verified", points=points)
        self.bundle.write_bytes(msgspec.json.encode({"verdict": verdict}))

    @property
    def digest(self) -> str:
        return f"sha256:{hashlib.sha256(self.bundle.read_bytes()).hexdigest()}"

    # -- the world

    def mirror(self) -> None:
        """Let the world see the branches that git has."""
        now = {ref: oid for ref, oid in self.git.refs().items() if ref.startswith("refs/heads/")}
        for ref in set(self.world.state.refs) | set(now):
            if not ref.startswith("refs/heads/") or self.world.state.refs.get(ref) == now.get(ref):
                continue
            if ref in now:
                for line in self.git.git("rev-list", "--parents", now[ref]).splitlines():
                    oid, *parents = line.split()
                    thing = memory_world.GitObject(
                        b"work", tuple(parents), f"tree {oid}", self.world.bot, self.world.bot
                    )
                    self.world.state.objects.setdefault(oid, thing)
            self.world.move_ref(ref, now.get(ref), by=self.world.bot)

    def human_push(self, branch_ref: str) -> str:
        """Let a person push one commit on a branch."""
        head = self.git.refs()[branch_ref]
        oid = self.git.commit("a person's work", head, tree=self.git.git("rev-parse", f"{head}^{{tree}}"))
        self.git.set(branch_ref, oid)
        thing = memory_world.GitObject(b"theirs", (head,), "tree theirs", self.world.alice, self.world.alice)
        self.world.state.objects[oid] = thing
        self.world.move_ref(branch_ref, oid, by=self.world.alice)
        return oid

    def final_runs(self) -> list[hub.Run]:
        runs = self.world.state.runs.values()
        return [one for one in runs if one.path.endswith("bench-final.yml")]

    def complete_final(
        self, conclusion: str = "success", *, points: int | None = None, image: str = "codecs:v2"
    ) -> int:
        """Let the newest final run end, with results for ``points`` points."""
        newest = self.final_runs()[-1]
        count = self.frozen_points if points is None else points
        rows = [
            {"model": "zlib", "streams": n, "image": image, "metrics": {"mb_per_s": 20.0}} for n in range(1, count + 1)
        ]
        self.put_results(newest.id, json.dumps(rows).encode())
        self.world.finish_run(newest.id, conclusion)
        return newest.id

    def put_results(self, run_id: int, data: bytes, name: str = "results.json") -> None:
        put_artifact(self.world, run_id, packed_results(data, name))

    # -- klaud

    def refs_store(self, place: Path | None = None, shallow: frozenset[str] = frozenset()) -> MirroredRefs:
        objects = self.stack.enter_context(folder.objects_of(place)) if place is not None else None
        real = refs.GitRefStore(
            url=self.git.url, token=TOKEN, identity=refs.Identity("klaud", "90001+klaud@users.noreply.github.com"),
            clock=self.world.clock, object_store=objects, shallow=shallow,
        )  # fmt: skip
        return MirroredRefs(real, self)

    def lease_store(self, store: ports.RefStore) -> stores.LeaseStore:
        return stores.LeaseStore(
            refs=store, names=self.names, repository="acme/bench", clock=self.world.clock, key=b"record-key"
        )

    def holder(self, run_id: int) -> leases.Holder:
        return leases.Holder(run_id=run_id, attempt=1, job="session", nonce=f"{run_id:016x}")

    def host(self, run_id: int = 7002) -> run.Host:
        store = self.refs_store()
        policy = schema.plan(baselines.Policy(name="codecs", identity=IDENTITY))
        settling = finish.World(
            gateway=self.gateway, refs=store, store=self.lease_store(store), names=self.names, repository="acme/bench",
            host="github.com", clock=self.world.clock, policy=self.policy, workflows=self.workflows,
            who=rules_touch.Who(bot=90001), plan=policy, frozen=lambda digest: evidence.load(self.bundle, digest),
            log=self.log.append,
        )  # fmt: skip
        loaded = evidence.load(self.bundle, None)
        return run.Host(
            settling=settling, holder=self.holder(run_id), identity=("klaud", "90001+klaud@users.noreply.github.com"),
            git_url=self.git.url, token=TOKEN, open_refs=self.refs_store, open_store=self.lease_store,
            target=tools.Target(workflows=self.workflows, scope=self.scope, points=loaded.points),  # type: ignore[union-attr]
            paused=lambda: self.paused, cancelled=lambda: self.cancelled, environ=self.environ,
        )  # fmt: skip

    def claim(self, *, planner_run: int = 7001) -> str:
        """Let the planner claim the family; return the claim's oid."""
        record = leases.Claim(
            at=self.world.clock.now(), wave=WAVE, candidate=self.candidate, family=FAMILY, base=self.base,
            holder=self.holder(planner_run),
        )  # fmt: skip
        answer = self.lease_store(self.refs_store()).take_claim(record)
        assert isinstance(answer, stores.Won)
        return answer.held.oid

    def brief(self, claim: str, **changes: Any) -> model.Brief:
        brief = model.Brief(
            wave=WAVE, candidate=self.candidate, family=FAMILY, base=self.base, benchmark="codecs", subject=SUBJECT,
            change={"image": "codecs:v2"}, bundle=self.digest, claim=claim,
        )  # fmt: skip
        return msgspec.structs.replace(brief, **changes)

    def run(self, brief: model.Brief, *, run_id: int = 7002, claim: str = "") -> run.SessionEnd:
        self.folders += 1
        place = self.place / f"session-{self.folders}"
        place.mkdir(mode=0o711)
        return run.run_session(self.host(run_id), brief, folder=place, claim=claim)

    def script(self, script: dict[str, Any]) -> None:
        """Let the scripted agent follow ``script``."""
        path = self.place / f"script-{len(list(self.place.glob('script-*')))}.json"
        path.write_text(json.dumps(script), encoding="utf-8")
        self.policy = msgspec.structs.replace(self.policy, script=str(path))

    def ledger(self) -> tuple[leases.LedgerRecord, ...]:
        found = self.lease_store(self.refs_store()).look(self.names.session(WAVE, self.candidate))
        assert isinstance(found, leases.Ledger)
        return found.records

    def view(self) -> rules_ledger.View:
        return rules_ledger.read(self.ledger())

    def claim_now(self) -> leases.Claim | None:
        found = self.lease_store(self.refs_store()).look(self.names.claim(names.short_id(FAMILY)))
        if found is None:
            return None
        assert isinstance(found, leases.Held)
        assert isinstance(found.record, leases.Claim)
        return found.record

    def klaud_refs(self) -> set[str]:
        return {ref for ref in self.git.refs() if ref.startswith(("refs/klaud/", "refs/heads/klaud/"))}


@contextlib.contextmanager
def bench(place: Path) -> Iterator[Bench]:
    """Make one, and close it."""
    root = place / "host"
    root.mkdir()
    with contextlib.ExitStack() as stack:
        git = stack.enter_context(githttp.serve(root, token=TOKEN))
        world = memory_world.World()
        yield Bench(place=place, git=git, world=world, stack=stack)
