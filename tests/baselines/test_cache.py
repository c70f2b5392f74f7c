"""The cache believes nothing that its key and digest do not vouch for, and bears anything in its folder."""

from __future__ import annotations

import gzip
import hashlib
import os
import threading
from typing import TYPE_CHECKING

import msgspec
import pytest

from klaud.baselines import cache, commands

if TYPE_CHECKING:
    import pathlib

KEY, OTHER = "aa" * 32, "ab" * 32
ENTRY = cache.Entry(entries=({"n": 1, "precision": "fp8"},), dropped=("--no-evals",))


@pytest.fixture
def place(tmp_path: pathlib.Path) -> pathlib.Path:
    """Where a stored entry is."""
    cache.Cache(tmp_path).put(KEY, ENTRY)
    return tmp_path / "matrices" / KEY[:2] / f"{KEY}.json.gz"


def test_what_is_put_is_found_under_its_key_alone(place: pathlib.Path, tmp_path: pathlib.Path) -> None:
    store = cache.Cache(tmp_path)
    assert place.exists()
    assert store.matrix(KEY) == ENTRY
    assert store.matrix(OTHER) is None
    assert store.known(KEY) is None
    store.put(KEY, commands.Known(alternative=1))
    assert store.known(KEY) == commands.Known(alternative=1)
    assert store.rebuilt == 0
    assert cache.Cache(None).matrix(KEY) is None


def damaged(path: pathlib.Path, how: str) -> None:
    """Put something else where an entry was."""
    whole = path.read_bytes()
    text = gzip.decompress(whole)
    path.unlink()
    if how == "a folder":
        path.mkdir()
    elif how == "a link":
        path.with_name("x").write_bytes(whole)
        path.symlink_to("x")
    elif how == "a pipe that nobody writes to":
        os.mkfifo(path)
    else:
        path.write_bytes(
            {
                "cut": whole[:-20],
                "garbage": b"not gzip at all",
                "empty": b"",
                "another key's": gzip.compress(text.replace(KEY.encode(), OTHER.encode())),
                "edited": gzip.compress(text.replace(b"fp8", b"fp9")),
                "a bomb": gzip.compress(b" " * 3_000_000),
                "no JSON": gzip.compress(b"[" * 100_000),
                "another form, well sealed": resealed(text, b'{"entries": [7]}'),
            }[how]
        )


def resealed(text: bytes, body: bytes) -> bytes:
    """Return a file whose seal is sound and whose content is not."""
    sealed = {**msgspec.json.decode(text), "digest": hashlib.sha256(body).hexdigest(), "body": msgspec.Raw(body)}
    return gzip.compress(msgspec.json.encode(sealed))


DAMAGE = (
    "cut", "garbage", "empty", "another key's", "edited", "a bomb", "no JSON", "another form, well sealed", "a folder",
    "a link", "a pipe that nobody writes to",
)  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_entry_is_none_and_is_counted(place: pathlib.Path, tmp_path: pathlib.Path, damage: str) -> None:
    damaged(place, damage)
    store = cache.Cache(tmp_path, most=1_000_000)
    assert (store.matrix(KEY), store.rebuilt) == (None, 1)
    store.put(KEY, ENTRY)
    assert cache.Cache(tmp_path).matrix(KEY) == (None if damage == "a folder" else ENTRY)


def test_the_suite_catches_a_cache_that_believes_its_files(tmp_path: pathlib.Path) -> None:
    """The broken twin reads the body and looks at neither digest nor key."""
    store = cache.Cache(tmp_path)
    store.put("aa" * 32, cache.Entry(entries=({"n": 1},)))
    place = next((tmp_path / "matrices").rglob("*.gz"))
    edited = gzip.decompress(place.read_bytes()).replace(b'"n":1', b'"n":2')
    place.write_bytes(gzip.compress(edited))
    believed = msgspec.json.decode(
        msgspec.json.decode(edited)["body"] and msgspec.json.encode(msgspec.json.decode(edited)["body"])
    )
    assert believed["entries"] == [{"n": 2}]
    assert store.matrix("aa" * 32) is None


def test_many_writers_and_readers_of_one_key_never_meet_half_a_file(tmp_path: pathlib.Path) -> None:
    key, entry = "bb" * 32, cache.Entry(entries=tuple({"n": n} for n in range(2000)))
    stores = [cache.Cache(tmp_path) for _ in range(8)]
    wrong: list[object] = []

    def work(store: cache.Cache, *, write: bool) -> None:
        for _ in range(40):
            if write:
                store.put(key, entry)
            elif (found := store.matrix(key)) != entry or store.rebuilt:
                wrong.append(found)

    stores[0].put(key, entry)
    threads = [
        threading.Thread(target=work, args=(store,), kwargs={"write": number % 2 == 0})
        for number, store in enumerate(stores)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert not list(tmp_path.rglob(".new-*"))
