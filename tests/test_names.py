"""Names are reversible, and what is almost klaud's name is not klaud's."""

from __future__ import annotations

import urllib.parse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klaud import errors, names

hex16 = st.text("0123456789abcdef", min_size=16, max_size=16)
candidates = st.builds("{}-{}".format, hex16, hex16)
waves = st.one_of(
    st.builds("{}.{}".format, st.integers(1, 10**19), st.integers(1, 99_999)), st.builds("local-{}".format, hex16)
)
oids = st.text("0123456789abcdef", min_size=40, max_size=40)
prefixes = st.sampled_from(["refs/klaud", "refs/other/klaud", "refs/notes/k"])


@given(prefixes, hex16, candidates, waves, oids)
def test_parse_reverses_every_builder(prefix: str, family: str, candidate: str, wave: str, oid: str) -> None:
    ref = names.RefNames(prefix)
    pairs: list[tuple[str, names.KlaudRef]] = [
        (ref.claim(family), names.ClaimRef(family)),
        (ref.session(wave, candidate), names.SessionRef(wave, candidate)),
        (ref.lease(wave, candidate), names.LeaseRef(wave, candidate)),
        (ref.archive("branch", candidate, oid), names.ArchiveRef("branch", candidate, oid)),
        (ref.tombstone(candidate), names.TombstoneRef(candidate)),
        (ref.family(family), names.FamilyRef(family)),
        (ref.observed(), names.ObservedRef()),
        (ref.branch(candidate), names.BranchRef(candidate)),
    ]
    for text, parsed in pairs:
        assert ref.parse(text) == parsed
        assert any(text.startswith(listed) or text == listed.rstrip("/") for listed in ref.listed_prefixes())


@given(candidates, waves, st.sampled_from(["2", "-", "/x", "\n", " ", ".lock"]))
def test_L15_a_longer_name_is_never_taken_for_a_shorter_one(candidate: str, wave: str, tail: str) -> None:  # noqa: N802
    ref = names.RefNames()
    for text in (ref.branch(candidate), ref.session(wave, candidate), ref.lease(wave, candidate), ref.claim("a" * 16)):
        assert isinstance(ref.parse(text + tail), names.ForeignRef)
        assert isinstance(ref.parse(text[:-1]), names.ForeignRef)
    assert names.candidate_of_branch(names.branch(candidate) + tail) is None


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("refs/heads/klaud/claim-dsr1-fp8", names.ForerunnerClaimRef("dsr1-fp8")),
        ("refs/heads/klaud/recovery-42-aa-bb", names.ForerunnerLeaseRef("42-aa-bb")),
        ("refs/heads/klaud/other", names.ForeignRef("refs/heads/klaud/other")),
        ("refs/heads/Klaud/auto-" + "a" * 16 + "-" + "b" * 16, None),
        ("refs/heads/klaud/auto-" + "A" * 16 + "-" + "b" * 16, None),
        ("refs/klaud/claims/" + "a" * 15, None),
        ("refs/klaud/observed/x", None),
        ("refs/klaudius/claims/" + "a" * 16, None),
        ("refs/klaud/archive/branch/x", None),
        ("refs/klaud/", None),
    ],
)
def test_forerunner_and_foreign_names(text: str, parsed: names.KlaudRef | None) -> None:
    assert names.RefNames().parse(text) == (parsed or names.ForeignRef(text))


PARTS = st.lists(st.text(min_size=1).filter(lambda t: "/" not in t and t not in {".", ".."}), min_size=1, max_size=4)


@given(PARTS.map("/".join))
def test_L53_a_path_keeps_its_slashes_and_encodes_the_rest(text: str) -> None:  # noqa: N802 - the oddity's id
    path = names.path_of_ref(text)
    assert path.count("/") == text.count("/")
    assert urllib.parse.unquote(path) == text
    assert not set(path) & set(" #?%ü🚀") - {"%"}


def test_L53_the_example_from_the_field() -> None:  # noqa: N802 - the oddity's id
    assert names.path_of_ref("a/#1-%25-ü 🚀") == "a/%231-%2525-%C3%BC%20%F0%9F%9A%80"


@given(st.text(min_size=1).filter(lambda t: ":" not in t), st.text(min_size=1))
def test_a_family_splits_into_what_made_it(file: str, key: str) -> None:
    assert names.split_family(names.family_text(file, key)) == (file, key)


@pytest.mark.parametrize("text", ["", "a", ":a", "a:"])
def test_what_is_not_a_family_says_so(text: str) -> None:
    with pytest.raises(ValueError, match="expected <file>:<key>"):
        names.split_family(text)


def test_ids() -> None:
    candidate = names.candidate_id("configs/a.yaml:k", "image v2")
    assert names.is_candidate(candidate)
    assert names.family_of(candidate) == names.short_id("configs/a.yaml:k")
    assert names.branch(candidate) == f"klaud/auto-{candidate}"
    assert names.candidate_of_branch("main") is None
    assert names.is_wave("12.1")
    assert not names.is_wave("0.1")
    assert names.is_oid("a" * 40)
    assert not names.is_oid("a" * 41)
    assert names.run_marker("12.1", candidate) == f"[klaud 12.1-{candidate}]"
    assert names.path_segment("needs / review 🚑") == "needs%20%2F%20review%20%F0%9F%9A%91"


@pytest.mark.parametrize("text", ["", ".", ".."])
def test_what_a_client_would_take_for_another_address_is_refused(text: str) -> None:
    with pytest.raises(errors.InputError):
        names.path_segment(text)
    with pytest.raises(errors.InputError):
        names.path_of_ref(f"configs/{text}/x.yaml")
