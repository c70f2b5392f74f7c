"""Bad input through the real command: what and where, what to do, the right status, no traceback, and nothing written.

One served world for all cases: since none of them may write, none can disturb another. ``refused`` is the checker; that it
catches a verb which does write is tested at the end.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from klaud.cli import main
from tests.support import served

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.served import Done, World

pytestmark = [pytest.mark.slow, pytest.mark.timeout(200)]

INPUT, FORBIDDEN, LATER, PERSON = 2, 3, 75, 1
NOWHERE = "http://127.0.0.1:9"
"""A port of this machine that nobody listens on."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with served.world(tmp_path_factory.mktemp("bad-input")) as made:
        yield made


@pytest.fixture
def bad(world: World, tmp_path: Path) -> Path:
    """Make one of each kind of bad file."""
    del world
    (tmp_path / "half.json").write_text('{"version": 1, "wave": ')
    (tmp_path / "garbage.yml").write_bytes(bytes(range(256)) * 40)
    (tmp_path / "file").write_text("in the place of a folder")
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty.yml").write_text("")
    with (tmp_path / "huge.yml").open("wb") as file:
        file.truncate(100 * 1024 * 1024)
    return tmp_path


def without_credential(world: World, **changes: str | None) -> dict[str, str]:
    return world.environ(KLAUD_TOKEN=None, **changes)


def state(world: World) -> Any:
    with world.hub.lock:
        repository = world.hub.repository(served.REPOSITORY)
        pulls = {
            n: (i.state, i.pull and i.pull.draft, tuple(i.labels), len(i.comments))
            for n, i in repository.issues.items()
        }
        runs = {run.id: (run.status, run.conclusion) for run in repository.runs.values()}
    return world.refs(), pulls, runs


def refused(world: World, *argv: str, environ: dict[str, str] | None = None, may_make: tuple[str, ...] = ()) -> Done:
    """Run a verb that must refuse: no write that the hub took, nothing changed, no new file, two lines, no traceback."""
    before = state(world)
    done = world.run(*argv, environ=environ)
    assert state(world) == before
    taken = [entry for entry in done.writes if entry.status < 400]
    assert not taken, taken
    assert not [name for name in done.made if name.rpartition("/")[2] not in may_make], done.made
    assert "Traceback" not in done.err + done.out, done.err
    assert done.message, (done.status, done.out[-2000:], done.err[-2000:])
    assert done.advice, done.err
    for verb in re.findall(r"\bklaud ([a-z-]+)", done.advice):
        assert verb in main.VERBS or verb == "in", done.advice
    return done


# -- configuration


CONFIGURATIONS: dict[str, tuple[str, tuple[str, ...]]] = {
    "none": ("no/such.yml", ("there is no configuration", "no/such.yml")),
    "empty": ("empty.yml", ("empty.yml", "empty")),
    "garbage": ("garbage.yml", ("garbage.yml", "UTF-8")),
    "huge": ("huge.yml", ("huge.yml", "limit")),
    "a-folder": ("folder", ("folder", "directory")),
    "half-a-json": ("half.json", ("half.json", "line ")),
}


@pytest.mark.parametrize("verb", ["recover", "wave", "plan", "validate", "select", "session"])
@pytest.mark.parametrize("case", ["none", "garbage"])
def test_every_verb_refuses_a_configuration_that_is_not_there_or_no_text(
    case: str, verb: str, world: World, bad: Path
) -> None:
    given, said = CONFIGURATIONS[case]
    environ = without_credential(world) if verb in {"plan", "validate"} else world.environ()
    more: list[str] = []
    if verb == "session":
        (bad / "brief.json").write_text(json.dumps(brief()))
        more = ["--brief", str(bad / "brief.json")]
    done = refused(world, verb, *more, "--config", str(bad / given), environ=environ)
    assert done.status == INPUT
    assert all(word in done.message for word in said), done.message


@pytest.mark.parametrize("case", sorted(set(CONFIGURATIONS) - {"none", "garbage"}))
def test_a_configuration_that_cannot_be_one_is_refused(case: str, world: World, bad: Path) -> None:
    given, said = CONFIGURATIONS[case]
    done = refused(world, "recover", "--config", str(bad / given))
    assert done.status == INPUT
    assert all(word in done.message for word in said), done.message


def changed(world: World, bad: Path, old: str, new: str) -> list[str]:
    text = (world.clone / ".github/klaud.yml").read_text()
    assert text.count(old) == 1, text
    (bad / "klaud.yml").write_text(text.replace(old, new))
    return ["--config", str(bad / "klaud.yml")]


@pytest.mark.parametrize("verb", ["recover", "wave"])
def test_an_unknown_key_is_told_with_the_nearest_known_one(verb: str, world: World, bad: Path) -> None:
    done = refused(world, verb, *changed(world, bad, "edit-scope:", "edit-scpoe:"))
    assert done.status == INPUT
    assert "benchmarks[0].edit-scpoe" in done.message
    assert "did you mean 'edit-scope'?" in done.message


