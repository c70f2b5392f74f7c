"""The demo's world behind a port, and klaud's real command as a child process in a clone of its repository.

What a case checks is taken from the child (status, two lines of text, files) and from the hub itself (its log and state),
never from klaud's own reports.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import functools
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from klaud import clock as clocks
from klaud import fakehub, names
from klaud.cli import demo_world
from klaud.fakehub import scene as scenes
from klaud.github import refs
from klaud.leases import store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from klaud.fakehub.hub import Hub, LogEntry

REPOSITORY = demo_world.REPOSITORY
READ_ONLY = "made-up-token-that-may-only-read"
OWN_RUNS = (9001, 9002)
"""Planner runs that are in progress: who the children are."""

PASSED = ("PATH", "HOME", "LANG", "TMPDIR")


@functools.cache
def published() -> tuple[dict[str, Any], ...]:
    """Measure the published rows once a process."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    with tempfile.TemporaryDirectory(prefix="klaud-rows-") as folder:
        return tuple(demo_world.publish_rows(Path(folder), today))


@dataclasses.dataclass(frozen=True)
class Done:
    """What a child did: how it ended, what it said, which files are new, and the writes that the hub took as such."""

    status: int
    out: str
    err: str
    made: tuple[str, ...]
    writes: tuple[LogEntry, ...]

    @property
    def message(self) -> str:
        """The line on what happened and where."""
        return self._line("klaud: ")

    @property
    def advice(self) -> str:
        """The line on what to do."""
        return self._line("  -> ")

    def _line(self, begin: str) -> str:
        found = [line.removeprefix(begin) for line in self.err.splitlines() if line.startswith(begin)]
        return found[-1] if found else ""


class World:
    """A served hub and a clone to stand in."""

    def __init__(self, hub: Hub, url: str, folder: Path) -> None:
        """Clone the repository below ``folder``."""
        self.hub = hub
        self.url = url
        self.folder = folder
        self.clone = folder / "clone"
        clone(hub.repository(REPOSITORY).git_path, self.clone)

    def environ(self, run: int | None = OWN_RUNS[0], /, **changes: str | None) -> dict[str, str]:
        """Return a child's environment; None takes a variable away."""
        found = {key: os.environ[key] for key in PASSED if key in os.environ} | {
            "GITHUB_REPOSITORY": REPOSITORY,
            "GITHUB_API_URL": self.url,
            "GITHUB_SERVER_URL": self.url,
            "GITHUB_GRAPHQL_URL": f"{self.url}/graphql",
            "KLAUD_TOKEN": demo_world.BOT_TOKEN,
            "PYTHONWARNINGS": "",
        }
        if run is not None:
            found |= {"GITHUB_RUN_ID": str(run), "GITHUB_RUN_ATTEMPT": "1", "GITHUB_JOB": "plan"}
        for key, value in changes.items():
            found.pop(key, None)
            if value is not None:
                found[key] = value
        return found

    def run(self, *argv: str, environ: Mapping[str, str] | None = None, cwd: Path | None = None) -> Done:
        """Run one verb to its end."""
        place = cwd or self.clone
        first, before = len(self.hub.log), files_of(self.folder)
        ended = subprocess.run(
            [sys.executable, "-m", "klaud", *argv],
            cwd=place, env=dict(environ or self.environ()), capture_output=True, text=True, timeout=170, check=False,
        )  # fmt: skip
        made = tuple(sorted(files_of(self.folder) - before))
        writes = tuple(entry for entry in self.hub.log[first:] if entry.write)
        return Done(ended.returncode, ended.stdout, ended.stderr, made, writes)

    def reclone(self) -> None:
        """Clone anew, after a commit of the case's own."""
        shutil.rmtree(self.clone)
        clone(self.hub.repository(REPOSITORY).git_path, self.clone)

    def refs(self) -> dict[str, str]:
        """Return every ref of the hub."""
        return dict(self.hub.git(REPOSITORY).refs())


def clone(source: Path, to: Path) -> None:
    """Clone a repository quietly."""
    subprocess.run(["git", "clone", "-q", str(source), str(to)], check=True, capture_output=True)


def files_of(folder: Path) -> set[str]:
    """Return the files below a folder, git's own and the hub's apart."""
    found = set()
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in {".git", "hub", "__pycache__"}]
        found |= {os.path.relpath(Path(place) / name, folder) for name in files}
    return found


@contextlib.contextmanager
def world(
    folder: Path,
    *,
    configuration: Callable[[dict[str, Any], str], dict[str, Any]] | None = None,
    feeds: Mapping[str, Any] | None = None,
    mess: bool = True,
) -> Iterator[World]:
    """Serve the demo's world, its candidate runs standing still.

    ``configuration`` changes klaud's configuration (a mapping, and where feeds are). ``mess`` False: what dead sessions
    left is not there.
    """
    data = demo_world.scene(published(), folder)
    data["tokens"].append(
        {
            "value": READ_ONLY, "account": demo_world.BOT,
            "permissions": dict.fromkeys(("contents", "pull_requests", "actions", "issues", "metadata"), "read"),
        }
    )  # fmt: skip
    data["runs"] += [
        {"id": run, "workflow": "klaud-plan.yml", "event": "schedule", "status": "in_progress", "actor": "mira"}
        for run in OWN_RUNS
    ]
    data["workflows"] = {}
    data["feeds"] |= dict(feeds or {})
    if not mess:
        _tidy(data)
    hub = scenes.build(scenes.Scene(data), folder / "hub")
    with hub, fakehub.serve(hub) as server:
        (text,) = demo_world.configuration(server.url).values()
        loaded = yaml.safe_load(text)
        if configuration is not None:
            loaded = configuration(loaded, f"{server.url}/_feeds")
        hub.commit(
            REPOSITORY, "main", {".github/klaud.yml": yaml.safe_dump(loaded)},
            message="Let klaud try upgrades", author=demo_world.MAINTAINER,
        )  # fmt: skip
        if mess:
            _write_records(hub, server.git_url(REPOSITORY))
        yield World(hub, server.url, folder)
    shutil.rmtree(folder / "hub", ignore_errors=True)


def _tidy(data: dict[str, Any]) -> None:
    kept = (demo_world.PRODUCER_OLD, demo_world.PRODUCER_NEW, *OWN_RUNS)
    data["runs"] = [run for run in data["runs"] if run["id"] in kept]
    data["pulls"] = data["pulls"][:1]
    data["branches"] = {name: at for name, at in data["branches"].items() if not name.startswith("klaud/")}


def _write_records(hub: Hub, git_url: str) -> None:
    ticking = clocks.SystemClock()
    written = refs.GitRefStore(
        url=git_url, token=demo_world.BOT_TOKEN, clock=ticking,
        identity=refs.Identity("klaud-bot", "90001+klaud-bot@users.noreply.github.com"),
    )  # fmt: skip
    demo_world.write_records(
        store.LeaseStore(refs=written, names=names.RefNames(), repository=REPOSITORY, clock=ticking, key=None),
        lambda branch: hub.git(REPOSITORY).ref(f"refs/heads/{branch}") or "",
        ticking.now() - datetime.timedelta(hours=20),
    )
