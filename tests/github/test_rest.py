# ruff: noqa: N802 - tests carry the ids of the oddities they show
"""The gateway over a real socket: retries, lost answers, listings, redirects, and where the token goes."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import pytest

from klaud import errors
from klaud.github import model, pulls, rest, retry, sender
from tests.github import test_decode as wire
from tests.support import loopback
from tests.support.loopback import Reply

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TOKEN = "canary-77aa01"
BASE = "/repos/acme/bench"
RUNS = f"{BASE}/actions/runs"


@pytest.fixture
def server() -> Iterator[loopback.Loopback]:
    with loopback.serving() as served:
        yield served


@pytest.fixture
def ticking() -> loopback.FakeClock:
    return loopback.FakeClock()


@pytest.fixture
def hub(server: loopback.Loopback, ticking: loopback.FakeClock) -> Iterator[rest.RestGateway]:
    made = rest.RestGateway(
        repository="acme/bench", token=TOKEN, api_url=server.url, clock=ticking, seconds_between_writes=1.0
    )
    yield made
    made.close()


def said(body: Any, status: int = 200, **headers: str) -> Reply:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(json.dumps(body).encode(), status, {"Content-Type": "application/json", **names})


def run(number: int, **changes: Any) -> dict[str, Any]:
    return {
        **wire.RUN,
        "id": number,
        "created_at": f"2026-11-{1 + number // 1440 % 28:02}T{number // 60 % 24:02}:{number % 60:02}:00Z",
        **changes,
    }


def paths(server: loopback.Loopback) -> list[str]:
    return [asked.path for asked in server.asked]


# -- tries


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


# -- listings


def page(rows: list[Any], total: int, following: str = "") -> Reply:
    link = {"Link": f'<{following}>; rel="next", <x>; rel="last"'} if following else {}
    return said({"total_count": total, "workflow_runs": rows}, **link)


def first(query: str = "", size: int = 100) -> str:
    parts = sorted([*(part for part in query.split("&") if part), f"per_page={size}"])
    return f"{RUNS}?{'&'.join(parts)}"


def test_pages_follow_each_other_and_add_up(server: loopback.Loopback, hub: rest.RestGateway) -> None:
    server.reply(first(), page([run(1)], 2, f"{server.url}/elsewhere?page=2&per_page=100"))
    server.reply(f"{RUNS}?page=2&per_page=100", page([run(2)], 2))
    found = hub.runs()
    assert ([one.id for one in found.items], found.complete) == ([1, 2], True)


@pytest.mark.parametrize(
    ("rows", "total", "word"), [([run(1)], 2, "1 of 2"), ([run(1), None], 2, "null"), ([], 3, "0 of 3")]
)
def test_a_short_or_holed_page_is_incomplete(
    server: loopback.Loopback, hub: rest.RestGateway, rows: list[Any], total: int, word: str
) -> None:
    server.reply(first(), page(rows, total))
    found = hub.runs()
    assert not found.complete
    assert word in found.why_not


def test_L27_rows_served_twice_count_once_and_skipped_ones_are_missed(
    server: loopback.Loopback, hub: rest.RestGateway
) -> None:
    server.reply(first(), page([run(1), run(2)], 4, "?page=2&per_page=100"))
    server.reply(f"{RUNS}?page=2&per_page=100", page([run(2), run(3)], 4))
    found = hub.runs()
    assert [one.id for one in found.items] == [1, 2, 3]
    assert not found.complete


def test_a_later_page_that_fails_leaves_an_incomplete_listing(server: loopback.Loopback, hub: rest.RestGateway) -> None:
    server.reply(first(), page([run(1)], 2, "?page=2&per_page=100"))
    server.reply(f"{RUNS}?page=2&per_page=100", Reply(status=500))
    found = hub.runs()
    assert [one.id for one in found.items] == [1]
    assert "500" in found.why_not


def test_a_first_page_that_fails_raises(server: loopback.Loopback, hub: rest.RestGateway) -> None:
    server.reply(first(), Reply(status=500))
    with pytest.raises(errors.ReadFailedError):
        hub.runs()


def test_L32_big_pages_that_fail_are_read_as_small_ones(server: loopback.Loopback, hub: rest.RestGateway) -> None:
    server.reply(first(), Reply(status=502))
    server.reply(first(size=25), page([run(1)], 2, "?page=2&per_page=25"))
    server.reply(f"{RUNS}?page=2&per_page=25", page([run(2)], 2))
    found = hub.runs()
    assert ([one.id for one in found.items], found.complete) == ([1, 2], True)


def test_L32_small_pages_that_fail_are_incomplete(server: loopback.Loopback, hub: rest.RestGateway) -> None:
    server.reply(first(), Reply(status=504))
    server.reply(first(size=25), page([run(1)], 2, "?page=2&per_page=25"))
    server.reply(f"{RUNS}?page=2&per_page=25", Reply(status=502))
    found = hub.runs()
    assert [one.id for one in found.items] == [1]
    assert not found.complete
    server.reply(first(size=25), Reply(status=502))
    with pytest.raises(errors.ReadFailedError):
        hub.runs()


class RunSearch:
    """GitHub's run search: newest first, at most 1,000 rows served, ``created`` understood, a count that tells all."""

    def __init__(self, rows: int, *, same_minute: bool = False) -> None:
        self.rows = [run(0 if same_minute else number) | {"id": number + 1} for number in reversed(range(rows))]

    def __call__(self, asked: loopback.Asked) -> Reply | None:
        path, _, text = asked.path.partition("?")
        if path != RUNS:
            return None
        query = dict(part.split("=") for part in text.split("&"))
        until = query.get("created", "").replace("%3C%3D", "").replace("%3A", ":")
        rows = [row for row in self.rows if not until or row["created_at"] <= until]
        at = int(query.get("page", "1"))
        served = rows[(at - 1) * 100 : at * 100][: max(0, 1000 - (at - 1) * 100)]
        more = len(rows) > at * 100
        following = "&".join(f"{key}={value}" for key, value in {**query, "page": str(at + 1)}.items())
        return page(served, len(rows), f"?{following}" if more else "")


