"""Who decides what the review's rules cannot, by the configuration's word; what is missing is named before anything runs."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

import pytest

from klaud import clock, errors
from klaud.cli import planner_steps
from klaud.review import batch
from klaud.review import model as reviewed
from klaud.review import session as asking
from klaud.session import model as sessions

if TYPE_CHECKING:
    from pathlib import Path


def live(mode: str, **session: Any) -> Any:
    config = types.SimpleNamespace(
        review=reviewed.Policy(mode=mode),
        session=sessions.Policy(**session),  # type: ignore[arg-type]
    )
    return types.SimpleNamespace(config=config, clock=clock.SystemClock())


def test_rules_ask_nobody(tmp_path: Path) -> None:
    with planner_steps._reviewer(live("rules"), tmp_path) as reviewer:
        assert reviewer is None


def test_a_batch_needs_its_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(planner_steps.REVIEW_KEY, raising=False)
    with (
        pytest.raises(errors.InputError, match=planner_steps.REVIEW_KEY),
        planner_steps._reviewer(live("batch"), tmp_path),
    ):
        pass
    monkeypatch.setenv(planner_steps.REVIEW_KEY, "made-up")
    with planner_steps._reviewer(live("batch"), tmp_path) as reviewer:
        assert isinstance(reviewer, batch.BatchReviewer)


def test_a_session_needs_its_credential_and_its_sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    with (
        pytest.raises(errors.InputError, match="ANTHROPIC_API_KEY"),
        planner_steps._reviewer(live("session", framework="claude_sdk"), tmp_path),
    ):
        pass
    chosen = live("session", framework="scripted", isolation="none")
    with planner_steps._reviewer(chosen, tmp_path) as reviewer:
        assert isinstance(reviewer, asking.SessionReviewer)
