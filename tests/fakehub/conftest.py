"""A hub with one repository and a bot, served on loopback."""

from __future__ import annotations

import base64
import dataclasses
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import requests

from klaud import fakehub
from tests.support import openapi

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SMOKE = """name: smoke
run-name: smoke ${{ inputs.marker }}
on:
  workflow_dispatch: {inputs: {marker: {default: none}, seconds: {default: '0'}}}
jobs:
  bench: {runs-on: x, steps: []}
  clean-up: {runs-on: x, needs: bench, if: always(), steps: []}
"""

FINAL = """name: final
on:
  pull_request: {types: [labeled, synchronize]}
  push: {branches: [main, 'release/**']}
concurrency: {group: "final-${{ github.head_ref || github.ref_name }}", cancel-in-progress: true}
jobs:
  bench:
    if: github.event_name == 'push' || contains(github.event.pull_request.labels.*.name, 'full-sweep')
    steps: []
"""

SETTLE = """name: settle
on:
  workflow_run: {workflows: [smoke, final], types: [completed]}
jobs:
  settle: {steps: []}
"""


@dataclasses.dataclass
class World:
    """A hub, its server, and a client of it."""

    hub: fakehub.Hub
    server: fakehub.Server
    session: requests.Session
    path: Path

    @property
    def repository(self) -> fakehub.Repository:
        return self.hub.repository("acme/bench")

    def call(
        self, method: str, path: str, body: Any = None, *, token: str | None = None, **headers: str
    ) -> requests.Response:
        where = path if path.startswith("/") else f"/repos/acme/bench/{path}"
        if token is not None:
            headers["Authorization"] = f"Bearer {token}" if token else ""
        return self.session.request(method, self.server.url + where, json=body, headers=headers, timeout=60)

    def dispatch(self, **inputs: str) -> fakehub.Run:
        body = {"ref": "main", "inputs": inputs, "return_run_details": True}
        answer = self.call("POST", "actions/workflows/bench-smoke.yml/dispatches", body)
        assert answer.status_code == 200, answer.text
        return self.repository.runs[answer.json()["workflow_run_id"]]

    def pull(self, branch: str, **fields: Any) -> fakehub.Issue:
        """Push a branch with one commit and open a pull request from it."""
        oid = self.hub.commit("acme/bench", None, {f"{branch}.txt": branch}, author="klaud-bot")
        self.hub.push("acme/bench", branch, oid, actor="klaud-bot")
        body = {"title": branch, "head": branch, "base": "main", "draft": True, **fields}
        number = self.call("POST", "pulls", body).json()["number"]
        return self.repository.issues[number]

    def git(
        self,
        *argv: str,
        token: str = "bot",  # noqa: S107 - made up
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Run git in the work tree (cloned at first use), with a token in its configuration."""
        tree = self.path / "tree"
        config = {
            "http.extraHeader": "",
            "user.name": "klaud-bot",
            "user.email": "90001+klaud-bot@users.noreply.github.com",
        }
        if token:
            pair = base64.b64encode(f"x-access-token:{token}".encode()).decode()
            config["http.extraHeader"] = f"Authorization: Basic {pair}"
        if not tree.exists():
            self._git(["clone", "--quiet", self.server.git_url("acme/bench"), str(tree)], self.path, config, check=True)
        return self._git(list(argv), tree, config, check=check)

    def _git(
        self, argv: list[str], where: Path, config: dict[str, str], *, check: bool
    ) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(self.path), "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C.UTF-8"}
        environment["GIT_CONFIG_COUNT"] = str(len(config))
        for index, (key, value) in enumerate(config.items()):
            environment |= {f"GIT_CONFIG_KEY_{index}": key, f"GIT_CONFIG_VALUE_{index}": value}
        return subprocess.run(["git", *argv], cwd=where, env=environment, capture_output=True, text=True, check=check)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Serve a hub; at the end the hub must not have failed, and every answer must be as GitHub describes it."""
    faults: list[str] = []
    settings = fakehub.Settings(cancel_scale=0.02)
    with fakehub.Hub(tmp_path / "hub", settings=settings) as hub:
        hub.add_account("klaud-bot", id=90001, role="write")
        hub.add_account("alice", id=101, role="maintain")
        hub.add_token("bot", "klaud-bot")
        hub.add_token("alice", "alice")
        files = {
            "README.md": "hello\n",
            ".github/workflows/bench-smoke.yml": SMOKE,
            ".github/workflows/bench-final.yml": FINAL,
            ".github/workflows/settle.yml": SETTLE,
        }
        hub.create_repository("acme/bench", files=files, author="alice")

        def validate(entry: fakehub.LogEntry, reply: fakehub.Reply) -> None:
            if ".git/" not in entry.template and reply.status not in (204, 302, 304) and not entry.fault:
                faults.extend(openapi.problems(entry.method, entry.template, reply.status, reply.body))

        if openapi.path() is not None:
            hub.observers.append(validate)
        with fakehub.serve(hub) as server, requests.Session() as session:
            session.headers["Authorization"] = "Bearer bot"
            yield World(hub, server, session, tmp_path)
        assert [line for line in hub.errors if not line.startswith("unknown route GET /repos/acme/bench/nope")] == []
    assert faults == []
