"""Which sessions there are and what belongs to each, by tables: refs, pull requests and runs sorted into cases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from klaud import names
from klaud.github import model as github
from klaud.leases import model as leases
from klaud.recovery import model
from tests.support.memory_cases import (
    AT,
    CANDIDATE,
    FAMILY,
    GOING,
    HEAD,
    KEY,
    SMOKE,
    case,
    claim,
    draft,
    holder,
    ledger,
    listing,
    run,
    sight,
)  # fmt: skip
from tests.support.memory_sessions import (
    ALICE,
    BAD,
    BRANCH,
    CLAIM_REF,
    FAMILY_TEXT,
    LATER,
    LEASE,
    LEASE_REF,
    NEWER,
    ODD,
    SECOND,
    SESSION_REF,
    START,
    TURN,
    effected,
    known,
    only,
    outcome,
    records,
)  # fmt: skip

if TYPE_CHECKING:
    import datetime
    from collections.abc import Mapping


# -- sessions by their refs


def test_nothing_is_known_of_an_empty_repository() -> None:
    """No ref, no session."""
    assert known() == {}


def test_a_session_of_claim_ledger_and_lease() -> None:
    """Three refs, one case; nothing bad about it."""
    found = only(claims={CLAIM_REF: claim(holder(60))}, ledgers={SESSION_REF: ledger()}, leases={LEASE_REF: LEASE})
    assert found == case(claim=claim(holder(60)), ledger=ledger(), lease=LEASE)


@pytest.mark.parametrize(
    ("refs", "kept"),
    [
        ({"claims": {CLAIM_REF: claim(holder(60))}}, {"claim": claim(holder(60))}),
        ({"ledgers": {SESSION_REF: ledger()}}, {"ledger": ledger()}),
        ({"leases": {LEASE_REF: LEASE}}, {"lease": LEASE}),
    ],
    ids=["claim", "ledger", "lease"],
)
def test_each_ref_alone_makes_a_session(refs: dict[str, Any], kept: dict[str, Any]) -> None:
    """With its key, wave, candidate and family."""
    assert only(**refs) == case(**kept)


def other_claim(**fields: Any) -> leases.Held:
    found = claim(holder(60))
    return msgspec.structs.replace(found, record=msgspec.structs.replace(found.record, **fields))


@pytest.mark.parametrize(
    ("ref_family", "fields", "bad"),
    [
        (FAMILY, {}, ""),
        (names.short_id(FAMILY_TEXT),
         {"family": FAMILY_TEXT, "candidate": f"{names.short_id(FAMILY_TEXT)}-{'0' * 15}b"}, ""),
        ("f" * 16, {}, "the claim names another family"),
        ("f" * 16, {"family": "f" * 16}, "the claim names another family"),
        (FAMILY, {"family": "f" * 16}, "the claim names another family"),
        (FAMILY, {"family": FAMILY_TEXT}, "the claim names another family"),
    ],
)  # fmt: skip
def test_a_claim_names_the_family_of_its_ref(ref_family: str, fields: dict[str, Any], bad: str) -> None:
    """By its candidate and by its family, either as id or as text; where not, the ref's family is the one in doubt."""
    found = only(claims={f"refs/klaud/claims/{ref_family}": other_claim(**fields)})
    assert (found.bad, found.family) == (bad, ref_family)


@pytest.mark.parametrize(
    ("thing", "bad"),
    [
        (BAD, "{}: not JSON"),
        (NEWER, "a newer klaud wrote the {} (version 7)"),
        (ODD, "the {}'s record is of another kind"),
    ],
)
@pytest.mark.parametrize(
    ("kind", "ref", "key"),
    [("claim", CLAIM_REF, f"claims/{FAMILY}"), ("ledger", SESSION_REF, KEY), ("lease", LEASE_REF, KEY)],
)
def test_a_ref_that_cannot_be_read_spoils_its_session(thing: Any, bad: str, kind: str, ref: str, key: str) -> None:
    """It says which ref and why; a newer klaud's is told apart; the family is known all the same."""
    refs: dict[str, Any] = {f"{kind}s": {ref: thing}}
    found = only(None, **refs)
    expected = (key, bad.format(kind), thing is NEWER, FAMILY, None, None, None)
    assert (found.key, found.bad, found.newer, found.family, found.claim, found.ledger, found.lease) == expected


