"""The configuration against the repository, and a planner run against its own rights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from klaud import config
from klaud.encoder import model as bounds
from klaud.github import model as github
from klaud.leases import model as leases
from klaud.planner import preflight, settings, validate
from klaud.session import model as session
from tests.support import memory_gateway
from tests.support.memory_world import Spoil, World

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = """
bot: 90001
benchmarks:
  - name: codecs
    families: {files: ["configs/*.yaml"]}
    generator:
      layouts:
        - when: [tools/matrix.py]
          inputs: [tools, configs]
          commands: [[python3, "{root}/tools/matrix.py", --config-keys, "{family}"]]
          configs: ["configs/*.yaml"]
    rows: {file: rows.json}
    sources: [{file: candidates.jsonl}]
    workflows: {smoke: smoke.yml, smoke-inputs: {family: "{key}"}, final: final.yml}
    edit-scope: {values: [{files: ["configs/*.yaml"], keys: ["*.level"]}]}
"""
FILES = {
    "tools/matrix.py": "print([])",
    "configs/codecs.yaml": "zlib: {level: 6}",
    "rows.json": "[]",
    "candidates.jsonl": "",
    ".github/workflows/klaud-candidate.yml": """
on:
  workflow_dispatch:
    inputs:
      wave: {required: true}
      candidate: {required: true}
      claim: {required: true}
