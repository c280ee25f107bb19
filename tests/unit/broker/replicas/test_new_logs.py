"""Logs of new replicas are opened in a thread. A disk that is slow to create a directory holds
up only the command that needs it.
"""

from __future__ import annotations

import asyncio

import pytest

from tidelog.errors import ErrorCode
from tidelog.model import TopicPartition
from tidelog.state_changes.event import Kind
from tidelog_broker.log.segment import segment_path
from tidelog_broker.partition.replica_key import ReplicaKey
from tidelog_broker.replicas import replica_manager
from tidelog_broker.storage.replica_directories import directory_name
from tidelog_runtime.replica_control import CommandResult
from unit.broker.broker_parts import (
    DATA,
    KEY,
    Replicas,
    append,
    command,
    on,
    revision_of,
    stages,
    stop_command,
    until_idle,
)
from unit.broker.cold_disk import Threads
from unit.broker.fake_log import NAME, TOPIC_ID, state
from unit.broker.log.memory_disk import MemoryDisk


class SlowDisk:
    """A broker whose disk creates directories when the test says so."""

    def __init__(self) -> None:
        self.threads = Threads()
        self.replicas = Replicas(run_blocking=self.threads)
        self.manager = self.replicas.manager

    def create(self, revision: int = 10, *, count: int = 1) -> asyncio.Task[CommandResult]:
        wanted = command(state(leader=1), revision, numbers=range(count))
        return asyncio.create_task(self.manager.leader_and_isr(wanted))

    def has_log(self, name: TopicPartition = NAME) -> bool:
        directory = DATA / "replicas" / directory_name(name, TOPIC_ID)
        return segment_path(directory, 0) in self.replicas.memory.names


async def full_state(slow: SlowDisk) -> None:
    empty = command(state(), 1, numbers=(), full_state=True)
    await slow.manager.leader_and_isr(empty)


async def test_other_replicas_are_written_and_read_while_a_log_is_created() -> None:
    slow = SlowDisk()
    first = slow.create()
    await slow.threads.end()
    await first
    second = slow.create(11, count=2)
    await until_idle()
    (partition,) = slow.manager.all()
    append(partition, b"meanwhile")
    assert (partition.log.log_end_offset, slow.has_log(on(1))) == (1, False)
    await slow.threads.end()
    assert [r.error for r in (await second).partitions] == [None, None]
    assert slow.has_log(on(1))


async def test_a_replica_is_not_found_before_its_log_exists() -> None:
    slow = SlowDisk()
    creating = slow.create()
    await until_idle()
    assert (slow.manager.find(KEY), list(slow.replicas.logs.keys())) == (None, [])
    await slow.threads.end()
    await creating
    assert slow.manager.find(KEY) is not None


async def test_a_command_for_existing_replicas_needs_no_thread() -> None:
    slow = SlowDisk()
    creating = slow.create(count=3)
    await slow.threads.end()
    await creating
    await slow.create(11, count=3)
    assert slow.threads.running == []


async def test_a_later_command_waits_for_the_log_and_is_taken_last() -> None:
    slow = SlowDisk()
    first, second = slow.create(10), slow.create(11)
    await slow.threads.end()
    assert [revision_of(await first), revision_of(await second)] == [10, 11]
    (partition,) = slow.manager.all()
    assert (partition.revision, slow.threads.running) == (11, [])


async def test_a_stop_during_the_creation_of_a_log_deletes_it() -> None:
    slow = SlowDisk()
    await full_state(slow)
    creating = slow.create(10)
    await until_idle()
    stopping = asyncio.create_task(slow.manager.stop_replica(stop_command(11)))
    await slow.threads.end()
    await creating
    assert revision_of(await stopping) == 11
    assert (list(slow.replicas.logs.keys()), slow.has_log()) == ([], False)


async def test_a_command_from_before_a_stop_creates_no_log() -> None:
    slow = SlowDisk()
    await full_state(slow)
    await slow.manager.stop_replica(stop_command(11))
    await slow.create(10)
    assert (slow.threads.running, slow.has_log()) == ([], False)


