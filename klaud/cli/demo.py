"""``klaud demo``: one whole wave for real, with no account, no token and no network.

An embedded GitHub is started on this machine's loopback, with a small benchmark repository and the mess that dead
sessions left in it. A planner run then sweeps, plans, proves baselines, claims and dispatches; each candidate is a real
child process over real HTTP and real git. At the end it says what happened, and a second sweep shows that nothing is
left to do.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from klaud import errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from klaud import fakehub
    from klaud.github import rest

RUN_SECONDS = 240
"""One planner run of the demo at most: it takes a fifth of that on two slow cores."""

LOOK_SECONDS = 0.2
"""Between two looks at the runs: only how soon a line of progress is shown."""


def demo(
    out: Annotated[Path, typer.Option("--out", help="Where to write reports, selection and briefs.")] = Path(".demo"),
    keep: Annotated[bool, typer.Option("--keep", help="Leave the server up at the end, to look around.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No lines of progress.")] = False,
) -> None:
    """Run one whole wave on an embedded GitHub, on this machine alone."""
    for needed, package in (("werkzeug", "Werkzeug"), ("graphql", "graphql-core"), ("yaml", "PyYAML")):
        _need(needed, package)
    if shutil.which("git") is None:
        message = "git is not on PATH: the demo's repository is a real one"
        raise errors.MissingToolError(message)
    from klaud.cli import demo_report
    from klaud.planner import files

    begun = time.monotonic()
    say = _silent if quiet else _line
    place = out.resolve()
    shutil.rmtree(place / "wave", ignore_errors=True)
    files.probe(place / "wave")
    with (
        tempfile.TemporaryDirectory(prefix="klaud-demo-") as folder,
        _world(Path(folder), place / "wave", say) as world,
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
                    time.sleep(3600)
    if not (first.good and second.good):
        raise typer.Exit(1)


class _World:
    """A served hub, and a maintainer's hand to start runs with."""

    def __init__(self, hub: fakehub.Hub, url: str, hand: rest.RestGateway) -> None:
        self.hub = hub
        self.url = url
        self.hand = hand
        self._seen: dict[int, tuple[str, str | None]] = {}

    def run(self, verb: str, say: Callable[[str], None]) -> Any:
        """Start the planner workflow with ``verb`` and follow every run until it has ended."""
        from klaud.cli import demo_report, demo_world

        calls = len(self.hub.log)
        run_id = self.hand.dispatch("klaud-plan.yml", "main", {"verb": verb}).run_id
        if run_id is None:
            message = "the embedded GitHub did not name the run it started"
            raise errors.BugError(message)
        end = time.monotonic() + RUN_SECONDS
        while time.monotonic() < end:
            for told in demo_report.changes(self.hub, self._seen):
                say(told)
            with self.hub.lock:
                run = self.hub.repository(demo_world.REPOSITORY).runs[run_id]
                if run.status == "completed":
                    return demo_report.Ran(
                        run_id=run_id, conclusion=run.conclusion or "", first_call=calls, log=demo_report.log_of(run)
                    )
            time.sleep(LOOK_SECONDS)
        message = f"the planner run did not end within {RUN_SECONDS} s"
        raise errors.RetryLaterError(message)


@contextlib.contextmanager
def _world(folder: Path, out: Path, say: Callable[[str], None]) -> Iterator[_World]:
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
    hub = scenes.build(scenes.Scene(demo_world.scene(rows, out)), folder / "hub")
    with hub, fakehub.serve(hub) as server:
        hub.commit(
            demo_world.REPOSITORY, "main", demo_world.configuration(server.url),
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
        yield _World(hub, server.url, hand)


def _need(module: str, package: str) -> None:
    import importlib.util

    if importlib.util.find_spec(module) is None:
        message = f"the demo needs {package}, which is not installed"
        raise errors.MissingToolError(message, advice="Install klaud with its extra: pip install 'klaud[demo]'.")


def _line(text: str) -> None:
    sys.stderr.write(f"  .. {text}\n")
    sys.stderr.flush()


def _silent(text: str) -> None:
    del text
