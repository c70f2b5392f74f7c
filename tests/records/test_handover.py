"""One response over a real HTTP server: every way it can fail before, at and after the hand-over, and every way a consumer
can leave. Counted in each: GETs, sleeps, closes, and records delivered.
"""

from __future__ import annotations

import gzip
import threading
from typing import Any

import pytest

from klaud.records import acquire, errors, model, response, stream
from klaud.records.limits import Limits
from tests.support import batches, loopback
from tests.support.reading import RESULTS, Reading, lines

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


EMPTY = gzip.compress(b"")
PACKED = {"Content-Encoding": "gzip"}


def test_compressed_bytes_that_decode_to_nothing_are_bounded(reading: Reading) -> None:
    """Empty gzip members without end would fill no limit on decoded bytes, and keep one read busy for ever."""
    bound = Limits(file_bytes=1000, chunk_bytes=1000)
    many = EMPTY * (3000 // len(EMPTY))
    reading.serve(loopback.Reply(gzip.compress(lines(3)) + EMPTY * 90, headers=PACKED, chunked=True))
    numbers, fault, opened = reading.read(limits=bound)
    assert (numbers, fault) == ([0, 1, 2], None)
    reading.serve(loopback.Reply(pieces=[gzip.compress(lines(3)), *[many] * 1000], headers=PACKED, chunked=True))
    numbers, fault, opened = reading.read(limits=bound)
    assert fault is not None
    assert (numbers, fault.code, opened.closes) == ([0, 1, 2], "download-limit", 1)
    assert opened._arrived < 5000


def test_the_deadline_holds_inside_a_read_that_decodes_to_nothing(reading: Reading) -> None:
    reading.serve(loopback.Reply(EMPTY, headers=PACKED))
    deadline = reading.clock.monotonic() + 5
    with reading.client.open_batch_records("msgbatch_0", deadline=deadline) as records:

        class Trickle:
            """One byte a second, of the header of a gzip member."""

            tell = 0

            def read1(self, _size: int, **_options: Any) -> bytes:
                reading.clock.passed += 1
                self.tell += 1
                return EMPTY[self.tell - 1 : self.tell]

        assert records.response is not None
        records.response._raw = trickle = Trickle()
        with pytest.raises(errors.StreamError, match="the deadline that the caller set has passed"):
            next(records)
    assert trickle.tell == 5
