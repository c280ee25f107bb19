"""Whole controllers, without sockets, over the in-memory store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from doubles.memory_store import MemoryStore
from tidelog.errors import ErrorCode
from tidelog.inspection.resource_pressures import ControllerPressure
from tidelog.inspection.state_reports import StateRequest
from tidelog.state_changes.event import Cause, Kind, Stage
from tidelog_controller.core import controller_description
from tidelog_controller.requests import operation_admin
from tidelog_controller.shell import service as service_module
from tidelog_controller.shell.event_loop import TURNS_BETWEEN_EVENTS
from tidelog_controller.state.admin_requests import (
    BeginOperation,
    ListOperations,
    Rebalancing,
    RemovedBrokers,
)
from tidelog_controller.state.commands import AdminReply
from tidelog_controller.state.events import CreateTopic, DeleteTopic
from tidelog_runtime.broker_reports import UnreachableLeader, UnreachableLeadersReport
from tidelog_runtime.clock import SystemClock
from tidelog_runtime.metadata.controller_records import decode_known_controller
from tidelog_runtime.metadata.schema import (
    LeaderAndIsr,
    decode_controller,
    decode_leader_and_isr,
)
from tidelog_runtime.metadata.store import (
    Changed,
    KeyValue,
    Lease,
    MetadataStore,
    Put,
    Snapshot,
    StoreRolledBackError,
    StoreUnavailableError,
    Transaction,
    TransactionResult,
)
from tidelog_runtime.pressure.records import Pressure, encode_pressures
from unit.controller.shell_fakes import (
    KEYS,
    ControllerProcess,
    FakeNetwork,
    broker_address,
    register,
    until,
)
from unit.loop_turns import Turns


class Flaky:
    """A store that can be disconnected."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self.cut_off = False
        self.rolled_back = False
        self.has_no_memory = False
        self.leases: list[Lease] = []
        self.reign_lease_id = 0

    def _reach(self) -> None:
        if self.cut_off:
            raise StoreUnavailableError("no endpoint answers")

    @property
    def seen_revision(self) -> int:
        return self._store.seen_revision

    def observe_revision(self, revision: int) -> None:
        self._store.observe_revision(revision)

    async def get(self, key: str) -> KeyValue | None:
        self._reach()
        return await self._store.get(key)

    async def snapshot(self, prefix: str) -> Snapshot:
        self._reach()
        return await self._store.snapshot(prefix)

    async def transact(self, transaction: Transaction) -> TransactionResult:
        self._reach()
        result = await self._store.transact(transaction)
        for change in transaction.changes if result.succeeded else ():
            if isinstance(change, Put) and change.key == KEYS.controller:
                self.reign_lease_id = change.lease_id
        return result

    async def watch(self, snapshot: Snapshot) -> AsyncIterator[Sequence[Changed]]:
        if self.rolled_back:
            raise StoreRolledBackError("the revision has fallen from 9 to 2")
        if self.has_no_memory:
            raise MemoryError
        async for changes in self._store.watch(snapshot):
            yield changes

    async def grant_lease(self, ttl_seconds: int) -> Lease:
        self._reach()
        self.leases.append(await self._store.grant_lease(ttl_seconds))
        return self.leases[-1]

    async def close(self) -> None:
        await self._store.close()


class World:
    def __init__(self, store: Flaky) -> None:
        self.store = store
        self.network = FakeNetwork()
        self.controllers: list[ControllerProcess] = []

    def start_controller(self, controller_id: int) -> ControllerProcess:
        self.controllers.append(ControllerProcess(controller_id, self.store, self.network))
        return self.controllers[-1]

    async def partition(self, partition: int) -> LeaderAndIsr:
        held = await self.store.get(f"{KEYS.topics}t/{partition}/leaderAndISR")
        assert held is not None
        return decode_leader_and_isr(held.value)

    def controller_lease(self) -> Lease:
        """The lease that holds the key of the active controller."""
        return next(lease for lease in self.store.leases if lease.id == self.store.reign_lease_id)

    async def active_id(self) -> int | None:
        held = await self.store.get(KEYS.controller)
        return decode_controller(held.value).controller_id if held else None


@pytest.fixture
async def world() -> AsyncIterator[World]:
    store = Flaky(MemoryStore(SystemClock()))
    made = World(store)
    yield made
    for controller in made.controllers:
        await controller.stop()
    await store.close()


