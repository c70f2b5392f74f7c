"""A zip that somebody else made: every bound, every kind of damage, and never an exception."""

from __future__ import annotations

import io
import random
import warnings
import zipfile
from typing import Any

import pytest

from klaud.records import archive

TEXT = b'{"a": 1, "b": "some text that repeats, some text that repeats"}\n' * 4


def packed(method: int = zipfile.ZIP_DEFLATED, *names: str, text: bytes = TEXT) -> bytes:
    made = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(made, "w", method) as file:
        warnings.simplefilter("ignore")  # of a name twice, which is the point
        for name in names or ("a.json", "b.json"):
            file.writestr(name, text)
    return made.getvalue()


def take(data: bytes, name: str = "a.json", entries: int = 2, unpacked: int = len(TEXT)) -> Any:
    found = archive.member(data, name, entries=entries, unpacked=unpacked)
    if isinstance(found, archive.NoMember):
        return found.why
    assert isinstance(found, bytes)
    return found


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_at_the_bounds_and_one_above(method: int) -> None:
    data = packed(method)
    assert take(data) == TEXT
    assert take(data, entries=1) == "too-many"
    assert take(data, unpacked=len(TEXT) - 1) == "too-large"


def test_names_are_exact() -> None:
    data = packed(zipfile.ZIP_DEFLATED, "a.json", "../b.json", "x/a.json")
    for name in ("b.json", "A.json", "a", "", "/a.json", "x"):
        assert take(data, name, entries=3) == "absent"
    assert take(data, "../b.json", entries=3) == TEXT, "a name is a key and no path"


def test_a_name_twice_is_refused() -> None:
    assert take(packed(zipfile.ZIP_DEFLATED, "a.json", "a.json")) == "twice"


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_methods_are_refused(method: int) -> None:
    assert take(packed(method)) == "damaged"


def test_a_bomb_stops_at_the_bound() -> None:
    """64 MiB in 64 KiB: no more than the bound and a block is ever unpacked."""
    data = packed(zipfile.ZIP_DEFLATED, "a.json", text=bytes(64 << 20))
    assert len(data) < 70_000
    assert take(data, unpacked=1000) == "too-large"


def test_the_entries_are_counted_before_they_are_listed() -> None:
    """A list of contents that says less than it holds, or more, is bounded by what is there."""
    data = packed(zipfile.ZIP_STORED, *(f"{number}.json" for number in range(300)), text=b"")
    assert take(data, "7.json", entries=300) == b""
    assert take(data, "7.json", entries=299) == "too-many"


def damaged(seed: int, count: int) -> Any:
    chance = random.Random(seed)  # noqa: S311 - a test wants the same damage each time
    whole = [
        packed(method) for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
    ]
    for _ in range(count):
        data = bytearray(chance.choice(whole))
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(len(data))
            match chance.randrange(4):
                case 0:
                    del data[at:]
                case 1:
                    data[at : at + 4] = b"\xff" * 4
                case _:
                    data[at] = chance.randrange(256)
            data = data or bytearray(b"x")
        yield bytes(data)


def test_no_damage_raises() -> None:
    seen = {found if isinstance(found, str) else "a file" for found in map(take, damaged(1, 3000))}
    assert seen >= {"a file", "absent", "damaged"}


def test_a_twin_that_names_the_exceptions_is_caught() -> None:
    """What a careful list of zipfile's exceptions still lets through."""
    listed = (zipfile.BadZipFile, EOFError, OSError, NotImplementedError, RuntimeError, ValueError)
    missed = set()
    for data in damaged(1, 3000):
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as file:
                file.read("a.json")
        except (*listed, KeyError):
            pass
        except Exception as error:  # noqa: BLE001 - the point
            missed.add(type(error).__name__)
    assert missed
