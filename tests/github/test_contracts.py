"""The numbered contracts on the real clients over fakehub, and on the in-memory ones that simulation uses."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

import pytest

from klaud import fakehub
from klaud.fakehub import deeds, state
from klaud.github import gateway, graphql_refs, model, refs, rest, retry
from tests.support import gateway_contract, loopback, memory_gateway, memory_refs, ref_store_contract
from tests.support.memory_world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

WORKFLOW = "name: work\non:\n  workflow_dispatch:\njobs:\n  one:\n    runs-on: any\n    steps:\n      - run: 'true'\n"
TOKEN = "made-up"


class HubScene:
    """A scene on fakehub."""

    def __init__(self, hub: fakehub.Hub, server: fakehub.Server) -> None:
        self.hub, self.server = hub, server
        self.repository = hub.repository("acme/bench")
        self.open: list[rest.RestGateway] = []

    def connect(self) -> rest.RestGateway:
        made = rest.RestGateway(
            repository="acme/bench",
            token=TOKEN,
            api_url=self.server.url,
            clock=loopback.FakeClock(),
            policy=retry.Policy(tries=2),
        )
        self.open.append(made)
        return made

    def push(self, branch: str, by: str | None) -> str:
        who = {"bot": gateway_contract.BOT, "ann": gateway_contract.ANN, None: None}[by]
        files = {f"{len(self.hub.log)}-{self.hub.state.next_id('file')}": "x"}
        oid = self.hub.commit(
            "acme/bench", None, files, author=who, parent=self.hub.git("acme/bench").ref(f"refs/heads/{branch}")
        )
        self.hub.push("acme/bench", branch, oid, actor=who)
        return oid

    def do(self, deed: str, number: int, value: str = "", *, by: str = "ann") -> None:
        self.hub.clock.advance(1)
        key = "run" if deed == "rerun" else "pull"
        deeds.do(self.hub, self.repository, {deed: value, "by": by, key: number}, "contract")

    def fork_pull(self, branch: str) -> int:
        oid = self.hub.commit("acme/bench", None, {"fork": "x"}, author="mallory")
        base = self.hub.git("acme/bench").ref("refs/heads/main") or ""
        issue = state.Issue(
            number=self.repository.next_number, id=1, title="F", body="", user=self.hub.account("mallory").id,
            created_at=self.hub.clock.now(), updated_at=self.hub.clock.now(),
            pull=state.PullPart(branch, oid, "mallory/bench", "main", base),
        )  # fmt: skip
        self.repository.next_number += 1
        self.repository.issues[issue.number] = issue
        return issue.number

    def run(self, **fields: Any) -> int:
        branch = fields.pop("branch")
        workflow = self.hub.actions.find(self.repository, "work.yml")
        assert workflow is not None
        now = self.hub.clock.now()
        status, conclusion = fields["status"], fields.get("conclusion")
        number = self.hub.state.next_id("run", 19_000_000_001)
        job = state.Job(number, number, 1, "one", "one", status, conclusion, now, now, now if conclusion else None)
        attempt = state.Attempt(1, gateway_contract.BOT, status, conclusion, now, now, [job])
        oid = self.hub.git("acme/bench").ref(f"refs/heads/{branch}") or ""
        self.repository.runs[number] = state.Run(
            number, workflow.id, workflow.path, "work", number, "workflow_dispatch", branch, oid, "work",
            gateway_contract.BOT, now, [attempt], source_oid=oid,
        )  # fmt: skip
        return number


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[tuple[fakehub.Hub, fakehub.Server]]:
    clock = fakehub.HubClock(datetime.datetime(2026, 11, 30, 12, tzinfo=datetime.UTC), rate=0)
    with fakehub.Hub(tmp_path, clock=clock) as made:
        bot = made.add_account("klaud-bot", id=gateway_contract.BOT, type="Bot", role="write")
        made.add_account("ann", id=gateway_contract.ANN, role="admin")
        made.add_account("mallory", id=666)
        made.add_token(TOKEN, bot)
        made.create_repository(
            "acme/bench", files={"README.md": "x", ".github/workflows/work.yml": WORKFLOW}, author="ann"
        )
        made.actions.register(made.repository("acme/bench"))
        with fakehub.serve(made) as server:
            yield made, server


class TestRestGatewayOnFakehub(gateway_contract.GatewayContract):
    """The real client over HTTP."""

    @pytest.fixture
    def scene(self, hub: tuple[fakehub.Hub, fakehub.Server]) -> Iterator[HubScene]:
        made = HubScene(*hub)
        yield made
        for one in made.open:
            one.close()


class TestGitRefStoreOnFakehub(ref_store_contract.RefStoreContract):
    """The git store over fakehub's git."""

    @pytest.fixture
    def connect(self, hub: tuple[fakehub.Hub, fakehub.Server]) -> Callable[[], gateway.RefStore]:
        identity = refs.Identity("klaud", "klaud@example.invalid")
        return lambda: refs.GitRefStore(
            url=hub[1].git_url("acme/bench"), token=TOKEN, identity=identity, clock=loopback.FakeClock()
        )


class TestGraphqlRefStoreOnFakehub(ref_store_contract.RefStoreContract):
    """The store without the git protocol."""

    @pytest.fixture
    def connect(self, hub: tuple[fakehub.Hub, fakehub.Server]) -> Iterator[Callable[[], gateway.RefStore]]:
        scene = HubScene(*hub)
        hub[0].git("acme/bench").write_tree({})  # git itself has the empty tree always; the hub's objects do not
        identity = refs.Identity("klaud", "klaud@example.invalid")
        yield lambda: graphql_refs.GraphqlRefStore(hub=scene.connect(), identity=identity, clock=loopback.FakeClock())
        for one in scene.open:
            one.close()


class MemoryScene:
    """A scene in memory."""

    def __init__(self) -> None:
        self.world = World()
        path = ".github/workflows/work.yml"
        self.world.state.workflows["work.yml"] = model.Workflow(id=1, name="work", path=path, state="active")
        self.people = {"bot": self.world.bot, "ann": self.world.alice, None: None}

    def connect(self) -> memory_gateway.MemoryGateway:
        return memory_gateway.gateway(self.world)

    def push(self, branch: str, by: str | None) -> str:
        return self.world.push(branch, f"work {self.world.serial()}", by=self.people[by])  # type: ignore[arg-type]

    def do(self, deed: str, number: int, value: str = "", *, by: str = "ann") -> None:
        who = self.people[by]
        if deed == "delete-branch":
            self.world.move_ref(f"refs/heads/{value}", None, by=who)
            return
        name = {"draft": "to_draft", "edit": "edit_body"}.get(deed, deed)
        texts = [value] if deed in {"label", "unlabel", "comment", "edit"} else []
        getattr(self.world, name)(number, *texts, by=who)

    def fork_pull(self, branch: str) -> int:
        oid = self.world.commit("fork", author=self.world.mallory)
        return self.world.open_pull(branch, by=self.world.mallory, head_repository="mallory/bench", head_oid=oid)

    def run(self, **fields: Any) -> int:
        return self.world.add_run("work.yml", actor=self.world.bot, **fields)


class TestMemoryGateway(gateway_contract.GatewayContract):
    """The client of the simulated world."""

    @pytest.fixture
    def scene(self) -> MemoryScene:
        return MemoryScene()


class TestMemoryRefStore(ref_store_contract.RefStoreContract):
    """The refs of the simulated world."""

    @pytest.fixture
    def connect(self) -> Callable[[], gateway.RefStore]:
        world = World()
        return lambda: memory_refs.MemoryRefStore(world)
