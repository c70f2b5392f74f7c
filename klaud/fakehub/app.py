"""The hub as a WSGI application: authentication, permissions, paging, caching headers, the log.

Callable in process (no socket) or behind ``server.serve``. An unknown route is answered 501 and logged as an error: the
hub never guesses.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import urllib.parse
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from werkzeug.wrappers import Request, Response

from klaud.fakehub.call import Call, Page, Problem, Reply, Route, may_see, not_found
from klaud.fakehub.githttp import SERVICES, GitBackend, password
from klaud.fakehub.hub import LOG, LogEntry
from klaud.fakehub.paging import serve_page
from klaud.fakehub.routes import build_router

if TYPE_CHECKING:
    from klaud.fakehub.hub import Hub
    from klaud.fakehub.state import Account, Token

Environ = dict[str, Any]
StartResponse = Callable[..., Any]

BODY_LIMIT = 512 * 1024 * 1024
"""Bytes of one request body; a push of a whole test repository is far below."""


@dataclasses.dataclass(frozen=True)
class Incoming:
    """One request with who sent it."""

    request: Request
    headers: Mapping[str, str]
    body: bytes
    token: Token | None
    account: Account | None


class App:
    """The WSGI application of one hub."""

    def __init__(self, hub: Hub) -> None:
        """Serve ``hub``."""
        self.hub = hub
        self.router = build_router()
        self.backend = GitBackend(hub)

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Answer one request."""
        request = Request(environ)
        request.max_content_length = BODY_LIMIT
        raw_path = raw_path_of(environ)
        response = self._answer(request, raw_path)
        return response(environ, start_response)

    def _answer(self, request: Request, raw_path: str) -> Response:
        self.hub.tick()
        body = request.get_data(cache=False)
        entry = LogEntry(
            number=0,
            at=self.hub.clock.now(),
            method=request.method,
            path=urllib.parse.unquote(raw_path),
            query=request.query_string.decode(errors="replace"),
            template=raw_path,
            account=None,
            write=False,
        )
        headers = {name.lower(): value for name, value in request.headers.items()}
        try:
            reply = self._dispatch(request, raw_path, entry, headers, body)
        except Problem as problem:
            reply = problem.reply()
        if entry.number == 0:
            self.hub.begin(entry)
        entry.status = reply.status
        self.hub.end(entry, reply)
        return self._respond(request, reply, headers)

    def _dispatch(
        self, request: Request, raw_path: str, entry: LogEntry, headers: Mapping[str, str], body: bytes
    ) -> Reply:
        token, account = self._who(headers)
        entry.account = account.login if account else None
        git = git_path(raw_path)
        if git is not None:
            return self._git(git, entry, Incoming(request, headers, body, token, account))
        found = self.router.find(request.method, raw_path)
        if found is None:
            entry.status = 501
            LOG.error("unknown route: %s %s", request.method, raw_path)
            raise Problem(501, f"the hub has no route {request.method} {raw_path}")
        route, params = found
        entry.template = route.template
        entry.write = route.write
        call = Call(
            hub=self.hub,
            state=self.hub.state,
            number=0,
            method=request.method,
            path=entry.path,
            query=request.args.to_dict(),
            headers=headers,
            body=_json(body),
            now=self.hub.clock.now(),
            base_url=request.host_url.rstrip("/"),
            token=token,
            account=account,
            template=route.template,
            params=params,
            write=route.write,
        )
        entry.body = call.body if route.write else None
        self.hub.begin(entry)
        call.number = entry.number
        with self.hub.lock:
            self._permit(call, route)
            answer = route.handler(call)
            return _reply(call, answer)

    def _who(self, headers: Mapping[str, str]) -> tuple[Token | None, Account | None]:
        secret = password(headers.get("authorization", ""))
        if secret is None:
            return None, None
        token = self.hub.state.tokens.get(secret)
        if token is None or (token.expires_at is not None and token.expires_at <= self.hub.clock.now()):
            raise Problem(401, "Bad credentials")
        return token, self.hub.state.account(token.account)

    def _permit(self, call: Call, route: Route) -> None:
        if "owner" in call.params and "repo" in call.params:
            repository = call.repo
        elif route.write and call.token is None:
            raise Problem(401, "Requires authentication")
        else:
            return
        token = call.token
        if token is not None and any(token.allows(permission, route.level) for permission in route.permission):
            return
        if route.level == "read" and not repository.private and (token is None or token.permissions):
            return
        if token is None:
            raise Problem(401, "Requires authentication") if route.write else not_found()
        if route.level == "read":
            raise not_found()
        whom = "personal access token" if token.kind == "pat" else "integration"
        raise Problem(403, f"Resource not accessible by {whom}")

    def _git(self, where: tuple[str, str], entry: LogEntry, incoming: Incoming) -> Reply:
        request, token, account = incoming.request, incoming.token, incoming.account
        full_name, service = where
        query = request.query_string.decode()
        pushing = "git-receive-pack" in (service, request.args.get("service", ""))
        entry.template = "/{owner}/{repo}.git/" + service
        entry.write = service == "git-receive-pack"
        self.hub.begin(entry)
        repository = self.hub.state.repositories.get(full_name)
        wants_auth = Reply(401, b"", {"WWW-Authenticate": 'Basic realm="GitHub"', "Content-Type": "text/plain"})
        if repository is None or not may_see(repository, token):
            return wants_auth if token is None else Reply(404, b"Repository not found.", {"Content-Type": "text/plain"})
        if pushing and token is None:
            return wants_auth
        if (
            token is not None
            and not token.allows("contents", "write" if pushing else "read")
            and (pushing or repository.private)
        ):
            text = f"Permission to {full_name}.git denied to {account.login if account else 'you'}.".encode()
            return Reply(403, text, {"Content-Type": "text/plain"})
        if service not in ("info/refs", *SERVICES):
            raise not_found()
        reply, changes = self.backend.serve(
            repository=repository,
            git_path=repository.git_path,
            service_path=service,
            method=request.method,
            query=query,
            headers=incoming.headers,
            body=incoming.body,
            token=token,
            account=account,
        )
        entry.updates = changes
        if changes:
            with self.hub.lock:
                self.hub.pushed(repository, changes, account, token.kind if token else "pat")
        return reply

    def _respond(self, request: Request, reply: Reply, headers: Mapping[str, str]) -> Response:
        if isinstance(reply.body, bytes):
            return Response(reply.body, status=reply.status, headers=reply.headers)
        payload = b"" if reply.body is None else json.dumps(reply.body, ensure_ascii=False).encode()
        out = {"Content-Type": "application/json; charset=utf-8", "X-GitHub-Media-Type": "github.v3; format=json"}
        out |= reply.headers
        if request.method == "GET" and reply.status == 200:
            tag = f'W/"{hashlib.sha256(payload).hexdigest()}"'
            out["ETag"] = tag
            if headers.get("if-none-match") == tag:
                return Response(b"", status=304, headers=out)
        return Response(payload, status=reply.status, headers=out)


def raw_path_of(environ: Environ) -> str:
    """Return the path as it was sent, still percent-encoded."""
    raw = environ.get("REQUEST_URI") or environ.get("RAW_URI")
    if isinstance(raw, str) and raw:
        path = raw.partition("?")[0]
        if "://" in path:
            path = "/" + path.split("://", 1)[1].partition("/")[2]
        return path
    return urllib.parse.quote(str(environ.get("PATH_INFO", "")).encode("latin-1"), safe="/")


def git_path(path: str) -> tuple[str, str] | None:
    """Return (owner/name, service) where the path is one of git's, else None."""
    parts = path.strip("/").split("/")
    if len(parts) >= 3 and parts[1].endswith(".git"):
        return f"{parts[0]}/{parts[1].removesuffix('.git')}", "/".join(parts[2:])
    return None


def _json(body: bytes) -> Any:
    if not body.strip():
        return None
    try:
        return json.loads(body)
    except ValueError as error:
        raise Problem(400, "Problems parsing JSON") from error


def _reply(call: Call, answer: Any) -> Reply:
    if isinstance(answer, Reply):
        return answer
    if isinstance(answer, Page):
        return serve_page(call, answer)
    return Reply(200, answer)
