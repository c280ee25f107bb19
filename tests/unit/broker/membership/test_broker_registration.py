import asyncio
import random
from contextlib import AbstractAsyncContextManager
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from tidelog.feature_levels import UNREPORTED, LevelRange
from tidelog.state_changes.event import Cause, Stage
from tidelog_broker.membership.directory_binding import BrokerIdInUseError, DirectoryBinding
from tidelog_broker.membership.registration import Registration
from tidelog_broker.storage.data_directory import DataDirectory
from tidelog_runtime.metadata.cluster_id import UnsupportedLevelError
from tidelog_runtime.metadata.schema import (
    RUNNING,
    STOPPING,
    BrokerRegistration,
    ClusterEntry,
    decode_broker,
    encode,
)
from tidelog_runtime.metadata.store import Delete, Put, Transaction, TransactionResult
from tidelog_runtime.telemetry.state_change_log import StateChangeLog
from unit.broker.broker_parts import (
    KEYS,
    at_work,
    data_directory,
    emitted_events,
    registration,
    until,
)
from unit.broker.flaky_store import FlakyStore
from unit.metadata.virtual_time import virtual_clock

KEY = KEYS.broker(1)
TTL_SECONDS = 3


class SlowStore(FlakyStore):
    """A store that applies a request at once and answers a second later."""

    async def transact(self, transaction: Transaction) -> TransactionResult:
        result = await super().transact(transaction)
        await asyncio.sleep(1)
        return result


class Broker:
    """Registers as broker 1 from its own data directory, or from the given one."""

    def __init__(
        self,
        store: FlakyStore | None = None,
        directory: DataDirectory | None = None,
        replaces: str = "",
        host: str = "north",
        levels: LevelRange = UNREPORTED,
    ) -> None:
        self.store = store or FlakyStore(virtual_clock())
        self.directory = directory or data_directory(1)
        self.epochs: list[int] = []
        self.waiting: list[str] = []
        self.state_changes = StateChangeLog("broker-1", virtual_clock())
        self.registration = Registration(
            self.store,
            KEYS,
            1,
            replace(registration(1, node_uuid=self.directory.identity.directory_id), levels=levels),
            self.directory,
            DirectoryBinding(self.store, KEYS, 1, self.directory, host, replaces),
            TTL_SECONDS,
            random.Random(1),
            self._registered,
            self.state_changes,
            self._waits,
        )

    def _registered(self, broker_epoch: int) -> None:
        self.epochs.append(broker_epoch)
        self.directory.registered(broker_epoch)

    async def _waits(self, reason: str) -> None:
        self.waiting.append(reason)

    @property
    def stored(self) -> BrokerRegistration:
        return decode_broker(self.store.item(KEY).value)

    @property
    def leases(self) -> int:
        return len(self.store.data._lease_keys)

    async def registered(self, times: int = 1) -> int:
        await until(lambda: len(self.epochs) >= times)
        return self.epochs[times - 1]


def running(broker: Broker) -> AbstractAsyncContextManager[None]:
    return at_work(broker.registration.run())


def registered_by_another_node(store: FlakyStore) -> None:
    store.put(KEY, encode(registration(1, node_uuid="another", address="10.9.9.9:7500")))


# -- registering -------------------------------------------------------------------------


async def test_the_broker_epoch_is_the_creation_revision() -> None:
    broker = Broker()
    async with running(broker):
        epoch = await broker.registered()
    assert epoch == broker.registration.broker_epoch == broker.store.item(KEY).create_revision
    assert broker.stored == registration(1)


async def test_the_registration_ends_with_its_lease() -> None:
    broker = Broker()
    async with running(broker):
        await broker.registered()
        broker.store.disconnect()
        await asyncio.sleep(TTL_SECONDS + 1)
        assert broker.store.data.get(KEY) is None


@pytest.mark.rule("registrations-are-only-created")
async def test_a_new_incarnation_deletes_its_predecessor_and_creates_its_own_key() -> None:
    """Rule `registrations-are-only-created`: overwriting the key would keep the creation
    revision."""
    broker = Broker()
    previous = broker.store.put(KEY, encode(registration(1)))
    async with running(broker):
        epoch = await broker.registered()
    assert epoch > previous
    assert epoch == broker.store.item(KEY).create_revision
    deleting, creating = broker.store.sent
    assert deleting.changes == [Delete(KEY)]
    assert isinstance(creating.changes[0], Put)


async def test_the_registration_of_another_directory_by_an_older_release_is_respected() -> None:
    broker = Broker()
    registered_by_another_node(broker.store)
    with pytest.raises(BrokerIdInUseError, match=r"data directory another.*10\.9\.9\.9:7500"):
        await broker.registration.run()
    assert broker.stored.node_uuid == "another"
    assert broker.leases == 0