def test_L25_above_1000_rows_older_runs_are_asked_for_by_their_time(
    server: loopback.Loopback, hub: rest.RestGateway
) -> None:
    server.handler = RunSearch(2500)
    found = hub.runs(status="completed")
    assert len(found.items) == 2500
    assert found.complete


def test_L25_where_that_does_not_help_the_listing_is_incomplete(
    server: loopback.Loopback, hub: rest.RestGateway
) -> None:
    server.handler = RunSearch(4000, same_minute=True)
    found = hub.runs(status="completed")
    assert len(found.items) == 1000
    assert not found.complete
    assert "4000" in found.why_not
    server.handler = RunSearch(1500)
    asked = hub.runs(status="completed", created="<=2027-01-01")
    assert not asked.complete, "a window that the caller set is not split"


def test_3000_files_may_be_more(server: loopback.Loopback, hub: rest.RestGateway) -> None:
    def files(asked: loopback.Asked) -> Reply:
        at = int(dict(part.split("=") for part in asked.path.partition("?")[2].split("&")).get("page", "1"))
        rows = [{"filename": f"{at}-{number}", "status": "added"} for number in range(100)]
        return said(rows, **({"Link": f'<?page={at + 1}&per_page=100>; rel="next"'} if at < 30 else {}))

    server.handler = files
    found = hub.pull_files(3)
    assert len(found.items) == 3000
    assert not found.complete


def test_jobs_of_a_run_that_is_not_there_are_an_error_not_an_empty_list(hub: rest.RestGateway) -> None:
    with pytest.raises(errors.ReadFailedError):
        hub.jobs(9)
    with pytest.raises(errors.ReadFailedError):
        hub.jobs(9, 2)
    with pytest.raises(errors.ReadFailedError):
        hub.artifacts(9)


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


# -- GraphQL


def heads_asked(asked: loopback.Asked) -> list[str]:
    variables = json.loads(asked.body)["variables"]
    return [value for key, value in variables.items() if key.startswith("h")]


def no_pulls(asked: loopback.Asked) -> Reply:
    part = {"totalCount": 0, "nodes": []}
    return said({"data": {"repository": {f"h{at}": part for at in range(len(heads_asked(asked)))}}})


