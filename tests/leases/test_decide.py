"""What fits where, what is a ledger, and who holds."""

from __future__ import annotations

from typing import Any

import pytest

from klaud import names
from klaud.leases import decide, model
from tests.support import records

CLAIM_REF = names.ClaimRef(records.F16)
SESSION = names.SessionRef(records.WAVE, records.CANDIDATE)
OTHER = names.candidate_id("configs/codecs.yaml:lzma", "level 9")


def ledger(*rest: model.LedgerRecord) -> model.Ledger:
    return model.Ledger(records.LEDGER, "d" * 40, (records.started(), *rest))


FITTING: list[tuple[names.KlaudRef, model.Record]] = [
    (CLAIM_REF, records.claim()),
    (CLAIM_REF, records.claim(family=records.F16)),
    (CLAIM_REF, records.claim(holder=None, parked=model.ParkedHolder(on=(1,), by=records.ME))),
    (names.LeaseRef(records.WAVE, records.CANDIDATE), records.lease()),
    (names.FamilyRef(records.F16), model.FamilyMemory(at=records.AT, family=records.FAMILY)),
    (names.TombstoneRef(records.CANDIDATE), model.Tombstone(at=records.AT, candidate=records.CANDIDATE, number=1)),
    (names.ObservedRef(), model.Observed(at=records.AT)),
    (SESSION, records.started()),
]


@pytest.mark.parametrize(("ref", "record"), FITTING)
def test_a_record_fits_its_own_ref(ref: names.KlaudRef, record: model.Record) -> None:
    assert decide.fits(record, ref) == ""


@pytest.mark.parametrize(("ref", "record"), FITTING)
def test_it_fits_no_other_kind_of_ref(ref: names.KlaudRef, record: model.Record) -> None:
    others = [other for other, _ in FITTING if type(other) is not type(ref)]
    assert all(decide.fits(record, other) for other in [*others, names.BranchRef("x"), names.ForeignRef("refs/x")])


@pytest.mark.parametrize(
    ("ref", "record", "word"),
    [
        (CLAIM_REF, records.claim(candidate=OTHER), "another family's candidate"),
        (CLAIM_REF, records.claim(candidate=f"{records.F16}-x"), "candidate"),
        (CLAIM_REF, records.claim(family="configs/codecs.yaml:lzma"), "another family"),
        (CLAIM_REF, records.claim(wave="soon"), "wave"),
        (CLAIM_REF, records.claim(holder=None), "exactly one"),
        (CLAIM_REF, records.claim(parked=model.ParkedHolder(on=(1,), by=records.ME)), "exactly one"),
        (names.LeaseRef("1.1", records.CANDIDATE), records.lease(), "another session"),
        (names.FamilyRef(records.F16), model.FamilyMemory(at=records.AT, family="a:b"), "another family"),
        (names.TombstoneRef(OTHER), model.Tombstone(at=records.AT, candidate=records.CANDIDATE, number=1), "another"),
        (SESSION, records.started(wave="1.1"), "another session"),
        (SESSION, records.started(family="a:b"), "another family"),
    ],
)
def test_a_record_that_names_something_else_does_not_fit(ref: names.KlaudRef, record: model.Record, word: str) -> None:
    assert word in decide.fits(record, ref)


@pytest.mark.parametrize(
    "chain",
    [(), (records.intent(0),), (records.started(), records.started()), (records.started(), records.claim()),
     (records.started(candidate=OTHER),)],
)  # fmt: skip
def test_other_chains_are_no_ledger(chain: tuple[model.Record, ...]) -> None:
    assert decide.chain(chain, SESSION)


def test_a_ledger_with_every_kind_of_record_is_one() -> None:
    at = records.AT
    rest: tuple[Any, ...] = (
        records.intent(0), records.effected(0), model.TurnStarted(at=at, index=0),
        model.TurnEnded(at=at, index=0, status="completed"), model.BeatLost(at=at, why="paused"),
        model.Parked(at=at, on=(1,), why="final-run"), model.Continued(at=at, holder=records.ME, wave="2.1"),
        records.outcome(),
    )  # fmt: skip
    assert decide.chain((records.started(), *rest), SESSION) == ""


def test_who_holds_a_claim() -> None:
    assert decide.holder(records.claim()) == records.ME
    assert decide.holder(records.claim(holder=None, parked=model.ParkedHolder(on=(), by=records.ME))) == records.ME
    assert decide.holder(records.claim(holder=None)) is None
