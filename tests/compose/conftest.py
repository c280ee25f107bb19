"""One composed cluster for the whole suite: it is intact before and after each test.

The suite has its own tests. Those of tests/integration start, configure and break processes and
files of this machine. Of these, this suite repeats on containers the documented tour, failover of a
leader and of a controller, the command line, data that outlive a process, and orderly stops. Only
this suite shows that the engine restarts a dead container."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from collected import own_items
from compose.engine import EngineError
from compose.stack import LOGS, Stack

# A test that times out still removes its containers.
signal.signal(signal.SIGTERM, signal.default_int_handler)

# The first test also waits for the images.
TEST_TIMEOUT_S = 1_800


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in own_items(items, __file__):
        item.add_marker(pytest.mark.timeout(TEST_TIMEOUT_S))


@pytest.fixture(scope="session")
def stack(request: pytest.FixtureRequest) -> Iterator[Stack]:
    cluster = Stack()
    try:
        cluster.up()
        yield cluster
    except EngineError as error:
        pytest.exit(str(error), returncode=1)
    finally:
        if request.session.testsfailed:
            cluster.save_logs(LOGS)
        cluster.down()
