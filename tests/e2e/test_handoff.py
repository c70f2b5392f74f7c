"""A maintainer takes a draft over while its session works: it stops, the claim goes, one card is written."""

from __future__ import annotations

import datetime
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from klaud import clock, fakehub, names
from klaud.cli import demo_world, init
from klaud.fakehub import jobs
from klaud.fakehub import scene as scenes
from klaud.github import rest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CARD = "hands this draft over"


class World:
    """A hub whose maintainer labels each new draft of klaud's, and what was asked of it."""

    def __init__(self, hub: fakehub.Hub, url: str) -> None:
        self.hub = hub
        self.repository = hub.repository(demo_world.REPOSITORY)
        self.hand = rest.RestGateway(
            repository=demo_world.REPOSITORY, token=demo_world.PERSON_TOKEN, api_url=url, clock=clock.SystemClock()
        )

    def run(self, workflow: str, inputs: dict[str, str]) -> Any:
        started = self.hand.dispatch(workflow, "main", inputs).run_id
        assert started is not None
        run = self.repository.runs[started]
        end = time.monotonic() + 200
        while run.status != "completed" and time.monotonic() < end:
            time.sleep(0.1)
        assert run.status == "completed"
        assert self.hub.wait_for_runs(60)
        return run

    def cards(self, number: int) -> int:
        return sum(CARD in comment.body for comment in self.repository.issues[number].comments)

    def claims(self) -> list[str]:
        refs = self.hub.git(demo_world.REPOSITORY).refs()
        return [ref for ref in refs if ref.startswith("refs/klaud/claims/")]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    out = tmp_path / "out"
    out.mkdir()
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    scene = demo_world.scene(demo_world.publish_rows(tmp_path / "published", today), out)
    hub = scenes.build(scenes.Scene(scene), tmp_path / "hub")
    with hub, fakehub.serve(hub) as server:
        handoff = {".github/workflows/klaud-handoff.yml": init.template("workflows/klaud-handoff.yml")}
        hub.commit(demo_world.REPOSITORY, "main", {**demo_world.configuration(server.url), **handoff}, author="mira")
        hub.handlers["klaud-handoff.yml"] = jobs.Command(
            (sys.executable, "-m", "klaud", "handoff", "--number", "${{ github.event.pull_request.number }}"),
            token=demo_world.BOT_TOKEN,
        )
        it = World(hub, server.url)
        yield it
        it.hand.close()
        assert hub.errors == []


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_session_that_works_stops_and_the_draft_is_the_maintainers(world: World) -> None:
    taken: list[int] = []

    def take(entry: fakehub.LogEntry) -> None:
        """Label the new draft once the ledger has its number, without which no card can be written."""
        number = max(world.repository.issues)
        pull = world.repository.issues[number].pull
        if number <= 4 or taken or pull is None:
            return
        candidate = pull.head_ref.removeprefix(names.BRANCH_HEAD)
        if any("/sessions/" in change.ref and change.ref.endswith(candidate) for change in entry.updates):
            taken.append(number)
            world.hand.add_labels(number, [names.HANDOFF_LABEL])

    world.hub.after_call(lambda entry: "git-receive-pack" in entry.path, take, times=None)
    world.run("klaud-plan.yml", {"verb": "wave"})
    (number,) = taken
    issue = world.repository.issues[number]
    assert issue.state == "open"
    assert issue.pull is not None
    assert issue.pull.draft
    assert names.HANDOFF_LABEL in issue.labels
    assert world.cards(number) == 1
    assert world.claims() == []
    head = issue.pull.head_oid
    world.run("klaud-plan.yml", {"verb": "recover"})
    assert (issue.state, issue.pull.draft, issue.pull.head_oid) == ("open", True, head)
    assert world.cards(number) == 1
    before = len(issue.comments)
    world.hand.remove_label(number, names.HANDOFF_LABEL)
    world.hub.wait_for_runs(60)
    assert len(issue.comments) == before
    world.hand.add_labels(number, [names.HANDOFF_LABEL])
    world.hub.wait_for_runs(60)
    assert world.cards(number) == 2
