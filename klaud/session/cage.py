# ruff: noqa: PTH102, PTH103, PTH110, PTH112, PTH114, PTH115, PTH119, PTH120, PTH123, PTH208, PTH211, S108
# no pathlib: start-up time; the temporary folders named here are the new root's own
"""The program between klaud and an agent: it isolates, starts, signals, reaps, and ends everything when klaud is gone.

klaud starts it as ``[sudo -n] [unshare ...] python -I -S cage.py SOCKET``; stdin, stdout and stderr are the agent's. It is
a program of its own that imports the standard library only, because it may run as root and outlives klaud's death.

Over the socket (a Unix socket that klaud listens on) it receives one JSON line, what to start and how:

``argv``, ``env``, ``cwd``
    the agent; the environment is exactly ``env``, nothing is inherited.
``uid``, ``gid``
    become this user before the start (null: stay); then no new privilege can be had (no sudo, no setuid program).
``root``
    null, or ``{"at": DIR, "read": [...], "write": [...], "proc": BOOL}``: a new root file system in which nothing exists but
    these paths, an own ``/tmp``, a small ``/dev`` and ``/proc``. Needs an own mount namespace.
``listen``
    number of sockets to listen on, on the loopback of an own network namespace; they are handed to klaud as descriptors, and
    their ports stand for ``{port0}``, ``{port1}`` ... in the values of ``env``.

and then single bytes: ``T`` terminate the agent, ``K`` kill everything. The end of that stream is ``K``: when klaud dies, by
whatever signal, its descriptors close. It answers JSON lines: ``{"event": "listening", "ports": [...]}`` (with descriptors),
``{"event": "started", "pid": n}``, ``{"event": "failed", "what": "...", "errno": n}``, and last
``{"event": "ended", "status": n, "left": n}``: the agent's wait status, and how many processes could not be killed.

Promise: when this program has ended, no process that the agent started is left: as first process of a pid namespace by the
kernel's own rule, else by a subreaper's scan of ``/proc`` (which an agent that kills this program first can escape; klaud's
outcome says which of both was in force). Only ``/proc/<pid>/stat`` is ever read: the command line and the environment of a
process whose memory map is locked block their reader, seen once for nine minutes.
"""

import contextlib
import ctypes
import fcntl
import json
import os
import resource
import select
import signal
import socket
import struct
import sys
import time
from typing import Any

CONFIG_BYTES = 1_048_576
"""The one line of configuration: an argument list and an environment."""
KILL_SECONDS = 5.0
"""How long killing everything may take: the kernel needs milliseconds; more means a process stuck in the kernel."""
PROCESSES = 4096
"""Processes and threads of the agent's user: a fork bomb must not take the machine along."""

_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_REMOUNT, _MS_BIND, _MS_MOVE, _MS_REC, _MS_PRIVATE = (
    1, 2, 4, 32, 4096, 8192, 16384, 1 << 18,
)  # fmt: skip
_PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 36, 38
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_ETC = ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "ssl", "ca-certificates", "alternatives", "localtime", "pki")
_DEVICES = ("null", "zero", "full", "random", "urandom")

_libc = ctypes.CDLL(None, use_errno=True)


class _FailedError(Exception):
    def __init__(self, what: str, number: int = 0) -> None:
        super().__init__(what)
        self.what = what
        self.number = number


def _prctl(option: int, value: int) -> None:
    _libc.prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0))


def _mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    encoded = [text.encode() if text is not None else None for text in (source, target, kind, data)]
    if _libc.mount(encoded[0], encoded[1], encoded[2], ctypes.c_ulong(flags), encoded[3]) != 0:
        number = ctypes.get_errno()
        raise _FailedError(f"mounting {target}: {os.strerror(number)}", number)


def _bind(source: str, target: str, *, writable: bool) -> None:
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "a", encoding="ascii"):
            pass
    _mount(source, target, None, _MS_BIND | (_MS_REC if not writable else 0))
    flags = _MS_BIND | _MS_REMOUNT | _MS_NOSUID | (0 if writable else _MS_RDONLY)
    try:
        _mount("none", target, None, flags | _MS_NODEV)
    except _FailedError:
        _mount("none", target, None, flags)  # in a user namespace the host's own flags are locked


