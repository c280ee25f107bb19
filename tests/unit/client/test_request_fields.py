"""Values that no field of a request can hold are rejected before a request is sent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from tidelog.admin_messages import Move
from tidelog.client import Admin
from tidelog.client.request_fields import built
from tidelog.client.sequences import Identity
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import TopicPartition
from tidelog.v1 import admin_pb2 as pb
from unit.client.fake_broker import FakeCluster

NO_UTF8 = "s\udcff"


def test_values_in_range_are_in_the_message() -> None:
    assert built(pb.AddBrokersRequest, broker_ids=[4, 5]) == pb.AddBrokersRequest(broker_ids=[4, 5])


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: built(pb.CreateTopicRequest, topic="sea", partitions=-3_000_000_000),
            "partitions -3000000000 cannot be sent; give a number from 0 to 2147483647",
        ),
        (
            lambda: built(pb.AddBrokersRequest, broker_ids=[1, 2**31]),
            "broker_ids 2147483648 cannot be sent; give a number from 0 to 2147483647",
        ),
        (
            lambda: built(pb.Throttle, bytes_per_second=2**63),
            "bytes_per_second 9223372036854775808 cannot be sent; give a number from 0 to "
            "9223372036854775807",
        ),
        (
            lambda: built(pb.AlterTopicConfigRequest, set={"flush": NO_UTF8}),
            "set 's\\udcff' cannot be sent, because it is no text in UTF-8; correct its characters",
        ),
    ],
)
def test_the_rejection_names_the_field_and_its_range(
    build: Callable[[], object], message: str
) -> None:
    with pytest.raises(TidelogError) as caught:
        build()
    assert (caught.value.code, caught.value.message) == (ErrorCode.INVALID_REQUEST, message)


@pytest.mark.parametrize(
    "ask",
    [
        lambda admin: admin.create_topic("sea", partitions=2**31),
        lambda admin: admin.create_topic("sea", assignment=[(2**31,)]),
        lambda admin: admin.alter_topic_config("sea", unset=[NO_UTF8]),
        lambda admin: admin.reassign([Move("sea", 0, (2**31,))]),
        lambda admin: admin.move_leaders({TopicPartition("sea", 2**31): 1}),
        lambda admin: admin.elect_preferred_leaders({NO_UTF8: [0]}),
        lambda admin: admin.check_restart(2**31),
        lambda admin: admin.cancel_operation("op", expected_revision=2**63),
        lambda admin: admin.set_throttle(2**63),
        lambda admin: admin.topic_details([NO_UTF8]),
        lambda admin: admin.describe_topic(NO_UTF8),
        lambda admin: admin.init_producer_id(NO_UTF8),
        lambda admin: admin.describe_producers(NO_UTF8),
        lambda admin: admin.describe_producers("sea", producer_ids=[2**63]),
        lambda admin: admin.describe_producers("sea", fence=Identity(1, 2**31)),
    ],
)
async def test_every_unencodable_request_of_the_client_raises_the_same_error(
    cluster: FakeCluster, ask: Callable[[Admin], Awaitable[object]]
) -> None:
    async with Admin(cluster.bootstrap()) as admin:
        with pytest.raises(TidelogError, match=r"cannot be sent|give an integer from") as caught:
            await ask(admin)
        assert caught.value.code is ErrorCode.INVALID_REQUEST
        # A rejected name does not affect later requests.
        assert [topic.name for topic in await admin.list_topics()] == ["sea"]
