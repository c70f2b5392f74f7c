"""A candidate that encodes, turn by turn: what is committed, what is refused, what a continuation finds.

Real git and a real build; the session's tools are a fake that moves the branch of the bare repository, or refuses.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from klaud import clock, errors
from klaud.encoder import candidate, driven, model, naming, request, rules_outcome
from klaud.session import decide, frameworks, sandbox
from klaud.session import model as sessions
from tests.support import encoding

if TYPE_CHECKING:
    from pathlib import Path

WHO = ("klaud", "90001+klaud@users.noreply.github.com")
ROOT = "references/bench/shop"


class Origin:
    """A bare repository with the inputs on its main branch, and the branch that the session pushes."""

    def __init__(self, place: Path, *, ids: set[int] | None = None, reference: Path | None = None) -> None:
        self.path, work = place / "origin.git", place / "first"
        encoding.make(work, ids)
        (work / "README.md").write_text("x")
        if reference is not None:
            shutil.copytree(reference, work / ROOT)
        self.git("init", "-q", "--bare", "-b", "main", str(self.path), cwd=place)
        self.git("init", "-q", "-b", "main", cwd=work)
        self.git("add", ".", cwd=work)
        who = ("-c", "user.name=mira", "-c", "user.email=mira@users.example")
        self.git(*who, "commit", "-q", "-m", "first", cwd=work)
        self.git("push", "-q", str(self.path), "main", cwd=work)
        self.base = self.git("rev-parse", "main")

    def git(self, *words: str, cwd: Path | None = None) -> str:
        done = subprocess.run(["git", *words], cwd=cwd or self.path, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def files(self, commit: str) -> set[str]:
        return set(self.git("ls-tree", "-r", "--name-only", commit).splitlines())

    def changed(self, commit: str) -> set[str]:
        return set(self.git("diff", "--name-only", self.base, commit).splitlines())


class Tools:
    """The session's desk: pushes for real, answers the rest; ``refuse`` names what is refused and how."""

    def __init__(self, origin: Origin, place: candidate.Workplace, refuse: dict[str, sessions.RefusalCode]) -> None:
        self.origin, self.place, self.refuse = origin, place, refuse
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def call(self, name: str, arguments: dict[str, Any]) -> sessions.ToolAnswer:
        self.calls.append((name, arguments))
        if name in self.refuse:
            return sessions.ToolAnswer(text="no", refused=self.refuse[name])
        if name == "push_work":
            made = self.place.collect(sessions.EditScope(), "bench:shop", candidate="c", agent="scripted")
            if isinstance(made, sessions.Refusal):
                return sessions.ToolAnswer(text=made.text, refused=made.code)
            self.origin.git("fetch", "-q", str(self.place.store), f"{made.head}:refs/heads/work")
            self.place.pushed()
        return sessions.ToolAnswer(text="done")

    def must_go_on(self) -> str:
        return ""

    def stop(self) -> None:
        pass


class Session:
    """One run of the candidate: its turn, and what it did."""

    def __init__(self, place: Path, origin: Origin, agent: Any, **more: Any) -> None:
        asked = request.Asked(
            benchmark="bench",
            databases="shop",
            framework="scripted",
            program=("x",),
            rebuild=more.pop("rebuild", False),
        )
        self.log: list[str] = []
        place.mkdir()
        self.work = candidate.Encode(
            checked=request.check(asked, more.pop("policy", model.Policy())), data="data", directory="references",
            references=place / "refs", clock=clock.SystemClock(), job_seconds=more.pop("job_seconds", 6000.0),
            choose=agent if callable(agent) else lambda *_, **__: agent,
        )  # fmt: skip
        at = self.work.workplace(
            place / "folder", url=str(origin.path), token="", sandbox=sandbox.NONE, identity=WHO,
            clock=clock.SystemClock(), policy=sessions.Policy(),
        )  # fmt: skip
        at.folder.mkdir()
        at.prepare(origin.base, more.pop("head", ""))
        self.tools = Tools(origin, at, more.pop("refuse", {}))
        watch = more.pop("watch", lambda: "")
        self.end = self.work.turn(
            frameworks.Ask(
                sandbox=sandbox.NONE, work=at, prompt="", tools=self.tools, policy=sessions.Policy(), watch=watch,
                log=self.log.append, **more,
            )
        )  # fmt: skip
        at.close()

    @property
    def said(self) -> tuple[str, str, str]:
        return self.end.status, self.end.fault, self.end.code

    @property
    def called(self) -> list[str]:
        return [name for name, _ in self.tools.calls]


