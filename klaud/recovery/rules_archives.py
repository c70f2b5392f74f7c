"""Which archived ledgers are past their time? Pure: archive refs, their newest records and what GitHub shows in; refs out.

A ledger is archived a retention after its last record; its copy is kept for another one, so that ``klaud explain`` can still
tell what became of a session. What is not exactly the copy of a ledger of klaud's, named by the oid that it stands at, is
never judged: no other kind of copy, no other's refs, no record that does not decode (or is not signed, where a key is set).
"""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING

import msgspec

from klaud import names
from klaud.github import model as github
from klaud.recovery import model

if TYPE_CHECKING:
    from collections.abc import Mapping

    from klaud.leases import model as leases
    from klaud.recovery.decide_cases import Index

WINDOW = 50
"""Archived ledgers that are dated in one sweep, oldest runs first: what goes makes room for the next."""


class Archived(msgspec.Struct, frozen=True, kw_only=True):
    """The copy of one ledger: where it stands, and whose it was."""

    ref: str
    oid: str
    wave: str
    candidate: str

    @property
    def key(self) -> str:
        """``<wave>-<candidate>``."""
        return f"{self.wave}-{self.candidate}"


def window(archives: Mapping[str, str], ref_names: names.RefNames) -> tuple[Archived, ...]:
    """Return the copies of ledgers to be dated, those of the oldest planner runs first, laptops' waves last."""
    found = []
    for ref, oid in archives.items():
        kind = ref_names.parse(ref)
        if not isinstance(kind, names.ArchiveRef) or kind.kind != "session" or kind.oid != oid:
            continue
        session = ref_names.parse(f"{ref_names.prefix}/sessions/{kind.name}")
        if isinstance(session, names.SessionRef):
            found.append(Archived(ref=ref, oid=oid, wave=session.wave, candidate=session.candidate))
    return tuple(sorted(found, key=_age)[:WINDOW])


def _age(one: Archived) -> tuple[bool, tuple[int, ...], str]:
    run = one.wave.partition(".")[0]
    return (not run.isdigit(), (int(run),) if run.isdigit() else (), one.ref)


def is_past(one: Archived, last: leases.LedgerRecord, sight: model.Sight, index: Index, policy: model.Policy) -> bool:
    """Tell whether a copy has been kept for long enough, by our clock and GitHub's, with no younger run of its session."""
    if index.now is None or not isinstance(sight.listing, github.Listing) or not sight.listing.complete:
        return False
    ends = min(sight.now, index.now) - datetime.timedelta(days=2 * policy.retention_days)
    planner = one.wave.partition(".")[0]
    runs = list(index.by_session.get(one.key, ()))
    runs += index.runs([int(planner)] if planner.isdigit() else [])
    return last.at < ends and not any(run.updated_at >= ends for run in runs)


def verdict(one: Archived, last: leases.LedgerRecord, policy: model.Policy) -> model.Verdict:
    """Return what is done about a copy that is past its time: it goes, by compare-and-delete."""
    why = f"an archived ledger whose last record is older than {2 * policy.retention_days} days"
    return model.Verdict(
        case=model.Case(key=f"archive/{one.key}", wave=one.wave, candidate=one.candidate, family=""),
        row="20",
        state=why,
        actions=(
            model.DeleteRef(
                why=why, evidence=(f"its last record is of {last.at.isoformat()}",), ref=one.ref, oid=one.oid
            ),
        ),
    )
