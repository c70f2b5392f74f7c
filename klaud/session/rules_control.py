"""What is said to an HTTP control plane and what its answers mean. Pure.

Formats are kept here, before anything is sent: a session id matches ``[A-Za-z0-9_-]{1,128}`` in full, a span id is 16 hex
digits, a trace id 32. An answer interrupts only where it says exactly ``is_current_turn: false``: not 0, not "false", not a
missing field, not a page of HTML.
"""

from __future__ import annotations

import datetime
import re
from typing import TYPE_CHECKING, Any

import msgspec

from klaud import errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SESSION_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")
SPAN_ID = re.compile(r"[0-9a-f]{16}")
TRACE_ID = re.compile(r"[0-9a-f]{32}")

HEARTBEAT = "sessions/streams/heartbeat"
TURNS = "sessions/turns/"
INGEST = "sessions/records/ingest"

STREAM_CHARACTERS = 256
"""A stream's id: longer than any that such a service makes."""
BATCH_RECORDS = 100
"""Records in one request: some ten kilobytes."""


class Who(msgspec.Struct, frozen=True, kw_only=True):
    """Who speaks: the session, the process, and the turn. ``kind``: how the agent is driven."""

    session_id: str
    replica_id: str
    turn_id: str
    trace_id: str
    span_id: str
    kind: str

    def __post_init__(self) -> None:
        """Refuse what the service would refuse: BugError names the field."""
        checks = (
            ("session_id", SESSION_ID, self.session_id), ("replica_id", SESSION_ID, self.replica_id),
            ("turn_id", SESSION_ID, self.turn_id), ("trace_id", TRACE_ID, self.trace_id),
            ("span_id", SPAN_ID, self.span_id),
        )  # fmt: skip
        for name, pattern, value in checks:
            if not pattern.fullmatch(value):
                message = f"{name} {value!r} is not of the form {pattern.pattern}"
                raise errors.BugError(message)


def session_id(wave: str, candidate: str) -> str:
    """Return the id under which an external control plane knows a session (a wave's dot becomes an underscore)."""
    return f"{wave.replace('.', '_')}-{candidate}"


class Beat(msgspec.Struct, frozen=True):
    """What a heartbeat's answer says. ``stream_id``: None where it names none."""

    stream_id: str | None
    current: bool


def read_beat(value: Any) -> Beat:
    """Return what an answer says; whatever is not as it should be says nothing."""
    if not isinstance(value, dict):
        return Beat(None, current=True)
    stream = value.get("stream")
    found = stream.get("id") if isinstance(stream, dict) else None
    if isinstance(found, int) and not isinstance(found, bool):
        found = str(found)
    stream_id = found if isinstance(found, str) and 0 < len(found) <= STREAM_CHARACTERS else None
    return Beat(stream_id, current=value.get("is_current_turn") is not False)


def beat_body(who: Who, *, running: bool) -> dict[str, Any]:
    """Return a heartbeat's body."""
    return {
        "session_id": who.session_id, "replica_id": who.replica_id, "turn_id": who.turn_id, "is_running": running,
    }  # fmt: skip


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One completed turn, as it is appended. Times are in UTC."""

    index: int
    start: datetime.datetime
    end: datetime.datetime
    agent_session: str = ""
    sandbox: str = ""
    references: tuple[str, ...] = ()


def turn_body(who: Who, turn: Turn, stream_id: str) -> dict[str, Any]:
    """Return a turn's body; the agent's own session id is optional in it."""
    body: dict[str, Any] = {
        "session_id": who.session_id, "stream_id": stream_id, "turn_index": turn.index, "harness_kind": who.kind,
        "references": list(turn.references), "trace_id": who.trace_id, "span_id": who.span_id,
        "start_time": turn.start.isoformat(), "end_time": turn.end.isoformat(),
    }  # fmt: skip
    if turn.agent_session:
        body["agent_session_id"] = turn.agent_session
    if turn.sandbox:
        body["sandbox_id"] = turn.sandbox
    return body


def record_of(who: Who, value: dict[str, Any]) -> dict[str, Any]:
    """Return one record as it is ingested: it carries its turn and its span."""
    return {**value, "turn_id": who.turn_id, "span_id": who.span_id}


def batches(records: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Cut records into requests, in order."""
    batch: list[dict[str, Any]] = []
    for record in records:
        batch.append(record)
        if len(batch) == BATCH_RECORDS:
            yield batch
            batch = []
    if batch:
        yield batch


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """What did not arrive at the control plane, in numbers: for the outcome's diagnostics.

    ``refused``: requests answered with a 4xx that is neither 409 nor 429. ``spilled_turns`` and ``spilled_records`` went to
    a file instead. ``unheard``: the credential was refused three times in a row.
    """

    refused: int = 0
    spilled_turns: int = 0
    spilled_records: int = 0
    unheard: bool = False
