"""The steps of one replica.

Real `Partition` objects are rebuilt from the model's state for one step and read back. Every
step is pure in its arguments, so that callers may cache its result.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.errors import TidelogError
from tidelog.model import NO_EPOCH, NO_OFFSET, Acks, EpochEnd, TopicPartition
from tidelog_broker.core.partition.exchange import FetchAnswer, FetchPosition
from tidelog_broker.core.partition.isr import FollowerProgress
from tidelog_broker.core.partition.leader_state import LeaderState as LeadingNow
from tidelog_broker.core.partition.partition import Partition
from tidelog_broker.storage import data_directory
from tidelog_broker.storage.data_directory import Identity
from tidelog_runtime.metadata.broker_directories import BrokerDirectory

from .model_log import NOW_MS, ModelLog, produced, stored
from .values import (
    BROKERS,
    CURRENT,
    FOUND,
    NEVER,
    NO_TOPIC,
    NOT_SYNCED,
    OLDER,
    PRESENT,
    REPLACED,
    SOUND,
    Answer,
    LeaderState,
    Position,
    Progress,
    Replica,
    SpareDisk,
    Value,
    from_production,
    record_of,
    to_production,
    topic_id,
)

NAME = TopicPartition("model", 0)
LAG_TIME_MAX_MS = 500
UNSEEN = Progress(0, NO_OFFSET)


class _Silent:
    """Ignores calls: everything that a listener would learn is in the state."""

    def log_grew(self, partition: Partition) -> None: ...
    def high_watermark_moved(self, partition: Partition) -> None: ...
    def log_start_moved(self, partition: Partition) -> None: ...
    def followers_forgotten(self, partition: Partition) -> None: ...
    def leadership_ended(self, partition: Partition) -> None: ...
    def isr_needs_evaluation(self, partition: Partition) -> None: ...
    def sync_needed(self, partition: Partition) -> None: ...


SILENT = _Silent()


def rebuild(replica: Replica, log: ModelLog | None = None, *, lagging: int = 0) -> Partition:
    """Returns the production partition of a replica.

    - `lagging`: the follower that has not been caught up for too long; 0: none
    """
    partition = Partition(
        NAME,
        topic_id(replica.topic),
        replica.broker,
        log or ModelLog(replica.log, replica.flushed),
        high_watermark=replica.high_watermark,
        listener=SILENT,
    )
    partition.revision = replica.revision
    partition.synced = replica.flushed != NOT_SYNCED
    partition.in_service = not replica.damaged
    if replica.value is not None:
        partition.state = to_production(replica.value)
    if replica.leading is not None:
        assert partition.state is not None
        epoch_start, followers, proposed = replica.leading
        partition.leading = LeadingNow(
            epoch_start,
            {
                b: FollowerProgress(
                    broker_epoch=followers[b - 1].incarnation,
                    log_end_offset=followers[b - 1].log_end,
                    last_caught_up_ms=0 if b == lagging else NOW_MS,
                    last_fetch_ms=NOW_MS,
                    leader_end_at_last_fetch=NO_OFFSET,
                )
                for b in partition.state.replicas
                if b != replica.broker
            },
            None if proposed is None else to_production(proposed),
        )
    return partition


def read_back(replica: Replica, partition: Partition) -> Replica:
    assert isinstance(partition.log, ModelLog)
    value = None if partition.state is None else from_production(partition.state)
    leading = None
    if partition.leading is not None:
        known = partition.leading.followers
        followers = tuple(
            Progress(known[b].broker_epoch, known[b].log_end_offset) if b in known else UNSEEN
            for b in BROKERS
        )
        proposed = partition.leading.proposed
        leading = LeaderState(
            partition.leading.epoch_start,
            followers,
            None if proposed is None else from_production(proposed),
        )
    elif value is not None:
        # A follower uses only the leader and epoch of its state.
        value = Value(value.leader, value.epoch, (), (), NO_EPOCH, value.topic)
    return replica._replace(
        high_watermark=partition.high_watermark,
        log=partition.log.entries,
        value=value,
        revision=partition.revision,
        leading=leading,
        flushed=partition.log.flushed,
    )


def observe(replica: Replica, value: Value) -> Replica:
    """Does what `IsrUpdates` and the watch do with the key's value.

    A key that is gone, or is another topic's, conveys nothing else.
    """
    partition = rebuild(replica)
    same_topic = value.topic == replica.topic
    partition.observed(to_production(value) if same_topic else None, PRESENT, NOW_MS)
    return read_back(replica, partition)


def append(replica: Replica, record: int) -> Replica:
    partition = rebuild(replica)
    number = record_of(replica.topic, record)
    partition.append([produced(number)], Acks.LEADER, NOW_MS)
    return read_back(replica, partition)


def flush(replica: Replica, up_to: int) -> Replica:
    """Ends an fsync: what was appended before it began is on the disk."""
    partition = rebuild(replica._replace(flushed=up_to))
    partition.log_synced()
    return read_back(replica, partition)


def propose(replica: Replica, running: Mapping[int, int], lagging: int) -> Replica | None:
    """Returns the leader after a proposal, or None if there is nothing to propose."""
    partition = rebuild(replica, lagging=lagging)
    proposed = partition.propose_isr(running, now_ms=NOW_MS, lag_time_max_ms=LAG_TIME_MAX_MS)
    return None if proposed is None else read_back(replica, partition)


def isr_written(replica: Replica, revision: int) -> Replica:
    partition = rebuild(replica)
    assert partition.leading is not None
    assert partition.leading.proposed is not None
    partition.isr_written(partition.leading.proposed, revision)
    return read_back(replica, partition)


def isr_rejected(replica: Replica) -> Replica:
    partition = rebuild(replica)
    assert partition.leading is not None
    assert partition.leading.proposed is not None
    partition.isr_rejected(partition.leading.proposed)
    return read_back(replica, partition)


def fetch_position(replica: Replica) -> Position | None:
    """Returns the position of the next fetch, or None if the replica follows no leader."""
    partition = rebuild(replica)
    if partition.leader_to_follow not in BROKERS:
        return None
    fetch_position = partition.fetch_position()
    return Position(
        fetch_position.leader,
        fetch_position.leader_epoch,
        fetch_position.fetch_offset,
        fetch_position.last_fetched_epoch,
        fetch_position.flushed_offset,
        replica.topic,
    )


def fetch_position_of(position: Position) -> FetchPosition:
    return FetchPosition(
        leader=position.leader,
        leader_epoch=position.epoch,
        fetch_offset=position.offset,
        last_fetched_epoch=position.last_epoch,
        flushed_offset=position.flushed,
        log_start_offset=0,
    )


def follow(replica: Replica, position: Position, answer: Answer) -> Replica:
    """Applies an answer at the follower; one that its log cannot hold changes nothing."""
    if replica.topic != position.topic:
        return replica
    partition = rebuild(replica)
    fetch_position = fetch_position_of(position)
    if answer.out_of_range:
        partition.restart_at(fetch_position, 0)
        return read_back(replica, partition)
    fetch_answer = FetchAnswer(
        answer.high_watermark,
        0,
        answer.epoch,
        [stored(position.offset + i, logged) for i, logged in enumerate(answer.entries)],
        None if answer.diverging is None else EpochEnd(*answer.diverging),
    )
    try:
        partition.follow(fetch_position, fetch_answer)
    except (TidelogError, ValueError):
        return replica
    return read_back(replica, partition)


def suspended(replica: Replica) -> Replica:
    """Returns the replica after its log was found damaged."""
    partition = rebuild(replica)
    partition.suspend()
    return read_back(replica, partition)._replace(damaged=FOUND)


def resumed(replica: Replica, kept: int) -> Replica:
    """Returns the replica after its log was cut to what is sound."""
    partition = rebuild(replica)
    partition.resume(ModelLog(replica.log[:kept]))
    return read_back(replica, partition)._replace(damaged=SOUND)


def unclaimed(replica: Replica, logs: dict[int, tuple[int, ...]]) -> Replica:
    """Returns a process that holds no replica, with the logs that are on its disk."""
    topic = max(logs, default=NO_TOPIC)
    return replica._replace(
        topic=topic,
        log=logs.pop(topic, ()),
        shelf=tuple(sorted(logs.items())),
        value=None,
        revision=NEVER,
        leading=None,
        high_watermark=0,
    )


def ended(replica: Replica) -> Replica:
    """Returns the broker after its process has ended.

    The checkpoint of the high watermark may be as old as possible; here it always is.
    """
    dead = replica._replace(
        up=False, incarnation=0, own=0, registering=0, controller_epoch=0, full=False, stopped=()
    )
    logs = dict(replica.shelf)
    if replica.topic != NO_TOPIC:
        logs[replica.topic] = replica.log
    return unclaimed(dead, logs)


def started(replica: Replica) -> Replica:
    """Returns a new process on the same disk, intact as `next_incarnation` decides."""
    former = Identity(
        replica.broker,
        "uuid",
        boot_id="before",
        whole_since=replica.whole,
        synced_whole_since=replica.whole,
    )
    present = data_directory.next_incarnation(
        former, "after" if replica.rebooted else "before", same_files=not replica.copied
    )
    # The mark on the disk outlives a process; what the process knew of it does not.
    damaged = FOUND if replica.damaged else SOUND
    synced = replica.flushed != NOT_SYNCED
    whole = present.synced_whole_since if synced else present.whole_since
    return replica._replace(
        up=True, rebooted=False, damaged=damaged, whole=whole, copied=present.copied
    )


def intact_since(replica: Replica) -> int:
    """Returns since when a registration claims to be intact, by `not_intact_reason`.

    0: since that registration.
    """
    holder = "another" if replica.directory == REPLACED else "own"
    identity = Identity(
        replica.broker,
        "own",
        registration_tokens=("last",) if replica.directory == CURRENT else ("earlier",),
        copied=replica.copied,
    )
    reason = data_directory.not_intact_reason(identity, BrokerDirectory(holder, "last"))
    return 0 if reason else replica.whole


def registered(replica: Replica) -> Replica:
    """Returns the disks after the one in use has registered, which the other one has missed."""
    spare = replica.spare
    if spare is not None:
        spare = spare._replace(directory=OLDER if spare.is_copy else REPLACED)
    return replica._replace(
        whole=intact_since(replica), directory=CURRENT, copied=False, spare=spare
    )


def replaced(replica: Replica) -> Replica:
    """Ends the process, and starts one with `--replace-directory` on an empty directory."""
    dead = ended(replica)
    old = SpareDisk(dead.log, dead.whole, dead.directory, dead.copied, is_copy=False, swaps=1)
    return started(dead._replace(log=(), whole=0, directory=REPLACED, copied=False, spare=old))


def copied(replica: Replica) -> Replica:
    """Copies the directory as it is now; its process continues, or is dead."""
    copy = SpareDisk(
        replica.log, replica.whole, replica.directory, copied=True, is_copy=True, swaps=2
    )
    return replica._replace(spare=copy)


def swapped(replica: Replica) -> Replica:
    """Ends the process, and starts one on the spare disk."""
    spare = replica.spare
    assert spare is not None
    dead = ended(replica)
    left = None
    if spare.swaps > 1:
        left = SpareDisk(
            dead.log, dead.whole, dead.directory, dead.copied, spare.is_copy, spare.swaps - 1
        )
    taken = dead._replace(
        log=spare.log,
        whole=spare.whole,
        directory=spare.directory,
        copied=spare.copied,
        spare=left,
    )
    return started(taken)
