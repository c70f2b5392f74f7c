"""The command's face: its statuses, its two lines per error, and what it does not load."""

from __future__ import annotations

import subprocess
import sys

import pytest

from klaud import errors
from klaud.cli import live, main

HEAVY = ("github", "requests", "rich", "dulwich", "claude_agent_sdk", "werkzeug", "hypothesis")


def run(*argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "klaud", *argv], capture_output=True, text=True, timeout=60, check=False
    )


def test_help_names_every_verb_and_loads_no_heavy_library() -> None:
    code = (
        "import sys\nfrom klaud.cli import main\n"
        "try: main.main(['--help'])\nexcept SystemExit: pass\n"
        f"print('LOADED', [m for m in {HEAVY!r} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert "LOADED []" in done.stdout
    for verb in main.VERBS:
        assert f"  {verb}" in done.stdout


def test_an_unknown_verb_is_a_usage_error() -> None:
    assert run("recoverr").returncode == 2


def test_an_error_says_what_happened_and_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main.main(["validate", "--config", "no/such/klaud.yml"])
    assert ended.value.code == errors.InputError.exit_status
    out = capsys.readouterr()
    assert "no/such/klaud.yml" in out.err
    assert "  -> " in out.err
    assert "Traceback" not in out.err


ENV = {"GITHUB_REPOSITORY": "acme/bench", "KLAUD_TOKEN": "canary-token"}


def test_the_place_keeps_the_token_out_of_sight() -> None:
    place = live.place({**ENV, "KLAUD_RECORD_KEY": "canary-key"})
    assert "canary" not in repr(place)
    assert place.git_url == "https://github.com/acme/bench.git"
    assert place.me is None
    assert place.wave.startswith("local-")


def test_inside_actions_the_wave_is_run_and_attempt() -> None:
    place = live.place({**ENV, "GITHUB_RUN_ID": "77", "GITHUB_RUN_ATTEMPT": "2", "GITHUB_JOB": "recover"})
    assert place.wave == "77.2"
    assert place.me is not None
    assert (place.me.run_id, place.me.attempt, place.me.job) == (77, 2, "recover")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"GITHUB_REPOSITORY": ""}, "GITHUB_REPOSITORY"),
        ({"GITHUB_REPOSITORY": "a/b/c"}, "GITHUB_REPOSITORY"),
        ({"KLAUD_TOKEN": ""}, "KLAUD_TOKEN"),
        ({"GITHUB_RUN_ID": "x"}, "GITHUB_RUN_ID"),
        ({"GITHUB_RUN_ID": "0"}, "GITHUB_RUN_ID"),
        ({"GITHUB_API_URL": "http://example.org"}, "GITHUB_API_URL"),
        ({"GITHUB_API_URL": "https://user@example.org"}, "GITHUB_API_URL"),
        ({"GITHUB_SERVER_URL": "file:///etc"}, "GITHUB_SERVER_URL"),
    ],
)
def test_a_wrong_environment_is_named(change: dict[str, str], said: str) -> None:
    with pytest.raises(errors.InputError, match=said):
        live.place({**ENV, **change})


def test_an_errors_words_are_obeyed_by_nobody() -> None:
    """GitHub's runner takes leading blanks off before it looks for a command."""
    text = "not readable: x\n  ::add-path::/tmp\r##[group]y\x1b[31m\u2028::stop-commands::z"
    assert main.plain(text) == "not readable: x\n|   ::add-path::/tmp\n| ##[group]y?[31m\n| ::stop-commands::z"
    assert main.plain("as it is: \u00fc \U0001f680") == "as it is: \u00fc \U0001f680"