def put_level(store: FlakyStore, level: int) -> None:
    store.put(KEYS.cluster, encode(ClusterEntry("c-1", level)))


@pytest.mark.rule("registered-process-supports-level")
async def test_a_broker_whose_release_does_not_support_the_level_does_not_register() -> None:
    broker = Broker()
    put_level(broker.store, 2)
    with pytest.raises(UnsupportedLevelError, match=r"at feature level 2.*too old"):
        await broker.registration.run()
    assert broker.store.data.get(KEY) is None
    assert broker.leases == 0


@pytest.mark.rule("registered-process-supports-level")
async def test_a_level_that_is_raised_while_it_registers_is_noticed() -> None:
    """The level was supported when it was read."""

    class Raised(FlakyStore):
        async def transact(self, transaction: Transaction) -> TransactionResult:
            if any(change.key == KEY for change in transaction.changes):
                put_level(self, 2)
            return await super().transact(transaction)

    broker = Broker(Raised(virtual_clock()))
    put_level(broker.store, 1)
    with pytest.raises(UnsupportedLevelError):
        await broker.registration.run()
    assert broker.store.data.get(KEY) is None


@pytest.mark.rule("registered-process-supports-level")
async def test_a_registration_names_its_levels_and_leaves_a_mark() -> None:
    broker = Broker(levels=LevelRange(1, 2))
    put_level(broker.store, 2)
    async with running(broker):
        epoch = await broker.registered()
    assert broker.stored.levels == LevelRange(1, 2)
    assert broker.store.item(KEYS.last_registration).mod_revision == epoch


async def test_a_registration_of_an_earlier_release_supports_the_first_level_alone() -> None:
    value = encode(registration(1))
    assert b"levels" not in value
    assert decode_broker(value).levels == LevelRange(1, 1)


# -- registering again -------------------------------------------------------------------


@pytest.mark.rule("detection-deletes-watched-incarnation")
async def test_it_registers_again_when_its_key_vanishes() -> None:
    """Rule `detection-deletes-watched-incarnation`: the controller took a broken connection for a
    crash."""
    broker = Broker()
    async with running(broker):
        first = await broker.registered()
        broker.registration.observed_gone(broker.store.delete(KEY))
        second = await broker.registered(2)
    assert second > first
    assert broker.store.item(KEY).create_revision == second
    assert broker.leases == 1


async def test_it_registers_again_when_its_lease_is_lost() -> None:
    broker = Broker()
    async with running(broker):
        first = await broker.registered()
        broker.store.expire_lease(1)
        second = await broker.registered(2)
    assert second > first


async def test_deletions_older_than_the_registration_are_those_of_the_predecessor() -> None:
    broker = Broker()
    async with running(broker):
        epoch = await broker.registered()
        broker.registration.observed_gone(epoch - 1)
        broker.registration.observed_gone(epoch)
        await asyncio.sleep(5)
    assert broker.epochs == [epoch]


async def test_a_key_missing_before_it_was_created_does_not_trigger_another_registration() -> None:
    broker = Broker()
    async with running(broker):
        await broker.registered()
        gone = broker.store.delete(KEY)
        # While it registers again, the watch delivers other changes, and the key is absent.
        broker.store.before_answer = lambda: broker.registration.observed_gone(gone)
        broker.registration.observed_gone(gone)
        await broker.registered(2)
        await asyncio.sleep(5)
    assert len(broker.epochs) == 2


async def test_a_deletion_delivered_before_the_answer_to_registering_is_not_missed() -> None:
    broker = Broker()

    def delete_at_once() -> None:
        broker.store.before_answer = lambda: None
        broker.registration.observed_gone(broker.store.delete(KEY))

    broker.store.before_answer = delete_at_once
    async with running(broker):
        await broker.registered(2)
    assert broker.store.item(KEY).create_revision == broker.epochs[1]


async def test_intact_since_is_in_the_next_registration() -> None:
    broker = Broker()
    async with running(broker):
        epoch = await broker.registered()
        assert broker.stored.whole_since == 0
        broker.store.expire_lease(1)
        await broker.registered(2)
    assert (broker.stored.whole_since, broker.stored.synced_whole_since) == (epoch, epoch)


# -- an unavailable store ----------------------------------------------------------------


async def test_a_store_that_is_away_at_the_start_is_retried_and_logged_once() -> None:
    broker = Broker()
    broker.store.disconnect()
    async with running(broker):
        await asyncio.sleep(5)
        assert broker.epochs == []
        broker.store.reconnect()
        await broker.registered()
    waiting, registered = emitted_events(broker.state_changes)
    assert (waiting.stage, waiting.cause) == (Stage.FAILED, Cause.STORE_UNREACHABLE)
    assert registered.stage is Stage.COMPLETED


