"""Matrices from a real history's own generators: fallbacks, learning, shared calls, the cache, and what fails alone."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from klaud import errors
from klaud.baselines import cache, generate, model, sandbox, settings
from tests.support.benchmarks import ENTRIES, FAST, LAYOUTS, NO_EVALS, SPLIT, History, Repository, policy
from tests.support.generating import BOTH, OLD, failure, made, matrices, script

if TYPE_CHECKING:
    import pathlib

# -- layouts and fallbacks


def test_each_period_of_the_history_is_generated_in_its_own_way(history: History, periods: model.Produced) -> None:
    found = matrices(periods)
    for commit, layout, dropped in (
        (history.flat, 1, ("--no-evals",)),
        (history.without, 0, ("--no-evals",)),
        (history.with_option, 0, ()),
    ):
        for family, key in ((FAST, "fast"), (SPLIT, "split")):
            matrix = found[commit, family]
            assert (matrix.layout, matrix.dropped) == (layout, dropped)
            assert [{**entry, "family": None} for entry in matrix.entries] == [
                {**entry, "family": None} for entry in ENTRIES[key]
            ]


def test_without_the_option_what_evaluations_want_is_dropped(history: History, box: sandbox.Sandbox) -> None:
    evals = policy(generator={"optional_arguments": ()})
    assert (
        len(matrices(made(evals, history, box, {history.with_option: (FAST,)}))[history.with_option, FAST].entries) == 4
    )
    option = settings.OptionalArgument(argument="--throughput", meaning="throughput-only")
    renamed = policy(generator={"optional_arguments": (option,)})
    matrix = matrices(made(renamed, history, box, {history.with_option: (FAST,)}))[history.with_option, FAST]
    assert (len(matrix.entries), matrix.dropped) == (2, ("--throughput",))


def test_what_a_commit_knows_is_asked_once(history: History, box: sandbox.Sandbox, tmp_path: pathlib.Path) -> None:
    families = tuple(f"configs/all.json:{key}" for key in ("fast", "split"))
    first = made(policy(), history, box, {history.without: families}, tmp_path)
    assert first.calls == 1 + 2  # one refusal teaches both
    for path in (tmp_path / "matrices").rglob("*.gz"):
        path.unlink()
    again = made(policy(), history, box, {history.without: families}, tmp_path)
    assert again.calls == 2  # remembered across processes
    assert matrices(again) == matrices(first)


def test_no_layout_and_no_known_command_are_said(history: History, box: sandbox.Sandbox) -> None:
    none = policy(generator={"layouts": (LAYOUTS[1],)})
    assert (
        failure(made(none, history, box, {history.tip: (FAST,)})).error
        == "no configured layout fits the commit's files"
    )
    wrong = msgspec.structs.replace(LAYOUTS[1], commands=LAYOUTS[1].commands[:1])
    found = failure(made(policy(generator={"layouts": (wrong,)}), history, box, {history.flat: (FAST,)}))
    assert (found.code, found.error) == ("generator-failed", "it knows none of the configured commands")


def test_a_commit_that_nobody_has_is_unavailable(history: History, box: sandbox.Sandbox) -> None:
    assert failure(made(policy(), history, box, {"1" * 40: (FAST,)})).code == "producer-unavailable"


# -- failures, each one family's alone


def test_a_broken_family_fails_alone(history: History, box: sandbox.Sandbox) -> None:
    produced = made(policy(), history, box, {history.tip: (FAST, "configs/all.json:gone", SPLIT)})
    codes = {each.family: getattr(each, "code", "made") for each in produced.matrices}
    assert codes == {FAST: "made", SPLIT: "made", "configs/all.json:gone": "generator-failed"}


@pytest.mark.parametrize(
    ("body", "bounds", "code", "error"),
    [
        ("import sys; sys.exit('secret words')", {}, "generator-failed", "exit status 1"),
        ("print('secret words')", {}, "generator-output-invalid", "its output is no matrix: it is not JSON"),
        ("import time; time.sleep(60)", {"seconds": 0.5}, "generator-timeout", "it took longer than 0.5 s"),
        ("print('x' * 2_000_000)", {"output_bytes": 1_000_000}, "generator-failed", "it printed more than it may"),
    ],
)
def test_a_failure_is_named_without_a_word_of_the_child(
    repository: Repository, body: str, bounds: dict[str, Any], code: str, error: str
) -> None:
    """One of each kind for real; the table is in test_answers.py."""
    files, policy_ = script(body)
    commit = repository.commit(files)
    tight = settings.Bounds(**{"seconds": 20.0, **bounds})
    generator = OLD(policy_.generator, bounds=tight)
    found = failure(made(OLD(policy_, generator=generator), repository, sandbox.Sandbox(tight), {commit: (FAST,)}))
    assert (found.code, found.error) == (code, error)
    assert "secret" not in msgspec.json.encode(found).decode()


def test_a_program_that_is_missing_is_said(repository: Repository, box: sandbox.Sandbox) -> None:
    files, policy_ = script("", commands=(("no-such-program", "{family}"),))
    found = failure(made(policy_, repository, box, {repository.commit(files): (FAST,)}))
    assert found.error == "its program could not be started (FileNotFoundError)"


def test_a_daemon_is_ended_and_counted_in_the_matrix(repository: Repository, box: sandbox.Sandbox) -> None:
    body = "import os, time\nif os.fork() == 0:\n    os.setsid(); os.closerange(0, 3); time.sleep(30)\nprint('[]')"
    files, policy_ = script(body)
    commit = repository.commit(files)
    assert matrices(made(policy_, repository, box, {commit: (FAST,)}))[commit, FAST].daemons == 1


def test_a_generator_that_edits_its_inputs_is_refused_where_only_permissions_guard_them(
    repository: Repository,
) -> None:
    """The weakest sandbox cannot hinder an owner: the edit is seen, and the next family gets fresh inputs."""
    files, policy_ = script("print('[]')")
    commit = repository.commit(files)

    class Editing(sandbox.Sandbox):
        def _method(self) -> Any:
            return "group", 0, model.Isolation()

        def run(self, argv: Any, *, tree: pathlib.Path, **rest: Any) -> model.Outcome:
            del rest
            if "a" in argv:
                (tree / "gen.py").chmod(0o644)
                (tree / "gen.py").write_text("edited")
            elif (tree / "gen.py").exists() and (tree / "gen.py").read_text() == "edited":
                return model.Outcome(exit=1, stdout=b"", stderr=b"")
            return model.Outcome(exit=0, stdout=b"[]", stderr=b"")

    produced = made(
        policy_, repository, Editing(settings.Bounds()), {commit: ("configs/all.json:a", "configs/all.json:b")}
    )
    found = {each.family[-1]: getattr(each, "error", "made") for each in produced.matrices}
    assert found == {"a": "it changed the files that it was given", "b": "made"}


def test_an_untold_fault_in_one_commit_spares_the_others(
    history: History, box: sandbox.Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    git = history.objects
    right = git.files
    monkeypatch.setattr(git, "files", lambda commit: right(commit) if commit == history.tip else 1 // 0)
    store = cache.Cache(None)
    generation = generate.Generation(policy(), git=git, store=store, box=box)
    needs = [model.Need(commit=commit, families=(FAST,)) for commit in (history.tip, history.flat)]
    found = {each.commit: getattr(each, "code", "made") for each in generation.run(needs)}
    assert found == {history.tip: "made", history.flat: "internal-error"}


# -- what commits have in common


def test_commits_with_the_same_inputs_are_one_piece_of_work(repository: Repository, box: sandbox.Sandbox) -> None:
    files, policy_ = script("print('[]')")
    commits = [repository.commit(files), *(repository.commit({"README": str(n)}) for n in range(3))]
    produced = made(policy_, repository, box, {**dict.fromkeys(commits[:3], (FAST,)), commits[3]: BOTH})
    assert (produced.calls, produced.cached) == (2, 3)
    assert {(each.commit, each.family) for each in produced.matrices} == {
        *((commit, FAST) for commit in commits), (commits[3], SPLIT),
    }  # fmt: skip


def test_one_commit_finds_out_what_a_generator_knows_for_all(repository: Repository, box: sandbox.Sandbox) -> None:
    """However many commits are looked at at once, a generator is asked once whether it knows an option."""
    body = "import sys\nif '--no-evals' in sys.argv: sys.exit('Error: No such option: --no-evals')\nprint('[]')"
    files, policy_ = script(body)
    many = OLD(policy_.generator, optional_arguments=(NO_EVALS,), bounds=settings.Bounds(parallel=4))
    commits = [repository.commit({**files, "configs/all.json": json.dumps({"n": n})}) for n in range(4)]
    produced = made(OLD(policy_, generator=many), repository, box, dict.fromkeys(commits, (FAST,)))
    assert produced.calls == 1 + 4
    assert {each.dropped for each in matrices(produced).values()} == {("--no-evals",)}


def test_what_one_family_refuses_after_another_was_made_is_held_against_that_one_alone(
    repository: Repository, box: sandbox.Sandbox, tmp_path: pathlib.Path
) -> None:
    body = "import sys\nif sys.argv[2] == 'b': sys.exit('Error: No such option: --no-evals')\nprint('[]')"
    files, policy_ = script(body)
    policy_ = OLD(policy_, generator=OLD(policy_.generator, optional_arguments=(NO_EVALS,)))
    first = repository.commit(files)
    second = repository.commit({"configs/all.json": '{"n": 2}'})
    families = ("configs/all.json:a", "configs/all.json:b")
    broken = [
        each for each in made(policy_, repository, box, {first: families}, tmp_path).matrices if each.family[-1] == "b"
    ]
    assert [getattr(each, "error", "made") for each in broken] == ["exit status 1"]
    again = made(policy_, repository, box, {second: families[:1]}, tmp_path)
    assert (again.calls, matrices(again)[second, families[0]].dropped) == (1, ())


def test_a_need_has_the_keys_under_which_its_matrices_are_kept(
    history: History, box: sandbox.Sandbox, tmp_path: pathlib.Path
) -> None:
    store = cache.Cache(tmp_path)
    generation = generate.Generation(policy(), git=history.objects, store=store, box=box)
    keys = generation.keys(model.Need(commit=history.tip, families=BOTH))
    assert keys.keys() == set(BOTH)
    made(policy(), history, box, {history.tip: BOTH}, tmp_path)
    assert all(store.matrix(key) is not None for key in keys.values())
    assert generation.calls == 0
    assert generation.keys(model.Need(commit="1" * 40, families=BOTH)) == {}
    none = generate.Generation(policy(generator={"layouts": (LAYOUTS[1],)}), git=history.objects, store=store, box=box)
    assert none.keys(model.Need(commit=history.tip, families=BOTH)) == {}


# -- the cache


@pytest.fixture(scope="module")
def filled(
    history: History, box: sandbox.Sandbox, tmp_path_factory: pytest.TempPathFactory
) -> tuple[model.Produced, pathlib.Path]:
    """A cache with both families of the newest commit, and how they came out."""
    folder = tmp_path_factory.mktemp("cache")
    return made(policy(), history, box, {history.tip: BOTH}, folder), folder


def test_what_is_cached_starts_nothing(history: History, box: sandbox.Sandbox, tmp_path: pathlib.Path) -> None:
    first = made(policy(), history, box, {history.tip: BOTH}, tmp_path)
    again = made(policy(), history, box, {history.tip: BOTH}, tmp_path)
    assert (first.cached, again.cached, again.calls, again.rebuilt) == (0, 2, 0, 0)
    assert [OLD(each, cached=False) for each in again.matrices if isinstance(each, model.Matrix)] == list(
        first.matrices
    )


def test_commits_with_the_same_inputs_share_the_cache(
    repository: Repository, box: sandbox.Sandbox, tmp_path: pathlib.Path
) -> None:
    files, policy_ = script("print('[]')")
    first, second = repository.commit(files), repository.commit({"README": "other"})
    made(policy_, repository, box, {first: (FAST,)}, tmp_path)
    assert made(policy_, repository, box, {second: (FAST,)}, tmp_path).calls == 0


@pytest.mark.parametrize(
    "change",
    [
        {"salt": "2"},
        {"environment": {"MODE": "x"}},
        {"optional_arguments": (settings.OptionalArgument(argument="--no-evals", meaning="same-output"),)},
        {"layouts": (OLD(LAYOUTS[0], configs=("configs/*",)),)},
    ],
)
def test_whatever_matters_is_in_the_key(
    history: History, box: sandbox.Sandbox, store: cache.Cache, change: Any
) -> None:
    need = model.Need(commit=history.tip, families=(FAST,))
    keys = [
        generate.Generation(each, git=history.objects, store=store, box=box).keys(need)[FAST]
        for each in (policy(), policy(), policy(generator=change))
    ]
    assert keys[0] == keys[1] != keys[2]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> cache.Cache:
    """A cache that remembers the versions of programs for the tests that compare keys."""
    return cache.Cache(tmp_path_factory.mktemp("programs"))


def test_a_changed_input_or_family_is_another_key(
    repository: Repository, box: sandbox.Sandbox, store: cache.Cache
) -> None:
    files, policy_ = script("print('[]')")
    commits = [
        repository.commit(files),
        repository.commit({"README": "read by nobody"}),
        repository.commit({"configs/new.json": "{}"}),
        repository.commit({"gen.py": "print('[]')", "configs/new.json": None}, executable=("gen.py",)),
    ]
    generation = generate.Generation(policy_, git=repository.objects, store=store, box=box)
    keys = [generation.keys(model.Need(commit=commit, families=BOTH)) for commit in commits]
    assert keys[0] == keys[1]
    assert len({key for each in keys for key in each.values()}) == 3 * 2


def test_a_damaged_entry_is_made_anew(
    history: History, box: sandbox.Sandbox, filled: tuple[model.Produced, pathlib.Path], tmp_path: pathlib.Path
) -> None:
    """Once for real; the ways to be damaged are in test_cache.py."""
    first, folder = filled
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    path = min((tmp_path / "matrices").rglob("*.gz"))
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()).replace(b"fp8", b"fp9")))
    again = made(policy(), history, box, {history.tip: BOTH}, tmp_path)
    assert (again.rebuilt, again.cached, again.calls) == (1, 1, 1)
    assert [OLD(each, cached=False) for each in again.matrices if isinstance(each, model.Matrix)] == list(
        first.matrices
    )
    assert made(policy(), history, box, {history.tip: BOTH}, tmp_path).cached == 2


def test_a_folder_that_cannot_be_written_costs_nothing_but_time(
    history: History, box: sandbox.Sandbox, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    produced = made(policy(), history, box, {history.tip: (FAST,)}, tmp_path / "file")
    assert len(matrices(produced)) == 1


def test_required_isolation_starts_nothing_without_walls(history: History) -> None:
    weak = sandbox.Sandbox(settings.Bounds(), required=True, levels=(), bubblewrap="")
    with pytest.raises(errors.MissingToolError):
        made(policy(), history, weak, {history.tip: (FAST,)})


def test_a_file_name_that_is_not_utf8_is_a_name_like_any_other(
    repository: Repository, box: sandbox.Sandbox, tmp_path: pathlib.Path
) -> None:
    body = "import json, os, sys\nprint(json.dumps([{'size': os.path.getsize(name)} for name in sys.argv[3:]]))"
    command = ("{python}", "{root}/gen.py", "--key", "{family}", "{configs}")
    for driver in ("", "python"):
        files, policy_ = script(body, commands=(command,), driver=driver)
        with open(os.fsencode(repository.folder) + b"/configs-\xff.json", "wb") as file:  # noqa: PTH123 - a name of bytes
            file.write(b"12345")
        layout = OLD(policy_.generator.layouts[0], inputs=(".",), configs=("configs/*", "configs-*"))
        policy_ = OLD(policy_, generator=OLD(policy_.generator, layouts=(layout,)))
        commit = repository.commit(files)
        produced = made(policy_, repository, box, {commit: BOTH}, tmp_path / f"cache{driver}")
        assert [entry["size"] for entry in matrices(produced)[commit, FAST].entries] == [2, 5]
        assert made(policy_, repository, box, {commit: BOTH}, tmp_path / f"cache{driver}").cached == 2
