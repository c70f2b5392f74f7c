from __future__ import annotations

import hashlib
import io
import json
import os
import sys
import time
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from klaud import fakehub
from klaud.fakehub import jobs

if TYPE_CHECKING:
    from tests.fakehub.conftest import World

SMOKE, FINAL = "bench-smoke.yml", "bench-final.yml"


def python(code: str, **fields: object) -> fakehub.Command:
    return fakehub.Command((sys.executable, "-c", code), **fields)  # type: ignore[arg-type]


def until(condition: object, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.01)


def log_of(world: World, run: fakehub.Run, index: int = 0) -> str:
    return world.call("GET", f"actions/jobs/{run.last.jobs[index].id}/logs").text


def test_a_command_runs_with_the_environment_of_actions_and_nothing_else(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_HUB", "leak")
    code = "import json, os; print(json.dumps(dict(os.environ)))"
    world.hub.handlers[SMOKE] = {
        "bench": python(code, token="bot", env={"MARK": "${{ inputs.marker }}"}, checkout=True)
    }
    run = world.dispatch(marker="m1")
    assert world.hub.wait_for_runs()
    environment = json.loads(log_of(world, run))
    assert "SECRET_OF_THE_HUB" not in environment
    wanted = {
        "GITHUB_RUN_ID": str(run.id), "GITHUB_RUN_ATTEMPT": "1", "GITHUB_JOB": "bench", "GITHUB_REPOSITORY": "acme/bench",
        "GITHUB_API_URL": world.server.url, "GITHUB_EVENT_NAME": "workflow_dispatch", "GITHUB_REF": "refs/heads/main",
        "KLAUD_TOKEN": "bot", "MARK": "m1", "GITHUB_SHA": run.head_oid,
    }  # fmt: skip
    assert {name: environment[name] for name in wanted} == wanted
    assert (run.status, run.conclusion, run.display_title) == ("completed", "success", "smoke m1")


def test_outputs_artifacts_and_failures(world: World) -> None:
    code = (
        "import os, pathlib, json\n"
        "event = json.load(open(os.environ['GITHUB_EVENT_PATH']))\n"
        "open(os.environ['GITHUB_OUTPUT'], 'a').write('one=1\\nmany<<END\\na\\nb\\nEND\\n')\n"
        "open(os.environ['GITHUB_STEP_SUMMARY'], 'a').write('# seen')\n"
        "pathlib.Path('out').mkdir(); pathlib.Path('out/results.json').write_text(json.dumps(event['inputs']))\n"
        "raise SystemExit(3)\n"
    )
    world.hub.handlers[SMOKE] = {
        "bench": python(code, artifacts={"benchmark-results": "out"}),
        "clean-up": python("print('${{ needs.bench.result }} ${{ needs.bench.outputs.one }}')"),
    }
    run = world.dispatch(marker="m2")
    assert world.hub.wait_for_runs()
    bench = run.last.jobs[0]
    assert (run.conclusion, bench.conclusion, run.last.jobs[1].conclusion) == ("failure", "failure", "success")
    assert (bench.outputs, bench.summary.startswith("# seen")) == ({"one": "1", "many": "a\nb"}, True)
    assert log_of(world, run, 1).strip() == "failure 1"
    shown = world.call("GET", f"actions/runs/{run.id}/artifacts").json()["artifacts"][0]
    data = world.session.get(shown["archive_download_url"], timeout=60).content  # requests drops the token on the way
    place = world.session.get(shown["archive_download_url"], timeout=60, allow_redirects=False).headers["Location"]
    refused = world.call("GET", place.partition("/_blobs")[1] + place.partition("/_blobs")[2])
    assert refused.status_code == 400
    assert shown["digest"] == "sha256:" + hashlib.sha256(data).hexdigest()
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.read("results.json") == b'{"marker": "m2", "seconds": "0"}'
    world.hub.advance(91 * 86400)
    assert world.call("GET", f"actions/artifacts/{shown['id']}/zip").status_code == 410
    assert world.call("GET", f"actions/artifacts/{shown['id']}").json()["expired"] is True


def test_a_cancelled_command_gets_signals_and_its_clean_up_runs(world: World) -> None:
    code = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGINT, lambda *_: print('interrupted', flush=True))\n"
        "signal.signal(signal.SIGTERM, lambda *_: print('terminated', flush=True))\n"
        "print('begun', flush=True)\n"
        "while True: time.sleep(0.05)\n"
    )
    world.hub.handlers[SMOKE] = {"bench": python(code), "clean-up": python("print('clean')")}
    run = world.dispatch()
    until(lambda: "begun" in log_of(world, run))
    assert world.call("POST", f"actions/runs/{run.id}/cancel").status_code == 202
    assert world.hub.wait_for_runs()
    assert log_of(world, run).split() == ["begun", "interrupted", "terminated"]
    assert [job.conclusion for job in run.last.jobs] == ["cancelled", "success"]
    assert run.conclusion == "cancelled"


