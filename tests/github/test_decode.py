# ruff: noqa: N802 - tests carry the ids of the oddities they show
"""Decoders: tolerant of what klaud does not know, strict on what it needs, never raising anything but their own error."""

from __future__ import annotations

import base64
import contextlib
import datetime
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klaud.github import decode, decode_graphql, model

if TYPE_CHECKING:
    from collections.abc import Callable

AT = "2026-11-30T12:00:00Z"
WHEN = datetime.datetime(2026, 11, 30, 12, tzinfo=datetime.UTC)
USER = {"id": 7, "login": "ann", "type": "User", "site_admin": False}
PULL: dict[str, Any] = {
    "number": 3, "node_id": "PR_3", "state": "open", "title": "T", "body": None, "user": USER, "draft": True,
    "head": {"ref": "klaud/auto-x", "sha": "a" * 40, "repo": {"full_name": "acme/bench", "id": 1}},
    "base": {"ref": "main", "sha": "b" * 40}, "labels": [{"name": "needs / review 🚑", "color": "x"}],
    "created_at": AT, "updated_at": AT, "closed_at": None, "merged_at": None, "future_field": {"x": [1]},
}  # fmt: skip
RUN: dict[str, Any] = {
    "id": 9, "run_attempt": 2, "status": "in_progress", "conclusion": None, "event": "push", "head_branch": None,
    "head_sha": "a" * 40, "path": ".github/workflows/w.yml", "display_title": "x", "actor": None,
    "triggering_actor": USER, "created_at": AT, "updated_at": AT, "workflow_id": 5, "name": None,
}  # fmt: skip
JOB = {
    "id": 1,
    "run_id": 9,
    "run_attempt": 2,
    "name": "a",
    "status": "queued",
    "conclusion": None,
    "started_at": AT,
    "completed_at": None,
}
ARTIFACT = {"id": 1, "name": "r", "size_in_bytes": 5, "expired": False, "digest": None}


def pull_page(*rows: object) -> str:
    return json.dumps(list(rows))


def test_a_pull_request_is_read() -> None:
    found = decode.pull(json.dumps(PULL))
    assert (found.number, found.body, found.merged, found.mergeable, found.commit_count) == (
        3,
        "",
        False,
        "UNKNOWN",
        None,
    )
    assert found.labels == ("needs / review 🚑",)
    assert found.author == model.Account(id=7, login="ann")
    assert found.head_repository == "acme/bench"
    merged = decode.pull(json.dumps({**PULL, "merged_at": AT, "state": "closed", "mergeable": False, "commits": 4}))
    assert (merged.merged, merged.open, merged.mergeable, merged.commit_count) == (True, False, "CONFLICTING", 4)


def test_L39_a_ghost_is_nobody_and_never_somebody() -> None:
    assert decode.pull(json.dumps({**PULL, "user": None})).author is None
    run = decode.run(json.dumps(RUN))
    assert run.actor is None
    assert run.triggering_actor == model.Account(id=7, login="ann")


def test_L41_a_deleted_fork_has_no_repository() -> None:
    assert (
        decode.pull(
            json.dumps({**PULL, "head": {"ref": "klaud/auto-x", "sha": "a" * 40, "repo": None}})
        ).head_repository
        is None
    )


@pytest.mark.parametrize("word", ["requested", "waiting", "pending", "never_heard_of", None])
def test_L62_a_status_word_is_kept_as_it_came(word: str | None) -> None:
    assert decode.run(json.dumps({**RUN, "status": word})).status == (word or "")


NEEDED: list[tuple[Callable[[str], object], dict[str, Any], str]] = [
    *((decode.pull, PULL, name) for name in ("number", "node_id", "state", "head", "base", "labels", "created_at")),
    *((decode.run, RUN, name) for name in ("id", "head_sha", "path", "event", "created_at")),
    (decode.account, USER, "id"),
    (decode.numbered, {"id": 1}, "id"),
    (decode.repository, {"id": 1, "full_name": "a/b", "default_branch": "main"}, "full_name"),
    (decode.workflow, {"id": 1, "name": "w", "path": "p", "state": "active"}, "state"),
    (decode.merge_base, {"merge_base_commit": {"sha": "a"}}, "merge_base_commit"),
    (decode.contents, {"type": "file"}, "type"),
    (decode.blob, {"content": "", "encoding": "base64"}, "encoding"),
]


