"""The outside of the sandbox: start one command behind walls, read what it says within bounds, end it.

Which walls the host grants is found out once, by trying (``Sandbox.isolation``), from the strongest to the weakest:
namespaces; bubblewrap; a process group with a limit on processes that the kernel heeds. The weakest is stated in the
result, and refused where the policy says ``required``. Where not even that limit can be had, nothing is started at all: a
fork bomb outruns whoever hunts it.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import selectors
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from typing import TYPE_CHECKING, Any, Literal

from klaud import errors
from klaud.baselines import jail, model, settings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

KEPT_STDERR = 64 << 10
"""Bytes of standard error that are kept (for the capability fallback); the rest is read and dropped."""

LATE = 10.0
"""Seconds past a call's own limit after which the door itself is killed: the warden needs at most 2 to clean up."""

_ALL = jail.NEWUSER | jail.NEWNS | jail.NEWPID | jail.NEWNET | jail.NEWIPC | jail.NEWUTS
_LEVELS = (_ALL, _ALL & ~jail.NEWUSER)

HIDDEN_AT_HOME = (
    ".ssh",
    ".aws",
    ".docker",
    ".config",
    ".gnupg",
    ".kube",
    ".netrc",
    ".git-credentials",
    ".gitconfig",
    ".npmrc",
)
"""What is covered below the caller's own home, where credentials usually lie. A generator gets an empty home anyway."""


