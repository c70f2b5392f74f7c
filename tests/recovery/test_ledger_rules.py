"""What runs and ledgers say, by tables: whose a run is, who holds a session, what is its own, what is left to do."""

from __future__ import annotations

import datetime
from typing import Any

import msgspec
import pytest

from klaud import names
from klaud.github import model as github
from klaud.leases import model as leases
from klaud.recovery import decide_cases, model
from tests.support.memory_cases import (
    AT,
    BOT,
    CANDIDATE,
    FINAL,
    GOING,
    HEAD,
    KEY,
    OTHER,
    SETTING,
    SMOKE,
    case,
    draft,
    holder,
    ledger,
    listing,
    run,
    sight,
)  # fmt: skip
from tests.support.memory_sessions import (
    AGAIN,
    ALICE,
    BAD,
    BRANCH,
    LATER,
    MARKED,
    NEWER,
    PARK,
    SECOND,
    SESSION_REF,
    START,
    TURN,
    effected,
    intent,
    outcome,
    records,
    snapshot,
)  # fmt: skip

# -- runs


def index(*runs: github.Run | github.Missing, own: github.Run | None = None, **fields: Any) -> decide_cases.Index:
    return decide_cases.Index.of_sight(sight(*runs, own=own, **fields), SETTING)


def test_a_read_by_id_wins_over_a_listing() -> None:
    """It is newer; every listing counts where nothing was read by id, and our own run is always known."""
    old, new = run(7, **GOING), run(7)
    seen = index(new, listing=listing(old), planners=listing(run(8)), head_runs={HEAD: listing(run(9))}, own=run(99))
    assert seen.by_id == {7: new, 8: run(8), 9: run(9), 99: run(99)}
    unread = index(
        listing=model.Unread("a", "b"), planners=model.Unread("a", "b"), head_runs={HEAD: model.Unread("a", "b")}
    )
    assert unread.by_id == {}


def test_our_own_run_as_it_was_read_first() -> None:
    """Also where a listing shows it otherwise; a 404 of our own run is no run."""
    own = run(99, **GOING)
    assert index(listing=listing(run(99)), own=own).by_id == {99: own}
    seen = decide_cases.Index({}, SETTING, github.Missing(what="own"))
    assert (seen.by_id, seen.now) == ({}, None)


def test_runs_are_found_by_branch_and_head() -> None:
    """A run of a deleted branch has none; all runs of a head are kept."""
    one, two = run(7, head_branch=BRANCH, head_sha=HEAD), run(8, head_branch=None, head_sha=HEAD)
    seen = index(one, two)
    assert seen.by_branch == {BRANCH: [one]}
    assert seen.by_head == {HEAD: [one, two]}
    assert index(one, run(8, head_branch=BRANCH)).by_branch[BRANCH] == [one, run(8, head_branch=BRANCH)]


def test_a_session_is_found_by_its_marker() -> None:
    """Several runs of one session, all of them; never a check, and never a run that somebody else started."""
    runs = [run(i, **MARKED) for i in (7, 8)]
    assert index(*runs).by_session == {KEY: runs}
    for fields in ({"path": SMOKE}, {"path": FINAL}, {"actor": ALICE}, {"actor": None}, {"display_title": "none"}):
        assert index(run(7, **{**MARKED, **fields})).by_session == {}


def test_the_time_is_the_newest_that_github_showed() -> None:
    """The start of our own run at least, a change of any run if that is later; without runs, none."""
    assert index().now is None
    assert index(run(7, updated_at=AT), run(8, updated_at=LATER), run(9, updated_at=AT)).now == LATER
    own = run(99, created_at=LATER, updated_at=AT)
    assert index(run(7), own=own).now == LATER
    assert index(own=run(99, created_at=AT, updated_at=LATER)).now == LATER


def test_only_runs_that_were_read_count() -> None:
    """In the order asked for; a 404, a failed read and what was not asked for are none."""
    seen = decide_cases.Index({7: run(7), 8: github.Missing(what="r"), 9: model.Unread("r", "502"), 6: run(6)}, SETTING)
    assert [r.id for r in seen.runs([7, 8, 9, 5, 6])] == [7, 6]


