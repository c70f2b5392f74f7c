"""Normalisation of values, and the named equivalences between what a matrix says and what a publisher writes.

``encodings`` turns one matrix identity into every identity under which a row may have been published: the plain one
first, then one for each equivalence that is on and applies. No equivalence is combined with another, and none is wider
than its sentence in baselines.md 3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from klaud.baselines import model, schema, settings

_ROLE_COLUMNS = ("tp", "ep", "dp_attention", "num_workers")


def transform(name: settings.Transform, text: str) -> str:
    """Return ``text`` normalised.

    ``image``: enroot's ``registry#path`` becomes ``registry/path`` (an image reference has no ``#`` of its own).
    ``runner``: a runner label becomes its hardware: what follows ``cluster:`` up to the first ``-`` (``cluster:gb200-nv``
    and ``gb200`` are ``gb200``). ``lower``: lower case.
    """
    if name == "image":
        return text.replace("#", "/")
    if name == "runner":
        return text.removeprefix("cluster:").partition("-")[0]
    if name == "lower":
        return text.lower()
    return text


def encodings(plan: schema.Plan, identity: model.Identity) -> list[tuple[model.Identity, str]]:
    """Return the identities under which an entry may have been published, each with the equivalence it needs or ``""``.

    The entry's own identity comes first, and no identity stands twice.
    """
    found = [(identity, "")]
    for name in plan.policy.equivalences:
        other = _equivalent(plan, identity, name)
        if other is not None and all(other != known for known, _ in found):
            found.append((other, name))
    return found


def _equivalent(plan: schema.Plan, identity: model.Identity, name: settings.Equivalence) -> model.Identity | None:
    at = plan.at
    multinode = identity[at["is_multinode"]]
    if identity[at["disagg"]]:
        return None
    if name == "agentic-single-node-disagg-flag":
        agentic = str(identity[at["benchmark_type"]]).startswith("agentic")
        return _with(identity, [(at["disagg"], True)]) if agentic and not multinode else None
    if not multinode or identity[at["decode_num_workers"]] != 0:
        return None
    mirrored = [(at[f"decode_{column}"], identity[at[f"prefill_{column}"]]) for column in _ROLE_COLUMNS]
    if name == "aggregate-mirror":
        return _with(identity, mirrored)
    if identity[at["prefill_num_workers"]] != 1:
        return None
    alone = [(at["is_multinode"], False), (at["prefill_num_workers"], 0), (at["decode_num_workers"], 0)]
    return _with(identity, [*mirrored, *alone])


def _with(identity: model.Identity, changes: Sequence[tuple[int, model.Value]]) -> model.Identity:
    values = list(identity)
    for place, value in changes:
        values[place] = value
    return tuple(values)


def differing(one: model.Identity, other: model.Identity) -> list[int]:
    """Return the places in which two identities differ."""
    return [i for i, (a, b) in enumerate(zip(one, other, strict=True)) if a != b]
