"""Every public call that takes a list × a list longer than one request may be."""

from __future__ import annotations

import asyncio
import inspect
import random
from types import MappingProxyType
from typing import Any

import pytest

from tidelog.admin_messages import Move, RecoveryChoice
from tidelog.client import Admin, Consumer, Producer
from tidelog.client.request_parts import MAX_REQUESTS_AT_ONCE
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import TopicPartition
from tidelog.request_bounds import (
    MAX_DESCRIBE_PRODUCERS_PARTITIONS,
    MAX_ENTRIES_PER_REQUEST,
    MAX_FETCH_PARTITIONS,
    MAX_TOPIC_NAME_LENGTH,
)
from unit.client.contract_calls import CLIENTS, PublicCall, arguments_of, public_calls
from unit.client.fake_broker import FakeCluster
from unit.client.memory_connections import MemoryConnections, check_bounds
from unit.metadata.virtual_time import run, virtual_clock

# More bytes than a request may have, too, where each entry names its topic.
TOPIC = "t" * MAX_TOPIC_NAME_LENGTH
PARTITION_COUNT = 2 * max(MAX_FETCH_PARTITIONS, MAX_DESCRIBE_PRODUCERS_PARTITIONS) + 500
MANY = MAX_ENTRIES_PER_REQUEST + 1
PARTITIONS = [TopicPartition(TOPIC, number) for number in range(PARTITION_COUNT)]
NAMES = [f"{'n' * (MAX_TOPIC_NAME_LENGTH - 6)}{number}" for number in range(MANY)]

# By the name of the parameter: add a value here for every new name.
LISTS: MappingProxyType[str, Any] = MappingProxyType(
    {
        "assignment": [[0]] * MANY,
        "broker_ids": range(MANY),
        "changed": {f"key-{number}": "1" for number in range(MANY)},
        "choices": [RecoveryChoice(number, 0) for number in range(MANY)],
        "config": {f"key-{number}": "1" for number in range(MANY)},
        "headers": [(f"h-{number}", b"") for number in range(MANY)],
        "keys": [b"k"] * MANY,
        "kinds": ["rebalance"] * MANY,
        "known": dict.fromkeys(NAMES, 1),
        "leaders": dict.fromkeys(PARTITIONS, 0),
        "moves": [Move(*partition, (0,)) for partition in PARTITIONS],
        "names": [*NAMES, TOPIC],
        "offsets": dict.fromkeys(PARTITIONS, 0),
        "producer_ids": range(MANY),
        "states": ["running"] * MANY,
        "timestamps_ms": [1] * MANY,
        "topics": NAMES,
        "unset": [f"key-{number}" for number in range(MANY)],
        "values": [b"v"] * MANY,
    }
)
# `partitions` of one topic, by number or by topic, or of any.
NUMBERS = frozenset({"describe_producers", "describe_recovery", "recover_partitions"})
BY_TOPIC = frozenset({"elect_preferred_leaders"})
# One argument needs the other, of the same length.
COMPANIONS = MappingProxyType({"keys": ("values",), "timestamps_ms": ("values",)})
# Changes that are applied, or evaluated, as one are not divided. All other lists have to be.
REJECTED = frozenset(
    {
        ("add_brokers", "broker_ids"),
        ("add_partitions", "assignment"),
        ("alter_topic_config", "changed"),
        ("alter_topic_config", "unset"),
        ("create_topic", "assignment"),
        ("create_topic", "config"),
        ("describe_recovery", "choices"),
        ("elect_preferred_leaders", "partitions"),
        ("move_leaders", "leaders"),
        ("reassign", "moves"),
        ("recover_partitions", "choices"),
        ("recover_partitions", "partitions"),
        ("remove_brokers", "broker_ids"),
        ("send", "headers"),
        ("send_and_wait", "headers"),
        ("send_many", "headers"),
        ("set_maintenance", "broker_ids"),
        ("set_replication_factor", "topics"),
    }
)
_LIST_ANNOTATIONS = ("Sequence", "Mapping", "Iterable", "Assignment", "Headers", "Partitions")


class _Controller:
    """Accepts what a controller accepts, and answers each request with nothing."""

    controller_id = 1
    address = "controller:1"
    epoch = 1

    def __init__(self) -> None:
        self.requests: list[Any] = []

    async def call(self, request: Any, response: Any, timeout_ms: int) -> Any:  # noqa: ARG002
        self.requests.append(request)
        check_bounds(type(request).FromString(request.SerializeToString()))
        return response()


class _Connections(MemoryConnections):
    def __init__(self, cluster: FakeCluster, controller: _Controller) -> None:
        super().__init__(cluster)
        self._controller = controller

    def controller(self, address: str) -> Any:  # noqa: ARG002
        return self._controller


def new_cluster() -> tuple[FakeCluster, _Controller]:
    cluster = FakeCluster().in_memory(1)
    controller = _Controller()
    cluster.controller = controller  # type: ignore[assignment]
    cluster.create(TOPIC, [0] * PARTITION_COUNT)
    cluster.create("sea", [0])
    return cluster, controller


def new_client(client: type, cluster: FakeCluster, controller: _Controller, **more: Any) -> Any:
    return client(
        cluster.bootstrap(),
        connections=_Connections(cluster, controller),
        clock=virtual_clock(),
        rng=random.Random(1),
        **more,
    )


def long_lists() -> list[tuple[PublicCall, str]]:
    return [
        (call, name)
        for call in public_calls(*CLIENTS)
        for name, parameter in inspect.signature(
            getattr(call.client, call.method)
        ).parameters.items()
        if str(parameter.annotation).startswith(_LIST_ANNOTATIONS)
    ]


