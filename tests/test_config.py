"""The configuration file: strict, and helpful where it is wrong."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import msgspec
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from klaud import config, errors

ROOT = Path(__file__).resolve().parent.parent
MINIMAL: dict[str, Any] = yaml.safe_load(
    """
benchmarks:
  - generator:
      layouts:
        - inputs: [matrix.py]
          commands: [[python, "{root}/matrix.py", "{family}"]]
    rows: {feed: "https://example.test/rows.json"}
    sources: [{file: candidates.jsonl}]
    workflows: {smoke: smoke.yml, final: final.yml}
"""
)
SCHEMA = jsonschema.Draft202012Validator(msgspec.json.decode((ROOT / "klaud/config_schema.json").read_bytes()))


def parse(data: Any) -> config.Config:
    return config.parse(yaml.safe_dump(data).encode())


def changed(path: str, value: Any) -> dict[str, Any]:
    """Return MINIMAL with the value at a dotted path set (numbers are list indices); Ellipsis removes it."""
    data: Any = copy.deepcopy(MINIMAL)
    top = data
    *steps, last = [int(step) if step.isdigit() else step for step in path.split(".")]
    for step in steps:
        data = data.setdefault(step, {}) if isinstance(data, dict) else data[step]
    if value is ...:
        del data[last]
    else:
        data[last] = value
    return top  # type: ignore[no-any-return]


def test_everything_has_a_default_except_sources_rows_generator_and_workflows() -> None:
    loaded = parse(MINIMAL)
    assert loaded.refs_prefix == "refs/klaud"
    assert loaded.planner.candidates_per_wave > 0
    assert loaded.bot == config.GITHUB_ACTIONS_BOT
    for part in ("generator", "rows", "sources", "workflows"):
        with pytest.raises(errors.InputError, match=rf"benchmarks\[0\]\.{part} is missing"):
            parse(changed(f"benchmarks.0.{part}", ...))


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("pausd", True, "pausd: unknown key; did you mean 'paused'?"),
        ("zzzzzzz", 1, "zzzzzzz: unknown key; known here: bot, "),
        ("planner.open_drafts", 3, "planner.open_drafts: unknown key; did you mean 'open-drafts'?"),
        ("planner.capacity.uri", "x", "planner.capacity.uri: unknown key; did you mean 'url'?"),
        ("version", 1, "version: unknown key; did you mean 'session'? known here: "),
        ("benchmarks.0.workflows.smok", "x", "benchmarks[0].workflows.smok: unknown key; did you mean 'smoke'?"),
        ("planner.candidates-per-wave", "four", "planner.candidates-per-wave: Expected `a whole number`, got `a text`"),
        ("planner.candidates-per-wave", -1, "planner.candidates-per-wave: Expected `a whole number` >= 0"),
        ("paused", 1, "paused: Expected `true or false`, got `a whole number`"),
        ("bot", True, "bot: Expected `a whole number`, got `true or false`"),
        ("bot", 0, "bot: Expected `a whole number` >= 1"),
        ("session.framework", "claude-sdk", "framework: 'claude-sdk' is not one of its words; did you mean 'claude_sdk'?"),
        ("renames", {"a": 1}, "renames.a: expected a text, got a whole number"),
        ("renames", {1: "a"}, "renames: key 1 is not a text"),
        ("benchmarks", [], "benchmarks is missing (and so is references)"),
        ("benchmarks", {}, "benchmarks: Expected `a list`, got `a mapping`"),
        ("benchmarks.0.sources", [{"file": "a", "feed": "b"}], "benchmarks[0].sources[0]: a source is exactly one of"),
        ("benchmarks.0.sources", [{}], "a source is exactly one of"),
        ("benchmarks.0.generator.layouts.0.commands", [["python"]], "benchmarks[0]: benchmark benchmark: the command"),
        ("benchmarks.0.name", "A b", "benchmarks[0].name: "),
        ("refs-prefix", "refs/heads/klaud", "is among branches"),
        ("refs-prefix", "klaud", "refs-prefix: "),
        ("candidate-workflow", "../x.yml", "candidate-workflow: "),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_by_its_place(path: str, value: Any, words: str) -> None:
    with pytest.raises(errors.InputError) as caught:
        parse(changed(path, value))
    assert words in str(caught.value)
    assert caught.value.exit_status == 2


def test_two_benchmarks_of_one_name_are_refused_and_an_unknown_one_names_the_known() -> None:
    with pytest.raises(errors.InputError, match="two benchmarks are named 'benchmark'"):
        parse(changed("benchmarks", MINIMAL["benchmarks"] * 2))
    loaded = parse(MINIMAL)
    assert loaded.benchmark("benchmark") is loaded.benchmarks[0]
    with pytest.raises(errors.InputError, match="it has: benchmark"):
        loaded.benchmark("other")


@pytest.mark.parametrize("raw", [b"", b"# only a comment\n", b"[]", b"text", b"3"])
def test_a_file_that_is_no_mapping_is_refused(raw: bytes) -> None:
    with pytest.raises(errors.InputError):
        config.parse(raw)


def test_without_a_file_the_advice_is_klaud_init(tmp_path: Path) -> None:
    with pytest.raises(errors.InputError, match="there is no configuration") as caught:
        config.load(tmp_path / config.PLACE)
    assert "klaud init" in caught.value.advice
    (tmp_path / ".github").mkdir()
    (tmp_path / config.PLACE).mkdir()
    with pytest.raises(errors.InputError, match="cannot be read"):
        config.load(tmp_path / config.PLACE)


def test_a_file_is_loaded_and_one_above_the_limit_refused(tmp_path: Path) -> None:
    place = tmp_path / "klaud.yml"
    place.write_text(yaml.safe_dump(MINIMAL))
    assert config.load(place) == parse(MINIMAL)
    place.write_bytes(b"#" * (config.LIMIT_BYTES + 1))
    with pytest.raises(errors.InputError, match="above the limit"):
        config.load(place)


@pytest.mark.parametrize(
    ("setting", "variable", "why"),
    [
        (False, None, None), (False, "", None), (False, "false", None), (False, "0", None),
        (False, "1", "KLAUD_PAUSED"), (False, "true", "KLAUD_PAUSED"), (False, "since monday", "KLAUD_PAUSED"),
        (True, None, "paused: true"),
    ],
)  # fmt: skip
def test_paused_by_the_file_or_by_the_variable(setting: bool, variable: str | None, why: str | None) -> None:
    found = config.is_paused(parse(changed("paused", setting)), {} if variable is None else {"KLAUD_PAUSED": variable})
    assert found is None if why is None else why in (found or "")


def test_commits_carry_the_account_s_id() -> None:
    assert parse(MINIMAL).identity() == ("github-actions[bot]", "41898282+github-actions[bot]@users.noreply.github.com")
    assert parse(changed("bot", 90001)).identity() == ("klaud", "90001+klaud@users.noreply.github.com")


def leaves(data: Any, path: str = "") -> list[str]:
    if isinstance(data, dict):
        return [leaf for key, value in data.items() for leaf in leaves(value, f"{path}.{key}".lstrip("."))]
    if isinstance(data, list):
        return [path, *(leaf for index, value in enumerate(data) for leaf in leaves(value, f"{path}.{index}"))]
    return [path]


def refusal(data: Any) -> str | None:
    try:
        parse(data)
    except errors.InputError as error:
        return str(error)
    return None


VALUES = st.sampled_from(
    [None, True, 0, -1, 1, 3.5, "", "x", "smoke.yml", [], ["x"], [["x"]], {}, {"x": "y"}, {"x": 1}]
)
PATHS = [
    *leaves(MINIMAL), "bot", "paused", "refs-prefix", "planner", "planner.open-drafts", "planner.capacity",
    "planner.capacity.command", "session", "session.budgets", "session.budgets.pushes", "session.script",
    "session.turn-seconds", "renames", "unknown", "benchmarks.0.edit-scope", "benchmarks.0.families",
    "benchmarks.0.equivalences", "benchmarks.0.name", "ignored-actors",
]  # fmt: skip


@settings(max_examples=400, deadline=None, derandomize=True)
@given(st.sampled_from(PATHS), VALUES)
def test_the_schema_for_editors_agrees_with_the_decoder(path: str, value: Any) -> None:
    """What the decoder accepts, the schema accepts; the schema accepts more only where rules span several values."""
    data = changed(path, value)
    wrong = refusal(data)
    spanning = (
        "is exactly one of",
        "are named",
        "is among",
        "at least one layout",
        "exactly one of feed",
        "benchmark benchmark",
    )
    if wrong is None:
        SCHEMA.validate(data)
    else:
        assert not SCHEMA.is_valid(data) or any(words in wrong for words in spanning), wrong


REFERENCES: dict[str, Any] = {
    "encoder": {"attempts": 2, "budget-seconds": 60},
    "references": [{"name": "kb", "options": {"mode": "one-shot"}, "workflows": {"final": "check.yml"}}],
}


def test_a_repository_may_have_references_alone_and_their_model_is_the_session_s_unless_named() -> None:
    loaded = parse(REFERENCES)
    assert (loaded.benchmarks, loaded.encoder.attempts) == ((), 2)
    entry = loaded.reference("kb")
    assert entry is not None
    assert (entry.data, entry.directory, entry.sources) == ("data", "references", ())
    assert loaded.reference("other") is None
    assert [one.final for one in loaded.flows()] == ["check.yml"]
    assert loaded.encoding().model == ""
    assert parse({**REFERENCES, "session": {"model": "m"}}).encoding().model == "m"
    own = {**REFERENCES, "session": {"model": "m"}, "encoder": {"model": "own"}}
    assert parse(own).encoding().model == "own"
    with pytest.raises(errors.InputError, match=r"benchmark 'kb' is not in the configuration \(it has: none\)"):
        loaded.benchmark("kb")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": "a.b"}, "references[0].name"),
        ({"directory": "../x"}, "references[0].directory"),
        ({"directory": ".github"}, "references[0].directory"),
        ({"data": "/abs"}, "references[0].data"),
        ({"generator": {}}, "references[0].generator: unknown key"),
    ],
)
def test_references_are_named_and_stay_in_folders_of_the_repository(change: dict[str, Any], words: str) -> None:
    data = {"references": [{**REFERENCES["references"][0], **change}]}
    with pytest.raises(errors.InputError) as caught:
        parse(data)
    assert words in str(caught.value)
    assert not SCHEMA.is_valid(data)


def test_references_and_benchmarks_share_their_names() -> None:
    one = {**MINIMAL["benchmarks"][0], "name": "kb"}
    with pytest.raises(errors.InputError, match="two benchmarks are named 'kb'"):
        parse({**REFERENCES, "benchmarks": [one]})
