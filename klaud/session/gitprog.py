"""The git program: bounded, without a prompt, without anyone's configuration; the token in its environment only.

``GIT_CONFIG_*`` variables carry the authorisation header, so that it is in no argument list, no URL and no file.
"""

from __future__ import annotations

import base64
import dataclasses
import os
import shutil
import subprocess
from typing import TYPE_CHECKING

from klaud import errors

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SECONDS = 300.0
"""One git command: a shallow fetch of a large repository takes a minute."""
OUTPUT_BYTES = 64 * 1_048_576
"""What a command may print."""

_FIXED = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_PAGER": "cat",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "LC_ALL": "C.UTF-8",
    "HOME": "/nonexistent",
}
_SETTINGS = (
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("protocol.allow", "never"),
    ("protocol.http.allow", "always"),
    ("protocol.https.allow", "always"),
    ("protocol.file.allow", "always"),
    ("http.followRedirects", "false"),
    ("core.quotePath", "false"),
    ("fetch.fsckObjects", "true"),
)


class GitFailedError(Exception):
    """git ended with another status than 0. The message has the command's name and git's last words, without secrets."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


def find() -> str:
    """Return the path of the git program; MissingToolError when there is none."""
    found = shutil.which("git")
    if found is None:
        message = "the program git is not on PATH"
        raise errors.MissingToolError(message)
    return found


@dataclasses.dataclass(frozen=True, slots=True)
class Git:
    """git in one repository folder. ``header`` is an HTTP authorisation header for the remote, never shown."""

    folder: Path
    header: str = dataclasses.field(default="", repr=False)
    extra: tuple[tuple[str, str], ...] = dataclasses.field(default=(), repr=False)

    def run(
        self,
        *arguments: str,
        data: bytes = b"",
        env: dict[str, str] | None = None,
        seconds: float = SECONDS,
        ok: Sequence[int] = (0,),
    ) -> bytes:
        """Run one command and return its stdout. GitFailedError on another status than ``ok`` or after ``seconds``."""
        settings = [*_SETTINGS, *([("http.extraHeader", self.header)] if self.header else [])]
        environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            **_FIXED,
            "GIT_CONFIG_COUNT": str(len(settings)),
            **{f"GIT_CONFIG_KEY_{n}": key for n, (key, _) in enumerate(settings)},
            **{f"GIT_CONFIG_VALUE_{n}": value for n, (_, value) in enumerate(settings)},
            **dict(self.extra),
            **(env or {}),
        }
        try:
            done = subprocess.run(
                [find(), "-C", str(self.folder), *arguments],
                check=False,
                input=data,
                capture_output=True,
                env=environment,
                timeout=seconds,
            )
        except subprocess.TimeoutExpired:
            message = f"git {arguments[0]} did not end within {seconds:g} s"
            raise GitFailedError(message, -1) from None
        if done.returncode not in ok:
            words = " ".join(done.stderr[-2000:].decode("utf-8", "replace").split())[-300:]
            message = f"git {arguments[0]} failed with status {done.returncode}: {words}"
            raise GitFailedError(message, done.returncode)
        if len(done.stdout) > OUTPUT_BYTES:
            message = f"git {arguments[0]} printed more than {OUTPUT_BYTES} bytes"
            raise GitFailedError(message, done.returncode)
        return done.stdout

    def text(self, *arguments: str, data: bytes = b"", env: dict[str, str] | None = None) -> str:
        """Run one command and return its stdout as text without the last line end."""
        return self.run(*arguments, data=data, env=env).decode("utf-8", "surrogateescape").rstrip("\n")


def basic_header(token: str) -> str:
    """Return the HTTP authorisation header for a token, as the host's own checkout action sends it."""
    packed = base64.b64encode(f"x-access-token:{token}".encode()).decode()
    return f"Authorization: Basic {packed}"
