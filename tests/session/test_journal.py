"""What a session tells: milestones are on disk at once, and no secret is in any line of any output."""

from __future__ import annotations

import base64
import io
import json
import logging
import os
import signal
import subprocess
import sys
import time
import urllib.parse
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klaud import clock as clocks
from klaud.session import drive, journal, model, process, rules_redact, sandbox

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

CANARY = 'kn-7Qz+/w9_x"Lm42~canary'

ENCODINGS: dict[str, Callable[[str], str]] = {
    "plain": lambda text: text,
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "base64 within more": lambda text: base64.b64encode(f"A=1\nKEY={text}\nB=2".encode()).decode(),
    "base64 within more, other offset": lambda text: base64.b64encode(f"xKEY={text}y".encode()).decode(),
    "base64url": lambda text: base64.urlsafe_b64encode(b"?>" + text.encode()).decode(),
    "hex": lambda text: text.encode().hex(),
    "upper hex": lambda text: text.encode().hex().upper(),
    "url": lambda text: urllib.parse.quote(text, safe=""),
    "url with slashes": urllib.parse.quote,
    "form": urllib.parse.quote_plus,
    "json": json.dumps,
    "every byte url-quoted": lambda text: "".join(f"%{byte:02X}" for byte in text.encode()),
    "hex with colons": lambda text: text.encode().hex(":"),
    "escapes of bytes": lambda text: "".join(f"\\x{byte:02x}" for byte in text.encode()),
    "broken over lines": lambda text: "\n".join(text[at : at + 5] for at in range(0, len(text), 5)),
    "base64 broken over lines": lambda text: base64.encodebytes((f"{'p' * 50}{text}" * 3).encode()).decode(),
    "coloured": "\x1b[31m".join,
}


def leaks(text: str, secret: str = CANARY) -> bool:
    """Tell whether ``secret`` can be had from ``text``, by an own reading that shares nothing with the redactor."""
    bare = "".join(char for char in text if char.isalnum()).lower()
    ways = [secret.encode().hex(), "".join(char for char in secret if char.isalnum()).lower()]
    for before in range(3):
        for table in (base64.b64encode, base64.urlsafe_b64encode):
            whole = table(b"\0" * before + secret.encode()).decode()
            ways.append("".join(char for char in whole[4:-4] if char.isalnum()).lower())
    return any(way in bare for way in ways) or secret in text or urllib.parse.quote(secret) in text


@pytest.mark.parametrize("way", ENCODINGS)
def test_a_secret_is_redacted_or_its_text_refused(way: str) -> None:
    text = f"before {ENCODINGS[way](CANARY)} after"
    redactor = rules_redact.Redactor([CANARY])
    got = redactor.text(text)
    assert got is None or (not leaks(got) and "before" in got and "after" in got)
    assert redactor.dropped == (got is None)


def test_a_redactor_that_looks_for_the_plain_form_only_is_caught() -> None:
    """The broken twin."""

    def twin(text: str) -> str:
        return text.replace(CANARY, "[redacted]")

    leaking = [way for way, encode in ENCODINGS.items() if leaks(twin(f"before {encode(CANARY)} after"))]
    assert {"base64", "hex", "base64url", "broken over lines"} <= set(leaking)


@settings(max_examples=150, deadline=None)
@given(
    secret=st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=12, max_size=60).filter(
        lambda text: sum(char.isalnum() for char in text) >= 10
    ),
    before=st.text(max_size=20),
    after=st.text(max_size=20),
    way=st.sampled_from([way for way in ENCODINGS if "offset" not in way]),
)
def test_no_secret_comes_through(secret: str, before: str, after: str, way: str) -> None:
    got = rules_redact.Redactor([secret]).text(f"{before} {ENCODINGS[way](secret)} {after}")
    assert got is None or not leaks(got, secret)


def test_a_secret_of_eight_letters_has_no_form_that_would_blacken_ordinary_words() -> None:
    assert rules_redact.Redactor(["abcdefgh"]).text("abcdefgh abcdefg YWJjZGVmZ2g") == "[redacted] abcdefg [redacted]g"
    assert all(len(form) >= rules_redact.SECRET_CHARACTERS for form in rules_redact.forms("abcdefgh"))
    assert len(rules_redact.forms("short")) < len(rules_redact.forms("abcdefgh"))


