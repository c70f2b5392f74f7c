"""Four sessions of the vendor's real program in one wave on a served hub, each with a scripted model.

The planner's verbs are real processes, and so is each candidate run: the hub starts ``klaud session`` and ``klaud finish``
in a clone, as the candidate workflow does. The agent is the program that claude-agent-sdk bundles; what the model says is
scripted on loopback. Smoke and final runs measure the demo's codecs for real: a wrong setting fails by itself.

==========  ========================================================================
validated   edits, pushes, opens the draft, starts the final run
handoff     a maintainer sets the hand-off label while a command of the agent's runs
repaired    a setting that does not exist: its smoke run fails while it is parked
budget      a model whose answers cost 90 cents each; two dollars are allowed
==========  ========================================================================
"""

from __future__ import annotations

import contextlib
import dataclasses
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import msgspec

from klaud import clock as clocks
from klaud import names
from klaud.cli import demo_world
from klaud.fakehub.jobs import Command
from klaud.github import refs, rest
from klaud.leases import model as leases
from klaud.leases import store as stores
from tests.support import messages_api, served

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from klaud.fakehub.jobs import JobContext

FAMILIES = {"validated": "bz2-text", "handoff": "lzma-json", "repaired": "zlib-text", "budget": "bz2-json"}
"""What each session is there to show, and the family it works on."""
WAIT_SECONDS = 120.0
"""For runs of the hub to end: a session of the real program takes some seconds."""
RUN_SECONDS = 100.0
"""One verb of a candidate run at most."""
DOLLARS = 2
DEAR = {"input_tokens": 60_000, "output_tokens": 100}
"""What an answer of the dear model uses: 90 cents' worth."""


def use(name: str, **arguments: Any) -> list[dict[str, Any]]:
    """Return a reply that asks for a tool of the program's own."""
    return [{"type": "tool_use", "name": name, "input": arguments}]


def ours(name: str, **arguments: Any) -> list[dict[str, Any]]:
    """Return a reply that asks for a tool of klaud's."""
    return use(f"mcp__klaud__{name}", **arguments)


def say(text: str) -> list[dict[str, Any]]:
    """Return a reply that ends the turn."""
    return [{"type": "text", "text": text}]


def edit(family: str, before: str, after: str) -> list[dict[str, Any]]:
    """Return a reply that changes a family's image in the work tree and commits that."""
    change = f"sed -i '/^{family}:/,/image:/s/{before}/{after}/' {demo_world.CONFIG_FILE}"
    command = f"{change} && git commit -q -a -m 'Use {after}'"
    return use("Bash", command=command, description="edit and commit")


def waits(said: str) -> list[dict[str, Any]]:
    """Return a reply that waits for the run that the newest answer names."""
    return ours("wait_for_run", run_id=int(said.split("run_id=")[1].split(maxsplit=1)[0]))


@dataclasses.dataclass
class Told:
    """What one candidate run was: its verbs' statuses and output, and what its model was shown first."""

    run: int
    statuses: tuple[int, ...] = ()
    output: str = ""
    first: str = ""
    asked: int = 0


@dataclasses.dataclass
class Shown:
    """One session at the end of the game."""

    name: str
    candidate: str
    told: list[Told]
    records: tuple[leases.LedgerRecord, ...]
    draft: tuple[str, bool, tuple[str, ...]] | None
    """State, whether it is a draft, and labels."""

    @property
    def outcome(self) -> leases.Outcome | None:
        """The newest outcome on record."""
        return next((one for one in reversed(self.records) if isinstance(one, leases.Outcome)), None)


