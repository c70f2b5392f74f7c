"""Verdicts: tie each published point to exactly one entry of its producer's matrix, or say why not.

How a row finds its family. A feed's rows carry no family. A row that meets an entry of its producer's matrix belongs to
that entry's family. One that meets none is answered for by the families of its coarse kind (the ``scope`` fields); where
there is none, by the families that have an entry one field away. What is left is counted as ``outside``.

Promises: the order of rows changes nothing; a family that shares no row changes nothing; time is linear in rows plus
entries, apart from near misses, which are found for at most MAX_EXAMPLES rows of a family. Unknown is never a yes: a row
whose producer is not proven, not trusted or not generated defers its family.

Not promised: that a row matching two families by coincidence is sorted out without a fingerprint or a changelog.
"""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING, Any

from klaud.baselines import codec, decide_points, lookup, model, nearest, reasons

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from klaud.baselines import schema


class _Family:
    """What is being found out about one asked family."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.examples: dict[model.ReasonCode, list[model.Example]] = {}
        self.unmatched: dict[str, list[model.Row]] = {}
        self.points: list[model.Point] = []
        self.published: set[tuple[model.Value, ...]] = set()
        self.siblings: list[model.Sibling] = []
        self.retired: list[str] = []
        self.rows: set[str] = set()
        self.kin: set[str] = {name}

    def add(self, code: model.ReasonCode, text: str, row: model.Row | None = None, **more: object) -> None:
        """Note one instance of a reason."""
        example = model.Example(
            text=reasons.cut(text),
            row=row.digest if row else "",
            run_id=row.run_id if row else None,
            **more,  # type: ignore[arg-type]  # differences only
        )
        self.examples.setdefault(code, []).append(example)


class Judge:
    """One judgement; see ``judge``. After ``run`` the rows that a family answers for are in ``relied``."""

    def __init__(
        self,
        plan: schema.Plan,
        proofs: model.Proofs,
        produced: model.Produced,
        families: Sequence[str],
        current: str,
    ) -> None:
        self._plan = plan
        self._proofs = proofs
        self._matrices = lookup.Matrices(plan, produced)
        self._families = {name: _Family(name) for name in sorted(set(families))}
        self._current = current
        self._today: dict[str, lookup.Today | None] = {}
        self._anywhere: dict[model.Identity, list[lookup.Hit]] = {}
        self.outside = 0

    def relied(self, family: str) -> model.Relied:
        """Return what a family was judged by: rows by digest, and every family that these rows could belong to."""
        found = self._families[family]
        return model.Relied(rows=frozenset(found.rows), families=frozenset(found.kin))

    def run(self, rows: Sequence[model.Row]) -> tuple[model.Verdict, ...]:
        """Judge the rows and return a verdict for each asked family, in order of their names."""
        groups = decide_points.newest_rows(self._plan, rows, self._matrices.shared(current=self._current))
        sound: dict[str, list[tuple[model.Row, decide_points.Group]]] = {}
        unsound: list[tuple[model.Row, model.ReasonCode, str]] = [
            (row, "producer-unprovable", f"{row.run_url or 'nothing'} names no run of this repository")
            for row in rows
            if row.run_id is None
        ]
        for group in groups:
            for row in (*group.newest, *group.older):
                proof = self._proofs.runs.get(str(row.run_id))
                if not isinstance(proof, model.Proof):
                    why = proof.why if proof else f"run {row.run_id} was not looked up"
                    unsound.append((row, "producer-unprovable", why))
            for row in group.newest:
                proof = self._proofs.runs.get(str(row.run_id))
                if isinstance(proof, model.Proof):
                    trust = self._proofs.commits.get(proof.commit)
                    if isinstance(trust, model.Trusted):
                        sound.setdefault(proof.commit, []).append((row, group))
                    else:
                        why = trust.why if trust else "its trust was not looked up"
                        unsound.append(
                            (row, "producer-untrusted", f"run {row.run_id}, commit {proof.commit[:12]}: {why}")
                        )
        wanted: dict[str, list[model.Identity]] = {
            commit: [row.identity for row, _ in pairs] for commit, pairs in sound.items()
        }
        wanted[""] = [row.identity for row, _, _ in unsound]
        joined = self._matrices.join(wanted)
        self._anywhere = joined[""]
        for row, code, why in unsound:
            self._blame(row, code, why)
        for commit in sorted(sound):
            self._commit(commit, sound[commit], joined[commit])
        for family in self._families.values():
            self._near_misses(family)
        return tuple(self._verdict(family) for family in self._families.values())

    # -- rows whose producer is in doubt

    def _blame(self, row: model.Row, code: model.ReasonCode, why: str) -> None:
        names = {hit.family for hit in self._anywhere.get(row.identity, ())} or self._matrices.owners(row.identity)
        asked = sorted(names & self._families.keys())
        if not asked:
            self.outside += 1
        for name in asked:
            self._families[name].rows.add(row.digest)
            self._families[name].kin |= names | self._matrices.owners(row.identity)
            self._families[name].add(code, why, row)

    # -- rows whose producer's matrix may be asked

    def _commit(
        self,
        commit: str,
        pairs: Sequence[tuple[model.Row, decide_points.Group]],
        table: Mapping[model.Identity, list[lookup.Hit]],
    ) -> None:
        same: dict[tuple[model.Identity, frozenset[tuple[str, int]]], list[tuple[model.Row, decide_points.Group]]] = {}
        narrowed: dict[tuple[model.Identity, frozenset[tuple[str, int]]], list[lookup.Hit]] = {}
        strays: list[model.Row] = []
        for row, group in pairs:
            hits = self._narrow(row, table[row.identity])
            if hits:
                key = row.identity, frozenset((hit.family, hit.entry.position) for hit in hits)
                same.setdefault(key, []).append((row, group))
                narrowed[key] = hits
            else:
                self._unmatched(commit, row, strays)
        for key, several in same.items():
            every = {hit.family for hit in table[key[0]]}
            self._matched(commit, [row for row, _ in several], several[0][1], narrowed[key], every)
        self._strays(commit, strays)

    def _narrow(self, row: model.Row, hits: list[lookup.Hit]) -> list[lookup.Hit]:
        """Keep what the row's fingerprint allows, then what its run's changelog selects, where that leaves something."""
        if row.fingerprint and len(hits) > 1:
            hits = [hit for hit in hits if hit.entry.fingerprint == row.fingerprint] or hits
        changelog = self._proofs.changelog
        if changelog is not None and len({hit.family for hit in hits}) > 1:
            patterns = changelog.get(str(row.run_id), ())
            hits = [hit for hit in hits if decide_points.selects(patterns, hit.family)] or hits
        return hits

    def _matched(
        self,
        commit: str,
        rows: Sequence[model.Row],
        group: decide_points.Group,
        hits: Sequence[lookup.Hit],
        every: set[str],
    ) -> None:
        row = min(rows, key=lambda each: each.digest)
        twice = len({tuple(sorted(each.metrics.items())) for each in rows}) > 1
        names = sorted({hit.family for hit in hits})
        owners = self._matrices.owners(row.identity)
        for name in sorted(owners & self._families.keys()):
            if name not in names:
                near = self._families[name]
                near.rows.add(row.digest)
                near.kin |= owners | every
                near.siblings.append(model.Sibling(row=row.digest, family=names[0]))
        if not self._families.keys() & names:
            self.outside += not (owners & self._families.keys())
            return
        for name in names:
            family = self._families.get(name)
            if family is None:
                continue
            family.rows.update(each.digest for each in (*rows, *group.older))
            family.kin |= owners | every
            family.published.add(self._plan.point_of(row.identity))
            mine = [hit for hit in hits if hit.family == name]
            if len(names) > 1:
                family.add("ambiguous", f"{self._where(row)}: entries of {' and '.join(names)} are the same point", row)
            elif other := _other_recipes(row, mine):
                family.add(
                    "recipe-changed", f"{self._where(row)}: published is {row.fingerprint}, generated {other}", row
                )
            elif len(mine) > 1:
                family.add("ambiguous", f"{self._where(row)}: {self._entries_differ(commit, mine)}", row)
            elif twice:
                family.add("duplicate-point", f"{self._where(row)}: run {row.run_id}, attempt {row.attempt}", row)
            elif not row.fingerprint and not self._selected(row, name):
                family.add("legacy-not-selecting", f"{self._where(row)}: run {row.run_id} does not select it", row)
            else:
                self._point(family, commit, row, group, mine[0])

    def _selected(self, row: model.Row, family: str) -> bool:
        changelog = self._proofs.changelog
        return changelog is None or decide_points.selects(changelog.get(str(row.run_id), ()), family)

    def _where(self, row: model.Row) -> str:
        """Return a point as a person would name it: the fields that are not coarse and not at their default."""
        parts = []
        for value, reader in zip(row.identity, self._plan.readers, strict=True):
            if not reader.field.scope and not reader.field.varies and value != reader.field.default:
                parts.append(f"{reader.name} {codec.shown(value)}")
        return reasons.cut(", ".join(parts) or "the point", 160)

    def _entries_differ(self, commit: str, hits: Sequence[lookup.Hit]) -> str:
        first, second = hits[0], hits[1]
        state = self._matrices.known(commit, first.family)
        one, other = (
            codec.settings_of(self._plan, state.matrix.entries[hit.entry.position]) for hit in (first, second)
        )
        changed = decide_points.changed_settings(one, other)
        text = "; ".join(changed) or "nothing outside the identity"
        equivalences = sorted({hit.equivalence for hit in hits} - {""})
        by = f" (by {', '.join(equivalences)})" if equivalences else ""
        return f"entries {first.entry.position} and {second.entry.position} differ in {text}{by}"

    def _point(self, family: _Family, commit: str, row: model.Row, group: decide_points.Group, hit: lookup.Hit) -> None:
        state = self._matrices.known(commit, family.name)
        proof = self._proofs.runs[str(row.run_id)]
        trust = self._proofs.commits[commit]
        if not self._as_today(family, row, hit, state):
            return
        family.points.append(
            model.Point(
                row=row.digest,
                identity=self._plan.named(row.identity),
                metrics=row.metrics,
                run_id=row.run_id or 0,
                attempt=row.attempt or 1,
                commit=commit,
                proven=proof.how if isinstance(proof, model.Proof) else "",
                trusted=trust.how if isinstance(trust, model.Trusted) else "",
                entry=hit.entry.position,
                equivalences=(hit.equivalence,) if hit.equivalence else (),
                dropped=state.matrix.dropped,
                older=tuple(
                    model.Older(row=each.digest, run_id=each.run_id or 0, attempt=each.attempt or 1)
                    for each in group.older
                ),
                outliers=decide_points.outliers(self._plan.policy, row, group.older),
            )
        )

    # -- against the current matrix

    def _current_matrix(self, family: _Family) -> lookup.Today | None:
        if family.name not in self._today:
            state = self._matrices.state(self._current, family.name)
            if isinstance(state, lookup.Problem):
                family.add(state.code, f"at the current commit {self._current[:12]}: {state.text}")
                self._today[family.name] = None
            else:
                self._today[family.name] = lookup.Today(self._plan, state)
        return self._today[family.name]

    def _as_today(self, family: _Family, row: model.Row, hit: lookup.Hit, produced: lookup.Known) -> bool:
        """Hold a proven row against today's matrix; False where it is not to be a point."""
        today = self._current_matrix(family) if self._current else None
        if today is None:
            return True
        if row.identity in today.exact:
            return self._same_recipe(family, row, produced.matrix.entries[hit.entry.position], today)
        where = self._where(row)
        moved = today.loose.get(self._plan.point_of(row.identity))
        if moved is not None:
            places = [i for i, (a, b) in enumerate(zip(row.identity, moved, strict=True)) if a != b]
            changes = ", ".join(
                f"{self._plan.readers[i].name}: published {codec.shown(row.identity[i])}, today {codec.shown(moved[i])}"
                for i in places
            )
            family.add("source-image-moved", f"{where}: {changes}", row)
            return False
        named = self._plan.named(row.identity)
        for retired in self._plan.policy.retired:
            if fnmatch.fnmatchcase(family.name, retired.family) and all(
                named[name] == value for name, value in retired.match.items()
            ):
                family.retired.append(row.digest)
                return False
        family.add("point-retired", where, row)
        return False

    def _same_recipe(self, family: _Family, row: model.Row, entry: Mapping[str, Any], today: lookup.Today) -> bool:
        entries = today.exact[row.identity]
        known = {entry.fingerprint for entry in entries if entry.fingerprint}
        if not row.fingerprint or not known or row.fingerprint in known:
            return True
        then = codec.settings_of(self._plan, entry)
        now = codec.settings_of(self._plan, today.known.matrix.entries[entries[0].position])
        changed = "; ".join(decide_points.changed_settings(then, now)) or "nothing that the matrix shows"
        family.add("recipe-changed", f"{self._where(row)}: changed are {changed}", row)
        return False

    # -- rows that meet no entry

    def _unmatched(self, commit: str, row: model.Row, strays: list[model.Row]) -> None:
        owners = self._matrices.owners(row.identity)
        if not owners:
            strays.append(row)
            return
        broken = {
            name: state for name in owners if isinstance(state := self._matrices.state(commit, name), lookup.Problem)
        }
        asked = sorted(owners & self._families.keys())
        self.outside += not asked
        for name in asked:
            family = self._families[name]
            family.rows.add(row.digest)
            family.kin |= owners
            if name in broken:
                family.add(broken[name].code, f"run {row.run_id}, commit {commit[:12]}: {broken[name].text}", row)
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
        if not rows:
            return
        taken: set[str] = set()
        for name, family in self._families.items():
            close = self._one_off(commit, name, rows)
            for row in rows:
                if row.identity in close:
                    taken.add(row.digest)
                    family.rows.add(row.digest)
                    family.unmatched.setdefault(commit, []).append(row)
        self.outside += sum(row.digest not in taken for row in rows)

    def _near_misses(self, family: _Family) -> None:
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

    # -- the verdict

    def _verdict(self, family: _Family) -> model.Verdict:
        today = self._current_matrix(family) if self._current else None
        if not family.examples and not family.points and not family.retired:
            for commit, problem in self._matrices.problems(
                family.name
            ):  # without a matrix no row can be told to be its own
                family.add(problem.code, f"at commit {commit[:12]}: {problem.text}")
            if not family.examples:
                family.examples["no-published-points"] = []
        found = []
        for code in sorted(family.examples, key=reasons.order):
            examples = sorted(family.examples[code], key=lambda each: (not each.differences, each.row, each.text))
            found.append(reasons.reason(code, benchmark=self._plan.policy.name, family=family.name, examples=examples))
        points = sorted(family.points, key=lambda point: point.row)
        counts: dict[str, int] = {}
        for point in points:
            for name in point.equivalences:
                counts[name] = counts.get(name, 0) + 1
        siblings = sorted(family.siblings, key=lambda each: (each.family, each.row))
        return model.Verdict(
            benchmark=self._plan.policy.name,
            family=family.name,
            verdict="deferred" if found else "verified",
            reasons=tuple(found),
            points=tuple(points),
            equivalences=dict(sorted(counts.items())),
            dropped=tuple(sorted({name for point in points for name in point.dropped})),
            siblings=tuple(siblings[: model.MAX_EXAMPLES]),
            sibling_count=len(siblings),
            retired=tuple(sorted(family.retired)),
            unpublished=today.unpublished(family.published) if today else 0,
        )


