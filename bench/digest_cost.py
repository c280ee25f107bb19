"""What the replica digest costs (`python -m bench.digest_cost`): produce throughput of three
brokers with acks=all, with digests and without (`digest_range_offsets` 0), and their processor
seconds for each GB.

Each pair is two new clusters, which take their share by turns, in small pieces, so that whatever
else the machine does falls on both (as in `bench.metrics_cost`)."""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from bench.metrics_cost import (
    BATCHES_A_PIECE,
    PIECES,
    brokers_cpu_seconds,
    send,
    sending,
)
from bench.report import Measured, run_alone
from bench.suite.matrix import BATCH_BYTES
from tidelog.batch import new_batch, stamp
from tidelog.model import Codec
from tidelog_broker.partition.range_digest import RANGE_OFFSETS, LogDigests

WANTED_RATIO = 0.99
PAIRS = 6
APPENDS = 20_000


class Side(NamedTuple):
    """`throughput` in MB/s, `cpu` in processor seconds for each GB."""

    throughput: float
    cpu: float


async def one_pair(directory: Path, pair: int) -> dict[str, Side]:
    """With digests "on" and "off", which of them begins alternating."""
    async with (
        sending(directory / f"on-{pair}", {}) as on,
        sending(directory / f"off-{pair}", {"digest_range_offsets": 0}) as off,
    ):
        sides = {"on": on, "off": off}
        order = sorted(sides, reverse=pair % 2 == 1)
        before = {name: brokers_cpu_seconds(sides[name][0]) for name in order}
        seconds = dict.fromkeys(order, 0.0)
        for _ in range(PIECES):
            for name in order:
                began = time.perf_counter()
                await send(sides[name][1], BATCHES_A_PIECE)
                seconds[name] += time.perf_counter() - began
        sent = PIECES * BATCHES_A_PIECE * BATCH_BYTES
        return {
            name: Side(
                sent / 1e6 / seconds[name],
                (brokers_cpu_seconds(sides[name][0]) - before[name]) / (sent / 1e9),
            )
            for name in order
        }


def append_us() -> float:
    """Microseconds of a processor that one append of one batch takes more."""
    batch = new_batch(
        b"", codec=Codec.NONE, record_count=10, base_timestamp_ms=1, max_timestamp_ms=1
    )
    batches = [
        [stamp(batch, base_offset=10 * number, leader_epoch=0, append_time_ms=1)]
        for number in range(APPENDS)
    ]
    digests = LogDigests(RANGE_OFFSETS, 0)
    began = time.process_time()
    for appended in batches:
        digests.appended(appended)
    return (time.process_time() - began) / APPENDS * 1e6


async def cost(directory: Path, console: Console) -> list[Measured]:
    on: list[Side] = []
    off: list[Side] = []
    for pair in range(PAIRS):
        found = await one_pair(directory, pair)
        on.append(found["on"])
        off.append(found["off"])
        console.print(
            f"  digests, pair {pair + 1}: on {on[-1].throughput:.1f} MB/s and {on[-1].cpu:.2f} CPU "
            f"s/GB, off {off[-1].throughput:.1f} MB/s and {off[-1].cpu:.2f} CPU s/GB, ratio "
            f"{on[-1].throughput / off[-1].throughput:.3f}"
        )
    ratios = [one.throughput / other.throughput for one, other in zip(on, off, strict=True)]
    ratio = statistics.median(ratios)
    cpu_ratio = statistics.median(one.cpu / other.cpu for one, other in zip(on, off, strict=True))
    return [
        *(
            Measured(
                f"digests {name}: produced with acks=all and replicated",
                round(statistics.median(side.throughput for side in sides), 2),
                "MB/s",
            )
            for name, sides in (("on", on), ("off", off))
        ),
        Measured(
            f"digests: throughput on / off, median of {PAIRS} alternated pairs",
            round(ratio, 4),
            "",
            wanted=f">= {WANTED_RATIO}",
            met=ratio >= WANTED_RATIO,
        ),
        Measured("digests: throughput on / off, least", round(min(ratios), 4), ""),
        Measured("digests: throughput on / off, most", round(max(ratios), 4), ""),
        Measured(
            f"digests: processor of three brokers on / off, median of {PAIRS} pairs",
            round(cpu_ratio, 4),
            "",
        ),
        Measured("digests: an append of one batch", round(append_us(), 2), "us"),
    ]


if __name__ == "__main__":
    sys.exit(run_alone("digest-cost", cost))
