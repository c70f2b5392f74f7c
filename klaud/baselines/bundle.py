"""The evidence bundle: everything that one family's verdict rests on, in one file that repeats it offline.

``baseline-<candidate>.json`` holds the settings that decide (no addresses, no reasons written by people), the decoded rows
that the family answered for, how each producer was proven and trusted, the matrices (gzip), and the verdict. No standard
error, no free text of others. The file is written in one canonical way, so its SHA-256 (``digest``) names its content.

Promises: ``check`` judges again from the saved inputs alone, and writes the bundle again: both must give the same bytes. The
packed matrices are held to their content and to the file's own seal, not to how this host's zlib packs, so that a bundle
repeats wherever it is read.
Not promised: that the producers said what the matrices say; that is what the proofs and the sandbox are for.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import zlib
from typing import TYPE_CHECKING, Literal

import msgspec

from klaud import errors
from klaud.baselines import codec, decide, model, schema, settings

if TYPE_CHECKING:
    from collections.abc import Sequence

VERSION = 1

MAX_BYTES = 256 << 20
"""A bundle on disk: the largest real one has 1 MB."""

MAX_MATRICES = 512 << 20
"""The matrices unpacked: a gzip bomb ends here."""


class _Decisive(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a policy that a verdict depends on. The fields are pairs: their order is the identity's."""

    name: str
    base: Literal["inference", "none"]
    fields: tuple[tuple[str, settings.Field], ...]
    row_fields: dict[str, str | tuple[str, ...]]
    entry_fields: dict[str, str | tuple[str, ...]]
    fingerprint: str
    equivalences: tuple[settings.Equivalence, ...]
    retired: tuple[settings.Retired, ...]
    outlier_factor: float
    outlier_history: int