def many(call: PublicCall, parameter: str) -> Any:
    if parameter != "partitions":
        assert parameter in LISTS, f"{call} needs a long list for {parameter!r}"
        return LISTS[parameter]
    if call.method in NUMBERS:
        # More than one request may name, although there are fewer than MANY.
        return range(PARTITION_COUNT if call.method == "describe_producers" else MANY)
    return dict.fromkeys(NAMES, (0,)) if call.method in BY_TOPIC else PARTITIONS


@pytest.mark.parametrize(("call", "parameter"), long_lists(), ids=str)
def test_a_list_of_any_length_is_answered_or_rejected_before_it_is_sent(
    call: PublicCall, parameter: str
) -> None:
    async def main() -> None:
        cluster, controller = new_cluster()
        async with new_client(call.client, cluster, controller) as client:
            method = getattr(client, call.method)
            needed = arguments_of(method)
            if call.method == "describe_producers" and parameter == "partitions":
                needed["topic"] = TOPIC
            if call.client is Consumer and parameter == "partitions":
                client.assign(PARTITIONS)
            given = {name: many(call, name) for name in (parameter, *COMPANIONS.get(parameter, ()))}
            rejection: TidelogError | None = None
            try:
                result = method(**needed | given)
                if inspect.isawaitable(result):
                    await result
            except TidelogError as error:
                rejection = error
            if (call.method, parameter) not in REJECTED:
                assert rejection is None
                return
            assert rejection is not None
            assert rejection.code in (ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_BATCH)
            assert not rejection.retriable
            assert not controller.requests, "nothing of it has been carried out"

    run(main())


def test_every_answer_to_a_divided_request_is_returned() -> None:
    async def main() -> None:
        cluster, controller = new_cluster()
        numbers = range(PARTITION_COUNT)
        async with new_client(Consumer, cluster, controller) as consumer:
            assert set(await consumer.end_offsets(PARTITIONS)) == set(PARTITIONS)
            epochs = await consumer.record_epochs(dict.fromkeys(PARTITIONS, 0))
            assert set(epochs) == set(PARTITIONS)
        async with new_client(Admin, cluster, controller) as admin:
            assert [t.name for t in await admin.find_topics([*NAMES, TOPIC])] == [TOPIC]
            assert set(await admin.describe_producers(TOPIC)) == set(numbers)
            found = await admin.describe_producers(TOPIC, producer_ids=range(MANY))
            assert set(found) == set(numbers)
            identity = await admin.init_producer_id("a-name")
            counts = await admin.partition_counts(
                "a-name", identity.producer_epoch, dict.fromkeys(NAMES, 3)
            )
            assert counts == dict.fromkeys(NAMES, 3)

    run(main())


def test_few_parts_of_a_request_are_sent_to_a_leader_at_once() -> None:
    async def main() -> None:
        cluster, controller = new_cluster()
        at_once = most = 0
        connections: Any = _Connections(cluster, controller)
        reach = connections.broker

        def counted(address: str) -> Any:
            broker: Any = reach(address)
            describe = broker.describe_producers

            async def describe_producers(*arguments: Any) -> Any:
                nonlocal at_once, most
                at_once += 1
                most = max(most, at_once)
                try:
                    return await describe(*arguments)
                finally:
                    at_once -= 1

            broker.describe_producers = describe_producers
            return broker

        connections.broker = counted
        many_partitions = 6 * MAX_DESCRIBE_PRODUCERS_PARTITIONS
        cluster.create("wide", [0] * many_partitions)
        async with Admin(
            cluster.bootstrap(), connections=connections, clock=virtual_clock()
        ) as admin:
            assert len(await admin.describe_producers("wide")) == many_partitions
        assert most == MAX_REQUESTS_AT_ONCE

    run(main())


def test_a_named_producer_finds_its_positions_in_more_partitions_than_a_request_names() -> None:
    async def main() -> None:
        cluster, controller = new_cluster()
        async with new_client(
            Producer, cluster, controller, producer_name="a-name", linger_ms=0
        ) as producer:
            deliveries = [
                await producer.send(TOPIC, b"v", partition=number)
                for number in range(PARTITION_COUNT)
            ]
            await producer.flush()
            assert all(delivery.result().offset == 0 for delivery in deliveries)

    run(main())


def test_a_consumer_finds_the_ends_of_more_topics_than_its_requests_name() -> None:
    async def main() -> None:
        cluster, controller = new_cluster()
        for name in NAMES:
            cluster.create(name, [0])
        async with new_client(Producer, cluster, controller) as producer:
            await (await producer.send(NAMES[-1], b"v"))
        async with new_client(Consumer, cluster, controller, max_wait_ms=1) as consumer:
            consumer.assign((name, 0) for name in NAMES)
            assert [record.topic for record in await consumer.poll(60_000)] == [NAMES[-1]]

    run(main())


def test_an_error_of_every_broker_is_reported_unchanged() -> None:
    async def main() -> None:
        cluster, controller = new_cluster()
        rejected = TidelogError(ErrorCode.INVALID_REQUEST, "no broker takes this")

        def reject() -> Any:
            raise rejected

        cluster.brokers[0].metadata_of = reject
        async with new_client(Admin, cluster, controller) as admin, asyncio.timeout(1):
            with pytest.raises(TidelogError, match="no broker takes this") as raised:
                await admin.list_topics()
        assert not raised.value.retriable

    run(main())