@pytest.mark.parametrize(("decoder", "whole", "name"), NEEDED, ids=[f"{d.__name__}-{n}" for d, _, n in NEEDED])
def test_a_needed_field_may_not_be_missing_or_of_another_type(
    decoder: Callable[[str], object], whole: dict[str, Any], name: str
) -> None:
    decoder(json.dumps(whole))
    with pytest.raises(decode.UndecodableError):
        decoder(json.dumps({key: value for key, value in whole.items() if key != name}))
    with pytest.raises(decode.UndecodableError):
        decoder(json.dumps({**whole, name: {"odd": 1} if not isinstance(whole[name], dict) else 7}))


NAMES = st.sampled_from(["id", "data", "errors", "path", "workflow_runs", "total_count", "type", "content"])
JSON = st.recursive(
    st.none() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
)
DECODERS = [
    decode.account, decode.repository, decode.pull, decode.run, decode.workflow, decode.pulls, decode.runs, decode.jobs,
    decode.artifacts, decode.files, decode.events, decode.contents, decode.blob, decode.numbered, decode.labels,
    decode.merge_base, decode.dispatched, lambda body: decode_graphql.answer(body, "repository"),
]  # fmt: skip


@pytest.mark.parametrize("decoder", DECODERS)
@given(body=st.one_of(st.text(max_size=60), JSON.map(json.dumps)))
@settings(max_examples=60, deadline=None)
def test_no_body_raises_anything_else(decoder: Callable[[str], object], body: str) -> None:
    with contextlib.suppress(decode.UndecodableError):
        decoder(body)


def test_a_null_row_is_dropped_and_counted() -> None:
    page = decode.pulls(pull_page(PULL, None, {**PULL, "number": 4}))
    assert [pull.number for pull in page.rows] == [3, 4]
    assert (page.dropped, page.total) == (1, None)
    runs = decode.runs(json.dumps({"total_count": 4000, "workflow_runs": [RUN, None]}))
    assert ([run.id for run in runs.rows], runs.dropped, runs.total) == ([9], 1, 4000)


def test_rows_of_the_other_listings() -> None:
    jobs = decode.jobs(json.dumps({"total_count": 1, "jobs": [JOB]}))
    assert (jobs.rows[0].attempt, jobs.rows[0].conclusion, jobs.total) == (2, None, 1)
    artifacts = decode.artifacts(json.dumps({"total_count": 1, "artifacts": [ARTIFACT]}))
    assert (artifacts.rows[0].size, artifacts.rows[0].digest) == (5, "")
    files = decode.files(json.dumps([{"filename": "b", "status": "renamed", "previous_filename": "a"}]))
    assert files.rows == (model.ChangedFile(path="b", status="renamed", previous="a"),)
    with pytest.raises(decode.UndecodableError):
        decode.jobs(json.dumps({"total_count": 0}))


def test_timeline_events_of_every_shape() -> None:
    rows = [
        {"event": "labeled", "id": 1, "node_id": "E1", "actor": USER, "created_at": AT, "label": {"name": "x"}},
        {"event": "committed", "sha": "a" * 40, "node_id": "C1", "committer": {"date": AT, "name": "n"}},
        {"event": "reviewed", "id": 2, "user": USER, "submitted_at": AT},
        {"event": "commented", "id": 3, "actor": None, "user": None, "created_at": AT},
        {"event": "line-commented", "comments": [{"user": USER, "created_at": AT}]},
        {"event": "mystery"},
        None,
    ]
    page = decode.events(json.dumps(rows))
    assert [(event.kind, event.actor and event.actor.id, event.detail, event.id) for event in page.rows] == [
        ("labeled", 7, "x", "E1"), ("committed", None, "a" * 40, "C1"), ("reviewed", 7, "", "2"),
        ("commented", None, "", "3"), ("line-commented", 7, "", ""),
    ]  # fmt: skip
    assert page.dropped == 2


def test_contents_of_every_kind() -> None:
    file = {"type": "file", "size": 2, "sha": "s", "encoding": "base64", "content": base64.b64encode(b"hi").decode()}
    assert decode.contents(json.dumps(file)) == decode.Contents("file", 2, "s", b"hi")
    assert decode.contents(json.dumps({**file, "encoding": "none", "content": ""})).data is None
    assert decode.contents("[]").kind == "dir"
    assert decode.contents(json.dumps({"type": "submodule"})).kind == "submodule"
    assert decode.blob(json.dumps({"encoding": "utf-8", "content": "ü"})) == "ü".encode()
    with pytest.raises(decode.UndecodableError):
        decode.blob(json.dumps({"encoding": "base64", "content": "!"}))


