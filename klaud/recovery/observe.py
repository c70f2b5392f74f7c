"""Read the world into a ``Sight``, first the cheap whole, then what the rules ask for.

Requests of a first look: our own run by id; klaud's own runs of the last weeks in one listing (a run cannot move between
listings then); the runs of our own workflow; the pull requests of klaud's branches, batched. A failed read becomes a value
in the sight. Only a refused permission is remembered apart, since it stops the sweep and must be named.
"""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, TypeVar

import msgspec

from klaud import errors
from klaud.github import model as github
from klaud.recovery import decide_cases, decide_plan, model

if TYPE_CHECKING:
    from collections.abc import Callable

    from klaud import clock as clocks
    from klaud.github import gateway as ports
    from klaud.leases import model as leases

T = TypeVar("T")


class Observer:
    """Reads for one sweep. ``forbidden`` collects the permissions that the token turned out to lack."""

    def __init__(
        self,
        *,
        gateway: ports.Gateway,
        clock: clocks.Clock,
        setting: model.Setting,
        policy: model.Policy,
        finisher: model.Finisher,
    ) -> None:
        """Nothing is read yet."""
        self._gateway = gateway
        self._clock = clock
        self._setting = setting
        self._policy = policy
        self._finisher = finisher
        self.forbidden: list[str] = []

    def own_run(self, me: leases.Holder | None) -> model.RunSeen | None:
        """Read the sweep's own run: the yardstick for every other; None outside of Actions."""
        if me is None:
            return None
        return self._try(f"our own run {me.run_id}", lambda: self._gateway.run(me.run_id))

    def first(self, me: leases.Holder | None, own: model.RunSeen | None, snapshot: leases.Snapshot) -> model.Sight:
        """Read what every sweep reads."""
        now = own.created_at if isinstance(own, github.Run) else self._clock.now()
        since = (now - datetime.timedelta(days=self._policy.listing_days)).replace(microsecond=0)
        created = f">={since.strftime('%Y-%m-%dT%H:%M:%SZ')}"
        planners: github.Listing[github.Run] | model.Unread | None = None
        if isinstance(own, github.Run):
            workflow = decide_cases.workflow_of(own)
            planners = self._try(f"runs of {workflow}", lambda: self._gateway.runs(workflow=workflow, created=created))
        listing = self._try("klaud's runs", lambda: self.listing(since))
        return model.Sight(
            now=self._clock.now(),
            me=me,
            own=own,
            snapshot=snapshot,
            heads=self._heads(decide_plan.heads_wanted(snapshot)),
            listing=listing,
            planners=planners,
            listing_since=since,
        )

    def listing(self, since: datetime.datetime) -> github.Listing[github.Run]:
        """List klaud's own runs since then; a manual re-run keeps its actor, so it is among them."""
        created = f">={since.strftime('%Y-%m-%dT%H:%M:%SZ')}"
        return self._gateway.runs(actor=self._setting.login, created=created)

    def more(self, sight: model.Sight, wanted: model.Wanted) -> model.Sight:
        """Read what the rules asked for; what fails is a value and is not asked for again."""
        runs = {i: self._try(f"run {i}", lambda i=i: self._gateway.run(i)) for i in sorted(wanted.runs)}  # type: ignore[misc]
        jobs = {i: self._try(f"jobs of run {i}", lambda i=i: self._gateway.jobs(i)) for i in sorted(wanted.jobs)}  # type: ignore[misc]
        heads = {
            h: self._try(f"runs at {h[:12]}", lambda h=h: self._gateway.runs(head_sha=h))  # type: ignore[misc]
            for h in sorted(wanted.head_runs)
        }
        evidence = {final.run_id: self._evidence(final) for final in wanted.evidence}
        return msgspec.structs.replace(
            sight,
            runs={**sight.runs, **runs},
            jobs={**sight.jobs, **jobs},
            head_runs={**sight.head_runs, **heads},
            numbered={**sight.numbered, **self.details(sorted(wanted.numbers))},
            evidence={**sight.evidence, **evidence},
        )

    def details(self, numbers: list[int]) -> dict[int, model.PullSeen]:
        """Read pull requests by number, in one batch."""
        if not numbers:
            return {}
        seen = self._try("pull requests by number", lambda: self._gateway.pull_details(numbers))
        if isinstance(seen, model.Unread):
            return dict.fromkeys(numbers, seen)
        return dict(seen)

    def _heads(self, heads: tuple[str, ...]) -> dict[str, github.Listing[github.PullDetail] | model.Unread]:
        if not heads:
            return {}
        seen = self._try("pull requests of klaud's branches", lambda: self._gateway.pulls_of_heads(heads))
        if isinstance(seen, model.Unread):
            return dict.fromkeys(heads, seen)
        return dict(seen)

    def _evidence(self, final: model.FinalRun) -> model.Evidence:
        try:
            return self._finisher.evidence(final)
        except errors.RetryLaterError as error:
            return model.Evidence(verdict="unreadable", why=str(error))

    def _try(self, what: str, read: Callable[[], T]) -> T | model.Unread:
        try:
            return read()
        except errors.ForbiddenError as error:
            self.forbidden.append(str(error))
            return model.Unread(what, str(error))
        except errors.RetryLaterError as error:
            return model.Unread(what, str(error))