Whole = "tuple[Path, model.ReferenceEntry]"


def standing(place: Path, whole: tuple[Path, model.ReferenceEntry]) -> None:
    """Put a finished reference where the session builds, so that nothing has to be built."""
    shutil.copytree(whole[0] / "refs" / "bench", place / "refs" / "bench")


def built(tmp_path: Path, whole: tuple[Path, model.ReferenceEntry], name: str = "one", **more: Any) -> Session:
    """Run a session whose reference is built already."""
    origin = more.pop("origin", None) or Origin(tmp_path)
    place = tmp_path / name

    def choose(*_: object, **__: object) -> encoding.InstantAgent:
        standing(place, whole)
        return encoding.InstantAgent()

    return Session(place, origin, choose, **more)


def test_exactly_the_reference_is_committed_as_klaud(tmp_path: Path, whole: tuple[Path, model.ReferenceEntry]) -> None:
    origin = Origin(tmp_path)
    session = built(tmp_path, whole, origin=origin)
    assert session.said == ("completed", "", "")
    assert session.called == ["push_work", "open_draft", "start_final_run"]
    head = origin.git("rev-parse", "work")
    files = {path.relative_to(whole[0] / "refs").as_posix() for path in (whole[0] / "refs/bench/shop").rglob("*.*")}
    assert origin.changed(head) == {f"references/{name}" for name in files}
    assert origin.git("log", "-1", "--format=%an <%ae> %cn <%ce> %P", head) == (
        f"{WHO[0]} <{WHO[1]}> {WHO[0]} <{WHO[1]}> {origin.base}"
    )
    assert origin.git("cat-file", "blob", f"{head}:{ROOT}/{naming.MARKER}") == whole[1].fingerprint
    draft = dict(session.tools.calls)["open_draft"]
    assert draft["title"] == "Encode shop (sqlite) for bench"
    assert draft["summary"] == "19 items: 12 encoded, 7 deferred, 0 error"
    assert session.work.handed_in


def test_what_an_older_reference_had_and_this_one_has_not_is_gone(tmp_path: Path) -> None:
    older = tmp_path / "older"
    (older / "memories").mkdir(parents=True)
    for name in ("memories/shop_kb_77.md", "_setup_results.json"):  # no marker: scrap, which a build replaces
        (older / name).write_text("old\n")
    origin = Origin(tmp_path, ids={0, 8}, reference=older)
    session = Session(tmp_path / "one", origin, encoding.InstantAgent())
    assert session.said == ("completed", "", ""), session.log
    files = origin.files("work")
    assert f"{ROOT}/memories/shop_kb_77.md" not in files
    assert {f"{ROOT}/{naming.MARKER}", f"{ROOT}/memories/shop_kb_8.md", "README.md"} <= files


@pytest.mark.parametrize(
    ("refuse", "said", "called"),
    [
        ({"push_work": "claim-lost"}, "push-claim-lost", 1),
        ({"push_work": "rejected"}, "push-rejected", 1),
        ({"open_draft": "handoff"}, "draft-handoff", 2),
        ({"open_draft": "draft-exists"}, "", 3),
        ({"start_final_run": "paused"}, "validation-paused", 3),
    ],
)
def test_a_refused_tool_ends_the_turn_with_its_code(
    tmp_path: Path,
    whole: tuple[Path, model.ReferenceEntry],
    refuse: dict[str, sessions.RefusalCode],
    said: str,
    called: int,
) -> None:
    session = built(tmp_path, whole, refuse=refuse)
    assert session.said == ("completed", "", said)
    assert len(session.called) == called


def test_a_reference_that_the_base_has_is_no_work(tmp_path: Path, whole: tuple[Path, model.ReferenceEntry]) -> None:
    origin = Origin(tmp_path, reference=whole[0] / "refs/bench/shop")
    agent = encoding.InstantAgent()
    session = Session(tmp_path / "one", origin, agent)
    assert session.said == ("completed", "", "reference-is-there")
    assert (session.called, agent.runs, session.work.handed_in) == (["push_work"], {}, False)


