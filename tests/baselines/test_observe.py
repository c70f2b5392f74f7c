"""Rows from a feed or a file, commits of runs from GitHub or the feed; what fails is said and is never an empty wish."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest

from klaud import errors
from klaud.baselines import model, observe, render, run, schema, settings
from klaud.github import model as github
from tests.support import loopback
from tests.support.benchmarks import (
    ENTRIES,
    FAST,
    PRODUCER,
    REPOSITORY,
    SPLIT,
    TODAY,
    AskedGateway,
    Case,
    History,
    github_pull,
    github_run,
    policy,
    row,
    rows_of,
)

GOOD = rows_of(ENTRIES["fast"])


def read(policy_: model.Policy, root: pathlib.Path) -> Any:
    return run.read_rows(policy_, root=root, repository=REPOSITORY)


def test_rows_come_from_a_file_as_list_lines_or_below_a_key(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(GOOD))
    (tmp_path / "b.jsonl").write_text("\n".join(map(json.dumps, GOOD)))
    (tmp_path / "c.json").write_text(json.dumps({"data": GOOD}))
    for rows in (
        settings.Rows(file="a.json"),
        settings.Rows(file="b.jsonl"),
        settings.Rows(file="c.json", list="data"),
    ):
        assert len(read(policy(rows=rows), tmp_path).rows) == 3


def test_malformed_rows_are_counted_and_named(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps([None, {"model": "m1"}, *GOOD, 5]))
    found = read(policy(rows=settings.Rows(file="a.json")), tmp_path)
    assert (len(found.rows), found.malformed_count, len(found.malformed)) == (3, 3, 3)
    assert "hardware is missing" in {each.why for each in found.malformed}
    judged = run.verdicts(policy(), found, Case().proofs(), Case().produced(), families=[FAST], current=TODAY)
    assert (judged.verdicts[0].verdict, judged.malformed_count) == ("verified", 3)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("[]", "feed-invalid"),
        ("", "feed-invalid"),
        ("<html>Not found</html>", "feed-invalid"),
        ('[{"model": "m1"', "feed-invalid"),
        ('{"message": "rate limit"}', "feed-invalid"),
        ("[null, 5]", "feed-invalid"),
        (None, "feed-unavailable"),
    ],
)
def test_a_feed_that_fails_is_no_empty_feed(tmp_path: pathlib.Path, text: str | None, code: str) -> None:
    if text is not None:
        (tmp_path / "a.json").write_text(text)
    found = read(policy(rows=settings.Rows(file="a.json")), tmp_path)
    assert isinstance(found, observe.FeedFailed)
    assert (found.code, "acme" in found.message) == (code, True)


def test_a_server_that_answers_503_or_rows_is_told_apart() -> None:
    with loopback.serving() as server:
        server.reply("/rows", loopback.Reply(json.dumps(GOOD).encode()))
        server.reply("/down", loopback.Reply(b"[]", status=404))
        for path, kind in (("/rows", observe.RowsRead), ("/down", observe.FeedFailed)):
            found = observe.published_rows(
                schema.plan(policy(rows=settings.Rows(feed=server.url + path))),
                place=observe.Place(root=pathlib.Path()),
                repository=REPOSITORY,
            )
            assert isinstance(found, kind)


def test_limits_no_address_and_paths_outside_are_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(GOOD))
    cut = read(policy(rows=settings.Rows(file="a.json", limit_rows=2)), tmp_path)
    assert cut.message == "the published rows of acme are 3, more than 2"
    big = read(policy(rows=settings.Rows(file="a.json", limit_bytes=10)), tmp_path)
    assert isinstance(big, observe.FeedFailed)
    assert read(policy(), tmp_path).code == "feed-invalid"
    assert read(policy(rows=settings.Rows(file="a.json", list="data")), tmp_path).code == "feed-invalid"
    with pytest.raises(errors.InputError, match="leaves the repository"):
        read(policy(rows=settings.Rows(file="../a.json")), tmp_path / "sub")


def test_rows_of_another_benchmark_in_a_shared_feed_defer_nobody(tmp_path: pathlib.Path) -> None:
    """A neighbour one field away would count as a drifted row of ours; said to be another's, it is left aside."""
    neighbour = rows_of([{**ENTRIES["fast"][0], "model-prefix": "m7"}], suite="other")
    (tmp_path / "rows.json").write_text(json.dumps([*GOOD, *neighbour]))
    for only_, verdict in (({}, "deferred"), ({"suite": "acme"}, "verified")):
        policy_ = policy(rows=settings.Rows(file="rows.json", only=only_))
        found = read(policy_, tmp_path)
        judged = run.verdicts(policy_, found, Case().proofs(), Case().produced(), families=[FAST], current=TODAY)
        assert judged.verdicts[0].verdict == verdict
    assert judged.aside == {"suite other": 2}
    assert render.explain_feed(judged) == "2 row(s) of another benchmark are left aside: suite other"
    nobody = read(policy(rows=settings.Rows(file="rows.json", only={"model": "m9"})), tmp_path)
    assert isinstance(nobody, observe.FeedFailed)
    assert nobody.message.endswith("can be read; 5 are of other benchmarks by rows.only")


