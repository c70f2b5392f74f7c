"""The one place that says what a bad answer of GitHub's means: (method, status, headers, body) to an error of klaud's.

Rules, first match:

=============================================  ==================================  =======================
answer                                         a read                              a write
=============================================  ==================================  =======================
403 or 429 with Retry-After                    again, after that time (capped)     the same: it had no effect
403 or 429, remaining is 0                     again at the reset, or told when    the same
429, or 403 that speaks of a rate limit        again after 60 s, doubling          the same
401, other 403                                 ForbiddenError, permission named    ForbiddenError
408, 5xx                                       again with back-off                 UnclearWriteError, at once
404                                            ``Missing`` is the caller's         RefusedWriteError
any other 4xx, a redirect                      ReadFailedError                     RefusedWriteError
=============================================  ==================================  =======================

The message of a refusal carries the host's own words, cut: they are the host's, not a user's free text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

from klaud import errors

if TYPE_CHECKING:
    from collections.abc import Mapping

WORDS_LIMIT = 300
"""Characters kept of what the host said."""

_DIGITS = 15
"""Digits read of a number of seconds: a longer one is cut, which still is longer than anybody waits."""

_LIMIT_WORDS = ("rate limit", "abuse detection", "too many requests", "temporarily blocked")


class Failure(msgspec.Struct, frozen=True):
    """What a bad answer means. ``wait`` is None where trying again is wrong; ``seconds`` is the host's own time.

    ``big``: the host gave up on the size of the answer (502, 504): asking for less may help.
    """

    error: errors.KlaudError
    wait: Literal["backoff", "secondary", "retry-after", "reset"] | None = None
    seconds: float = 0.0
    big: bool = False


class _Error(msgspec.Struct):
    message: str = ""
    errors: list[Any] | str = []


def words(body: str) -> str:
    """Return the host's own words in an error body, on one line, cut."""
    try:
        told = msgspec.json.decode(body, type=_Error)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return ""
    parts = [told.message]
    for one in [told.errors] if isinstance(told.errors, str) else told.errors[:5]:
        if isinstance(one, dict):
            parts.append(str(one.get("message") or f"{one.get('field', '')} {one.get('code', '')}"))
        else:
            parts.append(str(one))
    return " ".join(" ".join(part for part in parts if part.strip()).split())[:WORDS_LIMIT]


def failure(*, what: str, status: int, headers: Mapping[str, str], body: str, now: float, write: bool) -> Failure:
    """Return what an answer that is not a success means.

    ``what`` is the request as a person knows it (``GET /repos/acme/bench``); header names are lower case; ``now`` is the
    host's own time in seconds since 1970, against which the reset of the rate limit is taken; ``write`` tells a request
    with an effect from a read (a GraphQL query is a read whatever its method).
    """
    said = words(body)
    tail = f" (HTTP {status}{': ' + said if said else ''})"
    limited = _limited(status, headers, said, now) if status in {403, 429} else None
    if limited is not None:
        text = f"{what}: the host's rate limit refused it{tail}"
        error = errors.RetryLaterError(text) if write else errors.ReadFailedError(text)
        return Failure(error, *limited)
    if status == 401:
        advice = "The token is refused: set KLAUD_TOKEN to a valid token of this repository."
        return Failure(errors.ForbiddenError(f"{what}: the token is refused{tail}", advice=advice))
    if status == 403:
        return Failure(_forbidden(what, tail, headers))
    if status == 408 or status >= 500:
        if write:
            return Failure(errors.UnclearWriteError(f"{what}: no clear answer{tail}; it may have happened or not"))
        return Failure(errors.ReadFailedError(f"{what}: the host failed{tail}"), "backoff", big=status in {502, 504})
    if write:
        return Failure(errors.RefusedWriteError(f"{what}: refused{tail}", status=status, reason=said))
    moved = "The repository has moved: use its new name." if status in {301, 302, 307, 308} else None
    return Failure(errors.ReadFailedError(f"{what}: unexpected answer{tail}", advice=moved))


def _limited(
    status: int, headers: Mapping[str, str], said: str, now: float
) -> tuple[Literal["secondary", "retry-after", "reset"], float] | None:
    after = headers.get("retry-after", "")
    if after.isascii() and after.isdigit():
        return "retry-after", float(after[:_DIGITS])
    reset = headers.get("x-ratelimit-reset", "")
    if headers.get("x-ratelimit-remaining") == "0" and reset.isascii() and reset.isdigit():
        return "reset", max(0.0, float(reset[:_DIGITS]) - now) + 1.0
    if status == 429 or any(word in said.lower() for word in _LIMIT_WORDS):
        return "secondary", 0.0
    return None


def _forbidden(what: str, tail: str, headers: Mapping[str, str]) -> errors.ForbiddenError:
    needed = headers.get("x-accepted-github-permissions", "").strip()
    scopes = headers.get("x-accepted-oauth-scopes", "").strip()
    name = f"the permission {needed}" if needed else f"the scope {scopes}" if scopes else "a right that this needs"
    advice = f"Give the token {name} on this repository, or use another token; klaud doctor checks what a token may do."
    return errors.ForbiddenError(f"{what}: the token lacks {name}{tail}", advice=advice)


def no_answer(*, what: str, why: str, write: bool, sent: bool) -> Failure:
    """Return what a broken conversation means: ``sent`` False where the host was never reached."""
    if not sent:
        text = f"{what}: the host cannot be reached ({why})"
        return Failure(errors.RetryLaterError(text) if write else errors.ReadFailedError(text), "backoff")
    if write:
        return Failure(errors.UnclearWriteError(f"{what}: no answer came ({why}); it may have happened or not"))
    return Failure(errors.ReadFailedError(f"{what}: no answer came ({why})"), "backoff")
