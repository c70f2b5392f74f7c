"""The files between jobs: what the schema says is what is decoded, and nothing else."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from klaud import errors, names
from klaud.planner import codec, decide, model

ROOT = Path(__file__).resolve().parent.parent.parent
SCHEMA = jsonschema.Draft202012Validator(json.loads((ROOT / "selection.json.schema").read_text()))

KEY = st.sampled_from(["zlib", "bz2", "lzma", "gzip-level", "a b", "ü"])
FAMILY = KEY.map(lambda key: f"configs/codecs.yaml:{key}")
OID = st.sampled_from(["a" * 40, "0123456789abcdef" * 4])
WAVE = st.sampled_from(["7.1", "30781313910.2", "local-0123456789abcdef"])
WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
NUMBERS = st.integers(1, 2**40)
TIME = st.datetimes().map(lambda at: at.strftime("2026-%m-%dT%H:%M:%SZ"))
GATES = ["plan", "review", "ceiling", "capacity", "baseline", "claim", "dispatch"]


@st.composite
def decisions(draw: st.DrawFn) -> model.Decision:
    family = draw(FAMILY)
    selected = draw(st.booleans())
    return model.Decision(
        candidate=names.candidate_id(family, draw(WORDS)),
        family=family,
        benchmark=draw(WORDS),
        selected=selected,
        gate="selected" if selected else draw(st.sampled_from(GATES)),
        code=draw(st.sampled_from(["selected", "capacity-busy", "unmatched"])),
        message=draw(WORDS),
        unblock=draw(WORDS),
        pulls=tuple(draw(st.lists(NUMBERS, max_size=2))),
        subject=draw(WORDS),
        claim=draw(OID),
    )


@st.composite
def selections(draw: st.DrawFn) -> model.Selection:
    every = tuple(draw(st.lists(decisions(), max_size=4, unique_by=lambda one: one.candidate)))
    derived = decide.lists(every)
    reason = model.Reason(code="unmatched", count=draw(st.integers(0, 9)), message=draw(WORDS), unblock=draw(WORDS))
    dispatches = st.builds(
        model.Dispatch,
        wave=WAVE,
        candidate=st.sampled_from(["0" * 16 + "-" + "f" * 16]),
        kind=st.sampled_from(["start", "continue"]),
        result=st.sampled_from(["dispatched", "unseen", "already", "refused", "unclear", "claim-lost"]),
        run_id=st.none() | NUMBERS,
        message=WORDS,
    )
    return model.Selection(
        wave=draw(WAVE),
        base=draw(OID),
        seed=draw(st.integers(0, 2**53 - 1)),
        at=draw(TIME),
        dry_run=draw(st.booleans()),
        candidates=derived.candidates,
        capacity_deferred_candidates=derived.capacity,
        baseline_deferred_candidates=derived.baseline,
        baseline_deferral_reasons=dict.fromkeys(derived.baseline, (reason,)),
        deferred_reason=derived.reason,
        decisions=every,
        dispatches=tuple(draw(st.lists(dispatches, max_size=2))),
        attention=tuple(
            draw(st.lists(st.builds(model.Attention, code=st.just("schedule"), message=WORDS), max_size=1))
        ),
        counts=derived.counts,
    )


@settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(selections())
def test_what_is_written_is_read_back_and_fits_the_schema(selection: model.Selection) -> None:
    raw = codec.encode_selection(selection)
    assert codec.decode(raw, model.Selection, where="selection.json") == selection
    SCHEMA.validate(json.loads(raw))


def places(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of every value in a document."""
    found = [path] if path else []
    children = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in children:
        found += places(value, (*path, key))
    return found


VALUES = st.sampled_from([
    None, True, False, 0, 1, -1, 2**53, 1.5, "", "x", "selected", "plan", "2026-01-01T00:00:00Z", "7.1", "7.1\n", "a" * 40,
    [], ["x"], [1], [-1], {}, {"x": 1}, {"x": [{"code": "c", "count": 1, "message": "", "unblock": ""}]},
])  # fmt: skip


