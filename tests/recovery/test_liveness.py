"""Liveness by tables: which runs are a session, what it waits for, what its final runs are, and what proves an end."""

from __future__ import annotations

import datetime
from typing import Any

import msgspec
import pytest

from klaud import names
from klaud.github import model as github
from klaud.leases import model as leases
from klaud.recovery import decide_cases, model, rules_liveness
from tests.support.memory_cases import (
    AT,
    CANDIDATE,
    FINAL,
    GOING,
    HEAD,
    KEY,
    POLICY,
    SETTING,
    SMOKE,
    case,
    claim,
    draft,
    holder,
    ledger,
    listing,
    run,
    sight,
    zombie_memory,
)  # fmt: skip
from tests.support.memory_scenes import Scene


def index(seen: model.Sight) -> decide_cases.Index:
    return decide_cases.Index.of_sight(seen, SETTING)


def live(one: model.Case, seen: model.Sight) -> model.Liveness:
    return rules_liveness.of_case(one, seen, index(seen), POLICY)


MARKED = f"klaud candidate {CANDIDATE} [klaud {KEY}]"


@pytest.mark.parametrize(
    ("one", "runs", "expected"),
    [
        (case(), (), (set(), None)),
        (case(), (run(61, display_title=MARKED),), ({61}, None)),
        (case(wave=""), (run(61, display_title=MARKED),), (set(), None)),
        (case(ledger=ledger()), (), ({60}, None)),
        (case(ledger=ledger(leases.Outcome(at=AT, outcome="failed", by="recovery"))), (), (set(), None)),
        (case(ledger=ledger(leases.Outcome(at=AT, outcome="failed", by="finish"))), (), ({60}, None)),
        (case(ledger=leases.Ledger("l", "o", ())), (), (set(), None)),
        (case(claim=claim(holder(50))), (), (set(), 50)),
        (case(claim=claim(holder(50, 2))), (), ({50}, None)),
        (case(claim=claim(holder(70))), (), ({70}, None)),
        (case(claim=claim(holder(50)), ledger=ledger()), (), ({50, 60}, None)),
        (case(claim=claim(holder(50))), (run(61, display_title=MARKED),), ({61}, None)),
        (case(claim=claim(holder(70), on=(9,))), (), ({70}, None)),
        (case(claim=claim(None)), (), (set(), None)),
    ],
)  # fmt: skip
def test_which_runs_are_the_session(
    one: model.Case, runs: tuple[github.Run, ...], expected: tuple[set[int], int | None]
) -> None:
    """By ledger, claim and marker; the planner's run only until anything else is known."""
    ids, planner = rules_liveness.session_runs(one, index(sight(*runs)))
    assert (set(ids), planner) == expected


def test_the_planners_run_stands_in_until_the_dispatched_one_is_seen() -> None:
    """Alive while it runs; unread and incomplete listings are unknown; the quiet time after its end is alive."""
    one = case(claim=claim(holder(50)))
    later = AT + datetime.timedelta(seconds=POLICY.dispatch_seconds)
    over = run(50, conclusion="success")
    for seen, kind in (
        (sight(run(50, **GOING), listing=listing()), model.Alive),
        (sight(listing=listing()), model.Unknown),
        (sight(over), model.Unknown),
        (sight(over, listing=listing(complete=False)), model.Unknown),
        (sight(over, listing=listing()), model.Alive),
        (sight(over, listing=listing(), own=run(99, created_at=later - datetime.timedelta(seconds=1))), model.Alive),
        (sight(over, listing=listing(), own=run(99, created_at=later, updated_at=AT)), model.Gone),
    ):
        assert isinstance(live(one, seen), kind), (seen.listing, kind)
    unread = live(one, sight(over, listing=listing(complete=False)))
    assert isinstance(unread, model.Unknown)
    assert unread.unread == model.Unread("klaud's runs", "cut")
    quiet = live(one, sight(over, listing=listing()))
    assert quiet == model.Alive("dispatched by run 50, its run is not to be seen yet")
    deleted = sight(runs={50: github.Missing(what="run")}, own=run(99, **GOING), listing=listing())
    assert isinstance(live(one, deleted), model.Gone)


