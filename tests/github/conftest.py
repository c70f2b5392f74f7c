"""The hosts that the tests of this folder talk to: a scripted REST server, and a real bare repository over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from klaud.github import refs, rest
from tests.support import answers, git_stores, githttp, loopback

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def server() -> Iterator[loopback.Loopback]:
    with loopback.serving() as served:
        yield served


@pytest.fixture
def ticking() -> loopback.FakeClock:
    return loopback.FakeClock()


@pytest.fixture
def hub(server: loopback.Loopback, ticking: loopback.FakeClock) -> Iterator[rest.RestGateway]:
    made = rest.RestGateway(
        repository="acme/bench", token=answers.TOKEN, api_url=server.url, clock=ticking, seconds_between_writes=1.0
    )
    yield made
    made.close()


@pytest.fixture
def host(tmp_path: Path) -> Iterator[githttp.GitHost]:
    with githttp.serve(tmp_path, token=git_stores.TOKEN) as served:
        yield served


@pytest.fixture
def connect(host: githttp.GitHost, ticking: loopback.FakeClock) -> Callable[..., refs.GitRefStore]:
    def make(**options: object) -> refs.GitRefStore:
        given = {
            "url": host.url,
            "token": git_stores.TOKEN,
            "identity": git_stores.ME,
            "clock": ticking,
            "policy": git_stores.QUICK,
            **options,
        }
        return refs.GitRefStore(**given)  # type: ignore[arg-type]

    return make