@pytest.mark.parametrize(
    ("title", "marker"),
    [
        ("x [klaud 1.1-a]", "1.1-a"),
        ("[klaud 1.1-a]", "1.1-a"),
        ("[klaud old] [klaud new]", "new"),
        ("[klaud 1.1-a] x", ""),
        ("[klaud 1.1-a", ""),
        ("x]", ""),
        ("", ""),
    ],
)
def test_the_marker_ends_the_name(title: str, marker: str) -> None:
    """The last one, closed, with nothing after it."""
    assert decide_cases.marker_of(title) == marker


def test_a_workflow_is_known_by_its_file() -> None:
    """Whatever folder and ref surround it."""
    assert decide_cases.workflow_of(run(7, path=FINAL)) == "bench-final.yml"
    assert decide_cases.workflow_of(run(7, path="bench-smoke.yml")) == "bench-smoke.yml"
    assert decide_cases.workflow_of(run(7, path=".github/workflows/a.yml@refs/heads/x/b.yml")) == "a.yml"


@pytest.mark.parametrize(
    ("account", "is_it"),
    [(BOT, True), (github.Account(id=90001, login="renamed"), True), (ALICE, False), (None, False),
     (github.Account(id=1, login="klaud-bot", type="Bot"), False)],
)  # fmt: skip
def test_klaud_is_known_by_its_id(account: github.Account | None, is_it: bool) -> None:
    """Never by a name."""
    assert decide_cases.is_klaud(account, SETTING) is is_it


@pytest.mark.parametrize(
    ("fields", "is_it"),
    [
        ({}, True),
        ({"path": ".github/workflows/other.yml"}, True),
        ({"path": ".github/workflows/other.yml", "display_title": "x [klaud 1.1-a]"}, False),
        ({"display_title": "x [klaud 1.1-a]"}, True),
        ({"status": "completed"}, False),
        ({"status": "odd"}, True),
        ({"actor": ALICE}, False),
        ({"triggering_actor": ALICE}, False),
        ({"path": FINAL}, False),
        ({"path": ".github/workflows/klaud-candidate.yml"}, False),
    ],
)
def test_what_may_be_cancelled(fields: dict[str, Any], is_it: bool) -> None:
    """Unfinished, klaud's alone, and neither a session nor a final run."""
    assert decide_cases.is_smoke(run(7, **{"path": SMOKE, **GOING, **fields}), SETTING) is is_it


# -- what a ledger says


def test_the_start_is_the_first_record() -> None:
    """Nothing else stands for it."""
    assert decide_cases.started(records(START, TURN)) == START
    assert decide_cases.started(records(TURN, START)) is None
    assert decide_cases.started(records()) is None


def test_the_holder_is_the_newest_run() -> None:
    """The start's, until a continuation took over."""
    assert decide_cases.holder(records()) is None
    assert decide_cases.holder(records(TURN)) is None
    assert decide_cases.holder(ledger(PARK)) == holder(60)
    assert decide_cases.holder(ledger(PARK, AGAIN, TURN)) == holder(61)


@pytest.mark.parametrize(
    ("found", "parked"),
    [
        ((), None),
        ((START,), None),
        ((START, PARK), PARK),
        ((START, PARK, TURN), PARK),
        ((START, PARK, AGAIN), None),
        ((PARK, START), None),
        ((START, PARK, AGAIN, PARK), PARK),
    ],
)
def test_a_park_lasts_until_it_went_on(found: tuple[leases.LedgerRecord, ...], parked: leases.Parked | None) -> None:
    """A record of another kind does not end it."""
    assert decide_cases.parked(records(*found)) == parked


def test_the_newest_outcome_counts() -> None:
    """And none where there is none."""
    assert decide_cases.outcome(ledger(PARK)) is None
    assert decide_cases.outcome(ledger(outcome(), outcome("validated"), TURN)) == outcome("validated")


