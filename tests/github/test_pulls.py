# ruff: noqa: N802 - tests carry the ids of the oddities they show
"""Pull requests over GraphQL, on a real socket: batches, what one bad part costs, long timelines, mutations."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from klaud import errors
from klaud.github import model, pulls, rest
from tests.github import test_decode as wire
from tests.support import answers
from tests.support.answers import said
from tests.support.loopback import Reply

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support import loopback


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
    empty = said({"data": {"repository": None}, "errors": [{"type": "RATE_LIMITED", "message": "exceeded"}]})
    server.reply("/graphql", limited, empty, said({"data": {"repository": {"h0": {"totalCount": 0, "nodes": []}}}}))
    assert hub.pulls_of_heads(["x"])["x"].complete
    assert ticking.slept == [60, 120]


def test_a_word_of_the_limit_in_half_an_answer_is_an_answer_that_cannot_be_read(
    server: loopback.Loopback, hub: rest.RestGateway
) -> None:
    server.reply("/graphql", Reply(b'{"errors": [{"type": "RATE_LIMITED"'))
    with pytest.raises(errors.ReadFailedError, match="not as documented"):
        hub.pulls_of_heads(["x"])
    with pytest.raises(errors.UnclearWriteError):
        hub.mark_ready("PR_3")


def test_a_write_that_the_graphql_limit_refused_for_good_is_no_failed_read(
    server: loopback.Loopback, hub: rest.RestGateway
) -> None:
    limited = {"data": None, "errors": [{"type": "RATE_LIMITED", "message": "API rate limit exceeded"}]}
    server.reply("/graphql", said(limited))
    with pytest.raises(errors.RetryLaterError) as caught:
        hub.mark_ready("PR_3")
    assert type(caught.value) is errors.RetryLaterError


def test_a_write_with_data_is_not_sent_again_whatever_limit_it_speaks_of(
    server: loopback.Loopback, hub: rest.RestGateway
) -> None:
    done = {"markPullRequestReadyForReview": {"pullRequest": {"isDraft": False}}}
    server.reply("/graphql", said({"errors": [{"type": "RATE_LIMITED", "message": "soon"}], "data": done}))
    with pytest.raises(errors.RefusedWriteError):
        hub.mark_ready("PR_3")
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    "labels",
    [
        None,
        {"totalCount": 2, "nodes": [{"name": "klaud-handoff"}]},
        {"totalCount": 2, "nodes": [{"name": "full-sweep"}, None]},
    ],
)
def test_a_pull_request_without_all_its_labels_is_not_read(
    server: loopback.Loopback, hub: rest.RestGateway, labels: dict[str, Any] | None
) -> None:
    node = wire.node(labels=labels)
    server.reply("/graphql", said({"data": {"repository": {"h0": {"totalCount": 1, "nodes": [node]}}}}))
    found = hub.pulls_of_heads(["klaud/auto-x"])["klaud/auto-x"]
    assert found.items == ()
    assert "labels" in found.why_not
    server.reply("/graphql", said({"data": {"repository": {"n0": node}}}))
    with pytest.raises(errors.ReadFailedError, match="labels"):
        hub.pull_details([3])


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


# -- broken twins: each guard taken away, and the test above that sees it


class Sloppy(rest.RestGateway):
    """Keeps the pull requests of forks and of longer heads."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        self._pulls._is_ours = lambda _pull, _head: True  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("twin", "check"),
    [
        (Sloppy, test_L41_L15_forks_and_longer_heads_are_dropped),
    ],
)
def test_the_suite_sees_a_gateway_without_its_guard(
    server: loopback.Loopback,
    ticking: loopback.FakeClock,
    twin: type[rest.RestGateway],
    check: Callable[[loopback.Loopback, rest.RestGateway], None],
) -> None:
    answers.sees(twin, check, server, ticking)
