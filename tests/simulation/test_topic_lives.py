"""Topics that had one name in turn are kept apart, and mixing them is found."""

from __future__ import annotations

import pytest

from simulation.topic_lives import LivesHistory, LivesRead, TopicLives
from simulation.violation import Violation
from tidelog import record_batch
from tidelog.batch import stamp
from tidelog.history import Anomaly, Operation, Outcome, PollEnded, SendEnded, SendInvoked
from tidelog.model import Record, TopicPartition
from tidelog.rpc.wire import batch_to_wire
from tidelog.v1 import broker_pb2

AGAIN = TopicPartition("again-1", 0)


def fetched(lives: TopicLives, topic_id: str, offset: int, value: int) -> None:
    batch = stamp(
        record_batch.encode([b"%d" % value], timestamps_ms=1),
        base_offset=offset,
        leader_epoch=0,
        append_time_ms=1,
    )
    topic, partition = AGAIN
    request = broker_pb2.FetchRequest()
    request.partitions.add(topic=topic, partition=partition, topic_id=topic_id)
    answer = broker_pb2.FetchResponse()
    answer.partitions.add(topic=topic, partition=partition, batches=[batch_to_wire(batch)])
    lives.answer_accepted("client-c", request, answer)


def record(offset: int, value: int) -> Record:
    return Record(*AGAIN, offset, 1, None, b"%d" % value, (), 0)


def test_a_record_belongs_to_the_topic_that_it_was_fetched_from() -> None:
    lives = TopicLives()
    fetched(lives, "former", 0, 7)
    fetched(lives, "new", 0, 8)
    assert lives.given_in("client-c", record(0, 7), 7) == "former"
    assert lives.given_in("client-c", record(0, 8), 8) == "new"


def test_a_record_that_no_client_sent_is_found() -> None:
    with pytest.raises(Violation, match="given_by_nobody"):
        TopicLives().given_in("client-c", record(0, 7), 7)


def test_going_on_in_another_topic_without_a_word_is_found() -> None:
    read = LivesRead({AGAIN.topic: ["former", "new"]})
    read.read("c", AGAIN, "former")
    with pytest.raises(Violation, match="topics_mixed"):
        read.read("c", AGAIN, "new")


def test_a_client_informed_of_a_recreation_may_continue_in_the_new_topic() -> None:
    read = LivesRead({AGAIN.topic: ["former", "new"]})
    read.read("c", AGAIN, "former")
    read.recreation_reported("c")
    read.read("c", AGAIN, "new")


def test_going_back_to_a_former_topic_is_found_in_an_informed_client() -> None:
    read = LivesRead({AGAIN.topic: ["former", "new"]})
    read.read("c", AGAIN, "new")
    read.recreation_reported("c")
    with pytest.raises(Violation, match="former_topic_read"):
        read.read("c", AGAIN, "former")


def anomalies(*operations: Operation, acknowledged_in: str) -> list[dict[Anomaly, int]]:
    history = LivesHistory()
    for topic_id in ("former", "new"):
        history.name(AGAIN.topic, topic_id)
    history.written(AGAIN.topic, acknowledged_in, [1])
    for operation in (
        SendInvoked(0, "p", *AGAIN, 1),
        SendEnded(0, "p", *AGAIN, 1, Outcome.OK, 0, 0),
        *operations,
    ):
        history.add(operation)
    return [dict(report.findings.counts) for report in history.reports([])]


def polled(topic_id: str, value: int) -> PollEnded:
    return PollEnded(0, "c", f"{AGAIN.topic}@{topic_id}", 0, Outcome.OK, [0], [value], [0])


def test_each_topic_has_its_own_first_offset() -> None:
    send = (SendInvoked(0, "p", *AGAIN, 2), SendEnded(0, "p", *AGAIN, 2, Outcome.INFO))
    found = anomalies(*send, polled("former", 2), polled("new", 1), acknowledged_in="new")
    assert found == [{}, {}]


def test_another_record_where_one_was_acknowledged_in_the_same_topic_is_found() -> None:
    send = (SendInvoked(0, "p", *AGAIN, 2), SendEnded(0, "p", *AGAIN, 2, Outcome.INFO))
    found = anomalies(*send, polled("former", 2), acknowledged_in="former")
    assert found[0][Anomaly.INCONSISTENT_OFFSETS] == 1


def test_what_was_acknowledged_in_one_topic_may_have_been_tried_in_another() -> None:
    found = anomalies(polled("former", 1), polled("new", 1), acknowledged_in="new")
    assert found == [{}, {}]
