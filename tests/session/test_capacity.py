"""Capacity: a session asks the planner's own provider anew before it spends, and shows the agent one closed word."""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from klaud import clock as clocks
from klaud.cli import session as cli
from klaud.planner import settings
from klaud.session import model
from tests.support import session_bench

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Iterator


class Opened:
    """The part of the live objects that capacity needs."""

    def __init__(self, capacity: settings.Capacity) -> None:
        self.clock = clocks.SystemClock()
        self.config = self
        self.planner = self
        self.capacity = capacity


def figures(**targets: tuple[int, int, int]) -> str:
    found = {
        name: {"total": total, "allocated": allocated, "mixed": 0, "idle": idle}
        for name, (total, allocated, idle) in targets.items()
    }
    return json.dumps({"targets": found})


def asking(place: pathlib.Path, targets: tuple[str, ...]) -> Any:
    command = (sys.executable, "-c", f"print(open({str(place)!r}).read())")
    return cli._room(Opened(settings.Capacity(command=command)), targets)  # type: ignore[arg-type]


def test_the_provider_is_asked_each_time_anew(tmp_path: pathlib.Path) -> None:
    place = tmp_path / "figures.json"
    ask = asking(place, ("gpu",))
    for text, wanted in (
        (figures(gpu=(10, 1, 9)), "free"), (figures(gpu=(10, 9, 1)), "full"), (figures(gpu=(10, 0, 0)), "full"),
        (figures(other=(10, 1, 9)), "unknown"), ("no JSON", "unknown"), (figures(gpu=(10, 1, 9)), "free"),
    ):  # fmt: skip
        place.write_text(text)
        assert ask() == wanted


def test_without_targets_it_is_unknown_and_without_a_provider_not_asked(tmp_path: pathlib.Path) -> None:
    place = tmp_path / "figures.json"
    place.write_text(figures(gpu=(10, 1, 9)))
    assert asking(place, ())() == "unknown"
    assert cli._room(Opened(settings.Capacity()), ("gpu",))() == "not-asked"  # type: ignore[arg-type]


@pytest.fixture
def bench(tmp_path: pathlib.Path) -> Iterator[session_bench.Bench]:
    tmp_path.chmod(0o755)
    with session_bench.bench(tmp_path) as made:
        yield made


def test_a_busy_target_refuses_what_spends_and_nothing_else(bench: session_bench.Bench, tmp_path: pathlib.Path) -> None:
    place = tmp_path / "figures.json"
    place.write_text(figures(gpu=(10, 9, 1)))
    made = bench.host()
    target = dataclasses.replace(made.target, capacity=asking(place, ("gpu",)))
    bench.host = lambda *_run: dataclasses.replace(made, target=target)  # type: ignore[method-assign]
    end = bench.run(bench.brief(bench.claim(), targets=("gpu",)))
    view = bench.view()
    assert view.spent.pushes == 1
    assert view.spent.smoke_runs == 0, (end, bench.log)
    assert any("dispatch_smoke: no-capacity" in line for line in bench.log), bench.log
    assert not any("10" in line and "gpu" in line for line in bench.log), "the figures are in no log"


def test_a_brief_names_the_targets_and_an_old_one_none(bench: session_bench.Bench) -> None:
    brief = bench.brief("a" * 40, targets=("gpu", "cpu"))
    assert msgspec.json.decode(msgspec.json.encode(brief), type=model.Brief).targets == ("gpu", "cpu")
    old = msgspec.to_builtins(brief)
    del old["targets"]
    assert msgspec.convert(old, model.Brief).targets == ()
