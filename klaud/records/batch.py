"""A client for message batches of either provider's shape: create, wait, cancel, and read the results as a stream.

Reads are tried again as ``acquire`` says; creating and cancelling are sent once, and an unclear answer is
``UnclearWriteError``. A status that is about another batch is refused.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from klaud import errors as tree
from klaud.records import acquire, codec, errors, framer, model, response, stream, values
from klaud.records.limits import Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType
    from typing import NoReturn, Self

    import requests

    from klaud.clock import Clock
    from klaud.records import call as calls

FIRST_POLL = 2.0
"""Seconds before a batch is asked about again; a small batch ends within a minute or so."""

LONGEST_POLL = 60.0
"""Seconds between two polls in the end: a batch may take hours, and nobody waits for the second."""

POLL_GROWTH = 1.5


class BatchClient:
    """One account at one provider. Use it as a context manager, or call ``close``: it owns its connections."""

    def __init__(
        self,
        provider: model.Provider,
        *,
        clock: Clock,
        limits: Limits | None = None,
        policy: acquire.Policy | None = None,
        session: requests.Session | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """``session``: the caller's, who then closes it."""
        self._provider = provider
        self._clock = clock
        self._limits = limits or Limits()
        self._policy = policy or acquire.Policy()
        self._session = session or acquire.new_session()
        self._owned = session is None
        self._chance = chance

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close its own connections."""
        self.close()

    def close(self) -> None:
        """Close its own connections."""
        if self._owned:
            self._session.close()

    def create(self, asks: Sequence[model.Ask]) -> model.Batch:
        """Create a batch. UnclearWriteError: it may exist all the same; nothing here asks twice."""
        said = self._create(asks)
        del asks
        return self._described(said, None) if isinstance(said, dict) else _raise(said)

    def status(self, batch_id: str, *, deadline: float | None = None) -> model.Batch:
        """Return the batch as it is now."""
        return self._described(self._control(self._provider.status(_checked(batch_id)), deadline), batch_id)

    def cancel(self, batch_id: str) -> model.Batch:
        """Ask the provider to end the batch; the answer is its state, which is seldom terminal yet."""
        return self._described(self._control(self._provider.cancel(_checked(batch_id))), batch_id)

    def wait(self, batch_id: str, seconds: float) -> model.Batch:
        """Return the batch as soon as it is terminal, or as it is after ``seconds``; polls ever more slowly.

        A poll that fails for the time being is followed by the next; the last one's failure is raised.
        """
        end = self._clock.monotonic() + seconds
        pause = FIRST_POLL
        while True:
            fault = None
            found = None
            try:
                found = self.status(batch_id)
            except errors.StreamError as error:
                if error.exit_status != tree.RetryLaterError.exit_status:
                    raise
                fault = error.again()
            left = end - self._clock.monotonic()
            if found is not None and (found.terminal or left <= 0):
                return found
            if fault is not None and left <= 0:
                raise fault
            self._clock.sleep(min(pause, left))
            pause = min(pause * POLL_GROWTH, LONGEST_POLL)

    def open_batch_records(
        self,
        batch_id: str,
        *,
        limits: Limits | None = None,
        deadline: float | None = None,
        resume: model.Checkpoint | None = None,
        checkpoints: bool = False,
        invalid: framer.Oversize = "fail",
    ) -> stream.BatchRecords:
        """Return the batch's records, as a context manager to be entered at once and iterated inside.

        ``invalid="skip"``: a line that is no record is left out and counted (one that is too long always fails).
        ``deadline``: of all of it, on ``clock.monotonic``'s scale. ``batch-not-complete`` when it is not terminal,
        ``batch-no-file`` when it ended without a file, ``checkpoint-mismatch`` when ``resume`` is of other bytes.
        """
        limits = limits or self._limits
        batch = self.status(batch_id, deadline=deadline)
        if not batch.terminal:
            raise errors.StreamError(
                f"batch {batch.id} has not ended: {batch.status}",
                code="batch-not-complete",
                details={"batch_id": batch.id, "batch_status": batch.status},
            )
        if not batch.files:
            raise errors.StreamError(
                f"batch {batch.id} ended ({batch.status}) without a result or error file",
                code="batch-no-file",
                details={"batch_id": batch.id, "batch_status": batch.status},
            )
        if resume is not None:
            _check_resume(resume, batch)

        def open_file(file: model.BatchFile) -> response.Response:
            return response.Response(
                self._session,
                self._provider.file(batch, file),
                self._clock,
                limits,
                self._policy,
                deadline=deadline,
                file_kind=file.kind,
                chance=self._chance,
            )

        return stream.BatchRecords(batch, open_file, limits, resume=resume, checkpoints=checkpoints, invalid=invalid)

    def iter_batch_records(
        self, batch_id: str, *, limits: Limits | None = None, deadline: float | None = None
    ) -> Iterator[model.BatchRecord]:
        """Yield the batch's records; everything closes at the end, at an error, or when the generator is closed.

        A bare ``break`` leaves it open until the generator is collected: prefer ``open_batch_records``.
        """
        with self.open_batch_records(batch_id, limits=limits, deadline=deadline) as records:
            yield from records

    def download(
        self, batch_id: str, *, limits: Limits | None = None, deadline: float | None = None
    ) -> list[model.BatchRecord]:
        """Return all records at once, for small batches: all of it is in memory, and nothing of it when any part fails."""
        with self.open_batch_records(batch_id, limits=limits, deadline=deadline) as records:
            return list(records)

    def _create(self, asks: Sequence[model.Ask]) -> dict[str, Any] | tree.KlaudError:
        making = self._provider.creating(asks)
        try:
            call = next(making)
            while True:
                call = making.send(self._control(call))
        except StopIteration as made:
            return dict(made.value)
        except errors.StreamError as error:
            return error.again()
        except tree.UnclearWriteError as error:
            return tree.UnclearWriteError(str(error))

    def _control(self, call: calls.Call, deadline: float | None = None) -> dict[str, Any]:
        """Make one small call and return the object that it answers."""
        writing = call.method != "GET"
        opened = response.Response(
            self._session, call, self._clock, self._limits, self._policy,
            deadline=deadline, limit_bytes=self._limits.control_bytes, chance=self._chance,
        )  # fmt: skip
        del call
        fault: tree.KlaudError | None = None
        said: Any = None
        try:
            with opened:
                said = _small(opened, self._limits)
        except errors.StreamError as error:
            late = writing and opened.state is response.State.FAILED and error.code in {"body-failed", "read-timeout"}
            fault = tree.UnclearWriteError("the write's answer broke off") if late else error.again()
        if isinstance(said, errors.StreamError):
            fault = said
        if fault is not None:
            del said
            raise fault
        return dict(said)

    def _described(self, said: dict[str, Any], batch_id: str | None) -> model.Batch:
        batch = self._provider.batch(said)
        said.clear()  # also for the caller's frame: an error must not show it
        if batch is None:
            raise errors.StreamError("the answer does not describe a batch", code="response-invalid")
        if batch_id is not None and batch.id != batch_id:
            raise errors.StreamError("the answer is about another batch", code="batch-mismatch")
        return batch


def _small(opened: response.Response, limits: Limits) -> dict[str, Any] | errors.StreamError:
    """Read a control response whole and decode it, or return what is wrong with it."""
    limit = limits.control_bytes
    raw = bytearray()
    try:
        while len(raw) <= limit and (part := opened.read(limits.chunk_bytes)):
            raw += part
            del part
    except BaseException:
        raw.clear()  # an error that passes through this frame must not show what was read
        raise
    if len(raw) > limit:
        return errors.StreamError(
            f"the answer is larger than the limit of {limit} bytes",
            code="response-too-large",
            details={"limit_bytes": limit, "bytes_read": limit},
        )
    value = codec.decode(bytes(raw))
    if isinstance(value, codec.Refused):
        return errors.StreamError(
            f"the answer is not usable: {codec.MEANING[value]}",
            code="response-invalid",
            details={"error_type": str(value)},
        )
    return value


def _raise(fault: tree.KlaudError) -> NoReturn:
    raise fault


def _checked(batch_id: object) -> str:
    found = values.identifier(batch_id)
    if found is None:
        raise errors.StreamError("a batch's id is 1 to 128 letters, digits, - and _", code="invalid-argument")
    return found


def _check_resume(resume: model.Checkpoint, batch: model.Batch) -> None:
    if resume.batch_id != batch.id:
        raise errors.StreamError("the checkpoint is of another batch", code="checkpoint-mismatch")
    if not any((file.kind, file.id) == (resume.file_kind, resume.file_id) for file in batch.files):
        raise errors.StreamError("the checkpoint is of another file", code="checkpoint-mismatch")
