"""Nothing of what was read is in an error: a distinctive text in every kind of bad input, looked for everywhere."""

from __future__ import annotations

import logging
import pickle
from typing import TYPE_CHECKING, Any

import pytest

from klaud import errors as tree
from klaud import feeds
from klaud.records import errors, framer, limits, reader
from tests.support import loopback
from tests.support.streams import Pieces, cut, records_of

if TYPE_CHECKING:
    from collections.abc import Callable

CANARY = "CANARY-7f3a-do-not-show"


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
