"""Workflows and their runs (first form)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from klaud.fakehub.hub import Hub
    from klaud.fakehub.state import Repository


class Actions:
    """What starts which runs."""

    def __init__(self, hub: Hub) -> None:
        """Serve ``hub``."""
        self._hub = hub

    def fire(self, repository: Repository, event: str, **details: Any) -> None:
        """Start the workflows that listen to an event."""
