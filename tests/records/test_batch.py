"""Batches over a real HTTP server: both shapes, every way a response can fail, and every way a consumer can leave."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

import pytest

from klaud import errors as tree
from klaud.records import acquire, anthropic, batch, errors, model, openai, response, stream
from klaud.records.limits import Limits
from tests.support import batches, loopback

if TYPE_CHECKING:
    from collections.abc import Iterator

RESULTS = "/v1/messages/batches/msgbatch_0/results"


@pytest.fixture
def host() -> Iterator[loopback.Loopback]:
    with loopback.serving() as served:
        yield served


@pytest.fixture
def clock() -> loopback.FakeClock:
    return loopback.FakeClock()


@pytest.fixture(params=["anthropic", "openai"])
def provider(request: pytest.FixtureRequest, host: loopback.Loopback) -> batches.Provider:
    return batches.Provider(host, request.param)


@pytest.fixture
def client(provider: batches.Provider, clock: loopback.FakeClock) -> Iterator[batch.BatchClient]:
    with make_client(provider, clock) as made:
        yield made


def make_client(
    provider: batches.Provider, clock: loopback.FakeClock, limits: Limits | None = None, key: str = batches.KEY
) -> batch.BatchClient:
    shape = anthropic.Shape if provider.shape == "anthropic" else openai.Shape
    return batch.BatchClient(shape(provider.base_url, key), clock=clock, limits=limits, chance=lambda: 0.5)


def asks(count: int) -> list[model.Ask]:
    return [
        model.Ask(custom_id=f"c{index}", model="m", system="s", prompt=f"p{index}", max_tokens=9)
        for index in range(count)
    ]


@pytest.fixture
def reading(host: loopback.Loopback, clock: loopback.FakeClock) -> Iterator[Reading]:
    """An ended batch of the one-file shape, whose results a test scripts."""
    made = Reading(host, clock)
    with made.client:
        yield made


class Reading:
    """One batch and what reading it costs."""

    def __init__(self, host: loopback.Loopback, clock: loopback.FakeClock) -> None:
        self.host, self.clock = host, clock
        self.provider = batches.Provider(host, "anthropic")
        self.client = make_client(self.provider, clock)
        self.provider.batches["msgbatch_0"] = []

    def serve(self, *replies: loopback.Reply) -> None:
        queue = list(replies)

        def handle(asked: loopback.Asked) -> loopback.Reply | None:
            if asked.path == RESULTS:
                return queue.pop(0) if len(queue) > 1 else queue[0]
            return self.provider.handle(asked)

        self.host.handler = handle

    def read(self, **options: Any) -> tuple[list[int], errors.StreamError | None, response.Response]:
        """Return the records' numbers, the error, and the owner of the response."""
        numbers = []
        fault = None
        records = None
        try:
            with self.client.open_batch_records("msgbatch_0", **options) as records:
                numbers.extend(record.record["n"] for record in records)
        except errors.StreamError as error:
            fault = error
        assert fault is None or (fault.__cause__ is None and fault.__context__ is None)
        opened = records.response if records else None
        assert opened is not None or fault is not None
        return numbers, fault, opened  # type: ignore[return-value]  # None only with a fault at the opening


def lines(count: int) -> bytes:
    return b"".join(b'{"n": %d}\n' % index for index in range(count))


# -- both shapes


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


def test_a_control_response_at_the_limit_passes_and_one_above_fails(
    host: loopback.Loopback, clock: loopback.FakeClock
) -> None:
    provider = batches.Provider(host, "openai")
    said = json.dumps({"id": "batch_1", "status": "completed", "output_file_id": "f"}).encode()
    for chunked in (False, True):
        provider.override["/v1/batches/batch_1"] = loopback.Reply(said, chunked=chunked)
        with make_client(provider, clock, Limits(control_bytes=len(said))) as client:
            assert client.status("batch_1").terminal
        with make_client(provider, clock, Limits(control_bytes=len(said) - 1)) as client:
            with pytest.raises(errors.StreamError) as caught:
                client.status("batch_1")
            assert caught.value.code == ("response-too-large" if chunked else "download-limit")
            assert caught.value.details["limit_bytes"] == len(said) - 1


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
            got = []
            with (
                pytest.raises(errors.StreamError) as caught,
                client.open_batch_records(made.id, limits=limits) as records,
            ):
                got.extend(records)
            assert (caught.value.code, caught.value.details["file_kind"], len(got)) == (code, "error", 4)


