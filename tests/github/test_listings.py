# ruff: noqa: N802 - tests carry the ids of the oddities they show
"""Listings over a real socket: what is not whole says so, whichever way it was cut."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from klaud import errors
from klaud.github import model, paging, rest
from tests.github import test_decode as wire
from tests.support import answers
from tests.support.answers import BASE, RUNS, first, page, run, said
from tests.support.loopback import Reply

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support import loopback


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


def unreadable(**changes: Any) -> dict[str, Any]:
    return {**run(7), "head_sha": 7, **changes}


def test_one_row_that_cannot_be_read_spoils_itself_and_is_missed(
    server: loopback.Loopback, hub: rest.RestGateway
) -> None:
    server.reply(first(), page([run(1), unreadable(), run(2)], 3))
    found = hub.runs()
    assert [one.id for one in found.items] == [1, 2]
    assert "unreadable" in found.why_not
    server.reply(first(), page([unreadable(), unreadable(id=8)], 2))
    with pytest.raises(errors.ReadFailedError, match="not as documented"):
        hub.runs()


def pulls_page(rows: list[Any], following: str) -> Reply:
    return said(rows, Link=f'<{following}>; rel="next"')


def test_an_empty_page_that_names_a_next_one_is_not_the_end(server: loopback.Loopback, hub: rest.RestGateway) -> None:
    start = f"{BASE}/pulls?state=open&sort=created&direction=asc&per_page=100"
    server.handler = lambda asked: pulls_page(
        [wire.PULL] if "page=2" not in asked.path else [], f"?page=2&per_page=100&{asked.path[-9:]}"
    )
    found = hub.open_pulls()
    assert [one.number for one in found.items] == [3], start
    assert "empty page" in found.why_not


def test_a_next_page_without_a_readable_address_is_missed(server: loopback.Loopback, hub: rest.RestGateway) -> None:
    server.handler = lambda _asked: pulls_page([wire.PULL], "http://[::1?page=2")
    found = hub.open_pulls()
    assert [one.number for one in found.items] == [3]
    assert "cannot be read" in found.why_not


@pytest.mark.parametrize("rows", [[None], [wire.PULL]])
def test_pages_are_bounded_also_where_rows_never_grow(
    server: loopback.Loopback, hub: rest.RestGateway, rows: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paging, "PAGES_LIMIT", 7)
    server.handler = lambda _asked: pulls_page(rows, "?page=2&per_page=100")
    found = hub.open_pulls()
    assert not found.complete
    assert len(server.asked) == 7


# -- broken twins: each guard taken away, and the test above that sees it


class Trusting(rest.RestGateway):
    """Calls every listing complete."""

    def runs(self, **filters: Any) -> model.Listing[model.Run]:
        return model.Listing(super().runs(**filters).items)


@pytest.mark.parametrize(
    ("twin", "check"),
    [
        (Trusting, lambda server, hub: test_a_short_or_holed_page_is_incomplete(server, hub, [run(1)], 2, "1 of 2")),
        (Trusting, test_L25_where_that_does_not_help_the_listing_is_incomplete),
    ],
)
def test_the_suite_sees_a_gateway_without_its_guard(
    server: loopback.Loopback,
    ticking: loopback.FakeClock,
    twin: type[rest.RestGateway],
    check: Callable[[loopback.Loopback, rest.RestGateway], None],
) -> None:
    answers.sees(twin, check, server, ticking)
