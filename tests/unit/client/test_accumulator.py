import random

from tidelog.client.accumulator import Accumulator
from tidelog.client.delivery import Appended, Outcome
from tidelog.client.open_batches import MAX_GATHERING_MS
from tidelog.client.partition_queue import Idempotence
from tidelog.client.retry import Backoff, Leader
from tidelog.client.sealed_batch import Group, Request
from tidelog.client.sequences import MAX_UNSETTLED_BATCHES, Identity
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import TopicPartition
from tidelog.record_batch import encode_records

P0, P1 = TopicPartition("sea", 0), TopicPartition("sea", 1)
RETRIABLE = TidelogError(ErrorCode.NOT_ENOUGH_REPLICAS, "too few in sync")
FATAL = TidelogError(ErrorCode.INVALID_BATCH, "no batch")


class Bench:
    """An accumulator whose leaders and outcomes are lists."""

    def __init__(
        self,
        *,
        per_partition: int = 5,
        per_broker: int = 2,
        max_request_bytes: int = 10_000,
        idempotence: Idempotence = Idempotence.OFF,
    ) -> None:
        self.accumulator = Accumulator(
            Backoff(random.Random(1), 50, 50),
            max_request_bytes=max_request_bytes,
            max_in_flight_per_broker=per_broker,
            max_in_flight_per_partition=per_partition,
            idempotence=idempotence,
        )
        self.leaders = {P0: Leader(1, 1, "one:1", "id"), P1: Leader(1, 1, "one:1", "id")}
        self.settled: list[tuple[bytes, Outcome]] = []

    def seal(self, partition: TopicPartition, value: bytes, deadline_ms: int = 1000) -> None:
        self.accumulator.seal(
            partition,
            encode_records([value], timestamps_ms=1),
            deadline_ms=deadline_ms,
            on_settled=lambda outcome: self.settled.append((value, outcome)),
        )

    def drain(self, now_ms: int = 0) -> list[Request]:
        return self.accumulator.drain(now_ms, self.leaders.get)

    def drain_group(self, now_ms: int = 0) -> Group:
        [request] = self.drain(now_ms)
        [group] = request.groups
        self.accumulator.finish(request)
        return group

    def fail(self, group: Group, error: TidelogError, now_ms: int = 0) -> None:
        self.accumulator.failed(group, error, now_ms, stale=False)


def test_one_request_carries_all_partitions_of_a_broker() -> None:
    bench = Bench()
    bench.seal(P0, b"a")
    bench.seal(P1, b"b")
    bench.seal(P0, b"c")
    [request] = bench.drain()
    assert [(g.partition, len(g.batches)) for g in request.groups] == [(P0, 2), (P1, 1)]
    assert bench.drain() == []


def test_a_request_ends_at_its_limit_and_the_next_is_sent_in_parallel() -> None:
    bench = Bench(max_request_bytes=2500)
    for _ in range(4):
        bench.seal(P0, bytes(1000))
    assert [len(r.groups[0].batches) for r in bench.drain()] == [2]
    assert [len(r.groups[0].batches) for r in bench.drain()] == [2]


GOES, BLOCKED = 1_000, 1_000 + MAX_GATHERING_MS


def gathers_until(bench: Bench, partition: TopicPartition, now_ms: int = GOES) -> int:
    return bench.accumulator.gathers_until(now_ms, bench.leaders.get)(partition)


def test_a_partial_batch_is_sent_alone_or_with_waiting_batches() -> None:
    bench = Bench()
    assert gathers_until(bench, P1) == GOES
    bench.seal(P0, b"a")
    [first] = bench.drain(990)
    assert gathers_until(bench, P1) == 990 + MAX_GATHERING_MS, "its leader owes an answer"
    bench.leaders[P1] = Leader(2, 1, "two:1", "id")
    assert gathers_until(bench, P1) == GOES, "another leader owes none"
    bench.leaders[P1] = bench.leaders[P0]
    bench.seal(P0, b"b")
    assert gathers_until(bench, P1) == GOES, "it shares the request of what waits"
    bench.drain(995)
    bench.seal(P0, b"c")
    assert gathers_until(bench, P1) == BLOCKED, "no further request may go there"
    bench.accumulator.finish(first)
    assert gathers_until(bench, P1) == GOES
    bench.leaders.clear()
    assert gathers_until(bench, P1) == GOES, "its leader is unknown: its time runs"