def test_without_any_time_of_githubs_a_planner_that_ended_is_waited_for() -> None:
    """No run was seen that shows what time it is: alive."""
    seen = sight(run(50, conclusion="success"), listing=listing())
    bare = index(seen)
    bare.now = None
    one = case(claim=claim(holder(50)))
    assert isinstance(rules_liveness.of_case(one, seen, bare, POLICY), model.Alive)


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (case(), ()),
        (case(ledger=ledger(leases.Parked(at=AT, on=(9, 8), why="final-run"))), (9, 8)),
        (case(ledger=ledger(leases.Parked(at=AT, on=(9,), why="final-run"),
                            leases.Continued(at=AT, wave="50.1", holder=holder(61)))), ()),
        (case(claim=claim(holder(60), on=(7,))), (7,)),
        (case(claim=claim(holder(60))), ()),
        (case(claim=claim(holder(60), on=(8, 7)), ledger=ledger(leases.Parked(at=AT, on=(9, 8), why="final-run"))),
         (9, 8, 7)),
    ],
)  # fmt: skip
def test_what_a_session_waits_on(one: model.Case, expected: tuple[int, ...]) -> None:
    """By its ledger and its claim, each once."""
    assert rules_liveness.waits_on(one) == expected


def test_what_a_session_is_parked_on_keeps_it_alive_and_proves_nothing() -> None:
    """Unfinished or unread counts; over does not."""
    one = case(ledger=ledger(leases.Parked(at=AT, on=(9,), why="final-run")))
    over = run(60)
    assert isinstance(live(one, sight(over, run(9, **GOING))), model.Alive)
    assert isinstance(live(one, sight(over)), model.Unknown)
    gone = live(one, sight(over, run(9, conclusion="success")))
    assert isinstance(gone, model.Gone)
    assert gone.proof == "run 60 attempt 1 is completed: failure"
    assert (gone.ended_at, gone.conclusion) == (AT, "failure")


def test_the_strongest_sign_of_life_wins() -> None:
    """Alive before unknown before zombie before gone; proofs are put together, each once, with the newest end."""
    one = case(claim=claim(holder(61)), ledger=ledger())
    later = AT + datetime.timedelta(hours=1)
    both = live(one, sight(run(60, conclusion="cancelled"), run(61, updated_at=later)))
    assert both == model.Gone(
        proof="run 60 attempt 1 is completed: cancelled; run 61 attempt 1 is completed: failure",
        ended_at=later,
        conclusion="cancelled",
    )
    assert live(one, sight(run(60, **GOING), run(61))) == model.Alive("run 60 is in_progress")
    assert live(one, sight(run(60), run(61, **GOING))) == model.Alive("run 61 is in_progress")
    assert live(one, sight(run(60, **GOING))) == model.Alive("run 60 is in_progress")
    assert live(one, sight(run(61))) == model.Unknown(model.Unread("run 60", "not read"))
    dead: dict[str, Any] = {"snapshot": zombie_memory(61)}
    assert live(one, sight(run(60), run(61, **GOING), **dead)) == model.Zombie(61)
    assert live(one, sight(run(61, **GOING), **dead)) == model.Unknown(model.Unread("run 60", "not read"))
    assert live(one, sight(run(60, **GOING), run(61, **GOING), **dead)) == model.Alive("run 60 is in_progress")
    both = live(one, sight(run(60, **GOING), run(61, **GOING), snapshot=zombie_memory(60, 61)))
    assert both == model.Zombie(60)
    assert live(case(), sight()) == model.Gone(proof="no claim, no ledger and no run names a holder")
    missing = sight(runs={60: github.Missing(what="r"), 61: github.Missing(what="r")}, own=run(99, **GOING))
    gone = live(one, missing)
    assert isinstance(gone, model.Gone)
    assert (gone.ended_at, gone.conclusion) == (None, "")
    assert gone.proof.count("our own run 99 answers 200") == 2


def test_the_first_sign_of_each_kind_is_said() -> None:
    """Of two runs that go on, and of two that could not be read, in the order in which they are asked."""
    one = case(ledger=ledger(leases.Parked(at=AT, on=(9,), why="final-run")))
    assert live(one, sight(run(60, **GOING), run(9, **GOING))) == model.Alive("run 60 is in_progress")
    assert live(one, sight()) == model.Unknown(model.Unread("run 60", "not read"))
    assert live(one, sight(run(9, **GOING))) == model.Alive("run 9 is in_progress")


