"""DescribeProducers: which committed state of producers it returns, and fences that hold before
they are answered.
"""

import asyncio
from collections.abc import Sequence
from itertools import chain

import pytest

from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import FIRST_NAMED_PRODUCER_ID, Acks, TopicPartition
from tidelog_broker.core.partition.partition import Partition
from tidelog_broker.requests import describe_producers
from tidelog_broker.requests.describe_producers import (
    DescribeEntry,
    DescribeOutcome,
    DescribeProducers,
    Fence,
    Page,
)
from unit.broker.broker_parts import Replicas, fetch_by, holder_change, until_idle
from unit.broker.fake_log import NAME, TOPIC_ID, sent_by, state

NAMED = FIRST_NAMED_PRODUCER_ID + 1
NEXT = Fence(NAMED, 1, 1000)
ALONE = state(isr=(1,), replicas=(1,), min_isr=1)


class Front:
    def __init__(self) -> None:
        self.replicas = replicas = Replicas()
        self.describe = DescribeProducers(replicas.manager, replicas.purgatory, replicas.clock)

    async def ask(
        self, *ids: int, fence: Fence | None = None, name: TopicPartition = NAME, topic_id: str = ""
    ) -> DescribeOutcome:
        (outcome,) = await self.describe.handle([DescribeEntry(name, topic_id)], ids, fence)
        return outcome

    def asking(self, fence: Fence) -> asyncio.Task[DescribeOutcome]:
        return asyncio.create_task(self.ask(fence=fence))


def put(partition: Partition, producer: int, sequence: int, count: int = 1, epoch: int = 0) -> None:
    partition.append([sent_by(producer, sequence, count=count, epoch=epoch)], Acks.LEADER, 5)


def catch_up(partition: Partition) -> None:
    for follower in (2, 3):
        fetch_by(partition, follower)


def described(outcome: DescribeOutcome) -> Sequence[tuple[int, int, int]]:
    assert not isinstance(outcome, TidelogError), outcome
    return [producer[:3] for producer in outcome.producers]


def code_of(outcome: DescribeOutcome) -> ErrorCode:
    assert isinstance(outcome, TidelogError)
    return outcome.code


# -- without a fence ---------------------------------------------------------------------


async def test_committed_state_is_described() -> None:
    front = Front()
    partition = await front.replicas.lead()
    put(partition, 7, 0, count=4)
    catch_up(partition)
    put(partition, 7, 4)
    assert described(await front.ask()) == [(7, 0, 3)]


async def test_only_requested_producers_are_described() -> None:
    front = Front()
    partition = await front.replicas.lead(new_state=ALONE)
    for producer in (7, 8, 9):
        put(partition, producer, 0)
    assert described(await front.ask(9, 4, 7)) == [(7, 0, 0), (9, 0, 0)]


async def test_a_partition_led_elsewhere_is_answered_as_by_produce() -> None:
    front = Front()
    assert code_of(await front.ask()) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await front.replicas.lead()
    assert code_of(await front.ask(topic_id="other-id-other-id-othe")) is (
        ErrorCode.UNKNOWN_TOPIC_ID
    )


async def test_a_missing_partition_does_not_fail_the_others() -> None:
    front = Front()
    await front.replicas.lead(new_state=ALONE)
    nowhere = DescribeEntry(TopicPartition("nowhere", 0), "")
    here = DescribeEntry(NAME, TOPIC_ID)
    for fence in (None, NEXT):
        first, second = await front.describe.handle([nowhere, here], [], fence)
        assert code_of(first) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert not isinstance(second, TidelogError)


# -- pages ---------------------------------------------------------------------------------


async def pages(front: Front, size: int, *ids: int) -> list[list[tuple[int, int]]]:
    """Pages of partitions 0 and 1, which have three producers each, as pairs of partition and
    id.
    """
    pending = {0: [0, 1]}
    found = []
    while pending:
        from_id = min(pending)
        numbers = pending.pop(from_id)
        asked = [DescribeEntry(TopicPartition(NAME.topic, n), "") for n in numbers]
        page = []
        for number, outcome in zip(
            numbers, await front.describe.handle(asked, ids, None, Page(size, from_id)), strict=True
        ):
            assert not isinstance(outcome, TidelogError), outcome
            page += [(number, p.producer_id) for p in outcome.producers]
            if outcome.next_id is not None:
                pending.setdefault(outcome.next_id, []).append(number)
        found.append(page)
    return found


async def two_partitions() -> Front:
    front = Front()
    for partition in await front.replicas.take(ALONE, numbers=(0, 1)):
        for producer in (7, 8, 9):
            put(partition, producer, 0)
    return front


async def test_a_page_is_full_and_the_next_continues_there() -> None:
    front = await two_partitions()
    assert await pages(front, 6) == [[(0, 7), (0, 8), (0, 9), (1, 7), (1, 8), (1, 9)]]
    for size in range(1, 6):
        found = await pages(front, size)
        assert max(map(len, found)) <= size
        assert sorted(chain(*found)) == [(n, p) for n in (0, 1) for p in (7, 8, 9)]


async def test_lookups_of_unknown_ids_count_towards_a_page() -> None:
    front = await two_partitions()
    assert sorted(await pages(front, 2, 4, 5, 7, 10)) == [[], [], [(0, 7)], [(1, 7)]]


async def test_without_pages_too_many_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    front = await two_partitions()
    asked = [DescribeEntry(TopicPartition(NAME.topic, number), "") for number in (0, 1)]
    for most, ids in ((6, ()), (6, (7, 8, 20))):
        monkeypatch.setattr(describe_producers, "MAX_DESCRIBED_PRODUCERS", most)
        await front.describe.handle(asked, ids)
        monkeypatch.setattr(describe_producers, "MAX_DESCRIBED_PRODUCERS", most - 1)
        with pytest.raises(TidelogError, match="without a page_size; at most 5 are") as caught:
            await front.describe.handle(asked, ids)
        assert caught.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("page", [Page(-1), Page(1, -1)])
