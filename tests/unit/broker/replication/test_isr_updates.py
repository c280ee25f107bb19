"""How a leader's ISR changes reach the metadata store."""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from tidelog.model import Acks
from tidelog_broker.core.isr_proposals import MAX_EVALUATED_PER_TURN
from tidelog_broker.core.partition.isr import SessionTime
from tidelog_broker.core.partition.partition import Partition
from tidelog_broker.membership.metadata_cache import MetadataCache
from tidelog_broker.replication.isr_updates import IsrUpdates
from tidelog_runtime.metadata.schema import (
    STOPPING,
    LeaderAndIsr,
    decode_leader_and_isr,
    encode,
    encode_leader_and_isr,
)
from tidelog_runtime.metadata.store import (
    MAX_TRANSACTION_CHANGES,
    MAX_TRANSACTION_GUARDS,
    CreateRevision,
    ModRevision,
    Put,
)
from tidelog_runtime.telemetry.state_change_log import StateChangeLog
from unit.broker.broker_parts import (
    KEYS,
    at_work,
    change_ids,
    fetch_by,
    on,
    position,
    registration,
    until,
    until_idle,
)
from unit.broker.fake_log import TOPIC_ID, FakeLog, Notes, epoch_of, sent, state
from unit.broker.flaky_store import FlakyStore
from unit.metadata.virtual_time import virtual_clock

LAG_TIME_MAX_MS = 500
SMALL = state(isr=(1, 2))


class Leader:
    """Broker 1 leads, all brokers are registered, and the cache matches the store at the start."""

    def __init__(self, brokers: int = 3) -> None:
        self.clock = virtual_clock()
        self.store = FlakyStore(self.clock)
        self.store.advance_to_broker_epochs(KEYS)
        for broker_id in range(1, brokers + 1):
            assert self.register(broker_id) == epoch_of(broker_id)
        self.cache = MetadataCache(KEYS)
        self.cache.load(self.store.data.snapshot(KEYS.root))
        self.partitions: list[Partition] = []
        self.state_changes = StateChangeLog("broker-1", self.clock)
        self.updates = IsrUpdates(
            self.store,
            KEYS,
            self.cache,
            self.clock,
            LAG_TIME_MAX_MS,
            change_ids(self.clock),
            self.state_changes,
        )

    def register(self, broker_id: int, **changes: object) -> int:
        return self.store.put(KEYS.broker(broker_id), encode(registration(broker_id, **changes)))

    def led(self) -> Iterable[Partition]:
        return self.partitions

    def lead(self, number: int = 0, new_state: LeaderAndIsr = SMALL) -> Partition:
        revision = self.store.put(KEYS.leader_and_isr(on(number)), encode_leader_and_isr(new_state))
        partition = Partition(
            on(number), TOPIC_ID, 1, FakeLog(), high_watermark=0, listener=Notes()
        )
        now_ms = self.clock.monotonic_ms()
        partition.take(new_state, revision, broker_epoch=epoch_of(1), now_ms=now_ms)
        self.partitions.append(partition)
        return partition

    def with_joiner(self, number: int = 0) -> Partition:
        """Broker 3 has caught up and may join."""
        partition = self.lead(number)
        fetch_by(partition, 3)
        return partition

    def stored(self, number: int = 0) -> LeaderAndIsr:
        item = self.store.item(KEYS.leader_and_isr(on(number)))
        return decode_leader_and_isr(item.value)

    def overwrite(self, new_state: LeaderAndIsr, number: int = 0) -> int:
        """Write as the controller does."""
        return self.store.put(KEYS.leader_and_isr(on(number)), encode_leader_and_isr(new_state))

    def isr_of(self, number: int = 0) -> set[int]:
        return set(self.stored(number).isr_ids)

    async def evaluate(self, *partitions: Partition) -> None:
        for partition in partitions:
            self.updates.evaluate_soon(partition)
        await until_idle()


def running(leader: Leader) -> AbstractAsyncContextManager[None]:
    return at_work(leader.updates.run())


def in_flight(partition: Partition) -> Sequence[int]:
    assert partition.leading
    proposed = partition.leading.proposed
    return sorted(proposed.isr_ids) if proposed else ()


# -- proposed changes --------------------------------------------------------------------


@pytest.mark.rule("isr-changes-by-conditional-write")
async def test_a_follower_that_has_caught_up_joins() -> None:
    leader = Leader()
    partition = leader.with_joiner()
    async with running(leader):
        await leader.evaluate(partition)
    assert leader.isr_of() == {1, 2, 3}
    assert partition.state == leader.stored()
    assert partition.revision == leader.store.item(KEYS.leader_and_isr(on(0))).mod_revision
    assert in_flight(partition) == ()


