"""``klaud doctor`` on a good set-up and on broken ones: each finding says what is wrong and how to put it right."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
from typing import TYPE_CHECKING, Any

import pytest

from klaud.cli import doctor_files, init
from klaud.cli import live as lives
from klaud.fakehub import git as fakehub_git
from klaud.fakehub import state
from tests.support import adopted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.adopted import Adopted


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Adopted]:
    with adopted.adopted(tmp_path, monkeypatch, capsys) as it:
        yield it


def remove_label(it: Adopted, _: pytest.MonkeyPatch) -> None:
    del it.repository.labels["klaud-handoff"]


def other_bot(it: Adopted, _: pytest.MonkeyPatch) -> None:
    config(it, "bot: 90001", "bot: 90002")


def config(it: Adopted, old: str, new: str) -> None:
    path = it.clone / ".github" / "klaud.yml"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


def read_only(it: Adopted, _: pytest.MonkeyPatch) -> None:
    reads = dict.fromkeys(("contents", "pull_requests", "actions", "issues", "metadata"), "read")
    it.hub.state.tokens["made-up-bot"].permissions = reads


def no_actions(it: Adopted, _: pytest.MonkeyPatch) -> None:
    it.hub.state.tokens["made-up-bot"].permissions["actions"] = "read"


def no_pulls(it: Adopted, _: pytest.MonkeyPatch) -> None:
    it.hub.state.tokens["made-up-bot"].permissions["pull_requests"] = "read"


def no_claim(it: Adopted, _: pytest.MonkeyPatch) -> None:
    """The candidate workflow on the default branch is of another version."""
    name = ".github/workflows/klaud-candidate.yml"
    text = (it.clone / name).read_text()
    assert "      claim:\n" in text
    it.commit({name: text.replace("      claim:\n", "      token:\n")})


def bad_token(_: Adopted, patch: pytest.MonkeyPatch) -> None:
    patch.setenv("KLAUD_TOKEN", "made-up-and-revoked")


def disabled(it: Adopted, _: pytest.MonkeyPatch) -> None:
    it.repository.workflows[".github/workflows/klaud-plan.yml"].state = "disabled_inactivity"


def no_candidate(it: Adopted, _: pytest.MonkeyPatch) -> None:
    config(it, "bot-login: klaud-bot", "bot-login: klaud-bot\ncandidate-workflow: other.yml")


def late(it: Adopted, _: pytest.MonkeyPatch) -> None:
    for run in it.repository.runs.values():
        run.created_at -= datetime.timedelta(days=9)


def delayed(it: Adopted, _: pytest.MonkeyPatch) -> None:
    for run in it.repository.runs.values():
        run.created_at -= datetime.timedelta(hours=28)


def no_key(_: Adopted, patch: pytest.MonkeyPatch) -> None:
    patch.delenv("KLAUD_RECORD_KEY")


def paused(_: Adopted, patch: pytest.MonkeyPatch) -> None:
    patch.setenv("KLAUD_PAUSED", "1")


def push_workflow(it: Adopted, _: pytest.MonkeyPatch) -> None:
    (it.clone / ".github/workflows/lint.yml").write_text("name: lint\non: [push]\njobs: {}\n")


def checkout_on_target(it: Adopted, _: pytest.MonkeyPatch) -> None:
    path = it.clone / ".github/workflows/klaud-handoff.yml"
    path.write_text(path.read_text() + "      - uses: actions/checkout@v5\n")


def no_files(it: Adopted, _: pytest.MonkeyPatch) -> None:
    (it.clone / ".github/workflows/klaud-handoff.yml").unlink()


def not_main(_: Adopted, patch: pytest.MonkeyPatch) -> None:
    patch.setenv("GITHUB_REF", "refs/heads/feature")


def no_isolation(it: Adopted, _: pytest.MonkeyPatch) -> None:
    config(it, "isolation: best-effort", "isolation: none")


def ruleset(**fields: Any) -> Callable[[Adopted, pytest.MonkeyPatch], None]:
    def do(it: Adopted, _: pytest.MonkeyPatch) -> None:
        it.repository.rulesets.append(state.Ruleset(7, "main rules", **fields))

    return do


def quiet(it: Adopted, _: pytest.MonkeyPatch) -> None:
    """The newest commit is seven weeks old."""
    git = it.hub.git(adopted.REPOSITORY)
    info = git.commit(git.ref("refs/heads/main") or "")
    assert info is not None
    old = it.hub.clock.now() - datetime.timedelta(days=49, hours=1)
    person = fakehub_git.Person("mira", "90003+mira@users.noreply.github.com", old)
    oid = git.write_commit(tree=info.tree, parents=[], message="Old", author=person)
    git.set_refs({"refs/heads/main": oid})


ALL_KLAUD = ["refs/heads/klaud/**"]


@dataclasses.dataclass
class Case:
    """A broken set-up: what breaks it, what doctor must say of it, and of how to put it right."""

    do: Callable[[Adopted, pytest.MonkeyPatch], None]
    says: str
    fix: str


CASES = {
    "label": Case(remove_label, "no label klaud-handoff", "klaud doctor --fix"),
    "identity": Case(other_bot, "the configuration names the bot 90002", "bot: 90001"),
    "rights": Case(read_only, "may not push", "contents: write"),
    "no runs": Case(no_actions, "lacks actions: write, which dispatch", "give the token actions: write"),
    "no drafts": Case(no_pulls, "lacks pull requests: write, which recover", "give the token pull requests: write"),
    "token": Case(bad_token, "WRONG", "token"),
    "disabled": Case(disabled, "klaud-plan.yml is disabled_inactivity", "enable it on the Actions page"),
    "candidate workflow": Case(no_candidate, "other.yml is not registered", "commit it to the default branch"),
    "candidate inputs": Case(no_claim, "klaud-candidate.yml on main has no input claim", "klaud init writes"),
    "late schedule": Case(late, "9 days ago", "60 days"),
    "missed slots": Case(delayed, "no run was started for the slot at", "missed waves are safe"),
    "record key": Case(no_key, "KLAUD_RECORD_KEY is not set", "environment klaud"),
    "paused": Case(paused, "KLAUD_PAUSED is set", "unset the variable"),
    "push workflow": Case(push_workflow, "would start lint.yml", "branches-ignore"),
    "checkout on target": Case(checkout_on_target, "checks out on pull_request_target", "take the checkout out"),
    "files": Case(no_files, "klaud-handoff.yml is not in the clone", "klaud init"),
    "other branch": Case(not_main, "started on refs/heads/feature", "start it on main"),
    "no new branches": Case(
        ruleset(rules=[{"type": "creation"}]), "'main rules' has the rule creation", "exclude klaud/** from it"
    ),
    "no deletions": Case(
        ruleset(include=ALL_KLAUD, rules=[{"type": "deletion"}]),
        "cannot be deleted after a clean-up",
        "exclude klaud/**",
    ),
    "signed commits": Case(
        ruleset(rules=[{"type": "required_signatures"}]), "klaud's commits are not signed", "let the bot bypass it"
    ),
    "branch names": Case(
        ruleset(rules=[{"type": "branch_name_pattern", "parameters": {"operator": "starts_with", "pattern": "team/"}}]),
        "does not fit starts_with 'team/'",
        "exclude klaud/** from it",
    ),
    "push rules": Case(
        ruleset(target="push", rules=[{"type": "max_file_size", "parameters": {"max_file_size": 1}}]),
        "looks at every push, also below refs/klaud: max_file_size",
        "klaud doctor --probe",
    ),
    "no commit for weeks": Case(quiet, "is 49 days old", "push a commit to the default branch"),
    "isolation": Case(no_isolation, "isolation is none", "isolation: required"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_broken_set_up_is_named_with_its_remedy(name: str, world: Adopted, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES[name]
    _, before = world.klaud("doctor")
    assert case.says not in before or case.says == "WRONG"
    case.do(world, monkeypatch)
    status, said = world.klaud("doctor")
    assert status != 0
    assert case.says in said, said
    remedies = [line for line in said.splitlines() if line.strip().startswith("->")]
    assert any(case.fix in line for line in remedies), said


def test_a_good_set_up_has_nothing_wrong_but_the_weak_isolation_it_asks_for(world: Adopted) -> None:
    _, said = world.klaud("doctor")
    bad = [line for line in said.splitlines() if line.startswith(("WRONG", "unknown"))]
    assert [line.split()[1] for line in bad] == ["isolation:"], said
    assert "a label of klaud's starts bench-final.yml" in said
    done = [one for one in world.hub.writes() if one.status < 400]
    assert done == []


def test_fix_makes_the_label_and_the_next_run_finds_it(world: Adopted, monkeypatch: pytest.MonkeyPatch) -> None:
    remove_label(world, monkeypatch)
    assert "was missing and is made" in world.klaud("doctor", "--fix")[1]
    assert "klaud-handoff is there" in world.klaud("doctor")[1]


def test_the_probe_leaves_no_ref(world: Adopted) -> None:
    before = dict(world.hub.git(adopted.REPOSITORY).refs())
    assert "can be made and deleted" in world.klaud("doctor", "--probe")[1]
    assert dict(world.hub.git(adopted.REPOSITORY).refs()) == before


HARMLESS: tuple[dict[str, Any], ...] = (
    {"enforcement": "evaluate", "rules": [{"type": "creation"}]},
    {"include": ["~DEFAULT_BRANCH"], "rules": [{"type": "pull_request"}, {"type": "deletion"}]},
    {"exclude": ALL_KLAUD, "rules": [{"type": "creation"}]},
    {"bypass": True, "rules": [{"type": "creation"}]},
    {"rules": [{"type": "non_fast_forward"}, {"type": "required_linear_history"}]},
    {"target": "tag", "rules": [{"type": "creation"}]},
)


def test_rules_that_do_not_reach_klaud_are_no_finding(world: Adopted, monkeypatch: pytest.MonkeyPatch) -> None:
    for fields in HARMLESS:
        world.repository.rulesets.clear()
        ruleset(**fields)(world, monkeypatch)
        status, said = world.klaud("preflight")
        assert status == 0, (fields, said)
        assert "rules" not in said


def test_the_preflight_stops_a_wave_that_a_rule_would_refuse(world: Adopted) -> None:
    ruleset(rules=[{"type": "update"}])(world, pytest.MonkeyPatch())
    status, said = world.klaud("preflight")
    assert status == 3
    assert "klaud's work cannot be pushed" in said
    assert world.hub.writes() == []


def test_the_probe_says_which_ref_store_would_do(world: Adopted) -> None:
    """The host refuses the namespace over git: the other interface is tried, and leaves nothing either."""
    before = dict(world.hub.git(adopted.REPOSITORY).refs())
    world.hub.faults.add("POST /*.git/git-receive-pack", "refuse-refs", message="refs/klaud", times=None)
    status, said = world.klaud("doctor", "--probe")
    assert status != 0
    assert "by git" in said
    assert "refs-store: graphql would do" in said
    assert dict(world.hub.git(adopted.REPOSITORY).refs()) == before
    config(world, "bot: 90001", "bot: 90001\nrefs-store: graphql")
    assert "can be made and deleted by graphql" in world.klaud("doctor", "--probe")[1]
    assert dict(world.hub.git(adopted.REPOSITORY).refs()) == before


@pytest.mark.parametrize(
    ("triggers", "wanted"),
    [
        ({"push": None}, ["a push"]),
        ({"push": {"branches": ["main"]}}, []),
        ({"push": {"branches-ignore": ["klaud/**"]}}, []),
        ({"push": {"branches": ["**"]}}, ["a push"]),
        ({"push": {"tags": ["v*"]}}, []),
        ({"pull_request": None}, ["a draft"]),
        ({"pull_request": {"types": ["labeled"]}}, ["a label"]),
        ({"pull_request": {"types": ["opened", "labeled"]}}, ["a draft", "a label"]),
        ({"schedule": [{"cron": "1 1 * * *"}]}, []),
    ],
)
def test_what_klaud_starts_is_read_from_on(triggers: dict[str, object], wanted: list[str]) -> None:
    assert doctor_files.starts(triggers) == wanted


# -- uninstall


def branch(name: str) -> str:
    return f"refs/heads/klaud/auto-{name * 16}-{name * 16}"


def commit(it: Adopted, author: str) -> str:
    git = it.hub.git(adopted.REPOSITORY)
    return it.hub.commit(adopted.REPOSITORY, None, {"x": author}, author=author, parent=git.ref("refs/heads/main"))


def test_uninstall_lists_first_and_takes_away_only_what_is_klauds(world: Adopted) -> None:
    git = world.hub.git(adopted.REPOSITORY)
    tip = git.ref("refs/heads/main")
    other = "refs/heads/klaud/auto-notes"
    refs = {"refs/klaud/families/0123456789abcdef": tip, branch("a"): commit(world, "klaud-bot"), branch("b"): tip,
            branch("c"): commit(world, "mira"), other: tip}  # fmt: skip
    git.set_refs(refs)
    del world.repository.labels["klaud-handoff"]
    world.klaud("doctor", "--fix")
    status, said = world.klaud("uninstall")
    assert status == 0
    assert "3 refs, 1 labels, 0 variables, 4 files; nothing was written" in said
    assert {ref: git.ref(ref) for ref in refs} == refs
    assert "klaud-handoff" in world.repository.labels
    status, said = world.klaud("uninstall", "--yes")
    assert status == 0, said
    assert sorted(ref for ref in git.refs() if "klaud" in ref) == sorted([branch("c"), other])
    assert f"stays: {branch('c')}: its newest commit is a person's" in said
    assert list(world.repository.labels) == ["full-sweep"]
    assert "stays: label full-sweep: klaud has not made it" in said
    assert not (world.clone / ".github/klaud.yml").exists()
    assert (world.clone / ".github/workflows/bench-smoke.yml").exists()


def test_a_label_that_is_worn_and_a_workflow_that_calls_no_klaud_stay(world: Adopted) -> None:
    world.hub.label(world.repository, "klaud-handoff").description = "klaud hands this draft over"
    git = world.hub.git(adopted.REPOSITORY)
    git.set_refs({branch("a"): commit(world, "klaud-bot")})
    with contextlib.closing(lives.open_live().gateway) as gateway:
        head = branch("a").removeprefix("refs/heads/")
        made = gateway.create_pull(head=head, base="main", title="t", body="b", draft=True).number
        gateway.add_labels(made, ["klaud-handoff"])
    (world.clone / ".github/workflows/klaud-plan.yml").write_text("name: mine\n")
    status, said = world.klaud("uninstall", "--yes")
    assert status == 0, said
    assert f"stays: {branch('a')}: pull request #{made} is open" in said
    assert f"stays: label klaud-handoff: pull request #{made} wears it" in said
    assert "stays: file .github/workflows/klaud-plan.yml: it does not call klaud" in said
    assert "klaud-handoff" in world.repository.labels
    assert (world.clone / ".github/workflows/klaud-plan.yml").exists()


def test_the_pause_stays_as_long_as_a_schedule_would_begin_anew(world: Adopted) -> None:
    world.repository.variables["KLAUD_PAUSED"] = "1"
    world.repository.variables["OTHER"] = "a person's"
    assert "stays: variable KLAUD_PAUSED: klaud-plan.yml" in world.klaud("uninstall", "--yes")[1]
    assert world.repository.variables["KLAUD_PAUSED"] == "1"
    world.commit({f".github/workflows/{name}": None for name in init.WORKFLOWS})
    for name in init.WORKFLOWS:
        del world.repository.workflows[f".github/workflows/{name}"]
    adopted.write(world.clone, {".github/klaud.yml": adopted.CONFIG})
    status, said = world.klaud("uninstall", "--yes")
    assert status == 0, said
    assert world.repository.variables == {"OTHER": "a person's"}


def test_what_the_token_may_not_see_or_delete_is_named(world: Adopted) -> None:
    world.hub.label(world.repository, "klaud-handoff").description = "klaud hands this draft over"
    rights = world.hub.state.tokens["made-up-bot"].permissions
    rights |= {"issues": "read", "pull_requests": "read"}
    del rights["variables"]
    status, said = world.klaud("uninstall", "--yes")
    assert status == 1, said
    assert "stays: variables KLAUD_PAUSED, KLAUD_APP_ID: the token may not look" in said
    assert "left: label klaud-handoff: " in said


def test_a_held_claim_keeps_everything(world: Adopted) -> None:
    git = world.hub.git(adopted.REPOSITORY)
    git.set_refs({"refs/klaud/claims/0123456789abcdef": git.ref("refs/heads/main")})
    writes = len(world.hub.writes())
    status, said = world.klaud("uninstall", "--yes")
    assert status == 4
    assert "KLAUD_PAUSED" in said
    assert len(world.hub.writes()) == writes
    assert (world.clone / ".github/klaud.yml").exists()
