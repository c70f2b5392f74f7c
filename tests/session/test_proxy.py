"""The proxy holds the key, forwards the Messages API only, counts, and stops at the budget."""

from __future__ import annotations

import http.client
import json
import socket
from typing import TYPE_CHECKING, Any

import pytest

from klaud.session import model, proxy
from tests.support import messages_api

if TYPE_CHECKING:
    from collections.abc import Iterator

REPLY = [{"type": "text", "text": "hello"}]
BODY = {"model": "claude-x", "stream": True, "messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture
def api() -> Iterator[messages_api.MessagesApi]:
    with messages_api.serve([REPLY] * 50) as served:
        yield served


def serve(api: messages_api.MessagesApi, budgets: model.Budgets | None = None, **more: Any) -> proxy.Proxy:
    meter = proxy.Meter(budgets or model.Budgets(), more.pop("prices", {}), **more.pop("before", {}))
    return proxy.Proxy(proxy.Upstream(api.url, messages_api.KEY, more.pop("kind", "api-key")), meter, **more)


def ask(
    port: int, key: str, *, path: str = "/v1/messages?beta=true", body: Any = BODY, method: str = "POST", **headers: str
) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request(
        method, path, json.dumps(body).encode(), {"x-api-key": key, "content-type": "application/json", **headers}
    )
    answer = connection.getresponse()
    data = answer.read()
    connection.close()
    return answer.status, data


def test_a_request_is_forwarded_with_the_real_key_and_counted(api: messages_api.MessagesApi) -> None:
    with serve(api) as server:
        port = server.listen()
        status, data = ask(port, server.key)
        assert status == 200
        assert b"hello" in data
        assert ask(port, server.key, body={**BODY, "stream": False})[0] == 200
        meter = server.meter
        assert (meter.calls, meter.input_tokens, meter.output_tokens) == (2, 2000, 200)
        assert meter.microdollars == pytest.approx(2 * (1000 * 15 + 100 * 75))
        assert messages_api.KEY not in repr(server.upstream) + data.decode()
    assert api.keys == {messages_api.KEY}


def test_a_subscription_is_a_bearer_token(api: messages_api.MessagesApi) -> None:
    with serve(api, kind="bearer") as server:
        status, _ = ask(server.listen(), "", authorization=f"Bearer {server.key}")
        assert status == 200
    assert api.keys == {f"Bearer {messages_api.KEY}"}


@pytest.mark.parametrize("key", ["", "wrong", messages_api.KEY])
def test_only_this_sessions_dummy_key_is_good(api: messages_api.MessagesApi, key: str) -> None:
    with serve(api) as server:
        assert ask(server.listen(), key)[0] == 401
    assert api.asked == 0


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/v1/messages"), ("POST", "/v1/files"), ("POST", "/"), ("DELETE", "/v1/messages"), ("PUT", "/v1/messages"),
     ("POST", "/v1/messages/batches"), ("POST", "http://169.254.169.254/v1/files")],
)  # fmt: skip
def test_nothing_else_is_forwarded(api: messages_api.MessagesApi, method: str, path: str) -> None:
    with serve(api) as server:
        assert ask(server.listen(), server.key, method=method, path=path)[0] in {404, 403}
    assert api.paths == []


def test_the_budget_stops_the_session(api: messages_api.MessagesApi) -> None:
    with serve(api, model.Budgets(tokens=2000)) as server:
        port = server.listen()
        assert [ask(port, server.key)[0] for _ in range(3)] == [200, 200, 400]
        assert "2000 tokens" in server.exhausted
        status, data = ask(port, server.key)
        assert status == 400
        assert b"stopped by klaud" in data
    assert api.asked == 2


def test_what_earlier_turns_spent_counts(api: messages_api.MessagesApi) -> None:
    with serve(api, model.Budgets(dollars=1), before={"microdollars": 1_000_000}) as server:
        assert ask(server.listen(), server.key)[0] == 400
        assert "1 dollars" in server.exhausted
    with serve(api, model.Budgets(dollars=0)) as server:
        assert ask(server.listen(), server.key)[0] == 400


