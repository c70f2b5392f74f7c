"""Send one request to GitHub and bring back (status, headers, text), through PyGithub's requester.

PyGithub does the authentication, the address and the headers; its retries, throttle, redirects and objects are not used:
retries are ``retry.call`` (on the injected clock), writes are spaced here (same clock), and a redirect is followed for a
read on the same origin only, at most ``REDIRECTS`` times, so that the token never goes elsewhere. A body is read up to a
limit. Counts by endpoint template, the list of writes and the newest rate limit are kept here.
"""

from __future__ import annotations

import contextlib
import datetime
import email.utils
import re
import threading
import urllib.parse
from typing import TYPE_CHECKING, Any, cast

import github
import github.Auth
import github.Requester
import msgspec
import requests
import requests.adapters
import urllib3.exceptions

from klaud import errors
from klaud.github import app, decode_errors, model, retry
from klaud.records import acquire, limits
from klaud.records import call as calls
from klaud.records import errors as stream_errors
from klaud.records import response as responses

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from klaud import clock as clocks

BODY_LIMIT = 64 * 1024 * 1024
"""Bytes of one answer: a page of 100 pull requests with the longest bodies GitHub allows is about 26 MB."""

REDIRECTS = 3
"""Redirects of one read: a renamed repository is one."""

SPACING = 1.0
"""Seconds between two writes: GitHub's own advice against its secondary limits."""


_ADDRESS = re.compile(r"(with url: |https?://)\S+")
_COUNTED = frozenset(f"x-ratelimit-{part}" for part in ("limit", "remaining", "reset", "used"))
_COUNT = re.compile(r"[0-9]{1,10}")
"""A number of a rate limit's header: ten digits hold any time until 2286; a longer one is nothing that can be waited for."""


class Answer(msgspec.Struct, frozen=True):
    """One answer of the host. Header names are lower case."""

    status: int
    headers: dict[str, str]
    body: str


class BigError(errors.ReadFailedError):
    """A read that failed in a way that asking for less may cure (502, 504)."""


class _BrokenError(Exception):
    """No answer: ``sent`` False where the host was certainly never asked."""

    def __init__(self, why: str, *, sent: bool) -> None:
        super().__init__(why)
        self.sent = sent


class _Exchange:
    """The connection PyGithub is handed for one request; mimics its connection and response classes."""

    def __init__(self, session: requests.Session, origin: str, timeout: float, *, follow: bool) -> None:
        self._session = session
        self._redirects = REDIRECTS if follow else 0
        self._origin = origin
        self._timeout = timeout
        self.status = 0
        self._headers: dict[str, str] = {}
        self._text = ""

    def request(self, verb: str, url: str, body: str | None, headers: dict[str, str], stream: bool = False) -> None:
        del stream
        address = self._origin + url
        for _ in range(self._redirects + 1):
            self._ask(verb, address, body, headers)
            location = self._headers.get("location", "")
            if self.status not in {301, 302, 303, 307, 308} or verb != "GET" or not location:
                break
            address = urllib.parse.urljoin(address, location)
            if not _is_at(address, self._origin):
                break
        if self.status == 301:
            self.status = 308  # PyGithub follows a 301 by itself and drops the query: it never sees one

    def _ask(self, verb: str, address: str, body: str | None, headers: dict[str, str]) -> None:
        try:
            with self._session.request(
                verb, address, data=body, headers=headers, timeout=self._timeout, allow_redirects=False, stream=True
            ) as response:
                self.status = response.status_code
                named = ((key.lower(), value) for key, value in response.headers.items())
                # PyGithub computes with the limit's headers: what is no number never reaches it
                self._headers = {name: value for name, value in named if _readable(name, value)}
                whole = b"".join(_pieces(response, BODY_LIMIT, f"{verb} {address.partition('?')[0]}"))
                self._text = whole.decode("utf-8", "replace")
        except (requests.RequestException, urllib3.exceptions.HTTPError, ValueError) as error:
            # ValueError: requests takes a redirect's address apart also where it is not to follow it
            raise _BrokenError(_why(error), sent=not _never_sent(error)) from error

    def getresponse(self) -> _Exchange:
        return self

    def getheaders(self) -> list[tuple[str, str]]:
        return list(self._headers.items())

    def read(self) -> str:
        return self._text

    def close(self) -> None:
        """Keep the session: it belongs to the sender."""


def _auth(token: str | app.AppToken) -> github.Auth.Token | None:
    if isinstance(token, app.AppToken):
        return app.RenewedAuth(token)
    return github.Auth.Token(token) if token else None


