"""Tests of the broker run on virtual time. Timers fire without delay, and a test that waits for
nothing fails.
"""

from collections.abc import Callable, Mapping

from unit.metadata.virtual_time import VirtualTimeLoop


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], VirtualTimeLoop]]:
    return {"virtual time": VirtualTimeLoop}
