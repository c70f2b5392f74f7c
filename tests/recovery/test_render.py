"""The comment on an abandoned draft, as people read it."""

from __future__ import annotations

from klaud import names
from klaud.recovery import model, render
from tests.support.memory_cases import AT, HEAD, KEY

CLOSE = model.CloseDraft(
    why="its session is over", evidence=("run 60 is completed: failure",), number=1, head=HEAD, branch="b", created_at=AT,
    ended_at=AT,
)  # fmt: skip


def test_what_an_abandoned_drafts_comment_says() -> None:
    """What ended and when, what was cancelled, where the archive is, how to undo it, how to keep such a draft."""
    said = render.abandoned(CLOSE, KEY, (5, 6), "refs/klaud/archive/x").split("\n")
    assert said[0] == render.MARK
    assert said[1] == "klaud closes this draft: its session is over, and nobody but klaud has worked on it."
    assert said[3:8] == [
        f"* session: `{KEY}` (ended 2026-03-01 12:00 UTC)",
        "* proof: run 60 is completed: failure",
        "* cancelled: run 5, run 6",
        "* the branch is kept as `refs/klaud/archive/x`",
        "* to undo all of this: `klaud undo refs/klaud/archive/x`",
    ]
    assert names.HANDOFF_LABEL in said[-1]


def test_a_comment_says_nothing_of_what_there_was_not() -> None:
    """No time, no cancelled run, no archive."""
    bare = model.CloseDraft(why="w", number=1, head=HEAD, branch="b", created_at=AT)
    assert len(render.abandoned(bare, KEY, (), "").split("\n")) == 6
    assert "undo" not in render.abandoned(bare, KEY, (), "")
    assert "ended" not in render.abandoned(bare, KEY, (), "")
