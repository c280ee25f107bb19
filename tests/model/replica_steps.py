"""What one replica does: real `Partition` objects, rebuilt from the model's state for one
step and read back. Every step is pure in its arguments, so that whoever calls may
remember what came of it.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import NO_EPOCH, NO_OFFSET, Acks, EpochEnd, TopicPartition
from tidelog_broker.partition.exchange import FetchAnswer, FetchPosition
from tidelog_broker.partition.isr import FollowerProgress
from tidelog_broker.partition.leading import Leading as LeadingNow
from tidelog_broker.partition.partition import Partition
from tidelog_broker.replicas.command_fencing import fence_command
from tidelog_broker.storage.data_directory import Identity, new_life

from .model_log import NOW_MS, ModelLog, produced, stored
from .values import (
    BROKERS,
    FOUND,
    NEVER,
    NOT_SYNCED,
    PRESENT,
    SOUND,
    TOPIC_ID,
    Answer,
    Command,
    Leading,
    Position,
    Progress,
    Replica,
    Value,
    from_production,
    to_production,
)

NAME = TopicPartition("model", 0)
LAG_TIME_MAX_MS = 500
UNSEEN = Progress(0, NO_OFFSET)


class _Silent:
    """Everything that a listener would be told shows in the state."""

    def log_grew(self, partition: Partition) -> None: ...
    def high_watermark_moved(self, partition: Partition) -> None: ...
    def followers_forgotten(self, partition: Partition) -> None: ...
    def leadership_ended(self, partition: Partition) -> None: ...
    def isr_needs_judging(self, partition: Partition) -> None: ...
    def sync_needed(self, partition: Partition) -> None: ...


def _rebuild(replica: Replica, lagging: int = 0) -> Partition:
    """`lagging`: the follower that has not been caught up for too long, 0: none."""
    log = ModelLog(replica.log, replica.flushed)
    partition = Partition(
        NAME,
        TOPIC_ID,
        replica.broker,
        log,
        high_watermark=replica.high_watermark,
        listener=_Silent(),
    )
    partition.revision = replica.revision
    partition.synced = replica.flushed != NOT_SYNCED
    partition.in_service = not replica.damaged
    if replica.value is not None:
        partition.state = to_production(replica.value)
    if replica.leading is not None:
        epoch_start, followers, proposed = replica.leading
        partition.leading = LeadingNow(
            epoch_start,
            {
                b: FollowerProgress(
                    broker_epoch=followers[b - 1].life,
                    log_end_offset=followers[b - 1].log_end,
                    last_caught_up_ms=0 if b == lagging else NOW_MS,
                    last_fetch_ms=NOW_MS,
                    leader_end_at_last_fetch=NO_OFFSET,
                )
                for b in BROKERS
                if b != replica.broker
            },
            None if proposed is None else to_production(proposed),
        )
    return partition


def _read_back(replica: Replica, partition: Partition) -> Replica:
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
        leading = Leading(
            partition.leading.epoch_start,
            followers,
            None if proposed is None else from_production(proposed),
        )
    elif value is not None:
        # Who does not lead asks its state for leader and epoch alone.
        value = Value(value.leader, value.epoch, (), (), NO_EPOCH)
    return replica._replace(
        high_watermark=partition.high_watermark,
        log=partition.log.entries,
        value=value,
        revision=partition.revision,
        leading=leading,
        flushed=partition.log.flushed,
    )


def take(replica: Replica, command: Command) -> Replica:
    """As `ReplicaManager` does it; unchanged where the broker is down or refuses."""
    if not replica.up:
        return replica
    refused = fence_command(
        controller_epoch=command.reign,
        broker_epoch=command.life,
        known_controller_epoch=replica.reign,
        known_broker_epoch=replica.life,
    )
    if refused is not None:
        return replica
    known = replica._replace(life=command.life, reign=command.reign)
    if replica.damaged:
        # Out of service: it is told again once it is back.
        return known
    partition = _rebuild(known)
    partition.take(
        to_production(command.value), command.revision, broker_epoch=command.life, now_ms=NOW_MS
    )
    return _read_back(known, partition)


def observe(replica: Replica, value: Value) -> Replica:
    partition = _rebuild(replica)
    partition.observed(to_production(value), PRESENT)
    return _read_back(replica, partition)


def append(replica: Replica, record: int) -> Replica:
    partition = _rebuild(replica)
    partition.append([produced(record)], Acks.LEADER, NOW_MS)
    return _read_back(replica, partition)


def flush(replica: Replica, up_to: int) -> Replica:
    """What was appended before an fsync began is on the disk when it ends."""
    partition = _rebuild(replica._replace(flushed=up_to))
    partition.log_synced()
    return _read_back(replica, partition)


def propose(replica: Replica, running: Mapping[int, int], lagging: int) -> Replica | None:
    """None: there is nothing to propose."""
    partition = _rebuild(replica, lagging)
    proposed = partition.propose_isr(running, now_ms=NOW_MS, lag_time_max_ms=LAG_TIME_MAX_MS)
    return None if proposed is None else _read_back(replica, partition)


def isr_written(replica: Replica, revision: int) -> Replica:
    partition = _rebuild(replica)
    assert partition.leading is not None
    assert partition.leading.proposed is not None
    partition.isr_written(partition.leading.proposed, revision)
    return _read_back(replica, partition)


def isr_refused(replica: Replica) -> Replica:
    partition = _rebuild(replica)
    assert partition.leading is not None
    assert partition.leading.proposed is not None
    partition.isr_refused(partition.leading.proposed)
    return _read_back(replica, partition)


def fetch_position(replica: Replica) -> Position | None:
    """What the replica asks now; None: it follows nobody."""
    partition = _rebuild(replica)
    if partition.leader_to_follow not in BROKERS:
        return None
    asked = partition.fetch_position()
    return Position(
        asked.leader,
        asked.leader_epoch,
        asked.fetch_offset,
        asked.last_fetched_epoch,
        asked.flushed_offset,
    )


def _to_fetch_position(position: Position) -> FetchPosition:
    return FetchPosition(
        leader=position.leader,
        leader_epoch=position.epoch,
        fetch_offset=position.offset,
        last_fetched_epoch=position.last_epoch,
        flushed_offset=position.flushed,
        log_start_offset=0,
    )


def serve(
    replica: Replica, follower: int, life: int, position: Position
) -> tuple[Replica, Answer | None]:
    """A fetch at the broker that it goes to; the answer None is a refusal, after which a
    follower asks again. As `ReplicaFetch` does it: note the position, then read."""
    partition = _rebuild(replica)
    asked = _to_fetch_position(position)
    try:
        diverging = partition.replica_fetch(follower, life, asked, NOW_MS)
        if diverging is not None:
            answer = Answer(
                partition.high_watermark,
                partition.leader_epoch,
                (),
                (diverging.leader_epoch, diverging.end_offset),
            )
        else:
            read = partition.read_for_follower(asked, 1 << 20)
            assert isinstance(partition.log, ModelLog)
            entries = partition.log.entries[position.offset :] if read.batches else ()
            answer = Answer(read.high_watermark, read.leader_epoch, entries, None)
    except TidelogError as error:
        if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
            return _read_back(replica, partition), None
        answer = Answer(0, 0, (), None, out_of_range=True)
    return _read_back(replica, partition), answer


def follow(replica: Replica, position: Position, answer: Answer) -> Replica:
    """The answer at the follower; an answer that its log cannot hold changes nothing."""
    partition = _rebuild(replica)
    asked = _to_fetch_position(position)
    if answer.out_of_range:
        partition.restart_at(asked, 0)
        return _read_back(replica, partition)
    told = FetchAnswer(
        answer.high_watermark,
        0,
        answer.epoch,
        [stored(position.offset + i, logged) for i, logged in enumerate(answer.entries)],
        None if answer.diverging is None else EpochEnd(*answer.diverging),
    )
    try:
        partition.follow(asked, told)
    except (TidelogError, ValueError):
        return replica
    return _read_back(replica, partition)


def suspended(replica: Replica) -> Replica:
    """Its log is found damaged."""
    partition = _rebuild(replica)
    partition.suspend()
    return _read_back(replica, partition)._replace(damaged=FOUND)


def resumed(replica: Replica, kept: int) -> Replica:
    """After its log was cut to what is sound."""
    partition = _rebuild(replica)
    partition.resume(ModelLog(replica.log[:kept]))
    return _read_back(replica, partition)._replace(damaged=SOUND)


def ended(replica: Replica) -> Replica:
    """The process is gone. The high watermark's checkpoint may be as old as it likes;
    here it always is."""
    return replica._replace(
        up=False,
        life=0,
        own=0,
        reign=0,
        high_watermark=0,
        value=None,
        revision=NEVER,
        leading=None,
    )


def started(replica: Replica) -> Replica:
    """A new process on the same disk, by `new_life`'s rule of what is whole."""
    former = Identity(
        replica.broker,
        "uuid",
        boot_id="before",
        whole_since=replica.whole,
        synced_whole_since=replica.whole,
    )
    present = new_life(former, "after" if replica.rebooted else "before")
    # The mark on the disk outlives a process, and what the last one knew of it does not.
    damaged = FOUND if replica.damaged else SOUND
    synced = replica.flushed != NOT_SYNCED
    whole = present.synced_whole_since if synced else present.whole_since
    return replica._replace(up=True, rebooted=False, damaged=damaged, whole=whole)
