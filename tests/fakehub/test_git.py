from __future__ import annotations

import random
import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from klaud.fakehub import githttp

if TYPE_CHECKING:
    from tests.fakehub.conftest import World

PUSH = "POST /acme/bench.git/git-receive-pack"
FETCH = "GET /acme/bench.git/info/refs"


def change(world: World, text: str = "x") -> None:
    world.git("status")
    (world.path / "tree" / "file.txt").write_text(text)
    world.git("add", "file.txt")
    world.git("commit", "--quiet", "-m", text)


def test_rest_and_git_see_the_same_refs(world: World) -> None:
    change(world)
    world.git("push", "--quiet", "origin", "HEAD:refs/klaud/claims/x")
    shown = world.call("GET", "git/ref/klaud/claims/x").json()["object"]["sha"]
    assert shown == world.git("rev-parse", "HEAD").stdout.strip()
    assert world.call("DELETE", "git/refs/klaud/claims/x").status_code == 204
    assert "refs/klaud" not in world.git("ls-remote", "origin").stdout


def test_the_address_of_a_repository_knows_no_case(world: World) -> None:
    url = world.server.git_url("Acme/Bench")
    done = subprocess.run(
        ["git", "ls-remote", url, "refs/heads/main"], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == [world.hub.git("acme/bench").ref("refs/heads/main"), "refs/heads/main"]


def test_a_push_moves_the_pull_request_and_starts_what_listens(world: World) -> None:
    issue = world.pull("topic", draft=False)
    world.call("POST", f"issues/{issue.number}/labels", ["full-sweep"])
    world.git("fetch", "--quiet", "origin", "topic")
    world.git("checkout", "--quiet", "FETCH_HEAD")
    change(world)
    world.git("push", "--quiet", "origin", "HEAD:topic")
    head = world.git("rev-parse", "HEAD").stdout.strip()
    assert issue.pull is not None
    assert issue.pull.head_oid == head == world.call("GET", "git/ref/pull/1/head").json()["object"]["sha"]
    runs = [run for run in world.repository.runs.values() if run.event == "pull_request"]
    assert [run.payload["action"] for run in runs] == ["labeled", "synchronize"]
    assert (runs[0].conclusion, runs[1].head_oid) == ("cancelled", head)


def test_a_push_to_a_branch_starts_what_its_filters_say(world: World) -> None:
    oid = world.hub.commit("acme/bench", None, {"x": "y"}, message="Subject\n\nbody", author="alice")
    for branch in ("release/1/2", "other", "main"):
        world.hub.push("acme/bench", branch, oid, actor="alice")
    runs = [(run.head_branch, run.event, run.display_title) for run in world.repository.runs.values()]
    assert runs == [("release/1/2", "push", "Subject"), ("main", "push", "Subject")]


def test_a_push_that_lost_the_race_is_refused_by_git(world: World) -> None:
    change(world)
    world.git("push", "--quiet", "origin", "HEAD:refs/klaud/claims/x")
    first = world.git("rev-parse", "HEAD").stdout.strip()
    change(world, "other")
    lost = world.git(
        "push", "--force-with-lease=refs/klaud/claims/x:", "origin", "HEAD:refs/klaud/claims/x", check=False
    )
    assert lost.returncode != 0
    assert world.hub.git("acme/bench").ref("refs/klaud/claims/x") == first


def test_one_of_many_pushes_to_one_ref_wins(world: World) -> None:
    git = world.hub.git("acme/bench")
    oids = [world.hub.commit("acme/bench", None, {"x": str(n)}, author="alice") for n in range(6)]

    def create(oid: str) -> int:
        return world.call("POST", "git/refs", {"ref": "refs/klaud/one", "sha": oid}).status_code

    with ThreadPoolExecutor(6) as pool:
        statuses = sorted(pool.map(create, oids))
    assert statuses == [201, 422, 422, 422, 422, 422]
    assert git.ref("refs/klaud/one") in oids


def test_a_push_of_workflow_files_needs_the_right(world: World) -> None:
    world.hub.add_token("app", "klaud-bot", kind="app", permissions={"contents": "write", "metadata": "read"})
    world.git("status")
    (world.path / "tree" / ".github" / "workflows" / "new.yml").write_text("on: push\njobs: {a: {}}\n")
    world.git("add", ".")
    world.git("commit", "--quiet", "-m", "workflow")
    refused = world.git("push", "origin", "HEAD:topic", token="app", check=False)
    assert refused.returncode != 0
    assert "refusing to allow a GitHub App to create or update workflow" in refused.stderr
    assert world.git("push", "origin", "HEAD:topic", token="bot", check=False).returncode == 0
    change(world)  # builds on a workflow commit that the host has already
    assert world.git("push", "origin", "HEAD:topic", token="app", check=False).returncode == 0
    entry = next(entry for entry in world.hub.log if entry.updates)
    assert [(update.ref, update.result) for update in entry.updates] == [("refs/heads/topic", "refused")]


def test_rights_over_git(world: World) -> None:
    world.hub.add_token("reader", "alice", permissions={"contents": "read", "metadata": "read"})
    change(world)
    assert "denied to alice" in world.git("push", "origin", "HEAD:x", token="reader", check=False).stderr
    assert world.git("push", "origin", "HEAD:x", token="", check=False).returncode != 0
    assert world.git("ls-remote", "origin", token="").returncode == 0
    world.repository.private = True
    assert world.git("ls-remote", "origin", token="", check=False).returncode != 0
    assert world.git("ls-remote", "origin", token="reader").returncode == 0
    assert world.git("ls-remote", "origin", token="nobody", check=False).returncode != 0


def test_refs_of_pull_requests_are_the_hosts_own(world: World) -> None:
    world.pull("topic")
    change(world)
    refused = world.git("push", "origin", "HEAD:refs/pull/1/head", "--force", check=False)
    assert "hidden ref" in refused.stderr


def test_an_atomic_push_is_all_or_nothing(world: World) -> None:
    change(world)
    world.git("push", "--quiet", "origin", "HEAD:refs/klaud/a")
    change(world, "second")
    lease = "--force-with-lease=refs/klaud/a:" + "1" * 40
    refused = world.git("push", "--atomic", lease, "origin", "HEAD:refs/klaud/a", "HEAD:refs/klaud/b", check=False)
    assert refused.returncode != 0
    assert world.hub.git("acme/bench").ref("refs/klaud/b") is None


def test_a_lost_reply_of_a_push_had_its_effect(world: World) -> None:
    change(world)
    world.hub.faults.add(PUSH, "lost-reply")
    assert world.git("push", "origin", "HEAD:refs/klaud/a", check=False).returncode != 0
    assert world.hub.git("acme/bench").ref("refs/klaud/a") == world.git("rev-parse", "HEAD").stdout.strip()


def test_a_lost_request_had_none(world: World) -> None:
    change(world)
    world.hub.faults.add(PUSH, "lost-request")
    assert world.git("push", "origin", "HEAD:refs/klaud/a", check=False).returncode != 0
    assert world.hub.git("acme/bench").ref("refs/klaud/a") is None


def test_a_stale_listing_shows_what_was(world: World) -> None:
    change(world)
    world.git("push", "--quiet", "origin", "HEAD:refs/klaud/a")
    world.hub.faults.add(FETCH, "stale", times=1, skip=1)
    world.hub.faults.add("POST /acme/bench.git/git-upload-pack", "stale", times=1)
    world.git("push", "--quiet", "origin", ":refs/klaud/a")
    assert "refs/klaud/a" in world.git("ls-remote", "origin").stdout
    assert "refs/klaud/a" not in world.git("ls-remote", "origin").stdout


def test_a_namespace_can_be_refused_and_a_push_can_be_too_large(world: World) -> None:
    change(world)
    world.hub.faults.add(PUSH, "refuse-refs", message="refs/klaud", times=1)
    assert "hidden ref" in world.git("push", "origin", "HEAD:refs/klaud/a", check=False).stderr
    world.hub.faults.add(PUSH, "ref-limit", rows=1, times=1)
    many = world.git("push", "origin", "HEAD:refs/klaud/a", "HEAD:refs/klaud/b", check=False)
    assert "pre-receive hook declined" in many.stderr
    assert world.hub.git("acme/bench").refs("refs/klaud/") == {}


def test_large_and_zipped_requests(world: World) -> None:
    world.git("status")
    (world.path / "tree" / "big.bin").write_bytes(random.Random(7).randbytes(3_000_000))  # noqa: S311 - incompressible
    world.git("add", "big.bin")
    world.git("commit", "--quiet", "-m", "big")
    world.git("push", "--quiet", "origin", "HEAD:big")  # above http.postBuffer: chunked
    git = world.hub.git("acme/bench")
    oids = [world.hub.commit("acme/bench", None, {"x": str(index)}, author="alice") for index in range(60)]
    git.set_refs({f"refs/klaud/x/{index}": oid for index, oid in enumerate(oids)})
    world.git("fetch", "--quiet", "origin", "refs/klaud/x/*:refs/klaud/x/*")  # many wants: a zipped body
    assert world.git("rev-parse", "refs/klaud/x/59").stdout.strip() == oids[59]


def test_a_pull_request_that_comes_into_its_base_by_a_push_is_merged(world: World) -> None:
    issue = world.pull("topic", draft=False)
    assert issue.pull is not None
    world.git("fetch", "--quiet", "origin", "topic")
    world.git("push", "--quiet", "origin", "FETCH_HEAD:main")
    assert world.call("GET", "pulls/1").json()["merged"] is True


def test_a_rebased_branch_has_its_own_commits_only(world: World) -> None:
    issue = world.pull("topic")
    newer = world.hub.commit("acme/bench", "main", {"other.txt": "x"}, author="alice")
    oid = world.hub.commit("acme/bench", None, {"topic.txt": "y"}, parent=newer, author="klaud-bot")
    world.hub.push("acme/bench", "topic", oid, actor="klaud-bot")
    assert [row["sha"] for row in world.call("GET", "pulls/1/commits").json()] == [oid]
    assert [event.event for event in issue.events] == ["head_ref_force_pushed"]


def test_deleting_many_refs_keeps_them_loose(world: World) -> None:
    git = world.hub.git("acme/bench")
    oid = git.ref("refs/heads/main")
    git.set_refs({f"refs/klaud/x/{index}": oid for index in range(300)})
    world.git("push", "--quiet", "origin", *(f":refs/klaud/x/{index}" for index in range(0, 300, 2)))
    assert len(git.refs("refs/klaud/")) == 150
    assert not (git.path / "packed-refs").exists()


def test_push_commands_and_reports_are_read() -> None:
    old, new = b"0" * 40, b"1" * 40
    line = old + b" " + new + b" refs/heads/x\0 report-status\n"
    body = b"%04x" % (len(line) + 4) + line + b"0000PACK"
    assert githttp.push_commands(body) == [("refs/heads/x", None, "1" * 40)]
    report = b"000eunpack ok\n" + b"%04x" % (4 + 37) + b"ng refs/heads/xyz0000 hook declined\n\n" + b"0000"
    assert b"because" in githttp.rewrite_report(report, "because")
