"""Where the contracts run: on fakehub always, on real GitHub with ``--live``.

    pytest tests/fakehub/contracts --live

takes KLAUD_LIVE_TOKEN, KLAUD_LIVE_REPOSITORY (owner/name of a repository that may be written to, with the workflow file
``contract.yml`` of this folder) and KLAUD_LIVE_URL (default https://api.github.com).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
import requests

from klaud import fakehub
from tests.support import openapi
from tests.support.contract import WORKFLOW, Target

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--live", action="store_true", help="run the contracts on real GitHub")


@pytest.fixture(scope="module")
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    if request.config.getoption("--live", default=False):
        missing = [name for name in ("KLAUD_LIVE_TOKEN", "KLAUD_LIVE_REPOSITORY") if not os.environ.get(name)]
        if missing:
            pytest.skip(f"--live needs {', '.join(missing)}")
        with requests.Session() as session:
            session.headers["Authorization"] = f"Bearer {os.environ['KLAUD_LIVE_TOKEN']}"
            url = os.environ.get("KLAUD_LIVE_URL", "https://api.github.com")
            yield Target(session, url, os.environ["KLAUD_LIVE_REPOSITORY"])
        return
    yield from _fakehub(tmp_path_factory.mktemp("hub"))


def _fakehub(root: Path) -> Iterator[Target]:
    faults: list[str] = []
    with fakehub.Hub(root) as hub:
        bot = hub.add_account("klaud-bot", id=90001, role="write")
        hub.add_token("made-up", bot)
        hub.create_repository(
            "acme/bench", files={"README.md": "x", ".github/workflows/contract.yml": WORKFLOW}, author=bot
        )

        def validate(entry: fakehub.LogEntry, reply: fakehub.Reply) -> None:
            if ".git/" not in entry.template and reply.status not in (204, 302, 304):
                faults.extend(openapi.problems(entry.method, entry.template, reply.status, reply.body))

        if openapi.path() is not None:
            hub.observers.append(validate)
        with fakehub.serve(hub) as server, requests.Session() as session:
            session.headers["Authorization"] = "Bearer made-up"
            yield Target(session, server.url, "acme/bench", hub)
        assert hub.errors == []
    assert faults == []