async def test_a_negative_page_size_is_rejected(page: Page) -> None:
    with pytest.raises(TidelogError, match="must be 0 or more"):
        await Front().describe.handle([], [], None, page)


async def test_a_partition_listed_twice_rejects_the_request() -> None:
    front = await two_partitions()
    with pytest.raises(TidelogError, match="appears twice") as caught:
        await front.describe.handle([DescribeEntry(NAME, ""), DescribeEntry(NAME, TOPIC_ID)], [])
    assert caught.value.code is ErrorCode.INVALID_REQUEST


# -- with a fence ------------------------------------------------------------------------


async def test_a_fence_is_answered_when_the_replicas_have_it() -> None:
    front = Front()
    partition = await front.replicas.lead()
    put(partition, NAMED, 0, count=4)
    asking = front.asking(NEXT)
    await until_idle()
    fetch_by(partition, 2)
    await until_idle()
    assert not asking.done()
    fetch_by(partition, 3)
    assert described(await asking) == [(NAMED, 1, 3)]


async def test_a_previous_holder_cannot_write_once_a_fence_is_requested() -> None:
    front = Front()
    partition = await front.replicas.lead()
    asking = front.asking(NEXT)
    await until_idle()
    with pytest.raises(TidelogError) as rejected:
        put(partition, NAMED, 0)
    assert rejected.value.code is ErrorCode.FENCED_PRODUCER_EPOCH
    catch_up(partition)
    assert described(await asking) == [(NAMED, 1, -1)]


async def test_a_holder_whose_name_was_taken_cannot_fence_any_more() -> None:
    front = Front()
    partition = await front.replicas.lead(new_state=ALONE)
    front.replicas.cache.apply([holder_change(NAMED, NEXT.producer_epoch + 1)])
    assert code_of(await front.ask(fence=NEXT)) is ErrorCode.FENCED_PRODUCER_EPOCH
    assert partition.log.log_end_offset == 0


async def test_a_repeated_fence_waits_for_its_replicas_like_the_first() -> None:
    front = Front()
    partition = await front.replicas.lead()
    first, again = front.asking(NEXT), front.asking(NEXT)
    await until_idle()
    assert partition.log.log_end_offset == 1
    assert not again.done()
    catch_up(partition)
    assert described(await again) == described(await first)


async def test_only_the_producer_of_the_fence_is_described_unless_others_are_named() -> None:
    front = Front()
    partition = await front.replicas.lead(new_state=ALONE)
    put(partition, 7, 0)
    assert described(await front.ask(fence=NEXT)) == [(NAMED, 1, -1)]
    assert described(await front.ask(7, fence=NEXT)) == [(7, 0, 0)]


async def test_a_fence_of_a_previous_holder_is_rejected() -> None:
    front = Front()
    await front.replicas.lead(new_state=ALONE)
    await front.ask(fence=NEXT._replace(producer_epoch=2))
    assert code_of(await front.ask(fence=NEXT)) is ErrorCode.FENCED_PRODUCER_EPOCH


async def test_a_fence_whose_leader_is_deposed_is_not_confirmed() -> None:
    front = Front()
    await front.replicas.lead()
    asking = front.asking(NEXT)
    await until_idle()
    await front.replicas.take(state(leader=2, epoch=6), revision=11)
    assert code_of(await asking) is ErrorCode.LEADER_CHANGED


async def test_an_unreplicated_fence_times_out_and_leaves_nothing_behind() -> None:
    front = Front()
    await front.replicas.lead()
    outcome = await front.ask(fence=NEXT._replace(timeout_ms=250))
    assert code_of(outcome) is ErrorCode.REQUEST_TIMED_OUT
    assert front.replicas.clock.monotonic_ms() == 250
    assert len(front.replicas.purgatory) == 0


async def test_below_min_isr_nothing_is_fenced() -> None:
    front = Front()
    partition = await front.replicas.lead(new_state=state(isr=(1,), eligible=(2,)))
    assert code_of(await front.ask(fence=NEXT)) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert partition.log.log_end_offset == 0


async def test_a_new_leader_answers_the_first_holder_once_it_knows_the_committed_end() -> None:
    front = Front()
    partition = await front.replicas.lead()
    put(partition, 7, 0)
    await front.replicas.take(state(epoch=6), revision=11)
    asking = front.asking(Fence(NAMED, 0, 1000))
    await until_idle()
    assert not asking.done()
    catch_up(partition)
    assert described(await asking) == []


async def test_a_full_disk_is_reported() -> None:
    front = Front()
    await front.replicas.lead(new_state=ALONE)
    front.replicas.memory.space = 10
    assert code_of(await front.ask(fence=NEXT)) is ErrorCode.STORAGE_ERROR


@pytest.mark.parametrize(
    "fence",
    [
        NEXT._replace(producer_id=7),
        NEXT._replace(producer_epoch=-1),
        NEXT._replace(timeout_ms=0),
        NEXT._replace(timeout_ms=300_001),
    ],
)
async def test_an_invalid_fence_is_rejected_as_a_whole(fence: Fence) -> None:
    front = Front()
    partition = await front.replicas.lead(new_state=ALONE)
    with pytest.raises(TidelogError) as rejected:
        await front.ask(fence=fence)
    assert rejected.value.code is ErrorCode.INVALID_REQUEST
    assert partition.log.log_end_offset == 0
