"""Every malformed record, in every kind of ref: that ref is quarantined by name and stays; nothing else is changed by it."""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING

import pytest

from klaud import names
from klaud.leases import codec
from klaud.leases import model as leases
from klaud.recovery import run, summary
from klaud.reports import render
from tests.support import memory_gateway, memory_invariants
from tests.support.memory_scenes import Made, Scene
from tests.support.memory_world import EMPTY_TREE, GitObject

if TYPE_CHECKING:
    from collections.abc import Callable

    from klaud.recovery import model

KEY = b"record-key"


def good(scene: Scene, ref: str, made: Made) -> bytes:
    """Return a record that fits the ref."""
    at = scene.world.time
    holder = leases.Holder(run_id=made.run_id, attempt=1, job="candidate", nonce="00")
    records: dict[str, leases.Record] = {
        "claims": leases.Claim(
            at=at, wave=made.wave, candidate=made.candidate, family=made.family, base=scene.world.main, holder=holder
        ),
        "sessions": leases.SessionStarted(
            at=at, wave=made.wave, candidate=made.candidate, family=made.family, base=scene.world.main, holder=holder
        ),
        "leases": leases.Lease(at=at, wave=made.wave, candidate=made.candidate, holder=holder),
        "families": leases.FamilyMemory(at=at, family=made.family),
        "tombstones": leases.Tombstone(at=at, candidate=made.candidate, number=1),
        "observed": leases.Observed(at=at),
    }
    return codec.encode(
        records[ref.split("/")[2]], repository=scene.setting.repository, ref=ref, previous=None, key=None
    )


def fields(text: bytes, **more: object) -> bytes:
    return json.dumps({**json.loads(text), **more}).encode()