class Bundle(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file's content. ``matrices`` is base64 of gzip of a JSON list of ``Matrix | NotGenerated``.

    ``seal`` is the SHA-256 of the file as it is with an empty seal: it shows an edit, also where no verdict depends on what
    was edited. Whoever means to deceive makes a new one; the ledger's digest is against that.
    """

    kind: Literal["klaud-baseline"] = "klaud-baseline"
    version: Literal[1] = 1
    verdict: model.Verdict
    current: str
    policy: _Decisive
    rows: tuple[model.Row, ...]
    proofs: model.Proofs
    isolation: model.Isolation
    matrices: str
    seal: str = ""


class _Version(msgspec.Struct, frozen=True, kw_only=True):
    """What any version of the file has."""

    kind: str = ""
    version: int = 0


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """What ``check`` found: ``problem`` is empty where the verdict and the bytes repeat."""

    digest: str
    verdict: model.Verdict
    problem: str = ""


def digest(data: bytes) -> str:
    """Return the name of a bundle by its content: ``sha256:<hex>``."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _decisive(policy: model.Policy) -> _Decisive:
    return _Decisive(
        name=policy.name,
        base=policy.identity.base,
        fields=tuple(policy.identity.fields.items()),
        row_fields=dict(policy.rows.fields),
        entry_fields=dict(policy.generator.fields),
        fingerprint=policy.generator.fingerprint,
        equivalences=policy.equivalences,
        retired=tuple(msgspec.structs.replace(each, reason="") for each in policy.retired),
        outlier_factor=policy.outlier_factor,
        outlier_history=policy.outlier_history,
    )


def _policy(part: _Decisive) -> model.Policy:
    return model.Policy(
        name=part.name,
        identity=settings.Schema(base=part.base, fields=dict(part.fields)),
        rows=settings.Rows(fields=part.row_fields),
        generator=settings.Generator(fields=part.entry_fields, fingerprint=part.fingerprint),
        equivalences=part.equivalences,
        retired=part.retired,
        outlier_factor=part.outlier_factor,
        outlier_history=part.outlier_history,
    )


def make(
    policy: model.Policy,
    rows: Sequence[model.Row],
    proofs: model.Proofs,
    produced: model.Produced,
    *,
    family: str,
    current: str,
    relied: model.Relied | None = None,
) -> bytes:
    """Return the bundle of one family. ``relied``: as in the judgement, so that the whole feed is not judged again.

    The verdict in it is judged from what is in it. BugError where that would not repeat.
    """
    part = _decisive(policy)
    plan = schema.plan(_policy(part))
    if relied is None:
        whole = decide.Judge(plan, proofs, produced, [family], current)
        whole.run(rows)
        relied = whole.relied(family)
    mine = tuple(sorted((row for row in rows if row.digest in relied.rows), key=lambda row: (row.digest, row.index)))
    few = _few(produced, relied.families | {family})
    runs = {str(row.run_id) for row in mine}
    known = {key: value for key, value in sorted(proofs.runs.items()) if key in runs}
    commits = {proof.commit for proof in known.values() if isinstance(proof, model.Proof)}
    changelog = proofs.changelog
    less = model.Proofs(
        runs=known,
        commits={key: value for key, value in sorted(proofs.commits.items()) if key in commits},
        changelog=None if changelog is None else {key: changelog[key] for key in sorted(runs & changelog.keys())},
    )
    bundle = Bundle(
        verdict=model.Verdict(benchmark=policy.name, family=family, verdict="deferred"),
        current=current,
        policy=part,
        rows=mine,
        proofs=less,
        isolation=produced.isolation,
        matrices=_pack(few),
    )
    data = _encode(_sealed(msgspec.structs.replace(bundle, verdict=_judged(bundle))))
    problem = check(data).problem
    if problem:
        raise errors.BugError(f"the evidence bundle of {family} does not repeat: {problem}")
    return data


def _few(produced: model.Produced, families: frozenset[str]) -> list[model.Matrix | model.NotGenerated]:
    kept = [item for item in produced.matrices if item.family in families]
    fixed = [msgspec.structs.replace(item, cached=False) if isinstance(item, model.Matrix) else item for item in kept]
    return sorted(fixed, key=lambda item: (item.commit, item.family))


def _canonical(matrices: Sequence[model.Matrix | model.NotGenerated]) -> bytes:
    return msgspec.json.encode([[isinstance(item, model.Matrix), item] for item in matrices], order="sorted")


def _pack(matrices: Sequence[model.Matrix | model.NotGenerated]) -> str:
    return base64.b64encode(gzip.compress(_canonical(matrices), 9, mtime=0)).decode()


def _unpacked(text: str) -> bytes:
    with gzip.open(io.BytesIO(base64.b64decode(text, validate=True)), "rb") as file:
        raw = file.read(MAX_MATRICES + 1)
    if len(raw) > MAX_MATRICES:
        raise errors.InputError(f"the bundle's matrices unpack to more than {MAX_MATRICES} bytes")
    return raw


def _matrices(raw: bytes) -> list[model.Matrix | model.NotGenerated]:
    found: list[model.Matrix | model.NotGenerated] = []
    for made, item in msgspec.json.decode(raw, type=list[tuple[bool, msgspec.Raw]]):
        kind: type[model.Matrix | model.NotGenerated] = model.Matrix if made else model.NotGenerated
        found.append(msgspec.json.decode(item, type=kind))
    return found


def _encode(bundle: Bundle) -> bytes:
    return msgspec.json.format(msgspec.json.encode(bundle, order="sorted"), indent=1) + b"\n"


def _sealed(bundle: Bundle) -> Bundle:
    bare = msgspec.structs.replace(bundle, seal="")
    return msgspec.structs.replace(bundle, seal=hashlib.sha256(_encode(bare)).hexdigest())


def _judged(bundle: Bundle) -> model.Verdict:
    produced = model.Produced(
        benchmark=bundle.policy.name,
        matrices=tuple(_matrices(_unpacked(bundle.matrices))),
        isolation=bundle.isolation,
    )
    return decide.judge(
        schema.plan(_policy(bundle.policy)),
        bundle.rows,
        bundle.proofs,
        produced,
        families=[bundle.verdict.family],
        current=bundle.current,
    ).verdicts[0]


def _row_digest(row: model.Row) -> str:
    metrics = dict(sorted(row.metrics.items()))
    return codec.row_digest(row.identity, metrics, row.run_url, row.date, row.fingerprint or "")


def read(data: bytes) -> Bundle:
    """Return a bundle's content. InputError where it is none, or one of a newer klaud."""
    if len(data) > MAX_BYTES:
        raise errors.InputError(f"the bundle has more than {MAX_BYTES} bytes")
    try:
        of = msgspec.json.decode(data, type=_Version)
        if of.kind == "klaud-baseline" and of.version != VERSION:
            raise errors.InputError(
                f"this is no evidence bundle that this klaud can read: it is of version {of.version}, and this klaud reads"
                f" version {VERSION}",
                advice="Verify it with the klaud that made it.",
            )
        return msgspec.json.decode(data, type=Bundle)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise errors.InputError(f"this is no evidence bundle that this klaud can read: {str(error)[:200]}") from None


_UNREADABLE = (
    msgspec.MsgspecError, ArithmeticError, EOFError, LookupError, OSError, RecursionError, TypeError, ValueError, zlib.error,
)  # fmt: skip
"""What judging made-up inputs may raise."""


def check(data: bytes) -> Checked:
    """Judge again from a bundle's own inputs, and write it again. InputError where it cannot be read."""
    bundle = read(data)
    try:
        again = _judged(bundle)
        raw = _unpacked(bundle.matrices)
        plain = _canonical(_matrices(raw)) == raw
    except _UNREADABLE as error:
        raise errors.InputError(f"the bundle's inputs cannot be judged: {type(error).__name__}") from None
    problem = ""
    changed = [row for row in bundle.rows if _row_digest(row) != row.digest]
    if changed:
        problem = f"{len(changed)} row(s) are not what their digests say"
    elif again != bundle.verdict:
        problem = (
            f"the inputs give {again.verdict}, and the bundle says {bundle.verdict.verdict}, or its reasons differ"
        )
    elif not plain or _encode(_sealed(msgspec.structs.replace(bundle, verdict=again))) != data:
        problem = "the verdict repeats, and the bytes do not: the file was changed or written by another version"
    return Checked(digest=digest(data), verdict=again, problem=problem)
