"""Two clients that klaud does not use look at the hub: GitHub's own command line, and Octokit."""

from __future__ import annotations

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

from klaud.fakehub.app import App

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fakehub.conftest import World

OCTOKIT = os.environ.get("KLAUD_OCTOKIT", "")
"""A ``node_modules`` directory that has @octokit/rest and @octokit/graphql."""


class Gh:
    """The ``gh`` program, speaking to the hub over a Unix socket (it knows no other way to a plain HTTP host)."""

    def __init__(self, home: Path, socket: Path) -> None:
        self.home = home
        (home / "config.yml").write_text(f"version: '1'\nhttp_unix_socket: {socket}\n")

    def __call__(self, *argv: str) -> Any:
        environment = {
            "PATH": os.environ["PATH"], "HOME": str(self.home), "GH_CONFIG_DIR": str(self.home), "GH_TOKEN": "bot",
            "GH_REPO": "acme/bench", "NO_COLOR": "1", "GH_PROMPT_DISABLED": "1", "GH_NO_UPDATE_NOTIFIER": "1",
        }  # fmt: skip
        done = subprocess.run(
            ["gh", *argv], env=environment, cwd=self.home, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout) if done.stdout.startswith(("[", "{")) else done.stdout


@pytest.fixture
def gh(world: World) -> Iterator[Gh]:
    if shutil.which("gh") is None:
        pytest.skip("the program gh is not installed")
    with tempfile.TemporaryDirectory(prefix="hub-") as directory:  # a socket's path has at most 108 bytes
        socket = Path(directory) / "s"
        server = make_server(f"unix://{socket}", 0, App(world.hub), threaded=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        home = Path(directory) / "home"
        home.mkdir()
        try:
            yield Gh(home, socket)
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


def test_gh_lists_and_starts_and_cancels_runs(world: World, gh: Gh) -> None:
    gh("workflow", "run", "bench-smoke.yml", "--ref", "main", "-f", "marker=from-gh")
    rows = gh("run", "list", "--json", "databaseId,status,displayTitle,event,headBranch")
    assert [(row["displayTitle"], row["status"], row["event"]) for row in rows] == [
        ("smoke from-gh", "queued", "workflow_dispatch")
    ]
    gh("run", "cancel", str(rows[0]["databaseId"]))
    assert world.repository.runs[rows[0]["databaseId"]].conclusion == "cancelled"
    assert "smoke" in gh("workflow", "list")


def test_gh_pages_and_asks_graphql(world: World, gh: Gh) -> None:
    world.pull("topic")
    for index in range(5):
        world.call("POST", "issues/1/comments", {"body": str(index)})
    bodies = gh("api", "repos/acme/bench/issues/1/comments?per_page=2", "--paginate", "--jq", ".[].body")
    assert bodies.split() == ["0", "1", "2", "3", "4"]
    shown = gh("api", "graphql", "-f", "query={ viewer { login } }")
    assert shown == {"data": {"viewer": {"login": "klaud-bot"}}}
    rows = gh("pr", "list", "--json", "number,title,isDraft,headRefName,state")
    assert rows == [{"headRefName": "topic", "isDraft": True, "number": 1, "state": "OPEN", "title": "topic"}]


SCRIPT = """
const { Octokit } = await import(process.env.OCTOKIT + '/@octokit/rest/dist-src/index.js');
const quiet = { debug() {}, info() {}, warn() {}, error() {} };
const octokit = new Octokit({ baseUrl: process.env.URL, auth: 'bot', log: quiet });
const at = { owner: 'acme', repo: 'bench' };
const main = await octokit.git.getRef({ ...at, ref: 'heads/main' });
await octokit.git.createRef({ ...at, ref: 'refs/heads/a/b', sha: main.data.object.sha });
const refs = await octokit.git.listMatchingRefs({ ...at, ref: 'heads/a' });
const comments = await octokit.paginate(octokit.issues.listComments, { ...at, issue_number: 1, per_page: 2 });
const smoke = { ...at, workflow_id: 'bench-smoke.yml', ref: 'main', inputs: { marker: 'js' } };
await octokit.actions.createWorkflowDispatch(smoke);
const runs = await octokit.actions.listWorkflowRunsForRepo({ ...at, actor: 'klaud-bot' });
let missing = 0;
try { await octokit.pulls.get({ ...at, pull_number: 99 }); } catch (error) { missing = error.status; }
const viewer = await octokit.graphql('query { viewer { login } }');
console.log(JSON.stringify({ refs: refs.data.map((r) => r.ref), comments: comments.map((c) => c.body),
  runs: runs.data.workflow_runs.map((r) => r.display_title), missing, viewer: viewer.viewer.login }));
"""


@pytest.mark.skipif(
    not OCTOKIT or shutil.which("node") is None, reason="KLAUD_OCTOKIT names no node_modules, or node is not installed"
)
def test_octokit_sees_the_same(world: World, tmp_path: Path) -> None:
    world.pull("topic")
    for index in range(3):
        world.call("POST", "issues/1/comments", {"body": str(index)})
    script = tmp_path / "look.mjs"
    script.write_text(SCRIPT)
    environment = {"PATH": os.environ["PATH"], "URL": world.server.url, "OCTOKIT": OCTOKIT}
    done = subprocess.run(["node", str(script)], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "refs": ["refs/heads/a/b"],
        "comments": ["0", "1", "2"],
        "runs": ["smoke js"],
        "missing": 404,
        "viewer": "klaud-bot",
    }
