"""Review by message batch: one request for each question, read as a stream, resumable after a crash at any point.

Order: the state says what is about to be asked; the batch is created; its id is kept; it is waited for; its records are
read, each answer made durable before the checkpoint moves past it. A run that finds the state of the same questions goes
on where the last one stopped, and asks nothing twice. A crash between the creation and its answer loses that batch: it
costs its money once, and no decision. A batch that has not ended in time is left to the next run.

A line that is no record, an answer that is no decision, a request that failed: each costs one candidate.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from klaud import errors
from klaud.records import anthropic, batch, checkpoint, openai
from klaud.records import errors as stream_errors
from klaud.records import model as records
from klaud.review import answers, journal, model

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator

    from klaud.clock import Clock

CHECKPOINT_EVERY = 20
"""Records between two checkpoints: what a crash delivers again, against three writes to the disk."""

_SHAPES: Final[dict[str, Callable[[str, str], records.Provider]]] = {
    "anthropic": anthropic.Shape,
    "openai": openai.Shape,
}

_LOG = logging.getLogger(__name__)


@contextlib.contextmanager
def opened(
    policy: model.Policy, *, key: str, directory: str | os.PathLike[str], clock: Clock
) -> Iterator[BatchReviewer]:
    """Yield the Reviewer of mode ``batch`` for these settings, and close its connections afterwards.

    ``key`` is the provider's, in memory only; ``directory`` where the state of the batch lies between runs.
    """
    provider = _SHAPES[policy.provider](policy.base_url, key)
    with batch.BatchClient(provider, clock=clock) as client:
        yield BatchReviewer(client, provider, policy, directory)


class BatchReviewer:
    """A Reviewer that asks one message batch; its state lies in ``directory``, which later runs find again."""

    def __init__(
        self,
        client: batch.BatchClient,
        provider: records.Provider,
        policy: model.Policy,
        directory: str | os.PathLike[str],
    ) -> None:
        """``client`` is the caller's, who closes it; ``provider`` the same that the client was made with."""
        self._client = client
        self._provider = provider
        self._policy = policy
        self._directory = Path(directory)
        self.batch_id = ""
        self.delivered = 0
        """Records that this run took from the stream; a resumed run takes only what was missing."""
        self.strays = 0
        """Records about nothing that was asked."""

    def ask(self, questions: tuple[model.Question, ...]) -> dict[str, model.Answered | model.Unanswered]:
        """Ask, wait, read. What a failing stream had already answered counts; the rest is ``reviewer-failed``."""
        self._directory.mkdir(parents=True, exist_ok=True)
        store = checkpoint.FileStore(self._directory)
        self.batch_id = self._batch_for(questions)
        asked = {question.candidate for question in questions}
        with journal.Answers(self._directory, self.batch_id) as known:
            missing: model.Unanswered = model.Unanswered(reason="decision-missing")
            if not asked <= known.by_candidate.keys():
                try:
                    self._read(store, known, asked)
                except errors.KlaudError as error:
                    if not known.by_candidate:
                        raise
                    _LOG.warning("the batch could not be read to its end: %s", error)
                    missing = model.Unanswered(reason="reviewer-failed")
            return {candidate: known.by_candidate.get(candidate, missing) for candidate in sorted(asked)}

    def _batch_for(self, questions: tuple[model.Question, ...]) -> str:
        """Return the batch of exactly these questions, created now unless an earlier run has done so."""
        digest = _digest(questions, self._policy)
        state = journal.load(self._directory)
        if state is not None and state.digest == digest and state.batch_id:
            return state.batch_id
        if state is not None and state.batch_id:
            self._give_up(state.batch_id)
        journal.save(self._directory, journal.State(digest=digest))
        made = self._client.create([self._ask(question) for question in questions])
        journal.save(self._directory, journal.State(digest=digest, batch_id=made.id))
        return made.id

    def _give_up(self, batch_id: str) -> None:
        """End the batch of an earlier run whose questions are no longer these; nothing depends on it."""
        try:
            if not self._client.status(batch_id).terminal:
                self._client.cancel(batch_id)
        except errors.KlaudError as error:
            _LOG.info("the batch of an earlier review could not be ended: %s", error)

    def _read(self, store: checkpoint.FileStore, known: journal.Answers, asked: set[str]) -> None:
        found = self._client.wait(self.batch_id, self._policy.batch_seconds)
        if not found.terminal:
            raise stream_errors.StreamError(
                f"batch {found.id} has not ended after {self._policy.batch_seconds} s",
                code="batch-not-complete",
                details={"batch_id": found.id, "batch_status": found.status},
            )
        at = store.load(found.id)
        with self._client.open_batch_records(found.id, resume=at, checkpoints=True, invalid="skip") as stream:
            for record in stream:
                self._take(record, known, asked)
                if stream.delivered % CHECKPOINT_EVERY == 0:
                    at = _advance(store, known, at, stream.checkpoint())
            if stream.delivered % CHECKPOINT_EVERY:
                _advance(store, known, at, stream.checkpoint())

    def _take(self, record: records.BatchRecord, known: journal.Answers, asked: set[str]) -> None:
        self.delivered += 1
        said = self._provider.answer(record.record)
        if said is None or said.custom_id not in asked:
            self.strays += 1
        else:
            known.add(said.custom_id, answers.read(said.text))

    def _ask(self, question: model.Question) -> records.Ask:
        return records.Ask(
            custom_id=question.candidate,
            model=self._policy.model,
            system=question.system,
            prompt=question.prompt,
            max_tokens=self._policy.answer_tokens,
        )


def _advance(
    store: checkpoint.FileStore, known: journal.Answers, old: records.Checkpoint | None, new: records.Checkpoint
) -> records.Checkpoint:
    """Make the answers durable, then move the checkpoint past them."""
    known.sync()
    if isinstance(store.advance(old, new), checkpoint.Superseded):
        raise stream_errors.StreamError("another review is reading the same batch", code="checkpoint-conflict")
    return new


def _digest(questions: tuple[model.Question, ...], policy: model.Policy) -> str:
    """Return what the questions are known by: the same questions to the same model are the same batch."""
    asked = (policy.provider, policy.base_url, policy.model, policy.answer_tokens, questions)
    return hashlib.sha256(msgspec.json.encode(asked)).hexdigest()
