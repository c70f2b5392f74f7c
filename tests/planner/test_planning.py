"""Making a plan from a commit: what is generated, what fails alone, and what fails as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from klaud import errors
from klaud.baselines import model as baselines
from klaud.planner import decide_plan, model, planning, settings
from tests.planner.test_devices import PYTHON, bench, clone, hub, places
from tests.support import loopback

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["clone", "hub"]

AT = "2026-03-02T06:00:00Z"
NOTHING = decide_plan.Standing(memory=model.Memory(at=AT), in_recovery={}, at=AT)


def make(root: Path, *, generate: Any = None, **more: Any) -> model.Plan:
    one = more.pop("benchmark", None) or bench(
        sources=(settings.Source(file="candidates.jsonl"),),
        families=settings.Families(files=("configs/codecs.yaml", "configs/broken.yaml")),
    )
    return planning.make(
        [one], model.Policy(), wave="7.1", seed=planning.seed_of("7.1"), places=places(root),
        generate=generate or matrix, standing=NOTHING, **more,
    )  # fmt: skip


def matrix(benchmark: settings.Benchmark, families: Sequence[str]) -> list[Any]:
    del benchmark
    return [
        baselines.Matrix(commit="a" * 40, family=one, entries=({"hardware": "h200"},), inputs="digest")
        for one in families
    ]


def test_every_family_is_generated_and_what_is_offered_is_planned(clone: Path) -> None:
    asked: list[str] = []

    def generate(benchmark: settings.Benchmark, families: Sequence[str]) -> list[Any]:
        asked.extend(families)
        return matrix(benchmark, families)

    found = make(clone, generate=generate)
    assert asked == [f"configs/codecs.yaml:{key}" for key in ("zlib", "bz2", "on")]
    assert [(one.family, one.targets) for one in found.candidates] == [("configs/codecs.yaml:zlib", ("h200",))]
    assert [one.family for one in found.not_generated] == ["configs/broken.yaml:*"]
    assert found.seed == planning.seed_of("7.1") < 2**53


def offers(root: Path, *keys: str) -> settings.Benchmark:
    text = "".join(f'{{"family": "configs/codecs.yaml:{key}", "subject": "s"}}\n' for key in keys)
    (root / "offers.py").write_text(f"print({text!r}, end='')")
    return bench(
        sources=(settings.Source(command=(PYTHON, str(root / "offers.py"))),),
        families=settings.Families(files=("configs/codecs.yaml",)),
    )


def test_a_family_that_cannot_be_generated_is_reported_and_hides_no_other(clone: Path) -> None:
    def generate(benchmark: settings.Benchmark, families: Sequence[str]) -> list[Any]:
        good = [one for one in families if "bz2" not in one]
        broken = baselines.NotGenerated(
            commit="a" * 40, family="configs/codecs.yaml:bz2", code="generator-failed", error="exit status 1"
        )
        return [*matrix(benchmark, [one for one in good if "zlib" not in one]), broken]

    found = make(clone, benchmark=offers(clone, "zlib", "bz2", "on"), generate=generate)
    assert [one.family for one in found.candidates] == ["configs/codecs.yaml:on"]
    assert {one.family.rpartition(":")[2]: one.code for one in found.not_generated} == {
        "bz2": "generator-failed", "zlib": "generator-failed",
    }  # fmt: skip


def test_a_generator_that_cannot_be_started_defers_its_benchmark_s_families(clone: Path) -> None:
    def generate(*_: object) -> list[Any]:
        raise errors.InputError("tools/matrix.py is not in the commit")

    found = make(clone, generate=generate)
    assert found.candidates == ()
    assert len(found.not_generated) == 4
    assert found.not_generated[-1].message == "tools/matrix.py is not in the commit"


def test_a_missing_program_is_the_machine_s_fault_and_an_error(clone: Path) -> None:
    def generate(*_: object) -> list[Any]:
        raise errors.MissingToolError("git is not on PATH")

    with pytest.raises(errors.MissingToolError):
        make(clone, generate=generate)


def test_a_wave_may_be_asked_for_some_families_only(clone: Path) -> None:
    found = make(clone, benchmark=offers(clone, "zlib", "bz2"), only=["*:z*"])
    assert [one.family for one in found.candidates] == ["configs/codecs.yaml:zlib"]


@pytest.mark.parametrize(
    ("reply", "status"),
    [
        (loopback.Reply(b"", status=503), 75),
        (loopback.Reply(b"[]"), 2),
        (loopback.Reply(b"<html>"), 2),
        (loopback.Reply(b'[{"fam'), 2),
    ],
)
def test_when_every_source_fails_there_is_no_plan_but_an_error(
    reply: loopback.Reply, status: int, clone: Path, hub: loopback.Loopback
) -> None:
    hub.reply("/rows", reply)
    with pytest.raises(errors.KlaudError, match="no candidate source could be read") as caught:
        make(clone, benchmark=bench(sources=(settings.Source(feed=f"{hub.url}/rows"),)))
    assert caught.value.exit_status == status
    assert "nothing was planned" in caught.value.advice


def test_one_source_that_fails_does_not_stop_the_wave(clone: Path, hub: loopback.Loopback) -> None:
    hub.reply("/rows", loopback.Reply(b"", status=503))
    one = bench(sources=(settings.Source(feed=f"{hub.url}/rows"), settings.Source(file="candidates.jsonl")))
    found = make(clone, benchmark=one)
    assert len(found.candidates) == 1
    assert [one.status for one in found.sources] == ["failed", "read"]


@pytest.mark.parametrize(
    ("template", "fields", "entries", "found"),
    [
        ("{hardware}", {}, [{"hardware": "a"}, {"hardware": "b"}, {"hardware": "a"}], ("a", "b")),
        ("{runner}-{tp}", {}, [{"runner": "x", "tp": 8}], ("x-8",)),
        ("{hardware}", {"hardware": "runner.name"}, [{"runner": {"name": "z"}}], ("z",)),
        ("{hardware}", {"hardware": ("gone", "hw")}, [{"hw": "z"}], ("z",)),
        ("{hardware}", {}, [{"hardware": "a"}, {}], ()),
        ("{hardware}", {}, [{"hardware": ["a"]}], ()),
        ("cluster", {}, [{}], ("cluster",)),
        ("{hardware}", {}, [], ()),
    ],
)
def test_targets_come_from_the_entries_and_one_that_is_unknown_makes_all_unknown(
    template: str, fields: Any, entries: Any, found: tuple[str, ...]
) -> None:
    assert planning.targets(template, fields, entries) == found
