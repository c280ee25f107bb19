"""Processor time of brokers to which nobody writes or reads: what a partition costs that
stands still."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from tidelog.client import Admin
from tidelog_runtime.local.cluster import LocalCluster

TOPIC = "idle"
REPLICATION_FACTOR = 3
SETTLE_S = 15.0
MEASURE_S = 30.0


def cpu_seconds(pid: int) -> float:
    """Of a process since its start, in user and system mode, from the kernel."""
    # The name, in parentheses, may hold spaces; user time is the 12th field after it.
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")


async def cpu_percent(directory: Path, partitions: int) -> float:
    """Of one core, the mean of all brokers of an idle cluster of its own."""
    cluster = LocalCluster(directory, usual_ports=False)
    await cluster.start()
    try:
        await cluster.ready()
        async with Admin(cluster.bootstrap) as admin:
            await admin.create_topic(TOPIC, partitions, REPLICATION_FACTOR, timeout_ms=60_000)
        await asyncio.sleep(SETTLE_S)
        pids = [broker.pid for broker in cluster.describe().brokers if broker.pid is not None]
        before = sum(map(cpu_seconds, pids))
        await asyncio.sleep(MEASURE_S)
        spent = sum(map(cpu_seconds, pids)) - before
        return 100 * spent / MEASURE_S / len(pids)
    finally:
        await cluster.stop()