def test_an_answer_outstanding_for_long_delays_no_batch() -> None:
    bench = Bench(per_broker=3)
    bench.seal(P0, b"a")
    [slow] = bench.drain(500)
    assert gathers_until(bench, P1) <= GOES
    bench.seal(P1, b"b")
    [quick] = bench.drain(990)
    assert gathers_until(bench, P1) == 990 + MAX_GATHERING_MS
    bench.accumulator.finish(quick)
    assert gathers_until(bench, P1) <= GOES
    bench.accumulator.finish(slow)
    assert gathers_until(bench, P1) == GOES


def test_a_waiting_batch_that_cannot_be_sent_takes_no_other_along() -> None:
    bench = Bench(per_broker=3)
    bench.seal(P0, b"a")
    bench.fail(bench.drain_group(980), RETRIABLE, 980)
    bench.seal(P1, b"b")
    bench.drain(990)
    assert bench.accumulator.waiting() == {P0: 1}
    assert gathers_until(bench, P1) == 990 + MAX_GATHERING_MS, "the other pauses before a retry"
    assert gathers_until(bench, P1, 1_050) == 1_050, "and is sent now"


def test_a_partial_batch_waits_for_its_partition() -> None:
    bench = Bench(per_partition=1)
    bench.seal(P0, b"a")
    [request] = bench.drain(990)
    bench.seal(P1, b"b")
    assert gathers_until(bench, P0) == BLOCKED
    assert gathers_until(bench, P1) == GOES
    bench.accumulator.finish(request)
    bench.accumulator.appended(request.groups[0], Appended(0, 1, 1))
    assert gathers_until(bench, P0) == GOES


def test_a_partial_batch_waits_for_the_pause_before_a_retry() -> None:
    bench = Bench()
    bench.seal(P0, b"a")
    bench.fail(bench.drain_group(980), RETRIABLE, 980)
    assert gathers_until(bench, P0) == BLOCKED
    assert gathers_until(bench, P0, 1_050) == 1_050


def test_a_partial_batch_waits_for_a_sequence() -> None:
    bench = Bench(per_broker=5, idempotence=Idempotence.UNNAMED)
    bench.accumulator.identified(Identity(7, 0))
    for _ in range(MAX_UNSETTLED_BATCHES):
        bench.seal(P0, b"a")
    bench.drain(500)
    assert gathers_until(bench, P0) == BLOCKED
    bench.seal(P1, b"b")
    assert gathers_until(bench, P0) == BLOCKED, "that something else goes there is no help"


def test_requests_in_flight_to_a_broker_are_bounded() -> None:
    bench = Bench()
    for _ in range(2):
        bench.seal(P0, b"a")
        assert len(bench.drain()) == 1
    bench.seal(P0, b"a")
    assert bench.drain() == []


def test_requests_in_flight_with_a_partition_are_bounded() -> None:
    bench = Bench(per_partition=1)
    bench.seal(P0, b"a")
    assert len(bench.drain()) == 1
    bench.seal(P0, b"b")
    assert bench.drain() == []


def test_each_batch_of_a_group_gets_its_own_offset() -> None:
    bench = Bench()
    bench.seal(P0, b"a")
    bench.seal(P0, b"b")
    bench.accumulator.appended(bench.drain_group(), Appended(7, 1, 5))
    assert bench.settled == [(b"a", Appended(7, 1, 5)), (b"b", Appended(8, 1, 5))]
    assert bench.accumulator.unsettled == 0


