"""What the decision table asks about one case, computed once. Pure."""

from __future__ import annotations

import dataclasses
import datetime
from typing import TYPE_CHECKING

from klaud.leases import model as leases
from klaud.recovery import decide_cases, model, rules_liveness, rules_touch

if TYPE_CHECKING:
    from klaud.github import model as github
    from klaud.recovery.decide_cases import Index


@dataclasses.dataclass(frozen=True, slots=True)
class Facts:
    """Everything the rows ask about one case, computed once."""

    case: model.Case
    sight: model.Sight
    index: Index
    policy: model.Policy
    live: model.Liveness
    lease: model.Liveness | None
    pull: github.Pull | None
    detail: github.PullDetail | None
    open_ours: int
    touch: model.Touch | None
    outcome: leases.Outcome | None
    pending: tuple[str, ...]
    finals: tuple[github.Run, ...]
    counted: dict[str, int]

    @property
    def setting(self) -> model.Setting:
        """Who klaud is."""
        return self.index.setting

    @property
    def gone(self) -> model.Gone | None:
        """The proof that the session is over, None where there is none."""
        return self.live if isinstance(self.live, model.Gone) else None

    @property
    def newest_final(self) -> github.Run | None:
        """The newest final run at the exact head."""
        return self.finals[-1] if self.finals else None

    @property
    def proof(self) -> tuple[str, ...]:
        """The proof that the session is over, for the evidence of an action."""
        return (self.gone.proof,) if self.gone is not None else ()

    @property
    def number(self) -> int | None:
        """The number of the session's pull request."""
        return self.pull.number if self.pull is not None else None

    @property
    def has_claim(self) -> bool:
        """Whether a claim of it, or of the forerunner's, still stands."""
        return self.case.claim is not None or bool(self.case.forerunner)

    @property
    def nothing_left(self) -> bool:
        """Whether neither claim nor branch nor open pull request is left."""
        return not self.has_claim and self.case.branch is None and not any(d.pull.open for d in self.case.pulls)

    @property
    def is_old(self) -> bool:
        """Whether its ledger's last record is older than the retention, and GitHub shows nothing of it that is younger.

        Records are dated by whoever wrote them, and our own clock may be wrong too: the retention is over only when our
        clock and GitHub's both say so, and when no run of the session is seen to have changed since.
        """
        return self._is_past(self.policy.retention_days)

    @property
    def is_past_keeping(self) -> bool:
        """Whether its ledger is so old that an archived copy of it would go at once: two retentions."""
        return self._is_past(2 * self.policy.retention_days)

    def _is_past(self, days: int) -> bool:
        ledger = self.case.ledger
        if ledger is None or not ledger.records or self.index.now is None:
            return False
        ends = min(self.sight.now, self.index.now) - datetime.timedelta(days=days)
        return ledger.records[-1].at < ends and not rules_liveness.seen_since(self.case, self.sight, self.index, ends)


def facts(case: model.Case, sight: model.Sight, index: Index, policy: model.Policy) -> Facts:
    """Compute what the rows ask about one case."""
    detail = _main_pull(case, index.setting)
    ours = [d for d in case.pulls if d.pull.open and decide_cases.is_klaud(d.pull.author, index.setting)]
    touch = _touch(detail, case, index)
    others = [d.pull for d in case.pulls if d.pull.open and not decide_cases.is_klaud(d.pull.author, index.setting)]
    if touch is None and others:
        touch = model.Touch(
            what=f"opened pull request {others[0].number} on the branch", who=rules_touch.who(others[0].author)
        )
    return Facts(
        case=case,
        sight=sight,
        index=index,
        policy=policy,
        live=rules_liveness.of_case(case, sight, index, policy),
        lease=_of_lease(case, sight, index),
        pull=detail.pull if detail else None,
        detail=detail,
        open_ours=len(ours),
        touch=touch,
        outcome=decide_cases.outcome(case.ledger) if case.ledger else None,
        pending=decide_cases.pending(case.ledger) if case.ledger else (),
        finals=tuple(rules_liveness.finals(case, index, detail.pull.head_oid)) if detail else (),
        counted=_waited(case, sight, policy),
    )


def _main_pull(case: model.Case, setting: model.Setting) -> github.PullDetail | None:
    """Return the pull request that stands for the session: the open one of ours, else an open one, else the newest."""
    ranked = sorted(
        case.pulls,
        key=lambda d: (d.pull.open, d.pull.open and decide_cases.is_klaud(d.pull.author, setting), d.pull.number),
    )
    return ranked[-1] if ranked else None


def _touch(detail: github.PullDetail | None, case: model.Case, index: Index) -> model.Touch | None:
    """Return the first sign of a person on the session's pull request, else on another that its ledger names."""
    named = decide_cases.numbers_of(case.ledger) if case.ledger is not None else frozenset[int]()
    own = [d for d in case.pulls if d is detail or d.pull.number in named]
    for one in sorted(own, key=lambda d: d is not detail):
        runs = rules_touch.runs_about(one, case, index)
        touch = next(rules_touch.touches(one, case, runs, index.setting), None)
        if touch is not None:
            return touch
    return None


def _of_lease(case: model.Case, sight: model.Sight, index: Index) -> model.Liveness | None:
    record = case.lease.record if case.lease else None
    return rules_liveness.of_lease(record, sight, index) if isinstance(record, leases.Lease) else None


def is_recent(sight: model.Sight, policy: model.Policy) -> bool:
    """Tell whether the sweeps' memory was written so lately that this sweep counts as the same one."""
    held = sight.snapshot.observed
    if not isinstance(held, leases.Held):
        return False
    return abs(sight.now - held.record.at) < datetime.timedelta(seconds=policy.count_seconds)


def _waited(case: model.Case, sight: model.Sight, policy: model.Policy) -> dict[str, int]:
    """Return the sweeps before this one in which the session was seen waiting, by row."""
    same = 1 if is_recent(sight, policy) else 0
    return {row: max(0, sweeps - same) for row, sweeps in counts_of(sight).get(case.key, {}).items()}


def counts_of(sight: model.Sight) -> dict[str, dict[str, int]]:
    """Return how many sweeps each session was seen waiting, by session and row."""
    held = sight.snapshot.observed
    found: dict[str, dict[str, int]] = {}
    for count in getattr(getattr(held, "record", None), "counts", ()):
        found.setdefault(count.session, {})[count.row] = count.sweeps
    return found
