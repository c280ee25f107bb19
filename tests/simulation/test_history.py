"""The checker finds planted anomalies in what the recorder has recorded."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from simulation.final_checks import Contents, note_digests
from simulation.history import Recorder
from simulation.violation import Violation
from tidelog.client.delivery import BatchReport
from tidelog.history import NO_BROKER, Anomaly, Outcome, SendEnded
from tidelog.model import Batch, BatchHeader, Record, TopicPartition
from tidelog.v1 import broker_pb2, errors_pb2

SEA = TopicPartition("sea", 0)
CLIENT = "p-sea"
EPOCH = 4


class Leaders:
    """Returns the epoch that each address leads in."""

    def __init__(self, **epochs: int) -> None:
        self.epochs = {f"{name.replace('_', '-')}:7500": epoch for name, epoch in epochs.items()}

    def __call__(self, address: str, _: TopicPartition) -> int:
        return self.epochs.get(address, -1)


def recorder(leaders: Leaders) -> Recorder:
    nothing_committed = SimpleNamespace(
        store=SimpleNamespace(topics={}, lives={}), losses=[], name_of=lambda _: SEA
    )
    return Recorder(cast(Any, nothing_committed), lambda: 0, [SEA.topic], leaders)


def acknowledged(
    recorder: Recorder,
    broker: str,
    value: int,
    offset: int,
    base_offset: int | None = None,
    error: int | None = None,
) -> int:
    """Records an acknowledgement by `broker` in EPOCH; returns the broker that the history names.

    - `base_offset`: the base offset of the answer, if the batch is not its first
    """
    recorder.send_invoked(CLIENT, SEA, [value])
    failure = None if error is None else errors_pb2.Error(code=cast(Any, error))
    answer = broker_pb2.ProduceResponse(
        partitions=[
            broker_pb2.ProducePartitionResult(
                topic=SEA.topic,
                base_offset=offset if base_offset is None else base_offset,
                leader_epoch=EPOCH,
                error=failure,
            )
        ]
    )
    recorder.answered("produce", f"client-{CLIENT}", f"{broker}:7500", answer)
    report = BatchReport(SEA.topic, 0, offset, 1, EPOCH, 0)
    recorder.send_ended(CLIENT, SEA, [value], report, outcome=Outcome.OK)
    ended = recorder.operations[-1]
    assert isinstance(ended, SendEnded)
    return ended.broker_id


def found(recorder: Recorder) -> dict[Anomaly, int]:
    return dict(recorder.report([SEA.topic]).findings.counts)


def test_two_brokers_that_acknowledge_in_one_epoch_are_found() -> None:
    told = recorder(Leaders(broker_1=EPOCH, broker_2=EPOCH))
    acknowledged(told, "broker-1", value=1, offset=0)
    acknowledged(told, "broker-2", value=2, offset=1)
    assert found(told) == {Anomaly.TWO_LEADERS: 1}


def test_a_new_leader_that_answers_what_is_sent_again_does_not_lead_in_the_old_epoch() -> None:
    told = recorder(Leaders(broker_1=EPOCH, broker_2=EPOCH + 1))
    acknowledged(told, "broker-1", value=1, offset=0)
    assert acknowledged(told, "broker-2", value=2, offset=1) == NO_BROKER
    assert found(told) == {}


def test_each_batch_of_an_answer_was_acknowledged_by_its_broker() -> None:
    told = recorder(Leaders(broker_1=EPOCH))
    assert acknowledged(told, "broker-1", value=1, offset=7, base_offset=5) == 1


def test_a_rejection_acknowledges_nothing() -> None:
    told = recorder(Leaders(broker_1=EPOCH))
    assert acknowledged(told, "broker-1", value=1, offset=0, error=1) == NO_BROKER


def fetched(
    recorder: Recorder,
    host: str,
    high_watermark: int,
    leader_epoch: int,
    recorded: int | None = None,
) -> None:
    """Records an answer. `recorded`: the number of a question that was recorded before."""
    request, answer = broker_pb2.FetchRequest(), broker_pb2.FetchResponse()
    request.partitions.add(topic=SEA.topic, topic_id="id")
    answer.partitions.add(topic=SEA.topic, high_watermark=high_watermark, leader_epoch=leader_epoch)
    question = recorder.asked(host, request) if recorded is None else recorded
    recorder.answer_accepted(host, question, request, answer)


def test_a_high_watermark_that_falls_from_one_epoch_to_the_next_is_found() -> None:
    told = recorder(Leaders())
    fetched(told, "client-c1", 10, EPOCH)
    fetched(told, "client-c2", 8, EPOCH + 1)
    assert found(told) == {Anomaly.HW_REGRESSION: 1}


def test_a_high_watermark_that_falls_from_one_client_to_the_next_is_found() -> None:
    told = recorder(Leaders())
    fetched(told, "client-c1", 10, EPOCH)
    fetched(told, "client-c2", 8, EPOCH)
    assert found(told) == {Anomaly.HW_REGRESSION: 1}


def test_an_answer_that_was_long_on_its_way_is_no_fall() -> None:
    told = recorder(Leaders())
    request = broker_pb2.FetchRequest()
    request.partitions.add(topic=SEA.topic, topic_id="id")
    late = told.asked("client-c2", request)
    fetched(told, "client-c1", 10, EPOCH)
    fetched(told, "client-c2", 8, EPOCH, recorded=late)
    assert found(told) == {}


def test_a_leader_that_does_not_know_the_end_reports_none() -> None:
    told = recorder(Leaders())
    fetched(told, "client-c1", 10, EPOCH)
    fetched(told, "client-c2", -1, EPOCH + 1)
    assert found(told) == {}


def contents(broker_id: int, *records: bytes, start: int = 0, is_readable: bool = True) -> Contents:
    batches = [
        Batch(_header(offset), data) for offset, data in enumerate(records) if offset >= start
    ]
    return Contents(SEA, broker_id, start, len(records), batches, is_readable)


def _header(offset: int) -> BatchHeader:
    return BatchHeader(offset, EPOCH, 0, 0, 0, 0, 1, 0, 0, -1, -1, -1)


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (contents(2, b"a", b"b"), {}),
        (contents(2, b"a", b"X"), {Anomaly.REPLICA_DIVERGENCE: 1}),
        # Retention has deleted the rest, which is not compared.
        (contents(2, b"X", b"b", start=1), {}),
        (contents(2, b"X", b"X", start=1), {Anomaly.REPLICA_DIVERGENCE: 1}),
        # A flipped bit that its broker has not found yet.
        (contents(2, b"a", is_readable=False), {}),
    ],
)
def test_replicas_with_different_contents_are_found(
    other: Contents, expected: dict[Anomaly, int]
) -> None:
    told = recorder(Leaders())
    note_digests([[contents(1, b"a", b"b"), other]], told)
    assert found(told) == expected


def recorder_of_a_log(*, fences: Sequence[int]) -> Recorder:
    """Returns a recorder for a log with fences at these offsets, and records everywhere else."""
    committed = SimpleNamespace(
        committed_entry=lambda _, __: SimpleNamespace(leader_epoch=EPOCH),
        was_committed=lambda _, __, epoch: epoch == EPOCH,
        fence_read=lambda _, offset, __: SimpleNamespace() if offset in fences else None,
    )
    invariants = SimpleNamespace(
        store=SimpleNamespace(topics={SEA.topic: SimpleNamespace(topic_id="id")}, lives={}),
        replicas=committed,
        losses=[],
        name_of=lambda _: SEA,
    )
    return Recorder(cast(Any, invariants), lambda: 0, [SEA.topic], Leaders())


def given(recorder: Recorder, client: str, *offsets: int, repositioned: bool = False) -> None:
    """Records what a client read; the record at an offset has the next number as its value."""
    records = [Record(*SEA, offset, 0, None, b"%d" % (offset + 1), (), EPOCH) for offset in offsets]
    recorder.polled(client, records, repositioned=frozenset([SEA] if repositioned else []))


def test_a_reader_may_pass_over_fences() -> None:
    told = recorder_of_a_log(fences=(1, 3, 4))
    told.send_invoked(CLIENT, SEA, [1, 3, 6])
    given(told, "c1", 0, 2)
    given(told, "c1", 5)
    assert found(told) == {}


def test_a_reader_that_passes_over_more_than_fences_is_found() -> None:
    told = recorder_of_a_log(fences=(2,))
    given(told, "c1", 0, 1)
    with pytest.raises(Violation, match="no fence was committed at 3") as raised:
        given(told, "c1", 4)
    assert raised.value.name == "passed_over_without_fence"


def test_who_was_moved_passes_over_nothing() -> None:
    told = recorder_of_a_log(fences=())
    told.send_invoked(CLIENT, SEA, [1, 4])
    given(told, "c1", 0)
    given(told, "c1", 3, repositioned=True)
    assert found(told) == {}
