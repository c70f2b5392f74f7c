"""Records and answers of the host as a session's rules read them, each whole and good; a case changes what it is about."""

from __future__ import annotations

import datetime
from typing import Any

import msgspec

from klaud.github import model as hub
from klaud.leases import model as leases
from klaud.session import model

AT = datetime.datetime(2026, 3, 2, 6, 0, tzinfo=datetime.UTC)
HOLDER = leases.Holder(run_id=7, attempt=1)
BOT = hub.Account(id=90001, login="klaud", type="Bot")
ALICE = hub.Account(id=101, login="alice")
HELPER = hub.Account(id=5, login="helper[bot]", type="Bot")
FLOWS = model.Workflows(final="final.yml", other_final_labels=("full-sweep-fast",))
OID = "a" * 40


def at(seconds: float) -> datetime.datetime:
    """Return a moment, in seconds after the first."""
    return AT + datetime.timedelta(seconds=seconds)


def started() -> leases.SessionStarted:
    """Return a session's first record."""
    return leases.SessionStarted(
        at=AT, wave="7.1", candidate="c", family="f.yaml:k", base=OID, holder=HOLDER, bundle="sha256:0"
    )


def intent(seq: int, effect: leases.Effect, **fields: Any) -> leases.Intent:
    """Return an intent."""
    return leases.Intent(at=AT, seq=seq, effect=effect, **fields)


def effect(seq: int, kind: leases.Effect, result: Any = "done", **fields: Any) -> leases.Effected:
    """Return what became of an intent."""
    return leases.Effected(at=AT, seq=seq, effect=kind, result=result, **fields)


def turn(index: int, status: Any = "completed", **fields: Any) -> tuple[leases.LedgerRecord, leases.LedgerRecord]:
    """Return the two records of a turn."""
    ended = leases.TurnEnded(at=AT, index=index, status=status, **fields)
    return leases.TurnStarted(at=AT, index=index), ended


def pull(**fields: Any) -> hub.Pull:
    """Return klaud's draft, with fields changed."""
    made = hub.Pull(
        number=12, node_id="P", state="open", merged=False, draft=True, title="t", body="b", author=BOT, head_ref="h",
        head_oid=OID, head_repository="a/b", base_ref="main", labels=("full-sweep",), created_at=AT, updated_at=AT,
    )  # fmt: skip
    return msgspec.structs.replace(made, **fields)


def final(number: int = 1, status: str = "completed", conclusion: str | None = "success", **fields: Any) -> hub.Run:
    """Return a final run at the draft's head, with fields changed."""
    made = hub.Run(
        id=number, attempt=1, status=status, conclusion=conclusion, event="pull_request", head_branch="h", head_sha=OID,
        path="p", display_title="", actor=BOT, triggering_actor=BOT, created_at=at(number), updated_at=AT,
    )  # fmt: skip
    return msgspec.structs.replace(made, **fields)


def end(**fields: Any) -> model.TurnEnd:
    """Return a completed turn, with fields changed."""
    return msgspec.structs.replace(model.TurnEnd(status="completed", entered=True), **fields)
