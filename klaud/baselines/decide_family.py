"""What is being found out about one family, and the verdict that it comes to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klaud.baselines import model, reasons

if TYPE_CHECKING:
    from klaud.baselines import lookup


class Family:
    """The findings about one asked family; ``verdict`` puts them in order, so that no order of rows shows."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.examples: dict[model.ReasonCode, list[model.Example]] = {}
        self.commits: dict[model.ReasonCode, set[str]] = {}
        self.unmatched: dict[str, list[model.Row]] = {}
        self.points: list[model.Point] = []
        self.published: set[tuple[model.Value, ...]] = set()
        self.siblings: list[model.Sibling] = []
        self.retired: list[str] = []
        self.rows: set[str] = set()
        self.kin: set[str] = {name}

    def add(
        self,
        code: model.ReasonCode,
        text: str,
        row: model.Row | None = None,
        *,
        commit: str = "",
        differences: tuple[model.Difference, ...] = (),
    ) -> None:
        """Note one instance of a reason. ``commit``: where it happened, for reasons that are a commit's."""
        example = model.Example(
            text=reasons.cut(text),
            row=row.digest if row else "",
            run_id=row.run_id if row else None,
            differences=differences,
        )
        self.examples.setdefault(code, []).append(example)
        if commit:
            self.commits.setdefault(code, set()).add(commit)

    def relied(self) -> model.Relied:
        """Return what the family is judged by: rows by digest, and every family that these rows could belong to."""
        return model.Relied(rows=frozenset(self.rows), families=frozenset(self.kin))

    def verdict(self, benchmark: str, matrices: lookup.Matrices, today: lookup.Today | None) -> model.Verdict:
        """Return what the findings come to. ``today``: the current matrix, where there is one to compare with."""
        if not self.examples and not self.points and not self.retired:
            for commit, problem in matrices.problems(self.name):  # without a matrix no row can be told to be its own
                self.add(problem.code, f"at commit {commit[:12]}: {problem.text}", commit=commit)
            if not self.examples:
                self.examples["no-published-points"] = []
        found = []
        for code in sorted(self.examples, key=reasons.order):
            examples = sorted(self.examples[code], key=lambda each: (not each.differences, each.row, each.text))
            number = len(self.commits.get(code, ())) or 1
            found.append(reasons.reason(code, benchmark=benchmark, family=self.name, examples=examples, commits=number))
        points = sorted(self.points, key=lambda point: point.row)
        counts: dict[str, int] = {}
        for point in points:
            for name in point.equivalences:
                counts[name] = counts.get(name, 0) + 1
        siblings = sorted(self.siblings, key=lambda each: (each.family, each.row))
        return model.Verdict(
            benchmark=benchmark,
            family=self.name,
            verdict="deferred" if found else "verified",
            reasons=tuple(found),
            points=tuple(points),
            equivalences=dict(sorted(counts.items())),
            dropped=tuple(sorted({name for point in points for name in point.dropped})),
            siblings=tuple(siblings[: model.MAX_EXAMPLES]),
            sibling_count=len(siblings),
            retired=tuple(sorted(self.retired)),
            unpublished=today.unpublished(self.published) if today else 0,
        )
