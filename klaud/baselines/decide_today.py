"""Is a proven point still what the repository generates today? Retired points, moved images, changed recipes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klaud.baselines import codec, decide_points, lookup, model

if TYPE_CHECKING:
    from collections.abc import Mapping

    from klaud.baselines import decide_family, schema


class Now:
    """The matrices of the current commit; with an empty commit everything agrees, and nothing is said of today."""

    def __init__(self, plan: schema.Plan, matrices: lookup.Matrices, current: str) -> None:
        self._plan = plan
        self._matrices = matrices
        self._current = current
        self._today: dict[str, lookup.Today | None] = {}

    def matrix(self, family: decide_family.Family) -> lookup.Today | None:
        """Return the family's current matrix. None where there is none, which the family is told once."""
        if not self._current:
            return None
        if family.name not in self._today:
            state = self._matrices.state(self._current, family.name)
            if isinstance(state, lookup.Problem):
                text = f"at the current commit {self._current[:12]}: {state.text}"
                family.add(state.code, text, commit=self._current)
                self._today[family.name] = None
            else:
                self._today[family.name] = lookup.Today(self._plan, state)
        return self._today[family.name]

    def has(self, family: decide_family.Family, row: model.Row, hit: lookup.Hit, produced: lookup.Known) -> bool:
        """Hold a proven row against today's matrix; False where it is not to be a point, and the family knows why."""
        today = self.matrix(family)
        if today is None:
            return True
        entries = today.exact.get(row.identity)
        if entries is not None:
            return self._same_recipe(family, row, produced.matrix.entries[hit.entry.position], today)
        moved = today.loose.get(self._plan.point_of(row.identity))
        if moved is not None:
            places = [i for i, (a, b) in enumerate(zip(row.identity, moved, strict=True)) if a != b]
            changes = ", ".join(
                f"{self._plan.readers[i].name}: published {codec.shown(row.identity[i])}, today {codec.shown(moved[i])}"
                for i in places
            )
            family.add("source-image-moved", f"{decide_points.where(self._plan, row)}: {changes}", row)
        elif decide_points.excused(self._plan, family.name, row):
            family.retired.append(row.digest)
        else:
            family.add("point-retired", decide_points.where(self._plan, row), row)
        return False

    def _same_recipe(
        self, family: decide_family.Family, row: model.Row, entry: Mapping[str, Any], today: lookup.Today
    ) -> bool:
        if not row.fingerprint:
            return True
        entries = today.exact[row.identity]
        known = {entry.fingerprint for entry in entries if entry.fingerprint}
        if not known or row.fingerprint in known:
            return True
        then = codec.settings_of(self._plan, entry)
        now = codec.settings_of(self._plan, today.known.matrix.entries[entries[0].position])
        changed = "; ".join(decide_points.changed_settings(then, now)) or "nothing that the matrix shows"
        family.add("recipe-changed", f"{decide_points.where(self._plan, row)}: changed are {changed}", row)
        return False