def test_what_a_feed_holds_that_is_not_judged_is_told(tmp_path: pathlib.Path) -> None:
    (tmp_path / "rows.json").write_text(json.dumps([*GOOD, *[None] * 7, {"model": "m1\x1b[2J"}]))
    found = read(policy(rows=settings.Rows(file="rows.json")), tmp_path)
    lines = render.explain_feed(found).splitlines()
    assert lines[0] == "8 of the feed's rows could not be read"
    assert lines[-1] == "  - and 3 more"
    (tmp_path / "rows.json").write_text(json.dumps([*GOOD, {"model": "m1"}]))
    told = render.explain_feed(read(policy(rows=settings.Rows(file="rows.json")), tmp_path))
    assert told == "1 of the feed's rows could not be read\n  - row 3 hardware is missing"
    (tmp_path / "rows.json").write_text(json.dumps(GOOD))
    assert render.explain_feed(read(policy(rows=settings.Rows(file="rows.json")), tmp_path)) == ""


# -- runs


def proven(gateway: AskedGateway, root: pathlib.Path, rows: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    case = Case(rows)
    case.policy = policy(rows=settings.Rows(**more))
    runs = [each.run_id for each in case.decoded() if each.run_id]
    return observe.prove_runs(
        case.plan,
        case.decoded(),
        runs,
        gateway=gateway,
        place=observe.Place(root=root),  # type: ignore[arg-type]
    )


def test_github_proves_a_run_with_one_request(tmp_path: pathlib.Path) -> None:
    gateway = AskedGateway()
    gateway.runs[1000] = github_run(1000, PRODUCER)
    found = proven(gateway, tmp_path, GOOD)
    assert found == {"1000": model.Proof(run_id=1000, attempt=1, commit=PRODUCER, how="run")}
    assert gateway.asked == [1000]


def test_an_attempt_that_never_was_proves_nothing(tmp_path: pathlib.Path) -> None:
    gateway = AskedGateway()
    gateway.runs[1000] = github_run(1000, PRODUCER, attempt=2)
    rows = [row(ENTRIES["fast"][0], 4, run_url=f"https://github.com/{REPOSITORY}/actions/runs/1000/attempts/3")]
    assert proven(gateway, tmp_path, rows)["1000"].why == "run 1000 has 2 attempt(s), and the row names attempt 3"


def test_a_read_that_fails_is_not_a_run_that_is_gone(tmp_path: pathlib.Path) -> None:
    gateway = AskedGateway()
    gateway.runs[1000] = errors.ReadFailedError("secret words of a server")
    found = proven(gateway, tmp_path, GOOD)["1000"]
    assert found.why == "run 1000 could not be read (ReadFailedError)"


@pytest.mark.parametrize(
    ("info", "why"),
    [
        (None, "run 1000 is gone"),
        ([], "run 1000 is gone, and workflow-info does not have it"),
        ([{"run_id": 7, "head_sha": PRODUCER}], "run 1000 is gone, and workflow-info does not have it"),
        (
            [{"run_id": 1000, "head_sha": PRODUCER}, {"run_id": 1000, "head_sha": TODAY}],
            "run 1000 is gone, and workflow-info has 2 commits for it",
        ),
        ([{"run_id": 1000, "head_sha": "abc"}], "run 1000 is gone, and workflow-info has no full commit id for it"),
        ([{"run_id": 1000, "head_sha": None}], "run 1000 is gone, and workflow-info has no full commit id for it"),
        (
            [{"run_id": 1000, "head_sha": [PRODUCER]}],
            "run 1000 is gone, and workflow-info has no full commit id for it",
        ),
        (
            [{"run_id": 1000, "head_sha": PRODUCER}, {"run_id": 1000, "head_sha": {}}],
            "run 1000 is gone, and workflow-info has 2 commits for it",
        ),
        (
            [{"run_id": 1000, "head_sha": PRODUCER, "attempt": True}],
            "run 1000 is gone, and workflow-info knows attempt 0, not 1",
        ),
        ([{"run_id": 1000, "head_sha": PRODUCER, "attempt": "2"}], ""),
        (
            [{"run_id": 1000, "head_sha": PRODUCER, "attempt": 0}],
            "run 1000 is gone, and workflow-info knows attempt 0, not 1",
        ),
        ("<html>", "run 1000 is gone, and workflow-info failed (feed-invalid)"),
        ([{"run_id": "1000", "head_sha": PRODUCER, "attempt": 1}], ""),
        ([{"github_run_id": 1000, "head_sha": PRODUCER}, {"run_id": 1000, "head_sha": PRODUCER, "run_attempt": 3}], ""),
    ],
)
def test_a_gone_run_is_proven_by_exactly_one_recorded_commit(tmp_path: pathlib.Path, info: Any, why: str) -> None:
    more: dict[str, Any] = {}
    if info is not None:
        (tmp_path / "info.json").write_text(info if isinstance(info, str) else json.dumps(info))
        more["workflow_info"] = settings.Source(file="info.json")
    found = proven(AskedGateway(), tmp_path, GOOD, **more)["1000"]
    if why:
        assert found.why == why
    else:
        assert found == model.Proof(run_id=1000, attempt=1, commit=PRODUCER, how="workflow-info")


def test_workflow_info_may_be_a_document_a_run(tmp_path: pathlib.Path) -> None:
    with loopback.serving() as server:
        server.reply("/info/1000", loopback.Reply(json.dumps([{"run_id": 1000, "head_sha": PRODUCER}]).encode()))
        server.reply("/info/900", loopback.Reply(b"", status=404))
        rows = [*GOOD, row(ENTRIES["fast"][0], 4, run=900)]
        source = settings.Source(feed=server.url + "/info/{run}")
        found = proven(AskedGateway(), tmp_path, rows, workflow_info=source)
    assert found["1000"].commit == PRODUCER
    assert "workflow-info failed" in found["900"].why


def test_the_changelog_is_read_by_run_and_its_failure_is_one(tmp_path: pathlib.Path) -> None:
    plan = schema.plan(policy(rows=settings.Rows(changelog=settings.Source(file="log.json"))))
    place = observe.Place(root=tmp_path)
    assert isinstance(observe.changelog(plan, [1000], place=place), observe.FeedFailed)
    (tmp_path / "log.json").write_text(json.dumps([{"run_id": 1000, "families": ["fa*", 7]}, {"run_id": 2}, {"x": 1}]))
    assert observe.changelog(plan, [1000], place=place) == {"1000": ("fa*",)}
    assert observe.changelog(schema.plan(policy()), [1000], place=place) is None


# -- the verbs together, on a real history


def test_from_rows_to_a_verdict_over_a_real_history(history: History, box: Any, tmp_path: pathlib.Path) -> None:
    rows = rows_of(ENTRIES["fast"], run=1) + rows_of(ENTRIES["split"], run=2)
    rows.append(row(ENTRIES["fast"][0], 4, run=3, metrics={"tput": 9.0}))
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    policy_ = policy(rows=settings.Rows(file="rows.json"))
    gateway = AskedGateway()
    gateway.runs = {1: github_run(1, history.without), 2: github_run(2, history.flat), 3: github_run(3, history.tip)}
    found = read(policy_, tmp_path)
    tip = history.tip
    git = history.objects
    current = run.regenerate(
        policy_, [model.Need(commit=tip, families=(FAST, SPLIT))], git=git, box=box, cache_folder=tmp_path / "cache"
    )
    assert run.runs_of(policy_, found, current, [FAST]) == (1, 3)
    proofs = run.prove(
        policy_,
        found,
        runs=(1, 2, 3),
        gateway=gateway,
        git=git,
        tip=tip,
        default_branch="main",
        root=tmp_path,  # type: ignore[arg-type]
    )
    assert isinstance(proofs, model.Proofs)
    needed = run.needs(policy_, found, proofs, current, families=[FAST, SPLIT])
    assert {need.commit: need.families for need in needed} == {
        history.without: (FAST,), history.flat: (SPLIT,), tip: (FAST,),
    }  # fmt: skip
    made = run.regenerate(policy_, needed, git=git, box=box, cache_folder=tmp_path / "cache")
    assert made.cached == 1
    produced = run.join(current, made)
    judged = run.verdicts(policy_, found, proofs, produced, families=[FAST, SPLIT], current=tip)
    assert [verdict.verdict for verdict in judged.verdicts] == ["verified", "verified"]
    assert [verdict.dropped for verdict in judged.verdicts] == [("--no-evals",), ("--no-evals",)]
    assert {point.commit for point in judged.verdicts[0].points} == {history.without, tip}


def test_an_untrusted_commit_is_never_needed(history: History, tmp_path: pathlib.Path) -> None:
    (tmp_path / "rows.json").write_text(json.dumps(GOOD))
    policy_ = policy(rows=settings.Rows(file="rows.json"))
    gateway = AskedGateway()
    stranger = "9" * 40
    gateway.runs[1000] = github_run(1000, stranger)
    gateway.pulls[stranger] = github.Listing((github_pull(7, "8" * 40),))
    found = read(policy_, tmp_path)
    proofs = run.prove(
        policy_, found, runs=(1000,), gateway=gateway, git=history.objects, tip=history.tip, default_branch="main",
        root=tmp_path,
    )  # type: ignore[arg-type]  # fmt: skip
    assert isinstance(proofs, model.Proofs)
    produced = Case().produced()
    assert run.needs(policy_, found, proofs, produced, families=[FAST]) == ()
    judged = run.verdicts(policy_, found, proofs, produced, families=[FAST], current=TODAY)
    assert [reason.code for reason in judged.verdicts[0].reasons] == ["producer-untrusted"]
