# ruff: noqa: N802 - tests carry the ids of the oddities they show
"""The gateway over a real socket: what is tried again and what never is, and what a single answer means."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING

import pytest

from klaud import errors
from klaud.github import model, rest, retry, sender
from tests.github import test_decode as wire
from tests.support import answers, loopback
from tests.support.answers import BASE, RUNS, TOKEN, paths, said
from tests.support.loopback import Reply

if TYPE_CHECKING:
    from collections.abc import Callable


def test_a_failing_read_is_tried_again(
    server: loopback.Loopback, hub: rest.RestGateway, ticking: loopback.FakeClock
) -> None:
    server.reply(f"{RUNS}/9", Reply(status=502), Reply(status=500), Reply(length=100, cut=True), said(wire.RUN))
    found = hub.run(9)
    assert isinstance(found, model.Run)
    assert ticking.slept == [1, 2, 4]
    assert hub.requests == {"GET /repos/{owner}/{repo}/actions/runs/{run_id}": 4}


def test_a_read_that_keeps_failing_is_an_error_not_a_miss(server: loopback.Loopback, hub: rest.RestGateway) -> None:
    server.reply(f"{RUNS}/9", Reply(status=502))
    with pytest.raises(errors.ReadFailedError, match="502"):
        hub.run(9)
    assert len(server.asked) == retry.Policy().tries


def test_only_a_404_is_missing(server: loopback.Loopback, hub: rest.RestGateway) -> None:
    assert hub.run(9) == model.Missing(what="run 9")
    server.reply(f"{RUNS}/9", said({"message": "Gone"}, 410))
    with pytest.raises(errors.ReadFailedError):
        hub.run(9)
    server.reply(f"{RUNS}/9", Reply(b"<html>", 200))
    with pytest.raises(errors.ReadFailedError, match="not as documented"):
        hub.run(9)


@pytest.mark.parametrize("reply", [Reply(status=500), Reply(status=502), Reply(raw=b""), Reply(length=50, cut=True)])
def test_L22_an_unclear_write_is_never_sent_again(
    server: loopback.Loopback, hub: rest.RestGateway, reply: Reply
) -> None:
    server.reply(f"{BASE}/issues/3/comments", reply)
    with pytest.raises(errors.UnclearWriteError):
        hub.comment(3, "hello")
    assert len(server.asked) == 1
    assert hub.writes == ("POST /repos/acme/bench/issues/3/comments",)


def test_an_undecodable_answer_to_a_write_is_unclear(server: loopback.Loopback, hub: rest.RestGateway) -> None:
    server.reply(f"{BASE}/issues/3/comments", Reply(b"{}", 201))
    with pytest.raises(errors.UnclearWriteError):
        hub.comment(3, "hello")


def test_a_write_that_never_reached_the_host_is_no_unclear_one(ticking: loopback.FakeClock) -> None:
    dead = rest.RestGateway(repository="acme/bench", token=TOKEN, api_url="http://127.0.0.1:9", clock=ticking)
    with pytest.raises(errors.RetryLaterError, match="cannot be reached") as caught:
        dead.comment(3, "hello")
    assert not isinstance(caught.value, errors.UnclearWriteError)
    dead.close()


def test_L81_a_rate_limited_write_is_sent_again_after_its_time(
    server: loopback.Loopback, hub: rest.RestGateway, ticking: loopback.FakeClock
) -> None:
    server.reply(f"{BASE}/issues/3/comments", said({}, 429, Retry_After="120"), said({"id": 5}, 201))
    assert hub.comment(3, "hello") == 5
    assert 120 in ticking.slept
    assert list(hub.waits) == [120]
    assert len(hub.writes) == 2


def test_L79_a_secondary_limit_holds_the_next_call_too(
    server: loopback.Loopback, hub: rest.RestGateway, ticking: loopback.FakeClock
) -> None:
    limited = said({"message": "You have exceeded a secondary rate limit"}, 403, X_RateLimit_Remaining="4000")
    server.reply(f"{RUNS}/9", limited, limited, said(wire.RUN))
    hub.run(9)
    assert ticking.slept == [60, 120]


def test_a_primary_limit_is_measured_by_the_hosts_clock(
    server: loopback.Loopback, hub: rest.RestGateway, ticking: loopback.FakeClock
) -> None:
    """L86: our clock is off by hours; the wait is not."""
    reset = 1_700_000_090
    limited = said({"message": "API rate limit exceeded"}, 403, X_RateLimit_Remaining="0", X_RateLimit_Limit="5000",
                   X_RateLimit_Reset=str(reset), Date="Tue, 14 Nov 2023 22:13:20 GMT")  # fmt: skip
    server.reply(f"{RUNS}/9", limited, said(wire.RUN))
    hub.run(9)
    assert ticking.slept == [91]
    assert hub.rate_limit.remaining == 0
    assert hub.rate_limit.reset_at is not None
    assert hub.rate_limit.reset_at.timestamp() == reset


def test_L77_a_missing_right_is_named_and_not_tried_again(server: loopback.Loopback, hub: rest.RestGateway) -> None:
    server.reply(
        f"{RUNS}/9/cancel",
        said({"message": "Resource not accessible"}, 403, X_Accepted_GitHub_Permissions="actions=write"),
    )
    with pytest.raises(errors.ForbiddenError, match="actions=write"):
        hub.cancel_run(9)
    assert len(server.asked) == 1


def test_writes_are_spaced_and_reads_are_not(
    server: loopback.Loopback, hub: rest.RestGateway, ticking: loopback.FakeClock
) -> None:
    server.reply(f"{BASE}/issues/3/comments", said({"id": 5}, 201))
    hub.comment(3, "a")
    hub.run(9)
    hub.comment(3, "b")
    assert ticking.slept == [1.0]


def test_only_this_machine_needs_no_spacing() -> None:
    assert [sender.spacing_for(url) for url in ("http://127.0.0.1:5000", "https://api.github.com")] == [0, 1]


def test_L45_our_own_new_pull_request_is_waited_for_and_404_is_not_gone(
    server: loopback.Loopback, hub: rest.RestGateway, ticking: loopback.FakeClock
) -> None:
    server.reply(f"{BASE}/pulls", said(wire.PULL, 201))
    missing = said({"message": "Not Found"}, 404)
    server.reply(f"{BASE}/pulls/3", missing, missing, said(wire.PULL))
    made = hub.create_pull(head="klaud/auto-x", base="main", title="T", body="", draft=True)
    found = hub.pull(made.number)
    assert isinstance(found, model.Pull)
    assert ticking.slept == [1, 2]
    server.reply(f"{BASE}/pulls/3", missing)
    with pytest.raises(errors.ReadFailedError, match="moments ago"):
        hub.pull(3)
    ticking.passed += rest.FRESH
    assert isinstance(hub.pull(3), model.Missing)
    assert isinstance(hub.pull(4), model.Missing), "another's is missing at once"


# -- single answers


def test_who_the_token_is_also_for_an_apps_token(server: loopback.Loopback, hub: rest.RestGateway) -> None:
    server.reply("/user", said({"message": "Resource not accessible by integration"}, 403))
    viewer = {"__typename": "Bot", "login": "klaud[bot]", "databaseId": 90001}
    server.reply("/graphql", said({"data": {"viewer": viewer}}))
    assert hub.account().id == 90001
    server.reply("/graphql", said({"data": {"viewer": None}, "errors": [{"type": "FORBIDDEN", "message": "no"}]}))
    with pytest.raises(errors.ForbiddenError):
        hub.account()


def test_a_repository_out_of_sight_is_forbidden(hub: rest.RestGateway) -> None:
    with pytest.raises(errors.ForbiddenError, match="acme/bench"):
        hub.repository()
    with pytest.raises(errors.InputError):
        rest.RestGateway(repository="bench", token="", clock=loopback.FakeClock())


@pytest.mark.parametrize(("state", "answer"), [("completed", "already-finished"), ("queued", None)])
def test_L58_a_409_is_looked_into(
    server: loopback.Loopback, hub: rest.RestGateway, state: str, answer: str | None
) -> None:
    server.reply(f"{RUNS}/9/force-cancel", said({"message": "Cannot cancel"}, 409))
    server.reply(f"{RUNS}/9", said({**wire.RUN, "status": state}))
    if answer is None:
        with pytest.raises(errors.RefusedWriteError) as caught:
            hub.cancel_run(9, force=True)
        assert caught.value.status == 409
    else:
        assert hub.cancel_run(9, force=True) == answer


def test_L68_a_dispatch_that_does_not_know_the_field_is_asked_without_it(
    server: loopback.Loopback, hub: rest.RestGateway
) -> None:
    path = f"{BASE}/actions/workflows/w.yml/dispatches"
    server.reply(path, said({"message": '"return_run_details" is not a permitted key.'}, 422), Reply(status=204))
    assert hub.dispatch("w.yml", "main", {"a": "b"}) == model.Dispatched(run_id=None)
    assert [json.loads(asked.body) for asked in server.asked] == [
        {"ref": "main", "inputs": {"a": "b"}, "return_run_details": True}, {"ref": "main", "inputs": {"a": "b"}},
    ]  # fmt: skip
    server.reply(path, said({"message": "No ref found"}, 422))
    with pytest.raises(errors.RefusedWriteError, match="No ref found"):
        hub.dispatch("w.yml", "nope", {})


def test_L54_a_label_is_addressed_by_its_encoded_name(server: loopback.Loopback, hub: rest.RestGateway) -> None:
    path = f"{BASE}/issues/3/labels/needs%20%2F%20review%20%F0%9F%9A%91"
    server.reply(path, said([], 200))
    hub.remove_label(3, "needs / review 🚑")
    assert paths(server) == [path]
    server.reply(path, said({"message": "Label does not exist"}, 404))
    hub.remove_label(3, "needs / review 🚑")
    server.reply(path, said({"message": "Not Found"}, 404))
    with pytest.raises(errors.RefusedWriteError):
        hub.remove_label(3, "needs / review 🚑")


def test_L53_odd_branch_names_keep_their_slashes_only(server: loopback.Loopback, hub: rest.RestGateway) -> None:
    path = f"{BASE}/contents/a/%231-%2525-%C3%BC%20%F0%9F%9A%80?ref=x%2Fy"
    server.reply(path, said({"type": "file", "size": 2, "sha": "s", "encoding": "base64", "content": "aGk="}))
    assert hub.contents("a/#1-%25-ü 🚀", "x/y", 10) == b"hi"


def test_a_large_file_comes_as_its_blob(server: loopback.Loopback, hub: rest.RestGateway) -> None:
    server.reply(
        f"{BASE}/contents/f?ref=main", said({"type": "file", "size": 9, "sha": "5e", "encoding": "none", "content": ""})
    )
    server.reply(f"{BASE}/git/blobs/5e", said({"encoding": "base64", "content": "aGk="}))
    assert hub.contents("f", "main", 10) == b"hi"
    with pytest.raises(errors.ReadFailedError, match="limit of 8"):
        hub.contents("f", "main", 8)


def test_a_file_that_is_longer_than_told_is_bounded_all_the_same(
    server: loopback.Loopback, hub: rest.RestGateway
) -> None:
    server.reply(
        f"{BASE}/contents/f?ref=main",
        said({"type": "file", "size": 2, "sha": "s", "encoding": "base64", "content": "aGkgdGhlcmU="}),
    )
    with pytest.raises(errors.ReadFailedError, match="8 bytes where 2 were told"):
        hub.contents("f", "main", 5)


def test_an_answer_is_read_up_to_its_limit(
    server: loopback.Loopback, hub: rest.RestGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender, "BODY_LIMIT", 50)
    server.reply(f"{RUNS}/9", said(wire.RUN))
    with pytest.raises(errors.ReadFailedError, match="limit of 50 bytes") as caught:
        hub.run(9)
    assert "GITHUB_API_URL" in caught.value.advice
    assert len(server.asked) == 1


@pytest.mark.parametrize("label", ["", ".", ".."])
def test_a_label_that_is_no_part_of_an_address_removes_nothing(
    server: loopback.Loopback, hub: rest.RestGateway, label: str
) -> None:
    with pytest.raises(errors.InputError):
        hub.remove_label(3, label)
    assert server.asked == []


@pytest.mark.parametrize(
    "headers",
    [
        {"X-RateLimit-Remaining": "5", "X-RateLimit-Reset": "9" * 15},
        {"X-RateLimit-Remaining": "5", "X-RateLimit-Reset": "9" * 5000},
        {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "9" * 5000},
        {"Retry-After": "9" * 5000},
        {"Date": "Fri, 31 Dec 99999 23:59:59 GMT"},
        {"Location": "http://h:99999999/"},
        {"Location": "http://[::1/"},
    ],
)
@pytest.mark.parametrize("status", [200, 302, 403])
def test_no_header_raises_anything_but_an_error_of_klaud(
    server: loopback.Loopback, hub: rest.RestGateway, status: int, headers: dict[str, str]
) -> None:
    server.reply(f"{RUNS}/9", Reply(json.dumps(wire.RUN).encode(), status, headers))
    with contextlib.suppress(errors.KlaudError):
        assert isinstance(hub.run(9), model.Run)


# -- broken twins: each guard taken away, and the test above that sees it


class Eager(rest.RestGateway):
    """Repeats a write whose answer was unclear."""

    def comment(self, number: int, body: str) -> int:
        try:
            return super().comment(number, body)
        except errors.UnclearWriteError:
            return super().comment(number, body)


class Hopeful(rest.RestGateway):
    """Takes any failed read for "there is none"."""

    def run(self, run_id: int) -> model.Run | model.Missing:
        try:
            return super().run(run_id)
        except errors.ReadFailedError:
            return model.Missing(what="a run")


@pytest.mark.parametrize(
    ("twin", "check"),
    [
        (Eager, lambda server, hub: test_L22_an_unclear_write_is_never_sent_again(server, hub, Reply(status=500))),
        (Hopeful, test_a_read_that_keeps_failing_is_an_error_not_a_miss),
    ],
)
def test_the_suite_sees_a_gateway_without_its_guard(
    server: loopback.Loopback,
    ticking: loopback.FakeClock,
    twin: type[rest.RestGateway],
    check: Callable[[loopback.Loopback, rest.RestGateway], None],
) -> None:
    answers.sees(twin, check, server, ticking)
