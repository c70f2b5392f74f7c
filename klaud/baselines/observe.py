"""Read the published rows, and what is known of the runs that produced them. Reads only.

A feed that fails is ``FeedFailed`` and never an empty list. A run's commit comes from GitHub; where the run is gone, from
the feed's ``workflow-info``; else it stays unproven, and says why in words that a person can act on.
"""

from __future__ import annotations

import pathlib
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from klaud import errors, feeds, names
from klaud.baselines import codec, model, settings
from klaud.github import model as github
from klaud.records import errors as record_errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from klaud.baselines import schema
    from klaud.github import gateway as gateways

MAX_RUNS = 2_000
"""Runs asked for in one wave: each is a request, and the hourly quota is 5,000. What is beyond stays unproven."""

_PATTERNS = 500
"""Family patterns of one changelog entry."""


class RowsRead(msgspec.Struct, frozen=True, kw_only=True):
    """The published rows that could be decoded, and those that could not (the first by name).

    ``aside`` counts the rows of other benchmarks (``rows.only``), by what they say.
    """

    rows: tuple[model.Row, ...]
    malformed: tuple[model.Malformed, ...] = ()
    malformed_count: int = 0
    aside: Mapping[str, int] = {}


class FeedFailed(msgspec.Struct, frozen=True, kw_only=True):
    """The feed could not be had or read. A failed feed never looks like an empty one: it defers every family."""

    code: Literal["feed-unavailable", "feed-invalid"]
    message: str


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where feeds are read from: the repository's root for files, and how the network is reached (None: as usual)."""

    root: pathlib.Path
    web: feeds.Web | None = None

    def rows(self, source: settings.Source, *, name: str, limit_bytes: int, run: int = 0, empty: bool) -> feeds.Rows:
        """Return the rows of a source. StreamError where it cannot be had."""
        if source.file:
            path = str(self._inside(source.file))
            return feeds.read_rows(path, name=name, limit_bytes=limit_bytes, allow_empty=empty)
        url = source.feed.replace("{run}", str(run))
        return feeds.fetch_rows(url, name=name, limit_bytes=limit_bytes, allow_empty=empty, web=self.web)

    def document(self, source: settings.Source, *, name: str, limit_bytes: int) -> Any:
        """Return the one JSON document of a source. StreamError where it cannot be had."""
        if not source.file:
            return feeds.fetch_json(source.feed, name=name, limit_bytes=limit_bytes, web=self.web)
        try:
            with self._inside(source.file).open("rb") as file:
                raw = file.read(limit_bytes + 1)
        except OSError as error:
            raise record_errors.StreamError(
                f"{name} cannot be read: {error.strerror}", code="feed-unavailable"
            ) from None
        if len(raw) > limit_bytes:
            raise record_errors.StreamError(f"{name} has more than {limit_bytes} bytes", code="feed-invalid")
        found = feeds.document(raw, name=name)
        if isinstance(found, record_errors.StreamError):
            raise found
        return found

    def _inside(self, file: str) -> pathlib.Path:
        path = self.root / file
        if not path.resolve().is_relative_to(self.root.resolve()):
            raise errors.InputError(f"{file} leaves the repository", advice="Name a file below the repository's root.")
        return path


