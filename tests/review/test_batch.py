"""Review by message batch: bad answers cost one candidate each, and a killed review goes on where it stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from klaud import errors
from klaud.review import answers, codec, journal, model, session
from tests.support import batches, loopback, review_world

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(params=["anthropic", "openai"])
def provider(request: pytest.FixtureRequest) -> Iterator[batches.Provider]:
    with loopback.serving() as host:
        made = batches.Provider(host, request.param)
        made.says = review_world.says
        yield made


def check(result: model.ReviewResult, count: int = 200) -> None:
    """Every candidate has the decision that its own answer gives, in order."""
    assert [decision.candidate for decision in result.decisions] == [
        candidate.candidate for candidate in review_world.candidates(count)
    ]
    for index, decision in enumerate(result.decisions):
        assert (decision.verdict, decision.reason) == review_world.EXPECTED[index % 10], index
        assert "Answer proceed" not in decision.message
    assert sum(result.counts.values()) == count


def test_two_hundred_against_five_hundred(provider: batches.Provider, tmp_path: Path) -> None:
    result, delivered = review_world.review(provider.shape, provider.base_url, tmp_path)
    check(result)
    assert delivered == 160
    assert len(provider.batches) == 1
    asked = len(provider.host.asked)
    again, delivered = review_world.review(provider.shape, provider.base_url, tmp_path)
    assert (again, delivered) == (result, 0)
    assert len(provider.host.asked) == asked, "everything was known already"


def test_killed_half_way_and_resumed(provider: batches.Provider, tmp_path: Path) -> None:
    """SIGKILL with half of the answers on disk: one batch, one decision each, and no answer is asked for twice."""
    review_world.kill_half_way(provider, tmp_path)
    assert not (tmp_path / "review.json").exists()
    result, delivered = review_world.review(provider.shape, provider.base_url, tmp_path)
    check(result)
    failed = sum(decision.reason == "decision-missing" for decision in result.decisions)
    assert delivered == 80, "only what no checkpoint covered was delivered again"
    assert failed == 20
    assert len(provider.batches) == 1
    assert provider.host.gets(review_world.results_path(provider)) == 2
    assert codec.decode_result(codec.encode(result)) == result


def test_a_torn_journal_is_cut_and_goes_on(provider: batches.Provider, tmp_path: Path) -> None:
    """A crash in the middle of a write: the torn line is dropped, its record is delivered again."""
    whole, _ = review_world.review(provider.shape, provider.base_url, tmp_path)
    for path in tmp_path.glob("checkpoint-*.json"):
        path.unlink()
    (path,) = tmp_path.glob("answers-*.jsonl")
    path.write_bytes(path.read_bytes()[:-7])
    again, delivered = review_world.review(provider.shape, provider.base_url, tmp_path)
    assert (again, delivered) == (whole, 160)
    assert path.read_bytes().endswith(b"}\n")


def test_a_stream_that_breaks_costs_only_what_was_not_answered(provider: batches.Provider, tmp_path: Path) -> None:
    path, handle = review_world.results_path(provider), provider.handle

    def answer(asked: loopback.Asked) -> loopback.Reply | None:
        reply = handle(asked)
        if asked.path == path and reply is not None:
            return loopback.Reply(pieces=reply.body.splitlines(keepends=True)[:100], chunked=True, cut=True)
        return reply

    provider.host.handler = answer
    result, delivered = review_world.review(provider.shape, provider.base_url, tmp_path)
    assert delivered == 100
    asked = 160 if provider.shape == "anthropic" else 140
    unread = result.counts["reviewer-failed"]
    assert unread == 160 - 100
    assert asked
    provider.host.handler = handle
    result, delivered = review_world.review(provider.shape, provider.base_url, tmp_path)
    check(result)
    assert delivered == 60


def test_a_line_that_is_no_record_costs_one_candidate(provider: batches.Provider, tmp_path: Path) -> None:
    path, handle = review_world.results_path(provider), provider.handle

    def answer(asked: loopback.Asked) -> loopback.Reply | None:
        reply = handle(asked)
        if asked.path == path and reply is not None:
            lines = reply.body.splitlines(keepends=True)
            return loopback.Reply(b"".join([*lines[:7], b"{broken\n", *lines[8:]]))
        return reply

    provider.host.handler = answer
    result, _ = review_world.review(provider.shape, provider.base_url, tmp_path)
    wrong = [
        index
        for index, decision in enumerate(result.decisions)
        if (decision.verdict, decision.reason) != review_world.EXPECTED[index % 10]
    ]
    assert len(wrong) == 1
    assert result.decisions[wrong[0]].reason == "decision-missing"


def test_other_questions_are_another_batch(provider: batches.Provider, tmp_path: Path) -> None:
    provider.polls = 0
    review_world.review(provider.shape, provider.base_url, tmp_path, 200)
    result, _ = review_world.review(provider.shape, provider.base_url, tmp_path, 100)
    check(result, 100)
    assert len(provider.batches) == 2


def test_an_unclear_creation_makes_uncertain_and_is_tried_by_the_next_review(
    provider: batches.Provider, tmp_path: Path
) -> None:
    for path in ("/v1/messages/batches", "/v1/batches"):
        provider.override[path] = loopback.Reply(status=500)
    result, _ = review_world.review(provider.shape, provider.base_url, tmp_path)
    assert result.counts == {"edits-entry": 20, "no-overlap": 20, "reviewer-failed": 160}
    provider.override.clear()
    result, _ = review_world.review(provider.shape, provider.base_url, tmp_path)
    check(result)


def test_a_damaged_state_is_named(provider: batches.Provider, tmp_path: Path) -> None:
    for raw in (b"", b"{}", b'{"version": 2, "digest": "x"}', b'{"digest": "x", "batch_id": "../x"}', b"\xff"):
        (tmp_path / "review-batch.json").write_bytes(raw)
        with pytest.raises(errors.InputError, match=r"review-batch\.json is not a review's state"):
            journal.load(tmp_path)
    result, _ = review_world.review(provider.shape, provider.base_url, tmp_path)
    assert result.counts["reviewer-failed"] == 160


def test_two_answers_to_one_question_are_none(tmp_path: Path) -> None:
    first, second = model.Answered(value={"decision": "proceed"}), model.Answered(value={"decision": "duplicate"})
    with journal.Answers(tmp_path, "b") as known:
        known.add("c", first)
        known.add("c", first)
        assert known.by_candidate == {"c": first}
        known.add("c", second)
    with journal.Answers(tmp_path, "b") as known:
        assert known.by_candidate == {"c": model.Unanswered(reason="decision-malformed")}


def test_a_session_is_asked_one_question_after_the_other() -> None:
    """A question without an answer costs itself."""

    def ask(system: str, prompt: str) -> str:
        assert system
        if prompt == "bad":
            raise errors.RetryLaterError("no answer")
        return prompt

    questions = tuple(
        model.Question(candidate=name, system="s", prompt=text)
        for name, text in (("a", '{"decision": "proceed"}'), ("b", "bad"), ("c", "{"))
    )
    assert session.SessionReviewer(ask).ask(questions) == {
        "a": model.Answered(value={"decision": "proceed"}),
        "b": model.Unanswered(reason="reviewer-failed"),
        "c": model.Unanswered(reason="decision-malformed"),
    }


def test_answers_are_bounded() -> None:
    long = '"' + "x" * answers.ANSWER_CHARACTERS + '"'
    assert answers.read(long) == model.Unanswered(reason="decision-malformed")
    assert answers.read(long[:-3] + '"') == model.Answered(value=long[1:-3])
    assert answers.read("\ud800") == model.Unanswered(reason="decision-malformed")
