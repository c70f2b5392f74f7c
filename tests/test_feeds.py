"""Feeds: what a bad one says, and that a good one is read whole."""

from __future__ import annotations

import contextlib
import datetime
import gzip
import json
import socket
import ssl
import threading
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from klaud import errors as tree
from klaud import feeds
from klaud.records import errors
from tests.support import loopback

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROWS = [{"a": 1}, {"a": 2}]


@pytest.fixture
def host() -> Iterator[loopback.Loopback]:
    with loopback.serving() as served:
        yield served


@pytest.fixture
def clock() -> loopback.FakeClock:
    return loopback.FakeClock()


@pytest.fixture
def web(clock: loopback.FakeClock) -> feeds.Web:
    return feeds.Web(clock=clock, chance=lambda: 0.5)


def fails(host: loopback.Loopback, web: feeds.Web, *replies: loopback.Reply, **options: Any) -> errors.StreamError:
    host.reply("/rows.json", *replies)
    with pytest.raises(errors.StreamError) as caught:
        feeds.fetch_rows(f"{host.url}/rows.json", name="feed rows", web=web, **options)
    error = caught.value
    assert error.__context__ is None
    assert error.__cause__ is None
    assert str(error).startswith("feed rows")
    assert host.url not in repr((error, error.details, error.advice))
    return error


@pytest.mark.parametrize(
    "body",
    [json.dumps(ROWS).encode(), b'{"a": 1}\n{"a": 2}\n', b' \n[{"a":1},\n{"a":2}]\n', b'{"a": 1}\r\n\r\n{"a": 2}'],
)
@pytest.mark.parametrize("form", ["plain", "chunked", "gzip"])
def test_a_list_or_lines(host: loopback.Loopback, web: feeds.Web, body: bytes, form: str) -> None:
    if form == "gzip":
        reply = loopback.Reply(gzip.compress(body), headers={"Content-Encoding": "gzip"})
    else:
        reply = loopback.Reply(body, chunked=form == "chunked")
    host.reply("/rows.json", reply)
    assert feeds.fetch_rows(f"{host.url}/rows.json", web=web) == feeds.Rows(tuple(ROWS))
    assert host.asked[0].headers["accept-encoding"] == "identity"


@pytest.mark.parametrize("status", [408, 425, 429, 500, 503, 599])
def test_later_is_tried_three_times(
    host: loopback.Loopback, web: feeds.Web, clock: loopback.FakeClock, status: int
) -> None:
    error = fails(host, web, loopback.Reply(status=status))
    assert (error.code, error.status, error.exit_status) == ("feed-unavailable", status, 75)
    assert host.gets("/rows.json") == 3
    assert clock.slept == [0.375, 0.75]


def test_retry_after_is_obeyed_up_to_its_cap(
    host: loopback.Loopback, web: feeds.Web, clock: loopback.FakeClock
) -> None:
    later = [loopback.Reply(status=503, headers={"Retry-After": value}) for value in ("7", "99999")]
    host.reply("/rows.json", *later, loopback.Reply(json.dumps(ROWS).encode()))
    assert len(feeds.fetch_rows(f"{host.url}/rows.json", web=web).rows) == 2
    assert clock.slept == [7.0, 60.0]


def test_retry_after_as_a_date(host: loopback.Loopback, web: feeds.Web, clock: loopback.FakeClock) -> None:
    later = [
        loopback.Reply(status=503, headers={"Retry-After": value})
        for value in ("Mon, 30 Nov 2026 12:00:09 GMT", "yesterday")
    ]
    host.reply("/rows.json", *later, loopback.Reply(json.dumps(ROWS).encode()))
    feeds.fetch_rows(f"{host.url}/rows.json", web=web)
    assert clock.slept == [9.0, 0.75]


@pytest.mark.parametrize(
    "value",
    [
        "Mon, 01 Jan 99999999999999999999 00:00:00 GMT",
        "Mon, 01 Jan 2026 00:00:00 +99999999999999999999",
        "Mon, 30 Nov 2026 99999999999999999999:00:00 GMT",
        "9" * 400,
        "-1",
        "\u0663".encode().decode("latin-1"),
    ],
)
def test_a_retry_after_that_is_nothing_waits_as_klaud_does(
    host: loopback.Loopback, web: feeds.Web, clock: loopback.FakeClock, value: str
) -> None:
    """Numbers that no date can hold are no reason to crash before the response is closed."""
    busy = loopback.Reply(status=503, headers={"Retry-After": value})
    host.reply("/rows.json", busy, loopback.Reply(json.dumps(ROWS).encode()))
    feeds.fetch_rows(f"{host.url}/rows.json", web=web)
    assert clock.slept == [0.375]


