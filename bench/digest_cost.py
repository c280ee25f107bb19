"""The cost of the replica digest: `make bench-digest` (`python -m bench.digest_cost`).

Produce throughput of three brokers with acks=all, with digests and without (`digest_range_offsets`
0), and their processor seconds for each GB.

Two equal clusters differ by some percent for as long as they run. Therefore the bench runs many
short pairs of new clusters. Within a pair the load alternates between them in small pieces, so that
other load of the machine affects both. Processor time is far less disturbed than throughput. Each
ratio has a confidence interval: a smaller difference is not resolved. The cost of the appends
themselves is measured separately, and compared with the total of the brokers."""

from __future__ import annotations

import random
import statistics
import sys
import time
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from bench.metrics_cost import brokers_cpu_seconds, send, sending
from bench.report import Measured, at_least, at_most, run_alone
from bench.suite.matrix import BATCH_BYTES
from tidelog.batch import new_batch, stamp
from tidelog.model import Codec
from tidelog_broker.core.partition.range_digest import RANGE_OFFSETS, LogDigests

MIN_THROUGHPUT_RATIO = 0.99
MAX_CPU_RATIO = 1.01
PAIRS = 16
# The load of one cluster in one pair: pieces, and the batches of each; 100 MB in total.
PIECES = 13
BATCHES_A_PIECE = 120
REPLICAS = 3
# For the interval of the median, by bootstrap: pairs are drawn at random repeatedly.
DRAWS = 2_000
APPENDS = 20_000


class Side(NamedTuple):
    """One cluster of a pair: `throughput` in MB/s, `cpu` in processor seconds for each GB."""

    throughput: float
    cpu: float


async def one_pair(directory: Path, pair: int) -> dict[str, Side]:
    """Measures a pair with digests "on" and "off". The first one alternates."""
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
    """Returns the microseconds of processor time that digests add to an append of one batch."""
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


def interval(ratios: list[float]) -> float:
    """Returns half the width of the interval that has 95 % of the medians of such pairs."""
    rng = random.Random(1)
    medians = sorted(statistics.median(rng.choices(ratios, k=len(ratios))) for _ in range(DRAWS))
    return (medians[DRAWS * 975 // 1000] - medians[DRAWS * 25 // 1000]) / 2


async def cost(directory: Path, console: Console) -> list[Measured]:
    sides: dict[str, list[Side]] = {"on": [], "off": []}
    for pair in range(PAIRS):
        for name, side in (await one_pair(directory, pair)).items():
            sides[name].append(side)
        on, off = sides["on"][-1], sides["off"][-1]
        console.print(
            f"  digests, pair {pair + 1}: on {on.throughput:.1f} MB/s and {on.cpu:.2f} CPU s/GB, "
            f"off {off.throughput:.1f} MB/s and {off.cpu:.2f} CPU s/GB, ratios "
            f"{on.throughput / off.throughput:.3f} and {on.cpu / off.cpu:.3f}"
        )
    return results(sides, append_us())


def results(sides: dict[str, list[Side]], append_us: float) -> list[Measured]:
    pairs = list(zip(sides["on"], sides["off"], strict=True))
    throughputs = [on.throughput / off.throughput for on, off in pairs]
    cpus = [on.cpu / off.cpu for on, off in pairs]
    cpu_off = statistics.median(side.cpu for side in sides["off"])
    # Every replica appends each batch once.
    share = 100 * REPLICAS * append_us / 1e6 / (cpu_off * BATCH_BYTES / 1e9)
    of_pairs = f"median of {PAIRS} alternated pairs"
    return [
        *(
            Measured(
                f"digests {name}: produced with acks=all and replicated",
                statistics.median(side.throughput for side in of),
                "MB/s",
            )
            for name, of in sides.items()
        ),
        *(
            Measured(
                f"digests {name}: processor of three brokers",
                statistics.median(side.cpu for side in of),
                "s/GB",
            )
            for name, of in sides.items()
        ),
        at_most(
            f"digests: processor on / off, {of_pairs}", statistics.median(cpus), MAX_CPU_RATIO, ""
        ),
        Measured("digests: processor on / off, 95 % interval, +/-", interval(cpus), ""),
        at_least(
            f"digests: throughput on / off, {of_pairs}",
            statistics.median(throughputs),
            MIN_THROUGHPUT_RATIO,
            "",
        ),
        Measured("digests: throughput on / off, 95 % interval, +/-", interval(throughputs), ""),
        Measured("digests: an append of one batch", append_us, "µs"),
        at_most("digests: appends, of the processor of three brokers", share, 1.0, "%"),
    ]


if __name__ == "__main__":
    sys.exit(run_alone("bench-digest", cost))
