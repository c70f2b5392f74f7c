"""Git's smart HTTP protocol, served by ``git http-backend`` over the hub's bare repositories.

The hub answers who may fetch and push, hands the request to git's own program, and reads from the push commands what
changed, so that refs, objects, fast-forward and compare-and-swap are git's own.
"""

from __future__ import annotations

import base64
import gzip
import itertools
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from klaud.fakehub.call import Reply
from klaud.fakehub.git import GIT_ENVIRONMENT, ZERO
from klaud.fakehub.hub import RefChange

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from klaud.fakehub.faults import Fault
    from klaud.fakehub.git import GitStore
    from klaud.fakehub.hub import Hub
    from klaud.fakehub.state import Account, Repository, Token

SERVICES = ("git-upload-pack", "git-receive-pack")

UPDATE_HOOK = """#!/bin/sh
# Refuses a branch whose new commits touch workflow files, for tokens without that right.
case "$1" in refs/heads/*) ;; *) exit 0 ;; esac
case "$3" in 0000000000000000000000000000000000000000) exit 0 ;; esac
for commit in $(git rev-list "$3" --not --all); do
  path=$(git diff-tree -r --root -m --no-commit-id --name-only "$commit" -- .github/workflows | head -n 1)
  if [ -n "$path" ]; then
    echo "klaud-hub-refused: $path" >&2
    exit 1
  fi
done
exit 0
"""

REFUSE_HOOK = """#!/bin/sh
echo "Pushes can not update more than the allowed number of branches or tags." >&2
exit 1
"""


def password(authorization: str) -> str | None:
    """Return the token in a Basic or Bearer header, or None."""
    scheme, _, rest = authorization.partition(" ")
    if scheme.lower() in ("bearer", "token"):
        return rest.strip()
    if scheme.lower() == "basic":
        try:
            user, _, secret = base64.b64decode(rest).decode().partition(":")
        except ValueError:
            return ""
        return secret if secret not in ("", "x-oauth-basic") else user
    return None


def pkt_lines(data: bytes) -> tuple[list[bytes], bytes]:
    """Return the pkt-lines up to the first flush, and the rest."""
    lines: list[bytes] = []
    offset = 0
    while offset + 4 <= len(data):
        length = int(data[offset : offset + 4], 16)
        if length == 0:
            return lines, data[offset + 4 :]
        lines.append(data[offset + 4 : offset + length])
        offset += length
    return lines, b""


def push_commands(body: bytes) -> list[tuple[str, str | None, str | None]]:
    """Return (ref, old, new) of each command of a receive-pack request; None for the zero oid."""
    commands = []
    for line in pkt_lines(body)[0]:
        text = line.split(b"\0", 1)[0].decode(errors="replace").rstrip("\n")
        parts = text.split(" ", 2)
        if len(parts) == 3 and len(parts[0]) == len(ZERO):
            old, new, ref = parts
            commands.append((ref, None if old == ZERO else old, None if new == ZERO else new))
    return commands


def _pkt(data: bytes) -> bytes:
    return b"%04x" % (len(data) + 4) + data


def rewrite_report(body: bytes, reason: str) -> bytes:
    """Put the host's own words in place of ``hook declined`` in a push's report, as GitHub does."""
    if b"hook declined" not in body:
        return body
    out = b""
    report = b""
    lines, rest = pkt_lines(body)
    sideband = bool(lines) and lines[0][:1] in (b"\x01", b"\x02", b"\x03")
    if not sideband:
        return b"".join(_pkt(line.replace(b"hook declined", reason.encode())) for line in lines) + b"0000" + rest
    for line in lines:
        if line[:1] == b"\x01":
            report += line[1:]
        else:
            out += _pkt(line)
    inner = pkt_lines(report)[0]
    rewritten = b"".join(_pkt(line.replace(b"hook declined", reason.encode())) for line in inner) + b"0000"
    for start in range(0, len(rewritten), 900):
        out += _pkt(b"\x01" + rewritten[start : start + 900])
    return out + b"0000" + rest