class Sender:
    """Requests to one API with one token."""

    def __init__(
        self,
        *,
        token: str | app.AppToken,
        api_url: str,
        clock: clocks.Clock,
        policy: retry.Policy,
        spacing: float = SPACING,
    ) -> None:
        """``spacing``: seconds between two writes."""
        self._clock = clock
        self._policy = policy
        self._spacing = spacing
        self._origin = origin_of(api_url)
        self._session = requests.Session()
        self._session.auth = github.Requester.Requester.noopAuth
        adapter = requests.adapters.HTTPAdapter(max_retries=0)
        self._session.mount("http://", adapter)
        self._session.mount("https://", adapter)
        self._github = github.Github(
            auth=_auth(token),
            base_url=api_url.rstrip("/"),
            user_agent="klaud",
            timeout=int(policy.request_timeout),
            retry=None,
            seconds_between_requests=None,
            seconds_between_writes=None,
        )
        self._lock = threading.Lock()
        self._wrote_at: float | None = None
        self.pace = retry.Pace(clock)
        self.requests: dict[str, int] = {}
        self.writes: list[str] = []
        self.rate_limit = model.RateLimit()

    def close(self) -> None:
        """Close the connections."""
        self._github.close()
        self._session.close()

    @property
    def graphql_url(self) -> str:
        """The address of the GraphQL endpoint."""
        return str(self._github.requester.graphql_url)

    def send(
        self,
        method: str,
        template: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        write: bool = False,
        label: str = "",
        accept: tuple[int, ...] = (),
        tries: int | None = None,
        check: Callable[[Answer], None] | None = None,
    ) -> Answer:
        """Send one request and return its answer: a 2xx, or one of the statuses in ``accept``.

        ``template`` counts it; ``path`` is below the API's address, or an absolute address on its origin; ``label`` is
        added to the line of a write. ``tries`` replaces the policy's for this request. ``check`` looks at a good answer
        and may raise ``retry.Again``. A write is sent again only after a rate limit's refusal. Errors: see
        ``decode_errors``.
        """
        policy = self._policy if tries is None else msgspec.structs.replace(self._policy, tries=tries)
        name = f"{method} {path if path.startswith('/') else template}"

        def attempt() -> Answer:
            answer = self._once(method, template, path, query, body, write=write, label=label, name=name)
            if answer.status not in accept and not 200 <= answer.status < 300:
                now = self._host_time(answer.headers)
                raise _again(
                    decode_errors.failure(
                        what=name, status=answer.status, headers=answer.headers, body=answer.body, now=now, write=write
                    )
                )
            if check is not None:
                check(answer)
            return answer

        return retry.call(attempt, policy=policy, clock=self._clock, pace=self.pace)

    def _once(
        self,
        method: str,
        template: str,
        path: str,
        query: Mapping[str, str] | None,
        body: Any,
        *,
        write: bool,
        label: str,
        name: str,
        follow: bool = True,
    ) -> Answer:
        if write and self._wrote_at is not None:
            self._clock.sleep(self._wrote_at + self._spacing - self._clock.monotonic())
        with self._lock:
            key = f"{method} {template}"
            self.requests[key] = self.requests.get(key, 0) + 1
            if write:
                self.writes.append(f"{name} {label}".rstrip())
        exchange = cast("Any", _Exchange(self._session, self._origin, self._policy.request_timeout, follow=follow))
        try:
            status, headers, text = self._github.requester.requestJson(
                method, path, dict(query or {}), None, body, exchange
            )
        except _BrokenError as error:
            raise _again(decode_errors.no_answer(what=name, why=str(error), write=write, sent=error.sent)) from error
        finally:
            if write:
                self._wrote_at = self._clock.monotonic()
        self._note(headers)
        return Answer(status, headers, text)

    def _note(self, headers: Mapping[str, str]) -> None:
        values = [headers.get(f"x-ratelimit-{part}", "") for part in ("limit", "remaining", "reset")]
        limit, remaining, reset = (int(value) if _COUNT.fullmatch(value) else None for value in values)
        if remaining is not None:
            at = None if reset is None else datetime.datetime.fromtimestamp(reset, datetime.UTC)
            self.rate_limit = model.RateLimit(limit=limit, remaining=remaining, reset_at=at)

    def _host_time(self, headers: Mapping[str, str]) -> float:
        try:
            return email.utils.parsedate_to_datetime(headers.get("date", "")).timestamp()
        except (TypeError, ValueError, OverflowError):
            return self._clock.now().timestamp()

    def download(self, template: str, path: str, *, limit: int) -> bytes:
        """Return the bytes behind ``path``: its redirect is followed to wherever it points, without the token.

        ReadFailedError where it is more than ``limit`` bytes, where it is gone, and where it cannot be had.
        """
        name = f"GET {path} (its bytes)"

        def attempt() -> bytes:
            answer = self._once("GET", template, path, None, None, write=False, label="", name=name, follow=False)
            location = answer.headers.get("location", "")
            if answer.status not in {302, 303, 307, 308} or not location:
                now = self._host_time(answer.headers)
                raise _again(
                    decode_errors.failure(
                        what=name, status=answer.status, headers=answer.headers, body=answer.body, now=now, write=False
                    )
                )
            return self._bytes_of(location, limit, name)

        return retry.call(attempt, policy=self._policy, clock=self._clock, pace=self.pace)

    def _bytes_of(self, location: str, limit: int, name: str) -> bytes:
        """Read it as every file is read: one GET, without credentials, to no further redirect, within the limit."""
        bounds = limits.Limits(file_bytes=limit, idle_seconds=max(1, int(self._policy.request_timeout)))
        once = acquire.Policy(tries=1, connect_seconds=self._policy.request_timeout)
        with contextlib.closing(acquire.new_session()) as bare:
            call = calls.Call(location, headers={"User-Agent": "klaud"})
            try:
                return responses.whole(responses.Response(bare, call, self._clock, bounds, once), bounds)
            except stream_errors.StreamError as error:
                failed = _not_had(error, limit, name)
        raise failed


