"""The pure rules one by one: who is a person, what is a touch, what is over, what leaks, what there is room for."""

from __future__ import annotations

import datetime

import msgspec
import pytest

from klaud import names
from klaud.github import model as github
from klaud.leases import model as leases
from klaud.recovery import decide_cases, decide_leaks, decide_plan, model, rules_liveness, rules_touch
from tests.support.memory_scenes import Scene

AT = datetime.datetime(2026, 3, 1, 12, 0, tzinfo=datetime.UTC)
BOT = github.Account(id=90001, login="klaud-bot", type="Bot")
IGNORED = github.Account(id=90002, login="helper")
APP = github.Account(id=5, login="other-app", type="Bot")
ALICE = github.Account(id=101, login="alice")
LOOKALIKE = github.Account(id=777, login="klaud-bot[bot]")
SETTING = model.Setting(repository="acme/bench", bot=90001, login="klaud-bot", ignored=frozenset({90002}))
HEAD = "a" * 40
CANDIDATE = "0" * 15 + "a-" + "0" * 15 + "b"


def hours(count: float) -> datetime.datetime:
    return AT + datetime.timedelta(hours=count)


def commit(
    oid: str = HEAD, author: github.Account | None = BOT, committer: github.Account | None = BOT
) -> github.Commit:
    return github.Commit(oid=oid, author=author, committer=committer)


def detail(
    *,
    events: tuple[github.Event, ...] = (),
    commits: tuple[github.Commit, ...] | None = None,
    complete: bool = True,
    timeline_complete: bool = True,
    **fields: object,
) -> github.PullDetail:
    """Return a draft of klaud's with one commit of its own."""
    made = (commit(),) if commits is None else commits
    pull = github.Pull(
        number=1,
        node_id="PR_1",
        state="open",
        merged=False,
        draft=True,
        title="t",
        body="",
        author=BOT,
        head_ref=names.branch(CANDIDATE),
        head_oid=HEAD,
        head_repository="acme/bench",
        base_ref="main",
        labels=(),
        created_at=AT,
        updated_at=AT,
        commit_count=len(made),
    )
    pull = msgspec.structs.replace(pull, **fields)
    return github.PullDetail(
        pull=pull, commits=github.Listing(made, complete), timeline=github.Listing(events, timeline_complete, "cut")
    )


def event(kind: str, actor: github.Account | None, at: datetime.datetime = AT, text: str = "") -> github.Event:
    return github.Event(kind=kind, actor=actor, at=at, detail=text)


def bare(*oids: str) -> model.Case:
    """Return a case without a ledger, or with one that knows these oids."""
    case = model.Case(key="c", wave="", candidate=CANDIDATE, family="f")
    if not oids:
        return case
    start = leases.SessionStarted(
        at=AT, wave="1.1", candidate=CANDIDATE, family="f", base="", holder=leases.Holder(run_id=1, attempt=1)
    )
    push = leases.Intent(at=AT, seq=0, effect="push-work", oids=oids)
    return msgspec.structs.replace(case, ledger=leases.Ledger("r", "o", (start, push)))


def run(run_id: int = 7, **fields: object) -> github.Run:
    made = github.Run(
        id=run_id,
        attempt=1,
        status="completed",
        conclusion="failure",
        event="pull_request",
        head_branch=names.branch(CANDIDATE),
        head_sha=HEAD,
        path=".github/workflows/bench-final.yml@refs/heads/main",
        display_title="",
        actor=BOT,
        triggering_actor=BOT,
        created_at=AT,
        updated_at=AT,
    )
    return msgspec.structs.replace(made, **fields)


def touch(seen: github.PullDetail, case: model.Case | None = None, *runs: github.Run) -> list[str]:
    return [f"{t.who}: {t.what}" for t in rules_touch.touches(seen, case or bare(), runs, SETTING)]


@pytest.mark.parametrize(
    ("account", "person"),
    [
        (BOT, False),
        (github.Account(id=90001, login="machine"), False),
        (IGNORED, False),
        (APP, False),
        (ALICE, True),
        (LOOKALIKE, True),
        (None, True),
    ],
)
def test_who_is_a_person(account: github.Account | None, person: bool) -> None:
    """By id and by GitHub's own type, never by a name's ending; a deleted account is one."""
    assert rules_touch.is_person(account, SETTING) is person
    assert rules_touch.who(account) == (account.login if account else "a deleted account")