@pytest.mark.parametrize(
    ("reply", "sentence"),
    [
        (loopback.Reply(b"[]"), "feed rows has no row"),
        (loopback.Reply(b""), "feed rows is empty"),
        (loopback.Reply(b" \n "), "feed rows is empty"),
        (loopback.Reply(b"<!doctype html><p>Sign in"), "feed rows is a page of HTML"),
        (loopback.Reply(b'[{"a": 1}, {"a"'), "feed rows begins as a list and is not usable: it is not JSON"),
        (loopback.Reply(b"[" * 100_000), "feed rows begins as a list and is not usable: it nests deeper"),
        (loopback.Reply(b'{"a": '), "feed rows has 1 rows and none is usable: of the last one, it is not JSON"),
        (loopback.Reply(b"[1, 2]"), "feed rows has 2 rows and none is usable: of the last one, it is JSON, but not"),
        (loopback.Reply(b'"text"'), "feed rows has 1 rows and none is usable"),
        (loopback.Reply(b"[{}]", status=404), "feed rows: the host answered with status 404"),
        (loopback.Reply(b"[{}]", status=204), "feed rows: the host answered with status 204"),
        (loopback.Reply(b"[{}]", status=302, headers={"Location": "/other"}), "feed rows: the host redirects"),
        (loopback.Reply(b"[{}]", length=None), "feed rows: the answer has neither a length nor chunked"),
        (loopback.Reply(b"[{}]", length="4, 4"), "feed rows: the answer has neither a length nor chunked"),
        (loopback.Reply(b"[{}]", headers={"Content-Encoding": "br"}), "feed rows: the answer is encoded in a way"),
        (loopback.Reply(raw=b"nonsense\r\n\r\n"), "feed rows: the host could not be reached"),
    ],
)
def test_what_is_not_a_feed(host: loopback.Loopback, web: feeds.Web, reply: loopback.Reply, sentence: str) -> None:
    error = fails(host, web, reply)
    assert str(error).startswith(sentence)
    assert error.code == ("feed-unavailable" if reply.raw else "feed-invalid")
    assert all(asked.path == "/rows.json" for asked in host.asked)


@pytest.mark.parametrize(
    "reply",
    [
        loopback.Reply(json.dumps(ROWS).encode(), length=1000),
        loopback.Reply(pieces=[b'[{"a": 1}'], chunked=True, cut=True),
        loopback.Reply(gzip.compress(json.dumps(ROWS).encode())[:-9], headers={"Content-Encoding": "gzip"}),
    ],
)
def test_a_body_that_ends_early(host: loopback.Loopback, web: feeds.Web, reply: loopback.Reply) -> None:
    """A short body, a missing last chunk, and a cut gzip body that other readers take for whole."""
    error = fails(host, web, reply)
    assert error.code == "feed-unavailable"
    assert "broke off" in str(error)
    assert host.gets("/rows.json") == 1


def test_the_size_is_bounded(host: loopback.Loopback, web: feeds.Web) -> None:
    body = json.dumps(ROWS).encode()
    size = len(body)
    host.reply("/rows.json", loopback.Reply(body, chunked=True))
    assert feeds.fetch_rows(f"{host.url}/rows.json", web=web, limit_bytes=size)
    for reply in (
        loopback.Reply(body),
        loopback.Reply(body, chunked=True),
        loopback.Reply(gzip.compress(body), chunked=True, headers={"Content-Encoding": "gzip"}),
    ):
        error = fails(host, web, reply, limit_bytes=size - 1)
        assert error.details["limit_bytes"] == size - 1
    bomb = gzip.compress(b" " * 50_000_000)
    assert len(bomb) < 100_000
    fails(host, web, loopback.Reply(bomb, headers={"Content-Encoding": "gzip"}), limit_bytes=100_000)