def test_a_holder_outside_of_actions_cannot_be_proven_gone() -> None:
    """It has no run: alive, whatever stands for run 0, and also under a lease."""
    missing: dict[int, model.RunSeen] = {0: github.Missing(what="run")}
    for seen in (sight(own=run(99, **GOING)), sight(runs=missing, own=run(99, **GOING))):
        outside = model.Alive("its holder ran outside of Actions, where nothing can be proven")
        assert live(case(ledger=ledger(by=0)), seen) == outside
        lease = leases.Lease(at=AT, wave="1.1", candidate=CANDIDATE, holder=holder(0, 1, "laptop"))
        assert rules_liveness.of_lease(lease, seen, index(seen)) == outside


def test_a_404_of_our_own_number_proves_nothing() -> None:
    """Only a lower number was there before ours."""
    own = run(99, **GOING)
    for run_id, kind in ((98, model.Gone), (99, model.Alive), (100, model.Alive)):
        bare = decide_cases.Index({run_id: github.Missing(what="run")}, SETTING)
        assert isinstance(rules_liveness.of_run(run_id, sight(own=own), bare), kind)


def test_a_run_that_is_over_needs_no_jobs() -> None:
    """Its own end is the proof; a listing of jobs that is cut says nothing, and an end without a time has none."""
    done = job("a", "completed", AT + datetime.timedelta(hours=1), "success")
    timeless = job("a", "completed")

    def judged(seen: github.Run, *jobs: github.Job, complete: bool = True) -> model.Liveness:
        shown = sight(seen, jobs={50: listing(*jobs, complete=complete)})
        return rules_liveness.of_job(50, "a", shown, index(shown))

    over = judged(run(50), done)
    assert isinstance(over, model.Gone)
    assert over.proof == "run 50 attempt 1 is completed: failure"
    assert judged(run(50, **GOING), done, complete=False) == model.Alive("run 50 is in_progress")
    assert judged(run(50, **GOING), done, job("a", "queued")) == model.Alive("run 50 is in_progress")
    ended = judged(run(50, **GOING), timeless, done)
    assert isinstance(ended, model.Gone)
    assert ended.ended_at == AT + datetime.timedelta(hours=1)


def test_a_run_without_a_word_for_its_end() -> None:
    """A null conclusion is an end without a name; times come from GitHub."""
    gone = live(case(ledger=ledger()), sight(run(60, conclusion=None)))
    assert gone == model.Gone(proof="run 60 attempt 1 is completed: None", ended_at=AT, conclusion="")


def test_words_of_liveness() -> None:
    """What a report says of a run."""
    one = case(ledger=ledger(by=0))
    seen = sight(runs={0: github.Missing(what="run")})
    assert live(one, seen) == model.Alive("its holder ran outside of Actions, where nothing can be proven")
    one = case(ledger=ledger())
    seen = sight(runs={60: github.Missing(what="run")})
    assert live(one, seen) == model.Alive("run 60 answers 404, and nothing proves that it is deleted")
    seen = sight(runs={60: github.Missing(what="run")}, own=run(60, **GOING))
    assert isinstance(live(one, seen), model.Alive)
    assert live(one, sight(run(60, conclusion="action_required"))) == model.Alive(
        "run 60 waits for a person's approval"
    )
    assert live(one, sight(runs={60: model.Unread("run 60", "502")})) == model.Unknown(model.Unread("run 60", "502"))


def test_zombies_are_known_only_from_the_sweeps_memory() -> None:
    """Another record there, or none, names nobody."""
    assert rules_liveness.zombies(sight(snapshot=zombie_memory(5))) == {5}
    assert rules_liveness.zombies(sight()) == frozenset()
    other = msgspec.structs.replace(Scene(outside=True).snapshot(), observed=claim(holder(1)))
    assert rules_liveness.zombies(sight(snapshot=other)) == frozenset()


def forerunner(planner_run: int, job: str) -> leases.Forerunner:
    return leases.Forerunner(
        ref="refs/heads/klaud/claim-x",
        oid="o" * 40,
        kind="claim",
        planner_run=planner_run,
        candidate=CANDIDATE,
        job=job,
    )


def job(name: str, status: str, at: datetime.datetime | None = None, end: str | None = None) -> github.Job:
    return github.Job(id=3, run_id=50, attempt=1, name=name, status=status, conclusion=end, completed_at=at)


