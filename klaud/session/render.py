"""What klaud writes into pull requests, from typed fields. Pure.

Free text that came from an agent is one line or a few plain paragraphs of markdown that shows exactly that text: no
markup, no mention, no HTML, no link, no reference to another issue, no command for a bot. Each field is cut.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from typing import TYPE_CHECKING

import msgspec

from klaud.reports import render as reports

if TYPE_CHECKING:
    from collections.abc import Sequence

    from klaud.session import model, rules_ledger

TITLE_CHARACTERS = 120
"""A title longer than this is cut by every list that shows it."""

CUT = " ..."
_SPACE = re.compile(r"\s+")
_INVISIBLE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
_BREAKS = re.compile(r"(?i)(https?|ftp|www)([:.])|([a-z0-9])(#)(?=[0-9])|\b(GH-)(?=[0-9])")
_JOINER = "\u2060"
"""WORD JOINER: invisible, breaks GitHub's automatic links and references apart without changing how a text looks."""


class Written(msgspec.Struct, frozen=True):
    """A title and body as klaud wrote them; ``digest`` is what the ledger keeps to see later edits."""

    title: str
    body: str

    @property
    def digest(self) -> str:
        """SHA-256 hex of title and body."""
        return digest(self.title, self.body)


def digest(title: str, body: str) -> str:
    """Return the SHA-256 hex of a title and a body; line ends are made equal first (GitHub stores CRLF as it came)."""
    return hashlib.sha256(f"{title}\n\n{body}".replace("\r\n", "\n").encode()).hexdigest()


def plain(text: str, limit: int) -> str:
    """Return ``text`` on one line without invisible characters, at most ``limit`` characters, a cut marked."""
    seen = "".join(" " if char.isspace() else char for char in text if char.isspace() or _visible(char))
    seen = _SPACE.sub(" ", seen).strip()
    return seen if len(seen) <= limit else seen[: max(0, limit - len(CUT))].rstrip() + CUT


def _visible(char: str) -> bool:
    return unicodedata.category(char) not in _INVISIBLE


def field(text: str, limit: int) -> str:
    """Return free text as markdown that shows exactly it and does nothing else (one paragraph)."""
    shown = reports.escape(plain(text, limit))
    shown = _BREAKS.sub(lambda match: match[0][0] + _JOINER + match[0][1:], shown)
    return shown.replace("/", "&#47;") if shown.startswith("/") else shown


def title(text: str) -> str:
    """Return a pull request's title from free text: GitHub shows titles as plain text, yet mentions and references count."""
    shown = plain(text, TITLE_CHARACTERS).replace("@", f"@{_JOINER}").replace("#", f"#{_JOINER}")
    return shown.replace("<!--", "<!" + _JOINER + "--") or "Proposed change"


def draft(
    brief: model.Brief,
    asked: model.OpenDraft,
    *,
    limit: int,
    points: int,
    bundle: str,
    files: Sequence[str],
    approval: str = "",
) -> Written:
    """Return title and body of a draft: what klaud knows first, then what the agent says, marked as such.

    ``approval``: the label by which a person lets files that run be started, where the change has such files.
    """
    encoded = brief.kind == "encode"
    proof = (
        "the validation of the reference has passed at its head"
        if encoded
        else "the full benchmark has covered every published point of the family at its head"
    )
    opening = (
        f"This draft was opened by klaud. It is marked ready only when {proof}; until then the next run may close it."
    )
    asks = (
        "The change has files that run. Nothing is started on it until somebody who may write here has looked at it and "
        f"set the label <b>{reports.escape(approval)}</b>."
    )
    baseline = [f"* Frozen baseline: {points} points, bundle {reports.escape(bundle or 'none')}"]
    lines = [
        opening,
        "",
        f"* Family: {reports.escape(brief.family)}",
        f"* Proposed: {field(brief.subject, limit)}",
        f"* Base: {reports.escape(brief.base)}",
        f"* Wave: {reports.escape(brief.wave)}, candidate {reports.escape(brief.candidate)}",
        *([] if encoded else baseline),
        f"* Files: {', '.join(reports.escape(plain(name, 200)) for name in files[:20]) or 'none'}",
        "",
        *([asks, ""] if approval else []),
        "To take this draft over, add the label <b>klaud-handoff</b>: klaud then writes nothing more here.",
        "",
        "What became of the items:" if encoded else "What the agent says (its own words, not checked):",
        "",
    ]
    risks = "Without entities" if encoded else "Risks"
    for name, text in (("Summary", asked.summary), ("Rationale", asked.rationale), (risks, asked.risks)):
        if text.strip():
            lines += [f"> {name}: {field(text, limit)}", ""]
    return Written(title(asked.title), "\n".join(lines).rstrip() + "\n")


def commit_message(text: str, *, candidate: str, agent: str) -> str:
    """Return the message of a re-created commit: the agent's subject as plain text, and who made it in trailers."""
    subject = plain(text.partition("\n")[0], 100).replace("@", f"@{_JOINER}").replace("#", f"#{_JOINER}")
    return f"{subject or 'Change'}\n\nKlaud-Candidate: {candidate}\nKlaud-Agent: {agent}\n"


def hand_over(view: rules_ledger.View, *, head: str, label: str) -> str:
    """Return the hand-over card: ids, numbers and closed words of the ledger alone."""
    spent = view.spent
    runs = [f"smoke run {run}" for run in view.smoke_runs]
    parked = view.parked
    runs += [
        f"run {run} (waited for)" for run in (parked.on if parked is not None else ()) if run not in view.smoke_runs
    ]
    tried = [
        f"{field(one.what, 80)}{f' in run {one.run_id}' if one.run_id else ''}: {field(one.result or 'no result', 80)}"
        for one in view.tried
    ]
    state = view.outcome.outcome if view.outcome is not None else ("parked" if parked is not None else "not settled")
    counted = (
        f"{spent.pushes} pushes, {spent.smoke_runs} smoke runs, {spent.final_runs} final runs, {spent.repairs} repairs, "
        f"{view.turns} turns, {view.tokens} tokens, ${view.cost_microdollars / 1_000_000:.2f}"
    )
    back = (
        f"To give it back, someone with write access removes the label {reports.escape(label)}. Commits of others stay "
        "protected; what else people did before that is forgotten, and klaud may go on with the draft or close it."
    )
    text = [
        "klaud hands this draft over: it writes nothing more here while the label is set.",
        "",
        f"* Head: {field(head, 64)}{'' if head == view.head else ' (not the one that klaud pushed last)'}",
        f"* State of the session: {state}",
        f"* Spent: {counted}",
        f"* Runs: {', '.join(runs) or 'none'}",
        f"* Open: {len(view.open_intents)} effects whose end is not on record",
        *[f"* Tried: {one}" for one in tried],
        "",
        back,
    ]
    return "\n".join(text) + "\n"


def coverage_report(
    *, outcome: str, covered: int, points: int | None, run_id: int | None, head: str, lines: Sequence[str], bundle: str
) -> str:
    """Return the comment that goes with the end of a session. ``points`` None: there is no baseline to cover."""
    measured = points is not None
    text = [
        f"klaud: this session ended as <b>{reports.escape(outcome)}</b>.",
        "",
        *([f"* Points of the frozen baseline with a result of this head: {covered} of {points}"] if measured else []),
        f"* Final run: {run_id if run_id is not None else 'none'}",
        f"* Head: {reports.escape(head or 'none')}",
        *([f"* Baseline bundle: {reports.escape(bundle or 'none')}"] if measured else []),
        "",
        *lines,
    ]
    return "\n".join(text).rstrip() + "\n"
