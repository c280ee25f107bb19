"""Rules that can be switched off: each replaces production code by a broken version.

The first four (the fourth has two halves) are R1 to R4 of docs/internals/protocol.md: an
exhaustive model has to find a violation without any one of them. The others are further rules
on which this project's safety depends.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import NO_LEADER
from tidelog_broker.core import command_fencing, isr_proposals
from tidelog_broker.core.partition import epochs, high_watermark, isr
from tidelog_broker.core.partition.exchange import FetchAnswer, FetchPosition
from tidelog_broker.core.partition.isr import FollowerProgress
from tidelog_broker.core.partition.partition import Partition
from tidelog_broker.core.partition.replica_key import ReplicaKey
from tidelog_broker.core.replica_registry import StoppedReplicas
from tidelog_broker.replicas import replica_commands
from tidelog_broker.replicas.replica_commands import ReplicaCommands
from tidelog_broker.replicas.replica_manager import ReplicaManager
from tidelog_broker.storage import data_directory
from tidelog_broker.storage.data_directory import Identity
from tidelog_controller.policies import electability, reassignment
from tidelog_controller.policies.electability import LiveBroker
from tidelog_controller.state.commands import Transact
from tidelog_controller.state.mutations import Mutation
from tidelog_controller.state.transactions import Transactions
from tidelog_runtime.metadata.schema import LeaderAndIsr, Member
from tidelog_runtime.replica_control import (
    LeaderAndIsrCommand,
    PartitionResult,
    StopPartition,
    StopReplicaCommand,
)

# As a revision: newer than any of the model.
LATEST = 100


class Rule(NamedTuple):
    """A rule of production code.

    - `without`: replaces `attribute` of `owner` when the rule is off
    """

    name: str
    owner: Any
    attribute: str
    without: Callable[..., Any]


@contextmanager
def switched_off(rule: Rule) -> Iterator[None]:
    original = getattr(rule.owner, rule.attribute)
    setattr(rule.owner, rule.attribute, rule.without)
    try:
        yield
    finally:
        setattr(rule.owner, rule.attribute, original)


def _nowhere(**_: object) -> None:
    """Finds no divergence of logs."""


_follow = Partition.follow


def _follow_unfenced(self: Partition, fetch_position: FetchPosition, answer: FetchAnswer) -> bool:
    """Truncates on any such answer, from any leader and in any epoch."""
    if answer.diverging is not None and self.leader_to_follow != NO_LEADER:
        fetch_position = self.fetch_position()
    return _follow(self, fetch_position, answer)


def _never_fenced(known_epoch: int, leader_epoch: int) -> None:
    """Accepts a fetch of any epoch."""
    del known_epoch, leader_epoch


def _joins_at_high_watermark(
    progress: FollowerProgress, *, high_watermark: int, epoch_start: int
) -> bool:
    del epoch_start
    return progress.log_end_offset >= high_watermark


def _joins_at_epoch_start(
    progress: FollowerProgress, *, high_watermark: int, epoch_start: int
) -> bool:
    del high_watermark
    return progress.log_end_offset >= epoch_start


def _committed_isr(state: LeaderAndIsr, proposed: LeaderAndIsr | None) -> frozenset[int]:
    """Counts a joiner only once the leader knows that the store has accepted it.

    A leaver no longer counts as soon as its removal is proposed.
    """
    return state.isr_ids if proposed is None else state.isr_ids & proposed.isr_ids


_advanced = high_watermark.advanced


def _advanced_below_min_isr(
    high_watermark: int,
    end_offsets: Mapping[int, int],
    *,
    maximal_isr: Collection[int],
    committed_isr_size: int,
    min_isr: int,
) -> int:
    del min_isr
    return _advanced(
        high_watermark,
        end_offsets,
        maximal_isr=maximal_isr,
        committed_isr_size=committed_isr_size,
        min_isr=0,
    )


def _with_isr_and_all_who_left(self: LeaderAndIsr, members: Iterable[Member]) -> LeaderAndIsr:
    """Keeps all that left eligible, even while the ISR is large enough to commit."""
    present = tuple(sorted(members))
    ids = {member.broker_id for member in present}
    former = {m.broker_id: m for m in (*self.eligible, *self.isr)}
    eligible = tuple(sorted(m for m in former.values() if m.broker_id not in ids))
    return replace(self, isr=present, eligible=eligible)


def _always_intact(*_: object) -> str:
    return ""


_next_incarnation = data_directory.next_incarnation


def _copies_are_trusted(
    former: Identity, boot_id: str, *, same_files: bool = True, lost_copy: bool = False
) -> Identity:
    del same_files
    return _next_incarnation(former, boot_id, lost_copy=lost_copy)


def _always_whole(*_: object) -> bool:
    return True


def _commands_of_previous_incarnations(
    *,
    controller_epoch: int,
    broker_epoch: int,
    known_controller_epoch: int,
    known_broker_epoch: int,
) -> ErrorCode | None:
    """Takes any command as long as the process is not registered."""
    if controller_epoch < known_controller_epoch:
        return ErrorCode.STALE_CONTROLLER_EPOCH
    return ErrorCode.STALE_BROKER_EPOCH if broker_epoch < known_broker_epoch else None


def _unsynced_counts(*, log_end: int, flushed_offset: int, synced: bool) -> int:
    del flushed_offset, synced
    return log_end


def _whole_if_synced(
    member: Member, live: Mapping[int, electability.LiveBroker], rules: electability.ElectionRules
) -> bool:
    return _is_intact(member, live, rules._replace(synced=True))


_is_intact = electability.is_intact
_take = Partition.take


def _take_any(
    self: Partition, state: LeaderAndIsr, revision: int, *, broker_epoch: int, now_ms: int
) -> bool:
    newest = max(revision, self.revision + 1)
    return _take(self, state, newest, broker_epoch=broker_epoch, now_ms=now_ms)


def _take_for_any_incarnation(
    self: Partition, state: LeaderAndIsr, revision: int, *, broker_epoch: int, now_ms: int
) -> bool:
    del broker_epoch
    return _take(self, state, revision, broker_epoch=state.leader_broker_epoch, now_ms=now_ms)


def _no_guards(*_: object) -> tuple[()]:
    return ()


_stop = ReplicaCommands._stop


def _stop_any(
    self: ReplicaCommands, requested: StopPartition, command: StopReplicaCommand
) -> PartitionResult:
    return _stop(self, requested._replace(revision=LATEST), command)


def _stop_by_name(
    self: ReplicaCommands, requested: StopPartition, command: StopReplicaCommand
) -> PartitionResult:
    present = self._manager.find_named(requested.partition)
    topic_id = requested.topic_id if present is None else present.topic_id
    return _stop(self, requested._replace(topic_id=topic_id, revision=LATEST), command)


_set_strays_aside = ReplicaCommands._set_strays_aside


async def _set_all_strays_aside(self: ReplicaCommands, command: LeaderAndIsrCommand) -> None:
    await _set_strays_aside(self, replace(command, store_revision=LATEST))


def _replica_by_name(self: ReplicaManager, key: ReplicaKey) -> Partition:
    del key
    for partition in self.all():
        return partition
    raise TidelogError(ErrorCode.UNKNOWN_TOPIC_ID, "nothing here has that name")


def _never_stopped(self: StoppedReplicas, key: ReplicaKey, revision: int) -> bool:
    del self, key, revision
    return False


def _commands_of_deposed_controllers(
    *,
    controller_epoch: int,
    broker_epoch: int,
    known_controller_epoch: int,
    known_broker_epoch: int,
) -> ErrorCode | None:
    del controller_epoch, known_controller_epoch
    return _fence_command(
        controller_epoch=0,
        broker_epoch=broker_epoch,
        known_controller_epoch=0,
        known_broker_epoch=known_broker_epoch,
    )


_fence_command = command_fencing.fence_command
_begin = Transactions.begin


def _begin_in_any_term(self: Transactions, mutation: Mutation) -> Transact:
    begun = _begin(self, mutation)
    transaction = begun.transaction
    guards = [guard for guard in transaction.guards if guard.key != self._keys.controller]
    return begun._replace(transaction=replace(transaction, guards=guards))


_resigned = LeaderAndIsr.resigned


def _resigned_in_the_same_epoch(self: LeaderAndIsr, broker_id: int) -> LeaderAndIsr:
    return replace(_resigned(self, broker_id), leader_epoch=self.leader_epoch)


def _still_fetches_from_there(self: Partition, fetch_position: FetchPosition) -> bool:
    """Accepts an answer at the same leader, epoch and offset, whatever the log holds there now."""
    return self.leader_to_follow != NO_LEADER and self.fetch_position()[:3] == fetch_position[:3]


_SWITCHED = reassignment._switched


def _missing_where_none_is_in_sync(
    state: LeaderAndIsr, live: Mapping[int, LiveBroker]
) -> tuple[int, ...]:
    assert state.moving is not None
    in_sync = state.isr_ids & set(state.moving.target)
    return () if any(b in live and live[b].running for b in in_sync) else state.moving.target


def _all_in_sync(
    state: LeaderAndIsr, live: Mapping[int, LiveBroker], replicas: tuple[int, ...], *more: int
) -> LeaderAndIsr:
    ended = _SWITCHED(state, live, replicas, *more)
    return ended.with_isr(Member(b, live[b].broker_epoch) for b in replicas if b in live)


def _within_the_epoch(
    state: LeaderAndIsr, live: Mapping[int, LiveBroker], replicas: tuple[int, ...], *more: int
) -> LeaderAndIsr:
    ended = _SWITCHED(state, live, replicas, *more)
    same = ended.leader == state.leader
    return replace(ended, leader_epoch=state.leader_epoch) if same else ended


RECONCILE = Rule(
    "a follower reconciles its log by epoch before it fetches", epochs, "divergence", _nowhere
)
FENCED_TRUNCATION = Rule("truncation is fenced by epoch", Partition, "follow", _follow_unfenced)
FENCED_FETCH = Rule(
    "the high watermark moves only on fetches of the leader's epoch",
    epochs,
    "fence",
    _never_fenced,
)
JOINS_AT_EPOCH_START = Rule(
    "a replica joins the ISR only at the start of the leader's epoch",
    isr,
    "may_join",
    _joins_at_high_watermark,
)
JOINS_AT_HIGH_WATERMARK = Rule(
    "a replica joins the ISR only at the high watermark", isr, "may_join", _joins_at_epoch_start
)
MAXIMAL_ISR = Rule("the high watermark counts the maximal ISR", isr, "maximal", _committed_isr)
MIN_ISR = Rule(
    "nothing is committed below min ISR", high_watermark, "advanced", _advanced_below_min_isr
)
ELIGIBLE = Rule(
    "the eligible set is empty while the ISR can commit",
    LeaderAndIsr,
    "with_isr",
    _with_isr_and_all_who_left,
)
WHOLE = Rule("who has lost data is not elected as clean", electability, "is_intact", _always_whole)
LAST_REGISTRATION = Rule(
    "a directory that has missed a registration of its broker's id is not intact",
    data_directory,
    "not_intact_reason",
    _always_intact,
)
COPIED_FILES = Rule(
    "a directory that was copied without a clean stop is not intact",
    data_directory,
    "next_incarnation",
    _copies_are_trusted,
)
PREVIOUS_INCARNATION = Rule(
    "a process takes no command for its previous incarnation",
    replica_commands,
    "fence_command",
    _commands_of_previous_incarnations,
)
CONTROLLER_EPOCH = Rule(
    "a broker obeys no controller that is older than one that it has obeyed",
    replica_commands,
    "fence_command",
    _commands_of_deposed_controllers,
)
CONTROLLER_KEY_GUARD = Rule(
    "a controller's transaction compares the `controller` key",
    Transactions,
    "begin",
    _begin_in_any_term,
)
RESIGNED_EPOCH = Rule(
    "a resignation gives another leader a new epoch",
    LeaderAndIsr,
    "resigned",
    _resigned_in_the_same_epoch,
)
COUNTED_END = Rule(
    "a replica of a synced topic counts only as far as it is synced",
    high_watermark,
    "counted_end",
    _unsynced_counts,
)
WHOLE_BY_DURABILITY = Rule(
    "only a synced topic is whole after a reboot",
    electability,
    "is_intact",
    _whole_if_synced,
)
REVISION_ORDER = Rule(
    "a replica takes no state that is older than what it has taken", Partition, "take", _take_any
)
LEADER_INCARNATION = Rule(
    "a broker leads only in an epoch that was given to its present incarnation",
    Partition,
    "take",
    _take_for_any_incarnation,
)
JOINER_GUARD = Rule(
    "an ISR change compares the registration of the joiner",
    isr_proposals,
    "joiner_guards",
    _no_guards,
)
STOP_ORDER = Rule(
    "a StopReplica that is older than what the replica has taken has no effect",
    ReplicaCommands,
    "_stop",
    _stop_any,
)
STOP_TOPIC = Rule(
    "a StopReplica is one of its topic's id, and ordered by revision",
    ReplicaCommands,
    "_stop",
    _stop_by_name,
)
STOPPED_REMEMBERED = Rule(
    "what was stopped is not brought back by an older command",
    StoppedReplicas,
    "is_late",
    _never_stopped,
)
STRAYS_ORDER = Rule(
    "an older full state sets nothing aside that a newer command named",
    ReplicaCommands,
    "_set_strays_aside",
    _set_all_strays_aside,
)
FETCH_TOPIC = Rule(
    "a follower's fetch finds the replica of its topic's id alone",
    ReplicaManager,
    "replica",
    _replica_by_name,
)
SWITCH_IN_SYNC = Rule(
    "a move switches when its whole target is in the ISR",
    reassignment,
    "missing_for_switch",
    _missing_where_none_is_in_sync,
)
ENDS_WITH_ISR = Rule(
    "who was not in the ISR is not in it by the end of a move",
    reassignment,
    "_switched",
    _all_in_sync,
)
END_EPOCH = Rule(
    "the end of a move takes a new leader epoch", reassignment, "_switched", _within_the_epoch
)
REPEATED_ANSWER = Rule(
    "an answer counts only for the log that it was requested for",
    Partition,
    "_still_asks",
    _still_fetches_from_there,
)