def test_a_draft_of_klauds_own() -> None:
    """Nothing of a person's: no touch, with and without a ledger, whatever klaud and bots did on it."""
    noise = (
        event("commented", APP), event("labeled", IGNORED), event("labeled", BOT), event("committed", None),
        event("mentioned", ALICE), event("subscribed", ALICE), event("cross-referenced", ALICE),
    )  # fmt: skip
    assert touch(detail(events=noise)) == []
    assert touch(detail(events=noise), bare(HEAD), run()) == []


@pytest.mark.parametrize(
    "kind",
    [
        "commented",
        "labeled",
        "unlabeled",
        "reviewed",
        "renamed",
        "assigned",
        "ready_for_review",
        "reopened",
        "odd-new-kind",
    ],
)
@pytest.mark.parametrize("actor", [ALICE, None, LOOKALIKE])
def test_every_act_of_a_person_is_a_touch(kind: str, actor: github.Account | None) -> None:
    """Kinds that nobody has heard of included."""
    assert touch(detail(events=(event(kind, actor),))) == [f"{rules_touch.who(actor)}: {kind}"]


def test_commits() -> None:
    """Author and committer of every commit; bots touch by commit; the ledger excuses what klaud recorded."""
    assert touch(detail(commits=(commit(author=ALICE),))) == [f"alice: made commit {HEAD[:12]}"]
    assert touch(detail(commits=(commit(committer=ALICE),))) == [f"alice: made commit {HEAD[:12]}"]
    assert touch(detail(commits=(commit(author=APP),))) == [f"other-app: made commit {HEAD[:12]}"]
    assert touch(detail(commits=(commit(author=None),))) == [f"a deleted account: made commit {HEAD[:12]}"]
    assert touch(detail(commits=(commit(author=None),)), bare(HEAD)) == []
    assert touch(detail(commits=(commit("b" * 40, author=ALICE), commit())), bare(HEAD)) != []
    assert touch(detail(), bare("c" * 40)) == [f"somebody: pushed {HEAD[:12]}, which the ledger does not know"]
    assert touch(detail(complete=False)) == ["somebody: the commits could not be read in full"]
    assert touch(detail(commit_count=2)) == ["somebody: the commits could not be read in full"]
    assert touch(detail(commit_count=None)) == []


@pytest.mark.parametrize(
    ("email", "own"),
    [
        ("90001+klaud-bot@users.noreply.github.com", True),
        ("90001+klaud-bot@users.noreply.github.com.example", False),
        ("90002+klaud-bot@users.noreply.github.com", False),
        ("90001klaud-bot@users.noreply.github.com", False),
        ("90001", False),
        ("", False),
    ],
)
def test_a_commit_without_an_account(email: str, own: bool) -> None:
    """GitHub names no account for a bot's commit: the id in the address does; a named account always wins."""
    assert rules_touch.is_own_commit(None, email, SETTING) is own
    assert not rules_touch.is_own_commit(ALICE, "90001+x@users.noreply.github.com", SETTING)
    assert rules_touch.is_own_commit(BOT, email, SETTING)


def test_a_stranger_is_named_by_account_or_address() -> None:
    """By the address where GitHub knows no account, as a deleted account where there is none either."""
    for author, email, who in (
        (ALICE, "alice@example.org", "alice"),
        (None, "bob@example.org", "bob@example.org"),
        (None, "", "a deleted account"),
    ):
        made = msgspec.structs.replace(commit(author=author), author_email=email)
        assert touch(detail(commits=(made,))) == [f"{who}: made commit {HEAD[:12]}"]


def test_which_runs_say_something_about_a_draft() -> None:
    """Those at its head, at any of its commits, and those that its ledger names; each once, by number."""
    seen = detail(commits=(commit("b" * 40), commit()))
    runs: dict[int, model.RunSeen] = {
        9: run(9), 8: run(8, head_sha="b" * 40), 7: run(7, head_sha="c" * 40), 6: run(6, head_sha="c" * 40),
        5: github.Missing(what="run"),
    }  # fmt: skip
    index = decide_cases.Index(runs, SETTING)
    sent = [leases.Effected(at=AT, seq=0, effect="dispatch-smoke", result="done", run_id=i) for i in (5, 6, 9)]
    one = msgspec.structs.replace(bare(), ledger=leases.Ledger("r", "o", tuple(sent)))
    assert [r.id for r in rules_touch.runs_about(seen, bare(), index)] == [8, 9]
    assert [r.id for r in rules_touch.runs_about(seen, one, index)] == [6, 8, 9]