def test_L68_a_dispatch_answers_with_a_run_or_without() -> None:
    assert decode.dispatched("") == model.Dispatched(run_id=None)
    assert decode.dispatched('{"workflow_run_id": 5}') == model.Dispatched(run_id=5)
    assert decode.dispatched("{}") == model.Dispatched(run_id=None)


# -- GraphQL


ACTOR = {"__typename": "Bot", "login": "klaud-bot", "databaseId": 90001}


REVIEWER = {"__typename": "User", "login": "x", "databaseId": 7}


def commit_node(oid: str = "a" * 40) -> dict[str, Any]:
    who = {"email": "e@x", "user": {"databaseId": 90001, "login": "klaud-bot"}}
    return {"commit": {"oid": oid, "message": "m", "author": who, "committer": {"email": None, "user": None}}}


def node(**changes: Any) -> dict[str, Any]:
    return {
        "id": "PR_3", "number": 3, "state": "OPEN", "isDraft": True, "title": "T", "body": "B", "author": ACTOR,
        "editor": None, "lastEditedAt": None, "headRefName": "klaud/auto-x", "headRefOid": "a" * 40,
        "headRepository": {"nameWithOwner": "acme/bench"}, "baseRefName": "main", "mergeable": "MERGEABLE",
        "createdAt": AT, "updatedAt": AT, "closedAt": None, "mergedAt": None,
        "labels": {"totalCount": 1, "nodes": [{"name": "x"}]},
        "commits": {"totalCount": 1, "pageInfo": {"hasNextPage": False, "endCursor": None}, "nodes": [commit_node()]},
        "timelineItems": {"pageInfo": {"hasNextPage": False, "endCursor": "c"}, "nodes": [
            {"__typename": "LabeledEvent", "id": "L", "actor": ACTOR, "createdAt": AT, "label": {"name": "x"}},
        ]}, **changes,
    }  # fmt: skip


def heads(
    *nodes: object, total: int | None = None, errors: list[Any] | None = None, alias: str = "h0"
) -> decode_graphql.Answer:
    part = {"totalCount": len(nodes) if total is None else total, "nodes": list(nodes)}
    return decode_graphql.answer(
        json.dumps({"data": {"repository": {alias: part}}, "errors": errors or []}), "repository"
    )


def test_a_head_is_read_with_commits_and_timeline() -> None:
    (one,), trouble = decode_graphql.pulls_of_head(heads(node()), "h0")
    assert trouble is None
    assert one.after is None
    pull = one.detail.pull
    assert (pull.state, pull.draft, pull.commit_count, pull.author) == (
        "open",
        True,
        1,
        model.Account(id=90001, login="klaud-bot", type="Bot"),
    )
    assert one.detail.commits.complete
    assert one.detail.commits.items[0].author == model.Account(id=90001, login="klaud-bot")
    assert one.detail.commits.items[0].committer is None
    assert one.detail.timeline.items == (
        model.Event(
            kind="labeled", actor=model.Account(id=90001, login="klaud-bot", type="Bot"), at=WHEN, detail="x", id="L"
        ),
    )
    merged = decode_graphql.pulls_of_head(heads(node(state="MERGED", mergedAt=AT)), "h0")[0][0].detail.pull
    assert (merged.state, merged.merged) == ("closed", True)


def test_L29_fewer_commits_than_the_counter_is_incomplete() -> None:
    page = {"totalCount": 300, "pageInfo": {"hasNextPage": True, "endCursor": "c"}, "nodes": [commit_node(), None]}
    (one,), _ = decode_graphql.pulls_of_head(heads(node(commits=page)), "h0")
    assert not one.detail.commits.complete
    assert one.detail.pull.commit_count == 300


def test_more_pull_requests_than_served_is_trouble() -> None:
    rows, trouble = decode_graphql.pulls_of_head(heads(node(), total=2), "h0")
    assert len(rows) == 1
    assert trouble is not None


def test_errors_are_charged_to_their_own_alias() -> None:
    body = {
        "data": {
            "repository": {
                "h0": None,
                "h1": {"totalCount": 0, "nodes": []},
                "h2": {"totalCount": 2, "nodes": [None, {"number": 3}]},
            }
        },
        "errors": [{"type": "INTERNAL", "message": "boom", "path": ["repository", "h0"]}],
    }
    found = decode_graphql.answer(json.dumps(body), "repository")
    assert decode_graphql.pulls_of_head(found, "h0") == ((), decode_graphql.Unread("INTERNAL boom"))
    assert decode_graphql.pulls_of_head(found, "h1") == ((), None)
    rows, trouble = decode_graphql.pulls_of_head(found, "h2")
    assert rows == ()
    assert trouble is not None
    assert decode_graphql.pulls_of_head(found, "h9")[1] is not None, "an alias that was left out is not an empty one"