def test_a_forerunners_session_is_its_job() -> None:
    """The job's end frees it while the planner's run goes on; the newest end counts; nothing else proves it."""
    one = case(wave="", forerunner=(forerunner(50, "Run candidate x"),))
    going = run(50, **GOING)
    mine = ("Run candidate x", "completed")
    later = AT + datetime.timedelta(minutes=5)
    jobs = listing(job(*mine, later, "failure"), job(*mine, AT, "cancelled"), job("other", "queued"))
    assert live(one, sight(going, jobs={50: jobs})) == model.Gone(
        proof="job 3 of run 50 is completed: cancelled", ended_at=later, conclusion="cancelled"
    )
    timeless = listing(job(*mine))
    assert live(one, sight(going, jobs={50: timeless})) == model.Gone(
        proof="job 3 of run 50 is completed: None", ended_at=None, conclusion=""
    )
    assert isinstance(live(one, sight(going)), model.Alive)
    assert isinstance(live(one, sight(going, jobs={50: model.Unread("jobs", "502")})), model.Alive)
    assert isinstance(live(one, sight(run(50), jobs={50: jobs})), model.Gone)
    assert isinstance(live(one, sight()), model.Unknown)
    nameless = case(wave="", forerunner=(forerunner(50, ""),))
    empty = listing(job("", "completed", AT, "success"))
    assert isinstance(live(nameless, sight(going, jobs={50: empty})), model.Alive)


def test_a_lease_of_another_run() -> None:
    """Our own job by run, attempt and name, all three; another attempt ends what an earlier one held, never a later."""
    going = run(50, attempt=2, **GOING)

    def judged(by: leases.Holder, me: leases.Holder | None, *runs: github.Run) -> model.Liveness:
        seen = sight(*runs, me=me)
        lease = leases.Lease(at=AT, wave="1.1", candidate=CANDIDATE, holder=by)
        return rules_liveness.of_lease(lease, seen, index(seen))

    mine = holder(50, 2, "recover")
    assert judged(mine, mine, going) == model.Gone(proof="an earlier pass of our own job (run 50)")
    assert isinstance(judged(mine, holder(51, 2, "recover"), going), model.Alive)
    assert isinstance(judged(mine, holder(50, 3, "recover"), going), model.Alive)
    assert isinstance(judged(mine, None, going), model.Alive)
    assert judged(holder(50, 1, "recover"), None, going) == model.Gone(
        proof="run 50 is in attempt 2, the holder's was 1"
    )
    assert isinstance(judged(mine, None), model.Unknown)
    seen = sight(me=None, runs={50: github.Missing(what="run")}, own=run(40, **GOING))
    lease = leases.Lease(at=AT, wave="1.1", candidate=CANDIDATE, holder=holder(50, 1, "recover"))
    assert isinstance(rules_liveness.of_lease(lease, seen, index(seen)), model.Alive)


FINALS = [
    ("at the head", case(), (run(7, path=FINAL, head_sha=HEAD),), [7]),
    ("at another head", case(), (run(7, path=FINAL),), []),
    ("skipped", case(), (run(7, path=FINAL, head_sha=HEAD, conclusion="skipped"),), []),
    ("no final workflow", case(), (run(7, path=SMOKE, head_sha=HEAD),), []),
    ("newest last", case(), (run(9, path=FINAL, head_sha=HEAD), run(7, path=FINAL, head_sha=HEAD)), [7, 9]),
    ("parked on it as the final run",
     case(ledger=ledger(leases.Parked(at=AT, on=(7,), why="final-run"))), (run(7, path=SMOKE, head_sha=HEAD),), [7]),
    ("parked on it, at another head",
     case(ledger=ledger(leases.Parked(at=AT, on=(7,), why="final-run"))), (run(7, path=SMOKE),), []),
    ("parked on it for another reason",
     case(ledger=ledger(leases.Parked(at=AT, on=(7,), why="smoke-run"))), (run(7, path=SMOKE, head_sha=HEAD),), []),
    ("parked on another",
     case(ledger=ledger(leases.Parked(at=AT, on=(8,), why="final-run"))), (run(7, path=SMOKE, head_sha=HEAD),), []),
    ("named by the ledger, no final workflow",
     case(ledger=ledger(leases.Effected(at=AT, seq=0, effect="start-final-run", result="done", run_id=7))),
     (run(7, path=SMOKE, head_sha=HEAD),), []),
]  # fmt: skip


@pytest.mark.parametrize(("one", "runs", "expected"), [row[1:] for row in FINALS], ids=[row[0] for row in FINALS])
def test_final_runs(one: model.Case, runs: tuple[github.Run, ...], expected: list[int]) -> None:
    """By workflow, or as what the session parked on; at exactly this head; never a skipped one."""
    assert [r.id for r in rules_liveness.finals(one, index(sight(*runs)), HEAD)] == expected


