"""Archived ledgers go after their retention, by compare-and-delete; what is not certainly one of klaud's, and old, stays."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING

import pytest

from klaud import names
from klaud.leases import model as leases
from klaud.recovery import decide_cases, model, rules_archives
from tests.support.memory_cases import AT, CANDIDATE, KEY, POLICY, SETTING, listing, run, sight
from tests.support.memory_scenes import Scene
from tests.support.memory_world import Spoil

if TYPE_CHECKING:
    from klaud.github import model as github
    from tests.support.memory_world import Call

DAY = 86400
OID = "a" * 40
NAMES = names.RefNames()


def archived(scene: Scene, name: str, *, text: bytes | None = None, wave: str = "") -> str:
    """Put the archived ledger of one more session there; return its ref."""
    made = scene.session(name, branch=False, claim=False)
    ledger = scene.names.session(made.wave, made.candidate)
    oid = scene.world.state.refs[ledger]
    if text is not None:
        oid = scene.refs.write_commit(text)
    scene.world.move_ref(ledger, None, by=scene.world.bot)
    ref = scene.names.archive("session", f"{wave or made.wave}-{made.candidate}", oid)
    scene.put(ref, oid)
    return ref


def later(scene: Scene, days: float) -> None:
    scene.world.advance(days * DAY)
    scene.started = scene.world.time
    scene.next_run()


def archives(scene: Scene) -> set[str]:
    return {ref for ref in scene.world.state.refs if "/archive/" in ref}


def test_a_ledger_is_archived_and_its_copy_goes_after_another_retention() -> None:
    scene = Scene()
    made = scene.session("old", branch=False, claim=False)
    ledger = scene.names.session(made.wave, made.candidate)
    scene.begin()
    seen = []
    for days in (0, 31, 20, 12, 1):
        later(scene, days)
        report = scene.sweep()
        assert report.red == ()
        seen.append((ledger in scene.world.state.refs, len(archives(scene)), report.totals.pushes > 0))
    assert seen == [(True, 0, False), (False, 1, True), (False, 1, False), (False, 0, True), (False, 0, False)]


def test_what_goes_is_told_with_its_proof() -> None:
    scene = Scene()
    ref = archived(scene, "old")
    scene.begin()
    later(scene, 61)
    (entry,) = scene.sweep().sessions
    assert (entry.row, entry.done) == ("20", (f"deleted {ref}",))
    assert entry.evidence[0].startswith("its last record is of 2026-03-01")


@pytest.mark.parametrize(
    "text", [b"", b"{", b"no record", b'{"klaud":9,"kind":"outcome"}', b'{"klaud":1,"kind":"claim"}', b"x" * 70_000]
)
def test_what_is_no_ledger_record_stays_and_hides_no_other(text: bytes) -> None:
    scene = Scene()
    bad = archived(scene, "bad", text=text)
    good = archived(scene, "good")
    scene.begin()
    later(scene, 100)
    assert scene.sweep().red == ()
    assert archives(scene) == {bad}
    assert good not in scene.world.state.refs


@pytest.mark.parametrize("kind", ["branch", "claim", "other"])
def test_other_copies_stay(kind: str) -> None:
    """A branch's copy that no ledger names, and kinds that nobody has heard of."""
    scene = Scene()
    archived(scene, "old")
    oid = scene.world.commit("work", parent=scene.world.main, author=scene.world.bot)
    ref = scene.names.archive(kind, f"auto-{CANDIDATE}", oid)
    scene.world.move_ref(ref, oid, by=scene.world.alice)
    scene.begin()
    later(scene, 100)
    scene.sweep()
    assert archives(scene) == {ref}


def test_a_copy_that_does_not_stand_where_its_name_says_stays() -> None:
    scene = Scene()
    ref = archived(scene, "old")
    scene.world.move_ref(ref, scene.world.main, by=scene.world.alice)
    scene.begin()
    later(scene, 100)
    scene.sweep()
    assert ref in scene.world.state.refs


def test_a_copy_that_moves_meanwhile_stays() -> None:
    """Compare-and-delete."""
    scene = Scene()
    ref = archived(scene, "old")
    scene.begin()
    later(scene, 100)
    begun = len(scene.world.calls)
    names_of = [call.name for call in _calls_of_a_sweep()]
    scene.world.act_before(
        begun + names_of.index("refs.apply") + 1,
        lambda: scene.world.move_ref(ref, scene.world.main, by=scene.world.alice),
    )
    (entry,) = scene.sweep().sessions
    assert entry.done == ()
    assert scene.world.state.refs[ref] == scene.world.main


def _calls_of_a_sweep() -> list[Call]:
    scene = Scene()
    archived(scene, "old")
    scene.begin()
    later(scene, 100)
    begun = len(scene.world.calls)
    scene.sweep()
    return scene.world.calls[begun:]


def test_a_report_says_it_and_does_nothing() -> None:
    scene = Scene()
    ref = archived(scene, "old")
    scene.begin()
    later(scene, 100)
    (entry,) = scene.sweep(report_only=True).sessions
    assert (entry.row, entry.done) == ("20", ())
    assert ref in scene.world.state.refs