async def test_a_lagging_member_leaves_when_the_timer_evaluates_the_isr() -> None:
    leader = Leader()
    leader.lead(new_state=state(isr=(1, 2, 3)))
    async with running(leader):
        await asyncio.sleep(0.6)
        leader.updates.evaluate_all(leader)
        await until_idle()
    assert leader.isr_of() == {1}
    assert {member.broker_id for member in leader.stored().eligible} == {2, 3}


def in_a_session(partition: Partition, follower: int, asked_ms: int) -> SessionTime:
    """A follower that reported the log end in a session, whose last request was at this time."""
    session, at_the_end = SessionTime(asked_ms), position(partition, partition.log.log_end_offset)
    partition.replica_fetch(follower, epoch_of(follower), at_the_end, asked_ms, session)
    return session


async def test_the_timer_evaluates_partitions_whose_follower_stopped_fetching() -> None:
    leader = Leader()
    partition = leader.lead(new_state=state(isr=(1, 2, 3)))
    sessions = [in_a_session(partition, follower, 1) for follower in (2, 3)]
    async with running(leader):
        await asyncio.sleep(0.9)
        sessions[0].last_request_ms = leader.clock.monotonic_ms()
        leader.updates.evaluate_all(leader)
        assert list(leader.updates.proposals._queued) == [partition.name]
        await until_idle()
    assert leader.isr_of() == {1, 2}


async def test_the_timer_skips_quiescent_partitions() -> None:
    leader = Leader()
    partition = leader.lead(new_state=state(isr=(1, 2, 3)))
    in_a_session(partition, 2, 1)
    leader.updates.evaluate_all(leader)
    assert list(leader.updates.proposals._queued) == [partition.name]
    leader.updates.proposals._queued.clear()
    in_a_session(partition, 3, 1)
    leader.updates.evaluate_all(leader)
    assert leader.updates.proposals._queued == {}


@given(
    asked_ms=st.lists(st.integers(0, 2_000), min_size=2, max_size=2),
    renewed_ms=st.lists(st.integers(0, 2_000), min_size=2, max_size=2),
    behind=st.lists(st.booleans(), min_size=2, max_size=2),
    isr=st.sets(st.sampled_from((2, 3))),
    now_ms=st.integers(0, 3_000),
)
def test_a_quiescent_partition_would_propose_no_change(
    asked_ms: list[int], renewed_ms: list[int], behind: list[bool], isr: set[int], now_ms: int
) -> None:
    partition = Partition(on(0), TOPIC_ID, 1, FakeLog(), high_watermark=0, listener=Notes())
    partition.take(state(isr=(1, *sorted(isr))), 10, broker_epoch=epoch_of(1), now_ms=0)
    partition.append([sent(b"r")], Acks.LEADER, 0)
    for follower, asked, renewed, is_behind in zip(
        (2, 3), asked_ms, renewed_ms, behind, strict=True
    ):
        session = SessionTime(asked)
        at = position(partition, 0 if is_behind else 1)
        partition.replica_fetch(follower, epoch_of(follower), at, asked, session)
        session.last_request_ms = max(asked, renewed)
    if partition.is_quiescent(now_ms=now_ms, lag_time_max_ms=500):
        running_brokers = {b: epoch_of(b) for b in (1, 2, 3)}
        assert partition.propose_isr(running_brokers, now_ms=now_ms, lag_time_max_ms=500) is None


async def test_without_a_needed_change_nothing_is_written() -> None:
    leader = Leader()
    leader.lead(new_state=state(isr=(1, 2, 3)))
    async with running(leader):
        leader.updates.evaluate_all(leader)
        await until_idle()
    assert leader.store.sent == []


@pytest.mark.rule("isr-change-compares-registration")
async def test_the_guard_has_the_version_and_the_joiners_registration() -> None:
    """KIP-841, KIP-903."""
    leader = Leader()
    partition = leader.with_joiner()
    revision = partition.revision
    async with running(leader):
        await leader.evaluate(partition)
    (transaction,) = leader.store.sent
    assert set(transaction.guards) == {
        ModRevision(KEYS.leader_and_isr(on(0)), revision),
        CreateRevision(KEYS.broker(3), epoch_of(3)),
        ModRevision(KEYS.broker(3), epoch_of(3)),
    }


async def test_many_partitions_go_into_one_transaction() -> None:
    leader = Leader()
    partitions = [leader.with_joiner(number) for number in range(50)]
    async with running(leader):
        await leader.evaluate(*partitions)
    (transaction,) = leader.store.sent
    assert len(transaction.changes) == 50


async def test_no_transaction_exceeds_the_stores_limit() -> None:
    leader = Leader()
    partitions = [leader.with_joiner(number) for number in range(130)]
    async with running(leader):
        await leader.evaluate(*partitions)
    sizes = [len(transaction.changes) for transaction in leader.store.sent]
    assert sizes == [MAX_TRANSACTION_CHANGES, 130 - MAX_TRANSACTION_CHANGES]


