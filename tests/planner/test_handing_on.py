"""What is handed to review, to baselines, to people, and from folder to folder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from klaud import errors, feeds
from klaud.baselines import model as baselines
from klaud.baselines import observe as rows
from klaud.baselines import producers
from klaud.cli import planner_steps as steps
from klaud.planner import act, codec, files, model, preflight, proof, reviewing, run, summary, validate
from klaud.reports import render
from tests.planner.test_devices import bench, clone
from tests.support import loopback, memory_gateway
from tests.support import planner_world as w
from tests.support.memory_world import Spoil, World

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["clone"]


# -- review


def test_a_candidate_s_recipes_are_those_of_its_family() -> None:
    one = bench(
        recipes={"configs/codecs.yaml:z*": ("recipes/{key}/**", "z.sh"), "other:*": ("no",)}, shared=("tools/**",)
    )
    (found,) = reviewing.candidates(w.plan("zlib"), [one])
    assert (found.recipes, found.shared) == (("recipes/zlib/**", "z.sh"), ("tools/**",))
    assert (found.candidate, found.family, found.subject) == (
        w.candidate("zlib").candidate, w.family("zlib"), "level 6",
    )  # fmt: skip
    (plain,) = reviewing.candidates(w.plan("bz2"), [one])
    assert plain.recipes == ()
    assert reviewing.candidates(w.plan("zlib"), [bench(name="other")]) == ()


# -- baselines


def asking(on: World, root: Path) -> proof.Asking:
    return proof.Asking(
        gateway=memory_gateway.gateway(on),
        git=producers.GitObjects(root),
        repository="acme/bench",
        host="github.com",
        tip="a" * 40,
        default_branch="main",
        place=rows.Place(root=root, web=feeds.Web(clock=loopback.FakeClock(), chance=lambda: 0.0)),
        root=root,
    )


def evidence(**changes: Any) -> proof.Evidence:
    made = baselines.Produced(
        benchmark="codecs",
        matrices=(
            baselines.Matrix(commit="a" * 40, family=w.family("zlib"), entries=(), inputs="digest"),
            baselines.NotGenerated(commit="a" * 40, family=w.family("bz2"), code="generator-failed", error="exit 1"),
            baselines.Matrix(commit="b" * 40, family=w.family("bz2"), entries=(), inputs="older"),
        ),
    )
    return proof.Evidence(**{"benchmark": "codecs", "produced": made, **changes})


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("[]", "feed-invalid"),
        ("", "feed-invalid"),
        ("<html>", "feed-invalid"),
        ('[{"model": ', "feed-invalid"),
        (None, ""),
    ],
)
def test_rows_that_cannot_be_read_defer_the_benchmark_s_families_and_no_other(
    text: str | None, code: str, clone: Path
) -> None:
    if text is not None:
        (clone / "rows.json").write_text(text)
    found = proof.prove(bench(), evidence(), [w.family("zlib")], asking(World(), clone))
    assert found.failed is not None
    assert found.failed.code == (code or "feed-unavailable")
    verdicts = {v.family: v for v in proof.judge(bench(), found, [w.family("zlib")], "a" * 40).verdicts}
    assert verdicts[w.family("zlib")].verdict == "deferred"
    assert verdicts[w.family("zlib")].reasons[0].code == found.failed.code
    assert proof.needs(bench(), found, [w.family("zlib")]) == ()
    git = producers.GitObjects(clone)
    assert proof.produce(bench(), found, [w.family("zlib")], git=git, cache=None) == found


def test_a_github_that_cannot_be_read_defers_as_unavailable(clone: Path) -> None:
    row = {"model": "m", "run_url": "https://github.com/acme/bench/actions/runs/5", "metrics": {"x": 1}}
    (clone / "rows.json").write_text(msgspec.json.encode([row]).decode())
    on = World()
    on.rules.append(lambda call: Spoil.FAIL if not call.write else None)
    found = proof.prove(bench(), evidence(), [w.family("zlib")], asking(on, clone))
    assert found.failed is not None or found.proofs is not None


def test_a_family_without_evidence_has_no_verdict_and_no_bundle() -> None:
    assert proof.judge(bench(), None, [w.family("zlib")], "a" * 40).verdicts == ()
    assert proof.judge(bench(), evidence(), [w.family("zlib")], "a" * 40).verdicts == ()
    for one in (None, evidence()):
        with pytest.raises(errors.BugError, match="verified without evidence"):
            proof.make_bundle(bench(), one, w.family("zlib"), "a" * 40)


def test_inputs_are_those_of_the_current_matrices() -> None:
    assert proof.inputs(evidence(), "a" * 40) == {w.family("zlib"): "digest"}
    assert proof.inputs(None, "a" * 40) == {}


def test_matrices_of_another_benchmark_are_refused() -> None:
    made = baselines.Produced(benchmark="other", matrices=())
    with pytest.raises(errors.InputError, match="matrices of other were handed in for codecs"):
        proof.joined(evidence(), made)


def test_evidence_is_written_and_read_back() -> None:
    failed = rows.FeedFailed(code="feed-unavailable", message="503")
    proofs = baselines.Proofs(
        runs={"5": baselines.Proof(run_id=5, attempt=1, commit="b" * 40, how="run"),
              "6": baselines.Unproven(run_id=6, why="gone")},
        commits={"b" * 40: baselines.Trusted(commit="b" * 40, how="ancestor"),
                 "c" * 40: baselines.Untrusted(commit="c" * 40, why="a fork's")},
    )  # fmt: skip
    made = proof.Evidences(base="a" * 40, benchmarks=(evidence(failed=failed), evidence(benchmark="b", proofs=proofs)))
    assert codec.decode(codec.encode(made), proof.Evidences, where=proof.FILE) == made
    assert made.of("b") == made.benchmarks[1]
    assert made.of("none") is None


# -- files


def test_a_file_is_written_whole_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    files.write(tmp_path / "new" / "deep", files.MEMORY, b"one")
    files.write(tmp_path / "new" / "deep", files.MEMORY, b"two")
    assert [one.name for one in (tmp_path / "new" / "deep").iterdir()] == [files.MEMORY]
    assert files.read_bytes(tmp_path / "new" / "deep", files.MEMORY) == b"two"
    assert files.read_bytes(tmp_path, "gone") is None


@pytest.mark.parametrize("candidate", ["../x", "", "0" * 16 + "-" + "f" * 15, "0" * 16 + "-" + "F" * 16])
def test_only_a_candidate_s_id_becomes_part_of_a_name(candidate: str) -> None:
    with pytest.raises(errors.InputError):
        files.brief(candidate)
    with pytest.raises(errors.InputError):
        files.bundle(candidate)


def test_a_folder_that_is_no_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(errors.InputError, match="cannot be written"):
        files.write(tmp_path / "file", files.MEMORY, b"x")
    (tmp_path / files.MEMORY).mkdir()
    with pytest.raises(errors.InputError, match="cannot be read"):
        files.read_bytes(tmp_path, files.MEMORY)
    monkeypatch.setattr(codec, "LIMIT_BYTES", 3)
    files.write(tmp_path, "big", b"four")
    with pytest.raises(errors.InputError, match="above the limit"):
        files.read_bytes(tmp_path, "big")


# -- what people read


def test_a_summary_counts_every_reason_and_names_every_candidate() -> None:
    made = w.plan("zlib", "bz2", blocked=(
        model.Blocked(candidate=w.candidate("lzma").candidate, family=w.family("lzma"), benchmark="codecs", code="paused",
                      message="a person has paused it", unblock="a person resumes it"),
    ))  # fmt: skip
    on = World()
    chosen = run.select(w.world(on), w.given(made, verdicts={("codecs", w.family("zlib")): w.given(made).verdicts[
        "codecs", w.family("zlib")]}))  # fmt: skip
    done = run.dispatch(w.world(on), chosen.selection, branch="main")
    text = render.text(summary.selection(done, made))
    for words in ("zlib", "bz2", "lzma", "paused", "no-verdict", "dispatched", "selected: 1"):
        assert words in text
    assert act.starts(done) == ()


def test_markup_in_a_family_s_name_stays_data() -> None:
    family = "configs/a.yaml:<img src=x>@everyone"
    one = model.Decision(
        candidate="0" * 16 + "-" + "0" * 16, family=family, benchmark="b", selected=False, gate="plan", code="paused",
        message="m",
    )  # fmt: skip
    made = model.Selection(wave="7.1", base="a" * 40, seed=1, at="2026-03-02T06:00:00Z", decisions=(one,))
    text = render.markdown(summary.selection(made))
    assert "<img" not in text
    assert "@everyone" not in text


def test_long_tables_are_cut_with_a_count() -> None:
    many = tuple(
        model.Decision(candidate=f"{n:016x}-" + "0" * 16, family="f:k", benchmark="b", selected=False, gate="plan",
                       code="paused", message="m")
        for n in range(summary.ROWS + 5)
    )  # fmt: skip
    made = model.Selection(
        wave="7.1", base="a" * 40, seed=1, at="2026-03-02T06:00:00Z", decisions=many, deferred_reason="paused",
        attention=(model.Attention(code="schedule", message="late"),),
    )  # fmt: skip
    text = render.text(summary.selection(made))
    assert "and 5 more" in text
    assert "late" in text


def test_checks_and_findings_say_what_to_do() -> None:
    check = preflight.Check(name="identity", result="wrong", what="another account", fix="set bot")
    assert "set bot" in render.text(summary.preflight_checks([check]))
    assert "nothing is wrong" in render.text(summary.findings([]))
    finding = validate.Finding("error", "benchmarks[0]", "what is wrong", "the fix")
    assert "the fix" in render.text(summary.findings([finding]))


# -- a wave whose rows cannot be read


@pytest.mark.parametrize(("code", "status"), [("feed-unavailable", 75), ("feed-invalid", 2)])
def test_a_wave_without_any_published_rows_ends_with_the_feed_s_reason(code: Any, status: int) -> None:
    failed = rows.FeedFailed(code=code, message="the published rows of codecs: 503")
    every = proof.Evidences(base="a" * 40, benchmarks=(evidence(failed=failed),))
    with pytest.raises(errors.KlaudError, match="published rows of codecs") as caught:
        steps.refuse_failed_rows(w.plan("zlib"), every)
    assert caught.value.exit_status == status
    assert "nothing was claimed" in caught.value.advice
    steps.refuse_failed_rows(w.plan(), every)
    some = proof.Evidences(base="a" * 40, benchmarks=(evidence(failed=failed), evidence(benchmark="other")))
    steps.refuse_failed_rows(w.plan("zlib"), some)
