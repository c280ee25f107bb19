"""Delivery results of a producer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from contextvars import Context, copy_context
from functools import partial
from typing import Any, NamedTuple, Self, TypeVar

from tidelog.client.client_errors import forked_error, other_loop_error
from tidelog.errors import TidelogError
from tidelog.model import NO_EPOCH, NO_OFFSET, TopicPartition
from tidelog.rpc import forks

_Report = TypeVar("_Report")


class Appended(NamedTuple):
    """Position at which a leader appended a batch."""

    base_offset: int
    leader_epoch: int
    append_time_ms: int


Outcome = Appended | TidelogError


class Delivery(NamedTuple):
    """Position of one record.

    - `offset`: -1 with acks none, and if an earlier try was written at an offset that is no longer
      known.
    - `timestamp_ms`: the record's timestamp.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    leader_epoch: int


class BatchReport(NamedTuple):
    """Position of one batch (base_offset -1: as in `Delivery`), or the `error` for which its
    position is not known."""

    topic: str
    partition: int
    base_offset: int
    record_count: int
    leader_epoch: int
    append_time_ms: int
    error: TidelogError | None = None


class DeliveryFuture(asyncio.Future[_Report]):
    """Outcome of a record or batch, for any number of waiters.

    Each `await` waits independently: a cancelled one does not affect the others, and can be
    repeated. `cancel` does nothing and returns False, because sent records cannot be recalled.

    An outcome that is known can be read in any event loop, thread and process. Waiting for it, and
    `add_done_callback`, raise as the producer's calls in another event loop, thread or process,
    because the producer cannot wake the caller there."""

    # The process that made it: `forks.generation`.
    __slots__ = ("_generation",)
    _generation: int
    # `gather` and `wait_for` cancel a future together with the wait for it. With this attribute
    # asyncio does not treat the object as a future (`asyncio.isfuture`), and awaits it in a task,
    # which costs some microseconds. `asyncio.wait` creates no tasks: the cheap way to wait for
    # many.
    _asyncio_future_blocking = None  # type: ignore[assignment]

    @classmethod
    def new(cls, loop: asyncio.AbstractEventLoop) -> Self:
        """Takes half the time of a constructor in Python: `send` makes one for each record."""
        future = cls(loop=loop)
        future._generation = forks.generation
        return future

    def cancel(self, msg: Any | None = None) -> bool:  # noqa: ARG002
        return False

    def add_done_callback(
        self, fn: Callable[[Self], object], /, *, context: Context | None = None
    ) -> None:
        """Raises `TidelogError` where the callback would never be called; `await` and
        `asyncio.wait` use it."""
        if self._generation != forks.generation:
            raise forked_error("the producer of this delivery")
        if asyncio._get_running_loop() is not self.get_loop():
            raise other_loop_error("the producer of this delivery")
        # With None, asyncio would take the context of the task that sets the outcome.
        super().add_done_callback(fn, context=copy_context() if context is None else context)

    def __await__(self) -> Generator[Any, None, _Report]:
        if not self.done():
            waiter: asyncio.Future[None] = self.get_loop().create_future()
            wake = partial(_wake, waiter)
            self.add_done_callback(wake)
            try:
                yield from waiter
            except BaseException:
                self.remove_done_callback(wake)
                raise
        return self.result()

    __iter__ = __await__


def _wake(waiter: asyncio.Future[None], _: object) -> None:
    if not waiter.done():
        waiter.set_result(None)


class BatchDelivery:
    """The batches of one `send_many`.

    Awaiting it returns their reports, in order of creation, or raises the first error once all
    batches have an outcome. A cancelled wait changes nothing: it can be repeated, and the batches
    are still delivered. Raises as waiting for a `DeliveryFuture`."""

    def __init__(self, batches: Sequence[DeliveryFuture[BatchReport]]) -> None:
        self.batches = batches

    def __await__(self) -> Generator[object, None, list[BatchReport]]:
        return self._wait().__await__()

    async def _wait(self) -> list[BatchReport]:
        if unknown := [batch for batch in self.batches if not batch.done()]:
            # `gather` would cost a task for each batch.
            await asyncio.wait(unknown)
        for batch in self.batches:
            mark_seen(batch)
        return [batch.result() for batch in self.batches]


def settle(
    batch: DeliveryFuture[BatchReport] | None,
    records: Sequence[DeliveryFuture[Delivery]],
    timestamps_ms: Sequence[int],
    partition: TopicPartition,
    count: int,
    outcome: Outcome,
) -> BatchReport:
    """Informs the waiters of a batch: of the batch, or of each record if `records` is not empty.
    asyncio logs an error that is never retrieved."""
    topic, number = partition
    if isinstance(outcome, TidelogError):
        report = BatchReport(topic, number, NO_OFFSET, count, NO_EPOCH, -1, outcome)
        for record in records:
            if not record.done():
                record.set_exception(outcome)
        # The records' own waiters have been informed already.
        if batch is not None and not records:
            batch.set_exception(outcome)
        return report
    offset, leader_epoch, append_time_ms = outcome
    report = BatchReport(topic, number, offset, count, leader_epoch, append_time_ms)
    step = 0 if offset == NO_OFFSET else 1
    for position, record in enumerate(records):
        if not record.done():
            at = offset + step * position
            record.set_result(Delivery(topic, number, at, timestamps_ms[position], leader_epoch))
    if batch is not None and not batch.done():
        batch.set_result(report)
    return report


def mark_seen(future: asyncio.Future[Any]) -> None:
    """Marks an error as retrieved, because it is reported elsewhere; asyncio does not log it."""
    if future.done() and not future.cancelled():
        future.exception()
