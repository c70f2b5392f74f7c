"""The HTTP control plane: heartbeats, turns and records over JSON, each bounded, none of them able to hold a session up.

A beat asks the git control plane first (the claim, the label and the pause switch are GitHub's whatever else listens) and
then sends its heartbeat; either may interrupt. What the beat learns, the stream's id, is read when a turn is appended.

A request runs in a thread of its own and is given up at its bound: a server that answers a byte at a time costs that thread.
One heartbeat is in the air at a time: while an earlier one has no end, no other is sent. A release is not sent either where
the newest beat got no clear answer: that beat may still be carried out, and a late "running" must not land after a release.
A 4xx other than 409 and 429 is not tried again; it is logged once for each route and status, as an error, and counted: a
silent drop is how a refusal stays unseen for days. What does not arrive is written to a file and counted, never lost in
silence. Addresses and the token are in no log.
"""

from __future__ import annotations

import collections
import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from klaud import errors, feeds
from klaud.session import rules_control as rules
from klaud.session.journal import LOG

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from klaud import clock as clocks
    from klaud.session import heartbeat

TOKEN_VARIABLE = "KLAUD_CONTROL_TOKEN"  # noqa: S105 - the name of a variable
"""The environment variable whose value the control plane gets as a bearer token."""

REQUEST_SECONDS = 5.0
"""One request: a heartbeat that takes longer is of no use, and a release may wait no longer."""
TRIES = 3
"""Requests for one batch of records."""
FIRST_WAIT = 0.25
"""Seconds before the second try of a batch, doubled for the third."""
DRAIN_SECONDS = 20.0
"""All of sending what is left at the end of a turn: the job has other things to do then."""
RECORDS = 10_000
"""Records that wait to be sent: as many as there are milestones of one session."""

Sent = Literal["taken", "duplicate", "refused", "later"]


