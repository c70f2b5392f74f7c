"""What a job hands on is known again by its digest, and nothing else is taken."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from klaud import errors
from klaud.planner import hand_on

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FILES = {
    "produce": {"producers-b.json": b"[1]"},
    "plan": {"candidates.json": b"{}", "baselines.json": b"of plan"},
    "review": {"review.json": b"{}", "open-prs.json": b"[]", "baselines.json": b"of review", "needs-b.json": b"[]"},
    "recover": {"recovery.json": b"{}", "families.json": b"{}"},
}


def handed(folder: Path, *steps: str) -> dict[str, str]:
    """Let steps hand their files on, in the order of trust; return the environment of the step that takes them over."""
    environ = {}
    folder.mkdir(exist_ok=True)
    for step in steps:
        own = folder.parent / step
        own.mkdir()
        for name, raw in FILES[step].items():
            for place in (own, folder):
                (place / name).write_bytes(raw)
        told = folder.parent / f"output-{step}"
        hand_on.tell(own, step, {"GITHUB_OUTPUT": str(told)})
        name, _, value = told.read_text().rstrip("\n").partition("=")
        assert name == "files"
        environ[hand_on.variable(step)] = value
    return environ


def test_what_was_handed_on_is_taken_and_the_most_trusted_of_one_name_counts(tmp_path: Path) -> None:
    environ = handed(tmp_path / "in", *hand_on.STEPS)
    assert hand_on.check(tmp_path / "in", environ) == 8
    (tmp_path / "in" / "baselines.json").write_bytes(b"of plan")
    with pytest.raises(errors.InputError, match=r"baselines\.json was changed on its way from the step review"):
        hand_on.check(tmp_path / "in", environ)


def changed(folder: Path, _: dict[str, str]) -> None:
    (folder / "review.json").write_bytes(b"{ }")


def gone(folder: Path, _: dict[str, str]) -> None:
    (folder / "review.json").unlink()


def linked(folder: Path, _: dict[str, str]) -> None:
    (folder / "kept").write_bytes((folder / "review.json").read_bytes())
    (folder / "review.json").unlink()
    (folder / "review.json").symlink_to(folder / "kept")


def added(folder: Path, _: dict[str, str]) -> None:
    (folder / f"candidate-{'0' * 16}-{'0' * 16}.json").write_bytes(b"{}")


def shouting(folder: Path, _: dict[str, str]) -> None:
    """A name that the runner would obey, if it were printed as it is."""
    (folder / "x\n::add-path::.json").write_bytes(b"{}")


def shouting_as_its_own(_: Path, environ: dict[str, str]) -> None:
    environ["KLAUD_HANDED_PRODUCE"] = json.dumps({"producers-\n::add-path::.json": "0" * 64})


def another_s(_: Path, environ: dict[str, str]) -> None:
    """A job that ran the repository's code claims to hand klaud's own review on."""
    environ["KLAUD_HANDED_PRODUCE"] = environ["KLAUD_HANDED_REVIEW"]


def with_a_path(_: Path, environ: dict[str, str]) -> None:
    environ["KLAUD_HANDED_PRODUCE"] = json.dumps({"producers-/../review.json": "0" * 64})


def no_digest(_: Path, environ: dict[str, str]) -> None:
    environ["KLAUD_HANDED_PRODUCE"] = json.dumps({"producers-b.json": "sha256:nothing"})


def no_json(_: Path, environ: dict[str, str]) -> None:
    environ["KLAUD_HANDED_PRODUCE"] = "producers-b.json"


def too_long(_: Path, environ: dict[str, str]) -> None:
    environ["KLAUD_HANDED_PRODUCE"] += " " * hand_on.OUTPUT_BYTES


def nothing(_: Path, environ: dict[str, str]) -> None:
    """The job says that it handed nothing on, and a file of its is there."""
    environ["KLAUD_HANDED_PRODUCE"] = ""


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        (changed, r"review\.json was changed on its way from the step review: its SHA-256 is \w{16}\.\.\., \w{16}"),
        (gone, r"review\.json, which the step review handed on, is not in"),
        (linked, r"review\.json is not a plain file"),
        (added, r"candidate-.*no step of this run handed it on"),
        (shouting, r"'x\\n::add-path::\.json' is in"),
        (shouting_as_its_own, r"'producers-\\n::add-path::\.json', which is not its"),
        (another_s, r"produce handed on '.*', which is not its to hand on"),
        (with_a_path, r"which is not its to hand on"),
        (no_digest, r"producers-b\.json without a SHA-256"),
        (no_json, r"KLAUD_HANDED_PRODUCE is not a JSON object"),
        (too_long, r"above the limit of"),
        (nothing, r"'producers-b\.json' is in .*no step of this run handed it on"),
    ],
)
def test_everything_else_is_refused_with_what_is_wrong(
    broken: Callable[[Path, dict[str, str]], None], says: str, tmp_path: Path
) -> None:
    environ = handed(tmp_path / "in", *hand_on.STEPS)
    broken(tmp_path / "in", environ)
    with pytest.raises(errors.InputError, match=says) as caught:
        hand_on.check(tmp_path / "in", environ)
    assert "nothing was written" in caught.value.advice
    assert "\n" not in str(caught.value)


def test_on_a_laptop_nothing_was_handed_on_and_nothing_is_checked(tmp_path: Path) -> None:
    (tmp_path / "anything").write_text("x")
    assert hand_on.check(tmp_path, {}) == 0
    hand_on.tell(tmp_path, "plan", {})
    assert hand_on.check(tmp_path / "none", {"KLAUD_HANDED_PRODUCE": ""}) == 0
