"""The agent's own memory of a session, kept for a continuation where the configuration says so (``transcripts: artifact``).

The program writes what was said into a file below its home. After a turn that was completed klaud reads that file as the
agent's user, in the agent's sandbox, so that nothing an agent puts there leads to a file that it could not read itself. It
is redacted line by line and kept beside the session's report, which the candidate workflow uploads. The continuation takes
it from the artifact of the run that the ledger names, and puts it into the new home before the agent starts.

Never in a repository that others can read: artifacts of a public one are everybody's. A transcript with a hole, or above its
bound, is none. Without one the agent starts cold, from the ledger; nothing that decides is in it.
"""

from __future__ import annotations

import dataclasses
import json
import re
from typing import TYPE_CHECKING

from klaud import errors
from klaud.leases import model as leases
from klaud.records import archive

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from klaud.github import gateway as ports
    from klaud.session import frameworks, model, rules_redact, work

ARTIFACT = "klaud-session-"
"""How the candidate workflow's artifact with what a session kept begins; the attempt follows."""
ENTRIES = 50
"""Files in it: a session keeps a handful."""
UNUSABLE = frozenset({"agent-error", "no-result", "empty-result", "crashed", "handshake", "entry-timeout", "silent"})
"""Faults that a transcript may be the cause of, where nothing was said."""
SESSION = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""The program's own session id, which names the file."""


def file_name(candidate: str) -> str:
    """Return the name of the kept file."""
    return f"transcript-{candidate}.jsonl"


def place_in_home(tree: Path, session: str) -> str:
    """Return where the program keeps a session, relative to its home: a folder named after its working directory."""
    return f".claude/projects/{re.sub(r'[^A-Za-z0-9]', '-', str(tree))}/{session}.jsonl"


def dashed(packed: str) -> str:
    """Return a session id as the program writes it, from the ledger's form; empty where it is no such id."""
    parts = (packed[:8], packed[8:12], packed[12:16], packed[16:20], packed[20:])
    found = "-".join(parts)
    return found if SESSION.fullmatch(found) else ""


def redacted(raw: bytes, redactor: rules_redact.Redactor) -> bytes | None:
    """Return the transcript without secrets, None where one line cannot be promised to be, or is no JSON object."""
    made = []
    for line in raw.split(b"\n"):
        if not line.strip():
            continue
        try:
            text = redactor.text(line.decode("utf-8"))
            if text is None or not isinstance(json.loads(text), dict):
                return None
        except (UnicodeDecodeError, ValueError, RecursionError):
            return None
        made.append(text)
    return ("\n".join(made) + "\n").encode() if made else None


@dataclasses.dataclass(frozen=True, slots=True)
class Keeper:
    """Keeps and brings back transcripts. ``folder``: what the candidate workflow uploads from."""

    gateway: ports.Gateway
    policy: model.Policy
    redactor: rules_redact.Redactor
    folder: Path
    log: Callable[[str], None]

    def keep(self, place: work.Work, session: str, candidate: str) -> bool:
        """Keep what the program wrote of ``session``; False, with the reason in the log, where that is not to be had."""
        why = self._keep(place, session, candidate)
        if why:
            self.log(f"transcript: not kept: {why}")
        return not why

    def _keep(self, place: work.Work, session: str, candidate: str) -> str:
        if not SESSION.fullmatch(session):
            return "the agent gave no session id of its own"
        try:
            if not self.gateway.repository().private:
                return "the repository is public, and so would the artifact be"
        except errors.KlaudError as error:
            return f"whether the repository is private could not be read ({type(error).__name__})"
        raw = place.read_home(place_in_home(place.tree, session), self.policy.transcript_bytes)
        if not raw:
            return f"it has more than {self.policy.transcript_bytes} bytes" if raw is None else "the agent left none"
        kept = redacted(raw, self.redactor)
        if kept is None:
            return "a line of it could not be redacted"
        (self.folder / file_name(candidate)).write_bytes(kept)
        self.log(f"transcript: kept, {len(kept)} bytes")
        return ""

    def bring(self, ledger: leases.Ledger, candidate: str, session: str) -> bytes | None:
        """Return the transcript of the program's ``session``, of the run that the ledger names last; None: start cold."""
        run_id = _last_run(ledger)
        try:
            names = self.gateway.artifacts(run_id)
            wanted = [one for one in names.items if one.name.startswith(ARTIFACT) and not one.expired]
            newest = max(wanted, key=lambda one: one.id, default=None)
            if newest is None:
                self.log(f"transcript: run {run_id} has none (any more): the agent starts cold")
                return None
            packed = self.gateway.download_artifact(newest.id, self.policy.transcript_bytes)
        except errors.KlaudError as error:
            self.log(f"transcript: it could not be had ({type(error).__name__}): the agent starts cold")
            return None
        raw = archive.member(packed, file_name(candidate), entries=ENTRIES, unpacked=self.policy.transcript_bytes)
        if isinstance(raw, archive.NoMember):
            self.log(f"transcript: {raw.why} in the artifact of run {run_id}: the agent starts cold")
            return None
        if f'"{session}"'.encode() not in raw:
            self.log("transcript: it is of another session of the agent's: the agent starts cold")
            return None
        return raw


def warm_or_cold(turn: Callable[[frameworks.Ask], model.TurnEnd], ask: frameworks.Ask) -> model.TurnEnd:
    """Run a turn; where the program cannot take its old session up again, run it once more from the ledger alone.

    Only before the model has said anything: from then on tools may have been used.
    """
    end = turn(ask)
    said = end.usage.steps or end.usage.input_tokens or end.usage.output_tokens
    if not ask.resume or end.fault not in UNUSABLE or said:
        return end
    ask.log(f"transcript: the agent could not go on from it ({end.fault}): it starts cold")
    return turn(dataclasses.replace(ask, resume=""))


def _last_run(ledger: leases.Ledger) -> int:
    """Return the run that ended the newest completed turn; 0 where there is none."""
    run = found = 0
    for record in ledger.records:
        if isinstance(record, leases.SessionStarted | leases.Continued):
            run = record.holder.run_id
        elif isinstance(record, leases.TurnEnded) and record.status == "completed":
            found = run
    return found
