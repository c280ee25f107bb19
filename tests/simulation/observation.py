"""Observes every change of a replica while a world runs, at the cost of a call each.

Production code is wrapped while the context lasts. Logs report appends and cuts when they
happen, and partitions are noted as changed whenever a field is set that the rules check.
Nothing is polled, because a world takes a hundred thousand steps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Protocol, TypeAlias

from doubles.memory_data import MemoryData
from simulation.shadow_logs import Entry
from tidelog.model import Batch
from tidelog_broker.core.partition.partition import Partition
from tidelog_broker.core.partition.producer_state import ProducerStates
from tidelog_broker.core.partition.range_digest import RangeDigest
from tidelog_broker.core.partition.replica_key import ReplicaKey
from tidelog_broker.damage.divergences import Divergences
from tidelog_broker.log.disk import Disk
from tidelog_broker.log.log import Log
from tidelog_broker.log.log_errors import LogError
from tidelog_broker.log.producer_history import ProducerHistory
from tidelog_broker.replicas.replica_commands import ReplicaCommands
from tidelog_broker.requests.purgatory import Purgatory
from tidelog_broker.storage.log_directory import LogDirectory
from tidelog_runtime.metadata.store import Delete, KeyValue, Transaction, TransactionResult
from tidelog_runtime.replica_control import (
    CommandResult,
    DescribeReplicasCommand,
    DescribeReplicasResult,
    LeaderAndIsrCommand,
    StopReplicaCommand,
)

ControlCommand: TypeAlias = LeaderAndIsrCommand | StopReplicaCommand | DescribeReplicasCommand
_CarryOut: TypeAlias = (
    "Callable[[ReplicaCommands, Any], Awaitable[CommandResult | DescribeReplicasResult]]"
)
_Transact: TypeAlias = Callable[[MemoryData, Transaction], TransactionResult]

WATCHED_FIELDS = frozenset({"high_watermark", "leading", "revision", "state"})
READ_BYTES = 1 << 20


class Observer(Protocol):
    def log_opened(self, disk: Disk, log: Log) -> None: ...

    def log_appended(self, log: Log, batches: Sequence[Batch]) -> None: ...

    def log_before_cut(self, log: Log, offset: int) -> None: ...

    def log_before_reset(self, log: Log, offset: int) -> None: ...

    def log_cut(self, log: Log, offset: int) -> None: ...

    def log_reset(self, log: Log, offset: int) -> None: ...

    def log_start_moved(self, log: Log) -> None: ...

    def log_synced(self, log: Log) -> None:
        """The log takes what it holds below its flushed offset for synced."""

    def log_failed(self, log: Log) -> None:
        """A truncation or reset failed half-way."""

    def log_sealing(self, log: Log) -> None:
        """Damaged batches of the log are about to become unreadable ones, while it is in use."""

    def log_removed(self, log: Log) -> None:
        """The directory of the log was set aside, or is to be deleted."""

    def wait_began(self, partition: Partition, future: asyncio.Future[Any]) -> None:
        """A produce request waits for the high watermark."""

    def leader_committed(self, partition: Partition) -> None:
        """The high watermark of a leader has moved."""

    def end_reported(self, partition: Partition, end: int) -> None:
        """A leader has reported the committed end."""

    def command_obeyed(self, commands: ReplicaCommands, command: ControlCommand) -> None:
        """A broker has carried out a command; reported in the order in which that broker did."""

    def divergence_found(
        self, key: ReplicaKey, broker_id: int, own: RangeDigest, other: RangeDigest
    ) -> None:
        """A broker has found that its replica and another one hold different batches."""

    def producers_learned(self, history: ProducerHistory, states: ProducerStates) -> None:
        """A follower with an empty log has received the producers that wrote below its start."""

    def key_deleted(self, data: MemoryData, transaction: Transaction, former: KeyValue) -> None:
        """A transaction has deleted a key; the end of a lease is not reported.

        - `data`: of the store, or of a backup of it that a process uses
        """


@contextmanager
def observed(observer: Observer, changed: dict[Partition, None]) -> Iterator[None]:
    """Reports to `observer` while the context lasts.

    - `changed`: collects changed partitions; the code that checks them clears it
    """
    with patched(Log, "open", lambda open_: classmethod(_opening(open_.__func__, observer))):  # noqa: SIM117
        with (
            patched(Log, "append", lambda append: _appending(append, observer)),
            patched(Log, "truncate_to", lambda cut: _cutting(cut, observer)),
            patched(Log, "reset_to", lambda reset: _resetting(reset, observer)),
            patched(Log, "delete_old_segments", lambda delete: _deleting(delete, observer)),
            patched(Log, "delete_below", lambda delete: _deleting_below(delete, observer)),
            patched(Log, "finish_flush", lambda finish: _syncing(finish, observer)),
            patched(Log, "begin_quarantine", lambda seal: _sealing(seal, observer)),
            patched(LogDirectory, "_move_away", lambda move: _moving(move, observer)),
            patched(ReplicaCommands, "leader_and_isr", lambda take: _obeying(take, observer)),
            patched(ReplicaCommands, "stop_replica", lambda stop: _obeying(stop, observer)),
            patched(
                ReplicaCommands, "describe_replicas", lambda describe: _obeying(describe, observer)
            ),
            patched(Divergences, "found", lambda found: _diverging(found, observer)),
            patched(ProducerHistory, "adopt_below_start", lambda learn: _learning(learn, observer)),
            patched(Partition, "committed_end", lambda end: _reporting_end(end, observer)),
            patched(Purgatory, "committed", lambda wait: _waiting(wait, observer)),
            patched(MemoryData, "transact", lambda transact: _transacting(transact, observer)),
            patched(Partition, "__setattr__", lambda set_: _setting(set_, changed, observer)),
        ):
            yield


@contextmanager
def patched(owner: type | ModuleType, name: str, wrap: Callable[[Any], Any]) -> Iterator[None]:
    own = owner.__dict__.get(name)
    setattr(owner, name, wrap(own if own is not None else getattr(owner, name)))
    try:
        yield
    finally:
        if own is None:
            delattr(owner, name)
        else:
            setattr(owner, name, own)


def _opening(original: Callable[..., Log], observer: Observer) -> Callable[..., Log]:
    def open_log(cls: type[Log], disk: Disk, *args: Any, **options: Any) -> Log:
        log = original(cls, disk, *args, **options)
        observer.log_opened(disk, log)
        return log

    return open_log


def _appending(original: Callable[..., None], observer: Observer) -> Callable[..., None]:
    def append(log: Log, batches: Sequence[Batch]) -> None:
        original(log, batches)
        observer.log_appended(log, batches)

    return append


def _cutting(original: Callable[..., None], observer: Observer) -> Callable[..., None]:
    def truncate_to(log: Log, offset: int) -> None:
        if log.failed is None and offset < log.log_end_offset:
            observer.log_before_cut(log, offset)
        try:
            original(log, offset)
        except LogError:
            observer.log_failed(log)
            raise
        observer.log_cut(log, offset)

    return truncate_to


def _resetting(original: Callable[..., None], observer: Observer) -> Callable[..., None]:
    def reset_to(log: Log, offset: int) -> None:
        if log.failed is None:
            observer.log_before_reset(log, offset)
        try:
            original(log, offset)
        except LogError:
            observer.log_failed(log)
            raise
        observer.log_reset(log, offset)

    return reset_to


def _deleting(original: Callable[..., int], observer: Observer) -> Callable[..., int]:
    def delete_old_segments(log: Log, *args: Any) -> int:
        count = original(log, *args)
        if count:
            observer.log_start_moved(log)
        return count

    return delete_old_segments


def _deleting_below(original: Callable[..., int], observer: Observer) -> Callable[..., int]:
    def delete_below(log: Log, offset: int) -> int:
        count = original(log, offset)
        if count:
            observer.log_start_moved(log)
        return count

    return delete_below


def _syncing(original: Callable[..., None], observer: Observer) -> Callable[..., None]:
    def finish_flush(log: Log, ticket: Any) -> None:
        original(log, ticket)
        observer.log_synced(log)

    return finish_flush


def _sealing(original: Callable[..., Any], observer: Observer) -> Callable[..., Any]:
    def begin_quarantine(log: Log, *args: Any) -> Any:
        observer.log_sealing(log)
        return original(log, *args)

    return begin_quarantine


def _moving(original: Callable[..., None], observer: Observer) -> Callable[..., None]:
    def move_away(logs: LogDirectory, key: Any, since_ms: int) -> None:
        log = logs.log_of(key)
        original(logs, key, since_ms)
        if log is not None:
            observer.log_removed(log)

    return move_away


def _diverging(original: Callable[..., bool], observer: Observer) -> Callable[..., bool]:
    def found(
        divergences: Divergences,
        key: ReplicaKey,
        broker_id: int,
        own: RangeDigest,
        other: RangeDigest,
    ) -> bool:
        observer.divergence_found(key, broker_id, own, other)
        return original(divergences, key, broker_id, own, other)

    return found


def _learning(
    original: Callable[[ProducerHistory, ProducerStates], None], observer: Observer
) -> Callable[[ProducerHistory, ProducerStates], None]:
    def learn(history: ProducerHistory, states: ProducerStates) -> None:
        original(history, states)
        observer.producers_learned(history, states)

    return learn


def _reporting_end(original: Callable[..., int], observer: Observer) -> Callable[..., int]:
    def committed_end(partition: Partition, known_epoch: int) -> int:
        end = original(partition, known_epoch)
        observer.end_reported(partition, end)
        return end

    return committed_end


def _waiting(
    original: Callable[..., asyncio.Future[Any]], observer: Observer
) -> Callable[..., asyncio.Future[Any]]:
    def committed(
        purgatory: Purgatory, partition: Partition, next_offset: int
    ) -> asyncio.Future[Any]:
        future = original(purgatory, partition, next_offset)
        if not future.done():
            observer.wait_began(partition, future)
        return future

    return committed


def _obeying(original: _CarryOut, observer: Observer) -> _CarryOut:
    async def carry_out(
        commands: ReplicaCommands, command: ControlCommand
    ) -> CommandResult | DescribeReplicasResult:
        result = await original(commands, command)
        if result.error is None:
            observer.command_obeyed(commands, command)
        return result

    return carry_out


def _transacting(original: _Transact, observer: Observer) -> _Transact:
    def transact(data: MemoryData, transaction: Transaction) -> TransactionResult:
        deleted = [c.key for c in transaction.changes if isinstance(c, Delete)]
        former = [item for key in deleted if (item := data.get(key)) is not None]
        result = original(data, transaction)
        if result.succeeded:
            for item in former:
                observer.key_deleted(data, transaction, item)
        return result

    return transact


def _setting(
    original: Callable[..., None], changed: dict[Partition, None], observer: Observer
) -> Callable[..., None]:
    def set_attribute(partition: Partition, name: str, value: object) -> None:
        original(partition, name, value)
        if name in WATCHED_FIELDS:
            changed[partition] = None
            if name == "high_watermark" and getattr(partition, "leading", None) is not None:
                observer.leader_committed(partition)

    return set_attribute


def read_entries(log: Log) -> list[Entry]:
    """Returns what a log holds. What cannot be read between two batches is one unreadable entry."""
    entries: list[Entry] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        found = _batches_at(log, offset, READ_BYTES) or _batches_at(log, offset, 1)
        if found:
            entries += [Entry.of(batch.header) for batch in found]
        else:
            later = range(offset + 1, log.log_end_offset)
            end = next((o for o in later if _batches_at(log, o, 1)), log.log_end_offset)
            epoch = entries[-1].leader_epoch if entries else 0
            entries.append(Entry(offset, end, epoch, 0, is_unreadable=True))
        offset = entries[-1].next_offset
    return entries


def _batches_at(log: Log, offset: int, max_bytes: int) -> list[Batch]:
    try:
        return log.read(offset, max_bytes=max_bytes, up_to=log.log_end_offset)
    except LogError:
        return []
