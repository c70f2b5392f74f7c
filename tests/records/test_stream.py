"""A stream of records: limits as a user meets them, any cut, checkpoints, and nothing of the payload in an error."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import pickle
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klaud import errors as tree
from klaud import feeds
from klaud.records import checkpoint, errors, framer, limits, model, reader, response, stream
from tests.support import loopback

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

CANARY = "CANARY-7f3a-do-not-show"
BATCH = model.Batch(
    id="b1", status="expired", files=(model.BatchFile(kind="result", id="f1"), model.BatchFile(kind="error", id="f2"))
)


class Pieces:
    """A response that is already there, in pieces; ends in an error where ``fails``. What is unread is out of sight."""

    def __init__(self, pieces: list[bytes], *, fails: bool = False) -> None:
        self.closes = 0
        self.failed = 0
        self.read = self._reading(list(pieces), fails=fails)

    @staticmethod
    def _reading(pieces: list[bytes], *, fails: bool) -> Callable[[int], bytes]:
        def read(size: int) -> bytes:
            if pieces:
                piece = pieces.pop(0)
                if len(piece) > size:
                    pieces.insert(0, piece[size:])
                return piece[:size]
            if fails:
                raise errors.StreamError("the answer broke off before its end", code="body-failed")
            return b""

        return read

    def open(self) -> None:
        """Nothing to do."""

    def fail(self) -> None:
        self.failed += 1

    def close(self) -> None:
        self.closes += 1


def records_of(
    *files: list[bytes], bounds: limits.Limits | None = None, fails: bool = False, **options: Any
) -> stream.BatchRecords:
    made: dict[str, Any] = {
        file.id: Pieces(pieces, fails=fails) for file, pieces in zip(BATCH.files, files, strict=False)
    }
    batch = model.Batch(id="b1", status="expired", files=BATCH.files[: len(files)])
    return stream.BatchRecords(batch, lambda file: made[file.id], bounds or limits.Limits(), **options)


def outcome(records: stream.BatchRecords) -> tuple[list[Any], Any]:
    got: list[Any] = []
    try:
        with records:
            got.extend((record.file_kind, record.record) for record in records)
    except errors.StreamError as error:
        return got, (error.code, str(error), error.details)
    return got, None


# -- any cut

PARTS = st.sampled_from(
    [b"\n", b"\r\n", b"{}", b'{"n":1}\n', b'{"n":2}\r\n', b"x", b'{"a":1,"a":1}\n', b"\xff", b" " * 9, b"\r"]
)
TEXT = st.lists(PARTS, max_size=12).map(b"".join)
SMALL = limits.Limits(chunk_bytes=16, line_bytes=12, file_bytes=70, lines=9, records=5)


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    pieces = []
    at = 0
    for size in sizes:
        pieces.append(data[at : at + size])
        at += size
    return [piece for piece in (*pieces, data[at:]) if piece]


@settings(max_examples=700, derandomize=True, deadline=None)
@given(first=TEXT, second=TEXT, sizes=st.lists(st.integers(1, 16), max_size=12))
def test_any_cut_gives_the_same_records_or_the_same_error(first: bytes, second: bytes, sizes: list[int]) -> None:
    """Over both files of a stream, with every limit small enough to be met."""
    bytewise = outcome(records_of(cut(first, [1] * 99), cut(second, [1] * 99), bounds=SMALL))
    assert outcome(records_of(cut(first, sizes), cut(second, sizes), bounds=SMALL)) == bytewise


class ByChunk(framer.Framer):
    """The broken twin: it refuses a chunk that crosses the file limit whole, lines and all."""

    def frame(self, chunk: Any) -> list[bytes]:
        if self.bytes_read + len(chunk) > self._limits.file_bytes:
            raise errors.StreamError("too large", code="download-limit")
        return super().frame(chunk)


def test_a_twin_that_depends_on_the_cut_is_caught() -> None:
    seen = set()
    for pieces in (cut(b"{}\n" * 9, [1] * 99), cut(b"{}\n" * 9, [16])):
        framing = ByChunk(limits.Limits(chunk_bytes=16, file_bytes=20))
        lines = 0
        with contextlib.suppress(errors.StreamError):
            for piece in pieces:
                lines += len(framing.frame(piece))
        seen.add(lines)
    assert seen == {5, 6}


# -- limits, as a user meets them


def row(size: int) -> bytes:
    return b'{"a":"' + b"x" * (size - 9) + b'"}\n'


@pytest.mark.parametrize(
    ("bounds", "good", "bad", "sentence"),
    [
        ({"line_bytes": 20}, row(21), row(22), "line 1 of the file is longer than the limit of 20 bytes"),
        (
            {"line_bytes": 20},
            row(20)[:-1] + b"\r\n",
            row(21)[:-1] + b"\r\n",
            "line 1 of the file is longer than the limit",
        ),
        ({"file_bytes": 40}, row(20) * 2, row(20) * 2 + b"\n", "the file is larger than the limit of 40 bytes"),
        ({"lines": 3}, b"\n\n" + row(20), b"\n\n\n" + row(20), "the stream has more than the limit of 3 lines"),
        ({"lines": 3}, b"\n\n\n", b"\n\n\n\n", "the stream has more than the limit of 3 lines"),
        ({"records": 2}, row(20) * 2 + b"\n", row(20) * 3, "the stream has more than the limit of 2 records"),
    ],
)
def test_at_the_limit_and_one_above(bounds: dict[str, int], good: bytes, bad: bytes, sentence: str) -> None:
    """With the sentence that a person reads, and the advice beside it."""
    bound = limits.Limits(**bounds)
    assert outcome(records_of([good], bounds=bound))[1] is None
    with pytest.raises(errors.StreamError) as caught, records_of([bad], bounds=bound) as records:
        list(records)
    assert str(caught.value).startswith(sentence)
    assert caught.value.advice
    assert caught.value.exit_status == 2


@pytest.mark.slow
def test_the_defaults_at_the_limit_and_one_above() -> None:
    """The table of the documentation with its own numbers."""
    mib = 1024 * 1024
    chunk = 64 * 1024

    def reads(data: bytes) -> Any:
        return outcome(records_of(cut(data, [chunk] * (len(data) // chunk))))[1]

    assert reads(row(mib + 1)) is None
    assert reads(row(mib + 2))[0] == "line-too-long"
    assert reads(b"\n" * 100_000) is None
    assert reads(b"\n" * 100_001)[0] == "too-many-lines"
    assert reads(b"{}\n" * 100_000) is None
    whole = row(mib) * 128
    assert reads(whole) is None
    assert reads(whole + b"\n")[0] == "download-limit"


# -- checkpoints

LINES = [b'{"n":%d}\n' % index for index in range(40)] + [b"\n", b"\r\n", b'{"n":40}\r\n', b'{"n":41}']
FIRST, SECOND = b"".join(LINES), b'\n{"e":1}\n{"e":2}\n{"e":3}'


def all_checkpoints() -> list[tuple[model.Checkpoint, int]]:
    found = []
    with records_of([FIRST], [SECOND], checkpoints=True) as records:
        for record in records:
            assert record.record
            found.append((records.checkpoint(), records.delivered))
    return found


def test_a_checkpoint_is_of_the_bytes_before_it() -> None:
    """Its digest is what anybody computes over the file up to the end of that line."""
    for at, delivered in all_checkpoints():
        data = FIRST if at.file_kind == "result" else SECOND
        prefix = b"".join(data.splitlines(keepends=True)[: at.file_line_number])
        assert at.prefix_sha256 == hashlib.sha256(prefix).hexdigest()
        assert at.record_count == delivered


@settings(max_examples=150, derandomize=True, deadline=None)
@given(which=st.integers(0, 44), sizes=st.lists(st.integers(1, 64), max_size=12))
def test_resuming_delivers_exactly_the_rest(which: int, sizes: list[int]) -> None:
    """From any record, at any cut."""
    everything = outcome(records_of([FIRST], [SECOND]))[0]
    at, delivered = all_checkpoints()[which]
    rest, error = outcome(records_of(cut(FIRST, sizes), cut(SECOND, sizes), resume=at))
    assert error is None
    assert rest == everything[delivered:]


def changed(data: bytes) -> Iterator[bytes]:
    yield data.replace(b'"n":3}', b'"m":3}')
    yield data.replace(b'{"n":3}', b'{"n":3} ')
    yield data.replace(b"\n\r\n", b"\r\n\n")
    yield b"\n" + data
    yield b"".join(data.splitlines(keepends=True)[:20])
    yield b""


def test_other_bytes_are_not_resumed() -> None:
    at = next(at for at, _ in all_checkpoints() if at.file_line_number == 43)
    for data in changed(FIRST):
        got, error = outcome(records_of([data] if data else [], [SECOND], resume=at))
        assert (got, error[0]) == ([], "checkpoint-mismatch")
    got, error = outcome(records_of([FIRST], resume=all_checkpoints()[-1][0]))
    assert (got, error[0]) == ([], "checkpoint-mismatch")
    for name, value in (("record_count", 1), ("batch_line_count", 1), ("prefix_sha256", "0" * 64)):
        wrong = model.Checkpoint(**{**{f: getattr(at, f) for f in at.__struct_fields__}, name: value})
        got, error = outcome(records_of([FIRST], [SECOND], resume=wrong))
        assert (got, error[0]) == ([], "checkpoint-mismatch")


def test_no_checkpoint_without_a_record() -> None:
    with records_of([FIRST], checkpoints=True) as records, pytest.raises(errors.StreamError, match="no record"):
        records.checkpoint()
    with records_of([FIRST]) as records:
        next(records)
        with pytest.raises(errors.StreamError, match="no record"):
            records.checkpoint()


def test_the_store_compares_and_sets(tmp_path: Path) -> None:
    store = checkpoint.FileStore(tmp_path / "made")
    ats = [at for at, _ in all_checkpoints()]
    assert store.load("b1") is None
    assert store.advance(ats[1], ats[2]) == checkpoint.Superseded(None)
    assert store.advance(None, ats[1]) == checkpoint.Saved()
    assert store.load("b1") == ats[1]
    assert store.advance(None, ats[2]) == checkpoint.Superseded(ats[1])
    assert store.advance(ats[0], ats[2]) == checkpoint.Superseded(ats[1])
    for behind in (ats[0], ats[1]):
        assert store.advance(ats[1], behind) == checkpoint.Superseded(ats[1])
    assert store.advance(ats[1], ats[-1]) == checkpoint.Saved()
    assert store.advance(ats[-1], ats[5]) == checkpoint.Superseded(ats[-1])
    assert checkpoint.FileStore(tmp_path / "made").load("b1") == ats[-1]


@pytest.mark.parametrize("raw", [b"", b"{}", b"\xff", b"[" * 4000, b"x" * 9000])
def test_a_damaged_checkpoint_is_named(tmp_path: Path, raw: bytes) -> None:
    (tmp_path / "checkpoint-b1.json").write_bytes(raw)
    with pytest.raises(errors.StreamError, match=r"checkpoint-b1\.json is damaged") as caught:
        checkpoint.FileStore(tmp_path).load("b1")
    assert (caught.value.code, caught.value.__context__) == ("checkpoint-invalid", None)


def test_checkpoints_of_others_are_refused(tmp_path: Path) -> None:
    store = checkpoint.FileStore(tmp_path)
    at = all_checkpoints()[0][0]
    said = json.loads(json.dumps({f: getattr(at, f) for f in at.__struct_fields__}))
    for change, why in (({"batch_id": "b2"}, "another batch"), ({"schema_version": 2}, "version 2")):
        (tmp_path / "checkpoint-b1.json").write_text(json.dumps({**said, **change}))
        with pytest.raises(errors.StreamError, match=why):
            store.load("b1")
    with pytest.raises(errors.StreamError, match="a batch's id"):
        store.load("../b1")


# -- nothing of the payload in an error


def shown(error: BaseException) -> str:
    """Everything that a crash reporter might write down: the chain, the details, the frames' locals and what they hold."""
    texts = []
    seen: set[int] = set()

    def look(value: Any, depth: int = 0) -> None:
        if id(value) in seen or depth > 4:
            return
        seen.add(id(value))
        texts.append(repr(value)[:5000])
        if isinstance(value, dict):
            for key, item in list(value.items())[:200]:
                look(key, depth + 1)
                look(item, depth + 1)
        elif isinstance(value, list | tuple | set):
            for item in list(value)[:200]:
                look(item, depth + 1)
        for name in (*getattr(value, "__dict__", {}), *getattr(type(value), "__slots__", ())):
            if not name.startswith("__"):
                look(getattr(value, name, None), depth + 1)

    current: BaseException | None = error
    while current is not None:
        texts += [str(current), repr(current), repr(current.args)]
        look(getattr(current, "details", None))
        look(getattr(current, "advice", None))
        trace = current.__traceback__
        while trace is not None:
            if "/klaud/" in trace.tb_frame.f_code.co_filename:
                for value in trace.tb_frame.f_locals.values():
                    look(value)
            trace = trace.tb_next
        current = current.__cause__ or current.__context__
    return "\n".join(texts)


