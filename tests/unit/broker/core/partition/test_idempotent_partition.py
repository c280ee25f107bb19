"""A partition and its idempotent producers: which batches are appended once, and which replicas
know them.
"""

from collections.abc import Callable, Sequence

import pytest

from tidelog.batch import is_fence, stamp
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import FIRST_NAMED_PRODUCER_ID, NO_OFFSET, Acks, Batch, EpochEnd
from tidelog_broker.core.partition.exchange import Appended, FetchAnswer
from tidelog_broker.core.partition.partition import Partition
from tidelog_broker.core.partition.producer_state import ProducerStates
from tidelog_runtime.metadata.schema import LeaderAndIsr
from unit.broker.broker_parts import fetch_by, position
from unit.broker.fake_log import (
    FakeLog,
    epoch_of,
    leader,
    new_partition,
    notes,
    sent,
    sent_by,
    state,
)

ID = 7
NAMED = FIRST_NAMED_PRODUCER_ID + 1


def put(partition: Partition, *batches: Batch, acks: Acks = Acks.ALL, now_ms: int = 9) -> Appended:
    return partition.append(batches, acks, now_ms)


def code_of(call: Callable[[], object]) -> ErrorCode:
    with pytest.raises(TidelogError) as raised:
        call()
    return raised.value.code


def sequences(log: FakeLog) -> list[int]:
    return [batch.header.base_sequence for batch in log.batches]


# -- appending ---------------------------------------------------------------------------


@pytest.mark.rule("retry-is-written-once")
def test_a_repeated_batch_is_not_written_again_and_gets_the_same_answer() -> None:
    log = FakeLog([1, 1])
    partition = leader(log)
    first = put(partition, sent_by(ID, 0, count=3), now_ms=50)
    again = put(partition, sent_by(ID, 0, count=3), now_ms=99)
    assert again == first == Appended(2, 5, 5, 50)
    assert log.log_end_offset == 5


def test_a_duplicate_triggers_no_growth_event() -> None:
    partition = leader(FakeLog())
    put(partition, sent_by(ID, 0))
    before = list(notes(partition))
    put(partition, sent_by(ID, 0))
    assert notes(partition) == before


@pytest.mark.rule("unanswered-write-happens-once")
def test_the_next_leader_knows_the_batches_of_its_predecessor() -> None:
    log = FakeLog()
    previous = leader(log)
    put(previous, sent_by(ID, 0))
    successor = new_partition(log, broker_id=2)
    successor.take(state(leader=2, epoch=6), 11, broker_epoch=epoch_of(2), now_ms=1)
    assert put(successor, sent_by(ID, 0)) == Appended(0, 1, 5, 9)
    assert put(successor, sent_by(ID, 1)).leader_epoch == 6


def test_of_a_request_with_a_gap_nothing_is_appended() -> None:
    log = FakeLog()
    partition = leader(log)
    request = [sent_by(ID, 0), sent_by(ID, 2)]
    assert code_of(lambda: put(partition, *request)) is ErrorCode.OUT_OF_ORDER_SEQUENCE
    assert log.batches == []
    assert put(partition, sent_by(ID, 0), sent_by(ID, 1)).next_offset == 2


def test_a_request_of_adjacent_duplicates_is_answered_with_their_offsets() -> None:
    partition = leader(FakeLog())
    put(partition, sent_by(ID, 0))
    put(partition, sent_by(ID, 1))
    assert put(partition, sent_by(ID, 0), sent_by(ID, 1))[:2] == (0, 2)


def test_for_scattered_duplicates_only_the_end_offset_is_returned() -> None:
    partition = leader(FakeLog())
    for batch in (sent_by(ID, 0), sent(), sent_by(ID, 1)):
        put(partition, batch)
    assert put(partition, sent_by(ID, 0), sent_by(ID, 1))[:2] == (NO_OFFSET, 3)


def test_new_batches_behind_a_duplicate_are_appended() -> None:
    log = FakeLog()
    partition = leader(log)
    put(partition, sent_by(ID, 0))
    assert put(partition, sent_by(ID, 0), sent_by(ID, 1))[:2] == (NO_OFFSET, 2)
    assert sequences(log) == [0, 1]


def test_a_batch_that_appears_twice_in_one_request_is_written_once() -> None:
    log = FakeLog()
    assert put(leader(log), sent_by(ID, 0), sent_by(ID, 0))[:2] == (NO_OFFSET, 1)
    assert sequences(log) == [0]


def test_a_duplicate_is_answered_also_below_min_isr() -> None:
    """A rejection would suggest that it was not appended."""
    partition = leader(FakeLog())
    put(partition, sent_by(ID, 0))
    partition.take(state(isr=(1,), eligible=(2, 3)), 11, broker_epoch=epoch_of(1), now_ms=1)
    assert put(partition, sent_by(ID, 0)).base_offset == 0
    assert code_of(lambda: put(partition, sent_by(ID, 1))) is ErrorCode.NOT_ENOUGH_REPLICAS