def test_edits_author_and_timeline() -> None:
    """Title and body edits, a person's own pull request, a timeline that is not whole."""
    assert touch(detail(body_edited_at=AT, editor=ALICE)) == ["alice: edited title or body"]
    assert touch(detail(body_edited_at=AT, editor=None)) == ["a deleted account: edited title or body"]
    assert touch(detail(body_edited_at=AT, editor=BOT)) == []
    assert touch(detail(author=ALICE)) == ["alice: opened the pull request"]
    assert touch(detail(timeline_complete=False)) == ["somebody: the timeline could not be read in full (cut)"]


def test_runs() -> None:
    """A manual re-run, or a run that a person started; a bot's run is none."""
    assert touch(detail(), None, run(triggering_actor=ALICE)) == ["alice: re-ran run 7"]
    assert touch(detail(), None, run(actor=ALICE)) == ["alice: started run 7"]
    assert touch(detail(), None, run(actor=APP, triggering_actor=APP)) == []
    assert touch(detail(), None, run(triggering_actor=None)) == ["a deleted account: re-ran run 7"]


def test_given_back() -> None:
    """What was before the hand-off label came off again is forgotten, but for commits; what came after counts."""
    back = event("unlabeled", ALICE, hours(2), names.HANDOFF_LABEL)
    before = (event("commented", ALICE, hours(1)), back)
    assert touch(detail(events=before, body_edited_at=hours(1), editor=ALICE), None, run(triggering_actor=ALICE)) == []
    assert touch(detail(events=before, body_edited_at=hours(2), editor=ALICE)) == []
    assert touch(detail(events=before), None, run(triggering_actor=ALICE, updated_at=hours(2))) == []
    assert touch(detail(events=(*before, event("commented", ALICE, hours(3))))) == ["alice: commented"]
    assert touch(detail(events=before, body_edited_at=hours(3), editor=ALICE)) == ["alice: edited title or body"]
    assert touch(detail(events=before), None, run(triggering_actor=ALICE, updated_at=hours(3))) == [
        "alice: re-ran run 7"
    ]
    assert touch(detail(events=before, commits=(commit(author=ALICE),))) != []
    for other in (
        event("unlabeled", BOT, hours(2), names.HANDOFF_LABEL),
        event("unlabeled", None, hours(2), names.HANDOFF_LABEL),
        event("unlabeled", ALICE, hours(2), "other"),
        event("labeled", ALICE, hours(2), names.HANDOFF_LABEL),
    ):
        assert "alice: commented" in touch(detail(events=(event("commented", ALICE, hours(1)), other)))


# -- liveness


def sight(**fields: object) -> model.Sight:
    made = model.Sight(now=AT, me=None, own=None, snapshot=Scene(outside=True).snapshot())
    return msgspec.structs.replace(made, **fields)


def alive(*runs: github.Run, ask: int = 7, **fields: object) -> model.Liveness:
    seen = sight(runs={r.id: r for r in runs}, **fields)
    return rules_liveness.of_run(ask, seen, decide_cases.Index.of_sight(seen, SETTING))


def test_a_run_is_over_only_when_completed() -> None:
    """Every other word is alive; approval is alive; not read is unknown."""
    for word in ("queued", "in_progress", "requested", "waiting", "pending", "levitating", ""):
        assert isinstance(alive(run(status=word, conclusion=None)), model.Alive)
    for end in ("success", "failure", "cancelled", "skipped", "timed_out", "neutral", "stale", "odd", None):
        assert isinstance(alive(run(conclusion=end)), model.Gone)
    assert isinstance(alive(run(conclusion="action_required")), model.Alive)
    assert isinstance(alive(ask=8), model.Unknown)


def test_404() -> None:
    """Gone only below our own run's number, which itself answers."""
    own = run(100, status="in_progress", conclusion=None)

    def judged(run_id: int, seen_own: model.RunSeen | None) -> model.Liveness:
        seen = sight(runs={run_id: github.Missing(what="run")}, own=seen_own)
        return rules_liveness.of_run(run_id, seen, decide_cases.Index.of_sight(seen, SETTING))

    assert isinstance(judged(99, own), model.Gone)
    assert isinstance(judged(101, own), model.Alive)
    assert isinstance(judged(99, None), model.Alive)
    assert isinstance(judged(99, github.Missing(what="own")), model.Alive)
    assert isinstance(judged(99, model.Unread("own", "502")), model.Alive)
    assert isinstance(judged(0, own), model.Alive)


