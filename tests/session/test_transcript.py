"""The agent's own memory: kept whole and redacted in a private repository, or not at all; and brought back from one run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from klaud.github import model as hub
from klaud.leases import model as leases
from klaud.session import frameworks, model, rules_redact, transcript
from tests.support import memory_gateway, memory_world, session_bench
from tests.support.session_records import AT, HOLDER, started

SECRET = "t-canary-0123456789"
SESSION = "5c219ed0-0000-4000-8000-000000000001"
PACKED = SESSION.replace("-", "")
LINE = json.dumps({"type": "user", "sessionId": SESSION, "text": "hello"}).encode() + b"\n"


class Place:
    """A work tree whose agent left a transcript."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self.tree = Path("/srv/klaud-session-1/agent/tree")
        self.asked: list[str] = []

    def read_home(self, name: str, limit: int) -> bytes | None:
        self.asked.append(name)
        return None if len(self.raw) > limit else self.raw


class Kept:
    """A keeper over a world."""

    def __init__(self, place: Path, *, private: bool = True, limit: int = 10_000) -> None:
        self.folder = place
        self.world = memory_world.World()
        self.world.repository = msgspec.structs.replace(self.world.repository, private=private)
        self.log: list[str] = []
        policy = model.Policy(transcripts="artifact", transcript_bytes=limit)
        self.keeper = transcript.Keeper(
            memory_gateway.gateway(self.world), policy, rules_redact.Redactor([SECRET]), place, self.log.append
        )

    def keep(self, raw: bytes, session: str = SESSION) -> bytes | None:
        place: Any = Place(raw)
        kept = self.keeper.keep(place, session, "c")
        file = self.folder / "transcript-c.jsonl"
        assert file.exists() is kept
        assert kept or self.log[-1].startswith("transcript: not kept: ")
        return file.read_bytes() if kept else None

    def bring(self, packed: bytes, *, name: str = "klaud-session-1", run_id: int = 7, **fields: Any) -> bytes | None:
        one = hub.Artifact(id=5, name=name, size=len(packed), expired=fields.get("expired", False))
        self.world.state.artifacts[run_id] = (one,)
        self.world.state.blobs[5] = packed
        self.world.state.runs[7] = self.world.state.runs.get(7) or self.run()
        return self.keeper.bring(LEDGER, "c", SESSION)

    def run(self) -> hub.Run:
        number = self.world.add_run(
            "klaud-candidate.yml", actor=self.world.bot, status="completed", conclusion="success"
        )
        return msgspec.structs.replace(self.world.state.runs[number], id=7)


RECORDS: tuple[leases.LedgerRecord, ...] = (
    started(),
    leases.TurnEnded(at=AT, index=0, status="completed", agent_session=PACKED),
    leases.Continued(at=AT, holder=msgspec.structs.replace(HOLDER, run_id=8), wave="7.1"),
    leases.Continued(at=AT, holder=msgspec.structs.replace(HOLDER, run_id=9), wave="7.1"),
)
LEDGER = leases.Ledger("refs/klaud/sessions/x", "0" * 40, RECORDS)


def test_it_is_kept_without_secrets(tmp_path: Path) -> None:
    told = json.dumps({"sessionId": SESSION, "text": f"the key is {SECRET}", "hex": SECRET.encode().hex()}).encode()
    kept = Kept(tmp_path).keep(LINE + told + b"\n")
    assert kept is not None
    assert kept.startswith(LINE)
    assert SECRET.encode() not in kept
    assert SECRET.encode().hex().encode() not in kept
    assert [json.loads(line)["sessionId"] for line in kept.splitlines()] == [SESSION, SESSION]


@pytest.mark.parametrize(
    ("raw", "session", "why"),
    [
        (b"", SESSION, "left none"),
        (LINE * 1000, SESSION, "more than 10000 bytes"),
        (LINE, "../../../etc/passwd", "no session id"),
        (LINE, "", "no session id"),
        (LINE + b"\xff\n", SESSION, "could not be redacted"),
        (LINE + b"[1]\n", SESSION, "could not be redacted"),
        (LINE + LINE[:20], SESSION, "could not be redacted"),
        (LINE + b'{"a": "' + "\u00b7".join(SECRET).encode() + b'"}\n', SESSION, "could not be redacted"),
        (b"\n\n", SESSION, "could not be redacted"),
    ],
)
def test_one_with_a_hole_is_none(tmp_path: Path, raw: bytes, session: str, why: str) -> None:
    one = Kept(tmp_path)
    assert one.keep(raw, session) is None
    assert why in one.log[-1]


