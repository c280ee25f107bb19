"""One replica as Inspect describes it."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tidelog.errors import TidelogError
from tidelog.inspection.state_reports import (
    NOT_KNOWN,
    DamagedOffsets,
    DivergedOffsets,
    FollowerProgress,
    FollowerState,
    ReplicaState,
    WaitingConsumer,
)
from tidelog.model import NO_LEADER, Acks
from tidelog_broker.core.partition.partition import Partition
from tidelog_broker.core.partition.replica_key import ReplicaKey
from tidelog_broker.inspection.replica_state import Clocks, Failure, is_healthy, replica_state
from tidelog_runtime.metadata.schema import Moving
from unit.broker.broker_parts import append, fetch_by
from unit.broker.fake_log import FakeLog, epoch_of, leader, new_partition, sent, state

NOW = Clocks(monotonic_ms=5_000, wall_ms=90_000)


class Around:
    """A broker that knows nothing of any replica."""

    def __init__(self, *, stalled_ms: int = NOT_KNOWN, failure: Failure | None = None) -> None:
        self.stalled_ms = stalled_ms
        self.failure = failure
        self.problem = ""
        self.waiting: list[WaitingConsumer] = []
        self.damaged: list[DamagedOffsets] = []
        self.diverged: list[DivergedOffsets] = []

    def session_of(self, partition: Partition, follower: int) -> int:  # noqa: ARG002
        return 10 * follower

    def hw_stalled_ms(self, partition: Partition) -> int:  # noqa: ARG002
        return self.stalled_ms

    def waiting_consumers(self, partition: Partition) -> Sequence[WaitingConsumer]:  # noqa: ARG002
        return self.waiting

    def following(self, partition: Partition) -> FollowerState:  # noqa: ARG002
        return FollowerState(2, 30, self.problem)

    def failure_of(self, key: ReplicaKey) -> Failure | None:  # noqa: ARG002
        return self.failure

    def damaged_offsets(self, key: ReplicaKey) -> Sequence[DamagedOffsets]:  # noqa: ARG002
        return self.damaged

    def diverged_offsets(self, key: ReplicaKey) -> Sequence[DivergedOffsets]:  # noqa: ARG002
        return self.diverged


def described(partition: Partition, context: Around | None = None) -> ReplicaState:
    return replica_state(partition, context or Around(), NOW)


def progress_of(partition: Partition, follower: int) -> FollowerProgress:
    found = described(partition).leader
    assert found is not None
    (progress,) = [p for p in found.followers if p.broker_id == follower]
    return progress


def follower_of(leader_id: int = 2) -> Partition:
    partition = new_partition(FakeLog([4]))
    partition.take(state(leader=leader_id), 10, broker_epoch=epoch_of(1), now_ms=0)
    return partition


# -- identity and role -------------------------------------------------------------------


def test_a_replica_that_a_move_adds_or_removes_is_described_as_such() -> None:
    to_4 = Moving("op", (1, 2, 3), (2, 3, 4))
    moved = replace(state(leader=2), replicas=to_4.replicas, moving=to_4)
    said = {}
    for broker_id in (1, 2, 4):
        partition = new_partition(FakeLog(), broker_id=broker_id)
        partition.take(moved, 10, broker_epoch=epoch_of(broker_id), now_ms=0)
        said[broker_id] = described(partition).moving
    assert said == {1: "leaving", 2: "", 4: "adding"}


def test_a_leader_is_described_as_one() -> None:
    replica = described(leader(FakeLog([4, 4])))
    assert (replica.role, replica.leader_epoch, replica.revision) == ("leader", 5, 10)
    assert (replica.log_start_offset, replica.log_end_offset, replica.size_bytes) == (0, 2, 200)
    assert replica.follower is None


def test_a_follower_shows_the_progress_of_its_fetching() -> None:
    replica = described(follower_of())
    assert (replica.role, replica.leader, replica.follower) == (
        "follower",
        None,
        FollowerState(2, 30),
    )


def test_a_replica_without_a_leader_has_no_role() -> None:
    assert described(follower_of(NO_LEADER)).role == "none"


def test_a_replica_out_of_service_is_damaged() -> None:
    partition = leader(FakeLog())
    partition.suspend()
    assert described(partition).role == "damaged"


def test_a_failure_is_described_with_its_age() -> None:
    context = Around(failure=Failure("disk_full", "no room", since_ms=4_000))
    replica = described(leader(FakeLog()), context)
    assert (replica.failure, replica.failure_message, replica.failure_ms) == (
        "disk_full",
        "no room",
        1_000,
    )


def test_without_a_failure_there_is_no_age() -> None:
    replica = described(leader(FakeLog()))
    assert (replica.failure, replica.failure_ms) == ("", NOT_KNOWN)


# -- what a leader knows of a follower ---------------------------------------------------


def test_a_follower_that_has_not_fetched_in_this_epoch_is_not_known() -> None:
    assert progress_of(leader(FakeLog([4])), 2) == FollowerProgress(2, in_isr=True, session_id=20)


def test_an_unknown_follower_lacks_at_least_the_records_of_this_epoch() -> None:
    partition = leader(FakeLog([4, 4, 4]))
    partition.append([sent(), sent()], Acks.LEADER, 60_000)
    lagging = progress_of(partition, 2)
    assert (lagging.lag_records, lagging.lag_bytes, lagging.lag_ms) == (2, 200, 30_000)
    assert (lagging.log_end_offset, lagging.last_fetch_ms) == (NOT_KNOWN, NOT_KNOWN)


def test_a_follower_lags_in_records_bytes_and_time() -> None:
    partition = leader(FakeLog())
    partition.append([sent(), sent()], Acks.LEADER, 60_000)
    partition.append([sent()], Acks.LEADER, 80_000)
    fetch_by(partition, 2, 2)
    lagging = progress_of(partition, 2)
    assert (lagging.lag_records, lagging.lag_bytes, lagging.lag_ms) == (1, 100, 10_000)
    assert (lagging.broker_epoch, lagging.log_end_offset) == (epoch_of(2), 2)


def test_fetches_of_a_follower_are_described_by_their_age() -> None:
    partition = leader(FakeLog())
    append(partition)
    fetch_by(partition, 2, 0)  # at 1 ms
    progress = progress_of(partition, 2)
    assert (progress.last_fetch_ms, progress.last_caught_up_ms) == (4_999, 4_000)


def test_a_follower_that_left_the_isr_is_not_in_it() -> None:
    partition = leader(FakeLog(), state(isr=(1, 2)))
    assert [progress_of(partition, b).in_isr for b in (2, 3)] == [True, False]


def test_a_proposed_member_holds_the_high_watermark() -> None:
    partition = leader(FakeLog(), state(isr=(1, 2)))
    fetch_by(partition, 2)
    fetch_by(partition, 3)
    running = {b: epoch_of(b) for b in (1, 2, 3)}
    partition.propose_isr(running, now_ms=1000, lag_time_max_ms=10_000)
    found = described(partition).leader
    assert found is not None
    assert found.maximal_isr == [1, 2, 3]


def test_rejected_appends_are_counted_in_their_epoch() -> None:
    partition = leader(FakeLog(), state(isr=(1,)))
    for at_ms in (70_000, 89_000):
        with pytest.raises(TidelogError):
            partition.append([sent()], Acks.ALL, at_ms)
    found = described(partition).leader
    assert found is not None
    assert (found.refused_below_min_isr, found.last_refused_ms) == (2, 1_000)
    partition.take(state(epoch=6), 20, broker_epoch=epoch_of(1), now_ms=1)
    found = described(partition).leader
    assert found is not None
    assert (found.refused_below_min_isr, found.last_refused_ms) == (0, NOT_KNOWN)


# -- health ------------------------------------------------------------------------------


def test_a_leader_with_all_in_sync_is_healthy() -> None:
    assert is_healthy(described(leader(FakeLog())), state())


def test_a_partition_that_lacks_a_member_is_not_healthy() -> None:
    partition = leader(FakeLog(), state(isr=(1, 2)))
    assert not is_healthy(described(partition), state(isr=(1, 2)))


def test_a_partition_under_a_move_is_not_healthy() -> None:
    moving = replace(state(), moving=Moving("op", (1, 2, 3), (3, 2, 1)))
    assert not is_healthy(described(leader(FakeLog(), moving)), moving)


def test_a_partition_without_a_leader_is_not_healthy() -> None:
    assert not is_healthy(described(follower_of(NO_LEADER)), replace(state(), leader=NO_LEADER))


def test_a_partition_whose_high_watermark_is_stalled_is_not_healthy() -> None:
    assert not is_healthy(described(leader(FakeLog()), Around(stalled_ms=0)), state())


def test_a_partition_that_consumers_wait_for_is_not_healthy() -> None:
    context = Around()
    context.waiting = [WaitingConsumer(1, 1, 1)]
    assert not is_healthy(described(leader(FakeLog()), context), state())


def test_a_partition_whose_disk_rejects_writes_is_not_healthy() -> None:
    context = Around(failure=Failure("disk_full", "", 0))
    assert not is_healthy(described(leader(FakeLog()), context), state())


def test_a_follower_that_cannot_fetch_is_not_healthy() -> None:
    context = Around()
    assert is_healthy(described(follower_of(), context), state(leader=2))
    context.problem = "connection refused"
    assert not is_healthy(described(follower_of(), context), state(leader=2))


def test_a_replica_with_unreadable_records_lists_them_and_is_not_healthy() -> None:
    context = Around()
    context.damaged = [DamagedOffsets(5, 9)]
    replica = described(leader(FakeLog()), context)
    assert replica.damaged == [DamagedOffsets(5, 9)]
    assert not is_healthy(replica, state())
