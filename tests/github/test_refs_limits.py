"""The git ref store: what a host refuses, how many refs go in one push, and what one push may carry."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from dulwich.repo import Repo

from klaud import errors
from klaud.github import gitwire
from klaud.github.gateway import RefRejected, RefUnclear, RefUpdate, RefUpdated
from tests.support import githttp
from tests.support.git_stores import LEDGER, A, B, hook, posts

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from klaud.github.gateway import RefStore


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


def test_what_a_host_took_before_it_met_its_limit_is_not_sent_again(
    host: githttp.GitHost, connect: Callable[..., RefStore]
) -> None:
    counted = "n=$(cat taken.$PPID 2>/dev/null || echo 0); echo $((n + 1)) > taken.$PPID"
    hook(host, "update", f'{counted}; [ $n -lt 3 ] || {{ echo "more than 3 refs in one push" >&2; exit 1; }}')
    store = connect()
    oid = store.write_commit(b"1\n")
    updates = [RefUpdate(f"refs/klaud/claims/{number:016x}", None, oid) for number in range(10)]
    assert list(store.apply(updates)) == [RefUpdated(update.ref) for update in updates]
    assert len(host.refs()) == 10


def test_an_answer_without_end_is_cut_and_not_asked_for_again(
    host: githttp.GitHost, connect: Callable[..., RefStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = connect()
    oid = store.write_commit(b"1\n")
    updates = [RefUpdate(f"refs/klaud/claims/{number:016x}", None, oid) for number in range(40)]
    store.apply(updates)
    asked = len(host.log)
    monkeypatch.setattr(gitwire, "ANSWER_LIMIT", 1500)
    with pytest.raises(errors.ReadFailedError, match="limit of 1500"):
        store.list(["refs/klaud/"])
    assert len(host.log) <= asked + 2
    before = posts(host)
    with pytest.raises(errors.ReadFailedError, match="open a push"):
        store.apply([RefUpdate(updates[0].ref, oid, None)])
    assert (posts(host), len(host.refs())) == (before, 40)


def test_a_time_out_of_a_push_is_unclear(host: githttp.GitHost, connect: Callable[..., RefStore]) -> None:
    store = connect()
    oid = store.write_commit(b"1\n")
    host.fault = lambda method, _path: githttp.Fault(status=408) if method == "POST" else None
    assert list(store.apply([RefUpdate(A, None, oid)])) == [RefUnclear(A)]
    assert posts(host) == 1