async def test_dozens_of_joiners_do_not_exceed_the_stores_limit_of_guards() -> None:
    leader = Leader(brokers=92)
    for number, first in enumerate((3, 33, 63)):
        joiners = range(first, first + 30)
        partition = leader.lead(number, state(isr=(1, 2), replicas=(1, 2, *joiners)))
        for joiner in joiners:
            fetch_by(partition, joiner)
    async with running(leader):
        await leader.evaluate(*leader.partitions)
    assert [len(leader.isr_of(number)) for number in range(3)] == [32, 32, 32]
    assert max(len(t.guards) for t in leader.store.sent) <= MAX_TRANSACTION_GUARDS
    assert len(leader.store.sent) == 2


async def test_a_long_round_yields_to_the_event_loop() -> None:
    leader = Leader()
    for number in range(3 * MAX_EVALUATED_PER_TURN):
        leader.lead(number, state(isr=(1, 2, 3)))
    async with running(leader):
        await until_idle()
        leader.updates.evaluate_all(leader)
        await asyncio.sleep(0)
        still_to_judge = len(leader.updates.proposals._queued)
        await until_idle()
    assert still_to_judge == 2 * MAX_EVALUATED_PER_TURN
    assert leader.updates.proposals._queued == {}


# -- rejected ----------------------------------------------------------------------------


@pytest.mark.rule("stopping-broker-does-not-rejoin")
async def test_a_joiner_that_began_to_stop_is_not_written() -> None:
    """Rule `stopping-broker-does-not-rejoin`."""
    leader = Leader()
    partition = leader.with_joiner()
    leader.register(3, state=STOPPING)
    async with running(leader):
        await leader.evaluate(partition)
    assert leader.isr_of() == {1, 2}
    assert in_flight(partition) == ()


@pytest.mark.rule("isr-members-have-broker-epochs")
async def test_a_joiner_in_another_incarnation_is_not_written() -> None:
    """KAFKA-14139."""
    leader = Leader()
    partition = leader.with_joiner()
    leader.store.delete(KEYS.broker(3))
    leader.register(3)
    async with running(leader):
        await leader.evaluate(partition)
    assert leader.isr_of() == {1, 2}


@pytest.mark.rule("isr-change-compares-registration")
async def test_a_joiner_that_is_gone_is_not_written_and_not_retried_forever() -> None:
    leader = Leader()
    partition = leader.with_joiner()
    leader.store.delete(KEYS.broker(3))
    async with running(leader):
        await leader.evaluate(partition)
        await asyncio.sleep(10)
    assert leader.isr_of() == {1, 2}
    assert len(leader.store.sent) == 1


async def test_a_rejected_joiner_releases_the_high_watermark() -> None:
    leader = Leader()
    partition = leader.with_joiner()
    leader.store.delete(KEYS.broker(3))
    async with running(leader):
        await leader.evaluate(partition)
    partition.append([sent()], Acks.ALL, 1)
    fetch_by(partition, 2)
    assert partition.high_watermark == 1


@pytest.mark.rule("rejected-isr-change-is-reevaluated")
async def test_after_a_conflict_the_leader_adopts_the_stored_state_and_evaluates_again() -> None:
    """KAFKA-2729."""
    leader = Leader()
    partition = leader.with_joiner()
    leader.overwrite(state(isr=(1,), eligible=(2,)))
    fetch_by(partition, 2)
    async with running(leader):
        await leader.evaluate(partition)
    assert leader.isr_of() == {1, 2, 3}
    assert len(leader.store.sent) == 2
    assert partition.leading


@pytest.mark.rule("rejected-isr-change-is-reevaluated")
@pytest.mark.rule("deposed-leader-commits-nothing")
@pytest.mark.rule("epochs-separate-concurrent-leaders")
async def test_after_a_conflict_a_superseded_leader_steps_down() -> None:
    leader = Leader()
    partition = leader.with_joiner()
    leader.overwrite(state(leader=2, epoch=6))
    async with running(leader):
        await leader.evaluate(partition)
    assert partition.leading is None
    assert leader.stored().leader == 2
    assert len(leader.store.sent) == 1


async def test_a_leader_whose_partition_is_gone_steps_down() -> None:
    leader = Leader()
    partition = leader.with_joiner()
    leader.store.delete(KEYS.leader_and_isr(on(0)))
    async with running(leader):
        await leader.evaluate(partition)
    assert partition.leading is None


async def test_the_isr_of_another_topic_under_the_same_name_is_not_adopted() -> None:
    leader = Leader()
    partition = leader.with_joiner()
    leader.overwrite(replace(SMALL, topic_id="other-id-other-id-othe"))
    async with running(leader):
        await leader.evaluate(partition)
    assert partition.leading is None
    assert partition.state == SMALL


