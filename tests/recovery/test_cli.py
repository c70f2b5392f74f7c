"""Recovery's verbs as real child processes against the embedded server: what they do, say, refuse, and exit with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from klaud import names
from klaud.cli import demo_world
from klaud.fakehub import hub as hubs
from tests.support import served

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.served import Done, World

pytestmark = pytest.mark.slow

OK, RED, INPUT, FORBIDDEN, LOST = 0, 1, 2, 3, 4
DEAD = demo_world.ABANDONED
NUMBER = DEAD.number or 0
BRANCH = f"refs/heads/{DEAD.branch}"
CLAIM = names.RefNames().claim(names.short_id(DEAD.family))
RIGHTS = {"contents:write": "contents", "pulls:write": "pull_requests", "actions:write": "actions"}


@pytest.fixture(scope="module")
def messy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Serve what dead sessions left; nobody sweeps here."""
    with served.world(tmp_path_factory.mktemp("messy")) as made:
        yield made


@pytest.fixture
def swept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Serve a world that one sweep has settled."""
    with served.world(tmp_path_factory.mktemp("swept")) as made:
        done = made.run("recover")
        assert done.status == OK, done.err
        assert pull(made) == ("closed", True)
        assert BRANCH not in made.refs()
        yield made


def pull(world: World, number: int = NUMBER) -> tuple[str, bool]:
    """Return a pull request's state and whether it is a draft."""
    with world.hub.lock:
        issue = world.hub.repository(served.REPOSITORY).issues[number]
        assert issue.pull is not None
        return issue.state, issue.pull.draft


def state(world: World) -> Any:
    """Return everything that a verb could have changed."""
    with world.hub.lock:
        repository = world.hub.repository(served.REPOSITORY)
        pulls = {n: (i.state, tuple(i.labels), len(i.comments)) for n, i in repository.issues.items()}
    return world.refs(), pulls


def archived(world: World) -> str:
    """Return the archive ref of the closed draft's branch."""
    (found,) = [ref for ref in world.refs() if f"/archive/branch/auto-{DEAD.candidate}/" in ref]
    return found


def refused(world: World, *argv: str, status: int, says: str, **environ: str | None) -> Done:
    """Run a verb that must change nothing, end so and say so."""
    before = state(world)
    done = world.run(*argv, environ=world.environ(**environ))
    assert (done.status, state(world)) == (status, before), done.err
    assert says in done.err + done.out
    assert "Traceback" not in done.err
    return done


def test_a_closed_draft_is_explained_and_given_back(swept: World) -> None:
    """Why, by which rule, how to undo; undone by the run's id; a second time there is nothing to do."""
    head = archived(swept).rpartition("/")[2]
    why = swept.run("why-closed", str(NUMBER))
    assert why.status == OK
    assert "closed by klaud" in why.out
    assert "outcome unexpected-error (abandoned)" in why.out or "outcome agent-never-ran (abandoned)" in why.out
    assert f"klaud undo {archived(swept)}" in why.out
    undone = swept.run("undo", str(DEAD.run))
    assert undone.status == OK, undone.err
    assert f"restored {BRANCH} at {head}" in undone.out
    assert f"reopened pull request {NUMBER}" in undone.out
    assert (swept.refs()[BRANCH], pull(swept)) == (head, ("open", True))
    before = state(swept)
    again = swept.run("undo", archived(swept))
    assert (again.status, state(swept)) == (OK, before)
    assert "it stands as it was already" in again.out
    assert "open, branch" in swept.run("why-closed", str(NUMBER)).out
    told = swept.run("explain", DEAD.family)
    assert told.status == OK
    assert "not claimed" in told.out
    assert f"branch {DEAD.branch} at {head}" in told.out
    assert f"kept: {archived(swept)}" in told.out


def test_where_github_does_not_reopen_a_new_draft_says_so(swept: World) -> None:
    """The branch stands again; the new draft names the old one."""
    swept.hub.faults.add(f"PATCH /repos/*/pulls/{NUMBER}", "status", status=422, message="cannot be reopened", times=1)
    undone = swept.run("undo", archived(swept))
    assert undone.status == OK, undone.err
    assert "GitHub does not reopen the old pull request" in undone.out
    assert pull(swept) == ("closed", True)
    with swept.hub.lock:
        issue = max(swept.hub.repository(served.REPOSITORY).issues.values(), key=lambda i: i.number)
    assert f"continues #{NUMBER}" in issue.body
    assert pull(swept, issue.number) == ("open", True)
    assert BRANCH in swept.refs()


def test_nothing_is_recreated_that_is_somebody_elses_now(swept: World) -> None:
    """The branch's name was taken again, or the family was: refused, with the reason, and nothing changes."""
    main = swept.refs()["refs/heads/main"]
    git = swept.hub.git(served.REPOSITORY)
    for ref, says in ((BRANCH, "it is somebody else's now"), (CLAIM, "the family is another session's now")):
        git.set_refs({ref: main})
        refused(swept, "undo", archived(swept), status=RED, says=says)
        git.set_refs({ref: None})
    refused(swept, "undo", str(DEAD.run), status=INPUT, says="nothing is written", KLAUD_PAUSED="1")


