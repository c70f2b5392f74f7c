# ruff: noqa: N802 - tests carry the ids of the oddities and contracts they show
"""The git ref store over a real bare repository: the contracts, lost replies, races, halving, and where the token goes."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import random
import subprocess
import sys
import zlib
from typing import TYPE_CHECKING

import dulwich.errors
import pytest
from dulwich import object_format, objects, pack
from dulwich.repo import Repo
from hypothesis import given, settings
from hypothesis import strategies as st

from klaud import clock, errors
from klaud.github import gateway, gitwire, refs, retry
from klaud.github.gateway import RefRejected, RefSuperseded, RefUnclear, RefUpdate, RefUpdated
from tests.support import githttp, loopback, ref_store_contract

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from klaud.github.gateway import RefStore

TOKEN = "canary-5f1e9c"
ME = refs.Identity("klaud", "klaud@example.invalid")
A, B, LEDGER = ref_store_contract.A, ref_store_contract.B, ref_store_contract.LEDGER
QUICK = retry.Policy(tries=3, first_wait=0.5)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[githttp.GitHost]:
    with githttp.serve(tmp_path, token=TOKEN) as served:
        yield served


@pytest.fixture
def ticking() -> loopback.FakeClock:
    return loopback.FakeClock()


@pytest.fixture
def connect(host: githttp.GitHost, ticking: loopback.FakeClock) -> Callable[..., refs.GitRefStore]:
    def make(**options: object) -> refs.GitRefStore:
        given = {"url": host.url, "token": TOKEN, "identity": ME, "clock": ticking, "policy": QUICK, **options}
        return refs.GitRefStore(**given)  # type: ignore[arg-type]

    return make


class TestContract(ref_store_contract.RefStoreContract):
    """The git store keeps R01 to R19."""


def posts(host: githttp.GitHost) -> int:
    return sum(path.endswith("/git-receive-pack") and method == "POST" for method, path in host.log)


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
    with pytest.raises(errors.ReadFailedError, match=r"127\.0\.0\.1:9"):
        store.list(["refs/klaud/"])
    oid = store.write_commit(b"1\n")
    with pytest.raises(errors.ReadFailedError):
        store.apply([RefUpdate(A, None, oid)])


def test_a_missing_repository_is_an_error(connect: Callable[..., RefStore], host: githttp.GitHost) -> None:
    with pytest.raises(errors.ReadFailedError, match="404"):
        connect(url=host.url.replace("bench", "absent")).list(["refs/klaud/"])


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


# -- refusals and limits


def hook(host: githttp.GitHost, name: str, text: str) -> None:
    path = host.repo / "hooks" / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_a_refused_ref_is_told_in_the_hosts_words_and_the_others_move(
    host: githttp.GitHost, connect: Callable[..., RefStore]
) -> None:
    hook(host, "update", f'[ "$1" != "{A}" ] || {{ echo "namespace is closed" >&2; exit 1; }}')
    store = connect()
    oid = store.write_commit(b"1\n")
    answers = store.apply([RefUpdate(A, None, oid), RefUpdate(B, None, oid)])
    assert isinstance(answers[0], RefRejected)
    assert "hook declined" in answers[0].reason
    assert "namespace is closed" in answers[0].reason
    assert answers[1] == RefUpdated(B)


def test_a_host_that_limits_refs_a_push_is_met_by_halving(
    host: githttp.GitHost, connect: Callable[..., RefStore]
) -> None:
    hook(
        host,
        "pre-receive",
        '[ $(wc -l) -le 5 ] || { echo "Pushes can not update more than 5 branches or tags." >&2; exit 1; }',
    )
    store = connect()
    oid = store.write_commit(b"1\n")
    updates = [RefUpdate(f"refs/klaud/claims/{number:016x}", None, oid) for number in range(16)]
    assert list(store.apply(updates)) == [RefUpdated(update.ref) for update in updates]
    assert posts(host) == 1 + 2 + 4
    assert len(host.refs()) == 16


def test_a_hook_that_refuses_everything_is_not_met_by_halving(
    host: githttp.GitHost, connect: Callable[..., RefStore]
) -> None:
    hook(host, "pre-receive", "echo no >&2; exit 1")
    store = connect()
    oid = store.write_commit(b"1\n")
    answers = store.apply([RefUpdate(f"refs/klaud/claims/{number:016x}", None, oid) for number in range(16)])
    assert all(isinstance(answer, RefRejected) for answer in answers)
    assert posts(host) == 1


def test_an_atomic_push_is_never_halved(host: githttp.GitHost, connect: Callable[..., RefStore]) -> None:
    hook(host, "pre-receive", "echo 'too many refs' >&2; exit 1")
    store = connect(batch=2)
    oid = store.write_commit(b"1\n")
    answers = store.apply([RefUpdate(f"refs/klaud/claims/{n:016x}", None, oid) for n in range(4)], atomic=True)
    assert all(isinstance(answer, RefRejected) for answer in answers)
    assert posts(host) == 1


def test_updates_go_in_batches_and_a_failure_of_a_later_one_is_unclear(
    host: githttp.GitHost, connect: Callable[..., RefStore]
) -> None:
    store = connect(batch=3)
    oid = store.write_commit(b"1\n")
    updates = [RefUpdate(f"refs/klaud/claims/{number:016x}", None, oid) for number in range(7)]
    host.fault = lambda _method, _path: githttp.Fault(status=503) if posts(host) >= 1 and len(host.log) > 2 else None
    answers = store.apply(updates)
    assert [type(answer) for answer in answers] == [RefUpdated] * 3 + [RefUnclear] * 4


def test_two_updates_of_one_ref_are_a_fault_of_the_caller(connect: Callable[..., RefStore]) -> None:
    store = connect()
    oid = store.write_commit(b"1\n")
    with pytest.raises(errors.BugError):
        store.apply([RefUpdate(A, None, oid), RefUpdate(A, None, oid)])


def test_a_large_push_has_its_length_told(host: githttp.GitHost, connect: Callable[..., RefStore]) -> None:
    store = connect()
    texts = [random.Random(number).randbytes(40_000).hex().encode() for number in range(40)]  # noqa: S311 - no secret
    oids = [store.write_commit(text) for text in texts]
    updates = [RefUpdate(f"refs/klaud/claims/{number:016x}", None, oid) for number, oid in enumerate(oids)]
    assert all(isinstance(answer, RefUpdated) for answer in store.apply(updates))
    sent = [
        headers for headers in host.headers_seen if headers.get("Content-Type", "").endswith("receive-pack-request")
    ]
    assert len(sent) == 1
    assert int(sent[0]["Content-Length"]) > 1_500_000


def test_only_deletions_need_no_pack(host: githttp.GitHost, connect: Callable[..., RefStore]) -> None:
    store = connect()
    oid = store.write_commit(b"1\n")
    store.apply([RefUpdate(A, None, oid), RefUpdate(B, None, oid)])
    assert list(connect().apply([RefUpdate(A, oid, None), RefUpdate(B, oid, None)])) == [RefUpdated(A), RefUpdated(B)]
    assert host.refs() == {}


# -- what refs may point at


def test_a_tag_a_file_and_a_large_commit_are_no_commits(
    host: githttp.GitHost, connect: Callable[..., RefStore]
) -> None:
    commit = host.commit("x")
    host.git("tag", "-a", "-m", "t", "v1", commit)
    blob = host.git("hash-object", "-w", "--stdin", text="hello")
    large = host.commit("x" * (gitwire.MESSAGE_LIMIT + 1))
    tag = host.refs()["refs/tags/v1"]
    for number, oid in enumerate((tag, blob, large)):
        host.set(f"refs/klaud/claims/{number:016x}", oid)
    found = connect().read([tag, blob, large, commit])
    whys = {oid: found[oid].why for oid in (tag, blob, large)}  # type: ignore[union-attr]
    assert "tag" in whys[tag]
    assert "commit" in whys[blob]
    assert "bytes" in whys[large]
    assert isinstance(found[commit], gateway.CommitData)


def test_a_commit_with_files_says_so_and_its_files_are_not_fetched(
    host: githttp.GitHost, connect: Callable[..., refs.GitRefStore]
) -> None:
    blob = host.git("hash-object", "-w", "--stdin", text="x" * 500_000)
    tree = host.git("mktree", text=f"100644 blob {blob}\tbig\n")
    commit = host.commit("with files", tree=tree)
    host.set(A, commit)
    store = connect()
    found = store.read([commit])[commit]
    assert isinstance(found, gateway.CommitData)
    assert not found.tree_is_empty
    assert store.traffic < 5_000


def test_one_history_above_the_limit_stops_no_other(
    host: githttp.GitHost, connect: Callable[..., RefStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gitwire, "PACK_LIMIT", 3000)
    at = ""
    for number in range(60):
        at = host.commit(f"{number} {number * 7919}", *([at] if at else []))
    small = host.commit("small")
    host.set(A, at)
    host.set(B, small)
    found = connect().read([at, small], depth=1000)
    assert isinstance(found[small], gateway.CommitData)
    assert isinstance(found[at], gateway.NotACommit)


def test_a_small_pack_of_a_huge_object_is_not_unpacked(
    host: githttp.GitHost, connect: Callable[..., RefStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gitwire, "INFLATED_LIMIT", 2_000_000)
    bomb, small = host.commit("x" * 3_000_000), host.commit("small")
    host.set(A, bomb)
    host.set(B, small)
    found = connect().read([bomb, small])
    assert isinstance(found[small], gateway.CommitData)
    assert isinstance(found[bomb], gateway.NotACommit)
    assert "limit" in found[bomb].why


@given(st.lists(st.binary(max_size=3000), max_size=8), st.data())
@settings(max_examples=80, deadline=None)
def test_the_size_of_a_pack_is_known_before_it_is_unpacked(bodies: list[bytes], data: st.DataObject) -> None:
    blobs = [objects.Blob.from_string(body) for body in bodies]
    count, unpacked = gitwire.records_of(blobs)
    made = io.BytesIO()
    pack.write_pack_data(made.write, unpacked, num_records=count, object_format=object_format.DEFAULT_OBJECT_FORMAT)
    whole = made.getvalue()
    gitwire.check_inflated(whole)
    if bodies:
        cut = data.draw(st.integers(min_value=0, max_value=len(whole) - 22))
        with contextlib.suppress(dulwich.errors.GitProtocolError, zlib.error):
            gitwire.check_inflated(whole[:cut])


def test_many_lost_oids_end_in_an_error(host: githttp.GitHost, connect: Callable[..., RefStore]) -> None:
    host.set(A, host.commit("x"))
    with pytest.raises(errors.ReadFailedError, match="no longer has"):
        connect().read([f"{number:040x}" for number in range(1, refs.LOST_WANTS + 3)])


def test_what_was_read_once_is_not_fetched_again(connect: Callable[..., RefStore]) -> None:
    store, other = connect(), connect()
    oid = store.write_commit(b"1\n")
    store.apply([RefUpdate(A, None, oid)])
    other.read([oid])
    before = other.fetches
    other.read([oid])
    assert other.fetches == before


# -- one push for a branch with files and a record


def test_the_branch_and_the_ledger_go_in_one_atomic_push(
    host: githttp.GitHost, connect: Callable[..., RefStore], tmp_path: Path
) -> None:
    work = tmp_path / "work"
    host.set("refs/heads/main", host.commit("base", tree=host.git("mktree", text="")))
    host.git("clone", "-q", "--depth=1", f"file://{host.repo}", str(work), cwd=tmp_path)
    (work / "file.txt").write_text("new")
    host.git("add", "file.txt", cwd=work)
    host.git("commit", "-q", "-m", "work", cwd=work)
    head = host.git("rev-parse", "HEAD", cwd=work)
    base = host.git("rev-parse", "HEAD~1", cwd=work)
    with Repo(str(work)) as repo:
        store = connect(object_store=repo.object_store, shallow=frozenset({base}))
        record = store.write_commit(b"{}\n")
        branch = "refs/heads/klaud/auto-" + "a" * 16 + "-" + "b" * 16
        answers = store.apply([RefUpdate(branch, None, head), RefUpdate(LEDGER, None, record)], atomic=True)
    assert list(answers) == [RefUpdated(branch), RefUpdated(LEDGER)]
    assert host.git("cat-file", "-p", f"{branch}:file.txt") == "new"
    assert host.git("fsck", "--connectivity-only") == ""


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
        with pytest.raises(errors.ReadFailedError):
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
