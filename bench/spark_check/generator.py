"""A history of an intact log, with planted anomalies, generated piece by piece: each piece is
independent of the others. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from bench.spark_check.planted import (
    DIGEST_RANGES,
    PARTITIONS,
    RECORDS_PER_POLL,
    ROUNDS_PER_DRAIN_POLL,
    ROUNDS_PER_SEGMENT,
    Place,
    Planted,
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
# This many sends end with an unknown outcome, and were written; their ends do not show in which
# partition.
UNKNOWN_EVERY = 97
# Values beyond those of the records: of a send without an end, and of no send.
_OTHER = 1 << 40
_NOBODYS = 1 << 41
_REPLICAS = 3
_OTHER_LEADER = 9


class Record(NamedTuple):
    offset: int
    value: int


class Segment(NamedTuple):
    """The rounds that it has; for a segment of the drain (`is_drain`) those that the drain
    reads."""

    number: int
    first_round: int
    end_round: int
    is_drain: bool


def segments_of(planted: Planted) -> list[Segment]:
    """In the order of the history."""
    spans = [
        (first, min(first + ROUNDS_PER_SEGMENT, planted.rounds))
        for first in range(0, planted.rounds, ROUNDS_PER_SEGMENT)
    ]
    return [
        Segment(number, *span, number >= len(spans)) for number, span in enumerate([*spans, *spans])
    ]


def operations_of(planted: Planted, segment: Segment) -> Iterator[Operation]:
    """The last segment of the drain ends with the digests of the replicas."""
    if not segment.is_drain:
        for number in range(segment.first_round, segment.end_round):
            yield from _round(planted, number)
        return
    if segment.first_round == 0:
        yield from _beyond_the_end(planted)
    for number in range(segment.first_round, segment.end_round, ROUNDS_PER_DRAIN_POLL):
        end = min(number + ROUNDS_PER_DRAIN_POLL, segment.end_round)
        for partition in range(PARTITIONS):
            yield from _drain_poll(planted, partition, number, end)
    if segment.end_round == planted.rounds:
        yield from _digests(planted)


def _round(planted: Planted, number: int) -> Iterator[Operation]:
    if number and number % planted.rounds_per_epoch == 0:
        yield Nemesis(_time_ms(number), "kill", f"leaders of epoch {planted.epoch_of(number) - 1}")
    for partition in range(PARTITIONS):
        place = Place(partition, number)
        yield from _sends(planted, place)
        yield from _polls(planted, place)
        yield from _reading(planted, place)


def _time_ms(number: int) -> int:
    return number * MS_PER_ROUND


def _first_offset(number: int) -> int:
    return number * RECORDS_PER_POLL


def _record(place: Place, index: int) -> Record:
    offset = _first_offset(place.round) + index
    return Record(offset, offset * PARTITIONS + place.partition)


# The record of a round that an anomaly strikes; the next one is its neighbour.
_STRUCK = RECORDS_PER_POLL // 2


def _sends(planted: Planted, place: Place) -> Iterator[Operation]:
    anomaly = planted.places.get(place)
    records = [_record(place, index) for index in range(RECORDS_PER_POLL)]
    if anomaly is Anomaly.NON_MONOTONIC_SEND:
        struck, neighbour = records[_STRUCK : _STRUCK + 2]
        records[_STRUCK : _STRUCK + 2] = [neighbour, struck]
    if anomaly is Anomaly.INCONSISTENT_OFFSETS:
        other = records[_STRUCK].value + _OTHER
        yield SendInvoked(_time_ms(place.round), "other", TOPIC, place.partition, other)
    for index, record in enumerate(records):
        yield from _send(planted, place, record, _role(anomaly, index))


_STRUCK_ROLES = {
    Anomaly.DUPLICATE: "never",
    Anomaly.PHANTOM_READ: "never",
    Anomaly.ABORTED_READ: "fail",
    Anomaly.TWO_LEADERS: "other leader",
}


def _role(anomaly: Anomaly | None, index: int) -> str:
    """How the send of a struck record ends, and that of its neighbour; empty: like any other."""
    if anomaly is None or index not in (_STRUCK, _STRUCK + 1):
        return ""
    if index == _STRUCK:
        return _STRUCK_ROLES.get(anomaly, "told")
    return "never" if anomaly is Anomaly.DUPLICATE else "told"


def _send(planted: Planted, place: Place, record: Record, role: str) -> Iterator[Operation]:
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
        epoch = planted.epoch_of(place.round)
        leader = _OTHER_LEADER if role == "other leader" else epoch % _REPLICAS
        written = (record.offset, epoch, leader)
        yield SendEnded(*end, place.partition, record.value, Outcome.OK, *written)


def _given(planted: Planted, place: Place) -> list[Record]:
    """The records of a round as a reader gets them."""
    anomaly = planted.places.get(place)
    records = [_record(place, index) for index in range(RECORDS_PER_POLL)]
    struck = records[_STRUCK]
    if anomaly is Anomaly.LOST_WRITE:
        del records[_STRUCK]
    elif anomaly is Anomaly.DUPLICATE:
        records[_STRUCK + 1] = struck._replace(offset=struck.offset + 1)
    elif anomaly is Anomaly.PHANTOM_READ:
        records[_STRUCK] = struck._replace(value=struck.value + _NOBODYS)
    return records


def _polls(planted: Planted, place: Place) -> Iterator[Operation]:
    """The polls of the one consumer that follows."""
    anomaly = planted.places.get(place)
    records = _given(planted, place)
    struck = records[_STRUCK]
    if anomaly is Anomaly.INCONSISTENT_OFFSETS:
        records[_STRUCK] = struck._replace(value=struck.value + _OTHER)
    elif anomaly is Anomaly.INTERNAL_SKIP:
        del records[_STRUCK]
    elif anomaly is Anomaly.INTERNAL_NON_MONOTONIC:
        records.insert(_STRUCK, struck)
    if anomaly is not Anomaly.POLL_SKIP:
        epoch = planted.epoch_of(place.round)
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


def _reading(planted: Planted, place: Place) -> Iterator[Operation]:
    is_struck = planted.places.get(place) is Anomaly.HW_REGRESSION
    if not is_struck and place.round % ROUNDS_PER_READING:
        return
    client = f"h{place.partition}-{place.round}" if is_struck else f"h{place.partition}"
    envelope = (_time_ms(place.round) + 3, client, TOPIC, place.partition)
    end = _first_offset(place.round + 1) - is_struck
    yield HighWatermarkInvoked(*envelope)
    yield HighWatermarkEnded(*envelope, Outcome.OK, end, planted.epoch_of(place.round))


def _beyond_the_end(planted: Planted) -> Iterator[Operation]:
    for partition in sorted(planted.unseen):
        place = Place(partition, planted.rounds)
        yield from _send(planted, place, _record(place, 0), "told")


def _drain_poll(
    planted: Planted, partition: int, first_round: int, end_round: int
) -> Iterator[Operation]:
    records: list[Record] = []
    epochs: list[int] = []
    for number in range(first_round, end_round):
        given = _given(planted, Place(partition, number))
        records += given
        epochs += [planted.epoch_of(number)] * len(given)
    time_ms = _time_ms(planted.rounds + first_round)
    if first_round == 0:
        yield PollInvoked(time_ms, "drain", TOPIC, partition, final=True)
    poll = _poll("drain", partition, records, epochs, NO_OFFSET)
    yield poll._replace(time_ms=time_ms, final=True)


def _digests(planted: Planted) -> Iterator[Operation]:
    size = _first_offset(planted.rounds) // DIGEST_RANGES
    for partition in range(PARTITIONS):
        for number in range(DIGEST_RANGES):
            span = (number * size, (number + 1) * size)
            for broker in range(_REPLICAS):
                is_other = broker == 0 and Place(partition, number) in planted.divergent
                digest = "forked" if is_other else f"{partition}-{number}"
                time_ms = _time_ms(2 * planted.rounds)
                yield ReplicaDigest(time_ms, TOPIC, partition, broker, *span, digest)