@pytest.mark.parametrize("right", RIGHTS)
def test_l77_a_token_without_a_write_right_writes_nothing(messy: World, right: str) -> None:
    """Red, the permission is named, and the hub accepted no write at all; drafts, claims and runs are as they were."""
    token = f"made-up-token-without-{right.partition(':')[0]}"
    level = dict.fromkeys(hubs.EVERYTHING, "write") | {RIGHTS[right]: "read"}
    messy.hub.add_token(token, demo_world.BOT, permissions=level)
    done = refused(messy, "recover", status=RED, says=f"the token lacks {right}", KLAUD_TOKEN=token)
    assert [entry for entry in done.writes if 200 <= entry.status < 300 and "upload-pack" not in entry.path] == []
    report = (messy.clone / "recovery.json").read_text()
    assert right in report
    assert '"writes": []' in report


def test_report_writes_nothing(messy: World) -> None:
    """What a new user runs first: the same decisions, no write."""
    done = refused(messy, "recover", "--report", status=OK, says="abandoned", KLAUD_TOKEN=served.READ_ONLY)
    assert done.writes == ()


def test_a_claim_is_released_by_hand(messy: World) -> None:
    """Of a run that is over; a second time nobody has it."""
    stale = demo_world.STALE
    ref = names.RefNames().claim(names.short_id(stale.family))
    assert ref in messy.refs()
    done = messy.run("release", stale.family)
    assert (done.status, done.out.strip()) == (OK, f"{ref}: released")
    assert ref not in messy.refs()
    done = messy.run("release", names.short_id(stale.family))
    assert (done.status, done.out.strip()) == (OK, f"{ref}: nobody has claimed it")


def test_a_live_sessions_claim_is_not_released(messy: World) -> None:
    """Ownership is another's, unless a person insists."""
    with messy.hub.lock:
        run = messy.hub.repository(served.REPOSITORY).runs[demo_world.HANDED_OFF.run].last
        before = run.status
        run.status = "in_progress"
    try:
        family = demo_world.HANDED_OFF.family
        done = refused(messy, "release", family, status=LOST, says="--even-if-alive")
        assert f"run {demo_world.HANDED_OFF.run} is in_progress" in done.err
        assert messy.run("release", family, "--even-if-alive").status == OK
    finally:
        with messy.hub.lock:
            run.status = before


def test_a_family_is_paused_and_resumed(messy: World) -> None:
    """Each once; the second time says so; explain knows."""
    family = demo_world.BARE.family
    for verb, words in (("pause", "paused"), ("resume", "resumed")):
        done = messy.run(verb, family)
        assert (done.status, done.out.strip()) == (OK, f"{family}: {words}")
        already = refused(messy, verb, family, status=OK, says="already")
        assert already.out.strip() == f"{family}: {'paused' if verb == 'pause' else 'not paused'} already"
        told = messy.run("explain", family).out
        assert ("paused by a person" in told) is (verb == "pause")


BAD = [
    (("undo", "no-such-thing"), INPUT, "nothing in klaud's archive belongs to 'no-such-thing'"),
    (("undo", "1"), INPUT, "nothing in klaud's archive belongs to '1'"),
    (("undo", "refs/heads/main"), INPUT, "nothing in klaud's archive belongs to"),
    (("undo",), INPUT, "Missing argument"),
    (("release",), INPUT, "Missing argument"),
    (("release", "no family"), OK, "nobody has claimed it"),
    (("pause", "no-colon"), INPUT, "no-colon"),
    (("resume", ""), INPUT, "family"),
    (("why-closed", "0"), INPUT, "greater than or equal to 1"),
    (("why-closed", "seven"), INPUT, "valid integer"),
    (("why-closed", "4242"), OK, "#4242: there is no such pull request"),
    (("explain", "configs/none.yaml:none"), OK, "nothing is recorded of it"),
    (("explain",), INPUT, "Missing argument"),
    (("recover", "--parked-on", "0"), INPUT, "greater than or equal to 1"),
    (("recover", "--no-such-option"), INPUT, "No such option"),
]


@pytest.mark.parametrize(("argv", "status", "says"), BAD, ids=[" ".join(row[0]) for row in BAD])
def test_bad_input(messy: World, argv: tuple[str, ...], status: int, says: str) -> None:
    """What is wrong, with the right status, and nothing changes."""
    refused(messy, *argv, status=status, says=says)


@pytest.mark.parametrize("verb", ["release", "pause", "resume"])
def test_an_unreadable_record_is_left_alone(messy: World, verb: str) -> None:
    """Named, untouched."""
    family = "configs/codecs.yaml:unreadable"
    ref_names = names.RefNames()
    ref = ref_names.claim(names.short_id(family)) if verb == "release" else ref_names.family(names.short_id(family))
    messy.hub.git(served.REPOSITORY).set_refs({ref: messy.refs()["refs/heads/main"]})
    refused(messy, verb, family, status=INPUT, says=ref)


@pytest.mark.parametrize("verb", ["undo", "release", "pause", "resume"])
def test_paused_verbs_write_nothing(messy: World, verb: str) -> None:
    """The kill switch stops every verb that writes."""
    target = str(DEAD.run) if verb == "undo" else DEAD.family
    refused(messy, verb, target, status=INPUT, says="nothing is written", KLAUD_PAUSED="1")


def test_no_token_no_repository_wrong_account(messy: World) -> None:
    """Said before anything is sent."""
    refused(messy, "undo", "1", status=INPUT, says="KLAUD_TOKEN", KLAUD_TOKEN=None)
    refused(messy, "explain", DEAD.family, status=INPUT, says="GITHUB_REPOSITORY", GITHUB_REPOSITORY=None)
    refused(messy, "why-closed", "2", status=FORBIDDEN, says="401", KLAUD_TOKEN="not-a-token-of-anybody")
