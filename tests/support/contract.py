"""What a contract of the embedded GitHub is written against: a base address, a token, a repository."""

from __future__ import annotations

import base64
import itertools
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import requests

    from klaud import fakehub

WORKFLOW = """name: contract
run-name: contract ${{ inputs.marker }}
on:
  workflow_dispatch:
    inputs:
      marker: {required: true}
      mode: {type: choice, options: [fast, slow], default: fast}
jobs:
  nothing:
    runs-on: ubuntu-latest
    steps: [{run: sleep 60}]
"""

_COUNT = itertools.count(1)


@dataclass
class Target:
    """One repository on one host."""

    session: requests.Session
    url: str
    repository: str
    hub: fakehub.Hub | None = None
    made: list[str] = field(default_factory=list)

    @property
    def owner(self) -> str:
        return self.repository.partition("/")[0]

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> requests.Response:
        """Send one request; ``path`` is below the repository unless it begins with a slash."""
        where = path if path.startswith("/") else f"/repos/{self.repository}/{path}"
        return self.session.request(method, self.url + where.rstrip("/"), json=body, headers=headers, timeout=30)

    def graphql(self, query: str, **variables: Any) -> dict[str, Any]:
        answer = self.call("POST", "/graphql", {"query": query, "variables": variables})
        assert answer.status_code == 200
        body: dict[str, Any] = answer.json()
        return body

    def name(self, word: str = "contract") -> str:
        """Return a branch name that nobody has used."""
        return f"{word}/{secrets.token_hex(4)}-{next(_COUNT)}"

    def main(self) -> str:
        default = self.call("GET", "").json()["default_branch"]
        oid: str = self.call("GET", f"git/ref/heads/{default}").json()["object"]["sha"]
        return oid

    def commit(self, parent: str, text: str = "x", path: str = "contract.txt") -> str:
        """Make a commit on ``parent`` that no ref names yet."""
        tree = self.call("GET", f"git/commits/{parent}").json()["tree"]["sha"]
        entry = {"path": path, "mode": "100644", "type": "blob", "content": f"{text} {secrets.token_hex(4)}"}
        made = self.call("POST", "git/trees", {"base_tree": tree, "tree": [entry]}).json()["sha"]
        answer = self.call("POST", "git/commits", {"message": text, "tree": made, "parents": [parent]})
        assert answer.status_code == 201
        oid: str = answer.json()["sha"]
        return oid

    def branch(self, oid: str | None = None, name: str | None = None) -> tuple[str, str]:
        """Make a branch (with one new commit unless ``oid`` is given); return its name and oid."""
        name, oid = name or self.name(), oid or self.commit(self.main())
        assert self.call("POST", "git/refs", {"ref": f"refs/heads/{name}", "sha": oid}).status_code == 201
        return name, oid

    def pull(self, *, draft: bool = False) -> dict[str, Any]:
        """Open a pull request from a new branch."""
        name, _ = self.branch()
        default = self.call("GET", "").json()["default_branch"]
        answer = self.call(
            "POST", "pulls", {"title": "Contract", "head": name, "base": default, "draft": draft, "body": "b"}
        )
        assert answer.status_code == 201, answer.text
        body: dict[str, Any] = answer.json()
        return body


def base64_text(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
