"""Topics of many partitions are converted in slices."""

from __future__ import annotations

import pytest

from tidelog.client.descriptions import PARTITIONS_PER_TURN, topic_from_wire, topics_from_wire
from tidelog.v1.broker_pb2 import PartitionMetadata, TopicMetadata
from unit.loop_turns import Turns


@pytest.mark.parametrize(("topics", "slices"), [(1, 4), (8, 0.5), (40, 0.1)])
async def test_conversion_lets_other_tasks_run(topics: int, slices: float) -> None:
    partitions = int(slices * PARTITIONS_PER_TURN)
    wire = [
        TopicMetadata(
            name=f"t-{number}",
            partitions=[PartitionMetadata(partition=n, leader=1) for n in range(partitions)],
        )
        for number in range(topics)
    ]
    async with Turns() as turns:
        found = await topics_from_wire(wire)
        assert turns.taken() >= topics * partitions // PARTITIONS_PER_TURN
    assert found == [topic_from_wire(topic) for topic in wire]
