"""The HTTP control plane under a server that is well, slow, stalled, lying, denying and dead."""

from __future__ import annotations

import datetime
import itertools
import json
import logging
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from klaud import clock as clocks
from klaud import errors, feeds, names
from klaud.session import control, control_http, heartbeat, model, run
from klaud.session import rules_control as rules
from tests.support import control_server, session_bench

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

POLICY = model.Policy(heartbeat_seconds=0.05, first_beat_seconds=1.0, release_seconds=1.0)
WHO = rules.Who(
    session_id="7001_1-abc", replica_id="7002-1", turn_id="7001_1-abc-0", trace_id="a" * 32, span_id="b" * 16,
    kind="scripted",
)  # fmt: skip
START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


class Inner:
    """The git control plane's part, as told."""

    def __init__(self, why: heartbeat.Why = "", error: Exception | None = None) -> None:
        self.why = why
        self.error = error

    def beat(self, *, running: bool) -> heartbeat.Why:
        if self.error is not None:
            raise self.error
        return self.why if running else ""


@pytest.fixture
def server() -> Iterator[control_server.Server]:
    with control_server.serving() as serving:
        yield serving


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_http, "REQUEST_SECONDS", 1.0)
    monkeypatch.setattr(control_http, "FIRST_WAIT", 0.01)


def plane(url: str, spill: Path | None = None, **more: Any) -> control_http.HttpControl:
    given = {
        "inner": Inner(),
        "token": "",
        "clock": clocks.SystemClock(),
        "spill": spill,
        "refreshed": lambda: 0,
        **more,
    }
    return control_http.HttpControl(url, WHO, **given)


def beating(made: control_http.HttpControl) -> tuple[heartbeat.Heartbeat, list[str], list[str]]:
    told: list[str] = []
    log: list[str] = []
    beats = heartbeat.Heartbeat(made, POLICY, clocks.SystemClock(), interrupted=told.append, log=log.append)
    return beats, told, log


def turn(index: int = 0) -> rules.Turn:
    return rules.Turn(
        index=index, start=START, end=START + datetime.timedelta(seconds=9), agent_session="ab12", sandbox="x"
    )


def until(told: Callable[[], bool], seconds: float = 10.0) -> None:
    """Wait until something is so; what follows asserts it."""
    end = time.monotonic() + seconds
    while not told() and time.monotonic() < end:
        time.sleep(0.01)


# -- the heartbeat


@pytest.mark.parametrize("mode", ["well", "slow", "lying", "failing"])
def test_the_last_write_is_the_release_whatever_the_server_does(server: control_server.Server, mode: str) -> None:
    server.mode = mode
    beats, told, _ = beating(plane(server.url))
    beats.start()
    until(lambda: len(server.asked) >= 3)
    beats.release()
    count = len(server.asked)
    time.sleep(0.4)
    assert len(server.asked) == count, "nothing is sent after the release"
    assert server.most == 1, "beats never overlap"
    assert told == [], "no lie interrupts"
    if mode != "failing":
        assert server.beats()[-1] is False
        assert server.beats().count(False) == 1


def test_a_stalled_server_holds_nobody_up_and_gets_no_late_running_beat(server: control_server.Server) -> None:
    server.mode = "stalled"
    beats, _, log = beating(plane(server.url))
    began = time.monotonic()
    beats.start()
    time.sleep(0.3)
    beats.release()
    assert time.monotonic() - began < 4.5
    server.go.set()
    time.sleep(0.3)
    assert False not in server.beats(), "the newest beat has no clear answer: no release that it could land after"
    assert log


def test_a_dripping_server_costs_its_thread_and_nothing_else(server: control_server.Server) -> None:
    server.mode = "dripping"
    made = plane(server.url)
    began = time.monotonic()
    with pytest.raises(errors.ReadFailedError):
        made.beat(running=True)
    assert time.monotonic() - began < 1.5
    with pytest.raises(errors.ReadFailedError):
        made.beat(running=True)
    assert len(server.asked) == 1, "one heartbeat is in the air at a time"
    server.go.set()


class Twin(control_http.HttpControl):
    """The broken twin: it forgets what is in the air."""

    def _heartbeat(self, *, running: bool) -> feeds.Posted | None:
        self._air = None
        return super()._heartbeat(running=running)


def test_a_twin_that_forgets_what_is_in_the_air_is_seen(server: control_server.Server) -> None:
    server.mode = "dripping"
    made = Twin(server.url, WHO, inner=Inner(), token="", clock=clocks.SystemClock(), spill=None, refreshed=lambda: 0)
    for running in (True, True, False):
        with pytest.raises(errors.ReadFailedError):
            made.beat(running=running)
    assert len(server.asked) == 3
    server.go.set()


def test_a_dead_server_changes_nothing() -> None:
    with control_server.serving() as gone:
        url = gone.url
    beats, told, _ = beating(plane(url))
    beats.start()
    until(lambda: beats.missed >= 2)
    beats.release()
    assert told == []
    assert beats.missed >= 2
    assert not beats.unheard