def test_a_failed_batch_is_sent_before_later_ones() -> None:
    bench = Bench()
    bench.seal(P0, b"a")
    group = bench.drain_group()
    bench.seal(P0, b"b")
    bench.fail(group, RETRIABLE)
    again = bench.drain_group(50)
    assert [b.number for b in again.batches] == [0, 1]


def test_after_a_failure_nothing_is_sent_until_all_in_flight_is_answered() -> None:
    bench = Bench()
    bench.seal(P0, b"a")
    first = bench.drain_group()
    bench.seal(P0, b"b")
    second = bench.drain_group()
    bench.seal(P0, b"c")
    bench.fail(first, RETRIABLE)
    assert bench.drain(1000) == []
    bench.fail(second, RETRIABLE)
    assert [b.number for b in bench.drain_group(1000).batches] == [0, 1, 2]


def test_the_same_bytes_are_sent_again() -> None:
    bench = Bench()
    bench.seal(P0, b"a")
    first = bench.drain_group()
    sent = first.batches[0].batch
    assert sent is not None
    bench.fail(first, RETRIABLE)
    assert bench.drain_group(50).batches[0].batch is sent


def test_a_failed_leader_is_avoided_for_a_while_and_a_newer_one_is_not() -> None:
    bench = Bench()
    bench.seal(P0, b"a")
    bench.fail(bench.drain_group(), RETRIABLE, now_ms=0)
    assert bench.drain(1) == []
    assert bench.accumulator.next_retry_ms(1) in range(25, 51)
    bench.leaders[P0] = Leader(2, 2, "two:1", "id")
    assert bench.drain_group(1).leader.broker_id == 2


def test_without_a_leader_a_partition_waits_and_requests_metadata() -> None:
    bench = Bench()
    del bench.leaders[P0]
    bench.seal(P0, b"a")
    assert bench.drain() == []
    assert bench.accumulator.wants_metadata(bench.leaders.get)


def test_an_error_that_no_retry_can_repair_is_reported() -> None:
    bench = Bench()
    bench.seal(P0, b"a")
    bench.fail(bench.drain_group(), FATAL)
    assert bench.settled == [(b"a", FATAL)]


def test_a_batch_that_fails_its_entire_group_is_found() -> None:
    bench = Bench()
    for value in (b"a", b"b", b"c"):
        bench.seal(P0, value)
    bench.fail(bench.drain_group(), FATAL)
    assert bench.settled == []
    for value in (b"a", b"b", b"c"):
        [request] = bench.drain()
        [group] = request.groups
        bench.accumulator.finish(request)
        assert len(group.batches) == 1
        if value == b"b":
            bench.fail(group, FATAL)
        else:
            bench.accumulator.appended(group, Appended(0, 1, 1))
    assert [(v, isinstance(o, TidelogError)) for v, o in bench.settled] == [
        (b"a", False),
        (b"b", True),
        (b"c", False),
    ]


def test_a_batch_expires_with_the_reason_of_its_last_failure() -> None:
    bench = Bench()
    bench.seal(P0, b"a", deadline_ms=100)
    group = bench.drain_group()
    bench.accumulator.expire(99)
    bench.fail(group, RETRIABLE, now_ms=100)
    [(_, outcome)] = bench.settled
    assert isinstance(outcome, TidelogError)
    assert outcome.code is ErrorCode.REQUEST_TIMED_OUT
    assert "after 1 failures; the last: too few in sync" in outcome.message
    assert "known: it was not" in outcome.message


def test_a_batch_that_may_be_in_the_log_expires_as_unknown() -> None:
    bench = Bench()
    bench.seal(P0, b"a", deadline_ms=100)
    late = TidelogError(ErrorCode.REQUEST_TIMED_OUT, "too late")
    bench.fail(bench.drain_group(), late, now_ms=10)
    bench.fail(bench.drain_group(60), RETRIABLE, now_ms=100)
    [(_, outcome)] = bench.settled
    assert isinstance(outcome, TidelogError)
    assert "not known" in outcome.message


