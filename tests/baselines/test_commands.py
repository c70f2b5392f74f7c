"""What generators say when they do not know something, in the words of three libraries, and what is no such thing."""

from __future__ import annotations

import subprocess
import sys

import pytest

from klaud.baselines import commands, settings

ARGV = ["python3", "gen.py", "test-config", "--config-keys", "fast", "--no-evals"]
LITERALS = ["python3", "test-config", "--config-keys", "--no-evals"]


def refused(text: str, optional: tuple[str, ...] = ("--no-evals",)) -> commands.Refusal | None:
    return commands.refusal(text.encode(), ARGV, optional, LITERALS)


ARGUMENT = commands.Refusal("argument", ("--no-evals",))

WORDS = {
    "argparse": "usage: gen.py [-h] {full,test-config} ...\ngen.py: error: unrecognized arguments: --no-evals\n",
    "click": "Usage: gen.py test-config [OPTIONS]\nTry 'gen.py --help' for help.\n\nError: No such option: --no-evals\n",
    "click, quoted": "Error: No such option '--no-evals'. Did you mean --evals?\n",
    "click, several meant": "Error: No such option: --no-evals (Possible options: --evals, --no-env)\n",
    "click, passing options on": "Error: Got unexpected extra argument (--no-evals)\n",
    "argparse, of a subcommand": "usage: g test-config [-h]\ng test-config: error: unrecognized arguments: --no-evals\n",
    "typer": (
        "Usage: gen.py test-config [OPTIONS]\n╭─ Error ──────────────────────────────╮\n"
        "│ No such option: --no-evals           │\n╰──────────────────────────────────────╯\n"
    ),
    "typer, wrapped": "╭─ Error ───────╮\n│ No such       │\n│ option:       │\n│ --no-evals    │\n╰───────────────╯\n",
}


@pytest.mark.parametrize("text", WORDS.values(), ids=WORDS)
def test_an_unknown_optional_argument_is_recognised(text: str) -> None:
    assert refused(text) == ARGUMENT


@pytest.mark.parametrize(
    "text",
    [
        "gen.py: error: unrecognized arguments: --config-keys fast",
        "gen.py: error: unrecognized arguments: --config-keys fast --no-evals",
        "gen.py: error: argument command: invalid choice: 'test-config' (choose from 'full', 'sweep')",
        "gen.py: error: argument {full,sweep}: invalid choice: 'test-config' (choose from full, sweep)",
        "gen.py: error: the following arguments are required: --key",
        "Error: No such command 'test-config'.",
        "│ No such command 'test-config'. │",
        "Error: Missing option '--key'.",
        "│ Missing option '--key'. │",
        "Error: No such option: --config-keys",
        "Error: Got unexpected extra arguments (--config-keys fast)",
        "gen.py: error: the following arguments are required: command",
        "gen.py: error: the following arguments are required: family, --key",
        "Usage: gen.py [OPTIONS] COMMAND\n\nError: Missing command.",
        "╭─ Error ───╮\n│ Missing argument 'FAMILY'. │\n╰───────────╯",
    ],
)
def test_an_unknown_command_line_is_passed_over(text: str) -> None:
    found = refused(text)
    assert found is not None
    assert found.kind == "alternative"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "KeyError: '--no-evals'",
        "no such family: fast",
        "gen.py: error: argument --config-keys: invalid choice: 'fast' (choose from 'slow')",
        "gen.py: error: argument --config-keys: invalid choice: 'test-config' (choose from 'slow')",
        "gen.py: error: unrecognized arguments: --other",
        "Error: No such option: --other",
        "Error: No such command 'fast'.",
        "FileNotFoundError: configs/all.json",
        "error: unrecognized arguments of the evaluation: no-evals",
        "ValueError: missing argument of the family fast",
        "Got unexpected extra argument (fast)",
    ],
)
def test_any_other_failure_is_a_failure(text: str) -> None:
    assert refused(text) is None


