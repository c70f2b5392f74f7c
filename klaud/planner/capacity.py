"""Ask the configured provider which targets have room. The figures stay in this process: they go into no file.

Every failure is ``CapacityUnknown`` with the kind of failure only: neither the address, nor the answer, nor what a
program said. Unknown defers candidates under its own reason; it never touches work that is under way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from klaud import errors, feeds
from klaud.planner import command, decide

if TYPE_CHECKING:
    from pathlib import Path

    from klaud.planner import settings

KEY_VARIABLE = "KLAUD_CAPACITY_KEY"
"""The environment variable whose value the provider gets as a bearer token."""


def ask(
    policy: settings.Capacity, *, root: Path, web: feeds.Web, key: str = ""
) -> decide.Figures | decide.CapacityUnknown | decide.NotAsked:
    """Return the provider's figures, ``NotAsked`` where none is configured, ``CapacityUnknown`` where it fails."""
    if not policy.url and not policy.command:
        return decide.NotAsked()
    try:
        value = _by_url(policy, web, key) if policy.url else _by_command(policy, root, key)
        return msgspec.convert(value, decide.Figures, strict=True)
    except errors.KlaudError as error:
        return decide.CapacityUnknown(type(error).__name__)
    except msgspec.ValidationError:
        return decide.CapacityUnknown("not the expected figures")


def _by_url(policy: settings.Capacity, web: feeds.Web, key: str) -> Any:
    return feeds.fetch_json(
        policy.url,
        name="the capacity provider",
        shape="object",
        limit_bytes=policy.limit_bytes,
        deadline=web.clock.monotonic() + policy.timeout_seconds,
        headers={"Authorization": f"Bearer {key}"} if key else None,
        web=web,
    )


def _by_command(policy: settings.Capacity, root: Path, key: str) -> Any:
    printed = command.run(
        policy.command,
        cwd=root,
        seconds=policy.timeout_seconds,
        limit_bytes=policy.limit_bytes,
        environment={KEY_VARIABLE: key} if key else None,
    )
    if isinstance(printed, command.CommandFailed):
        message = "the capacity command failed"
        raise errors.ReadFailedError(message)
    value = feeds.document(printed.output, name="the capacity provider", shape="object")
    if isinstance(value, errors.KlaudError):
        raise value
    return value