def test_a_batch_that_was_never_sent_expires_as_not_appended() -> None:
    bench = Bench()
    del bench.leaders[P0]
    bench.seal(P0, b"a", deadline_ms=100)
    bench.accumulator.expire(100)
    [(_, outcome)] = bench.settled
    assert isinstance(outcome, TidelogError)
    assert "known: it was not" in outcome.message


def values(bench: Bench) -> list[bytes]:
    return [value for value, _ in bench.settled]


def sequences(group: Group) -> list[int]:
    return [b.batch.header.base_sequence for b in group.batches if b.batch is not None]


def test_a_batch_expires_in_time_behind_batches_with_later_deadlines() -> None:
    bench = Bench()
    bench.seal(P0, b"a", deadline_ms=200)
    bench.seal(P0, b"moved", deadline_ms=100)
    bench.seal(P0, b"moved too", deadline_ms=150)
    bench.seal(P0, b"b", deadline_ms=300)
    expired = [len(bench.accumulator.expire(now_ms)) for now_ms in (99, 100, 150, 199, 200, 300)]
    assert expired == [0, 1, 1, 0, 1, 1]
    assert values(bench) == [b"moved", b"moved too", b"a", b"b"]
    assert bench.accumulator.waiting() == {}


def in_flight_with_an_early_batch() -> tuple[Bench, Group]:
    bench = Bench(idempotence=Idempotence.UNNAMED)
    bench.accumulator.identified(Identity(7, 0))
    bench.seal(P0, b"a", deadline_ms=200)
    bench.seal(P0, b"moved", deadline_ms=100)
    bench.seal(P0, b"b", deadline_ms=300)
    return bench, bench.drain_group()


def test_an_early_batch_that_failed_expires_in_time_and_leaves_no_gap() -> None:
    bench, group = in_flight_with_an_early_batch()
    bench.fail(group, RETRIABLE, now_ms=100)
    assert values(bench) == [b"moved"]
    again = bench.drain_group(150)
    assert [b.number for b in again.batches] == [0, 2]
    assert sequences(again) == [0, 1]


def test_an_early_batch_that_may_be_written_expires_and_keeps_its_sequence() -> None:
    bench, group = in_flight_with_an_early_batch()
    bench.fail(group, TidelogError(ErrorCode.REQUEST_TIMED_OUT, "no answer"), now_ms=90)
    bench.accumulator.expire(100)
    [(value, error)] = bench.settled
    assert isinstance(error, TidelogError)
    assert (value, error.outcome_unknown) == (b"moved", True)
    assert [sequences(bench.drain_group(150)) for _ in range(2)] == [[0], [2]]


def test_a_batch_expires_in_flight_and_the_others_get_the_answer() -> None:
    bench, group = in_flight_with_an_early_batch()
    bench.accumulator.expire_in_flight(group, 99)
    assert bench.settled == []
    bench.accumulator.expire_in_flight(group, 100)
    bench.accumulator.expire_in_flight(group, 101)
    [(value, error)] = bench.settled
    assert isinstance(error, TidelogError)
    assert (value, error.outcome_unknown) == (b"moved", True)
    assert "delivery_timeout_ms, without an answer" in error.message
    bench.accumulator.appended(group, Appended(7, 1, 1))
    assert bench.settled[1:] == [(b"a", Appended(7, 1, 1)), (b"b", Appended(9, 1, 1))]
    assert bench.accumulator.unsettled == 0


def test_a_batch_that_expired_in_flight_is_not_sent_again() -> None:
    bench, group = in_flight_with_an_early_batch()
    bench.accumulator.expire_in_flight(group, 100)
    bench.fail(group, RETRIABLE, now_ms=100)
    assert bench.drain() == []
    assert bench.accumulator.wants_identity(), "its sequence may still be written"
    bench.accumulator.identified(Identity(8, 0))
    again = bench.drain_group(150)
    assert [b.number for b in again.batches] == [0, 2]
    assert sequences(again) == [0, 1]
    assert values(bench) == [b"moved"]


