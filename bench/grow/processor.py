"""The processor time of a cluster's parts, which is nearly independent of other load."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from multiprocessing import active_children
from typing import NamedTuple

from bench.process_figures import cpu_seconds
from tidelog_runtime.local.cluster import LocalCluster


class ProcessorTime(NamedTuple):
    """Processor seconds by part, and the time at which they were read."""

    at_s: float
    seconds: Mapping[str, float]


def processor_time(cluster: LocalCluster) -> ProcessorTime:
    """Returns the processor time of each part.

    `load` is the process that sends the load, and this one, which polls the cluster.
    """
    parts = cluster.describe()
    pids: dict[str, list[int | None]] = {
        "brokers": [broker.pid for broker in parts.brokers],
        "controllers": [controller.pid for controller in parts.controllers],
        "etcd": [cluster.etcd.process.pid if cluster.etcd is not None else None],
        "load": [os.getpid(), *(child.pid for child in active_children())],
    }
    seconds = {
        part: sum(cpu_seconds(pid) for pid in of_part if pid is not None)
        for part, of_part in pids.items()
    }
    return ProcessorTime(time.perf_counter(), seconds)


def cores(before: ProcessorTime, after: ProcessorTime) -> dict[str, float]:
    """Returns the average number of cores that each part kept busy between two readings."""
    elapsed_s = after.at_s - before.at_s
    return {
        part: round((after.seconds[part] - before.seconds[part]) / elapsed_s, 3)
        for part in before.seconds
    }