class Game:
    """The hub with its handlers, and the scripted models."""

    def __init__(self, world: served.World, out: Path) -> None:
        """``out``: where the wave's files go."""
        self.world = world
        self.out = out
        self.told: dict[str, list[Told]] = {name: [] for name in FAMILIES}
        self.names: dict[str, str] = {}
        self.parked, self.handed = threading.Event(), threading.Event()
        self.hand = rest.RestGateway(
            repository=served.REPOSITORY, token=demo_world.PERSON_TOKEN, api_url=world.url, clock=clocks.SystemClock()
        )
        job = (sys.executable, "tools/job.py")
        told = (
            "--run-url",
            f"https://github.com/{served.REPOSITORY}/actions/runs/${{{{ github.run_id }}}}",
            "--date",
            "2026-01-02",
        )
        final = Command((*job, "final", *told), checkout=True, artifacts={"benchmark-results": "results"})
        world.hub.handlers |= {
            "klaud-candidate.yml": self._candidate, "bench-final.yml": {"final": final}, "bench-smoke.yml": self._smoke,
        }  # fmt: skip

    # -- what runs on the hub

    def _smoke(self, job: JobContext) -> str:
        """Measure one family; a repaired session's first one takes until that session is parked."""
        family = job.inputs["family"]
        if family == FAMILIES["repaired"]:
            self.parked.wait(WAIT_SECONDS)
        url = f"https://github.com/{served.REPOSITORY}/actions/runs/{job.run.id}"
        done = subprocess.run(
            [sys.executable, "tools/job.py", "smoke", "--families", family, "--run-url", url, "--date", "2026-01-02"],
            cwd=job.checkout(), check=False, capture_output=True, text=True, timeout=RUN_SECONDS,
        )  # fmt: skip
        job.job.summary += done.stderr[-400:]
        return "failure" if done.returncode else "success"

    def _candidate(self, job: JobContext) -> str:
        """Do what the candidate workflow does: ``klaud session``, then ``klaud finish``."""
        if not self.handed.wait(WAIT_SECONDS):
            return "failure"
        candidate = job.inputs["candidate"]
        name = self._name(candidate)
        told = Told(job.run.id)
        self.told[name].append(told)
        place = job.workspace / "kept"
        place.mkdir()
        which = ("--wave", job.inputs["wave"], "--candidate", candidate, "--out", str(job.workspace / "klaud-wave"))
        session = ("session", *which, "--claim", job.inputs["claim"], "--report", str(place / "session.json"))
        finish = ("finish", *which, "--report", str(place / "finish.json"))
        with messages_api.serve(self._replies(name, len(self.told[name]))) as api:
            if name == "handoff":
                api.before = self._take_over
            elif name == "budget":
                api.usage = DEAR
            key = {"ANTHROPIC_API_KEY": messages_api.KEY, "ANTHROPIC_BASE_URL": api.url}
            for verb, more in ((session, key), (finish, {})):
                environ = {**self.world.environ(job.run.id, GITHUB_JOB="session"), **more}
                done = subprocess.run(
                    [sys.executable, "-m", "klaud", *verb], cwd=self.world.clone, env=environ, check=False,
                    capture_output=True, text=True, timeout=RUN_SECONDS,
                )  # fmt: skip
                told.statuses += (done.returncode,)
                told.output += done.stdout + done.stderr
            told.first, told.asked = (api.firsts or [""])[0], api.asked
        for kept in sorted(place.iterdir()):
            told.output += kept.read_text(encoding="utf-8", errors="replace")
        if name == "repaired":
            self.parked.set()
        return "success"

    def _name(self, candidate: str) -> str:
        if candidate not in self.names:
            brief = msgspec.json.decode((self.out / f"candidate-{candidate}.json").read_bytes())
            key = names.split_family(brief["family"])[1]
            self.names[candidate] = next(name for name, family in FAMILIES.items() if family == key)
        return self.names[candidate]

    def _replies(self, name: str, turn: int) -> list[Any]:
        family = FAMILIES[name]
        if name == "budget":
            return [use("Bash", command="true", description="nothing")] * 50
        if name == "handoff":
            waiting = use("Bash", command="tail -f /dev/null", description="think")
            return [
                edit(family, "balanced", "fast"),
                ours("push_work"),
                ours("open_draft", title=f"{family}: fast"),
                waiting,
            ]
        if name == "validated":
            return [
                edit(family, "balanced", "small"), ours("push_work"), ours("open_draft", title=f"{family}: small"),
                ours("start_final_run"), say("The final run was started."),
            ]  # fmt: skip
        if turn == 1:
            return [
                edit(family, "balanced", "extreme"), ours("push_work"), ours("open_draft", title=f"{family}: extreme"),
                ours("report_attempt", what="change", result="unclear"), ours("dispatch_smoke"), waits,
                say("The session is parked."),
            ]  # fmt: skip
        return [
            self._read_the_failed_run, edit(family, "extreme", "small"), ours("push_work"),
            ours("dispatch_smoke", retry="repair"), waits, ours("start_final_run"), say("Repaired, and started."),
        ]  # fmt: skip

    def _read_the_failed_run(self, _said: str) -> list[dict[str, Any]]:
        """Read the run that the continued agent is told of."""
        with self.world.hub.lock:
            runs = self.world.hub.repository(served.REPOSITORY).runs.values()
            smoke = [run.id for run in runs if run.path.endswith("bench-smoke.yml")]
        return ours("read_run", run_id=smoke[0])

    def _take_over(self, number: int) -> None:
        """Let a maintainer set the label while the agent's last command runs."""
        if number == len(self._replies("handoff", 1)) - 1:
            with self.world.hub.lock:
                drafts = self.world.hub.repository(served.REPOSITORY).issues.values()
                (draft,) = [one.number for one in drafts if one.pull is not None and FAMILIES["handoff"] in one.title]
            self.hand.add_labels(draft, [names.HANDOFF_LABEL])

    # -- the planner's runs

    def play(self) -> None:
        """Run a wave, let its sessions go as far as they come, sweep, continue, sweep."""
        families = [
            text for key in FAMILIES.values() for text in ("--family", names.family_text(demo_world.CONFIG_FILE, key))
        ]
        self._verb(1, "wave", "--out", str(self.out), *families)
        with self.world.hub.lock:
            run = self.world.hub.repository(served.REPOSITORY).runs[served.OWN_RUNS[0]]
            self.world.hub.actions.publish(
                run, "klaud-wave-1", {one.name: one.read_bytes() for one in self.out.iterdir()}
            )
        self.handed.set()
        self._quiet()
        for number in (2, 3):
            place = self.out.with_name(f"{self.out.name}-{number}")
            self._verb(number, "recover", "--out", str(place))
            self._verb(number, "dispatch", "--out", str(place), "--parked-only")
            self._quiet()

    def _verb(self, number: int, *argv: str) -> None:
        done = self.world.run(*argv, environ=self.world.environ(served.OWN_RUNS[min(number, 2) - 1]))
        if done.status:
            raise AssertionError(argv, done.out, done.err)

    def _quiet(self) -> None:
        if not self.world.hub.wait_for_runs(WAIT_SECONDS):
            message = "the hub's runs did not end"
            raise AssertionError(message)

    # -- what came of it

    def shown(self) -> list[Shown]:
        """Return each session, as hub and ledger tell it."""
        git = refs.GitRefStore(
            url=f"{self.world.url}/{served.REPOSITORY}.git", token=demo_world.BOT_TOKEN, clock=clocks.SystemClock(),
            identity=refs.Identity("klaud-bot", "90001+klaud-bot@users.noreply.github.com"),
        )  # fmt: skip
        store = stores.LeaseStore(
            refs=git, names=names.RefNames(), repository=served.REPOSITORY, clock=clocks.SystemClock(), key=None
        )
        found = store.snapshot().ledgers.values()
        ledgers = {one.records[0].candidate: one for one in found if isinstance(one, leases.Ledger)}  # type: ignore[union-attr]
        order = list(FAMILIES)
        return [
            Shown(name, candidate, self.told[name], ledgers[candidate].records, self._draft(ledgers[candidate]))
            for candidate, name in sorted(self.names.items(), key=lambda pair: order.index(pair[1]))
        ]

    def _draft(self, ledger: leases.Ledger) -> tuple[str, bool, tuple[str, ...]] | None:
        numbers = [
            one.number for one in ledger.records if isinstance(one, leases.Effected) and one.effect == "open-draft"
        ]
        if not numbers or numbers[0] is None:
            return None
        pull = self.hand.pull(numbers[0])
        return (pull.state, pull.draft, pull.labels)  # type: ignore[union-attr]


