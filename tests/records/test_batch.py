"""Batches over a real HTTP server, in both shapes: create, poll, cancel, read; and everything a provider may answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from klaud import errors as tree
from klaud.records import batch, errors
from klaud.records.limits import Limits
from tests.support import batches, loopback
from tests.support.reading import asks, make_client

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(params=["anthropic", "openai"])
def provider(request: pytest.FixtureRequest, host: loopback.Loopback) -> batches.Provider:
    return batches.Provider(host, request.param)


@pytest.fixture
def client(provider: batches.Provider, clock: loopback.FakeClock) -> Iterator[batch.BatchClient]:
    with make_client(provider, clock) as made:
        yield made


def test_create_wait_and_read(provider: batches.Provider, client: batch.BatchClient, clock: loopback.FakeClock) -> None:
    """Results first, then errors; polls back off; the batch's own counts agree."""
    provider.polls = 4
    provider.says = lambda custom_id, prompt: None if custom_id == "c1" else f"{custom_id}:{prompt}"
    made = client.create(asks(4))
    assert not made.terminal
    ended = client.wait(made.id, 3600)
    assert (ended.status, ended.total, ended.ended) == ("completed", 4, 4)
    assert clock.slept == [2.0, 3.0, 4.5, 6.75]
    shape = client._provider
    records = client.download(made.id)
    answers = {answer.custom_id: answer.text for record in records if (answer := shape.answer(record.record))}
    assert answers == {"c0": "c0:p0", "c1": None, "c2": "c2:p2", "c3": "c3:p3"}
    kinds = ["result"] * 4 if provider.shape == "anthropic" else ["result"] * 3 + ["error"]
    assert [record.file_kind for record in records] == kinds
    assert {record.batch_id for record in records} == {made.id}
    assert list(client.iter_batch_records(made.id)) == records


def test_waiting_is_bounded(provider: batches.Provider, client: batch.BatchClient, clock: loopback.FakeClock) -> None:
    provider.polls = 10**9
    made = client.create(asks(1))
    assert client.wait(made.id, 600).status == "working"
    assert sum(clock.slept) == pytest.approx(600)
    assert max(clock.slept) <= batch.LONGEST_POLL
    assert provider.polled[made.id] < 25


def test_a_poll_that_fails_is_followed_by_the_next(
    provider: batches.Provider, client: batch.BatchClient, clock: loopback.FakeClock
) -> None:
    made = client.create(asks(1))
    path = client._provider.status(made.id).url.removeprefix(provider.host.url)
    provider.override[path] = loopback.Reply(status=503)
    with pytest.raises(errors.StreamError) as caught:
        client.wait(made.id, 30)
    assert caught.value.code == "response-unavailable"
    assert sum(clock.slept) >= 30
    provider.override[path] = loopback.Reply(status=404)
    with pytest.raises(errors.StreamError, match="status 404"):
        client.wait(made.id, 30)
    del provider.override[path]
    assert client.wait(made.id, 30).terminal


def test_cancel(provider: batches.Provider, client: batch.BatchClient) -> None:
    provider.polls = 10**9
    made = client.create(asks(1))
    assert client.cancel(made.id).terminal
    assert provider.cancelled == {made.id}


def test_not_ended_and_no_file(provider: batches.Provider, client: batch.BatchClient) -> None:
    provider.polls = 2
    made = client.create(asks(1))
    with pytest.raises(errors.StreamError) as caught:
        client.open_batch_records(made.id)
    assert caught.value.code == "batch-not-complete"
    assert caught.value.details == {"batch_id": made.id, "batch_status": "working"}
    path = client._provider.status(made.id).url.removeprefix(provider.host.url)
    for status in ("expired", "failed", "cancelled", "ended", "completed", "brand-new"):
        said = {
            "id": made.id,
            "status": status,
            "processing_status": status,
            "results_url": None,
            "output_file_id": None,
        }
        provider.override[path] = provider.json(said)
        with pytest.raises(errors.StreamError) as caught:
            client.open_batch_records(made.id)
        known = status == "ended" if provider.shape == "anthropic" else status not in {"ended", "brand-new"}
        assert caught.value.code == ("batch-no-file" if known else "batch-not-complete")
        assert status == "brand-new" or "brand-new" not in repr(caught.value.details)


def test_an_answer_about_another_batch_is_refused(provider: batches.Provider, client: batch.BatchClient) -> None:
    made = client.create(asks(1))
    path = client._provider.status(made.id).url.removeprefix(provider.host.url)
    provider.override[path] = provider.json({"id": "another", "status": "completed", "processing_status": "ended"})
    with pytest.raises(errors.StreamError) as caught:
        client.status(made.id)
    assert caught.value.code == "batch-mismatch"


