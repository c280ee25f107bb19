"""Periodic work of a broker."""

import asyncio
from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from tidelog.model import Acks
from tidelog.state_changes.event import Cause, Kind, Stage
from tidelog_broker.background import RunBlocking
from tidelog_broker.clock_check import ClockCheck, Reading
from tidelog_broker.core.partition import producer_state
from tidelog_broker.core.partition.partition import Partition
from tidelog_broker.core.partition.producer_state import LONGEST_DELIVERY_MS, CrowdedOut
from tidelog_broker.core.partition.replica_key import ReplicaKey
from tidelog_broker.log.disk import Disk
from tidelog_broker.log.disk_reserve import with_reserve
from tidelog_broker.log.log import Log
from tidelog_broker.log.log_errors import LogError, SyncHangsError
from tidelog_broker.log.retention import MAX_DELETED_AT_ONCE
from tidelog_broker.maintenance import ConfirmStrays, Maintenance
from tidelog_broker.replicas.high_watermark_events import HighWatermarkEvents
from tidelog_broker.replicas.stray_events import StrayEvents
from tidelog_broker.replication.isr_updates import IsrUpdates
from tidelog_broker.storage.strays import Stray
from tidelog_runtime.clock import Clock
from tidelog_runtime.topic_config import TopicConfig
from unit.broker.broker_parts import (
    DATA,
    KEY,
    KEYS,
    Replicas,
    append,
    at_work,
    change_ids,
    commit,
    on,
)
from unit.broker.fake_log import NAME, TOPIC_ID, epoch_of, sent_by, state
from unit.broker.flaky_store import FlakyStore
from unit.broker.log.memory_disk import MemoryDisk
from unit.loop_turns import Turns
from unit.metadata.virtual_time import virtual_clock


async def at_once(work: Callable[[], None]) -> None:
    await asyncio.sleep(0)
    work()


async def all_of_them(strays: list[Stray]) -> list[Stray]:
    return strays


class Broker:
    def __init__(self, disk: Disk | None = None) -> None:
        self.replicas = Replicas(disk)
        clock, state_changes = self.replicas.clock, self.replicas.state_changes
        self.isr_updates = IsrUpdates(
            FlakyStore(clock),
            KEYS,
            self.replicas.cache,
            clock,
            500,
            change_ids(clock),
            state_changes,
        )
        self.high_watermarks = HighWatermarkEvents(250, 1, state_changes)
        now = Reading(clock.wall_ms(), clock.monotonic_ms(), "boot")
        self.clock_check = ClockCheck(now)
        self.stray_events = StrayEvents(self.replicas.manager, lambda: 77, state_changes)
        self.maintenance = self.with_blocking(at_once)

    def with_blocking(
        self, run_blocking: RunBlocking, confirm_strays: ConfirmStrays = all_of_them
    ) -> Maintenance:
        replicas = self.replicas
        return Maintenance(
            replicas.manager,
            replicas.logs,
            self.isr_updates,
            self.high_watermarks,
            replicas.clock,
            run_blocking,
            confirm_strays=confirm_strays,
            note_revision=lambda: None,
            stray_events=self.stray_events,
            clock_check=self.clock_check,
        )

    def log(self, number: int = 0) -> Log:
        log = self.replicas.logs.log_of(ReplicaKey(TOPIC_ID, number))
        assert log is not None
        return log


def not_synced(log: Log) -> int:
    return log.log_end_offset - log.flushed_offset


@pytest.mark.rule("failing-disk-transfers-leadership")
@pytest.mark.parametrize("hangs", [False, True])
async def test_a_periodic_sync_ends_a_rejection_and_no_hang(hangs: bool) -> None:
    broker = Broker()
    [partition] = await broker.replicas.take()
    append(partition)
    error = SyncHangsError("it does not return") if hangs else LogError("too many open files")
    broker.replicas.manager.disk.rejected(KEY, error, "synced")
    async with at_work(broker.maintenance.flush(1000)):
        await asyncio.sleep(1.1)
    assert not_synced(broker.log()) == 0
    rejection = broker.replicas.manager.disk.of(KEY)
    assert rejection is not None
    assert rejection.taken_since == (not hangs)


