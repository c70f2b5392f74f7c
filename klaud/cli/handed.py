"""Take a candidate's brief and bundle from the artifact of the planner run that selected it.

The wave is the planner run's id and attempt, so that the artifact is known by name. It is believed only where that run was
of the default branch; what is in it is checked again by whoever reads it (the brief against the claim, the bundle against
the digest in the ledger). Everything is bounded: the artifact, the files in it, each file.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, assert_never

from klaud import errors, names
from klaud.records import archive

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from klaud.github import gateway as gateways

ARTIFACT_BYTES = 64 * 1024 * 1024
"""An artifact of a wave, packed: a few hundred bundles of a megabyte, which packs to a tenth."""

ENTRIES = 5000
"""Files in it: two for each candidate of the largest wave that the configuration allows, and one more."""

NAME = re.compile(r"klaud-wave-[1-9][0-9]{0,5}")
"""What klaud-plan.yml calls such an artifact."""

ATTEMPTS = 5
"""Artifacts that are looked at: a job that is run again alone hands its wave on under a later attempt's name."""

FILE_BYTES = 64 * 1024 * 1024
"""One unpacked file: the largest real bundle has 1 MB."""


def artifact_name(wave: str) -> str:
    """Return the name under which klaud-plan.yml hands a wave on (it ends in the run's attempt)."""
    return f"klaud-wave-{wave.partition('.')[2]}"


def fetch(gateway: gateways.Gateway, wave: str, candidate: str, folder: Path) -> None:
    """Write ``candidate-<id>.json`` and ``baseline-<id>.json`` of a wave's candidate into ``folder``.

    InputError where there is no such artifact or file; ReadFailedError where it cannot be had now.
    """
    from klaud.github import model as github
    from klaud.planner import files

    if not names.is_wave(wave) or not names.is_candidate(candidate):
        message = f"{wave[:60]!r} and {candidate[:60]!r} are not a wave and a candidate"
        raise errors.InputError(message)
    if wave.startswith("local-"):
        message = f"wave {wave} was made outside of Actions: no run has its files"
        raise errors.InputError(message, advice="Hand in --brief FILE.")
    run = gateway.run(int(wave.partition(".")[0]))
    if isinstance(run, github.Missing):
        message = f"the planner run of wave {wave} is not there"
        raise errors.InputError(message)
    default = gateway.repository().default_branch
    if run.head_branch != default:
        message = f"run {run.id} is of {run.head_branch!r}: klaud takes orders from runs of {default} only"
        raise errors.InputError(message)
    wanted = artifact_name(wave)
    listing = gateway.artifacts(run.id)
    found = [one for one in listing.items if NAME.fullmatch(one.name) and not one.expired]
    if not found and not listing.complete:
        message = f"the artifacts of run {run.id} are not all listed: {listing.why_not}"
        raise errors.ReadFailedError(message)
    if not found:
        message = f"run {run.id} has no artifact {wanted} (any more)"
        raise errors.InputError(message)
    newest = sorted(found, key=lambda one: (one.name == wanted, one.id), reverse=True)[:ATTEMPTS]
    for one in newest:
        packed = gateway.download_artifact(one.id, ARTIFACT_BYTES)
        where = f"artifact {one.name} of run {run.id}"
        taken = {name: _member(packed, name, where=where) for name in (files.brief(candidate), files.bundle(candidate))}
        lacking = [name for name, raw in taken.items() if raw is None and not _without(taken, candidate, name)]
        if not lacking:
            for name, raw in taken.items():
                if raw is not None:
                    files.write(folder, name, raw)
            return
    message = f"{where} has no {lacking[0]}"
    raise errors.InputError(message)


def _without(taken: Mapping[str, bytes | None], candidate: str, name: str) -> bool:
    """Tell whether a bundle is lacking because its brief names none: a candidate that encodes has no baseline."""
    import msgspec

    from klaud.planner import files
    from klaud.session import model

    if name != files.bundle(candidate):
        return False
    try:
        told = msgspec.json.decode(taken[files.brief(candidate)] or b"", type=model.Brief)
    except msgspec.DecodeError:
        return False
    return told.kind == "encode" and not told.bundle


def _member(packed: bytes, name: str, *, where: str) -> bytes | None:
    """Return one file of a zip, None where it is not in it."""
    found = archive.member(packed, name, entries=ENTRIES, unpacked=FILE_BYTES)
    if isinstance(found, bytes):
        return found
    match found.why:
        case "absent":
            return None
        case "too-many":
            message = f"{where} has more than {ENTRIES} files"
        case "too-large":
            message = f"{where}: {name} is above the limit of {FILE_BYTES} bytes"
        case "twice":
            message = f"{where} has {name} twice"
        case "damaged":
            message = f"{where} is not a zip that klaud can read"
        case _ as never:
            assert_never(never)
    raise errors.InputError(message)
