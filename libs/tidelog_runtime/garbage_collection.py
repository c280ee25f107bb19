"""When a service's garbage is collected: where it has time for it.

By itself Python's collector looks at what is new whenever so many objects more are there, which is
most often in the midst of a burst, as when ten thousand leaders are elected: that keeps nearly all
that it makes, and each look is a pause of tens of milliseconds, or hundreds, for nothing.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

INTERVAL_S = 0.1
# So many new objects are worth a look, which takes some milliseconds.
WORTH_A_LOOK = 2_500
# A service has time for it once it has used less than this share of a core for so long: in the
# midst of a burst it waits for others now and then.
QUIET_SHARE = 0.3
QUIET_S = 1.0
# Who is not quiet in all that time is busy for good, and has to take the time.
LONGEST_WAIT_S = 5.0
# Each so many looks also take in what outlived the others since.
LOOKS_EACH_LATER = 4
# After so many looks there is one at everything, which takes half a second where a million objects
# are; of a service that is busy for good, after ten times as many.
LOOKS_EACH_FULL = 2_000
LOOKS_EACH_FULL_IF_BUSY = 20_000
# Beyond so many new ones Python looks by itself, each third time also at what outlived the looks
# before: a pause of 2 to 7 ms, whatever a request makes a service keep. It counts one less for each
# object that is freed, an old one, too, so that a look may find several times as many.
MOST_NEW = 5_000
THRESHOLDS = (MOST_NEW, 1, 1 << 30)


class Collections:
    """Decides when; pure."""

    def __init__(self, now_s: float) -> None:
        self._busy_at_s = now_s
        self._waits_since_s: float | None = None
        self._looks = 0  # since everything was looked at

    def due(self, now_s: float, used_share: float, new_objects: int) -> int | None:
        """Which generation to collect now; None: none. `used_share`: of a core, by this process,
        since this was asked last."""
        if used_share >= QUIET_SHARE:
            self._busy_at_s = now_s
        if new_objects < WORTH_A_LOOK:
            self._waits_since_s = None
            return None
        if self._waits_since_s is None:
            self._waits_since_s = now_s
        is_quiet = now_s - self._busy_at_s >= QUIET_S
        if not is_quiet and now_s - self._waits_since_s < LONGEST_WAIT_S:
            return None
        self._waits_since_s = None
        self._looks += 1
        if self._looks >= (LOOKS_EACH_FULL if is_quiet else LOOKS_EACH_FULL_IF_BUSY):
            self._looks = 0
            return 2
        return 1 if self._looks % LOOKS_EACH_LATER == 0 else 0


@asynccontextmanager
async def collecting_garbage() -> AsyncIterator[None]:
    """Where there is time for it, while the service does what is inside."""
    gc.set_threshold(*THRESHOLDS)
    collecting = asyncio.create_task(_collect())
    try:
        yield
    finally:
        collecting.cancel()


async def _collect() -> None:
    at_s, used_s = time.monotonic(), time.process_time()
    collections = Collections(at_s)
    while True:
        await asyncio.sleep(INTERVAL_S)
        former_at_s, former_used_s = at_s, used_s
        at_s, used_s = time.monotonic(), time.process_time()
        share = (used_s - former_used_s) / max(at_s - former_at_s, INTERVAL_S / 10)
        generation = collections.due(at_s, share, gc.get_count()[0])
        if generation is not None:
            gc.collect(generation)
            # What that used is nothing that the service is busy with.
            used_s = time.process_time()
