"""The controller's core in a simulated environment without delays: a store in memory, and brokers
that acknowledge at once. The processor time of `handle`, which is the cost of its decisions, is
measured alone."""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from doubles.memory_data import MemoryData
from tidelog.model import TopicPartition
from tidelog_controller.core.controller import Controller
from tidelog_controller.core.write_pace import Intervals
from tidelog_controller.state.commands import (
    Command,
    EmitEvents,
    ReadKeys,
    Reply,
    SendDescribeReplicas,
    SendLeaderAndIsr,
    SendStopReplica,
    StepDown,
    Transact,
)
from tidelog_controller.state.context import ControllerIdentity
from tidelog_controller.state.events import (
    CommandAnswered,
    Event,
    Loaded,
    StoreChanged,
    Transacted,
)
from tidelog_runtime.metadata.keys import Keys, PartitionKey
from tidelog_runtime.metadata.schema import (
    RUNNING,
    BrokerRegistration,
    ControllerEntry,
    decode_leader_and_isr,
    encode,
)
from tidelog_runtime.metadata.store import Changed, Delete, Put, Transaction
from tidelog_runtime.replica_control import CommandResult, LeaderAndIsrCommand, PartitionResult

KEYS = Keys("bench")
COMMAND_TIMEOUT_MS = 10_000


class Spent(NamedTuple):
    """Processor seconds, and numbers of transactions and commands.

    - `deciding_s`: all decisions.
    - `answers_s`: the part of `deciding_s` for brokers' answers to commands, with other work that
      was due at that time.
    - `emitting_s`: serializing events, which the service does when no request waits.
    """

    deciding_s: float = 0.0
    answers_s: float = 0.0
    emitting_s: float = 0.0
    transactions: int = 0
    commands: int = 0

    def since(self, before: Spent) -> Spent:
        return Spent(
            self.deciding_s - before.deciding_s,
            self.answers_s - before.answers_s,
            self.emitting_s - before.emitting_s,
            self.transactions - before.transactions,
            self.commands - before.commands,
        )


class LoneController:
    def __init__(self, brokers: int) -> None:
        self.data = MemoryData()
        self.leaders: dict[TopicPartition, int] = {}
        self.led: dict[int, int] = {}  # the number of partitions that each broker leads
        self.spent = Spent()
        self.errors: list[str] = []
        self._now_ms = 1_000
        self._seen = self.data.revision
        self._epochs = {broker: self._register(broker) for broker in range(1, brokers + 1)}
        self._terms = 0
        self._controller = self._elect()

    def broker_epoch(self, broker: int) -> int:
        return self._epochs[broker]

    def take_over(self) -> None:
        """Begins another controller term, which loads everything."""
        self._controller = self._elect()
        self._seen = self.data.revision
        self.feed(Loaded(self.data.snapshot(KEYS.root)))

    def set_registration(self, broker: int, state: str) -> None:
        """Changes a broker's registration; the controller gets the change by its watch."""
        held = self.data.get(KEYS.broker(broker))
        assert held is not None
        self._put(KEYS.broker(broker), encode(_registration(broker, state)))

    def feed(self, *events: Event, until: Callable[[], bool] = lambda: False) -> None:
        """Handles these events and all that follow from them.

        - `until`: checked before each event; True ends the call.
        """
        self._pending = deque[Event](events)
        while not until():
            self._watch()
            if not self._pending:
                return
            self._handle(self._pending.popleft())

    def handle_remaining(self) -> None:
        """Handles the events that are left after `until`."""
        self.feed(*self._pending)

    def _handle(self, event: Event) -> None:
        self._now_ms += 1
        began = time.process_time()
        commands = self._controller.handle(event, self._now_ms, self._now_ms)
        took_s = time.process_time() - began
        answers_s = took_s if isinstance(event, CommandAnswered) else 0.0
        self._spend(deciding_s=took_s, answers_s=answers_s)
        for command in commands:
            self._carry_out(command)

    def _carry_out(self, command: Command) -> None:
        match command:
            case Transact(number, transaction):
                self._spend(transactions=1)
                self._pending.append(Transacted(number, self.data.transact(transaction)))
                self._watch()
            case SendLeaderAndIsr() | SendStopReplica():
                self._spend(commands=1)
                self._pending.append(self._answer(command))
            case EmitEvents(events, _):
                began = time.process_time()
                deque(events, maxlen=0)
                self._spend(emitting_s=time.process_time() - began)
            case Reply(_, reply):
                if reply.error is not None:
                    self.errors.append(str(reply.error))
            case StepDown() | ReadKeys() | SendDescribeReplicas():
                self.errors.append(f"{type(command).__name__} was not expected")
            case _:
                pass

    def _answer(self, command: SendLeaderAndIsr | SendStopReplica) -> CommandAnswered:
        sent = command.command
        if isinstance(sent, LeaderAndIsrCommand):
            named = [(p.state.topic_id, p.partition, p.revision) for p in sent.partitions]
        else:
            named = [(s.topic_id, s.partition, s.revision) for s in sent.partitions]
        results = [
            PartitionResult(topic_id, name.partition, revision, None)
            for topic_id, name, revision in named
        ]
        return CommandAnswered(
            command.broker_id, sent.broker_epoch, command.id, CommandResult(None, results)
        )

    def _watch(self) -> None:
        """Queues the changes since the last call, as a watch delivers them."""
        changes = self.data.changes_after(self._seen, KEYS.root)
        self._seen = self.data.revision
        self.data.compact(self.data.revision)
        if changes:
            self._pending.append(StoreChanged(changes))
            self._note_leaders(changes)

    def _note_leaders(self, changes: list[Changed]) -> None:
        for change in changes:
            parsed = KEYS.parse(change.key)
            if isinstance(parsed, PartitionKey) and change.value is not None:
                leader = decode_leader_and_isr(change.value.value).leader
                before = self.leaders.get(parsed.partition)
                if before is not None:
                    self.led[before] -= 1
                self.leaders[parsed.partition] = leader
                self.led[leader] = self.led.get(leader, 0) + 1

    def _elect(self) -> Controller:
        self._terms += 1
        self.data.transact(Transaction([], [Delete(KEYS.controller)]))
        entry = encode(ControllerEntry(self._terms, "127.0.0.1:7400"))
        identity = ControllerIdentity(self._terms, self._terms, self._put(KEYS.controller, entry))
        return Controller(
            KEYS,
            identity,
            random.Random(7),
            command_timeout_ms=COMMAND_TIMEOUT_MS,
            intervals=Intervals(0, 0),
        )

    def _register(self, broker: int) -> int:
        return self._put(KEYS.broker(broker), encode(_registration(broker, RUNNING)))

    def _put(self, key: str, value: bytes) -> int:
        return self.data.transact(Transaction([], [Put(key, value)])).revision

    def _spend(self, **more: float) -> None:
        self.spent = self.spent._replace(
            **{name: getattr(self.spent, name) + value for name, value in more.items()}
        )


def _registration(broker: int, state: str) -> BrokerRegistration:
    return BrokerRegistration(f"10.0.0.{broker}:7500", "", f"uuid-{broker}", state, 0, 0)
