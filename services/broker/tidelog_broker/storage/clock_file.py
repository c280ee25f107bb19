"""The last readings of a broker's clocks on its disk. The next process compares its own with
them."""

from __future__ import annotations

import json
from pathlib import PurePath

from tidelog_broker.clock_check import PeerClock, Reading
from tidelog_broker.log.disk import Disk

CLOCK_NAME = "clock.json"


def read_clock(disk: Disk, directory: PurePath) -> Reading | None:
    """Returns None if there is no readable file; then nothing is compared."""
    try:
        held = json.loads(disk.read_file(directory / CLOCK_NAME))
        return Reading(
            int(held["wall_ms"]),
            int(held["monotonic_ms"]),
            str(held["boot_id"]),
            # Earlier releases wrote none.
            int(held.get("doubted_ms", 0)),
            tuple((int(n), PeerClock(*map(int, peer))) for n, peer in held.get("peers", ())),
            bool(held.get("is_rebooted", False)),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def write_clock(disk: Disk, directory: PurePath, reading: Reading) -> None:
    """Writes and syncs: the file is needed most after a reboot. Raises `OSError`."""
    content = json.dumps(reading._asdict()).encode()
    disk.write_atomically(directory / CLOCK_NAME, content, sync=True)