@pytest.mark.slow
@settings(max_examples=300, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(selections(), st.data())
def test_a_changed_document_is_judged_alike_by_the_schema_and_by_the_decoder(
    selection: model.Selection, data: st.DataObject
) -> None:
    """One value is replaced, removed or added anywhere: structure is accepted by both or refused by both."""
    document = json.loads(codec.encode(selection))
    path = data.draw(st.sampled_from(places(document)))
    at: Any = document
    for step in path[:-1]:
        at = at[step]
    change = data.draw(st.sampled_from(["replace", "remove", "add"]))
    if change == "remove":
        del at[path[-1]]
    elif change == "add" and isinstance(at, dict):
        at["unheard-of"] = data.draw(VALUES)
    else:
        at[path[-1]] = copy.deepcopy(data.draw(VALUES))
    try:
        msgspec.json.decode(json.dumps(document), type=model.Selection, strict=True)
        accepted = True
    except msgspec.ValidationError:
        accepted = False
    assert SCHEMA.is_valid(document) == accepted


def selected(**changes: Any) -> dict[str, Any]:
    family = "configs/codecs.yaml:zlib"
    candidate = names.candidate_id(family, "level 6")
    decision = {
        "candidate": candidate, "family": family, "benchmark": "codecs", "selected": True, "gate": "selected",
        "code": "selected", "message": "selected",
    }  # fmt: skip
    return {
        "version": 1, "wave": "7.1", "base": "a" * 40, "seed": 5, "at": "2026-03-02T06:00:00Z",
        "candidates": [candidate], "decisions": [decision], "counts": {"selected": 1}, **changes,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"candidates": []}, "candidates does not follow from the decisions"),
        ({"counts": {}}, "counts does not follow"),
        ({"deferred-reason": "capacity-busy"}, "deferred-reason does not follow"),
        ({"capacity-deferred-candidates": ["0" * 16 + "-" + "0" * 16]}, "capacity-deferred-candidates does not follow"),
        ({"version": 2}, "version"),
        ({"seed": -1}, "seed"),
        ({"unheard-of": 1}, "unknown field"),
        ({"base": "A" * 40}, "base"),
        ({"wave": "7"}, "wave"),
        ({"wave": "7.1\n"}, "wave"),
        ({"baseline-deferral-reasons": {"x": []}}, "baseline-deferral-reasons names a candidate"),
    ],
)
def test_a_wrong_selection_is_refused_by_name(changes: dict[str, Any], words: str) -> None:
    codec.decode(json.dumps(selected()).encode(), model.Selection, where="selection.json")
    with pytest.raises(errors.InputError) as caught:
        codec.decode(json.dumps(selected(**changes)).encode(), model.Selection, where="selection.json")
    assert words in str(caught.value)
    assert str(caught.value).startswith("selection.json: ")


def test_gates_and_families_of_decisions_must_agree() -> None:
    document = selected()
    document["decisions"][0]["gate"] = "plan"
    with pytest.raises(errors.InputError, match="contradict"):
        codec.decode(json.dumps(document).encode(), model.Selection, where="selection.json")
    document = selected()
    document["decisions"][0]["family"] = "configs/codecs.yaml:other"
    with pytest.raises(errors.InputError, match="its family is another"):
        codec.decode(json.dumps(document).encode(), model.Selection, where="selection.json")


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"\xff", b"<html>", b"[" * 100_000, b"null"])
def test_what_is_no_file_of_klaud_s_is_refused(raw: bytes) -> None:
    with pytest.raises(errors.InputError, match=r"^candidates\.json: "):
        codec.decode(raw, model.Plan, where="candidates.json")


def test_a_file_above_the_limit_is_refused_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "LIMIT_BYTES", 100)
    with pytest.raises(errors.InputError, match="above the limit"):
        codec.decode(b" " * (codec.LIMIT_BYTES + 1), model.Plan, where="candidates.json")


def test_broken_twin_a_selection_that_contradicts_itself_is_never_written() -> None:
    """A writer that forgot to derive its lists is stopped before the file exists."""
    good = codec.decode(json.dumps(selected()).encode(), model.Selection, where="selection.json")
    with pytest.raises(errors.BugError, match="candidates does not follow"):
        codec.encode_selection(msgspec.structs.replace(good, candidates=()))


@pytest.mark.parametrize(
    ("row", "wrong"),
    [
        ({"family": "a:b", "subject": "s"}, None),
        ({"family": "a:b", "subject": "s", "change": {"a.b": [1]}, "match": {"tp": 8, "disagg": True}}, None),
        ({"family": "a:b", "subject": "s", "secret-looking": "hunter2"}, "the line: unknown key"),
        ({"subject": "s"}, "family: is missing"),
        ({"family": "a:b"}, "subject: is missing"),
        ({"family": 3, "subject": "s"}, "family: wrong type"),
        ({"family": "a:b", "subject": ""}, "subject: wrong type"),
        ({"family": "a:b", "subject": "  "}, "subject is blank"),
        ({"family": "ab", "subject": "s"}, "family is not <file>:<key>"),
        ({"family": ":b", "subject": "s"}, "family is not <file>:<key>"),
        ({"family": "a:b", "subject": "s", "change": []}, "change: wrong type"),
        ({"family": "a:b", "subject": "s", "match": {"hunter2": []}}, "match: wrong type"),
    ],
)
def test_a_line_of_a_source_is_an_offer_or_says_why_not_without_its_own_words(
    row: dict[str, Any], wrong: str | None
) -> None:
    found = codec.offer(row)
    assert (found if isinstance(found, str) else None) == wrong
    assert "hunter2" not in str(wrong)
