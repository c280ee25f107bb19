"""What a producer reports."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from tidelog.errors import TidelogError
from tidelog.model import NO_EPOCH, NO_OFFSET, TopicPartition

_Report = TypeVar("_Report")


class Appended(NamedTuple):
    """Where a leader put a batch."""

    base_offset: int
    leader_epoch: int
    append_time_ms: int


Outcome = Appended | TidelogError


class Delivery(NamedTuple):
    """Where one record is; offset -1 with acks none, and where an earlier try was written and it
    is no longer known where. The timestamp is the record's."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    leader_epoch: int


class BatchReport(NamedTuple):
    """Where one batch is (base_offset -1: as in `Delivery`), or, with `error`, why it is not
    known to be anywhere."""

    topic: str
    partition: int
    base_offset: int
    record_count: int
    leader_epoch: int
    append_time_ms: int
    error: TidelogError | None = None


class DeliveryFuture(asyncio.Future[_Report]):
    """What becomes of a record or batch, for any number of waits. Each `await` waits by itself:
    one that is cancelled changes nothing for the others, and can be repeated. `cancel` does
    nothing and returns False, because what was sent cannot be taken back."""

    __slots__ = ()
    # `gather` and `wait_for` cancel a future together with the wait for it. With this, asyncio does
    # not take it for one (`asyncio.isfuture`), and awaits it in a task of its own, at some
    # microseconds each. `asyncio.wait` makes no tasks: the cheap way to wait for many.
    _asyncio_future_blocking = None  # type: ignore[assignment]

    def cancel(self, msg: Any | None = None) -> bool:  # noqa: ARG002
        return False

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
    """The batches that one `send_many` made. Awaiting it gives their reports, in the order
    in which they were made, and raises the first error once all are settled. A wait that is
    cancelled changes nothing: it can be repeated, and the batches are delivered all the same."""

    def __init__(self, batches: Sequence[DeliveryFuture[BatchReport]]) -> None:
        self.batches = batches

    def __await__(self) -> Generator[object, None, list[BatchReport]]:
        return self._wait().__await__()

    async def _wait(self) -> list[BatchReport]:
        if self.batches:
            # Not `gather`: it would cancel the batches together with the wait.
            await asyncio.wait(self.batches)
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
    """Informs all that wait for a batch: for it as a whole, or, where `records` is not empty, for
    each of its records. asyncio logs an error that is never retrieved."""
    topic, number = partition
    if isinstance(outcome, TidelogError):
        report = BatchReport(topic, number, NO_OFFSET, count, NO_EPOCH, -1, outcome)
        for record in records:
            if not record.done():
                record.set_exception(outcome)
        # Records that are waited for one by one have been informed already.
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
    """Its error has been told elsewhere, and is not for asyncio's log."""
    if future.done() and not future.cancelled():
        future.exception()
