"""``klaud regenerate`` and ``klaud verify`` as a user meets them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import typer.testing

from klaud import errors
from klaud.baselines import bundle, model
from klaud.cli import baselines, main
from tests.support.benchmarks import ENTRIES, FAST, Case, History, rows_of

if TYPE_CHECKING:
    import pathlib

CONFIG = """
bot: 90001
benchmarks:
  - name: acme
    families: {files: ["configs/*.json"]}
    generator:
      layouts:
        - when: [tools/matrix.py]
          inputs: [tools, configs]
          configs: ["configs/*.json"]
          commands:
            - ["{python}", "{root}/tools/matrix.py", test-config, --config-keys, "{family}", --config-files, "{configs}"]
      optional-arguments: [{argument: --no-evals, meaning: throughput-only}]
    rows: {file: rows.json}
    sources: [{file: candidates.jsonl}]
    workflows: {smoke: smoke.yml, final: final.yml}
    edit-scope: {values: [{files: ["configs/*.json"], keys: ["*.image"]}]}
"""


@pytest.fixture
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    for name in list(os.environ):
        if baselines.credential_in({name: "x"}):
            monkeypatch.delenv(name)
    (tmp_path / "klaud.yml").write_text(CONFIG)
    (tmp_path / "rows.json").write_text(json.dumps(rows_of(ENTRIES["fast"])))
    (tmp_path / "matrix.json").write_text(json.dumps(ENTRIES["fast"]))
    monkeypatch.setenv("KLAUD_CONFIG", str(tmp_path / "klaud.yml"))
    return tmp_path


def klaud(*words: Any) -> tuple[int, str]:
    done = typer.testing.CliRunner().invoke(main.app, [str(word) for word in words])
    if isinstance(done.exception, errors.KlaudError):
        raise done.exception
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.output


def test_regenerate_writes_producers_json(folder: pathlib.Path, history: History) -> None:
    needs = folder / "needs.json"
    needs.write_text(json.dumps([{"commit": history.without, "families": [FAST, "configs/all.json:gone"]}]))
    words = ["regenerate", "--needs", needs, "--out", folder / "out/producers.json", "--repository", history.folder]
    status, text = klaud(*words, "--cache", folder / "cache")
    assert status == 0
    assert "1 of 2 matrices (0 from the cache" in text
    assert "configs/all.json:gone" in text
    assert "generator-failed: exit status 1" in text
    held = json.loads((folder / "out/producers.json").read_text())
    made = next(each for each in held["matrices"] if each["family"] == FAST)
    assert (made["dropped"], len(made["entries"])) == (["--no-evals"], 2)
    assert "no such family" not in json.dumps(held)
    assert "1 from the cache" in klaud(*words, "--cache", folder / "cache")[1]


@pytest.mark.parametrize(
    "name", ["KLAUD_TOKEN", "GITHUB_TOKEN", "ANTHROPIC_API_KEY", "MY_SECRET", "ACTIONS_RUNTIME_TOKEN"]
)
def test_regenerate_refuses_beside_a_credential_and_names_it(
    folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "value-of-it")
    with pytest.raises(errors.InputError, match=f"the variable {name} is set") as caught:
        klaud("regenerate", "--needs", folder / "needs.json", "--out", folder / "x.json")
    assert "value-of-it" not in str(caught.value) + caught.value.advice
    assert not (folder / "x.json").exists()


def test_an_empty_variable_is_no_credential() -> None:
    assert baselines.credential_in({"KLAUD_TOKEN": "", "PATH": "/bin", "TOKENS": "x"}) is None


def test_verify_repeats_a_bundle(folder: pathlib.Path) -> None:
    case = Case()
    data = bundle.make(case.policy, case.decoded(), case.proofs(), case.produced(), family=FAST, current=case.current)
    path = folder / "baseline.json"
    path.write_bytes(data)
    status, text = klaud("verify", "--bundle", path, "--digest", bundle.digest(data))
    assert status == 0
    assert f"repeated from the bundle alone, same bytes: {bundle.digest(data)}" in text
    status, text = klaud("verify", "--bundle", path, "--digest", "sha256:00")
    assert (status, "another bundle" in text) == (1, True)
    path.write_bytes(data.replace(b'"tput": 104.0', b'"tput": 1.0', 1))
    status, text = klaud("verify", "--bundle", path)
    assert (status, "not repeated" in text) == (1, True)


def test_verify_holds_rows_against_a_matrix(folder: pathlib.Path) -> None:
    words = ["verify", "--rows", folder / "rows.json", "--matrix", folder / "matrix.json", "--family", FAST]
    status, text = klaud(*words)
    assert (status, "verified (3 point(s)" in text) == (0, True)
    rows = rows_of(ENTRIES["fast"])
    rows[0]["decode_tp"] = 4
    (folder / "rows.json").write_text(json.dumps(rows))
    status, text = klaud(*words)
    assert (status, "unmatched" in text, "decode_tp: row 4, matrix 8" in text) == (1, True, True)


def test_verify_says_what_it_leaves_aside_and_what_it_cannot_read(folder: pathlib.Path) -> None:
    text = (folder / "klaud.yml").read_text()
    (folder / "klaud.yml").write_text(text.replace("rows.json}", "rows.json, only: {suite: [acme, acme-2]}}"))
    rows = [*rows_of(ENTRIES["fast"]), *rows_of(ENTRIES["fast"], suite="other", decode_tp=1), {"model": "m1"}]
    (folder / "rows.json").write_text(json.dumps(rows))
    status, text = klaud("verify", "--rows", folder / "rows.json", "--matrix", folder / "matrix.json", "--family", FAST)
    assert status == 0
    assert "3 row(s) of another benchmark are left aside: suite other" in text
    assert "row 6 hardware is missing" in text
    assert "1 row(s) could not be read" in text


def test_verify_of_a_bundle_of_another_version_says_so(folder: pathlib.Path) -> None:
    (folder / "baseline.json").write_text('{"kind": "klaud-baseline", "version": 7}')
    with pytest.raises(errors.InputError, match="it is of version 7, and this klaud reads version 1"):
        klaud("verify", "--bundle", folder / "baseline.json")


@pytest.mark.parametrize(
    "words", [[], ["--rows", "r"], ["--bundle", "b", "--rows", "r"], ["--rows", "r", "--matrix", "m"]]
)
def test_verify_says_what_it_needs(folder: pathlib.Path, words: list[str]) -> None:
    del folder
    with pytest.raises(errors.InputError, match="what to verify is not clear"):
        klaud("verify", *words)


def test_unreadable_input_is_named(folder: pathlib.Path) -> None:
    with pytest.raises(errors.InputError, match="nothing-here cannot be read"):
        klaud("verify", "--bundle", folder / "nothing-here")
    (folder / "needs.json").write_text('{"commit": 1}')
    with pytest.raises(errors.InputError, match=r"needs\.json is not what is expected"):
        klaud("regenerate", "--needs", folder / "needs.json", "--out", folder / "x.json")
    with pytest.raises(errors.InputError, match="--benchmark is 'other'"):
        klaud("regenerate", "--benchmark", "other", "--needs", folder / "needs.json", "--out", folder / "x.json")


def test_help_loads_nothing_heavy() -> None:
    script = (
        "import sys, typer.testing; from klaud.cli import main\n"
        "typer.testing.CliRunner().invoke(main.app, ['verify', '--help'])\n"
        "print([name for name in ('github', 'requests', 'rich', 'klaud.baselines.decide') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_credentials_end_as_they_do() -> None:
    assert all(baselines.credential_in({name: "x"}) == name for name in baselines.CREDENTIALS)
    assert isinstance(Case().policy, model.Policy)
