"""Where the contracts run: on fakehub always, on real GitHub with ``--live``.

    pytest tests/fakehub/contracts --live

takes KLAUD_LIVE_TOKEN, KLAUD_LIVE_REPOSITORY (owner/name of a repository that may be written to, with the workflow file
that ``klaud conformance --workflow`` prints) and KLAUD_LIVE_URL (default https://api.github.com). The verb
``klaud conformance --live`` does the same without the tests.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from klaud import clock, fakehub
from klaud.github.conformance import run
from klaud.github.conformance import target as targets
from tests.support import openapi

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--live", action="store_true", help="run the contracts on real GitHub")


@pytest.fixture(scope="module")
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[targets.Target]:
    if request.config.getoption("--live", default=False):
        missing = [name for name in ("KLAUD_LIVE_TOKEN", "KLAUD_LIVE_REPOSITORY") if not os.environ.get(name)]
        if missing:
            pytest.skip(f"--live needs {', '.join(missing)}")
        made = targets.Target(
            url=os.environ.get("KLAUD_LIVE_URL", "https://api.github.com"),
            repository=os.environ["KLAUD_LIVE_REPOSITORY"],
            token=lambda: os.environ["KLAUD_LIVE_TOKEN"],
            clock=clock.SystemClock(),
            pause=1.0,
        )
        yield made
        left = run.tidy(made, made.prefix)
        made.close()
        assert left == ()
        return
    yield from _fakehub(tmp_path_factory.mktemp("hub"))


def _fakehub(root: Path) -> Iterator[targets.Target]:
    faults: list[str] = []
    with fakehub.Hub(root) as hub:
        bot = hub.add_account("klaud-bot", id=90001, role="write")
        hub.add_token("made-up", bot)
        flow = f".github/workflows/{targets.WORKFLOW_FILE}"
        hub.create_repository("acme/bench", files={"README.md": "x", flow: targets.WORKFLOW}, author=bot)

        def validate(entry: fakehub.LogEntry, reply: fakehub.Reply) -> None:
            if ".git/" not in entry.template and reply.status not in (204, 302, 304):
                faults.extend(openapi.problems(entry.method, entry.template, reply.status, reply.body))

        if openapi.path() is not None:
            hub.observers.append(validate)
        with fakehub.serve(hub) as server:
            made = targets.Target(
                url=server.url, repository="acme/bench", token=lambda: "made-up", clock=clock.SystemClock()
            )
            yield made
            made.close()
        assert hub.errors == []
    assert faults == []
