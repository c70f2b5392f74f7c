"""Fixtures: a history of generators, an empty repository, the strongest sandbox of this host."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from klaud.baselines import sandbox, settings
from tests.support import benchmarks, generating

if TYPE_CHECKING:
    import pathlib

    from klaud.baselines import model


@pytest.fixture(scope="session")
def history(tmp_path_factory: pytest.TempPathFactory) -> benchmarks.History:
    return benchmarks.History(tmp_path_factory.mktemp("history") / "repository")


@pytest.fixture
def repository(tmp_path: pathlib.Path) -> benchmarks.Repository:
    return benchmarks.Repository(tmp_path / "repository")


@pytest.fixture(scope="session")
def box() -> sandbox.Sandbox:
    """The strongest sandbox that this host grants, with the default bounds."""
    return sandbox.Sandbox(settings.Bounds(seconds=20))


@pytest.fixture(scope="session")
def periods(history: benchmarks.History, box: sandbox.Sandbox) -> model.Produced:
    """Both families of each period, a process each."""
    needs = dict.fromkeys((history.flat, history.without, history.with_option), generating.BOTH)
    return generating.made(benchmarks.policy(), history, box, needs)