def _new_root(root: dict[str, Any], uid: int | None, gid: int | None) -> None:
    """Make the new root at ``root["at"]`` and move into it."""
    new = root["at"]
    _mount("none", "/", None, _MS_REC | _MS_PRIVATE)
    _mount("tmpfs", new, "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=755,size=16m")
    for path in _SYSTEM:
        if os.path.islink(path):
            os.symlink(os.readlink(path), new + path)
        elif os.path.isdir(path):
            _bind(path, new + path, writable=False)
    os.mkdir(new + "/etc")
    for name in _ETC:
        if os.path.exists(f"/etc/{name}"):
            _bind(f"/etc/{name}", f"{new}/etc/{name}", writable=False)
    who = f"agent:x:{uid or 0}:{gid or 0}:agent:{root.get('home', '/tmp')}:/bin/sh\n"
    for name, text in (("passwd", who), ("group", f"agent:x:{gid or 0}:\n"), ("hosts", "127.0.0.1 localhost\n")):
        with open(f"{new}/etc/{name}", "w", encoding="ascii") as file:
            file.write(text)
    os.mkdir(new + "/tmp")
    _mount("tmpfs", new + "/tmp", "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=1777,size=512m")
    os.mkdir(new + "/dev")
    for name in _DEVICES:
        _device(f"/dev/{name}", f"{new}/dev/{name}")
    os.symlink("/proc/self/fd", new + "/dev/fd")
    os.mkdir(new + "/dev/shm")
    _mount("tmpfs", new + "/dev/shm", "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=1777,size=64m")
    os.mkdir(new + "/proc")
    if root["proc"]:
        _mount("proc", new + "/proc", "proc", _MS_NOSUID | _MS_NODEV | 8)
    for path in root["read"]:
        _bind(path, new + path, writable=False)
    for path in root["write"]:
        _bind(path, new + path, writable=True)
    _mount("none", new, None, _MS_BIND | _MS_REMOUNT | _MS_NOSUID | _MS_NODEV | _MS_RDONLY)
    os.chdir(new)
    _mount(new, "/", None, _MS_MOVE)
    os.chroot(".")
    os.chdir("/")


def _device(source: str, target: str) -> None:
    with open(target, "w", encoding="ascii"):
        pass
    _mount(source, target, None, _MS_BIND)


def _loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        request = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(probe, _SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(probe, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | _IFF_UP))


def _listen(control: socket.socket, count: int) -> list[int]:
    _loopback_up()
    sockets = []
    for _ in range(count):
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        sockets.append(listener)
    ports = [listener.getsockname()[1] for listener in sockets]
    line = json.dumps({"event": "listening", "ports": ports}) + "\n"
    socket.send_fds(control, [line.encode()], [listener.fileno() for listener in sockets])
    for listener in sockets:
        listener.close()
    return ports


def _descendants() -> set[int]:
    """Return the processes below this one; orphans are below it too, because it is their subreaper."""
    parents = {}
    me = os.getpid()
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == me:
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                text = file.read()
            state, parent = text[text.rindex(b")") + 2 :].split()[:2]
        except (OSError, ValueError):
            continue
        if state == b"Z":
            continue
        parents[int(name)] = int(parent)
    found: set[int] = set()
    grown = True
    while grown:
        more = {pid for pid, parent in parents.items() if (parent == me or parent in found) and pid not in found}
        found |= more
        grown = bool(more)
    return found


def _reap() -> dict[int, int]:
    statuses: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return statuses
        if pid == 0:
            return statuses
        statuses[pid] = status


def _kill_all() -> tuple[dict[int, int], int]:
    """Kill and reap everything below; return the wait statuses, and how many are left after KILL_SECONDS."""
    statuses: dict[int, int] = {}
    deadline = time.monotonic() + KILL_SECONDS
    while True:
        if os.getpid() == 1:
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)
            left = len([name for name in os.listdir("/proc") if name.isdigit() and name != "1"])
            left = 0 if not os.path.exists("/proc/1") else left
        else:
            found = _descendants()
            for pid in found:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            left = len(found)
        statuses.update(_reap())
        if left == 0 or time.monotonic() > deadline:
            return statuses, left
        time.sleep(0.005)  # let the killed die before the next count; bounded by the deadline