def test_a_read_that_fails_drops_nothing() -> None:
    scene = Scene()
    ref = archived(scene, "old")
    scene.begin()
    later(scene, 100)
    oid = scene.world.state.refs[ref]
    scene.world.rules.append(lambda call: Spoil.FAIL if call.name == "refs.read" and call.args[0] == (oid,) else None)
    assert scene.sweep().red == ()
    assert ref in scene.world.state.refs


def test_a_young_archive_costs_one_fetch_and_an_old_one_is_dropped_in_steps() -> None:
    scene = Scene()
    count = rules_archives.WINDOW + 20
    for index in range(count):
        archived(scene, f"old {index}")
    scene.begin()
    later(scene, 40)
    calls = len(scene.world.calls)
    assert scene.sweep().totals.pushes == 0
    reads = [call.args[0] for call in scene.world.calls[calls:] if call.name == "refs.read"]
    assert [len(oids) for oids in reads] == [1], "nothing else is on record"
    later(scene, 30)
    left = []
    for _ in range(3):
        scene.sweep()
        left.append(len(archives(scene)))
        later(scene, 1)
    assert left == [20, 0, 0]


# -- the rules


def copy(wave: str = "50.1", oid: str = OID) -> rules_archives.Archived:
    return rules_archives.Archived(
        ref=NAMES.archive("session", f"{wave}-{CANDIDATE}", oid), oid=oid, wave=wave, candidate=CANDIDATE
    )


def test_the_window_is_of_the_oldest_runs_and_of_copies_of_ledgers_only() -> None:
    waves = ["900.1", "local-" + "f" * 16, "70.2", "8.1"]
    refs = {copy(wave).ref: OID for wave in waves}
    refs |= {
        copy("1.1").ref: "b" * 40,
        NAMES.archive("session", "no-session", OID): OID,
        NAMES.archive("branch", f"auto-{CANDIDATE}", OID): OID,
        "refs/klaud/archive/odd": OID,
    }
    assert [one.wave for one in rules_archives.window(refs, NAMES)] == ["8.1", "70.2", "900.1", "local-" + "f" * 16]
    many = {copy(f"{number}.1").ref: OID for number in range(1, 200)}
    assert [one.wave for one in rules_archives.window(many, NAMES)] == [f"{n}.1" for n in range(1, 51)]


MARKED = f"klaud candidate {CANDIDATE} [klaud {KEY}]"


@pytest.mark.parametrize(
    ("age", "own", "hub", "runs", "expected"),
    [
        (61, 0, 0, [], True),
        (59, 0, 0, [], False),
        (60, 0, 0, [], False),
        (30, 1000, 0, [], False),
        (61, -10, 0, [], False),
        (61, 0, -10, [], False),
        (61, 0, 0, [run(60, display_title=MARKED, updated_at=AT - datetime.timedelta(days=70))], True),
        (61, 0, 0, [run(60, display_title=MARKED, updated_at=AT - datetime.timedelta(days=2))], False),
        (61, 0, 0, [run(50, updated_at=AT - datetime.timedelta(days=2))], False),
        (61, 0, 0, [run(51, updated_at=AT - datetime.timedelta(days=2))], True),
    ],
)
def test_old_is_what_both_clocks_call_old_and_no_run_contradicts(
    age: int, own: int, hub: int, runs: list[github.Run], expected: bool
) -> None:
    """``age`` of the last record in days; ``own`` and ``hub``: by how many days the clocks are ahead."""
    day = datetime.timedelta(days=1)
    ours = run(999, created_at=AT + hub * day, updated_at=AT + hub * day)
    seen = sight(*runs, own=ours, listing=listing(*runs), now=AT + own * day)
    index = decide_cases.Index.of_sight(seen, SETTING)
    last = leases.TurnStarted(at=AT - age * day, index=0)
    assert rules_archives.is_past(copy(), last, seen, index, POLICY) is expected


@pytest.mark.parametrize("what", ["unread", "cut", "no clock"])
def test_nothing_is_old_where_githubs_side_is_not_known(what: str) -> None:
    ours = None if what == "no clock" else run(999)
    rows = model.Unread("runs", "502") if what == "unread" else listing(complete=what != "cut")
    seen = sight(own=ours, listing=rows)
    index = decide_cases.Index.of_sight(seen, SETTING)
    last = leases.TurnStarted(at=AT - datetime.timedelta(days=1000), index=0)
    assert not rules_archives.is_past(copy(), last, seen, index, POLICY)


def test_a_ledger_that_is_past_both_retentions_goes_without_a_copy() -> None:
    """No sweep ran for two months: a copy would go in the next one, and a second sweep writes nothing."""
    scene = Scene()
    made = scene.session("old", branch=False, claim=False)
    scene.begin()
    later(scene, 61)
    first, second = scene.sweep(), scene.sweep()
    assert (first.red, archives(scene)) == ((), set())
    assert scene.names.session(made.wave, made.candidate) not in scene.world.state.refs
    assert (second.totals.pushes, second.sessions) == (0, ())