@pytest.mark.parametrize(
    ("later", "left"),
    [
        ((), ("close-draft", "delete-branch")),
        ((effected("close-draft"),), ("delete-branch",)),
        ((effected("close-draft", "found"),), ("delete-branch",)),
        ((effected("close-draft", "refused"),), ("close-draft", "delete-branch")),
        ((effected("close-draft", "unclear"),), ("close-draft", "delete-branch")),
        ((effected("close-draft", "undone"),), ("close-draft", "delete-branch")),
        ((TURN, intent("close-draft")), ("close-draft", "delete-branch")),
        ((effected("delete-branch"), effected("close-draft")), ()),
    ],
)
def test_what_an_outcome_leaves_to_do(later: tuple[leases.LedgerRecord, ...], left: tuple[str, ...]) -> None:
    """Until a later record says done or found; what was done before the outcome is not it."""
    end = outcome(pending=("close-draft", "delete-branch"))
    assert decide_cases.pending(ledger(outcome(), effected("delete-branch"), end, *later)) == left
    assert decide_cases.is_settled(ledger(end, *later)) is (not left)


def test_without_an_outcome_nothing_is_pending_and_nothing_settled() -> None:
    """A session that still runs has no clean-up."""
    assert decide_cases.pending(ledger(effected("close-draft"))) == ()
    assert not decide_cases.is_settled(ledger(effected("close-draft")))
    assert decide_cases.is_settled(ledger(outcome()))


def test_the_newest_outcome_says_what_is_pending() -> None:
    """An older one's list is history, also as the very first record."""
    assert decide_cases.pending(records(outcome(pending=("close-draft",)))) == ("close-draft",)
    assert decide_cases.pending(ledger(outcome(pending=("close-draft",)), outcome())) == ()


def test_own_commits_are_those_that_were_recorded() -> None:
    """The base, what was about to be pushed, what was; no other effect's oids, and no empty one."""
    made = ledger(
        intent("push-work", "1", "2"), intent("create-branch", "3"), effected("push-work", oid="4"),
        effected("create-branch", oid="5"), intent("archive-branch", "6"), effected("archive-branch", oid="7"),
        effected("push-work"),
    )  # fmt: skip
    assert decide_cases.own_oids(made) == {OTHER, "1", "2", "3", "4", "5"}
    assert decide_cases.own_oids(records()) == frozenset()


def test_pull_requests_that_a_ledger_names() -> None:
    """In an intent, an effect or an outcome."""
    made = ledger(intent("close-draft", number=1), effected("open-draft", number=2), outcome(number=3), TURN)
    assert decide_cases.numbers_of(made) == {1, 2, 3}
    assert decide_cases.numbers_of(ledger(intent("open-draft"), effected("open-draft"), outcome())) == frozenset()


def test_heads_that_were_archived() -> None:
    """By intent, by effect, or as the head of an outcome; no other effect's."""
    made = ledger(
        intent("archive-branch", "1", "2"), effected("archive-branch", oid="3"), outcome(head="4"), outcome(),
        intent("push-work", "5"), effected("push-work", oid="6"),
    )  # fmt: skip
    assert decide_cases.copied_oids(made) == {"1", "2", "3", "4"}


def test_runs_that_a_ledger_names() -> None:
    """What it started and what it is parked on."""
    made = ledger(effected("dispatch-smoke", run_id=5), effected("close-draft"), PARK, intent("start-final-run"))
    assert decide_cases.run_ids(made) == {5, 8, 9}


@pytest.mark.parametrize(
    ("found", "buried"),
    [
        ((outcome(by="recovery"),), True),
        ((outcome(by="finish"),), False),
        ((outcome(by="recovery"), effected("close-draft")), False),
        ((outcome(by="recovery"), outcome(by="finish")), False),
        ((), False),
    ],
)
def test_a_session_is_buried_by_recoverys_last_word(found: tuple[leases.LedgerRecord, ...], buried: bool) -> None:
    """Whoever writes after it is not dead."""
    assert decide_cases.is_buried(ledger(*found)) is buried


def copy_ref(oid: str) -> str:
    return f"refs/klaud/archive/branch/auto-{CANDIDATE}/{oid}"


def test_archive_copies_of_one_session() -> None:
    """Those that its ledger names and that stand as they were made; sorted by ref."""
    made = ledger(intent("archive-branch", HEAD, OTHER, "c" * 40))
    one = case(ledger=made)
    archives = {copy_ref(OTHER): OTHER, copy_ref(HEAD): HEAD, copy_ref("c" * 40): HEAD, copy_ref("d" * 40): "d" * 40}
    found = decide_cases.copies(one, snapshot(ledgers={"l": made}, archives=archives), "refs/klaud")
    assert list(found.items()) == [(copy_ref(HEAD), HEAD), (copy_ref(OTHER), OTHER)]
    assert decide_cases.copies(case(), snapshot(archives=archives), "refs/klaud") == {}