def test_a_bad_row_never_ends_the_others(host: loopback.Loopback, web: feeds.Web) -> None:
    bad = [
        b'"\xff"',
        b'{"a":"\x01"}',
        b"1",
        b'{"a":1,"a":2}',
        b'{"a":1e999}',
        b'{"a":"\\ud800"}',
        b'{"a":' + b"[" * 150 + b"]" * 150 + b"}",
    ]
    reasons = [
        "InvalidUtf8",
        "InvalidJson",
        "NotAnObject",
        "DuplicateName",
        "NonFiniteNumber",
        "LoneSurrogate",
        "NestingTooDeep",
    ]
    host.reply("/list", loopback.Reply(b'[{"a":1},' + b",".join(bad) + b',{"a":2}]'))
    host.reply("/lines", loopback.Reply(b'{"a":1}\n' + b"\n".join(bad) + b'\n{"a":2}'))
    for path in ("/list", "/lines"):
        found = feeds.fetch_rows(host.url + path, web=web)
        assert found.rows == tuple(ROWS)
        assert found.malformed == 7
        assert found.bad == tuple(feeds.BadRow(place, reason) for place, reason in enumerate(reasons, 2))


@pytest.mark.parametrize("end", [b"", b",", b"]]", b"] x", b",]", b";]", b"}"])
def test_a_list_that_is_not_one(end: bytes) -> None:
    """Both ways to cut a list agree that this is none, with and without a bad item in it."""
    for item in (b'{"a":1}', b'{"a":1e999}'):
        found = feeds.rows(b"[" + item + end)
        assert isinstance(found, errors.StreamError)
        assert "begins as a list and is not usable: it is not JSON" in str(found)


def test_empty_only_where_it_is_allowed() -> None:
    for raw in (b"[]", b"", b"\n\n"):
        assert feeds.rows(raw, allow_empty=True) == feeds.Rows(())
        assert isinstance(feeds.rows(raw), errors.StreamError)
    assert isinstance(feeds.rows(b"[1]", allow_empty=True), errors.StreamError)


@pytest.mark.parametrize(
    "url",
    [
        "http://example.invalid/rows", "ftp://127.0.0.1/", "https://user:pass@example.invalid/", "rows.json", "", "https://",
        "http://127.0.0.1.example.invalid/", "http://2130706433/", "https://exa mple/", "https://h:0/", "https://[::1/",
    ],
)  # fmt: skip
def test_addresses_that_are_refused(web: feeds.Web, url: str) -> None:
    with pytest.raises(errors.StreamError) as caught:
        feeds.fetch_rows(url, web=web)
    assert caught.value.code == "address-refused"
    assert not url or url not in str(caught.value)


def test_nobody_listens(web: feeds.Web, clock: loopback.FakeClock) -> None:
    with loopback.serving() as gone:
        url = gone.url
    with pytest.raises(errors.StreamError) as caught:
        feeds.fetch_json(url, web=web)
    assert caught.value.code == "feed-unavailable"
    assert len(clock.slept) == 2