@pytest.mark.parametrize(
    "said", [{}, {"id": 3}, {"id": "../x"}, {"id": "x" * 129}, {"id": "ok", "results_url": 3, "output_file_id": 3}]
)
def test_what_is_no_batch(provider: batches.Provider, client: batch.BatchClient, said: dict[str, Any]) -> None:
    made = client.create(asks(1))
    path = client._provider.status(made.id).url.removeprefix(provider.host.url)
    provider.override[path] = provider.json(said)
    with pytest.raises(errors.StreamError) as caught:
        client.status(made.id)
    assert caught.value.code == "response-invalid"


@pytest.mark.parametrize("batch_id", ["", "a/b", "../a", "a b", 3, "x" * 129, "é"])
def test_ids_are_checked_before_they_are_sent(
    client: batch.BatchClient, host: loopback.Loopback, batch_id: Any
) -> None:
    for call in (client.status, client.cancel, client.open_batch_records):
        with pytest.raises(errors.StreamError) as caught:
            call(batch_id)
        assert caught.value.code == "invalid-argument"
    assert not host.asked


def test_the_key_stays_at_home(host: loopback.Loopback, clock: loopback.FakeClock) -> None:
    """A results address elsewhere is not asked with our key: the file is read at the configured base."""
    provider = batches.Provider(host, "anthropic")
    with make_client(provider, clock) as client:
        made = client.create(asks(1))
        path = f"/v1/messages/batches/{made.id}"
        said = provider.status(made.id, polling=True)
        provider.override[path] = provider.json({**said, "results_url": f"https://elsewhere.invalid{path}/results"})
        assert len(client.download(made.id)) == 1
        provider.override[path] = provider.json({**said, "results_url": "https://elsewhere.invalid/steal"})
        with pytest.raises(errors.StreamError) as caught:
            client.status(made.id)
        assert caught.value.code == "response-invalid"


def test_a_refused_key(provider: batches.Provider, clock: loopback.FakeClock) -> None:
    with make_client(provider, clock, key="wrong-key") as client, pytest.raises(errors.StreamError) as caught:
        client.status("batch_1")
    assert (caught.value.code, caught.value.status, caught.value.exit_status) == ("response-forbidden", 401, 3)


@pytest.mark.parametrize(
    "reply",
    [
        loopback.Reply(status=503),
        loopback.Reply(status=500),
        loopback.Reply(raw=b""),
        loopback.Reply(b'{"id"', length=99),
    ],
)
def test_an_unclear_creation_is_not_repeated(
    provider: batches.Provider, client: batch.BatchClient, clock: loopback.FakeClock, reply: loopback.Reply
) -> None:
    for path in ("/v1/messages/batches", "/v1/batches"):
        provider.override[path] = reply
    with pytest.raises(tree.UnclearWriteError):
        client.create(asks(1))
    assert sum(asked.path.endswith("/batches") for asked in provider.host.asked) == 1
    assert clock.slept == []


@pytest.mark.parametrize("status", [400, 422, 429])
def test_a_clear_no_to_a_creation(provider: batches.Provider, client: batch.BatchClient, status: int) -> None:
    for path in ("/v1/messages/batches", "/v1/batches"):
        provider.override[path] = loopback.Reply(status=status)
    with pytest.raises(errors.StreamError) as caught:
        client.create(asks(1))
    assert caught.value.status == status


def test_an_error_only_batch_is_read(host: loopback.Loopback, clock: loopback.FakeClock) -> None:
    provider = batches.Provider(host, "openai")
    provider.says = lambda *_: None
    with make_client(provider, clock) as client:
        made = client.create(asks(2))
        assert [record.file_kind for record in client.download(made.id)] == ["error", "error"]


def test_both_files_share_the_budgets(host: loopback.Loopback, clock: loopback.FakeClock) -> None:
    provider = batches.Provider(host, "openai")
    provider.says = lambda custom_id, _: None if custom_id in {"c0", "c1"} else "text"
    with make_client(provider, clock) as client:
        made = client.create(asks(5))
        assert len(client.download(made.id, limits=Limits(records=5, lines=5))) == 5
        for limits, code in ((Limits(records=4), "too-many-records"), (Limits(lines=4), "too-many-lines")):
            got: list[Any] = []
            with (
                pytest.raises(errors.StreamError) as caught,
                client.open_batch_records(made.id, limits=limits) as records,
            ):
                got.extend(records)
            assert (caught.value.code, caught.value.details["file_kind"], len(got)) == (code, "error", 4)
