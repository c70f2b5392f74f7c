"""The built-in identity of inference benchmarks, and a schema made ready for reading rows and entries.

What makes two points the same is data. ``INFERENCE`` has the fields of baselines.md 1 and 3 with the places where the
published rows and the matrix entries of such repositories have them; a configuration adds, replaces, or starts from
nothing.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from klaud import errors
from klaud.baselines import model, settings

ROLES = ("prefill", "decode")


def _role(role: str) -> dict[str, settings.Field]:
    """Return the four columns of one role; a single-node entry has them at its top level, for both roles."""
    integer = settings.Field(type="integer")
    return {
        f"{role}_tp": msgspec.structs.replace(integer, entry=(f"{role}.tp", "tp")),
        f"{role}_ep": msgspec.structs.replace(integer, entry=(f"{role}.ep", "ep"), default=1),
        f"{role}_dp_attention": settings.Field(type="flag", entry=(f"{role}.dp-attn", "dp-attn"), default=False),
        f"{role}_num_workers": msgspec.structs.replace(integer, entry=(f"{role}.num-worker",), default=0),
    }


INFERENCE: Mapping[str, settings.Field] = {
    "model": settings.Field(entry=("model-prefix",), scope=True),
    "hardware": settings.Field(entry=("runner",), entry_transform="runner", scope=True),
    "framework": settings.Field(scope=True),
    "precision": settings.Field(scope=True),
    "spec_method": settings.Field(entry=("spec-decoding",), default="none", scope=True),
    "disagg": settings.Field(type="flag", default=False),
    "is_multinode": settings.Field(type="flag", entry=("prefill?",), default=False),
    "benchmark_type": settings.Field(
        entry=("scenario-type",),
        default="single_turn",
        values={"agentic-coding": "agentic_traces", "fixed-seq-len": "single_turn"},
    ),
    "isl": settings.Field(type="integer", default=None),
    "osl": settings.Field(type="integer", default=None),
    "offload_mode": settings.Field(entry=("kv-offloading",), default="off", values={"none": "off", "dram": "on"}),
    "conc": settings.Field(type="integer", list=True),
    "image": settings.Field(transform="image", varies=True),
    **_role("prefill"),
    **_role("decode"),
}
"""Model, machine, software, shape of the load, and the two roles of an engine."""


class Path(msgspec.Struct, frozen=True):
    """One place to read a value from: keys from the outside in; ``presence`` asks only whether it is there."""

    keys: tuple[str, ...]
    presence: bool = False


class Reader(msgspec.Struct, frozen=True):
    """One field made ready: where to read it in a row and in an entry.

    ``row_key`` and ``entry_key``: the only key where it stands at the top of a row or an entry, else None.
    """

    name: str
    field: settings.Field
    row: tuple[Path, ...]
    entry: tuple[Path, ...]
    row_key: str | None
    entry_key: str | None


class Plan(msgspec.Struct, frozen=True):
    """A policy made ready for reading and matching. ``at`` maps a field's name to its place in an identity.

    ``scope_of`` gives the coarse part of an identity, by which a row is attributed to families; ``point_of`` an identity
    without what a candidate may change: what "the same point, published again" means.
    """

    policy: model.Policy
    readers: tuple[Reader, ...]
    names: tuple[str, ...]
    at: Mapping[str, int]
    scope_of: Callable[[model.Identity], model.Identity]
    point_of: Callable[[model.Identity], model.Identity]
    used: frozenset[tuple[str, ...]]

    def named(self, identity: model.Identity) -> dict[str, model.Value]:
        """Return an identity by field name."""
        return dict(zip(self.names, identity, strict=True))


def _picker(places: Sequence[int]) -> Callable[[model.Identity], model.Identity]:
    """Return a function that picks some places of an identity, always as a tuple."""
    if len(places) > 1:
        return operator.itemgetter(*places)
    return lambda identity: tuple(identity[i] for i in places)


class SchemaError(errors.InputError):
    """The configured identity cannot work; the message says which part and why."""


def paths(spec: str | tuple[str, ...], name: str) -> tuple[Path, ...]:
    """Return the places that ``spec`` names; empty means the field's own ``name``."""
    texts = (spec,) if isinstance(spec, str) else spec
    found = []
    for text in [each for each in texts if each] or [name]:
        presence = text.endswith("?")
        found.append(Path(tuple(text.removesuffix("?").split(".")), presence))
    return tuple(found)