GOING_ROWS = [
    ("on the branch", case(), {"head_branch": names.branch(CANDIDATE)}, [7]),
    ("on the branch, of an older session", case(fresh=False), {"head_branch": names.branch(CANDIDATE)}, []),
    ("at the branch's head", case(branch=HEAD), {"head_sha": HEAD}, [7]),
    ("at the draft's head", case(pulls=(draft(),)), {"head_sha": HEAD}, [7]),
    ("at a closed draft's head", case(pulls=(draft(is_open=False),)), {"head_sha": HEAD}, []),
    ("elsewhere", case(branch=HEAD), {}, []),
    ("without a head", case(), {"head_sha": ""}, []),
    ("over", case(branch=HEAD), {"head_sha": HEAD, "status": "completed"}, []),
    ("of another workflow", case(branch=HEAD), {"head_sha": HEAD, "path": SMOKE}, []),
    ("with an odd word", case(branch=HEAD), {"head_sha": HEAD, "status": "levitating"}, [7]),
]


@pytest.mark.parametrize(
    ("one", "fields", "expected"), [row[1:] for row in GOING_ROWS], ids=[row[0] for row in GOING_ROWS]
)
def test_unfinished_final_runs(one: model.Case, fields: dict[str, Any], expected: list[int]) -> None:
    """Whoever started it, on the branch or at one of its heads; it keeps the session alive."""
    seen = sight(run(7, **{"path": FINAL, **GOING, **fields}))
    assert [r.id for r in rules_liveness.finals_going(one, index(seen))] == expected
    assert isinstance(live(one, seen), model.Alive if expected else model.Gone)


def test_final_runs_going_come_in_order() -> None:
    """By their numbers, each once."""
    fields = {"path": FINAL, "head_sha": HEAD, "head_branch": names.branch(CANDIDATE), **GOING}
    seen = sight(run(9, **fields), run(7, **fields))
    found = rules_liveness.finals_going(case(branch=HEAD, pulls=(draft(),)), index(seen))
    assert [r.id for r in found] == [7, 9]


QUIET = datetime.timedelta(seconds=POLICY.zombie_seconds)


@pytest.mark.parametrize(
    ("fields", "known", "after", "expected"),
    [
        (GOING, (), QUIET + datetime.timedelta(seconds=1), [60]),
        ({**GOING, "status": "queued"}, (), QUIET + datetime.timedelta(seconds=1), [60]),
        ({**GOING, "status": "waiting"}, (), QUIET * 2, []),
        ({"status": "completed"}, (), QUIET * 2, []),
        (GOING, (60,), QUIET * 2, []),
        (GOING, (), QUIET, []),
        (GOING, (), None, []),
    ],
)
def test_suspects(
    fields: dict[str, Any], known: tuple[int, ...], after: datetime.timedelta | None, expected: list[int]
) -> None:
    """Unfinished, unchanged for longer than a job may last by GitHub's own times, and no zombie yet."""
    own = None if after is None else run(99, created_at=AT + after, **GOING)
    seen = sight(run(60, **fields), own=own, snapshot=zombie_memory(*known))
    judged = index(seen)
    if after is None:
        judged.now = None
    one = case(ledger=ledger())
    assert [r.id for r in rules_liveness.suspects(one, seen, judged, POLICY)] == expected


def test_suspects_are_also_what_it_waits_on() -> None:
    """In order of their numbers."""
    own = run(99, created_at=AT + QUIET * 2, **GOING)
    one = case(ledger=ledger(leases.Parked(at=AT, on=(59,), why="final-run")))
    seen = sight(run(60, **GOING), run(59, **GOING), own=own)
    assert [r.id for r in rules_liveness.suspects(one, seen, index(seen), POLICY)] == [59, 60]


@pytest.mark.parametrize(
    ("jobs", "dead"),
    [
        (listing(), True),
        (listing(job("a", "completed")), True),
        (listing(job("a", "completed"), job("b", "queued")), False),
        (listing(job("a", "completed"), complete=False), False),
        (model.Unread("jobs", "502"), False),
        (None, False),
    ],
)
def test_looks_dead(jobs: model.JobsSeen | None, dead: bool) -> None:
    """No unfinished job, by a complete listing."""
    seen = sight(jobs={} if jobs is None else {60: jobs})
    assert rules_liveness.looks_dead(run(60, **GOING), seen) is dead
