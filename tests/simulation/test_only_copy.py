"""A partition of one replica whose machine loses power, or whose disk is damaged.

What is still on the disk is read again, what is missing in the middle is an error with its
offsets, and writes continue.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from pathlib import PurePath

import pytest

from simulation.disk import PAGE_BYTES, SimDisk
from simulation.processes import BrokerProcess, ClientProcess
from simulation.world import Settings, World
from tidelog.errors import RecordsDamagedError, TidelogError
from tidelog.log_format import FRAME_HEADER_BYTES, SEGMENT_SUFFIX, dump_frames
from tidelog.model import NO_LEADER, OffsetPosition, TopicPartition
from tidelog_runtime.metadata.schema import decode_leader_and_isr

NAME = TopicPartition("sea", 0)
SEEDS = range(1, 25)
SECTOR_SEEDS = range(1, 9)
RECORDS = 24
# Each record is a batch of several pages of the disk.
RECORD_BYTES = 4_000
DOWN_S = 1.0
# After CHECKPOINTED_S the high watermark is in a checkpoint, and nothing is known to be synced.
CHECKPOINTED_S, FLUSH_INTERVAL_MS = 4.0, 60_000
ATTEMPT_PAUSE_S = 0.2
# How long the producer tries, until the broker is back.
TIMEOUT_MS = 40_000

Frames = Mapping[int, bytes]


def value(number: int) -> bytes:
    return b"%d " % number + bytes(RECORD_BYTES)


def segments(disk: SimDisk) -> list[PurePath]:
    """Returns the segments of the topic."""
    return [
        path
        for path in disk.paths()
        if path.suffix == SEGMENT_SUFFIX and path.parent.name.startswith(f"{NAME.topic}-")
    ]


def sound_frames(disk: SimDisk) -> Frames:
    """Returns the batches of the topic that are on the disk, by base offset."""
    found: dict[int, bytes] = {}
    for path in segments(disk):
        file = disk.open(path)
        for info in dump_frames(file.read_at, disk.file_size(path)):
            if info.fault is None and info.header is not None:
                found[info.header.base_offset] = file.read_at(info.size, info.position)
    return found


def offsets_in(content: bytes, start: int, end: int) -> set[int]:
    """Returns the base offsets of a segment's batches that overlap `start` to `end`."""

    def read(size: int, position: int) -> bytes:
        return content[position : position + size]

    return {
        info.header.base_offset
        for info in dump_frames(read, len(content))
        if info.header is not None and info.position < end and start < info.position + info.size
    }


class Story:
    """Writes to one replica, damages it, and reads what remains.

    - `kept`: the offsets that the damage left on the disk
    """

    def __init__(self, seed: int, **broker_options: int) -> None:
        options = {**Settings().broker_options, **broker_options}
        self.world = World(seed, Settings(broker_options=options))
        self._rng = random.Random(f"{seed}/power")
        self.kept: set[int] = set()
        self.read: dict[int, bytes | None] = {}
        self.unreadable: set[int] = set()
        self.next_offset = 0

    def leader(self) -> int:
        item = self.world.store_data.get(self.world.keys.leader_and_isr(NAME))
        return NO_LEADER if item is None else decode_leader_and_isr(item.value).leader

    async def strike(self, broker: BrokerProcess) -> None:
        """Does what the fault `reboot` does."""
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
        await self.strike(self.world.brokers[self.leader()])
        # The partition may not remember the first producer.
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


class BadSectors(Story):
    """Some pages become unreadable, and the process may crash."""

    async def strike(self, broker: BrokerProcess) -> None:
        disk = broker.machine.disk
        self.kept = set(sound_frames(disk))
        for path in segments(disk):
            content = disk.read_file(path)
            # The last page is left out: it is shared with what is written next.
            pages = range(len(content) // PAGE_BYTES)
            for page in self._rng.sample(pages, self._rng.randint(0, 3)):
                first = page * PAGE_BYTES
                disk.spoil(path, first)
                self.kept -= offsets_in(content, first, first + PAGE_BYTES)
        if self._rng.random() < 0.5:
            broker.hold_down()
            broker.kill()
            await asyncio.sleep(DOWN_S)
            broker.release()


class DamagedEnd(Story):
    """The header of the last batch is damaged, and the process crashes."""

    async def strike(self, broker: BrokerProcess) -> None:
        await asyncio.sleep(CHECKPOINTED_S)
        disk = broker.machine.disk
        found = sound_frames(disk)
        self.kept = set(found) - {max(found)}
        path = max(segments(disk))
        position = disk.file_size(path) - len(found[max(found)])
        disk.flip_bit(path, position + self._rng.randrange(FRAME_HEADER_BYTES), 0)
        broker.hold_down()
        broker.kill()
        await asyncio.sleep(DOWN_S)
        broker.release()


def played(story: Story) -> Story:

    async def main() -> None:
        client = story.world.client("client")
        await client.spawn(story.run(client))

    try:
        story.world.run(main())
    finally:
        story.world.close()
    return story


def judge(story: Story, seed: int) -> bool:
    """Checks that nothing is lost that the disk still has; returns whether anything is lost."""
    old = {offset: data for offset, data in story.read.items() if offset < story.next_offset}
    assert set(old) == story.kept, f"seed {seed}"
    assert all(data == value(offset) for offset, data in old.items())
    assert story.unreadable == set(range(story.next_offset)) - story.kept
    assert story.read[story.next_offset] == b"after"
    return bool(story.unreadable)


@pytest.mark.timeout(300)
def test_a_power_failure_costs_the_only_copy_no_record_that_is_still_on_its_disk() -> None:
    with_gaps = sum(judge(played(Story(seed)), seed) for seed in SEEDS)
    assert with_gaps >= len(SEEDS) / 8, "too few power failures left a gap to judge anything by"


@pytest.mark.timeout(300)
def test_bad_sectors_cost_the_only_copy_no_record_that_lies_beside_them() -> None:
    with_gaps = sum(judge(played(BadSectors(seed)), seed) for seed in SECTOR_SEEDS)
    assert with_gaps >= len(SECTOR_SEEDS) / 2


@pytest.mark.rule("damage-costs-only-its-batch")
@pytest.mark.timeout(300)
def test_the_only_copy_uses_no_offset_again_that_was_acknowledged() -> None:
    for seed in SECTOR_SEEDS:
        story = played(DamagedEnd(seed, flush_interval_ms=FLUSH_INTERVAL_MS))
        assert judge(story, seed)
        assert story.next_offset == RECORDS, f"seed {seed}"