def test_validate_names_a_generator_that_does_not_exist(world: World, bad: Path) -> None:
    argv = changed(world, bad, "'{root}/tools/matrix.py'", "'{root}/tools/no-such.py'")
    before = state(world)
    done = world.run("validate", *argv, environ=without_credential(world))
    assert done.status == INPUT
    assert "tools/no-such.py" in done.out.replace("\n", "").replace(" ", "")
    assert "Traceback" not in done.out + done.err
    assert (state(world), done.made) == (before, ())


# -- the host


@pytest.mark.parametrize("verb", ["recover", "wave", "preflight"])
def test_a_repository_that_cannot_be_reached_is_temporary(verb: str, world: World) -> None:
    environ = world.environ(GITHUB_API_URL=NOWHERE, GITHUB_SERVER_URL=NOWHERE, GITHUB_GRAPHQL_URL=f"{NOWHERE}/graphql")
    done = refused(world, verb, environ=environ, may_make=("recovery.json",))
    assert done.status == LATER
    assert "refused" in done.message
    assert "127.0.0.1:9" in done.message or "127.0.0.1', port=9" in done.message
    assert "later" in done.advice


def test_a_repository_that_is_not_there_says_so(world: World) -> None:
    done = refused(world, "recover", environ=world.environ(GITHUB_REPOSITORY="acme/other"), may_make=("recovery.json",))
    assert "acme/other" in done.message
    assert "there is no such repository, or the token may not see it" in done.message
    assert done.status == FORBIDDEN
    assert "not known" in done.out, "what was not read does not look like nothing"
    assert "no session" not in done.out


@pytest.mark.parametrize("verb", ["recover", "wave", "preflight"])
def test_a_token_that_is_refused_is_named_and_never_shown(verb: str, world: World) -> None:
    done = refused(
        world, verb, environ=world.environ(KLAUD_TOKEN="not-a-token-of-anybody"), may_make=("recovery.json",)
    )
    assert done.status == FORBIDDEN
    assert "HTTP 401" in done.message
    assert "token" in done.advice
    assert "not-a-token-of-anybody" not in done.out + done.err


@pytest.mark.parametrize(("verb", "status"), [("recover", PERSON), ("wave", FORBIDDEN), ("preflight", FORBIDDEN)])
def test_a_token_that_lacks_a_right_is_told_which(verb: str, status: int, world: World) -> None:
    """A sweep that finds it out when it writes is red (1); who looks before writing ends as not permitted (3)."""
    done = refused(world, verb, environ=world.environ(KLAUD_TOKEN=served.READ_ONLY), may_make=("recovery.json",))
    assert done.status == status
    assert "HTTP 403" in done.message or "may not push" in done.message
    assert "permission" in done.advice or "contents: write" in done.advice


def test_a_read_only_token_is_enough_for_a_report(world: World) -> None:
    before = state(world)
    done = world.run("recover", "--report", environ=world.environ(KLAUD_TOKEN=served.READ_ONLY))
    assert (done.status, done.writes, state(world)) == (0, (), before), done.err


# -- who this process is


VARIABLES: dict[str, tuple[str, str | None]] = {
    "run-is-a-word": ("GITHUB_RUN_ID", "abc"),
    "run-is-negative": ("GITHUB_RUN_ID", "-1"),
    "attempt-is-a-word": ("GITHUB_RUN_ATTEMPT", "two"),
    "no-repository": ("GITHUB_REPOSITORY", None),
    "half-a-repository": ("GITHUB_REPOSITORY", "acme"),
    "no-token": ("KLAUD_TOKEN", None),
    "an-address-without-a-scheme": ("GITHUB_API_URL", "api.example.org"),
    "a-token-over-plain-http": ("GITHUB_SERVER_URL", "http://git.example.org"),
}


@pytest.mark.parametrize("case", VARIABLES)
def test_a_variable_that_is_wrong_is_named(case: str, world: World) -> None:
    name, value = VARIABLES[case]
    done = refused(world, "recover", environ=world.environ(**{name: value}))
    assert done.status == INPUT
    assert name in done.message


@pytest.mark.parametrize(("verb", "status"), [("recover", PERSON), ("wave", FORBIDDEN)])
def test_a_run_that_the_host_does_not_know_proves_nothing_gone(verb: str, status: int, world: World) -> None:
    done = refused(world, verb, environ=world.environ(424_242), may_make=("recovery.json",))
    assert done.status == status
    assert "424242" in done.message
    assert "404" in done.message


# -- programs


@pytest.mark.parametrize("verb", ["wave", "plan", "demo"])
def test_without_git_nothing_is_begun(verb: str, world: World, tmp_path: Path) -> None:
    environ = world.environ(PATH=str(tmp_path), KLAUD_TOKEN=None if verb == "plan" else served.READ_ONLY)
    more = []
    if verb == "plan":
        (tmp_path / "families.json").write_text('{"at": "2026-03-02T06:00:00Z"}')
        more = ["--in", str(tmp_path), "--out", str(tmp_path)]
    done = refused(world, verb, *more, environ=environ)
    assert done.status == INPUT
    assert "git is not on PATH" in done.message
    assert "Install" in done.advice


# -- files from job to job


