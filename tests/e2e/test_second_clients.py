"""Two clients that nobody here wrote ask the same embedded GitHub what klaud's gateway asks, and get the same answers.

The world is the demo's, with drafts, labels, runs and klaud's branches. ``gh`` is Debian's program and speaks over a Unix
socket; Octokit is npm's and speaks over loopback.
"""

from __future__ import annotations

import datetime
import json
import os
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from werkzeug.serving import make_server

from klaud import clock, fakehub
from klaud.cli import demo_world
from klaud.fakehub import scene as scenes
from klaud.fakehub.app import App
from klaud.github import refs, rest

if TYPE_CHECKING:
    from collections.abc import Iterator

OCTOKIT = os.environ.get("KLAUD_OCTOKIT", "")
"""A ``node_modules`` directory that has @octokit/rest."""


class World:
    """The demo's repository, klaud's view of it, and its address."""

    def __init__(self, hub: fakehub.Hub, url: str) -> None:
        self.hub = hub
        self.url = url
        self.gateway = rest.RestGateway(
            repository=demo_world.REPOSITORY, token=demo_world.BOT_TOKEN, api_url=url, clock=clock.SystemClock()
        )
        self.refs = refs.GitRefStore(
            url=f"{url}/{demo_world.REPOSITORY}.git", token=demo_world.BOT_TOKEN,
            identity=refs.Identity("klaud-bot", "90001+klaud-bot@users.noreply.github.com"), clock=clock.SystemClock(),
        )  # fmt: skip

    def told(self) -> dict[str, Any]:
        """Return what klaud sees, in plain data."""
        pulls = self.gateway.open_pulls()
        runs = self.gateway.runs()
        assert pulls.complete
        assert runs.complete
        return {
            "pulls": sorted(
                [one.number, one.draft, one.head_ref, one.head_oid, sorted(one.labels), one.title]
                for one in pulls.items
            ),
            "runs": sorted([one.id, one.status, one.conclusion, one.display_title, one.event] for one in runs.items),
            "workflow": self._workflow("klaud-candidate.yml"),
            "branches": dict(self.refs.list(["refs/heads/klaud/"])),
        }

    def _workflow(self, name: str) -> list[Any]:
        found = self.gateway.workflow(name)
        return [getattr(found, "id", None), getattr(found, "state", None), getattr(found, "path", None)]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    rows = demo_world.publish_rows(tmp_path / "published", today)
    hub = scenes.build(scenes.Scene(demo_world.scene(rows, tmp_path / "out")), tmp_path / "hub")
    with hub, fakehub.serve(hub) as server:
        it = World(hub, server.url)
        yield it
        it.gateway.close()
        assert hub.errors == []


def test_gh_agrees_with_klaud(world: World) -> None:
    program = shutil.which("gh")
    if program is None:
        pytest.skip("the program gh is not installed")
    with tempfile.TemporaryDirectory(prefix="hub-") as directory:  # a socket's path has at most 108 bytes
        socket, home = Path(directory) / "s", Path(directory) / "home"
        home.mkdir()
        (home / "config.yml").write_text(f"version: '1'\nhttp_unix_socket: {socket}\n")
        server = make_server(f"unix://{socket}", 0, App(world.hub), threaded=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()

        def gh(*argv: str) -> Any:
            environment = {
                "PATH": os.environ["PATH"], "HOME": str(home), "GH_CONFIG_DIR": str(home), "NO_COLOR": "1",
                "GH_TOKEN": demo_world.BOT_TOKEN, "GH_REPO": demo_world.REPOSITORY, "GH_PROMPT_DISABLED": "1",
                "GH_NO_UPDATE_NOTIFIER": "1",
            }  # fmt: skip
            done = subprocess.run(
                [program, *argv], env=environment, cwd=home, capture_output=True, text=True, check=False, timeout=60
            )
            assert done.returncode == 0, done.stderr
            return json.loads(done.stdout)

        try:
            pulls = gh("pr", "list", "--json", "number,isDraft,headRefName,headRefOid,labels,title")
            runs = gh("run", "list", "--limit", "100", "--json", "databaseId,status,conclusion,displayTitle,event")
            flow = gh("api", f"repos/{demo_world.REPOSITORY}/actions/workflows/klaud-candidate.yml")
            found = gh("api", f"repos/{demo_world.REPOSITORY}/git/matching-refs/heads/klaud/")
        finally:
            server.shutdown()
            thread.join()
            server.server_close()
    assert {
        "pulls": sorted(
            [one["number"], one["isDraft"], one["headRefName"], one["headRefOid"],
             sorted(label["name"] for label in one["labels"]), one["title"]] for one in pulls
        ),
        "runs": sorted(
            [one["databaseId"], one["status"], one["conclusion"] or None, one["displayTitle"], one["event"]] for one in runs
        ),
        "workflow": [flow["id"], flow["state"], flow["path"]],
        "branches": {one["ref"]: one["object"]["sha"] for one in found},
    } == world.told()  # fmt: skip


SCRIPT = """
const { Octokit } = await import(process.env.OCTOKIT + '/@octokit/rest/dist-src/index.js');
const octokit = new Octokit({ baseUrl: process.env.URL, auth: process.env.TOKEN });
const [owner, repo] = process.env.REPO.split('/');
const at = { owner, repo };
const pulls = await octokit.paginate(octokit.pulls.list, { ...at, state: 'open', per_page: 2 });
const runs = await octokit.paginate(octokit.actions.listWorkflowRunsForRepo, { ...at, per_page: 3 });
const flow = (await octokit.actions.getWorkflow({ ...at, workflow_id: 'klaud-candidate.yml' })).data;
const refs = await octokit.paginate(octokit.git.listMatchingRefs, { ...at, ref: 'heads/klaud/' });
console.log(JSON.stringify({
  pulls: pulls.map((p) => [p.number, p.draft, p.head.ref, p.head.sha, p.labels.map((l) => l.name).sort(), p.title]),
  runs: runs.map((r) => [r.id, r.status, r.conclusion, r.display_title, r.event]),
  workflow: [flow.id, flow.state, flow.path],
  branches: Object.fromEntries(refs.map((r) => [r.ref, r.object.sha])),
}));
"""


@pytest.mark.skipif(
    not OCTOKIT or shutil.which("node") is None, reason="KLAUD_OCTOKIT names no node_modules, or node is not installed"
)
def test_octokit_agrees_with_klaud(world: World, tmp_path: Path) -> None:
    script = tmp_path / "look.mjs"
    script.write_text(SCRIPT)
    environment = {
        "PATH": os.environ["PATH"], "URL": world.url, "OCTOKIT": OCTOKIT, "TOKEN": demo_world.BOT_TOKEN,
        "REPO": demo_world.REPOSITORY,
    }  # fmt: skip
    done = subprocess.run(
        ["node", str(script)], env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    found["pulls"].sort()
    found["runs"].sort()
    assert found == world.told()
