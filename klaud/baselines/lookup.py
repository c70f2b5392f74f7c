"""What the producers' matrices say, decoded once and asked by identity, scope or family.

The join is a hash join from the side of the rows: the identities of the rows are the table, and each entry is looked up
in it once for each way it may have been published. Memory therefore grows with the rows that are asked about and with the
decoded entries, time with rows plus entries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from klaud.baselines import codec, identity, model

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from klaud.baselines import schema


class Hit(model.Record, frozen=True, kw_only=True):
    """An entry that a row's identity meets, and the equivalence that it took (``""``: none)."""

    family: str
    entry: model.Entry
    equivalence: str


class Problem(model.Record, frozen=True, kw_only=True):
    """There is no matrix: the reason code, and a text that completes "at <commit>: ..."."""

    code: model.ReasonCode
    text: str


class Known(model.Record, frozen=True, kw_only=True):
    """A decoded matrix of one family at one commit."""

    matrix: model.Matrix
    entries: Sequence[model.Entry]


State: TypeAlias = Known | Problem
Joined: TypeAlias = dict[str, dict[model.Identity, list[Hit]]]


class Matrices:
    """Every matrix of a ``Produced``, decoded. ``families`` has every family that occurs, asked or not."""

    def __init__(self, plan: schema.Plan, produced: model.Produced) -> None:
        self._plan = plan
        self._states: dict[tuple[str, str], State] = {}
        self._scopes: dict[tuple[model.Value, ...], set[str]] = {}
        for item in produced.matrices:
            self._states[item.commit, item.family] = self._decode(item)
        self.families = tuple(sorted({family for _, family in self._states}))

    def _decode(self, item: model.Matrix | model.NotGenerated) -> State:
        if isinstance(item, model.NotGenerated):
            return Problem(code=item.code, text=item.error)
        try:
            entries = codec.decode_entries(self._plan, item.entries)
        except Exception as error:  # noqa: BLE001 - a fault of klaud's own with one matrix is that family's alone
            return Problem(code="internal-error", text=type(error).__name__)
        if isinstance(entries, model.Malformed):
            return Problem(code="generator-output-invalid", text=f"entry {entries.index}: {entries.why}")
        for entry in entries:
            self._scopes.setdefault(self._plan.scope_of(entry.identity), set()).add(item.family)
        return Known(matrix=item, entries=entries)

    def state(self, commit: str, family: str) -> State:
        """Return the matrix of a family at a commit, or why there is none."""
        found = self._states.get((commit, family))
        return found or Problem(code="producer-unavailable", text="no matrix was made there")

    def known(self, commit: str, family: str) -> Known:
        """Return a matrix that is there. KeyError where it is not: ask ``state`` first."""
        found = self._states[commit, family]
        if isinstance(found, Problem):
            raise KeyError(commit, family)
        return found

    def shared(self, *, current: str) -> frozenset[model.Identity]:
        """Return the points that several entries have today, told apart by what may vary alone or by their family.

        ``current`` empty: at any commit.
        """
        first: dict[model.Identity, tuple[str, model.Identity]] = {}
        found: set[model.Identity] = set()
        for (commit, family), state in self._states.items():
            if isinstance(state, Problem) or current not in {"", commit}:
                continue
            for entry in state.entries:
                point = self._plan.point_of(entry.identity)
                here = family, entry.identity
                if first.setdefault(point, here) != here:
                    found.add(point)
        return frozenset(found)

    def problems(self, family: str) -> list[tuple[str, Problem]]:
        """Return the commits at which there is no matrix of a family, and why."""
        found = [(commit, state) for (commit, name), state in self._states.items() if name == family]
        return sorted(
            ((commit, state) for commit, state in found if isinstance(state, Problem)), key=lambda pair: pair[0]
        )

    def owners(self, point: model.Identity) -> frozenset[str]:
        """Return the families that have, at any commit, entries of the same coarse kind as a point."""
        return frozenset(self._scopes.get(self._plan.scope_of(point), ()))

    def join(self, wanted: Mapping[str, Iterable[model.Identity]]) -> Joined:
        """Return, for each commit and each wanted identity, the entries that it meets there.

        The commit ``""`` stands for any commit.
        """
        tables: Joined = {commit: {each: [] for each in identities} for commit, identities in wanted.items()}
        for (commit, family), state in sorted(self._states.items(), key=lambda item: item[0]):
            here = [table for table in (tables.get(commit), tables.get("")) if table]
            if isinstance(state, Problem) or not here:
                continue
            for entry in state.entries:
                for encoded, name in identity.encodings(self._plan, entry.identity):
                    for table in here:
                        hits = table.get(encoded)
                        if hits is not None:
                            hits.append(Hit(family=family, entry=entry, equivalence=name))
        return tables


class Today:
    """The current matrix of one family, asked by identity and by identity without what may vary."""

    def __init__(self, plan: schema.Plan, known: Known) -> None:
        self._plan = plan
        self.known = known
        self.exact: dict[model.Identity, list[model.Entry]] = {}
        self.loose: dict[tuple[model.Value, ...], model.Identity] = {}
        self._ways: list[list[tuple[model.Value, ...]]] = []
        for entry in known.entries:
            encodings = [encoded for encoded, _ in identity.encodings(plan, entry.identity)]
            for encoded in encodings:
                self.exact.setdefault(encoded, []).append(entry)
                self.loose.setdefault(plan.point_of(encoded), encoded)
            self._ways.append([plan.point_of(encoded) for encoded in encodings])

    def unpublished(self, published: set[tuple[model.Value, ...]]) -> int:
        """Count the points of today that nobody published under any encoding."""
        return len({ways[0] for ways in self._ways if not any(way in published for way in ways)})