def test_what_looks_like_a_credential_goes_too_whoever_it_belongs_to() -> None:
    redactor = rules_redact.Redactor()
    token = "ghs_" + "a1B2" * 9
    text = f"{token} sk-ant-{'x' * 30} Authorization: Bearer {'y' * 30} https://bot:{'z' * 20}@host/x"
    got = redactor.text(text)
    assert got is not None
    assert not any(part in got for part in (token, "x" * 30, "y" * 30, "z" * 20))


def test_it_fails_closed() -> None:
    redactor = rules_redact.Redactor([CANARY])
    assert redactor.text("x" * (rules_redact.TEXT_CHARACTERS + 1)) is None
    assert redactor.text(b"bytes") is None
    assert redactor.text(None) is None
    assert redactor.dropped == 3


def test_short_values_are_no_secrets_and_names_tell_which_are() -> None:
    environ = {
        "KLAUD_TOKEN": "t-0123456789", "ANTHROPIC_API_KEY": "k-0123456789", "KLAUD_RECORD_KEY": "r-0123456789",
        "EMPTY_KEY": "", "PATH": "/usr/bin", "MONKEY": "banana-banana",
        "ACTIONS_ID_TOKEN_REQUEST_TOKEN": "i-0123456789", "MY_TOKEN": "1",
    }  # fmt: skip
    found = rules_redact.secrets_of(environ)
    assert found == {"t-0123456789", "k-0123456789", "r-0123456789", "i-0123456789", "1"}
    assert rules_redact.Redactor(found).text("1 banana-banana") == "1 banana-banana"


def test_the_cut_beginning_of_a_tail_is_left_out() -> None:
    redactor = rules_redact.Redactor([CANARY])
    raw = f"{CANARY}\nsecond\n".encode()
    cut = raw[6:]  # the secret's own beginning is gone, so nothing recognises it
    assert redactor.tail(cut, limit=len(cut)) == "second\n"
    assert redactor.tail(b"whole\n", limit=100) == "whole\n"
    twin = redactor.text(cut.decode())
    assert twin is not None
    assert CANARY[6:] in twin, "the broken twin, which keeps the first line, shows most of it"


# -- the log


@pytest.fixture
def package() -> Iterator[logging.Logger]:
    """Give the package's logger, and put it back as it was."""
    logger = logging.getLogger(journal.PACKAGE)
    before, level = list(logger.handlers), logger.level
    logger.handlers.clear()
    yield logger
    logger.handlers[:] = before
    logger.setLevel(level)


def test_the_handler_is_put_there_once_and_propagation_is_left_alone(
    package: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    first = journal.install(rules_redact.Redactor())
    second = journal.install(rules_redact.Redactor([CANARY]))
    assert first is second
    assert package.handlers == [first]
    assert package.propagate
    first.stream = io.StringIO()
    with caplog.at_level(logging.INFO):
        journal.LOG.info("said")
        journal.LOG.debug("not said")
    assert first.stream.getvalue() == "said\n"
    assert [record.message for record in caplog.records] == ["said"], "who set up logging above gets it, too"


def test_a_record_that_cannot_be_redacted_is_dropped_and_counted(package: logging.Logger) -> None:
    redactor = rules_redact.Redactor([CANARY])
    handler = journal.install(redactor)
    handler.stream = io.StringIO()
    journal.LOG.info("key %s", CANARY)
    journal.LOG.info("key %s", "\n".join(CANARY))
    broken = logging.LogRecord("klaud", logging.INFO, "", 1, "%d", ("no number",), None)
    handler.handle(broken)  # logging's own handlers print such a record, with a traceback
    journal.LOG.info("fine")
    assert handler.stream.getvalue() == "key [redacted]\nfine\n"
    assert redactor.dropped == 2
    assert package.handlers == [handler]


def test_an_exception_in_a_record_is_redacted_with_it(package: logging.Logger) -> None:
    handler = journal.install(rules_redact.Redactor([CANARY]))
    handler.stream = io.StringIO()
    try:
        int(CANARY)
    except ValueError:
        journal.LOG.exception("it failed")
    assert "it failed" in handler.stream.getvalue()
    assert not leaks(handler.stream.getvalue())
    assert package.handlers == [handler]


# -- milestones


def kept(folder: Path | None) -> journal.Kept:
    return journal.Kept(folder, "c1", redactor=rules_redact.Redactor([CANARY]), clock=clocks.SystemClock())


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "milestones-c1.jsonl").read_text().splitlines()]