def test_an_early_batch_with_an_outcome_is_removed_from_the_queue() -> None:
    bench, group = in_flight_with_an_early_batch()
    queue = bench.accumulator._queues[P0]
    assert queue.early == {group.batches[1]}
    bench.accumulator.appended(group, Appended(0, 1, 1))
    assert not queue.early


def test_an_internal_error_of_the_broker_leaves_the_outcome_unknown() -> None:
    bench = Bench()
    bench.seal(P0, b"a")
    bench.fail(bench.drain_group(), TidelogError(ErrorCode.INTERNAL, "a fault"))
    [(_, error)] = bench.settled
    assert isinstance(error, TidelogError)
    assert error.outcome_unknown


def test_an_unanswered_batch_has_an_unknown_outcome_when_its_producer_is_fenced() -> None:
    bench = Bench(idempotence=Idempotence.NAMED)
    bench.accumulator.identified(Identity(7, 0))
    bench.seal(P0, b"a")
    bench.seal(P1, b"b")
    assert bench.drain() == []
    for partition, _ in bench.accumulator.take_position_requests(0, bench.leaders.get):
        bench.accumulator.positioned(partition, 0)
    [request] = bench.drain()
    fenced, unanswered = request.groups
    bench.fail(fenced, TidelogError(ErrorCode.FENCED_PRODUCER_EPOCH, "fenced"))
    bench.fail(unanswered, TidelogError(ErrorCode.REQUEST_TIMED_OUT, "no answer"))
    failures = {value: error for value, error in bench.settled if isinstance(error, TidelogError)}
    assert {value: error.outcome_unknown for value, error in failures.items()} == {
        b"a": False,
        b"b": True,
    }


def test_fail_all_settles_waiting_batches() -> None:
    bench = Bench()
    bench.seal(P0, b"a")
    bench.seal(P1, b"b")
    bench.accumulator.fail_all(FATAL)
    assert len(bench.settled) == 2
    assert bench.accumulator.waiting() == {}


def test_batches_queued_behind_five_in_flight_share_requests() -> None:
    """Each answer makes room for one more batch. Sent at once, each would go alone for ever."""
    bench = Bench(per_broker=5, idempotence=Idempotence.UNNAMED)
    bench.accumulator.identified(Identity(1, 0))
    groups = []
    for _ in range(5):
        bench.seal(P0, b"a")
        groups.append(bench.drain_group())
    for _ in range(4):
        bench.seal(P0, b"b")
    for group in groups[:2]:
        bench.accumulator.appended(group, Appended(0, 1, 1))
        assert bench.drain() == []
    bench.accumulator.appended(groups[2], Appended(0, 1, 1))
    assert len(bench.drain_group().batches) == 3


def test_a_single_batch_is_sent_without_waiting_for_others() -> None:
    bench = Bench(per_broker=5, idempotence=Idempotence.UNNAMED)
    bench.accumulator.identified(Identity(1, 0))
    for _ in range(2):
        bench.seal(P0, b"a")
        assert len(bench.drain_group().batches) == 1


def test_no_sequence_of_a_deleted_partition_is_used_again() -> None:
    """The previous leader may not know of the deletion yet, and would treat a new record as a
    duplicate.
    """
    bench = Bench(idempotence=Idempotence.UNNAMED)
    bench.accumulator.identified(Identity(7, 0))
    bench.seal(P0, b"a")
    group = bench.drain_group()
    bench.accumulator.appended(group, Appended(0, 1, 1))
    bench.accumulator.fail_removed(P0, TidelogError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "gone"))
    bench.seal(P0, b"b")
    assert bench.drain() == []
    assert bench.accumulator.wants_identity()
    bench.accumulator.identified(Identity(8, 0))
    [batch] = bench.drain_group().batches
    assert batch.batch is not None
    assert (batch.batch.header.producer_id, batch.batch.header.base_sequence) == (8, 0)
