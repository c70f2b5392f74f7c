"""What one job of a planner run hands on to the next, and the digests by which the next one knows it again.

Files travel as artifacts; their digests travel as an output of the job that made them, so whoever could change an artifact
on its way would have to change both. Each step may hand on the files that are its own by name and no other: a job in which
the repository's code ran can therefore stand in for none of klaud's own files, whatever it uploads.

A step writes the output ``files`` (a JSON object, name to SHA-256) where ``GITHUB_OUTPUT`` says; the next one finds it in
``KLAUD_HANDED_<STEP>``. Where no such variable is set (a laptop, ``klaud wave``) nothing was handed on, nothing is checked.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import re
import stat
from typing import TYPE_CHECKING, NoReturn

import msgspec

from klaud import errors
from klaud.planner import codec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

STEPS: dict[str, tuple[str, ...]] = {
    "produce": ("producers-*.json",),
    "plan": ("candidates.json", "baselines.json"),
    "review": ("open-prs.json", "review.json", "baselines.json", "needs-*.json"),
    "recover": ("recovery.json", "families.json"),
}
"""Step -> the files that it may hand on, in the order of trust: of one name, the last step that handed it on counts."""

OUTPUT = "files"
"""The output's name."""

OUTPUT_BYTES = 262_144
"""Most bytes of one step's output: some hundred files. GitHub takes a megabyte for all outputs of a job."""

_DIGEST = re.compile(r"[0-9a-f]{64}")
ADVICE = "Run the planner again; nothing was written. If it happens again, look at who can write this run's artifacts."


def variable(step: str) -> str:
    """Return the name of the variable that has what a step handed on."""
    return f"KLAUD_HANDED_{step.upper()}"


def is_of(step: str, name: str) -> bool:
    """Tell whether a file of that name is the step's to hand on."""
    return "/" not in name and name.isprintable() and any(fnmatch.fnmatchcase(name, pattern) for pattern in STEPS[step])


def digests(folder: Path, step: str) -> dict[str, str]:
    """Return the SHA-256 of each file in ``folder`` that is the step's."""
    return {name: _digest(folder / name) for name in _names(folder) if is_of(step, name)}


def tell(folder: Path, step: str, environ: Mapping[str, str]) -> None:
    """Write the step's output; nothing outside of Actions."""
    output(OUTPUT, msgspec.json.encode(digests(folder, step)).decode(), environ)


def output(name: str, value: str, environ: Mapping[str, str]) -> None:
    """Set one output (a single line) of this step of a workflow; nothing outside of Actions."""
    place = environ.get("GITHUB_OUTPUT")
    if place:
        with open(place, "a", encoding="utf-8") as file:  # noqa: PTH123 - append, whatever kind of file the runner made
            file.write(f"{name}={value}\n")


def check(folder: Path, environ: Mapping[str, str]) -> int:
    """Hold every file in ``folder`` to the digest under which it was handed on; return how many there are.

    InputError names the first file that is missing, was changed, is not the step's to hand on, or that no step handed on.
    """
    steps = [step for step in STEPS if variable(step) in environ]
    if not steps:
        return 0
    wanted: dict[str, tuple[str, str]] = {}
    for step in steps:
        for name, digest in _handed(step, environ[variable(step)]).items():
            wanted[name] = (step, digest)
    for name, (step, digest) in wanted.items():
        _hold(folder, name, step, digest)
    for name in _names(folder):
        if name not in wanted:
            _refuse(f"{ascii(name)[:100]} is in {folder}, and no step of this run handed it on")
    return len(wanted)


def _handed(step: str, text: str) -> dict[str, str]:
    """Decode what a step handed on; empty where it handed on nothing."""
    if not text:
        return {}
    if len(text) > OUTPUT_BYTES:
        _refuse(f"{variable(step)} is above the limit of {OUTPUT_BYTES} bytes")
    try:
        found = msgspec.json.decode(text, type=dict[str, str])
    except (msgspec.MsgspecError, UnicodeError):
        _refuse(f"{variable(step)} is not a JSON object of names and digests")
    for name, digest in found.items():
        if not is_of(step, name):
            _refuse(f"the step {step} handed on {ascii(name)[:100]}, which is not its to hand on")
        if not _DIGEST.fullmatch(digest):
            _refuse(f"the step {step} handed on {name} without a SHA-256")
    return found


def _hold(folder: Path, name: str, step: str, digest: str) -> None:
    try:
        found = _digest(folder / name)
    except FileNotFoundError:
        _refuse(f"{name}, which the step {step} handed on, is not in {folder}")
    if found != digest:
        _refuse(
            f"{name} was changed on its way from the step {step}: its SHA-256 is {found[:16]}..., {digest[:16]}... was "
            f"handed on"
        )


def _names(folder: Path) -> Iterator[str]:
    try:
        yield from sorted(entry.name for entry in os.scandir(folder))
    except FileNotFoundError:
        return


def _digest(place: Path) -> str:
    """Return a file's SHA-256; InputError for what is no plain file or is too large."""
    if not stat.S_ISREG(place.lstat().st_mode):
        _refuse(f"{place} is not a plain file")
    total, sha = 0, hashlib.sha256()
    with place.open("rb") as file:
        while block := file.read(1 << 20):
            total += len(block)
            if total > codec.LIMIT_BYTES:
                _refuse(f"{place} is above the limit of {codec.LIMIT_BYTES} bytes")
            sha.update(block)
    return sha.hexdigest()


def _refuse(message: str) -> NoReturn:
    raise errors.InputError(message, advice=ADVICE)
