"""What a sweep says on a pull request. Pure text from ids, times and closed words; no text of an agent or a person."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klaud import names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from klaud.recovery import model

MARK = "<!-- klaud:abandoned -->"
"""First line of the comment, for people's filters; klaud itself trusts only who wrote a comment, never its text."""


def abandoned(close: model.CloseDraft, session: str, cancelled: Sequence[int], archive: str) -> str:
    """Return the comment that an abandoned draft gets before it is closed."""
    ended = f" (ended {close.ended_at.strftime('%Y-%m-%d %H:%M UTC')})" if close.ended_at else ""
    lines = [
        MARK,
        f"klaud closes this draft: {close.why}, and nobody but klaud has worked on it.",
        "",
        f"* session: `{session}`{ended}",
    ]
    lines += [f"* proof: {text}" for text in close.evidence]
    if cancelled:
        lines.append(f"* cancelled: {', '.join(f'run {run}' for run in cancelled)}")
    if archive:
        lines += [
            f"* the branch is kept as `{archive}`",
            f"* to undo all of this: `klaud undo {archive}`",
        ]
    lines += ["", f"To keep such a draft next time, add the label `{names.HANDOFF_LABEL}`: klaud then leaves it alone."]
    return "\n".join(lines)
