"""Real clusters of several sizes, one after the other."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

from bench.scale.cluster_quantities import BOUNDED_SIZE, QUANTITIES
from bench.scale.cluster_run import STEPS, measure
from bench.scale.quantities import outcome
from bench.suite.outcome import Outcome
from bench.suite.progress import Display
from bench.suite.settings import Settings
from bench.worker import Worker


async def run(directory: Path, settings: Settings, display: Display) -> Outcome:
    display.begin("scale", len(STEPS) * len(settings.sizes))
    sizes = []
    async with Worker("client") as worker:
        for partitions in settings.sizes:
            of_size = directory / f"scale-{partitions}"
            sizes.append(await measure(of_size, partitions, settings, display, worker))
            await asyncio.to_thread(shutil.rmtree, of_size)
    title = "Cost of three brokers, factor 3, with all partitions led by one"
    return outcome("scale", title, QUANTITIES, BOUNDED_SIZE, sizes)