HANDED = {
    "plan": "families.json",
    "review": "candidates.json",
    "select": "candidates.json",
    "dispatch": "selection.json",
}


@pytest.mark.parametrize("content", ['{"version": 1, "wave": ', "[]", "<html>", '{"no": "such key"}'])
@pytest.mark.parametrize("verb", HANDED)
def test_a_file_of_the_step_before_that_is_malformed_is_named(
    verb: str, content: str, world: World, tmp_path: Path
) -> None:
    (tmp_path / HANDED[verb]).write_text(content)
    environ = without_credential(world) if verb == "plan" else world.environ()
    out = tmp_path / "out"
    done = refused(world, verb, "--in", str(tmp_path), "--out", str(out), environ=environ)
    assert done.status == INPUT
    assert HANDED[verb] in done.message
    assert not out.exists() or not list(out.iterdir())


@pytest.mark.parametrize("verb", ["plan", "dispatch"])
def test_a_malformed_recovery_report_is_named(verb: str, world: World, tmp_path: Path) -> None:
    (tmp_path / "families.json").write_text('{"at": "2026-03-02T06:00:00Z"}')
    (tmp_path / "recovery.json").write_text('{"version": 1, "repository": "acme/')
    environ = without_credential(world) if verb == "plan" else world.environ()
    done = refused(world, verb, "--in", str(tmp_path), "--out", str(tmp_path / "out"), environ=environ)
    assert done.status == INPUT
    assert "recovery.json" in done.message


@pytest.mark.parametrize("verb", ["review", "select"])
def test_a_missing_file_names_the_verb_that_makes_it(verb: str, world: World, tmp_path: Path) -> None:
    done = refused(world, verb, "--in", str(tmp_path), "--out", str(tmp_path / "out"))
    assert done.status == INPUT
    assert "candidates.json is not in" in done.message
    assert "klaud plan" in done.advice


def brief() -> dict[str, Any]:
    family = "configs/codecs.yaml:zlib-text"
    return {
        "wave": "9001.1", "candidate": "0123456789abcdef-0123456789abcdef", "family": family, "benchmark": "codecs",
        "base": "a" * 40, "subject": "image two",
    }  # fmt: skip


@pytest.mark.parametrize("content", ["", "[]", '{"wave": "1.1", ', "\x00\x01", '{"candidate": "../../etc/passwd"}'])
def test_a_malformed_brief_starts_no_session(content: str, world: World, tmp_path: Path) -> None:
    (tmp_path / "brief.json").write_text(content)
    done = refused(world, "session", "--brief", str(tmp_path / "brief.json"))
    assert done.status == INPUT
    assert "brief.json" in done.message


@pytest.mark.parametrize("content", ['{"verdict": {"fam', "", "[]", "garbage"])
def test_a_broken_bundle_proves_nothing(content: str, world: World, tmp_path: Path) -> None:
    (tmp_path / "bundle.json").write_text(content)
    done = refused(world, "verify", "--bundle", str(tmp_path / "bundle.json"), environ=without_credential(world))
    assert done.status == INPUT
    assert "bundle" in done.message


# -- where results go


@pytest.mark.parametrize("verb", ["wave", "recover", "select", "dispatch"])
def test_a_folder_that_cannot_be_written_stops_before_the_first_write(verb: str, world: World, bad: Path) -> None:
    more = ["--in", str(bad)] if verb in {"select", "dispatch"} else []
    done = refused(world, verb, *more, "--out", str(bad / "file"))
    assert done.status == INPUT
    if verb in {"wave", "recover"}:
        assert "files cannot be written to" in done.message


def test_a_report_in_the_place_of_a_folder_stops_before_the_first_write(world: World, bad: Path) -> None:
    done = refused(world, "recover", "--json", str(bad / "folder"))
    assert done.status == INPUT
    assert "it is a folder" in done.message


# -- scenes


SCENES: dict[str, tuple[str, tuple[str, ...]]] = {
    "typo": (
        "scene: 1\naccounts: [{login: a}]\npulls: [{head: x, author: a, lables: [b]}]\n",
        ("pulls[0].lables", "labels"),
    ),
    "no-such-commit": ("scene: 1\nbranches: {main: nothing}\n", ("nothing",)),
    "half": ("scene: 1\naccounts: [{login: ", ("line",)),
    "not-a-mapping": ("[1, 2]\n", ("mapping",)),
    "garbage": ("\x00\x01\x02", ("scene",)),
}


@pytest.mark.parametrize("verb", ["check", "run"])
@pytest.mark.parametrize("case", SCENES)
def test_a_scene_that_is_wrong_is_not_run(case: str, verb: str, world: World, tmp_path: Path) -> None:
    text, said = SCENES[case]
    (tmp_path / "scene.yaml").write_text(text)
    done = refused(world, "scene", verb, str(tmp_path / "scene.yaml"), environ=without_credential(world))
    assert done.status == INPUT
    assert all(word in done.message for word in said), done.message
    assert "docs/scenes.md" in done.advice


# -- the checker itself


def test_the_checker_catches_a_verb_that_writes(tmp_path: Path) -> None:
    with served.world(tmp_path) as other, pytest.raises(AssertionError):
        refused(other, "recover")
