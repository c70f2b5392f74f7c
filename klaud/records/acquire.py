"""Get one HTTP response, headers only: the part of a stream that may be tried again.

A GET is tried ``tries`` times on a connection failure, a time-out before the headers, and the statuses that mean "later";
it obeys Retry-After up to a cap and otherwise waits with equal jitter. TLS failures are never retried, and no redirect is
followed. A write (POST) is sent once; no clear answer is ``UnclearWriteError``, for the caller to read back.

Nothing that is raised here holds an address, a header, a key or a body; a response that is not handed over is closed.
"""

from __future__ import annotations

import email.utils
import http.cookiejar
import logging
import random
import threading
from typing import TYPE_CHECKING, Final

import msgspec
import requests
import requests.adapters
import requests.auth
import urllib3

from klaud import errors as tree
from klaud.records import address, errors
from klaud.records import call as calls

if TYPE_CHECKING:
    import datetime
    from collections.abc import Callable

    from klaud.clock import Clock

LATER: Final = frozenset({408, 425, 429, 502, 503, 504})
"""Statuses that say "not now" about a read."""

CLOSE_SECONDS: Final = 5.0
"""How long closing a response may take; then the connection is given up."""

_LOG = logging.getLogger(__name__)

REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """How long getting a response may be tried. Seconds."""

    tries: int = 3
    """Requests sent in all; more would hide an outage from the caller, who has a schedule of its own."""
    connect_seconds: float = 10.0
    """To connect; a host that takes longer is down for us."""
    first_wait: float = 0.5
    """Before the second try, doubled for each next; half of it is by chance, so that readers do not come back together."""
    longest_wait: float = 8.0
    """Of one wait that klaud chose."""
    longest_asked_wait: float = 60.0
    """Of one wait that the host asked for by Retry-After."""
    later: frozenset[int] = LATER
    """Statuses that are tried again."""


class Got(msgspec.Struct):
    """What acquisition came to: a response with status 200, or a fault; and what it cost."""

    response: requests.Response | None = None
    fault: errors.StreamError | tree.UnclearWriteError | None = None
    requests: int = 0
    sleeps: int = 0
    closes: int = 0


class _NoAuth(requests.auth.AuthBase):
    """Keep requests from looking for other credentials in a netrc file."""

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        return request


class _NoRawHeaders(logging.Filter):
    """Drop urllib3's warning about unreadable headers, which quotes them."""

    def filter(self, record: logging.LogRecord) -> bool:
        return "parse headers" not in str(record.msg)


_FILTER = _NoRawHeaders()


def new_session() -> requests.Session:
    """Return a session that retries nothing itself, keeps no cookies, and takes no credentials from the machine."""
    session = requests.Session()
    for scheme in ("https://", "http://"):
        session.mount(scheme, requests.adapters.HTTPAdapter(max_retries=0, pool_maxsize=2))
    session.cookies.set_policy(_NoCookies())
    session.auth = _NoAuth()
    for name in ("urllib3.connection", "urllib3.connectionpool"):
        logging.getLogger(name).addFilter(_FILTER)
    return session


class _NoCookies(http.cookiejar.DefaultCookiePolicy):
    """Take no cookie and send none."""

    def set_ok(self, cookie: http.cookiejar.Cookie, request: object) -> bool:  # noqa: ARG002 - the base's signature
        """Refuse every cookie."""
        return False


def get(
    session: requests.Session,
    call: calls.Call,
    policy: Policy,
    clock: Clock,
    *,
    idle_seconds: float,
    deadline: float | None = None,
    chance: Callable[[], float] = random.random,
) -> Got:
    """Send a read until it has a response with status 200, or a fault. ``deadline``: on ``clock.monotonic``'s scale."""
    got = Got()
    refused = address.why_refused(call.url)
    if refused is not None:
        got.fault = errors.StreamError(refused, code="address-refused")
        return got
    for again in range(policy.tries):
        if deadline is not None and clock.monotonic() >= deadline:
            got.fault = past_deadline()
            return got
        got.requests += 1
        response, fault, may_retry = _once(session, call, policy, idle_seconds)
        if fault is None:
            got.response, got.fault = response, None
            return got
        asked = None
        if response is not None:
            asked = _retry_after(response.headers.get("Retry-After"), clock.now())
            close_quietly(response.close)
            got.closes += 1
        got.fault = fault
        if not may_retry or again + 1 == policy.tries:
            return got
        wait = _wait(policy, again, asked, chance)
        if deadline is not None and clock.monotonic() + wait >= deadline:
            got.fault = past_deadline()
            return got
        got.sleeps += 1
        clock.sleep(wait)
    return got