def test_heads_are_asked_in_batches(server: loopback.Loopback, hub: rest.RestGateway) -> None:
    server.handler = no_pulls
    found = hub.pulls_of_heads([f"b{number}" for number in range(90)])
    assert len(found) == 90
    assert all(listing.complete for listing in found.values())
    assert hub.requests == {"POST /graphql": 3}
    assert hub.writes == ()
    assert hub.pulls_of_heads([]) == {}


def test_L32_a_batch_that_is_too_much_is_halved_and_one_bad_head_stays_alone(
    server: loopback.Loopback, hub: rest.RestGateway
) -> None:
    server.handler = lambda asked: Reply(status=502) if "b7" in heads_asked(asked) else no_pulls(asked)
    found = hub.pulls_of_heads([f"b{number}" for number in range(40)])
    assert [head for head, listing in found.items() if not listing.complete] == ["b7"]
    assert len(found) == 40


def test_a_host_that_only_fails_is_an_error_soon(server: loopback.Loopback, hub: rest.RestGateway) -> None:
    server.handler = lambda _asked: Reply(status=502)
    with pytest.raises(errors.ReadFailedError):
        hub.pulls_of_heads([f"b{number}" for number in range(400)])
    assert len(server.asked) < 30


def test_a_host_that_is_down_is_an_error_soon(ticking: loopback.FakeClock) -> None:
    dead = rest.RestGateway(repository="acme/bench", token="", api_url="http://127.0.0.1:9", clock=ticking)
    with pytest.raises(errors.ReadFailedError):
        dead.pulls_of_heads([f"b{number}" for number in range(400)])
    assert sum(dead.requests.values()) < 10
    dead.close()


def test_L41_L15_forks_and_longer_heads_are_dropped(server: loopback.Loopback, hub: rest.RestGateway) -> None:
    fork = wire.node(headRepository={"nameWithOwner": "mallory/bench"}, number=4)
    gone = wire.node(headRepository=None, number=5)
    longer = wire.node(headRefName="klaud/auto-x2", number=6)
    renamed = wire.node(headRepository={"nameWithOwner": "Acme/Bench"}, number=7)
    part = {"totalCount": 5, "nodes": [wire.node(), fork, gone, longer, renamed]}
    server.reply("/graphql", said({"data": {"repository": {"h0": part}}}))
    found = hub.pulls_of_heads(["klaud/auto-x"])["klaud/auto-x"]
    assert [one.pull.number for one in found.items] == [3, 7]
    assert found.complete


def test_a_repository_that_graphql_cannot_see_is_an_error_for_every_head(
    server: loopback.Loopback, hub: rest.RestGateway
) -> None:
    missing = {"data": {"repository": None}, "errors": [{"type": "NOT_FOUND", "path": ["repository"], "message": "no"}]}
    server.reply("/graphql", said(missing))
    with pytest.raises(errors.ReadFailedError):
        hub.pulls_of_heads(["a", "b"])
    server.reply("/graphql", said({"data": {"repository": None}, "errors": [{"type": "FORBIDDEN", "message": "no"}]}))
    with pytest.raises(errors.ForbiddenError):
        hub.pulls_of_heads(["a", "b"])


def test_numbers_are_details_or_missing_or_an_error(server: loopback.Loopback, hub: rest.RestGateway) -> None:
    not_found = {"type": "NOT_FOUND", "path": ["repository", "n1"], "message": "no"}
    server.reply("/graphql", said({"data": {"repository": {"n0": wire.node(), "n1": None}}, "errors": [not_found]}))
    found = hub.pull_details([3, 4])
    assert isinstance(found[3], model.PullDetail)
    assert found[4] == model.Missing(what="pull request 4")
    server.reply("/graphql", said({"data": {"repository": {"n0": None}}, "errors": [{"message": "boom"}]}))
    with pytest.raises(errors.ReadFailedError, match="boom"):
        hub.pull_details([3])


def timeline(more: bool, rows: int = 100) -> dict[str, Any]:
    event = {"__typename": "ClosedEvent", "actor": None, "createdAt": wire.AT, "id": "x"}
    return {"pageInfo": {"hasNextPage": more, "endCursor": "c"}, "nodes": [event] * rows}


