"""Hostile generators: each is contained, ended and named, and leaves no process behind.

Every bomb here has a fuse: it makes at most a few hundred processes that end by themselves, so that a sandbox that fails
fails this suite and not the machine.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from klaud import errors
from klaud.baselines import sandbox, settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from klaud.baselines import model

BOUNDS = settings.Bounds(seconds=20.0, memory_bytes=512 << 20, output_bytes=1 << 20, file_bytes=1 << 20, processes=20)

BOMB = """
import os, time
for _ in range(300):
    if os.fork() == 0:
        time.sleep(12)
        os._exit(0)
time.sleep(12)
"""
SPAWNING_TREE = """
import os, time
for _ in range(8):
    os.fork()
time.sleep(3)
"""


def interpreter() -> str | None:
    """Return an interpreter that root's commands, who run as nobody in a bare group, can read."""
    if os.getuid() != 0:
        return sys.executable
    return next((path for path in ("/usr/bin/python3", "/usr/local/bin/python3") if os.access(path, os.X_OK)), None)


def groups() -> bool:
    """Tell whether a process group alone can hold a bomb here."""
    try:
        return sandbox.Sandbox(BOUNDS, levels=(), bubblewrap="").isolation.method == "process-group"
    except errors.MissingToolError:
        return False


def namespaces() -> bool:
    return sandbox.Sandbox(BOUNDS, bubblewrap="").isolation.method == "namespaces"


PYTHON = interpreter()
HAS_GROUPS = PYTHON is not None and groups()
HAS_NAMESPACES = namespaces()


@pytest.fixture(params=["walls", "group"])
def jail(request: pytest.FixtureRequest) -> sandbox.Sandbox:
    if request.param == "walls":
        if not HAS_NAMESPACES:
            pytest.skip("this host grants no namespaces")
        return sandbox.Sandbox(BOUNDS, required=True)
    if not HAS_GROUPS:
        pytest.skip("nothing here can limit processes, or no interpreter is readable for others")
    return sandbox.Sandbox(BOUNDS, levels=(), bubblewrap="")


@pytest.fixture
def tree(tmp_path: pathlib.Path) -> pathlib.Path:
    folder = pathlib.Path(tmp_path)
    for path in (folder, *folder.parents):  # where root's commands run as nobody, nobody must get there
        if path.stat().st_uid == os.getuid() and path.name.startswith(("pytest-", "popen-", "test_")):
            path.chmod(0o755)
    (folder / "input").write_text("given")
    (folder / "input").chmod(0o444)
    folder.chmod(0o555)
    return folder


def run(
    jail: sandbox.Sandbox, tree: pathlib.Path, script: str, stdin: bytes = b"", seconds: float | None = None
) -> model.Outcome:
    python = PYTHON if jail.isolation.method == "process-group" else sys.executable
    return jail.run([python or sys.executable, "-c", script], tree=tree, environment={}, stdin=stdin, seconds=seconds)


def left_behind(mark: str) -> list[str]:
    """Return the command lines of live processes that carry a mark."""
    found = []
    for process in pathlib.Path("/proc").iterdir():
        if process.name.isdigit() and int(process.name) != os.getpid():
            try:
                line = (process / "cmdline").read_bytes()
            except OSError:
                continue
            if mark.encode() in line:
                found.append(line.decode(errors="replace"))
    return found


@pytest.fixture
def mark() -> Iterator[str]:
    """A word by which a test's processes are known; none may live after it."""
    word = f"mark-{os.getpid()}-{time.monotonic_ns()}"
    yield word
    assert left_behind(word) == []


def test_a_plain_command_works(jail: sandbox.Sandbox, tree: pathlib.Path) -> None:
    done = run(jail, tree, "import sys; print(open('input').read()); sys.stderr.write('e'); sys.exit(3)")
    assert (done.exit, done.stdout, done.stderr, done.exceeded, done.daemons) == (3, b"given\n", b"e", "", 0)


@pytest.mark.parametrize("script", [BOMB, SPAWNING_TREE], ids=["many", "doubling"])
def test_a_fork_bomb_ends_early(jail: sandbox.Sandbox, tree: pathlib.Path, mark: str, script: str) -> None:
    done = run(jail, tree, f"# {mark}\n{script}")
    # where the kernel refuses a branch of the tree the rest of it may live on, within the limit
    assert done.exceeded == "processes" or b"BlockingIOError" in done.stderr
    assert done.seconds < 6  # many would live for longer


