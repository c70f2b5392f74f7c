"""The edit scope: named values, listed files, and what is never changed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klaud.session import model, rules_scope, work

FAMILY = "configs/a.yaml:one"
SCOPE = model.EditScope(
    values=(model.ValueScope(files=("configs/*.yaml", "data/**/*.json"), keys=("*.image", "*.opts.level")),),
    files=("notes/*.md",),
)
LOOSE = model.EditScope(files=("**",), allow_executable=True)


def changed(before: str, after: str, path: str = "configs/a.yaml", **fields: Any) -> rules_scope.Change:
    modes = {"old_mode": "100644", "new_mode": "100644", **fields}
    return rules_scope.Change(
        path=path, before=work.parse(before.encode(), path), after=work.parse(after.encode(), path), **modes
    )


def refused(change: rules_scope.Change, scope: model.EditScope = SCOPE, family: str = FAMILY) -> str:
    answer = rules_scope.check([change], scope, family)
    return answer.text if isinstance(answer, model.Refusal) else ""


BASE = "one: {image: v1, opts: {level: 1, x: 2}, run: a}\ntwo: {image: v1}\n"


@pytest.mark.parametrize(
    ("after", "why"),
    [
        ("one: {image: v2, opts: {level: 1, x: 2}, run: a}\ntwo: {image: v1}\n", ""),
        ("# a comment\none: {image: v2, opts: {level: 9, x: 2}, run: a}\ntwo: {image: v1}\n", ""),
        ("one: {image: v1, opts: {level: 1, x: 3}, run: a}\ntwo: {image: v1}\n", "one.opts.x may not be changed"),
        ("one: {image: v1, opts: {level: 1, x: 2}, run: b}\ntwo: {image: v1}\n", "one.run may not be changed"),
        ("one: {image: v1, opts: {level: 1, x: 2}, run: a}\ntwo: {image: v2}\n", "two.image is not of this family"),
        ("one: {opts: {level: 1, x: 2}, run: a}\ntwo: {image: v1}\n", "one.image was removed"),
        ("one: {image: v1, opts: {level: 1, x: 2}, run: a, new: 1}\ntwo: {image: v1}\n", "one.new may not be changed"),
        ("one: {image: v1, opts: 7, run: a}\ntwo: {image: v1}\n", "one.opts may not be changed"),
        ("- 1\n", "the whole file"),
        ("one: {image: v1, image: v2}\n", "not readable as YAML"),
        ("one: !!python/object:x {}\n", "not readable as YAML"),
    ],
)
def test_values(after: str, why: str) -> None:
    text = refused(changed(BASE, after))
    assert (why in text) if why else (text == ""), text


def test_both_readings_of_yaml_count() -> None:
    """``010`` is ten to YAML 1.2 and eight to 1.1: equal in one reading is not equal."""
    assert "may not be changed" in refused(changed("one: {image: v1, n: 10}\n", "one: {image: v1, n: 010}\n"))


class OneReading:
    """The broken twin: it believes YAML 1.2 alone."""

    @staticmethod
    def parse(raw: bytes, path: str) -> rules_scope.Content:
        parsed = work.parse(raw, path)
        assert isinstance(parsed, rules_scope.Parsed)
        return rules_scope.Parsed(parsed.readings[:1])


def test_the_twin_with_one_reading_would_let_it_through() -> None:
    sides = [OneReading.parse(text, "configs/a.yaml") for text in (b"one: {n: 10}\n", b"one: {n: 010}\n")]
    twin = rules_scope.Change(
        path="configs/a.yaml", old_mode="100644", new_mode="100644", before=sides[0], after=sides[1]
    )
    assert refused(twin) == ""


@pytest.mark.parametrize(
    "path",
    [
        ".github/workflows/x.yml", ".GitHub/klaud.yml", "CODEOWNERS", "docs/CODEOWNERS", ".gitattributes", "a/.gitmodules",
        "../x", "a/../b", "a//b", ".git/config", "x/.git/hooks/y", "a\nb", "a\u202eb",
    ],
)  # fmt: skip
def test_some_files_are_never_changed(path: str) -> None:
    change = rules_scope.Change(path=path, new_mode="100644", after=rules_scope.Opaque())
    assert "never" in refused(change, LOOSE)


@pytest.mark.parametrize("mode", [rules_scope.MODE_LINK, rules_scope.MODE_MODULE])
def test_links_and_submodules_are_refused(mode: str) -> None:
    change = rules_scope.Change(path="notes/a.md", new_mode=mode, after=rules_scope.Opaque())
    assert "symbolic link" in refused(change, LOOSE)
    change = rules_scope.Change(path="notes/a.md", old_mode=mode, before=rules_scope.Opaque())
    assert "symbolic link" in refused(change, LOOSE)


@pytest.mark.parametrize(
    ("path", "mode", "content", "run"),
    [
        ("notes/a.md", "100644", rules_scope.Opaque(), False),
        ("notes/a.md", "100755", rules_scope.Opaque(), True),
        ("notes/a.md", "100644", rules_scope.Opaque(script=True), True),
        ("tools/a.py", "100644", rules_scope.Opaque(), True),
        ("Makefile", "100644", rules_scope.Opaque(), True),
        ("docker/Dockerfile.gpu", "100644", rules_scope.Opaque(), True),
    ],
)
def test_executable_files_need_permission_and_then_a_person(
    path: str, mode: str, content: rules_scope.Content, *, run: bool
) -> None:
    change = rules_scope.Change(path=path, new_mode=mode, after=content)
    assert rules_scope.check([change], LOOSE, FAMILY) == rules_scope.InScope(run)
    strict = model.EditScope(files=("**",))
    assert ("executable" in refused(change, strict)) is run


def test_files_outside_of_every_list_are_refused() -> None:
    assert "not among the files" in refused(changed("a: 1", "a: 2", "other/a.yaml"))
    assert "not among the files" in refused(changed("a: 1", "a: 2", "configs/deep/a.yaml"))
    assert (
        refused(changed('{"k": {"image": 1}}', '{"k": {"image": 2}}', "data/x/y.json"), family="configs/a.yaml:k") == ""
    )


def test_a_value_file_may_not_come_or_go() -> None:
    gone = rules_scope.Change(path="configs/a.yaml", old_mode="100644", before=work.parse(b"one: {}", "a.yaml"))
    assert "may not be added, removed" in refused(gone)
    assert "may not be added, removed" in refused(changed("one: {image: 1}", "one: {image: 2}", new_mode="100755"))


def test_many_problems_are_cut() -> None:
    changes = [changed("a: 1", "a: 2", f"other/{n}.yaml") for n in range(30)]
    answer = rules_scope.check(changes, SCOPE, FAMILY)
    assert isinstance(answer, model.Refusal)
    assert "(and 10 more)" in answer.text


@pytest.mark.parametrize("text", ['{"a": 1, "a": 2}', "{", "[1", "\ufeff{}", "{" * 100_000])
def test_bad_json_is_no_data(text: str) -> None:
    assert isinstance(work.parse(text.encode(), "x.json"), rules_scope.Opaque)


def test_content_that_is_not_data_on_both_sides_is_refused() -> None:
    assert "cannot be compared" in refused(changed("one: {image: 1}", ": : :"))
    one = rules_scope.Change(
        path="configs/a.yaml", old_mode="100644", new_mode="100644", before=rules_scope.Parsed(({},)),
        after=rules_scope.Parsed(({}, {})),
    )  # fmt: skip
    assert "cannot be compared" in refused(one)
    two = rules_scope.Change(path="configs/a.yaml", old_mode="100644", new_mode="100644")
    assert "it does not exist" in refused(two)


LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 3), st.floats(allow_nan=False, width=16), st.text(max_size=2)
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=8,
)


@given(VALUES)
def test_equal_values_have_no_difference(value: Any) -> None:
    assert list(rules_scope.differences(value, value)) == []


@given(VALUES, VALUES)
def test_no_difference_means_the_same_value(one: Any, other: Any) -> None:
    assert (list(rules_scope.differences(one, other)) == []) == rules_scope.same(one, other)


@pytest.mark.parametrize(("one", "other"), [(1, True), (1, 1.0), (0, False), ([1], [True]), ({"a": [1]}, {"a": [1.0]})])
def test_types_count(one: Any, other: Any) -> None:
    assert not rules_scope.same(one, other)


@pytest.mark.parametrize(
    ("glob", "path", "fits"),
    [
        ("configs/*.yaml", "configs/a.yaml", True),
        ("configs/*.yaml", "configs/b/a.yaml", False),
        ("configs/**/*.yaml", "configs/a.yaml", True),
        ("configs/**/*.yaml", "configs/b/c/a.yaml", True),
        ("**", "any/thing", True),
        ("a?c", "abc", True),
        ("a?c", "a/c", False),
        ("a.c", "abc", False),
        ("a/**", "a/b/c", True),
    ],
)
def test_globs(glob: str, path: str, *, fits: bool) -> None:
    assert rules_scope.matches(glob, path) is fits
