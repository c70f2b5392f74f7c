"""Where the frozen baseline's bundle is looked for, and what is said where it is nowhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from klaud import errors
from klaud.cli import frozen
from klaud.session import model

if TYPE_CHECKING:
    from pathlib import Path


def find(
    place: Path, *, given: bool = False, beside: bool = False, out: bool = False, there: bool = True
) -> tuple[str, int, str]:
    """Return which place was found, how often the artifact was asked for, and what was said."""
    log: list[str] = []
    asked: list[int] = []
    (place / "out").mkdir()
    if beside:
        (place / "baseline-c.json").touch()
    if out:
        (place / "out" / "baseline-c.json").touch()

    def fetch() -> None:
        asked.append(1)
        if not there:
            raise errors.InputError("run 7 has no artifact klaud-wave-1")
        (place / "out" / "baseline-c.json").touch()

    found = frozen.find(place / "given" if given else None, place / "baseline-c.json", place / "out", fetch, log.append)
    return str(found.relative_to(place)), len(asked), " ".join(log)


def test_what_is_said_goes_first_then_what_lies_beside_the_brief_then_the_artifact(tmp_path: Path) -> None:
    for number, (kind, expected) in enumerate(
        [
            ({"given": True, "beside": True}, ("given", 0, "")),
            ({"beside": True, "out": True}, ("baseline-c.json", 0, "")),
            ({"out": True}, ("out/baseline-c.json", 0, "")),
            ({}, ("out/baseline-c.json", 1, "")),
        ]
    ):
        place = tmp_path / str(number)
        place.mkdir()
        assert find(place, **kind) == expected


def test_a_bundle_that_is_nowhere_is_said_with_what_it_means(tmp_path: Path) -> None:
    place, asked, said = find(tmp_path, there=False)
    assert (place, asked) == ("baseline-c.json", 1)
    for words in ("run 7 has no artifact", "nothing is called validated", "--bundle FILE"):
        assert words in said


def test_no_session_starts_on_a_baseline_that_cannot_be_read(tmp_path: Path) -> None:
    told = model.Brief(wave="7.1", candidate="c", family="a.yaml:b", base="0" * 40, benchmark="x", subject="s")
    bundle = tmp_path / "baseline-c.json"
    frozen.refuse_unfounded(told, bundle)  # a brief without a baseline has none to miss
    wants = model.Brief(**{name: getattr(told, name) for name in told.__struct_fields__} | {"bundle": "sha256:0"})
    with pytest.raises(errors.InputError, match="cannot be read"):
        frozen.refuse_unfounded(wants, bundle)
    bundle.write_bytes(b'{"verdict": {}}')
    with pytest.raises(errors.InputError, match="not the one"):
        frozen.refuse_unfounded(wants, bundle)