@pytest.mark.rule("logs-and-hws-saved-periodically")
async def test_logs_are_synced_periodically() -> None:
    broker = Broker()
    for partition in await broker.replicas.take(numbers=range(20)):
        append(partition)
    async with at_work(broker.maintenance.flush(1000)):
        await asyncio.sleep(0.9)
        assert sum(not_synced(broker.log(number)) for number in range(20)) == 20
        await asyncio.sleep(0.2)
    assert sum(not_synced(broker.log(number)) for number in range(20)) == 0


async def test_fully_synced_logs_cost_nothing() -> None:
    broker = Broker()
    first, *_ = await broker.replicas.take(numbers=range(20))
    await broker.maintenance.flush_once()
    synced: list[Callable[[], None]] = []

    async def noted(work: Callable[[], None]) -> None:
        synced.append(work)
        await at_once(work)

    append(first)
    await broker.with_blocking(noted).flush_once()
    assert len(synced) == 1
    assert not_synced(broker.log(0)) == 0


async def test_a_log_that_cannot_be_synced_is_logged_once_and_the_others_are_synced() -> None:
    broker = Broker()
    failing, sound = await broker.replicas.take(numbers=(0, 1))
    await broker.maintenance.flush_once()
    append(failing)
    with capture_logs() as lines:
        async with at_work(broker.maintenance.flush(1000)):
            broker.replicas.memory.fail_sync = True
            await asyncio.sleep(1.1)
            broker.replicas.memory.fail_sync = False
            append(sound)
            await asyncio.sleep(5)
    assert [line["event"] for line in lines] == []
    assert [key for key, _ in broker.replicas.failures] == [KEY]
    assert (not_synced(broker.log(0)), not_synced(broker.log(1))) == (1, 0)


async def test_a_log_that_is_deleted_during_a_round_does_not_end_the_rounds() -> None:
    broker = Broker()
    for partition in await broker.replicas.take(numbers=range(20)):
        append(partition)

    async def delete_the_others(work: Callable[[], None]) -> None:
        for number in range(1, 20):
            broker.replicas.logs.delete(ReplicaKey(TOPIC_ID, number))
        await at_once(work)

    broker.maintenance = broker.with_blocking(delete_the_others)
    async with at_work(broker.maintenance.flush(1000)):
        await asyncio.sleep(5)
    assert not_synced(broker.log(0)) == 0


@pytest.mark.rule("logs-and-hws-saved-periodically")
async def test_high_watermarks_are_written_periodically() -> None:
    broker = Broker()
    commit(await broker.replicas.lead())
    async with at_work(broker.maintenance.write_checkpoints(1000)):
        await asyncio.sleep(1.1)
    again = Replicas(broker.replicas.disk)
    assert again.logs.high_watermark(KEY) == 1


async def test_a_failed_checkpoint_is_logged_and_the_next_one_is_written() -> None:
    broker = Broker()
    commit(await broker.replicas.lead())
    await asyncio.sleep(0)  # Its lines are written.
    broker.replicas.memory.space = 0
    with capture_logs() as lines:
        async with at_work(broker.maintenance.write_checkpoints(1000)):
            await asyncio.sleep(1.1)
            broker.replicas.memory.space = None
            await asyncio.sleep(1)
    assert [line["event"] for line in lines] == ["checkpoint_failed"]
    assert Replicas(broker.replicas.disk).logs.high_watermark(KEY) == 1


async def segments_of(broker: Broker, partition: Partition) -> int:
    """Roll before the second of two batches, and before the next append."""
    clock = broker.replicas.clock
    commit(partition, b"a", at_ms=clock.wall_ms())
    await asyncio.sleep(2)
    commit(partition, b"b", at_ms=clock.wall_ms())
    await asyncio.sleep(2)
    return broker.log().segment_count


HOUR_MS = 3_600_000
OLD = {"segment_ms": "1000", "retention_ms": "1000"}