def test_three_refusals_of_the_credential_in_a_row_are_unheard(server: control_server.Server) -> None:
    server.token = "right"
    beats, _, log = beating(plane(server.url, token="wrong"))
    beats.start()
    until(lambda: beats.unheard)
    beats.release()
    assert beats.unheard
    assert sum("unheard" in line for line in log) == 1
    beats, _, _ = beating(plane(server.url, token="right"))
    beats.start()
    until(lambda: beats.beats >= 2)
    beats.release()
    assert not beats.unheard
    assert beats.beats >= 2


def test_only_an_exact_false_interrupts(server: control_server.Server) -> None:
    made = plane(server.url)
    assert made.beat(running=True) == ""
    server.current = False
    assert made.beat(running=True) == "cancelled"
    assert all(rules.read_beat(lie).current for lie in control_server.LIES)
    assert not rules.read_beat({"is_current_turn": False}).current


def test_a_truthiness_check_would_be_fooled() -> None:
    """The broken twin of ``read_beat``."""
    assert any(isinstance(lie, dict) and not lie.get("is_current_turn", True) for lie in control_server.LIES)


def test_claim_label_and_pause_switch_count_whatever_the_server_says(server: control_server.Server) -> None:
    assert plane(server.url, inner=Inner("handoff")).beat(running=True) == "handoff"
    with pytest.raises(errors.ReadFailedError, match="inner"):
        plane(server.url, inner=Inner(error=errors.ReadFailedError("inner"))).beat(running=True)
    assert len(server.beats()) == 2, "the heartbeat is sent all the same"


def test_the_gap_between_beats_while_the_turn_is_busy(
    server: control_server.Server, capsys: pytest.CaptureFixture[str]
) -> None:
    """Sixty ordinary beats are scaled down to intervals of 50 ms; the busy thread and a held lock stand for the turn."""
    made = plane(server.url)
    beats, _, _ = beating(made)
    times: list[float] = []
    beat = made.beat

    def timed(*, running: bool) -> heartbeat.Why:
        times.append(time.monotonic())
        return beat(running=running)

    made.beat = timed  # type: ignore[method-assign]
    lock = threading.Lock()
    beats.start()
    until = time.monotonic() + 1.0
    with lock:
        while time.monotonic() < until:
            sum(range(2000))
    beats.release()
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    with capsys.disabled():
        longest = max(gaps) * 1000
        sys.stdout.write(
            f"\n  beats every 50 ms while the turn is busy: {len(times)}, the longest gap {longest:.0f} ms\n"
        )
    assert max(gaps) < 2.0


# -- turns


def test_a_turn_is_appended_with_the_stream_that_the_newest_beat_named(server: control_server.Server) -> None:
    made = plane(server.url)
    made.beat(running=True)
    server.stream = "st-2"
    made.beat(running=True)
    assert made.turn(turn()) == "taken"
    route, body = server.writes[-1]
    assert route == "sessions/turns/"
    assert (body["stream_id"], body["turn_index"], body["agent_session_id"]) == ("st-2", 0, "ab12")
    assert made.trouble == rules.Trouble()


def test_a_duplicate_refreshes_the_counter_and_is_tried_once(server: control_server.Server, tmp_path: Path) -> None:
    server.turns.update({(WHO.session_id, 0), (WHO.session_id, 1)})
    made = plane(server.url, tmp_path / "spill", refreshed=lambda: 2)
    made.beat(running=True)
    assert made.turn(turn(0)) == "taken"
    assert server.writes[-1][1]["turn_index"] == 2
    server.turns.update({(WHO.session_id, 3), (WHO.session_id, 4)})
    made = plane(server.url, tmp_path / "spill", refreshed=lambda: 0)
    made.beat(running=True)
    asked = server.asked.count("sessions/turns/")
    assert made.turn(turn(3)) == "spilled"
    assert server.asked.count("sessions/turns/") == asked + 2, "once more, and no oftener"
    assert made.trouble.spilled_turns == 1
    assert made.trouble.refused == 0, "a duplicate is no refusal"
    assert json.loads((tmp_path / "spill").read_text())["kind"] == "turn"


def test_a_turn_without_a_stream_is_spilled_and_counted(server: control_server.Server, tmp_path: Path) -> None:
    server.stream = None
    made = plane(server.url, tmp_path / "spill")
    made.beat(running=True)
    assert made.turn(turn()) == "spilled"
    assert "sessions/turns/" not in server.asked
    assert made.trouble.spilled_turns == 1


# -- records


def test_records_carry_turn_and_span_and_arrive_in_order(server: control_server.Server) -> None:
    made = plane(server.url)
    for number in range(250):
        made.hear({"item": str(number)})
    made.drain()
    got = [record for _, body in server.writes for record in body["records"]]
    assert [record["item"] for record in got] == [str(number) for number in range(250)]
    assert {(record["turn_id"], record["span_id"]) for record in got} == {(WHO.turn_id, WHO.span_id)}
    assert len(server.writes) == 3
    assert made.trouble == rules.Trouble()


