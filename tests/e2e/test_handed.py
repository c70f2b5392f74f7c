"""A candidate takes its brief from its planner run's artifact: of the default branch only, bounded, by exact names."""

from __future__ import annotations

import io
import zipfile
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from klaud import clock, errors
from klaud.cli import handed
from klaud.github import rest
from klaud.session import model
from tests.support import adopted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.adopted import Adopted

CANDIDATE = "0123456789abcdef-0123456789abcdef"
GOOD = {f"candidate-{CANDIDATE}.json": b"{}", f"baseline-{CANDIDATE}.json": b"[]"}


class World:
    """A planner run, and a gateway to take its artifact with."""

    def __init__(self, it: Adopted, gateway: rest.RestGateway) -> None:
        self.it = it
        self.gateway = gateway
        (self.run,) = it.repository.runs.values()
        self.wave = f"{self.run.id}.1"

    def publish(self, files: dict[str, bytes], name: str = "klaud-wave-1") -> None:
        self.it.hub.actions.publish(self.run, name, files)

    def fetch(self, folder: Path, wave: str = "") -> list[str]:
        handed.fetch(self.gateway, wave or self.wave, CANDIDATE, folder)
        return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[World]:
    with adopted.adopted(tmp_path, monkeypatch, capsys) as it:
        gateway = rest.RestGateway(
            repository=adopted.REPOSITORY, token="made-up-bot", api_url=it.hub.base_url, clock=clock.SystemClock()
        )
        yield World(it, gateway)
        gateway.close()


def test_exactly_the_two_files_are_taken(world: World, tmp_path: Path) -> None:
    world.publish({**GOOD, "../../evil": b"x", "recovery.json": b"x", "candidate-x.json": b"x"})
    assert world.fetch(tmp_path / "in") == sorted(GOOD)
    assert not (tmp_path / "evil").exists()


def test_the_newest_artifact_of_the_attempt_counts(world: World, tmp_path: Path) -> None:
    world.publish(GOOD)
    world.publish(dict.fromkeys(GOOD, b'"newer"'))
    world.publish(dict.fromkeys(GOOD, b'"other attempt"'), "klaud-wave-2")
    world.fetch(tmp_path / "in")
    assert (tmp_path / "in" / f"candidate-{CANDIDATE}.json").read_bytes() == b'"newer"'


def test_a_job_that_was_run_again_alone_has_handed_its_wave_on_under_a_later_name(world: World, tmp_path: Path) -> None:
    world.publish({"selection.json": b"{}"})
    world.publish(GOOD, "klaud-wave-2")
    world.publish(GOOD, "klaud-wave-evil")
    assert world.fetch(tmp_path / "in") == sorted(GOOD)


def test_a_run_of_another_branch_is_not_believed(world: World, tmp_path: Path) -> None:
    world.publish(GOOD)
    world.run.head_branch = "feature"
    with pytest.raises(errors.InputError, match="runs of main only"):
        world.fetch(tmp_path / "in")
    assert not (tmp_path / "in").exists()


@pytest.mark.parametrize("wave", ["local-0123456789abcdef", "999999.1", "1", "../1.1"])
def test_a_wave_without_such_a_run_is_refused(world: World, tmp_path: Path, wave: str) -> None:
    world.publish(GOOD)
    with pytest.raises(errors.InputError):
        world.fetch(tmp_path / "in", wave)


@pytest.mark.parametrize("missing", sorted(GOOD))
def test_an_artifact_without_the_candidate_is_refused(world: World, tmp_path: Path, missing: str) -> None:
    world.publish({name: raw for name, raw in GOOD.items() if name != missing})
    with pytest.raises(errors.InputError, match=missing):
        world.fetch(tmp_path / "in")


@pytest.mark.parametrize(
    ("kind", "bundle", "taken"), [("encode", "", True), ("encode", "d", False), ("upgrade", "", False)]
)
def test_only_a_candidate_that_encodes_has_no_bundle(
    world: World, tmp_path: Path, kind: Any, bundle: str, *, taken: bool
) -> None:
    told = model.Brief(
        kind=kind, wave=world.wave, candidate=CANDIDATE, family="f:k", base="a" * 40, benchmark="b", subject="s",
        bundle=bundle,
    )  # fmt: skip
    name = f"candidate-{CANDIDATE}.json"
    world.publish({name: msgspec.json.encode(told)})
    if taken:
        assert world.fetch(tmp_path / "in") == [name]
        return
    with pytest.raises(errors.InputError, match="baseline-"):
        world.fetch(tmp_path / "in")


def test_a_file_that_unpacks_to_more_than_the_limit_is_refused() -> None:
    """A bomb: a thousandth of its size on the wire."""
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("x", "w", force_zip64=True) as file:
        for _ in range(70):
            file.write(b"0" * (1 << 20))
    with pytest.raises(errors.InputError, match="above the limit"):
        handed._member(raw.getvalue(), "x", where="artifact")


def test_what_is_no_zip_is_refused() -> None:
    with pytest.raises(errors.InputError, match="not a zip"):
        handed._member(b"PK\x03\x04 and then nothing", "x", where="artifact")
