"""One term of the active controller.

It consists of a queue of events, one task that owns the core, and tasks that carry out the core's
commands and enqueue the results.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from structlog.typing import FilteringBoundLogger

from tidelog.errors import ErrorCode, TidelogError
from tidelog.feature_levels import SUPPORTED, LevelRange
from tidelog.inspection.state_reports import (
    BrokerBacklog,
    ControllerState,
    PartitionKeyState,
    StateRequest,
)
from tidelog.memory_shortage import is_memory_shortage
from tidelog.state_changes.event import NO_PARTITION, StateChange
from tidelog_controller.core.controller import Controller
from tidelog_controller.core.controller_description import not_found, partitions_in_slices
from tidelog_controller.core.write_pace import INTERVALS, Intervals
from tidelog_controller.policies.internal_topics import InternalTopic
from tidelog_controller.policies.leader_balance import LeaderBalancing
from tidelog_controller.shell.broker_channel import BrokerChannel, Dialer
from tidelog_controller.shell.controller_election import Leadership
from tidelog_controller.shell.controller_roster import ControllerRoster
from tidelog_controller.state.commands import (
    AdminReply,
    CloseChannel,
    Command,
    EmitEvent,
    EmitEvents,
    FindPlaces,
    Log,
    MakePlan,
    OpenChannel,
    ReadKeys,
    ReadSnapshot,
    Reply,
    SendDescribeReplicas,
    SendLeaderAndIsr,
    SendStopReplica,
    StepDown,
    Transact,
)
from tidelog_controller.state.context import Context
from tidelog_controller.state.events import (
    AdminRequest,
    DiskReported,
    Event,
    KeysRead,
    LeadersUnreachable,
    Loaded,
    OutcomeUnknown,
    PlacesFound,
    PlanMade,
    SnapshotRead,
    StoreChanged,
    Tick,
    Transacted,
)
from tidelog_controller.state.operation_registry import DEFAULT_MAX_MOVES_PER_BROKER
from tidelog_runtime.broker_reports import DiskReport, UnreachableLeadersReport
from tidelog_runtime.clock import Clock
from tidelog_runtime.cooperative import yield_times
from tidelog_runtime.metadata.keys import Keys
from tidelog_runtime.metadata.measured_store import MeasuredStore
from tidelog_runtime.metadata.schema import Departure
from tidelog_runtime.metadata.store import (
    Lease,
    ModRevision,
    StoreUnavailableError,
    Transaction,
)
from tidelog_runtime.replica_control import ReplicaControl
from tidelog_runtime.telemetry.state_change_log import StateChangeLog

# Producers of events wait while the queue is full; the owner only takes events from it.
MAX_QUEUED_EVENTS = 10_000

# While events wait, the loop gets this many turns after each event. The answer to a heartbeat or a
# health check takes several turns, and would otherwise wait for one event in each of them.
TURNS_BETWEEN_EVENTS = 4

# No key was ever written at this revision, so that a guard on it always fails.
_NEVER = -1


_Made = TypeVar("_Made")

# Runs a blocking function outside the event loop; the simulator runs it in place.
RunBlocking = Callable[[Callable[[], None]], Awaitable[None]]


async def run_in_place(work: Callable[[], None]) -> None:
    work()


class Stopwatch(Protocol):
    """Measures the processing time of each event."""

    def begin(self) -> float: ...

    def end(self, began: float) -> None: ...


class NoStopwatch:
    def begin(self) -> float:
        return 0.0

    def end(self, began: float) -> None: ...


@dataclasses.dataclass(frozen=True, slots=True)
class Environment:
    """Everything outside the core that a controller needs; the simulator provides its own.

    `levels`: the feature levels of the release."""

    store: MeasuredStore
    keys: Keys
    clock: Clock
    rng: random.Random
    connect: Callable[[str], ReplicaControl]
    dialer: Dialer
    log: FilteringBoundLogger
    state_changes: StateChangeLog
    command_timeout_ms: int
    stopwatch: Stopwatch = dataclasses.field(default_factory=NoStopwatch)
    internal_topics: Sequence[InternalTopic] = ()
    max_moves_per_broker: int = DEFAULT_MAX_MOVES_PER_BROKER
    leader_balancing: LeaderBalancing | None = None
    intervals: Intervals = INTERVALS
    run_blocking: RunBlocking = run_in_place
    levels: LevelRange = SUPPORTED


class _TermOverError(Exception):
    """Ends the task group; the message gives the reason."""


async def _resign(resigning: Callable[[], Awaitable[str]]) -> None:
    raise _TermOverError(await resigning())


class EventLoop:
    def __init__(
        self, environment: Environment, leadership: Leadership, roster: ControllerRoster
    ) -> None:
        self._environment = environment
        self._roster = roster
        self._identity = leadership.identity
        self._lease: Lease = leadership.lease
        self._log = environment.log
        self._controller = Controller(
            environment.keys,
            leadership.identity,
            environment.rng,
            command_timeout_ms=environment.command_timeout_ms,
            internal_topics=environment.internal_topics,
            max_moves_per_broker=environment.max_moves_per_broker,
            leader_balancing=environment.leader_balancing,
            intervals=environment.intervals,
            levels=environment.levels,
        )
        self._queue: asyncio.Queue[Event] = asyncio.Queue(MAX_QUEUED_EVENTS)
        self._channels: dict[int, BrokerChannel] = {}
        self._requests: dict[int, asyncio.Future[AdminReply]] = {}
        self._last_request_id = 0
        self._over = False
        self._describing = asyncio.Lock()

    async def run(self, resigning: Callable[[], Awaitable[str]]) -> str:
        """Returns why the controller term has ended.

        `resigning` returns when the term has to end, with the reason. Other errors are raised as an
        exception group.
        """
        reasons: list[str] = []
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._watch_lease())
                tasks.create_task(self._watch_store())
                tasks.create_task(_resign(resigning))
                await self._own(tasks)
        except* _TermOverError as over:
            reasons += [str(error) for error in over.exceptions]
        finally:
            await self._close_channels()
        return "; ".join(reasons)

    async def submit(self, request: AdminRequest) -> AdminReply:
        """Waits for the reply, which arrives at the request's own timeout at the latest."""
        if self._over:
            return AdminReply(_deposed(outcome_unknown=False))
        self._last_request_id += 1
        request_id = self._last_request_id
        reply: asyncio.Future[AdminReply] = asyncio.get_running_loop().create_future()
        try:
            self._queue.put_nowait(request._replace(request_id=request_id))
        except asyncio.QueueFull:
            return AdminReply(_busy())
        self._requests[request_id] = reply
        try:
            return await reply
        finally:
            del self._requests[request_id]

    def report(self, report: UnreachableLeadersReport) -> TidelogError | None:
        """Returns why the report was rejected; None: it was accepted."""
        return self._take_report(LeadersUnreachable(report))

    def report_disk(self, report: DiskReport) -> TidelogError | None:
        """Returns why the report was rejected; None: it was accepted."""
        return self._take_report(DiskReported(report))

    def _take_report(self, event: LeadersUnreachable | DiskReported) -> TidelogError | None:
        if self._over:
            return _deposed(outcome_unknown=False)
        try:
            self._queue.put_nowait(event)
        except asyncio.QueueFull:
            return _busy()
        return None

    async def describe(self, request: StateRequest) -> ControllerState:
        """Describes the controller's state at one moment between two events.

        Partitions are described in slices, from a snapshot. Only one description runs at a time, so
        that there is at most one snapshot. Descriptions without partitions do not wait.
        """
        if request.services_only:
            return self._described(request)
        async with self._describing:
            state, snapshot = self._described(request), self.context.snapshot()
            partitions: list[PartitionKeyState] = []
            for some in partitions_in_slices(snapshot, request):
                partitions += some
                await asyncio.sleep(0)
        return dataclasses.replace(state, partitions=tuple(partitions))

    def _described(self, request: StateRequest) -> ControllerState:
        """Returns the state without partitions."""
        state = self._controller.describe(request, self._environment.clock.monotonic_ms())
        links = (self._channels[broker_id].described() for broker_id in sorted(self._channels))
        return dataclasses.replace(state, connections=tuple(links))

    def not_found(self, request: StateRequest) -> TidelogError | None:
        """The error for an unknown topic or partition; None until the state is loaded."""
        return not_found(self.context, request) if self.is_loaded else None

    @property
    def departed(self) -> Mapping[int, Departure]:
        """The last ended incarnation of each broker, whether or not the broker is back."""
        return self._controller.departed

    # Read by a scrape of the metrics.

    @property
    def context(self) -> Context:
        return self._controller.context

    @property
    def is_loaded(self) -> bool:
        return self._controller.is_loaded

    def backlogs(self) -> Sequence[BrokerBacklog]:
        return self._controller.backlogs(self._environment.clock.monotonic_ms())

    def queues(self) -> Mapping[str, int]:
        return {
            "events": self._queue.qsize(),
            "transactions": self._controller.transactions_in_flight,
            "admin_requests": len(self._requests),
        }

    async def _own(self, tasks: asyncio.TaskGroup) -> None:
        stopwatch = self._environment.stopwatch
        while True:
            event = await self._next_event()
            clock = self._environment.clock
            began = stopwatch.begin()
            for command in self._controller.handle(event, clock.monotonic_ms(), clock.wall_ms()):
                self._carry_out(command, tasks)
            stopwatch.end(began)

    async def _next_event(self) -> Event:
        if not self._queue.empty():
            await yield_times(TURNS_BETWEEN_EVENTS)
            return self._queue.get_nowait()
        wake_at_ms = self._controller.wake_at_ms()
        if wake_at_ms is None:
            return await self._queue.get()
        wait_ms = max(wake_at_ms - self._environment.clock.monotonic_ms(), 0)
        try:
            async with asyncio.timeout(wait_ms / 1000):
                return await self._queue.get()
        except TimeoutError:
            return Tick()

    def _carry_out(self, command: Command, tasks: asyncio.TaskGroup) -> None:
        match command:
            case Transact() | ReadKeys() | MakePlan() | FindPlaces() | ReadSnapshot():
                tasks.create_task(self._answer(command))
            case SendLeaderAndIsr() | SendStopReplica() | SendDescribeReplicas():
                tasks.create_task(self._channels[command.broker_id].send(command))
            case OpenChannel():
                self._open_channel(command, tasks)
            case CloseChannel(broker_id, _):
                tasks.create_task(self._channels.pop(broker_id).close())
            case Reply(request_id, reply):
                waiting = self._requests.get(request_id)
                if waiting is not None and not waiting.done():
                    waiting.set_result(reply)
            case EmitEvent():
                self._environment.state_changes.add(self._state_change(command, self._wall_ms()))
            case EmitEvents(events, size):
                wall_ms = self._wall_ms()
                self._environment.state_changes.add_each(
                    (self._state_change(each, wall_ms) for each in events), size
                )
            case Log(event, fields, level):
                getattr(self._log, level.value)(event, **fields)
            case StepDown(reason):
                raise _TermOverError(reason)

    def _wall_ms(self) -> int:
        return self._environment.clock.wall_ms()

    def _state_change(self, event: EmitEvent, wall_ms: int) -> StateChange:
        change, name = event.change, event.name
        return StateChange(
            time_ms=wall_ms,
            service=self._environment.state_changes.service,
            kind=event.kind,
            stage=event.stage,
            cause=change.cause if event.cause is None else event.cause,
            change_id=change.id,
            topic=name.topic if name else event.topic,
            topic_id=event.topic_id,
            partition=name.partition if name else NO_PARTITION,
            broker=event.broker,
            broker_epoch=event.broker_epoch,
            controller_epoch=self._identity.controller_epoch,
            leader_epoch=event.leader_epoch,
            revision=event.revision,
            duration_ms=change.duration_ms(wall_ms),
            trace_id=change.trace_id,
            details=event.details,
        )

    def _open_channel(self, command: OpenChannel, tasks: asyncio.TaskGroup) -> None:
        channel = BrokerChannel(
            command.broker_id,
            command.broker_epoch,
            command.address,
            identity=self._identity,
            control=self._environment.connect(command.address),
            dialer=self._environment.dialer,
            clock=self._environment.clock,
            emit=self._queue.put,
        )
        self._channels[command.broker_id] = channel
        channel.start(tasks)

    async def _answer(
        self, command: Transact | ReadKeys | MakePlan | FindPlaces | ReadSnapshot
    ) -> None:
        match command:
            case Transact():
                await self._transact(command)
            case ReadKeys():
                await self._read(command)
            case MakePlan():
                await self._make_plan(command)
            case FindPlaces(request_id, find):
                places, error = await self._off_loop(find)
                await self._queue.put(PlacesFound(request_id, places or (), error))
            case ReadSnapshot(request_id, read):
                found, error = await self._off_loop(read)
                await self._queue.put(SnapshotRead(request_id, found, error))

    async def _transact(self, command: Transact) -> None:
        try:
            result = await self._environment.store.transact(command.transaction)
        except StoreUnavailableError:
            await self._queue.put(OutcomeUnknown(command.id))
            return
        await self._queue.put(Transacted(command.id, result))

    async def _read(self, command: ReadKeys) -> None:
        """Reads keys by a transaction whose guards fail: it returns all keys at one revision."""
        await asyncio.sleep(command.delay_ms / 1000)
        guards = [ModRevision(key, _NEVER) for key in command.keys]
        try:
            result = await self._environment.store.transact(Transaction(guards, []))
        except StoreUnavailableError:
            await self._queue.put(OutcomeUnknown(command.id))
            return
        await self._queue.put(KeysRead(command.id, result.revision, result.current))

    async def _make_plan(self, command: MakePlan) -> None:
        planned, error = await self._off_loop(command.make)
        await self._queue.put(PlanMade(command.id, planned, error))

    async def _off_loop(
        self, make: Callable[[], _Made]
    ) -> tuple[_Made | None, TidelogError | None]:
        """Returns the result of `make`, or the error that it raised."""
        made: list[_Made] = []
        errors: list[TidelogError] = []

        def work() -> None:
            try:
                made.append(make())
            except TidelogError as error:
                errors.append(error)
            except Exception as error:
                # If it were raised, each retry by the caller would end a controller term.
                self._log.error("plan_failed", exc_info=not is_memory_shortage(error))
                errors.append(_unplannable(error))

        await self._environment.run_blocking(work)
        return (None, errors[0]) if errors else (made[0], None)

    async def _watch_store(self) -> None:
        store = self._environment.store
        snapshot = await store.snapshot(self._environment.keys.root)
        self._roster.load(snapshot)
        await self._queue.put(Loaded(snapshot))
        async for changes in store.watch(snapshot):
            self._roster.apply(changes)
            await self._queue.put(StoreChanged(changes))

    async def _watch_lease(self) -> None:
        await self._lease.wait_lost()
        raise _TermOverError("the lease was lost")

    async def _close_channels(self) -> None:
        self._over = True
        for reply in self._requests.values():
            if not reply.done():
                reply.set_result(AdminReply(_deposed(outcome_unknown=True)))
        channels = list(self._channels.values())
        self._channels.clear()
        await asyncio.gather(*(channel.close() for channel in channels))


def _deposed(*, outcome_unknown: bool) -> TidelogError:
    return TidelogError(
        ErrorCode.NOT_CONTROLLER,
        "this controller stopped being the active one before the request was done; the next "
        "active controller completes what was started; check its progress there",
        outcome_unknown=outcome_unknown,
    )


def _unplannable(error: Exception) -> TidelogError:
    return TidelogError(
        ErrorCode.INTERNAL,
        "the plan could not be made because of a fault of the controller "
        f"({type(error).__name__}: {error}); nothing was started; see the controller's log; a "
        "manual reassignment may be possible",
    )


def _busy() -> TidelogError:
    return TidelogError(
        ErrorCode.REQUEST_TIMED_OUT,
        f"the controller's queue of {MAX_QUEUED_EVENTS} events is full; nothing was started; try "
        "again later",
        outcome_unknown=False,
    )
