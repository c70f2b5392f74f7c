"""klaud killed by SIGKILL at each write of a session, for real; then a sweep, and what stands on the hub.

One wave is planned once, with the real verbs; each round runs ``klaud session`` as a child process on the same state of a
served hub and kills it while the hub holds its k-th write (which is then carried out, and nobody hears the answer). Its
run then ends, the benchmark's own runs end, and recovery sweeps until nothing moves. The judge reads the hub only.
"""

from __future__ import annotations

import contextlib
import dataclasses
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from klaud import names
from klaud.cli import demo_world
from klaud.fakehub.jobs import Command
from tests.support import agent_faults, served, session_wave

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from klaud.fakehub.hub import LogEntry

FAMILY = "zlib-text"
SWEEPS = 3
"""After a session's end: one finds, one settles what the first one had to wait for, one shows that nothing is left."""
EFFECTS = {
    "draft": "POST */pulls",
    "smoke run": "POST */dispatches",
    "final label": "POST */labels",
    "comment": "POST */comments",
}


@dataclasses.dataclass(frozen=True)
class Round:
    """What came of one round. ``at``: what the hub was asked when klaud died."""

    at: str
    killed: bool
    effects: dict[str, int]
    left: tuple[str, ...]
    """Claims, leases, going runs and processes that are left at the end."""
    draft: str
    """How the draft stands, ``none`` where there is none."""

    @property
    def faults(self) -> list[str]:
        """What must never be true; empty when all is well."""
        twice = [f"{count} times {name}" for name, count in self.effects.items() if count > 1]
        return [*twice, *(f"left: {one}" for one in self.left)]


class Game:
    """The hub after a wave in which no candidate run has begun."""

    def __init__(self, world: served.World, out: Path) -> None:
        """Plan the wave into ``out``."""
        self.world = world
        self.out = out
        self.scratch = world.folder / "scratch"
        """Where agents work: a process that is left is known by it."""
        self.scratch.mkdir(mode=0o755)
        self.hub = world.hub
        self.repository = world.hub.repository(served.REPOSITORY)
        family = names.family_text(demo_world.CONFIG_FILE, FAMILY)
        done = world.run("wave", "--out", str(out), "--family", family)
        if done.status:
            raise AssertionError(done.out, done.err)
        (self.run,) = [run for run in self.repository.runs.values() if run.path.endswith("klaud-candidate.yml")]
        told = ("--run-url", f"https://github.com/{served.REPOSITORY}/actions/runs/${{{{ github.run_id }}}}",
                "--date", "2026-01-02")  # fmt: skip
        job = (sys.executable, "tools/job.py")
        final = Command((*job, "final", *told), checkout=True, artifacts={"benchmark-results": "results"})
        smoke = Command((*job, "smoke", "--families", FAMILY, *told), checkout=True)
        self.hub.handlers |= {"bench-final.yml": {"final": final}, "bench-smoke.yml": smoke}
        files = {one.name: one.read_bytes() for one in out.iterdir()}
        self.hub.actions.publish(self.repository.runs[served.OWN_RUNS[0]], "klaud-wave-1", files)

    @contextlib.contextmanager
    def restored(self) -> Iterator[None]:
        """Put refs, runs and pull requests back afterwards."""
        refs, runs, issues = self.world.refs(), set(self.repository.runs), set(self.repository.issues)
        with self.hub.lock:
            self.hub.actions.set_status(self.repository, self.run, "in_progress")
        yield
        with self.hub.lock:
            now = self.world.refs()
            changed = {ref: refs.get(ref) for ref in {*refs, *now} if refs.get(ref) != now.get(ref)}
            self.hub.git(served.REPOSITORY).set_refs(changed)
            for number in set(self.repository.runs) - runs:
                del self.repository.runs[number]
            for number in set(self.repository.issues) - issues:
                del self.repository.issues[number]

    def play(self, kill: int) -> Round:
        """Run the session and kill it at its ``kill``-th write (from 1); 0: never."""
        with self.restored():
            first, writes, at = len(self.hub.log), 0, []
            session = [
                sys.executable,
                "-m",
                "klaud",
                "session",
                "--brief",
                self._brief(),
                "--claim",
                self.run.inputs["claim"],
            ]
            child = subprocess.Popen(
                session, cwd=self.world.clone,
                env=self.world.environ(self.run.id, GITHUB_JOB="session", TMPDIR=str(self.scratch)),
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip

            def held(entry: LogEntry) -> None:
                nonlocal writes
                writes += 1
                if writes == kill:
                    at.append(entry)
                    child.kill()
                    child.wait()

            self.hub.before_call(
                lambda entry: entry.write and entry.number > first and child.poll() is None, held, times=None
            )
            try:
                child.wait(session_wave.RUN_SECONDS)
            finally:
                self.hub._before.clear()
            self.hub.wait_for_runs(session_wave.WAIT_SECONDS)
            with self.hub.lock:
                self.hub.actions.set_status(self.repository, self.run, "completed", "failure")
            for number in range(SWEEPS):
                swept = self.world.run("recover", "--out", str(self.out.with_name(f"swept-{number}")),
                                       environ=self.world.environ(served.OWN_RUNS[1]))  # fmt: skip
                if swept.status:
                    raise AssertionError(swept.out, swept.err)
                self.hub.wait_for_runs(session_wave.WAIT_SECONDS)
            return self._judged(first, at[0] if at else None, len(swept.writes))

    def _brief(self) -> str:
        return str(self.out / f"candidate-{self.run.inputs['candidate']}.json")

    def _judged(self, first: int, at: LogEntry | None, last_writes: int) -> Round:
        with self.hub.lock:
            log = self.hub.log[first:]
            done = [entry for entry in log if entry.write and entry.status < 300]
            effects = {name: sum(_is(entry, pattern) for entry in done) for name, pattern in EFFECTS.items()}
            left = [ref for ref in self.world.refs() if ref.startswith(("refs/klaud/claims/", "refs/klaud/leases/"))]
            left += [f"run {run.id}" for run in self.repository.runs.values()
                     if run.status != "completed" and run.id not in served.OWN_RUNS]  # fmt: skip
            drafts = [
                issue for issue in self.repository.issues.values() if issue.pull is not None and FAMILY in issue.title
            ]
        left += [f"process {pid}" for pid in agent_faults.strays(self.scratch)]
        left += [f"{last_writes} writes of the last sweep"] if last_writes else []
        draft = "".join(f"{one.state}{' draft' if one.pull.draft else ''}" for one in drafts) or "none"  # type: ignore[union-attr]
        return Round(_words(at), at is not None, effects, tuple(left), draft)


def _is(entry: LogEntry, pattern: str) -> bool:
    method, _, end = pattern.partition(" *")
    return entry.method == method and entry.path.endswith(end)


def _words(entry: Any) -> str:
    if entry is None:
        return "not killed"
    if entry.updates:
        kinds = {
            ref.split("/")[2] if ref.startswith("refs/klaud/") else "branch"
            for ref in (one.ref for one in entry.updates)
        }
        return f"push of {', '.join(sorted(kinds))}"
    return f"{entry.method} {entry.path.removeprefix('/repos/' + served.REPOSITORY)}"


@contextlib.contextmanager
def game(folder: Path) -> Iterator[Game]:
    """Serve the world below ``folder``."""
    with served.world(folder, mess=False) as world:
        yield Game(world, folder / "wave")
