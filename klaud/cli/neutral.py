"""Ending without a result and without red: klaud is paused here, or not set up.

A step of a workflow that ends so has status 0, its reason in the step summary, and writes nothing; the steps after it look
for the files that it would have written. People's own verbs (``undo``, ``pause``, ...) refuse instead: they were asked.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from klaud import config as configs


def paused(config: configs.Config, verb: str) -> bool:
    """Say that the verb does nothing since klaud is paused; False where it is not."""
    from klaud import config as configs

    why = configs.is_paused(config, os.environ)
    if why:
        say(f"klaud {verb}: klaud is paused ({why}); nothing was written")
    return why is not None


def say(sentence: str) -> None:
    """Show one sentence on stdout and in the step summary."""
    from klaud.reports import model, publish

    typer.echo(sentence)
    section = model.Section(title="Nothing was done", sentences=(sentence,))
    publish.step_summary(model.Report(title="klaud", sections=(section,)), os.environ)