TEXTS: dict[str, Callable[[bytes], bytes]] = {
    "truncated": lambda text: text[: len(text) // 2],
    "empty": lambda _: b"",
    "no version that ever was": lambda text: fields(text, klaud=0),
    "a version that is a text": lambda text: fields(text, klaud="1"),
    "an unknown field": lambda text: fields(text, surprise=1),
    "another kind": lambda text: fields(text, kind="turn-started"),
    "a list": lambda text: b"[" + text + b"]",
    "a name twice": lambda text: text.rstrip()[:-1] + b',"at":"2026-01-01T00:00:00Z"}',
    "no UTF-8": lambda text: text.replace(b'"at"', b'"\xff\xfe"'),
    "NaN": lambda text: text.replace(b'"klaud":1', b'"klaud":NaN'),
    "a time without a zone": lambda text: fields(text, at="2026-01-01T00:00:00"),
    "deep": lambda _: b"[" * 30_000 + b"]" * 30_000,
    "1 MB": lambda text: text + b" " * 1_048_576,
}
OBJECTS: dict[str, Callable[[bytes, str], GitObject]] = {
    "a commit with a tree": lambda text, _: GitObject(text, (), "tree with files"),
    "a tag": lambda text, _: GitObject(text, (), EMPTY_TREE, tag=True),
    "a merge": lambda text, main: GitObject(text, (main, main), EMPTY_TREE),
}
KINDS = ("claims", "sessions", "leases", "families", "tombstones", "observed")


def ref_of(scene: Scene, kind: str, made: Made) -> str:
    return {
        "claims": scene.names.claim(names.family_of(made.candidate)),
        "sessions": scene.names.session(made.wave, made.candidate),
        "leases": scene.names.lease(made.wave, made.candidate),
        "families": scene.names.family(names.family_of(made.candidate)),
        "tombstones": scene.names.tombstone(made.candidate),
        "observed": scene.names.observed(),
    }[kind]


def built() -> tuple[Scene, Made, Made]:
    """Return a scene with a dead session, and a second of which only its run is left."""
    scene = Scene()
    dead = scene.session("dead", smoke="in_progress")
    other = scene.session("other", ledger=False, claim=False, branch=False)
    return scene, dead, other


def spoilt(scene: Scene, kind: str, made: Made, how: str) -> str:
    """Put a malformed record there; return its ref."""
    ref = ref_of(scene, kind, made)
    text = good(scene, ref, made)
    if how in TEXTS:
        thing = GitObject(TEXTS[how](text), (), EMPTY_TREE, scene.world.bot, scene.world.bot)
    else:
        thing = OBJECTS[how](text, scene.world.main)
    scene.world.move_ref(ref, scene.world.add_object(thing), by=scene.world.mallory)
    return ref


@functools.cache
def undisturbed() -> dict[str, dict[object, object]]:
    """Return the end of a sweep without any malformed record."""
    plain, _, _ = built()
    plain.sweep()
    return memory_invariants.digest(plain)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", [*TEXTS, *OBJECTS])
def test_a_malformed_record_is_named_and_changes_nothing_else(kind: str, how: str) -> None:
    scene, dead, other = built()
    ref = spoilt(scene, kind, other, how)
    oid = scene.world.state.refs[ref]
    report = scene.sweep()
    assert report.red == ()
    assert scene.world.state.refs[ref] == oid
    assert set(report.quarantined) == {ref}
    assert report.quarantined[ref]
    text = render.text(summary.summary(report))
    assert ref.rpartition("/")[2][:16] in text
    assert {entry.row for entry in report.sessions if entry.session == dead.key} == {"14"}
    end = digest_without(scene, ref)
    assert memory_invariants.differences(undisturbed(), end) == []


def digest_without(scene: Scene, ref: str) -> dict[str, dict[object, object]]:
    scene.world.state.refs.pop(ref, None)
    return memory_invariants.digest(scene)


@pytest.mark.parametrize("kind", KINDS)
def test_with_a_key_a_record_that_is_not_signed_with_it_is_quarantined(kind: str) -> None:
    """Unsigned, signed with another key, and signed for another ref."""
    for signed in ("not", "another key", "another ref"):
        scene, _, other = built()
        ref = ref_of(scene, kind, other)
        text = good(scene, ref, other)
        record = codec.decode(text, repository=scene.setting.repository, ref=ref, parent=None, key=None)
        assert not isinstance(record, codec.Bad | codec.Later)
        if signed != "not":
            where = ref if signed == "another key" else ref + "0"
            key = b"other" if signed == "another key" else KEY
            text = codec.encode(record, repository=scene.setting.repository, ref=where, previous=None, key=key)
        scene.put(ref, scene.refs.write_commit(text))
        oid = scene.world.state.refs[ref]
        report = sweep_with_key(scene)
        assert scene.world.state.refs[ref] == oid, signed
        assert "sign" in report.quarantined[ref]


def sweep_with_key(scene: Scene) -> model.Report:
    from klaud.leases import store as stores  # noqa: PLC0415 - only here

    scene.begin()
    scene.gateway = memory_gateway.gateway(scene.world, client="sweep")
    scene.refs = memory_gateway.ref_store(scene.world, client="sweep")
    store = stores.LeaseStore(
        refs=scene.refs, names=scene.names, repository=scene.setting.repository, clock=scene.world.clock, key=KEY
    )
    return run.sweep(scene.parts(snapshot=store.snapshot, key=KEY))


@pytest.mark.parametrize(
    "name",
    ["claims/XYZ", "claims/0123456789abcdef0", "sessions/1-2", "leases/", "tombstones/a", "nobody/knows", "observed/x"],
)
def test_a_wrong_ref_name_is_foreign_and_left(name: str) -> None:
    scene, dead, _ = built()
    ref = f"refs/klaud/{name}"
    scene.put(ref, scene.refs.write_commit(b'{"klaud":1}'))
    report = scene.sweep()
    assert report.foreign == (ref,)
    assert ref in scene.world.state.refs
    assert not scene.world.state.pulls[dead.number or 0].open
