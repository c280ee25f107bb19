"""A synchronous environment of the controller's core: the store, the brokers and time. It records
a transcript, which tests compare as a whole."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import TopicPartition
from tidelog.state_changes.event import Cause, Change, Kind, Stage
from tidelog_controller.core.controller import Controller
from tidelog_controller.core.write_pace import Intervals
from tidelog_controller.policies.internal_topics import InternalTopic
from tidelog_controller.policies.leader_balance import LeaderBalancing
from tidelog_controller.policies.reassignment import RequestedMove
from tidelog_controller.state.admin_requests import (
    AddPartitions,
    AlterTopicConfig,
    Assignment,
    BeginOperation,
    Caller,
    CancelOperation,
    RemovePartitions,
    RequestedOperation,
)
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
from tidelog_controller.state.context import ControllerIdentity
from tidelog_controller.state.events import (
    AdminRequest,
    CommandAnswered,
    CommandLost,
    ConnectionEnded,
    CreateTopic,
    DeleteTopic,
    DialOutcome,
    DiskReported,
    Event,
    KeysRead,
    LeadersUnreachable,
    Loaded,
    OutcomeUnknown,
    PlacesFound,
    PlanMade,
    RecoverPartitions,
    ReplicasDescribed,
    StoreChanged,
    Tick,
    Transacted,
)
from tidelog_runtime.broker_reports import (
    DiskReport,
    FailingLeadership,
    UnreachableLeader,
    UnreachableLeadersReport,
)
from tidelog_runtime.metadata.keys import Keys
from tidelog_runtime.metadata.schema import (
    BrokerRegistration,
    ControllerEntry,
    LeaderAndIsr,
    Member,
    decode_leader_and_isr,
    encode,
    encode_leader_and_isr,
)
from tidelog_runtime.metadata.store import Put, Transaction
from tidelog_runtime.replica_control import (
    CommandResult,
    DescribeReplicasCommand,
    DescribeReplicasResult,
    LeaderAndIsrCommand,
    PartitionResult,
    ReplicaSummary,
    StopReplicaCommand,
)
from unit.controller.off_loop import plan_made, snapshot_read
from unit.controller.table_store import TableStore

KEYS = Keys("test")
MAX_STEPS = 10_000
COMMAND_TIMEOUT_MS = 10_000
WALL_MS = 1_700_000_000_000
CALLER = Caller("ann", "ipv4:10.1.1.1:99")


@dataclass
class FakeBroker:
    """Acknowledges everything, unless configured otherwise."""

    broker_epoch: int
    mute: bool = False  # leaves commands without an answer
    lose: bool = False  # its answers, and perhaps the commands, are lost
    refuse: Callable[[TopicPartition], TidelogError | None] = lambda _: None
    # The newest revision of each replica that this broker was sent, by topic id and partition.
    revisions: dict[tuple[str, int], int] = field(default_factory=dict)
    # Log end offset and epochs of each replica, by its number; others are empty.
    logs: dict[int, tuple[int, tuple[tuple[int, int], ...]]] = field(default_factory=dict)
    # Bytes of each replica's log, and bytes that added replicas lack, both by partition.
    sizes: dict[int, int] = field(default_factory=dict)
    lacks: dict[int, dict[int, int]] = field(default_factory=dict)
    silent: bool = False  # leaves requests for logs without an answer
    under_repair: set[int] = field(default_factory=set)  # partitions
    lost_questions: int = 0  # number of the next requests that are lost

    def took(self, result: CommandResult) -> None:
        for topic_id, number, revision, error in result.partitions:
            if error is None:
                self.revisions[topic_id, number] = revision

    def describe(self, question: DescribeReplicasCommand) -> DescribeReplicasResult:
        replicas = []
        for key in question.partitions:
            if key in self.revisions and key[1] not in self.under_repair:
                end, epochs = self.logs.get(key[1], (0, ()))
                size, lacks = self.sizes.get(key[1], -1), self.lacks.get(key[1], {})
                summary = ReplicaSummary(*key, self.revisions[key], 0, end, epochs)
                summary = summary._replace(size_bytes=size, lacks=tuple(lacks.items()))
                replicas.append(summary)
        return DescribeReplicasResult(replicas=replicas)


class Driver:
    def __init__(
        self, store: TableStore | None = None, internal_topics: Sequence[InternalTopic] = ()
    ) -> None:
        self.store = store or TableStore(KEYS.root)
        self.internal_topics = internal_topics  # of the next controller term
        self.leader_balancing: LeaderBalancing | None = None  # of the next controller term
        self.intervals = Intervals(0, 0)  # of the next controller term
        self.now_ms = 1_000
        self.brokers: dict[int, FakeBroker] = {}
        self.transcript: list[str] = []
        self.transactions: list[Transaction] = []
        self.sent: list[tuple[int, LeaderAndIsrCommand | StopReplicaCommand]] = []
        self.questions: list[SendDescribeReplicas] = []
        self.unanswered: list[SendLeaderAndIsr | SendStopReplica] = []
        self.replies: dict[int, AdminReply] = {}
        self.logs: list[tuple[str, Mapping[str, Any]]] = []
        self.published: list[EmitEvent] = []
        self.stepped_down: str | None = None
        self.reads: list[ReadKeys] = []
        # How many of the next transactions get no answer from the store, and whether the store
        # applies them all the same.
        self.unanswered_transactions = 0
        self.apply_unanswered = False
        # Runs before a transaction reaches the store: what another client does at that moment.
        self.before_transaction: Callable[[Transaction], None] | None = None
        self.hold_transactions = False
        self.held: list[Transact] = []
        self.hold_plans = False
        self.plans: list[MakePlan] = []
        self.searches: list[FindPlaces] = []
        self._last_request = 0
        self.controller = self._term()

    def _term(self, controller_id: int = 1) -> Controller:
        held = self.store.items.get(KEYS.controller_epoch)
        epoch = int(held.value) + 1 if held else 1
        self.store.delete(KEYS.controller)
        entry = ControllerEntry(controller_id, "127.0.0.1:7400")
        revision = self.store.transact(
            Transaction(
                [],
                [
                    Put(KEYS.controller, encode(entry)),
                    Put(KEYS.controller_epoch, str(epoch).encode()),
                ],
            )
        ).revision
        identity = ControllerIdentity(controller_id, epoch, revision)
        return Controller(
            KEYS,
            identity,
            random.Random(7),
            command_timeout_ms=COMMAND_TIMEOUT_MS,
            internal_topics=self.internal_topics,
            leader_balancing=self.leader_balancing,
            intervals=self.intervals,
        )

    def load(self) -> None:
        self.store.unseen.clear()
        self.feed(Loaded(self.store.snapshot()))

    def take_over(self) -> None:
        """Elects another controller; what the previous one had in flight is lost."""
        self.held.clear()
        self.unanswered.clear()
        self.hold_transactions = False
        self.controller = self._term(controller_id=2)
        self.load()

    # Brokers.

    def start_broker(
        self, broker_id: int, *, whole_since: int = 0, state: str = "running", rack: str = ""
    ) -> FakeBroker:
        registration = BrokerRegistration(
            f"10.0.0.{broker_id}:7500", rack, f"uuid-{broker_id}", state, whole_since, whole_since
        )
        self.store.delete(KEYS.broker(broker_id))
        epoch = self.store.put(KEYS.broker(broker_id), encode(registration))
        self.brokers[broker_id] = FakeBroker(epoch)
        return self.brokers[broker_id]

    def kill_broker(self, broker_id: int) -> None:
        del self.brokers[broker_id]
        self.store.delete(KEYS.broker(broker_id))

    def refuse_connection(self, broker_id: int) -> None:
        epoch = self.brokers[broker_id].broker_epoch
        self.feed(ConnectionEnded(broker_id, epoch, DialOutcome.REFUSED, 3))

    # Requests.

    def create_topic(
        self,
        topic: str = "t",
        partitions: int = 3,
        replication_factor: int = 3,
        config: Mapping[str, str] | None = None,
        *,
        dry_run: bool = False,
        timeout_ms: int = 5_000,
        trace_id: str = "",
        assignment: Assignment = (),
        operation_id: str = "",
    ) -> int:
        self._last_request += 1
        self.feed(
            CreateTopic(
                self._last_request,
                topic,
                partitions,
                replication_factor,
                config or {},
                dry_run,
                timeout_ms,
                trace_id,
                assignment,
                operation_id,
                CALLER,
            )
        )
        return self._last_request

    def delete_topic(
        self,
        topic: str = "t",
        topic_id: str = "",
        timeout_ms: int = 5_000,
        trace_id: str = "",
        expected_revision: int = 0,
    ) -> int:
        self._last_request += 1
        request = DeleteTopic(self._last_request, topic, topic_id, timeout_ms, trace_id)
        self.feed(request._replace(expected_revision=expected_revision))
        return self._last_request

    def alter_config(
        self,
        changed: Mapping[str, str] | None = None,
        *unset: str,
        topic: str = "t",
        expected_revision: int = 0,
        dry_run: bool = False,
        timeout_ms: int = 5_000,
    ) -> int:
        self._last_request += 1
        self.feed(
            AlterTopicConfig(
                self._last_request,
                topic,
                "",
                changed or {},
                unset,
                expected_revision,
                dry_run,
                timeout_ms,
                "",
                CALLER,
            )
        )
        return self._last_request

    def add_partitions(
        self,
        partitions: int,
        *,
        topic: str = "t",
        assignment: Assignment = (),
        expected_revision: int = 0,
        dry_run: bool = False,
        timeout_ms: int = 5_000,
        trace_id: str = "",
    ) -> int:
        self._last_request += 1
        self.feed(
            AddPartitions(
                self._last_request,
                topic,
                "",
                partitions,
                assignment,
                expected_revision,
                dry_run,
                timeout_ms,
                trace_id,
                CALLER,
            )
        )
        return self._last_request

    def remove_partitions(
        self,
        partitions: int,
        *,
        topic: str = "t",
        confirm_topic: str | None = None,
        expected_revision: int = 0,
        dry_run: bool = False,
        timeout_ms: int = 5_000,
        trace_id: str = "",
    ) -> int:
        self._last_request += 1
        self.feed(
            RemovePartitions(
                self._last_request,
                topic,
                "",
                partitions,
                topic if confirm_topic is None else confirm_topic,
                expected_revision,
                dry_run,
                timeout_ms,
                trace_id,
                CALLER,
            )
        )
        return self._last_request

    def begin_operation(
        self,
        operation: RequestedOperation,
        operation_id: str = "",
        *,
        dry_run: bool = False,
        expected_plan: str = "",
    ) -> int:
        self._last_request += 1
        self.feed(
            BeginOperation(
                self._last_request, operation, operation_id, dry_run, "e5", CALLER, expected_plan
            )
        )
        return self._last_request

    def cancel_operation(
        self, operation_id: str, expected_revision: int = 0, *, dry_run: bool = False
    ) -> int:
        self._last_request += 1
        self.feed(
            CancelOperation(
                self._last_request, operation_id, expected_revision, dry_run, "f6", CALLER
            )
        )
        return self._last_request

    def ask(self, request: AdminRequest) -> AdminReply:
        """Sends the request under the next request number."""
        self._last_request += 1
        self.feed(request._replace(request_id=self._last_request))
        return self.replies[self._last_request]

    def recover(
        self,
        *partitions: int,
        topic: str = "t",
        from_live_replicas: bool = False,
        timeout_ms: int = 5_000,
    ) -> int:
        self._last_request += 1
        self.feed(
            RecoverPartitions(self._last_request, topic, partitions, from_live_replicas, timeout_ms)
        )
        return self._last_request

    def request_move(
        self,
        *target: int,
        partition: int = 0,
        topic: str = "t",
        operation: str = "op",
        cancelled: bool = False,
    ) -> None:
        """Sets the target move of a partition; without a target, withdraws it."""
        context = self.controller.context
        wanted = dict(context.requested_moves)
        wanted.pop(TopicPartition(topic, partition), None)
        if target:
            move = RequestedMove(operation, target, cancelled, "f" * 32)
            wanted[TopicPartition(topic, partition)] = move
        context.request_moves(wanted)
        self.feed(Tick())

    # Reports.

    def report(self, reporter: int, *leaders: int) -> None:
        """A broker reports leaders, in their current incarnations, as unreachable."""
        epochs = {b: broker.broker_epoch for b, broker in self.brokers.items()}
        named = tuple(
            UnreachableLeader(b, epochs[b], 2_500, Change(f"r{reporter}-{b}", Cause.NO_ANSWER))
            for b in leaders
        )
        self.feed(LeadersUnreachable(UnreachableLeadersReport(reporter, epochs[reporter], named)))

    def report_disk(self, broker_id: int, *numbers: int, is_rejecting: bool = True) -> None:
        """A broker with a full disk reports partitions of "t" that it leads."""
        led = tuple(
            FailingLeadership(
                TopicPartition("t", number),
                self.state(number).leader_epoch,
                Cause.DISK_FULL,
                1_000,
                Change(f"d{broker_id}-{number}", Cause.DISK_FULL),
            )
            for number in numbers
        )
        epoch = self.brokers[broker_id].broker_epoch
        self.feed(DiskReported(DiskReport(broker_id, epoch, is_rejecting, led)))

    # What the store holds.

    def state(self, partition: int = 0, topic: str = "t") -> LeaderAndIsr:
        key = KEYS.leader_and_isr(TopicPartition(topic, partition))
        return decode_leader_and_isr(self.store.items[key].value)

    def states(self, topic: str = "t") -> list[LeaderAndIsr]:
        prefix = KEYS.topic(topic) + "/"
        keys = sorted(key for key in self.store.items if key.startswith(prefix))
        return [decode_leader_and_isr(self.store.items[key].value) for key in keys]

    def leader_writes_isr(self, partition: int, *broker_ids: int, topic: str = "t") -> int:
        """Changes the ISR as the leader's own compare-and-swap does."""
        state = self.state(partition, topic)
        members = [Member(b, self.brokers[b].broker_epoch) for b in broker_ids]
        key = KEYS.leader_and_isr(TopicPartition(topic, partition))
        return self.store.put(key, encode_leader_and_isr(state.with_isr(members)))

    # Published events.

    def published_events(self, *kinds: Kind, stage: Stage | None = None) -> list[EmitEvent]:
        """The events of these kinds, or all."""
        return [
            event
            for event in self.published
            if (not kinds or event.kind in kinds) and stage in (None, event.stage)
        ]

    # The loop.

    def feed(self, event: Event) -> None:
        """Handles the event and all that follows from it."""
        pending = deque(self.controller.handle(event, self.now_ms, WALL_MS + self.now_ms))
        for _ in range(MAX_STEPS):
            if pending:
                pending.extend(self._carry_out(pending.popleft()))
            elif self.controller.has_more_decisions:
                pending.extend(self._handle(Tick()))
            elif self.store.unseen:
                pending.extend(self._watch())
            else:
                return
        raise AssertionError("the controller does not come to rest")

    def watch(self) -> None:
        """Delivers what has changed in the store."""
        self.feed(Tick())

    def pass_time(self, ms: int) -> None:
        """Lets time pass, with a tick whenever the controller asked for one."""
        end_ms = self.now_ms + ms
        for _ in range(MAX_STEPS):
            wake = self.controller.wake_at_ms()
            if wake is None or wake > end_ms:
                self.now_ms = end_ms
                self.feed(Tick())
                return
            self.now_ms = max(self.now_ms, wake)
            self.feed(Tick())
        raise AssertionError("the controller wakes again and again")

    def release(self) -> None:
        """The transactions that were held back reach the store."""
        self.hold_transactions = False
        held, self.held = self.held, []
        for command in held:
            self.feed(self._transact(command))

    def answer(self, command: SendLeaderAndIsr | SendStopReplica) -> None:
        """Delivers a late answer."""
        self.feed(self._answer(command, FakeBroker(command.command.broker_epoch)))

    def _handle(self, event: Event) -> list[Command]:
        return self.controller.handle(event, self.now_ms, WALL_MS + self.now_ms)

    def _watch(self) -> list[Command]:
        changes = tuple(self.store.unseen)
        self.store.unseen.clear()
        return self._handle(StoreChanged(changes))

    def _carry_out(self, command: Command) -> list[Command]:
        match command:
            case Transact():
                if self.hold_transactions:
                    self.held.append(command)
                    return []
                return self._handle(self._transact(command))
            case ReadKeys(transaction_id, keys, _):
                self.reads.append(command)
                current = self.store.read(list(keys))
                return self._handle(KeysRead(transaction_id, self.store.revision, current))
            case SendLeaderAndIsr() | SendStopReplica():
                return self._deliver(command)
            case SendDescribeReplicas():
                return self._ask(command)
            case MakePlan() | FindPlaces() | ReadSnapshot():
                return self._off_loop(command)
            case Reply(request_id, reply):
                self.replies[request_id] = reply
            case OpenChannel(broker_id, epoch) | CloseChannel(broker_id, epoch):
                what = "open" if isinstance(command, OpenChannel) else "close"
                self.transcript.append(f"{what} {broker_id}@{epoch}")
            case EmitEvent() | EmitEvents():
                self.published += command.events if isinstance(command, EmitEvents) else [command]
            case Log(event, fields, _):
                self.logs.append((event, fields))
            case StepDown(reason):
                self.stepped_down = reason
        return []

    def _off_loop(self, command: MakePlan | FindPlaces | ReadSnapshot) -> list[Command]:
        match command:
            case ReadSnapshot():
                return self._handle(snapshot_read(command))
            case FindPlaces():
                self.searches.append(command)
                return self._handle(PlacesFound(command.id, command.find(), None))
            case MakePlan():
                self.plans.append(command)
                return [] if self.hold_plans else self._handle(self._planned(command))

    def _planned(self, command: MakePlan) -> PlanMade:
        return plan_made(command)

    def make_plan(self) -> None:
        """Makes the plan that was held back last; later plans are not held back."""
        self.hold_plans = False
        self.feed(self._planned(self.plans[-1]))

    def _transact(self, command: Transact) -> Event:
        self.transactions.append(command.transaction)
        if self.before_transaction is not None:
            self.before_transaction(command.transaction)
        if self.unanswered_transactions:
            self.unanswered_transactions -= 1
            if self.apply_unanswered:
                self.store.transact(command.transaction)
            return OutcomeUnknown(command.id)
        result = self.store.transact(command.transaction)
        # Departure records are written along with the changes that follow from them.
        keys = [change.key for change in command.transaction.changes]
        written = sum(not key.startswith(KEYS.departures) for key in keys) or "departures"
        verdict = "done" if result.succeeded else "rejected"
        self.transcript.append(f"transaction of {written} {verdict}")
        return Transacted(command.id, result)

    def _deliver(self, command: SendLeaderAndIsr | SendStopReplica) -> list[Command]:
        broker_id = command.broker_id
        self.sent.append((broker_id, command.command))
        self.transcript.append(_describe(broker_id, command.command))
        broker = self.brokers.get(broker_id)
        if broker is None or broker.lose:
            return self._handle(
                CommandLost(broker_id, command.command.broker_epoch, command.id, "gone")
            )
        if broker.mute:
            self.unanswered.append(command)
            return []
        return self._handle(self._answer(command, broker))

    def _ask(self, command: SendDescribeReplicas) -> list[Command]:
        broker_id, question_id, question = command
        self.questions.append(command)
        names = " ".join(str(number) for _, number in question.partitions)
        self.transcript.append(f"broker {broker_id} describe {names}")
        broker = self.brokers.get(broker_id)
        name = (broker_id, question.broker_epoch, question_id)
        if broker is None or broker.lose or broker.lost_questions > 0:
            if broker is not None:
                broker.lost_questions -= 1
            return self._handle(CommandLost(*name, "gone"))
        if broker.silent:
            return []
        return self._handle(ReplicasDescribed(*name, broker.describe(question)))

    def _answer(
        self, command: SendLeaderAndIsr | SendStopReplica, broker: FakeBroker
    ) -> CommandAnswered:
        epoch = command.command.broker_epoch
        if epoch != broker.broker_epoch:
            error = TidelogError(ErrorCode.STALE_BROKER_EPOCH, "a former life")
            result = CommandResult(error)
        else:
            result = CommandResult(None, _results(command.command, broker))
            broker.took(result)
        return CommandAnswered(command.broker_id, epoch, command.id, result)