def test_ten_gigabytes_of_output_stop_at_the_bound(jail: sandbox.Sandbox, tree: pathlib.Path, mark: str) -> None:
    done = run(jail, tree, f"# {mark}\nimport sys\nfor _ in range(10_000): sys.stdout.write('x' * 1_000_000)")
    assert (done.exceeded, len(done.stdout)) == ("output", BOUNDS.output_bytes)


def test_a_flood_of_errors_is_cut_and_ended(jail: sandbox.Sandbox, tree: pathlib.Path, mark: str) -> None:
    done = run(jail, tree, f"# {mark}\nimport sys\nwhile True: sys.stderr.write('x' * 1_000_000)")
    assert (done.exceeded, len(done.stderr)) == ("output", sandbox.KEPT_STDERR)


def test_writes_outside_its_scratch_fail(jail: sandbox.Sandbox, tree: pathlib.Path, tmp_path: pathlib.Path) -> None:
    script = f"""
import os
for path in ("input", "new", {str(tmp_path / "x")!r}, {str(pathlib.Path.home() / "klaud-here")!r}, "/etc/klaud-here"):
    try:
        os.chmod(os.path.dirname(path) or ".", 0o777)
    except OSError:
        pass
    try:
        open(path, "w").write("edited"); print("wrote", path)
    except OSError:
        pass
open(os.environ["HOME"] + "/mine", "w").write("ok"); print("scratch")
"""
    done = run(jail, tree, script)
    assert done.stdout == b"scratch\n"
    assert (tree / "input").read_text() == "given"


def test_a_file_larger_than_its_bound_cannot_be_made(jail: sandbox.Sandbox, tree: pathlib.Path) -> None:
    done = run(jail, tree, "import os\nopen(os.environ['HOME'] + '/big', 'wb').write(bytes(64 << 20))")
    assert done.exit != 0


