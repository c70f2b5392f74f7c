"""The limits table, row by row: exactly at the limit passes, one above fails, with what a person then reads.

``pytest tests/records/test_limits.py -rP`` prints the table: each row's error as the command line shows it.
"""

from __future__ import annotations

import dataclasses
import json
import threading
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from klaud import feeds
from klaud.cli import main
from klaud.records import codec, errors, framer, reader
from klaud.records.limits import Limits
from tests.support import batches, loopback
from tests.support.reading import RESULTS, Reading, lines, make_client
from tests.support.streams import Pieces, cut, outcome, records_of, row

if TYPE_CHECKING:
    from collections.abc import Callable

    Refused: TypeAlias = Callable[[Callable[[], object], str], errors.StreamError]


@dataclasses.dataclass(frozen=True)
class Row:
    """One row: what to do exactly at the limit and one above it, and what comes of the latter."""

    act: Callable[[Any], object]
    at: Any
    above: Any
    code: str
    says: str
    details: dict[str, int]
    exit_status: int = 2


def streamed(*, two_files: bool = False, **bounds: int) -> Callable[[bytes], object]:
    """Read a batch of one file; of two that share the counts."""

    def act(data: bytes) -> object:
        files = ([b"{}\n"], [data]) if two_files else ([data],)
        with records_of(*files, bounds=Limits(**bounds)) as records:
            return list(records)

    return act


def chunk(size: int) -> object:
    return framer.Framer(Limits(chunk_bytes=64)).feed(b"x" * size)


def record(line: bytes) -> object:
    return list(reader.read_records(Pieces([line])))


LONG = "line 1 of the file is longer than the limit of 20 bytes"
ROWS = {
    "chunk": Row(
        chunk, 64, 65, "invalid-chunk", "65 bytes at once, more than the limit of 64",
        {"chunk_bytes": 65, "limit_bytes": 64}, 70,
    ),
    "line": Row(streamed(line_bytes=20), row(21), row(22), "line-too-long", LONG, {"bytes_buffered": 21}),
    "line, its CR counted": Row(
        streamed(line_bytes=20), row(20)[:-1] + b"\r\n", row(21)[:-1] + b"\r\n", "line-too-long", LONG, {"limit_bytes": 20},
    ),
    "line, unfinished": Row(
        streamed(line_bytes=20), row(21)[:-1], row(22)[:-1], "line-too-long", LONG, {"file_line_number": 1},
    ),
    "file": Row(
        streamed(file_bytes=40), row(20) * 2, row(20) * 2 + b"\n", "download-limit",
        "the file is larger than the limit of 40 bytes", {"limit_bytes": 40, "bytes_read": 40},
    ),
    "lines": Row(
        streamed(lines=3), b"\n\n" + row(20), b"\n\n" + row(20) * 2, "too-many-lines", "more than the limit of 3 lines",
        {"limit_lines": 3, "batch_line_count": 3},
    ),
    "lines, all blank": Row(
        streamed(lines=3), b"\n\r\n\n", b"\n\r\n\n\n", "too-many-lines", "more than the limit of 3 lines",
        {"limit_lines": 3},
    ),
    "lines, of both files": Row(
        streamed(lines=3, two_files=True), b"\n\n", b"\n\n\n", "too-many-lines", "more than the limit of 3 lines",
        {"line_number": 3, "file_line_number": 2},
    ),
    "records": Row(
        streamed(records=2), row(20) * 2 + b"\n", row(20) * 3, "too-many-records", "more than the limit of 2 records",
        {"limit_records": 2, "record_count": 2},
    ),
    "records, of both files": Row(
        streamed(records=2, two_files=True), b"{}", b"{}\n{}", "too-many-records", "more than the limit of 2 records",
        {"line_number": 3, "file_line_number": 2},
    ),
    "digits of an integer": Row(
        record, b'{"a":%b}' % (b"9" * 4300), b'{"a":%b}' % (b"9" * 4301), "invalid-record",
        codec.MEANING["IntegerTooLong"], {"line_number": 1},
    ),
    "nesting": Row(
        record, b'{"a":%b%b}' % (b"[" * 127, b"]" * 127), b'{"a":%b%b}' % (b"[" * 128, b"]" * 128), "invalid-record",
        codec.MEANING["NestingTooDeep"], {"line_number": 1},
    ),
}  # fmt: skip


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Refused:
    """Return how something fails, after the command line has ended with it; print that as a row of the table."""

    def refuse(act: Callable[[], object], name: str) -> errors.StreamError:
        with pytest.raises(errors.StreamError) as caught:
            act()
        error = caught.value

        def verb(**_options: Any) -> None:
            raise error.again()

        monkeypatch.setattr(main, "app", verb)
        with pytest.raises(SystemExit) as left:
            main.main([])
        assert left.value.code == error.exit_status
        said = capsys.readouterr().err
        assert said == f"klaud: {error}\n  -> {error.advice}\n"
        told = f"code {error.code}, exit status {error.exit_status}"
        print(f"{name}: at the limit passes; above it, {told}:\n{said}")  # noqa: T201 - the table
        return error

    return refuse