def test_a_forced_cancel_runs_no_clean_up_and_a_lost_runner_neither(world: World) -> None:
    world.hub.handlers[SMOKE] = {"bench": python("import time; print('begun', flush=True); time.sleep(60)")}
    for end, conclusion in (("force", "cancelled"), ("lose", "failure")):
        run = world.dispatch()
        until(lambda run=run: "begun" in log_of(world, run))  # type: ignore[misc]
        if end == "force":
            assert world.call("POST", f"actions/runs/{run.id}/force-cancel").status_code == 202
        else:
            world.hub.actions.runner.lose(run)
        assert world.hub.wait_for_runs()
        assert (run.conclusion, run.last.jobs[1].conclusion) == (conclusion, "cancelled")


def test_what_a_job_leaves_running_is_ended(world: World) -> None:
    code = (
        "import subprocess, sys\nprint(subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']).pid)\n"
    )
    world.hub.handlers[SMOKE] = {"bench": python(code)}
    run = world.dispatch()
    assert world.hub.wait_for_runs()
    stat = Path(f"/proc/{log_of(world, run).strip()}/stat")
    until(lambda: not stat.exists() or stat.read_text().split()[2] in "ZX")


def test_the_job_limit_is_in_the_hubs_time(world: World) -> None:
    world.hub.handlers[SMOKE] = {"bench": python("import time; print('begun', flush=True); time.sleep(60)")}
    run = world.dispatch()
    until(lambda: "begun" in log_of(world, run))
    world.hub.advance(6 * 3600 + 1)
    assert world.hub.wait_for_runs()
    assert run.conclusion == "cancelled"


def test_runs_wait_for_a_free_runner(world: World) -> None:
    gate: list[fakehub.Run] = []

    def wait(context: fakehub.JobContext) -> None:
        gate.append(context.run)
        until(context.cancelled.is_set)

    world.hub.handlers[SMOKE] = {"bench": wait}
    runs = [world.dispatch() for _ in range(3)]
    until(lambda: len(gate) == 2)
    assert [run.status for run in runs] == ["in_progress", "in_progress", "queued"]
    for run in runs:
        world.call("POST", f"actions/runs/{run.id}/cancel")
    assert world.hub.wait_for_runs()
    assert {run.conclusion for run in runs} == {"cancelled"}


def test_a_cancel_just_before_a_job_begins_reaches_it(world: World) -> None:
    """Only a job that was begun for a cancelled run is a clean-up job."""
    seen = []

    class Handler(dict[str, object]):
        def get(self, key: str, default: object = None) -> object:
            (started,) = world.repository.runs
            world.call("POST", f"actions/runs/{started}/cancel")
            return super().get(key, default)

    def work(context: fakehub.JobContext) -> None:
        seen.append(context.cancelled.is_set())

    world.hub.handlers[SMOKE] = Handler(bench=work)  # type: ignore[assignment]
    run = world.dispatch()
    assert world.hub.wait_for_runs()
    assert (seen, run.conclusion) == ([True], "cancelled")


def test_a_handler_that_raises_is_a_failed_job(world: World) -> None:
    def broken(_context: fakehub.JobContext) -> str:
        message = "no"
        raise RuntimeError(message)

    world.hub.handlers[SMOKE] = broken
    run = world.dispatch()
    assert world.hub.wait_for_runs()
    assert (run.conclusion, run.last.jobs[0].summary) == ("failure", "RuntimeError: no\n")


def test_a_scripted_run_moves_on_the_hubs_clock_and_publishes(world: World) -> None:
    steps = (fakehub.Step(5, "in_progress"), fakehub.Step(60, "completed", "success"))
    world.hub.handlers[SMOKE] = fakehub.Script(steps, {"benchmark-results": {"results.json": "[]"}})
    run = world.dispatch()
    assert run.status == "queued"
    world.hub.advance(6)
    assert run.status == "in_progress"
    world.hub.advance(60)
    assert (run.status, run.conclusion, [made.name for made in run.artifacts]) == (
        "completed",
        "success",
        ["benchmark-results"],
    )
    settles = [other for other in world.repository.runs.values() if other.event == "workflow_run"]
    assert [other.payload["workflow_run"]["id"] for other in settles] == [run.id]


