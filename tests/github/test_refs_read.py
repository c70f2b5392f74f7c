"""The git ref store: what a ref may point at, and what a fetch may cost."""

from __future__ import annotations

import contextlib
import io
import zlib
from typing import TYPE_CHECKING

import dulwich.errors
import pytest
from dulwich import object_format, objects, pack
from hypothesis import given, settings
from hypothesis import strategies as st

from klaud import errors
from klaud.github import gateway, gitwire, refs
from klaud.github.gateway import RefUpdate
from tests.support.git_stores import A, B

if TYPE_CHECKING:
    from collections.abc import Callable

    from klaud.github.gateway import RefStore
    from tests.support import githttp


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
