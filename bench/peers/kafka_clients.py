"""Kafka clients by confluent-kafka in a separate process. They block it: the process does nothing
else."""

from __future__ import annotations

import time
from collections.abc import Mapping

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition

from bench.suite.consumers import Read
from bench.suite.matrix import BATCH_BYTES, Case
from bench.suite.payload import values
from bench.suite.producers import Produced
from tidelog.model import Acks

# For full batches.
LINGER_MS = 5
_FLUSH_S = 60.0
_POLL_S = 0.2
_MAX_RECORDS = 5_000
_GIVE_UP_S = 60.0


def producer_settings(acks: Acks, linger_ms: int) -> dict[str, str]:
    """Returns the batch size and acks of Tidelog's producer; idempotent if possible, like it.

    Other settings are defaults.
    """
    return {
        "acks": "all" if acks is Acks.ALL else "1",
        "enable.idempotence": str(acks is Acks.ALL).lower(),
        "batch.size": str(BATCH_BYTES),
        "linger.ms": str(linger_ms),
        "compression.type": "none",
    }


async def produce(bootstrap: str, topic: str, case: Case, seconds: float) -> Produced:
    """Produces as fast as possible, round-robin over the partitions, until everything is
    acknowledged."""
    batch = values(case.record_bytes, case.records_per_batch)
    failed = sent = 0

    def on_failure(*_: object) -> None:
        nonlocal failed
        failed += 1

    producer = _producer(
        bootstrap, {**producer_settings(case.acks, LINGER_MS), "delivery.report.only.error": True}
    )
    began_cpu, began = time.process_time(), time.perf_counter()
    end = began + seconds
    while time.perf_counter() < end:
        number = sent // len(batch) % case.partitions
        for value in batch:
            _send(producer, topic, value, number, on_failure)
        producer.poll(0)
        sent += len(batch)
    lost = producer.flush(_FLUSH_S)
    took, cpu = time.perf_counter() - began, time.process_time() - began_cpu
    records = sent - failed - lost
    return Produced(records * case.record_bytes, records, failed + lost, took, cpu)


async def fill(bootstrap: str, topic: str, case: Case, size: int) -> int:
    """Writes records of at least `size` bytes in total. Returns their number.

    Raises `KafkaException`.
    """
    value = values(case.record_bytes, 1)[0]
    count = -(-size // case.record_bytes)
    failures: list[object] = []
    producer = _producer(
        bootstrap,
        {**producer_settings(Acks.ALL, LINGER_MS), "delivery.report.only.error": True},
    )
    for number in range(count):
        _send(producer, topic, value, number % case.partitions, lambda e, _: failures.append(e))
    if producer.flush(_FLUSH_S) or failures:
        raise KafkaException(f"the backlog could not be written: {failures[:1]}")
    return count


async def one_in_flight(bootstrap: str, topic: str, case: Case, seconds: float) -> list[float]:
    """Like `producers.one_in_flight`."""
    value = values(case.record_bytes, 1)[0]
    found: list[float] = []
    answers: list[object] = []
    producer = _producer(bootstrap, producer_settings(Acks.ALL, 0))
    began = time.perf_counter()
    number = 0
    while (sent := time.perf_counter()) < began + seconds:
        producer.produce(
            topic,
            value,
            partition=number % case.partitions,
            on_delivery=lambda error, _: answers.append(error),
        )
        while not answers:
            producer.poll(_GIVE_UP_S)
        if (error := answers.pop()) is not None:
            raise KafkaException(error)
        if sent > began + seconds / 10:
            found.append((time.perf_counter() - sent) * 1000)
        number += 1
    return sorted(found)


async def read_all(bootstrap: str, topic: str, partitions: int, records: int) -> Read:
    """Reads from the first poll until the expected number of records, the whole topic, has
    arrived."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    try:
        consumer.assign([TopicPartition(topic, n, OFFSET_BEGINNING) for n in range(partitions)])
        began_cpu, began = time.process_time(), time.perf_counter()
        found = 0
        while found < records:
            if time.perf_counter() > began + _GIVE_UP_S:
                raise TimeoutError(f"{found:,} of {records:,} records after {_GIVE_UP_S:g} s")
            for message in consumer.consume(_MAX_RECORDS, _POLL_S):
                if message.error() is not None:
                    raise KafkaException(message.error())
                assert message.value() is not None
                found += 1
        return Read(found, time.perf_counter() - began, time.process_time() - began_cpu)
    finally:
        consumer.close()


def _producer(bootstrap: str, settings: Mapping[str, str | bool]) -> Producer:
    return Producer({"bootstrap.servers": bootstrap, **settings})


def _send(producer: Producer, topic: str, value: bytes, number: int, failed: object) -> None:
    while True:
        try:
            producer.produce(topic, value, partition=number, on_delivery=failed)
        except BufferError:  # its buffer is full
            producer.poll(0.01)
        else:
            return
