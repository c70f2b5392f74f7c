"""A child's whole tree ends: by its end, by its bound, and when klaud itself is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from klaud.session import process, sandbox

HOST = sandbox.find("best-effort")
SANDBOXES = [sandbox.NONE, *([HOST] if isinstance(HOST, sandbox.Sandbox) and HOST.parts else [])]
DEAF = "trap '' TERM; setsid sleep 999 & sleep 999 & echo ready; while :; do sleep 999; done"


@pytest.fixture(params=SANDBOXES, ids=lambda found: found.words)
def box(request: pytest.FixtureRequest) -> sandbox.Sandbox:
    found: sandbox.Sandbox = request.param
    return found


@pytest.fixture
def home(tmp_path: Path, box: sandbox.Sandbox) -> Path:
    place = tmp_path / "home"
    place.mkdir()
    if box.uid is not None:
        os.chown(place, box.uid, box.uid)
    return place


def start(home: Path, *argv: str, **env: str) -> process.Start:
    return process.Start(argv, {"PATH": "/usr/bin:/bin", **env}, str(home), write=(str(home),))


def strays(home: Path) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cwd"):
        try:
            if str(path.readlink()).startswith(str(home)):
                found.append(path.parent.name)
        except OSError:
            continue
    return found


def gone(home: Path, seconds: float = 3.0) -> bool:
    deadline = time.monotonic() + seconds
    while strays(home) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not strays(home)


def read_until(child: process.Child, word: bytes) -> bytes:
    text = b""
    while word not in text:
        chunk = child.read(10.0)
        assert isinstance(chunk, bytes), (chunk, text)
        text += chunk
    return text


def test_L96_the_whole_tree_is_killed(home: Path, box: sandbox.Sandbox) -> None:  # noqa: N802 - the oddity's id
    """It ignores SIGTERM, and a child of it is in a session of its own."""
    child = process.Child(start(home, "/bin/sh", "-c", DEAF), box)
    read_until(child, b"ready")
    began = time.monotonic()
    ended = child.end(step_seconds=0.3, total_seconds=3.0)
    assert (ended.how, ended.left) == ("killed", 0)
    assert time.monotonic() - began < 2.0
    assert gone(home)
    assert child.end() is ended, "a second end is the first"


def test_the_tree_ends_when_klaud_is_killed(home: Path, box: sandbox.Sandbox) -> None:
    """SIGKILL to klaud: nobody is left to say so, and still nothing outlives it."""
    program = (
        "import sys, time; from klaud.session import process, sandbox\n"
        f"box = sandbox.Sandbox({box.prefix!r}, {box.parts!r}, {box.uid!r})\n"
        f"child = process.Child(process.Start(('/bin/sh', '-c', {DEAF!r}), {{'PATH': '/usr/bin:/bin'}}, {str(home)!r},"
        f" write=({str(home)!r},)), box)\n"
        "assert isinstance(child.read(10), bytes); print('up', flush=True); time.sleep(99)\n"
    )
    klaud = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert klaud.stdout is not None
    assert klaud.stdout.readline() == b"up\n"
    assert strays(home) or box.parts
    klaud.send_signal(signal.SIGKILL)
    klaud.wait()
    klaud.stdout.close()
    assert gone(home)


def test_a_twin_that_kills_the_group_only_leaves_a_process(tmp_path: Path) -> None:
    """What the cage is for: the agent's children make sessions of their own."""
    twin = subprocess.Popen(
        ["/bin/sh", "-c", "setsid sleep 30 & echo $!; exec sleep 30"], cwd=tmp_path, stdout=subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip
    assert twin.stdout is not None
    left = int(twin.stdout.readline())
    time.sleep(0.1)
    os.killpg(twin.pid, signal.SIGKILL)
    twin.wait()
    twin.stdout.close()
    assert not gone(tmp_path, 0.3)
    os.kill(left, signal.SIGKILL)
    assert gone(tmp_path)


def test_nothing_is_inherited(home: Path, box: sandbox.Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KLAUD_TOKEN", "t-canary")
    with open(os.devnull) as held:  # noqa: PTH123 - a descriptor that must not reach the child
        os.set_inheritable(held.fileno(), True)  # noqa: FBT003 - the library's signature
        with process.Child(start(home, "/bin/sh", "-c", "env; ls /proc/self/fd | wc -l", ONLY="this"), box) as child:
            text = b""
            while isinstance(chunk := child.read(5.0), bytes):
                text += chunk
    lines = text.decode().split()
    assert "ONLY=this" in lines
    assert "t-canary" not in text.decode()
    assert int(lines[-1]) <= 4


def test_an_agent_that_never_reads_does_not_grow_klaud(home: Path, box: sandbox.Sandbox) -> None:
    with process.Child(start(home, "/bin/sleep", "99"), box) as child:
        block = b"x" * 8_000_000
        accepted = [child.write(block) for _ in range(12)]
        assert not all(accepted)
        assert sum(accepted) * len(block) <= process.INPUT_BYTES
        ended = child.end(step_seconds=1.0)
    assert ended.left == 0


def test_an_agent_that_prints_faster_than_it_is_read_waits(home: Path, box: sandbox.Sandbox) -> None:
    with process.Child(start(home, "/bin/sh", "-c", "exec head -c 60000000 /dev/zero"), box) as child:
        time.sleep(0.3)
        assert child._out_bytes <= process.AHEAD_BYTES + process.CHUNK_BYTES
        size = 0
        while isinstance(chunk := child.read(10.0), bytes):
            size += len(chunk)
    assert size == 60_000_000


@pytest.mark.parametrize("prefix", [("/bin/false",), ("/nonexistent/unshare",)])
def test_a_cage_that_does_not_start_is_noticed_at_once(tmp_path: Path, prefix: tuple[str, ...]) -> None:
    began = time.monotonic()
    with pytest.raises(process.NotStartedError):
        process.Child(start(tmp_path, "/bin/true"), sandbox.Sandbox(prefix), start_seconds=30.0)
    assert time.monotonic() - began < 3.0


def test_the_end_of_stderr_is_kept(home: Path, box: sandbox.Sandbox) -> None:
    script = "i=0; while [ $i -lt 3000 ]; do echo line $i >&2; i=$((i+1)); done; echo done"
    child = process.Child(start(home, "/bin/sh", "-c", script), box, stderr_bytes=100)
    read_until(child, b"done")
    ended = child.end()
    assert len(ended.stderr) <= 100
    assert ended.stderr.endswith(b"line 2999\n")


def test_required_isolation_names_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    found = sandbox.find("required")
    assert isinstance(found, sandbox.Lacking)
    assert "unshare" in found.missing[0]
    assert sandbox.find("best-effort") == sandbox.NONE
    assert sandbox.find("none") == sandbox.NONE
