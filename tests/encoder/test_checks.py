"""Each check of a submission failing, with the row that it leaves and nothing of the item behind."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from klaud import errors
from klaud.encoder import agents, files, model, reference, validate
from klaud.session import sandbox
from tests.support import encoding

if TYPE_CHECKING:
    from pathlib import Path

DEFERRED = "failed its checks 4 times: "

FAULTS: list[tuple[str, int, model.Status, str]] = [
    ("silent", 2, "error", "submitted: the attempt ended without a submission"),
    ("stale", 2, "error", "submitted: the submission is stale: it carries another attempt's nonce"),
    ("no-reason", 2, "error", "submitted: an item is deferred with a reason in notes, there is none"),
    ("no-entities", 2, "deferred", "at-least-one: no entity is named"),
    ("unnamed", 2, "deferred", "carries-id: shop.orders.extra is defined but not named among the entities"),
    ("missing", 2, "deferred", "exists: shop.orders.not_there does not exist"),
    ("other-source", 2, "deferred", "exists: elsewhere.orders.total is not an entity of datasource shop"),
    ("not-canonical", 2, "deferred", "canonical: lines.gross_revenue is not a canonical reference: write shop.lines."),
    ("schema", 2, "deferred", "carries-id: shop.orders.status is a part of the schema: it does not carry the id 2"),
    ("replaces", 2, "deferred", "loads: orders.status is a part of the schema: choose another name"),
    ("ignores", 2, "deferred", "uses-dependencies: item 2 depends on item 0, but no definition uses one of its"),
    ("no-formula", 2, "deferred", "executes: shop.lines.gross_revenue does not run"),
    ("no-column", 0, "deferred", "selects: shop.lines.gross_value does not run"),
    ("own-tag", 2, "deferred", "loads: a measure has no meta: its body may have"),
    ("huge", 2, "deferred", "within-limits: the submission has"),
    ("many", 2, "deferred", "within-limits: 200 definitions: more than 100"),
]


def encode(root: Path, agent: Any, ids: set[int], **more: Any) -> model.ReferenceEntry:
    encoding.make(root, ids)
    return asyncio.run(reference.ensure_reference(encoding.request(root, agent, **more)))


@pytest.mark.parametrize(("fault", "item", "status", "said"), FAULTS, ids=[fault for fault, *_ in FAULTS])
def test_a_failed_check_leaves_its_row_and_nothing_else(
    tmp_path: Path, fault: str, item: int, status: model.Status, said: str
) -> None:
    spoilt, agent = encoding.spoilt(fault), encoding.load("agent")
    instant = encoding.InstantAgent(lambda task: spoilt(task) if task["item"]["id"] == item else agent.good(task))
    entry = encode(tmp_path, instant, {item, 0})
    row = encoding.row(entry, item)
    assert row.status == status
    assert said in (row.error if status == "error" else row.notes)
    assert row.entities == ()
    assert instant.runs[item] == 4
    assert entry.usage.attempts == sum(instant.runs.values())
    tree = files.tree(tmp_path / "refs" / "bench" / "shop", limit=validate.TREE_BYTES)
    left = [name for name, data in tree.items() if f"kb_id: {item}\n".encode() in data and name.startswith("models/")]
    assert left == []


def test_a_build_in_which_no_agent_answered_is_not_published(tmp_path: Path) -> None:
    with pytest.raises(
        errors.RetryLaterError, match=r"no agent answered for any item of shop \(1 sessions\); item 0: sub"
    ):
        encode(tmp_path, encoding.InstantAgent(encoding.spoilt("silent")), {0, 2})
    agent = encoding.InstantAgent()
    entry = encode(tmp_path, agent, {0, 2})
    assert (entry.state, agent.runs) == ("complete", {0: 1, 2: 1})


@pytest.mark.parametrize("fault", ["silent", "stale", "no-entities", "missing", "no-formula", "ignores", "huge"])
def test_the_next_attempt_gets_the_failed_checks_and_only_those(tmp_path: Path, fault: str) -> None:
    spoilt, agent = encoding.spoilt(fault, once=True), encoding.load("agent")
    instant = encoding.InstantAgent(lambda task: spoilt(task) if task["item"]["id"] == 2 else agent.good(task))
    entry = encode(tmp_path, instant, {0, 2})
    assert encoding.row(entry, 2).status == "encoded"
    first, second = [task for task in instant.tasks if task.item.id == 2]
    assert first.failed == ()
    expected = next(said for name, _, _, said in FAULTS if name == fault)
    told = [f"{one.check}: {one.text}" for one in second.failed]
    assert len([text for text in told if text.startswith(expected[:60])]) == 1
    assert len(told) == (2 if fault == "no-formula" else 1)  # a formula of nothing uses no dependency either
    assert first.nonce != second.nonce


def test_what_depends_on_a_failed_item_is_deferred_without_a_session(tmp_path: Path) -> None:
    silent, agent = encoding.spoilt("silent"), encoding.load("agent")
    instant = encoding.InstantAgent(lambda task: silent(task) if task["item"]["id"] == 0 else agent.good(task))
    entry = encode(tmp_path, instant, {0, 2, 5})
    assert encoding.row(entry, 2).notes == "depends on item 0, which is error"
    assert set(instant.runs) == {0, 5}


def test_raw_sql_models_are_refused_on_sqlite_with_the_way_out(tmp_path: Path) -> None:
    body = {"sql": "SELECT id, quantity AS n FROM lines", "columns": [{"name": "n", "type": "INT"}]}

    def answer(task: dict[str, Any]) -> dict[str, Any]:
        return {
            "nonce": task["nonce"],
            "definitions": [{"kind": "model", "model": "raw", "body": body}],
            "entities": ["shop.raw"],
        }

    row = encoding.row(encode(tmp_path, encoding.InstantAgent(answer), {0}), 0)
    assert "Type bucket mismatch" in row.notes
    assert "source_queries" in row.notes


def answer_with(*definitions: dict[str, Any], notes: str = "") -> Any:
    def answer(task: dict[str, Any]) -> dict[str, Any]:
        entities = [encoding.load("agent").reference("shop", one) for one in definitions]
        return {"nonce": task["nonce"], "definitions": list(definitions), "entities": entities, "notes": notes}

    return encoding.InstantAgent(answer)


def test_a_measure_that_needs_time_runs_by_month(tmp_path: Path) -> None:
    definition = {"kind": "measure", "model": "orders", "name": "running", "body": {"formula": "cumsum(count(*))"}}
    row = encoding.row(encode(tmp_path, answer_with(definition), {0}), 0)
    assert row.status == "encoded", row


def nested(levels: int) -> Any:
    value: Any = "x"
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("definition", "said"),
    [
        ({"kind": "model", "model": "m", "body": {"columns": [{"name": "c", "meta": {"kb_id": 5}}]}}, "has a meta inside"),
        ({"kind": "model", "model": "m", "body": {"source_queries": nested(40)}}, "nested more than 12 levels"),
        ({"kind": "model", "model": "../m", "body": {}}, "a model's name is an identifier"),
        ({"kind": "model", "model": "shop", "body": {}}, "model shop has the name of the datasource"),
        ({"kind": "model", "model": "Orders", "body": {}}, "model orders is a part of the schema"),
        ({"kind": "column", "model": "orders", "name": "a b", "body": {"sql": "id"}}, "is not an identifier"),
        ({"kind": "column", "model": "nowhere", "name": "a", "body": {"sql": "id"}}, "there is no model 'nowhere'"),
        ({"kind": "measure", "model": "orders", "name": "status", "body": {"formula": "count(*)"}}, "part of the schema"),
        ({"kind": "column", "model": "orders", "name": "a", "body": {"sql": "'/klaud/secret'"}}, "an absolute path"),
    ],
)  # fmt: skip
def test_what_a_definition_may_not_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, definition: dict[str, Any], said: str
) -> None:
    monkeypatch.setenv("HOME", "/klaud/secret")
    row = encoding.row(encode(tmp_path, answer_with(definition), {0}), 0)
    assert row.status == "deferred"
    assert said in row.notes


def test_a_submission_that_is_nested_without_end_costs_the_attempt(tmp_path: Path) -> None:
    class Deep(encoding.InstantAgent):
        async def run(self, task: model.Task, workspace: Path, tools: Any, bounds: model.Bounds) -> model.ItemResult:
            if task.item.id == 5:
                return await super().run(task, workspace, tools, bounds)
            (workspace / agents.SUBMISSION).write_bytes(b'{"definitions":' + b"[" * 100_000)
            return model.ItemResult(ended="finished")

    row = encoding.row(encode(tmp_path, Deep(), {0, 5}), 0)
    assert row.status == "error"
    assert "cannot be read" in row.error


def test_a_path_in_a_note_is_taken_out_and_one_in_the_inputs_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/klaud/secret")
    good = encoding.load("agent").ENCODINGS[0]
    row = encoding.row(encode(tmp_path / "a", answer_with(*good, notes="see /klaud/secret/x"), {0}), 0)
    assert (row.status, row.notes) == ("encoded", "see ***/x")
    folder = encoding.make(tmp_path / "b", {0})
    kb = folder / "shop_kb.jsonl"
    kb.write_text(kb.read_text().replace("What one line", "In /klaud/secret, what one line"))
    request = encoding.request(tmp_path / "b", encoding.InstantAgent())
    entry = asyncio.run(reference.ensure_reference(request))
    assert encoding.row(entry, 0).status == "encoded"


def program(*faults: str, **more: Any) -> agents.ProgramAgent:
    return agents.ProgramAgent([sys.executable, "-I", "-S", str(encoding.AGENT), *faults], **more)


QUICK = model.Policy(attempt_seconds=0.6, teardown_seconds=3.0)


@pytest.mark.parametrize("fault", ["hang", "hang-after"])
def test_a_time_out_is_an_error_even_after_a_submission(tmp_path: Path, fault: str) -> None:
    began = time.monotonic()
    row = encoding.row(encode(tmp_path, program(f"{fault}@0"), {0, 5}, policy=QUICK), 0)
    assert (row.status, row.error) == ("error", "timeout: after 0.6 s")
    assert time.monotonic() - began < 0.6 + 3.0 + 5.0


def test_a_crash_is_an_error_even_after_a_submission(tmp_path: Path) -> None:
    row = encoding.row(encode(tmp_path, program("crash@0"), {0, 5}), 0)
    assert (row.status, row.error) == ("error", "crashed: exit status -9")


@pytest.mark.parametrize(("fault", "said"), [("torn", "cannot be read"), ("linked", "not a regular file")])
def test_a_submission_that_is_no_whole_file_does_not_count(tmp_path: Path, fault: str, said: str) -> None:
    row = encoding.row(encode(tmp_path, program(f"{fault}@0"), {0, 5}), 0)
    assert row.status == "error"
    assert said in row.error


def test_an_agent_that_never_ran_makes_no_reference(tmp_path: Path) -> None:
    """A complete reference full of errors that say nothing about its items would be reused for ever."""
    with pytest.raises(errors.MissingToolError, match="the agent never ran: there is no such program"):
        encode(tmp_path, agents.ProgramAgent([str(tmp_path / "not-there")]), {0, 2})
    assert [path.name for path in (tmp_path / "refs" / "bench").iterdir()] == ["shop.build.lock"]


def test_the_process_tree_is_gone_before_the_submission_is_read(tmp_path: Path) -> None:
    """The agent leaves a child in a session of its own that spoils the submission a second later: it never can."""
    entry = encode(tmp_path, program("child"), {0})
    assert encoding.row(entry, 0).status == "encoded"


def test_looking_while_a_child_lives_would_be_caught(tmp_path: Path) -> None:
    """The broken twin: an agent whose child is not killed has its submission spoilt after the look."""
    (tmp_path / "task.json").write_text('{"attempt": 1, "nonce": "x", "database": "shop", "item": {"id": 0}}')
    subprocess.run([sys.executable, "-I", "-S", str(encoding.AGENT), "child"], cwd=tmp_path, check=True)
    looked = (tmp_path / "submission.json").read_text()
    deadline = time.monotonic() + 10
    while (tmp_path / "submission.json").read_text() == looked and time.monotonic() < deadline:
        time.sleep(0.02)
    assert (tmp_path / "submission.json").read_text() == "{}"


def test_an_isolated_agent_encodes_too(tmp_path: Path) -> None:
    found = sandbox.find("required")
    if isinstance(found, sandbox.Lacking):
        pytest.skip("this host cannot isolate: " + "; ".join(found.missing))
    entry = encode(tmp_path, program(isolation=found, read=[str(encoding.EXAMPLE)]), {0, 2})
    assert [row.status for row in entry.results] == ["encoded", "encoded"]