def send(session: requests.Session, call: calls.Call, policy: Policy, *, idle_seconds: float) -> Got:
    """Send a write once. A clear no is a fault of its kind; no answer, or a 5xx, is ``UnclearWriteError``."""
    got = Got()
    refused = address.why_refused(call.url)
    if refused is not None:
        got.fault = errors.StreamError(refused, code="address-refused")
        return got
    got.requests += 1
    response, fault, may_retry = _once(session, call, policy, idle_seconds)
    if fault is None:
        got.response = response
        return got
    if response is not None:
        close_quietly(response.close)
        got.closes += 1
    status = fault.status
    unclear = may_retry if status is None else status >= 500 or status == 408
    got.fault = tree.UnclearWriteError("the write got no clear answer") if unclear else fault
    return got


def past_deadline() -> errors.StreamError:
    """Return the fault of a stream whose caller's deadline has passed."""
    return errors.StreamError("the deadline that the caller set has passed", code="deadline-exceeded")


def close_quietly(close: Callable[[], object]) -> bool:
    """Run ``close`` for at most ``CLOSE_SECONDS``; tell whether it ended without an error. What it raises is not shown."""
    ended: list[bool] = []

    def run() -> None:
        try:
            close()
        except Exception as error:  # noqa: BLE001 - whatever a close raises, the connection is given up
            _LOG.debug("closing a response failed: %s", type(error).__name__)
        else:
            ended.append(True)

    thread = threading.Thread(target=run, daemon=True, name="klaud-close")
    try:
        thread.start()
    except RuntimeError:  # the machine has no thread left: then without the bound
        run()
        return bool(ended)
    thread.join(CLOSE_SECONDS)
    return bool(ended)


def _once(
    session: requests.Session, call: calls.Call, policy: Policy, idle_seconds: float
) -> tuple[requests.Response | None, errors.StreamError | None, bool]:
    """Send once: (response, fault, may it be tried again). With status 200 there is no fault."""
    response = None
    fault: errors.StreamError | None
    local = call.url.startswith("http:")  # only this machine, by ``address``
    try:
        response = session.request(
            call.method,
            call.url,
            headers=call.headers,
            data=call.body if not isinstance(call.body, calls.Form) else None,
            files=call.body.parts if isinstance(call.body, calls.Form) else None,
            stream=True,
            allow_redirects=False,
            timeout=(policy.connect_seconds, idle_seconds),
            proxies={"http": "", "https": "", "no_proxy": "*"} if local else None,
        )
    except requests.exceptions.SSLError:
        fault, may_retry = errors.StreamError("the TLS connection could not be trusted", code="tls-failed"), False
    except requests.exceptions.ConnectTimeout:
        fault, may_retry = errors.StreamError("the host could not be reached in time", code="connection-failed"), True
    except requests.exceptions.Timeout:
        fault, may_retry = (
            errors.StreamError(
                "the host did not answer in time", code="read-timeout", details={"timeout_seconds": idle_seconds}
            ),
            True,
        )
    except requests.exceptions.ConnectionError:
        fault, may_retry = errors.StreamError("the host could not be reached", code="connection-failed"), True
    except (requests.exceptions.RequestException, ValueError, urllib3.exceptions.HTTPError):
        fault, may_retry = errors.StreamError("the host's answer cannot be read", code="response-invalid"), False
    else:
        fault, may_retry = _judge(response.status_code, policy, writing=call.method != "GET")
    return response, fault, may_retry


def _judge(status: int, policy: Policy, *, writing: bool) -> tuple[errors.StreamError | None, bool]:
    if status == 200 or (writing and status in {201, 202}):
        return None, False
    if status in policy.later:
        message = f"the host is not available now (status {status})"
        return errors.StreamError(message, code="response-unavailable", status=status), True
    if status in REDIRECTS:
        return errors.StreamError(f"the host redirects (status {status})", code="redirected", status=status), False
    if status in {401, 403}:
        message = f"the host refuses the key (status {status})"
        return errors.StreamError(message, code="response-forbidden", status=status), False
    return errors.StreamError(f"the host answered with status {status}", code="response-status", status=status), False


def _wait(policy: Policy, again: int, asked: float | None, chance: Callable[[], float]) -> float:
    span = min(policy.longest_wait, policy.first_wait * float(2**again))
    own = span / 2 + chance() * span / 2
    return own if asked is None else max(own, min(asked, policy.longest_asked_wait))


def _retry_after(value: str | None, now: datetime.datetime) -> float | None:
    """Return the seconds that a Retry-After asks for, by number or by date; None where it cannot be read."""
    if value is None:
        return None
    value = value.strip()
    if value.isascii() and value.isdigit() and len(value) < 10:
        return float(value)
    try:
        at = email.utils.parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    if at.tzinfo is None:
        return None
    return max((at - now).total_seconds(), 0.0)