@pytest.mark.parametrize("name", ROWS)
def test_at_the_limit_and_one_above(name: str, refused: Refused) -> None:
    one = ROWS[name]
    one.act(one.at)
    error = refused(lambda: one.act(one.above), name)
    assert (error.code, error.exit_status) == (one.code, one.exit_status)
    assert one.says in str(error)
    assert error.details.items() >= one.details.items()


@pytest.mark.parametrize("chunked", [False, True], ids=["declared", "found out"])
def test_a_control_response(
    host: loopback.Loopback,
    clock: loopback.FakeClock,
    chunked: bool,
    refused: Refused,
) -> None:
    provider = batches.Provider(host, "openai")
    said = json.dumps({"id": "batch_1", "status": "completed", "output_file_id": "f"}).encode()
    provider.override["/v1/batches/batch_1"] = loopback.Reply(said, chunked=chunked)
    with make_client(provider, clock, Limits(control_bytes=len(said))) as client:
        assert client.status("batch_1").terminal
    with make_client(provider, clock, Limits(control_bytes=len(said) - 1)) as client:
        error = refused(lambda: client.status("batch_1"), "control response")
    assert error.code == "response-too-large"
    assert error.details["limit_bytes"] == len(said) - 1
    assert error.details["bytes_read"] == (len(said) - 1 if chunked else 0)


def test_a_declared_length(reading: Reading, refused: Refused) -> None:
    """It is refused before a byte of the body is read."""
    data = lines(4)
    reading.serve(loopback.Reply(data))
    assert reading.read(limits=Limits(file_bytes=len(data)))[:2] == ([0, 1, 2, 3], None)

    def above() -> None:
        with reading.client.open_batch_records("msgbatch_0", limits=Limits(file_bytes=len(data) - 1)):
            pass

    error = refused(above, "declared length")
    assert (error.code, error.details["declared_bytes"], error.details["bytes_read"]) == (
        "download-limit",
        len(data),
        0,
    )


def test_silence(reading: Reading, refused: Refused) -> None:
    """The socket is given exactly the limit. That a consumer's pauses do not count is tried in test_handover."""
    go_on = threading.Event()
    reading.serve(loopback.Reply(pieces=[b"", lines(1)], length=9, wait={1: go_on}))
    with reading.client.open_batch_records("msgbatch_0", limits=Limits(idle_seconds=1)) as records:
        assert records.response is not None
        assert records.response._raw.connection.timeout == 1
        error = refused(lambda: next(records), "silence")
    go_on.set()
    assert (error.code, error.exit_status, error.details["timeout_seconds"]) == ("read-timeout", 75, 1)


def test_a_deadline(reading: Reading, refused: Refused) -> None:
    """Before it there is a read; at it there is none."""
    reading.serve(loopback.Reply(lines(1)))
    now = reading.clock.monotonic()
    assert reading.read(deadline=now + 0.001)[:2] == ([0], None)
    error = refused(lambda: reading.client.open_batch_records("msgbatch_0", deadline=now), "deadline")
    assert (error.code, error.exit_status) == ("deadline-exceeded", 75)
    assert reading.host.gets(RESULTS) == 1


def test_a_feed(refused: Refused) -> None:
    data = b'[{"a": 1}]'
    with loopback.serving() as host:
        host.reply("/rows", loopback.Reply(data, chunked=True))
        web = feeds.Web(clock=loopback.FakeClock())
        assert feeds.fetch_rows(f"{host.url}/rows", limit_bytes=len(data), web=web).rows == ({"a": 1},)
        error = refused(
            lambda: feeds.fetch_rows(f"{host.url}/rows", limit_bytes=len(data) - 1, web=web),
            "feed",
        )
    assert (error.code, error.details["limit_bytes"]) == ("feed-invalid", len(data) - 1)


@pytest.mark.slow
def test_the_defaults_at_the_limit_and_one_above() -> None:
    """The table of the documentation with its own numbers."""
    mib = 1024 * 1024
    size = 64 * 1024

    def reads(data: bytes) -> Any:
        return outcome(records_of(cut(data, [size] * (len(data) // size))))[1]

    assert reads(row(mib + 1)) is None
    assert reads(row(mib + 2))[0] == "line-too-long"
    assert reads(b"\n" * 100_000) is None
    assert reads(b"\n" * 100_001)[0] == "too-many-lines"
    assert reads(b"{}\n" * 100_000) is None
    assert reads(b"{}\n" * 100_001)[0] == "too-many-lines"
    whole = row(mib) * 128
    assert reads(whole) is None
    assert reads(whole + b"\n")[0] == "download-limit"