def _become_agent(config: dict[str, Any], report: int) -> None:
    """In the forked child: become the agent, or say on ``report`` why not. Does not return."""
    try:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if config["uid"] is not None:
            resource.setrlimit(resource.RLIMIT_NPROC, (PROCESSES, PROCESSES))
            os.setgroups([])
            os.setresgid(config["gid"], config["gid"], config["gid"])
            os.setresuid(config["uid"], config["uid"], config["uid"])
        _prctl(_PR_SET_NO_NEW_PRIVS, 1)
        for number in (signal.SIGPIPE, signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        os.chdir(config["cwd"])
        os.umask(0o022)
        # no close_range in ctypes' reach everywhere: everything above stderr but the close-on-exec report goes here
        for name in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else map(str, range(3, 256)):
            if int(name) > 2 and int(name) != report:
                with contextlib.suppress(OSError):
                    os.close(int(name))
        os.execve(config["argv"][0], config["argv"], config["env"])  # noqa: S606 - that is this program's purpose
    except OSError as error:
        os.write(report, f"{error.errno} {os.strerror(error.errno or 0)}".encode())
    except BaseException as error:  # noqa: BLE001 - a forked child must never return into the parent's code
        os.write(report, f"0 {type(error).__name__}".encode())
    os._exit(127)


def _say(control: socket.socket, event: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):
        control.sendall(json.dumps(event).encode() + b"\n")


def _read_config(control: socket.socket) -> dict[str, Any]:
    data = b""
    while not data.endswith(b"\n"):
        chunk = control.recv(65536)
        if not chunk or len(data) > CONFIG_BYTES:
            raise _FailedError("the configuration did not arrive whole")
        data += chunk
    config: dict[str, Any] = json.loads(data)
    return config


def _start(config: dict[str, Any], control: socket.socket) -> int:
    uid, gid = config["uid"], config["gid"]
    if config["listen"]:
        for number, port in enumerate(_listen(control, config["listen"])):
            config["env"] = {key: text.replace(f"{{port{number}}}", str(port)) for key, text in config["env"].items()}
    if config["root"] is not None:
        _new_root(config["root"], uid, gid)
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        _become_agent(config, writing)
    os.close(writing)
    nothing = os.open("/dev/null", os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    os.close(nothing)
    answer = b""
    while chunk := os.read(reading, 4096):
        answer += chunk
    os.close(reading)
    if answer:
        os.waitpid(pid, 0)
        code, _, words = answer.decode().partition(" ")
        raise _FailedError(f"starting {os.path.basename(config['argv'][0])}: {words}", int(code))
    return pid


def _watch(control: socket.socket, wakeup: socket.socket, agent: int) -> None:
    """Obey the control stream until the agent has ended or klaud is gone; leave nothing behind."""
    while True:
        readable, _, _ = select.select([control, wakeup], [], [])
        statuses = _reap()
        if agent in statuses:
            _, left = _kill_all()
            _say(control, {"event": "ended", "status": statuses[agent], "left": left})
            return
        if wakeup in readable:
            with contextlib.suppress(BlockingIOError):
                wakeup.recv(4096)
        if control in readable:
            try:
                order = control.recv(1)
            except OSError:
                order = b""
            if order == b"T":
                with contextlib.suppress(OSError):
                    os.kill(agent, signal.SIGTERM)
            else:
                statuses, left = _kill_all()
                _say(control, {"event": "ended", "status": statuses.get(agent, -1), "left": left})
                return


def main() -> None:
    """Run as described above."""
    control = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    control.connect(sys.argv[1])
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    ours, theirs = socket.socketpair()
    for end in (ours, theirs):
        end.setblocking(False)  # noqa: FBT003 - the socket's own signature
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # klaud decides; a signal to the whole group must not free the agent
    try:
        config = _read_config(control)
        agent = _start(config, control)
    except _FailedError as error:
        _say(control, {"event": "failed", "what": error.what, "errno": error.number})
        _kill_all()
        os._exit(126)
    except (OSError, ValueError, KeyError) as error:
        _say(control, {"event": "failed", "what": f"{type(error).__name__}: {error}"[:300], "errno": 0})
        _kill_all()
        os._exit(126)
    _say(control, {"event": "started", "pid": agent})
    _watch(control, ours, agent)
    os._exit(0)


if __name__ == "__main__":
    main()
