"""A watch that is late, while the store's answers are not."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from typing import Any

import pytest

from doubles.memory_data import MemoryData
from simulation.loop import SimLoop, SimProcess
from simulation.network import Network
from simulation.scenario import run_seed
from simulation.store import EtcdServer, SimStore
from simulation.stored_plans import DIRECTORY, read_plan
from tidelog_runtime.metadata.store import Put, Transaction

PLAN = read_plan(DIRECTORY / "members-back-before-leader-lost.txt")
# Longer than any message takes.
SOON_S = 1.0


class Watched:
    """A store with two clients; `seen` has the keys that the watch of the first has brought."""

    def __init__(self) -> None:
        self.loop = SimLoop()  # type: ignore[abstract]
        network = Network(self.loop, lambda name: random.Random(name))
        self.server = EtcdServer(self.loop, network, MemoryData())
        self.late, self.punctual = SimProcess("late", 1), SimProcess("punctual", 1)
        self.stores = {p: SimStore(self.server, network, p) for p in (self.late, self.punctual)}
        self.seen: dict[SimProcess, list[str]] = {p: [] for p in self.stores}

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        async def main() -> None:
            for process in self.stores:
                self.loop.spawn(process, self._watch(process))
            await asyncio.sleep(SOON_S)
            await self.loop.spawn(self.late, work)

        self.loop.run(main())

    async def _watch(self, process: SimProcess) -> None:
        store = self.stores[process]
        async for changes in store.watch(await store.snapshot("/")):
            self.seen[process] += [change.key for change in changes]

    async def put(self, key: str) -> int:
        """Writes a key in the name of the late process, and returns the revision."""
        result = await self.stores[self.late].transact(Transaction([], [Put(key, b"")]))
        await asyncio.sleep(SOON_S)
        return result.revision


@pytest.fixture
def watched() -> Any:
    watched = Watched()
    yield watched
    watched.loop.close()


def test_a_late_watch_ends_at_its_revision_while_other_watches_and_answers_do_not(
    watched: Watched,
) -> None:
    async def work() -> None:
        watched.server.delay_watches(watched.late, await watched.put("/a"))
        await watched.put("/b")
        assert await watched.stores[watched.late].get("/b") is not None

    watched.run(work())
    assert watched.seen == {watched.late: ["/a"], watched.punctual: ["/a", "/b"]}


def test_a_later_revision_shows_what_was_written_up_to_it(watched: Watched) -> None:
    async def work() -> None:
        watched.server.delay_watches(watched.late, watched.server.data.revision)
        shown = await watched.put("/a")
        await watched.put("/b")
        assert watched.seen[watched.late] == []
        watched.server.delay_watches(watched.late, shown)
        await asyncio.sleep(SOON_S)

    watched.run(work())
    assert watched.seen[watched.late] == ["/a"]


def test_a_watch_that_is_no_longer_late_brings_everything(watched: Watched) -> None:
    async def work() -> None:
        watched.server.delay_watches(watched.late, watched.server.data.revision)
        assert not watched.server.serves_watches("late")
        await watched.put("/a")
        watched.server.delay_no_more(watched.late)
        await asyncio.sleep(SOON_S)

    watched.run(work())
    assert watched.seen[watched.late] == ["/a"]
    assert watched.server.serves_watches("late")


def test_the_stored_plan_still_reaches_the_write_that_overtakes_the_watch() -> None:
    assert PLAN.seed is not None
    result = run_seed(PLAN.seed, PLAN.faults)
    assert (result.violation, dict(result.faults)) == (None, {"late_watch": 1})