def test_prices_are_the_longest_name_that_fits(api: messages_api.MessagesApi) -> None:
    prices = {"claude": model.Price(input=1.0), "claude-x": model.Price(input=2.0, output=0.0), "other": model.Price()}
    with serve(api, prices=prices) as server:
        ask(server.listen(), server.key)
        assert server.meter.microdollars == pytest.approx(2000)
        assert server.meter.price("unknown") == model.Price()


def test_a_request_without_its_length_or_above_the_limit_is_refused(api: messages_api.MessagesApi) -> None:
    with serve(api) as server:
        port = server.listen()
        for header in ("", "content-length: 99999999999\r\n", "content-length: -1\r\n", "content-length: x\r\n"):
            with socket.create_connection(("127.0.0.1", port), timeout=5) as raw:
                raw.sendall(f"POST /v1/messages HTTP/1.1\r\nhost: x\r\n{header}\r\n".encode())
                assert b" 413 " in raw.recv(100)
    assert api.asked == 0


def test_a_model_host_that_is_gone_is_an_error_for_the_agent_only() -> None:
    meter = proxy.Meter(model.Budgets(), {})
    with proxy.Proxy(proxy.Upstream("http://127.0.0.1:9", "k"), meter) as server:
        assert ask(server.listen(), server.key)[0] == 502


@pytest.mark.parametrize("target", ["example.com:443", "127.0.0.1:443", "169.254.169.254:80", "allowed.invalid:80"])
def test_egress_is_closed_but_for_the_allowed_names(api: messages_api.MessagesApi, target: str) -> None:
    with (
        serve(api, egress=("allowed.invalid",)) as server,
        socket.create_connection(("127.0.0.1", server.listen())) as raw,
    ):
        raw.sendall(f"CONNECT {target} HTTP/1.1\r\nhost: {target}\r\n\r\n".encode())
        assert b" 403 " in raw.recv(100)


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "169.254.169.254", "10.0.0.1", "::1", "nowhere.invalid"])
def test_an_allowed_name_with_a_private_address_is_refused(api: messages_api.MessagesApi, name: str) -> None:
    with serve(api, egress=(name,)) as server, socket.create_connection(("127.0.0.1", server.listen())) as raw:
        raw.sendall(f"CONNECT {name}:443 HTTP/1.1\r\nhost: {name}\r\n\r\n".encode())
        assert b" 502 " in raw.recv(100)


@pytest.mark.parametrize("cut", [1, 7, 100, 5000])
def test_usage_is_found_however_the_stream_is_cut(cut: int) -> None:
    lines = [
        {"type": "message_start", "message": {"model": "m", "usage": {"input_tokens": 5, "output_tokens": 1}}},
        {"type": "content_block_delta", "delta": {"text": '{"usage": {"input_tokens": 999}}'}},
        {"type": "message_delta", "usage": {"output_tokens": 7, "cache_read_input_tokens": 3}},
    ]
    text = "".join(f"event: x\ndata: {json.dumps(line)}\n\n" for line in lines).encode()
    count = proxy.Counter()
    for start in range(0, len(text), cut):
        count.feed(text[start : start + cut])
    assert count.done() == ("m", {"input_tokens": 5, "output_tokens": 7, "cache_read_input_tokens": 3})


@pytest.mark.parametrize("text", [b"not json", b"[1]", b"data: {", b'{"usage": 7, "model": 3}', b"{" * 5000, b""])
def test_an_answer_that_says_nothing_counts_nothing(text: bytes) -> None:
    count = proxy.Counter()
    count.feed(text)
    assert count.done() == ("", {})


def test_a_line_without_an_end_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy, "LINE_BYTES", 100)
    count = proxy.Counter()
    for _ in range(20):
        count.feed(b"x" * 50)
    count.feed(b'\n{"model": "m", "usage": {"input_tokens": 1}}\n')
    assert count.done() == ("m", {"input_tokens": 1})