def test_the_first_thing_that_is_bad_is_said() -> None:
    """A later one does not hide it, and what can be read is still kept."""
    found = only(ledgers={SESSION_REF: BAD}, leases={LEASE_REF: NEWER})
    assert (found.bad, found.newer) == ("ledger: not JSON", True)
    found = only(ledgers={SESSION_REF: BAD}, leases={LEASE_REF: LEASE}, claims={CLAIM_REF: claim(holder(60))})
    assert (found.bad, found.lease, found.claim) == ("ledger: not JSON", LEASE, claim(holder(60)))


@pytest.mark.parametrize(
    ("first", "bad"),
    [
        (START, False),
        (TURN, True),
        (None, True),
        (msgspec.structs.replace(START, wave="51.1"), True),
        (msgspec.structs.replace(START, candidate=SECOND), True),
    ],
)
def test_a_ledger_begins_with_the_start_of_its_session(first: Any, bad: bool) -> None:
    """Of this wave and this candidate; an empty one begins with nothing."""
    whole = records(first) if first else records()
    found = only(ledgers={SESSION_REF: whole})
    assert found.bad == ("the ledger's first record is not this session's start" if bad else "")
    assert found.ledger == whole


@pytest.mark.parametrize(("thing", "newer"), [(BAD, False), (NEWER, True)])
def test_a_bad_claim_spoils_every_session_of_its_family_but_settled_ones(thing: Any, newer: bool) -> None:
    """It may name any of them; a session of another family, and what is bad by itself, are not touched."""
    foreign = "f" * 16 + "-" + "0" * 15 + "b"
    start = msgspec.structs.replace(START, candidate=foreign, family="f" * 16)
    found = known(
        claims={CLAIM_REF: thing},
        ledgers={
            SESSION_REF: ledger(),
            f"s/51.1-{CANDIDATE}": ledger(outcome()),
            f"s/52.1-{CANDIDATE}": leases.Quarantined("r", "o" * 40, "odd"),
            f"s/50.1-{foreign}": records(start),
        },
        leases={f"l/53.1-{CANDIDATE}": LEASE},
    )
    assert found[KEY].bad == f"its family's {found[f'claims/{FAMILY}'].bad}"
    assert found[KEY].newer is newer
    assert found[f"53.1-{CANDIDATE}"].bad.startswith("its family's ")
    assert found[f"51.1-{CANDIDATE}"].bad == "the ledger's first record is not this session's start"
    assert found[f"52.1-{CANDIDATE}"].bad == "ledger: odd"
    assert found[f"50.1-{foreign}"].bad == ""
    settled = known(claims={CLAIM_REF: thing}, ledgers={SESSION_REF: ledger(outcome())})
    assert settled[KEY].bad == ""


# -- the forerunner's records


def forerunner(name: str = CANDIDATE, kind: Any = "claim", candidate: str = "") -> leases.Forerunner:
    return leases.Forerunner(f"refs/heads/klaud/{kind}-{name}", "f" * 40, kind, 50, candidate)


@pytest.mark.parametrize(
    ("record", "key", "candidate"),
    [
        (forerunner(), CANDIDATE, CANDIDATE),
        (forerunner("odd-name", candidate=CANDIDATE), CANDIDATE, CANDIDATE),
        (forerunner(SECOND, candidate=CANDIDATE), CANDIDATE, CANDIDATE),
        (forerunner(candidate="odd"), CANDIDATE, CANDIDATE),
        (forerunner("odd-name", candidate="odd"), "forerunner/odd-name", ""),
    ],
)
def test_a_claim_of_the_forerunner_makes_a_session(record: leases.Forerunner, key: str, candidate: str) -> None:
    """By the candidate that it names, else by its own name, else by nothing but its name."""
    family = names.family_of(candidate) if candidate else ""
    expected = model.Case(
        key=key, wave="", candidate=candidate, family=family, forerunner=(record,), fresh=bool(candidate)
    )
    assert only(forerunner=(record,)) == expected


