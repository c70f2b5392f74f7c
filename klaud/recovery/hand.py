"""What one sweep has in hand of one session while it acts: what was done, what is left, what is still to be pushed."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, TypeVar

from klaud.leases import model as leases
from klaud.recovery import decide_cases, model

if TYPE_CHECKING:
    from klaud.github import model as github


A = TypeVar("A", bound=model.Act)


@dataclasses.dataclass
class Hand:
    """One session in hand.

    ``stopped``: why nothing more may be done to it this sweep (its objects stay as they are). ``kept``: why draft and
    branch stay although closing was begun: a person acted in between. ``closing``: the draft whose closing was begun.
    ``claim_oid`` and ``lease_oid``: where claim and lease stand now, by this sweep's own hand; ``keep_lease``: the lease
    stays, as the sign that this pass may have commented.
    """

    verdict: model.Verdict
    done: list[str] = dataclasses.field(default_factory=list)
    left: list[str] = dataclasses.field(default_factory=list)
    stopped: str = ""
    kept: str = ""
    closing: model.CloseDraft | None = None
    closed: bool = False
    undone: bool = False
    settled: bool = False
    claim_oid: str | None = None
    lease_ref: str = ""
    lease_oid: str | None = None
    keep_lease: bool = False
    tip: str | None = None
    effects: list[tuple[leases.Effect, str, dict[str, object]]] = dataclasses.field(default_factory=list)
    seqs: dict[tuple[str, int | None], int] = dataclasses.field(default_factory=dict)
    cancelled: list[int] = dataclasses.field(default_factory=list)

    @property
    def case(self) -> model.Case:
        """The session."""
        return self.verdict.case

    def stop(self, why: str) -> None:
        """Do nothing more to this session in this sweep."""
        self.stopped = self.stopped or why
        self.left.append(why)

    def keep(self, why: str) -> None:
        """Leave draft and branch to the person who acted."""
        self.kept = self.kept or why
        self.left.append(why)

    def did(self, effect: leases.Effect, result: str, text: str, **fields: object) -> None:
        """Note one effect for the ledger and for the report."""
        self.effects.append((effect, result, fields))
        self.done.append(text)

    def actions(self, kind: type[A]) -> list[A]:
        """Return the actions of one kind."""
        return [a for a in self.verdict.actions if isinstance(a, kind)]

    def next_seq(self) -> int:
        """Return the number of the next intent of the ledger."""
        known = [r.seq for r in self.case.ledger.records if isinstance(r, leases.Intent)] if self.case.ledger else []
        return max([*known, *self.seqs.values(), -1]) + 1


def said_already(detail: github.PullDetail, close: model.CloseDraft, case: model.Case, setting: model.Setting) -> bool:
    """Tell whether an earlier pass has already commented: klaud's newest word came after the session's end.

    Only GitHub's own times are compared. Where no time of the end is known, a dead pass's lease and klaud's comment as
    the newest act of klaud's count as that.
    """
    events = [e for e in detail.timeline.items if e.kind != "committed"]
    reopened = max((e.at for e in events if e.kind == "reopened"), default=None)
    mine = [e for e in events if decide_cases.is_klaud(e.actor, setting)]
    comments = [e for e in mine if e.kind == "commented" and (reopened is None or e.at > reopened)]
    if not comments:
        return False
    if close.ended_at is not None:
        return comments[-1].at > close.ended_at
    return case.lease is not None and mine[-1].kind == "commented"