def test_a_broker_that_does_not_lead_answers_no_duplicate() -> None:
    log = FakeLog()
    partition = leader(log)
    put(partition, sent_by(ID, 0))
    partition.take(state(leader=2, epoch=6), 11, broker_epoch=epoch_of(1), now_ms=1)
    assert code_of(lambda: put(partition, sent_by(ID, 0))) is ErrorCode.NOT_LEADER


# -- following ---------------------------------------------------------------------------


def follower(log: FakeLog) -> Partition:
    partition = new_partition(log, broker_id=2)
    partition.take(state(), 10, broker_epoch=epoch_of(2), now_ms=1)
    return partition


def stamped_by(sequence: int, offset: int, epoch: int = 5) -> Batch:
    return stamp(sent_by(ID, sequence), base_offset=offset, leader_epoch=epoch, append_time_ms=1)


def follow(partition: Partition, *batches: Batch, producers: ProducerStates | None = None) -> bool:
    asked = partition.fetch_position()
    return partition.follow(asked, FetchAnswer(0, 0, 5, batches, producers=producers))


def lead_in_6(partition: Partition) -> None:
    partition.take(state(leader=2, epoch=6), 12, broker_epoch=epoch_of(2), now_ms=1)


@pytest.mark.rule("retry-is-written-once")
def test_a_follower_that_becomes_leader_knows_the_batches_that_it_copied() -> None:
    partition = follower(FakeLog())
    follow(partition, stamped_by(0, 0), stamped_by(1, 1))
    lead_in_6(partition)
    assert put(partition, sent_by(ID, 1)).base_offset == 1


def test_a_batch_that_was_cut_is_no_duplicate() -> None:
    """Rule `waiting-produce-ends-with-epoch`: it was never committed, and its retry writes it."""
    log = FakeLog()
    partition = follower(log)
    follow(partition, stamped_by(0, 0, epoch=3), stamped_by(1, 1, epoch=4))
    asked = partition.fetch_position()
    partition.follow(asked, FetchAnswer(0, 0, 5, (), EpochEnd(3, 1)))
    lead_in_6(partition)
    assert put(partition, sent_by(ID, 1)) == Appended(1, 2, 6, 9)


# -- a replica that starts where the log was deleted -------------------------------------


def known(*batches: Batch) -> ProducerStates:
    states = ProducerStates()
    for batch in batches:
        states.note(batch.header)
    return states


def restarted() -> Partition:
    partition = follower(FakeLog([3]))
    assert partition.restart_at(partition.fetch_position(), 40)
    return partition


def test_a_reset_replica_requests_the_producers_below_its_start() -> None:
    partition = restarted()
    assert partition.fetch_position().needs_producers
    assert follow(partition, stamped_by(3, 40), producers=known(stamped_by(2, 39)))
    assert not partition.fetch_position().needs_producers
    lead_in_6(partition)
    assert put(partition, sent_by(ID, 2)).base_offset == 39


def test_a_reset_replica_takes_no_batches_before_it_knows_the_producers() -> None:
    partition = restarted()
    assert not follow(partition, stamped_by(3, 40))
    assert partition.log.log_end_offset == 40


def test_an_answer_from_before_the_reset_is_dropped() -> None:
    log = FakeLog(start=40)
    partition = follower(log)
    asked = partition.fetch_position()
    log.reset_to(40)
    assert not partition.follow(asked, FetchAnswer(0, 0, 5, [stamped_by(0, 40)]))


@pytest.mark.parametrize(
    ("new_state", "copied_again"),
    [
        (state(leader=2, isr=(2, 3)), True),
        (state(leader=2), False),
        (state(leader=2, isr=(2,), eligible=(1,)), False),
        (state(leader=2, isr=(2,), eligible=(1,)).resigned(1), True),
    ],
    ids=["outside", "in the ISR", "eligible", "resigned"],
)
def test_a_replica_that_lost_them_is_copied_again_where_it_does_not_count(
    new_state: LeaderAndIsr, copied_again: bool
) -> None:
    log = FakeLog([5, 5], start=40)
    log.producers.lost = True
    partition = new_partition(log)
    partition.take(new_state, 10, broker_epoch=epoch_of(1), now_ms=1)
    assert partition.fetch_position().needs_producers is copied_again


def expired(log: FakeLog, states: ProducerStates) -> Partition:
    log.producers.adopt_below_start(states)
    return leader(log)


