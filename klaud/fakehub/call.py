"""One HTTP call: what a route is handed, what it may answer, and the table of routes.

A route is a function of a ``Call`` that returns a JSON-able body (status 200), a ``Reply`` or a ``Page``, or raises a
``Problem``. Templates are written as GitHub's OpenAPI description writes them, so that a call can be counted, faulted and
validated by its template. A segment ``{name+}`` takes the rest of the path, slashes included (refs, file paths).
"""

from __future__ import annotations

import dataclasses
import fnmatch
import urllib.parse
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import datetime

    from klaud.fakehub.faults import Fault
    from klaud.fakehub.git import GitStore
    from klaud.fakehub.hub import Hub
    from klaud.fakehub.state import Account, Issue, Repository, Run, State, Token

DOCUMENTATION = "https://docs.github.com/rest"


@dataclasses.dataclass
class Reply:
    """An answer with its status. ``body`` is JSON-able, bytes, or None for no body."""

    status: int
    body: Any = None
    headers: dict[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Page:
    """A listing that the caller sees page by page.

    ``key``: with it the body is ``{"total_count": n, key: [...]}``. ``cap``: rows beyond it are never served, though
    ``total_count`` goes on counting (GitHub serves 1,000 rows of a filtered run search).
    """

    items: Sequence[Any]
    render: Callable[[Any], Any]
    key: str | None = None
    cap: int | None = None
    extra: dict[str, Any] = dataclasses.field(default_factory=dict)


class Problem(Exception):  # noqa: N818 - it is an answer, not a fault of the hub
    """An error answer as GitHub writes it."""

    def __init__(
        self, status: int, message: str, *, errors: Sequence[Any] = (), headers: Mapping[str, str] | None = None
    ) -> None:
        """``errors``: GitHub's list of field errors (objects or sentences)."""
        super().__init__(message)
        self.status = status
        self.message = message
        self.errors = list(errors)
        self.headers = dict(headers or {})

    def reply(self) -> Reply:
        """Return the answer."""
        body: dict[str, Any] = {"message": self.message}
        if self.errors:
            body["errors"] = self.errors
        body["documentation_url"] = DOCUMENTATION
        body["status"] = str(self.status)
        return Reply(self.status, body, dict(self.headers))


class Instead(Problem):
    """An answer of 200 in place of the effect, with a body given as text."""

    def __init__(self, text: str) -> None:
        """``text``: the body."""
        super().__init__(200, text)

    def reply(self) -> Reply:
        """Return the answer."""
        return Reply(200, self.message.encode(), {"Content-Type": "application/json; charset=utf-8"})


def not_found() -> Problem:
    """Return GitHub's 404."""
    return Problem(404, "Not Found")


def invalid(message: str, **field: Any) -> Problem:
    """Return GitHub's 422; with ``resource``/``field``/``code`` as its one field error."""
    if field:
        return Problem(422, "Validation Failed", errors=[{"message": message, **field} if message else field])
    return Problem(422, message)


@dataclasses.dataclass
class Call:
    """One call in hand."""

    hub: Hub
    state: State
    number: int
    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Any
    now: datetime.datetime
    base_url: str
    token: Token | None = None
    account: Account | None = None
    template: str = ""
    params: dict[str, str] = dataclasses.field(default_factory=dict)
    write: bool = False
    frozen_refs: Mapping[str, dict[str, str]] | None = None
    faults: Sequence[Fault] = ()
    cache: dict[str, Any] = dataclasses.field(default_factory=dict)

    def fault(self, kind: str) -> Fault | None:
        """Return the fault of this kind that meets this call, or None."""
        return next((fault for fault in self.faults if fault.kind == kind), None)

    @property
    def kind(self) -> str:
        """Return the token's kind, or ``anonymous``."""
        return self.token.kind if self.token else "anonymous"

    @property
    def actor(self) -> int | None:
        """Return the account id that acts."""
        return self.account.id if self.account else None

    @property
    def repo(self) -> Repository:
        """Return the repository that the path names; 404 where it is not there or not the token's to see."""
        name = f"{self.params['owner']}/{self.params['repo']}".lower()
        for repository in self.state.repositories.values():
            if repository.full_name.lower() == name:
                if not may_see(repository, self.token):
                    raise not_found()
                return repository
        raise not_found()

    @property
    def git(self) -> GitStore:
        """Return the repository's git store."""
        return self.hub.git(self.repo.full_name)

    def refs(self, prefix: str = "refs/") -> dict[str, str]:
        """Return refs as this call sees them (a stale read sees old ones)."""
        if self.frozen_refs is not None:
            refs = self.frozen_refs.get(self.repo.full_name, {})
            return {name: oid for name, oid in refs.items() if name.startswith(prefix)}
        return self.git.refs(prefix)

    def ref(self, name: str) -> str | None:
        """Return one ref as this call sees it."""
        if self.frozen_refs is not None:
            return self.frozen_refs.get(self.repo.full_name, {}).get(name)
        return self.git.ref(name)

    def issue(self) -> Issue:
        """Return the issue or pull request that the path's number names, or 404."""
        return self._numbered(self.params.get("issue_number") or self.params["pull_number"])

    def pull(self) -> Issue:
        """Return the pull request that the path's number names, or 404."""
        found = self._numbered(self.params["pull_number"])
        if found.pull is None:
            raise not_found()
        return found

    def _numbered(self, text: str) -> Issue:
        found = self.repo.issues.get(int(text)) if text.isdigit() else None
        if found is None:
            raise not_found()
        return found

    def run(self) -> Run:
        """Return the run that the path names, or 404 (also while it is not visible yet)."""
        text = self.params["run_id"]
        found = self.repo.runs.get(int(text)) if text.isdigit() else None
        if found is None or (found.visible_at is not None and found.visible_at > self.now):
            raise not_found()
        return found

    def fields(self, known: Iterable[str]) -> dict[str, Any]:
        """Return the JSON body, which must be an object; GitHub's 400 where it is not. Unknown members are dropped."""
        if self.body is None:
            return {}
        if not isinstance(self.body, dict):
            raise Problem(400, "Body should be a JSON object")
        wanted = set(known)
        return {key: value for key, value in self.body.items() if key in wanted}


def may_see(repository: Repository, token: Token | None) -> bool:
    """Tell whether a token's bearer may know that the repository exists."""
    if token is None:
        return not repository.private
    if token.repositories is not None and repository.full_name not in token.repositories:
        return not repository.private
    return bool(token.permissions) or not repository.private


Handler = Callable[[Call], Any]


@dataclasses.dataclass(frozen=True)
class Route:
    """One row of the table of routes."""

    method: str
    template: str
    handler: Handler
    permission: tuple[str, ...]
    level: str
    write: bool

    @property
    def name(self) -> str:
        """Return method and template, as counts and faults name it."""
        return f"{self.method} {self.template}"


class Router:
    """The table of routes."""

    def __init__(self) -> None:
        """Start empty."""
        self.routes: list[Route] = []
        self._table: dict[tuple[str, int], list[tuple[list[str], Route]]] = {}
        self._greedy: list[tuple[list[str], Route]] = []

    def route(
        self,
        method: str,
        template: str,
        *,
        permission: str | tuple[str, ...] = "metadata",
        level: str = "",
        named: str = "",
    ) -> Callable[[Handler], Handler]:
        """Add a function to the table.

        ``permission``: what the token needs (any of several); ``level``: read or write; ``named``: the template under
        which it is counted, where that is another route's.
        """
        write = method != "GET"
        needs = (permission,) if isinstance(permission, str) else permission
        segments = template.strip("/").split("/")
        shown = named or template.replace("+}", "}")

        def add(handler: Handler) -> Handler:
            entry = Route(method, shown, handler, needs, level or ("write" if write else "read"), write)
            self.routes.append(entry)
            if segments[-1].endswith("+}"):
                self._greedy.append((segments, entry))
            else:
                self._table.setdefault((method, len(segments)), []).append((segments, entry))
            return handler

        return add

    def find(self, method: str, raw_path: str) -> tuple[Route, dict[str, str]] | None:
        """Return the route and the decoded path parameters, or None. ``raw_path`` is still percent-encoded."""
        parts = raw_path.strip("/").split("/")
        best: tuple[int, Route, dict[str, str]] | None = None
        for segments, entry in self._table.get((method, len(parts)), []):
            params = _match(segments, parts)
            if params is not None and (best is None or len(params) < best[0]):
                best = (len(params), entry, params)
        if best is not None:
            return best[1], best[2]
        for segments, entry in self._greedy:
            head = segments[:-1]
            if entry.method == method and len(parts) > len(head):
                params = _match(head, parts[: len(head)])
                if params is not None:
                    rest = "/".join(urllib.parse.unquote(part) for part in parts[len(head) :])
                    return entry, {**params, segments[-1][1:-2]: rest}
        return None


def _match(segments: Sequence[str], parts: Sequence[str]) -> dict[str, str] | None:
    params: dict[str, str] = {}
    for segment, part in zip(segments, parts, strict=True):
        if segment.startswith("{"):
            params[segment[1:-1]] = urllib.parse.unquote(part)
        elif segment != part:
            return None
    return params


def pattern_matches(pattern: str, method: str, path: str, template: str) -> bool:
    """Tell whether ``METHOD glob`` names a call, by its template or its path. ``*`` as the method means any."""
    wanted, _, glob = pattern.partition(" ")
    if not glob:
        wanted, glob = "*", wanted
    if wanted not in ("*", method):
        return False
    if glob == template:
        return True
    return fnmatch.fnmatchcase(path, glob.replace("[", "[[]"))
