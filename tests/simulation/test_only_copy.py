"""A partition of one replica whose machine loses power: what is still on the disk is read again,
what is missing in the middle is an error with its offsets, and writes continue."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from pathlib import PurePath

import pytest

from simulation.disk import SimDisk
from simulation.processes import BrokerProcess, ClientProcess
from simulation.world import World
from tidelog.errors import RecordsDamagedError, TidelogError
from tidelog.log_format import SEGMENT_SUFFIX, dump_frames
from tidelog.model import NO_LEADER, OffsetPosition, TopicPartition
from tidelog_runtime.metadata.schema import decode_leader_and_isr

NAME = TopicPartition("sea", 0)
SEEDS = range(1, 25)
RECORDS = 24
# Each is a batch, and some pages of the disk long.
RECORD_BYTES = 4_000
DOWN_S = 1.0
ATTEMPT_PAUSE_S = 0.2
# Of the producer, until the broker is back.
TIMEOUT_MS = 40_000

Frames = Mapping[int, bytes]


def value(number: int) -> bytes:
    return b"%d " % number + bytes(RECORD_BYTES)


def sound_frames(disk: SimDisk) -> Frames:
    """By base offset, the batches of the topic that are on the disk."""
    found: dict[int, bytes] = {}
    for path in disk.paths():
        if path.suffix == SEGMENT_SUFFIX and path.parent.name.startswith(f"{NAME.topic}-"):
            file = disk.open(PurePath(path))
            for info in dump_frames(file.read_at, disk.file_size(path)):
                if info.fault is None and info.header is not None:
                    found[info.header.base_offset] = file.read_at(info.size, info.position)
    return found


class Story:
    """`kept`: the offsets that the power failure left on the disk."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed)
        self._rng = random.Random(f"{seed}/power")
        self.kept: set[int] = set()
        self.read: dict[int, bytes | None] = {}
        self.unreadable: set[int] = set()
        self.next_offset = 0

    def leader(self) -> int:
        item = self.world.store_data.get(self.world.keys.leader_and_isr(NAME))
        return NO_LEADER if item is None else decode_leader_and_isr(item.value).leader

    async def lose_power(self, broker: BrokerProcess) -> None:
        """As the fault `reboot` does."""
        before = sound_frames(broker.machine.disk)
        host = self.world.network.host(broker.host)
        broker.hold_down()
        broker.kill(noticed=False)
        host.up = False
        broker.machine.disk.power_failure(self._rng)
        broker.machine.boots += 1
        after = sound_frames(broker.machine.disk)
        self.kept = {offset for offset, data in before.items() if after.get(offset) == data}
        await asyncio.sleep(DOWN_S)
        host.up = True
        broker.release()

    async def run(self, client: ClientProcess) -> None:
        async with client.admin() as admin:
            await admin.create_topic(
                NAME.topic, partitions=1, replication_factor=1, config={"segment_bytes": "65536"}
            )
        async with client.producer(delivery_timeout_ms=TIMEOUT_MS) as producer:
            for number in range(RECORDS):
                await (await producer.send(NAME.topic, value(number)))
        await self.lose_power(self.world.brokers[self.leader()])
        # The partition may know nothing of the first producer any more.
        async with client.producer(delivery_timeout_ms=TIMEOUT_MS) as producer:
            self.next_offset = (await (await producer.send(NAME.topic, b"after"))).offset
        async with client.consumer() as consumer:
            consumer.assign([NAME], start=OffsetPosition.EARLIEST)
            while self.next_offset not in self.read:
                try:
                    records = await consumer.poll()
                except RecordsDamagedError as error:
                    self.unreadable |= set(range(error.first_offset, error.next_offset))
                    await consumer.seek(NAME, error.next_offset)
                except TidelogError:
                    await asyncio.sleep(ATTEMPT_PAUSE_S)
                else:
                    self.read |= {record.offset: record.value for record in records}


def told(seed: int) -> Story:
    story = Story(seed)

    async def main() -> None:
        client = story.world.client("client")
        await client.spawn(story.run(client))

    try:
        story.world.run(main())
    finally:
        story.world.close()
    return story


@pytest.mark.timeout(300)
def test_a_power_failure_costs_the_only_copy_no_record_that_is_still_on_its_disk() -> None:
    with_gaps = 0
    for seed in SEEDS:
        story = told(seed)

        old = {offset: data for offset, data in story.read.items() if offset < story.next_offset}
        assert set(old) == story.kept, f"seed {seed}"
        assert all(data == value(offset) for offset, data in old.items())
        assert story.unreadable == set(range(story.next_offset)) - story.kept
        assert story.read[story.next_offset] == b"after"
        with_gaps += bool(story.unreadable)
    assert with_gaps >= len(SEEDS) / 8, "too few power failures left a gap to judge anything by"