def test_the_environment_is_empty_but_for_what_is_named(
    jail: sandbox.Sandbox, tree: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KLAUD_TOKEN", "secret-value")
    script = """
import glob, os
print(sorted(os.environ), os.listdir(os.environ["HOME"]))
for path in glob.glob("/proc/[0-9]*/environ"):
    try:
        if b"secret-value" in open(path, "rb").read(): print("found in", path)
    except OSError:
        pass
"""
    done = run(jail, tree, script)
    names = b"['HOME', 'LANG', 'LC_CTYPE', 'PATH', 'PYTHONDONTWRITEBYTECODE', 'PYTHONHASHSEED', 'TMPDIR', 'TZ'] []\n"
    assert done.stdout.replace(b"'LC_CTYPE', ", b"") == names.replace(b"'LC_CTYPE', ", b"")


def test_sigterm_is_followed_by_sigkill(jail: sandbox.Sandbox, tree: pathlib.Path, mark: str) -> None:
    """By a shell, which has set its traps long before the limit."""
    script = f"trap '' TERM INT HUP; : {mark}; while :; do sleep 20; done"
    done = jail.run(["sh", "-c", script], tree=tree, environment={}, seconds=0.5)
    assert (done.exceeded, done.exit) == ("seconds", -9)
    assert done.seconds < 8


def test_a_daemon_is_counted_and_ended(jail: sandbox.Sandbox, tree: pathlib.Path, mark: str) -> None:
    script = f"""# {mark}
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 3)
        time.sleep(60)
    os._exit(0)
time.sleep(0.2)
print("done")
"""
    done = run(jail, tree, script)
    assert (done.exit, done.stdout, done.daemons) == (0, b"done\n", 1)
    assert done.seconds < 6  # its processes would live for longer


def test_memory_is_bounded(jail: sandbox.Sandbox, tree: pathlib.Path) -> None:
    done = run(jail, tree, "x = bytes(1 << 30)")
    assert (done.exit, b"MemoryError" in done.stderr) == (1, True)


def test_a_program_that_is_not_there_is_said_not_to_be(jail: sandbox.Sandbox, tree: pathlib.Path) -> None:
    done = jail.run(["no-such-program"], tree=tree, environment={})
    assert done.exit == 127
    assert done.not_started in {"FileNotFoundError", "PermissionError"}  # what of PATH a stranger may not read


def test_standard_input_is_what_is_given(jail: sandbox.Sandbox, tree: pathlib.Path) -> None:
    script = "import sys; print(sys.stdin.read())"
    done = run(jail, tree, script, b"hello")
    assert done.stdout == b"hello\n"
    assert run(jail, tree, script).stdout == b"\n"


# -- what only walls give


@pytest.fixture
def walls() -> sandbox.Sandbox:
    if not HAS_NAMESPACES:
        pytest.skip("this host grants no namespaces")
    return sandbox.Sandbox(BOUNDS, required=True)


def test_there_is_no_network(walls: sandbox.Sandbox, tree: pathlib.Path) -> None:
    script = """
import socket
with socket.socket() as server:
    try:
        server.bind(("0.0.0.0", 0))
        socket.create_connection(("127.0.0.1", server.getsockname()[1]), 1)
    except OSError as error:
        print(type(error).__name__)
print([name for _, name in socket.if_nameindex()])
"""
    done = run(walls, tree, script)
    assert done.stdout == b"OSError\n['lo']\n"
    assert walls.isolation.network == "none"


def test_root_inside_has_no_power_over_the_host(walls: sandbox.Sandbox, tree: pathlib.Path) -> None:
    script = """
import ctypes, os
libc = ctypes.CDLL(None)
print(libc.unshare(0x10000000), libc.mount(b"none", b"/mnt", b"tmpfs", 0, None), libc.sethostname(b"x", 1))
for path in ("/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger"):
    try: open(path, "w").write("x"); print("wrote", path)
    except OSError: pass
print([line for line in open("/proc/self/status") if line.startswith("CapEff")])
print(sorted(int(name) for name in os.listdir("/proc") if name.isdigit()))
"""
    done = run(walls, tree, script)
    assert done.stdout == b"-1 -1 -1\n['CapEff:\\t0000000000000000\\n']\n[1, 2]\n"


def test_hidden_paths_are_covered(tree: pathlib.Path) -> None:
    if not HAS_NAMESPACES:
        pytest.skip("this host grants no namespaces")
    folder = pathlib.Path(__file__).parent
    jail = sandbox.Sandbox(BOUNDS, required=True, hidden=[folder])
    script = f"""
import os
try: print(os.listdir({str(folder)!r}))
except OSError: print("closed")
print([name for name in os.listdir("/tmp") if not {str(folder)!r}.startswith(f"/tmp/{{name}}/")])
"""
    assert run(jail, tree, script).stdout in {b"closed\n['klaud']\n", b"[]\n['klaud']\n"}


def test_required_walls_are_not_replaced_by_weaker_ones() -> None:
    with pytest.raises(errors.MissingToolError, match="grants neither namespaces nor bubblewrap"):
        _ = sandbox.Sandbox(BOUNDS, required=True, levels=(), bubblewrap="").isolation


def test_the_walls_in_force_are_stated() -> None:
    if HAS_NAMESPACES:
        found = sandbox.Sandbox(BOUNDS).isolation
        assert (found.method, found.network, found.writes) == ("namespaces", "none", "scratch-only")
    if HAS_GROUPS:
        found = sandbox.Sandbox(BOUNDS, levels=(), bubblewrap="").isolation
        assert (found.network, found.writes, found.ends_daemons) == (
            "host",
            "file-permissions",
            "process-group-and-scan",
        )
    if not HAS_GROUPS:
        with pytest.raises(errors.MissingToolError, match="processes cannot be limited"):
            _ = sandbox.Sandbox(BOUNDS, levels=(), bubblewrap="").isolation


def test_bubblewrap_serves_where_the_kernel_refuses(tree: pathlib.Path, mark: str) -> None:
    jail = sandbox.Sandbox(BOUNDS, levels=())
    try:
        if jail.isolation.method != "bubblewrap":
            pytest.skip("bubblewrap is not installed")
    except errors.MissingToolError:
        pytest.skip("bubblewrap is not installed")
    done = run(jail, tree, f"# {mark}\nimport os, socket; print(os.getcwd(), [n for _, n in socket.if_nameindex()])")
    assert done.stdout == b"/tmp/klaud/tree ['lo']\n"
    assert run(jail, tree, f"# {mark}\n{BOMB}").exceeded == "processes"


def test_the_suite_catches_a_sandbox_that_only_ends_the_command(tree: pathlib.Path) -> None:
    """The broken twin: without the warden, a daemon outlives its command."""
    word = f"twin-{os.getpid()}"
    script = f"# {word}\nimport os, time\nif os.fork() == 0:\n    os.setsid(); os.closerange(0, 3); time.sleep(2)"
    subprocess.run([sys.executable, "-c", script], cwd=tree, check=True, stdout=subprocess.DEVNULL)
    assert left_behind(word)
