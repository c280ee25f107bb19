"""Which consumers wait for records that are not committed."""

import asyncio

from tidelog.inspection.state_reports import WaitingConsumer
from tidelog_broker.core.waiting_consumers import (
    EXPIRY_MS,
    MAX_PARTITIONS,
    MAX_PER_PARTITION,
    WaitingConsumers,
)
from tidelog_broker.requests.consumer_fetch import ConsumerFetch, FetchEntry, FetchWait
from unit.broker.broker_parts import Replicas, append, commit, on
from unit.broker.fake_log import NAME


def offsets(waiting: WaitingConsumers, now_ms: int, high_watermark: int = 0) -> list[int]:
    return [consumer.offset for consumer in waiting.of(NAME, high_watermark, now_ms)]


def test_fetches_at_one_offset_are_one_consumer() -> None:
    waiting = WaitingConsumers()
    for at_ms in (0, 10, 20):
        waiting.note(NAME, 7, at_ms)
    assert waiting.of(NAME, 0, 50) == [WaitingConsumer(7, 3, 30)]


def test_consumers_do_not_wait_for_records_committed_meanwhile() -> None:
    waiting = WaitingConsumers()
    waiting.note(NAME, 7, 0)
    waiting.note(NAME, 9, 0)
    assert offsets(waiting, 0, high_watermark=8) == [9]


def test_a_consumer_that_stops_fetching_is_forgotten() -> None:
    waiting = WaitingConsumers()
    waiting.note(NAME, 7, 0)
    assert offsets(waiting, EXPIRY_MS) == [7]
    assert offsets(waiting, EXPIRY_MS + 1) == []
    assert not waiting._asked


def test_a_consumer_that_returns_later_is_counted_from_scratch() -> None:
    waiting = WaitingConsumers()
    waiting.note(NAME, 7, 0)
    waiting.note(NAME, 7, EXPIRY_MS + 1)
    assert waiting.of(NAME, 0, EXPIRY_MS + 1) == [WaitingConsumer(7, 1, 0)]


def test_the_most_recent_consumers_of_a_partition_are_kept() -> None:
    waiting = WaitingConsumers()
    for offset in range(MAX_PER_PARTITION + 2):
        waiting.note(NAME, offset, offset)
    assert offsets(waiting, 100) == list(range(2, MAX_PER_PARTITION + 2))


def test_the_number_of_partitions_is_bounded() -> None:
    waiting = WaitingConsumers()
    for number in range(MAX_PARTITIONS + 1):
        waiting.note(on(number), 0, 0)
    assert len(waiting._asked) == MAX_PARTITIONS
    assert waiting.of(on(0), 0, 0) == []


async def fetched(fetch: ConsumerFetch, *at: tuple[int, int]) -> None:
    """Fetch at these partitions and offsets without waiting."""
    entries = [FetchEntry(on(number), "", -1, offset, 1 << 20) for number, offset in at]
    await fetch.handle(entries, FetchWait(0, 1, 1 << 20))


async def test_a_fetch_between_high_watermark_and_log_end_is_noted() -> None:
    replicas = Replicas()
    partition = await replicas.lead()
    append(partition)
    fetch = ConsumerFetch(replicas.manager, replicas.purgatory, replicas.clock, replicas.cold_reads)
    await fetched(fetch, (0, 0))
    assert [w.offset for w in fetch.waiting.of(NAME, 0, 0)] == [0]


async def test_a_waiting_partition_is_noted_beside_one_that_has_records() -> None:
    replicas = Replicas()
    for partition in await replicas.take(numbers=(0, 1)):
        append(partition) if partition.name == NAME else commit(partition)
    fetch = ConsumerFetch(replicas.manager, replicas.purgatory, replicas.clock, replicas.cold_reads)
    await fetched(fetch, (0, 0), (1, 0))
    assert [w.offset for w in fetch.waiting.of(NAME, 0, 0)] == [0]
    assert fetch.waiting.of(on(1), 0, 0) == []


async def test_a_consumer_at_the_log_end_waits_for_no_existing_record() -> None:
    replicas = Replicas()
    commit(await replicas.lead())
    fetch = ConsumerFetch(replicas.manager, replicas.purgatory, replicas.clock, replicas.cold_reads)
    await fetched(fetch, (0, 1))
    assert fetch.waiting.of(NAME, 0, 0) == []


async def test_a_long_poll_counts_once() -> None:
    replicas = Replicas()
    append(await replicas.lead())
    fetch = ConsumerFetch(replicas.manager, replicas.purgatory, replicas.clock, replicas.cold_reads)
    entry = FetchEntry(NAME, "", -1, 0, 1 << 20)
    asking = asyncio.create_task(fetch.handle([entry], FetchWait(500, 1, 1 << 20)))
    await asyncio.sleep(0.1)
    replicas.purgatory.high_watermark_moved(replicas.manager.partition(NAME))
    await asking
    (waiting,) = fetch.waiting.of(NAME, 0, replicas.clock.monotonic_ms())
    assert waiting.fetches == 1