def test_exactly_the_named_arguments_are_dropped() -> None:
    argv = [*ARGV, "--mode=fast"]
    text = b"gen.py: error: unrecognized arguments: --mode=fast"
    assert commands.refusal(text, argv, ("--no-evals", "--mode=fast")) == commands.Refusal("argument", ("--mode=fast",))


def test_the_words_are_those_that_argparse_and_typer_say_today() -> None:
    """The wordings above are copies; this asks the libraries themselves."""
    argparse_ = "import argparse; p = argparse.ArgumentParser(); p.parse_args()"
    typer_ = "import typer; app = typer.Typer()\n@app.command()\ndef main(x: int = 1): pass\napp()"
    for script in (argparse_, typer_):
        done = subprocess.run([sys.executable, "-c", script, "--no-evals"], capture_output=True, check=False)
        assert done.returncode == 2
        assert commands.refusal(done.stderr, ["--no-evals"], ("--no-evals",)) == ARGUMENT
    required = "import argparse; p = argparse.ArgumentParser(); p.add_argument('--key', required=True); p.parse_args()"
    missing = "import typer; app = typer.Typer()\n@app.command()\ndef main(key: str = typer.Option(...)): pass\napp()"
    for script in (required, missing):
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
        found = commands.refusal(done.stderr, [], ())
        assert found is not None
        assert found.kind == "alternative"


def test_the_first_layout_whose_files_exist_is_taken() -> None:
    layouts = [
        settings.Layout(when=("new/*.py", "configs"), inputs=("new",), commands=(("a",),)),
        settings.Layout(
            when=("old/gen.py",), inputs=("old",), commands=(("b",),), configs=("old/*.json", "old/a.json")
        ),
    ]
    fit = commands.fit(layouts, {"new/gen.py", "old/gen.py", "old/a.json", "old/b.json"})
    assert fit is not None
    assert (fit.index, fit.files["configs"]) == (1, ("old/a.json", "old/b.json"))
    assert commands.fit(layouts, {"x"}) is None


def test_placeholders_fill_words_and_lists() -> None:
    words = commands.expand(
        ["{python}", "{root}/g.py", "--k", "{family}", "{families}", "--f", "{configs}", "{x}", "{file}", "a{family}b"],
        root="/r", python="py", keys=["one", "two"], file="/r/c.json", files={"configs": ["/r/1", "/r/2"]},
    )  # fmt: skip
    assert words == [
        "py", "/r/g.py", "--k", "one", "one", "two", "--f", "/r/1", "/r/2", "{x}", "/r/c.json", "aoneb"
    ]  # fmt: skip


def test_a_family_is_found_in_its_file_of_then() -> None:
    assert commands.file_of("configs/a.yaml:k", ["configs/a.yaml", "x/a.yaml"], {}) == "configs/a.yaml"
    assert commands.file_of("configs/a.yaml:k", [".github/configs/a.yaml"], {}) == ".github/configs/a.yaml"
    assert commands.file_of("configs/a.yaml:k", ["old.yaml"], {"x": "y", "old.yaml": "configs/a.yaml"}) == "old.yaml"
    assert commands.file_of("configs/a.yaml:k", ["x/a.yaml", "y/a.yaml"], {}) is None


def test_a_call_for_several_or_for_all_is_known_by_its_placeholders() -> None:
    assert commands.several(["a", "{families}"])
    assert not commands.several(["a", "{family}"])
    assert commands.whole(["a", "{configs}"])
    assert not commands.whole(["a", "--key={family}"])


def test_throughput_only_drops_what_an_evaluation_alone_wants() -> None:
    entries = [{"a": 1}, {"a": 2, "eval-only": True}, {"a": 3, "run-eval": True}, {"a": 4, "eval-only": False}]
    assert [entry["a"] for entry in commands.keep(entries, ["throughput-only"])] == [1, 3, 4]
    assert len(commands.keep(entries, ["same-output"])) == 4