def create(partitions: int = 3, factor: int = 3) -> CreateTopic:
    return CreateTopic(0, "t", partitions, factor, {}, False, 5_000)


async def with_topic(world: World) -> ControllerProcess:
    await register(world.store, 1, 2, 3)
    controller = world.start_controller(1)
    await until(lambda: controller.service.term is not None)
    reply = await controller.service.submit(create())
    assert reply.error is None
    return controller


async def test_one_of_two_controllers_is_active_and_the_other_names_it(world: World) -> None:
    first = world.start_controller(1)
    await until(lambda: first.service.term is not None)
    second = world.start_controller(2)
    replies: list[AdminReply] = []

    async def ask() -> None:
        while not replies or "127.0.0.1:7401" not in str(replies[-1].error):
            replies.append(await second.service.submit(create()))
            await asyncio.sleep(0)

    await asyncio.wait_for(ask(), 5)
    assert replies[-1].error is not None
    assert replies[-1].error.code is ErrorCode.NOT_CONTROLLER
    assert second.service.term is None


async def test_every_controller_lists_all_controllers(world: World) -> None:
    services = [world.start_controller(controller_id).service for controller_id in (1, 2, 3)]

    async def listed() -> list[list[int]]:
        states = [await service.describe(StateRequest()) for service in services]
        return [
            [c.controller_id for c in state.controller.controllers] if state.controller else []
            for state in states
        ]

    async with asyncio.timeout(5):
        while await listed() != [[1, 2, 3]] * 3:  # noqa: ASYNC110 - a store reports, no event
            await asyncio.sleep(0.002)
    assert sum(service.term is not None for service in services) == 1


