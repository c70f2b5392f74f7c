# ruff: noqa: N802 - tests carry the ids of the contracts and oddities they show
"""What every ``Gateway`` keeps, numbered. A subclass has a fixture ``scene``: a small world in which people act.

The world has klaud's account (``BOT``), a person ``ann``, a branch ``main``, a workflow ``work.yml`` that can be dispatched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import pytest

from klaud import errors
from klaud.github import model

if TYPE_CHECKING:
    from klaud.github.gateway import Gateway

BOT = 90001
ANN = 101
HEAD = "klaud/auto-" + "a" * 16 + "-" + "b" * 16
LABEL = "needs / review 🚑"


class Scene(Protocol):
    """What the contracts do to a world besides calling the gateway."""

    def connect(self) -> Gateway:
        """Return klaud's own client."""
        ...

    def push(self, branch: str, by: str | None) -> str:
        """Let somebody (``bot``, ``ann``, None: an unknown address) push a commit; return its oid."""
        ...

    def do(self, deed: str, number: int, value: str = "", *, by: str = "ann") -> None:
        """Let a person act on pull request (or run) ``number``."""
        ...

    def fork_pull(self, branch: str) -> int:
        """Open a pull request from a fork's branch of that name."""
        ...

    def run(self, **fields: Any) -> int:
        """Add a run: ``status``, ``conclusion``, ``branch``."""
        ...


def opened(scene: Scene, gateway: Gateway, branch: str = HEAD, **changes: Any) -> model.Pull:
    scene.push(branch, "bot")
    fields: dict[str, Any] = {"head": branch, "base": "main", "title": "T", "body": "B", "draft": True, **changes}
    return gateway.create_pull(**fields)


def detail(gateway: Gateway, branch: str = HEAD) -> model.PullDetail:
    (found,) = gateway.pulls_of_heads([branch])[branch].items
    return found


