"""Runs real workflow files with act, in host mode, as what a run of the embedded GitHub does.

The whole workflow is one act process, started when the first job of the hub's run that is not skipped begins. act gets an
environment of its own and a HOME of its own; actions that cannot be had offline are replaced by composite ones: checkout by
act itself, setup-python and the artifact actions by ``act_shims``.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

if TYPE_CHECKING:
    from klaud.fakehub.jobs import JobContext

SHIMS = Path(__file__).resolve().parent / "act_shims"
ROOT = SHIMS.parents[2]
RUN_SECONDS = 200


def act() -> str | None:
    """Return where act is, None where it is not installed."""
    beside = Path(sys.executable).with_name("act")
    return str(beside) if beside.exists() else shutil.which("act")


@dataclasses.dataclass
class Ran:
    """One act process: which hub run it was, and what it printed."""

    run_id: int
    event: str
    file: str
    status: int
    log: str


class Stage:
    """A folder that acts run in, and what they did. ``secrets`` and ``variables`` are those of the repository."""

    def __init__(self, folder: Path, secrets: dict[str, str], variables: dict[str, str] | None = None) -> None:
        self.folder = folder
        self.secrets = secrets
        self.variables = variables or {}
        self.ran: list[Ran] = []
        self.started: set[tuple[int, int]] = set()
        self.lock = threading.Lock()
        self.caches = folder / "caches"
        self.caches.mkdir(parents=True)
        self.bin = folder / "bin"
        self.bin.mkdir(parents=True)
        self._script("klaud", f'exec {sys.executable} -m klaud "$@"\n')
        install = (
            'if [ "$1 $2 $3" = "-m pip install" ]; then\n'
            '  case "$4" in klaud==0.1.0|"klaud[agent]==0.1.0") exit 0;; esac\n'
            '  echo "not what the tests install: $4" >&2; exit 1\n'
            f'fi\nexec {sys.executable} "$@"\n'
        )
        for name in ("python", "python3"):
            self._script(name, install)

    def _script(self, name: str, text: str) -> None:
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{text}")
        path.chmod(0o755)

    def handler(self, context: JobContext) -> str | None:
        """Do a hub run: the first job to begin runs all of the workflow with act, the others have nothing left to do."""
        key = (context.run.id, context.run.last.number)
        with self.lock:
            if key in self.started:
                return None
            self.started.add(key)
        return self._run(context)

    def _run(self, context: JobContext) -> str | None:
        place = self.folder / f"run-{context.run.id}-{context.run.last.number}"
        store, home = place / "store", place / "home"
        for each in (store, home):
            each.mkdir(parents=True)
        clone = context.checkout()
        given = context.environment()
        event_path = place / "event.json"
        event = dict(context.event)
        event.setdefault("ref", given["GITHUB_REF"])
        event_path.write_text(json.dumps(event))
        secrets, variables = place / "secrets", place / "vars"
        secrets.write_text("".join(f"{name}={value}\n" for name, value in self.secrets.items()))
        variables.write_text("".join(f"{name}={value}\n" for name, value in self.variables.items()))
        passed = {
            name: value
            for name, value in given.items()
            if name.startswith("GITHUB_")
            and name
            not in {
                "GITHUB_OUTPUT",
                "GITHUB_ENV",
                "GITHUB_STEP_SUMMARY",
                "GITHUB_EVENT_PATH",
                "GITHUB_WORKSPACE",
                "GITHUB_JOB",
            }
        }
        passed |= {
            "SHIM_STORE": str(store), "SHIM_CACHE": str(self.caches), "SHIM_BIN": str(self.bin),
            "SHIM_PYTHON": sys.executable, "SHIM_SCRIPT": str(SHIMS / "artifacts.py"), "PYTHONPATH": str(ROOT),
        }  # fmt: skip
        file = clone / context.run.path.partition("@")[0]
        argv = [
            act() or "act", context.run.event, "--workflows", str(file), "--directory", str(clone),
            "--platform", "ubuntu-latest=-self-hosted", "--no-cache-server", "--artifact-server-addr", "127.0.0.1",
            "--eventpath", str(event_path), "--secret-file", str(secrets), "--var-file", str(variables),
            "--actor", given["GITHUB_ACTOR"] or "nobody", "--action-offline-mode",
        ]  # fmt: skip
        for name, value in passed.items():
            argv += ["--env", f"{name}={value}"]
        for name, value in context.inputs.items():
            argv += ["--input", f"{name}={value}"]
        for uses, shim in used(file).items():
            argv += ["--local-repository", f"{uses}={SHIMS / shim}"]
        environ = {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8", "TERM": "dumb", "NO_COLOR": "1"}
        environ |= {"GIT_PAGER": "cat", "XDG_CACHE_HOME": str(home / "cache")}
        log = place / "log"
        with log.open("wb") as out:
            child = subprocess.Popen(
                argv, cwd=clone, env=environ, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip
            try:
                self._serve(child, context, store)
            finally:
                if child.poll() is None:
                    os.killpg(child.pid, signal.SIGKILL)
                child.wait()
        self.ran.append(
            Ran(context.run.id, context.run.event, file.name, child.returncode, log.read_text(errors="replace"))
        )
        return None if child.returncode == 0 else "failure"

    def _serve(self, child: subprocess.Popen[bytes], context: JobContext, store: Path) -> None:
        """Publish what upload-artifact hands over, until act has ended."""
        end = time.monotonic() + RUN_SECONDS
        while child.poll() is None and time.monotonic() < end and not context.killed.is_set():
            for asked in store.glob("asked-*"):
                files = {path.name: path.read_bytes() for path in (asked / "files").iterdir()}
                made = context.hub.actions.publish(context.run, (asked / "name").read_text(), files)
                asked.rename(store / f"artifact-{made.id}")
                answer = store / f".{asked.name}"
                answer.write_text(str(made.id))
                answer.rename(store / asked.name.replace("asked-", "done-"))
            time.sleep(0.02)


def used(file: Path) -> dict[str, str]:
    """Return the remote actions that a workflow uses and the shim of each; checkout is act's own."""
    found: dict[str, str] = {}
    for job in yaml.safe_load(file.read_text())["jobs"].values():
        if str(job.get("uses", "")).startswith("./"):
            found |= used(file.parents[2] / job["uses"])
        for step in job.get("steps", ()):
            name = step.get("uses", "")
            action, _, ref = name.partition("@")
            owner, shim = [*action.split("/"), ""][:2]
            if name and shim != "checkout":
                found[f"{owner}/{shim}@{ref}"] = shim
    return found
