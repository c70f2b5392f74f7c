"""Which command makes a commit's matrix: layouts, placeholders, and what a generator says that it does not know.

Old commits differ in folders, subcommands and options. A refusal is recognised by the words of argparse, click and typer
alone, and only where it names what klaud itself had put on the command line; any other failure is a failure.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

import msgspec

from klaud.baselines import settings

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

_FRAME = re.compile(r"[│╭╮╰╯─┃━|]")


class Fit(msgspec.Struct, frozen=True):
    """A layout that fits a commit: its index, and the files behind each placeholder."""

    index: int
    layout: settings.Layout
    files: Mapping[str, tuple[str, ...]]


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """What one set of generator files turned out to know: the command alternative, the arguments it lacks."""

    alternative: int = 0
    dropped: tuple[str, ...] = ()


class Refusal(msgspec.Struct, frozen=True):
    """What a generator does not know: ``argument`` (one of the optional ones), or the whole ``alternative``."""

    kind: Literal["argument", "alternative"]
    names: tuple[str, ...] = ()


def matching(patterns: Sequence[str], paths: Collection[str]) -> tuple[str, ...]:
    """Return the paths that the globs match, in the order of the globs, then of the paths; each once."""
    found: dict[str, None] = {}
    for pattern in patterns:
        if pattern in paths:
            found[pattern] = None
            continue
        found.update(dict.fromkeys(sorted(path for path in paths if fnmatch.fnmatchcase(path, pattern))))
    return tuple(found)


def fit(layouts: Sequence[settings.Layout], paths: Collection[str]) -> Fit | None:
    """Return the first layout whose ``when`` all match something at the commit, None where there is none."""
    for index, layout in enumerate(layouts):
        if all(matching([pattern], paths) for pattern in layout.when):
            files = {"configs": matching(layout.configs, paths)}
            files |= {name: matching(patterns, paths) for name, patterns in layout.paths.items()}
            return Fit(index, layout, files)
    return None


def file_of(family: str, configs: Sequence[str], renames: Mapping[str, str]) -> str | None:
    """Return where a family's master file is at a commit, None where it cannot be told.

    That is its path of today, an old one of ``renames``, or the only configuration file of the same base name.
    """
    today = family.partition(":")[0]
    if today in configs:
        return today
    for old, new in renames.items():
        if new == today and old in configs:
            return old
    base = today.rpartition("/")[2]
    named = [path for path in configs if path.rpartition("/")[2] == base]
    return named[0] if len(named) == 1 else None


def expand(
    command: Sequence[str],
    *,
    root: str,
    python: str,
    keys: Sequence[str],
    file: str,
    files: Mapping[str, Sequence[str]],
) -> list[str]:
    """Return a command with its placeholders filled in; ``keys`` are the families' keys (one, unless ``{families}``)."""
    words: list[str] = []
    for word in command:
        name = word[1:-1] if word.startswith("{") and word.endswith("}") else ""
        if name in files:
            words.extend(files[name])
        elif name == "families":
            words.extend(keys)
        else:
            simple = {"root": root, "family": keys[0], "file": file, "python": python}
            words.append(re.sub(r"\{(root|family|file|python)\}", lambda match: simple[match[1]], word))  # noqa: B023
    return words


def several(command: Sequence[str]) -> bool:
    """Tell whether one call of a command can be for several families."""
    return "{families}" in command


def whole(command: Sequence[str]) -> bool:
    """Tell whether a command names no family at all, so that it prints the whole matrix."""
    return not any("{family}" in word or "{families}" in word for word in command)


def refusal(
    stderr: bytes, argv: Sequence[str], optional: Sequence[str], literals: Collection[str] = ()
) -> Refusal | None:
    """Return what a failed generator says that it does not know, None where it failed for another reason.

    ``argv``: what it was called with; ``optional``: the optional arguments among that; ``literals``: the words of the
    configured command without a placeholder, among which a subcommand is (a family's key never is one).
    """
    text = " ".join(_FRAME.sub(" ", stderr.decode("utf-8", "replace")).split())
    names = _named_options(text)
    known = [name for name in names if any(_is(name, word) for word in argv)]
    dropped = tuple(argument for argument in optional if any(_is(name, argument) for name in known))
    others = [name for name in known if not any(_is(name, argument) for argument in optional)]
    if others:
        return Refusal("alternative", tuple(others))
    if dropped:
        return Refusal("argument", dropped)
    if _subcommand(text, literals) or _required(text):
        return Refusal("alternative")
    return None


def _named_options(text: str) -> list[str]:
    """Return the options that an "unknown option" message names."""
    found: list[str] = []
    for match in re.finditer(r"unrecognized arguments: (.+)", text):  # argparse
        found += [word for word in match[1].split() if word.startswith("-")]
    for match in re.finditer(r"[Nn]o such option:? ['\"]?(--?[A-Za-z0-9][\w-]*)", text):  # click, typer
        found.append(match[1])
    for match in re.finditer(r"[Gg]ot unexpected extra arguments? \(([^)]+)\)", text):  # click, told to pass options on
        found += [word for word in match[1].split() if word.startswith("-")]
    return found


def _is(name: str, word: str) -> bool:
    return word.partition("=")[0] == name.partition("=")[0]


def _subcommand(text: str, literals: Collection[str]) -> bool:
    """Tell whether the message says that a word of the configured command is no subcommand."""
    for match in re.finditer(
        r"argument (\S+): invalid choice: '([^']+)'", text
    ):  # argparse; for an option, a value is bad
        if not match[1].startswith("-") and match[2] in literals:
            return True
    return any(match[1] in literals for match in re.finditer(r"[Nn]o such command ['\"]([^'\"]+)['\"]", text))


def _required(text: str) -> bool:
    """Tell whether the message asks for something that this alternative does not give: an option, a word, a subcommand."""
    return bool(
        re.search(r"error: the following arguments are required: ", text)  # argparse
        or re.search(r"[Mm]issing option ['\"]?-", text)  # click, typer
        or re.search(r"\bError:? Missing (argument|command|parameter)\b", text)  # click, typer
    )


def keep(entries: Sequence[dict[str, object]], meanings: Sequence[str]) -> tuple[dict[str, object], ...]:
    """Return what is left of an output that was made without optional arguments of these meanings."""
    if "throughput-only" in meanings:
        return tuple(entry for entry in entries if entry.get("eval-only") is not True)
    return tuple(entries)