@pytest.mark.parametrize(
    ("other_ref", "other", "left"),
    [
        (f"s/51.1-{CANDIDATE}", ledger(), True),
        (f"s/51.1-{CANDIDATE}", ledger(outcome(head=HEAD)), False),
        (f"s/51.1-{CANDIDATE}", BAD, False),
        (f"s/51.1-{CANDIDATE}", NEWER, False),
        (f"s/51.1-{SECOND}", ledger(outcome(head=HEAD)), True),
        (f"s/51.1-{SECOND}", BAD, True),
    ],
)
def test_a_copy_that_another_session_may_name_is_kept(other_ref: str, other: Any, left: bool) -> None:
    """Another session of the candidate, readable or not; other candidates' do not matter."""
    made = leases.Ledger(SESSION_REF, "o" * 40, ledger(intent("archive-branch", HEAD)).records)
    refs = snapshot(ledgers={other_ref: other, SESSION_REF: made}, archives={copy_ref(HEAD): HEAD})
    assert decide_cases.copies(case(ledger=made), refs, "refs/klaud") == ({copy_ref(HEAD): HEAD} if left else {})


# -- the hand-over card

HANDOFF = names.HANDOFF_LABEL
SET = github.Event(kind="labeled", actor=ALICE, at=AT, detail=HANDOFF)
OFF = msgspec.structs.replace(SET, kind="unlabeled")
CARD = leases.Intent(at=AT, seq=0, effect="comment", label=HANDOFF)
SAID = github.Event(kind="commented", actor=BOT, at=AT)


def at(thing: Any, hours: int) -> Any:
    return msgspec.structs.replace(thing, at=AT + datetime.timedelta(hours=hours))


@pytest.mark.parametrize(
    ("events", "found", "due"),
    [
        ((SET,), (), True),
        ((), (), False),
        ((msgspec.structs.replace(SET, detail="other"),), (), False),
        ((msgspec.structs.replace(SET, kind="commented"),), (), False),
        ((SET, msgspec.structs.replace(SET, kind="commented")), (), True),
        ((SET, OFF), (), False),
        ((SET, OFF, SET), (), True),
        ((SET, at(SAID, -1)), (), True),
        ((SET, SAID), (), False),
        ((SET, at(SAID, 1)), (), False),
        ((SET, msgspec.structs.replace(SAID, actor=ALICE)), (), True),
        ((SET, msgspec.structs.replace(SAID, kind="renamed")), (), True),
        ((SET, SAID, at(SET, 1)), (), True),
        ((SET,), (TURN, CARD), False),
        ((SET,), (at(CARD, -1),), False),
        ((SET,), (msgspec.structs.replace(CARD, label=""),), True),
        ((SET,), (msgspec.structs.replace(CARD, effect="add-label"),), True),
        ((SET, at(OFF, 1), at(SET, 2)), (CARD,), True),
        ((SET, at(OFF, 1), at(SET, 2)), (at(CARD, 1),), False),
        ((SET, at(OFF, 1), at(SET, 3)), (at(CARD, 2),), False),
        ((SET, at(OFF, 1), at(SET, 2), at(OFF, 3), at(SET, 4)), (at(CARD, 2),), True),
    ],
)  # fmt: skip
def test_a_card_is_due_once_for_each_time_that_the_label_is_set(
    events: tuple[github.Event, ...], found: tuple[leases.LedgerRecord, ...], due: bool
) -> None:
    """Unless klaud has said something since, or meant to."""
    seen = msgspec.structs.replace(draft(), timeline=listing(*events))
    assert decide_cases.card_due(ledger(*found), seen, SETTING) is due
    cut = msgspec.structs.replace(seen, timeline=listing(*events, complete=False))
    assert decide_cases.card_due(ledger(*found), cut, SETTING) is False
    theirs = msgspec.structs.replace(seen, pull=msgspec.structs.replace(seen.pull, author=ALICE))
    assert decide_cases.card_due(ledger(*found), theirs, SETTING) is False
