# ruff: noqa: N802 - tests carry the ids of the oddities and contracts they show
"""The git ref store over a real bare repository: the contracts, lost replies, races, and where the token goes."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from klaud import clock, errors
from klaud.github import refs
from klaud.github.gateway import RefRejected, RefSuperseded, RefUnclear, RefUpdate, RefUpdated
from tests.support import githttp, loopback, ref_store_contract
from tests.support.git_stores import LEDGER, ME, QUICK, TOKEN, A, B, posts

if TYPE_CHECKING:
    from collections.abc import Callable

    from klaud.github.gateway import RefStore


class TestContract(ref_store_contract.RefStoreContract):
    """The git store keeps R01 to R19."""


# -- unclear and failed


def lose_push(method: str, path: str) -> githttp.Fault | None:
    return githttp.Fault(lose=True) if method == "POST" and path.endswith("git-receive-pack") else None


def test_L22_a_lost_reply_is_unclear_and_the_push_is_not_repeated(
    host: githttp.GitHost, connect: Callable[..., RefStore]
) -> None:
    store = connect()
    oid = store.write_commit(b"1\n")
    host.fault = lose_push
    assert list(store.apply([RefUpdate(A, None, oid)])) == [RefUnclear(A)]
    assert posts(host) == 1
    assert host.refs() == {A: oid}


@pytest.mark.parametrize("status", [500, 502, 503])
def test_a_5xx_on_a_push_is_unclear(host: githttp.GitHost, connect: Callable[..., RefStore], status: int) -> None:
    store = connect()
    oid = store.write_commit(b"1\n")
    host.fault = lambda method, _path: githttp.Fault(status=status) if method == "POST" else None
    assert list(store.apply([RefUpdate(A, None, oid)])) == [RefUnclear(A)]
    assert posts(host) == 1


def test_a_cut_report_is_unclear(host: githttp.GitHost, connect: Callable[..., RefStore]) -> None:
    store = connect()
    oid = store.write_commit(b"1\n")
    host.fault = lambda method, _path: githttp.Fault(cut_after=10) if method == "POST" else None
    assert list(store.apply([RefUpdate(A, None, oid)])) == [RefUnclear(A)]


@pytest.mark.parametrize("status", [401, 403])
def test_L77_a_refused_token_is_forbidden_and_names_the_permission(
    host: githttp.GitHost, connect: Callable[..., RefStore], status: int
) -> None:
    store = connect()
    oid = store.write_commit(b"1\n")
    host.fault = lambda _method, _path: githttp.Fault(status=status)
    with pytest.raises(errors.ForbiddenError, match=str(status)) as caught:
        store.list(["refs/klaud/"])
    assert "contents" in caught.value.advice
    with pytest.raises(errors.ForbiddenError):
        store.apply([RefUpdate(A, None, oid)])
    assert len(host.log) == 2, "a refusal is not tried again"


def test_a_refused_push_is_forbidden_too(host: githttp.GitHost, connect: Callable[..., RefStore]) -> None:
    store = connect()
    oid = store.write_commit(b"1\n")
    host.fault = lambda method, _path: githttp.Fault(status=403) if method == "POST" else None
    with pytest.raises(errors.ForbiddenError):
        store.apply([RefUpdate(A, None, oid)])


def test_a_failing_listing_is_tried_again_and_then_an_error(
    host: githttp.GitHost, connect: Callable[..., RefStore], ticking: loopback.FakeClock
) -> None:
    host.fault = lambda _method, _path: githttp.Fault(status=502)
    with pytest.raises(errors.ReadFailedError, match="502"):
        connect().list(["refs/klaud/"])
    assert len(host.log) == QUICK.tries
    assert ticking.slept == [0.5, 1.0]


def test_a_listing_heals(host: githttp.GitHost, connect: Callable[..., RefStore]) -> None:
    faults = iter([githttp.Fault(status=502), githttp.Fault(status=429, headers={"Retry-After": "7"})])
    host.fault = lambda _method, _path: next(faults, None)
    assert connect().list(["refs/klaud/"]) == {}


def test_a_truncated_listing_is_an_error_never_a_short_list(
    host: githttp.GitHost, connect: Callable[..., RefStore]
) -> None:
    store = connect()
    oid = store.write_commit(b"1\n")
    store.apply([RefUpdate(f"refs/klaud/claims/{n:016x}", None, oid) for n in range(30)])
    for cut in (0, 40, 90, 500):
        host.fault = lambda method, _path, cut=cut: githttp.Fault(cut_after=cut) if method == "POST" else None  # type: ignore[misc]
        with pytest.raises(errors.ReadFailedError):
            store.list(["refs/klaud/"])


@pytest.mark.parametrize("answer", [b"<html>hello</html>", b"", b"001e# service=git-upload-pack\n0000", b"zzzz"])
def test_a_host_that_is_no_git_host_is_an_error(
    host: githttp.GitHost, connect: Callable[..., RefStore], answer: bytes
) -> None:
    kind = "application/x-git-upload-pack-advertisement" if answer[:3] in {b"001", b"zzz"} else "text/html"
    host.fault = lambda _method, _path: githttp.Fault(status=200, headers={"Content-Type": kind}, body=answer)
    with pytest.raises(errors.ReadFailedError):
        connect().list(["refs/klaud/"])


def test_an_unreachable_host_is_an_error_with_the_address(connect: Callable[..., RefStore]) -> None:
    store = connect(url="http://127.0.0.1:9/acme/bench.git")
    with pytest.raises(errors.ReadFailedError, match=r"127\.0\.0\.1:9") as caught:
        store.list(["refs/klaud/"])
    assert "refused" in str(caught.value)
    assert "Pool" not in str(caught.value), "no library's name for a person to wonder at"
    oid = store.write_commit(b"1\n")
    with pytest.raises(errors.ReadFailedError):
        store.apply([RefUpdate(A, None, oid)])


def test_a_missing_repository_is_an_error(connect: Callable[..., RefStore], host: githttp.GitHost) -> None:
    with pytest.raises(errors.ForbiddenError, match="404") as caught:
        connect(url=host.url.replace("bench", "absent")).list(["refs/klaud/"])
    assert "name" in caught.value.advice
    assert len(host.log) == 1


# -- races


def test_a_ref_that_moves_between_advertisement_and_lock_is_superseded(
    host: githttp.GitHost, connect: Callable[..., RefStore]
) -> None:
    store = connect()
    first, second, third = (store.write_commit(text) for text in (b"1\n", b"2\n", b"3\n"))
    store.apply([RefUpdate(A, None, first), RefUpdate(B, None, second)])

    def race(method: str, path: str) -> None:
        if method == "POST" and path.endswith("git-receive-pack"):
            host.set(A, second)

    host.before = race
    answers = store.apply([RefUpdate(A, first, third), RefUpdate(B, second, third)])
    assert list(answers) == [RefSuperseded(A, second), RefUpdated(B)]
    assert host.refs() == {A: second, B: third}


def test_a_ref_that_appears_or_goes_in_the_gap_is_superseded(
    host: githttp.GitHost, connect: Callable[..., RefStore]
) -> None:
    store = connect()
    first, second = store.write_commit(b"1\n"), store.write_commit(b"2\n")
    store.apply([RefUpdate(B, None, first)])

    def race(method: str, path: str) -> None:
        if method == "POST" and path.endswith("git-receive-pack"):
            host.set(A, first)
            host.git("update-ref", "-d", B)

    host.before = race
    answers = store.apply([RefUpdate(A, None, second), RefUpdate(B, first, second)])
    assert list(answers) == [RefSuperseded(A, first), RefSuperseded(B, None)]


def test_the_gap_of_an_atomic_push_moves_nothing(host: githttp.GitHost, connect: Callable[..., RefStore]) -> None:
    store = connect()
    first, second, third = (store.write_commit(text) for text in (b"1\n", b"2\n", b"3\n"))
    store.apply([RefUpdate(A, None, first), RefUpdate(B, None, first)])

    def race(method: str, path: str) -> None:
        if method == "POST" and path.endswith("git-receive-pack"):
            host.set(A, second)

    host.fault = lambda _m, _p: None
    store.apply([RefUpdate(LEDGER, None, second)])
    host.before = race
    answers = store.apply([RefUpdate(A, first, third), RefUpdate(B, first, third)], atomic=True)
    assert answers[0] == RefSuperseded(A, second)
    assert isinstance(answers[1], RefRejected)
    assert host.refs()[B] == first


class BlindStore(refs.GitRefStore):
    """The broken twin: it ignores what was expected and pushes over whatever stands there."""

    def apply(self, updates: object, *, atomic: bool = False) -> object:  # type: ignore[override]
        now = self.list([update.ref for update in updates])  # type: ignore[attr-defined]
        seen = [RefUpdate(update.ref, now.get(update.ref), update.new) for update in updates]  # type: ignore[attr-defined]
        return super().apply(seen, atomic=atomic)


@pytest.mark.parametrize("name", ["R02", "R03", "R04"])
def test_the_contract_catches_a_store_that_ignores_the_expectation(name: str, host: githttp.GitHost) -> None:
    def make() -> BlindStore:
        return BlindStore(url=host.url, token=TOKEN, identity=ME, clock=clock.SystemClock())

    contract = ref_store_contract.RefStoreContract()
    method = next(value for key, value in vars(type(contract)).items() if key.startswith(f"test_{name}"))
    with pytest.raises(AssertionError):
        method(contract, make)


# -- the token


def test_the_token_is_in_no_address_argument_or_log(
    host: githttp.GitHost, connect: Callable[..., refs.GitRefStore], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    store = connect()
    oid = store.write_commit(b"1\n")
    store.apply([RefUpdate(A, None, oid)])
    connect().read([oid])
    host.fault = lambda _method, _path: githttp.Fault(status=500)
    with pytest.raises(errors.ReadFailedError) as caught:
        store.list(["refs/klaud/"])
    whole = [caplog.text, str(caught.value), caught.value.advice, *(path for _method, path in host.log)]
    whole += [repr(store), json.dumps([host.url])]
    assert not [text for text in whole if TOKEN in text]
    assert all("authorization" in map(str.lower, headers) for headers in host.headers_seen)


def test_the_token_does_not_follow_a_redirect_to_another_host(connect: Callable[..., RefStore]) -> None:
    with loopback.serving() as elsewhere, loopback.serving() as moved:
        path = "/acme/bench.git/info/refs?service=git-upload-pack"
        moved.reply(path, loopback.Reply(status=302, headers={"Location": f"{elsewhere.url}{path}"}))
        with pytest.raises(errors.ForbiddenError, match="404"):
            connect(url=f"{moved.url}/acme/bench.git").list(["refs/klaud/"])
        assert any("authorization" in asked.headers for asked in moved.asked)
        assert elsewhere.asked
        assert not any("authorization" in asked.headers for asked in elsewhere.asked)


def test_no_program_is_started(host: githttp.GitHost) -> None:
    """The store is in process: a client without PATH works, and starts nothing that an argument list could show."""
    code = (
        "import sys\n"
        "def watch(event, arguments):\n"
        "    if event in {'subprocess.Popen', 'os.exec', 'os.posix_spawn', 'os.system', 'os.fork'}: raise SystemExit(9)\n"
        "sys.addaudithook(watch)\n"
        "from klaud import clock\nfrom klaud.github import refs, gateway\n"
        f"store = refs.GitRefStore(url={host.url!r}, token=sys.stdin.read(), clock=clock.SystemClock(),\n"
        "    identity=refs.Identity('k', 'k@example.invalid'))\n"
        f"oid = store.write_commit(b'1')\nprint(store.apply([gateway.RefUpdate({A!r}, None, oid)]))\n"
        f"print(store.read([oid]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=TOKEN,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={"PATH": "/none"},
    )
    assert done.returncode == 0, done.stderr
    assert "RefUpdated" in done.stdout