def test_a_claim_of_the_forerunner_belongs_to_the_newest_session() -> None:
    """Where there is one; several stand beside each other."""
    records_ = (forerunner(), forerunner("b", candidate=CANDIDATE))
    found = known(forerunner=records_, ledgers={SESSION_REF: ledger()})
    assert found[KEY].forerunner == records_
    assert set(found) == {KEY}
    alone = only(forerunner=records_)
    assert (alone.key, alone.forerunner) == (CANDIDATE, records_)


def test_a_lease_of_the_forerunner_makes_no_session() -> None:
    """It is judged apart; what comes after it is read all the same."""
    assert known(forerunner=(forerunner(kind="lease"),)) == {}
    assert set(known(forerunner=(forerunner(kind="lease"), forerunner()))) == {CANDIDATE}


@pytest.mark.parametrize(("name", "candidate", "family"), [(CANDIDATE, CANDIDATE, FAMILY), ("odd-name", "", "")])
def test_a_bad_record_of_the_forerunner_is_a_case_of_its_own(name: str, candidate: str, family: str) -> None:
    """Nothing of the candidate's is judged by it, and the next record is still read."""
    bad = leases.Quarantined(f"refs/heads/klaud/claim-{name}", "f" * 40, "not JSON")
    found = known(forerunner=(bad, forerunner(SECOND)), branches={f"refs/heads/klaud/auto-{CANDIDATE}": HEAD})
    one = found[f"forerunner/claim-{name}"]
    assert one == model.Case(key=one.key, wave="", candidate=candidate, family=family, bad="not JSON", fresh=False)
    assert found[CANDIDATE].branch == HEAD
    assert set(found) == {one.key, SECOND, CANDIDATE}


# -- which session is the newest


def start(wave: str, at: datetime.datetime = AT) -> leases.Ledger:
    return records(msgspec.structs.replace(START, wave=wave, at=at))


LOCAL = "local-" + "0" * 16


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        (("50.1", AT), ("51.1", AT)),
        (("9.1", AT), ("50.1", AT)),
        (("50.1", AT), ("50.2", AT)),
        (("50.9", AT), ("50.10", AT)),
        (("50.2", LATER), ("51.1", AT)),
        ((LOCAL, LATER), ("50.1", AT)),
        ((LOCAL, AT), (LOCAL[:-1] + "1", AT)),
        ((LOCAL[:-1] + "1", AT), (LOCAL, LATER)),
    ],
)
@pytest.mark.parametrize("turned", [False, True])
def test_branch_and_draft_belong_to_the_newest_session(
    older: tuple[str, datetime.datetime], newer: tuple[str, datetime.datetime], turned: bool
) -> None:
    """By run, then attempt, then time, then name, whatever order the refs come in."""
    made = {f"s/{wave}-{CANDIDATE}": start(wave, at) for wave, at in (older, newer)}
    refs = dict(reversed(made.items())) if turned else made
    found = known(
        sight(heads={BRANCH: listing(draft())}), ledgers=refs, branches={f"refs/heads/klaud/auto-{CANDIDATE}": HEAD}
    )
    for wave, fresh in ((older[0], False), (newer[0], True)):
        one = found[f"{wave}-{CANDIDATE}"]
        assert (one.fresh, one.branch, one.pulls) == (fresh, HEAD if fresh else None, (draft(),) if fresh else ())


def test_the_holder_of_the_claim_is_the_newest() -> None:
    """Also where a later wave has left a ledger; without a ledger, by its number alone."""
    found = known(claims={CLAIM_REF: claim(holder(60))}, ledgers={f"s/70.1-{CANDIDATE}": start("70.1")})
    assert (found[KEY].fresh, found[f"70.1-{CANDIDATE}"].fresh) == (True, False)
    found = known(leases={LEASE_REF: LEASE, f"l/70.1-{CANDIDATE}": LEASE})
    assert (found[KEY].fresh, found[f"70.1-{CANDIDATE}"].fresh) == (False, True)


