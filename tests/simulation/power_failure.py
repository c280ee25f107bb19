"""What a power failure leaves of a file that was not synced."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simulation.inode import Inode

# Cumulative probabilities. Of what a file gained since its last sync, a power failure keeps all,
# nothing or a torn part; or the file keeps its full length, with pages of zeros or garbage.
_KEEP_ALL = 0.25
_KEEP_NOTHING = 0.45
_KEEP_TORN = 0.65
PAGE_BYTES = 512


def lose_unsynced(inode: Inode, rng: random.Random) -> int:
    """Cuts the file back to what was synced, or to a point between that and the present.

    Returns how much is lost, at least 1 if anything is.
    """
    if inode.is_synced:
        return 0
    before = len(inode.data)
    durable = inode.durable
    if inode.dropped is not None:
        inode.data, inode.dropped = bytearray(durable), None
        inode.sync()
        return max(1, before - len(durable))
    draw = rng.random()
    is_full_length = False
    if draw >= _KEEP_ALL:
        if draw < _KEEP_NOTHING or inode.before is not None or len(durable) > before:
            inode.data = bytearray(durable)
        elif draw < _KEEP_TORN:
            # A part of what was added, perhaps in the middle of a write.
            del inode.data[rng.randint(len(durable), before) :]
        else:
            is_full_length = _spoil(inode.data, len(durable), rng)
    inode.sync()
    if is_full_length or len(inode.data) != before:
        return max(1, before - len(inode.data))
    return 0


def _spoil(data: bytearray, start: int, rng: random.Random) -> bool:
    """Overwrites some pages from `start` on, as if only the length had been written.

    They hold zeros or garbage. Any page may be affected, whatever comes before it. Returns
    whether anything is lost.
    """
    pages = list(range(start, len(data), PAGE_BYTES))
    if not pages:
        return False
    unwritten = [page for page in pages if rng.random() < 0.5] or [rng.choice(pages)]
    zeros = rng.random() < 0.5
    for first in unwritten:
        size = min(PAGE_BYTES, len(data) - first)
        data[first : first + size] = bytes(size) if zeros else rng.randbytes(size)
    return True
