"""Tests of the broker run on virtual time: what waits for a timer has it at once, and what
waits for nothing at all fails the test."""

from collections.abc import Callable, Mapping

from unit.metadata.virtual_time import VirtualTimeLoop


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], VirtualTimeLoop]]:
    return {"virtual time": VirtualTimeLoop}
