"""Rows that meet no entry of their producer's matrix: whose they are, and in what they differ from the nearest entry.

A row is answered for by the asked families of its coarse kind; one of no family's kind by the asked families that have an
entry one field away, unless the retirement table names its kind as one that is gone. Where the matrix of one of several such
families could not be made, the row may well be its point: it then blames another family only from one field away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klaud.baselines import decide_points, lookup, model, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from klaud.baselines import decide_family, schema


class Misses:
    """Attributes the rows that matched nothing, and explains them. ``outside`` counts those of no asked family."""

    def __init__(
        self, plan: schema.Plan, matrices: lookup.Matrices, families: Mapping[str, decide_family.Family]
    ) -> None:
        self._plan = plan
        self._matrices = matrices
        self._families = families
        self.outside = 0

    def take(self, commit: str, rows: Sequence[model.Row]) -> None:
        """Attribute the rows of one commit that meet no entry there."""
        strays = []
        for row in rows:
            owners = self._matrices.owners(row.identity)
            if owners:
                self._of_kind(commit, row, owners)
            else:
                strays.append(row)
        if strays:
            self._strays(commit, strays)

    def _of_kind(self, commit: str, row: model.Row, owners: frozenset[str]) -> None:
        states = {name: self._matrices.state(commit, name) for name in owners}
        broken = {name: state for name, state in states.items() if isinstance(state, lookup.Problem)}
        asked = sorted(owners & self._families.keys())
        self.outside += not asked
        for name in asked:
            family = self._families[name]
            family.rows.add(row.digest)
            family.kin |= owners
            if name in broken:
                why = f"run {row.run_id}, commit {commit[:12]}: {broken[name].text}"
                family.add(broken[name].code, why, row, commit=commit)
            elif not broken or self._one_off(commit, name, [row]):
                family.unmatched.setdefault(commit, []).append(row)

    def _one_off(self, commit: str, name: str, rows: Sequence[model.Row]) -> set[model.Identity]:
        """Return the identities among ``rows`` that are one field away from an entry of the family."""
        state = self._matrices.state(commit, name)
        if isinstance(state, lookup.Problem):
            return set()
        return nearest.one_field_off(self._plan, [row.identity for row in rows], state.entries).keys()  # type: ignore[return-value]

    def _strays(self, commit: str, rows: Sequence[model.Row]) -> None:
        """Attribute rows of no family's coarse kind to the asked families that have an entry one field away."""
        taken: set[str] = set()
        for name, family in self._families.items():
            close = self._one_off(commit, name, rows)
            for row in rows:
                if row.identity in close:
                    taken.add(row.digest)
                    family.rows.add(row.digest)
                    if decide_points.excused(self._plan, name, row, coarse=True):
                        family.retired.append(row.digest)
                    else:
                        family.unmatched.setdefault(commit, []).append(row)
        self.outside += sum(row.digest not in taken for row in rows)

    def explain(self, family: decide_family.Family) -> None:
        """Explain the first rows that matched nothing; the rest is counted by name only."""
        explained = 0
        for commit in sorted(family.unmatched):
            rows = sorted(family.unmatched[commit], key=lambda row: row.digest)
            some = rows[: max(model.MAX_EXAMPLES - explained, 0)]
            explained += len(some)
            state = self._matrices.state(commit, family.name)
            entries = [] if isinstance(state, lookup.Problem) else state.entries
            near = nearest.find(self._plan, [row.identity for row in some], entries)
            for row in some:
                found = near.get(row.identity)
                if found is None:
                    family.add("unmatched", f"run {row.run_id}: the producer's matrix has no entry", row)
                    continue
                changes = nearest.differences(self._plan, row.identity, found)
                family.add("unmatched", f"run {row.run_id}: {nearest.sentence(changes)}", row, differences=changes)
            for row in rows[len(some) :]:
                family.add("unmatched", f"run {row.run_id}", row)