# -- responses that fail before, at and after the hand-over


def test_before_the_hand_over_it_is_tried_again(reading: Reading) -> None:
    later = [loopback.Reply(status=503), loopback.Reply(status=429, headers={"Retry-After": "3"})]
    reading.serve(*later, loopback.Reply(lines(3)))
    numbers, fault, opened = reading.read()
    assert (numbers, fault) == ([0, 1, 2], None)
    assert (opened.requests, opened.sleeps, opened.closes) == (3, 2, 3)
    assert reading.clock.slept == [0.375, 3.0]
    assert reading.host.gets(RESULTS) == 3


@pytest.mark.parametrize(
    ("reply", "code", "gets"),
    [
        (loopback.Reply(status=504), "response-unavailable", 3),
        (loopback.Reply(raw=b""), "connection-failed", 3),
        (loopback.Reply(status=500), "response-status", 1),
        (loopback.Reply(status=404), "response-status", 1),
        (loopback.Reply(status=206), "response-status", 1),
        (loopback.Reply(status=403), "response-forbidden", 1),
        (loopback.Reply(status=307, headers={"Location": "/elsewhere"}), "redirected", 1),
        (loopback.Reply(b"{}", length=None), "response-invalid", 1),
        (loopback.Reply(b"{}", headers={"Content-Encoding": "br"}), "response-invalid", 1),
        (loopback.Reply(b"{}", length=128 * 1024 * 1024 + 1), "download-limit", 1),
    ],
)
def test_at_the_hand_over(reading: Reading, reply: loopback.Reply, code: str, gets: int) -> None:
    reading.serve(reply)
    numbers, fault, _ = reading.read()
    assert fault is not None
    assert (numbers, fault.code) == ([], code)
    assert reading.host.gets(RESULTS) == gets
    assert len(reading.clock.slept) == gets - 1
    if code == "download-limit":
        assert (fault.details["declared_bytes"], fault.details["bytes_read"]) == (128 * 1024 * 1024 + 1, 0)


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (loopback.Reply(lines(3), length=1000), "body-failed"),
        (loopback.Reply(pieces=[lines(3)], chunked=True, cut=True), "body-failed"),
        (loopback.Reply(pieces=[lines(3), b'{"n": 3'], chunked=True, cut=True), "body-failed"),
        (loopback.Reply(lines(3) + b"nonsense\n" + lines(3)), "invalid-record"),
        (loopback.Reply(pieces=[lines(3), b"nonsense\n"], chunked=True), "invalid-record"),
        (loopback.Reply(lines(3) + b"nonsense"), "invalid-record"),
    ],
)
def test_after_the_hand_over_nothing_is_tried_again(reading: Reading, reply: loopback.Reply, code: str) -> None:
    """One GET, no sleep, one close, one error; what was delivered stays delivered, once."""
    reading.serve(reply, loopback.Reply(lines(3)))
    numbers, fault, opened = reading.read()
    assert fault is not None
    assert (numbers, fault.code) == ([0, 1, 2], code)
    assert (opened.requests, opened.sleeps, opened.closes) == (1, 0, 1)
    assert opened.state is response.State.FAILED
    assert reading.host.gets(RESULTS) == 1
    assert reading.clock.slept == []


def test_the_same_error_comes_again(reading: Reading) -> None:
    reading.serve(loopback.Reply(b"nonsense\n"))
    with reading.client.open_batch_records("msgbatch_0") as records:
        for _ in range(3):
            with pytest.raises(errors.StreamError, match="line 1 of the file is not a record"):
                next(records)
    with pytest.raises(errors.StreamError, match="this stream is closed"):
        next(records)


def test_a_body_cut_at_a_lines_end_is_found_by_the_count(reading: Reading) -> None:
    reading.provider.batches["msgbatch_0"] = [{"custom_id": "a", "prompt": "p"}] * 4
    reading.serve(loopback.Reply(lines(3)))
    numbers, fault, _ = reading.read()
    assert fault is not None
    assert (numbers, fault.code, fault.details) == ([0, 1, 2], "batch-incomplete", {"record_count": 3})


