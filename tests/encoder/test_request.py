"""One validator for the command line and for a dispatch: the same refusal from both, and nothing made."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from klaud import errors
from klaud.cli import main
from klaud.encoder import model, request
from klaud.session import model as sessions
from tests.support import encoding

MODEL = "claude-made-up"
POLICY = model.Policy(model=MODEL)

BAD: list[tuple[str, dict[str, Any], str]] = [
    ("mode", {"mode": "c-interact"}, "mode 'c-interact' does not exist: a-interact and one-shot do"),
    ("query mode", {"query-mode": "raw"}, "query mode 'raw' reads no reference: slayer does"),
    ("framework", {"framework": "langgraph"}, "framework 'langgraph' does not exist: "),
    (
        "reader",
        {"framework": "claude_sdk"},
        "framework claude_sdk reads references and does not encode: it has nothing",
    ),
    ("rebuild", {"framework": "claude_sdk", "rebuild": True}, "rebuilding would take the reference away from it"),
    ("database", {"database": "../x"}, "database '../x' is not a name"),
    ("no database", {"database": ""}, "no database is named"),
    ("dialect", {"dialect": "oracle"}, "dialect 'oracle' of database shop is not supported"),
    ("budget", {"budget": "soon"}, "budget 'soon' is not a span of time"),
    ("authentication", {"authentication": ""}, "needs one authentication, and neither was given"),
]


def options(change: dict[str, Any]) -> list[str]:
    """Return the command line that asks for the same."""
    given = {"database": "shop", "authentication": "api-key", **change}
    words = ["--benchmark", "bench", "--databases", given.pop("database"), "--model", MODEL]
    if given.pop("rebuild", False):
        words.append("--rebuild")
    authentication = given.pop("authentication")
    words += {"api-key": ["--api-key"], "subscription": ["--subscription-auth"], "": []}[authentication]
    return [*words, *(word for name, value in given.items() for word in (f"--{name}", value))]


@pytest.mark.parametrize(("change", "said"), [bad[1:] for bad in BAD], ids=[bad[0] for bad in BAD])
def test_a_bad_request_is_refused_by_both_and_nothing_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: dict[str, Any], said: str
) -> None:
    given = {"database": "shop", "authentication": "api-key", **change}
    with pytest.raises(errors.InputError) as caught:
        request.check(request.from_change("bench", given), POLICY)
    assert said in str(caught.value)
    with pytest.raises(SystemExit) as ended:
        main.main(["encode", *options(change), "--data", str(tmp_path), "--references", str(tmp_path / "refs")])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def brief(path: Path, change: dict[str, Any], **more: Any) -> Path:
    """Write the brief of a candidate that encodes."""
    fixed: dict[str, Any] = {
        "kind": "encode", "wave": "1.1", "candidate": f"{'a' * 16}-{'b' * 16}", "family": "bench:shop", "base": "0" * 40,
        "benchmark": "bench", "subject": "encode shop", "change": change,
    }  # fmt: skip
    path.write_bytes(msgspec.json.encode(sessions.Brief(**{**fixed, **more})))
    return path


@pytest.mark.parametrize(("change", "said"), [bad[1:] for bad in BAD], ids=[bad[0] for bad in BAD])
def test_a_bad_brief_is_refused_with_the_same_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: dict[str, Any], said: str
) -> None:
    told = brief(tmp_path / "candidate.json", {"database": "shop", "authentication": "api-key", **change})
    words = ["--data", str(tmp_path), "--references", str(tmp_path / "refs"), "--report", str(tmp_path / "report.json")]
    code, _, err = cli(capsys, "encode", "--brief", str(told), "--model", MODEL, *words)
    assert code == 2
    assert said in err
    assert [path.name for path in tmp_path.iterdir()] == ["candidate.json"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"kind": "upgrade"}, "is of kind upgrade, which encodes nothing"),
        ({"family": "bench:other"}, "is of family 'bench:other', and its change asks for bench:shop"),
        ({"family": "bench:shop.postgres"}, "and its change asks for bench:shop"),
    ],
)
def test_a_brief_of_something_else_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: dict[str, Any], said: str
) -> None:
    told = brief(tmp_path / "candidate.json", {"database": "shop", "authentication": "api-key"}, **more)
    words = ["--data", str(tmp_path), "--references", str(tmp_path / "refs")]
    code, _, err = cli(capsys, "encode", "--brief", str(told), *words)
    assert (code, said in err) == (2, True), err


def test_a_program_is_not_taken_where_the_brief_asks_for_a_framework_with_its_own_agent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = brief(tmp_path / "candidate.json", {"database": "shop", "authentication": "api-key"})
    words = ["--data", str(tmp_path), "--references", str(tmp_path / "refs"), "--model", MODEL, "--program", "x"]
    code, _, err = cli(capsys, "encode", "--brief", str(told), *words)
    assert (code, "starts its own agent: a program is for another one" in err) == (2, True), err


def test_a_brief_makes_the_same_call_and_reports_what_to_upload(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    encoding.make(tmp_path, {0, 8})
    told = brief(tmp_path / "candidate.json", {"database": "shop", "framework": "scripted"})
    code, _, _ = cli(
        capsys, "encode", "--brief", str(told), "--data", str(tmp_path / "data"), "--references", str(tmp_path / "refs"),
        "--report", str(tmp_path / "report.json"), "--program", f"{sys.executable} -I -S {encoding.AGENT}",
        "--isolation", "best-effort",
    )  # fmt: skip
    assert code == 0
    (said,) = msgspec.json.decode((tmp_path / "report.json").read_bytes())
    assert said["artifact"] == "klaud-reference.bench.shop.sqlite"
    assert (said["path"], said["upload"], said["built"], said["state"]) == ("bench/shop", True, True, "complete")
    assert said["counts"] == {"encoded": 1, "deferred": 1, "error": 0}
    assert (tmp_path / "refs" / said["path"] / "_reference_fp.txt").exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"database": "a", "extra": 1}, "has no 'extra' in its change"),
        ({"database": 5}, "database of a candidate that encodes is not a text"),
        ({"database": "a,b"}, "is one database"),
        ({"database": "a", "rebuild": "yes"}, "rebuild of a candidate that encodes is neither true nor false"),
    ],
)
def test_a_change_that_is_no_request_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(errors.InputError, match=said):
        request.from_change("bench", change)


def asked(**more: Any) -> request.Asked:
    return request.Asked(**{"benchmark": "bench", "databases": "shop", "authentications": ("api-key",), **more})


@pytest.mark.parametrize("mode", ["a-interact", "one-shot"])
def test_both_modes_are_accepted(mode: str) -> None:
    assert request.check(asked(mode=mode), POLICY).keys[0].database == "shop"


def test_the_old_name_runs_the_new_framework_and_warns() -> None:
    checked = request.check(asked(framework="pydantic_ai_otf_encode"), POLICY)
    assert checked.framework == "claude_sdk_otf_encode"
    assert checked.warnings == (
        "framework pydantic_ai_otf_encode is the old name of claude_sdk_otf_encode, which runs",
    )


def test_authentication_is_chosen_and_only_once() -> None:
    assert request.check(asked(), POLICY).authentication == "api-key"
    with pytest.raises(errors.InputError, match="both were given"):
        request.check(asked(authentications=("api-key", "subscription")), POLICY)
    other = msgspec.structs.replace(POLICY, model="local-model")
    assert request.check(asked(authentications=()), other).authentication == ""


def test_a_model_is_named_and_never_guessed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(errors.InputError, match="needs a model, and none is named") as caught:
        request.check(asked(), model.Policy())
    assert "--model, or encoder.model or session.model" in caught.value.advice
    assert request.check(asked(model="other"), POLICY).policy.model == "other"
    assert request.check(asked(framework="scripted", program=("x",)), model.Policy()).policy.model == ""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KLAUD_CONFIG", raising=False)
    words = ["encode", "--benchmark", "b", "--databases", "d", "--data", "none", "--references", "refs", "--api-key"]
    code, _, err = cli(capsys, *words)
    assert (code, "needs a model" in err, list(tmp_path.iterdir())) == (2, True, [])
    (tmp_path / ".github").mkdir()
    place = tmp_path / ".github" / "klaud.yml"
    place.write_text(f"references: [{{name: b, workflows: {{final: f.yml}}}}]\nsession: {{model: {MODEL}}}\n")
    code, _, err = cli(capsys, *words)
    assert (code, "--data 'none' is not a directory" in err) == (2, True), err
    place.write_text("references: []\n")
    code, _, err = cli(capsys, *words)
    assert (code, "benchmarks is missing" in err) == (2, True), err


def test_what_encodes_is_one_predicate() -> None:
    encodes = {name for name in request.FRAMEWORKS if request.encodes(name)}
    assert encodes == {"scripted", "claude_sdk_otf_encode", "pydantic_ai_otf_encode"}
    assert not request.encodes("unheard-of")


@pytest.mark.parametrize(("text", "seconds"), [("5h40m", 20400), ("90m", 5400), ("30s", 30), ("1h1m1s", 3661)])
def test_spans(text: str, seconds: int) -> None:
    assert request.check(asked(budget=text), POLICY).policy.budget_seconds == seconds
    for bad in ("", "5", "m", "-1h", "0h", "5h 40m", "1e3s"):
        with pytest.raises(errors.InputError):
            request.span(bad)


def test_databases_are_named_once() -> None:
    with pytest.raises(errors.InputError, match="database a is named twice"):
        request.check(asked(databases="a,b, a"), POLICY)
    with pytest.raises(errors.InputError, match="more than 1000"):
        request.check(asked(databases=",".join(f"d{n}" for n in range(1001))), POLICY)


def cli(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = 0
    try:
        main.main(list(words))
    except SystemExit as ended:
        code = int(ended.code or 0)
    out, err = capsys.readouterr()
    return code, out, err


def test_the_command_line_encodes_checks_and_merges(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    encoding.make(tmp_path, {0, 2, 8})
    program = f"{sys.executable} -I -S {encoding.AGENT}"
    common = ["--benchmark", "bench", "--references", str(tmp_path / "refs")]
    inputs = ["--databases", "shop", "--data", str(tmp_path / "data")]
    encode = ["encode", *common, *inputs, "--framework", "scripted", "--program", program]
    code, out, err = cli(capsys, *encode)
    assert code == 0
    assert out.splitlines()[0].startswith("bench/shop: built, fingerprint ")
    assert "2 encoded, 1 deferred, 0 error; 3 sessions, 3 attempts" in out
    assert "  item 8 deferred: the definition names no rule that a query could follow" in out
    assert "item 0: encoded" in err
    code, out, _ = cli(capsys, *encode)
    assert (code, out.startswith("bench/shop: already there")) == (0, True)
    code, out, _ = cli(capsys, "check-references", *common, *inputs)
    assert (code, out) == (0, "bench/shop: valid\n")
    upload = tmp_path / "uploads" / "klaud-reference.bench.shop.sqlite"
    upload.parent.mkdir()
    (tmp_path / "refs" / "bench" / "shop").rename(upload)
    code, out, _ = cli(capsys, "merge-references", str(upload.parent), *common)
    assert (code, out.startswith("bench/shop: merged: of ")) == (0, True)
    path = tmp_path / "refs" / "bench" / "shop" / "models" / "shop" / "lines.yaml"
    path.write_text(path.read_text().replace("sum(gross_value)", "sum(gone)"))
    code, out, _ = cli(capsys, "check-references", *common, *inputs)
    assert code == 1
    assert "shop.lines.gross_revenue does not run" in out


def test_relative_paths_and_programs_by_name_work_in_isolation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    encoding.make(tmp_path, {0})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/bin:/bin")
    words = ["encode", "--benchmark", "bench", "--databases", "shop", "--data", "data", "--references", "refs"]
    words += ["--framework", "scripted", "--isolation", "best-effort"]
    code, _, err = cli(capsys, *words, "--program", "not-a-program-at-all")
    assert (code, "is not installed" in err) == (2, True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data"]
    code, out, _ = cli(capsys, *words, "--program", f"python -I -S {encoding.AGENT}")
    assert (code, "1 encoded" in out) == (0, True), out


def test_a_failed_database_ends_with_status_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    encoding.make(tmp_path, {0})
    code, out, _ = cli(
        capsys, "encode", "--benchmark", "bench", "--databases", "absent,shop", "--data", str(tmp_path / "data"),
        "--references", str(tmp_path / "refs"), "--framework", "scripted", "--program",
        f"{sys.executable} -I -S {encoding.AGENT}",
    )  # fmt: skip
    assert code == 1
    assert "bench/absent: error: there is no directory absent" in out
    assert "bench/shop: built" in out


@pytest.mark.slow
def test_told_to_end_it_ends_its_agent_and_keeps_what_was_settled(tmp_path: Path) -> None:
    """SIGTERM while item 5 hangs: status 75 within the runner's 8 seconds, and the same command resumes."""
    encoding.make(tmp_path, {0, 5})
    words = [
        "encode", "--benchmark", "bench", "--databases", "shop", "--data", str(tmp_path / "data"), "--references",
        str(tmp_path / "refs"), "--framework", "scripted", "--isolation", "none", "--program",
    ]  # fmt: skip
    program = f"{sys.executable} -I -S {encoding.AGENT}"
    command = [sys.executable, "-m", "klaud", *words, f"{program} hang-after@5"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "item 0: encoded\n"
        workspace = tmp_path / "refs" / "bench"
        while not list(workspace.glob("shop.building-*/items/5.1/submission.json")):
            assert process.poll() is None
            time.sleep(0.02)
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=30)
        assert time.monotonic() - began < 8
    assert process.returncode == 75
    assert "told to end: what was settled is kept as partial" in err
    assert sorted(path.name for path in workspace.iterdir()) == ["shop.build.lock", "shop.partial"]
    again = subprocess.run(
        [sys.executable, "-m", "klaud", *words, program], capture_output=True, text=True, check=False, timeout=60
    )
    assert again.returncode == 0, again.stderr
    assert "item 5: encoded" in again.stderr
    assert "item 0" not in again.stderr
