"""Two processes on one root, twenty times: one build each time, and its tokens counted once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROUNDS = 20


@pytest.mark.slow
def test_twenty_times_one_of_two_processes_builds(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.racing", str(tmp_path), str(ROUNDS)],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=110,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    rounds = json.loads(done.stdout)
    assert len(rounds) == ROUNDS
    for one in rounds:
        (idle, builder), total = one["told"], one["total"]
        assert (idle[0], builder[0]) == (False, True)
        assert (idle[1], builder[1], total) == (0, 14, 14)
        assert (idle[3], builder[3]) == (0, 2)  # agents run
        assert idle[2] == builder[2]  # fingerprint
