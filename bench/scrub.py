"""The speed of the scrub on a broker's logs at full rate, and its share of a processor at its
default rate: `make bench-scrub` (`python -m bench.scrub`).

Reads real files without the page cache; `TMPDIR` names a directory on the disk to measure. Exit
status 1: less than 200 MB/s, or more than 1 % of a processor."""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path, PurePath
from typing import TypeVar

from rich.console import Console

from bench.report import Measured, at_least, at_most, run_alone
from tidelog.batch import new_batch, stamp
from tidelog.model import Codec, TopicPartition
from tidelog_broker.__main__ import run_in_thread
from tidelog_broker.broker_config import BrokerConfig
from tidelog_broker.core.partition.replica_key import ReplicaKey
from tidelog_broker.log.disk import OsDisk
from tidelog_broker.log.log_errors import LogError
from tidelog_broker.storage.cold_reads import ColdReads
from tidelog_broker.storage.log_directory import LogDirectory
from tidelog_broker.storage.scrub_pace import ScrubPace
from tidelog_broker.storage.scrub_state import ScrubStateFile
from tidelog_broker.storage.scrubber import Scrubber
from tidelog_runtime.clock import SystemClock
from tidelog_runtime.topic_config import TopicConfig

MIN_FULL_RATE_MB_S = 200.0
MAX_DEFAULT_CPU_PERCENT = 1.0
REPLICAS = 8
REPLICA_BYTES = 128 << 20
BATCH_BYTES = 16 << 10
BATCHES_PER_APPEND = 64
ROUNDS = 5
DEFAULT_RATE_SECONDS = 30.0

T = TypeVar("T")


def write_logs(logs: LogDirectory) -> None:
    records = bytes(range(256)) * (BATCH_BYTES // 256)
    batch = new_batch(
        records, codec=Codec.NONE, record_count=10, base_timestamp_ms=1, max_timestamp_ms=1
    )
    for number in range(REPLICAS):
        key = ReplicaKey("scrubbed-topic-id-0000", number)
        log = logs.open_replica(TopicPartition("scrubbed", number), key, TopicConfig())
        while log.size_bytes < REPLICA_BYTES:
            offset = log.log_end_offset
            log.append(
                [
                    stamp(batch, base_offset=offset + 10 * i, leader_epoch=0, append_time_ms=1)
                    for i in range(BATCHES_PER_APPEND)
                ]
            )
        log.flush()


def no_damage(key: ReplicaKey, error: LogError) -> None:
    raise AssertionError(f"{key}: {error}")


def new_scrubber(directory: Path, logs: LogDirectory, *, period_ms: int) -> Scrubber:
    return Scrubber(
        OsDisk(),
        logs,
        ScrubStateFile(OsDisk(), PurePath(directory / "scrub-state")),
        SystemClock(),
        ColdReads(OsDisk(), run_in_thread),
        run_in_thread,
        no_damage,
        pace=ScrubPace(
            period_ms=period_ms,
            max_bytes_per_second=BrokerConfig.model_fields["scrub_bytes_per_second"].default,
            cpu_percent=BrokerConfig.model_fields["scrub_cpu_percent"].default,
        ),
        cpu_seconds=time.thread_time,
    )


async def full_rate(scrubber: Scrubber) -> float:
    """Returns the speed of one pass in MB/s."""
    passes = scrubber.progress().passes
    began = time.perf_counter()
    scrubber.begin_pass(full_rate=True)
    while scrubber.progress().passes == passes:  # noqa: ASYNC110 - it has no event
        await asyncio.sleep(0.01)
    return scrubber.progress().last_pass_bytes / 1e6 / (time.perf_counter() - began)


async def cpu_share(scrubber: Scrubber) -> tuple[float, float]:
    """Returns the share of one processor in percent, and MB/s, at the default maximum rate."""
    await asyncio.sleep(1)  # The scrubber loads its state.
    scrubber.begin_pass(full_rate=False)
    checked, cpu = scrubber.progress().bytes_checked, time.process_time()
    began = time.perf_counter()
    await asyncio.sleep(DEFAULT_RATE_SECONDS)
    seconds = time.perf_counter() - began
    share = 100 * (time.process_time() - cpu) / seconds
    return share, (scrubber.progress().bytes_checked - checked) / 1e6 / seconds


async def at_work(
    directory: Path, logs: LogDirectory, period_ms: int, measure: Callable[[Scrubber], Awaitable[T]]
) -> T:
    scrubber = new_scrubber(directory, logs, period_ms=period_ms)
    task = asyncio.create_task(scrubber.run())
    try:
        return await measure(scrubber)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def full_rates(scrubber: Scrubber) -> list[float]:
    return [await full_rate(scrubber) for _ in range(ROUNDS)]


async def measure(directory: Path, console: Console) -> list[Measured]:
    logs = LogDirectory(OsDisk(), PurePath(directory), SystemClock())
    logs.open_all()
    write_logs(logs)
    total = REPLICAS * REPLICA_BYTES
    console.print(
        f"{total / 1e6:,.0f} MB in {REPLICAS} replicas, batches of {BATCH_BYTES / 1e3:.0f} kB"
    )
    rates = await at_work(directory, logs, 0, full_rates)
    share, rate = await at_work(directory, logs, 1, cpu_share)
    logs.close()
    fastest, slowest = max(rates), min(rates)
    return [
        at_least(
            f"scrub at full rate, median of {ROUNDS} passes",
            statistics.median(rates),
            MIN_FULL_RATE_MB_S,
            "MB/s",
        ),
        Measured("scrub at full rate, slowest pass", slowest, "MB/s"),
        Measured("scrub at full rate, fastest pass", fastest, "MB/s"),
        at_most("scrub at its default rate: processor", share, MAX_DEFAULT_CPU_PERCENT, "%"),
        Measured("scrub at its default rate", rate, "MB/s"),
    ]


if __name__ == "__main__":
    sys.exit(run_alone("bench-scrub", measure))
