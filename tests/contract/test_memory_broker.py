"""`MemoryBroker` keeps the contract of brokers that clusters keep (`integration`)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from contract.client_contract import ClientContract
from tidelog.testing import MemoryBroker


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with MemoryBroker() as broker:
        yield broker.bootstrap


class TestMemoryBroker(ClientContract):
    """All tests of the contract."""
