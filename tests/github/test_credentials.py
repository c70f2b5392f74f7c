"""Where the token of the REST gateway goes, and where it must not: addresses, logs, other hosts, stores of artifacts."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from klaud import errors
from tests.support import loopback
from tests.support.answers import BASE, RUNS, TOKEN, first, page, paths, run, said
from tests.support.loopback import Reply

if TYPE_CHECKING:
    from klaud.github import rest


def test_the_token_is_in_no_address_and_no_log(
    server: loopback.Loopback, hub: rest.RestGateway, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    hub.run(9)
    server.reply(f"{RUNS}/9", Reply(status=500))
    with pytest.raises(errors.ReadFailedError) as caught:
        hub.run(9)
    assert TOKEN not in f"{caplog.text} {caught.value} {caught.value.advice} {paths(server)} {hub!r}"
    assert all(TOKEN in asked.headers["authorization"] for asked in server.asked)


def test_a_renamed_repository_is_followed_for_reads_with_its_query(
    server: loopback.Loopback, hub: rest.RestGateway
) -> None:
    server.reply(
        first("status=queued"), Reply(status=301, headers={"Location": "/repositories/1/actions/runs?status=queued"})
    )
    server.reply("/repositories/1/actions/runs?status=queued", page([run(1)], 1))
    assert [one.id for one in hub.runs(status="queued").items] == [1]


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_no_redirect_takes_the_token_to_another_host(
    server: loopback.Loopback, hub: rest.RestGateway, status: int
) -> None:
    with loopback.serving() as elsewhere:
        server.reply(f"{RUNS}/9", Reply(status=status, headers={"Location": f"{elsewhere.url}/x"}))
        server.reply(f"{BASE}/issues/3/comments", Reply(status=status, headers={"Location": f"{server.url}/x"}))
        with pytest.raises(errors.ReadFailedError, match="unexpected answer") as caught:
            hub.run(9)
        assert "moved" in caught.value.advice
        with pytest.raises(errors.RefusedWriteError):
            hub.comment(3, "a write is not sent anywhere else, not even on the same host")
        assert elsewhere.asked == []
        assert not server.gets("/x")


def test_redirects_are_bounded(server: loopback.Loopback, hub: rest.RestGateway) -> None:
    server.reply(f"{RUNS}/9", Reply(status=302, headers={"Location": f"{RUNS}/9"}))
    with pytest.raises(errors.ReadFailedError):
        hub.run(9)
    assert len(server.asked) == 4


def artifact(server: loopback.Loopback, location: str) -> None:
    server.reply(f"{BASE}/actions/artifacts/5/zip", Reply(status=302, headers={"Location": location}))


@pytest.mark.parametrize("same_host", [True, False])
def test_an_artifact_is_fetched_without_the_token(
    server: loopback.Loopback, hub: rest.RestGateway, same_host: bool
) -> None:
    with loopback.serving() as elsewhere:
        store = server if same_host else elsewhere
        artifact(server, f"{store.url}/blob?sig=secret-signature")
        store.reply("/blob?sig=secret-signature", Reply(b"PK bytes \xff"))
        assert hub.download_artifact(5, 100) == b"PK bytes \xff"
        assert "authorization" in server.asked[0].headers
        assert "authorization" not in store.asked[-1].headers


def test_an_artifact_is_bounded_and_its_failures_are_named_without_the_signed_address(
    server: loopback.Loopback, hub: rest.RestGateway
) -> None:
    artifact(server, f"{server.url}/blob?sig=secret-signature")
    server.reply("/blob?sig=secret-signature", Reply(b"x" * 101))
    with pytest.raises(errors.ReadFailedError, match="limit of 100") as caught:
        hub.download_artifact(5, 100)
    assert "secret-signature" not in str(caught.value)
    for reply in (Reply(status=403), Reply(status=500), Reply(b"x", length=50, cut=True), Reply(raw=b"")):
        server.reply("/blob?sig=secret-signature", reply)
        with pytest.raises(errors.ReadFailedError) as failed:
            hub.download_artifact(5, 100)
        assert "secret-signature" not in f"{failed.value}"
    artifact(server, "http://127.0.0.1:9/blob?sig=secret-signature")
    with pytest.raises(errors.ReadFailedError) as dead:
        hub.download_artifact(5, 100)
    assert "secret-signature" not in f"{dead.value}"
    server.reply(f"{BASE}/actions/artifacts/5/zip", said({"message": "Artifact has expired"}, 410))
    with pytest.raises(errors.ReadFailedError, match="410"):
        hub.download_artifact(5, 100)


def test_an_artifact_is_one_redirect_away_over_https(server: loopback.Loopback, hub: rest.RestGateway) -> None:
    """A store that sends further, and an address in the clear that is not of this machine, are not followed."""
    with loopback.serving() as elsewhere:
        artifact(server, f"{server.url}/blob?sig=secret-signature")
        server.reply(
            "/blob?sig=secret-signature", Reply(status=302, headers={"Location": f"{elsewhere.url}/secret-signature"})
        )
        with pytest.raises(errors.ReadFailedError, match="HTTP 302 from its store") as further:
            hub.download_artifact(5, 100)
        assert elsewhere.asked == []
    artifact(server, "http://store.invalid/blob?sig=secret-signature")
    with pytest.raises(errors.ReadFailedError, match="the address is http, and not of this machine") as clear:
        hub.download_artifact(5, 100)
    for caught in (further, clear):
        assert caught.value.__cause__ is None
        assert "secret-signature" not in f"{caught.value} {caught.value.__context__!r}"
