"""An app's token: minted with the app's key, renewed before its hour is over, and shown to nobody."""

from __future__ import annotations

import datetime
import json
from typing import TYPE_CHECKING

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from klaud import errors
from klaud.github import app, rest
from tests.support import loopback

if TYPE_CHECKING:
    from collections.abc import Iterator

KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
PEM = KEY.private_bytes(
    serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
).decode()
START = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.at = START

    def now(self) -> datetime.datetime:
        return self.at

    def monotonic(self) -> float:
        return (self.at - START).total_seconds()

    def sleep(self, seconds: float) -> None:
        self.at += datetime.timedelta(seconds=seconds)


class Host:
    """A GitHub that knows one app on one repository and counts what it mints."""

    def __init__(self, server: loopback.Loopback, clock: Clock) -> None:
        self.server = server
        self.clock = clock
        self.minted = 0
        self.status = 201
        self.failing = 0
        server.handler = self.answer

    def answer(self, asked: loopback.Asked) -> loopback.Reply | None:
        headers = {name.lower(): value for name, value in asked.headers.items()}
        kind, _, credential = headers.get("authorization", "").partition(" ")
        if asked.path == "/user":
            assert credential == f"minted-{self.minted}"
            return self.reply(200, {"id": 1, "login": "app[bot]", "type": "Bot"})
        claims = jwt.decode(credential, KEY.public_key(), algorithms=["RS256"], options={"verify_exp": False})
        assert claims["iss"] == "77"
        assert kind == "Bearer"
        if self.failing:
            self.failing -= 1
            return self.reply(502, {"message": "bad gateway"})
        if asked.path == "/repos/acme/bench/installation":
            return self.reply(200, {"id": 5, "app_id": 77})
        assert asked.path == "/app/installations/5/access_tokens"
        self.minted += self.status == 201
        until = self.clock.at + datetime.timedelta(hours=1)
        made = {"token": f"minted-{self.minted}", "expires_at": until.strftime("%Y-%m-%dT%H:%M:%SZ"), "permissions": {}}
        return self.reply(self.status, made if self.status == 201 else {"message": "no"})

    @staticmethod
    def reply(status: int, body: object) -> loopback.Reply:
        return loopback.Reply(json.dumps(body).encode(), status, {"Content-Type": "application/json"})


@pytest.fixture
def host() -> Iterator[Host]:
    with loopback.serving() as server:
        yield Host(server, Clock())


@pytest.fixture
def token(host: Host) -> Iterator[app.AppToken]:
    made = app.AppToken(app_id="77", key=PEM, repository="acme/bench", api_url=host.server.url, clock=host.clock)
    yield made
    made.close()


def test_one_token_serves_until_ten_minutes_before_its_end_and_then_another_does(
    host: Host, token: app.AppToken
) -> None:
    assert [token(), token()] == ["minted-1", "minted-1"]
    host.clock.sleep(3600 - app.RENEW_SECONDS - 1)
    assert token() == "minted-1"
    host.clock.sleep(2)
    assert token() == "minted-2"
    assert sum(one.path.endswith("/installation") for one in host.server.asked) == 1


def test_a_gateways_requests_carry_the_token_of_their_time(host: Host, token: app.AppToken) -> None:
    gateway = rest.RestGateway(repository="acme/bench", token=token, api_url=host.server.url, clock=host.clock)
    assert gateway.account().login == "app[bot]"
    host.clock.sleep(3500)
    assert gateway.account().login == "app[bot]"
    assert host.minted == 2
    gateway.close()


@pytest.mark.parametrize(
    ("status", "kind"), [(401, errors.ForbiddenError), (404, errors.ForbiddenError), (502, errors.ReadFailedError)]
)
def test_a_refusal_says_what_to_check(host: Host, token: app.AppToken, status: int, kind: type[Exception]) -> None:
    host.status = status
    with pytest.raises(kind, match="no token for acme/bench"):
        token()


def test_a_key_that_is_none_is_refused_and_not_shown(host: Host) -> None:
    made = app.AppToken(
        app_id="77", key="my secret", repository="acme/bench", api_url=host.server.url, clock=host.clock
    )
    with pytest.raises(errors.ForbiddenError) as caught:
        made()
    assert "my secret" not in f"{caught.value} {caught.value.advice} {made!r}"
    made.close()


def test_nothing_shows_the_key_or_the_token(token: app.AppToken) -> None:
    token()
    assert repr(token) == "AppToken(acme/bench)"


def test_a_renewal_that_nobody_answers_is_tried_again(host: Host, token: app.AppToken) -> None:
    host.failing = 2
    assert token() == "minted-1"
    assert host.clock.at > START


def test_a_token_that_is_still_good_serves_while_renewals_fail(host: Host, token: app.AppToken) -> None:
    token()
    host.failing = 100
    host.clock.sleep(3600 - app.RENEW_SECONDS + 1)
    asked = len(host.server.asked)
    assert [token() for _ in range(5)] == ["minted-1"] * 5
    assert len(host.server.asked) == asked + 1, "one try for all five"
    host.clock.sleep(app.SPARE_SECONDS)
    assert token() == "minted-1"
    assert len(host.server.asked) == asked + 2
    host.clock.sleep(app.RENEW_SECONDS)
    with pytest.raises(errors.ReadFailedError):
        token()
    host.failing = 0
    assert token() == "minted-2"
