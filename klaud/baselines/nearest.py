"""Near misses: which entry a row that matches nothing comes closest to, and in which fields they differ.

A row is held against every encoding of every entry, so that a drifted column of a mirrored aggregate is named alone.
Small matrices are scanned. In large ones the entries that differ in exactly one field are found by hashing each identity
with one field left out; only what that misses is scanned, within a bound.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klaud.baselines import codec, identity, model

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from klaud.baselines import schema

SCAN_LIMIT = 4_000
"""Entries held against one row: above that, one row would cost 10 ms and more."""


class Near(model.Record, frozen=True, kw_only=True):
    """The nearest entry: its place in the list that was asked, its identity as encoded, the fields that differ."""

    entry: int
    identity: model.Identity
    places: tuple[int, ...]


def find(
    plan: schema.Plan, rows: Sequence[model.Identity], entries: Sequence[model.Entry]
) -> Mapping[model.Identity, Near]:
    """Return the nearest entry of each row; ties go to the plain encoding, then to the earlier entry."""
    if not entries:
        return {}
    found: dict[model.Identity, Near] = {}
    rest = list(dict.fromkeys(rows))
    if len(entries) > SCAN_LIMIT:
        found.update(one_field_off(plan, rest, entries))
        rest = [row for row in rest if row not in found]
    for row in rest:
        found[row] = _scan(plan, row, entries[:SCAN_LIMIT])
    return found


def _scan(plan: schema.Plan, row: model.Identity, entries: Sequence[model.Entry]) -> Near:
    best: tuple[int, int, int] | None = None
    near: Near | None = None
    for at, entry in enumerate(entries):
        for rank, (encoded, _) in enumerate(identity.encodings(plan, entry.identity)):
            places = identity.differing(row, encoded)
            key = (len(places), rank, at)
            if best is None or key < best:
                best, near = key, Near(entry=at, identity=encoded, places=tuple(places))
    assert near is not None, "asked with entries"  # noqa: S101 - find() returns early without entries
    return near


def one_field_off(
    plan: schema.Plan, rows: Sequence[model.Identity], entries: Sequence[model.Entry]
) -> dict[model.Identity, Near]:
    """Return, for the rows that have one, the entry from which they differ in at most one field."""
    width = range(len(plan.readers))
    wanted: dict[tuple[int, int], list[model.Identity]] = {}
    for row in rows:
        parts = [hash((i, value)) for i, value in enumerate(row)]
        whole = _joined(parts)
        for i in width:
            wanted.setdefault((i, whole ^ parts[i]), []).append(row)
    best: dict[model.Identity, tuple[int, int]] = {}
    found: dict[model.Identity, Near] = {}
    for at, entry in enumerate(entries):
        for rank, (encoded, _) in enumerate(identity.encodings(plan, entry.identity)):
            parts = [hash((i, value)) for i, value in enumerate(encoded)]
            whole = _joined(parts)
            for i in width:
                for row in wanted.get((i, whole ^ parts[i]), ()):
                    places = identity.differing(row, encoded)
                    if len(places) <= 1 and (row not in best or (rank, at) < best[row]):
                        best[row] = rank, at
                        found[row] = Near(entry=at, identity=encoded, places=tuple(places))
    return found


def _joined(parts: Sequence[int]) -> int:
    whole = 0
    for part in parts:
        whole ^= part
    return whole


def differences(plan: schema.Plan, row: model.Identity, near: Near) -> tuple[model.Difference, ...]:
    """Return the differing fields with both values as texts."""
    return tuple(
        model.Difference(field=plan.readers[i].name, row=codec.shown(row[i]), matrix=codec.shown(near.identity[i]))
        for i in near.places
    )


def sentence(differences_: Sequence[model.Difference]) -> str:
    """Return differences as one text: ``decode_num_workers: row 4, matrix 0``."""
    return "; ".join(f"{each.field}: row {each.row}, matrix {each.matrix}" for each in differences_)