async def test_other_tasks_run_while_partitions_are_described_at_one_revision(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller_description, "DESCRIBED_PER_SLICE", 1)
    controller = await with_topic(world)
    service = controller.service
    describing = asyncio.create_task(service.describe(StateRequest(topic="t")))
    glimpse = asyncio.create_task(service.describe(StateRequest("t", services_only=True)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    # A cheap request does not wait for it.
    assert glimpse.done()
    assert not describing.done()
    reply = await service.submit(DeleteTopic(0, "t", "", 5_000))
    assert reply.error is None
    state = (await describing).controller
    assert state is not None
    assert [p.partition for p in state.partitions] == [0, 1, 2]
    reported = glimpse.result().controller
    assert reported is not None
    assert (reported.active, reported.partitions, reported.partition_count) == (True, (), 3)


async def test_a_controller_that_stops_is_no_longer_listed(world: World) -> None:
    first = await with_topic(world)
    second = world.start_controller(2)
    # The controller's own registration, and that of the other.
    await until(lambda: len(first.published(Kind.CONTROLLER_JOINED)) == 2)
    await second.stop()
    await until(lambda: bool(first.published(Kind.CONTROLLER_LEFT)))
    assert await world.store.get(KEYS.controller_process(2)) is None
    assert await world.store.get(KEYS.controller_process(1)) is not None
    described = (await first.service.describe(StateRequest())).controller
    assert described is not None
    [missing] = described.missing_controllers
    assert missing.controller_id == 2
    assert missing.stopped_at_ms > 0


async def test_a_controller_without_memory_ends_and_logs_the_reason(world: World) -> None:
    first = await with_topic(world)
    freed: list[bool] = []
    first.service.on_memory_shortage = lambda: freed.append(True)
    second = world.start_controller(2)
    await until(lambda: len(first.published(Kind.CONTROLLER_JOINED)) == 2)
    world.store.has_no_memory = True
    await world.controller_lease().revoke()
    with pytest.raises(MemoryError):
        await asyncio.wait_for(first.task, 5)
    assert freed
    assert first.logs.named("controller_fault") == []
    await asyncio.gather(second.task, return_exceptions=True)
    known = await world.store.get(KEYS.known_controller(1))
    assert known is not None
    left = decode_known_controller(known.value)
    assert left.fault.startswith("it ended for lack of memory: MemoryError: the process may not")
    assert (left.fault_at_ms > 0, left.stopped_at_ms) == (True, 0)
    assert await world.store.get(KEYS.controller_process(1)) is None


async def test_a_controller_reports_its_own_pressures_and_those_of_others(world: World) -> None:
    controller = await with_topic(world)
    files, memory = Pressure("open_files", 90, 100, 5), Pressure("memory", 95, 100, 6)
    for controller_id in (1, 2):
        put = Put(KEYS.controller_pressure(controller_id), encode_pressures((files,)))
        await world.store.transact(Transaction([], [put]))
    controller.service.own_pressures = lambda: (memory,)

    async def reported() -> tuple[ControllerPressure, ...]:
        state = (await controller.service.describe(StateRequest())).controller
        return tuple(state.controller_pressures) if state else ()

    async with asyncio.timeout(5):
        while len(await reported()) < 2:  # noqa: ASYNC110 - a store reports, no event
            await asyncio.sleep(0.002)
    assert await reported() == (ControllerPressure(1, *memory), ControllerPressure(2, *files))


async def test_a_registration_outlives_a_controller_term(world: World) -> None:
    controller = await with_topic(world)
    await world.controller_lease().revoke()
    await until(lambda: len(controller.published(Kind.CONTROLLER_ELECTED)) == 2)
    assert not controller.published(Kind.CONTROLLER_LEFT)
    assert await world.store.get(KEYS.controller_process(1)) is not None


async def test_a_lost_registration_is_written_again(world: World) -> None:
    controller = await with_topic(world)
    (own,) = [lease for lease in world.store.leases if lease is not world.controller_lease()]
    await own.revoke()
    await until(lambda: bool(controller.published(Kind.CONTROLLER_LEFT)))
    await until(lambda: bool(controller.published(Kind.CONTROLLER_JOINED)))
    assert controller.service.term is not None


async def test_a_topic_is_created_and_deleted_from_end_to_end(world: World) -> None:
    controller = await with_topic(world)
    reply = await controller.service.submit(DeleteTopic(0, "t", "", 5_000))
    assert reply.error is None
    assert await world.store.get(KEYS.topic("t")) is None


async def test_a_controller_continues_while_a_plan_is_made(world: World) -> None:
    controller = await with_topic(world)
    controller.may_block.clear()
    planning = asyncio.create_task(
        controller.service.submit(BeginOperation(0, Rebalancing(), "op", dry_run=False))
    )
    await until(lambda: controller.blocked == 1)
    assert (await controller.service.submit(create()._replace(topic="other"))).error is None
    assert not planning.done()
    controller.may_block.set()
    assert (await planning).error is None


async def test_waiting_events_let_other_tasks_run(world: World) -> None:
    controller = await with_topic(world)
    waiting = [
        asyncio.create_task(controller.service.submit(ListOperations(0, (), (), 10, "")))
        for _ in range(10)
    ]
    async with Turns() as turns:
        await asyncio.gather(*waiting)
        assert turns.taken() >= (len(waiting) - 1) * TURNS_BETWEEN_EVENTS


async def test_an_impossible_plan_is_rejected_with_its_reason(world: World) -> None:
    controller = await with_topic(world)
    wanted = BeginOperation(0, RemovedBrokers((1,)), "op", dry_run=True)
    error = (await controller.service.submit(wanted)).error
    assert error is not None
    assert error.code is ErrorCode.NOT_ENOUGH_BROKERS


async def test_a_plan_that_fails_by_a_bug_is_answered_and_the_controller_stays_active(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("what broker 1 holds fits nowhere else")

    controller = await with_topic(world)
    monkeypatch.setattr(operation_admin, "plan_operation", fail)
    wanted = BeginOperation(0, Rebalancing(), "op", dry_run=True)
    error = (await controller.service.submit(wanted)).error
    assert error is not None
    assert (error.code, "fits nowhere else" in error.message) == (ErrorCode.INTERNAL, True)
    assert controller.service.term is not None


async def test_a_controller_that_stops_is_replaced_at_once(world: World) -> None:
    first = await with_topic(world)
    second = world.start_controller(2)
    await first.stop()
    # Well within the lease, since the lease was revoked.
    await asyncio.wait_for(until(lambda: second.service.term is not None), 1)
    assert await world.active_id() == 2
    (elected,) = second.published(Kind.CONTROLLER_ELECTED)
    assert elected.controller_epoch == 2


async def test_a_new_controller_sends_every_broker_its_full_state(world: World) -> None:
    first = await with_topic(world)
    await first.stop()
    world.network.commands.clear()
    world.start_controller(2)
    await until(lambda: len(world.network.commands) == 3)
    reported = {(a, c.controller_epoch, len(c.partitions)) for a, c in world.network.commands}
    assert reported == {(broker_address(b), 2, 3) for b in (1, 2, 3)}


async def test_a_controller_that_loses_its_lease_steps_down_and_is_a_candidate_again(
    world: World,
) -> None:
    controller = await with_topic(world)
    await world.controller_lease().revoke()
    await until(lambda: bool(controller.published(Kind.CONTROLLER_STEPPED_DOWN)))
    await until(lambda: len(controller.published(Kind.CONTROLLER_ELECTED)) == 2)
    assert all(control.closed for _, control in world.network.connections[:3])


async def test_a_stopped_controller_publishes_that_it_was_requested(world: World) -> None:
    controller = await with_topic(world)
    await controller.stop()
    (reported,) = controller.published(Kind.CONTROLLER_STEPPED_DOWN)
    assert reported.cause is Cause.REQUESTED


async def test_a_pending_request_is_answered_when_the_controller_is_deposed(world: World) -> None:
    controller = await with_topic(world)
    world.network.dead.add(broker_address(2))
    waiting = asyncio.create_task(controller.service.submit(DeleteTopic(0, "t", "", 60_000)))
    await until(lambda: any("StopReplica" in repr(c) for _, c in world.network.commands))
    await world.controller_lease().revoke()
    reply = await asyncio.wait_for(waiting, 5)
    assert reply.error is not None
    assert (reply.error.code, reply.error.outcome_unknown) == (ErrorCode.NOT_CONTROLLER, True)


async def test_a_crash_is_detected_by_the_broken_connection(world: World) -> None:
    controller = await with_topic(world)
    leader = (await world.partition(0)).leader
    world.network.kill(broker_address(leader))
    await asyncio.wait_for(until(lambda: bool(controller.published(Kind.BROKER_LEFT))), 1)
    await until(lambda: bool(controller.published(Kind.ELECTION, Stage.COMPLETED)))
    assert await world.store.get(KEYS.broker(leader)) is None
    assert (await world.partition(0)).leader not in (leader, -1)


async def test_a_broken_connection_to_a_living_broker_is_reopened(world: World) -> None:
    controller = await with_topic(world)
    world.network.commands.clear()
    watches = len(world.network.watches)
    world.network.break_connections(broker_address(2))
    await until(lambda: bool(world.network.commands))
    await until(lambda: len(world.network.watches) > watches)
    assert await world.store.get(KEYS.broker(2)) is not None
    assert controller.published(Kind.CONNECTION_LOST)


async def test_an_unreachable_store_is_logged_once_and_again_when_it_is_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_module, "STORE_RETRY_SECONDS", 0.002)
    world.store.cut_off = True
    controller = world.start_controller(1)
    await until(lambda: bool(controller.published(Kind.STORE_LOST)))
    await asyncio.sleep(0.02)  # several attempts
    world.store.cut_off = False
    await until(lambda: controller.service.term is not None)
    assert len(controller.published(Kind.STORE_LOST)) == 1
    assert len(controller.published(Kind.STORE_BACK)) == 1


async def test_a_temporary_loss_of_the_store_costs_only_time(world: World) -> None:
    controller = await with_topic(world)
    world.store.cut_off = True
    waiting = asyncio.create_task(controller.service.submit(DeleteTopic(0, "t", "", 60_000)))
    await asyncio.sleep(0.02)
    world.store.cut_off = False
    reply = await asyncio.wait_for(waiting, 5)
    assert reply.error is None


async def test_a_store_whose_revision_went_back_ends_the_controller(world: World) -> None:
    world.store.rolled_back = True
    controller = world.start_controller(1)
    with pytest.raises(StoreRolledBackError, match="has fallen"):
        await asyncio.wait_for(controller.task, 5)


async def test_reports_reach_the_active_controller_and_no_other() -> None:
    store, network = MemoryStore(SystemClock()), FakeNetwork()
    await register(store, 1, 2)
    first = ControllerProcess(1, store, network)
    await until(lambda: bool(first.published(Kind.CONTROLLER_LOADED)))
    second = ControllerProcess(2, store, network)
    epochs = {
        broker_id: item.create_revision
        for broker_id in (1, 2)
        if (item := await store.get(KEYS.broker(broker_id))) is not None
    }
    report = UnreachableLeadersReport(2, epochs[2], (UnreachableLeader(1, epochs[1], 2_500),))

    assert first.service.report(report) is None
    rejection = second.service.report(report)

    assert rejection is not None
    assert rejection.code is ErrorCode.NOT_CONTROLLER
    await until(lambda: bool(first.published(Kind.LEADER_UNREACHABLE)))
    await second.stop()
    await first.stop()
    await store.close()