def test_labels_start_skip_and_supersede_final_runs(world: World) -> None:
    issue = world.pull("topic")
    world.hub.handlers[FINAL] = lambda context: until(context.cancelled.is_set)
    world.call("POST", f"issues/{issue.number}/labels", ["other"])
    assert world.hub.wait_for_runs()
    first = next(iter(world.repository.runs.values()))
    assert (first.event, first.conclusion, first.pulls) == ("pull_request", "skipped", [issue.number])
    world.call("POST", f"issues/{issue.number}/labels", ["full-sweep"])
    finals = [run for run in world.repository.runs.values() if run.path.endswith(FINAL)]
    until(lambda: finals[1].status == "in_progress")
    oid = world.hub.commit(
        "acme/bench", None, {"x": "y"}, parent=issue.pull and issue.pull.head_oid, author="klaud-bot"
    )
    world.hub.push("acme/bench", "topic", oid, actor="klaud-bot")
    finals = [run for run in world.repository.runs.values() if run.path.endswith(FINAL)]
    until(lambda: finals[1].status == "completed")
    assert finals[1].conclusion == "cancelled"  # cancel-in-progress
    until(lambda: finals[2].status == "in_progress")
    assert finals[2].head_oid == oid
    world.hub.actions.cancel(world.repository, finals[2])
    assert world.hub.wait_for_runs()


def test_a_conflicted_pull_request_starts_no_run(world: World) -> None:
    issue = world.pull("topic")
    assert issue.pull is not None
    issue.pull.mergeable = "CONFLICTING"
    world.call("POST", f"issues/{issue.number}/labels", ["full-sweep"])
    assert not world.repository.runs


def test_a_rerun_is_a_new_attempt_of_another_actor(world: World) -> None:
    world.hub.handlers[SMOKE] = fakehub.Script((fakehub.Step(0, "completed", "failure"),))
    run = world.dispatch()
    world.hub.tick()
    answer = world.call("POST", f"actions/runs/{run.id}/rerun", token="alice")
    assert answer.status_code == 201
    world.hub.tick()
    shown = world.call("GET", f"actions/runs/{run.id}").json()
    assert (shown["run_attempt"], shown["actor"]["login"], shown["triggering_actor"]["login"]) == (
        2,
        "klaud-bot",
        "alice",
    )
    first = world.call("GET", f"actions/runs/{run.id}/attempts/1").json()
    assert (first["run_attempt"], first["triggering_actor"]["login"]) == (1, "klaud-bot")
    assert world.call("GET", f"actions/runs/{run.id}/attempts/1/jobs").json()["jobs"][0]["run_attempt"] == 1
    assert world.call("GET", f"actions/runs/{run.id}/jobs?filter=all").json()["total_count"] == 4


def test_a_disabled_workflow_starts_nothing(world: World) -> None:
    assert world.call("PUT", f"actions/workflows/{SMOKE}/disable").status_code == 204
    assert world.call("GET", f"actions/workflows/{SMOKE}").json()["state"] == "disabled_manually"
    answer = world.call("POST", f"actions/workflows/{SMOKE}/dispatches", {"ref": "main"})
    assert answer.status_code == 422
    assert world.call("PUT", f"actions/workflows/{SMOKE}/enable").status_code == 204
    assert world.call("POST", f"actions/workflows/{SMOKE}/dispatches", {"ref": "main"}).status_code == 204


def test_the_time_limit_of_a_job_is_read_from_the_file(world: World) -> None:
    text = "on: {workflow_dispatch: {}}\njobs: {a: {timeout-minutes: 0.005, steps: []}}\n"
    world.hub.commit("acme/bench", "main", {".github/workflows/short.yml": text}, author="alice")
    world.hub.handlers["short.yml"] = python("import time; time.sleep(90)")
    world.call("POST", "actions/workflows/short.yml/dispatches", {"ref": "main"})
    assert world.hub.wait_for_runs()
    assert [run.conclusion for run in world.repository.runs.values()] == ["cancelled"]


def test_a_step_summary_above_the_limit_is_dropped_whole(world: World) -> None:
    code = "import os; open(os.environ['GITHUB_STEP_SUMMARY'], 'w').write('x' * int('${{ inputs.marker }}'))"
    world.hub.handlers[SMOKE] = {"bench": python(code)}
    runs = [world.dispatch(marker=str(size)) for size in (1024 * 1024, 1024 * 1024 + 1)]
    assert world.hub.wait_for_runs()
    kept, dropped = (run.last.jobs[0] for run in runs)
    assert (len(kept.summary), kept.annotations) == (1024 * 1024, [])
    assert (dropped.summary, "was dropped" in dropped.annotations[0]) == ("", True)


def test_closing_the_hub_ends_its_jobs(world: World) -> None:
    code = "import os, time; print('begun', os.getpid(), flush=True); time.sleep(90); print('ended', flush=True)"
    world.hub.handlers[SMOKE] = {"bench": python(code)}
    run = world.dispatch()
    until(lambda: log_of(world, run).endswith("\n"))
    world.hub.actions.runner.close()
    pid = int(log_of(world, run).split()[1])
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert "ended" not in log_of(world, run), "it was not waited for"


def test_outputs_are_read_in_both_forms() -> None:
    text = "a=1\nb<<EOF\nx=1\ny\nEOF\nc=d<<e\n"
    assert jobs.parse_output(text) == {"a": "1", "b": "x=1\ny", "c": "d<<e"}