@pytest.mark.parametrize("wave", ["x.1", "50.x", "50.1.1", "", "."])
def test_a_claim_whose_wave_is_no_wave_stops_nothing(wave: str) -> None:
    """It holds the claim all the same, so it is the newest."""
    found = known(claims={CLAIM_REF: other_claim(wave=wave)}, ledgers={SESSION_REF: ledger()})
    assert (found[f"{wave}-{CANDIDATE}"].fresh, found[KEY].fresh) == (True, False)


def test_each_candidate_has_a_newest_session() -> None:
    """A later wave of another candidate changes nothing."""
    start_ = msgspec.structs.replace(START, wave="70.1", candidate=SECOND)
    found = known(ledgers={SESSION_REF: ledger(), f"s/70.1-{SECOND}": records(start_)})
    assert [c.fresh for c in found.values()] == [True, True]


# -- sessions without a record


def test_a_branch_makes_a_session() -> None:
    """Without a wave."""
    found = only(branches={f"refs/heads/klaud/auto-{CANDIDATE}": HEAD})
    assert found == model.Case(key=CANDIDATE, wave="", candidate=CANDIDATE, family=FAMILY, branch=HEAD)


@pytest.mark.parametrize(
    ("head", "seen", "is_one"),
    [
        (BRANCH, listing(draft()), True),
        (BRANCH, listing(draft(is_open=False), draft()), True),
        (BRANCH, listing(draft(is_open=False)), False),
        (BRANCH, listing(), False),
        (BRANCH, model.Unread("p", "502"), False),
        ("feature", listing(draft()), False),
        (BRANCH + "-more", listing(draft()), False),
    ],
)
def test_an_open_pull_request_makes_a_session(head: str, seen: Any, is_one: bool) -> None:
    """On a branch that is exactly klaud's."""
    found = known(sight(heads={head: seen}))
    assert set(found) == ({CANDIDATE} if is_one else set())


@pytest.mark.parametrize(
    ("fields", "is_one"),
    [({}, True), ({"status": "completed"}, False), ({"actor": ALICE}, False), ({"head_branch": "main"}, False)],
)
def test_an_unfinished_check_makes_a_session(fields: dict[str, Any], is_one: bool) -> None:
    """Klaud's own, on a branch of klaud's; its runs come by number."""
    runs = [run(i, **{"path": SMOKE, "head_branch": BRANCH, **GOING, **fields}) for i in (8, 7)]
    found = known(sight(*runs))
    assert [r.id for c in found.values() for r in c.stray_runs] == ([7, 8] if is_one else [])
    assert set(found) == ({CANDIDATE} if is_one else set())


def test_a_branch_without_runs_to_cancel_hides_no_other() -> None:
    """One branch after the other is looked at."""
    there = run(7, path=SMOKE, head_branch=BRANCH, **GOING)
    over = run(6, path=SMOKE, head_branch=names.branch(SECOND))
    elsewhere = run(5, path=SMOKE, head_branch="main", **GOING)
    assert set(known(sight(elsewhere, over, there))) == {CANDIDATE}


def test_a_session_with_records_is_not_made_again() -> None:
    """The loose objects are its."""
    there = run(7, path=SMOKE, head_branch=BRANCH, **GOING)
    found = only(
        sight(there, heads={BRANCH: listing(draft())}),
        ledgers={SESSION_REF: ledger()}, branches={f"refs/heads/klaud/auto-{CANDIDATE}": HEAD},
    )  # fmt: skip
    assert found == case(ledger=ledger(), branch=HEAD, pulls=(draft(),), stray_runs=(there,))


def test_runs_and_branch_are_not_an_older_sessions() -> None:
    """They belong to the newest."""
    there = run(7, path=SMOKE, head_branch=BRANCH, **GOING)
    found = known(sight(there), ledgers={SESSION_REF: ledger(), f"s/51.1-{CANDIDATE}": start("51.1")})
    assert [bool(c.stray_runs) for c in found.values()] == [False, True]


# -- whose pull request it is