def published_rows(
    plan: schema.Plan, *, place: Place, repository: str, host: str = "github.com"
) -> RowsRead | FeedFailed:
    """Return the benchmark's published rows. ``host``: the host name in the addresses of producer runs."""
    rows = plan.policy.rows
    name, feed = f"the published rows of {plan.policy.name}", f"the feed of {plan.policy.name}"
    source = settings_source(rows)
    if source is None:
        return FeedFailed(code="feed-invalid", message=f"{name} have no address: rows needs feed or file")
    try:
        if rows.list:
            document = place.document(source, name=feed, limit_bytes=rows.limit_bytes)
            listed_rows = document.get(rows.list) if isinstance(document, dict) else None
            if not isinstance(listed_rows, list) or not listed_rows:
                return FeedFailed(code="feed-invalid", message=f"{name} have no list under {rows.list!r}")
            raws: Sequence[Any] = listed_rows
            bad: list[model.Malformed] = []
            bad_count = 0
        else:
            listed = place.rows(source, name=feed, limit_bytes=rows.limit_bytes, empty=False)
            raws = listed.rows
            bad_count = listed.malformed
            bad = [model.Malformed(index=each.place, why=f"is no row ({each.reason})") for each in listed.bad]
    except record_errors.StreamError as error:
        code: Literal["feed-unavailable", "feed-invalid"] = (
            "feed-invalid" if error.code == "feed-invalid" else "feed-unavailable"
        )
        return FeedFailed(code=code, message=str(error))
    if len(raws) > rows.limit_rows:
        return FeedFailed(code="feed-invalid", message=f"{name} are {len(raws)}, more than {rows.limit_rows}")
    found = codec.RowCodec(plan, repository=repository, host=host).decode_all(raws)
    if not found.rows:
        first = f"; row {found.malformed[0].index} {found.malformed[0].why}" if found.malformed else ""
        other = f"; {sum(found.aside.values())} are of other benchmarks by rows.only" if found.aside else ""
        return FeedFailed(code="feed-invalid", message=f"none of the {len(raws)} {name[4:]} can be read{first}{other}")
    return RowsRead(
        rows=tuple(found.rows),
        malformed=(*bad, *found.malformed)[: codec.MAX_NAMED_MALFORMED],
        malformed_count=found.malformed_count + bad_count,
        aside=found.aside,
    )


def settings_source(rows: settings.Rows) -> settings.Source | None:
    """Return where the rows are, None where neither or both places are named."""
    if bool(rows.feed) == bool(rows.file):
        return None
    return settings.Source(feed=rows.feed, file=rows.file)


# -- producers --------------------------------------------------------------------------------------------------------


def prove_runs(
    plan: schema.Plan,
    rows: Sequence[model.Row],
    runs: Iterable[int],
    *,
    gateway: gateways.Gateway,
    place: Place,
) -> dict[str, model.Proof | model.Unproven]:
    """Return, by run id as text, the commit of each run or why it is not known. One request a run, at most MAX_RUNS."""
    attempts: dict[int, int] = {}
    for row in rows:
        if row.run_id is not None:
            attempts[row.run_id] = max(attempts.get(row.run_id, 1), row.attempt or 1)
    found: dict[str, model.Proof | model.Unproven] = {}
    gone: list[int] = []
    for count, run_id in enumerate(sorted(set(runs), reverse=True)):
        if count >= MAX_RUNS:
            found[str(run_id)] = model.Unproven(run_id=run_id, why=f"run {run_id} is beyond the {MAX_RUNS} looked up")
            continue
        try:
            run = gateway.run(run_id)
        except errors.RetryLaterError as error:
            why = f"run {run_id} could not be read ({type(error).__name__})"
            found[str(run_id)] = model.Unproven(run_id=run_id, why=why)
            continue
        if isinstance(run, github.Missing):
            gone.append(run_id)
        elif not names.is_oid(run.head_sha):
            found[str(run_id)] = model.Unproven(run_id=run_id, why=f"run {run_id} has no head commit")
        else:
            attempt = attempts.get(run_id, 1)
            if attempt > run.attempt:
                why = f"run {run_id} has {run.attempt} attempt(s), and the row names attempt {attempt}"
                found[str(run_id)] = model.Unproven(run_id=run_id, why=why)
            else:
                found[str(run_id)] = model.Proof(run_id=run_id, attempt=attempt, commit=run.head_sha, how="run")
    if gone:
        found.update(_from_info(plan, gone, attempts, place))
    return found


