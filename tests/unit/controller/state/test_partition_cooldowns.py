"""How long the cooldowns of partitions are remembered."""

from __future__ import annotations

from tidelog.model import TopicPartition
from tidelog_controller.state.partition_cooldowns import MEMORY_MS, PartitionCooldowns


def test_a_cooldown_is_forgotten_when_it_no_longer_counts() -> None:
    cooldowns = PartitionCooldowns()
    for number, now_ms in ((0, 2_000), (1, 3_000), (0, 4_000)):
        cooldowns.advance(now_ms)
        cooldowns.begin(TopicPartition("t", number))
    cooldowns.advance(3_000 + MEMORY_MS - 1)
    assert len(cooldowns) == 2
    cooldowns.advance(3_000 + MEMORY_MS)
    assert len(cooldowns) == 1
    cooldowns.advance(4_000 + MEMORY_MS)
    assert len(cooldowns) == 0
