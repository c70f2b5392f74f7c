"""What the host can give to keep an agent apart, and how a program is started in it.

Three ways, best first: as root, or through ``sudo -n`` (hosted runners), own user, pid, mount and network namespaces and a
root file system of named paths; in an unprivileged user namespace the same without an own user; otherwise nothing but an
empty environment and a scan for left-over processes. ``find`` names what is missing for ``required``.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    from klaud.session import model

AGENT_ID = 61_184
"""The agent's user and group where it has its own: above what distributions give to people and services (60,000), below
systemd's dynamic range (61,184 is its first; nothing else on a runner uses it)."""

PROBE_SECONDS = 10.0
"""How long one probe of the host may take; a working ``unshare`` needs milliseconds."""

Part: TypeAlias = Literal["user", "pid", "network", "files"]
PARTS: tuple[Part, ...] = ("user", "pid", "network", "files")
"""What ``required`` requires."""

_NAMESPACES = ("--pid", "--fork", "--kill-child=KILL", "--mount-proc", "--net", "--ipc")


@dataclasses.dataclass(frozen=True, slots=True)
class Sandbox:
    """One way to start a program. ``prefix`` stands before it; ``parts`` is what is in force."""

    prefix: tuple[str, ...] = ()
    parts: tuple[Part, ...] = ()
    uid: int | None = None

    @property
    def words(self) -> str:
        """What is in force, for the outcome: ``user+pid+network+files`` or ``none``."""
        return "+".join(self.parts) or "none"

    def as_root(self, *command: str) -> None:
        """Run a small command with the rights that the sandbox is made with; failures are ignored (clean-up)."""
        sudo = self.prefix[:2] if self.prefix and self.prefix[0].endswith("sudo") else ()
        subprocess.run([*sudo, *command], check=False, capture_output=True, timeout=PROBE_SECONDS)


@dataclasses.dataclass(frozen=True, slots=True)
class Lacking:
    """The host cannot give what is required. ``missing``: a sentence for each thing."""

    missing: tuple[str, ...]


NONE = Sandbox()
"""Nothing in force but an empty environment, an own process group and the scan."""


def find(isolation: model.Isolation, *, needs: Sequence[Part] = PARTS) -> Sandbox | Lacking:
    """Return the best way this host has; ``required`` and one of ``needs`` is missing: Lacking."""
    if isolation == "none":
        return NONE
    unshare = shutil.which("unshare")
    missing: list[str] = []
    best = NONE
    if unshare is None:
        missing.append("the program unshare (package util-linux) is not installed")
    else:
        privileged = (unshare, "--mount", "--propagation", "private", *_NAMESPACES)
        if os.geteuid() == 0:
            if _works(privileged):
                return Sandbox(privileged, PARTS, AGENT_ID)
            missing.append("root may not make namespaces here (a container without CAP_SYS_ADMIN)")
        else:
            sudo = shutil.which("sudo")
            if sudo is not None and _works((sudo, "-n", *privileged)):
                return Sandbox((sudo, "-n", *privileged), PARTS, AGENT_ID)
            missing.append("not root, and sudo without a password is not to be had: no own user for the agent")
        mapped = (unshare, "--user", "--map-root-user", "--mount", "--propagation", "private", *_NAMESPACES)
        if _works(mapped):
            best = Sandbox(mapped, ("pid", "network", "files"))
        else:
            missing.append("user namespaces are not allowed either")
    if isolation == "required" and not set(needs) <= set(best.parts):
        return Lacking(tuple(missing))
    return best


def _works(prefix: Sequence[str]) -> bool:
    true = shutil.which("true") or "/bin/true"
    try:
        done = subprocess.run(
            [*prefix, true], check=False, capture_output=True, stdin=subprocess.DEVNULL, timeout=PROBE_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
