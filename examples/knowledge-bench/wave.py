# ruff: noqa: INP001 - scripts, not a package
"""A planner wave that encodes the example's database, on the embedded GitHub of this machine.

    python wave.py [--fault FAULT] [--out DIRECTORY]

The repository has the inputs, the agent without a model, klaud's configuration and three workflows. A planner run finds that
``shop`` has no reference, claims it and starts its candidate run; that encodes, commits the reference, opens a draft and
starts its validation; the wave goes on until the session is settled. With a fault (see ``agent.py``) nothing can be encoded
and the session fails. Everything goes over real HTTP and git, in child processes; no network, no account.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from klaud import clock, fakehub
from klaud.fakehub import scene as scenes
from klaud.github import rest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

REPOSITORY = "acme/knowledge"
HERE = Path(__file__).resolve().parent
BOT_TOKEN, PERSON_TOKEN = "made-up-token-of-the-bot", "made-up-token-of-a-maintainer"
RUN_SECONDS = 240.0
"""One planner run at most: it takes a tenth of that."""

PLAN = """\
name: klaud plan
on:
  workflow_dispatch: {inputs: {verb: {description: wave or recover, type: string, default: wave}}}
permissions: {}
jobs: {plan: {runs-on: ubuntu-latest, permissions: {contents: read}, steps: [{run: exec klaud wave --until-quiet}]}}
"""
CANDIDATE = """\
name: klaud candidate
run-name: klaud candidate ${{ inputs.candidate }} [klaud ${{ inputs.wave }}-${{ inputs.candidate }}]
on:
  workflow_dispatch:
    inputs:
      wave: {description: the wave, required: true, type: string}
      candidate: {description: the candidate, required: true, type: string}
      claim: {description: the claim's object id, required: true, type: string}
permissions: {}
jobs: {session: {runs-on: ubuntu-latest, permissions: {contents: read}, steps: [{run: exec klaud session}]}}
"""
CHECK = """\
name: check references
on: {pull_request: {types: [labeled]}}
permissions: {}
jobs:
  check:
    if: github.event.label.name == 'check-references'
    runs-on: ubuntu-latest
    permissions: {contents: read}
    steps: [{run: exec klaud check-references --benchmark bench --data data --references references}]
"""


@dataclasses.dataclass(frozen=True)
class Story:
    """What is in the repository. ``databases``: name -> the items of its knowledge base, None for all of the example's.

    ``fault``: of the agent. ``offers``: lines of a candidate source; none: databases without a reference are found.
    """

    databases: Mapping[str, set[int] | None] = dataclasses.field(default_factory=lambda: {"shop": None})
    fault: str = ""
    offers: tuple[dict[str, Any], ...] = ()


def configuration(story: Story) -> str:
    """Return klaud's configuration (JSON is YAML)."""
    sources = {"sources": [{"file": "candidates.jsonl"}]} if story.offers else {}
    told: dict[str, Any] = {
        "bot": 90001,
        "bot-login": "klaud-bot",
        "planner": {"dispatch-interval-seconds": 1, "until-quiet-rounds": 60, "until-quiet-seconds": 3},
        "session": {"isolation": "best-effort", "poll-seconds": 0.3},
        "encoder": {"attempts": 2},
        "references": [
            {
                "name": "bench",
                "data": "data",
                "directory": "references",
                "options": {"framework": "scripted"},
                **sources,
                "program": ["{python}", "-I", "-S", "{root}/agent.py", *([story.fault] if story.fault else [])],
                "workflows": {"final": "check-references.yml", "final-label": "check-references"},
            }
        ],
    }
    return json.dumps(told, indent=2)


def scene(out: Path, story: Story) -> dict[str, Any]:
    """Return the embedded GitHub's scene: accounts, and what each workflow's job does."""
    klaud = '"$PYTHON" -m klaud'
    brief = f'"{out}/candidate-$CANDIDATE.json"'
    session = (
        f'{klaud} session --brief {brief} --claim "$CLAIM" --report "{out}/session-$CANDIDATE.json" && '
        f'exec {klaud} finish --wave "$WAVE" --candidate "$CANDIDATE" --brief {brief}'
    )
    plan = f'if [ "$VERB" = recover ]; then exec {klaud} recover --out "{out}/again"; fi; '
    plan += f'exec {klaud} wave --until-quiet --out "{out}"'
    check = f"exec {klaud} check-references --benchmark bench --data data --references references"
    python = {"PYTHON": sys.executable}
    inputs = {name.upper(): f"${{{{ inputs.{name} }}}}" for name in ("wave", "candidate", "claim")}
    return {
        "scene": 1,
        "title": "a repository with a database and no reference",
        "repository": {"name": REPOSITORY},
        "accounts": [
            {"login": "klaud-bot", "id": 90001, "type": "Bot", "role": "write"},
            {"login": "mira", "id": 90003, "role": "admin"},
        ],
        "tokens": [{"value": BOT_TOKEN, "account": "klaud-bot"}, {"value": PERSON_TOKEN, "account": "mira"}],
        "labels": ["klaud-handoff", "check-references"],
        "commits": [{"name": "first", "files": {"README.md": "Knowledge.\n"}, "author": "mira", "date": "-2d"}],
        "branches": {"main": "first"},
        "workflows": {
            "klaud-plan.yml": {
                "command": ["sh", "-c", plan], "env": {**python, "VERB": "${{ inputs.verb }}"},
                "token": BOT_TOKEN, "checkout": True,
            },
            "klaud-candidate.yml": {
                "jobs": {
                    "session": {
                        "command": ["sh", "-c", session], "env": {**python, **inputs}, "token": BOT_TOKEN,
                        "checkout": True,
                        "artifacts": {
                            f"klaud-reference.bench.{name}.sqlite": f"klaud-references/bench/{name}"
                            for name in story.databases
                        },
                    }
                }
            },
            "check-references.yml": {"command": ["sh", "-c", check], "env": python, "checkout": True},
        },
    }  # fmt: skip


def files(story: Story) -> dict[str, str | bytes]:
    """Return what the maintainer commits: inputs, agent, configuration, workflows."""
    sys.path.insert(0, str(HERE))
    try:
        import make  # noqa: PLC0415 - beside this file
    finally:
        sys.path.remove(str(HERE))
    found: dict[str, str | bytes] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, ids in story.databases.items():
            place = make.make(Path(folder) / "data", name, ids)
            found |= {f"data/{name}/{path.name}": path.read_bytes() for path in place.iterdir()}
    if story.offers:
        found["candidates.jsonl"] = "".join(json.dumps(one) + "\n" for one in story.offers)
    found["agent.py"] = (HERE / "agent.py").read_text(encoding="utf-8")
    found[".github/klaud.yml"] = configuration(story)
    for name, text in (("klaud-plan", PLAN), ("klaud-candidate", CANDIDATE), ("check-references", CHECK)):
        found[f".github/workflows/{name}.yml"] = text
    return found


@dataclasses.dataclass
class World:
    """The served hub, its address, where the wave's files go, and a maintainer's hand to start runs with."""

    hub: fakehub.Hub
    url: str
    out: Path
    hand: rest.RestGateway

    def run(self, verb: str = "wave") -> Any:
        """Start the planner workflow and wait until its run has ended; return the run."""
        run_id = self.hand.dispatch("klaud-plan.yml", "main", {"verb": verb}).run_id
        assert run_id is not None  # noqa: S101 - the embedded GitHub names the run that it started
        end = time.monotonic() + RUN_SECONDS
        while time.monotonic() < end:
            with self.hub.lock:
                run = self.hub.repository(REPOSITORY).runs[run_id]
                if run.status == "completed":
                    return run
            time.sleep(0.1)  # real processes are at work: look again, to a deadline
        message = f"the planner run did not end within {RUN_SECONDS:g} s"
        raise TimeoutError(message)

    def refs(self, below: str) -> dict[str, str]:
        """Return the refs below a prefix."""
        found = self.hub.git(REPOSITORY).refs()
        return {name: oid for name, oid in dict(found).items() if name.startswith(below)}


@contextlib.contextmanager
def world(folder: Path, story: Story) -> Iterator[World]:
    """Serve the repository; ``folder`` must be empty or absent."""
    out = folder / "wave"
    out.mkdir(parents=True)
    hub = scenes.build(scenes.Scene(scene(out, story)), folder / "hub")
    with hub, fakehub.serve(hub) as server:
        hub.commit(REPOSITORY, "main", files(story), message="Let klaud encode", author="mira")
        hand = rest.RestGateway(
            repository=REPOSITORY, token=PERSON_TOKEN, api_url=server.url, clock=clock.SystemClock()
        )
        with contextlib.closing(hand):
            yield World(hub, server.url, out, hand)


def told(it: World) -> Iterator[str]:
    """Yield how things stand: pull requests, runs, refs, and how the session ended."""
    repository = it.hub.repository(REPOSITORY)
    for issue in repository.issues.values():
        if issue.pull is not None:
            yield f"#{issue.number} {issue.title}: {issue.state}, {'draft' if issue.pull.draft else 'ready'}"
    for run in repository.runs.values():
        yield f"run {run.id} {run.path.rpartition('/')[2]}: {run.status} {run.conclusion}"
    for head in ("claims", "leases", "sessions"):
        yield f"refs/klaud/{head}: {len(it.refs(f'refs/klaud/{head}/'))}"
    for path in sorted(it.out.glob("session-*.json")):
        said = json.loads(path.read_text(encoding="utf-8"))
        counts = said.get("reference", {}).get("counts", {})
        words = [said["end"], said.get("outcome", ""), said.get("code", "")]
        yield f"{' '.join(word for word in words if word)}: {', '.join(f'{n} {word}' for word, n in counts.items())}"
        yield from (f"  {text}" for text in said.get("items", ()))
    recovery = json.loads((it.out / "recovery.json").read_text(encoding="utf-8"))
    for one in recovery["sessions"]:
        yield f"session {one['session']}: row {one['row']}, {one['state']}; {'; '.join(one['done'])}"


def main() -> None:
    """Run one wave and say what came of it."""
    parser = argparse.ArgumentParser(prog="wave")
    parser.add_argument("--fault", default="", help="a mistake of the agent, see agent.py")
    parser.add_argument("--out", type=Path, help="a folder to keep, empty or absent")
    args = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = args.out or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="klaud-knowledge-")))
        it = stack.enter_context(world(folder.absolute(), Story(fault=args.fault)))
        run = it.run()
        for line in told(it):
            sys.stdout.write(f"{line}\n")
        if run.conclusion != "success":
            sys.exit(1)


if __name__ == "__main__":
    main()