def test_a_long_timeline_is_read_on_up_to_the_bound(server: loopback.Loopback, hub: rest.RestGateway) -> None:
    part = {"totalCount": 1, "nodes": [wire.node(timelineItems=timeline(more=True))]}
    start = said({"data": {"repository": {"h0": part}}})
    last = said({"data": {"node": {"timelineItems": timeline(more=False, rows=20)}}})
    server.reply("/graphql", start, last)
    found = hub.pulls_of_heads(["klaud/auto-x"])["klaud/auto-x"].items[0].timeline
    assert (len(found.items), found.complete) == (120, True)
    on = said({"data": {"node": {"timelineItems": timeline(more=True)}}})
    server.reply("/graphql", start, on)
    found = hub.pulls_of_heads(["klaud/auto-x"])["klaud/auto-x"].items[0].timeline
    assert len(found.items) >= pulls.TIMELINE_LIMIT
    assert not found.complete
    server.reply("/graphql", start, said({"data": {"node": None}}))
    found = hub.pulls_of_heads(["klaud/auto-x"])["klaud/auto-x"].items[0].timeline
    assert (len(found.items), found.complete) == (100, False)


def test_a_graphql_rate_limit_in_a_200_is_waited_for(
    server: loopback.Loopback, hub: rest.RestGateway, ticking: loopback.FakeClock
) -> None:
    limited = said({"data": None, "errors": [{"type": "RATE_LIMITED", "message": "API rate limit exceeded"}]})
    server.reply("/graphql", limited, said({"data": {"repository": {"h0": {"totalCount": 0, "nodes": []}}}}))
    assert hub.pulls_of_heads(["x"])["x"].complete
    assert ticking.slept == [60]


@pytest.mark.parametrize(
    ("problem", "error"),
    [
        ({"type": "FORBIDDEN", "message": "Resource not accessible"}, errors.ForbiddenError),
        ({"type": "UNPROCESSABLE", "message": "Draft state cannot be changed"}, errors.RefusedWriteError),
        ({"message": "Something went wrong while executing your query."}, errors.UnclearWriteError),
    ],
)
def test_a_mutation_that_is_answered_with_errors(
    server: loopback.Loopback, hub: rest.RestGateway, problem: dict[str, str], error: type[Exception]
) -> None:
    server.reply("/graphql", said({"data": {"markPullRequestReadyForReview": None}, "errors": [problem]}))
    with pytest.raises(error):
        hub.mark_ready("PR_3")
    assert len(server.asked) == 1
    assert hub.writes == ("POST /graphql MarkReady",)


# -- where the token goes


