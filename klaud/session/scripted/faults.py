"""Ways to misbehave, each by name: what a driver has to survive."""

import contextlib
import os
import signal
import subprocess
import sys
import time

FOREVER = 3600


def hang() -> None:
    """Do nothing for ever."""
    while True:
        time.sleep(FOREVER)


def ignore_terminate() -> None:
    """Ignore every signal that can be ignored."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def leave_child(*, session: bool) -> None:
    """Leave a child behind that keeps stdout open, in a session of its own where asked."""
    subprocess.Popen(  # the point is that it outlives this program
        [sys.executable, "-I", "-S", "-c", f"import time; time.sleep({FOREVER})"],
        stdout=sys.stdout.fileno(),
        stdin=subprocess.DEVNULL,
        start_new_session=session,
    )


def print_raw(data: bytes) -> None:
    """Write bytes to stdout as they are."""
    with contextlib.suppress(OSError):
        view = memoryview(data)
        while view:
            view = view[os.write(1, view) :]


def long_line(size: int) -> None:
    """Print one line of ``size`` bytes that is valid JSON."""
    print_raw(b'{"type":"assistant","pad":"' + b"x" * (size - 29) + b'"}\n')
