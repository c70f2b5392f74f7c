"""The session's own ``finish``, as recovery calls it: evidence and settlement of a session that recovery has proven over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from klaud.github import model as github
from klaud.leases import model as leases
from klaud.recovery import decide_cases, model
from klaud.session import decide_outcome, finish, ledger, rules_coverage

if TYPE_CHECKING:
    from collections.abc import Callable

    from klaud.leases import store as stores

Found: TypeAlias = "tuple[finish.World, leases.Ledger, leases.Held | None]"


class SessionFinisher:
    """Finds the session's records afresh at each call; ``world_for`` builds what settling that session needs.

    ``world_for`` answers None where the configuration no longer has the session's benchmark.
    """

    def __init__(
        self, *, store: stores.LeaseStore, world_for: Callable[[leases.SessionStarted], finish.World | None]
    ) -> None:
        """``store`` reads the session's records; for ``world_for`` see above."""
        self._store = store
        self._world_for = world_for

    def evidence(self, final: model.FinalRun) -> model.Evidence:
        """Compare the final run's results with the frozen baseline: verified, unreadable, lost or wrong."""
        found = self._find(final.wave, final.candidate)
        if isinstance(found, str):
            return model.Evidence(verdict="unreadable", why=found)
        world, records, _ = found
        started = decide_cases.started(records)
        run = world.gateway.run(final.run_id)
        if not isinstance(run, github.Run):
            return model.Evidence(verdict="unreadable", why=f"run {final.run_id} is gone")
        answer = finish.proof(world, run, started.bundle if started else "")
        match answer:
            case rules_coverage.Verified():
                return model.Evidence(verdict="verified")
            case rules_coverage.Unreadable(code=code, why=why):
                return model.Evidence(verdict="lost" if code == "expired" else "unreadable", why=why)
            case rules_coverage.Wrong(code=code):
                return model.Evidence(verdict="wrong", why=code)

    def settle(
        self, wave: str, candidate: str, *, as_: Literal["recorded", "validated", "failed"], why: str
    ) -> model.Settled:
        """Let ``finish`` settle the session from the facts; what it cannot decide yet is left, in its words."""
        del as_, why
        found = self._find(wave, candidate)
        if isinstance(found, str):
            return model.Settled(left=(found,))
        world, records, claim = found
        if claim is None:
            return model.Settled(left=("no claim of this session is left to settle it under",))
        book = ledger.Book(store=world.store, refs=world.refs, clock=world.clock, ledger=records, claim=claim)
        answer = finish.settle(world, book)
        if isinstance(answer, decide_outcome.NotYet):
            return model.Settled(left=(f"not yet: {answer.why}",))
        done = (f"settled as {answer.outcome.outcome}",)
        return model.Settled(done=done, left=answer.left, closed="close-draft" in answer.outcome.pending)

    def _find(self, wave: str, candidate: str) -> Found | str:
        """Return what settling needs, or why it cannot be had, in words."""
        snapshot = self._store.snapshot()
        key = f"{wave}-{candidate}"
        records = next((x for ref, x in snapshot.ledgers.items() if ref.rpartition("/")[2] == key), None)
        started = decide_cases.started(records) if isinstance(records, leases.Ledger) else None
        if not isinstance(records, leases.Ledger) or started is None:
            return f"session {key} has no ledger that can be read"
        world = self._world_for(started)
        if world is None:
            return f"no benchmark of the configuration has the family {started.family}"
        claims = (c for c in snapshot.claims.values() if isinstance(c, leases.Held))
        mine = (c for c in claims if isinstance(c.record, leases.Claim) and _key(c.record) == key)
        return world, records, next(mine, None)


def _key(claim: leases.Claim) -> str:
    return f"{claim.wave}-{claim.candidate}"
