"""A host without root and without sudo: what an agent is kept apart by there, shown as a user without any rights."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
NOBODY = 65_534
PYTHON = "/usr/bin/python3"
"""A Python that everybody may start; the one that runs the tests may lie in somebody's home."""
PROGRAM = """
import json, pathlib, sys
from klaud.session import sandbox
from tests.support import agent_faults as faults

place = pathlib.Path(sys.argv[1])
(place / "secret").write_text("k-canary-0123456789")
found, required = sandbox.find("best-effort"), sandbox.find("required")
told = {"parts": list(found.parts), "missing": list(getattr(required, "missing", ()))}
home = place / "look" / "home"
look = f"cat {place}/secret /etc/shadow; ls -d /root /home /var; ls /proc; cat /proc/net/route; touch /x; echo end"
for name, script in {
    "look": {"steps": [{"do": "run", "command": ["/bin/sh", "-c", f"({look}) >{home}/seen 2>&1"]}]},
    "deaf": {"fault": "hang-deaf"},
    "child": {"fault": "child-in-own-session", "steps": faults.CALL},
}.items():
    (place / name).mkdir()
    end, _, log = faults.drive_script(place / name, found, script)
    told[name] = [end.status, end.fault, end.left, len(faults.strays(place / name))]
told["seen"] = (home / "seen").read_text()
print(json.dumps(told))
"""


def as_nobody(*command: str, place: Path) -> subprocess.CompletedProcess[str]:
    """Run a program as a user without rights, with this repository and its libraries to be read."""
    given = f"{ROOT}:{sysconfig.get_path('purelib')}"
    setpriv = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    return subprocess.run(
        [*setpriv, *command], cwd="/", check=False, capture_output=True, text=True, timeout=60,
        env={"PATH": "/usr/bin:/bin", "HOME": str(place), "PYTHONPATH": given, "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip


@pytest.fixture
def place() -> Iterator[Path]:
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("only root can become a user without rights; elsewhere the other tests run as one")
    made = Path(tempfile.mkdtemp(prefix="klaud-nobody-", dir="/var/tmp"))
    os.chown(made, NOBODY, NOBODY)
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    code = f"import sys, msgspec, klaud.session.sandbox; assert sys.version.startswith({version!r})"
    if not Path(PYTHON).exists() or as_nobody(PYTHON, "-c", code, place=made).returncode:
        pytest.skip(f"{PYTHON} is not a Python {version} that a user without rights can run klaud with")
    if as_nobody("unshare", "--user", "--map-root-user", "true", place=made).returncode:
        pytest.skip("this host allows no user namespaces")
    yield made
    shutil.rmtree(made, ignore_errors=True)


def test_without_root_the_agent_has_its_own_namespaces_and_no_user_of_its_own(place: Path) -> None:
    """``required`` refuses and names what is missing; ``best-effort`` gives the rest, and nothing outlives a turn."""
    done = as_nobody(PYTHON, "-c", PROGRAM, str(place), place=place)
    assert done.returncode == 0, done.stderr[-2000:]
    told: dict[str, Any] = json.loads(done.stdout)
    assert told["parts"] == ["pid", "network", "files"]
    assert any("no own user" in text for text in told["missing"])
    assert told["look"][0] == "completed"
    seen = told["seen"]
    assert seen.rstrip().endswith("end"), seen
    assert "k-canary" not in seen, "a file of klaud's own user is out of its sight"
    assert seen.count("No such file or directory") >= 3, seen
    assert sum(line.isdigit() and int(line) > 0 for line in seen.splitlines()) < 12, "only its own processes are there"
    assert "Read-only file system" in seen
    assert told["deaf"] == ["stalled", "silent", 0, 0]
    assert told["child"] == ["completed", "", 0, 0]
