"""Garbage collection at times when the service is idle.

By default, Python's collector runs when the number of new objects passes a threshold. That is
most often within a burst, such as the election of ten thousand leaders, which keeps nearly
every object that it makes. Each collection then pauses the service for tens or hundreds of
milliseconds and frees nothing.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

INTERVAL_S = 0.1
# The number of new objects that is worth a collection, which takes some milliseconds.
MIN_NEW_OBJECTS = 2_500
# The service is quiet after it has used less than this share of a core for `QUIET_S`. The time
# spans short waits: within a burst, a service waits for others now and then.
QUIET_SHARE = 0.3
QUIET_S = 1.0
# A service that is not quiet within this time is permanently busy, and collects anyway.
LONGEST_WAIT_S = 5.0
# Every so many collections also cover the objects that survived the ones before (generation 1).
PASSES_PER_GENERATION_1 = 4
# After so many collections, one covers all objects, which takes half a second for a million
# objects. A permanently busy service waits ten times as long.
PASSES_PER_FULL = 2_000
PASSES_PER_FULL_IF_BUSY = 20_000
# Above this number of new objects, Python collects by itself. Every third of these collections also
# covers the survivors of the previous ones. The pause is 2 to 7 ms, however many objects a request
# retains. Python's counter falls by one for each freed object, including old ones, so a collection
# may cover several times this number.
MAX_NEW_OBJECTS = 5_000
THRESHOLDS = (MAX_NEW_OBJECTS, 1, 1 << 30)


class CollectionSchedule:
    """Decides when to collect. Pure."""

    def __init__(self, now_s: float) -> None:
        self._busy_at_s = now_s
        self._waits_since_s: float | None = None
        self._passes = 0  # collections since the last full one

    def due(self, now_s: float, used_share: float, new_objects: int) -> int | None:
        """Returns the generation to collect now; None: no collection.

        - `used_share`: the share of a core that this process used since the previous call.
        """
        if used_share >= QUIET_SHARE:
            self._busy_at_s = now_s
        if new_objects < MIN_NEW_OBJECTS:
            self._waits_since_s = None
            return None
        if self._waits_since_s is None:
            self._waits_since_s = now_s
        is_quiet = now_s - self._busy_at_s >= QUIET_S
        if not is_quiet and now_s - self._waits_since_s < LONGEST_WAIT_S:
            return None
        self._waits_since_s = None
        self._passes += 1
        if self._passes >= (PASSES_PER_FULL if is_quiet else PASSES_PER_FULL_IF_BUSY):
            self._passes = 0
            return 2
        return 1 if self._passes % PASSES_PER_GENERATION_1 == 0 else 0


@asynccontextmanager
async def idle_garbage_collection() -> AsyncIterator[None]:
    """Collects garbage at idle times while the body of the `async with` runs."""
    gc.set_threshold(*THRESHOLDS)
    collecting = asyncio.create_task(_collect())
    try:
        yield
    finally:
        collecting.cancel()


async def _collect() -> None:
    at_s, used_s = time.monotonic(), time.process_time()
    collections = CollectionSchedule(at_s)
    while True:
        await asyncio.sleep(INTERVAL_S)
        former_at_s, former_used_s = at_s, used_s
        at_s, used_s = time.monotonic(), time.process_time()
        share = (used_s - former_used_s) / max(at_s - former_at_s, INTERVAL_S / 10)
        generation = collections.due(at_s, share, gc.get_count()[0])
        if generation is not None:
            gc.collect(generation)
            # The collection's own CPU time does not count as load of the service.
            used_s = time.process_time()
