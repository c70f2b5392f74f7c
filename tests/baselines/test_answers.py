"""What an answer comes to, as tables: no process is started here."""

from __future__ import annotations

from typing import Any

import pytest

from klaud.baselines import answers, commands, model, settings

LAYOUT = settings.Layout(
    inputs=("gen.py",), commands=(("py", "gen.py", "new", "{family}"), ("py", "gen.py", "{family}"))
)
OPTIONAL = (
    settings.OptionalArgument(argument="--no-evals", meaning="throughput-only"),
    settings.OptionalArgument(argument="--fast"),
)
GENERATOR = settings.Generator(layouts=(LAYOUT,), optional_arguments=OPTIONAL, bounds=settings.Bounds(seconds=7))
READER = answers.Reader(LAYOUT, GENERATOR)
FRESH = commands.Known()
ARGV = ("py", "gen.py", "new", "fast", "--no-evals", "--fast")
UNKNOWN = b"gen.py: error: unrecognized arguments: --no-evals"


def tried(
    stdout: bytes = b"", stderr: bytes = b"", exit_: int = 0, known: commands.Known = FRESH, **more: Any
) -> answers.Try:
    argv = tuple(word for word in ARGV if word not in known.dropped)
    outcome = model.Outcome(exit=exit_, stdout=stdout, stderr=stderr, **more)
    return answers.Try(state=known, argv=argv, outcome=outcome)


def read(*tries: answers.Try, **more: Any) -> Any:
    return READER.read(answers.Answer(tries=tries, **more))[0]


@pytest.mark.parametrize(
    ("attempt", "code", "error"),
    [
        (tried(exit_=1, stderr=b"secret words"), "generator-failed", "exit status 1"),
        (tried(exit_=-9), "generator-failed", "signal 9"),
        (tried(exit_=-9, exceeded="seconds"), "generator-timeout", "it took longer than 7 s"),
        (tried(exit_=-9, exceeded="output"), "generator-failed", "it printed more than it may"),
        (tried(exit_=-9, exceeded="memory"), "generator-failed", "it used more memory than it may"),
        (tried(exit_=-9, exceeded="processes"), "generator-failed", "it started more processes than it may"),
        (tried(exceeded="inputs"), "generator-failed", "it changed the files that it was given"),
        (
            tried(exit_=127, not_started="FileNotFoundError"),
            "generator-failed",
            "its program could not be started (FileNotFoundError)",
        ),
        (tried(b"{}"), "generator-output-invalid", "its output is no list"),
        (tried(b"null"), "generator-output-invalid", "its output is no list"),
        (tried(b"[1]"), "generator-output-invalid", "its output is no list of objects"),
        (tried(b"[[{}]]"), "generator-output-invalid", "its output is no list of objects"),
        (tried(b"[{}"), "generator-output-invalid", "its output is no matrix: it is not JSON"),
        (tried(b"[{}] and more"), "generator-output-invalid", "its output is no matrix: it is not JSON"),
        (tried(b"loading...\n[{}]"), "generator-output-invalid", "its output is no matrix: it is not JSON"),
        (tried(b"secret words"), "generator-output-invalid", "its output is no matrix: it is not JSON"),
        (tried(b""), "generator-output-invalid", "its output is no matrix: it is not JSON"),
        (tried(b'[{"a": "\xff"}]'), "generator-output-invalid", "its output is no matrix: it is not UTF-8"),
        (
            tried(b"\xef\xbb\xbf[]"),
            "generator-output-invalid",
            "its output is no matrix: it begins with a byte order mark",
        ),
        (
            tried(b'[{"tp": 8, "tp": 4}]'),
            "generator-output-invalid",
            "its output is no matrix: an object in it has a name twice",
        ),
        (
            tried(b'[{"tp": NaN}]'),
            "generator-output-invalid",
            "its output is no matrix: a number in it is not finite",
        ),
        (
            tried(b'[{"tp": 1e999}]'),
            "generator-output-invalid",
            "its output is no matrix: a number in it is not finite",
        ),
        (
            tried(b'[{"a": "\\ud800"}]'),
            "generator-output-invalid",
            "its output is no matrix: a string in it has half a surrogate pair",
        ),
        (
            tried(b"[" * 100_000),
            "generator-output-invalid",
            "its output is no matrix: it nests deeper than 128 levels",
        ),
        (
            tried(b"[" + b"{}," * answers.MAX_ENTRIES + b"{}]"),
            "generator-output-invalid",
            "its output has more than 200000 entries",
        ),
    ],
)  # fmt: skip
def test_a_failure_is_named_without_a_word_of_the_child(attempt: answers.Try, code: str, error: str) -> None:
    assert read(attempt) == answers.Failed(code=code, error=error)
    assert "secret" not in error


