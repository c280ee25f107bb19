"""How fast the scrub checks a broker's logs at full rate, and how much of a processor it takes at
its default rate (`python -m bench.scrub [DIRECTORY]`).

Reads real files past the page cache: give a directory on the disk in question. Targets: 200 MB/s
and 1 % of a processor."""

from __future__ import annotations

import asyncio
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path, PurePath

from tidelog.batch import new_batch, stamp
from tidelog.model import Codec, TopicPartition
from tidelog_broker.__main__ import run_in_thread
from tidelog_broker.config import BrokerConfig
from tidelog_broker.log.disk import OsDisk
from tidelog_broker.log.errors import LogError
from tidelog_broker.partition.replica_key import ReplicaKey
from tidelog_broker.storage.log_directory import LogDirectory
from tidelog_broker.storage.scrub_state import ScrubStateFile
from tidelog_broker.storage.scrubber import Scrubber
from tidelog_runtime.clock import SystemClock
from tidelog_runtime.topic_config import TopicConfig

REPLICAS = 8
REPLICA_BYTES = 128 << 20
BATCH_BYTES = 16 << 10
BATCHES_PER_APPEND = 64
ROUNDS = 5
DEFAULT_RATE_SECONDS = 30.0


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


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
    most = BrokerConfig.model_fields["scrub_bytes_per_second"].default
    return Scrubber(
        OsDisk(),
        logs,
        ScrubStateFile(OsDisk(), PurePath(directory / "scrub-state")),
        SystemClock(),
        run_in_thread,
        no_damage,
        period_ms=period_ms,
        max_bytes_per_second=most,
        cpu_seconds=time.thread_time,
    )


async def full_rate(scrubber: Scrubber) -> float:
    """MB/s of one pass."""
    passes = scrubber.progress().passes
    began = time.perf_counter()
    scrubber.begin_pass(full_rate=True)
    while scrubber.progress().passes == passes:  # noqa: ASYNC110 - it has no event
        await asyncio.sleep(0.01)
    return scrubber.progress().last_pass_bytes / 1e6 / (time.perf_counter() - began)


async def cpu_share(scrubber: Scrubber) -> tuple[float, float]:
    """Of one processor, in percent, and MB/s, at the rate of a period that its limit cuts short."""
    await asyncio.sleep(1)  # until it has read its state
    scrubber.begin_pass(full_rate=False)
    checked, cpu = scrubber.progress().bytes_checked, time.process_time()
    began = time.perf_counter()
    await asyncio.sleep(DEFAULT_RATE_SECONDS)
    seconds = time.perf_counter() - began
    share = 100 * (time.process_time() - cpu) / seconds
    return share, (scrubber.progress().bytes_checked - checked) / 1e6 / seconds


async def measure(directory: Path) -> None:
    logs = LogDirectory(OsDisk(), PurePath(directory), SystemClock())
    logs.open_all()
    write_logs(logs)
    total = REPLICAS * REPLICA_BYTES
    say(f"{total / 1e6:,.0f} MB in {REPLICAS} replicas, batches of {BATCH_BYTES / 1e3:.0f} kB")
    for period_ms, measured in ((0, "full"), (1, "default")):
        scrubber = new_scrubber(directory, logs, period_ms=period_ms)
        task = asyncio.create_task(scrubber.run())
        try:
            if measured == "full":
                rates = [await full_rate(scrubber) for _ in range(ROUNDS)]
                say(
                    f"at full rate: {statistics.median(rates):,.0f} MB/s, median of {ROUNDS} "
                    f"({min(rates):,.0f} to {max(rates):,.0f})"
                )
            else:
                share, rate = await cpu_share(scrubber)
                say(f"at its limit by default: {share:.2f} % of a processor, {rate:.1f} MB/s")
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    logs.close()


def main() -> None:
    parent = sys.argv[1] if len(sys.argv) > 1 else None
    directory = Path(tempfile.mkdtemp(prefix="bench-scrub-", dir=parent))
    try:
        asyncio.run(measure(directory))
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