def test_a_continued_session_does_not_hand_in_again_what_was_validated(
    tmp_path: Path, whole: tuple[Path, model.ReferenceEntry]
) -> None:
    origin = Origin(tmp_path)
    head = built(tmp_path, whole, origin=origin).tools.place.head
    again = Session(tmp_path / "two", origin, encoding.InstantAgent(), head=head, finals=1)
    assert again.said == ("completed", "", "validation-failed")
    assert again.called == []
    died = Session(tmp_path / "three", origin, encoding.InstantAgent(), head=head)
    assert died.said == ("completed", "", ""), "it died between its push and its draft: the rest is done"
    assert died.called == ["push_work", "open_draft", "start_final_run"]


class Slow(encoding.InstantAgent):
    """Answers as the other one, but for one item, at which it thinks for ever."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at = at

    async def run(self, task: model.Task, *rest: Any) -> model.ItemResult:
        if task.item.id == self.at:
            self.runs[self.at] = 1
            await asyncio.Event().wait()
        return await super().run(task, *rest)


def test_a_build_that_the_job_s_limit_cuts_goes_on_where_it_was(tmp_path: Path) -> None:
    origin = Origin(tmp_path, ids={0, 2})
    slow = Slow(2)
    first = Session(
        tmp_path / "one", origin, slow, watch=lambda: "job-limit" if 2 in slow.runs else "", policy=model.Policy()
    )
    assert first.said == ("paused", "job-limit", "")
    assert first.called == ["push_work"]
    head = origin.git("rev-parse", "work")
    assert {name.rpartition("/")[0] for name in origin.changed(head)} == {f"{ROOT}.partial"}
    slow = Slow(2)
    stuck = Session(tmp_path / "stuck", origin, slow, head=head, watch=lambda: "job-limit" if 2 in slow.runs else "")
    assert stuck.said == ("completed", "", "no-progress"), "another run would get no further"
    agent = encoding.InstantAgent()
    second = Session(tmp_path / "two", origin, agent, head=head)
    assert second.said == ("completed", "", ""), second.log
    assert agent.runs == {2: 1}
    assert not [name for name in origin.files("work") if name.startswith(f"{ROOT}.partial")]
    assert origin.git("rev-parse", "work^") == head
    results = json.loads(origin.git("cat-file", "blob", f"work:{ROOT}/{naming.RESULTS}"))
    assert [row["status"] for row in results] == ["encoded", "encoded"]


@pytest.mark.parametrize("fault", ["claim-lost", "cancelled", "paused"])
def test_what_ends_a_session_ends_its_build_and_pushes_nothing(tmp_path: Path, fault: sessions.Fault) -> None:
    slow, used = Slow(8), sessions.Usage(steps=3, input_tokens=50, output_tokens=5, cost_microdollars=700)

    def choose(*_: object, meter: driven.Meter, **__: object) -> Slow:
        meter.add(used)  # as an agent does whose attempt is cut off
        return slow

    session = Session(tmp_path / "one", Origin(tmp_path, ids={8}), choose, watch=lambda: fault if slow.runs else "")
    assert session.said == ("paused" if fault == "paused" else "interrupted", fault, "")
    assert session.end.usage == used, "what was spent is on record whatever the build comes to"
    assert session.called == []
    assert not list((tmp_path / "one" / "refs" / "bench").glob("*.building-*"))


def test_a_budget_is_the_whole_session_s_and_ends_the_build(tmp_path: Path) -> None:
    class Poor(encoding.InstantAgent):
        async def run(self, *_: Any) -> model.ItemResult:
            return model.ItemResult(ended="never-ran", detail="budget")

    def choose(*_: object, meter: driven.Meter, **__: object) -> Poor:
        meter.add(sessions.Usage(cost_microdollars=10_000_000))
        return Poor()

    origin = Origin(tmp_path, ids={8})
    session = Session(tmp_path / "one", origin, choose, spent_microdollars=40_000_000)
    assert session.said == ("failed", "agent-error", "budget")
    assert session.end.usage.cost_microdollars == 10_000_000
    assert Session(tmp_path / "two", origin, choose).said == ("failed", "agent-error", "build-failed")


def test_an_agent_that_cannot_be_had_is_an_agent_that_never_ran(tmp_path: Path) -> None:
    origin = Origin(tmp_path, ids={8})

    def failing(error: errors.KlaudError) -> Any:
        def choose(*_: object, **__: object) -> Any:
            raise error

        return choose

    for error, fault in (
        (errors.ForbiddenError("no key"), "authentication"),
        (errors.MissingToolError("no"), "missing-program"),
    ):
        session = Session(tmp_path / fault, origin, failing(error))
        assert session.said == ("failed", fault, "")
        assert session.called == []


def test_inputs_that_are_not_there_fail_the_build_and_say_so(tmp_path: Path) -> None:
    origin = Origin(tmp_path, ids={8})
    origin.git("update-ref", "refs/heads/main", origin.git("commit-tree", "-m", "x", origin.git("mktree", "--missing")))
    origin.base = origin.git("rev-parse", "main")
    session = Session(tmp_path / "one", origin, encoding.InstantAgent())
    assert session.said == ("failed", "agent-error", "build-failed")
    assert any("there is no directory shop" in text for text in session.log)


def row(number: int, status: model.Status, text: str = "") -> model.Row:
    return model.Row(
        kb_id=number, status=status, notes="" if status == "error" else text, error=text if status == "error" else ""
    )


SILENT = row(1, "error", "submitted: nothing")
TWICE = row(2, "deferred", "failed its checks 4 times: loads: a; exists: b")
LOADS = row(3, "deferred", "failed its checks 4 times: loads: y")


@pytest.mark.parametrize(
    ("rows", "code"),
    [
        ((), "nothing-encoded"),
        ((row(1, "deferred", "no rule"),), "nothing-encoded"),
        ((LOADS,), "check-loads"),
        ((SILENT, TWICE), "check-exists"),
        ((SILENT, SILENT, LOADS), "check-submitted"),
        ((row(1, "encoded", "speaks of exists: "),), "nothing-encoded"),
    ],
)
def test_why_nothing_was_encoded_is_a_closed_word(rows: tuple[model.Row, ...], code: str) -> None:
    assert rules_outcome.why_nothing(rows) == code


def test_the_draft_names_the_first_items_without_entities() -> None:
    rows = tuple(row(number, "deferred", "x" * 500) for number in range(20))
    text = rules_outcome.left_out((row(99, "encoded"), *rows))
    assert text.count("item ") == rules_outcome.SHOWN
    assert text.endswith("; and 8 more")
    assert len(text) < 2000


@pytest.mark.parametrize(("left", "budget"), [(100_000.0, 20_400.0), (1_300.0, 1_000.0), (10.0, 1.0)])
def test_a_build_ends_before_its_job_does(tmp_path: Path, left: float, budget: float) -> None:
    asked = request.Asked(benchmark="bench", databases="shop", framework="scripted", program=("x",))
    work = candidate.Encode(
        checked=request.check(asked, model.Policy()), data="data", directory="references", references=tmp_path,
        clock=clock.SystemClock(), job_seconds=left,
    )  # fmt: skip
    assert work.bounded().policy.budget_seconds == budget


def test_what_the_turn_knows_names_the_reason_unless_something_ended_it() -> None:
    def reason(**end: Any) -> tuple[str, str]:
        return decide.outcome_of_turn(sessions.TurnEnd(code="check-exists", **end))

    assert reason(status="completed") == ("failed", "check-exists")
    assert reason(status="failed", fault="agent-error") == ("failed", "check-exists")
    assert reason(status="interrupted", fault="handoff") == ("handoff", "")
    assert reason(status="failed", fault="authentication") == ("agent-never-ran", "authentication")


def test_a_store_that_breaks_is_a_failed_build_with_its_reason(tmp_path: Path) -> None:
    origin = Origin(tmp_path, ids={8})

    def choose(*_: object, **__: object) -> Any:
        raise OSError(28, "No space left on device")

    session = Session(tmp_path / "one", origin, choose)
    assert session.said == ("failed", "agent-error", "build-failed")
    assert any("No space left on device" in text for text in session.log)
