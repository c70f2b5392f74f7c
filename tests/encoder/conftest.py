from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("slayer", reason="the extra 'encoder' (motley-slayer) is not installed")

from klaud.encoder import agents, reference
from tests.support import encoding

if TYPE_CHECKING:
    from pathlib import Path

    from klaud.encoder import model


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, model.ReferenceEntry]:
    """The example, encoded once by its program as a real child process: (root, entry). Never changed by a test."""
    root = tmp_path_factory.mktemp("whole")
    encoding.make(root)
    agent = agents.ProgramAgent([sys.executable, "-I", "-S", str(encoding.AGENT)])
    return root, asyncio.run(reference.ensure_reference(encoding.request(root, agent)))
