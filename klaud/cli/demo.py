"""``klaud demo``: one whole wave for real, with no account, no token and no network.

An embedded GitHub is started on this machine's loopback, with a small benchmark repository and the mess that dead
sessions left in it. A planner run then sweeps, plans, proves baselines, claims and dispatches; each candidate is a real
child process over real HTTP and real git. At the end it says what happened, and a second sweep shows that nothing is
left to do.

With ``--agent claude`` the vendor's agent does the work: it needs the extra ``agent``, a key, the network, and costs money.
The key is handed to the sessions' own processes and to nothing else; nothing of it is written.
"""

from __future__ import annotations

import contextlib
import enum
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from klaud import errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from klaud import fakehub
    from klaud.github import rest

RUN_SECONDS = 240
"""One planner run of the demo at most: it takes a fifth of that on two slow cores."""

AGENT_RUN_SECONDS = 3600
"""The same with a real agent, whose sessions take minutes each."""

LOOK_SECONDS = 0.2
"""Between two looks at the runs: only how soon a line of progress is shown."""


class Agent(enum.StrEnum):
    """Who does the work of the demo's sessions."""

    SCRIPTED = "scripted"
    CLAUDE = "claude"


def demo(
    out: Annotated[Path, typer.Option("--out", help="Where to write reports, selection and briefs.")] = Path(".demo"),
    keep: Annotated[bool, typer.Option("--keep", help="Leave the server up at the end, to look around.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No lines of progress.")] = False,
    agent: Annotated[
        Agent, typer.Option("--agent", help="claude: the vendor's agent; needs a key, the network, and costs money.")
    ] = Agent.SCRIPTED,
) -> None:
    """Run one whole wave on an embedded GitHub, on this machine alone."""
    for needed, package in (("werkzeug", "Werkzeug"), ("graphql", "graphql-core"), ("yaml", "PyYAML")):
        _need(needed, package)
    if shutil.which("git") is None:
        message = "git is not on PATH: the demo's repository is a real one"
        raise errors.MissingToolError(message)
    handed = _handed(os.environ) if agent is Agent.CLAUDE else {}
    from klaud.cli import demo_report
    from klaud.planner import files

    begun = time.monotonic()
    say = _silent if quiet else _line
    place = out.resolve()
    shutil.rmtree(place / "wave", ignore_errors=True)
    files.probe(place / "wave")
    with (
        tempfile.TemporaryDirectory(prefix="klaud-demo-") as folder,
        _world(Path(folder), place / "wave", say, handed) as world,
    ):
        say("a planner run is started, as cron would start it")
        first = world.run("wave", say)
        say("a second recovery is started, to see whether anything is left")
        second = world.run("recover", say)
        report = demo_report.make(
            hub=world.hub, out=place / "wave", first=first, second=second, seconds=time.monotonic() - begun
        )
        demo_report.show(report, place)
        if keep:
            typer.echo(f"\nThe server stays up at {world.url} (Ctrl-C ends it).")
            with contextlib.suppress(KeyboardInterrupt):
                while True:
                    time.sleep(3600)  # nothing to do until Ctrl-C
    if not (first.good and second.good) or world.hub.errors:
        raise typer.Exit(1)


class _World:
    """A served hub, and a maintainer's hand to start runs with."""

    def __init__(self, hub: fakehub.Hub, url: str, hand: rest.RestGateway, run_seconds: float) -> None:
        self.hub = hub
        self.url = url
        self.hand = hand
        self._run_seconds = run_seconds
        self._seen: dict[int, tuple[str, str | None]] = {}

    def run(self, verb: str, say: Callable[[str], None]) -> Any:
        """Start the planner workflow with ``verb`` and follow every run until it has ended."""
        from klaud.cli import demo_report, demo_world

        calls = len(self.hub.log)
        run_id = self.hand.dispatch("klaud-plan.yml", "main", {"verb": verb}).run_id
        if run_id is None:
            message = "the embedded GitHub did not name the run it started"
            raise errors.BugError(message)
        end = time.monotonic() + self._run_seconds
        while time.monotonic() < end:
            for told in demo_report.changes(self.hub, self._seen):
                say(told)
            with self.hub.lock:
                run = self.hub.repository(demo_world.REPOSITORY).runs[run_id]
                if run.status == "completed":
                    return demo_report.Ran(
                        run_id=run_id, conclusion=run.conclusion or "", first_call=calls, log=demo_report.log_of(run)
                    )
            time.sleep(LOOK_SECONDS)  # real processes are at work: look again, to a deadline
        message = f"the planner run did not end within {self._run_seconds:.0f} s"
        raise errors.RetryLaterError(message)


@contextlib.contextmanager
def _world(folder: Path, out: Path, say: Callable[[str], None], handed: Mapping[str, str]) -> Iterator[_World]:
    import datetime

    from klaud import clock, fakehub, names
    from klaud.cli import demo_world
    from klaud.fakehub import scene as scenes
    from klaud.github import refs, rest
    from klaud.leases import store

    say("measuring the codecs, to have published numbers")
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    rows = demo_world.publish_rows(folder / "published", today)
    say("making the repository, and the mess that dead sessions left in it")
    hub = scenes.build(scenes.Scene(demo_world.scene(rows, out, handed)), folder / "hub")
    with hub, fakehub.serve(hub) as server:
        hub.commit(
            demo_world.REPOSITORY, "main", demo_world.configuration(server.url, with_model=bool(handed)),
            message="Let klaud try upgrades", author=demo_world.MAINTAINER,
        )  # fmt: skip
        ticking = clock.SystemClock()
        written = refs.GitRefStore(
            url=server.git_url(demo_world.REPOSITORY), token=demo_world.BOT_TOKEN,
            identity=refs.Identity("klaud-bot", "90001+klaud-bot@users.noreply.github.com"), clock=ticking,
        )  # fmt: skip
        demo_world.write_records(
            store.LeaseStore(
                refs=written, names=names.RefNames(), repository=demo_world.REPOSITORY, clock=ticking, key=None
            ),
            lambda branch: hub.git(demo_world.REPOSITORY).ref(f"refs/heads/{branch}") or "",
            ticking.now() - datetime.timedelta(hours=20),
        )
        hand = rest.RestGateway(
            repository=demo_world.REPOSITORY, token=demo_world.PERSON_TOKEN, api_url=server.url, clock=ticking
        )
        yield _World(hub, server.url, hand, AGENT_RUN_SECONDS if handed else RUN_SECONDS)


def _need(module: str, package: str, extra: str = "demo") -> None:
    import importlib.util

    if importlib.util.find_spec(module) is None:
        message = f"the demo needs {package}, which is not installed"
        raise errors.MissingToolError(message, advice=f"Install klaud with its extra: pip install 'klaud[{extra}]'.")


def _handed(environ: Mapping[str, str]) -> dict[str, str]:
    """Return what the sessions of a real agent need of the environment; InputError where no key is there."""
    from klaud.session import frameworks

    if missing := frameworks.missing_credential("claude_sdk", environ):
        raise errors.InputError(missing, advice="Set the key, or leave --agent out: the scripted agent needs none.")
    _need("claude_agent_sdk", "claude-agent-sdk", "demo,agent")
    return {name: environ[name] for name in (*frameworks.CREDENTIALS, "ANTHROPIC_BASE_URL") if environ.get(name)}


def _line(text: str) -> None:
    sys.stderr.write(f"  .. {text}\n")
    sys.stderr.flush()


def _silent(text: str) -> None:
    del text
