"""Paged descriptions of producers are merged into one answer."""

from __future__ import annotations

from typing import Any

import pytest

from tidelog.client.producers_codec import describe_many_producers
from tidelog.client.retry import Leader
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import TopicPartition
from tidelog.v1 import broker_pb2 as pb

LEADER = Leader(1, 5, "127.0.0.1:1", "topic-id")
PARTITIONS = [TopicPartition("sea", number) for number in range(3)]
ASKED = [(partition, LEADER) for partition in PARTITIONS]
# Producer ids of each partition.
IDS = range(1, 6)


class Pages:
    """A broker that returns `size` producers in an answer; with 0 it returns none and claims
    more.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.requests: list[pb.DescribeProducersRequest] = []

    async def describe_producers(
        self, request: pb.DescribeProducersRequest, timeout_ms: int
    ) -> pb.DescribeProducersResponse:
        assert timeout_ms > 0
        self.requests.append(request)
        answer = pb.DescribeProducersResponse()
        left = self.size
        for asked in request.partitions:
            result = answer.partitions.add(topic=asked.topic, partition=asked.partition)
            if asked.partition == 2:
                result.error.message = "not here"
                continue
            ids = [n for n in request.producer_ids or IDS if n >= request.from_producer_id]
            for producer_id in ids[:left]:
                result.producers.add(producer_id=producer_id)
            if len(ids) > left:
                result.next_producer_id = ids[left] if left else request.from_producer_id
            left -= min(left, len(ids))
        return answer


async def described(size: int, *ids: int) -> tuple[Pages, dict[int, Any]]:
    pages: Any = Pages(size)
    answers = await describe_many_producers(pages, ASKED, ids)
    assert [partition for partition, _, _ in answers] == PARTITIONS
    return pages, {
        partition.partition: found
        if isinstance(found, TidelogError)
        else [position.producer_id for position in found]
        for partition, _, found in answers
    }


@pytest.mark.parametrize("size", [1, 2, 4, 5, 7, 10, 100])
async def test_all_pages_are_read(size: int) -> None:
    pages, found = await described(size)
    assert found[0] == found[1] == list(IDS)
    assert "not here" in str(found[2])
    assert len(pages.requests) <= 2 * len(IDS)
    assert all(request.page_size == 100_000 for request in pages.requests)


async def test_completed_partitions_are_not_requested_again() -> None:
    pages, _ = await described(7)
    assert [[p.partition for p in r.partitions] for r in pages.requests] == [[0, 1, 2], [1]]


async def test_pages_of_named_ids_are_read() -> None:
    _, found = await described(2, 1, 3, 5)
    assert found[0] == found[1] == [1, 3, 5]


async def test_a_broker_whose_pages_never_end_is_not_queried_for_ever() -> None:
    pages: Any = Pages(0)
    with pytest.raises(TidelogError, match="no part of what was requested") as caught:
        await describe_many_producers(pages, ASKED[:2], ())
    assert caught.value.code is ErrorCode.INTERNAL
    assert len(pages.requests) == 1
