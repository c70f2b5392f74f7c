"""The inside of the sandbox: a script of its own that runs one untrusted command and ends everything it started.

Run as ``python -I jail.py SPEC`` (SPEC is JSON; see ``main``) with a report pipe on a file descriptor that the spec
names. It imports nothing of klaud, since it runs between klaud and code that klaud does not trust.

Three processes: the *door* (this one) waits and can be told to stop; the *warden*, process 1 of its own pid namespace
where the kernel grants one, sets the walls up, counts and kills; the *command* runs with no capability, limits on memory
and files, and an environment that the spec names in full. What the warden leaves, the kernel ends with the namespace.
Without a pid namespace (``bubblewrap`` has its own; a bare process group has none) the warden is the subreaper of all that
the command starts, so a daemon becomes its child and is found by walking ``/proc``; and since walking loses against a fork
bomb, the command then never starts without a limit on processes that the kernel heeds: RLIMIT_NPROC, which it does not for
root, so root's commands run as NOBODY.

Walls (``namespaces``): everything read-only; fresh, small ``/tmp``, ``/run``, ``/var/tmp``, ``/dev/shm``; own ``/proc``;
no network device but an unset loopback; no System V or POSIX queues of others; hidden paths covered.
Not promised: secrecy of world-readable files that no list hides (the job holds no secret); a wall against a kernel fault.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import sys
import time
from typing import Any, NoReturn

NEWNS, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET = 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
MS_NOSUID, MS_NODEV, MS_BIND, MS_REC = 2, 4, 4096, 16384
AT_FDCWD, AT_RECURSIVE, SYS_MOUNT_SETATTR = -100, 0x8000, 442
MOUNT_ATTR_RDONLY, MS_RDONLY, MS_PRIVATE = 1, 1, 1 << 18
PR_SET_PDEATHSIG, PR_CAPBSET_DROP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 24, 36, 38

NOBODY = 65534
"""The account as which a command of root runs where only RLIMIT_NPROC stands between it and a fork bomb."""

HOME = "/tmp/klaud/home"  # noqa: S108 - inside the namespace /tmp is a fresh file system of its own
TREE = "/tmp/klaud/tree"  # noqa: S108 - likewise

TICK = 0.02
"""Seconds between two looks at the processes: a fork bomb makes a few thousand in that time, which a host bears."""

GRACE = 1.0
"""Seconds between SIGTERM and SIGKILL: enough to flush, too short to matter."""

_libc = ctypes.CDLL(None, use_errno=True)


class _MountAttr(ctypes.Structure):
    _fields_ = (
        ("set", ctypes.c_uint64),
        ("clear", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns", ctypes.c_uint64),
    )


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)


def _prctl(option: int, value: int) -> int:
    return int(_libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0))


# -- walls ------------------------------------------------------------------------------------------------------------


def _enter(flags: int) -> None:
    """Unshare; keep our own ids in the new user namespace."""
    uid, gid = os.getuid(), os.getgid()
    _check(_libc.unshare(flags), "unshare")
    if flags & NEWUSER:
        for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:  # noqa: PTH123 - no pathlib in a jail
                file.write(text)


def _mount(source: str, target: str, kind: str | None, flags: int, data: str = "") -> None:
    _check(
        _libc.mount(
            source.encode(), target.encode(), kind.encode() if kind else None, ctypes.c_ulong(flags), data.encode()
        ),
        f"mount {target}",
    )


def _walls(spec: dict[str, Any]) -> None:
    """Make everything read-only, cover what is hidden, and bring back the tree and the kept folders."""
    masked = [path for path in ("/tmp", "/var/tmp", "/run", "/dev/shm") if os.path.isdir(path)]  # noqa: S108, PTH112
    masked = [path for path in masked if os.path.realpath(path) == path]
    kept = [path for path in spec["keep"] if any(path.startswith(mask + "/") for mask in masked)]
    doors = [(path, os.open(path, os.O_PATH)) for path in kept if os.path.isdir(path)]  # noqa: PTH112
    tree = os.open(spec["tree"], os.O_PATH)
    read_only = _MountAttr(MOUNT_ATTR_RDONLY, 0, MS_PRIVATE, 0)
    _check(
        _libc.syscall(
            SYS_MOUNT_SETATTR, AT_FDCWD, b"/", AT_RECURSIVE, ctypes.byref(read_only), ctypes.sizeof(read_only)
        ),
        "mount_setattr /",
    )
    if spec["flags"] & NEWUSER:  # this counter belongs to our own user namespace: no namespaces below ours
        _mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV)
        with contextlib.suppress(OSError), open("/proc/sys/user/max_user_namespaces", "w", encoding="ascii") as file:  # noqa: PTH123
            file.write("0")
    # read-only: /proc/sys heeds the user id alone, so root without capabilities could otherwise set the host's core_pattern
    _mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_RDONLY)
    for path in masked:
        _mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, f"size={spec['file_bytes']},mode=1777")
    for path in spec["hidden"]:
        if os.path.isdir(path):  # noqa: PTH112
            _mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, "size=4096,mode=0")
        elif os.path.exists(path):  # noqa: PTH110
            _mount("/dev/null", path, None, MS_BIND)
    os.makedirs(HOME)  # noqa: PTH103
    os.makedirs(TREE)  # noqa: PTH103
    for path, door in [*doors, (TREE, tree)]:
        os.makedirs(path, exist_ok=True)  # noqa: PTH103
        _mount(f"/proc/self/fd/{door}", path, None, MS_BIND | MS_REC)
        os.close(door)


def _drop() -> None:
    """Give up every capability, now and for whatever is executed."""
    for capability in range(64):
        _prctl(PR_CAPBSET_DROP, capability)
    _prctl(PR_SET_NO_NEW_PRIVS, 1)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    _libc.capset(header, (ctypes.c_uint32 * 6)())


def _limits(spec: dict[str, Any]) -> None:
    wanted = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_AS: spec["memory_bytes"],
        resource.RLIMIT_FSIZE: spec["file_bytes"],
        resource.RLIMIT_NOFILE: 256,
        resource.RLIMIT_CPU: int(spec["seconds"] * spec["processes"]) + 1,
    }
    # two more than allowed, so that a command at the limit is over the bound, and is named
    if spec["flags"] & NEWUSER:  # counted for this user in this namespace alone
        wanted[resource.RLIMIT_NPROC] = spec["processes"] + 2
    elif not spec["flags"]:  # counted for this user on the whole host
        wanted[resource.RLIMIT_NPROC] = _tasks_of(spec["uid"] or os.getuid()) + spec["processes"] + 2
    for limit, value in wanted.items():
        with contextlib.suppress(ValueError, OSError):
            hard = resource.getrlimit(limit)[1]
            value = value if hard == resource.RLIM_INFINITY else min(value, hard)  # noqa: PLW2901 - the lower of two
            resource.setrlimit(limit, (value, value))


def _tasks_of(uid: int) -> int:
    """Return how many processes and threads a user has now."""
    count = 0
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError):
                if os.stat(f"/proc/{name}").st_uid == uid:  # noqa: PTH116
                    count += len(os.listdir(f"/proc/{name}/task"))  # noqa: PTH208
    return count


# -- the warden -------------------------------------------------------------------------------------------------------


def _stat(pid: str) -> tuple[int, str, int] | None:
    """Return (parent, state, resident bytes) of a process, None where it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return int(fields[1]), fields[0].decode(), int(fields[21]) * resource.getpagesize()


