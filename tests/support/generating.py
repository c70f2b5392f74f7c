"""Generators in small: commits whose generator is a few lines, and what comes of making their matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from klaud.baselines import model, run, settings
from tests.support.benchmarks import FAST, SPLIT, Repository, policy

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Mapping

    from klaud.baselines import sandbox

BOTH = (FAST, SPLIT)
OLD = msgspec.structs.replace


def made(
    policy_: model.Policy,
    source: Repository,
    box: sandbox.Sandbox,
    needs: Mapping[str, tuple[str, ...]],
    folder: pathlib.Path | None = None,
) -> model.Produced:
    """Make the matrices of some needs."""
    wanted = [model.Need(commit=commit, families=families) for commit, families in needs.items()]
    return run.regenerate(policy_, wanted, git=source.objects, cache_folder=folder, box=box)


def matrices(produced: model.Produced) -> dict[tuple[str, str], model.Matrix]:
    """Return the matrices by commit and family; all of them were made."""
    assert all(isinstance(each, model.Matrix) for each in produced.matrices), produced.matrices
    return {(each.commit, each.family): each for each in produced.matrices if isinstance(each, model.Matrix)}


def failure(produced: model.Produced) -> model.NotGenerated:
    """Return the one result, which is no matrix."""
    (found,) = produced.matrices
    assert isinstance(found, model.NotGenerated), found
    return found


def script(body: str, **layout: Any) -> tuple[dict[str, str | None], model.Policy]:
    """Return the files and the policy of a repository whose generator is a few lines of Python."""
    fields: dict[str, Any] = {
        "inputs": ("gen.py", "configs"),
        "configs": ("configs/*",),
        "commands": (("{python}", "{root}/gen.py", "--key", "{family}"),),
        **layout,
    }
    files: dict[str, str | None] = {"gen.py": body, "configs/all.json": "{}"}
    return files, policy(generator={"layouts": (settings.Layout(**fields),), "optional_arguments": ()})