def test_a_public_repository_keeps_none_and_an_unknown_one_neither(tmp_path: Path) -> None:
    one = Kept(tmp_path, private=False)
    assert one.keep(LINE) is None
    assert "public" in one.log[-1]
    one.world.denied.add("metadata:read")
    assert one.keep(LINE) is None
    assert "could not be read" in one.log[-1]


def test_it_is_brought_from_the_run_of_the_newest_completed_turn(tmp_path: Path) -> None:
    packed = session_bench.packed_results(LINE, "transcript-c.jsonl")
    assert Kept(tmp_path).bring(packed) == LINE
    assert Kept(tmp_path).bring(packed, run_id=8) is None, "a run that completed no turn"


@pytest.mark.parametrize(
    ("packed", "fields"),
    [
        (session_bench.packed_results(LINE, "transcript-d.jsonl"), {}),
        (session_bench.packed_results(LINE.replace(SESSION.encode(), b"another"), "transcript-c.jsonl"), {}),
        (session_bench.packed_results(LINE * 1000, "transcript-c.jsonl"), {}),
        (b"no zip", {}),
        (session_bench.packed_results(LINE, "transcript-c.jsonl"), {"name": "benchmark-results"}),
        (session_bench.packed_results(LINE, "transcript-c.jsonl"), {"expired": True}),
    ],
)
def test_what_is_not_this_sessions_starts_the_agent_cold(tmp_path: Path, packed: bytes, fields: dict[str, Any]) -> None:
    one = Kept(tmp_path)
    assert one.bring(packed, **fields) is None
    assert "starts cold" in one.log[-1]


def test_an_error_starts_the_agent_cold(tmp_path: Path) -> None:
    one = Kept(tmp_path)
    one.world.denied.add("actions:read")
    assert one.keeper.bring(LEDGER, "c", SESSION) is None
    assert "could not be had" in one.log[-1]


def test_ids_and_places() -> None:
    assert transcript.dashed(PACKED) == SESSION
    assert transcript.dashed(PACKED[:-1]) == transcript.dashed("") == transcript.dashed("../" + PACKED) == ""
    place = transcript.place_in_home(Path("/srv/klaud_a.b/tree"), SESSION)
    assert place == f".claude/projects/-srv-klaud-a-b-tree/{SESSION}.jsonl"


@pytest.mark.parametrize(
    ("resume", "first", "starts"),
    [
        (SESSION, model.TurnEnd(status="failed", fault="agent-error"), [SESSION, ""]),
        (SESSION, model.TurnEnd(status="failed", fault="entry-timeout"), [SESSION, ""]),
        (SESSION, model.TurnEnd(status="failed", fault="agent-error", usage=model.Usage(steps=1)), [SESSION]),
        (SESSION, model.TurnEnd(status="failed", fault="agent-error", usage=model.Usage(input_tokens=9)), [SESSION]),
        (SESSION, model.TurnEnd(status="interrupted", fault="handoff"), [SESSION]),
        (SESSION, model.TurnEnd(status="failed", fault="budget"), [SESSION]),
        (SESSION, model.TurnEnd(status="completed"), [SESSION]),
        ("", model.TurnEnd(status="failed", fault="agent-error"), [""]),
    ],
)
def test_a_transcript_that_the_program_cannot_use_costs_a_start_and_not_the_session(
    resume: str, first: model.TurnEnd, starts: list[str]
) -> None:
    seen: list[str] = []

    def turn(ask: frameworks.Ask) -> model.TurnEnd:
        seen.append(ask.resume)
        return first if len(seen) == 1 else model.TurnEnd(status="completed")

    nothing: Any = None
    log: list[str] = []
    ask = frameworks.Ask(
        sandbox=nothing, work=nothing, prompt="", tools=nothing, policy=model.Policy(), watch=lambda: "", log=log.append,
        resume=resume,
    )  # fmt: skip
    end = transcript.warm_or_cold(turn, ask)
    assert seen == starts
    assert end == (first if len(starts) == 1 else model.TurnEnd(status="completed"))
    assert len(log) == len(starts) - 1