@pytest.mark.parametrize(("mode", "asked"), [("failing", 3), ("stalled", 1)])
def test_what_does_not_arrive_is_counted_and_in_the_file(
    server: control_server.Server, tmp_path: Path, mode: str, asked: int
) -> None:
    server.mode = mode
    made = plane(server.url, tmp_path / "spill")
    for number in range(5):
        made.hear({"item": str(number)})
    began = time.monotonic()
    made.drain(0.8 if mode == "stalled" else 5.0)
    assert time.monotonic() - began < 2.0
    assert len(server.asked) == asked
    assert made.trouble.spilled_records == 5
    kept = [json.loads(line) for line in (tmp_path / "spill").read_text().splitlines()]
    assert [record["item"] for record in kept] == ["0", "1", "2", "3", "4"]


def test_a_refusal_is_logged_once_not_retried_and_counted(
    server: control_server.Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server.refuse["sessions/records/ingest"] = 422
    made = plane(server.url, tmp_path / "spill")
    with caplog.at_level(logging.INFO):
        for number in range(250):
            made.hear({"item": str(number)})
        made.drain()
    assert len(server.asked) == 3
    errors_said = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert errors_said == [
        "control plane: POST sessions/records/ingest is refused with status 422; it is not tried again"
    ]
    assert (made.trouble.refused, made.trouble.spilled_records) == (3, 250)


def test_too_many_records_cost_the_oldest_which_are_counted(
    server: control_server.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_http, "RECORDS", 10)
    made = plane(server.url)
    for number in range(13):
        made.hear({"item": str(number)})
    made.drain()
    assert made.trouble.spilled_records == 3
    assert server.writes[0][1]["records"][0]["item"] == "3"


# -- formats


@pytest.mark.parametrize(
    ("field", "value"),
    [("session_id", "7001.1-a"), ("session_id", ""), ("session_id", "a" * 129), ("session_id", "a\n"),
     ("span_id", "b" * 15), ("span_id", "g" * 16), ("span_id", "b" * 16 + "\n"), ("trace_id", "a" * 16)],
)  # fmt: skip
def test_formats_are_kept_before_anything_is_sent(field: str, value: str) -> None:
    given = {name: getattr(WHO, name) for name in WHO.__struct_fields__}
    with pytest.raises(errors.BugError, match=field):
        rules.Who(**{**given, field: value})


def test_the_server_refuses_what_a_client_without_checks_would_send(server: control_server.Server) -> None:
    body = rules.beat_body(WHO, running=True) | {"session_id": "7001.1-a"}
    assert feeds.post_json(f"{server.url}/{rules.HEARTBEAT}", body).status == 422
    record = {"turn_id": "t", "span_id": "short"}
    sent = {"session_id": "a", "records": [record]}
    assert feeds.post_json(f"{server.url}/{rules.INGEST}", sent).status == 422


@pytest.mark.parametrize("wave", ["7001.1", "local-0123456789abcdef"])
def test_every_session_has_an_id_of_the_form(wave: str) -> None:
    candidate = names.candidate_id("a.yaml:k", "s")
    assert rules.SESSION_ID.fullmatch(rules.session_id(wave, candidate))


def test_an_answer_names_a_stream_by_text_or_number_only() -> None:
    assert rules.read_beat({"stream": {"id": 7}}).stream_id == "7"
    assert rules.read_beat({"stream": {"id": True}}).stream_id is None
    assert rules.read_beat({"stream": {"id": ""}}).stream_id is None
    assert rules.read_beat({"stream": {"id": "x" * 257}}).stream_id is None
    body = rules.turn_body(WHO, rules.Turn(index=0, start=START, end=START), "s")
    assert "agent_session_id" not in body
    assert "sandbox_id" not in body
    assert list(rules.batches([])) == []


def test_the_git_plane_sends_nothing() -> None:
    git = control.GitControl(None, None, lambda: False)  # type: ignore[arg-type]
    git.hear({})
    git.drain(1.0)
    assert git.turn(turn()) == "taken"
    assert git.trouble == rules.Trouble()


# -- a whole session


def test_a_session_under_an_http_control_plane(server: control_server.Server, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    server.token = "right"
    server.refuse["sessions/records/ingest"] = 422
    with session_bench.bench(tmp_path) as bench:
        bench.environ = {control_http.TOKEN_VARIABLE: "right"}
        bench.policy = model.Policy(**{
            name: getattr(bench.policy, name) for name in bench.policy.__struct_fields__
        } | {"control_url": server.url})  # fmt: skip
        bench.script({"steps": [{"do": "call", "tool": "read_baseline", "arguments": {"page": 1}}]})
        end = bench.run(bench.brief(bench.claim()))
        assert isinstance(end, run.Ended), (end, bench.log)
        view = bench.view()
    assert server.beats()[-1] is False
    assert server.writes[-1][0] == rules.HEARTBEAT, "the last write is the release"
    assert view.index == len(server.turns)
    assert server.most <= 2, "a beat and a turn at most"
    assert view.control_refused == (1 if view.control_spilled else 0)
