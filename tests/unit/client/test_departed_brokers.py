"""The description of a cluster includes departed brokers, if the controller can be reached."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tidelog.admin_messages import BrokerDetails
from tidelog.client import departed_brokers
from tidelog.client.departed_brokers import describe_with_departed_brokers
from tidelog.client.descriptions import ClusterDescription
from tidelog.errors import ErrorCode, TidelogError
from unit.admin_api.fakes import FakeAdmin


class Without(FakeAdmin):
    """A client without a controller: none is active, or it fails, or it never answers."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault = fault

    async def describe_cluster(self) -> ClusterDescription:
        described = await super().describe_cluster()
        return replace(described, controller=None) if self.fault == "none" else described

    async def describe_brokers(self, broker_ids: Sequence[int] = ()) -> list[BrokerDetails]:
        assert self.fault != "none", f"no controller can be asked for {broker_ids}"
        if self.fault == "silent":
            await asyncio.Event().wait()
        raise TidelogError(ErrorCode.NOT_CONTROLLER, "ask another")


@pytest.mark.parametrize("fault", ["none", "error", "silent"])
async def test_without_a_controller_a_departed_broker_has_no_address(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(departed_brokers, "ADDRESSES_TIMEOUT_SECONDS", 0.01)
    described, topics = await describe_with_departed_brokers(Without(fault))
    assert [(b.broker_id, b.status, b.address) for b in described.brokers] == [
        (1, "running", "127.0.0.1:7501"),
        (2, "gone", ""),
        (3, "gone", ""),
    ]
    assert [topic.name for topic in topics] == ["sea"]
    assert described.brokers[0].state == described.brokers[0].status
