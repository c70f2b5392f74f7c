"""A batch client on a loopback provider, and one ended batch whose results a test scripts and counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klaud.records import anthropic, batch, errors, model, openai, response
from tests.support import batches, loopback

if TYPE_CHECKING:
    from klaud.records.limits import Limits

RESULTS = "/v1/messages/batches/msgbatch_0/results"


def make_client(
    provider: batches.Provider, clock: loopback.FakeClock, limits: Limits | None = None, key: str = batches.KEY
) -> batch.BatchClient:
    shape = anthropic.Shape if provider.shape == "anthropic" else openai.Shape
    return batch.BatchClient(shape(provider.base_url, key), clock=clock, limits=limits, chance=lambda: 0.5)


def asks(count: int) -> list[model.Ask]:
    return [
        model.Ask(custom_id=f"c{index}", model="m", system="s", prompt=f"p{index}", max_tokens=9)
        for index in range(count)
    ]


class Reading:
    """One batch and what reading it costs."""

    def __init__(self, host: loopback.Loopback, clock: loopback.FakeClock) -> None:
        self.host, self.clock = host, clock
        self.provider = batches.Provider(host, "anthropic")
        self.client = make_client(self.provider, clock)
        self.provider.batches["msgbatch_0"] = []

    def serve(self, *replies: loopback.Reply) -> None:
        queue = list(replies)

        def handle(asked: loopback.Asked) -> loopback.Reply | None:
            if asked.path == RESULTS:
                return queue.pop(0) if len(queue) > 1 else queue[0]
            return self.provider.handle(asked)

        self.host.handler = handle

    def read(self, **options: Any) -> tuple[list[int], errors.StreamError | None, response.Response]:
        """Return the records' numbers, the error, and the owner of the response."""
        numbers: list[int] = []
        fault = None
        records = None
        try:
            with self.client.open_batch_records("msgbatch_0", **options) as records:
                numbers.extend(record.record["n"] for record in records)
        except errors.StreamError as error:
            fault = error
        assert fault is None or (fault.__cause__ is None and fault.__context__ is None)
        opened = records.response if records else None
        assert opened is not None or fault is not None
        return numbers, fault, opened  # type: ignore[return-value]  # None only with a fault at the opening


def lines(count: int) -> bytes:
    return b"".join(b'{"n": %d}\n' % index for index in range(count))
