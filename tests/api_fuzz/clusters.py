"""The cluster whose gateway is tested."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from integration.clusters import running_cluster
from tidelog_runtime.local.process import LocalProcess

BROKERS = 4
# Cases follow each other at once; one is rejected while the operation of the previous one runs.
UNPACED = {"move_step_interval_ms": 0, "handover_interval_ms": 0}


class Fuzzed(NamedTuple):
    """`process`: of the gateway, at `url`."""

    bootstrap: str
    brokers: tuple[int, ...]
    url: str
    process: LocalProcess


@asynccontextmanager
async def fuzzed_cluster(directory: Path) -> AsyncIterator[Fuzzed]:
    async with running_cluster(
        directory, brokers=BROKERS, gateway=True, controller_config=UNPACED
    ) as cluster:
        yield Fuzzed(
            cluster.bootstrap,
            tuple(cluster.broker_ids),
            f"http://{cluster.gateway_address}",
            cluster.gateway_process,
        )