class GatewayContract:
    """G01 to G33."""

    def test_G01_the_token_knows_who_and_where_it_is(self, scene: Scene) -> None:
        gateway = scene.connect()
        assert gateway.account().id == BOT
        found = gateway.repository()
        assert (found.full_name, found.default_branch) == ("acme/bench", "main")
        assert found.permissions["push"]

    def test_G02_a_pull_request_is_opened_as_asked(self, scene: Scene) -> None:
        gateway = scene.connect()
        oid = scene.push(HEAD, "bot")
        made = gateway.create_pull(head=HEAD, base="main", title="T", body="B", draft=True)
        assert (made.head_ref, made.head_oid, made.title, made.body, made.draft) == (HEAD, oid, "T", "B", True)
        assert (made.open, made.merged, made.base_ref, made.head_repository) == (True, False, "main", "acme/bench")
        assert made.author is not None
        assert made.author.id == BOT
        read = gateway.pull(made.number)
        assert isinstance(read, model.Pull)
        assert (read.number, read.head_oid, read.commit_count) == (made.number, oid, 1)
        assert read.node_id == made.node_id

    def test_G03_a_second_open_pull_request_of_one_head_is_refused(self, scene: Scene) -> None:
        gateway = scene.connect()
        made = opened(scene, gateway)
        with pytest.raises(errors.RefusedWriteError) as caught:
            gateway.create_pull(head=HEAD, base="main", title="again", body="", draft=True)
        assert caught.value.status == 422
        assert [one.number for one in gateway.open_pulls().items] == [made.number]

    def test_G04_a_head_that_is_not_there_is_refused(self, scene: Scene) -> None:
        with pytest.raises(errors.RefusedWriteError) as caught:
            scene.connect().create_pull(head="klaud/nothing", base="main", title="T", body="", draft=True)
        assert caught.value.status == 422

    def test_G05_L15_heads_are_compared_exactly(self, scene: Scene) -> None:
        gateway = scene.connect()
        made, longer = opened(scene, gateway), opened(scene, gateway, HEAD + "2")
        found = gateway.pulls_of_heads([HEAD, HEAD + "2", "klaud/none"])
        assert {head: [one.pull.number for one in listing.items] for head, listing in found.items()} == {
            HEAD: [made.number], HEAD + "2": [longer.number], "klaud/none": [],
        }  # fmt: skip
        assert all(listing.complete for listing in found.values())

    def test_G06_L41_a_forks_look_alike_is_not_ours(self, scene: Scene) -> None:
        gateway = scene.connect()
        fork = scene.fork_pull(HEAD)
        assert gateway.pulls_of_heads([HEAD])[HEAD].items == ()
        assert fork in [one.number for one in gateway.open_pulls().items]

    def test_G07_details_tell_commits_and_who_made_them(self, scene: Scene) -> None:
        gateway = scene.connect()
        first = scene.push(HEAD, "bot")
        second = scene.push(HEAD, "ann")
        made = gateway.create_pull(head=HEAD, base="main", title="T", body="B", draft=True)
        third = scene.push(HEAD, None)
        found = detail(gateway)
        assert found.pull.number == made.number
        assert [(commit.oid, commit.author and commit.author.id) for commit in found.commits.items] == [
            (first, BOT), (second, ANN), (third, None),
        ]  # fmt: skip
        assert found.commits.complete
        assert (found.pull.commit_count, found.pull.head_oid) == (3, third)

    def test_G08_numbers_are_read_in_one_go_and_what_is_not_there_is_missing(self, scene: Scene) -> None:
        gateway = scene.connect()
        made, other = opened(scene, gateway), opened(scene, gateway, "other")
        found = gateway.pull_details([made.number, 987654, other.number])
        assert isinstance(found[987654], model.Missing)
        one = found[made.number]
        assert isinstance(one, model.PullDetail)
        assert one.pull.head_ref == HEAD
        assert set(found) == {made.number, other.number, 987654}

    def test_G09_what_people_do_is_in_both_timelines_by_one_name(self, scene: Scene) -> None:
        gateway = scene.connect()
        number = opened(scene, gateway).number
        deeds = [
            ("label", "x"),
            ("unlabel", "x"),
            ("comment", "hello"),
            ("ready", ""),
            ("draft", ""),
            ("close", ""),
            ("reopen", ""),
        ]
        for deed, value in deeds:
            scene.do(deed, number, value)
        named = ["labeled", "unlabeled", "commented", "ready_for_review", "convert_to_draft", "closed", "reopened"]

        def of_ann(listing: model.Listing[model.Event]) -> list[str]:
            assert listing.complete
            return [event.kind for event in listing.items if event.actor is not None and event.actor.id == ANN]

        assert of_ann(detail(gateway).timeline) == named
        assert of_ann(gateway.timeline(number)) == named
        labels = [event.detail for event in gateway.timeline(number).items if event.kind in {"labeled", "unlabeled"}]
        assert labels == ["x", "x"]

    def test_G10_a_body_edit_by_a_person_is_seen(self, scene: Scene) -> None:
        gateway = scene.connect()
        number = opened(scene, gateway).number
        assert detail(gateway).pull.editor is None
        scene.do("edit", number, "another text")
        found = detail(gateway).pull
        assert found.body == "another text"
        assert found.editor is not None
        assert found.editor.id == ANN
        assert found.body_edited_at is not None

    def test_G11_L54_labels_are_added_removed_and_read_back(self, scene: Scene) -> None:
        gateway = scene.connect()
        number = opened(scene, gateway).number
        assert gateway.add_labels(number, [LABEL, "full-sweep"]) == (LABEL, "full-sweep")
        assert gateway.add_labels(number, [LABEL]) == (LABEL, "full-sweep")
        gateway.remove_label(number, LABEL)
        gateway.remove_label(number, LABEL)
        found = gateway.pull(number)
        assert isinstance(found, model.Pull)
        assert found.labels == ("full-sweep",)

    def test_G12_close_and_reopen(self, scene: Scene) -> None:
        gateway = scene.connect()
        number = opened(scene, gateway).number
        gateway.close_pull(number)
        found = gateway.pull(number)
        assert isinstance(found, model.Pull)
        assert (found.open, found.merged) == (False, False)
        assert found.closed_at is not None
        gateway.close_pull(number)
        gateway.reopen_pull(number)
        again = gateway.pull(number)
        assert isinstance(again, model.Pull)
        assert again.open

    def test_G13_reopening_without_the_branch_is_refused(self, scene: Scene) -> None:
        gateway = scene.connect()
        number = opened(scene, gateway).number
        gateway.close_pull(number)
        scene.do("delete-branch", number, HEAD)
        with pytest.raises(errors.RefusedWriteError) as caught:
            gateway.reopen_pull(number)
        assert caught.value.status == 422

    def test_G14_a_merged_one_is_closed_and_says_so(self, scene: Scene) -> None:
        gateway = scene.connect()
        number = opened(scene, gateway, draft=False).number
        scene.do("merge", number)
        found = detail(gateway).pull
        assert (found.state, found.merged) == ("closed", True)
        assert found.merged_at is not None

    def test_G15_drafts_are_made_ready_and_back(self, scene: Scene) -> None:
        gateway = scene.connect()
        made = opened(scene, gateway)
        gateway.mark_ready(made.node_id)
        assert not detail(gateway).pull.draft
        gateway.convert_to_draft(made.node_id)
        assert detail(gateway).pull.draft

    def test_G16_title_and_body_are_changed_as_asked(self, scene: Scene) -> None:
        gateway = scene.connect()
        number = opened(scene, gateway).number
        gateway.edit_pull(number, title="New")
        gateway.edit_pull(number, body="Text")
        found = gateway.pull(number)
        assert isinstance(found, model.Pull)
        assert (found.title, found.body) == ("New", "Text")

    def test_G17_a_comment_is_in_the_timeline(self, scene: Scene) -> None:
        gateway = scene.connect()
        number = opened(scene, gateway).number
        first, second = gateway.comment(number, "one"), gateway.comment(number, "two")
        assert first != second
        kinds = [(event.kind, event.actor and event.actor.id) for event in gateway.timeline(number).items]
        assert kinds[-2:] == [("commented", BOT), ("commented", BOT)]

    def test_G18_what_is_not_there_is_missing(self, scene: Scene) -> None:
        gateway = scene.connect()
        assert isinstance(gateway.pull(987654), model.Missing)
        assert isinstance(gateway.run(987654), model.Missing)
        assert isinstance(gateway.workflow("nothing.yml"), model.Missing)
        with pytest.raises(errors.ReadFailedError):
            gateway.jobs(987654)

    def test_G19_a_dispatched_run_can_be_read(self, scene: Scene) -> None:
        gateway = scene.connect()
        made = gateway.dispatch("work.yml", "main", {})
        assert made.run_id is not None
        found = gateway.run(made.run_id)
        assert isinstance(found, model.Run)
        assert (found.event, found.head_branch, found.attempt) == ("workflow_dispatch", "main", 1)
        assert found.path.endswith("/work.yml")
        assert found.actor is not None
        assert found.actor.id == BOT

    def test_G20_runs_are_listed_by_status_branch_and_workflow(self, scene: Scene) -> None:
        gateway = scene.connect()
        scene.push("side", "ann")
        one = scene.run(status="completed", conclusion="success", branch="main")
        two = scene.run(status="in_progress", branch="side")
        assert {run.id for run in gateway.runs().items} == {one, two}
        assert [run.id for run in gateway.runs(status="in_progress").items] == [two]
        assert [run.id for run in gateway.runs(status="success").items] == [one]
        assert [run.id for run in gateway.runs(branch="side").items] == [two]
        assert {run.id for run in gateway.runs(workflow="work.yml").items} == {one, two}
        assert gateway.runs(status="queued") == model.Listing(())

    def test_G21_L12_a_re_run_is_another_attempt_by_whoever_pressed(self, scene: Scene) -> None:
        gateway = scene.connect()
        run_id = scene.run(status="completed", conclusion="failure", branch="main")
        scene.do("rerun", run_id)
        found = gateway.run(run_id)
        assert isinstance(found, model.Run)
        assert found.attempt == 2
        assert found.triggering_actor is not None
        assert found.triggering_actor.id == ANN
        assert {job.attempt for job in gateway.jobs(run_id).items} <= {2}

    def test_G22_cancelling_a_finished_run_is_told_apart(self, scene: Scene) -> None:
        gateway = scene.connect()
        over = scene.run(status="completed", conclusion="success", branch="main")
        assert gateway.cancel_run(over) == "already-finished"
        assert gateway.cancel_run(over, force=True) == "already-finished"
        going = scene.run(status="queued", branch="main")
        assert gateway.cancel_run(going) == "accepted"

    def test_G23_cancelling_what_is_not_there_is_refused(self, scene: Scene) -> None:
        with pytest.raises(errors.RefusedWriteError):
            scene.connect().cancel_run(987654)

    def test_G24_jobs_tell_name_and_end(self, scene: Scene) -> None:
        gateway = scene.connect()
        run_id = scene.run(status="completed", conclusion="success", branch="main")
        found = gateway.jobs(run_id)
        assert found.complete
        assert [(job.run_id, job.status, job.conclusion) for job in found.items] == [(run_id, "completed", "success")]

    def test_G25_pull_requests_of_a_commit(self, scene: Scene) -> None:
        gateway = scene.connect()
        made = opened(scene, gateway)
        assert [one.number for one in gateway.pulls_of_commit(made.head_oid).items] == [made.number]

    def test_G26_where_a_branch_left_main(self, scene: Scene) -> None:
        gateway = scene.connect()
        made = opened(scene, gateway)
        base = gateway.merge_base("main", made.head_oid)
        assert isinstance(base, str)
        assert base != made.head_oid
        assert isinstance(gateway.merge_base("main", "1" * 40), model.Missing)

    def test_G27_writes_are_remembered_and_reads_are_not(self, scene: Scene) -> None:
        gateway = scene.connect()
        gateway.account()
        assert list(gateway.writes) == []
        number = opened(scene, gateway).number
        gateway.comment(number, "x")
        assert len(gateway.writes) == 2
        assert gateway.requests["GET /user"] == 1
        assert gateway.requests["POST /repos/{owner}/{repo}/issues/{issue_number}/comments"] == 1

    def test_G28_ninety_heads_are_three_requests(self, scene: Scene) -> None:
        gateway = scene.connect()
        before = sum(gateway.requests.values())
        assert len(gateway.pulls_of_heads([f"b{number}" for number in range(90)])) == 90
        assert sum(gateway.requests.values()) == before + 3

    def test_G29_a_closed_pull_request_is_still_its_heads(self, scene: Scene) -> None:
        gateway = scene.connect()
        first = opened(scene, gateway)
        gateway.close_pull(first.number)
        second = opened(scene, gateway)
        numbers = {one.pull.number for one in gateway.pulls_of_heads([HEAD])[HEAD].items}
        assert numbers == {first.number, second.number}
        assert [one.number for one in gateway.open_pulls().items] == [second.number]

    def test_G30_the_rate_limit_is_told(self, scene: Scene) -> None:
        gateway = scene.connect()
        gateway.account()
        assert gateway.rate_limit.remaining is not None

    def test_G31_asking_for_a_right_does_nothing(self, scene: Scene) -> None:
        gateway = scene.connect()
        runs = gateway.runs().items
        gateway.check_right("pulls:write")
        gateway.check_right("actions:write", "work.yml")
        gateway.check_right("actions:write", "no-such.yml")
        assert (gateway.open_pulls().items, gateway.runs().items) == ((), runs)
        assert list(gateway.writes) == []

    def test_G32_who_may_write_is_known_by_name_and_id(self, scene: Scene) -> None:
        gateway = scene.connect()
        assert gateway.may_write(model.Account(id=ANN, login="ann"))
        assert not gateway.may_write(model.Account(id=5, login="ann")), "the name is another account's now"
        assert not gateway.may_write(model.Account(id=987654, login="nobody-here"))

    def test_G33_a_variable_that_is_not_set_is_missing(self, scene: Scene) -> None:
        assert isinstance(scene.connect().variable("KLAUD_PAUSED"), model.Missing)
