"""A real PostgreSQL server for a test, on a socket in a temporary directory; skipped with a reason where there is none."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

START_SECONDS = 60.0
"""To make a cluster and start its server on a busy machine."""


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        beside = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
        found = str(beside[-1]) if beside else None
    if found is None:
        pytest.skip(f"no PostgreSQL server here: the program {name} is not installed")
    return found


def _as_server(*command: str) -> list[str]:
    """Return the command as a user who may run the server: it refuses to run as root."""
    if os.geteuid() != 0:
        return list(command)
    try:
        pwd.getpwnam("postgres")
    except KeyError:
        pytest.skip("no PostgreSQL server here: there is no user postgres, and root may not run it")
    return ["runuser", "-u", "postgres", "--", *command]


def _run(*command: str) -> None:
    done = subprocess.run(
        _as_server(*command), check=False, capture_output=True, text=True, timeout=START_SECONDS, cwd="/",
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    if done.returncode != 0:
        pytest.fail(f"{command[0]} failed: {done.stdout[-1000:]}{done.stderr[-1000:]}")


@contextlib.contextmanager
def server() -> Iterator[Path]:
    """Run a server; yield the directory of its socket. User ``klaud`` has the password ``canary-pass``."""
    initdb, pg_ctl, psql_free = _program("initdb"), _program("pg_ctl"), _program("postgres")
    del psql_free
    with tempfile.TemporaryDirectory(prefix="klaud-pg-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        if os.geteuid() == 0:
            shutil.chown(folder, "postgres")
        password = folder / "password"
        password.write_text("canary-pass\n")
        password.chmod(0o644)
        data = folder / "data"
        log = folder / "log"
        _run(
            initdb, "-D", str(data), "-U", "klaud", f"--pwfile={password}", "-A", "scram-sha-256", "-E", "UTF8",
            "--locale=C", "--no-sync",
        )  # fmt: skip
        options = f"-c listen_addresses='' -c unix_socket_directories='{folder}' -c fsync=off"
        _run(pg_ctl, "-D", str(data), "-l", str(log), "-w", "-o", options, "start")
        try:
            yield folder
        finally:
            _run(pg_ctl, "-D", str(data), "-m", "immediate", "-w", "stop")
