"""Disks whose data is not always in memory: nothing is violated when readers wait for threads.

The chance is drawn apart from the seed, so that the seeds of other tests keep their meaning.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from simulation.disk import SimFile
from simulation.scenario import run_seed
from tidelog_broker.core.partition.replica_log import ColdRange, ReplicaLog
from tidelog_broker.storage.cold_reads import ColdReads

COLD_PROBABILITY = 0.1


class _Chance:
    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self.cold = 0

    def read_cached(self, file: SimFile, size: int, position: int) -> bytes:
        held = size
        if self._rng.random() < COLD_PROBABILITY:
            self.cold += 1
            held = self._rng.randrange(size + 1)
        return file.read_at(held, position) if held else b""


@pytest.mark.rule("disk-reads-off-event-loop")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", [2, 100, 210, 257])
def test_nothing_is_violated_where_data_are_cold(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = _Chance(seed)
    begin = ColdReads.begin
    begun = 0

    def counted(self: ColdReads, log: ReplicaLog, cold: ColdRange, woken: asyncio.Event) -> None:
        nonlocal begun
        begun += 1
        begin(self, log, cold, woken)

    monkeypatch.setattr(SimFile, "read_cached", lambda file, *args: chance.read_cached(file, *args))
    monkeypatch.setattr(ColdReads, "begin", counted)
    result = run_seed(seed)
    assert result.violation is None, result.message
    assert chance.cold >= begun > 0