def _results(
    command: LeaderAndIsrCommand | StopReplicaCommand, broker: FakeBroker
) -> list[PartitionResult]:
    if isinstance(command, LeaderAndIsrCommand):
        named = [(p.partition, p.state.topic_id, p.revision) for p in command.partitions]
    else:
        named = [(s.partition, s.topic_id, s.revision) for s in command.partitions]
    return [
        PartitionResult(topic_id, partition.partition, revision, broker.refuse(partition))
        for partition, topic_id, revision in named
    ]


def _describe(broker_id: int, command: LeaderAndIsrCommand | StopReplicaCommand) -> str:
    if isinstance(command, StopReplicaCommand):
        names = " ".join(str(s.partition) for s in command.partitions)
        return f"broker {broker_id} stop {names}"
    what = "full state" if command.full_state else "lead"
    names = " ".join(f"{p.partition}:{p.state.leader}" for p in command.partitions)
    return f"broker {broker_id} {what} {names}".rstrip()


def cluster(*broker_ids: int, internal_topics: Sequence[InternalTopic] = ()) -> Driver:
    """A controller that has taken over a cluster of running brokers without topics."""
    driver = Driver(internal_topics=internal_topics)
    for broker_id in broker_ids:
        driver.start_broker(broker_id)
    driver.load()
    driver.transcript.clear()
    return driver
