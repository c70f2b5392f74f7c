"""``klaud init`` on an empty repository, on one that has klaud, and on one whose files differ; the workflows' own rules."""

from __future__ import annotations

import copy
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

import klaud
from klaud import config as configs
from klaud import errors
from klaud.cli import init, main
from klaud.planner import hand_on
from tests.support import adopted

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[2]
NOT_SET_UP = (
    'echo "klaud is not set up here, there is no .github/klaud.yml (klaud init writes one)" >> "$GITHUB_STEP_SUMMARY"'
)
"""The one command that is not klaud's: there is no klaud to ask."""

FLOWS = [yaml.safe_load(init.template(f"workflows/{name}")) for name in init.WORKFLOWS]


def run(*argv: str) -> int:
    try:
        main.main(["init", *argv])
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def snapshot(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_an_empty_repository_gets_a_configuration_and_three_workflows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--root", str(tmp_path)) == 0
    assert sorted(snapshot(tmp_path)) == sorted([init.CONFIG, *(f"{init.FOLDER}/{name}" for name in init.WORKFLOWS)])
    assert "+++ b/.github/klaud.yml" in capsys.readouterr().out
    assert configs.load(tmp_path / init.CONFIG).benchmarks[0].name == "bench"


def test_a_second_run_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("--root", str(tmp_path))
    before = snapshot(tmp_path)
    capsys.readouterr()
    assert run("--root", str(tmp_path)) == 0
    assert snapshot(tmp_path) == before
    assert "+++" not in capsys.readouterr().out


def test_a_file_that_differs_is_shown_and_nothing_is_written_without_force(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    adopted.write(tmp_path, {f"{init.FOLDER}/klaud-plan.yml": "name: mine\x1b[31m\n"})
    before = snapshot(tmp_path)
    assert run("--root", str(tmp_path)) == errors.InputError.exit_status
    assert snapshot(tmp_path) == before
    said = capsys.readouterr()
    assert "-name: mine?[31m" in said.out
    assert "--force" in said.err
    assert run("--root", str(tmp_path), "--force") == 0
    assert (tmp_path / init.FOLDER / "klaud-plan.yml").read_text().startswith("# One planner run")


def test_a_configuration_that_is_there_is_never_touched_and_names_the_workflows(tmp_path: Path) -> None:
    adopted.write(tmp_path, adopted.FILES)
    assert run("--root", str(tmp_path), "--force") == 0
    assert (tmp_path / init.CONFIG).read_text() == adopted.CONFIG
    plan = yaml.safe_load((tmp_path / init.FOLDER / "klaud-plan.yml").read_text())
    assert plan[True]["workflow_run"]["workflows"] == ["smoke it", "measure it all"]


def test_a_configuration_with_references_lets_the_candidate_workflow_install_the_semantic_layer(tmp_path: Path) -> None:
    (tmp_path / ".github").mkdir()
    entry = "references: [{name: kb, workflows: {final: check.yml}}]\n"
    for text, extras in ((entry, "klaud[agent,encoder]=="), ("references: [", "klaud[agent]==")):
        (tmp_path / ".github/klaud.yml").write_text(text)
        assert extras in init.files(tmp_path, "17 */6 * * *")[".github/workflows/klaud-candidate.yml"]


def test_it_writes_through_no_link(tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    target.write_text("kept")
    root = tmp_path / "clone"
    (root / ".github").mkdir(parents=True)
    (root / init.CONFIG).symlink_to(target)
    assert run("--root", str(root), "--force") == errors.InputError.exit_status
    assert target.read_text() == "kept"


@pytest.mark.parametrize(
    "cron", ["* * * *", '17 * * * *"\n  evil: 1', "every day", "99 * * * *", "1 25 * * *", "1 1 * * fry"]
)
def test_a_cron_that_is_none_is_refused(tmp_path: Path, cron: str) -> None:
    assert run("--root", str(tmp_path), "--cron", cron) == errors.InputError.exit_status
    assert snapshot(tmp_path) == {}


def test_klauds_own_workflows_are_what_init_writes() -> None:
    for name in init.WORKFLOWS:
        assert (ROOT / ".github" / "workflows" / name).read_text() == init.template(f"workflows/{name}")


def test_the_planner_has_all_its_triggers_and_the_schedule_is_the_one_that_is_asked_for(tmp_path: Path) -> None:
    assert run("--root", str(tmp_path), "--cron", "3 4 * * 1-5") == 0
    on = yaml.safe_load((tmp_path / init.FOLDER / "klaud-plan.yml").read_text())[True]
    assert list(on) == ["schedule", "workflow_dispatch", "workflow_call", "workflow_run"]
    assert on["schedule"] == [{"cron": "3 4 * * 1-5"}]
    assert on["workflow_dispatch"] == on["workflow_call"]


def test_where_there_is_no_configuration_the_planner_ends_green_and_says_so() -> None:
    """Nothing is installed and nothing is asked; every later job waits for an artifact that is not made."""
    steps = FLOWS[0]["jobs"]["recover"]["steps"]
    missing, there = "${{ hashFiles('.github/klaud.yml') == '' }}", "${{ hashFiles('.github/klaud.yml') != '' }}"
    by_name = {step.get("name"): step for step in steps}
    assert by_name["not set up"]["if"] == missing
    assert "no .github/klaud.yml" in by_name["not set up"]["run"]
    assert by_name["install"]["if"] == by_name["preflight"]["if"] == there
    assert by_name["recover"]["if"] == "${{ steps.preflight.outputs.ready == 'true' }}"
    for name in ("remember", "hand on"):
        assert "hashFiles('klaud-wave/" in by_name[name]["if"]
    assert "needs.recover.outputs.artifact != ''" in FLOWS[0]["jobs"]["plan"]["if"]


def test_the_workflows_install_this_version() -> None:
    for name in init.WORKFLOWS:
        found = re.findall(r'pip install "klaud(?:\[agent\])?==([^"]+)"', init.template(f"workflows/{name}"))
        assert found
        assert set(found) == {klaud.__version__}


def steps() -> list[tuple[dict[str, object], dict[str, object]]]:
    return [(job, step) for flow in FLOWS for job in flow["jobs"].values() for step in job["steps"]]


def test_no_expression_is_in_a_command_and_each_command_is_one_exec() -> None:
    for _, step in steps():
        command = str(step.get("run", ""))
        assert "${{" not in command
        assert not command or command == NOT_SET_UP or command.startswith(("exec klaud ", "python -m pip install "))
        assert "\n" not in command.strip()


def test_every_action_is_pinned_by_a_full_commit() -> None:
    for _, step in steps():
        assert "uses" not in step or re.fullmatch(r"actions/[a-z/-]+@[0-9a-f]{40}", str(step["uses"]))


def test_secrets_are_in_steps_of_jobs_with_the_main_only_environment_and_nowhere_else() -> None:
    for flow in FLOWS:
        assert flow["permissions"] == {}
        assert "secrets." not in str({key: value for key, value in flow.items() if key != "jobs"})
        for job in flow["jobs"].values():
            assert "permissions" in job
            assert "timeout-minutes" in job
            assert "secrets." not in str({key: value for key, value in job.items() if key != "steps"})
            if "secrets." in str(job):
                assert job["environment"] == "klaud"
            if "environment" not in job:
                assert "write" not in str(job["permissions"])


def test_the_documented_table_says_which_secrets_and_rights_each_job_has() -> None:
    """docs/permissions.md: a row for each job, with exactly the secrets and the rights that the workflow files give."""
    lines = (ROOT / "docs" / "permissions.md").read_text().splitlines()
    rows = {}
    for line in lines:
        found = re.match(r"\| (plan|candidate|handoff), `([\w-]+)` \| ([^|]*) \| ([^|]*) \|", line)
        if found:
            rows[found[1], found[2]] = (found[3], set(re.findall(r"`([A-Z_]+)`", found[4])))
    seen = set()
    for name, flow in zip(("plan", "candidate", "handoff"), FLOWS, strict=True):
        for key, job in flow["jobs"].items():
            seen.add((name, key))
            rights, secrets = rows[name, key]
            assert set(re.findall(r"secrets\.([A-Z_]+)", str(job))) == secrets, key
            for permission in ("contents", "pull-requests", "actions"):
                assert (permission.replace("-", " ") in rights) == (permission in job["permissions"]), key
    assert set(rows) == seen


def test_the_documented_table_says_what_each_job_hands_on_and_where_code_runs() -> None:
    """The last column is what klaud takes from that job; the repository's code runs where a verb with a sandbox does."""
    text = (ROOT / "docs" / "permissions.md").read_text()
    rows = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split(" | ")]
        if line.startswith("| plan, ") and len(cells) == 7:
            rows[cells[0].split("`")[1]] = cells
    for key, patterns in hand_on.STEPS.items():
        assert sorted(re.findall(r"`([^`]+)`", rows[key][6])) == sorted(patterns), key
    for key, job in FLOWS[0]["jobs"].items():
        verbs = {step["run"].split()[2] for step in job["steps"] if str(step.get("run")).startswith("exec klaud ")}
        assert ("yes" in rows[key][3]) == bool(verbs & {"plan", "regenerate"}), key


def test_jobs_that_run_the_repositorys_code_hold_no_credential() -> None:
    jobs = FLOWS[0]["jobs"]
    for key in ("plan", "produce", "save-cache"):
        text = str(jobs[key])
        assert "secrets." not in text
        assert "github.token" not in text
        assert "environment" not in jobs[key]
        assert jobs[key]["permissions"] == {"contents": "read"}


def test_no_checkout_keeps_its_token_and_the_handoff_has_none() -> None:
    for _, step in steps():
        if "checkout" in str(step.get("uses")):
            assert step["with"]["persist-credentials"] is False  # type: ignore[index]
    assert "checkout" not in str(FLOWS[2]["jobs"])


def test_what_ran_the_repositorys_code_is_taken_over_first_so_that_it_replaces_nothing() -> None:
    names = [step.get("name", "") for step in FLOWS[0]["jobs"]["select"]["steps"]]
    taken = [name.removeprefix("take over from ") for name in names if name.startswith("take over")]
    assert taken == ["produce", "plan", "review", "recover"]


def test_what_is_handed_on_is_taken_by_id_and_by_digest() -> None:
    """Each job says which files it hands on and with which digests; whoever takes an artifact over is told them."""
    jobs = FLOWS[0]["jobs"]
    for key, job in jobs.items():
        uploads = [step for step in job["steps"] if "upload-artifact" in str(step.get("uses"))]
        for step in uploads:
            assert step["with"]["retention-days"] == 30
            if key != "select":  # what select uploads is for candidate runs: held to the claim and to the ledger
                assert job["outputs"]["artifact"] == "${{ steps.hand-on.outputs.artifact-id }}"
                assert re.fullmatch(r"\$\{\{ steps\.(\w+)\.outputs\.files \}\}", job["outputs"]["files"])
        taken = [step for step in job["steps"] if "download-artifact" in str(step.get("uses"))]
        told = {name for step in job["steps"] for name in step.get("env", {}) if name.startswith("KLAUD_HANDED_")}
        assert told == {f"KLAUD_HANDED_{step['name'].rpartition(' ')[2].upper()}" for step in taken}, key
        for step in taken:
            source = step["name"].rpartition(" ")[2]
            assert step["with"]["artifact-ids"] == f"${{{{ needs.{source}.outputs.artifact }}}}"
            (reader,) = [one for one in job["steps"] if f"KLAUD_HANDED_{source.upper()}" in one.get("env", {})]
            assert reader["env"][f"KLAUD_HANDED_{source.upper()}"] == f"${{{{ needs.{source}.outputs.files }}}}"
            assert job["steps"].index(reader) > job["steps"].index(step)


def test_the_uploads_are_the_files_that_klaud_takes_from_each_step() -> None:
    for key, patterns in hand_on.STEPS.items():
        (upload,) = [one for one in FLOWS[0]["jobs"][key]["steps"] if "upload-artifact" in str(one.get("uses"))]
        assert sorted(upload["with"]["path"].split()) == sorted(f"klaud-wave/{one}" for one in patterns)


def test_matrices_are_saved_by_a_job_that_runs_no_code_and_restored_by_none_that_holds_a_token() -> None:
    saving, restoring = set(), set()
    for key, job in FLOWS[0]["jobs"].items():
        for step in job["steps"]:
            uses = str(step.get("uses"))
            saving |= {key} if "cache/save" in uses else set()
            restoring |= {key} if "cache/restore" in uses else set()
            assert not re.match(r"actions/cache@", uses), "one action that restores and saves"
    assert saving == {"save-cache"}
    assert restoring == {"plan", "produce", "save-cache"}
    commands = [step["run"] for step in FLOWS[0]["jobs"]["save-cache"]["steps"] if "run" in step]
    assert [one.split()[:3] for one in commands] == [["python", "-m", "pip"], ["exec", "klaud", "keep-matrices"]]
    for key in restoring:
        assert "secrets." not in str(FLOWS[0]["jobs"][key])
        assert "github.token" not in str(FLOWS[0]["jobs"][key])
        assert "environment" not in FLOWS[0]["jobs"][key]
    save = FLOWS[0]["jobs"]["save-cache"]["steps"][-1]
    assert save["with"]["key"] == "klaud-matrices-${{ steps.keep.outputs.digest }}"


def test_every_ignore_has_its_reason_beside_it() -> None:
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        for line in path.read_text().splitlines():
            if "zizmor: ignore" in line:
                assert re.search(r"ignore\[[a-z,-]+\] - \S", line)


@pytest.mark.parametrize(
    ("program", "argv"),
    [
        ("zizmor", ["--offline", "--no-progress", "--persona", "auditor", ".github"]),
        ("actionlint", []),
        ("check-jsonschema", ["--builtin-schema", "vendor.github-workflows"]),
    ],
)
def test_linters_find_nothing(program: str, argv: list[str], tmp_path: Path) -> None:
    found = Path(sys.executable).with_name(program)
    where = str(found) if found.exists() else shutil.which(program)
    if where is None:
        pytest.skip(f"{program} is not installed (the extra lint)")
    run("--root", str(tmp_path))
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    files = [str(path) for path in (tmp_path / init.FOLDER).glob("*.yml")]
    done = subprocess.run(
        [where, *argv, *([] if program == "zizmor" else files)],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def _expression(flows: list[dict[str, Any]]) -> None:
    flows[1]["jobs"]["session"]["steps"][3]["run"] = "exec klaud session --wave ${{ inputs.wave }}"


def _tag(flows: list[dict[str, Any]]) -> None:
    flows[0]["jobs"]["plan"]["steps"][0]["uses"] = "actions/checkout@v5"


def _secret_outside(flows: list[dict[str, Any]]) -> None:
    del flows[2]["jobs"]["handoff"]["environment"]


def _credential(flows: list[dict[str, Any]]) -> None:
    flows[0]["jobs"]["produce"]["steps"][4]["env"] = {"KLAUD_TOKEN": "${{ github.token }}"}


def _kept_token(flows: list[dict[str, Any]]) -> None:
    flows[0]["jobs"]["select"]["steps"][0]["with"]["persist-credentials"] = True


def _order(flows: list[dict[str, Any]]) -> None:
    steps = flows[0]["jobs"]["select"]["steps"]
    steps.append(steps.pop(3))


def _saved_beside_code(flows: list[dict[str, Any]]) -> None:
    flows[0]["jobs"]["produce"]["steps"].append(flows[0]["jobs"]["save-cache"]["steps"][-1])


def _restored_beside_a_token(flows: list[dict[str, Any]]) -> None:
    flows[0]["jobs"]["select"]["steps"].insert(2, flows[0]["jobs"]["save-cache"]["steps"][5])


def _no_digest(flows: list[dict[str, Any]]) -> None:
    del flows[0]["jobs"]["select"]["steps"][7]["env"]["KLAUD_HANDED_PRODUCE"]


def _another_s_digest(flows: list[dict[str, Any]]) -> None:
    flows[0]["jobs"]["review"]["steps"][4]["env"]["KLAUD_HANDED_PLAN"] = "${{ needs.recover.outputs.files }}"


def _undocumented(flows: list[dict[str, Any]]) -> None:
    flows[0]["jobs"]["review"]["permissions"]["contents"] = "read"
    flows[0]["jobs"]["review"]["steps"][4]["env"]["KLAUD_TOKEN"] = "${{ secrets.KLAUD_TOKEN }}"


@pytest.mark.parametrize(
    ("broken", "check"),
    [
        (_expression, test_no_expression_is_in_a_command_and_each_command_is_one_exec),
        (_tag, test_every_action_is_pinned_by_a_full_commit),
        (_secret_outside, test_secrets_are_in_steps_of_jobs_with_the_main_only_environment_and_nowhere_else),
        (_credential, test_jobs_that_run_the_repositorys_code_hold_no_credential),
        (_kept_token, test_no_checkout_keeps_its_token_and_the_handoff_has_none),
        (_order, test_what_ran_the_repositorys_code_is_taken_over_first_so_that_it_replaces_nothing),
        (
            _saved_beside_code,
            test_matrices_are_saved_by_a_job_that_runs_no_code_and_restored_by_none_that_holds_a_token,
        ),
        (
            _restored_beside_a_token,
            test_matrices_are_saved_by_a_job_that_runs_no_code_and_restored_by_none_that_holds_a_token,
        ),
        (_no_digest, test_what_is_handed_on_is_taken_by_id_and_by_digest),
        (_another_s_digest, test_what_is_handed_on_is_taken_by_id_and_by_digest),
        (_undocumented, test_the_documented_table_says_which_secrets_and_rights_each_job_has),
    ],
)
def test_each_rule_refuses_its_broken_twin(
    broken: Callable[[list[dict[str, Any]]], None], check: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    flows = copy.deepcopy(FLOWS)
    broken(flows)
    monkeypatch.setitem(globals(), "FLOWS", flows)
    with pytest.raises((AssertionError, KeyError)):
        check()