async def test_a_command_whose_configuration_is_rejected_creates_no_log() -> None:
    slow = SlowDisk()
    wanted = command(state(leader=1), config={"durability": "perhaps"})
    (result,) = (await slow.manager.leader_and_isr(wanted)).partitions
    assert result.error is not None
    assert (result.error.code, slow.has_log()) == (ErrorCode.INVALID_CONFIG, False)


async def test_a_cancelled_caller_leaves_no_log_that_the_broker_does_not_know() -> None:
    slow = SlowDisk()
    creating = slow.create()
    await until_idle()
    creating.cancel()
    await until_idle()
    creating.cancel()
    await until_idle()
    assert not creating.done()
    await slow.threads.end()
    with pytest.raises(asyncio.CancelledError):
        await creating
    assert (list(slow.replicas.logs.keys()), slow.has_log()) == ([KEY], True)
    assert slow.manager.find(KEY) is None


async def test_after_a_cancelled_call_the_same_command_takes_the_log_and_reports_it() -> None:
    slow = SlowDisk()
    creating = slow.create()
    await until_idle()
    creating.cancel()
    await slow.threads.end()
    assert revision_of(await slow.create()) == 10
    assert slow.manager.find(KEY) is not None
    events = slow.replicas.events(Kind.CREATE)
    assert stages(events) == ["create completed"]


async def test_a_log_created_for_a_cancelled_call_can_be_stopped() -> None:
    slow = SlowDisk()
    await full_state(slow)
    creating = slow.create()
    await until_idle()
    creating.cancel()
    await slow.threads.end()
    await slow.manager.stop_replica(stop_command(11))
    assert (list(slow.replicas.logs.keys()), slow.has_log()) == ([], False)


async def test_a_disk_that_rejects_one_log_keeps_no_other_from_being_created() -> None:
    class OneRejected(MemoryDisk):
        def make_directory(self, directory: object) -> None:
            if f"{NAME.topic}-1." in str(directory):
                raise PermissionError(13, "Permission denied", str(directory))
            super().make_directory(directory)  # type: ignore[arg-type]

    replicas = Replicas(OneRejected())
    result = await replicas.manager.leader_and_isr(command(state(leader=1), numbers=range(3)))
    codes = [r.error.code if r.error else None for r in result.partitions]
    assert codes == [None, ErrorCode.STORAGE_ERROR, None]
    assert [r.revision for r in result.partitions] == [10, 0, 10]
    assert list(replicas.manager.disk.unopened()) == [ReplicaKey(TOPIC_ID, 1)]


async def test_a_full_disk_is_reported_and_a_repeat_succeeds_once_there_is_space() -> None:
    slow = SlowDisk()
    slow.replicas.memory.space = 0
    creating = slow.create()
    await slow.threads.end()
    (result,) = (await creating).partitions
    assert result.error is not None
    assert result.error.code is ErrorCode.STORAGE_ERROR
    slow.replicas.memory.space = None
    creating = slow.create()
    await slow.threads.end()
    assert revision_of(await creating) == 10


async def test_no_thread_opens_more_logs_than_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_manager, "OPENED_AT_ONCE", 2)
    slow = SlowDisk()
    creating = slow.create(count=5)
    created = []
    for _ in range(3):
        await slow.threads.end()
        created.append(sum(slow.has_log(on(number)) for number in range(5)))
    await creating
    assert created == [2, 4, 5]


async def test_a_broker_that_stops_waits_for_a_log_that_is_being_created() -> None:
    slow = SlowDisk()
    creating = slow.create()
    await until_idle()
    closing = asyncio.create_task(slow.manager.close())
    await until_idle()
    assert not closing.done()
    await slow.threads.end()
    await asyncio.gather(creating, closing)
    assert slow.replicas.logs.close() == []
    assert slow.replicas.memory.open_files == 0


async def test_a_stopping_broker_creates_no_replica_and_takes_existing_ones() -> None:
    slow = SlowDisk()
    creating = slow.create()
    await slow.threads.end()
    await creating
    await slow.manager.close()
    first, second = (await slow.create(11, count=2)).partitions
    assert (first.error, slow.has_log(on(1))) == (None, False)
    assert second.error is not None
    assert "is stopping" in second.error.message
