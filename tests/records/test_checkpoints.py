"""Checkpoints: of exactly the bytes before them, resumed only on these, kept by compare-and-set."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klaud.records import checkpoint, errors, model
from tests.support.streams import cut, outcome, records_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LINES = [b'{"n":%d}\n' % index for index in range(40)] + [b"\n", b"\r\n", b'{"n":40}\r\n', b'{"n":41}']
FIRST, SECOND = b"".join(LINES), b'\n{"e":1}\n{"e":2}\n{"e":3}'


def all_checkpoints() -> list[tuple[model.Checkpoint, int]]:
    found = []
    with records_of([FIRST], [SECOND], checkpoints=True) as records:
        for record in records:
            assert record.record
            found.append((records.checkpoint(), records.delivered))
    return found


def test_a_checkpoint_is_of_the_bytes_before_it() -> None:
    """Its digest is what anybody computes over the file up to the end of that line."""
    for at, delivered in all_checkpoints():
        data = FIRST if at.file_kind == "result" else SECOND
        prefix = b"".join(data.splitlines(keepends=True)[: at.file_line_number])
        assert at.prefix_sha256 == hashlib.sha256(prefix).hexdigest()
        assert at.record_count == delivered


@settings(max_examples=150, derandomize=True, deadline=None)
@given(which=st.integers(0, 44), sizes=st.lists(st.integers(1, 64), max_size=12))
def test_resuming_delivers_exactly_the_rest(which: int, sizes: list[int]) -> None:
    """From any record, at any cut."""
    everything = outcome(records_of([FIRST], [SECOND]))[0]
    at, delivered = all_checkpoints()[which]
    rest, error = outcome(records_of(cut(FIRST, sizes), cut(SECOND, sizes), resume=at))
    assert error is None
    assert rest == everything[delivered:]


def changed(data: bytes) -> Iterator[bytes]:
    yield data.replace(b'"n":3}', b'"m":3}')
    yield data.replace(b'{"n":3}', b'{"n":3} ')
    yield data.replace(b"\n\r\n", b"\r\n\n")
    yield b"\n" + data
    yield b"".join(data.splitlines(keepends=True)[:20])
    yield b""


def test_other_bytes_are_not_resumed() -> None:
    at = next(at for at, _ in all_checkpoints() if at.file_line_number == 43)
    for data in changed(FIRST):
        got, error = outcome(records_of([data] if data else [], [SECOND], resume=at))
        assert (got, error[0]) == ([], "checkpoint-mismatch")
    got, error = outcome(records_of([FIRST], resume=all_checkpoints()[-1][0]))
    assert (got, error[0]) == ([], "checkpoint-mismatch")
    for name, value in (("record_count", 1), ("batch_line_count", 1), ("prefix_sha256", "0" * 64)):
        wrong = model.Checkpoint(**{**{f: getattr(at, f) for f in at.__struct_fields__}, name: value})
        got, error = outcome(records_of([FIRST], [SECOND], resume=wrong))
        assert (got, error[0]) == ([], "checkpoint-mismatch")


def test_no_checkpoint_without_a_record() -> None:
    with records_of([FIRST], checkpoints=True) as records, pytest.raises(errors.StreamError, match="no record"):
        records.checkpoint()
    with records_of([FIRST]) as records:
        next(records)
        with pytest.raises(errors.StreamError, match="no record"):
            records.checkpoint()


def test_the_store_compares_and_sets(tmp_path: Path) -> None:
    store = checkpoint.FileStore(tmp_path / "made")
    ats = [at for at, _ in all_checkpoints()]
    assert store.load("b1") is None
    assert store.advance(ats[1], ats[2]) == checkpoint.Superseded(None)
    assert store.advance(None, ats[1]) == checkpoint.Saved()
    assert store.load("b1") == ats[1]
    assert store.advance(None, ats[2]) == checkpoint.Superseded(ats[1])
    assert store.advance(ats[0], ats[2]) == checkpoint.Superseded(ats[1])
    for behind in (ats[0], ats[1]):
        assert store.advance(ats[1], behind) == checkpoint.Superseded(ats[1])
    assert store.advance(ats[1], ats[-1]) == checkpoint.Saved()
    assert store.advance(ats[-1], ats[5]) == checkpoint.Superseded(ats[-1])
    assert checkpoint.FileStore(tmp_path / "made").load("b1") == ats[-1]


@pytest.mark.parametrize("raw", [b"", b"{}", b"\xff", b"[" * 4000, b"x" * 9000])
def test_a_damaged_checkpoint_is_named(tmp_path: Path, raw: bytes) -> None:
    (tmp_path / "checkpoint-b1.json").write_bytes(raw)
    with pytest.raises(errors.StreamError, match=r"checkpoint-b1\.json is damaged") as caught:
        checkpoint.FileStore(tmp_path).load("b1")
    assert (caught.value.code, caught.value.__context__) == ("checkpoint-invalid", None)


def test_checkpoints_of_others_are_refused(tmp_path: Path) -> None:
    store = checkpoint.FileStore(tmp_path)
    at = all_checkpoints()[0][0]
    said = json.loads(json.dumps({f: getattr(at, f) for f in at.__struct_fields__}))
    for change, why in (({"batch_id": "b2"}, "another batch"), ({"schema_version": 2}, "version 2")):
        (tmp_path / "checkpoint-b1.json").write_text(json.dumps({**said, **change}))
        with pytest.raises(errors.StreamError, match=why):
            store.load("b1")
    with pytest.raises(errors.StreamError, match="a batch's id"):
        store.load("../b1")