def bad_inputs() -> dict[str, tuple[bytes, dict[str, int]]]:
    c = CANARY.encode()
    good = b'{"good":"' + c + b'"}\n'
    return {
        "not JSON": (good + c + b"\n", {}),
        "half a record": (good + b'{"a":"' + c, {}),
        "duplicate name": (good + b'{"%b":1,"%b":2}\n' % (c, c), {}),
        "not UTF-8": (good + b'{"a":"%b\xff"}\n' % c, {}),
        "a byte order mark": (b"\xef\xbb\xbf" + good, {}),
        "overflow": (good + b'{"%b":1e999}\n' % c, {}),
        "not finite": (good + b'{"%b":NaN}\n' % c, {}),
        "lone surrogate": (good + b'{"%b":"\\ud800"}\n' % c, {}),
        "too deep": (good + b'{"%b":' % c + b"[" * 200 + b"]" * 200 + b"}\n", {}),
        "integer": (good + b'{"%b":' % c + b"1" * 4301 + b"}\n", {}),
        "not an object": (good + b'["%b"]\n' % c, {}),
        "line too long": (good + b'{"a":"' + c * 9, {"line_bytes": 60}),
        "finished line too long": (good + b'{"a":"' + c * 9 + b'"}\n', {"line_bytes": 60}),
        "too many lines": (good * 3, {"lines": 2}),
        "too many records": (good * 3, {"records": 2}),
        "file too large": (good * 3, {"file_bytes": 60}),
    }


