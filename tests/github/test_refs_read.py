"""The git ref store: what a ref may point at, and what a fetch may cost."""

from __future__ import annotations

import contextlib
import hashlib
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


def test_a_commit_that_cannot_be_parsed_spoils_itself_alone(
    host: githttp.GitHost, connect: Callable[..., RefStore]
) -> None:
    good = host.commit("good")
    bare = host.git(
        "hash-object", "-t", "commit", "-w", "--literally", "--stdin", text=f"tree {gitwire.EMPTY_TREE}\n\nx"
    )
    host.set(A, good)
    host.set(B, bare)
    found = connect().read([good, bare])
    assert isinstance(found[good], gateway.CommitData)
    assert isinstance(found[bare], gateway.NotACommit)
    assert "author" in found[bare].why


def test_a_ref_whose_name_is_no_text_can_be_listed_and_told(
    host: githttp.GitHost, connect: Callable[..., RefStore]
) -> None:
    host.set("refs/klaud/claims/\udcff", host.commit("x"))
    (name,) = connect().list(["refs/klaud/"])
    assert name.encode() == b"refs/klaud/claims/\\xff"


def packed(*things: tuple[int, bytes, bytes]) -> io.BytesIO:
    """Return a pack of (kind, what stands before the stream, the stream's content), its sum right."""
    whole = b"PACK" + (2).to_bytes(4, "big") + len(things).to_bytes(4, "big")
    for kind, before, content in things:
        size, head = len(content) >> 4, (kind << 4) | (len(content) & 15)
        while size:
            whole += bytes([head | 0x80])
            head, size = size & 0x7F, size >> 7
        whole += bytes([head]) + before + zlib.compress(content)
    made = io.BytesIO(whole + hashlib.sha1(whole, usedforsecurity=False).digest())
    made.seek(0, io.SEEK_END)
    return made


COPY_ALL = b"\xff\x00\x00\x00\x00\x00\x10\x00"
"""A step of a delta: 4 KiB of the base, from its beginning."""


@pytest.mark.parametrize(
    ("things", "error"),
    [
        ([(pack.REF_DELTA, b"\x01" * 20, b"\x05\x05\x05hello")], dulwich.errors.GitProtocolError),
        ([(5, b"", b"nothing of git's")], gitwire.TRANSPORT_ERRORS),
        ([(3, b"", b"x" * 4096), (pack.OFS_DELTA, b"\x10", b"\x80\x20\x80\x20" + b"\x7f")], gitwire.TRANSPORT_ERRORS),
        ([(3, b"", b"x" * 4096), (pack.REF_DELTA, b"\x01" * 20, b"\x80\x20\x80\x20" + COPY_ALL * 70_000)],
         gitwire.PackTooLargeError),
        ([(3, b"", b"x" * 4096), (pack.REF_DELTA, b"\x01" * 20, b"\x00" * (gitwire.DELTA_LIMIT + 1))],
         gitwire.PackTooLargeError),
    ],
    ids=["no base", "no kind", "half a step", "a small delta of a huge object", "a huge delta"],
)  # fmt: skip
def test_a_pack_that_does_not_hold_together_is_one_of_the_named_errors(
    things: list[tuple[int, bytes, bytes]], error: type[Exception] | tuple[type[Exception], ...]
) -> None:
    with pytest.raises(error):
        list(gitwire.unpack(packed(*things)))


@given(
    st.lists(
        st.tuples(st.integers(0, 7), st.sampled_from([b"", b"\x05", b"\x01" * 20]), st.binary(max_size=60)), max_size=3
    )
)
@settings(max_examples=150, deadline=None)
def test_no_pack_raises_anything_else(things: list[tuple[int, bytes, bytes]]) -> None:
    with contextlib.suppress(gitwire.PackTooLargeError, *gitwire.TRANSPORT_ERRORS):
        list(gitwire.unpack(packed(*things)))
