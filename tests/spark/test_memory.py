"""What a task that reads takes of memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from spark.reading_process import BUFFER_BYTES
from spark.running import READY_TIMEOUT_S, Running

ROOT = Path(__file__).parents[2]
VALUE = bytes(1_000)
SMALL, LARGE = 20_000, 200_000
# Of the allocator, and of how full buffers happen to be.
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
    told = json.loads(run.stdout)
    assert told["records"] == records
    return float(told["max_rss_mb"])


def test_a_task_takes_no_more_memory_for_ten_times_as_much(cluster: Running) -> None:
    topic = cluster.new_topic(partitions=1)
    for _ in range(LARGE // SMALL):
        cluster.fill(topic, 0, [VALUE] * SMALL)
    small = max_rss_mb(cluster, topic, SMALL)
    large = max_rss_mb(cluster, topic, LARGE)
    # Both fill their buffers.
    assert SMALL * len(VALUE) > 4 * BUFFER_BYTES
    assert large - small < TOLERANCE_MB, (small, large)
