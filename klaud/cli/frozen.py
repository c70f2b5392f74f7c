"""Where the frozen baseline's bundle lies: where it was said to be, beside the brief, or in the wave's artifact."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klaud import errors

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from klaud.session import model

ADVICE = "Hand it in with --bundle FILE; the planner run of the wave has it as baseline-<candidate>.json."


def find(given: Path | None, beside: Path, out: Path, fetch: Callable[[], object], log: Callable[[str], None]) -> Path:
    """Return the bundle's place. ``fetch`` puts the wave's files into ``out``; it is asked only where nothing else is there.

    Where the bundle is nowhere, that is said, with what it means; the place returned is then the one beside the brief.
    """
    if given is not None or beside.exists():
        return given or beside
    wanted = out / beside.name
    try:
        if not wanted.exists():
            fetch()
        if wanted.exists():
            return wanted
        why = "it has no such file"
    except errors.KlaudError as error:
        why = str(error)
    log(
        f"the frozen baseline is not at hand: not at {beside}, nor in the wave's artifact ({why}). Without it no final run "
        f"can be judged: a green one is left as it is, and nothing is called validated. {ADVICE}"
    )
    return beside


def refuse_unfounded(told: model.Brief, bundle: Path) -> None:
    """Refuse a session whose baseline cannot be read: whatever it reached could never be validated. Nothing is written."""
    from klaud.session import evidence, rules_coverage

    if not told.bundle:
        return
    found = evidence.load(bundle, told.bundle)
    if isinstance(found, rules_coverage.Unreadable):
        raise errors.InputError(found.why, advice=ADVICE)