def test_an_error_below_an_alias_is_trouble_even_where_rows_came() -> None:
    told = [{"message": "x", "path": ["repository", "h0", "nodes", 0, "timelineItems"]}]
    rows, trouble = decode_graphql.pulls_of_head(heads(node(timelineItems=None), node(), errors=told), "h0")
    assert len(rows) == 1
    assert trouble is not None
    assert not trouble.missing
    below = [{"message": "x", "path": ["repository", "n0", "timelineItems"]}]
    body = json.dumps({"data": {"repository": {"n0": node()}}, "errors": below})
    assert isinstance(
        decode_graphql.pull_of_number(decode_graphql.answer(body, "repository"), "n0"), decode_graphql.Unread
    )


def test_a_missing_number_is_missing_only_where_the_host_says_so() -> None:
    def of(errors: list[Any]) -> object:
        body = {"data": {"repository": {"n0": None}}, "errors": errors}
        return decode_graphql.pull_of_number(decode_graphql.answer(json.dumps(body), "repository"), "n0")

    gone = of([{"type": "NOT_FOUND", "message": "no", "path": ["repository", "n0"]}])
    assert isinstance(gone, decode_graphql.Unread)
    assert gone.missing
    for other in ([], [{"message": "boom"}], [{"type": "NOT_FOUND", "message": "no", "path": ["repository"]}]):
        found = of(other)
        assert isinstance(found, decode_graphql.Unread)
        assert not found.missing


@pytest.mark.parametrize(
    ("kind", "name"),
    [("PullRequestCommit", "committed"), ("IssueComment", "commented"), ("PullRequestReview", "reviewed"),
     ("LabeledEvent", "labeled"), ("ReadyForReviewEvent", "ready_for_review"), ("ConvertToDraftEvent", "convert_to_draft"),
     ("HeadRefForcePushedEvent", "head_ref_force_pushed"), ("RenamedTitleEvent", "renamed")],
)  # fmt: skip
def test_event_names_are_those_of_REST(kind: str, name: str) -> None:
    assert decode_graphql.event_name(kind) == name


def test_a_timeline_of_every_shape() -> None:
    items = {
        "pageInfo": {"hasNextPage": True, "endCursor": "next"},
        "nodes": [
            {"__typename": "PullRequestCommit", "id": "1", "commit": {"oid": "b" * 40, "committedDate": AT}},
            {"__typename": "IssueComment", "id": "2", "author": None, "createdAt": AT},
            {"__typename": "PullRequestReview", "id": "3", "author": REVIEWER, "createdAt": AT, "submittedAt": None},
            {"__typename": "MentionedEvent", "id": "4"},
            None,
        ],
    }  # fmt: skip
    (one,), _ = decode_graphql.pulls_of_head(heads(node(timelineItems=items)), "h0")
    assert [(event.kind, event.detail, event.actor and event.actor.id) for event in one.detail.timeline.items] == [
        ("committed", "b" * 40, None), ("commented", "", None), ("reviewed", "", 7),
    ]  # fmt: skip
    assert not one.detail.timeline.complete
    assert one.after == "next"


def test_the_rest_of_the_envelope() -> None:
    page = decode_graphql.answer(json.dumps({"data": {"node": {"timelineItems": node()["timelineItems"]}}}), "")
    found = decode_graphql.timeline_page(page)
    assert isinstance(found, decode_graphql.TimelinePage)
    assert len(found.events) == 1
    assert isinstance(
        decode_graphql.timeline_page(decode_graphql.answer('{"data":{"node":null}}', "")), decode_graphql.Unread
    )
    assert decode_graphql.viewer(decode_graphql.answer(json.dumps({"data": {"viewer": ACTOR}}), "")) is not None
    assert decode_graphql.viewer(decode_graphql.answer('{"data":{"viewer":null}}', "")) is None
    assert (
        decode_graphql.identity(decode_graphql.answer('{"data":{"repository":{"id":"R"}}}', "repository"), "id") == "R"
    )


@pytest.mark.parametrize(("word", "found"), [("admin", 7), ("write", 7), ("read", None), ("none", None), ("new", None)])
def test_only_admin_and_write_may_push(word: str, found: int | None) -> None:
    assert decode.may_write(f'{{"permission": "{word}", "user": {{"id": 7, "login": "a"}}}}') == found
    assert decode.variable(f'{{"name": "X", "value": "{word}"}}') == word