def test_the_token_is_in_no_address_and_no_log(
    server: loopback.Loopback, hub: rest.RestGateway, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    hub.run(9)
    server.reply(f"{RUNS}/9", Reply(status=500))
    with pytest.raises(errors.ReadFailedError) as caught:
        hub.run(9)
    assert TOKEN not in f"{caplog.text} {caught.value} {caught.value.advice} {paths(server)} {hub!r}"
    assert all(TOKEN in asked.headers["authorization"] for asked in server.asked)


def test_a_renamed_repository_is_followed_for_reads_with_its_query(
    server: loopback.Loopback, hub: rest.RestGateway
) -> None:
    server.reply(
        first("status=queued"), Reply(status=301, headers={"Location": "/repositories/1/actions/runs?status=queued"})
    )
    server.reply("/repositories/1/actions/runs?status=queued", page([run(1)], 1))
    assert [one.id for one in hub.runs(status="queued").items] == [1]


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_no_redirect_takes_the_token_to_another_host(
    server: loopback.Loopback, hub: rest.RestGateway, status: int
) -> None:
    with loopback.serving() as elsewhere:
        server.reply(f"{RUNS}/9", Reply(status=status, headers={"Location": f"{elsewhere.url}/x"}))
        server.reply(f"{BASE}/issues/3/comments", Reply(status=status, headers={"Location": f"{server.url}/x"}))
        with pytest.raises(errors.ReadFailedError, match="unexpected answer") as caught:
            hub.run(9)
        assert "moved" in caught.value.advice
        with pytest.raises(errors.RefusedWriteError):
            hub.comment(3, "a write is not sent anywhere else, not even on the same host")
        assert elsewhere.asked == []
        assert not server.gets("/x")


def test_redirects_are_bounded(server: loopback.Loopback, hub: rest.RestGateway) -> None:
    server.reply(f"{RUNS}/9", Reply(status=302, headers={"Location": f"{RUNS}/9"}))
    with pytest.raises(errors.ReadFailedError):
        hub.run(9)
    assert len(server.asked) == 4


def artifact(server: loopback.Loopback, location: str) -> None:
    server.reply(f"{BASE}/actions/artifacts/5/zip", Reply(status=302, headers={"Location": location}))


@pytest.mark.parametrize("same_host", [True, False])
def test_an_artifact_is_fetched_without_the_token(
    server: loopback.Loopback, hub: rest.RestGateway, same_host: bool
) -> None:
    with loopback.serving() as elsewhere:
        store = server if same_host else elsewhere
        artifact(server, f"{store.url}/blob?sig=secret-signature")
        store.reply("/blob?sig=secret-signature", Reply(b"PK bytes \xff"))
        assert hub.download_artifact(5, 100) == b"PK bytes \xff"
        assert "authorization" in server.asked[0].headers
        assert "authorization" not in store.asked[-1].headers


def test_an_artifact_is_bounded_and_its_failures_are_named_without_the_signed_address(
    server: loopback.Loopback, hub: rest.RestGateway
) -> None:
    artifact(server, f"{server.url}/blob?sig=secret-signature")
    server.reply("/blob?sig=secret-signature", Reply(b"x" * 101))
    with pytest.raises(errors.ReadFailedError, match="limit of 100") as caught:
        hub.download_artifact(5, 100)
    assert "secret-signature" not in str(caught.value)
    for reply in (Reply(status=403), Reply(status=500), Reply(b"x", length=50, cut=True), Reply(raw=b"")):
        server.reply("/blob?sig=secret-signature", reply)
        with pytest.raises(errors.ReadFailedError) as failed:
            hub.download_artifact(5, 100)
        assert "secret-signature" not in f"{failed.value}"
    artifact(server, "http://127.0.0.1:9/blob?sig=secret-signature")
    with pytest.raises(errors.ReadFailedError) as dead:
        hub.download_artifact(5, 100)
    assert "secret-signature" not in f"{dead.value}"
    server.reply(f"{BASE}/actions/artifacts/5/zip", said({"message": "Artifact has expired"}, 410))
    with pytest.raises(errors.ReadFailedError, match="410"):
        hub.download_artifact(5, 100)


# -- broken twins: each guard taken away, and the test above that sees it


class Eager(rest.RestGateway):
    """Repeats a write whose answer was unclear."""

    def comment(self, number: int, body: str) -> int:
        try:
            return super().comment(number, body)
        except errors.UnclearWriteError:
            return super().comment(number, body)


class Trusting(rest.RestGateway):
    """Calls every listing complete."""

    def runs(self, **filters: Any) -> model.Listing[model.Run]:
        return model.Listing(super().runs(**filters).items)


class Hopeful(rest.RestGateway):
    """Takes any failed read for "there is none"."""

    def run(self, run_id: int) -> model.Run | model.Missing:
        try:
            return super().run(run_id)
        except errors.ReadFailedError:
            return model.Missing(what="a run")


class Sloppy(rest.RestGateway):
    """Keeps the pull requests of forks and of longer heads."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        self._pulls._is_ours = lambda _pull, _head: True  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("twin", "check"),
    [
        (Eager, lambda server, hub: test_L22_an_unclear_write_is_never_sent_again(server, hub, Reply(status=500))),
        (Trusting, lambda server, hub: test_a_short_or_holed_page_is_incomplete(server, hub, [run(1)], 2, "1 of 2")),
        (Trusting, test_L25_where_that_does_not_help_the_listing_is_incomplete),
        (Hopeful, test_a_read_that_keeps_failing_is_an_error_not_a_miss),
        (Sloppy, test_L41_L15_forks_and_longer_heads_are_dropped),
    ],
)
def test_the_suite_sees_a_gateway_without_its_guard(
    server: loopback.Loopback,
    ticking: loopback.FakeClock,
    twin: type[rest.RestGateway],
    check: Callable[[loopback.Loopback, rest.RestGateway], None],
) -> None:
    made = twin(repository="acme/bench", token=TOKEN, api_url=server.url, clock=ticking)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        check(server, made)
    made.close()