async def test_old_segments_are_deleted_up_to_the_high_watermark() -> None:
    broker = Broker()
    (partition,) = await broker.replicas.take(config=OLD)
    await segments_of(broker, partition)
    append(partition, b"not committed", at_ms=broker.replicas.clock.wall_ms())
    async with at_work(broker.maintenance.delete_old(1000)):
        await asyncio.sleep(10)
    assert (partition.log.log_start_offset, partition.log.log_end_offset) == (2, 3)


async def test_each_step_of_a_long_deletion_yields_to_the_event_loop() -> None:
    broker = Broker()
    (partition,) = await broker.replicas.take(config=OLD)
    for _ in range(10):
        await segments_of(broker, partition)
    segments = broker.log().segment_count
    steps = -(-segments // MAX_DELETED_AT_ONCE)
    async with Turns() as turns:
        await asyncio.sleep(0)
        turns.taken()
        await broker.maintenance._delete_old_segments([partition])
        assert turns.taken() >= steps
    assert (segments, broker.log().segment_count, steps) == (20, 1, 3)


async def test_old_segments_and_deleted_replicas_are_deleted_from_a_full_disk() -> None:
    memory = MemoryDisk()
    broker = Broker(with_reserve(memory, DATA, virtual_clock()))
    (partition, _) = await broker.replicas.take(config=OLD, numbers=(0, 1))
    await segments_of(broker, partition)
    broker.maintenance.checkpoint()
    broker.replicas.logs.delete(ReplicaKey(TOPIC_ID, 1))
    memory.space = 0
    async with (
        at_work(broker.maintenance.delete_old(1000)),
        at_work(broker.maintenance.delete_strays(1000, 0)),
    ):
        await asyncio.sleep(10)
    assert partition.log.log_start_offset == 2
    assert broker.replicas.logs.strays.expired(0) == []


async def test_nothing_is_deleted_by_age_while_the_clock_is_in_doubt() -> None:
    broker = Broker()
    (partition,) = await broker.replicas.take(config=OLD)
    await segments_of(broker, partition)
    clock = broker.replicas.clock
    await asyncio.sleep(130)
    broker.clock_check.note_peer(2, clock.wall_ms() - 120_000, clock.monotonic_ms())
    async with at_work(broker.maintenance.delete_old(1000)):
        await asyncio.sleep(60)
        assert partition.log.log_start_offset == 0
        broker.clock_check.note_peer(2, clock.wall_ms(), clock.monotonic_ms())
        await asyncio.sleep(2)
        assert partition.log.log_start_offset == 2


async def test_a_leader_that_is_behind_rolls_no_segment_dated_by_other_brokers() -> None:
    broker = Broker()
    config = {"segment_ms": "60000", "retention_ms": "60000"}
    (partition,) = await broker.replicas.take(config=config)
    clock = broker.replicas.clock
    for broker_id in (2, 3):
        broker.clock_check.note_peer(broker_id, clock.wall_ms() + HOUR_MS, clock.monotonic_ms())
    async with at_work(broker.maintenance.delete_old(1000)):
        for _ in range(10):
            dated_ms = broker.clock_check.latest_ms(clock.wall_ms(), clock.monotonic_ms())
            commit(partition, b"a", at_ms=dated_ms)
            await asyncio.sleep(2)
    assert dated_ms - clock.wall_ms() > HOUR_MS - 3_000
    assert broker.log().segment_count == 1
    assert partition.log.log_start_offset == 0


async def test_retention_continues_when_a_partition_is_removed_during_its_round() -> None:
    broker = Broker()
    partitions = await broker.replicas.take(numbers=range(40), config=OLD)
    await segments_of(broker, partitions[0])
    async with at_work(broker.maintenance.delete_old(1000)):
        # The round is in its first pause.
        await asyncio.sleep(1)
        for number in range(1, 40):
            broker.replicas.logs.delete(ReplicaKey(TOPIC_ID, number))
        await asyncio.sleep(5)
    assert partitions[0].log.log_start_offset == 2


async def test_a_failed_log_is_not_reported_again_in_every_round() -> None:
    broker = Broker()
    (partition,) = await broker.replicas.take(config=OLD)
    append(partition)
    broker.replicas.memory.fail_sync = True
    await broker.maintenance.flush_once()
    with capture_logs() as lines:
        async with (
            at_work(broker.maintenance.flush(1000)),
            at_work(broker.maintenance.delete_old(1000)),
        ):
            await asyncio.sleep(5)
    assert lines == []


async def test_a_stray_is_deleted_once_the_store_agrees_and_no_checkpoint_names_it() -> None:
    """Otherwise the next start after a crash would report it as lost."""
    broker = Broker()
    partition = await broker.replicas.lead()
    commit(partition)
    broker.maintenance.checkpoint()
    broker.replicas.logs.set_aside(KEY)
    async with at_work(broker.maintenance.delete_strays(1000, 0)):
        await asyncio.sleep(1.1)
    assert broker.replicas.logs.strays.expired(0) == []
    broker.replicas.memory.power_failure()
    assert Replicas(broker.replicas.disk).damaged == []


async def test_the_deletion_of_a_stray_is_reported() -> None:
    broker = Broker()
    await broker.replicas.lead()
    broker.replicas.logs.set_aside(KEY, since_ms=1)
    async with at_work(broker.maintenance.delete_strays(1000, 0)):
        await asyncio.sleep(1.1)
    (deleted,) = broker.replicas.events(Kind.DELETE)
    assert (deleted.stage, deleted.cause, deleted.name) == (Stage.COMPLETED, Cause.STRAY, NAME)


async def test_deletions_before_the_disk_rejected_one_are_reported() -> None:
    broker = Broker()
    await broker.replicas.take(numbers=(0, 1))
    for number in (0, 1):
        broker.replicas.logs.set_aside(ReplicaKey(TOPIC_ID, number), since_ms=1)

    def reject_the_second(stray: Stray) -> None:
        if stray.name == on(1):
            raise OSError(5, "no")

    broker.replicas.logs.strays.delete = reject_the_second  # type: ignore[method-assign]
    async with at_work(broker.maintenance.delete_strays(1000, 0)):
        await asyncio.sleep(1.1)
    assert [event.name for event in broker.replicas.events(Kind.DELETE)] == [on(0)]


async def test_deletions_requested_during_a_sweep_wait_for_the_next_one() -> None:
    broker = Broker()
    partition = await broker.replicas.lead()
    commit(partition)
    broker.maintenance.checkpoint()
    broker.replicas.logs.open_replica(on(1), ReplicaKey(TOPIC_ID, 1), TopicConfig())
    broker.replicas.logs.delete(ReplicaKey(TOPIC_ID, 1))
    works = 0

    async def meanwhile(work: Callable[[], None]) -> None:
        nonlocal works
        works += 1
        if works == 2:
            broker.replicas.logs.delete(KEY)
        work()

    maintenance = broker.with_blocking(meanwhile)
    async with at_work(maintenance.delete_strays(1000, 0)):
        await asyncio.sleep(1.1)
    assert [stray.key for stray in broker.replicas.logs.strays.expired(0)] == [KEY]
    assert Replicas(broker.replicas.disk).damaged == []


async def test_silent_producers_expire_periodically_also_where_nothing_is_led() -> None:
    broker = Broker()
    led, followed = await broker.replicas.take(numbers=(0, 1))
    for partition in (led, followed):
        partition.append([sent_by(7, 0)], Acks.LEADER, broker.replicas.clock.wall_ms())
    followed.take(state(leader=2, epoch=6), 11, broker_epoch=epoch_of(1), now_ms=1)
    async with at_work(broker.maintenance.expire_producers(1000, 5000, frozenset)):
        await asyncio.sleep(4.5 + LONGEST_DELIVERY_MS / 1000)
        assert [len(p.log.producers.states) for p in (led, followed)] == [1, 1]
        await asyncio.sleep(2.5)
    assert [len(p.log.producers.states) for p in (led, followed)] == [0, 0]


async def test_evicted_producers_are_logged_in_one_line_a_round_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(producer_state, "MAX_UNNAMED_PRODUCERS", 1)
    monkeypatch.setattr(producer_state, "MAX_RECENT_UNNAMED_PRODUCERS", 1)
    broker = Broker()
    partitions = await broker.replicas.take(numbers=(0, 1))
    with capture_logs() as lines:
        async with at_work(broker.maintenance.expire_producers(1000, 1 << 40, frozenset)):
            for first in (1, 11):
                for partition in partitions:
                    for producer in range(first, first + 3):
                        partition.append([sent_by(producer, 0)], Acks.LEADER, 1)
                await asyncio.sleep(1.1)
            await asyncio.sleep(5)
    evicted = [line["recent"] for line in lines if line["event"] == "producers_crowded_out"]
    assert evicted == [4, 6]
    assert broker.maintenance.crowded_out == CrowdedOut(recent=10)


async def test_a_stray_that_the_store_assigns_here_stays() -> None:
    broker = Broker()

    async def none_of_them(strays: list[Stray]) -> list[Stray]:  # noqa: ARG001
        return []

    broker.maintenance = broker.with_blocking(at_once, none_of_them)
    await broker.replicas.lead()
    broker.replicas.logs.set_aside(KEY)
    async with at_work(broker.maintenance.delete_strays(1000, 0)):
        await asyncio.sleep(10)
    assert [stray.key for stray in broker.replicas.logs.strays.expired(0)] == [KEY]


@pytest.mark.rule("timer-finds-silent-replicas")
async def test_the_isr_is_evaluated_periodically_too() -> None:
    """A follower that never fetches triggers no evaluation by a fetch."""
    broker = Broker()
    await broker.replicas.lead(new_state=state(isr=(1, 2, 3)))
    async with at_work(broker.maintenance.evaluate_isrs(100)):
        await asyncio.sleep(0.11)
    assert len(broker.isr_updates) == 1
    assert NAME in broker.isr_updates.proposals


class StallingClock:
    """The clock of a process that was stalled for a while."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.stalled_ms = 0

    def monotonic_ms(self) -> int:
        return self._clock.monotonic_ms() + self.stalled_ms

    def wall_ms(self) -> int:
        return self._clock.wall_ms() + self.stalled_ms


async def oldest_catch_up_ms(broker: Broker, stalled_ms: int) -> int:
    """The longest time since a follower caught up, by the leader's count, after a stall and one
    timer run. A record waits for the followers all the time.
    """
    clock = StallingClock(broker.replicas.clock)
    partition = await broker.replicas.lead(new_state=state(isr=(1, 2, 3)))
    append(partition)
    maintenance = Maintenance(
        broker.replicas.manager,
        broker.replicas.logs,
        broker.isr_updates,
        broker.high_watermarks,
        clock,
        at_once,
        confirm_strays=all_of_them,
        note_revision=lambda: None,
        stray_events=broker.stray_events,
        clock_check=broker.clock_check,
    )
    async with at_work(maintenance.evaluate_isrs(100)):
        await asyncio.sleep(0.15)
        clock.stalled_ms = stalled_ms
        await asyncio.sleep(0.06)
        now_ms = clock.monotonic_ms()
    assert partition.leading is not None
    return max(now_ms - p.last_caught_up_ms for p in partition.leading.followers.values())


@pytest.mark.rule("quiet-partition-reports-its-end")
async def test_a_leader_that_was_stalled_grants_its_followers_a_full_lag_time() -> None:
    broker = Broker()
    assert await oldest_catch_up_ms(broker, stalled_ms=5000) <= 20
    (event,) = broker.replicas.events(Kind.BROKER_STALLED)
    assert (event.broker, event.details) == (1, {"stalled_ms": event.duration_ms})
    assert 4900 <= event.duration_ms <= 5010
    assert broker.replicas.events(Kind.HW_STALLED) == []


async def test_a_timer_that_is_slightly_late_is_no_stall() -> None:
    broker = Broker()
    assert await oldest_catch_up_ms(broker, stalled_ms=90) >= 200
    assert broker.replicas.events(Kind.BROKER_STALLED) == []