def _below(own: bool) -> dict[int, int]:
    """Return the live processes that the command started, with their resident bytes.

    ``own``: we are process 1, so everything that is not us counts. Otherwise: our descendants.
    """
    me = os.getpid()
    found: dict[int, tuple[int, int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit() and int(name) != me:
            stat = _stat(name)
            if stat and (stat[1] not in "ZX" or not own):
                found[int(name)] = stat[0], stat[2] if stat[1] not in "ZX" else -1
    if own:
        return {pid: memory for pid, (_, memory) in found.items()}
    children: dict[int, list[int]] = {}
    for pid, (parent, _) in found.items():
        children.setdefault(parent, []).append(pid)
    ours: dict[int, int] = {}
    pending = list(children.get(me, ()))
    while pending:
        pid = pending.pop()
        if found[pid][1] >= 0:
            ours[pid] = found[pid][1]
        pending.extend(children.get(pid, ()))
    return ours


def _signal_all(own: bool, number: int) -> None:
    if own:
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, number)
        return
    for pid in _below(own):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _reap(command: int, status: int | None) -> int | None:
    """Reap whatever has ended; return the command's wait status once it is known."""
    while True:
        try:
            pid, ended = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return status
        if pid == 0:
            return status
        if pid == command:
            status = ended


def _end_all(own: bool, command: int, status: int | None, *, at_once: bool) -> int | None:
    """End all processes: SIGTERM, GRACE seconds, then SIGKILL until none is left (a second at most)."""
    if not at_once:
        _signal_all(own, signal.SIGTERM)
        until = time.monotonic() + GRACE
        while time.monotonic() < until and _below(own):
            status = _reap(command, status)
            time.sleep(TICK)
    for _ in range(200):
        _signal_all(own, signal.SIGKILL)
        status = _reap(command, status)
        if not _below(own):
            break
        time.sleep(TICK / 4)
    return _reap(command, status)


def _warden(spec: dict[str, Any], report: int) -> NoReturn:
    own = bool(spec["flags"] & NEWPID)
    stopping: list[bool] = []
    if own:
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    else:
        _prctl(PR_SET_CHILD_SUBREAPER, 1)
        signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))
        _prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    answer: dict[str, Any] = {"exceeded": "", "daemons": 0, "most": 0}
    try:
        if spec["flags"] & NEWNS:
            _walls(spec)
        start, failed = os.pipe()
        command = os.fork()
        if command == 0:
            _command(spec, failed)
    except OSError as error:
        _say(report, {"setup": f"{error.filename or ''} {error.strerror}".strip()})
        os._exit(125)
    os.close(failed)
    deadline = time.monotonic() + spec["seconds"]
    status: int | None = None
    while True:
        status = _reap(command, status)
        below = _below(own)
        answer["most"] = max(answer["most"], len(below))
        if status is not None:
            answer["daemons"] = len(below)
            status = _end_all(own, command, status, at_once=False) if below else status
            break
        if len(below) > spec["processes"]:
            answer["exceeded"] = "processes"
        elif sum(below.values()) > spec["memory_bytes"]:
            answer["exceeded"] = "memory"
        elif time.monotonic() > deadline:
            answer["exceeded"] = "seconds"
        if answer["exceeded"] or stopping:
            bomb = answer["exceeded"] in ("processes", "memory")
            status = _end_all(own, command, status, at_once=bomb)
            break
        time.sleep(TICK)
    not_started = os.read(start, 300).decode("utf-8", "replace")
    answer["status"] = os.waitstatus_to_exitcode(status) if status is not None else -signal.SIGKILL
    answer["not_started"] = not_started
    _say(report, answer)
    os._exit(0)


