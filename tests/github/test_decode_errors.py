# ruff: noqa: N802 - tests carry the ids of the oddities they show
"""The error table: what each kind of answer means for a read and for a write."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klaud import errors
from klaud.github import decode_errors

NOW = 1_800_000_000.0
READ, LATER, NO = errors.ReadFailedError, errors.RetryLaterError, errors.ForbiddenError
UNCLEAR, REFUSED = errors.UnclearWriteError, errors.RefusedWriteError
LEFT, RESET, NEEDS = "x-ratelimit-remaining", "x-ratelimit-reset", "x-accepted-github-permissions"
ROWS: list[tuple[str, int, dict[str, str], str, type, str | None, float, type, str | None]] = [
    # name, status, headers, message | read: error, wait, seconds | write: error, wait
    ("retry-after-429", 429, {"retry-after": "120"}, "slow", READ, "retry-after", 120, LATER, "retry-after"),
    ("retry-after-403", 403, {"retry-after": "9"}, "secondary", READ, "retry-after", 9, LATER, "retry-after"),
    ("primary-403", 403, {LEFT: "0", RESET: "1800000100"}, "API rate limit exceeded", READ, "reset", 101, LATER, "reset"),
    ("primary-past-reset", 403, {LEFT: "0", RESET: "1700000000"}, "API rate limit", READ, "reset", 1, LATER, "reset"),
    ("L79-secondary-403", 403, {LEFT: "4000"}, "a secondary rate limit", READ, "secondary", 0, LATER, "secondary"),
    ("429-bare", 429, {}, "", READ, "secondary", 0, LATER, "secondary"),
    ("retry-after-date", 429, {"retry-after": "Mon, 30 Nov 2026"}, "", READ, "secondary", 0, LATER, "secondary"),
    ("401", 401, {}, "Bad credentials", NO, None, 0, NO, None),
    ("L77-403", 403, {NEEDS: "pull_requests=write", LEFT: "55"}, "Resource not accessible", NO, None, 0, NO, None),
    ("403-remaining-0-without-reset", 403, {LEFT: "0"}, "Forbidden", NO, None, 0, NO, None),
    ("500", 500, {}, "", READ, "backoff", 0, UNCLEAR, None),
    ("502", 502, {}, "<html>", READ, "backoff", 0, UNCLEAR, None),
    ("503-retry-after", 503, {"retry-after": "5"}, "", READ, "backoff", 0, UNCLEAR, None),
    ("408", 408, {}, "", READ, "backoff", 0, UNCLEAR, None),
    ("404", 404, {}, "Not Found", READ, None, 0, REFUSED, None),
    ("409", 409, {}, "Cannot cancel", READ, None, 0, REFUSED, None),
    ("422", 422, {}, "Validation Failed", READ, None, 0, REFUSED, None),
    ("301", 301, {"location": "https://elsewhere.invalid/"}, "", READ, None, 0, REFUSED, None),
]  # fmt: skip


def failure(status: int, headers: dict[str, str], message: str, *, write: bool) -> decode_errors.Failure:
    body = json.dumps({"message": message}) if not message.startswith("<") else message
    return decode_errors.failure(what="GET /x", status=status, headers=headers, body=body, now=NOW, write=write)


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_the_table(row: tuple[str, int, dict[str, str], str, type, str | None, float, type, str | None]) -> None:
    _, status, headers, message, read, read_wait, seconds, write, write_wait = row
    found = failure(status, headers, message, write=False)
    assert (type(found.error), found.wait, found.seconds) == (read, read_wait, seconds)
    assert str(status) in str(found.error)
    assert found.error.advice
    written = failure(status, headers, message, write=True)
    assert (type(written.error), written.wait) == (write, write_wait)
    if isinstance(written.error, errors.RefusedWriteError):
        assert written.error.status == status


@given(
    st.integers(min_value=300, max_value=599),
    st.dictionaries(
        st.sampled_from(["retry-after", "x-ratelimit-remaining", "x-ratelimit-reset"]), st.text(max_size=12)
    ),
    st.text(max_size=30),
)
def test_a_write_is_tried_again_only_after_a_rate_limit(status: int, headers: dict[str, str], body: str) -> None:
    found = decode_errors.failure(what="POST /x", status=status, headers=headers, body=body, now=NOW, write=True)
    assert (found.wait is not None) <= (status in {403, 429})
    assert (status >= 500) <= isinstance(found.error, errors.UnclearWriteError)
    assert isinstance(found.error, errors.KlaudError)


def test_L77_the_missing_permission_is_named() -> None:
    found = failure(
        403, {"x-accepted-github-permissions": "pull_requests=write"}, "Resource not accessible", write=True
    )
    assert "pull_requests=write" in str(found.error)
    assert "pull_requests=write" in found.error.advice
    assert "scope repo" in str(failure(403, {"x-accepted-oauth-scopes": "repo"}, "", write=False).error)


def test_only_502_and_504_may_be_cured_by_asking_for_less() -> None:
    assert [status for status in (500, 502, 503, 504) if failure(status, {}, "", write=False).big] == [502, 504]


def test_the_hosts_words_are_kept_on_one_line_and_cut() -> None:
    body = json.dumps(
        {
            "message": "Validation\nFailed",
            "errors": [{"field": "head", "code": "invalid"}, {"message": "No commits"}, "odd", 7],
        }
    )
    assert decode_errors.words(body) == "Validation Failed head invalid No commits odd 7"
    assert decode_errors.words(json.dumps({"message": "m", "errors": "No commit found"})) == "m No commit found"
    assert len(decode_errors.words(json.dumps({"message": "x" * 5000}))) == decode_errors.WORDS_LIMIT
    for odd in ("", "[]", "<html>", '{"message":7}', "[" * 5000):
        assert decode_errors.words(odd) == ""


def test_no_answer_is_unclear_for_a_write_that_was_sent() -> None:
    def told(*, write: bool, sent: bool) -> tuple[type, str | None]:
        found = decode_errors.no_answer(what="x", why="cut", write=write, sent=sent)
        return type(found.error), found.wait

    assert told(write=True, sent=True) == (errors.UnclearWriteError, None)
    assert told(write=True, sent=False) == (errors.RetryLaterError, "backoff")
    assert told(write=False, sent=True) == (errors.ReadFailedError, "backoff")
    assert told(write=False, sent=False) == (errors.ReadFailedError, "backoff")
