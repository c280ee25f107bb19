"""Faults of disks: full file systems, and flipped bits."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from pathlib import Path

from faults.cluster import ClusterFailedError, LogSince
from faults.effects import Measures
from faults.scene import Scene
from tidelog.log_dump import dump_log, segment_paths
from tidelog.log_format import FrameInfo
from tidelog.state_changes.event import Kind

# The bit is in the last bytes of the frame, which belong to the records: the producer's checksum
# covers them.
FLIPPED_FROM_THE_END = 5
FLIPPED_BIT = 4
# The damaged frame is this many before the last. Intact frames follow it, so that it is no torn
# tail; and it is unlikely to be synced yet, because a start after a crash does not read synced
# data.
MIN_FRAMES_BEHIND = 3
# The scrub reads synced data; recent writes may be synced only after it.
SCRUB_AGAIN_S = 3.0


class _Full:
    def __init__(self, scene: Scene, broker: str, log: LogSince) -> None:
        self._scene = scene
        self.target = broker
        self._log = log

        self._leads_none = 0
        self._is_full = True

    async def measured(self) -> Measures:
        if self._is_full and await self._scene.led_by(self.target) == []:
            self._leads_none = 1
        return {
            "refusals_logged": len(await self._log.logged_ms(Kind.DISK_REFUSED.value)),
            "leads_none": self._leads_none,
        }

    async def heal(self) -> None:
        self._is_full = False
        await self._scene.cluster.free_disk(self.target)


async def fill_disk(scene: Scene) -> _Full:
    leader = await scene.busiest_leader()
    log = scene.cluster.log_since_now(leader)
    await scene.cluster.fill_disk(leader)
    return _Full(scene, leader, log)


class _Flipped:
    def __init__(
        self, scene: Scene, broker: str, incarnation: str, log: LogSince, where: str
    ) -> None:
        self._scene = scene
        self._broker = broker
        self._incarnation = incarnation
        self._log = log
        self.target = f"{broker}: {where}"

    async def measured(self) -> Measures:
        now = await self._scene.cluster.incarnation(self._broker)
        return {
            "processes_ended": int(bool(now) and now != self._incarnation),
            "damage_logged": len(await self._log.logged_ms(Kind.REPLICA_DAMAGED.value)),
        }

    async def heal(self) -> None:
        """Leaves the bit flipped: the broker has to find it."""
        await self._scene.cluster.start_again(self._broker)


async def flip_bit(scene: Scene) -> _Flipped:
    """Flips a bit in the newest segment, because a start after a crash reads what may not be
    synced."""
    follower, _ = await scene.follower_and_leader()
    incarnation = await scene.cluster.incarnation(follower)
    log = scene.cluster.log_since_now(follower)
    await scene.cluster.kill(follower)
    replicas = scene.cluster.data_dir(follower).glob(f"replicas/{scene.topic}-*")
    # A segment that has just begun has too few frames.
    fullest = max(replicas, key=lambda replica: segment_paths(replica)[-1].stat().st_size)
    where = await asyncio.to_thread(flip_in_last_whole_frame, fullest)
    return _Flipped(scene, follower, incarnation, log, where)


class _FlippedWhileRunning:
    def __init__(self, scene: Scene, broker: str, log: LogSince, where: str) -> None:
        self._scene = scene
        self._broker = broker
        self._log = log
        self._scrubbed_s = time.monotonic()
        self.target = f"{broker}: {where}"

    async def measured(self) -> Measures:
        found = len(await self._log.logged_ms(Kind.REPLICA_DAMAGED.value))
        if not found and time.monotonic() - self._scrubbed_s >= SCRUB_AGAIN_S:
            self._scrubbed_s = time.monotonic()
            with suppress(ClusterFailedError):
                await self._scene.scrub(self._broker)
        return {
            "damage_logged": found,
            "repairs_logged": len(await self._log.logged_ms(Kind.REPLICA_REPAIRED.value)),
        }

    async def heal(self) -> None:
        """Does nothing: the broker has to repair the damage."""


async def flip_byte_of_leader(scene: Scene) -> _FlippedWhileRunning:
    """Flips a byte in the oldest segment of a partition that the broker leads.

    Then the broker begins at once the scrub that it otherwise runs in the background."""
    leader = await scene.busiest_leader()
    log = scene.cluster.log_since_now(leader)
    led = await scene.led_by(leader)
    replicas = [
        replica
        for number in led or ()
        for replica in scene.cluster.data_dir(leader).glob(f"replicas/{scene.topic}-{number}.*")
    ]
    if not replicas:
        raise ClusterFailedError(f"{leader} leads no partition any more")
    # Prefer a partition with a closed segment.
    longest = max(replicas, key=lambda replica: len(segment_paths(replica)))
    where = await asyncio.to_thread(flip_in_first_whole_frame, longest)
    await scene.scrub(leader)
    return _FlippedWhileRunning(scene, leader, log, where)


def flip_in_first_whole_frame(replica: Path) -> str:
    """Flips a bit in the first complete frame, which readers have long passed; returns its
    position."""
    segment = segment_paths(replica)[0]
    info = next(info for _, info in dump_log(segment))
    return _flip(replica, segment, info)


def flip_in_last_whole_frame(replica: Path) -> str:
    """Flips a bit in the last complete frame; returns its position."""
    segment = segment_paths(replica)[-1]
    frames = [info for _, info in dump_log(segment) if info.fault is None]
    # Near the end: below the committed end, and above what was synced long ago.
    info = frames[max(0, len(frames) - MIN_FRAMES_BEHIND)]
    return _flip(replica, segment, info)


def _flip(replica: Path, segment: Path, info: FrameInfo) -> str:
    assert info.header is not None, "a frame without fault has a header"
    position = info.position + info.size - FLIPPED_FROM_THE_END
    with segment.open("r+b", buffering=0) as file:
        file.seek(position)
        [byte] = file.read(1)
        file.seek(position)
        file.write(bytes([byte ^ FLIPPED_BIT]))
    return f"{replica.name}/{segment.name} at byte {position}, offset {info.header.base_offset}"