def test_silence_after_the_hand_over(reading: Reading) -> None:
    """The idle limit is on reads: the consumer may take its time, the host may not."""
    go_on = threading.Event()
    reading.serve(loopback.Reply(pieces=[lines(1), lines(1)], chunked=True, wait={1: go_on}))
    seen = []

    def consume() -> None:
        with reading.client.open_batch_records("msgbatch_0", limits=Limits(idle_seconds=1)) as records:
            for record in records:
                seen.append(record)
                threading.Event().wait(1.3)

    try:
        with pytest.raises(errors.StreamError) as caught:
            consume()
    finally:
        go_on.set()
    assert len(seen) == 1
    assert (caught.value.code, caught.value.details["timeout_seconds"]) == ("read-timeout", 1)


def test_a_slow_consumer_is_no_silence(reading: Reading) -> None:
    reading.serve(loopback.Reply(lines(3)))
    with reading.client.open_batch_records("msgbatch_0", limits=Limits(idle_seconds=1)) as records:
        for _ in records:
            threading.Event().wait(0.5)
        assert records.delivered == 3


def test_records_come_as_soon_as_their_line_is_there(reading: Reading) -> None:
    go_on = threading.Event()
    reading.serve(loopback.Reply(pieces=[lines(2), lines(1)], chunked=True, wait={1: go_on}))
    with reading.client.open_batch_records("msgbatch_0") as records:
        assert next(records).record == {"n": 0}
        assert next(records).record == {"n": 1}
        go_on.set()
        assert next(records).record == {"n": 0}


def test_the_deadline_is_the_callers(reading: Reading) -> None:
    reading.serve(loopback.Reply(pieces=[lines(1)] * 3, chunked=True))
    deadline = reading.clock.monotonic() + 5
    got = []

    def consume() -> None:
        bounds = Limits(chunk_bytes=9)
        with reading.client.open_batch_records("msgbatch_0", deadline=deadline, limits=bounds) as records:
            for record in records:
                got.append(record)
                reading.clock.passed += 3

    with pytest.raises(errors.StreamError) as caught:
        consume()
    assert caught.value.code == "deadline-exceeded"
    assert len(got) == 2


# -- consumers


@pytest.mark.parametrize("leave", ["break", "raise", "cancel", "close", "nothing"])
def test_leaving_closes_everything_once(reading: Reading, leave: str) -> None:
    reading.serve(loopback.Reply(pieces=[lines(1000)] * 100, chunked=True))
    raised: BaseException | None = {"raise": ValueError("mine"), "cancel": KeyboardInterrupt()}.get(leave)
    got = []
    caught: BaseException | None = None
    records = reading.client.open_batch_records("msgbatch_0")

    def consume() -> None:
        with records:
            for record in records:
                got.append(record)
                if raised is not None:
                    raise raised
                if leave == "close":
                    records.close()
                if leave != "nothing":
                    return

    try:
        consume()
    except BaseException as error:  # noqa: BLE001 - a cancellation is the point
        caught = error
    opened = records.response
    assert opened is not None
    assert caught is raised
    assert opened.closes == 1
    assert opened.state is (response.State.EXHAUSTED if leave == "nothing" else response.State.CLOSED)
    records.close()
    assert (opened.closes, reading.host.gets(RESULTS)) == (1, 1)
    assert len(got) == (100_000 if leave == "nothing" else 1)
    with pytest.raises(errors.StreamError, match="this stream is closed"):
        next(records)


def test_a_generator_closes_when_it_is_closed(reading: Reading) -> None:
    reading.serve(loopback.Reply(lines(10)))
    generator = reading.client.iter_batch_records("msgbatch_0")
    next(generator)
    generator.close()  # type: ignore[attr-defined]  # a generator, by its docstring
    assert list(generator) == []
    assert reading.host.gets(RESULTS) == 1


