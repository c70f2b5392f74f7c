"""What a running session looks at to see whether klaud was paused meanwhile."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from klaud.cli import live as lives
    from klaud.session import pause


def of(live: lives.Live, log: Callable[[str], None]) -> pause.Switch:
    """Return the switch: the repository's variable, and the configuration on its default branch, by the host's own words.

    They are asked twice a heartbeat at most; a token that may not read variables leaves the configuration.
    """
    from klaud import config as configs
    from klaud import yaml12
    from klaud.github import model
    from klaud.session import pause

    gateway = live.gateway
    known: list[str] = []

    def variable() -> bool:
        found = gateway.variable(configs.PAUSE_VARIABLE)
        return isinstance(found, str) and configs.says_pause(found)

    def file() -> bool:
        branch = known[0] if known else gateway.repository().default_branch
        known[:] = [branch]
        raw = gateway.contents(configs.PLACE, branch, configs.LIMIT_BYTES)
        if isinstance(raw, model.Missing):
            return False
        data = yaml12.load(raw, where=configs.PLACE, limit=configs.LIMIT_BYTES)
        return isinstance(data, dict) and data.get("paused") is True

    return pause.Switch(
        {f"the variable {configs.PAUSE_VARIABLE}": variable, f"{configs.PLACE} on the default branch": file},
        clock=live.clock,
        seconds=live.config.session.heartbeat_seconds / 2,
        log=log,
        paused=configs.is_paused(live.config, os.environ) is not None,
    )