async def test_a_store_that_is_away_for_less_than_the_lease_changes_nothing() -> None:
    broker = Broker()
    async with running(broker):
        epoch = await broker.registered()
        broker.store.disconnect()
        await asyncio.sleep(1)
        broker.store.reconnect()
        await asyncio.sleep(10)
    assert broker.epochs == [epoch]


async def test_a_registration_without_an_answer_is_replaced() -> None:
    """It was applied under a revision that no answer returned."""
    broker = Broker()
    lost: list[int] = []
    broker.store.before_answer = lambda: lost.append(broker.store.item(KEY).create_revision)
    broker.store.loses_answers = True
    async with running(broker):
        await until(lambda: len(lost) == 1)
        broker.store.before_answer = lambda: None
        broker.store.loses_answers = False
        epoch = await broker.registered()
    assert epoch > lost[0]
    assert broker.store.item(KEY).create_revision == epoch


async def test_failed_attempts_leave_no_lease_behind() -> None:
    broker = Broker()
    broker.store.loses_answers = True
    async with running(broker):
        await asyncio.sleep(5)
        broker.store.loses_answers = False
        await broker.registered()
    assert broker.leases == 1


async def test_a_store_that_fell_back_is_not_registered_with() -> None:
    broker = Broker()
    with capture_logs() as lines:
        task = asyncio.create_task(broker.registration.run())
        await broker.registered()
        broker.store.data.wipe()
        await task
    assert lines[-1]["event"] == "registration_ended"
    assert lines[-1]["log_level"] == "critical"


# -- stopping ----------------------------------------------------------------------------


@pytest.mark.rule("stopping-broker-does-not-rejoin")
async def test_a_stopping_broker_is_marked_and_keeps_its_epoch() -> None:
    broker = Broker()
    async with running(broker):
        epoch = await broker.registered()
        await broker.registration.stopping()
        await asyncio.sleep(5)
    item = broker.store.item(KEY)
    assert broker.stored.state == STOPPING
    assert item.create_revision == epoch
    assert item.mod_revision > epoch


async def test_a_stopping_registration_still_ends_with_its_lease() -> None:
    broker = Broker()
    async with running(broker):
        await broker.registered()
        await broker.registration.stopping()
        await broker.registration.withdraw()
        assert broker.store.data.get(KEY) is None


async def test_a_broker_that_registers_again_while_it_stops_is_registered_as_stopping() -> None:
    """Rule `stopping-broker-does-not-rejoin`: otherwise it would be elected or admitted to an
    ISR, and then stop."""
    broker = Broker()
    async with running(broker):
        await broker.registered()
        await broker.registration.stopping()
        broker.store.expire_lease(1)
        await broker.registered(2)
    assert broker.stored.state == STOPPING
    # Created as stopping, so nothing has to be rewritten.
    item = broker.store.item(KEY)
    assert item.mod_revision == item.create_revision


async def test_stopping_before_it_ever_registered_writes_nothing() -> None:
    broker = Broker()
    await broker.registration.stopping()
    assert broker.store.data.get(KEY) is None


async def test_a_stop_does_not_mark_the_next_incarnation_of_the_broker() -> None:
    broker = Broker()
    async with running(broker):
        await broker.registered()
        broker.store.delete(KEY)
        broker.store.put(KEY, encode(registration(1)))
        await broker.registration.stopping()
    assert broker.stored.state == RUNNING


@pytest.mark.parametrize("before", [False, True], ids=["the first time", "again"])
async def test_a_stop_while_it_registers_leaves_no_running_registration_behind(
    before: bool,
) -> None:
    """The leadership transfer would wait for a controller that sees no reason to act."""
    broker = Broker(SlowStore(virtual_clock()))
    async with running(broker):
        if before:
            await broker.registered()
            broker.store.expire_lease(1)
        await until(lambda: broker.store.data.get(KEY) is not None)
        assert broker.stored.state == RUNNING
        await broker.registration.stopping()
        epoch = await broker.registered(1 + before)
    assert broker.stored.state == STOPPING
    assert broker.store.item(KEY).create_revision == epoch


async def test_withdrawing_ends_the_registration_at_once() -> None:
    broker = Broker()
    task = asyncio.create_task(broker.registration.run())
    await broker.registered()
    task.cancel()
    await asyncio.wait([task])
    await broker.registration.withdraw()
    assert broker.store.data.get(KEY) is None


async def test_nothing_continues_after_a_cancellation() -> None:
    broker = Broker()
    before = asyncio.all_tasks()
    async with running(broker):
        await broker.registered()
    assert asyncio.all_tasks() == before
