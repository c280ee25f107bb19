"""One composed cluster for the whole suite: it is whole before each test, and after each.

The tests are its own. Those of tests/integration start, configure and break processes and files of
this machine; of what they show, this suite repeats on containers the documented tour, failover of a
leader and of a controller, the command line, data that outlive a process, and orderly stops. That
the engine starts again what has died it shows alone.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from collected import own_items
from compose.engine import EngineError
from compose.stack import LOGS, Stack

# Whose time is up removes its containers all the same.
signal.signal(signal.SIGTERM, signal.default_int_handler)

# The first test waits for the images, too.
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
