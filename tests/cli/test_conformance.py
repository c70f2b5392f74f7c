"""``klaud conformance``: the contracts as a verb that writes only where it is told to, and takes away what it made."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import requests

from klaud import clock, errors, fakehub
from klaud.cli import main
from klaud.fakehub.git import GitStore
from klaud.github.conformance import model, run
from klaud.github.conformance import target as targets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

REPOSITORY = "acme/spare"
FLOW = f".github/workflows/{targets.WORKFLOW_FILE}"


class World:
    """A spare repository on the embedded GitHub, and the verb in its environment."""

    def __init__(self, hub: fakehub.Hub, url: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.hub, self.url, self._capsys = hub, url, capsys

    def klaud(self, *argv: str) -> tuple[int, str]:
        self._capsys.readouterr()
        status = 0
        try:
            main.main(["conformance", *argv])
        except SystemExit as end:
            status = int(end.code or 0)
        said = self._capsys.readouterr()
        return status, said.out + said.err

    def target(self, session: requests.Session | None = None) -> targets.Target:
        return targets.Target(
            url=self.url, repository=REPOSITORY, token=lambda: "made-up", clock=clock.SystemClock(),
            session=session or requests.Session(),
        )  # fmt: skip

    def nothing_is_left(self) -> bool:
        repository = self.hub.repository(REPOSITORY)
        return (
            [ref for ref in self.hub.git(REPOSITORY).refs() if ref.startswith("refs/heads/")] == ["refs/heads/main"]
            and all(issue.state == "closed" for issue in repository.issues.values())
            and not any(label.lower().startswith(targets.WORD) for label in repository.labels)
            and all(one.status == "completed" for one in repository.runs.values())
        )


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[World]:
    with fakehub.Hub(tmp_path / "hub", settings=fakehub.Settings(cancel_scale=0.02)) as hub:
        hub.add_account("klaud-bot", id=90001, role="write")
        hub.add_token("made-up", "klaud-bot")
        hub.create_repository(REPOSITORY, files={"README.md": "x", FLOW: targets.WORKFLOW}, author="klaud-bot")
        with fakehub.serve(hub) as server:
            for name in ("GITHUB_TOKEN", "GITHUB_RUN_ID", "KLAUD_RECORD_KEY"):
                monkeypatch.delenv(name, raising=False)
            monkeypatch.setenv("KLAUD_TOKEN", "made-up")
            monkeypatch.setenv("GITHUB_REPOSITORY", REPOSITORY)
            for name in ("GITHUB_API_URL", "GITHUB_SERVER_URL"):
                monkeypatch.setenv(name, server.url)
            yield World(hub, server.url, capsys)


def test_without_live_the_contracts_are_listed_and_nothing_is_sent(world: World) -> None:
    status, said = world.klaud()
    assert status == 0
    assert [line.split()[0] for line in said.splitlines()[:-1]] == [one.name for one in run.CONTRACTS]
    assert world.hub.log == []


def test_it_refuses_to_write_without_a_yes_and_sends_nothing(world: World) -> None:
    status, said = world.klaud("--live")
    assert status == errors.InputError.exit_status
    assert f"write to {REPOSITORY}" in said
    assert world.hub.log == []


def test_it_refuses_a_repository_that_is_not_spare(world: World) -> None:
    git = world.hub.git(REPOSITORY)
    git.set_refs({"refs/heads/work": git.ref("refs/heads/main")})
    status, said = world.klaud("--live", "--yes", "--only", "C01")
    assert status == errors.InputError.exit_status
    assert "not a spare repository: it has branch work" in said
    assert world.hub.writes() == []
    assert world.klaud("--live", "--yes", "--only", "C01", "--even-if-used")[0] == 0
    assert "refs/heads/work" in git.refs()


def test_each_contract_is_told_by_its_number_and_nothing_is_left(world: World, tmp_path: Path) -> None:
    place = tmp_path / "report" / "how.json"
    numbers = ("C01", "c11", "C27", "C28", "C40", "C43", "C49")
    given = [word for number in numbers for word in ("--only", number)]
    status, said = world.klaud("--live", "--yes", *given, "--json", str(place))
    assert status == 0, said
    assert [line.split()[:2] for line in said.splitlines()[:-1]] == [["pass", number.upper()] for number in numbers]
    assert "7 contracts, 7 pass, 0 fail, 0 skip; nothing is left" in said
    assert world.nothing_is_left()
    report = json.loads(place.read_text())
    assert [one["number"] for one in report["contracts"]] == [number.upper() for number in numbers]
    assert (report["repository"], report["left"], report["interrupted"]) == (REPOSITORY, [], False)
    assert "made-up" not in place.read_text()


def test_a_contract_that_cannot_be_tried_is_skipped_with_its_reason(world: World) -> None:
    world.hub.commit(REPOSITORY, "main", {FLOW: None}, author="klaud-bot")
    status, said = world.klaud("--live", "--yes", "--only", "C43", "--only", "C48")
    assert status == 0
    assert "skip C43" in said
    assert "commit what klaud conformance --workflow prints" in said
    assert "pass C48" in said
    assert world.klaud("--workflow") == (0, targets.WORKFLOW)


def test_an_apps_token_skips_what_only_an_account_can_be_asked(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.hub.add_token("of-a-job", "klaud-bot", kind="github_token")
    monkeypatch.setenv("KLAUD_TOKEN", "of-a-job")
    status, said = world.klaud("--live", "--yes", "--only", "C44", "--only", "C50", "--only", "C01")
    assert status == 0, said
    assert [line.split()[:2] for line in said.splitlines() if line[0] != " "][:3] == [
        ["skip", "C44"], ["skip", "C50"], ["pass", "C01"],
    ]  # fmt: skip
    assert "GET /user is not for it" in said


class Careless(GitStore):
    """A host whose refs are whatever they are told."""

    def swap(self, name: str, expected: str | None, new: str | None) -> None:
        del expected
        self.set_refs({name: new})


def test_a_host_that_breaks_one_is_caught_and_the_rest_goes_on(world: World) -> None:
    broken = Careless(world.hub.repository(REPOSITORY).git_path)
    whole, world.hub._git[REPOSITORY] = world.hub._git[REPOSITORY], broken
    try:
        status, said = world.klaud("--live", "--yes", "--only", "C02", "--only", "C48")
    finally:
        world.hub._git[REPOSITORY] = whole
        broken.close()
    assert status == 1
    assert "fail C02" in said
    assert "(422, 'Reference already exists') was promised" in said
    assert "pass C48" in said
    assert world.nothing_is_left()


@pytest.mark.parametrize("number", ["C14", "7", "C99"])
def test_a_number_that_is_none_is_refused(number: str, world: World) -> None:
    assert world.klaud("--live", "--yes", "--only", number)[0] == errors.InputError.exit_status
    assert world.hub.log == []


@pytest.mark.parametrize(("token", "status"), [("revoked", 3), ("reader", 3)])
def test_a_token_that_may_not_write_ends_it_at_once(
    token: str, status: int, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.hub.add_token("reader", "klaud-bot", permissions={"contents": "read", "metadata": "read"})
    monkeypatch.setenv("KLAUD_TOKEN", token)
    assert world.klaud("--live", "--yes", "--only", "C01")[0] == status
    assert world.hub.writes() == []


def test_an_empty_repository_and_a_report_that_cannot_be_written_are_said_before_anything_is(
    world: World, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("x")
    status, said = world.klaud("--live", "--yes", "--only", "C01", "--json", str(tmp_path / "file" / "how.json"))
    assert (status, "cannot be written" in said) == (2, True), said
    world.hub.git(REPOSITORY).set_refs({"refs/heads/main": None})
    status, said = world.klaud("--live", "--yes", "--only", "C01")
    assert (status, "has no commit yet" in said) == (2, True), said
    assert world.hub.writes() == []


def test_an_interruption_tidies_up_all_the_same(world: World) -> None:
    def stop(target: targets.Target) -> None:
        target.pull()
        raise KeyboardInterrupt

    told: list[model.Ended] = []
    with contextlib.closing(world.target()) as target:
        contracts = (model.Contract(1, "interrupted", stop), run.CONTRACTS[0])
        report, limit = run.conform(target, contracts, told.append)
    assert (report.interrupted, report.left, limit) == (True, (), None)
    assert [(one.result, one.why) for one in told] == [("skip", run.INTERRUPTED)] * 2
    assert world.nothing_is_left()


def test_a_sigterm_ends_it_with_130_and_nothing_is_left(world: World) -> None:
    """The whole verb as a process: the signal comes while contracts run."""
    argv = [sys.executable, "-u", "-m", "klaud", "conformance", "--live", "--yes"]
    with subprocess.Popen(argv, env=dict(os.environ), stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline().startswith("pass C01")
        child.send_signal(signal.SIGTERM)
        rest = child.stdout.read()
    assert child.returncode == 130, rest
    assert "nothing is left" in rest
    assert world.nothing_is_left()


def test_what_a_killed_run_left_is_taken_away_later_and_nothing_else(world: World) -> None:
    with contextlib.closing(world.target()) as target:
        made = target.pull()
        target.call("POST", f"issues/{made['number']}/labels", {"labels": [targets.LABELS[0]]})
    git = world.hub.git(REPOSITORY)
    git.set_refs({"refs/heads/klaud-conformance-notes": git.ref("refs/heads/main")})
    assert not world.nothing_is_left()
    status, said = world.klaud("--live", "--yes", "--tidy")
    assert (status, "nothing of an earlier run is left" in said) == (0, True), said
    git.set_refs({"refs/heads/klaud-conformance-notes": None})
    assert world.nothing_is_left()


class Limited(requests.Session):
    """A host that has had enough after some answers."""

    def __init__(self, answers: int) -> None:
        super().__init__()
        self.answers = answers

    def request(self, *given: object, **more: object) -> requests.Response:  # type: ignore[override]
        self.answers -= 1
        if self.answers >= 0:
            return super().request(*given, **more)  # type: ignore[arg-type]
        answer = requests.Response()
        answer.status_code = 429
        answer.headers["Retry-After"] = "60"
        return answer


def test_a_rate_limit_ends_it_and_what_may_be_left_is_told(world: World) -> None:
    with contextlib.closing(world.target(Limited(5))) as target:
        report, limit = run.conform(target, run.CONTRACTS[:3], lambda _: None)
    assert limit is not None
    assert limit.after == 60
    assert report.count("skip") >= 2
    assert len(report.left) == 4


class Stubborn(requests.Session):
    """A host that lets nothing go again."""

    def request(self, method: str, *given: object, **more: object) -> requests.Response:  # type: ignore[override]
        if method in {"DELETE", "PATCH"}:
            answer = requests.Response()
            answer.status_code = 500
            return answer
        return super().request(method, *given, **more)  # type: ignore[arg-type]


def test_what_cannot_be_taken_away_is_named_and_no_success(world: World) -> None:
    session = Stubborn()
    with contextlib.closing(world.target(session)) as target:
        made = target.pull()
        left = run.tidy(target, target.prefix)
        assert left[:2] == (f"pull request #{made['number']}: HTTP 500", f"refs/heads/{made['head']['ref']}: HTTP 500")
        assert [one.partition(":")[0] for one in left[2:]] == [f"label {label}" for label in targets.LABELS]
    world.hub.state.tokens["made-up"].permissions |= {"issues": "read", "pull_requests": "read"}
    status, said = world.klaud("--live", "--yes", "--tidy")
    assert status == 1
    assert f"left: pull request #{made['number']}: HTTP 403" in said
    status, said = world.klaud("--live", "--yes", "--only", "C48")
    assert status == 1
    assert "1 pass, 0 fail, 0 skip; something is left (--tidy tries again)" in said


def held(number: int) -> Callable[[targets.Target], None]:
    return lambda target: model.same(target.call("GET", "").status_code, number, "the status")


def test_an_unexpected_form_of_an_answer_is_a_failure_with_its_name(world: World) -> None:
    def odd(target: targets.Target) -> None:
        target.call("GET", "").json()["no-such-key"].strip()

    with contextlib.closing(world.target()) as target:
        contracts = (model.Contract(1, "odd", odd), model.Contract(2, "false", held(999)))
        report, _ = run.conform(target, contracts, lambda _: None)
    assert [one.result for one in report.contracts] == ["fail", "fail"]
    assert "KeyError: 'no-such-key'" in report.contracts[0].why
    assert report.contracts[1].why == "the status: 200 where 999 was promised"
