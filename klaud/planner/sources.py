"""Candidate sources: a feed, a file of the base commit, or a command; one JSON object for each candidate.

Each is read to its end within bounds. A row that is no candidate is refused alone and counted. A source that cannot be
had, or answers something else (an error page, half a JSON, nothing at all), is *failed*: it offers nothing, and because
nothing is ever closed or pruned for lack of an offer, it takes nothing away either (a failed input is never an empty
wish). A file may be empty; a feed or a command may not: one that has nothing to say looks like one that is broken.
"""

from __future__ import annotations

import dataclasses
import urllib.parse
from typing import TYPE_CHECKING

from klaud import errors, feeds
from klaud.planner import codec, command, decide_plan

if TYPE_CHECKING:
    from pathlib import Path

    from klaud.planner import model, settings, tree


@dataclasses.dataclass(frozen=True, slots=True)
class Places:
    """Where sources are: the files of the base commit, the folder in which commands run, and the network."""

    files: tree.Tree
    root: Path
    web: feeds.Web


def read(
    benchmark: settings.Benchmark | settings.References, policy: settings.Policy, places: Places
) -> tuple[decide_plan.SourceRead, ...]:
    """Return what each source of a benchmark gave, in order."""
    return tuple(_read(benchmark.name, one, policy, places) for one in benchmark.sources)


def label_of(source: settings.Source) -> str:
    """Return a source's name for reports: an address without credentials or query, a path, or a program's name."""
    if source.feed:
        parts = urllib.parse.urlsplit(source.feed)
        return f"{parts.scheme}://{parts.hostname or ''}{parts.path}"
    return source.file or source.command[0]


def _read(benchmark: str, source: settings.Source, policy: settings.Policy, places: Places) -> decide_plan.SourceRead:
    label = label_of(source)
    try:
        found = _rows(source, label, policy, places)
    except errors.KlaudError as error:
        later = error.exit_status == errors.RetryLaterError.exit_status
        code = "feed-unavailable" if later else "feed-invalid"
        return decide_plan.SourceRead(benchmark=benchmark, source=label, code=code, message=str(error))
    return offers(found, benchmark=benchmark, label=label, policy=policy)


def _rows(source: settings.Source, label: str, policy: settings.Policy, places: Places) -> feeds.Rows:
    if source.feed:
        return feeds.fetch_rows(
            source.feed,
            name=label,
            limit_bytes=policy.source_limit_bytes,
            deadline=places.web.clock.monotonic() + policy.source_timeout_seconds,
            web=places.web,
        )
    if source.file:
        raw = places.files.read(source.file)
        if len(raw) > policy.source_limit_bytes:
            message = f"{label} is larger than the limit of {policy.source_limit_bytes} bytes"
            raise errors.InputError(message)
    else:
        printed = command.run(
            source.command,
            cwd=places.root,
            seconds=policy.source_timeout_seconds,
            limit_bytes=policy.source_limit_bytes,
        )
        if isinstance(printed, command.CommandFailed):
            raise errors.InputError(printed.why)
        raw = printed.output
    found = feeds.rows(raw, name=label, allow_empty=bool(source.file))
    if isinstance(found, Exception):
        raise found
    return found


def offers(found: feeds.Rows, *, benchmark: str, label: str, policy: settings.Policy) -> decide_plan.SourceRead:
    """Return the offers among rows; a source of which no row is a candidate is failed, and so is one with too many."""

    def failed(message: str) -> decide_plan.SourceRead:
        return decide_plan.SourceRead(benchmark=benchmark, source=label, code="feed-invalid", message=message)

    if len(found.rows) + found.malformed > policy.source_limit_records:
        return failed(f"{label} has more than the limit of {policy.source_limit_records} candidates")
    good: list[model.Offer] = []
    examples = [f"line {one.place}: {one.reason}" for one in found.bad]
    refused = found.malformed
    for number, row in enumerate(found.rows, 1):
        offer = codec.offer(row)
        if isinstance(offer, str):
            refused += 1
            examples.append(f"row {number}: {offer}")
        else:
            good.append(offer)
    if refused and not good:
        return failed(f"{label} has {refused} rows and none is a candidate ({examples[0]})")
    return decide_plan.SourceRead(
        benchmark=benchmark, source=label, offers=tuple(good), refused=refused, examples=tuple(examples)
    )
