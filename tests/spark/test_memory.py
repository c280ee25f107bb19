"""The memory of a task that reads.

It does not grow with the log. It has room for a few of the largest batches once they are
decompressed, whatever their size on the wire."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from integration.wire_client import WireClient
from spark.reading_process import BUFFER_BYTES
from spark.running import READY_TIMEOUT_S, Running
from tidelog.model import Batch, Codec
from tidelog.record_batch import encode
from tidelog.record_limits import RECORD_LIMITS
from tidelog.rpc.wire import batch_to_wire

ROOT = Path(__file__).parents[2]
VALUE = bytes(1_000)
SMALL, LARGE = 20_000, 200_000
# For the allocator, and for how full buffers happen to be.
TOLERANCE_MB = 16.0


def max_rss_mb(cluster: Running, topic: str, records: int) -> float:
    run = subprocess.run(
        [sys.executable, "-m", "spark.reading_process", cluster.bootstrap, topic, str(records)],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, (ROOT / "libs", ROOT / "tests"))),
        },
        capture_output=True,
        text=True,
        timeout=READY_TIMEOUT_S,
        check=True,
    )
    report = json.loads(run.stdout)
    assert report["records"] == records
    return float(report["max_rss_mb"])


def test_a_task_takes_no_more_memory_for_ten_times_as_much(cluster: Running) -> None:
    topic = cluster.new_topic(partitions=1)
    for _ in range(LARGE // SMALL):
        cluster.fill(topic, 0, [VALUE] * SMALL)
    small = max_rss_mb(cluster, topic, SMALL)
    large = max_rss_mb(cluster, topic, LARGE)
    # Both fill their buffers.
    assert SMALL * len(VALUE) > 4 * BUFFER_BYTES
    assert large - small < TOLERANCE_MB, (small, large)


# Together they would take a gigabyte.
BOMBS = 16
TIME_MS = 1_700_000_000_000


def most_expensive() -> list[Batch]:
    """The most decoded bytes, headers and records that a batch may have."""
    bomb = encode(
        [bytes(RECORD_LIMITS.max_decoded_bytes - 1_024)], timestamps_ms=TIME_MS, codec=Codec.ZSTD
    )
    of_record = tuple(("", b"") for _ in range(RECORD_LIMITS.max_headers_per_record))
    with_headers = range(RECORD_LIMITS.max_batch_headers // len(of_record))
    headers = encode(
        [b""] * len(with_headers),
        headers=dict.fromkeys(with_headers, of_record),
        codec=Codec.ZSTD,
        timestamps_ms=TIME_MS,
    )
    records = encode(
        [b""] * RECORD_LIMITS.max_batch_records, timestamps_ms=TIME_MS, codec=Codec.ZSTD
    )
    return [*[bomb] * BOMBS, headers, records]


def append(cluster: Running, topic: str, batches: list[Batch]) -> None:
    async def produce() -> None:
        address = cluster.local.broker_address(cluster.leader_of(topic, 0))
        async with WireClient(address) as client:
            for batch in batches:
                result = await client.produce(topic, 0, batch_to_wire(batch))
                assert not result.HasField("error"), result.error

    cluster.run(produce())


def test_a_task_opens_one_of_the_most_expensive_batches_at_a_time(cluster: Running) -> None:
    topic = cluster.new_topic(partitions=1, max_batch_records=str(RECORD_LIMITS.max_batch_records))
    batches = most_expensive()
    append(cluster, topic, batches)
    assert sum(len(batch.records) for batch in batches) < BUFFER_BYTES, "one fetch has them all"
    records = sum(batch.header.record_count for batch in batches)
    one, all_of_them = (max_rss_mb(cluster, topic, end) for end in (1, records))
    one_more_mb = RECORD_LIMITS.max_decoded_bytes / (1 << 20)
    assert all_of_them - one < one_more_mb + TOLERANCE_MB, (one, all_of_them)