def test_each_milestone_is_on_disk_at_once(tmp_path: Path, package: logging.Logger) -> None:
    heard: list[dict[str, Any]] = []
    with kept(tmp_path) as told:
        told.tell(heard.append)
        told.mark("claim", "taken")
        assert [(line["phase"], line["item"]) for line in lines(tmp_path)] == [("claim", "taken")]
        told.mark("tool", f"push_work {CANARY}")
    found = lines(tmp_path)
    assert [line["phase"] for line in found] == ["claim", "tool", "end"]
    assert found[1]["item"] == "push_work [redacted]"
    assert found[-1]["item"] == "done"
    assert found == heard
    assert all(line["seconds"] >= line["took"] >= 0 for line in found)
    assert not package.handlers


def test_an_error_is_the_last_milestone_by_its_class(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="invalid"), kept(tmp_path):
        int(CANARY)
    assert lines(tmp_path)[-1]["item"] == "ValueError"


def test_milestones_are_bounded_and_a_lost_disk_costs_lines_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "LINES", 3)
    with kept(tmp_path) as told:
        for _ in range(10):
            told.mark("tool", "read_run done")
    assert len(lines(tmp_path)) == 3
    assert told.lost == 8
    with kept(tmp_path / "nowhere") as told:
        told.mark("claim")
    with kept(tmp_path) as told:
        told.tell(lambda line: line["no such field"])
        told.mark("claim")
    with kept(None) as told:
        told.mark("claim")
        told.stderr(b"x", 100)


def test_a_killed_process_has_told_how_far_it_came(tmp_path: Path) -> None:
    program = (
        "import pathlib, sys, time\n"
        "from klaud import clock\n"
        "from klaud.session import journal, rules_redact\n"
        "told = journal.Kept(pathlib.Path(sys.argv[1]), 'c1', redactor=rules_redact.Redactor(), clock=clock.SystemClock())\n"
        "told.mark('turn', 'started 0')\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        os.kill(child.pid, signal.SIGKILL)
    assert [line["item"] for line in lines(tmp_path)] == ["started 0"]


# -- the agent's stderr


def test_the_end_of_the_agents_stderr_is_kept_and_logged_without_a_secret(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO), kept(tmp_path) as told:
        told.stderr(f"warning: odd\nkey={CANARY}\n{base64.b64encode(CANARY.encode()).decode()}\n".encode(), 65_536)
        told.stderr("\n".join(CANARY).encode(), 65_536)
        told.stderr(b"", 65_536)
    written = (tmp_path / "agent-stderr-c1.log").read_text()
    assert written.startswith("warning: odd\nkey=[redacted]\n")
    assert not leaks(written)
    assert not leaks(caplog.text)
    assert "agent: warning: odd" in caplog.text
    assert "could not be redacted and was dropped" in caplog.text
    assert told.redactor.dropped == 1


class Desk:
    """Tools that nobody calls."""

    def call(self, name: str, arguments: dict[str, Any]) -> model.ToolAnswer:
        raise AssertionError(name, arguments)

    def must_go_on(self) -> str:
        return ""

    def stop(self) -> None:
        pass


@pytest.mark.parametrize("program", ["exit", "hang"])
def test_a_secret_on_the_agents_stderr_is_in_no_output(
    tmp_path: Path, program: str, caplog: pytest.LogCaptureFixture
) -> None:
    tmp_path.chmod(0o755)
    script = f"import sys, time\nsys.stderr.write({('key ' + CANARY)!r} + '\\n')\nsys.stderr.flush()\n"
    if program == "hang":
        script += "time.sleep(20)\n"
    found = sandbox.find("none")
    assert isinstance(found, sandbox.Sandbox)
    start = process.Start((sys.executable, "-I", "-S", "-c", script), {"PATH": "/usr/bin:/bin"}, "/")
    policy = model.Policy(entry_seconds=1.0, teardown_step_seconds=1.0, teardown_seconds=3.0)
    began = time.monotonic()
    with caplog.at_level(logging.INFO), kept(tmp_path) as told:
        end = drive.run(drive.Turn(start, found, "x", Desk(), policy, lambda: "", told.log, list, told))
    assert time.monotonic() - began < 6.0
    assert end.fault == ("handshake" if program == "exit" else "entry-timeout")
    assert "key [redacted]" in caplog.text
    outputs = [path.read_text() for path in tmp_path.iterdir()]
    assert len(outputs) == 2
    assert not any(leaks(text) for text in [*outputs, caplog.text])
    assert any(line["phase"] == "agent" for line in lines(tmp_path))
