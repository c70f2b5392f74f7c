"""What a contract is tried on: one repository on one host, and a client that makes everything below one prefix.

Every branch is below ``klaud-conformance/<nonce>/``, and every pull request is of such a branch; the two labels and the
runs' titles carry the word too. What a run made is therefore found again from the host itself, also after it was killed.
Pull requests cannot be deleted on GitHub: they stay, closed.
"""

from __future__ import annotations

import itertools
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import requests

from klaud import errors
from klaud.github.conformance import model

if TYPE_CHECKING:
    from collections.abc import Callable

    from klaud import clock as clocks

WORD = "klaud-conformance"
LABELS = (f"{WORD} / review \U0001f691", "Klaud-Conformance")
"""Labels that the contracts make: one with characters that a path must encode, one whose case matters not."""

TIMEOUT_SECONDS = 30
WAIT_SECONDS = 60
"""Longest wait for a run to be seen, or to be over."""

WORKFLOW_FILE = "contract.yml"
WORKFLOW = """name: contract
run-name: contract ${{ inputs.marker }}
on:
  workflow_dispatch:
    inputs:
      marker: {required: true}
      mode: {type: choice, options: [fast, slow], default: fast}
permissions: {}
jobs:
  nothing:
    runs-on: ubuntu-latest
    timeout-minutes: 5
    steps: [{run: sleep 60}]
"""
"""``.github/workflows/contract.yml``: what the contracts about runs start, and cancel."""


@dataclass
class Target:
    """One repository on one host. ``token`` is asked before each request; ``pause``: seconds before each write."""

    url: str
    repository: str
    token: Callable[[], str] = field(repr=False)
    clock: clocks.Clock
    pause: float = 0.0
    nonce: str = field(default_factory=lambda: secrets.token_hex(6))
    session: requests.Session = field(default_factory=requests.Session, repr=False)
    _count: itertools.count[int] = field(default_factory=lambda: itertools.count(1), repr=False)

    @property
    def owner(self) -> str:
        """The part of the repository's name before the slash."""
        return self.repository.partition("/")[0]

    @property
    def prefix(self) -> str:
        """What every branch of this run begins with."""
        return f"{WORD}/{self.nonce}/"

    def close(self) -> None:
        """Close the connection."""
        self.session.close()

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> requests.Response:
        """Send one request; ``path`` is below the repository unless it begins with a slash or is a whole address."""
        where = path if path.startswith("/") else f"/repos/{self.repository}/{path}"
        return self._send(method, self.url + where.rstrip("/"), body, headers)

    def follow(self, response: requests.Response, name: str) -> requests.Response:
        """Read the page that a listing's Link header names; BrokenError where that would be another host."""
        address = response.links[name]["url"]
        model.holds(address.startswith(self.url + "/"), f"the link {name} leads to another host")
        return self._send("GET", address, None, {})

    def _send(self, method: str, address: str, body: Any, headers: dict[str, str]) -> requests.Response:
        if method not in {"GET", "HEAD"}:
            self.clock.sleep(self.pause)
        sent = {"Authorization": f"Bearer {self.token()}", "Accept": "application/vnd.github+json", **headers}
        answer = self.session.request(
            method, address, json=body, headers=sent, timeout=TIMEOUT_SECONDS, allow_redirects=False
        )
        told = answer.headers
        if answer.status_code in {403, 429} and ("Retry-After" in told or told.get("X-RateLimit-Remaining") == "0"):
            message = f"the host limits this account (HTTP {answer.status_code})"
            raise errors.RetryLaterError(message, after=float(told.get("Retry-After", 0)) or None)
        return answer

    def graphql(self, query: str, **variables: Any) -> dict[str, Any]:
        """Send one GraphQL request; return the whole answer, its errors included."""
        answer = self.call("POST", "/graphql", {"query": query, "variables": variables})
        model.same(answer.status_code, 200, "GraphQL's status")
        body: dict[str, Any] = answer.json()
        return body

    def until(self, true: Callable[[], bool], what: str) -> None:
        """Ask again each second until it is so; BrokenError after ``WAIT_SECONDS``."""
        end = self.clock.monotonic() + WAIT_SECONDS
        while not true():
            model.holds(self.clock.monotonic() < end, f"{what}: not within {WAIT_SECONDS} s")
            self.clock.sleep(1)

    def name(self) -> str:
        """Return a branch name that nobody has used."""
        return f"{self.prefix}{next(self._count)}x"

    def default_branch(self) -> str:
        """Return the default branch's name."""
        name: str = self.call("GET", "").json()["default_branch"]
        return name

    def main(self) -> str:
        """Return the default branch's tip."""
        oid: str = self.call("GET", f"git/ref/heads/{self.default_branch()}").json()["object"]["sha"]
        return oid

    def commit(self, parent: str, text: str = "x", path: str = "contract.txt") -> str:
        """Make a commit on ``parent`` that no ref names yet; return its oid."""
        tree = self.call("GET", f"git/commits/{parent}").json()["tree"]["sha"]
        entry = {"path": path, "mode": "100644", "type": "blob", "content": f"{text} {secrets.token_hex(4)}"}
        made = self.call("POST", "git/trees", {"base_tree": tree, "tree": [entry]}).json()["sha"]
        answer = self.call("POST", "git/commits", {"message": text, "tree": made, "parents": [parent]})
        model.same(answer.status_code, 201, "the status of a new commit")
        oid: str = answer.json()["sha"]
        return oid

    def branch(self, oid: str | None = None, name: str | None = None) -> tuple[str, str]:
        """Make a branch (with one new commit unless ``oid`` is given); return its name and oid."""
        name, oid = name or self.name(), oid or self.commit(self.main())
        answer = self.call("POST", "git/refs", {"ref": f"refs/heads/{name}", "sha": oid})
        model.same(answer.status_code, 201, "the status of a new branch")
        return name, oid

    def pull(self, *, draft: bool = False) -> dict[str, Any]:
        """Open a pull request from a new branch; return what the host answers."""
        name, _ = self.branch()
        fields = {"title": "Contract", "head": name, "base": self.default_branch(), "draft": draft, "body": "b"}
        answer = self.call("POST", "pulls", fields)
        model.same(answer.status_code, 201, "the status of a new pull request")
        body: dict[str, Any] = answer.json()
        return body