def test_the_consumer_owns_the_record(reading: Reading) -> None:
    reading.serve(loopback.Reply(lines(2)))
    with reading.client.open_batch_records("msgbatch_0") as records:
        first = next(records)
        first.record["n"] = "changed"
        assert next(records).record == {"n": 1}
        with pytest.raises(AttributeError):
            first.batch_id = "x"  # type: ignore[misc]  # frozen is the point


def test_entered_once(reading: Reading) -> None:
    reading.serve(loopback.Reply(lines(2)))
    records = reading.client.open_batch_records("msgbatch_0")
    with records, pytest.raises(errors.StreamError, match="already opened"):
        records.__enter__()
    with pytest.raises(errors.StreamError, match="already opened"):
        records.__enter__()
    assert reading.host.gets(RESULTS) == 1


class Stubborn:
    """A response whose close fails or hangs."""

    def __init__(self, *, hang: bool) -> None:
        self.hang = hang
        self.release = threading.Event()
        self.calls = 0

    def close(self) -> None:
        self.calls += 1
        if self.hang:
            self.release.wait(30)
        raise OSError("cannot close")


@pytest.mark.parametrize("hang", [False, True])
def test_a_close_that_fails_or_hangs_is_given_up(reading: Reading, hang: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Close is bounded, its failure is noted and never raised over the consumer's own exception."""
    monkeypatch.setattr(acquire, "CLOSE_SECONDS", 0.2)
    reading.serve(loopback.Reply(pieces=[lines(10)] * 10, chunked=True))
    stubborn = Stubborn(hang=hang)
    records = reading.client.open_batch_records("msgbatch_0")
    mine = ValueError("mine")
    real = []

    def consume() -> None:
        with records:
            assert records.response is not None
            real.append(records.response._response)
            records.response._response = stubborn  # type: ignore[assignment]  # a fake in a real one's place
            next(records)
            raise mine

    with pytest.raises(ValueError, match="mine") as caught:
        consume()
    stubborn.release.set()
    assert real[0] is not None
    real[0].close()
    assert caught.value is mine
    assert records.response is not None
    assert (records.response.close_failed, records.response.closes, stubborn.calls) == (True, 1, 1)


def test_a_repr_shows_no_key(reading: Reading) -> None:
    call = reading.client._provider.status("x")
    assert batches.KEY not in repr((call, reading.client._provider))


class Stubbornly(response.Response):
    """The broken twin of the hand-over rule: it asks again when the body breaks off."""

    def read(self, size: int) -> bytes:
        try:
            return super().read(size)
        except errors.StreamError:
            self.__init__(*self.again)  # type: ignore[misc]  # the twin starts over
            self.open()
            return super().read(size)

    again: tuple[Any, ...] = ()


def test_a_twin_that_asks_again_is_caught(reading: Reading) -> None:
    """It delivers records twice and sends a second GET: both are what the tests above count."""
    reading.serve(loopback.Reply(pieces=[lines(3)], chunked=True, cut=True), loopback.Reply(lines(4)))
    session = acquire.new_session()
    call = reading.client._provider.file(reading.client.status("msgbatch_0"), model.BatchFile(kind="result", id="r"))
    Stubbornly.again = (session, call, reading.clock)
    made = model.Batch(id="b", status="expired", files=(model.BatchFile(kind="result", id="r"),))
    with stream.BatchRecords(made, lambda _file: Stubbornly(session, call, reading.clock), Limits()) as records:
        numbers = [record.record["n"] for record in records]
    session.close()
    assert numbers == [0, 1, 2, 0, 1, 2, 3]
    assert reading.host.gets(RESULTS) == 2


def test_an_interrupt_while_reading_passes_and_closes(reading: Reading) -> None:
    reading.serve(loopback.Reply(pieces=[lines(2)], chunked=True))
    mine = KeyboardInterrupt()

    class Interrupted:
        def read1(self, _size: int, **_options: Any) -> bytes:
            raise mine

    def consume(records: stream.BatchRecords) -> None:
        with records:
            assert records.response is not None
            records.response._raw = Interrupted()
            next(records)

    records = reading.client.open_batch_records("msgbatch_0")
    with pytest.raises(KeyboardInterrupt) as caught:
        consume(records)
    assert caught.value is mine
    assert records.response is not None
    assert (records.response.closes, records.response.state) == (1, response.State.FAILED)
