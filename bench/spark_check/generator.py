"""A history of an intact log, with planted anomalies, generated in pieces that are independent of
each other. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from bench.spark_check.anomaly_plan import (
    DIGEST_RANGES,
    PARTITIONS,
    RECORDS_PER_POLL,
    ROUNDS_PER_DRAIN_POLL,
    ROUNDS_PER_SEGMENT,
    AnomalyPlan,
    Place,
)
from tidelog.history import (
    NO_PARTITION,
    Anomaly,
    HighWatermarkEnded,
    HighWatermarkInvoked,
    Nemesis,
    Operation,
    Outcome,
    PollEnded,
    PollInvoked,
    ReplicaDigest,
    SendEnded,
    SendInvoked,
)
from tidelog.model import NO_OFFSET

TOPIC = "sea"
MS_PER_ROUND = 10
ROUNDS_PER_READING = 20
# One of this many sends ends with an unknown outcome, and is written. Its end has no partition.
UNKNOWN_EVERY = 97
# Offsets of values that no record has: values of sends without an end, and values of no send.
_OTHER = 1 << 40
_UNSENT = 1 << 41
_REPLICAS = 3
_OTHER_LEADER = 9


class Record(NamedTuple):
    offset: int
    value: int


class Segment(NamedTuple):
    """Rounds of the history. `is_drain`: the drain reads these rounds."""

    number: int
    first_round: int
    end_round: int
    is_drain: bool


def segments_of(plan: AnomalyPlan) -> list[Segment]:
    """Returns the segments in the order of the history."""
    spans = [
        (first, min(first + ROUNDS_PER_SEGMENT, plan.rounds))
        for first in range(0, plan.rounds, ROUNDS_PER_SEGMENT)
    ]
    return [
        Segment(number, *span, number >= len(spans)) for number, span in enumerate([*spans, *spans])
    ]


def operations_of(plan: AnomalyPlan, segment: Segment) -> Iterator[Operation]:
    """Yields the operations of a segment. The last one ends with the digests of the replicas."""
    if not segment.is_drain:
        for number in range(segment.first_round, segment.end_round):
            yield from _round(plan, number)
        return
    if segment.first_round == 0:
        yield from _beyond_the_end(plan)
    for number in range(segment.first_round, segment.end_round, ROUNDS_PER_DRAIN_POLL):
        end = min(number + ROUNDS_PER_DRAIN_POLL, segment.end_round)
        for partition in range(PARTITIONS):
            yield from _drain_poll(plan, partition, number, end)
    if segment.end_round == plan.rounds:
        yield from _digests(plan)


def _round(plan: AnomalyPlan, number: int) -> Iterator[Operation]:
    if number and number % plan.rounds_per_epoch == 0:
        yield Nemesis(_time_ms(number), "kill", f"leaders of epoch {plan.epoch_of(number) - 1}")
    for partition in range(PARTITIONS):
        place = Place(partition, number)
        yield from _sends(plan, place)
        yield from _polls(plan, place)
        yield from _reading(plan, place)


def _time_ms(number: int) -> int:
    return number * MS_PER_ROUND


def _first_offset(number: int) -> int:
    return number * RECORDS_PER_POLL


def _record(place: Place, index: int) -> Record:
    offset = _first_offset(place.round) + index
    return Record(offset, offset * PARTITIONS + place.partition)


# The record of a round that an anomaly affects; the next one is its neighbour.
_AFFECTED = RECORDS_PER_POLL // 2


def _sends(plan: AnomalyPlan, place: Place) -> Iterator[Operation]:
    anomaly = plan.places.get(place)
    records = [_record(place, index) for index in range(RECORDS_PER_POLL)]
    if anomaly is Anomaly.NON_MONOTONIC_SEND:
        affected, neighbour = records[_AFFECTED : _AFFECTED + 2]
        records[_AFFECTED : _AFFECTED + 2] = [neighbour, affected]
    if anomaly is Anomaly.INCONSISTENT_OFFSETS:
        other = records[_AFFECTED].value + _OTHER
        yield SendInvoked(_time_ms(place.round), "other", TOPIC, place.partition, other)
    for index, record in enumerate(records):
        yield from _send(plan, place, record, _role(anomaly, index))


_AFFECTED_ROLES = {
    Anomaly.DUPLICATE: "never",
    Anomaly.PHANTOM_READ: "never",
    Anomaly.ABORTED_READ: "fail",
    Anomaly.TWO_LEADERS: "other leader",
}


def _role(anomaly: Anomaly | None, index: int) -> str:
    """Returns the outcome of the send of the affected record, or of its neighbour; empty: usual."""
    if anomaly is None or index not in (_AFFECTED, _AFFECTED + 1):
        return ""
    if index == _AFFECTED:
        return _AFFECTED_ROLES.get(anomaly, "known")
    return "never" if anomaly is Anomaly.DUPLICATE else "known"


def _send(plan: AnomalyPlan, place: Place, record: Record, role: str) -> Iterator[Operation]:
    time_ms, client = _time_ms(place.round), f"p{place.partition}"
    is_unknown = role == "never" or (not role and record.offset % UNKNOWN_EVERY == 0)
    partition = NO_PARTITION if is_unknown else place.partition
    yield SendInvoked(time_ms, client, TOPIC, partition, record.value)
    end = (time_ms + 1, client, TOPIC)
    if role == "never":
        return
    if is_unknown:
        yield SendEnded(*end, NO_PARTITION, record.value, Outcome.INFO)
    elif role == "fail":
        yield SendEnded(*end, place.partition, record.value, Outcome.FAIL)
    else:
        epoch = plan.epoch_of(place.round)
        leader = _OTHER_LEADER if role == "other leader" else epoch % _REPLICAS
        written = (record.offset, epoch, leader)
        yield SendEnded(*end, place.partition, record.value, Outcome.OK, *written)


def _readable(plan: AnomalyPlan, place: Place) -> list[Record]:
    """Returns the records of a round as a reader gets them."""
    anomaly = plan.places.get(place)
    records = [_record(place, index) for index in range(RECORDS_PER_POLL)]
    affected = records[_AFFECTED]
    if anomaly is Anomaly.LOST_WRITE:
        del records[_AFFECTED]
    elif anomaly is Anomaly.DUPLICATE:
        records[_AFFECTED + 1] = affected._replace(offset=affected.offset + 1)
    elif anomaly is Anomaly.PHANTOM_READ:
        records[_AFFECTED] = affected._replace(value=affected.value + _UNSENT)
    return records


def _polls(plan: AnomalyPlan, place: Place) -> Iterator[Operation]:
    """Yields the polls of the consumer that reads new records."""
    anomaly = plan.places.get(place)
    records = _readable(plan, place)
    affected = records[_AFFECTED]
    if anomaly is Anomaly.INCONSISTENT_OFFSETS:
        records[_AFFECTED] = affected._replace(value=affected.value + _OTHER)
    elif anomaly is Anomaly.INTERNAL_SKIP:
        del records[_AFFECTED]
    elif anomaly is Anomaly.INTERNAL_NON_MONOTONIC:
        records.insert(_AFFECTED, affected)
    if anomaly is not Anomaly.POLL_SKIP:
        epoch = plan.epoch_of(place.round)
        end = _first_offset(place.round + 1)
        poll = _poll(f"c{place.partition}", place.partition, records, [epoch] * len(records), end)
        poll = poll._replace(time_ms=_time_ms(place.round) + 2)
        yield poll
        if anomaly is Anomaly.NON_MONOTONIC_POLL:
            yield poll


def _poll(
    client: str, partition: int, records: list[Record], epochs: list[int], end: int
) -> PollEnded:
    return PollEnded(
        0,
        client,
        TOPIC,
        partition,
        Outcome.OK,
        [record.offset for record in records],
        [record.value for record in records],
        epochs,
        high_watermark=end,
        high_watermark_epoch=epochs[-1],
    )


def _reading(plan: AnomalyPlan, place: Place) -> Iterator[Operation]:
    is_affected = plan.places.get(place) is Anomaly.HW_REGRESSION
    if not is_affected and place.round % ROUNDS_PER_READING:
        return
    client = f"h{place.partition}-{place.round}" if is_affected else f"h{place.partition}"
    envelope = (_time_ms(place.round) + 3, client, TOPIC, place.partition)
    end = _first_offset(place.round + 1) - is_affected
    yield HighWatermarkInvoked(*envelope)
    yield HighWatermarkEnded(*envelope, Outcome.OK, end, plan.epoch_of(place.round))


def _beyond_the_end(plan: AnomalyPlan) -> Iterator[Operation]:
    for partition in sorted(plan.unseen):
        place = Place(partition, plan.rounds)
        yield from _send(plan, place, _record(place, 0), "known")


def _drain_poll(
    plan: AnomalyPlan, partition: int, first_round: int, end_round: int
) -> Iterator[Operation]:
    records: list[Record] = []
    epochs: list[int] = []
    for number in range(first_round, end_round):
        readable = _readable(plan, Place(partition, number))
        records += readable
        epochs += [plan.epoch_of(number)] * len(readable)
    time_ms = _time_ms(plan.rounds + first_round)
    if first_round == 0:
        yield PollInvoked(time_ms, "drain", TOPIC, partition, final=True)
    poll = _poll("drain", partition, records, epochs, NO_OFFSET)
    yield poll._replace(time_ms=time_ms, final=True)


def _digests(plan: AnomalyPlan) -> Iterator[Operation]:
    size = _first_offset(plan.rounds) // DIGEST_RANGES
    for partition in range(PARTITIONS):
        for number in range(DIGEST_RANGES):
            span = (number * size, (number + 1) * size)
            for broker in range(_REPLICAS):
                is_other = broker == 0 and Place(partition, number) in plan.divergent
                digest = "forked" if is_other else f"{partition}-{number}"
                time_ms = _time_ms(2 * plan.rounds)
                yield ReplicaDigest(time_ms, TOPIC, partition, broker, *span, digest)