@pytest.mark.parametrize(
    ("jobs", "over"),
    [
        ((("recover", "completed"),), True),
        ((("recover", "in_progress"),), False),
        ((("other", "completed"),), False),
        ((("recover", "completed"), ("recover", "queued")), False),
        ((), False),
    ],
)
def test_a_job_is_over_by_its_name(jobs: tuple[tuple[str, str], ...], over: bool) -> None:
    """The holder's job, not the run around it; a job that is not listed proves nothing."""
    made = tuple(
        github.Job(id=i, run_id=7, attempt=1, name=n, status=s, conclusion=None) for i, (n, s) in enumerate(jobs)
    )
    going = run(status="in_progress", conclusion=None)
    for complete in (True, False):
        seen = sight(runs={7: going}, jobs={7: github.Listing(made, complete)})
        index = decide_cases.Index.of_sight(seen, SETTING)
        assert isinstance(rules_liveness.of_job(7, "recover", seen, index), model.Gone) is (over and complete)
        assert isinstance(rules_liveness.of_job(7, "", seen, index), model.Alive)


def test_a_lease_ends_with_its_attempt() -> None:
    """A later attempt of the run is a new holder; an earlier pass of our own job is over."""
    going = run(status="in_progress", conclusion=None, attempt=2)
    me = leases.Holder(run_id=7, attempt=2, job="recover")
    seen = sight(runs={7: going}, me=me)
    index = decide_cases.Index.of_sight(seen, SETTING)

    def held(attempt: int, job: str) -> model.Liveness:
        holder = leases.Holder(run_id=7, attempt=attempt, job=job)
        return rules_liveness.of_lease(leases.Lease(at=AT, wave="1.1", candidate=CANDIDATE, holder=holder), seen, index)

    assert isinstance(held(1, "recover"), model.Gone)
    assert isinstance(held(2, "recover"), model.Gone)
    assert isinstance(held(2, "other"), model.Alive)
    assert isinstance(held(3, "recover"), model.Alive)


def test_markers() -> None:
    """A run is a session's by the marker at the end of its name, exactly, and only when klaud started it."""
    key = f"1.1-{CANDIDATE}"
    assert decide_cases.marker_of(f"klaud candidate {CANDIDATE} [klaud {key}]") == key
    assert decide_cases.marker_of(f"[klaud {key}] and more") == ""
    assert decide_cases.marker_of("nothing") == ""
    mine = run(display_title=f"x [klaud {key}]", path=".github/workflows/klaud-candidate.yml")
    check = msgspec.structs.replace(mine, path=".github/workflows/bench-smoke.yml")
    assert decide_cases.Index.of_sight(sight(runs={7: check}), SETTING).by_session == {}
    for actor, known in ((BOT, True), (ALICE, False), (None, False)):
        seen = sight(runs={7: msgspec.structs.replace(mine, actor=actor)})
        assert bool(decide_cases.Index.of_sight(seen, SETTING).by_session.get(key)) is known


def test_a_smoke_run_is_klauds_alone() -> None:
    """Unfinished, started and triggered by klaud, neither a session nor a final run."""
    base = run(status="queued", conclusion=None, path=".github/workflows/bench-smoke.yml")
    assert decide_cases.is_smoke(base, SETTING)
    assert decide_cases.is_smoke(msgspec.structs.replace(base, display_title="x [klaud 1.1-a]"), SETTING)
    for fields in (
        {"status": "completed"}, {"actor": ALICE}, {"triggering_actor": ALICE}, {"triggering_actor": None},
        {"path": ".github/workflows/bench-final.yml@refs/heads/main"}, {"path": ".github/workflows/klaud-candidate.yml"},
        {"display_title": "x [klaud 1.1-a]", "path": ".github/workflows/other.yml"},
    ):  # fmt: skip
        assert not decide_cases.is_smoke(msgspec.structs.replace(base, **fields), SETTING)


# -- leaks, drain, budget


def verdict(row: model.Row, *actions: model.Action, key: str = "k", at: datetime.datetime = AT) -> model.Verdict:
    case = model.Case(key=key, wave="1.1", candidate=CANDIDATE, family="f", pulls=(detail(created_at=at),))
    return model.Verdict(case=case, row=row, state="s", actions=actions)


def closing(number: int = 1, at: datetime.datetime = AT) -> model.CloseDraft:
    return model.CloseDraft(why="w", number=number, head=HEAD, branch="b", created_at=at)