def _only_key(places: tuple[Path, ...]) -> str | None:
    """Return the key of a field that stands at the top under one name, None for any other."""
    simple = len(places) == 1 and len(places[0].keys) == 1 and not places[0].presence
    return places[0].keys[0] if simple else None


def look(raw: Mapping[str, Any], places: tuple[Path, ...]) -> Any:
    """Return the value at the first place that has one that is not null, else None."""
    for place in places:
        value: Any = raw
        for key in place.keys:
            value = value.get(key) if isinstance(value, dict) else None
            if value is None:
                break
        if place.presence:
            return value is not None
        if value is not None:
            return value
    return None


_NEEDED_BY_EQUIVALENCE: Mapping[str, tuple[str, ...]] = {
    "aggregate-mirror": ("is_multinode", "disagg", *_role("prefill"), *_role("decode")),
    "one-worker-aggregate-as-single-node": ("is_multinode", "disagg", *_role("prefill"), *_role("decode")),
    "agentic-single-node-disagg-flag": ("is_multinode", "disagg", "benchmark_type"),
}


def _check(policy: model.Policy, fields: Mapping[str, settings.Field]) -> None:
    """Raise SchemaError where the policy's parts do not fit together."""
    where = f"benchmark {policy.name}"
    if not fields:
        raise SchemaError(f"{where}: the identity has no fields (identity.base is none, none are named)")
    if all(field.varies for field in fields.values()):
        raise SchemaError(f"{where}: every field of the identity varies, so no two points differ")
    lists = [name for name, field in fields.items() if field.list]
    if len(lists) > 1:
        raise SchemaError(f"{where}: only one field may be a list, not {' and '.join(lists)}")
    named = [("rows.fields", name) for name in policy.rows.fields]
    named += [("generator.fields", name) for name in policy.generator.fields]
    named += [("retired", name) for retired in policy.retired for name in retired.match]
    named += [(f"equivalence {each}", name) for each in policy.equivalences for name in _NEEDED_BY_EQUIVALENCE[each]]
    for part, name in named:
        if name not in fields:
            raise SchemaError(f"{where}: {part} names {name!r}, which is no field of the identity")


def _check_layouts(policy: model.Policy) -> None:
    """Raise SchemaError where a command cannot tell whose an entry is."""
    for layout in policy.generator.layouts:
        if not layout.commands or not all(layout.commands):
            raise SchemaError(f"benchmark {policy.name}: a generator layout has no command")
        for command in layout.commands:
            if not any("{family}" in word for word in command) and not layout.family_field:
                raise SchemaError(
                    f"benchmark {policy.name}: the command {' '.join(command)[:80]!r} does not name one family, so its"
                    " layout needs family-field to tell whose an entry is"
                )


def plan(policy: model.Policy) -> Plan:
    """Return the policy's identity made ready; SchemaError where it cannot work."""
    fields: dict[str, settings.Field] = dict(INFERENCE) if policy.identity.base == "inference" else {}
    fields.update(policy.identity.fields)
    _check(policy, fields)
    _check_layouts(policy)
    readers = []
    for name, field in fields.items():
        row = paths(policy.rows.fields.get(name, field.row), name)
        entry = paths(policy.generator.fields.get(name, field.entry), name)
        readers.append(Reader(name, field, row, entry, _only_key(row), _only_key(entry)))
    used = {place.keys for reader in readers for place in reader.entry if not place.presence}
    return Plan(
        policy=policy,
        readers=tuple(readers),
        names=tuple(reader.name for reader in readers),
        at={reader.name: i for i, reader in enumerate(readers)},
        scope_of=_picker([i for i, reader in enumerate(readers) if reader.field.scope]),
        point_of=_picker([i for i, reader in enumerate(readers) if not reader.field.varies]),
        used=frozenset(used),
    )
