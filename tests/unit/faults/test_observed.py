"""Consumer positions, observed high watermarks, and the waiting times of producers."""

import asyncio
from collections.abc import Sequence

import pytest

from faults import reader as readers
from faults.load import now_ms
from faults.observed import Observer, ReaderSeen
from faults.reader import Reader
from tidelog.client import FetchedBatch
from tidelog.errors import ErrorCode, TidelogError
from tidelog.history import HighWatermarkEnded, Operation, Outcome, SendEnded
from tidelog.model import TopicPartition

SEA, LAKE = TopicPartition("sea", 0), TopicPartition("sea", 1)


def sent(at_ms: int, client: str, outcome: Outcome = Outcome.OK) -> SendEnded:
    return SendEnded(at_ms, client, *SEA, at_ms, outcome)


def read(at_ms: int, partition: TopicPartition, outcome: Outcome = Outcome.OK) -> Operation:
    return HighWatermarkEnded(at_ms, "consumer-1, question 1", *partition, outcome, 7, 1)


def observed(*operations: Operation) -> Observer:
    observer = Observer()
    seen = list(observer.watch(enumerate(operations, 1)))
    assert [operation for _, operation in seen] == list(operations)
    return observer


def test_a_producer_waits_while_another_writes() -> None:
    times = [
        ("producer-0.1", 0),
        ("producer-1.2", 10),
        ("producer-1.2", 400),
        ("producer-0.3", 900),
    ]
    observer = observed(*(sent(at_ms, client) for client, at_ms in times))

    assert observer.finish(950, []).producer_gap_ms == 900


def test_a_producer_waits_until_the_load_ends() -> None:
    observer = observed(sent(0, "producer-0.1"), sent(100, "producer-0.1", Outcome.INFO))

    assert observer.finish(700, []).producer_gap_ms == 700


def test_reported_high_watermarks_are_counted() -> None:
    observer = observed(read(5, SEA), read(9, SEA), read(11, SEA, Outcome.INFO), read(8, LAKE))

    assert observer.finish(20, []).hw_read_ms == {SEA: 9, LAKE: 8}


class Polled:
    """A consumer whose polls raise these errors and then return nothing, until the load ends."""

    def __init__(self, errors: Sequence[TidelogError]) -> None:
        self._errors = iter(errors)
        self.load_ended = asyncio.Event()
        self.sought = 0

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        pass

    async def poll_batches(self, timeout_ms: int) -> list[FetchedBatch]:  # noqa: ARG002
        error = next(self._errors, None)
        if error is not None:
            raise error
        self.load_ended.set()
        return []

    async def seek_to_beginning(self) -> None:
        self.sought += 1


async def test_a_reader_without_records_is_behind_and_keeps_its_errors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(readers, "RETRY_PAUSE_S", 0)
    gone = TidelogError(ErrorCode.OFFSET_OUT_OF_RANGE, "gone")
    consumer = Polled([gone])
    reader = Reader("consumer-1", consumer, {SEA: 40, LAKE: 0}, lambda _: None, now_ms)  # type: ignore[arg-type]

    shown = await reader.run([SEA, LAKE], consumer.load_ended, 0)

    assert shown == ReaderSeen("consumer-1", {"sea/0": (0, 40)}, 1, {"OFFSET_OUT_OF_RANGE": 1})
    assert consumer.sought == 1
