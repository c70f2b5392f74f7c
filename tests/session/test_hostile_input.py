"""What an agent prints and what an artifact holds: read by the strict rules, and one bad piece costs itself."""

from __future__ import annotations

import io
import zipfile
from typing import TYPE_CHECKING, Any

import pytest

from klaud.session import evidence, wire
from klaud.session.rules_coverage import Unreadable, Wrong

if TYPE_CHECKING:
    from collections.abc import Iterator


def packed(**files: bytes) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as file:
        for name, text in files.items():
            file.writestr(name.replace("_", "."), text)
    return made.getvalue()


@pytest.mark.parametrize(
    ("files", "rows"),
    [
        ({"results_json": b'[{"a": 1}, {"a": 2}]'}, [{"a": 1}, {"a": 2}]),
        ({"results_jsonl": b'{"a": 1}\r\n\n{"a": 2}'}, [{"a": 1}, {"a": 2}]),
        ({"results_json": b'[{"a": 1, "a": 5}, 3, {"a": 1e999}, {"a": 2}]'}, [{"a": 2}]),
        ({"results_jsonl": b'{"a": 1, "a": 5}\n[]\n{"a": NaN}\n{"a": 2}\n'}, [{"a": 2}]),
        ({"results_json": b"[]"}, []),
        ({"results_json": b'{"a": 1}'}, Wrong("results-not-readable")),
        ({"results_json": b'[{"a": 1}'}, Wrong("results-not-readable")),
        ({"results_json": b'[{"a": 1, "a": 1}]'}, Wrong("results-not-readable")),
        ({"results_json": b""}, Wrong("results-not-readable")),
        ({"other_json": b"[]"}, Wrong("no-results")),
        (
            {"results_json": b'[{"a": "%b"}]' % (b"x" * 100)},
            Unreadable("too-big", "results.json has more than 100 bytes"),
        ),
        (
            {f"x{number}": b"" for number in range(evidence.ENTRIES + 1)},
            Unreadable("too-big", f"the results artifact has more than {evidence.ENTRIES} files"),
        ),
    ],
)
def test_rows_of_a_results_artifact(files: dict[str, bytes], rows: Any) -> None:
    """A name twice would be two results of one point: such a row counts for nothing, the others for themselves."""
    assert evidence.unpack(packed(**files), 100) == rows


def test_a_damaged_artifact_is_an_answer_and_no_crash() -> None:
    """Every byte of it changed, one at a time: zlib's errors are no kind of OSError or ValueError."""
    whole = packed(results_json=b'[{"a": 1, "b": "some text, some text, some text"}]')
    answers = set()
    for at in range(len(whole)):
        found = evidence.unpack(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :], 1000)
        answers.add(found if isinstance(found, Wrong | Unreadable) else "rows")
    assert answers == {"rows", Wrong("results-not-readable"), Wrong("no-results")}


class Child:
    """A child that has printed this."""

    def __init__(self, *chunks: bytes) -> None:
        self.chunks: Iterator[Any] = iter([*chunks, "end"])

    def read(self, _seconds: float) -> Any:
        return next(self.chunks)


def test_an_agents_line_is_a_record_or_is_counted() -> None:
    lines = [b'{"n":1}', b'{"n":1,"n":2}', b'{"n":1e999}', b'{"n":"\\ud800"}', b"[]", b"\xff", b"x" * 50, b'{"n":2}']
    made = wire.Wire(Child(b"\n".join(lines) + b'\n{"torn'), line_bytes=40, output_bytes=1000)  # type: ignore[arg-type]
    assert [made.receive(1), made.receive(1), made.receive(1)] == [{"n": 1}, {"n": 2}, "end"]
    assert made.skipped == 7
