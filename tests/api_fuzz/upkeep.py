"""Keeps a cluster usable while cases create, move and delete things."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from api_fuzz.grounding import Facts, KnownTopic
from tidelog.admin_messages import Move
from tidelog.client import Admin
from tidelog.client.sync import SyncAdmin, SyncProducer
from tidelog.errors import ErrorCode, TidelogError

TOPICS = ("fuzz-bay", "fuzz-reef", "fuzz-sea")
FACTOR, PARTITIONS = 2, 3
RECORDS = 20
# Enough that copying it takes longer than a cancellation, at the lowest throttle.
LARGE_RECORDS, LARGE_BYTES = 40, 10_000
SLOWEST_BYTES_PER_SECOND = 1_024
# Topics that cases have created are deleted once there are so many.
MAX_STRANGERS = 8

# A longer operation waits for resources that cases have removed, and is cancelled.
SETTLED_S, PAUSE_S = 30.0, 0.02

_PASSES = (
    ErrorCode.OPERATION_ENDED,
    ErrorCode.PARTITION_BUSY,
    ErrorCode.TOPIC_BEING_DELETED,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)


class Upkeep:
    """`brokers`: all brokers that the cluster should have."""

    def __init__(self, bootstrap: str, brokers: tuple[int, ...]) -> None:
        self._admin = SyncAdmin(bootstrap)
        self._producer = SyncProducer(bootstrap)
        self._brokers = brokers
        self._numbers = itertools.count()
        self._cancelled = ""

    def close(self) -> None:
        self._producer.close()
        self._admin.close()

    def restore(self) -> Facts:
        """Restores what cases have removed, and returns the facts about the cluster."""
        self._admin.ask(self._restore)
        topics = tuple(self._known(name) for name in TOPICS)
        operations = [o.operation_id for o in self._admin.ask(lambda a: a.list_operations())]
        if self._cancelled not in operations:
            self._cancelled = self._cancel_one(topics[0])
            operations.append(self._cancelled)
        return Facts(
            topics,
            self._brokers,
            tuple(operations),
            self._cancelled,
            self._new_name,
            self._doomed,
        )

    async def _restore(self, admin: Admin) -> None:
        for operation in await admin.list_operations(["running"], ["brokers_remove"]):
            with _tried_again_later():
                await admin.cancel_operation(operation.operation_id)
        brokers = await admin.describe_brokers()
        kept_back = [broker.broker_id for broker in brokers if broker.maintenance]
        if kept_back:
            await admin.set_maintenance(kept_back, maintenance=False)
        removed = [broker.broker_id for broker in brokers if broker.removed]
        if removed:
            with _tried_again_later():
                await admin.add_brokers(removed)
        if (await admin.describe_throttle()).bytes_per_second is not None:
            await admin.set_throttle(None)
        await _until_idle(admin)
        there = [topic.name for topic in await admin.list_topics()]
        strangers = [name for name in there if name not in TOPICS]
        for name in strangers if len(strangers) > MAX_STRANGERS else ():
            with _tried_again_later():
                await admin.delete_topic(name)

    def _known(self, name: str) -> KnownTopic:
        try:
            found = self._admin.describe_topic(name)
        except TidelogError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            self._admin.create_topic(name, PARTITIONS, FACTOR)
            for number in range(RECORDS):
                self._producer.send_and_wait(name, f"value-{number}".encode(), partition=0)
            found = self._admin.describe_topic(name)
        return KnownTopic(name, tuple(found.partitions[0].replicas))

    def _cancel_one(self, topic: KnownTopic) -> str:
        """A cancelled operation: its moves were too slow to finish."""
        name = self._doomed()
        for _ in range(LARGE_RECORDS):
            self._producer.send_and_wait(name, bytes(LARGE_BYTES), partition=0)
        held = self._admin.describe_topic(name).partitions[0].replicas
        target = tuple(broker for broker in self._brokers if broker not in held)[:1]
        assert target, f"{topic}: no broker is free of {name}"

        async def cancel_one(admin: Admin) -> str:
            await admin.set_throttle(SLOWEST_BYTES_PER_SECOND)
            begun = await admin.reassign([Move(name, 0, target)])
            assert begun.operation is not None
            await admin.cancel_operation(begun.operation.operation_id)
            await admin.set_throttle(None)
            return begun.operation.operation_id

        return self._admin.ask(cancel_one)

    def _new_name(self) -> str:
        return f"made-{next(self._numbers)}"

    def _doomed(self) -> str:
        name = f"doomed-{next(self._numbers)}"
        self._admin.create_topic(name, 1, 1)
        return name


async def _until_idle(admin: Admin) -> None:
    """Waits until no operation is running: partitions that move are busy, and reject the next
    case."""
    with suppress(TimeoutError):
        await _none_running(admin)
        return
    for operation in await admin.list_operations(["running"]):
        with _tried_again_later():
            await admin.cancel_operation(operation.operation_id)
    await _none_running(admin)


async def _none_running(admin: Admin) -> None:
    async with asyncio.timeout(SETTLED_S):
        while await admin.list_operations(["running"]):  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(PAUSE_S)


@contextmanager
def _tried_again_later() -> Iterator[None]:
    """Retries later where something has ended meanwhile or still runs."""
    try:
        yield
    except TidelogError as error:
        if error.code not in _PASSES:
            raise