class GitBackend:
    """Runs ``git http-backend`` for one hub."""

    def __init__(self, hub: Hub) -> None:
        """Serve the repositories of ``hub``."""
        self._hub = hub
        self._hooks = hub.root / "hooks"
        self._numbers = itertools.count(1)
        for name, script in (("workflows/update", UPDATE_HOOK), ("refuse/pre-receive", REFUSE_HOOK)):
            hook = self._hooks / name
            hook.parent.mkdir(parents=True, exist_ok=True)
            hook.write_text(script)
            hook.chmod(0o755)
        program = shutil.which("git")
        found = subprocess.run(["git", "--exec-path"], capture_output=True, text=True, check=True) if program else None
        self._program = str(Path(found.stdout.strip()) / "git-http-backend") if found else "git-http-backend"

    def serve(
        self,
        *,
        repository: Repository,
        git_path: Path,
        service_path: str,
        method: str,
        query: str,
        headers: Mapping[str, str],
        body: bytes,
        token: Token | None,
        account: Account | None,
        faults: Sequence[Fault] = (),
    ) -> tuple[Reply, list[RefChange]]:
        """Answer one request of the smart protocol; for a push also say what became of each ref."""
        if headers.get("content-encoding", "").lower() in ("gzip", "x-gzip"):
            body = gzip.decompress(body)
        pushing = service_path == "git-receive-pack"
        environment = {
            **GIT_ENVIRONMENT,
            "PATH": os.environ.get("PATH", os.defpath),
            "GIT_PROJECT_ROOT": str(git_path.parent),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": f"/{git_path.name}/{service_path}",
            "QUERY_STRING": query,
            "REQUEST_METHOD": method,
            "CONTENT_TYPE": headers.get("content-type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "REMOTE_ADDR": "127.0.0.1",
            "REMOTE_USER": account.login if account else "",
        }
        if "git-protocol" in headers:
            environment["GIT_PROTOCOL"] = headers["git-protocol"]
        commands = push_commands(body) if pushing else []
        restricted = token is not None and not token.allows("workflows", "write")
        settings = [("core.hooksPath", str(self._hooks / "workflows"))] if pushing and restricted else []
        for fault in faults:
            if fault.kind == "refuse-refs":
                settings.append(("receive.hideRefs", fault.message))
            if fault.kind == "ref-limit" and len(commands) > fault.rows:
                settings.append(("core.hooksPath", str(self._hooks / "refuse")))
        environment["GIT_CONFIG_COUNT"] = str(len(settings))
        for index, (name, value) in enumerate(settings):
            environment |= {f"GIT_CONFIG_KEY_{index}": name, f"GIT_CONFIG_VALUE_{index}": value}
        if not pushing:
            return self._run(environment, body), []
        store = self._hub.git(repository.full_name)
        with self._hub.push_lock:
            before = {ref: store.ref(ref) for ref, _, _ in commands}
            reply = self._run(environment, body)
            if restricted and token is not None:
                kind = "a GitHub App" if token.kind != "pat" else "a Personal Access Token"
                reason = f"refusing to allow {kind} to create or update workflow without `workflows` permission"
                reply.body = rewrite_report(reply.body, reason)
            changes = [_judge(store, reply, command, before[command[0]]) for command in commands]
        return reply, changes

    def replica(self, repository: Repository, refs: Mapping[str, str]) -> Path:
        """Return a bare repository with the same objects and other refs: what a stale replica would serve."""
        path = self._hub.root / "replicas" / f"{next(self._numbers)}" / repository.git_path.name
        (path / "objects" / "info").mkdir(parents=True)
        (path / "refs").mkdir()
        (path / "objects" / "info" / "alternates").write_text(f"{repository.git_path / 'objects'}\n")
        (path / "HEAD").write_text((repository.git_path / "HEAD").read_text())
        (path / "config").write_text((repository.git_path / "config").read_text())
        rows = "".join(f"{oid} {name}\n" for name, oid in sorted(refs.items()))
        (path / "packed-refs").write_text("# pack-refs with: peeled fully-peeled sorted \n" + rows)
        return path

    def _run(self, environment: Mapping[str, str], body: bytes) -> Reply:
        done = subprocess.run([self._program], input=body, capture_output=True, check=False, env=environment)
        head, _, payload = done.stdout.partition(b"\r\n\r\n")
        headers: dict[str, str] = {}
        status = 200
        for line in head.decode(errors="replace").split("\r\n"):
            name, _, value = line.partition(":")
            if name.lower() == "status":
                status = int(value.split()[0])
            elif value:
                headers[name] = value.strip()
        if not head:
            return Reply(500, done.stderr, {"Content-Type": "text/plain"})
        return Reply(status, payload, headers)


def _judge(store: GitStore, reply: Reply, command: tuple[str, str | None, str | None], before: str | None) -> RefChange:
    ref, old, new = command
    after = store.ref(ref)
    if reply.status != 200 or not _reported_ok(reply.body, ref):
        return RefChange(ref, before, new, "refused")
    return RefChange(ref, old if before is None else before, new, "ok" if after == new else "moved on")


def _reported_ok(body: bytes, ref: str) -> bool:
    lines, _ = pkt_lines(body)
    if lines and lines[0][:1] in (b"\x01", b"\x02"):
        lines, _ = pkt_lines(b"".join(line[1:] for line in lines if line[:1] == b"\x01"))
    if not lines:
        return True
    return any(line.rstrip(b"\n") == b"ok " + ref.encode() for line in lines)