""",
    ".github/workflows/smoke.yml": "on: {workflow_dispatch: {inputs: {family: {required: true}, note: {}}}}",
    ".github/workflows/final.yml": "on: {pull_request: {types: [opened, labeled]}}",
    ".git/config": "x",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for path, text in FILES.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return tmp_path


def findings(root: Path, text: str = CONFIG) -> list[str]:
    made = config.parse(text.encode())
    found = validate.findings(made.benchmarks, made.renames, made.candidate_workflow, root)
    assert all(one.fix for one in found)
    return [f"{one.level} {one.place}: {one.what}" for one in found]


def test_a_configuration_that_fits_has_no_findings(root: Path) -> None:
    assert findings(root) == []


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('files: ["configs/*.yaml"]}\n    generator', 'files: ["conf/*.yaml"]}\n    generator',
         "error benchmarks[0].families.files[0]: 'conf/*.yaml' matches no file"),
        ("{root}/tools/matrix.py", "{root}/tools/gone.py",
         "error benchmarks[0].generator.layouts[0].commands[0]: the generator's file tools/gone.py does not exist"),
        ("inputs: [tools, configs]", "inputs: [configs]", "tools/matrix.py is not among the layout's inputs"),
        ("when: [tools/matrix.py]", "when: [gone.py]", "generator.layouts: no layout fits the present files"),
        ("[python3,", "[no-such-program,", "warning benchmarks[0].generator.layouts[0].commands[0]: the program"),
        ("smoke: smoke.yml", "smoke: gone.yml", "workflows.smoke: .github/workflows/gone.yml does not exist"),
        ("final: final.yml", "final: smoke.yml", "final: .github/workflows/smoke.yml does not run on pull_request"),
        ("smoke: smoke.yml", "smoke: final.yml", "cannot be started by workflow_dispatch"),
        ('{family: "{key}"}', '{fam: "{key}"}', "has no input fam"),
        (', smoke-inputs: {family: "{key}"}', "", "requires the input family"),
        ("bot: 90001", "candidate-workflow: smoke.yml", "candidate-workflow: .github/workflows/smoke.yml has no input"),
        ('    edit-scope: {values: [{files: ["configs/*.yaml"], keys: ["*.level"]}]}\n', "",
         "error benchmarks[0].edit-scope: there is none"),
        ('{values: [{files: ["configs/*.yaml"], keys: ["*.level"]}]}', "{}", "edit-scope: it allows nothing"),
        ('{values: [{files: ["configs/*.yaml"]', '{files: [.github/x], values: [{files: ["gone/*"]',
         "edit-scope.values[0].files: 'gone/*' matches no file"),
        ("file: candidates.jsonl", "file: gone.jsonl", "sources[0].file: gone.jsonl does not exist"),
        ("file: rows.json", "file: gone.json", "rows.file: gone.json does not exist"),
        ("bot: 90001", "renames: {old.yaml: gone.yaml}", "renames.old.yaml: gone.yaml does not exist"),
        ("inputs: [tools, configs]", "inputs: [tools, gone]", "inputs: 'gone' matches no file"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named_by_its_place(old: str, new: str, words: str, root: Path) -> None:
    assert old in CONFIG
    found = findings(root, CONFIG.replace(old, new))
    assert any(words in one for one in found), found


@pytest.mark.parametrize(
    ("path", "text", "words"),
    [
        ("configs/codecs.yaml", "a: 1\na: 2", "written twice"),
        ("configs/codecs.yaml", "[]", "has no top-level keys"),
        (".github/workflows/final.yml", "jobs: {}", "has no on:"),
        (".github/workflows/final.yml", "on: {pull_request: null}", "does not run on pull_request: types: [labeled]"),
        (".github/workflows/final.yml", "on: pull_request", "does not run on pull_request: types: [labeled]"),
        (".github/workflows/smoke.yml", "on: [push]", "cannot be started by workflow_dispatch"),
        (".github/workflows/smoke.yml", "on: {", "not readable as YAML"),
    ],
)
def test_files_that_are_wrong_are_named(path: str, text: str, words: str, root: Path) -> None:
    (root / path).write_text(text)
    assert any(words in one for one in findings(root)), findings(root)


@pytest.mark.parametrize(
    "text", ["on: {pull_request: {types: labeled}}", "on: {pull_request_target: {types: [labeled]}}"]
)
def test_other_spellings_of_the_label_trigger_are_fine(text: str, root: Path) -> None:
    (root / ".github/workflows/final.yml").write_text(text)
    assert findings(root) == []


def test_credentials_are_known_by_their_names() -> None:
    env = {
        "KLAUD_TOKEN": "x", "GITHUB_TOKEN": "x", "GH_TOKEN": "", "ANTHROPIC_API_KEY": "x", "AWS_SECRET_ACCESS_KEY": "x",
        "AWS_ACCESS_KEY_ID": "x", "KLAUD_RECORD_KEY": "x", "KLAUD_CAPACITY_KEY": "x", "PATH": "x", "HOME": "x",
        "ACTIONS_RUNTIME_TOKEN": "x", "ACTIONS_ID_TOKEN_REQUEST_TOKEN": "x", "TOKENIZERS_PARALLELISM": "x",
    }  # fmt: skip
    assert validate.credentials(env) == (
        "ACTIONS_ID_TOKEN_REQUEST_TOKEN", "ACTIONS_RUNTIME_TOKEN", "ANTHROPIC_API_KEY", "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "KLAUD_CAPACITY_KEY", "KLAUD_RECORD_KEY", "KLAUD_TOKEN",
    )  # fmt: skip


# -- preflight


def world() -> tuple[World, leases.Holder]:
    on = World()
    for name in ("klaud-candidate.yml", "final.yml"):
        on.state.workflows[name] = github.Workflow(id=1, name=name, path=f".github/workflows/{name}", state="active")
    run_id = on.add_run("klaud-plan.yml", actor=on.bot, head=on.main, branch="main", title="plan")
    return on, leases.Holder(run_id=run_id, attempt=1, nonce="n")


def checks(on: World, me: leases.Holder | None, **changes: Any) -> dict[str, preflight.Check]:
    usual: dict[str, Any] = {
        "bot": on.bot.id,
        "me": me,
        "workflows": ["klaud-candidate.yml"],
        "list_refs": lambda: memory_gateway.ref_store(on).list(["refs/klaud/"]),
        "paused": None,
        "ref": "refs/heads/main",
    }
    found = preflight.checks(memory_gateway.gateway(on), **{**usual, **changes})
    return {one.name: one for one in found}


def test_all_is_well_and_nothing_is_written() -> None:
    on, me = world()
    assert {one.result for one in checks(on, me).values()} == {"ok"}
    assert {one.result for one in checks(on, None).values()} == {"ok"}
    assert not [call for call in on.calls if call.write]


def test_L107_a_token_of_another_account_stops_the_wave_before_any_session() -> None:  # noqa: N802 - the oddity's id
    on, me = world()
    found = checks(on, me, bot=5)["identity"]
    assert (found.result, found.stops, found.status) == ("wrong", True, 3)
    assert "bot: 90001" in found.fix


@pytest.mark.parametrize(
    ("changes", "name", "status"),
    [
        ({"paused": "the variable KLAUD_PAUSED is set"}, "paused", 1),
        ({"ref": "refs/heads/other"}, "ref", 3),
        ({"workflows": ["gone.yml"]}, "workflow", 1),
        ({"me": leases.Holder(run_id=1, attempt=1)}, "own run", 3),
    ],
)
def test_what_stops_a_wave(changes: dict[str, Any], name: str, status: int) -> None:
    on, me = world()
    found = checks(on, **{"me": me, **changes})[name]
    assert (found.result, found.stops, found.status) == ("wrong", True, status)
    assert found.fix


def test_a_disabled_workflow_and_a_token_that_may_not_push_stop_too() -> None:
    on, me = world()
    on.state.workflows["off.yml"] = github.Workflow(id=2, name="x", path="x", state="disabled_inactivity")
    assert checks(on, me, workflows=["off.yml"])["workflow"].stops
    on.repository = github.Repository(
        id=1, full_name="acme/bench", default_branch="main", permissions={"push": False, "pull": True}
    )
    assert checks(on, me)["rights"].stops


def test_a_host_that_cannot_be_read_stops_the_wave_as_a_temporary_failure_after_one_try() -> None:
    on, me = world()
    on.rules.append(lambda call: Spoil.FAIL if call.name == "account" else None)
    found = checks(on, me)
    assert (found["reading"].result, found["reading"].stops, found["reading"].status) == ("unknown", True, 75)
    assert "workflow" not in found
    assert len(on.calls) == 2


def test_a_lacking_right_hides_no_other_check() -> None:
    on, me = world()
    on.denied.add("actions:read")
    found = preflight.checks(memory_gateway.gateway(on), bot=5, me=me, workflows=[], list_refs=dict, paused=None)
    assert [(one.name, one.result) for one in found if one.result != "ok"] == [
        ("rights", "wrong"),
        ("identity", "wrong"),
    ]


def referenced(root: Path, **more: Any) -> list[tuple[str, str]]:
    one = settings.References(**{"name": "kb", "workflows": session.Workflows(final="final.yml"), **more})
    found = validate.findings(
        [], {}, "klaud-candidate.yml", root, references=[one], encoder=bounds.Policy(model="claude-x")
    )
    return [(one.place, one.what) for one in found if one.place.startswith("references")]


def test_references_are_checked_against_their_data_their_options_and_their_validation(root: Path) -> None:
    (root / "data" / "shop").mkdir(parents=True)
    (root / "data" / "shop" / "shop_kb.jsonl").write_text("")
    good = {"options": {"authentication": "api-key"}}
    assert referenced(root, **good) == []
    assert referenced(root, options={"framework": "scripted"}, program=("agent",)) == []
    assert referenced(root, data="none", **good) == [
        ("references[0].data", "no database below 'none' has a knowledge base")
    ]
    assert referenced(root, options={**good["options"], "mode": "c"}) == [
        ("references[0].options", "mode 'c' does not exist: a-interact and one-shot do")
    ]
    assert referenced(root, options={"program": "sh"}) == [
        ("references[0].options", "a candidate that encodes has no 'program' in its change")
    ]
    (found,) = referenced(root, **good, workflows=session.Workflows(final="gone.yml"))
    assert found == ("references[0].workflows.final", ".github/workflows/gone.yml does not exist")
    (found,) = referenced(root, **good, sources=(settings.Source(file="gone.jsonl"),))
    assert found[0] == "references[0].sources[0].file"