def readers() -> dict[str, Callable[[list[bytes], limits.Limits], Any]]:
    def batch(pieces: list[bytes], bounds: limits.Limits) -> None:
        with records_of(pieces, bounds=bounds, checkpoints=True) as records:
            for _ in records:
                pass

    def broken_off(pieces: list[bytes], bounds: limits.Limits) -> None:
        with records_of(pieces, bounds=bounds, fails=True, checkpoints=True) as records:
            for _ in records:
                pass

    def lines(pieces: list[bytes], bounds: limits.Limits) -> None:
        for line in reader.read_lines(Pieces(pieces), bounds):
            if b"CANARY" in line:
                raise errors.StreamError("a line came", code="invalid-record")

    def records(pieces: list[bytes], bounds: limits.Limits) -> None:
        list(reader.read_records(Pieces(pieces), bounds))

    def fed(pieces: list[bytes], bounds: limits.Limits) -> None:
        made = reader.RecordReader(bounds)
        for piece in pieces:
            list(made.feed(piece))
        list(made.finish())

    def framed(pieces: list[bytes], bounds: limits.Limits) -> None:
        made = framer.Framer(bounds)
        for piece in pieces:
            made.feed(piece)
        made.finish()
        made.feed(b"after the end")

    return {"batch": batch, "broken off": broken_off, "lines": lines, "records": records, "fed": fed, "framed": framed}