@pytest.fixture
def certificate(tmp_path: Path) -> ssl.SSLContext:
    """A server's side of TLS with a certificate that nobody has signed."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    path = tmp_path / "server.pem"
    path.write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()) + made.public_bytes(pem)
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    return context


def test_tls_failures_are_final(certificate: ssl.SSLContext, web: feeds.Web, clock: loopback.FakeClock) -> None:
    """One connection, no wait, and a code of its own: a person has to look."""
    hands = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with connection, contextlib.suppress(OSError):
                        hands.append(1)
                        certificate.wrap_socket(connection, server_side=True).close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        with pytest.raises(errors.StreamError) as caught:
            feeds.fetch_json(f"https://127.0.0.1:{server.getsockname()[1]}/rows", name="rows", web=web)
        server.shutdown(socket.SHUT_RDWR)
        thread.join(5)
    assert (caught.value.code, caught.value.exit_status) == ("tls-failed", 2)
    assert (hands, clock.slept) == ([1], [])


def test_the_deadline_is_the_callers(host: loopback.Loopback, web: feeds.Web, clock: loopback.FakeClock) -> None:
    error = fails(host, web, loopback.Reply(status=503, headers={"Retry-After": "50"}), deadline=clock.monotonic() + 20)
    assert (error.code, host.gets("/rows.json"), clock.slept) == ("feed-unavailable", 1, [])


def test_documents(host: loopback.Loopback, web: feeds.Web) -> None:
    host.reply("/one", loopback.Reply(b'{"free": 3}'))
    assert feeds.fetch_json(f"{host.url}/one", shape="object", headers={"X-Key": "k"}, web=web) == {"free": 3}
    assert host.asked[0].headers["x-key"] == "k"
    for shape, raw, said in (
        ("list", b"{}", "an object, and a list"),
        ("object", b"[]", "a list, and an object"),
        ("object", b"3", "a number, and an object"),
        ("object", b"true", "true or false, and an object"),
        ("list", b"null", "null, and a list"),
        ("list", b'"x"', "a text, and a list"),
        ("any", b"{", "not JSON"),
        ("any", b"\xff\xfe{", "not UTF-8"),
        ("any", b"\xef\xbb\xbf{}", "byte order mark"),
    ):
        host.reply("/one", loopback.Reply(raw))
        with pytest.raises(errors.StreamError, match=said) as caught:
            feeds.fetch_json(f"{host.url}/one", shape=shape, web=web)  # type: ignore[arg-type]
        assert caught.value.code == "feed-invalid"


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_bytes(json.dumps(ROWS).encode())
    assert feeds.read_rows(str(path)).rows == tuple(ROWS)
    with pytest.raises(errors.StreamError, match="larger than the limit of 5 bytes"):
        feeds.read_rows(str(path), limit_bytes=5)
    with pytest.raises(errors.StreamError, match="cannot be read: No such file") as caught:
        feeds.read_rows(str(tmp_path / "none"))
    assert caught.value.code == "feed-unavailable"
    path.write_bytes(b"\n" * 100_000 + b"{}")
    with pytest.raises(errors.StreamError, match="more than the limit of 100000 lines"):
        feeds.read_rows(str(path))


# -- posting


def test_a_post_is_sent_once_and_its_clear_answers_are_values(host: loopback.Loopback) -> None:
    host.reply("/p", loopback.Reply(b'{"id": 1}', 201), loopback.Reply(b"", 204), loopback.Reply(b"no", 409))
    url = f"{host.url}/p"
    first = feeds.post_json(url, {"a": 1}, headers={"Authorization": "Bearer x"})
    assert first.good
    assert first.value == {"id": 1}
    assert (host.asked[0].method, json.loads(host.asked[0].body)) == ("POST", {"a": 1})
    assert feeds.post_json(url, {}).good
    assert feeds.post_json(url, {}) == feeds.Posted(409)
    assert len(host.asked) == 3


@pytest.mark.parametrize("status", [400, 401, 404, 422, 429, 302])
def test_a_clear_no_to_a_post_is_not_tried_again(host: loopback.Loopback, status: int) -> None:
    host.reply("/p", loopback.Reply(b"{}", status))
    assert feeds.post_json(f"{host.url}/p", {}) == feeds.Posted(status)
    assert len(host.asked) == 1


@pytest.mark.parametrize("reply", [loopback.Reply(b"{}", 500), loopback.Reply(raw=b""), loopback.Reply(b"{}", 503)])
def test_a_post_without_a_clear_answer_is_unclear_and_not_repeated(
    host: loopback.Loopback, reply: loopback.Reply
) -> None:
    host.reply("/p", reply)
    with pytest.raises(tree.UnclearWriteError, match="the plane"):
        feeds.post_json(f"{host.url}/p", {}, name="the plane")
    assert len(host.asked) == 1


def test_an_answer_to_a_post_is_bounded_and_may_be_anything(host: loopback.Loopback) -> None:
    host.reply("/p", loopback.Reply(b"<html>"))
    assert feeds.post_json(f"{host.url}/p", {}) == feeds.Posted(200)
    host.reply("/q", loopback.Reply(b'"' + b"x" * 5000 + b'"'))
    with pytest.raises(errors.StreamError, match="larger"):
        feeds.post_json(f"{host.url}/q", {}, limit_bytes=1000)
    with pytest.raises(errors.StreamError):
        feeds.post_json("http://example.com/p", {})


@pytest.mark.parametrize("bad", [b"", b", NaN"])
def test_rows_of_a_list_at_the_limit_pass_and_one_above_fails(bad: bytes) -> None:
    """Also where an item makes the list be cut one by one."""
    at = b'[{"a": 1}, {"a": 2}%b]' % bad
    assert feeds.rows(at, limit_rows=3 if bad else 2).rows == ({"a": 1}, {"a": 2})  # type: ignore[union-attr]
    above = feeds.rows(at, name="the rows", limit_rows=2 if bad else 1)
    assert isinstance(above, errors.StreamError)
    assert (above.code, str(above)) == ("feed-invalid", f"the rows has more than the limit of {2 if bad else 1} rows")


def test_a_list_of_millions_is_not_held_in_memory() -> None:
    """Two bytes an item: 8 MB are 4 million items of 50 bytes each, of which the bound lets no more than 1000 be made."""
    data = b"[" + b"0," * (feeds.COMMAS + 1) + b"0]"
    tracemalloc.start()
    try:
        found = feeds.rows(data, limit_rows=1000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert isinstance(found, errors.StreamError)
    assert peak < 3 * len(data)