def test_a_list_of_objects_is_a_matrix_and_what_a_missing_argument_means_is_applied() -> None:
    entries = b'[{"n": 1}, {"n": 2, "eval-only": true}]'
    assert [entry["n"] for entry in read(tried(entries)).entries] == [1, 2]
    without = tried(entries, known=commands.Known(dropped=("--no-evals",)))
    assert [entry["n"] for entry in read(without).entries] == [1]
    assert read(tried(b"[]", daemons=2)) == answers.Made(entries=(), daemons=2)


def test_lines_of_json_are_a_matrix_too() -> None:
    assert answers.parse(b'{"a": 1}\n\n{"a": 2}\n', "jsonl") == [{"a": 1}, {"a": 2}]
    assert answers.parse(b"", "jsonl") == []
    assert answers.parse(b'{"a": 1}\n{"a": 1, "a": 2}', "jsonl") == (
        "its output is no matrix: an object in it has a name twice"
    )


def test_a_refusal_is_what_the_last_try_says() -> None:
    assert read(tried(stderr=UNKNOWN, exit_=2)) == commands.Refusal("argument", ("--no-evals",))
    invalid = b"gen.py: error: argument command: invalid choice: 'new' (choose from 'old')"
    assert read(tried(stderr=invalid, exit_=2)).kind == "alternative"


def test_a_second_try_counts_only_where_the_first_was_refused_for_just_that() -> None:
    """The driver tries again by itself; whether it was entitled to is judged here."""
    without = tried(b"[{}]", known=commands.Known(dropped=("--no-evals",)))
    answer = answers.Answer(tries=(tried(stderr=UNKNOWN, exit_=2), without))
    assert READER.read(answer) == (answers.Made(entries=({},)), without.state)
    crash = tried(stderr=b"Traceback: --no-evals is fine, the disk is not", exit_=1)
    assert read(crash, without) == answers.Failed(code="generator-failed", error="exit status 1")
    both = tried(b"[{}]", known=commands.Known(dropped=("--fast", "--no-evals")))
    assert read(tried(stderr=UNKNOWN, exit_=2), both) == commands.Refusal("argument", ("--no-evals",))
    named = UNKNOWN + b" --fast"
    assert read(tried(stderr=named, exit_=2), both) == answers.Made(entries=({},))


def test_the_suite_catches_a_reader_that_believes_the_last_try() -> None:
    crash = tried(stderr=b"Traceback: --no-evals", exit_=1)
    without = tried(b"[{}]", known=commands.Known(dropped=("--no-evals",)))
    believed = READER.read(answers.Answer(tries=(without,)))[0]
    assert isinstance(believed, answers.Made)
    assert isinstance(read(crash, without), answers.Failed)


def test_one_output_is_divided_by_family() -> None:
    layout = settings.Layout(inputs=("x",), commands=(("a", "{families}"),), family_field="who")
    parts = answers.divide(b'[{"who": "a", "n": 1}, {"who": "z"}, {"n": 2}, {"who": "a", "n": 3}]', layout, ["a", "b"])
    assert parts == {"a": [{"who": "a", "n": 1}, {"who": "a", "n": 3}], "b": []}
    assert answers.divide(b"no", layout, ["a"]) is None


def test_what_was_never_asked_has_no_matrix() -> None:
    assert read(tried(b""), missing=True) == answers.Failed(
        code="generator-failed", error="it ended before this family's turn"
    )