@contextlib.contextmanager
def game(folder: Path) -> Iterator[Game]:
    """Serve the world below ``folder``, which the agent's own user must be able to pass through."""

    def configuration(config: dict[str, Any], _url: str) -> dict[str, Any]:
        session = {
            **config["session"], "framework": "claude_sdk", "heartbeat-seconds": 0.5, "wait-run-seconds": 3,
            "budgets": {"dollars": DOLLARS}, "linger-seconds": 5,
        }  # fmt: skip
        return {**config, "session": session}

    with served.world(folder, mess=False, configuration=configuration) as world:
        yield Game(world, folder / "wave")


def line(record: leases.LedgerRecord) -> str:
    """Return one record on a line: its kind, and what it says (oids cut)."""
    fields: Mapping[str, Any] = msgspec.to_builtins(record)
    hidden = {
        "kind",
        "klaud",
        "at",
        "holder",
        "base",
        "wave",
        "bundle",
        "subject",
        "ref",
        "digest",
        "candidate",
        "framework",
    }
    told = []
    for key, value in fields.items():
        if key in hidden or value is None or value is False or (hasattr(value, "__len__") and not value):
            continue
        cut = 12 if key in {"oids", "oid", "head", "agent_session"} else 80
        parts = [_short(one)[:cut] for one in (value if isinstance(value, list | tuple) else [value])]
        told.append(f"{key}={','.join(parts)}")
    return f"{fields['kind']:13} {' '.join(told)}"


def _short(value: Any) -> str:
    return "/".join(str(one) for one in value.values() if one is not None) if isinstance(value, dict) else str(value)