def _command(spec: dict[str, Any], failed: int) -> NoReturn:
    try:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        os.nice(5)
        _limits(spec)
        if spec["uid"]:
            os.setgroups([])
            os.setresgid(spec["uid"], spec["uid"], spec["uid"])
            os.setresuid(spec["uid"], spec["uid"], spec["uid"])
        _drop()
        os.chdir(spec["cwd"])
        os.execvpe(spec["argv"][0], spec["argv"], spec["environment"])  # noqa: S606 - the point of it
    except BaseException as error:  # noqa: BLE001 - nothing may return into the warden's code
        with contextlib.suppress(OSError):
            os.write(failed, type(error).__name__.encode())
        os._exit(127)


def _say(report: int, answer: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):
        os.write(report, json.dumps(answer).encode())


def main() -> int:
    """Run the spec: argv, cwd, environment, tree, keep, hidden, flags, uid, seconds, limits; ``report`` is a descriptor."""
    spec = json.loads(sys.argv[1])
    report = int(spec["report"])
    os.set_inheritable(report, False)  # noqa: FBT003 - its one argument
    parent = os.getppid()
    _prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        return 125
    try:
        if spec["flags"]:
            _enter(spec["flags"])
    except OSError as error:
        _say(report, {"setup": f"{error.filename or ''} {error.strerror}".strip()})
        return 125
    warden = os.fork()
    if warden == 0:
        _warden(spec, report)
    number = signal.SIGKILL if spec["flags"] & NEWPID else signal.SIGTERM

    def stop(*_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(warden, number)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.waitpid(warden, 0)
    return 0


if __name__ == "__main__":
    sys.exit(main())