@pytest.mark.parametrize("how", readers())
@pytest.mark.parametrize("what", bad_inputs())
@pytest.mark.parametrize("size", [10**6, 7])
def test_the_canary_is_nowhere(what: str, how: str, size: int, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever is wrong and whoever reads: no error, chain, detail, frame or log shows what was read."""
    caplog.set_level(logging.DEBUG)
    data, bounds = bad_inputs()[what]
    bound = limits.Limits(**bounds)
    with pytest.raises(errors.StreamError) as caught:
        readers()[how](cut(data, [size] * (len(data) // size)), bound)
    error = caught.value
    assert error.__cause__ is None
    assert error.__context__ is None
    assert "CANARY" not in shown(error)
    assert "CANARY" not in caplog.text
    assert error.details.keys() <= errors.DETAILS
    assert pickle.loads(pickle.dumps(error)).details == error.details  # noqa: S301 - our own bytes


def leaks(read: Callable[[], Any]) -> bool:
    try:
        read()
    except Exception as error:  # noqa: BLE001 - any error may leak
        return "CANARY" in shown(error)
    raise AssertionError("nothing was raised")


def test_the_canary_sings_on_broken_twins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors raised in the handler, raised ``from None``, and with payload left in a frame: each is caught by the test."""
    line = f'{{"{CANARY}":1,"{CANARY}":2}}'.encode()

    def chained() -> None:
        import jiter  # noqa: PLC0415 - the twin only

        try:
            jiter.from_json(line, catch_duplicate_keys=True)
        except ValueError as error:
            raise errors.StreamError("bad", code="invalid-record") from error

    def suppressed() -> None:
        import jiter  # noqa: PLC0415 - the twin only

        try:
            jiter.from_json(line, catch_duplicate_keys=True)
        except ValueError:
            raise errors.StreamError("bad", code="invalid-record") from None

    assert leaks(chained)
    assert leaks(suppressed)
    monkeypatch.setattr(framer.Framer, "_forget", lambda _self: None)
    assert leaks(lambda: readers()["broken off"]([b'{"good":1}\n{"a":"' + CANARY.encode()], limits.Limits()))


def test_only_listed_details() -> None:
    for details in ({"line": "text"}, {"url": "x"}, {"batch_id": "b"}):
        with pytest.raises(tree.BugError, match="not on the list"):
            errors.StreamError("m", code="invalid-record", details=details)  # type: ignore[arg-type]  # the point
    with pytest.raises(KeyError):
        errors.StreamError("m", code="made-up")
    assert errors.StreamError("m", code="batch-no-file", details={"batch_id": "b"}).details == {"batch_id": "b"}


@pytest.mark.parametrize("place", ["header", "status body", "body", "redirect", "length", "chunk"])
def test_the_canary_over_http(place: str, caplog: pytest.LogCaptureFixture) -> None:
    """Also where a host puts it outside of the records."""
    caplog.set_level(logging.DEBUG)
    c = CANARY.encode()
    reply = {
        "header": loopback.Reply(raw=b"HTTP/1.1 200 OK\r\n" + c + b" no colon\r\n\x00: " + c + b"\r\n\r\n" + c),
        "status body": loopback.Reply(c, status=403, headers={"X-Why": CANARY}),
        "body": loopback.Reply(b"[" + c, length=400),
        "redirect": loopback.Reply(c, status=302, headers={"Location": f"/{CANARY}"}),
        "length": loopback.Reply(c, length=CANARY),
        "chunk": loopback.Reply(raw=b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + c + b"\r\n"),
    }[place]
    with loopback.serving() as host:
        host.reply("/rows", reply)
        with pytest.raises(errors.StreamError) as caught:
            feeds.fetch_json(f"{host.url}/rows", web=feeds.Web(clock=loopback.FakeClock(), chance=lambda: 0.5))
    assert "CANARY" not in shown(caught.value)
    assert "CANARY" not in caplog.text


def test_a_response_is_read_once() -> None:
    with loopback.serving() as host:
        host.reply("/rows", loopback.Reply(b"{}"))
        from klaud.records import acquire, call  # noqa: PLC0415 - this test only

        session = acquire.new_session()
        opened = response.Response(session, call.Call(f"{host.url}/rows"), loopback.FakeClock())
        with pytest.raises(errors.StreamError, match="closed"):
            opened.read(10)
        with opened:
            assert opened.read(10) == b"{}"
            assert opened.read(10) == b""
            assert opened.read(10) == b""
        with pytest.raises(errors.StreamError, match="already opened"):
            opened.open()
        session.close()


def test_memory_is_flat() -> None:
    """32 MiB go through; what is held stays a few chunks and one record."""
    line = row(1024)
    block = line * 64
    remaining = [512]

    class Endless(Pieces):
        def __init__(self) -> None:
            self.read = self._block  # type: ignore[assignment]  # instead of pieces

        @staticmethod
        def _block(_size: int) -> bytes:
            remaining[0] -= 1
            return block if remaining[0] >= 0 else b""

    batch = model.Batch(id="b1", status="expired", files=BATCH.files[:1])
    endless: Any = Endless()
    endless.closes = endless.failed = 0
    tracemalloc.start()
    try:
        with stream.BatchRecords(batch, lambda _file: endless, limits.Limits(), checkpoints=True) as records:
            count = sum(1 for _ in records)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 64 * 512
    assert peak < 2 * 1024 * 1024