def _again(failure: decode_errors.Failure) -> Exception:
    """Return what to raise for a failure: another try, or the error itself."""
    error = failure.error
    if failure.big and isinstance(error, errors.ReadFailedError):
        error = BigError(str(error))
    if failure.wait is None:
        return error
    return retry.Again(error, wait=failure.wait, seconds=failure.seconds)


def _not_had(error: stream_errors.StreamError, limit: int, name: str) -> Exception:
    """Return what to raise for bytes that could not be had; nothing of their address, which is a credential, is in it."""
    if error.code == "download-limit":
        told = f"{name}: more than the limit of {limit} bytes"
        return errors.ReadFailedError(told, advice="Raise the limit, or make the artifact smaller.")
    # the store's 403 is about its own signed address, not about the token
    why = str(error) if error.status in {None, 200} else f"HTTP {error.status} from its store"
    failed = errors.ReadFailedError(f"{name}: {why}")
    later = error.exit_status == errors.RetryLaterError.exit_status or (error.status or 0) >= 500
    return retry.Again(failed) if later else failed


def spacing_for(api_url: str) -> float:
    """Return the seconds between two writes to a host: none on loopback, where no secondary limit counts them."""
    return 0.0 if urllib.parse.urlsplit(api_url).hostname in {"127.0.0.1", "localhost", "::1"} else SPACING


def _readable(name: str, value: str) -> bool:
    """Tell whether a number of the rate limit can be counted with; any other header can be read."""
    return name not in _COUNTED or _COUNT.fullmatch(value) is not None


def _is_at(address: str, origin: str) -> bool:
    try:
        return origin_of(address) == origin
    except ValueError:  # a port that is none
        return False


def origin_of(url: str) -> str:
    """Return scheme, host and port of an address, the port always written."""
    parts = urllib.parse.urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return f"{parts.scheme}://{parts.hostname}:{port}"


def _pieces(response: requests.Response, limit: int, name: str) -> Iterator[bytes]:
    left = limit
    for piece in response.iter_content(64 * 1024):
        left -= len(piece)
        if left < 0:
            msg = f"{name}: more than the limit of {limit} bytes"
            raise errors.ReadFailedError(
                msg, advice="GitHub sends no such answer: check GITHUB_API_URL, then report it."
            )
        yield piece


def _why(error: Exception) -> str:
    """Return what went wrong without any address: a redirect's address can be a credential."""
    inner = getattr(error.args[0] if error.args else None, "reason", None)
    told = _ADDRESS.sub("", " ".join(str(inner if isinstance(inner, Exception) else error).split()))
    return f"{type(error).__name__}: {told}"[: decode_errors.WORDS_LIMIT]


def _never_sent(error: Exception) -> bool:
    """Tell whether the connection failed before any byte of the request."""
    if isinstance(error, requests.ConnectTimeout | requests.exceptions.SSLError | requests.exceptions.ProxyError):
        return True
    inner = error.args[0] if error.args else None
    reason = getattr(inner, "reason", inner)
    return isinstance(reason, urllib3.exceptions.NewConnectionError | urllib3.exceptions.NameResolutionError)
