"""Carry out a plan over GitHub's API: cancel, comment, close, finish; every guard is checked again at the act.

The refs are written by ``settle_refs``. Order inside one session: lease and claim are taken first, in one push for all
sessions; then runs are cancelled, the comment written, the draft closed; then, together for all sessions, what was closed
is read again and reopened where a person acted in between; then branches, claims and leases go, again in one push. A
session that fails stops alone; a refused permission stops everything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klaud import errors, names
from klaud.github import model as github
from klaud.recovery import decide_cases, decide_plan, model, render, rules_touch
from klaud.recovery.hand import Hand, said_already
from klaud.session import render as session_render
from klaud.session import rules_ledger

if TYPE_CHECKING:
    import datetime
    from collections.abc import Callable, Iterable

    from klaud import clock as clocks
    from klaud.github import gateway as ports
    from klaud.recovery.observe import Observer

READ_SINGLY = 3
"""Runs to be cancelled that are read again by id; more are read in one listing."""

RESTORE_REQUESTS = 2
"""Requests to reopen one draft."""

REOPEN_TRIES = 2
"""Times a draft that a person acted on is reopened in one sweep: once more where the first is seen to have had no effect."""

CHECKED_TOGETHER = 40
"""Drafts that are read again in one request."""


class Actor:
    """Acts on GitHub's API for one sweep. ``red`` collects what a person must see; ``halted`` why nothing more is sent."""

    def __init__(
        self,
        *,
        gateway: ports.Gateway,
        observer: Observer,
        clock: clocks.Clock,
        setting: model.Setting,
        policy: model.Policy,
        finisher: model.Finisher,
    ) -> None:
        """Nothing is sent yet."""
        self._gateway = gateway
        self._observer = observer
        self._clock = clock
        self._setting = setting
        self._policy = policy
        self._finisher = finisher
        self.red: list[str] = []
        self.halted = ""
        self.zombies: set[int] = set()
        self._asked: dict[int, tuple[Hand, bool]] = {}
        self._fresh: dict[int, github.Run] = {}

    # -- the steps, in their order
    def cancel(self, hands: Iterable[Hand], since: datetime.datetime | None, *, leased: bool) -> None:
        """Cancel the orphans of sessions that need a lease for more (``leased``), or of those that need none.

        Each run is read again first: one by one where there are few, in one listing where there are many.
        """
        chosen = [h for h in hands if bool(h.actions(model.TakeOverLease)) is leased and not h.stopped]
        chosen = [h for h in chosen if h.actions(model.CancelRun)]
        if since is not None and sum(len(h.actions(model.CancelRun)) for h in chosen) > READ_SINGLY:
            try:
                self._fresh = {run.id: run for run in self._observer.listing(since).items}
            except errors.RetryLaterError:
                self._fresh = {}
            except errors.ForbiddenError as error:
                self._halt(error)
        for hand in chosen:
            self._guarded(hand, lambda hand=hand: self._cancel(hand))  # type: ignore[misc]
        self._fresh = {}

    def close(self, hands: Iterable[Hand]) -> None:
        """Comment and close, session by session, oldest draft first."""
        order = [h for h in hands if h.actions(model.CloseDraft) and not h.stopped]
        for hand in sorted(order, key=lambda h: (_close_of(h).created_at, h.case.key)):
            self._guarded(hand, lambda hand=hand: self._abandon(hand, _close_of(hand)))  # type: ignore[misc]

    def restore(self, hands: Iterable[Hand]) -> None:
        """Reopen what a pass closed that died before it could see that a person had acted."""
        for hand in hands:
            for action in hand.actions(model.ReopenDraft):
                if not hand.stopped and self._room(hand, RESTORE_REQUESTS):
                    self._guarded(hand, lambda hand=hand, action=action: self._restore(hand, action))  # type: ignore[misc]

    def _restore(self, hand: Hand, action: model.ReopenDraft) -> None:
        seen = self._details([action.number]).get(action.number)
        if not isinstance(seen, github.PullDetail) or seen.pull.open or seen.pull.head_oid != action.head:
            return
        if not self._closed_by_us(seen):
            hand.left.append(f"pull request {action.number} was closed by somebody else since")
            return
        try:
            self._gateway.reopen_pull(action.number)
        except errors.RefusedWriteError as error:
            self.red.append(f"pull request {action.number} must be reopened by hand ({error}): {action.why}")
            return
        hand.did("close-draft", "undone", f"reopened pull request {action.number}", number=action.number)

    def cards(self, hands: Iterable[Hand]) -> None:
        """Write the hand-over cards that are missing; their intents are in the ledgers by now."""
        for hand in hands:
            for action in hand.actions(model.WriteCard):
                if not hand.stopped:
                    self._guarded(hand, lambda hand=hand, action=action: self._card(hand, action))  # type: ignore[misc]

    def _card(self, hand: Hand, action: model.WriteCard) -> None:
        seen = self._details([action.number]).get(action.number)
        pull = seen.pull if isinstance(seen, github.PullDetail) else None
        if pull is None or not pull.open or names.HANDOFF_LABEL not in pull.labels or hand.case.ledger is None:
            hand.effects.append(("comment", "refused", {"number": action.number}))
            hand.left.append(f"no card: pull request {action.number} does not carry {names.HANDOFF_LABEL} any more")
            return
        view = rules_ledger.read(hand.case.ledger.records)
        try:
            self._gateway.comment(
                action.number, session_render.hand_over(view, head=pull.head_oid, label=names.HANDOFF_LABEL)
            )
        except errors.UnclearWriteError:
            hand.effects.append(("comment", "unclear", {"number": action.number}))
            hand.left.append(
                f"whether the card is on pull request {action.number} is not clear; it is not written twice"
            )
            return
        hand.did("comment", "done", f"wrote the hand-over card on pull request {action.number}", number=action.number)

    def finish(self, hands: Iterable[Hand]) -> None:
        """Let the session's own ``finish`` settle what has a result."""
        for hand in hands:
            for action in hand.actions(model.Finish):
                if not hand.stopped:
                    self._guarded(hand, lambda hand=hand, action=action: self._finish(hand, action))  # type: ignore[misc]

    def check_closed(self, hands: Iterable[Hand], index: decide_cases.Index) -> None:
        """Read what was closed again; where a person acted in between, reopen it in this same sweep."""
        begun = [h for h in hands if h.closing is not None and not h.undone and not h.kept]
        seen = self._details([h.closing.number for h in begun if h.closing is not None])
        for hand in begun:
            if hand.closing is not None:
                detail = seen.get(hand.closing.number)
                self._guarded(
                    hand,
                    lambda hand=hand, detail=detail: self._judge_closed(hand, _close_of(hand), detail, index),  # type: ignore[misc]
                )

    def see_through(self, since: datetime.datetime | None, hands: Iterable[Hand]) -> decide_cases.Index | None:
        """Wait for cancelled runs to end, force those that do not, and return klaud's runs as they are now."""
        begun = any(h.closing is not None for h in hands)
        if since is None or self.halted or not (self._asked or begun):
            return None
        if self._asked:
            self._clock.sleep(min(self._policy.poll_seconds, self._policy.cancel_seconds))
        try:
            rows = {run.id: run for run in self._observer.listing(since).items}
        except errors.RetryLaterError as error:
            for hand in (h for h in hands if h.closing is not None):
                self._unseen(hand, f"klaud's runs could not be read again after closing: {error}")
            rows = {}
        except errors.ForbiddenError as error:
            self._halt(error)
            return None
        self._verify(rows)
        return decide_cases.Index(rows, self._setting)

    def check_reruns(self, hands: Iterable[Hand], index: decide_cases.Index) -> None:
        """Reopen a draft of which a person has started a run again while it was being closed."""
        for hand in hands:
            if hand.closing is None or hand.kept or hand.stopped:
                continue
            person = next(
                (
                    run
                    for run in index.by_head.get(hand.closing.head, ())
                    if rules_touch.is_person(run.triggering_actor, self._setting)
                ),
                None,
            )
            if person is not None:
                by = rules_touch.who(person.triggering_actor)
                why = f"{by} started run {person.id} again while the draft was being closed"
                self._guarded(hand, lambda hand=hand, why=why: self._undo(hand, why))  # type: ignore[misc]

    # -- guards
    def _guarded(self, hand: Hand, act: Callable[[], None]) -> None:
        if self.halted:
            hand.stop(self.halted)
            return
        try:
            act()
        except errors.ForbiddenError as error:
            self._halt(error)
            hand.stop(str(error))
        except errors.OwnershipLostError as error:
            hand.stop(f"ownership lost: {error}")
        except (errors.RetryLaterError, errors.RefusedWriteError) as error:
            hand.stop(str(error))

    def _halt(self, error: errors.ForbiddenError) -> None:
        self.halted = f"not permitted: {error}"
        self.red.append(self.halted)

    def _room(self, hand: Hand, need: int) -> bool:
        remaining = self._gateway.rate_limit.remaining
        if remaining is None or remaining - need >= self._policy.reserve:
            return True
        hand.stop(f"the rate limit has {remaining} requests left, {self._policy.reserve} are kept for others")
        return False

    # -- cancel
    def _cancel(self, hand: Hand) -> None:
        for action in hand.actions(model.CancelRun):
            if not self._room(hand, decide_plan.CANCEL_REQUESTS):
                return
            run = self._fresh.get(action.run_id) or self._gateway.run(action.run_id)
            if isinstance(run, github.Missing):
                hand.left.append(f"run {action.run_id} answers 404 now")
                continue
            if run.status == "completed":
                hand.done.append(f"run {run.id} was over by itself: {run.conclusion}")
                continue
            if rules_touch.is_person(run.triggering_actor, self._setting):
                hand.left.append(f"run {run.id} was started again by {rules_touch.who(run.triggering_actor)}")
                continue
            try:
                answer = self._gateway.cancel_run(run.id)
            except errors.UnclearWriteError:
                answer = "accepted"
            except errors.RefusedWriteError:
                self._force(hand, run.id)
                continue
            if answer == "accepted":
                self._asked[run.id] = (hand, False)
            hand.cancelled.append(run.id)

    def _force(self, hand: Hand, run_id: int) -> None:
        try:
            answer = self._gateway.cancel_run(run_id, force=True)
        except errors.UnclearWriteError:
            answer = "accepted"
        except errors.RefusedWriteError as error:
            self._entomb(hand, run_id, f"cancel and force-cancel are refused ({error.status})")
            return
        if answer == "accepted":
            self._asked[run_id] = (hand, True)
        if run_id not in hand.cancelled:
            hand.cancelled.append(run_id)

    def _entomb(self, hand: Hand, run_id: int, why: str) -> None:
        self.zombies.add(run_id)
        self._asked.pop(run_id, None)
        if run_id in hand.cancelled:
            hand.cancelled.remove(run_id)
        hand.left.append(f"run {run_id} is a zombie: {why}")

    def _verify(self, rows: dict[int, github.Run]) -> None:
        """See every cancelled run end: first as listed, then by id, then by force; what never ends is a zombie."""
        for run_id in [i for i in self._asked if i in rows and rows[i].status == "completed"]:
            self._over(run_id)
        for force, seconds in ((False, self._policy.cancel_seconds), (True, self._policy.force_seconds)):
            self._wait_for({i for i, (_, forced) in self._asked.items() if forced == force}, seconds)
            for run_id, (hand, forced) in list(self._asked.items()):
                if forced != force or self.halted:
                    continue
                if force:
                    self._entomb(hand, run_id, "cancel and force-cancel are accepted and nothing happens")
                else:
                    self._guarded(hand, lambda hand=hand, run_id=run_id: self._force(hand, run_id))  # type: ignore[misc]

    def _wait_for(self, run_ids: set[int], seconds: float) -> None:
        end = self._clock.monotonic() + seconds
        while run_ids and not self.halted:
            for run_id in sorted(run_ids):
                try:
                    run = self._gateway.run(run_id)
                except (errors.RetryLaterError, errors.ForbiddenError):
                    continue
                if isinstance(run, github.Run) and run.status == "completed":
                    self._over(run_id)
                    run_ids.discard(run_id)
            if not run_ids or self._clock.monotonic() >= end:
                return
            self._clock.sleep(self._policy.poll_seconds)

    def _over(self, run_id: int) -> None:
        hand, _ = self._asked.pop(run_id)
        hand.did("cancel-run", "done", f"cancelled run {run_id}", run_id=run_id)

    # -- close
    def _abandon(self, hand: Hand, close: model.CloseDraft) -> None:
        if not self._room(hand, decide_plan.CLOSE_REQUESTS):
            return
        detail = self._details([close.number]).get(close.number)
        why = self.objection(detail, close, hand.case)
        if why or not isinstance(detail, github.PullDetail):
            hand.stop(f"left alone at the last look: {why}")
            return
        hand.closing = close
        archive = next((a.archive for a in hand.actions(model.DeleteRef) if a.archive), "")
        if not said_already(detail, close, hand.case, self._setting) and not self._say(hand, close, archive, detail):
            return
        try:
            self._gateway.close_pull(close.number)
        except errors.UnclearWriteError:
            return
        hand.closed = True

    def _say(self, hand: Hand, close: model.CloseDraft, archive: str, before: github.PullDetail) -> bool:
        body = render.abandoned(close, hand.case.key, hand.cancelled, archive)
        try:
            self._gateway.comment(close.number, body)
        except errors.UnclearWriteError:
            self._clock.sleep(self._policy.own_write_seconds)
            after = self._details([close.number]).get(close.number)
            if not isinstance(after, github.PullDetail) or self._words(after) <= self._words(before):
                hand.closing = None
                hand.keep_lease = True
                hand.stop("the comment got no clear answer and is not to be seen: left for the next sweep")
                return False
        hand.did("comment", "done", f"commented on pull request {close.number}", number=close.number)
        return True

    def _words(self, detail: github.PullDetail) -> int:
        """Count klaud's own comments."""
        events = detail.timeline.items
        return sum(e.kind == "commented" and decide_cases.is_klaud(e.actor, self._setting) for e in events)

    def objection(
        self, detail: model.PullSeen | None, close: model.CloseDraft, case: model.Case, runs: Iterable[github.Run] = ()
    ) -> str:
        """Return why a draft may not be closed as it was just read, empty where nothing speaks against it."""
        if not isinstance(detail, github.PullDetail):
            return detail.why if isinstance(detail, model.Unread) else "it answers 404"
        pull = detail.pull
        if not pull.open:
            return "it is closed already"
        return self._theirs(detail, close, case, runs) or ("" if pull.draft else "it is no draft any more")

    def _theirs(
        self, detail: github.PullDetail, close: model.CloseDraft, case: model.Case, runs: Iterable[github.Run]
    ) -> str:
        if detail.pull.head_oid != close.head:
            return f"its head is {detail.pull.head_oid[:12]} now"
        if names.HANDOFF_LABEL in detail.pull.labels:
            return f"it carries {names.HANDOFF_LABEL}"
        touch = next(rules_touch.touches(detail, case, runs, self._setting), None)
        return f"{touch.who} {touch.what}" if touch else ""

    def _judge_closed(
        self,
        hand: Hand,
        close: model.CloseDraft,
        detail: model.PullSeen | None,
        index: decide_cases.Index,
        *,
        again: bool = False,
    ) -> None:
        if not isinstance(detail, github.PullDetail):
            self._unseen(hand, f"pull request {close.number} could not be read after closing it")
            return
        if detail.pull.open and not again:  # reopened by somebody, or the answer is older than our closing
            self._clock.sleep(self._policy.own_write_seconds)
            seen = self._details([close.number]).get(close.number)
            self._judge_closed(hand, close, seen, index, again=True)
            return
        runs = rules_touch.runs_about(detail, hand.case, index)
        why = self._theirs(detail, close, hand.case, runs)
        if why:
            self._undo(hand, why, detail)
        elif detail.pull.open:
            hand.closed = False
            self._unseen(hand, f"closing pull request {close.number} has had no effect so far")
        else:
            hand.closed = True
            hand.did("close-draft", "done", f"closed pull request {close.number}", number=close.number)

    @staticmethod
    def _unseen(hand: Hand, why: str) -> None:
        """Stop where nobody saw what came of a closing: the lease stays, and tells the next sweep to look and reopen."""
        hand.keep_lease = True
        hand.stop(why)

    def _undo(self, hand: Hand, why: str, detail: github.PullDetail | None = None) -> None:
        close = _close_of(hand)
        hand.keep(f"a person acted while it was being closed: {why}")
        if detail is not None and detail.pull.open:
            return
        if detail is not None and not self._closed_by_us(detail):
            return
        try:
            if not self._reopened(close.number):
                hand.keep_lease = True  # the next sweep looks again, and reopens
                self.red.append(f"pull request {close.number} is not seen to be open again: {why}")
                return
        except errors.RefusedWriteError as error:
            self.red.append(f"pull request {close.number} must be reopened by hand ({error}): {why}")
            return
        hand.undone = True
        hand.closed = False
        hand.did("close-draft", "undone", f"reopened pull request {close.number}", number=close.number)

    def _reopened(self, number: int) -> bool:
        """Reopen a pull request; an unclear answer is read back, and asked for once more where it is seen closed."""
        for _ in range(REOPEN_TRIES):
            try:
                self._gateway.reopen_pull(number)
            except errors.UnclearWriteError:
                self._clock.sleep(self._policy.own_write_seconds)
                seen = self._details([number]).get(number)
                if not isinstance(seen, github.PullDetail):
                    return False
                if seen.pull.open:
                    return True
            else:
                return True
        return False

    def _closed_by_us(self, detail: github.PullDetail) -> bool:
        closed = [e for e in detail.timeline.items if e.kind == "closed"]
        return bool(closed) and decide_cases.is_klaud(closed[-1].actor, self._setting)

    def reopen(self, hand: Hand, why: str, detail: github.PullDetail) -> None:
        """Reopen a draft whose branch was just restored."""
        self._guarded(hand, lambda: self._undo(hand, why, detail))

    def read_closed(self, hands: Iterable[Hand]) -> dict[int, model.PullSeen]:
        """Read the drafts that were closed once more, after their branches are gone."""
        return self._details([h.closing.number for h in hands if h.closing is not None])

    # -- finish
    def _finish(self, hand: Hand, action: model.Finish) -> None:
        if not self._room(hand, decide_plan.FINISH_REQUESTS):
            return
        if action.number is not None:
            seen = self._details([action.number]).get(action.number)
            touch = (
                next(rules_touch.touches(seen, hand.case, (), self._setting), None)
                if isinstance(seen, github.PullDetail) and seen.pull.open
                else None
            )
            if touch is not None or isinstance(seen, model.Unread):
                hand.stop(
                    f"left alone at the last look: {f'{touch.who} {touch.what}' if touch else 'it could not be read'}"
                )
                return
        settled = self._finisher.settle(action.wave, action.candidate, as_=action.as_, why=action.why)
        hand.done.extend(settled.done)
        hand.left.extend(settled.left)
        if settled.left:
            hand.stop(f"finish left: {'; '.join(settled.left)}")
        hand.settled = not settled.left

    def _details(self, numbers: list[int]) -> dict[int, model.PullSeen]:
        found: dict[int, model.PullSeen] = {}
        for start in range(0, len(numbers), CHECKED_TOGETHER):
            found.update(self._observer.details(numbers[start : start + CHECKED_TOGETHER]))
        if self._observer.forbidden and not self.halted:
            self._halt(errors.ForbiddenError(self._observer.forbidden[-1]))
        return found


def _close_of(hand: Hand) -> model.CloseDraft:
    return hand.actions(model.CloseDraft)[0]
