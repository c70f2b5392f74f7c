"""Small rules over records: what fits where, what is a ledger, who holds. Pure."""

from __future__ import annotations

from klaud import names
from klaud.leases import model

LEDGER_LIMIT = 2000
"""Records of one ledger: 20 pushes, 6 smoke runs and a few turns make about 100; more is not a session of klaud's."""

_LATER = (
    model.Intent
    | model.Effected
    | model.TurnStarted
    | model.TurnEnded
    | model.BeatLost
    | model.Parked
    | model.Continued
    | model.Outcome
)


def fits(record: model.Record, ref: names.KlaudRef) -> str:
    """Return why ``record`` cannot stand at ``ref``, empty where it can (a ledger's records: see ``chain``)."""
    match ref, record:
        case names.ClaimRef(family), model.Claim():
            return _claim(record, family)
        case names.LeaseRef(wave, candidate), model.Lease():
            return "" if (record.wave, record.candidate) == (wave, candidate) else "a lease that names another session"
        case names.FamilyRef(family), model.FamilyMemory():
            return "" if _is_family(record.family, family) else "a memory that names another family"
        case names.TombstoneRef(candidate), model.Tombstone():
            return "" if record.candidate == candidate else "a tombstone that names another candidate"
        case names.ObservedRef(), model.Observed():
            return ""
        case names.SessionRef(), model.SessionStarted():
            return chain((record,), ref)
        case _:
            return "a record of another kind than its ref"


def _claim(record: model.Claim, family: str) -> str:
    if not names.is_candidate(record.candidate) or names.family_of(record.candidate) != family:
        return "a claim that names another family's candidate"
    if not _is_family(record.family, family):
        return "a claim that names another family"
    if not names.is_wave(record.wave):
        return "a claim whose wave is no wave"
    if (record.holder is None) == (record.parked is None):
        return "a claim that has not exactly one of holder and parked"
    return ""


def _is_family(text: str, family: str) -> bool:
    return text == family or names.short_id(text) == family


def chain(records: tuple[model.Record, ...], ref: names.SessionRef) -> str:
    """Return why ``records`` (oldest first) are not the ledger of ``ref``, empty where they are."""
    if not records:
        return "a ledger without records"
    first, *rest = records
    if not isinstance(first, model.SessionStarted):
        return "a ledger that does not begin with the start of a session"
    if (first.wave, first.candidate) != (ref.wave, ref.candidate):
        return "a ledger that names another session"
    if not _is_family(first.family, names.family_of(ref.candidate)):
        return "a ledger that names another family"
    if not all(isinstance(record, _LATER) for record in rest):
        return "a ledger with a record that belongs elsewhere"
    return ""


def holder(claim: model.Claim) -> model.Holder | None:
    """Return who holds a claim: the run at work, or the one that parked it; None for a claim that says neither."""
    if claim.holder is not None:
        return claim.holder
    return claim.parked.by if claim.parked is not None else None
