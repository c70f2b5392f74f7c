"""The gates of a selection: what is not known never counts as a yes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klaud import errors, names
from klaud.baselines import model as baselines
from klaud.planner import decide, model
from klaud.review import model as review

FAMILY = "configs/codecs.yaml:zlib"
CANDIDATE = model.Candidate(
    candidate=names.candidate_id(FAMILY, "level 6"), family=FAMILY, benchmark="codecs", subject="level 6"
)
NOTHING = decide.Usage(open_drafts=0, ready_unreviewed=0, dispatches_day=0, microdollars_day=0, microdollars_month=0)
POLICY = model.Policy()
PROCEED = review.Decision(
    candidate=CANDIDATE.candidate, family=FAMILY, verdict="proceed", reason="no-overlap", message="nothing overlaps"
)
VERIFIED = baselines.Verdict(benchmark="codecs", family=FAMILY, verdict="verified")
DEFERRED = baselines.Verdict(
    benchmark="codecs",
    family=FAMILY,
    verdict="deferred",
    reasons=(
        baselines.Reason(code="unmatched", count=2, message="2 rows match no entry", unblock="re-run the family"),
        baselines.Reason(code="ambiguous", count=1, message="1 row matches two entries", unblock="tell them apart"),
    ),
)
GOOD = decide.Facts(standing=None, review=PROCEED, capacity="free", verdict=VERIFIED)


def stop(facts: decide.Facts = GOOD, usage: decide.Usage = NOTHING, policy: model.Policy = POLICY, **more: int) -> Any:
    return decide.stop(facts, usage, policy, started=more.get("started", 0), cap=more.get("cap", 4))


def with_(**changes: Any) -> decide.Facts:
    return msgspec.structs.replace(GOOD, **changes)


def used(**changes: Any) -> decide.Usage:
    return msgspec.structs.replace(NOTHING, **changes)


def test_a_candidate_that_nothing_stops_passes() -> None:
    assert stop() is None
    assert stop(with_(capacity="not-asked")) is None


def decided(verdict: review.Verdict, reason: review.Reason, pulls: tuple[int, ...] = ()) -> review.Decision:
    return review.Decision(
        candidate=CANDIDATE.candidate, family=FAMILY, verdict=verdict, reason=reason, message="m", pulls=pulls
    )


STOPS: list[tuple[Any, ...]] = [
    (with_(standing=("claimed", "m", "u")), NOTHING, "plan", "claimed"),
    (with_(review=None), NOTHING, "review", "decision-missing"),
    (with_(review=decided("duplicate", "edits-entry", (5,))), NOTHING, "review", "edits-entry"),
    (with_(review=decided("uncertain", "pulls-incomplete")), NOTHING, "review", "pulls-incomplete"),
    (GOOD, used(open_drafts=20), "ceiling", "ceiling-open-drafts"),
    (GOOD, used(open_drafts=None), "ceiling", "ceiling-unknown-open-drafts"),
    (GOOD, used(ready_unreviewed=10), "ceiling", "ceiling-ready-unreviewed"),
    (GOOD, used(ready_unreviewed=None), "ceiling", "ceiling-unknown-ready-unreviewed"),
    (GOOD, used(dispatches_day=24), "ceiling", "ceiling-dispatches-per-day"),
    (GOOD, used(dispatches_day=None), "ceiling", "ceiling-unknown-dispatches-per-day"),
    (GOOD, used(microdollars_day=200_000_000), "ceiling", "ceiling-dollars-per-day"),
    (GOOD, used(microdollars_month=3_000_000_000), "ceiling", "ceiling-dollars-per-month"),
    (GOOD, used(microdollars_month=None), "ceiling", "ceiling-unknown-dollars-per-month"),
    (with_(capacity="busy"), NOTHING, "capacity", "capacity-busy"),
    (with_(capacity="unknown"), NOTHING, "capacity", "capacity-unknown"),
    (with_(verdict=None), NOTHING, "baseline", "no-verdict"),
    (with_(verdict=DEFERRED), NOTHING, "baseline", "unmatched"),
    (with_(verdict=msgspec.structs.replace(DEFERRED, reasons=())), NOTHING, "baseline", "internal-error"),
    (with_(taken=True), NOTHING, "claim", "family-taken"),
]


@pytest.mark.parametrize(("facts", "usage", "gate", "code"), STOPS, ids=[str(one[3]) for one in STOPS])
def test_each_gate_stops_with_its_code_and_what_would_unblock_it(
    facts: decide.Facts, usage: decide.Usage, gate: str, code: str
) -> None:
    found = stop(facts, usage)
    assert (found.gate, found.code) == (gate, code)
    assert found.message
    assert found.unblock or code == "internal-error"
    assert found == stop(facts, usage)


@pytest.mark.parametrize(("early", "late"), [(one, other) for i, one in enumerate(STOPS) for other in STOPS[i + 1 :]])
def test_the_gates_stand_in_the_order_of_the_spec(early: Any, late: Any) -> None:
    """Standing, review, ceilings, capacity, baseline, family: the first that stops is the one that is named."""
    merged = {
        name: getattr(one[0], name)
        for one in (late, early)
        for name in decide.Facts.__struct_fields__
        if getattr(one[0], name) != getattr(GOOD, name)
    }
    usage = {
        name: getattr(one[1], name)
        for one in (late, early)
        for name in decide.Usage.__struct_fields__
        if getattr(one[1], name) != 0
    }
    ranks = ["plan", "review", "ceiling", "capacity", "baseline", "claim"]
    assert stop(with_(**merged), used(**usage)).gate == min(early[2], late[2], key=ranks.index)


def test_the_cap_of_the_wave_is_reached_exactly() -> None:
    assert stop(started=3, cap=4) is None
    assert stop(started=4, cap=4).code == "ceiling-candidates-per-wave"
    assert stop(started=0, cap=0).code == "ceiling-candidates-per-wave"


def test_what_this_wave_has_started_counts_against_the_ceilings() -> None:
    assert stop(usage=used(open_drafts=19), started=0) is None
    assert stop(usage=used(open_drafts=19), started=1).code == "ceiling-open-drafts"
    assert stop(usage=used(dispatches_day=23), started=1).code == "ceiling-dispatches-per-day"


def test_money_of_zero_stops_everything() -> None:
    assert stop(policy=model.Policy(dollars_per_day=0)).code == "ceiling-dollars-per-day"
    assert stop(usage=used(microdollars_day=199_999_999)) is None


def test_a_deferred_baseline_tells_all_its_reasons() -> None:
    found = stop(with_(verdict=DEFERRED))
    assert [(one.code, one.count) for one in found.reasons] == [("unmatched", 2), ("ambiguous", 1)]
    assert found.unblock == "re-run the family"


def target(total: int, allocated: int, mixed: int, idle: int) -> decide.Target:
    return decide.Target(total=total, allocated=allocated, mixed=mixed, idle=idle)


@pytest.mark.parametrize(
    ("one", "room"),
    [
        (target(10, 8, 0, 2), False), (target(10, 7, 0, 3), True), (target(10, 4, 4, 2), False),
        (target(10, 7, 0, 0), False), (target(5, 4, 0, 1), False), (target(4, 3, 0, 1), True), (target(0, 0, 0, 0), False),
        (target(1, 0, 0, 1), True), (target(10, 11, 0, 0), None), (target(10, 6, 5, 0), None), (target(10, 0, 0, 11), None),
    ],
)  # fmt: skip
def test_a_target_has_room_below_80_percent_with_a_unit_idle(one: decide.Target, room: bool | None) -> None:
    assert decide.has_room(one) is room


FIGURES = decide.Figures({"free": target(10, 1, 0, 9), "busy": target(10, 10, 0, 0), "odd": target(1, 5, 5, 5)})


@pytest.mark.parametrize(
    ("targets", "figures", "found"),
    [
        (["free"], FIGURES, "free"), (["free", "busy"], FIGURES, "busy"), (["free", "gone"], FIGURES, "unknown"),
        (["gone", "busy"], FIGURES, "busy"), (["odd"], FIGURES, "unknown"), ([], FIGURES, "unknown"),
        (["free"], decide.CapacityUnknown("x"), "unknown"), (["busy"], decide.NotAsked(), "not-asked"),
        ([], decide.NotAsked(), "not-asked"),
    ],
)  # fmt: skip
def test_capacity_has_three_values(targets: list[str], figures: Any, found: str) -> None:
    assert decide.capacity(targets, figures) == found


@settings(deadline=None, derandomize=True)
@given(st.lists(st.sampled_from(["free", "busy", "odd", "gone"]), min_size=1, max_size=4))
def test_free_means_that_every_target_has_room(targets: list[str]) -> None:
    assert (decide.capacity(targets, FIGURES) == "free") == (set(targets) == {"free"})


def test_no_sentence_of_the_capacity_gate_names_a_target_or_a_figure() -> None:
    """What the provider says stays in the process: the decision of a busy target and of another are the same bytes."""
    secret = decide.Figures({"secret-cluster": target(7919, 7919, 0, 0)})
    facts = with_(capacity=decide.capacity(["secret-cluster"], secret))
    raw = msgspec.json.encode(decide.decision(CANDIDATE, stop(facts)))
    assert b"secret" not in raw
    assert b"7919" not in raw


def decision(family: str, gate: model.Gate, code: str = "x", subject: str = "s") -> model.Decision:
    return model.Decision(
        candidate=names.candidate_id(family, subject), family=family, benchmark="b", selected=gate == "selected",
        gate=gate, code=code, message="m",
    )  # fmt: skip


def test_lists_and_counts_follow_from_the_decisions() -> None:
    every = [
        decision("f:a", "selected", "selected"),
        decision("f:b", "capacity", "capacity-busy"),
        decision("f:c", "baseline", "unmatched"),
        decision("f:d", "capacity", "capacity-unknown"),
    ]
    found = decide.lists(every)
    assert found.candidates == (every[0].candidate,)
    assert found.capacity == (every[1].candidate, every[3].candidate)
    assert found.baseline == (every[2].candidate,)
    assert found.reason == ""
    assert found.counts == {"capacity-busy": 1, "capacity-unknown": 1, "selected": 1, "unmatched": 1}


def test_a_wave_that_selects_nothing_says_why() -> None:
    assert decide.lists([]).reason == "no-candidates"
    every = [decision("f:a", "capacity", "busy"), decision("f:b", "plan", "paused"), decision("f:c", "plan", "paused")]
    assert decide.lists(every).reason == "paused"


def test_exclusions_are_counted_in_a_row_and_forgotten_when_the_review_lets_it_pass() -> None:
    remembered = model.Memory(
        at="2026-03-02T06:00:00Z",
        families={names.short_id(one): model.FamilyState(excluded_in_a_row=2) for one in ("f:a", "f:b", "f:c")},
    )
    every = [
        decision("f:a", "review"), decision("f:b", "capacity"), decision("f:c", "plan"), decision("f:d", "review"),
        decision("f:e", "review", subject="one"), decision("f:e", "selected", subject="two"),
    ]  # fmt: skip
    assert decide.exclusions(every, remembered) == {"f:a": 3, "f:b": 0, "f:d": 1, "f:e": 0}


def test_klaud_s_own_sentences_are_kept_and_others_are_cut_to_type_and_300_characters() -> None:
    assert decide.words_of(errors.InputError("what and where")) == "what and where"
    assert decide.words_of(KeyError("x")) == "KeyError: 'x'"
    assert len(decide.words_of(ValueError("y" * 1000))) == 300


def test_a_selection_lists_what_the_plan_blocked_last_and_reasons_of_deferred_baselines_only() -> None:
    blocked = model.Blocked(
        candidate=names.candidate_id("f:z", "s"), family="f:z", benchmark="b", code="paused", message="m", unblock="u"
    )
    plan = model.Plan(wave="7.1", base="a" * 40, seed=1, at="2026-03-02T06:00:00Z", blocked=(blocked,))
    late = decision("f:c", "baseline", "unmatched")
    reason = model.Reason(code="unmatched", count=1, message="m", unblock="u")
    found = decide.selection(
        plan, [decision("f:a", "selected", "selected"), late], {late.candidate: (reason,), "other": (reason,)}, [],
        at="2026-03-02T06:00:01Z", dry_run=False,
    )  # fmt: skip
    assert [one.code for one in found.decisions] == ["selected", "unmatched", "paused"]
    assert found.baseline_deferral_reasons == {late.candidate: (reason,)}
