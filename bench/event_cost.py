"""The cost of state change events for a controller that elects leaders for ten thousand partitions
at once: `python -m bench.event_cost`.

Prints microseconds of CPU for each election, as the median of some rounds.

- `decided`: a change with its cause in each state, and its stages requested and completed; part of
  the decision.
- `commanded`: the events of commands to two replicas, and of their acknowledgements.
- `kept`, `written`: buffering these six events, and writing their log lines. No request waits for
  either.
"""

from __future__ import annotations

import asyncio
import gc
import io
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain

from tidelog.model import TopicPartition
from tidelog_controller.control.command_events import CommandEvents
from tidelog_controller.core.change_origins import ChangeOrigins
from tidelog_controller.core.transaction_events import TransactionEvents
from tidelog_controller.state.commands import EmitEvent, EmitEvents, SendLeaderAndIsr
from tidelog_controller.state.context import Context
from tidelog_controller.state.mutations import PartitionBatch, PartitionWrite
from tidelog_runtime.clock import SystemClock
from tidelog_runtime.metadata.keys import Keys
from tidelog_runtime.metadata.schema import LeaderAndIsr, Member
from tidelog_runtime.metadata.store import MAX_TRANSACTION_CHANGES, TransactionResult
from tidelog_runtime.replica_control import (
    CommandResult,
    LeaderAndIsrCommand,
    PartitionCommand,
    PartitionResult,
)
from tidelog_runtime.telemetry.logging import configure_logging
from tidelog_runtime.telemetry.state_change_log import StateChangeLog

PARTITIONS = 10_000
ROUNDS = 7
_WALL_MS = 1_700_000_000_000

_LED = LeaderAndIsr("id", (1, 2, 3), 1, 1, 5, (Member(1, 10), Member(2, 20), Member(3, 30)), (), 2)
_ELECTED = LeaderAndIsr("id", (1, 2, 3), 1, 2, 6, (Member(2, 20), Member(3, 30)), (), 2)


def _seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def _batches() -> list[PartitionBatch]:
    writes = [
        PartitionWrite(TopicPartition("sea", p), _LED, _ELECTED, 50) for p in range(PARTITIONS)
    ]
    step = MAX_TRANSACTION_CHANGES
    return [
        PartitionBatch(tuple(writes[first : first + step]), None)
        for first in range(0, PARTITIONS, step)
    ]


def _decide(
    origins: ChangeOrigins, emitter: TransactionEvents, batches: Sequence[PartitionBatch]
) -> None:
    for number, batch in enumerate(batches, start=1):
        decided = origins.attach(batch, number, _WALL_MS)
        emitter.batch_requested(number, decided)
        emitter.ended(number, decided, TransactionResult(True, 60 + number), answered=True)


def _commands(
    broker_id: int, batches: Sequence[PartitionBatch]
) -> list[tuple[SendLeaderAndIsr, CommandResult]]:
    """Returns the commands with their answers."""
    commands = []
    for number, batch in enumerate(batches, start=1):
        states = [(w.partition, w.new) for w in batch.writes if w.new is not None]
        partitions = [PartitionCommand(partition, state, 61, {}) for partition, state in states]
        answers = [PartitionResult("id", name.partition, 61, None) for name, _ in states]
        command = LeaderAndIsrCommand(1, 1, 10 * broker_id, False, partitions, {}, 61)
        sent = SendLeaderAndIsr(broker_id, number, command)
        commands.append((sent, CommandResult(None, answers)))
    return commands


def _command(
    emitter: CommandEvents, commands: Sequence[tuple[SendLeaderAndIsr, CommandResult]]
) -> None:
    for sent, answer in commands:
        for name, *_ in sent.command.partitions:
            emitter.changed(name)
        emitter.sent(sent)
        emitter.answered(sent.id, answer)


async def _keep(events_to_emit: Sequence[EmitEvents]) -> tuple[float, float]:
    """Returns the seconds to buffer all events, and to write their lines."""
    log = StateChangeLog("controller-1", SystemClock())

    def keep() -> None:
        for t in chain.from_iterable(each.events for each in events_to_emit):
            log.emit(
                t.kind,
                t.stage,
                change=t.change,
                cause=t.cause,
                name=t.name,
                topic=t.topic,
                topic_id=t.topic_id,
                broker=t.broker,
                broker_epoch=t.broker_epoch,
                controller_epoch=1,
                leader_epoch=t.leader_epoch,
                revision=t.revision,
                details=t.details,
            )

    return _seconds(keep), _seconds(log.flush)


def _round() -> dict[str, float]:
    events_to_emit: list[EmitEvents] = []

    def emit(command: EmitEvent | EmitEvents) -> None:
        assert isinstance(command, EmitEvents)
        events_to_emit.append(command)

    context = Context(Keys("bench"))
    origins = ChangeOrigins(context, 1, {})
    emitter = TransactionEvents(context, 1, emit)
    batches = _batches()
    decided = _seconds(lambda: _decide(origins, emitter, batches))
    commanded = 0.0
    for broker_id in (2, 3):
        replicas = CommandEvents(broker_id, 10 * broker_id, 1, emit)
        commands = _commands(broker_id, batches)
        commanded += _seconds(partial(_command, replicas, commands))
    kept, written = asyncio.run(_keep(events_to_emit))
    parts = {"decided": decided, "commanded": commanded, "kept": kept, "written": written}
    return {name: seconds * 1e6 / PARTITIONS for name, seconds in parts.items()}


def main() -> None:
    configure_logging("controller-1", stream=io.StringIO())
    gc.disable()  # The cost depends on the other objects of the process.
    rounds = [_round() for _ in range(ROUNDS)]
    for name in rounds[0]:
        median = statistics.median(one[name] for one in rounds)
        sys.stdout.write(f"{name:10} {median:6.2f} µs an election\n")


if __name__ == "__main__":
    main()