def _from_info(
    plan: schema.Plan, gone: Sequence[int], attempts: Mapping[int, int], place: Place
) -> dict[str, model.Proof | model.Unproven]:
    source = plan.policy.rows.workflow_info
    if source is None:
        return {str(run): model.Unproven(run_id=run, why=f"run {run} is gone") for run in gone}
    found: dict[str, model.Proof | model.Unproven] = {}
    records: dict[int, list[dict[str, Any]]] = {}
    one_each = "{run}" in source.feed
    for run in gone if one_each else gone[:1]:
        try:
            listed = place.rows(
                source, name="workflow-info", limit_bytes=plan.policy.rows.limit_bytes, run=run, empty=True
            )
        except record_errors.StreamError as error:
            if one_each:
                found[str(run)] = model.Unproven(
                    run_id=run, why=f"run {run} is gone, and workflow-info failed ({error.code})"
                )
                continue
            return {
                str(each): model.Unproven(
                    run_id=each, why=f"run {each} is gone, and workflow-info failed ({error.code})"
                )
                for each in gone
            }
        for record in listed.rows:
            number = _run_id(record)
            if number is not None:
                records.setdefault(number, []).append(record)
    for run in gone:
        if str(run) not in found:
            found[str(run)] = _informed(run, records.get(run, []), attempts.get(run, 1))
    return found


def _run_id(record: Mapping[str, Any]) -> int | None:
    found = (_whole(record.get(key)) for key in ("run_id", "github_run_id", "id"))
    return next((each for each in found if each is not None), None)


def _whole(value: Any) -> int | None:
    """Return a whole number, also one that is written as a text; None for anything else."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and re.fullmatch(r"[1-9][0-9]{0,18}", value):
        return int(value)
    return None


def _informed(run: int, records: Sequence[Mapping[str, Any]], attempt: int) -> model.Proof | model.Unproven:
    """Prove a run from what the feed recorded: exactly one distinct commit, and an attempt that was recorded."""
    if not records:
        return model.Unproven(run_id=run, why=f"run {run} is gone, and workflow-info does not have it")
    said = [record.get("head_sha") for record in records]
    commits = {each if isinstance(each, str) else "" for each in said}
    if len(commits) != 1:
        return model.Unproven(run_id=run, why=f"run {run} is gone, and workflow-info has {len(commits)} commits for it")
    commit = commits.pop()
    if not names.is_oid(commit):
        return model.Unproven(run_id=run, why=f"run {run} is gone, and workflow-info has no full commit id for it")
    most = max(_attempt(record) for record in records)
    if attempt > most:
        why = f"run {run} is gone, and workflow-info knows attempt {most}, not {attempt}"
        return model.Unproven(run_id=run, why=why)
    return model.Proof(run_id=run, attempt=attempt, commit=commit, how="workflow-info")


def _attempt(record: Mapping[str, Any]) -> int:
    """Return the attempt that a record is of: 1 where it says nothing, 0 where what it says is no number."""
    return _whole(record.get("attempt", record.get("run_attempt", 1))) or 0


def changelog(
    plan: schema.Plan, runs: Iterable[int], *, place: Place
) -> dict[str, tuple[str, ...]] | FeedFailed | None:
    """Return, by run id as text, the family patterns that a run's changelog selects; None where none is configured."""
    source = plan.policy.rows.changelog
    if source is None:
        return None
    found: dict[str, tuple[str, ...]] = {}
    asked = sorted(set(runs)) if "{run}" in source.feed else [0]
    try:
        for run in asked[:MAX_RUNS]:
            limit = plan.policy.rows.limit_bytes
            for record in place.rows(source, name="the changelog", limit_bytes=limit, run=run, empty=True).rows:
                number = _run_id(record) or (run or None)
                patterns = record.get("families")
                if number is not None and isinstance(patterns, list):
                    kept = tuple(each for each in patterns[:_PATTERNS] if isinstance(each, str))
                    found[str(number)] = found.get(str(number), ()) + kept
    except record_errors.StreamError as error:
        code: Literal["feed-unavailable", "feed-invalid"] = (
            "feed-invalid" if error.code == "feed-invalid" else "feed-unavailable"
        )
        return FeedFailed(code=code, message=str(error))
    return found