def is_answered(offset: int, partition: Partition) -> bool:
    """Whether the leader answers a fetch of follower 3 that needs producers."""
    asked = position(partition, offset)._replace(needs_producers=True, last_fetched_epoch=-1)
    partition.replica_fetch(3, epoch_of(3), asked, 1)
    answer = partition.read_for_follower(asked, 1000)
    assert answer.producers is not None
    assert answer.producers.entry(ID) is not None
    return partition.has_news(asked, partition.high_watermark)


def test_a_leader_sends_the_producers_below_its_start_at_once() -> None:
    partition = expired(FakeLog(start=40), known(stamped_by(2, 39)))
    assert is_answered(40, partition)


@pytest.mark.parametrize("offset", [20, 41])
def test_a_leader_sends_producers_for_no_other_offset(offset: int) -> None:
    log = FakeLog([5, 5, 5], start=40)
    partition = expired(log, known(stamped_by(2, 39)))
    assert code_of(lambda: is_answered(offset, partition)) is ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.rule("replica-must-know-its-producers")
def test_a_replica_without_its_producers_does_not_count() -> None:
    """It could be elected, and would write a retry a second time."""
    log = FakeLog(start=40)
    log.producers.adopt_below_start(known(stamped_by(2, 39)))
    partition = leader(log, state(isr=(1, 2)))
    is_answered(40, partition)
    assert "judge" not in notes(partition)
    fetch_by(partition, 3, 40)
    assert "judge" in notes(partition)


# -- fences ------------------------------------------------------------------------------


@pytest.mark.rule("name-holder-fences-previous")
def test_a_fence_keeps_a_previous_holder_from_writing_its_first_batch() -> None:
    log = FakeLog()
    partition = leader(log)
    assert partition.fence_producer(NAMED, 3, now_ms=9) == 1
    assert is_fence(log.batches[0].header)
    zombie = sent_by(NAMED, 0, epoch=2)
    assert code_of(lambda: put(partition, zombie)) is ErrorCode.FENCED_PRODUCER_EPOCH


def test_the_next_leader_respects_the_fence() -> None:
    log = FakeLog()
    leader(log).fence_producer(NAMED, 3, now_ms=9)
    successor = new_partition(log, broker_id=2)
    lead_in_6(successor)
    zombie = sent_by(NAMED, 0, epoch=2)
    assert code_of(lambda: put(successor, zombie)) is ErrorCode.FENCED_PRODUCER_EPOCH


def test_a_fence_holds_once_everything_written_before_is_committed() -> None:
    partition = leader(FakeLog())
    put(partition, sent_by(NAMED, 0, count=4))
    assert partition.fence_producer(NAMED, 1, now_ms=9) == 5


def test_a_repeated_fence_is_not_written_again() -> None:
    partition = leader(FakeLog())
    holds = [partition.fence_producer(NAMED, 1, now_ms=9) for _ in range(2)]
    assert holds == [1, 1]
    assert partition.log.log_end_offset == 1


def test_the_first_holder_of_a_name_needs_no_fence() -> None:
    partition = leader(FakeLog())
    assert partition.fence_producer(NAMED, 0, now_ms=9) == 0
    assert partition.log.log_end_offset == 0


def test_a_fence_needs_the_replicas_of_acks_all() -> None:
    partition = leader(FakeLog(), state(isr=(1,), eligible=(2,)))
    rejection = code_of(lambda: partition.fence_producer(NAMED, 1, now_ms=9))
    assert rejection is ErrorCode.NOT_ENOUGH_REPLICAS
    assert partition.log.log_end_offset == 0


def test_a_previous_holder_does_not_fence_its_successor() -> None:
    partition = leader(FakeLog())
    partition.fence_producer(NAMED, 2, now_ms=9)
    rejection = code_of(lambda: partition.fence_producer(NAMED, 1, now_ms=9))
    assert rejection is ErrorCode.FENCED_PRODUCER_EPOCH


# -- committed state ---------------------------------------------------------------------


def described(partition: Partition, *ids: int) -> Sequence[tuple[int, int]]:
    return [(p.producer_id, p.last_sequence) for p in partition.committed_producers(ids)]


def test_only_committed_sequences_are_described() -> None:
    partition = leader(FakeLog())
    put(partition, sent_by(ID, 0, count=4))
    assert described(partition) == [(ID, -1)]
    for broker in (2, 3):
        fetch_by(partition, broker)
    put(partition, sent_by(ID, 4))
    assert described(partition) == [(ID, 3)]


def test_a_new_leader_describes_nothing_before_it_knows_the_committed_end() -> None:
    log = FakeLog()
    put(leader(log), sent_by(ID, 0))
    successor = new_partition(log, broker_id=2)
    lead_in_6(successor)
    assert code_of(lambda: described(successor)) is ErrorCode.OFFSET_NOT_AVAILABLE
