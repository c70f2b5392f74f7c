"""The hub as a WSGI application: authentication, permissions, faults, caching headers, the log.

Callable in process (no socket) or behind ``server.serve``. An unknown route is answered 501 and logged as an error: the
hub never guesses.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import email.utils
import hashlib
import json
import os
import signal
import socket
import time
import urllib.parse
from typing import TYPE_CHECKING, Any

from werkzeug.wrappers import Request, Response

from klaud.fakehub import graph
from klaud.fakehub.call import Call, Instead, Page, Problem, Reply, Route, may_see, not_found
from klaud.fakehub.faults import CutError, Fault, problem_of
from klaud.fakehub.githttp import SERVICES, GitBackend, password
from klaud.fakehub.hub import LOG, LogEntry
from klaud.fakehub.paging import serve_page
from klaud.fakehub.routes import build_router

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from klaud.fakehub.hub import Hub
    from klaud.fakehub.state import Account, Token

Environ = dict[str, Any]

BODY_LIMIT = 512 * 1024 * 1024
"""Bytes of one request body; a push of a whole test repository is far below."""

FREE = ("/rate_limit", "/", "/meta", "/_feeds/{name}", "/_blobs/{artifact_id}", "/_logs/{job_id}")
"""Routes that cost nothing of the rate limit."""


@dataclasses.dataclass(frozen=True)
class Incoming:
    """One request with who sent it."""

    request: Request
    raw_path: str
    headers: Mapping[str, str]
    body: bytes
    entry: LogEntry
    token: Token | None = None
    account: Account | None = None


@dataclasses.dataclass
class Outcome:
    """An answer with what else is to be done to it."""

    reply: Reply
    faults: Sequence[Fault] = ()
    call: Call | None = None


class App:
    """The WSGI application of one hub."""

    def __init__(self, hub: Hub) -> None:
        """Serve ``hub``."""
        self.hub = hub
        self.router = build_router()
        self.backend = GitBackend(hub)

    def __call__(self, environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Answer one request."""
        request = Request(environ)
        request.max_content_length = BODY_LIMIT
        try:
            response = self._answer(request, raw_path_of(environ))
        except CutError:
            connection = environ.get("werkzeug.socket")
            if connection is None:
                raise
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            start_response("500 Cut", [])
            return []
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
        incoming = Incoming(request, raw_path, headers, body, entry)
        try:
            outcome = self._dispatch(incoming)
        except Problem as problem:
            if entry.number == 0:
                self.hub.begin(entry)
            outcome = Outcome(problem.reply())
        except CutError:
            raise
        except Exception as error:  # noqa: BLE001 - a fault of the hub is shown, never guessed around
            LOG.exception("the hub failed at %s %s", entry.method, raw_path)
            self.hub.errors.append(f"{entry.method} {raw_path}: {type(error).__name__}: {error}")
            outcome = Outcome(Problem(500, f"the hub failed: {type(error).__name__}: {error}").reply())
        entry.status = outcome.reply.status
        self.hub.end(entry, outcome.reply)
        self._spoil(outcome)
        return self._respond(request, outcome, headers)

    # -- before the effect

    def _dispatch(self, incoming: Incoming) -> Outcome:
        entry = incoming.entry
        where = git_path(incoming.raw_path)
        found = None if where else self.router.find(incoming.request.method, incoming.raw_path)
        if where is not None:
            entry.template = "/{owner}/{repo}.git/" + where[1]
            entry.write = where[1] == "git-receive-pack"
        elif found is not None:
            entry.template = found[0].template
            entry.write = found[0].write
        token, account = (None, None) if entry.template.startswith("/_blobs/") else self._who(incoming.headers)
        entry.account = account.login if account else None
        incoming = dataclasses.replace(incoming, token=token, account=account)
        if where is not None:
            return self._git(where, incoming)
        if found is None:
            LOG.error("unknown route: %s %s", entry.method, incoming.raw_path)
            self.hub.errors.append(f"unknown route {entry.method} {incoming.raw_path}")
            raise Problem(501, f"the hub has no route {entry.method} {incoming.raw_path}")
        return self._rest(*found, incoming)

    def _who(self, headers: Mapping[str, str]) -> tuple[Token | None, Account | None]:
        secret = password(headers.get("authorization", ""))
        if secret is None:
            return None, None
        token = self.hub.state.tokens.get(secret)
        if token is None or (token.expires_at is not None and token.expires_at <= self.hub.clock.now()):
            raise Problem(401, "Bad credentials")
        return token, self.hub.state.account(token.account)

    def _harm(self, entry: LogEntry) -> list[Fault]:
        """Do the faults that come before the effect, and return them all."""
        faults = self.hub.faults.due(entry)
        for fault in faults:
            if fault.kind == "delay":
                time.sleep(fault.seconds)  # the fault is the delay
            if fault.kind == "kill" and fault.variant != "after":
                self._kill()
            if fault.kind == "lost-request":
                raise CutError
            if fault.kind == "body":
                raise Instead(fault.message)
            problem = problem_of(fault, now=self.hub.clock.now().timestamp(), limit=self.hub.rates.limits["core"])
            if problem is not None:
                raise problem
        return faults

    def _kill(self) -> None:
        if self.hub.client_pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.hub.client_pid, signal.SIGKILL)
        raise CutError

    # -- REST and GraphQL

    def _rest(self, route: Route, params: dict[str, str], incoming: Incoming) -> Outcome:
        entry, request = incoming.entry, incoming.request
        body = _json(incoming.body)
        if route.template == "/graphql":
            entry.write = graph.is_mutation(body)
            entry.operation = graph.operation(body)
        call = Call(
            hub=self.hub,
            state=self.hub.state,
            number=0,
            method=request.method,
            path=entry.path,
            query=request.args.to_dict(),
            headers=incoming.headers,
            body=body,
            now=self.hub.clock.now(),
            base_url=request.host_url.rstrip("/"),
            token=incoming.token,
            account=incoming.account,
            template=route.template,
            params=params,
            write=entry.write,
        )
        entry.body = body if entry.write else None
        self.hub.begin(entry)
        call.number = entry.number
        try:
            call.faults = self._harm(entry)
            with self.hub.lock:
                call.now = self.hub.clock.now()
                self._spend(call)
                self._age(call)
                self._permit(call, route)
                if entry.write:
                    self.hub.faults.before_write()
                reply = _reply(call, route.handler(call))
        except Problem as problem:
            return Outcome(problem.reply(), call.faults, call)
        return Outcome(reply, call.faults, call)

    def _spend(self, call: Call) -> None:
        if call.template in FREE:
            return
        resource = "graphql" if call.template == "/graphql" else "core"
        if not self.hub.rates.spend(call, resource):
            raise Problem(403, f"API rate limit exceeded for user ID {call.actor or 0}.")

    def _age(self, call: Call) -> None:
        """Let a stale read see the state as it was."""
        for fault in call.faults:
            if fault.kind == "stale" and not call.write and fault.snapshot is not None:
                call.state = fault.snapshot.state
                call.frozen_refs = fault.snapshot.refs

    def _permit(self, call: Call, route: Route) -> None:
        if "owner" not in call.params or "repo" not in call.params:
            if route.write and call.token is None:
                raise Problem(401, "Requires authentication")
            return
        repository = call.repo
        token = call.token
        if token is not None and any(token.allows(permission, route.level) for permission in route.permission):
            return
        if token is None:
            if not repository.private and not route.write:
                return
            raise Problem(401, "Requires authentication") if route.write else not_found()
        if route.level == "read":
            raise not_found()
        whom = "personal access token" if token.kind == "pat" else "integration"
        raise Problem(403, f"Resource not accessible by {whom}")

    # -- git

    def _git(self, where: tuple[str, str], incoming: Incoming) -> Outcome:
        full_name, service = where
        request, token, account, entry = incoming.request, incoming.token, incoming.account, incoming.entry
        pushing = "git-receive-pack" in (service, request.args.get("service", ""))
        self.hub.begin(entry)
        faults: Sequence[Fault] = ()
        try:
            faults = self._harm(entry)
        except Problem as problem:
            text = problem.message.encode()
            return Outcome(Reply(problem.status, text, {"Content-Type": "text/plain", **problem.headers}))
        known = {name.lower(): found for name, found in self.hub.state.repositories.items()}
        repository = known.get(full_name.lower())  # GitHub's git addresses know no case
        full_name = repository.full_name if repository is not None else full_name
        text_plain = {"Content-Type": "text/plain"}
        wants_auth = Reply(401, b"", {"WWW-Authenticate": 'Basic realm="GitHub"', **text_plain})
        if repository is None or not may_see(repository, token):
            return Outcome(wants_auth if token is None else Reply(404, b"Repository not found.", text_plain))
        if pushing and token is None:
            return Outcome(wants_auth)
        if (
            token is not None
            and not token.allows("contents", "write" if pushing else "read")
            and (pushing or repository.private)
        ):
            text = f"Permission to {full_name}.git denied to {account.login if account else 'you'}.".encode()
            return Outcome(Reply(403, text, text_plain))
        if service not in ("info/refs", *SERVICES):
            raise not_found()
        path = repository.git_path
        for fault in faults:
            if fault.kind == "stale" and not pushing and fault.snapshot is not None:
                path = self.backend.replica(repository, fault.snapshot.refs.get(full_name, {}))
        if service == "git-receive-pack":
            self.hub.faults.before_write()
        reply, changes = self.backend.serve(
            repository=repository,
            git_path=path,
            service_path=service,
            method=request.method,
            query=request.query_string.decode(),
            headers=incoming.headers,
            body=incoming.body,
            token=token,
            account=account,
            faults=faults,
        )
        entry.updates = changes
        if changes:
            self.hub.pushed(repository, changes, account, token.kind if token else "pat")
        return Outcome(reply, faults)

    # -- after the effect

    def _spoil(self, outcome: Outcome) -> None:
        """Do the faults that come after the effect."""
        for fault in outcome.faults:
            match fault.kind:
                case "lost-reply":
                    raise CutError
                case "kill" if fault.variant == "after":
                    self._kill()
                case "status-after-effect":
                    outcome.reply = Problem(fault.status, fault.message or "Server Error").reply()
                case "graphql-errors":
                    graph.spoil(outcome.reply, fault.message)
                case _:
                    pass

    def _respond(self, request: Request, outcome: Outcome, headers: Mapping[str, str]) -> Response:
        reply, call = outcome.reply, outcome.call
        raw = isinstance(reply.body, bytes)
        payload = (
            reply.body if raw else b"" if reply.body is None else json.dumps(reply.body, ensure_ascii=False).encode()
        )
        out: dict[str, str] = {}
        if not raw:
            out = {"Content-Type": "application/json; charset=utf-8", "X-GitHub-Media-Type": "github.v3; format=json"}
        if call is not None:
            resource = "graphql" if call.template == "/graphql" else "core"
            out |= self.hub.rates.headers(call, resource)
            out["X-GitHub-Request-Id"] = f"HUB:{call.number}"
        skew = sum(fault.seconds for fault in outcome.faults if fault.kind == "clock-skew")
        moment = self.hub.clock.now() + datetime.timedelta(seconds=skew)
        out["Date"] = email.utils.format_datetime(moment, usegmt=True)
        out |= reply.headers
        for fault in outcome.faults:
            if fault.kind == "cut-body":
                payload = payload[: fault.rows]
        status = reply.status
        if call is not None and request.method == "GET" and status == 200 and not outcome.faults:
            tag = f'W/"{hashlib.sha256(payload).hexdigest()}"'
            out["ETag"] = tag
            out["Cache-Control"] = "private, max-age=60, s-maxage=60"
            if headers.get("if-none-match") == tag:
                self.hub.rates.refund(call, "core")
                payload, status = b"", 304
        return Response(payload, status=status, headers=out)


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
