"""Runs contract tests on the simulator's event loop, in its virtual time.

pytest runs async tests on asyncio's own loop, which the simulator cannot use."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Iterator
from itertools import product
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from doubles.memory_data import MemoryData
from simulation.loop import SimLoop, SimProcess
from simulation.network import Network
from simulation.store import EtcdServer, SimStore
from tidelog_runtime.metadata.store import MetadataStore


class SimHarness:
    """A `StoreHarness`."""

    def __init__(self) -> None:
        self.prefix = "/test/"
        self.loop = SimLoop()  # type: ignore[abstract]  # lacks unused methods
        self.process = SimProcess("client", 1, observed=False)
        self._network = Network(self.loop, lambda name: random.Random(name))
        self._server = EtcdServer(self.loop, self._network, MemoryData())
        self.store: MetadataStore = self.another_client()

    def another_client(self) -> MetadataStore:
        return SimStore(self._server, self._network, self.process)

    async def compact(self) -> None:
        self._server.data.compact(self._server.data.revision)

    async def take_lease_away(self, lease_id: int) -> None:
        self._server.end_lease(lease_id)

    async def close(self) -> None:
        await self.store.close()


class Case(NamedTuple):
    """One test of a class, with the arguments of `parametrize`."""

    owner: type
    name: str
    arguments: dict[str, Any]

    def __str__(self) -> str:
        given = "".join(f"[{value}]" for value in self.arguments.values())
        return f"{self.owner.__name__}.{self.name}{given}"

    def run(self, harness: SimHarness) -> None:
        """Raises what the test raises."""
        fixtures = {"harness": harness, "store": harness.store, "prefix": harness.prefix}
        test: Callable[..., Any] = getattr(self.owner(), self.name)
        used = [name for name in inspect.signature(test).parameters if name in fixtures]

        async def main() -> None:
            given = {name: fixtures[name] for name in used}
            await harness.loop.spawn(harness.process, test(**given, **self.arguments))
            await harness.loop.spawn(harness.process, harness.close())

        try:
            harness.loop.run(main())
        finally:
            harness.loop.close()


def cases(module: ModuleType) -> Iterator[Case]:
    """Every test of the module's classes."""
    for class_name, owner in vars(module).items():
        if class_name.startswith("Test") and inspect.isclass(owner):
            for name, test in vars(owner).items():
                if name.startswith("test_"):
                    yield from (Case(owner, name, given) for given in _arguments(test))


def _arguments(test: Callable[..., Any]) -> Iterator[dict[str, Any]]:
    marks: list[pytest.Mark] = getattr(test, "pytestmark", [])
    choices = [
        [{mark.args[0]: value} for value in mark.args[1]]
        for mark in marks
        if mark.name == "parametrize"
    ]
    for chosen in product(*choices):
        yield {name: value for choice in chosen for name, value in choice.items()}