def judge(
    plan: schema.Plan,
    rows: Sequence[model.Row],
    proofs: model.Proofs,
    produced: model.Produced,
    *,
    families: Sequence[str],
    current: str = "",
) -> model.Judgement:
    """Return a verdict for each of ``families``.

    ``current`` is the commit whose matrices (also in ``produced``) say what the repository generates today; empty: the
    comparison with today is left out, and no verdict speaks of retired points, moved images or changed recipes.
    """
    one = Judge(plan, proofs, produced, families, current)
    verdicts = one.run(rows)
    relied = {verdict.family: one.relied(verdict.family) for verdict in verdicts}
    return model.Judgement(verdicts=verdicts, rows=len(rows), outside=one.outside, relied=relied)


def feed_failed(plan: schema.Plan, families: Sequence[str], code: model.ReasonCode, message: str) -> model.Judgement:
    """Return the verdicts when there are no rows to judge: every family is deferred with the feed's reason."""
    name = plan.policy.name
    return model.Judgement(
        verdicts=tuple(
            model.Verdict(
                benchmark=name,
                family=family,
                verdict="deferred",
                reasons=(reasons.reason(code, benchmark=name, family=family, examples=(), count=1, message=message),),
            )
            for family in sorted(set(families))
        )
    )


def internal_error(plan: schema.Plan, family: str, error: str) -> model.Verdict:
    """Return the verdict of a family whose judging failed; ``error`` is the error's type and at most its message."""
    name = plan.policy.name
    message = f"klaud failed while it judged this family: {error}"
    return model.Verdict(
        benchmark=name,
        family=family,
        verdict="deferred",
        reasons=(
            reasons.reason("internal-error", benchmark=name, family=family, examples=(), count=1, message=message),
        ),
    )


def _other_recipes(row: model.Row, hits: Sequence[lookup.Hit]) -> str:
    """Return the fingerprints of the entries where the row has one and none of them is it, else an empty text."""
    known = {hit.entry.fingerprint for hit in hits}
    if not row.fingerprint or None in known or row.fingerprint in known:
        return ""
    return ", ".join(sorted(str(each) for each in known))
