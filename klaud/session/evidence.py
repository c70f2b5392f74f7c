"""Does the final run cover the frozen baseline? Three answers: verified, unreadable, wrong.

The baseline is the bundle whose digest stands in the ledger; the results are an artifact of the final run, rows in the same
mapping as published ones. Coverage is by identity (without the fields that a candidate may change), never by count. What
could not be read is never "wrong": a green run is not thrown away because of a bad read.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, assert_never

import msgspec

from klaud import errors, feeds
from klaud.baselines import codec
from klaud.baselines import model as baselines
from klaud.records import archive
from klaud.records import errors as stream_errors
from klaud.session.rules_coverage import Evidence, Frozen, Unreadable, Wrong, cover, evaluated, is_evaluation

if TYPE_CHECKING:
    from pathlib import Path

    from klaud.baselines import schema
    from klaud.github import gateway as ports
    from klaud.github import model as hub
    from klaud.session import model

ENTRIES = 200
"""Files in a results artifact: it has one that counts."""
ZIP_BYTES = 64 * 1_048_576
"""The artifact as it is downloaded."""
BUNDLE_BYTES = 256 * 1_048_576
"""A frozen baseline's bundle."""
RESULT_FILES = ("results.json", "results.jsonl")


def load(path: Path, digest: str | None) -> Frozen | Unreadable:
    """Return the frozen baseline in the bundle at ``path``; ``digest``: what the ledger says it is, None to believe it.

    The digest covers the file's bytes, so a bundle that anybody has edited is never compared with.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(BUNDLE_BYTES + 1)
    except OSError as error:
        return Unreadable("bundle", f"the bundle {path.name} cannot be read: {error.strerror}")
    if len(raw) > BUNDLE_BYTES:
        return Unreadable("bundle", f"the bundle {path.name} has more than {BUNDLE_BYTES} bytes")
    if digest is not None and f"sha256:{hashlib.sha256(raw).hexdigest()}" != digest:
        return Unreadable("bundle", f"the bundle {path.name} is not the one whose digest is on record")
    try:
        held = msgspec.json.decode(raw, type=_Bundle)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Unreadable("bundle", f"the bundle {path.name} is not a bundle")
    return Frozen(held.verdict.points)


class _Bundle(msgspec.Struct, frozen=True):
    verdict: baselines.Verdict


def judge(
    gateway: ports.Gateway,
    run: hub.Run,
    frozen: Frozen | Unreadable,
    *,
    plan: schema.Plan,
    repository: str,
    host: str,
    artifact: str,
    limit: int,
    evaluations: model.Evaluations | None = None,
) -> Evidence:
    """Return whether ``run``'s results cover ``frozen``, and hold the evaluations that are required.

    ``limit``: bytes of the unpacked results.
    """
    if isinstance(frozen, Unreadable):
        return frozen
    rows = _rows(gateway, run.id, artifact, limit)
    if isinstance(rows, Unreadable | Wrong):
        return rows
    decoder = codec.RowCodec(plan, repository=repository, host=host)
    decoded = decoder.decode_all(rows).rows
    if evaluations is None or evaluations.need == "none":
        return cover(frozen.points, decoded, plan)
    strange = [name for name in evaluations.by if name not in plan.at]
    if strange:
        return Unreadable("configuration", f"evaluations.by names {strange[0]!r}, which is no field of the identity")
    judged: list[baselines.Row] = []
    measured: list[baselines.Row] = []
    for row in decoded:
        (judged if is_evaluation(rows[row.index], evaluations) else measured).append(row)
    answer = cover(frozen.points, measured, plan)
    if isinstance(answer, Wrong):
        return answer
    return evaluated(frozen.points, judged, plan, evaluations.by) or answer


def _rows(gateway: ports.Gateway, run_id: int, name: str, limit: int) -> list[Any] | Unreadable | Wrong:
    try:
        listing = gateway.artifacts(run_id)
    except (errors.RetryLaterError, errors.RefusedWriteError) as error:
        return Unreadable("listing", f"the artifacts of run {run_id} could not be listed: {type(error).__name__}")
    named = [artifact for artifact in listing.items if artifact.name == name]
    if not named:
        if not listing.complete:
            return Unreadable("listing", f"the artifacts of run {run_id} are not all listed: {listing.why_not}")
        return Wrong("no-results")
    newest = max(named, key=lambda artifact: artifact.id)
    if newest.expired:
        return Unreadable("expired", f"the artifact {name} of run {run_id} has expired")
    if newest.size > ZIP_BYTES:
        return Unreadable(
            "too-big", f"the artifact {name} of run {run_id} has {newest.size} bytes, more than {ZIP_BYTES}"
        )
    try:
        data = gateway.download_artifact(newest.id, ZIP_BYTES)
    except (errors.RetryLaterError, errors.RefusedWriteError) as error:
        return Unreadable("download", f"the artifact {name} of run {run_id} could not be had: {type(error).__name__}")
    return unpack(data, limit)


def unpack(data: bytes, limit: int) -> list[Any] | Unreadable | Wrong:
    """Return the rows of a results artifact (a zip), bounded in entries and unpacked bytes; a bad row is left out."""
    for name in RESULT_FILES:
        found = archive.member(data, name, entries=ENTRIES, unpacked=limit)
        if isinstance(found, bytes):
            return _parse(name, found)
        match found.why:
            case "absent":
                continue
            case "too-many":
                return Unreadable("too-big", f"the results artifact has more than {ENTRIES} files")
            case "too-large":
                return Unreadable("too-big", f"{name} has more than {limit} bytes")
            case "damaged" | "twice":
                return Wrong("results-not-readable")
            case _ as never:
                assert_never(never)
    return Wrong("no-results")


def _parse(name: str, text: bytes) -> list[Any] | Wrong:
    if name.endswith(".json") and not text.lstrip().startswith(b"["):
        return Wrong("results-not-readable")
    found = feeds.rows(text, name=name, allow_empty=True)
    return Wrong("results-not-readable") if isinstance(found, stream_errors.StreamError) else list(found.rows)
