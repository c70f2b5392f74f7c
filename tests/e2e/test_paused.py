"""Where klaud is paused its workflows end green, with the reason in the summary, and nothing is written."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

import pytest

from tests.support import adopted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.adopted import Adopted

CANDIDATE = f"{'a' * 16}-{'b' * 16}"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Adopted]:
    with adopted.adopted(tmp_path, monkeypatch, capsys) as it:
        monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary"))
        monkeypatch.setenv("GITHUB_OUTPUT", str(tmp_path / "output"))
        yield it


STEPS = (
    ("preflight",),
    ("select", "--out", "klaud-wave"),
    ("dispatch", "--out", "klaud-wave"),
    ("recover", "--parked-on", "71", "--out", "klaud-wave"),
    ("dispatch", "--parked-only", "--out", "klaud-wave"),
    ("session", "--wave", "7.1", "--candidate", CANDIDATE, "--claim", "0" * 40),
)


def test_every_step_ends_green_says_why_and_writes_nothing(
    world: Adopted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KLAUD_PAUSED", "1")
    before = dict(world.hub.git(adopted.REPOSITORY).refs())
    for argv in STEPS:
        (tmp_path / "summary").write_text("")
        status, said = world.klaud(*argv)
        assert status == 0, said
        assert "KLAUD_PAUSED" in said, argv
        assert "KLAUD_PAUSED" in html.unescape((tmp_path / "summary").read_text()), argv
    assert world.hub.writes() == []
    assert dict(world.hub.git(adopted.REPOSITORY).refs()) == before


def test_the_preflight_tells_the_steps_after_it_whether_they_may_go_on(
    world: Adopted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert world.klaud("preflight")[0] == 0
    monkeypatch.setenv("KLAUD_PAUSED", "1")
    assert world.klaud("preflight")[0] == 0
    assert (tmp_path / "output").read_text().splitlines() == ["ready=true", "ready=false"]
    # what a person asks for is refused and not passed over
    status, said = world.klaud("pause", "configs/bench.yaml:one")
    assert status == 2
    assert "KLAUD_PAUSED" in said