@pytest.mark.parametrize("row", [*model.ROWS, "lease", "unmatched"])
def test_who_owns_what_is_left(row: model.Row) -> None:
    """Live, parked, unread and a person's things are no leaks; what nobody owns is one."""
    leak = decide_leaks.count(
        [decide_leaks.After(verdict=verdict(row), claims=1, leases=1, branches=1, drafts=1)], model.Policy(), hours(5)
    )
    assert leak["claims"].count == (0 if row in {"1b", "4", "5", "9", "12", "13"} else 1)
    owned = {"1b", "2", "3", "4", "5", "6", "8", "9", "11", "12", "13", "16"}
    assert leak["branches"].count == leak["drafts"].count == (0 if row in owned else 1)
    assert leak["leases"].count == 1
    if row == "14":
        assert leak["claims"].oldest_hours == 5.0
        assert leak["claims"].limit == model.Policy().leak_claims


def test_leaks_above_their_limits() -> None:
    """Above, not at."""
    assert decide_leaks.over({"a": model.Leak(count=5, limit=5), "b": model.Leak(count=6, limit=5)}) == ("b",)
    kept = verdict("15", model.Leave(why="w", code="touched"))
    assert decide_leaks.count([decide_leaks.After(verdict=kept, branches=1)], model.Policy(), AT)["branches"].count == 0
    held = verdict("lease", model.Leave(why="w", code="in-hand"))
    assert decide_leaks.count([decide_leaks.After(verdict=held, leases=1)], model.Policy(), AT)["leases"].count == 0


@pytest.mark.parametrize(
    ("was", "above", "recent", "now"),
    [
        (0, False, False, 0),
        (0, True, False, 1),
        (1, True, False, 2),
        (1, True, True, 1),
        (0, True, True, 1),
        (3, False, False, 0),
    ],
)
def test_sweeps_above_the_limits(was: int, above: bool, recent: bool, now: int) -> None:
    """Counted once in ten minutes, forgotten when below."""
    before = leases.Observed(at=AT, leaks_over=was, zombies=(5,))
    plan = model.Plan(verdicts=(), zombies=(5,), counts=())
    assert decide_leaks.remembered(before, plan, [3], above=above, recent=recent) == ((3, 5), (), now)
    assert decide_leaks.remembered(None, plan, [], above=False, recent=False) == ((5,), (), 0)


def test_the_oldest_drafts_are_closed_first() -> None:
    """The rest waits whole, for the next sweep."""
    made = [verdict("14", closing(i, hours(-i)), key=f"k{i}", at=hours(-i)) for i in range(5)]
    kept = [v.case.key for v in decide_plan._drained(made, 2) if decide_plan.closes(v)]
    assert kept == ["k3", "k4"]
    later = decide_plan._drained(made, 2)[0].actions
    assert [a.code for a in later if isinstance(a, model.Leave)] == ["drain"]


def test_costs_and_budget() -> None:
    """Worst cases are known before acting; cancels come before closures when there is no room for all."""
    cancel = verdict("6", model.CancelRun(why="w", run_id=1), key="cancel")
    close = verdict("14", closing(), key="close")
    finish = verdict("10", model.Finish(why="w", wave="1.1", candidate="c", number=1, as_="failed"), key="finish")
    free = verdict("19", model.ReleaseClaim(why="w", ref="r", oid="o"), key="free")
    made = [finish, close, cancel, free]
    assert [decide_plan.cost(v) for v in made] == [30, 5, 4, 0]
    assert decide_plan._within_budget(made, None, 200) == (made, 47)
    assert decide_plan._within_budget(made, 247, 200) == (made, 47)
    kept, worst = decide_plan._within_budget(made, 246, 200)
    assert worst == 47
    assert [decide_plan.cost(v) for v in kept] == [0, 5, 4, 0]
    kept, _ = decide_plan._within_budget(made, 212, 200)
    assert [decide_plan.cost(v) for v in kept] == [0, 0, 4, 0]
    assert decide_plan._within_budget([free], 0, 200) == ([free], 0)
    assert [decide_plan.closes(v) for v in made] == [True, True, False, False]
    good = verdict("8", model.Finish(why="w", wave="1.1", candidate="c", number=1, as_="validated"))
    bare_finish = verdict("7", model.Finish(why="w", wave="1.1", candidate="c", number=None, as_="recorded"))
    assert [decide_plan.closes(v) for v in (good, bare_finish)] == [False, False]