def of_two(
    heads: Mapping[str, Any], numbered: Mapping[int, Any], old: tuple[int, ...] = (), new: tuple[int, ...] = ()
) -> tuple[model.Case, model.Case]:
    """Return two sessions of one candidate, older first, whose ledgers name these pull requests."""
    refs = {
        f"s/{wave}-{CANDIDATE}": records(*start(wave).records, *(effected("open-draft", number=n) for n in numbers))
        for wave, numbers in (("50.1", old), ("51.1", new))
    }
    found = known(sight(heads=dict(heads), numbered=dict(numbered)), ledgers=refs)
    return found[KEY], found[f"51.1-{CANDIDATE}"]


def numbers(one: model.Case) -> list[int]:
    return [d.pull.number for d in one.pulls]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ((), (), ([], [1, 2])),
        ((1,), (), ([1], [2])),
        ((1,), (2,), ([1], [2])),
        ((1, 2), (), ([1, 2], [])),
        ((1,), (1,), ([1], [1, 2])),
        ((), (2,), ([], [1, 2])),
    ],
)
def test_pull_requests_of_one_branch(
    old: tuple[int, ...], new: tuple[int, ...], expected: tuple[list[int], list[int]]
) -> None:
    """Each ledger's own; what no other names is the newest session's. In the order of their numbers."""
    one, two = of_two({BRANCH: listing(draft(number=2), draft(number=1))}, {}, old, new)
    assert (numbers(one), numbers(two)) == expected
    assert (one.unread, two.unread) == ((), ())


def moved(**fields: Any) -> github.PullDetail:
    found = draft(number=3)
    return msgspec.structs.replace(found, pull=msgspec.structs.replace(found.pull, **fields))


@pytest.mark.parametrize(
    ("seen", "expected", "unread"),
    [
        (draft(number=3), [3], 0),
        (moved(head_ref="feature"), [], 0),
        (moved(head_repository=None), [], 0),
        (github.Missing(what="p"), [], 0),
        (model.Unread("pull request 3", "502"), [], 1),
        (None, [], 0),
    ],
)
def test_a_pull_request_that_only_the_ledger_names(seen: Any, expected: list[int], unread: int) -> None:
    """Read by its number; only of this head, in a repository that still is; a failed read is kept as one."""
    numbered = {} if seen is None else {3: seen}
    one, two = of_two({BRANCH: listing()}, numbered, old=(3,))
    assert (numbers(one), len(one.unread), numbers(two), two.unread) == (expected, unread, [], ())


def test_a_listed_pull_request_is_not_judged_again_by_its_number() -> None:
    """What the head's listing shows is taken."""
    one, _ = of_two({BRANCH: listing(draft(number=3))}, {3: model.Unread("p", "502")}, old=(3,))
    assert (numbers(one), one.unread) == ([3], ())


@pytest.mark.parametrize(
    ("seen", "unread"),
    [
        (listing(), ()),
        (model.Unread("heads", "502"), (model.Unread("heads", "502"),)),
        (listing(draft(), complete=False), (model.Unread(f"pull requests of {BRANCH}", "cut"),)),
        (github.Listing((draft(),), complete=False),
         (model.Unread(f"pull requests of {BRANCH}", "the listing is incomplete"),)),
    ],
)  # fmt: skip
def test_a_listing_that_is_not_whole_is_said(seen: Any, unread: tuple[model.Unread, ...]) -> None:
    """With the reason that the host gave; what it showed is used all the same."""
    found = only(sight(heads={BRANCH: seen}), ledgers={SESSION_REF: ledger()})
    assert found.unread == unread
    assert numbers(found) == ([1] if isinstance(seen, github.Listing) and seen.items else [])


def test_cases_without_a_candidate_get_no_objects() -> None:
    """A claim that cannot be read, and the forerunner's odd names."""
    found = known(
        sight(heads={names.branch(""): model.Unread("p", "502"), BRANCH: listing(draft())}),
        claims={CLAIM_REF: BAD},
        forerunner=(forerunner("odd"), leases.Quarantined(f"refs/heads/klaud/claim-{CANDIDATE}", "f" * 40, "bad")),
    )
    assert set(found) == {f"claims/{FAMILY}", "forerunner/odd", f"forerunner/claim-{CANDIDATE}", CANDIDATE}
    for key in set(found) - {CANDIDATE}:
        assert (found[key].pulls, found[key].unread, found[key].branch) == ((), (), None)