class HttpControl:
    """``heartbeat.Control`` over HTTP, around another one. Safe to use from several threads."""

    def __init__(
        self,
        url: str,
        who: rules.Who,
        *,
        inner: heartbeat.Control,
        token: str,
        clock: clocks.Clock,
        spill: Path | None,
        refreshed: Callable[[], int],
    ) -> None:
        """``spill``: the file for what does not arrive (None: counted only). ``refreshed`` reads the turn counter anew."""
        self._url = url.rstrip("/")
        self._who = who
        self._inner = inner
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._web = feeds.Web(clock=clock)
        self._spill = spill
        self._refreshed = refreshed
        self._lock = threading.Lock()
        self._records: collections.deque[dict[str, Any]] = collections.deque()
        self._said: set[tuple[str, int]] = set()
        self._refused = 0
        self._spilled = {"turn": 0, "record": 0}
        self._air: threading.Thread | None = None  # the newest heartbeat, where it got no clear answer
        self.stream_id: str | None = None
        """The stream's id, as the newest answer named it."""

    @property
    def trouble(self) -> rules.Trouble:
        """What did not arrive so far."""
        with self._lock:
            return rules.Trouble(
                refused=self._refused, spilled_turns=self._spilled["turn"], spilled_records=self._spilled["record"]
            )

    # -- beats

    def beat(self, *, running: bool) -> heartbeat.Why:
        """Ask the inner control plane, send the heartbeat, and return why the session must stop."""
        fault: errors.KlaudError | None = None
        why: heartbeat.Why = ""
        try:
            why = self._inner.beat(running=running)
        except errors.KlaudError as error:
            fault = error  # the heartbeat is sent all the same
        answer = self._heartbeat(running=running)
        if answer is None:
            message = "the control plane gave no clear answer"
            raise errors.ReadFailedError(message)
        if answer.status in {401, 403}:
            message = f"the control plane refuses the credential (status {answer.status})"
            raise errors.ForbiddenError(message)
        if answer.good:
            beat = rules.read_beat(answer.value)
            if beat.stream_id is not None:
                self.stream_id = beat.stream_id
            if not why and not beat.current:
                return "cancelled"
        if fault is not None and not why:
            raise fault
        return why

    def _heartbeat(self, *, running: bool) -> feeds.Posted | None:
        if self._air is not None and (self._air.is_alive() or not running):
            return None
        self._air = None
        return self._post(rules.HEARTBEAT, rules.beat_body(self._who, running=running), REQUEST_SECONDS)

    # -- turns

    def turn(self, turn: rules.Turn) -> Literal["taken", "spilled"]:
        """Append one completed turn: a duplicate refreshes the counter and is sent once more; without a stream it spills."""
        for again in (False, True):
            stream = self.stream_id
            if stream is None:
                break
            answer = self._post(rules.TURNS, rules.turn_body(self._who, turn, stream), REQUEST_SECONDS)
            sent = self._judge(answer)
            if sent == "taken":
                return "taken"
            if sent != "duplicate" or again:
                break
            turn = msgspec.structs.replace(turn, index=max(self._refreshed(), turn.index + 1))
        self._keep("turn", [rules.turn_body(self._who, turn, self.stream_id or "")])
        return "spilled"

    # -- records

    def hear(self, value: dict[str, Any]) -> None:
        """Take one record, to be sent later; beyond the limit the oldest is spilled."""
        oldest = None
        with self._lock:
            self._records.append(rules.record_of(self._who, value))
            if len(self._records) > RECORDS:
                oldest = self._records.popleft()
        if oldest is not None:
            self._keep("record", [oldest])

    def drain(self, seconds: float = DRAIN_SECONDS) -> None:
        """Send what waits, each batch at most three times, all within ``seconds``; the rest is counted and spilled."""
        deadline = time.monotonic() + seconds
        with self._lock:
            waiting = list(self._records)
            self._records.clear()
        for batch in rules.batches(waiting):
            if not self._ingest(batch, deadline):
                self._keep("record", batch)

    def _ingest(self, batch: list[dict[str, Any]], deadline: float) -> bool:
        body = {"session_id": self._who.session_id, "stream_id": self.stream_id, "records": batch}
        wait = FIRST_WAIT
        for again in range(TRIES):
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            sent = self._judge(self._post(rules.INGEST, body, min(REQUEST_SECONDS, left)))
            if sent != "later":
                return sent != "refused"  # a duplicate is there already
            if again + 1 < TRIES:
                time.sleep(max(0.0, min(wait, deadline - time.monotonic())))  # back off
                wait *= 2
        return False

    # -- one request

    @staticmethod
    def _judge(answer: feeds.Posted | None) -> Sent:
        if answer is None or answer.status == 429:
            return "later"
        if answer.good:
            return "taken"
        return "duplicate" if answer.status == 409 else "refused"

    def _post(self, route: str, body: dict[str, Any], seconds: float) -> feeds.Posted | None:
        """Send once, within ``seconds``; None where there was no clear answer by then."""
        answers: list[feeds.Posted] = []

        def send() -> None:
            with contextlib.suppress(errors.KlaudError):
                answers.append(
                    feeds.post_json(
                        f"{self._url}/{route}", body, name="the control plane", idle_seconds=max(1, round(seconds)),
                        headers=self._headers, web=self._web,
                    )
                )  # fmt: skip

        thread = threading.Thread(target=send, name="klaud-control", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the machine has no thread left
            return None
        thread.join(seconds)
        answer = answers[0] if answers else None
        if answer is None and route == rules.HEARTBEAT:
            self._air = thread
        if answer is not None and 400 <= answer.status < 500 and answer.status not in {409, 429}:
            self._count_refusal(route, answer.status)
        return answer

    def _count_refusal(self, route: str, status: int) -> None:
        with self._lock:
            self._refused += 1
            first = (route, status) not in self._said
            self._said.add((route, status))
        if first:
            LOG.error("control plane: POST %s is refused with status %d; it is not tried again", route, status)

    def _keep(self, kind: Literal["turn", "record"], values: list[dict[str, Any]]) -> None:
        """Write what did not arrive to the file, and count it."""
        with self._lock:
            self._spilled[kind] += len(values)
            if self._spill is None:
                return
            with contextlib.suppress(OSError), self._spill.open("ab") as file:
                file.writelines(msgspec.json.encode({"kind": kind, **value}) + b"\n" for value in values)
