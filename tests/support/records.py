"""Made-up records, and hypothesis strategies over all kinds of them."""

from __future__ import annotations

import datetime
from typing import Any

import msgspec
from hypothesis import strategies as st

from klaud import names
from klaud.leases import model

AT = datetime.datetime(2026, 11, 30, 12, tzinfo=datetime.UTC)
FAMILY = "configs/codecs.yaml:zlib"
F16 = names.short_id(FAMILY)
CANDIDATE = names.candidate_id(FAMILY, "level 9")
WAVE = "7000.1"
BASE = "b" * 40
NAMES = names.RefNames()
CLAIM = NAMES.claim(F16)
LEDGER = NAMES.session(WAVE, CANDIDATE)
LEASE = NAMES.lease(WAVE, CANDIDATE)
ME = model.Holder(run_id=7000, attempt=1, job="plan", nonce="n1")


def claim(**changes: Any) -> model.Claim:
    """Return a claim of the made-up family."""
    whole: dict[str, Any] = {
        "at": AT,
        "wave": WAVE,
        "candidate": CANDIDATE,
        "family": FAMILY,
        "base": BASE,
        "holder": ME,
        **changes,
    }
    return model.Claim(**whole)


def started(**changes: Any) -> model.SessionStarted:
    """Return the first record of the made-up session."""
    whole: dict[str, Any] = {
        "at": AT,
        "wave": WAVE,
        "candidate": CANDIDATE,
        "family": FAMILY,
        "base": BASE,
        "holder": ME,
        **changes,
    }
    return model.SessionStarted(**whole)


def lease(**changes: Any) -> model.Lease:
    """Return a lease on the made-up session."""
    return model.Lease(**{"at": AT, "wave": WAVE, "candidate": CANDIDATE, "holder": ME, **changes})


def intent(seq: int, effect: model.Effect = "push-work", **changes: Any) -> model.Intent:
    """Return an intent."""
    return model.Intent(at=AT, seq=seq, effect=effect, **changes)


def effected(seq: int, effect: model.Effect = "push-work", result: Any = "done", **changes: Any) -> model.Effected:
    """Return what became of an intent."""
    return model.Effected(at=AT, seq=seq, effect=effect, result=result, **changes)


def outcome(**changes: Any) -> model.Outcome:
    """Return the end of the made-up session."""
    return model.Outcome(**{"at": AT, "outcome": "validated", **changes})


_times = st.datetimes(timezones=st.just(datetime.UTC))
_texts = st.text(max_size=20)
_numbers = st.integers(min_value=0, max_value=2**53)


def _of(kind: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for a field's type."""
    if isinstance(kind, msgspec.inspect.StrType):
        return _texts
    if isinstance(kind, msgspec.inspect.IntType):
        return _numbers
    if isinstance(kind, msgspec.inspect.BoolType):
        return st.booleans()
    if isinstance(kind, msgspec.inspect.DateTimeType):
        return _times
    if isinstance(kind, msgspec.inspect.NoneType):
        return st.none()
    if isinstance(kind, msgspec.inspect.LiteralType):
        return st.sampled_from(sorted(kind.values, key=str))
    if isinstance(kind, msgspec.inspect.UnionType):
        return st.one_of(*(_of(one) for one in kind.types))
    if isinstance(kind, msgspec.inspect.VarTupleType):
        return st.lists(_of(kind.item_type), max_size=3).map(tuple)
    if isinstance(kind, msgspec.inspect.StructType):
        return struct(kind.cls)
    raise AssertionError(kind)


def struct(cls: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for a record type, every field of it free."""
    shape = msgspec.inspect.type_info(cls)
    assert isinstance(shape, msgspec.inspect.StructType)
    free = {field.name: _of(field.type) for field in shape.fields if field.name != "klaud"}
    return st.builds(cls, **free)


KINDS: tuple[Any, ...] = (
    model.Claim, model.Lease, model.SessionStarted, model.Intent, model.Effected, model.TurnStarted, model.TurnEnded,
    model.BeatLost, model.Parked, model.Continued, model.Outcome, model.FamilyMemory, model.Tombstone, model.Observed,
)  # fmt: skip
RECORDS = st.one_of(*(struct(kind) for kind in KINDS))
