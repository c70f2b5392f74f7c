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

from typing import TYPE_CHECKING

from klaud.baselines import codec, decide_family, decide_misses, decide_points, decide_today, lookup, model, reasons

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from klaud.baselines import schema


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
        self._families = {name: decide_family.Family(name) for name in sorted(set(families))}
        self._current = current
        self._now = decide_today.Now(plan, self._matrices, current)
        self._misses = decide_misses.Misses(plan, self._matrices, self._families)
        self._anywhere: dict[model.Identity, list[lookup.Hit]] = {}
        self._outside = 0

    @property
    def outside(self) -> int:
        """Count the rows that no asked family has to answer for."""
        return self._outside + self._misses.outside

    def relied(self, family: str) -> model.Relied:
        """Return what a family was judged by: rows by digest, and every family that these rows could belong to."""
        return self._families[family].relied()

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
        name = self._plan.policy.name
        for family in self._families.values():
            self._misses.explain(family)
        return tuple(
            family.verdict(name, self._matrices, self._now.matrix(family)) for family in self._families.values()
        )

    # -- rows whose producer is in doubt

    def _blame(self, row: model.Row, code: model.ReasonCode, why: str) -> None:
        names = {hit.family for hit in self._anywhere.get(row.identity, ())} or self._matrices.owners(row.identity)
        asked = sorted(names & self._families.keys())
        if not asked:
            self._outside += 1
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
        missed: list[model.Row] = []
        for row, group in pairs:
            hits = self._narrow(row, table[row.identity])
            if hits:
                key = row.identity, frozenset((hit.family, hit.entry.position) for hit in hits)
                same.setdefault(key, []).append((row, group))
                narrowed[key] = hits
            else:
                missed.append(row)
        for key, several in same.items():
            every = {hit.family for hit in table[key[0]]}
            self._matched(commit, [row for row, _ in several], several[0][1], narrowed[key], every)
        self._misses.take(commit, missed)

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
            self._outside += not (owners & self._families.keys())
            return
        for name in names:
            family = self._families.get(name)
            if family is None:
                continue
            family.rows.update(each.digest for each in (*rows, *group.older))
            family.kin |= owners | every
            family.published.add(self._plan.point_of(row.identity))
            mine = [hit for hit in hits if hit.family == name]
            doubt = self._doubt(commit, row, names, mine, twice=twice)
            if doubt is None:
                self._point(family, commit, row, group, mine[0])
            else:
                code, text = doubt
                family.add(code, f"{decide_points.where(self._plan, row)}: {text}", row)

    def _doubt(
        self, commit: str, row: model.Row, names: Sequence[str], mine: Sequence[lookup.Hit], *, twice: bool
    ) -> tuple[model.ReasonCode, str] | None:
        """Return why a row that meets entries is no point of a family all the same, None where it is one.

        ``names``: the families whose entries it meets; ``mine``: those of the one that asks.
        """
        if len(names) > 1:
            return "ambiguous", f"entries of {' and '.join(names)} are the same point"
        if other := _other_recipes(row, mine):
            return "recipe-changed", f"published is {row.fingerprint}, generated {other}"
        if len(mine) > 1:
            return "ambiguous", self._entries_differ(commit, mine)
        if twice:
            return "duplicate-point", f"run {row.run_id}, attempt {row.attempt}"
        if not row.fingerprint and not self._selected(row, names[0]):
            return "legacy-not-selecting", f"run {row.run_id} does not select it"
        return None

    def _selected(self, row: model.Row, family: str) -> bool:
        changelog = self._proofs.changelog
        return changelog is None or decide_points.selects(changelog.get(str(row.run_id), ()), family)

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

    def _point(
        self, family: decide_family.Family, commit: str, row: model.Row, group: decide_points.Group, hit: lookup.Hit
    ) -> None:
        state = self._matrices.known(commit, family.name)
        proof = self._proofs.runs[str(row.run_id)]
        trust = self._proofs.commits[commit]
        if not self._now.has(family, row, hit, state):
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