@pytest.mark.rule("conflict-delays-only-its-partition")
async def test_one_conflict_does_not_hold_up_the_rest() -> None:
    leader = Leader()
    partitions = [leader.with_joiner(number) for number in range(3)]
    leader.overwrite(state(leader=2, epoch=6), number=1)
    async with running(leader):
        await leader.evaluate(*partitions)
    assert [leader.isr_of(number) for number in (0, 2)] == [{1, 2, 3}, {1, 2, 3}]
    assert partitions[1].leading is None


# -- a store that does not answer --------------------------------------------------------


@pytest.mark.rule("unanswered-isr-change-is-pending")
async def test_a_change_without_an_answer_stays_pending() -> None:
    """Rule `unanswered-isr-change-is-pending`: it may still be applied."""
    leader = Leader()
    partition = leader.with_joiner()
    leader.store.disconnect()
    async with running(leader):
        await leader.evaluate(partition)
        await asyncio.sleep(5)
        assert in_flight(partition) == [1, 2, 3]
        partition.append([sent()], Acks.ALL, 1)
        fetch_by(partition, 2)
        assert partition.high_watermark == 0


@pytest.mark.rule("unanswered-isr-change-is-pending")
async def test_a_pending_change_is_written_again_when_the_store_is_back() -> None:
    leader = Leader()
    partition = leader.with_joiner()
    leader.store.disconnect()
    async with running(leader):
        await leader.evaluate(partition)
        await asyncio.sleep(5)
        leader.store.reconnect()
        await until(lambda: not in_flight(partition))
    assert leader.isr_of() == {1, 2, 3}
    assert partition.state == leader.stored()


async def test_a_change_applied_without_an_answer_is_adopted() -> None:
    leader = Leader()
    partition = leader.with_joiner()
    leader.store.loses_answers = True
    async with running(leader):
        await leader.evaluate(partition)
        assert leader.isr_of() == {1, 2, 3}
        assert in_flight(partition) == [1, 2, 3]
        leader.store.loses_answers = False
        await until(lambda: not in_flight(partition))
    assert partition.state == leader.stored()
    assert partition.revision == leader.store.item(KEYS.leader_and_isr(on(0))).mod_revision


async def test_a_change_decided_by_the_watch_is_not_written_again() -> None:
    leader = Leader()
    decided, pending = leader.with_joiner(0), leader.with_joiner(1)
    leader.store.disconnect()
    async with running(leader):
        await leader.evaluate(decided, pending)
        revision = leader.overwrite(state(isr=(1, 2)), number=0)
        decided.observed(leader.stored(0), revision, 0)
        leader.store.reconnect()
        await until(lambda: not in_flight(pending))
    (last,) = leader.store.sent[-1].changes
    assert isinstance(last, Put)
    assert last.key == KEYS.leader_and_isr(on(1))
    assert leader.isr_of(1) == {1, 2, 3}


async def test_a_change_overtaken_by_another_leader_is_given_up() -> None:
    leader = Leader()
    partition = leader.with_joiner()
    leader.store.disconnect()
    async with running(leader):
        await leader.evaluate(partition)
        leader.overwrite(state(leader=2, epoch=6))
        leader.store.reconnect()
        await until(lambda: partition.leading is None)
        await asyncio.sleep(5)
    assert leader.stored().leader == 2
    assert len(leader.store.sent) == 2


async def test_changes_wait_for_the_one_without_an_answer() -> None:
    leader = Leader()
    first, second = leader.with_joiner(0), leader.with_joiner(1)
    leader.store.disconnect()
    async with running(leader):
        await leader.evaluate(first)
        await leader.evaluate(second)
        assert in_flight(second) == ()
        leader.store.reconnect()
        await until(lambda: leader.isr_of(1) == {1, 2, 3})


async def test_an_unavailable_store_is_logged_once() -> None:
    leader = Leader()
    partition = leader.with_joiner()
    leader.store.disconnect()
    with capture_logs() as lines:
        async with running(leader):
            await leader.evaluate(partition)
            await asyncio.sleep(5)
    assert [line["event"] for line in lines].count("isr_changes_wait_for_store") == 1


async def test_a_store_that_fell_back_is_not_written_to_any_more() -> None:
    leader = Leader()
    partition = leader.with_joiner()
    leader.store.data.wipe()
    with capture_logs() as lines:
        task = asyncio.create_task(leader.updates.run())
        await leader.evaluate(partition)
        await task
    assert in_flight(partition) == [1, 2, 3]
    assert [line["event"] for line in lines if line["log_level"] == "critical"] == [
        "isr_changes_ended"
    ]