class Sandbox:
    """Starts commands behind the strongest walls that the host grants. Safe to share between threads."""

    def __init__(
        self,
        bounds: settings.Bounds,
        *,
        required: bool = False,
        hidden: Sequence[pathlib.Path] = (),
        levels: Sequence[int] = _LEVELS,
        bubblewrap: str | None = None,
    ) -> None:
        """``hidden``: paths to cover (a git directory may hold a credential). ``levels``: the walls to try, for tests."""
        self._bounds = bounds
        self._required = required
        self._hidden = tuple(str(path.resolve()) for path in hidden)
        self._levels = tuple(levels)
        self._bubblewrap = bubblewrap if bubblewrap is not None else shutil.which("bwrap")
        self._lock = threading.Lock()
        self._found: tuple[str, int, model.Isolation] | None = None

    @property
    def isolation(self) -> model.Isolation:
        """Return what actually stands between a command and the machine, finding it out on first use."""
        return self._method()[2]

    def found(self) -> model.Isolation | None:
        """Return the isolation if it has been found out, None where nothing was started yet."""
        with self._lock:
            return self._found[2] if self._found else None

    def root_of(self, tree: pathlib.Path) -> str:
        """Return the path by which a command sees ``tree``."""
        return str(tree) if self._method()[0] == "group" else jail.TREE

    def _method(self) -> tuple[str, int, model.Isolation]:
        with self._lock:
            if self._found is None:
                self._found = self._probe()
            return self._found

    def _probe(self) -> tuple[str, int, model.Isolation]:
        why = []
        with tempfile.TemporaryDirectory(prefix="klaud-probe-") as folder:
            tree = pathlib.Path(folder)
            for flags in self._levels:
                answer = self._start("namespaces", flags, ["true"], tree, {}, seconds=10.0)[1]
                if answer.get("status") == 0:
                    return "namespaces", flags, _walled("namespaces")
                why.append(str(answer.get("setup") or answer.get("not_started") or "no answer"))
            if self._bubblewrap:
                answer = self._start("bubblewrap", 0, ["true"], tree, {}, seconds=10.0)[1]
                if answer.get("status") == 0:
                    return "bubblewrap", 0, _walled("bubblewrap")
                why.append("bwrap failed")
        reason = "; ".join(dict.fromkeys(why)) or "not asked for"
        if self._required:
            raise errors.MissingToolError(
                f"this host grants neither namespaces nor bubblewrap to the generator's sandbox ({reason})",
                advice="Install bubblewrap, allow unprivileged user namespaces, or set generator.isolation to preferred.",
            )
        with tempfile.TemporaryDirectory(prefix="klaud-probe-") as folder:
            pathlib.Path(folder).chmod(0o755)
            answer = self._start("group", 0, ["true"], pathlib.Path(folder), {}, seconds=10.0)[1]
        if answer.get("status") != 0:
            raise errors.MissingToolError(
                "this host grants the generator's sandbox neither namespaces nor bubblewrap, and root's processes cannot be"
                f" limited ({reason}; {answer.get('setup') or answer.get('not_started') or 'no answer'})",
                advice="Run klaud as an ordinary user, install bubblewrap, or allow user namespaces.",
            )
        return "group", 0, model.Isolation(why=reason)

    def run(
        self,
        argv: Sequence[str],
        *,
        tree: pathlib.Path,
        environment: Mapping[str, str],
        seconds: float | None = None,
        stdin: bytes = b"",
    ) -> model.Outcome:
        """Run ``argv`` in ``tree`` (read-only) with PATH, an empty home and ``environment``; always ends what it started."""
        method, flags, _ = self._method()
        began = time.monotonic()
        streams, answer = self._start(
            method, flags, argv, tree, environment, seconds=seconds or self._bounds.seconds, stdin=stdin
        )
        if "setup" in answer:
            raise errors.RetryLaterError(f"the generator's sandbox could not be set up: {answer['setup']}")
        return model.Outcome(
            exit=int(answer.get("status", -9)),
            stdout=streams[0],
            stderr=streams[1],
            exceeded=str(answer.get("exceeded", "")),
            daemons=int(answer.get("daemons", 0)),
            not_started=str(answer.get("not_started", "")),
            seconds=time.monotonic() - began,
        )

    def _start(
        self,
        method: str,
        flags: int,
        argv: Sequence[str],
        tree: pathlib.Path,
        environment: Mapping[str, str],
        *,
        seconds: float,
        stdin: bytes = b"",
    ) -> tuple[tuple[bytes, bytes], dict[str, Any]]:
        path = os.environ.get("PATH", os.defpath)
        with contextlib.ExitStack() as stack:
            home, cwd = jail.HOME, jail.TREE
            uid = jail.NOBODY if method == "group" and os.getuid() == 0 else 0
            if method == "group":
                home = stack.enter_context(tempfile.TemporaryDirectory(prefix="klaud-home-"))
                if uid:
                    os.chown(home, uid, uid)
                cwd = str(tree)
            variables = {"PATH": path, "LANG": "C.UTF-8", "TZ": "UTC", "PYTHONHASHSEED": "0"}
            variables |= {"PYTHONDONTWRITEBYTECODE": "1", **environment, "HOME": home, "TMPDIR": home}
            keep = [str(pathlib.Path(__file__).parent), sys.prefix, sys.base_prefix]
            keep += [str(pathlib.Path(each).parent) for each in path.split(os.pathsep) if each.startswith("/")]
            reader, writer = os.pipe()
            stack.callback(os.close, reader)
            spec = {
                "argv": list(argv),
                "cwd": cwd,
                "environment": variables,
                "tree": str(tree),
                "keep": sorted(set(keep)),
                "hidden": [*self._hidden, *self._hidden_at_home(keep)],
                "flags": flags,
                "uid": uid,
                "seconds": seconds,
                "memory_bytes": self._bounds.memory_bytes,
                "file_bytes": self._bounds.file_bytes,
                "processes": self._bounds.processes,
                "report": writer,
            }
            command = [sys.executable, "-I", jail.__file__, json.dumps(spec)]
            if method == "bubblewrap":
                command = [*self._bubblewrapped(tree, spec), *command]
            source = stack.enter_context(tempfile.TemporaryFile())
            source.write(stdin)
            source.seek(0)
            process = subprocess.Popen(
                command,
                stdin=source,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(writer,),
                env={"PATH": path, "LANG": "C.UTF-8"},
                start_new_session=True,
            )
            os.close(writer)
            streams, over = _read(process, reader, self._bounds.output_bytes, time.monotonic() + seconds + LATE)
            try:
                answer = json.loads(streams[2] or b"{}")
            except ValueError:
                answer = {}
            if over:
                answer["exceeded"] = over
            return (streams[0], streams[1]), answer

    def _bubblewrapped(self, tree: pathlib.Path, spec: Mapping[str, Any]) -> list[str]:
        words = [self._bubblewrap or "bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
        for mask in ("/tmp", "/run", "/var/tmp"):  # noqa: S108 - covered, not used
            words += ["--tmpfs", mask]
        for path in spec["keep"]:
            if path.startswith(("/tmp/", "/run/", "/var/tmp/")) and pathlib.Path(path).is_dir():  # noqa: S108 - as above
                words += ["--ro-bind", path, path]
        for path in spec["hidden"]:
            if pathlib.Path(path).is_dir():
                words += ["--tmpfs", path]
        words += ["--dir", jail.HOME, "--ro-bind", str(tree), jail.TREE]
        return [*words, "--unshare-all", "--die-with-parent", "--new-session", "--"]

    @staticmethod
    def _hidden_at_home(keep: Sequence[str]) -> list[str]:
        home = pathlib.Path.home()
        found = [home / name for name in HIDDEN_AT_HOME]
        return [str(path) for path in found if path.exists() and not any(each.startswith(str(path)) for each in keep)]


def _walled(method: Literal["namespaces", "bubblewrap"]) -> model.Isolation:
    return model.Isolation(method=method, network="none", writes="scratch-only", ends_daemons="pid-namespace")


def _read(
    process: subprocess.Popen[bytes], report: int, limit: int, deadline: float
) -> tuple[tuple[bytes, bytes, bytes], str]:
    """Read stdout, stderr and the report until all end; over a limit the door is told to stop.

    Returns the three texts and the bound that was exceeded, if one was.
    """
    if process.stdout is None or process.stderr is None:
        raise errors.BugError("the sandbox was started without pipes")
    parts: dict[int, bytearray] = {}
    seen: dict[int, int] = {}
    out, err = process.stdout.fileno(), process.stderr.fileno()
    keep = {out: limit, err: KEPT_STDERR, report: KEPT_STDERR}
    over = ""
    told = 0.0
    with process.stdout, process.stderr, selectors.DefaultSelector() as selector:
        for each in keep:
            parts[each], seen[each] = bytearray(), 0
            os.set_blocking(each, False)
            selector.register(each, selectors.EVENT_READ)
        while selector.get_map():
            now = time.monotonic()
            if not told and (over or now > deadline):
                over = over or "seconds"
                process.terminate()
                told = now
            elif told and now - told > LATE:
                process.kill()
                break
            for key, _ in selector.select(0.2):
                chunk = os.read(key.fd, 256 << 10)
                if not chunk:
                    selector.unregister(key.fd)
                    continue
                seen[key.fd] += len(chunk)
                room = keep[key.fd] - len(parts[key.fd])
                parts[key.fd] += chunk[:room] if room > 0 else b""
                if seen[key.fd] > limit:
                    over = over or "output"
            if process.poll() is not None and told:
                break
        try:
            process.wait(LATE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    return (bytes(parts[out]), bytes(parts[err]), bytes(parts[report])), over
