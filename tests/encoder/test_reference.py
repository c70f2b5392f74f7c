"""The life of a reference's place: reuse, budget and resumption, rebuild, scrap, corruption, races, usage."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import json
import sqlite3
import time
from typing import TYPE_CHECKING, Any

import pytest

from klaud import errors
from klaud.encoder import files, lock, model, naming, reference, run
from tests.support import encoding

if TYPE_CHECKING:
    from pathlib import Path


class Stepping:
    """A clock that a test moves by hand."""

    def __init__(self) -> None:
        self.at = 1000.0

    def now(self) -> Any:
        return datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)

    def monotonic(self) -> float:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.at += seconds


def ensure(root: Path, agent: Any = None, **more: Any) -> model.ReferenceEntry:
    agent = agent or encoding.InstantAgent()
    return asyncio.run(reference.ensure_reference(encoding.request(root, agent, **more)))


def place(root: Path) -> Path:
    return root / "refs" / "bench" / "shop"


def test_a_complete_reference_is_reused_before_anything_else_is_touched(tmp_path: Path) -> None:
    encoding.make(tmp_path, {0, 2})
    first = ensure(tmp_path)
    before = sorted(path.name for path in place(tmp_path).parent.iterdir())
    agent = encoding.InstantAgent()
    again = ensure(tmp_path, agent, data=tmp_path / "nowhere")
    assert (first.built, again.built) == (True, False)
    assert again.usage == model.Usage()
    assert (again.fingerprint, again.results, again.kb_rows) == (first.fingerprint, first.results, first.kb_rows)
    assert agent.runs == {}
    assert sorted(path.name for path in place(tmp_path).parent.iterdir()) == before


def test_the_budget_leaves_a_partial_reference_and_the_next_call_resumes_it(tmp_path: Path) -> None:
    encoding.make(tmp_path)
    clock = Stepping()

    def ended(_: model.Task) -> model.Ended:
        clock.at += 100.0
        return "finished"

    policy = model.Policy(budget_seconds=450.0)
    agent = encoding.InstantAgent(ended=ended)
    first = ensure(tmp_path, agent, clock=clock, policy=policy)
    assert (first.built, first.state, first.usage.sessions) == (True, "partial", 5)
    assert not place(tmp_path).exists()
    late = [row.kb_id for row in first.results if row.notes == "budget: not started in time"]
    assert late == [5, 6, 7, 8, 12, 13, 14, 15, 16, 17, 18]
    assert sorted(path.name for path in place(tmp_path).parent.iterdir()) == ["shop.build.lock", "shop.partial"]
    rest = encoding.InstantAgent()
    second = ensure(tmp_path, rest)
    assert (second.built, second.state, second.usage.sessions) == (True, "complete", 11)
    assert set(rest.runs) == set(late)
    assert not (tmp_path / "refs" / "bench" / "shop.partial").exists()
    total = json.loads((place(tmp_path) / naming.USAGE).read_text())["total"]
    assert total["sessions"] == 16
    assert total["input_tokens"] == first.usage.input_tokens + second.usage.input_tokens == 1600
    assert [row for row in second.results if row.kb_id < 5] == [row for row in first.results if row.kb_id < 5]


def test_an_item_that_the_budget_cuts_is_not_an_error(tmp_path: Path) -> None:
    encoding.make(tmp_path, {0, 5})
    clock = Stepping()

    def ended(task: model.Task) -> model.Ended:
        clock.at += 300.0
        return "finished" if task.item.id == 0 else "timeout"

    entry = ensure(tmp_path, encoding.InstantAgent(ended=ended), clock=clock, policy=model.Policy(budget_seconds=400.0))
    assert encoding.row(entry, 5).notes == "budget: not started in time"
    assert entry.state == "partial"


def test_a_partial_reference_of_other_inputs_is_not_resumed(tmp_path: Path) -> None:
    folder = encoding.make(tmp_path, {0, 2})
    clock = Stepping()

    def ended(_: model.Task) -> model.Ended:
        clock.at += 300.0
        return "finished"

    ensure(tmp_path, encoding.InstantAgent(ended=ended), clock=clock, policy=model.Policy(budget_seconds=200.0))
    kb = folder / "shop_kb.jsonl"
    kb.write_text(kb.read_text().replace("Gross Revenue", "Revenue"))
    agent = encoding.InstantAgent()
    assert ensure(tmp_path, agent).state == "complete"
    assert agent.runs == {0: 1, 2: 1}


def test_rebuild_wipes_this_reference_and_nothing_else(tmp_path: Path) -> None:
    encoding.make(tmp_path, {0})
    ensure(tmp_path)
    other = tmp_path / "refs" / "bench" / "other"
    other.mkdir()
    (other / naming.MARKER).write_text("0" * 16)
    kept = tmp_path / "refs" / "else" / "shop"
    kept.mkdir(parents=True)
    (kept / naming.MARKER).write_text("1" * 16)
    (tmp_path / "refs" / "bench" / "shop.building-dead").mkdir()
    agent = encoding.InstantAgent()
    entry = ensure(tmp_path, agent, rebuild=True)
    assert (entry.built, agent.runs) == (True, {0: 1})
    assert (other / naming.MARKER).read_text() == "0" * 16
    assert (kept / naming.MARKER).read_text() == "1" * 16
    assert sorted(path.name for path in (tmp_path / "refs" / "bench").iterdir()) == ["other", "shop", "shop.build.lock"]


def test_scrap_is_built_over(tmp_path: Path) -> None:
    encoding.make(tmp_path, {0})
    (place(tmp_path) / "models").mkdir(parents=True)
    (place(tmp_path) / naming.RESULTS).write_text("half")
    assert ensure(tmp_path).built
    assert (place(tmp_path) / naming.MARKER).exists()


@pytest.mark.parametrize("name", ["notes.txt", ".git"])
def test_a_directory_with_something_else_in_it_is_never_removed(tmp_path: Path, name: str) -> None:
    encoding.make(tmp_path, {0})
    (place(tmp_path) / name).mkdir(parents=True)
    with pytest.raises(errors.InputError, match="which no build of klaud makes"):
        ensure(tmp_path)
    assert (place(tmp_path) / name).is_dir()


def test_a_link_in_the_place_of_the_reference_is_refused(tmp_path: Path) -> None:
    encoding.make(tmp_path, {0})
    (tmp_path / "precious").mkdir()
    place(tmp_path).parent.mkdir(parents=True)
    place(tmp_path).symlink_to(tmp_path / "precious")
    with pytest.raises(errors.InputError, match="not a directory"):
        ensure(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        (naming.ROWS, b"[", "corrupt"),
        (naming.RESULTS, b"[]", "item 0 has no result"),
        (naming.RESULTS, None, "cannot be read"),
        (naming.MARKER, b"nonsense", "marker is not a fingerprint"),
    ],
)
def test_a_corrupt_reference_is_an_error_that_says_what_to_delete(
    tmp_path: Path, name: str, content: bytes | None, said: str
) -> None:
    encoding.make(tmp_path, {0})
    ensure(tmp_path)
    if content is None:
        (place(tmp_path) / name).unlink()
    else:
        (place(tmp_path) / name).write_bytes(content)
    agent = encoding.InstantAgent()
    with pytest.raises(errors.InputError, match=said) as caught:
        ensure(tmp_path, agent)
    assert "Delete the directory bench/shop" in caught.value.advice
    assert agent.runs == {}
    assert ensure(tmp_path, rebuild=True).built


def test_a_build_that_loses_the_rename_counts_its_tokens_once_as_wasted(tmp_path: Path) -> None:
    encoding.make(tmp_path, {0})
    ensure(tmp_path)
    won = files.tree(place(tmp_path), limit=10**9)
    (tmp_path / "refs").rename(tmp_path / "won")

    def overtake(operation: str, path: Path) -> None:
        if operation == "write" and path.name == naming.MARKER:
            for name, data in won.items():
                target = place(tmp_path) / name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(data)

    entry = ensure(tmp_path, files=files.Files(overtake))
    assert (entry.built, entry.usage) == (False, model.Usage())
    assert entry.wasted.input_tokens == 100
    assert [path.name for path in place(tmp_path).parent.iterdir() if "building" in path.name] == []


def test_a_winner_without_a_marker_is_no_success(tmp_path: Path) -> None:
    encoding.make(tmp_path, {0})

    def intrude(operation: str, path: Path) -> None:
        if operation == "write" and path.name == naming.MARKER:
            (place(tmp_path) / "models").mkdir(parents=True)

    with pytest.raises(errors.RetryLaterError, match="has no marker"):
        ensure(tmp_path, files=files.Files(intrude))


def test_waiting_for_another_build_ends_with_its_process_in_the_error(tmp_path: Path) -> None:
    encoding.make(tmp_path, {0})
    request = encoding.request(tmp_path, encoding.InstantAgent(), policy=model.Policy(lock_seconds=0.3))

    async def both() -> None:
        (tmp_path / "refs" / "bench").mkdir(parents=True)
        at = tmp_path / "refs" / "bench"
        far = time.monotonic() + 60
        async with lock.held(at / "shop.build.lock", at / "shop.build.holder", deadline=far, clock=request.clock):
            gap = asyncio.create_task(largest_gap())
            with pytest.raises(errors.RetryLaterError, match=r"process \d+ on .*, since "):
                await reference.ensure_reference(request)
            gap.cancel()
        assert (await reference.ensure_reference(request)).built

    asyncio.run(both())


async def largest_gap() -> float:
    worst, last = 0.0, time.monotonic()
    while True:
        await asyncio.sleep(0.01)
        worst, last = max(worst, time.monotonic() - last), time.monotonic()
        assert worst < 5.0


def test_a_cancelled_wait_leaves_the_lock_free(tmp_path: Path) -> None:
    clock = encoding.request(tmp_path, encoding.InstantAgent()).clock
    path, holder = tmp_path / "x.lock", tmp_path / "x.holder"

    async def scene() -> None:
        far = time.monotonic() + 60
        async with lock.held(path, holder, deadline=far, clock=clock):

            async def wait() -> None:
                async with lock.held(path, holder, deadline=far, clock=clock):
                    pass

            waiting = asyncio.create_task(wait())
            await asyncio.sleep(0.2)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        async with lock.held(path, holder, deadline=time.monotonic() + 1, clock=clock):
            pass

    asyncio.run(scene())


def test_a_cancelled_build_keeps_what_was_settled(tmp_path: Path) -> None:
    encoding.make(tmp_path, {0, 2, 5})

    class Waiting(encoding.InstantAgent):
        async def run(self, task: model.Task, workspace: Path, tools: Any, bounds: model.Bounds) -> model.ItemResult:
            if task.item.id == 5:
                reached.set()
                await asyncio.sleep(60)
            return await super().run(task, workspace, tools, bounds)

    reached = asyncio.Event()

    async def scene() -> None:
        build = asyncio.create_task(reference.ensure_reference(encoding.request(tmp_path, Waiting())))
        await reached.wait()
        build.cancel()
        with pytest.raises(asyncio.CancelledError):
            await build

    asyncio.run(scene())
    agent = encoding.InstantAgent()
    assert ensure(tmp_path, agent).state == "complete"
    assert agent.runs == {5: 1}


def test_what_was_paid_for_is_kept_when_the_whole_does_not_validate(tmp_path: Path) -> None:
    """The database changes under the build: the whole drifts, nothing is published, and no token is spent twice."""
    path = encoding.make(tmp_path, {0, 5}) / "shop.sqlite"
    whole = path.read_bytes()

    def ended(task: model.Task) -> model.Ended:
        if task.item.id == 5:
            with contextlib.closing(sqlite3.connect(path)) as connection:
                connection.execute("ALTER TABLE lines RENAME COLUMN unit_price TO price")
        return "finished"

    with pytest.raises(errors.KlaudError, match="does not validate"):
        ensure(tmp_path, encoding.InstantAgent(ended=ended))
    assert sorted(one.name for one in place(tmp_path).parent.iterdir()) == ["shop.build.lock", "shop.partial"]
    path.write_bytes(whole)
    agent = encoding.InstantAgent()
    entry = ensure(tmp_path, agent)
    assert (entry.state, agent.runs) == ("complete", {})
    assert json.loads((place(tmp_path) / naming.USAGE).read_text())["total"]["sessions"] == 2


def test_a_failed_database_is_a_row_with_an_error_and_the_batch_goes_on(tmp_path: Path) -> None:
    encoding.make(tmp_path, {0})
    bad = encoding.request(tmp_path, encoding.InstantAgent(), key=naming.key("bench", "absent", "sqlite"))
    good = encoding.request(tmp_path, encoding.InstantAgent())

    class Raising:
        async def run(self, *_: Any) -> model.ItemResult:
            raise RuntimeError("broken agent")

    (tmp_path / "data" / "shop2").mkdir()
    for path in (tmp_path / "data" / "shop").iterdir():
        text = path.read_bytes().replace(b'"shop|', b'"shop2|')
        (tmp_path / "data" / "shop2" / path.name.replace("shop", "shop2")).write_bytes(text)
    raising = encoding.request(tmp_path, Raising(), key=naming.key("bench", "shop2", "sqlite"))
    outcomes = asyncio.run(run.encode_all([bad, raising, good]))
    assert [outcome.entry is not None for outcome in outcomes] == [False, False, True]
    assert outcomes[0].error == "there is no directory absent in the data directory"
    assert outcomes[1].error == "RuntimeError: broken agent"
    assert outcomes[0].usage == outcomes[1].usage == model.Usage()
    assert "1 encoded, 0 deferred, 0 error" in run.lines(outcomes[2])[0]
    assert run.lines(outcomes[0])[0].startswith("bench/absent: error: ")


def test_changed_inputs_are_said_when_a_reference_is_reused(tmp_path: Path) -> None:
    folder = encoding.make(tmp_path, {0})
    ensure(tmp_path)
    request = encoding.request(tmp_path, encoding.InstantAgent())
    assert not asyncio.run(run.encode_all([request]))[0].stale
    kb = folder / "shop_kb.jsonl"
    kb.write_text(kb.read_text().replace("GLV", "LV"))
    outcome = asyncio.run(run.encode_all([request]))[0]
    assert outcome.stale
    assert "--rebuild makes it anew" in "\n".join(run.lines(outcome))


def test_an_sqlite_reference_is_not_a_postgres_one(tmp_path: Path) -> None:
    sqlite, postgres = (naming.names(naming.key("bench", "shop", dialect)) for dialect in ("sqlite", "postgres"))
    for field in ("directory", "partial", "lock", "artifact", "family"):
        assert getattr(sqlite, field) != getattr(postgres, field)
    assert postgres.local == "bench/shop.postgres"
    del tmp_path
